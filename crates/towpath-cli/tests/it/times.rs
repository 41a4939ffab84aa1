//! Times and modes in copies of trees.

use std::{
    os::unix::fs::{MetadataExt as _, PermissionsExt as _},
    time::{Duration, SystemTime},
};

use towpath_store::sys::disk;

use super::program::Directory;

/// Creates a tree whose files and directories have different times in the past.
fn tree() -> Directory {
    let directory = Directory::new();
    let large = "x".repeat(5 << 20);
    for (name, content) in [("s/a", "a"), ("s/large", &*large), ("s/d/e/b", "b"), ("s/d/c", "c")] {
        directory.put(name, content);
    }
    std::fs::create_dir(directory.host("s/empty")).unwrap();
    for (number, name) in NAMES.iter().enumerate() {
        let time = SystemTime::UNIX_EPOCH + Duration::from_secs(1_500_000_000 + number as u64 * 1000);
        disk::open(&directory.host(&format!("s/{name}"))).unwrap().set_modified(time).unwrap();
    }
    directory
}

/// Names in the tree; files precede their directories.
const NAMES: [&str; 8] = ["a", "large", "d/e/b", "d/c", "empty", "d/e", "d", "."];

fn times(directory: &Directory, name: &str) -> Vec<i64> {
    NAMES.iter().map(|below| directory.host(&format!("{name}/{below}")).metadata().unwrap().mtime()).collect()
}

#[test]
fn files_and_directories_keep_their_times() {
    let directory = tree();
    let served = directory.serve();
    let [root, http] = served.urls();
    for (number, (from, to)) in
        [("", ""), ("", &*format!("{root}/")), ("", &format!("{http}/")), (&format!("{http}/"), &format!("{root}/"))]
            .into_iter()
            .enumerate()
    {
        directory.run(&format!("cp -r {from}s {to}cp-{number}")).expect(0);
        assert_eq!(times(&directory, &format!("cp-{number}")), times(&directory, "s"), "cp {from} {to}");
        directory.run(&format!("sync {from}s {to}sync-{number}")).expect(0);
        assert_eq!(times(&directory, &format!("sync-{number}")), times(&directory, "s"), "sync {from} {to}");
        // A new file changes the time of its directory; its removal restores the time.
        directory.put(&format!("sync-{number}/d/e/extra"), "extra");
        let outcome =
            directory.run(&format!("sync --delete --compare time {from}s {to}sync-{number} --json")).expect(0);
        assert!(outcome.stdout.contains("\"files\":0") && outcome.stdout.contains("\"deleted\":1"), "{outcome:?}");
        assert_eq!(times(&directory, &format!("sync-{number}")), times(&directory, "s"), "--delete {from} {to}");
    }
}

#[test]
fn a_time_that_differs_makes_a_copy_where_times_are_kept() {
    let directory = tree();
    let served = directory.serve();
    for to in ["".into()].into_iter().chain(served.urls().map(|url| format!("{url}/"))) {
        let line = format!("sync s {to}t --json");
        directory.run(&line).expect(0);
        // Of the same size, and older than the existing file.
        directory.put("t/a", "z");
        let outcome = directory.run(&line).expect(0);
        assert!(outcome.stdout.contains("\"files\":1"), "{to}: {outcome:?}");
        assert_eq!(directory.get("t/a"), "a", "{to}");
        directory.run("rm -r t").expect(0);
    }
}

#[test]
fn permission_bits_go_along_where_they_can_be_told() {
    let directory = tree();
    let set = |name: &str, mode| {
        std::fs::set_permissions(directory.host(name), std::fs::Permissions::from_mode(mode)).unwrap();
    };
    let mode = |name: &str| directory.host(name).metadata().unwrap().mode() & 0o777;
    set("s/a", 0o600);
    set("s/d", 0o700);
    set("s/d/e", 0o500);
    let served = directory.serve();
    for to in ["", &format!("{}/", served.urls()[0])] {
        directory.run(&format!("sync s {to}t")).expect(0);
        assert_eq!([mode("t/a"), mode("t/d"), mode("t/d/e")], [0o600, 0o700, 0o500], "{to}");
        set("t/a", 0o640);
        set("t/d", 0o755);
        let outcome = directory.run(&format!("sync s {to}t --json")).expect(0);
        assert!(
            outcome.stdout.contains("\"files\":0") && outcome.stdout.contains("\"touched\":1"),
            "{to}: {outcome:?}"
        );
        assert_eq!([mode("t/a"), mode("t/d")], [0o600, 0o700], "{to}");
        set("t/d/e", 0o700);
        directory.run("rm -r t").expect(0);
    }
    set("s/d/e", 0o700);
}

#[test]
fn times_before_1970_are_kept_by_every_protocol_that_keeps_times() {
    let directory = Directory::new();
    let before = SystemTime::UNIX_EPOCH - Duration::from_millis(1_500);
    directory.put("s/file", "content");
    disk::open(&directory.host("s/file")).unwrap().set_modified(before).unwrap();
    let served = directory.serve();
    let [_, http] = served.urls();
    directory.run(&format!("sync s {http}/t")).expect(0);
    assert_eq!(directory.host("t/file").metadata().unwrap().modified().unwrap(), before);
    let again = directory.run(&format!("sync -n s {http}/t")).expect(0);
    assert!(!again.stdout.contains("copy"), "{again:?}");
    directory.run(&format!("cp -r {http}/t back")).expect(0);
    // HTTP has whole seconds.
    assert_eq!(directory.host("back/file").metadata().unwrap().mtime(), -2);
}

#[test]
fn a_time_that_cannot_be_kept_is_told() {
    let directory = Directory::new();
    directory.put("file", "content");
    let far = SystemTime::UNIX_EPOCH + Duration::from_secs(10_413_792_000);
    disk::open(&directory.host("file")).unwrap().set_modified(far).unwrap();
    if directory.host("file").metadata().unwrap().mtime() != 10_413_792_000 {
        eprintln!("skipped: the file system has no times after 2262");
        return;
    }
    let outcome = directory.run("cp -q file copy").expect(0);
    assert!(outcome.stderr.contains("its modification time is not between the years 1678 and 2261"), "{outcome:?}");
}
