//! Failures: reported, counted, listed, and retried.

use std::{
    ffi::OsStr,
    io::{BufRead as _, BufReader},
    os::unix::ffi::OsStrExt as _,
    process::Stdio,
};

use rustix::process::{Pid, Signal, kill_process};
use towpath_store::sys::disk;

use super::program::{Directory, Outcome};

/// Runs the retry command in the last lines of `outcome` in a shell.
fn again(directory: &Directory, outcome: &Outcome) -> Outcome {
    let (_, command) = outcome.stderr.split_once("to retry them: towpath").expect("it says how");
    in_shell(directory, "", command.lines().next().unwrap())
}

/// Runs the program with `arguments` in a shell, after the commands `before`.
fn in_shell(directory: &Directory, before: &str, arguments: &str) -> Outcome {
    let line = format!("{before}exec {}{arguments}", env!("CARGO_BIN_EXE_towpath"));
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
        assert!(outcome.stderr.contains("5 files or directories were not copied: 5 × is a directory"), "{outcome:?}");
        let list = directory.get("lost.jsonl");
        assert_eq!(list.lines().count(), 5, "{list}");
        assert!(list.contains("path_hex") && list.contains("\"path\":\"") && list.contains("IsDirectory"), "{list}");
        // The obstacle still exists.
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

/// Files in all states: being opened, in flight, being committed.
#[test]
fn nothing_is_missed_of_a_tree_whose_server_is_killed_and_starts_again() {
    const FILES: usize = 1_000;
    for protocol in 0..2 {
        let directory = Directory::new();
        for number in 0..FILES {
            directory.put(&format!("s/f{number}"), &format!("{number} ").repeat(1_000));
        }
        directory.put("t/other", "");
        let mut served = directory.serve();
        let url = &served.urls()[protocol];
        let mut command =
            directory.command(["cp", "-r", "-f", "--limit", "20Mbit", "--events", "-", "s", &format!("{url}/t")]);
        let mut process = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut events = BufReader::new(process.stdout.take().unwrap()).lines();
        for _ in 0..2 {
            let ended = events.by_ref().filter(|event| event.as_ref().unwrap().contains("file_done")).take(FILES / 4);
            assert_eq!(ended.count(), FILES / 4, "{url}");
            served = served.killed_and_started_again(&directory.host(""), &["--writable"]);
        }
        events.for_each(|event| drop(event.unwrap()));
        let outcome = Outcome::from(process.wait_with_output().unwrap()).expect(0);
        assert!(outcome.stderr.contains("1000 files"), "{outcome:?}");
        for number in 0..FILES {
            assert_eq!(directory.get(&format!("t/s/f{number}")), format!("{number} ").repeat(1_000), "{url}");
        }
    }
}

#[test]
fn without_a_list_the_command_that_is_told_copies_what_was_missing() {
    let directory = Directory::new();
    directory.put("s'/one", "content");
    directory.put("s'/two", "content");
    for (line, told) in [
        ("cp -r s' t", r"towpath cp --skip-existing -r 's'\''' t"),
        ("cp -ru s' t", r"towpath cp -ru 's'\''' t"),
        ("sync s' t/s'", r"towpath sync 's'\''' 't/s'\'''"),
    ] {
        directory.put("t/s'/one/in", "the way");
        let outcome = directory.run(line).expect(5);
        assert!(outcome.stderr.contains(&format!("to retry them: {told}\n")), "{outcome:?}");
        directory.run("rm -r t/s'/one").expect(0);
        again(&directory, &outcome).expect(0);
        assert_eq!(directory.get("t/s'/one"), "content", "{line}");
        directory.run("rm -r t").expect(0);
    }
    let outcome = directory.run("cp s'/three t").expect(3);
    assert!(!outcome.stderr.contains("to retry them"), "of one file all is said: {outcome:?}");
}

/// The earlier list may be the one being read.
#[test]
fn an_interrupted_copy_leaves_an_earlier_list_as_it_was() {
    let directory = Directory::new();
    directory.put("large", &"x".repeat(8 << 20));
    directory.put("lost", "earlier");
    let line = "cp --limit 8Mbit --events - --failed-to lost large copy";
    let mut command = directory.command(line.split(' '));
    let mut process = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut events = BufReader::new(process.stdout.take().unwrap()).lines();
    assert!(events.any(|event| event.unwrap().contains("file_begin")));
    let names = directory.names("");
    assert!(names.iter().any(|name| name.starts_with("lost.") && name.ends_with(".part")), "{names:?}");
    kill_process(Pid::from_child(&process), Signal::INT).unwrap();
    let outcome = Outcome::from(process.wait_with_output().unwrap()).expect(130);
    assert!(outcome.stderr.contains("lost was not written"), "{outcome:?}");
    assert!(outcome.stderr.contains("interrupted; to copy the rest, run"), "{outcome:?}");
    assert_eq!(directory.get("lost"), "earlier");
    assert!(!directory.names("").iter().any(|name| name.starts_with("lost.")));
}

#[test]
fn a_list_that_cannot_be_written_hides_nothing() {
    let directory = Directory::new();
    directory.put("s/a", "new");
    for number in 0..10 {
        directory.put(&format!("s/{number}"), "new");
        directory.put(&format!("t/s/{number}"), "older");
    }
    directory.put("lost.part", "the user's");
    // Limits files to 512 bytes.
    let limit = "trap '' XFSZ; ulimit -f 1; ";
    let outcome = in_shell(&directory, limit, " cp -r --failed-to lost s t").expect(6);
    assert!(outcome.stderr.contains("lost: the list cannot be written: File too large"), "{outcome:?}");
    assert_eq!(directory.get("lost.part"), "the user's");
    directory.run("rm lost.part").expect(0);
    let command = "to retry them: towpath cp --skip-existing -r --failed-to lost s t";
    assert!(outcome.stderr.contains(command), "{outcome:?}");
    assert_eq!(directory.names(""), ["s", "t"]);

    std::fs::create_dir(directory.host("lost")).unwrap();
    let outcome = directory.run("cp --failed-to lost s/a copy").expect(5);
    assert!(outcome.stderr.contains("lost: the list cannot be written: Is a directory"), "{outcome:?}");
    assert_eq!(directory.get("copy"), "new");
    assert_eq!(directory.names(""), ["copy", "lost", "s", "t"]);
}

#[test]
fn a_list_is_there_also_if_the_output_cannot_be_written() {
    let directory = Directory::new();
    directory.put("s/file", "content");
    directory.run("cp -r s t").expect(0);
    for line in ["cp --json --skip-existing --failed-to lost s/file t/file", "sync --json --failed-to lost s t"] {
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let status = directory.command(line.split(' ')).stdout(full).stderr(Stdio::null()).status().unwrap();
        assert_eq!(status.code(), Some(9), "{line}");
        assert_eq!(directory.get("lost"), "", "{line}");
        directory.run("rm lost").expect(0);
    }
}

#[test]
fn a_directory_that_could_not_be_listed_is_tried_again_with_what_is_in_it() {
    let directory = Directory::new();
    directory.put("s/d/file", "content");
    directory.put("s/d/up/file", "content");
    directory.put("t/s/d/up", "in the way");
    let outcome = directory.run("cp -r --failed-to lost s t").expect(6);
    directory.run("rm t/s/d/up").expect(0);
    let outcome = again(&directory, &outcome).expect(0);
    assert!(outcome.stderr.contains("1 file, "), "{outcome:?}");
    assert_eq!(directory.get("t/s/d/up/file"), "content");
}

/// A comparison of name and size alone would skip the file.
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
        directory.put(&format!("t/s/{number}"), "older");
    }
    let outcome = directory.run("cp -r --failed-to lost s t").expect(6);
    assert_eq!(outcome.stderr.matches(": exists already\n").count(), 100, "{outcome:?}");
    assert!(outcome.stderr.contains("250 files or directories were not copied: 250 × exists already"), "{outcome:?}");
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

