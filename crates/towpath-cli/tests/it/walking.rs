//! Trees with links to ancestors, trees under several names, and names that protocols must encode.

use std::{
    ffi::OsStr,
    io::{BufRead as _, BufReader},
    os::unix::ffi::OsStrExt as _,
    process::{Command, Stdio},
};

use rustix::process::{Pid, Signal, kill_process};
use towpath_store::sys::disk;

use super::program::{Directory, Outcome};

/// Returns the URLs of the storage by xroot and HTTP, and the local path, each as a prefix of names.
fn ends(directory: &Directory, served: &super::program::ServerProcess) -> [String; 3] {
    let [root, http] = served.urls();
    [format!("{root}/"), format!("{http}/"), format!("{}/", directory.host("").display())]
}

#[test]
fn links_upwards_end_copies_and_listings_and_are_told() {
    let directory = Directory::new();
    directory.put("srv/a", "a");
    directory.put("srv/s/b", "b");
    directory.link("srv/self", ".");
    directory.link("srv/s/up", "..");
    let served = directory.serve();
    for from in ends(&directory, &served) {
        for line in [format!("cp -r {from}srv out"), format!("sync {from}srv out")] {
            let outcome = directory.run(&line).expect(5);
            assert!(
                outcome.stderr.contains("2 files or directories were not copied: 2 × an argument is not valid"),
                "{outcome:?}"
            );
            assert!(!outcome.stderr.contains("to retry them"), "it cannot succeed: {outcome:?}");
            assert_eq!((directory.get("out/a"), directory.get("out/s/b")), ("a".into(), "b".into()));
            assert_eq!(directory.names("out"), ["a", "s"], "{line}");
            directory.run("rm -r out").expect(0);
        }
        let listed = directory.run(&format!("ls -R {from}srv")).expect(0).stdout;
        assert_eq!(listed.lines().count(), 5, "{listed}");
    }
}

#[test]
fn a_source_in_its_destination_stays_under_whatever_names() {
    let directory = Directory::new();
    directory.put("p/src/a", "precious");
    let served = directory.serve();
    let port = served.address.port();
    let [root, http, local] = ends(&directory, &served);
    let alias = format!("http://localhost:{port}/");
    for (from, to) in [(&alias, &http), (&root, &alias), (&local, &http), (&root, &local), (&http, &root)] {
        for line in [format!("sync --delete {from}p/src {to}p"), format!("sync --delete {from}p {to}p/src")] {
            let outcome = directory.run(&line).expect(5);
            assert!(outcome.stderr.contains("inside it"), "{line}: {outcome:?}");
        }
        let outcome = directory.run(&format!("cp -r {from}p {to}p/src/")).expect(5);
        assert!(outcome.stderr.contains("inside it"), "{outcome:?}");
        assert_eq!(directory.get("p/src/a"), "precious");
        assert_eq!((directory.names("p"), directory.names("p/src")), (vec!["src".into()], vec!["a".into()]));
    }
}

#[test]
fn sync_does_not_write_through_links_of_the_destination() {
    let directory = Directory::new();
    directory.put("s/link/b", "b");
    directory.put("other/kept", "kept");
    let served = directory.serve();
    for to in ends(&directory, &served) {
        directory.put("d/a", "a");
        directory.link("d/link", "../other");
        let outcome = directory.run(&format!("sync s {to}d")).expect(5);
        assert!(outcome.stderr.contains("a link to a directory is in the way"), "{outcome:?}");
        directory.run(&format!("sync --delete s {to}d")).expect(0);
        assert_eq!((directory.get("d/link/b"), directory.names("d")), ("b".into(), vec!["link".into()]), "{to}");
        assert_eq!(directory.names("other"), ["kept"], "{to}");
        directory.run("rm -r d").expect(0);
    }
}

#[test]
fn links_that_lead_nowhere_or_out_of_the_export_are_deleted() {
    let directory = Directory::new();
    directory.put("s/a", "a");
    let served = directory.serve();
    for to in ends(&directory, &served) {
        directory.put("d/a", "a");
        directory.link("d/dangling", "nowhere");
        directory.link("d/outside", "/etc/hostname");
        let outcome = directory.run(&format!("sync --delete s {to}d")).expect(0);
        assert!(outcome.stderr.contains("2 deleted"), "{outcome:?}");
        assert_eq!(directory.names("d"), ["a"], "{to}");
        directory.run("rm -r d").expect(0);
    }
}

#[test]
fn names_that_a_protocol_cannot_say_are_carried() {
    let directory = Directory::new();
    let names = ["line\nbreak", "q?x=1", "50%", "%41", "\x01control", "plain"].map(str::as_bytes);
    let names: Vec<_> = names.into_iter().chain([b"\xff".as_slice()]).map(OsStr::from_bytes).collect();
    for name in &names {
        let below = directory.host("s/d").join(name);
        std::fs::create_dir_all(&below).unwrap();
        disk::write(&below.join(name), b"x").unwrap();
    }
    let served = directory.serve();
    let found = |top: &str| names.iter().filter(|name| directory.host(top).join(name).join(name).is_file()).count();
    for at in ends(&directory, &served) {
        for line in [format!("cp -r {at}s/d t"), format!("cp -r s/d {at}u"), format!("sync --delete t {at}u")] {
            directory.run(&line).expect(0);
        }
        assert_eq!((found("t"), found("u")), (names.len(), names.len()), "{at}");
        directory.run(&format!("rm -r {at}u t")).expect(0);
        assert_eq!(directory.names(""), ["s"], "{at}");
    }
}

