//! `mv`: the messages about both ends.

use super::program::Directory;

/// Removes the code of a server, such as `(404)`.
fn without_code(message: &str) -> String {
    match message.split_once(" (") {
        Some((before, after)) if after.starts_with(|first: char| first.is_ascii_digit()) => {
            format!("{before}{}", after.split_once(')').unwrap().1)
        }
        _ => message.to_owned(),
    }
}

#[test]
fn a_failed_rename_names_the_end_that_caused_it() {
    let directory = Directory::new();
    for name in ["file", "other", "full/file"] {
        directory.put(name, "content");
    }
    std::fs::create_dir(directory.host("empty")).unwrap();
    let served = directory.serve();
    for prefix in ["".to_owned()].into_iter().chain(served.urls().map(|url| format!("{url}/"))) {
        for (line, code, named, reason) in [
            ("file empty", 6, "empty", "exists already: mv needs the whole new name, as in "),
            ("-f file empty", 5, "empty", "is a directory: mv needs the whole new name, as in "),
            ("-f empty full", 6, "full", "the directory is not empty: mv needs the whole new name, as in "),
            ("file other", 6, "other", "exists already"),
            ("full file", 6, "file", "exists already"),
            ("-f full file", 5, "file", "is not a directory"),
            ("file missing/file", 3, "missing/file", "no such file or directory: its parent directory does not exist"),
            ("file other/file", 5, "other/file", "is not a directory: a parent is a file"),
            ("missing new", 3, "missing", "no such file or directory"),
            ("full full/inside", 5, "full", "a directory cannot be moved into itself"),
        ] {
            let words = line.split(' ').map(|word| if word == "-f" { word.into() } else { format!("{prefix}{word}") });
            let outcome = directory.run(&format!("mv {}", words.collect::<Vec<_>>().join(" "))).expect(code);
            let expected = match prefix.as_str() {
                "" => directory.host(named).display().to_string(),
                prefix => format!("{prefix}{named}"),
            };
            let message = outcome.stderr.strip_prefix(&format!("towpath: mv: {expected}: "));
            let message = without_code(message.unwrap_or_else(|| panic!("{line}: {outcome:?}")));
            assert!(message.starts_with(reason), "{line}: {outcome:?}");
        }
    }
    assert_eq!(directory.names(""), ["empty", "file", "full", "other"]);
}