#[test]
fn filters_judge_what_is_tried_again_as_they_did_before() {
    let directory = Directory::new();
    directory.put("s/2026/file", "content");
    directory.link("s/2026/up", "..");
    let outcome = directory.run("cp -r --include /2026/ --exclude /file --failed-to lost s t").expect(5);
    assert!(directory.get("lost").contains("\"root\""), "{outcome:?}");
    directory.run("rm s/2026/up").expect(0);
    directory.put("s/2026/up/file", "content");
    let outcome = directory.run("cp -r --include /2026/ --exclude /file --retry-from lost --failed-to lost").expect(0);
    assert_eq!(directory.get("t/2026/up/file"), "content", "{outcome:?}");
}

#[test]
fn a_directory_that_filters_leave_out_is_not_made_when_it_is_tried_again() {
    let directory = Directory::new();
    directory.put("s/file.root", "content");
    directory.link("s/up", "..");
    let outcome = directory.run("cp -r --include *.root --failed-to lost s t").expect(5);
    assert!(!outcome.stderr.contains("to retry them"), "as long as the link is there: {outcome:?}");
    directory.run("rm s/up").expect(0);
    directory.put("s/up/other", "content");
    directory.run("cp -r --include *.root --retry-from lost --failed-to lost").expect(0);
    assert_eq!(directory.names("t"), ["file.root"]);
}

