//! `ls`, `df`, `du`, `find`, `rm -f`, `mkdir`, and patterns in URLs.

use std::{os::unix::fs::PermissionsExt as _, process::Command};

use super::program::{Directory, Outcome, ServerProcess};

/// `tree` with files of different sizes and times, in subdirectories.
fn tree() -> (Directory, ServerProcess) {
    let directory = Directory::new();
    for (name, size, time) in
        [("b.root", 3000, 300), ("a.root", 1000, 100), ("c.txt", 2000, 200), ("d/e.root", 500, 50), (".hidden", 1, 10)]
    {
        directory.put(&format!("tree/{name}"), &"x".repeat(size));
        directory.age(&format!("tree/{name}"), time);
    }
    let served = directory.serve();
    (directory, served)
}

/// Returns the local prefix of places, and those of the server.
fn prefixes(served: &ServerProcess) -> Vec<String> {
    let urls = served.urls().map(|url| format!("{url}/"));
    [String::new()].into_iter().chain(urls).collect()
}

fn words(text: &str) -> Vec<&str> {
    text.split_whitespace().collect()
}

#[test]
fn listings_are_sorted_by_name_size_and_time() {
    let (directory, served) = tree();
    directory.run("rm -r tree/d").expect(0);
    for at in prefixes(&served) {
        for (flags, order) in [
            ("-a", [".hidden", "a.root", "b.root", "c.txt"]),
            ("-r", ["c.txt", "b.root", "a.root", ".hidden"]),
            ("-S", ["b.root", "c.txt", "a.root", ".hidden"]),
            ("-t", ["b.root", "c.txt", "a.root", ".hidden"]),
            ("-Sr", [".hidden", "a.root", "c.txt", "b.root"]),
        ] {
            assert_eq!(words(&directory.run(&format!("ls {flags} {at}tree")).expect(0).stdout), order, "{at} {flags}");
        }
    }
    directory.run("ls -S -t tree").expect(2);
}

#[test]
fn a_tree_is_sorted_by_size_as_a_whole() {
    let (directory, served) = tree();
    for at in prefixes(&served) {
        let listed = directory.run(&format!("ls -RS {at}tree")).expect(0).stdout;
        let files: Vec<_> = words(&listed).into_iter().filter(|name| *name != "d").collect();
        assert_eq!(files, ["b.root", "c.txt", "a.root", "d/e.root", ".hidden"], "{at}");
    }
}

#[test]
fn sizes_have_a_unit_on_request_only() {
    let (directory, _served) = tree();
    let line = |flags: &str| directory.run(&format!("ls {flags} tree/b.root")).expect(0).stdout;
    assert!(line("-lh").contains("2.93 KiB"), "{}", line("-lh"));
    assert!(line("-l").contains(" 3000 ") && line("-l --bytes").contains(" 3000 "));
    assert!(line("-h --json").contains("\"size\":3000"));
    assert!(directory.run("df -h .").expect(0).stdout.contains("iB free of "));
    let exact = directory.run("df .").expect(0).stdout;
    assert!(exact.trim_end().ends_with(" bytes") && !exact.contains('.') || exact.starts_with(".: "), "{exact}");
    directory.run("ls -h --bytes tree").expect(2);
    assert!(directory.run("ls --help").expect(0).stdout.contains("--human-readable"));
}

#[test]
fn du_adds_up_directories() {
    let (directory, served) = tree();
    directory.put("tree/d/deep/er/f", &"x".repeat(40));
    for at in prefixes(&served) {
        let printed = directory.run(&format!("du {at}tree")).expect(0).stdout;
        let lines: Vec<_> = printed.lines().collect();
        let expected = [("40", "/d/deep/er"), ("40", "/d/deep"), ("540", "/d"), ("6541", "")];
        let expected = expected.map(|(bytes, path)| format!("{bytes}\t{at}tree{path}"));
        assert_eq!(lines, expected, "{at}");
        assert_eq!(directory.run(&format!("du -s {at}tree")).expect(0).stdout, format!("6541\t{at}tree\n"));
        assert_eq!(directory.run(&format!("du -d 1 {at}tree")).expect(0).stdout.lines().count(), 2, "{at}");
        let json = directory.run(&format!("du -s --json {at}tree")).expect(0).stdout;
        let json: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!((&json["bytes"], &json["files"], &json["directories"]), (&6541.into(), &6.into(), &3.into()));
        assert_eq!(directory.run(&format!("du {at}tree/c.txt")).expect(0).stdout, format!("2000\t{at}tree/c.txt\n"));
    }
    assert!(directory.run("du -sh tree").expect(0).stdout.starts_with("6.39 KiB\t"));
}

