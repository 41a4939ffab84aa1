//! `sync`: synchronized, skipped, and protected entries.

use std::{
    collections::BTreeMap,
    os::unix::ffi::OsStrExt as _,
    path::Path,
    time::{Duration, SystemTime},
};

use rustix::fs::{self, Mode, OFlags};
use serde_json::Value;
use towpath_store::sys::disk;

use super::program::Directory;

/// Returns all files below a directory with their contents, without directories and links.
fn files(directory: &Directory, name: &str) -> BTreeMap<String, String> {
    fn below(top: &Path, directory: &Path, found: &mut BTreeMap<String, String>) {
        for entry in directory.read_dir().unwrap() {
            let path = entry.unwrap().path();
            if path.ends_with(".towpath") {
                continue;
            }
            if path.is_dir() {
                below(top, &path, found);
            } else {
                let name = path.strip_prefix(top).unwrap().to_string_lossy().into_owned();
                found.insert(name, String::from_utf8(disk::read(&path, 1 << 20).unwrap()).unwrap());
            }
        }
    }
    let mut found = BTreeMap::new();
    below(&directory.host(name), &directory.host(name), &mut found);
    found
}

/// Sets the time of a file to several years and the given seconds in the past.
fn age(directory: &Directory, name: &str, seconds: u64) {
    let file = disk::append(&directory.host(name)).unwrap();
    file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000 - seconds)).unwrap();
}

fn tree() -> Directory {
    let directory = Directory::new();
    directory.put("s/same", "same");
    directory.put("s/grown", "grown");
    directory.put("s/d/new", "new");
    directory.put("s/d/e/changed", "after.");
    std::fs::create_dir(directory.host("s/empty")).unwrap();
    for name in ["same", "grown", "d/new", "d/e/changed"] {
        age(&directory, &format!("s/{name}"), 1000);
    }
    directory.put("t/grown", "small");
    directory.put("t/d/e/changed", "before");
    age(&directory, "t/d/e/changed", 2000);
    directory.put("t/extra", "extra");
    directory.put("t/gone/with/all", "extra");
    directory
}

/// Covers all kinds of ends: local, xroot and HTTP.
fn ends(directory: &Directory, mut test: impl FnMut(&str, &str)) {
    let served = directory.serve();
    let remote = served.urls().map(|url| format!("{url}/"));
    for (from, to) in [("", ""), ("", &remote[0]), ("", &remote[1]), (&remote[0], ""), (&remote[1], &remote[0])] {
        test(from, to);
    }
}

#[test]
fn a_destination_becomes_as_the_source_is_and_stays_so() {
    let directory = tree();
    let before = files(&directory, "t");
    ends(&directory, |from, to| {
        directory.run("rm -r t").expect(0);
        for (name, content) in &before {
            directory.put(&format!("t/{name}"), content);
        }
        age(&directory, "t/d/e/changed", 2000);
        let line = format!("sync --delete {from}s {to}t");
        let planned = directory.run(&format!("{line} --dry-run")).expect(0);
        let mut lines: Vec<_> = planned.stdout.lines().collect();
        lines.sort_unstable();
        let expected = [
            "copy d/e/changed (time)",
            "copy d/new (missing)",
            "copy same (missing)",
            "delete extra",
            "delete gone/",
            "mkdir empty/",
        ];
        // `grown` has the same size, and is newer at the destination.
        let lines: Vec<_> = lines.into_iter().filter(|line| !line.contains("grown")).collect();
        assert_eq!(lines, expected, "{line}");
        assert_eq!(files(&directory, "t"), before, "{line}: a dry run changes nothing");
        directory.run(&format!("{line} --compare digest")).expect(0);
        assert_eq!(files(&directory, "t"), files(&directory, "s"), "{line}");
        assert!(directory.host("t/empty").is_dir() && !directory.host("t/gone").exists(), "{line}");
        for compare in ["auto", "digest", "size"] {
            let again = directory.run(&format!("{line} --json --compare {compare}")).expect(0);
            assert_eq!(again.stdout.lines().count(), 1, "{line}: {again:?}");
            assert!(again.stdout.contains("\"files\":0") && again.stdout.contains("\"same\":4"), "{line}: {again:?}");
        }
    });
}

#[test]
fn programs_are_told_where_its_time_went() {
    let directory = tree();
    let told = directory.run("sync --json --events events s t").expect(0).stdout;
    for lines in [told, directory.get("events")] {
        let last: Value = serde_json::from_str(lines.lines().last().unwrap()).unwrap();
        assert!(last["explained"]["seconds"].is_f64() && last["explained"]["spent"].is_array(), "{last}");
    }
}

