//! Copies to and from a towpath server over both of its protocols.

use towpath_client::{Client, ClientOptions};
use towpath_proto::url::Url;
use towpath_server::{
    ServeConfig, Server,
    config::{AnonymousRule, Right},
};

use super::*;

const PATTERN: Pattern = Pattern::new(9);

/// Serves `store` to all clients and returns the port. The server ends with the test's runtime.
pub(super) fn serve(store: &Arc<dyn Store>) -> u16 {
    let mut config = ServeConfig { listen: vec![([127, 0, 0, 1], 0).into()], ..ServeConfig::default() };
    config.access.anonymous = vec![AnonymousRule { path: "/".into(), allow: vec![Right::Read, Right::Modify] }];
    let server = Server::builder(Arc::clone(store), &config).bind().unwrap();
    let port = server.addresses()[0].port();
    tokio::spawn(server.run());
    port
}

/// Returns the root of the served `store` over each protocol.
fn served(store: &Arc<dyn Store>) -> [StoreLocation; 2] {
    let port = serve(store);
    ["root", "http"].map(|scheme| {
        let prefix = format!("{scheme}://127.0.0.1:{port}");
        let url = prefix.parse::<Url>().unwrap();
        let (store, path) = Client::new(Arc::new(ClientOptions::default())).connect(&url).unwrap();
        StoreLocation::remote(store, Caller::local(), path, ("127.0.0.1".into(), port), &prefix)
    })
}

fn at(location: &StoreLocation, path: &str) -> StoreLocation {
    location.with_path(StorePath::parse(path.as_bytes()).unwrap())
}

/// Copies a tree; returns the bytes reported to the observer.
async fn copy_tree(from: StoreLocation, to: StoreLocation, files: usize) -> (u64, u64) {
    let counted = Arc::new(Counted::default());
    let mover = Mover::new(options(), Arc::clone(&counted) as _);
    let jobs = jobs(vec![Job::new(from, to)], Some(Trees::default()), mover.progress()).unwrap();
    let outcomes: Vec<_> = mover.run(jobs).collect().await;
    assert!(outcomes.iter().all(|outcome| matches!(outcome, Outcome::Copied(..))), "{outcomes:?}");
    assert_eq!(outcomes.len(), files);
    (*counted.expected.borrow(), *counted.transferred.borrow())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tree_goes_to_a_server_and_comes_back() {
    let (source, there) = (memory(), memory());
    let sizes = sizes();
    for (seed, (name, size)) in sizes.iter().enumerate() {
        put(&source, &format!("/s/{name}"), Pattern::new(seed as u64).bytes(0, *size)).await;
    }
    let total = sizes.values().sum::<usize>() as u64;
    for far in served(&there) {
        let name = far.at().split(':').next().unwrap();
        let away = copy_tree(location(&source, "/s"), at(&far, &format!("/{name}")), sizes.len()).await;
        let back = memory();
        let home = copy_tree(at(&far, &format!("/{name}")), location(&back, "/t"), sizes.len()).await;
        assert_eq!([away, home], [(total, total); 2], "{far}");
        for (seed, (file, size)) in sizes.iter().enumerate() {
            let data = get(&back, &format!("/t/{file}")).await.unwrap();
            assert_eq!(data.len(), *size, "{far}");
            Pattern::new(seed as u64).check(0, &data);
        }
    }
}

/// A file sent together with its close counts as moved when the server has committed it, not when it was sent.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_small_file_counts_when_it_is_shown() {
    let from = memory();
    put(&from, "/small", PATTERN.bytes(0, 10_000)).await;
    let slow = Arc::new(FaultStore::new(memory(), Faults::default()));
    for (number, far) in served(&(Arc::clone(&slow) as _)).into_iter().enumerate() {
        let held = slow.hold("commit");
        let counted = Arc::new(Counted::default());
        let mover = Mover::new(options(), Arc::clone(&counted) as _);
        let job = Job::new(location(&from, "/small"), at(&far, &format!("/copy{number}")));
        let copying = tokio::spawn(async move { mover.copy(&job).await });
        held.reached().await;
        assert_eq!((*counted.expected.borrow(), *counted.transferred.borrow()), (10_000, 0), "{far}");
        drop(held);
        let copied = copying.await.unwrap().unwrap().unwrap();
        assert_eq!((copied.bytes, *counted.transferred.borrow()), (10_000, 10_000), "{far}");
    }
}

/// A server whose storage becomes full: stored data stay, and the copy resumes there when space is available.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_large_file_goes_on_when_its_server_has_room_again() {
    const SIZE: usize = 80 << 20;
    let from = memory();
    put(&from, "/large", PATTERN.bytes(0, SIZE)).await;
    let directory = tempfile::tempdir().unwrap();
    let local: Arc<dyn Store> = Arc::new(LocalStore::open(directory.path(), LocalOptions::default()).unwrap());
    let full = Arc::new(FaultStore::new(Arc::clone(&local), Faults::default()));
    let [far, _] = served(&(Arc::clone(&full) as _));
    let job = Job::new(location(&from, "/large"), at(&far, "/copy"));
    full.fail("write", 20, Fault::NoSpace);
    let narrow = || Options { window_bytes: 4 << 20, ..options() };
    let error = Mover::new(narrow(), Arc::new(NoopObserver)).copy(&job).await.unwrap_err();
    assert_eq!(error.fault(), Fault::NoSpace, "{error}");
    assert_eq!(get(&local, "/copy").await.unwrap_err().fault(), Fault::NotFound);

    let counted = Arc::new(Counted::default());
    Mover::new(narrow(), Arc::clone(&counted) as _).copy(&job).await.unwrap();
    let again = *counted.transferred.borrow();
    assert!(again > 0 && again + (10 << 20) < SIZE as u64, "{again} bytes were copied again");
    assert_eq!(get(&local, "/copy").await.unwrap(), PATTERN.bytes(0, SIZE));
}
