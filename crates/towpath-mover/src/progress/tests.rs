use super::*;
use crate::mover::tests::{location, memory};

#[derive(Debug, Default)]
struct Follower(Mutex<Vec<String>>);

impl Observer for Follower {
    fn follows_files(&self) -> bool {
        true
    }

    fn begins(&self, file: &Arc<ActiveFile>) {
        locked(&self.0).push(file.to.to_string());
    }
}

fn job(name: &str) -> Job {
    let store = memory();
    Job::new(location(&store, "/from"), location(&store, name))
}

#[test]
fn a_file_counts_from_when_it_is_found_until_it_ends() {
    let progress = Progress::new(Arc::new(NoopObserver));
    let list = progress.list();
    let (first, second) = (progress.find(Some(100)), progress.find(None));
    let found = ProgressSnapshot { found_files: 2, ahead_bytes: 100, ..ProgressSnapshot::default() };
    assert_eq!((progress.now(), progress.ahead()), (found, None));
    drop(list);
    assert_eq!(progress.ahead(), Some(100));
    // The first file has 30 bytes stored and has grown; the size of the second was unknown.
    first.begin(&job("/a"), 110, 30);
    second.begin(&job("/b"), 7, 0);
    assert_eq!(progress.now().ahead_bytes, 87);
    // After a lost connection a file begins again, and has not been resumed.
    second.begin(&job("/b"), 7, 3);
    second.begin(&job("/b"), 7, 0);
    first.transferred(50);
    assert_eq!((progress.now().moved_bytes, progress.now().ahead_bytes), (50, 37));
    let clone = first.clone();
    drop(first);
    assert_eq!(progress.now().ended_files, 0);
    drop((clone, second));
    let ended = ProgressSnapshot {
        found_files: 2,
        is_all_found: true,
        ended_files: 2,
        moved_bytes: 50,
        resumed_files: 1,
        resumed_bytes: 30,
        ..ProgressSnapshot::default()
    };
    assert_eq!(progress.now(), ended, "what was not moved is no longer ahead");
    assert_eq!(progress.active(9).1, 0, "nobody follows files");
}

#[test]
fn files_under_way_are_those_that_began_and_did_not_end() {
    let follower = Arc::new(Follower::default());
    let progress = Progress::new(Arc::clone(&follower) as _);
    let parts: Vec<_> = ["/a", "/b", "/c"].map(|name| (progress.find(None), job(name))).into();
    assert_eq!(progress.active(9).1, 0);
    for (part, job) in &parts {
        part.begin(job, 10, 4);
        part.transferred(3);
    }
    let (oldest, count) = progress.active(2);
    let seen: Vec<_> = oldest.iter().map(|file| (file.to.to_string(), file.bytes, file.arrived_bytes())).collect();
    assert_eq!((seen, count), (vec![("/a".into(), 10, 7), ("/b".into(), 10, 7)], 3));
    // A restart by another route: the same file, now with the latest start.
    parts[0].0.begin(&parts[0].1, 10, 0);
    let (oldest, count) = progress.active(9);
    assert_eq!((oldest[2].to.to_string(), oldest[2].arrived_bytes(), count), ("/a".into(), 0, 3));
    drop((oldest, parts));
    assert_eq!(progress.active(9).1, 0);
    assert_eq!(*locked(&follower.0), ["/a", "/b", "/c", "/a"]);
}
