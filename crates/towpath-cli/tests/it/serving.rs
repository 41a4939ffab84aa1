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
pub(super) async fn wait_for(directory: &Directory, text: &str) {
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
    wait_for(&directory, "nothing was reloaded").await;
    assert!(directory.get("err").contains("raed"), "{}", directory.get("err"));
    expect(&get("/b/file").await, &["200 OK"]);

    served.signal(Signal::TERM);
    assert_eq!(served.ended().await, Some(0));
    let logs = ["access.log.1", "access.log"].map(|log| directory.get(log).lines().count());
    assert_eq!(logs, [2, 3], "{}", directory.get("access.log"));
}

/// A configuration with what a newcomer gets wrong: a directory that is missing, an issuer that does not respond.
const FAULTY: &str = "
root = 'data'
listen = ['0.0.0.0:0']
[access_log]
path = 'missing/log'
[tls]
certificate = 'cert.pem'
key = 'key.pem'
[[access.anonymous]]
path = '/inbox'
allow = ['read', 'create']
[[access.issuers]]
issuer = 'http://127.0.0.1:9'
base_path = '/vo'
";

fn certify(directory: &Directory) {
    let made = rcgen::generate_simple_self_signed(["se.example.org".to_owned()]).unwrap();
    directory.put("cert.pem", &made.cert.pem());
    directory.put("key.pem", &made.signing_key.serialize_pem());
}

#[test]
fn check_reports_each_part_of_the_settings_and_who_may_do_what() {
    let directory = Directory::new();
    directory.put("data/file", "x");
    directory.put("serve.toml", FAULTY);
    certify(&directory);
    let outcome = directory.run("serve --config serve.toml --check").expect(2);
    for part in [
        "ok      root data: ",
        "ok      certificate cert.pem: for se.example.org; it expires on 4096-01-01",
        "FAILED  access log missing/log: No such file",
        "FAILED  issuer http://127.0.0.1:9: ",
        "WARNING access.anonymous: every client that reaches this server may write below /inbox",
        "WARNING access.audiences: ",
        "everyone                      /inbox  read, create",
        "tokens of http://127.0.0.1:9  /vo     what their scopes grant below this path",
    ] {
        assert!(outcome.stdout.contains(part), "{part} is missing: {outcome:?}");
    }
    let good = FAULTY.split("[tls]").next().unwrap().replace("missing/log", "log").replace("0.0.0.0", "127.0.0.1");
    directory.put("serve.toml", &good);
    let outcome = directory.run("serve --config serve.toml --check").expect(0);
    assert!(!outcome.stdout.contains("WARNING") && !directory.host("log").exists(), "{outcome:?}");
}

#[test]
fn access_explain_says_what_a_caller_may_do_and_why() {
    let directory = Directory::new();
    directory.put("serve.toml", FAULTY);
    directory.put("token", "not.a.token");
    let outcome = directory.run("access explain /inbox/f --config serve.toml").expect(0);
    for part in [
        "an anonymous caller at /inbox/f:",
        "  create              yes  everyone may create /inbox",
        "  change or delete    no   anonymous callers may not change or delete this: send a token",
    ] {
        assert!(outcome.stdout.contains(part), "{part} is missing: {outcome:?}");
    }
    let outcome = directory.run("access explain /vo/f --config serve.toml --token-file token").expect(4);
    let no = "  read                no   anonymous callers may not read this";
    assert!(outcome.stdout.contains(no) && outcome.stderr.contains("malformed"), "{outcome:?}");
}

#[tokio::test]
async fn the_start_says_what_is_served_and_warns() {
    let directory = Directory::new();
    directory.put("data/file", "x");
    directory.put("serve.toml", &FAULTY.replace("missing/log", "log"));
    certify(&directory);
    let mut command = directory.command(["serve", "--config", "serve.toml"]);
    command.stderr(disk::create(&directory.host("err")).unwrap());
    let served = ServerProcess::of(command);
    let port = served.address.port();
    wait_for(&directory, "cannot fetch the keys of http://127.0.0.1:9, so its tokens are refused: ").await;
    for part in [
        format!(
            "serving data at roots://0.0.0.0:{port}/ https://0.0.0.0:{port}/; may write: everyone below /inbox, tokens"
        ),
        "warning: access.anonymous: every client".into(),
        "warning: access.audiences: no audience".into(),
    ] {
        assert!(directory.get("err").contains(&part), "{part} is missing: {}", directory.get("err"));
    }
}

#[tokio::test]
async fn the_start_names_the_ports_for_monitoring() {
    let directory = Directory::new();
    directory
        .put("serve.toml", &format!("{}[metrics]\nlisten = ['127.0.0.1:0', '127.0.0.2:0']\n", config(&directory, "/")));
    directory.put("data/file", "x");
    let mut command = directory.command(["serve", "--config", "serve.toml"]);
    command.stderr(disk::create(&directory.host("err")).unwrap());
    let served = ServerProcess::of(command);
    let lines = directory.get("err");
    let (_, ports) = lines.split_once("; may write: nobody; metrics at ").unwrap();
    let ports: Vec<_> = ports.lines().next().unwrap().split(' ').collect();
    for (port, host) in ports.iter().zip(["127.0.0.1", "127.0.0.2"]) {
        let address = port.strip_prefix("http://").and_then(|port| port.strip_suffix("/metrics")).unwrap();
        assert!(address.starts_with(host) && net::connect(address.parse().unwrap()).await.is_ok(), "{port}");
    }
    assert_eq!(ports.len(), 2);
    drop(served);
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