#[test]
fn without_delete_nothing_goes() {
    let directory = tree();
    directory.run("sync s t").expect(0);
    assert_eq!(directory.get("t/extra"), "extra");
    assert_eq!(directory.get("t/gone/with/all"), "extra");
    assert_eq!(directory.get("t/d/e/changed"), "after.");
}

#[test]
fn nothing_goes_unless_all_went_well() {
    let directory = tree();
    directory.link("s/d/loop", "..");
    let outcome = directory.run("sync --delete s t").expect(5);
    assert!(outcome.stderr.contains("it is skipped"), "{outcome:?}");
    assert!(outcome.stderr.contains("nothing is deleted"), "{outcome:?}");
    assert_eq!(directory.get("t/d/new"), "new");
    assert_eq!(directory.get("t/extra"), "extra");
}

#[test]
fn an_empty_or_missing_source_empties_nothing() {
    let directory = tree();
    std::fs::create_dir(directory.host("nothing")).unwrap();
    ends(&directory, |from, to| {
        let outcome = directory.run(&format!("sync --delete {from}nothing {to}t")).expect(5);
        assert!(outcome.stderr.contains("the source is empty"), "{outcome:?}");
        directory.run(&format!("sync --delete {from}missing {to}t")).expect(3);
        let outcome = directory.run(&format!("sync --delete --max-delete 1 {from}s {to}t")).expect(5);
        assert!(outcome.stderr.contains("2 deletions are more than --max-delete"), "{outcome:?}");
        assert_eq!(directory.get("t/extra"), "extra");
        assert_eq!(directory.get("t/gone/with/all"), "extra");
    });
    directory.run("sync --delete --allow-empty-source nothing t").expect(0);
    assert!(directory.names("t").is_empty());
}

#[test]
fn what_a_filter_leaves_out_stays_at_both_ends() {
    let directory = tree();
    directory.put("t/gone/with/keep.log", "log");
    directory.put("t/d/e/own.log", "log");
    directory.put("s/d/e/other.log", "log");
    directory.run("sync --delete --exclude *.log s t").expect(0);
    let kept: Vec<_> = files(&directory, "t").into_keys().collect();
    assert_eq!(kept, ["d/e/changed", "d/e/own.log", "d/new", "gone/with/keep.log", "grown", "same"]);
}

#[test]
fn what_is_in_the_way_goes_only_if_asked() {
    let directory = Directory::new();
    directory.put("s/a", "file");
    directory.put("s/b/in", "file");
    directory.put("t/a/in", "other");
    directory.put("t/b", "other");
    ends(&directory, |from, to| {
        directory.run("rm -r t").expect(0);
        directory.put("t/a/in", "other");
        directory.put("t/b", "other");
        let outcome = directory.run(&format!("sync {from}s {to}t")).expect(5);
        assert!(
            outcome.stderr.contains("a directory is in the way") && outcome.stderr.contains("a file is in the way")
        );
        let planned = directory.run(&format!("sync -n --delete {from}s {to}t")).expect(0);
        assert_eq!(
            planned.stdout, "delete a/\ncopy a (kind)\ndelete b\nmkdir b/\ncopy b/in (missing)\n",
            "{from} {to}"
        );
        directory.run(&format!("sync --delete {from}s {to}t")).expect(0);
        assert_eq!(files(&directory, "t"), files(&directory, "s"), "{from} {to}");
    });
}

/// Files behind a link are not part of the destination.
#[test]
fn nothing_is_written_nor_deleted_behind_a_link() {
    let directory = Directory::new();
    directory.put("precious/file", "precious");
    directory.put("s/d/new", "new");
    std::fs::create_dir(directory.host("t")).unwrap();
    directory.link("t/d", "../precious");
    directory.link("t/extra", "../precious");
    directory.run("sync --delete s t").expect(0);
    assert_eq!(directory.names("precious"), ["file"]);
    assert_eq!((directory.names("t"), directory.names("t/d")), (vec!["d".into()], vec!["new".into()]));
}

/// A link to an unmounted file system may have led to a directory when that was copied.
#[test]
fn a_directory_stays_where_the_source_leads_nowhere() {
    let directory = Directory::new();
    directory.put("s/file", "content");
    directory.link("s/d", "../unmounted/d");
    directory.put("t/d/precious", "precious");
    directory.put("t/extra", "extra");
    for line in ["sync --delete s t", "sync s t"] {
        let outcome = directory.run(line);
        assert_ne!(outcome.code, Some(0), "{outcome:?}");
        assert!(outcome.stderr.contains("the directory with this name is kept"), "{outcome:?}");
        assert_eq!(directory.names("t"), ["d", "extra", "file"]);
        assert_eq!(directory.get("t/d/precious"), "precious");
    }
}