#[test]
fn directories_that_du_and_find_cannot_list_are_counted() {
    let (directory, _served) = tree();
    let closed = directory.host("tree/d");
    std::fs::set_permissions(&closed, std::fs::Permissions::from_mode(0o000)).unwrap();
    for line in ["du -s --json tree", "find tree", "du tree"] {
        let mut command = directory.command(line.split(' '));
        if rustix::process::geteuid().is_root() {
            // Without these capabilities permission bits apply to root too.
            let mut restricted = Command::new("setpriv");
            restricted.arg("--bounding-set=-dac_override,-dac_read_search").arg(command.get_program());
            restricted.args(command.get_args()).current_dir(command.get_current_dir().unwrap());
            command = restricted;
        }
        let outcome = Outcome::from(command.output().unwrap()).expect(4);
        assert!(outcome.stderr.contains("tree/d: permission denied"), "{outcome:?}");
        assert_eq!(outcome.stdout.contains("\"failed\":1"), line.contains("json"), "{outcome:?}");
    }
    std::fs::set_permissions(&closed, std::fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn found_paths_can_be_passed_to_other_commands() {
    let (directory, served) = tree();
    directory.put("tree/d/with space%20.root", "content");
    for at in prefixes(&served) {
        let found = directory.run(&format!("find {at}tree -name *.root -type f")).expect(0).stdout;
        let mut found: Vec<_> = found.lines().collect();
        found.sort_unstable();
        assert_eq!(found.len(), 4, "{at}: {found:?}");
        for path in found {
            let output = directory.command(["stat", path]).output().unwrap();
            assert!(output.status.success(), "{path}: {output:?}");
        }
    }
}

#[test]
fn find_selects_by_kind_size_time_and_depth() {
    let (directory, served) = tree();
    directory.put("tree/new", "");
    for at in prefixes(&served) {
        for (predicates, expected) in [
            ("--type d", vec!["", "/d"]),
            ("--size +1500", vec!["/b.root", "/c.txt"]),
            ("-size -1k -type f", vec!["/.hidden", "/a.root", "/d/e.root", "/new"]),
            ("-size 500c", vec!["/d/e.root"]),
            ("--newer-than 1h --type f", vec!["/new"]),
            ("--older-than 1h -iname *.ROOT -maxdepth 1", vec!["/a.root", "/b.root"]),
            ("--name nothing", vec![]),
        ] {
            let found = directory.run(&format!("find {at}tree {predicates}")).expect(0).stdout;
            let mut found: Vec<_> = found.lines().collect();
            found.sort_unstable();
            let expected: Vec<_> = expected.iter().map(|path| format!("{at}tree{path}")).collect();
            assert_eq!(found, expected, "{predicates}");
        }
        let json = directory.run(&format!("find --json {at}tree -name c.txt")).expect(0).stdout;
        let json: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!((&json["path"], &json["size"]), (&format!("{at}tree/c.txt").into(), &2000.into()));
        assert_eq!(
            directory.run(&format!("find -0 {at}tree -name c.txt")).expect(0).stdout,
            format!("{at}tree/c.txt\0")
        );
    }
    directory.run("find missing").expect(3);
    directory.run("find tree --size big").expect(2);
}

#[test]
fn rm_ignores_missing_paths_with_force_only() {
    let (directory, served) = tree();
    for at in prefixes(&served) {
        directory.run(&format!("rm {at}tree/missing")).expect(3);
        directory.run(&format!("rm -f {at}tree/missing")).expect(0);
        directory.run(&format!("rm -rf {at}missing/tree")).expect(0);
    }
    let url = &served.urls()[0];
    directory.run(&format!("rm -f {url}/tree/*.nothing")).expect(0);
    directory.run(&format!("rm {url}/tree/*.nothing")).expect(3);
}

#[test]
fn mkdir_without_parents_names_the_option() {
    let (directory, served) = tree();
    for at in prefixes(&served) {
        let outcome = directory.run(&format!("mkdir {at}new/er"));
        assert!(outcome.stderr.contains("use -p"), "{outcome:?}");
        directory.run(&format!("mkdir -p {at}new/er")).expect(0);
        directory.run(&format!("rm -r {at}new")).expect(0);
    }
}

#[test]
fn patterns_in_urls_name_all_matches() {
    let (directory, served) = tree();
    for url in served.urls() {
        let listed = directory.run(&format!("ls {url}/tree/*.root")).expect(0).stdout;
        assert_eq!(words(&listed), [format!("{url}/tree/a.root"), format!("{url}/tree/b.root")]);
        let names = |pattern: &str| {
            let sums = directory.run(&format!("sum {url}/{pattern}")).expect(0).stdout;
            let prefix = format!("{url}/tree/");
            sums.lines().map(|line| line.rsplit_once(&prefix).unwrap().1.to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(names("tree/[ac].*"), ["a.root", "c.txt"]);
        assert_eq!(names("t*/*/*.root"), ["d/e.root"]);
        assert_eq!(names("tr*/.h*"), [".hidden"]);
        assert_eq!(names("*/{a,c}.*"), ["a.root", "c.txt"]);
        assert_eq!(names("*/c.txt"), ["c.txt"]);
        assert_eq!(directory.run(&format!("cat {url}/tree/[ab].root")).expect(0).stdout.len(), 4000);
        assert_eq!(directory.run(&format!("stat --json {url}/tree/*")).expect(0).stdout.lines().count(), 4);
        assert_eq!(directory.run(&format!("du -s {url}/tr*")).expect(0).stdout, format!("6501\t{url}/tree\n"));
        directory.run(&format!("cp {url}/tree/*.root {url}/tree/c.txt .")).expect(0);
        assert_eq!(directory.names(""), ["a.root", "b.root", "c.txt", "tree"]);
        directory.run("rm a.root b.root c.txt").expect(0);
        directory.run(&format!("cp {url}/tree/*.root new")).expect(5);
        let outcome = directory.run(&format!("cp {url}/tree/*.dat .")).expect(3);
        assert!(outcome.stderr.contains("no path matches the pattern"), "{outcome:?}");
    }
    let root = &served.urls()[0];
    directory.run(&format!("rm {root}/tree/*.root")).expect(0);
    assert_eq!(directory.names("tree"), [".hidden", "c.txt", "d"]);
}

#[test]
fn an_existing_name_takes_precedence_over_a_pattern() {
    let (directory, served) = tree();
    directory.put("tree/*.root", "literal");
    for url in served.urls() {
        assert_eq!(directory.run(&format!("cat {url}/tree/*.root")).expect(0).stdout, "literal");
    }
    directory.run(&format!("rm {}/tree/*.root", served.urls()[0])).expect(0);
    assert_eq!(directory.names("tree"), [".hidden", "a.root", "b.root", "c.txt", "d"]);
    directory.run(&format!("mkdir {}/new*", served.urls()[0])).expect(0);
    assert_eq!(directory.names(""), ["new*", "tree"]);
}

#[test]
fn a_name_with_an_asterisk_is_removed_alone_however_often() {
    let (directory, served) = tree();
    for url in served.urls() {
        directory.put("tree/[*].root", "x");
        let found = directory.run(&format!("find {url}/tree --name [[]*.root")).expect(0).stdout;
        let found = found.trim_end();
        for no_glob in [false, true] {
            // The text of an XRootD URL cannot say whether a character is literal.
            let option = if no_glob || url.starts_with("root") { "--no-glob " } else { "" };
            directory.put("tree/[*].root", "x");
            directory.run(&format!("rm {option}{found}")).expect(0);
            directory.run(&format!("rm {option}{found}")).expect(3);
        }
        assert_eq!(directory.names("tree"), [".hidden", "a.root", "b.root", "c.txt", "d"], "{found}");
    }
}

#[test]
fn a_component_that_is_no_valid_pattern_makes_no_wildcard_of_an_encoded_character() {
    let (directory, served) = tree();
    directory.put("w[1/a", "x");
    directory.put("w[1/*", "x");
    let url = &served.urls()[1];
    directory.run(&format!("rm {url}/w[1/%2A")).expect(0);
    for argument in ["w[1/%2A", "w[1/[%21b]", "w[1/[a%2Dc]"] {
        directory.run(&format!("rm -r {url}/{argument}")).expect(3);
    }
    assert_eq!(directory.names("w[1"), ["a"]);
}

#[test]
fn a_match_that_no_url_can_name_is_reported_and_the_others_are_removed() {
    let (directory, served) = tree();
    directory.put("tree/q?.root", "x");
    let root = &served.urls()[0];
    let outcome = directory.run(&format!("rm {root}/tree/*.root"));
    assert!(outcome.code != Some(0) && outcome.stderr.contains("cannot be written in a URL"), "{outcome:?}");
    assert_eq!(directory.names("tree"), [".hidden", "c.txt", "d", "q?.root"]);
}

#[test]
fn a_name_that_cannot_be_queried_is_not_taken_for_a_pattern() {
    let (directory, served) = tree();
    directory.link("tree/*.root", "/etc/passwd");
    for url in served.urls() {
        let refused = directory.run(&format!("rm {url}/tree/*.root")).expect(4);
        assert!(refused.stderr.contains("leads out of the store"), "{refused:?}");
    }
    assert_eq!(directory.names("tree"), ["*.root", ".hidden", "a.root", "b.root", "c.txt", "d"]);
}

#[test]
fn names_with_a_leading_dot_are_listed_with_and_without_the_flags_of_ls() {
    let directory = Directory::new();
    directory.put("d/.hidden", "x");
    for flags in ["", "-a ", "-A ", "-lA "] {
        let outcome = directory.run(&format!("ls {flags}d")).expect(0);
        assert!(outcome.stdout.contains(".hidden"), "{flags}: {outcome:?}");
    }
}