#[test]
fn all_sources_of_a_file_are_tried_again() {
    let directory = Directory::new();
    let served = directory.serve();
    let line = format!("cp --failed-to lost --source {}/file root://127.0.0.1:1//file copy", served.urls()[0]);
    let outcome = directory.run(&line).expect(8);
    directory.put("file", "content");
    again(&directory, &outcome).expect(0);
    assert_eq!(directory.get("copy"), "content");
}

#[test]
fn what_is_known_of_a_file_holds_when_it_is_tried_again() {
    let directory = Directory::new();
    let served = directory.serve();
    directory.put("file", "content");
    let sum = directory.run("sum -a sha256 file").expect(0).stdout;
    let (sum, url) = (sum.split(' ').next().unwrap(), format!("{}/file", served.urls()[1]));
    let described = format!("<size>7</size><hash type=\"sha-256\">{sum}</hash><url>{url}</url>");
    let document = format!("<file name=\"file\">{described}</file>");
    directory.put("of.meta4", &format!("<metalink xmlns=\"urn:ietf:params:xml:ns:metalink\">{document}</metalink>"));
    directory.put("file", "another");
    let outcome = directory.run("cp --failed-to lost of.meta4 copy").expect(7);
    let list = directory.get("lost");
    assert!(list.contains(&format!("\"size\":7,\"digests\":[\"sha256:{sum}\"]")), "{list}");
    let outcome = again(&directory, &outcome).expect(7);
    directory.put("file", "content");
    again(&directory, &outcome).expect(0);
    assert_eq!(directory.get("copy"), "content");
}

#[test]
fn a_list_keeps_what_was_not_tried() {
    let directory = Directory::new();
    std::fs::create_dir(directory.host("t")).unwrap();
    // No server listens on this port.
    let sources: Vec<_> = (0..30).map(|number| format!("root://127.0.0.1:1//{number}")).collect();
    let outcome = directory.run(&format!("cp --files 2 --failed-to lost {} t", sources.join(" "))).expect(8);
    assert_eq!(directory.get("lost").lines().count(), 30);
    let outcome = again(&directory, &outcome).expect(8);
    assert!(outcome.stderr.contains("in a row failed"), "{outcome:?}");
    assert_eq!(directory.get("lost").lines().count(), 30);
}

#[test]
fn of_trees_it_is_said_that_the_list_is_not_complete() {
    let directory = Directory::new();
    std::fs::create_dir(directory.host("t")).unwrap();
    let sources: Vec<_> = (0..40).map(|number| format!("root://127.0.0.1:1//{number}")).collect();
    let outcome = directory.run(&format!("cp -r --files 2 --failed-to lost {} t", sources.join(" "))).expect(8);
    assert!(outcome.stderr.contains("lost is not complete"), "{outcome:?}");
    let command = "to retry them: towpath cp --skip-existing -r --files 2 --failed-to lost root://";
    assert!(outcome.stderr.contains(command), "{outcome:?}");
}