#[test]
fn a_source_in_its_destination_stays() {
    let directory = Directory::new();
    directory.put("t/new/file", "content");
    directory.link("link", "t");
    let served = directory.serve();
    let [xroot, http] = served.urls().map(|url| format!("{url}/"));
    let names = ["", &xroot, &http].map(|at| (at, "t/new", "t"));
    // HTTP does not report the target of a link.
    let links = ["", &xroot].into_iter().flat_map(|at| [(at, "link/new", "t"), (at, "t/new", "link")]);
    for (at, source, destination) in names.into_iter().chain(links) {
        let outcome = directory.run(&format!("sync --delete {at}{source} {at}{destination}")).expect(5);
        assert!(outcome.stderr.contains("which is inside it"), "{outcome:?}");
        assert_eq!(directory.get("t/new/file"), "content");
    }
}

#[test]
fn a_file_is_synchronised_as_such() {
    let directory = Directory::new();
    directory.put("s", "content");
    let line = "sync s t --json";
    assert!(directory.run(line).expect(0).stdout.contains("\"files\":1"));
    assert!(directory.run(line).expect(0).stdout.contains("\"files\":0"));
    std::fs::create_dir(directory.host("d")).unwrap();
    directory.run("sync s d").expect(5);
    directory.run("sync d s").expect(5);
    directory.run("sync d d/e").expect(5);
}

/// A file copied without its time needs no second copy.
#[test]
fn known_digests_save_a_copy() {
    let directory = Directory::new();
    directory.put("written", "content");
    age(&directory, "written", 1000);
    directory.run("cp written s").expect(0);
    let mut copying = directory.command(["cp", "-", "t"]);
    let status = copying.stdin(disk::open(&directory.host("written")).unwrap()).status().unwrap();
    assert!(status.success());
    let outcome = directory.run("sync s t --json").expect(0);
    assert!(outcome.stdout.contains("\"files\":0") && outcome.stdout.contains("\"touched\":1"), "{outcome:?}");
    let times = ["s", "t"].map(|name| directory.host(name).metadata().unwrap().modified().unwrap());
    assert_eq!(times[0], times[1]);
}

#[test]
fn names_need_not_be_text() {
    let directory = Directory::new();
    std::fs::create_dir(directory.host("s")).unwrap();
    let odd = directory.host("s").join(std::ffi::OsStr::from_bytes(b"a\xff\tb"));
    disk::write(&odd, b"content").unwrap();
    ends(&directory, |from, to| {
        let planned = directory.run(&format!("sync -n {from}s {to}t")).expect(0);
        assert_eq!(planned.stdout, "mkdir ./\ncopy a\\xff\\tb (missing)\n");
        let outcome = directory.run(&format!("sync {from}s {to}t --json")).expect(0);
        assert!(outcome.stdout.contains("\"files\":1"), "{outcome:?}");
        let outcome = directory.run(&format!("sync {from}s {to}t --json")).expect(0);
        assert!(outcome.stdout.contains("\"files\":0"), "{outcome:?}");
        directory.run("rm -r t").expect(0);
    });
}

/// Listings of the xroot protocol omit names with a line break.
#[test]
fn what_a_listing_cannot_say_is_not_deleted() {
    let directory = Directory::new();
    directory.put("s/a\nb", "content");
    directory.put("s/c", "content");
    directory.run("cp -r s t").expect(0);
    let served = directory.serve();
    for url in served.urls() {
        directory.run(&format!("sync --delete {url}/s t")).expect(0);
        assert_eq!(directory.names("t"), ["a\nb", "c"], "{url}");
    }
}

/// Paths that are too deep are reported, and do not stop the other copies.
#[test]
fn what_lies_too_deep_is_told() {
    let directory = Directory::new();
    directory.put("s/file", "content");
    directory.put("s/z/file", "content");
    directory.put("t/extra", "extra");
    let name = "d".repeat(200);
    let flags = OFlags::DIRECTORY | OFlags::RDONLY;
    let mut deepest = fs::open(directory.host("s"), flags, Mode::empty()).unwrap();
    for _ in 0..30 {
        fs::mkdirat(&deepest, &*name, Mode::RWXU).unwrap();
        deepest = fs::openat(&deepest, &*name, flags, Mode::empty()).unwrap();
    }
    let outcome = directory.run("sync --delete s t").expect(5);
    assert!(outcome.stderr.contains("longer than"), "{outcome:?}");
    assert!(outcome.stderr.contains("nothing is deleted"), "{outcome:?}");
    assert_eq!(directory.names("t"), [&*name, "extra", "file", "z"]);
    assert_eq!(directory.get("t/z/file"), "content");
}
