//! `towpath serve` as its administrator sees it.

use std::{net::SocketAddr, process::Stdio, time::Duration};

use rustix::process::Signal;
use towpath_store::sys::{disk, net};

use super::{
    alto::{ask, expect},
    program::{Directory, ServerProcess},
};

/// A configuration that lets anonymous callers read below `path`.
fn config(directory: &Directory, path: &str) -> String {
    let (root, log) = (directory.host("data"), directory.host("access.log"));
    format!(
        "root = {root:?}\nlisten = ['127.0.0.1:0']\n[access_log]\npath = {log:?}\n\
         [[access.anonymous]]\npath = '{path}'\nallow = ['read']\n"
    )
}

/// Waits until the standard error stream of the server contains `text`.
async fn wait_for(directory: &Directory, text: &str) {
    while !directory.get("err").contains(text) {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn sighup_reloads_the_rights_and_opens_the_log_again() {
    let directory = Directory::new();
    directory.put("data/a/file", "x");
    directory.put("data/b/file", "x");
    directory.put("serve.toml", &config(&directory, "/a"));
    let mut command = directory.command(["serve", "--config", "serve.toml"]);
    command.stderr(disk::create(&directory.host("err")).unwrap());
    let served = ServerProcess::of(command);
    let get = async |path: &str| ask(&served, &format!("GET {path}"), &[], "").await;
    expect(&get("/a/file").await, &["200 OK"]);
    expect(&get("/b/file").await, &["401 Unauthorized"]);

    disk::rename(&directory.host("access.log"), &directory.host("access.log.1")).unwrap();
    directory.put("serve.toml", &format!("drain = '1s'\n{}", config(&directory, "/b")));
    served.signal(Signal::HUP);
    wait_for(&directory, "reloaded the settings, except these, which need a restart: drain").await;
    expect(&get("/a/file").await, &["401 Unauthorized"]);
    expect(&get("/b/file").await, &["200 OK"]);

    directory.put("serve.toml", &config(&directory, "/a").replace("'read'", "'raed'"));
    served.signal(Signal::HUP);
    wait_for(&directory, "the settings are invalid, so nothing was reloaded").await;
    assert!(directory.get("err").contains("raed"), "{}", directory.get("err"));
    expect(&get("/b/file").await, &["200 OK"]);

    served.signal(Signal::TERM);
    assert_eq!(served.ended().await, Some(0));
    let logs = ["access.log.1", "access.log"].map(|log| directory.get(log).lines().count());
    assert_eq!(logs, [2, 3], "{}", directory.get("access.log"));
}

/// `script`, which runs a command in a terminal of its own; the terminal is closed when this is dropped.
struct Terminal(std::process::Child);

impl Terminal {
    fn run(line: &str) -> Self {
        let mut command = std::process::Command::new("script");
        command.args(["--quiet", "--command", line, "/dev/null"]);
        Self(command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test]
async fn a_server_ends_when_its_terminal_is_closed() {
    let directory = Directory::new();
    directory.put("err", "");
    let terminal = Terminal::run(&format!(
        "exec {} serve {} --listen 127.0.0.1:0 > {} 2>&1",
        env!("CARGO_BIN_EXE_towpath"),
        directory.host("").display(),
        directory.host("err").display()
    ));
    wait_for(&directory, "listening on").await;
    let address = directory.get("err").lines().find_map(|line| line.strip_prefix("listening on ").map(str::to_owned));
    let address: SocketAddr = address.unwrap().parse().unwrap();
    drop(terminal);
    while net::connect(address).await.is_ok() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
