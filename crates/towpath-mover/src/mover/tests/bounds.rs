//! Limits of a copy: its rate and its use of a site. The number of files does not limit it.

use super::{remote::serve, *};

/// Copies `pairs` of `files` files and returns the duration in seconds.
async fn seconds(options: Options, pairs: Vec<Job>, trees: Option<Trees>, files: usize) -> f64 {
    let mover = Mover::new(options, Arc::new(NoopObserver));
    let jobs = jobs(pairs, trees, mover.progress()).unwrap();
    let start = clock::now();
    let outcomes: Vec<_> = mover.run(jobs).collect().await;
    assert!(outcomes.iter().all(|outcome| matches!(outcome, Outcome::Copied(..))), "{outcomes:?}");
    assert_eq!(outcomes.len(), files);
    start.elapsed().as_secs_f64()
}

#[tokio::test(start_paused = true)]
async fn what_a_limit_counts_is_what_files_bring() {
    const RATE: u64 = 1 << 20;
    for (files, size) in [(1000, 1000), (40, 200_000)] {
        let (from, to) = (memory(), memory());
        let mut pairs = Vec::new();
        for number in 0..files {
            let (source, copy) = (format!("/s/{number}"), format!("/t/{number}"));
            put(&from, &source, Pattern::new(1).bytes(0, size)).await;
            // The size is unknown to the mover.
            pairs.push(Job::new(location(&from, &source), location(&to, &copy)));
        }
        let options = Options { limit_bytes_per_s: Some(RATE), ..options() };
        let seconds = seconds(options, pairs, None, files).await;
        let due = files as f64 * (FILE_BYTES + size as u64) as f64 / RATE as f64;
        // The last transfer starts when the time of the previous ones is over.
        assert!((0.9 * due..1.1 * due).contains(&seconds), "{files} files of {size} bytes: {seconds} s");
    }
}

/// Each call at the source takes up to 100 ms, as over a long path: copied one by one, the files would take ten
/// minutes.
#[tokio::test(start_paused = true)]
async fn small_files_do_not_wait_for_each_other() {
    const FILES: usize = 5000;
    let (near, to) = (memory(), memory());
    for number in 0..FILES {
        put(&near, &format!("/s/{number}"), Bytes::from_static(b"content")).await;
    }
    let longest_delay = Duration::from_millis(100);
    let far = FaultStore::new(near, Faults { delays_per_mille: 1000, longest_delay, ..Faults::default() });
    let from: Arc<dyn Store> = Arc::new(far);
    let pairs = vec![Job::new(location(&from, "/s"), location(&to, "/t"))];
    let options = Options { max_files: FILES, ..options() };
    let seconds = seconds(options, pairs, Some(Trees::default()), FILES).await;
    assert!(seconds < 3.0, "{seconds} s");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_nice_copy_asks_few_questions_at_a_time_over_http() {
    const FILES: usize = 60;
    let (there, to) = (memory(), memory());
    for number in 0..FILES {
        put(&there, &format!("/{number}"), Bytes::from_static(b"content")).await;
    }
    let slow = FaultStore::new(there, Faults::default());
    let held = slow.hold("open");
    let port = serve(&(Arc::new(slow) as _));
    let prefix = format!("http://127.0.0.1:{port}");
    let client = Arc::new(Client::new(Arc::default()));
    let (store, path) = client.connect(&prefix.parse().unwrap()).unwrap();
    let far = StoreLocation::remote(store, Caller::local(), path, ("127.0.0.1".into(), port), &prefix);
    let pair = |name: &str| {
        let path = StorePath::parse(name.as_bytes()).unwrap();
        Job::new(far.with_path(path), location(&to, name))
    };
    let pairs = (0..FILES).map(|number| pair(&format!("/{number}"))).collect();
    let options = Options { nice: true, client: Some(Arc::clone(&client)), ..options() };
    let copying = tokio::spawn(seconds(options, pairs, None, FILES));
    for _ in 0..8 {
        held.reached().await;
    }
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert_eq!(client.connections().len(), 8);
    drop(held);
    copying.await.unwrap();
}

/// A large file is sent while it is written, and occupies a connection until it is complete.
#[tokio::test]
async fn a_nice_copy_has_few_uploads_under_way_over_http() {
    let client = Client::new(Arc::default());
    let (to, path) = client.connect(&"http://127.0.0.1:1/copy".parse().unwrap()).unwrap();
    let to = StoreLocation::remote(to, Caller::local(), path, ("127.0.0.1".into(), 1), "http://127.0.0.1:1");
    let most = |nice, size| {
        let mover = Mover::new(Options { nice, ..options() }, Arc::new(NoopObserver));
        let job = Job { size, ..Job::new(location(&memory(), "/file"), to.clone()) };
        let admitted = std::iter::from_fn(|| tokio::task::unconstrained(mover.file_permits(&job)).now_or_never());
        admitted.take(20).collect::<Vec<_>>().len()
    };
    let sizes = [Some(1000), Some(1 << 20), Some(1 << 30), None];
    assert_eq!(sizes.map(|size| most(true, size)), [20, 8, 8, 8]);
    assert_eq!(sizes.map(|size| most(false, size)), [20; 4]);
}
