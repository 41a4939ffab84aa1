//! `towpath wan`, with a separate emulator for each test. Requires root; otherwise the tests print a message and are
//! skipped.

use std::{
    io::{BufRead as _, BufReader, Read as _},
    path::Path,
    process::{Child, Command, Output, Stdio},
};

use rustix::{
    fs::{OFlags, fcntl_setfl},
    process::{Pid, Signal, kill_process},
};
use serde_json::{Value, json};

use super::program::{Directory, Outcome, towpath};

/// Address of the second host.
const SECOND: &str = "198.18.0.2";

pub(super) fn is_root() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        assert!(
            towpath_store::sys::environment::variable("TOWPATH_REQUIRE_PEERS").is_none(),
            "towpath wan is to be tested, and needs root"
        );
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

/// Returns whether an emulator of that name can be found.
fn is_known(name: &str) -> bool {
    ["sock", "lock"].iter().any(|end| Path::new("/run/towpath-wan").join(format!("{name}.{end}")).exists())
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
    let link = "--rtt 2ms --rate 500Mbit --queue bdp --jitter 1ms --reorder 0.125 --reorder-by 2ms";
    let flags = format!("up {link} --hosts 3 --access 800Mbit --cc reno");
    let up = wan(&flags.split(' ').collect::<Vec<_>>());
    assert_eq!(text(&up), "hosts: 1 198.18.0.1, 2 198.18.0.2, 3 198.18.0.3\n");
    assert_eq!(wan(&["up"]).status.code(), Some(2), "the name is taken");

    let control = wan(&["exec", "1", "--", "cat", "/proc/sys/net/ipv4/tcp_congestion_control"]);
    assert_eq!(text(&control), "reno\n");
    assert_eq!(wan(&["exec", "1", "--", "sh", "-c", "exit 7"]).status.code(), Some(7));
    assert_eq!(wan(&["exec", "4", "--", "true"]).status.code(), Some(2));

    let set = "set --pair 1-2 --one-way --loss 0.25 --queue 5MB --outage 1ms";
    assert!(wan(&set.split(' ').collect::<Vec<_>>()).status.success());
    let stats: Value = serde_json::from_slice(&wan(&["stats", "--json"]).stdout).unwrap();
    let (pairs, access) = stats["links"].as_array().unwrap().split_at(6);
    let mut pair = json!({
        "rate": "500Mbit", "delay_ms": 1.0, "queue": "bdp", "loss": 0.0, "loss_burst": 1.0,
        "jitter_ms": 1.0, "reorder": 0.125, "reorder_by_ms": 2.0,
    });
    assert!(pairs[1..].iter().all(|link| link["settings"] == pair), "{pairs:?}");
    (pair["loss"], pair["queue"]) = (json!(0.25), json!("5000000B"));
    assert_eq!(pairs[0]["settings"], pair);
    assert_eq!(access.len(), 6);
    assert!(access.iter().all(|link| link["settings"]["rate"] == "800Mbit"), "{access:?}");
    assert!(text(&wan(&["stats"])).contains("1 to 2: "));

    assert!(wan(&["down"]).status.success());
    assert_eq!(wan(&["stats"]).status.code(), Some(2), "it is gone");
}

/// Starts a command, and returns it with its first line of output.
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
    assert!(!is_known(&name));
}

#[test]
fn a_signal_ends_a_command_with_its_emulator() {
    if !is_root() {
        return;
    }
    let mut command = towpath(["wan", "run", "--", "sh", "-c", "sleep 600 & echo here; wait"]);
    let mut runner = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut output = BufReader::new(runner.stdout.take().unwrap());
    let mut line = String::new();
    output.read_line(&mut line).unwrap();
    assert_eq!(line, "here\n");
    let name = format!("run-{}", runner.id());
    assert!(is_known(&name));
    kill_process(Pid::from_child(&runner), Signal::TERM).unwrap();
    assert_eq!(runner.wait().unwrap().code(), Some(143));
    assert!(!is_known(&name));
    fcntl_setfl(output.get_ref(), OFlags::NONBLOCK).unwrap();
    assert_eq!(output.read(&mut [0]).unwrap(), 0, "nobody is left who could write");
}

#[test]
fn what_a_killed_emulator_leaves_is_removed_by_the_next_one() {
    if !is_root() {
        return;
    }
    let (mut killed, line) = started(["wan", "run", "--", "sh", "-c", "echo here; exec sleep 600"]);
    assert_eq!(line, "here\n");
    killed.kill().unwrap();
    killed.wait().unwrap();
    assert!(run(["wan", "run", "--", "true"]).status.success());
    assert!(!is_known(&format!("run-{}", killed.id())));
}

/// The error is unrelated to the output.
#[test]
fn a_process_that_cannot_be_started_is_told_as_such() {
    let directory = Directory::new();
    std::fs::copy(env!("CARGO_BIN_EXE_towpath"), directory.host("towpath")).unwrap();
    // The executable no longer exists when the program restarts itself.
    let script = "exec 3< towpath; rm towpath; exec /proc/self/fd/3 wan up";
    let mut shell = Command::new("sh");
    let outcome = Outcome::from(shell.args(["-c", script]).current_dir(directory.host("")).output().unwrap()).expect(8);
    assert!(outcome.stderr.contains("cannot start the process that holds the emulator: "), "{outcome:?}");
}

#[test]
fn a_command_runs_in_a_network_of_its_own() {
    if !is_root() {
        return;
    }
    // The command knows the name of the emulator; its background processes are killed, or this would wait for them.
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
    // An unprivileged user may have no access to the program, but has access to the copy.
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
