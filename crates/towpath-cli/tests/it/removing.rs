//! `rm`: removed and kept entries.

use super::program::Directory;

/// `tree` with files, directories, and links to a file and a directory outside of it.
fn tree() -> Directory {
    let directory = Directory::new();
    directory.put("precious/file", "precious");
    directory.put("tree/a", "a");
    directory.put("tree/deep/er/b", "b");
    std::fs::create_dir(directory.host("tree/empty")).unwrap();
    directory.link("tree/directory-link", "../precious");
    directory.link("tree/deep/file-link", "../../precious/file");
    directory.link("tree/dangling", "nowhere");
    directory
}

#[test]
fn a_tree_goes_and_what_its_links_lead_to_stays() {
    let directory = tree();
    assert_eq!(directory.run("rm -r tree").expect(0).stdout, "");
    assert_eq!(directory.names(""), ["precious"]);
    assert_eq!(directory.get("precious/file"), "precious");
}

#[test]
fn so_it_does_over_the_network() {
    for face in 0..2 {
        let directory = tree();
        directory.link("link", "precious");
        let served = directory.serve();
        let url = &served.urls()[face];
        directory.run(&format!("rm -r {url}/tree")).expect(0);
        directory.run(&format!("rm -r {url}/link")).expect(0);
        assert_eq!(directory.names(""), ["precious"], "{url}");
        assert_eq!(directory.get("precious/file"), "precious", "{url}");
    }
}

#[test]
fn a_directory_and_a_root_are_not_removed_unasked() {
    let directory = tree();
    let outcome = directory.run("rm tree").expect(5);
    assert!(outcome.stderr.contains("use -r"), "{outcome:?}");
    directory.run("rm -r /").expect(2);
    let served = directory.serve();
    for url in served.urls() {
        directory.run(&format!("rm -r {url}/")).expect(2);
    }
    directory.run("rm missing").expect(3);
    assert_eq!(directory.names(""), ["precious", "tree"]);
}

#[test]
fn rmdir_removes_only_empty_directories() {
    let directory = tree();
    let served = directory.serve();
    for prefix in ["".to_owned()].into_iter().chain(served.urls().map(|url| format!("{url}/"))) {
        for name in ["one", "two"] {
            std::fs::create_dir(directory.host(&format!("tree/{name}"))).unwrap();
        }
        let line =
            ["tree/one", "tree/deep", "tree/two/", "tree/missing"].map(|name| format!("{prefix}{name}")).join(" ");
        let outcome = directory.run(&format!("rmdir {line}")).expect(6);
        let (deep, missing) = outcome.stderr.split_once('\n').unwrap();
        assert!(deep.contains("tree/deep: the directory is not empty"), "{outcome:?}");
        assert_eq!(deep.matches("not empty").count(), 1, "{outcome:?}");
        assert!(missing.contains("tree/missing: no such file"), "{outcome:?}");
        assert_eq!(directory.names("tree"), ["a", "dangling", "deep", "directory-link", "empty"], "{prefix}");
        directory.run(&format!("rmdir {prefix}tree/a")).expect(5);
        let outcome = directory.run(&format!("rmdir {prefix}")).expect(2);
        assert!(prefix.is_empty() || outcome.stderr.contains("the root of a storage"), "{outcome:?}");
    }
    let outcome = directory.run(&format!("rmdir {}/tree/*e*", served.urls()[0])).expect(6);
    assert!(outcome.stderr.contains("deep: the directory is not empty"), "{outcome:?}");
    assert_eq!(directory.names("tree"), ["a", "dangling", "deep", "directory-link"]);
}
