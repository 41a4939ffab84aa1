//! Nothing is left behind, however the emulator ends.

use std::{
    env,
    io::{BufRead as _, BufReader, Read as _},
    process::{Command, Stdio},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fd::OwnedFd,
    fs::stat,
    process::{Pid, PidfdFlags, pidfd_open},
};
use towpath_wan::{Host, Wan};

use super::lab::{is_root, link, wan};

/// Environment variable of the process that is killed with `kill -9`.
const VICTIM: &str = "TOWPATH_WAN_TEST_VICTIM";

fn open_process(number: &str) -> OwnedFd {
    let number = Pid::from_raw(number.trim().parse().unwrap()).unwrap();
    pidfd_open(number, PidfdFlags::empty()).unwrap()
}

/// Waits for a process to end; the timeout is generous.
fn is_gone(process: &OwnedFd) -> bool {
    let timeout = Timespec { tv_sec: 60, tv_nsec: 0 };
    poll(&mut [PollFd::new(process, PollFlags::IN)], Some(&timeout)).unwrap() == 1
}

/// Identifies a network namespace.
fn inode(host: &Host) -> u64 {
    stat(host.namespace_path()).unwrap().st_ino
}

/// Returns whether any thread of the machine is in the namespace.
fn is_inhabited(inode: u64) -> bool {
    let entries = |path: String| std::path::Path::new(&path).read_dir().into_iter().flatten().flatten();
    let numbered = |path: String| entries(path).filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    numbered("/proc".to_owned()).any(|process| {
        numbered(format!("/proc/{process}/task"))
            .any(|thread| stat(format!("/proc/{process}/task/{thread}/ns/net")).is_ok_and(|stat| stat.st_ino == inode))
    })
}

/// Returns a command with a child that runs in the background; prints the child's number.
fn with_background_child() -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", "sleep 600 & echo $!; wait"]).stdout(Stdio::piped());
    command
}

#[test]
fn dropping_it_kills_all_that_ran_in_the_hosts() {
    let Some(wan) = wan(Wan::builder().pairs(link(100, 1))) else { return };
    let inodes: Vec<u64> = wan.hosts().iter().map(inode).collect();
    let mut child = wan.hosts()[1].spawn(with_background_child()).unwrap();
    let mut number = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut number).unwrap();
    let background = open_process(&number);
    assert!(inodes.iter().all(|inode| is_inhabited(*inode)));
    drop(wan);
    assert!(is_gone(&background));
    assert!(!child.wait().unwrap().success());
    assert!(!inodes.iter().any(|inode| is_inhabited(*inode)));
}

#[test]
fn kill_9_leaves_nothing() {
    if !is_root() {
        return;
    }
    let mut victim = Command::new(env::current_exe().unwrap());
    victim.args(["--exact", "ending::is_killed", "--nocapture", "--test-threads=1"]).env(VICTIM, "1");
    let mut victim = victim.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(victim.stdout.take().unwrap()).lines().map_while(Result::ok);
    let mut lines = lines.skip_while(|line| !line.ends_with("made"));
    lines.next().expect("it makes a WAN");
    let numbers: Vec<u64> = lines.take(3).map(|line| line.parse().unwrap()).collect();
    let command = open_process(&numbers[0].to_string());
    assert!(numbers[1..].iter().all(|inode| is_inhabited(*inode)));
    victim.kill().unwrap();
    victim.wait().unwrap();
    assert!(is_gone(&command));
    assert!(!numbers[1..].iter().any(|inode| is_inhabited(*inode)));
}

/// The child process of the test above: creates a WAN and waits to be killed. On its own it tests nothing.
#[allow(clippy::disallowed_methods, reason = "this crate does not depend on towpath-store")]
#[test]
fn is_killed() {
    if env::var_os(VICTIM).is_none() {
        return;
    }
    let wan = Wan::builder().build().unwrap();
    let mut command = Command::new("sleep");
    let child = wan.hosts()[0].spawn({
        command.arg("600");
        command
    });
    println!("\nmade\n{}", child.unwrap().id());
    for host in wan.hosts() {
        println!("{}", inode(host));
    }
    // Nothing is ever written to it; it ends when the test is aborted.
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
}
