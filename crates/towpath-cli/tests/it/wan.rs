//! `towpath wan`: an emulator of its own for each test. Needs root; skipped, with a word on why, where there is none.

use std::{
    io::{BufRead as _, BufReader},
    process::{Child, Command, Output, Stdio},
};

use rustix::process::{Pid, Signal, kill_process};

use super::program::towpath;

/// The address of the second host.
const SECOND: &str = "198.18.0.2";

pub(super) fn is_root() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        assert!(std::env::var_os("TOWPATH_REQUIRE_PEERS").is_none(), "towpath wan is to be tested, and needs root");
        eprintln!("SKIPPED: towpath wan needs root");
    }
    is_root
}

fn run<'a>(arguments: impl IntoIterator<Item = &'a str>) -> Output {
    output(&mut towpath(arguments))
}

fn output(command: &mut Command) -> Output {
    let output = command.output().unwrap();
    eprintln!("{}", String::from_utf8_lossy(&output.stderr));
    output
}

fn text(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

#[test]
fn an_emulator_is_made_steered_and_ended() {
    if !is_root() {
        return;
    }
    let name = format!("test-{}", std::process::id());
    let wan = |arguments: &[&str]| {
        let (verb, rest) = arguments.split_first().unwrap();
        run(["wan", verb, "--name", &name].into_iter().chain(rest.iter().copied()))
    };
    let up = wan(&["up", "--rtt", "2ms", "--rate", "500Mbit", "--cc", "reno"]);
    assert_eq!(text(&up), "hosts: 1 198.18.0.1, 2 198.18.0.2\n");
    assert_eq!(wan(&["up"]).status.code(), Some(2), "the name is taken");

    let control = wan(&["exec", "1", "--", "cat", "/proc/sys/net/ipv4/tcp_congestion_control"]);
    assert_eq!(text(&control), "reno\n");
    assert_eq!(wan(&["exec", "1", "--", "sh", "-c", "exit 7"]).status.code(), Some(7));
    assert_eq!(wan(&["exec", "3", "--", "true"]).status.code(), Some(2));

    assert!(wan(&["set", "--pair", "1-2", "--one-way", "--loss", "0.25", "--outage", "1ms"]).status.success());
    let stats: serde_json::Value = serde_json::from_slice(&wan(&["stats", "--json"]).stdout).unwrap();
    let losses: Vec<_> =
        stats["links"].as_array().unwrap().iter().map(|link| link["settings"]["loss"].clone()).collect();
    assert_eq!(losses, [0.25, 0.0]);
    assert_eq!(stats["links"][0]["settings"]["delay_ms"], 1.0);
    assert!(text(&wan(&["stats"])).contains("1 to 2: "));

    assert!(wan(&["down"]).status.success());
    assert_eq!(wan(&["stats"]).status.code(), Some(2), "it is gone");
}

/// Starts a command and gives it with its first line.
fn started<'a>(arguments: impl IntoIterator<Item = &'a str>) -> (Child, String) {
    let mut child = towpath(arguments).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    (child, line)
}

#[test]
fn a_signal_ends_the_emulator_with_all_that_runs_in_its_hosts() {
    if !is_root() {
        return;
    }
    let name = format!("signal-{}", std::process::id());
    let (mut holder, hosts) = started(["wan", "up", "--foreground", "--name", &name]);
    assert!(hosts.starts_with("hosts: "), "{hosts}");
    let (mut inside, line) = started(["wan", "exec", "--name", &name, "2", "--", "sh", "-c", "echo here; sleep 600"]);
    assert_eq!(line, "here\n");
    kill_process(Pid::from_child(&holder), Signal::TERM).unwrap();
    assert_eq!(holder.wait().unwrap().code(), Some(143));
    assert!(!inside.wait().unwrap().success());
    assert_eq!(run(["wan", "stats", "--name", &name]).status.code(), Some(2), "it is gone");
    for end in ["sock", "lock"] {
        assert!(!std::path::Path::new("/run/towpath-wan").join(format!("{name}.{end}")).exists(), "{end}");
    }
}

#[test]
fn a_command_runs_in_a_network_of_its_own() {
    if !is_root() {
        return;
    }
    // In the command, the name of the emulator is known; what it leaves in the background is killed, or this would wait for it.
    let script = format!(
        "sleep 600 & {0} wan exec 2 -- cat /proc/net/fib_trie | grep -q {SECOND} && {0} wan stats && exit 9",
        env!("CARGO_BIN_EXE_towpath")
    );
    let done = run(["wan", "run", "--rtt", "10ms", "--rate", "1Gbit", "--", "sh", "-c", &script]);
    assert_eq!(done.status.code(), Some(9));
    assert!(text(&done).contains("2 to 1: "));
}

#[test]
fn what_makes_no_sense_is_told() {
    for arguments in [
        &["wan", "run", "--rate", "fast", "--", "true"][..],
        &["wan", "run", "--rate", "1Gbit"],
        &["wan", "run", "--loss", "1.5", "--", "true"],
        &["wan", "run", "--hosts", "1", "--", "true"],
        &["wan", "run", "--buf", "1B", "--", "true"],
        &["wan", "exec", "0", "--", "true"],
        &["wan", "set", "--pair", "12"],
        &["wan", "set", "--name", "../up", "--loss", "0"],
    ] {
        assert_eq!(run(arguments.iter().copied()).status.code(), Some(2), "{arguments:?}");
    }
}

#[test]
fn without_root_it_says_so() {
    if !is_root() {
        return;
    }
    // The user `nobody` may not be able to reach the program: a copy can be reached by anybody.
    let directory =
        tempfile::Builder::new().permissions(std::os::unix::fs::PermissionsExt::from_mode(0o755)).tempdir().unwrap();
    let copy = directory.path().join("towpath");
    std::fs::copy(env!("CARGO_BIN_EXE_towpath"), &copy).unwrap();
    let mut command = Command::new(copy);
    command.args(["wan", "run", "--", "true"]);
    std::os::unix::process::CommandExt::uid(&mut command, 65534);
    let done = output(&mut command);
    assert_eq!(done.status.code(), Some(4));
    assert!(String::from_utf8(done.stderr).unwrap().contains("needs root"));
}
