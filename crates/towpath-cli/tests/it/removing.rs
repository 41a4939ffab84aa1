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
