//! What could not be copied: told, counted, listed, and tried again.

use std::{ffi::OsStr, os::unix::ffi::OsStrExt as _};

use towpath_store::sys::disk;

use super::program::{Directory, Outcome};

/// The command that the last lines of `outcome` give, run as a shell runs it.
fn again(directory: &Directory, outcome: &Outcome) -> Outcome {
    let (_, command) = outcome.stderr.split_once("to try them again: towpath").expect("it says how");
    let line = format!("exec {}{}", env!("CARGO_BIN_EXE_towpath"), command.lines().next().unwrap());
    let mut shell = std::process::Command::new("sh");
    Outcome::from(shell.args(["-c", &line]).current_dir(directory.host("")).output().unwrap())
}

#[test]
fn what_was_missed_is_tried_again_with_the_command_that_is_told() {
    let directory = Directory::new();
    let odd = ["a b'c", "line\nbreak", "50%?#x", "ü"];
    for name in odd {
        directory.put(&format!("s/{name}"), "content");
        directory.put(&format!("t/s/{name}/in"), "the way");
    }
    let served = directory.serve();
    let [_, http] = served.urls();
    let not_text = OsStr::from_bytes(b"no\xfftext");
    disk::write(&directory.host("s").join(not_text), b"content").unwrap();
    std::fs::create_dir(directory.host("t/s").join(not_text)).unwrap();
    directory.put("s/good", "content");
    for (from, to) in [("".to_owned(), "".to_owned()), (format!("{http}/"), format!("{http}/"))] {
        let outcome = directory.run(&format!("cp -r --failed-to lost.jsonl {from}s {to}t")).expect(5);
        assert!(outcome.stderr.contains("5 were not copied: 5 IsDirectory"), "{outcome:?}");
        let list = directory.get("lost.jsonl");
        assert_eq!(list.lines().count(), 5, "{list}");
        assert!(list.contains("path_hex") && list.contains("\"path\":\"") && list.contains("IsDirectory"), "{list}");
        // As long as it is in the way.
        let outcome = again(&directory, &outcome).expect(5);
        assert_eq!(directory.get("lost.jsonl").lines().count(), 5, "{outcome:?}");
        directory.run("rm -r t").expect(0);
        let outcome = again(&directory, &outcome).expect(0);
        assert!(outcome.stderr.contains("5 files"), "{outcome:?}");
        assert_eq!(directory.get("lost.jsonl"), "");
        assert_eq!(directory.host("t/s").read_dir().unwrap().count(), 5);
        directory.run("rm -r t").expect(0);
        for name in odd {
            directory.put(&format!("t/s/{name}/in"), "the way");
        }
        std::fs::create_dir_all(directory.host("t/s").join(not_text)).unwrap();
    }
}

#[test]
fn a_directory_that_could_not_be_listed_is_tried_again_with_what_is_in_it() {
    let directory = Directory::new();
    directory.put("s/d/file", "content");
    directory.link("s/d/up", "..");
    let outcome = directory.run("cp -r --failed-to lost s t").expect(5);
    directory.run("rm s/d/up").expect(0);
    directory.put("s/d/up/file", "content");
    let outcome = again(&directory, &outcome).expect(0);
    assert!(outcome.stderr.contains("1 files"), "{outcome:?}");
    assert_eq!(directory.get("t/d/up/file"), "content");
}

/// By its name and size alone the file would be there.
#[test]
fn what_a_synchronisation_missed_is_compared_again() {
    let directory = Directory::new();
    directory.put("s/a b", "content");
    directory.put("t/a b/in", "the way");
    let outcome = directory.run("sync --compare digest --failed-to lost s t").expect(5);
    assert_eq!(directory.get("lost").lines().count(), 1);
    directory.run("rm -r t").expect(0);
    directory.put("t/a b", "CONTENT");
    again(&directory, &outcome).expect(0);
    assert_eq!((directory.get("t/a b").as_str(), directory.get("lost").as_str()), ("content", ""));
}

#[test]
fn of_many_only_the_first_are_told() {
    let directory = Directory::new();
    for number in 0..250 {
        directory.put(&format!("s/{number}"), "new");
        directory.put(&format!("t/s/{number}"), "old");
    }
    let outcome = directory.run("cp -r --failed-to lost s t").expect(6);
    assert_eq!(outcome.stderr.matches("was not copied to").count(), 100, "{outcome:?}");
    assert!(outcome.stderr.contains("250 were not copied: 250 AlreadyExists"), "{outcome:?}");
    assert_eq!(directory.get("lost").lines().count(), 250);
}

#[test]
fn a_list_that_makes_no_sense_leads_to_nothing() {
    let directory = Directory::new();
    directory.put("s", "content");
    let good = format!(
        r#"{{"from":{{"path":"{}"}},"to":{{"path":"{}"}},"error":"","message":""}}"#,
        directory.host("s").display(),
        directory.host("t").display()
    );
    for bad in ["{}", "x", r#"{"from":{"path":"relative"},"to":{"path":"/"},"error":"","message":""}"#] {
        directory.put("list", &format!("{good}\n{bad}\n"));
        let outcome = directory.run("cp --retry-from list").expect(2);
        assert!(outcome.stderr.contains("line 2"), "{outcome:?}");
        assert!(!directory.host("t").exists());
    }
    directory.run("cp --retry-from list s t").expect(2);
    directory.run("cp --retry-from none").expect(2);
    directory.run("cp --failed-to none/list s t").expect(2);
    directory.put("list", &good);
    directory.run("cp --retry-from list").expect(0);
    assert_eq!(directory.get("t"), "content");
}
