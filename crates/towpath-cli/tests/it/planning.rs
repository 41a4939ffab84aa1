//! Where the columns of ROOT files lie.

use towpath_store::sys::disk;

use super::program::Directory;

const TREE: &[u8] = include_bytes!("../../../towpath-rootfile/tests/data/tree.root");
const NTUPLE: &[u8] = include_bytes!("../../../towpath-rootfile/tests/data/ntuple.root");

/// Returns a directory with both files.
fn with_files() -> Directory {
    let directory = Directory::new();
    disk::write(&directory.host("tree.root"), TREE).unwrap();
    disk::write(&directory.host("ntuple.root"), NTUPLE).unwrap();
    directory
}

#[test]
fn trees_are_listed() {
    let directory = with_files();
    let listed = directory.run("plan tree.root").expect(0).stdout;
    assert_eq!(listed, "tree: TTree, 3000 entries, 2 columns, 4.09 KiB\n");
    let listed = directory.run("plan --json ntuple.root").expect(0).stdout;
    assert_eq!(
        listed,
        "{\"trees\":[{\"columns\":[{\"blocks\":2,\"bytes\":324,\"name\":\"j\"},{\"blocks\":2,\"bytes\":66,\"name\":\"j._0\"},\
         {\"blocks\":2,\"bytes\":368,\"name\":\"n\"}],\"entries\":200,\"kind\":\"RNTuple\",\"tree\":\"ntuple\"}]}\n"
    );
}

#[test]
fn the_ranges_of_a_remote_file_are_those_of_the_local_one() {
    let directory = with_files();
    let served = directory.serve();
    for line in ["--columns inside --entries 1000:2000", "--json -c i*,else* -e :1 --gap 1MiB"] {
        let local = directory.run(&format!("plan tree.root {line}")).expect(0).stdout;
        for url in served.urls() {
            assert_eq!(directory.run(&format!("plan {url}/tree.root {line}")).expect(0).stdout, local);
        }
    }
    let planned = directory.run("plan tree.root --json -c inside -e 1000:2000 --gap 4kB").expect(0).stdout;
    assert_eq!(
        planned,
        "{\"bytes\":2415,\"columns\":[{\"blocks\":[[981,1987,1228],[1962,3215,1187]],\"bytes\":2415,\"name\":\"inside\"}],\
         \"entries\":3000,\"kind\":\"TTree\",\"ranges\":[[1987,2415]],\"selected_entries\":[1000,2000],\"tree\":\"tree\"}\n"
    );
}

#[test]
fn what_is_not_found_changes_the_exit_code() {
    let directory = with_files();
    let outcome = directory.run("plan tree.root -c inside,nothing*").expect(3);
    assert!(
        outcome.stdout.contains("inside") && outcome.stderr.contains("no column matches `nothing*`"),
        "{outcome:?}"
    );
    let outcome = directory.run("plan tree.root -t other").expect(3);
    assert!(outcome.stderr.contains("no tree `other` in the file, which has tree"), "{outcome:?}");
    directory.put("text.root", "root:x:0:0:root:/root:/bin/bash and more, which no program of ROOT has written");
    for (arguments, code, message) in [
        ("text.root", 5, "the file is damaged"),
        ("none.root", 3, "no such file"),
        ("tree.root -c [", 2, "--columns"),
        ("tree.root -c inside -e 3:2", 2, "0:1000"),
    ] {
        let outcome = directory.run(&format!("plan {arguments}")).expect(code);
        assert!(outcome.stderr.to_lowercase().contains(message) && outcome.stdout.is_empty(), "{outcome:?}");
    }
}