#[test]
fn a_slash_at_the_end_of_a_name_means_a_directory() {
    let directory = Directory::new();
    directory.put("a", "a");
    directory.put("new", "new");
    let served = directory.serve();
    for at in ends(&directory, &served) {
        for line in [
            "rm @a/",
            "cat @a/",
            "stat @a/",
            "sum @a/",
            "mv @a/ @b",
            "mv @a @b/",
            "cp @a/ b",
            "cp new @a/",
            "sync new @b/",
        ] {
            let outcome = directory.run(&line.replace('@', &at));
            assert_eq!(outcome.code, Some(5), "{line} {outcome:?}");
        }
        directory.run(&format!("ls {at}a/")).code.filter(|code| *code != 0).expect("it is no directory");
        assert_eq!(directory.names(""), ["a", "new"], "{at}");
        directory.run(&format!("mkdir {at}d/")).expect(0);
        directory.run(&format!("cp -r d/ {at}e/")).expect(0);
        assert_eq!(directory.names("e"), ["d"], "{at}");
        directory.run(&format!("rm -r {at}e/ d/")).expect(0);
    }
}

/// Interrupts `line` while a file is in flight, and returns the command that it then suggests.
fn interrupted(directory: &Directory, line: &str) -> String {
    let mut command = directory.command(line.split(' '));
    let mut process = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut events = BufReader::new(process.stdout.take().unwrap()).lines();
    assert!(events.any(|event| event.unwrap().contains("\"event\":\"progress\"")), "{line}");
    kill_process(Pid::from_child(&process), Signal::INT).unwrap();
    let outcome = Outcome::from(process.wait_with_output().unwrap()).expect(130);
    let (_, command) = outcome.stderr.split_once("to copy the rest, run towpath ").expect("it says how");
    command.lines().next().unwrap().to_owned()
}

fn in_a_shell(directory: &Directory, command: &str) -> Outcome {
    let line = format!("exec {} {command}", env!("CARGO_BIN_EXE_towpath"));
    Outcome::from(Command::new("sh").args(["-c", &line]).current_dir(directory.host("")).output().unwrap())
}

#[test]
fn the_command_told_after_an_interruption_finishes_that_copy() {
    let directory = Directory::new();
    directory.put("srv/sub/large", &"x".repeat(8 << 20));
    directory.put("srv/sub/d/small", "small");
    let served = directory.serve();
    let [root, http, _] = ends(&directory, &served);
    let (root, http) = (format!("{root}srv/sub"), format!("{http}srv/sub/"));
    for (from, to, top) in [
        ("srv/sub", "t", "t"),
        ("srv/sub/", "t", "t"),
        ("srv/sub", "t/", "t/sub"),
        (root.as_str(), "t", "t"),
        (http.as_str(), "t", "t"),
    ] {
        let command = interrupted(&directory, &format!("cp -r --limit 20Mbit --events - {from} {to}"));
        let command = command.replace("--limit 20Mbit --events -", "--json");
        let outcome = in_a_shell(&directory, &command).expect(0);
        let large = directory.host(&format!("{top}/large")).metadata().unwrap();
        assert_eq!(large.len(), 8 << 20, "{command}: {outcome:?}");
        assert_eq!(directory.get(&format!("{top}/d/small")), "small", "{command}");
        assert_eq!(directory.names(top), ["d", "large"], "nothing lies beside it: {command}");
        directory.run("rm -r t").expect(0);
    }
}

#[test]
fn the_command_told_after_an_interruption_is_accepted_with_the_options_of_that_copy() {
    let directory = Directory::new();
    directory.put("s/large", &"x".repeat(8 << 20));
    directory.put("s/d/small", "small");
    for options in ["-r -u", "-ru", "-rT", "-r --skip-existing -T", "-r -f", "-r -u -T"] {
        let line = format!("cp {options} --limit 20Mbit --events - s t");
        let command = interrupted(&directory, &line).replace("--limit 20Mbit --events -", "--json");
        let outcome = in_a_shell(&directory, &command).expect(0);
        assert_eq!(directory.names("t"), ["d", "large"], "{options}: {command} {outcome:?}");
        directory.run("rm -r t").expect(0);
    }
}

#[test]
fn a_copy_to_a_device_is_not_resumed() {
    let directory = Directory::new();
    directory.put("large", &"x".repeat(8 << 20));
    let mut command = directory.command("cp --limit 20Mbit --events - large /dev/null".split(' '));
    let mut process = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut events = BufReader::new(process.stdout.take().unwrap()).lines();
    assert!(events.any(|event| event.unwrap().contains("\"event\":\"progress\"")));
    kill_process(Pid::from_child(&process), Signal::INT).unwrap();
    let outcome = Outcome::from(process.wait_with_output().unwrap()).expect(130);
    assert!(outcome.stderr.ends_with("towpath: cp: interrupted\n"), "{outcome:?}");
}

#[test]
fn exactly_this_name_is_what_the_copy_gets() {
    let directory = Directory::new();
    directory.put("s/a", "a");
    directory.put("t/b", "b");
    directory.run("cp -r -T s t").expect(0);
    assert_eq!(directory.names("t"), ["a", "b"]);
    directory.run("cp -T s/a t").expect(5);
    directory.run("cp -r -T s t t").expect(2);
}
