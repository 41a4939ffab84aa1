//! `towpath agent`: its start, its end, and the storages that it may contact.

use std::{
    fs::{Permissions, set_permissions},
    io::{BufRead as _, BufReader},
    os::unix::fs::PermissionsExt as _,
    process::{Child, Command, Stdio},
};

use super::program::{Directory, Outcome, ServerProcess};

/// A user with an agent of its own, which ends when dropped.
struct User {
    directory: Directory,
    /// Time without a connection after which the agent ends.
    idle: &'static str,
}

impl User {
    fn new() -> Self {
        Self { directory: Directory::new(), idle: "1h" }
    }

    fn command(&self, line: &str) -> Command {
        let mut command = self.directory.command(line.split(' '));
        command.env("TOWPATH_AGENT_DIRECTORY", self.directory.host("agent")).env("TOWPATH_AGENT_IDLE", self.idle);
        command.env("HOME", self.directory.host("home")).env_remove("XDG_CONFIG_HOME");
        command
    }

    fn run(&self, line: &str) -> Outcome {
        Outcome::from(self.command(line).output().unwrap())
    }

    /// Returns the URL through the agent.
    fn url(&self, url: &str) -> String {
        self.run(&format!("agent url {url}")).expect(0).stdout.trim_end().to_owned()
    }

    fn cat(&self, url: &str) -> Outcome {
        self.run(&format!("cat {url}"))
    }

    /// Starts the agent in the foreground, and waits until it listens.
    fn start(&self) -> Child {
        let mut agent = self.command("agent run").stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(agent.stdout.take().unwrap()).lines();
        assert!(lines.next().unwrap().unwrap().starts_with("listening on 127.0.0.2:"));
        agent
    }
}

impl Drop for User {
    fn drop(&mut self) {
        let _ = self.command("agent stop").output();
    }
}

/// Returns a server with a file.
fn origin() -> (Directory, ServerProcess) {
    let directory = Directory::new();
    directory.put("d/file", "content");
    let server = ServerProcess::start(&directory.host(""));
    (directory, server)
}

#[test]
fn an_agent_starts_with_its_first_url_and_keeps_its_port() {
    let (user, (_files, server)) = (User::new(), origin());
    let of_root = format!("root://{}//d/file", server.address);
    user.run("agent status").expect(1);
    let url = user.url(&of_root);
    assert!(url.starts_with("root://127.0.0.2:") && url.ends_with(&format!("//{of_root}")), "{url}");
    assert_eq!(user.cat(&url).expect(0).stdout, "content");
    let of_http = user.url(&format!("http://{}/d/file", server.address));
    assert_eq!(user.cat(&of_http).expect(0).stdout, "content");
    let status = user.run("agent status").expect(0).stdout;
    assert!(status.contains(&server.address.to_string()) && status.contains("fetched"), "{status}");
    let environment = user.run("agent env").expect(0).stdout;
    let prefix = environment.trim_end().strip_prefix("export TOWPATH_AGENT=").unwrap();
    assert_eq!(format!("{prefix}{of_root}"), url);
    user.run("agent stop").expect(0);
    assert!(user.run("agent status").expect(1).stderr.contains("no agent runs"));
    assert_eq!(user.url(&of_root), url, "the next agent has the same port");
}

/// Many systems let the group of a user write the user's files.
#[test]
fn an_agent_works_with_any_umask() {
    let (user, (_files, server)) = (User::new(), origin());
    let url = format!("root://{}//d/file", server.address);
    let inner = user.command(&format!("agent url {url}"));
    let mut command = Command::new("sh");
    command.args(["-c", "umask 002; exec \"$@\"", "sh"]).arg(inner.get_program()).args(inner.get_args());
    for (name, value) in inner.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    let url = Outcome::from(command.output().unwrap()).expect(0).stdout;
    assert_eq!(user.cat(url.trim_end()).expect(0).stdout, "content");
}

#[test]
fn an_agent_contacts_only_the_storages_that_its_user_has_named() {
    let (user, one, other) = (User::new(), origin(), origin());
    let urls = [&one, &other].map(|(_, server)| format!("root://{}//d/file", server.address));
    let url = user.url(&urls[0]);
    let unnamed = url.replace(&urls[0], &urls[1]);
    let refused = user.cat(&unnamed).expect(4);
    assert!(refused.stderr.contains("permit it with `towpath agent url`"), "{refused:?}");
    assert_eq!(user.url(&urls[1]), unnamed);
    assert_eq!(user.cat(&unnamed).expect(0).stdout, "content");
}

#[test]
fn of_agents_that_start_at_once_one_remains() {
    let (user, (_files, server)) = (User::new(), origin());
    let line = format!("agent url root://{}//d/file", server.address);
    let starting: Vec<_> = (0..4).map(|_| user.command(&line).stdout(Stdio::piped()).spawn().unwrap()).collect();
    let urls: Vec<_> =
        starting.into_iter().map(|one| Outcome::from(one.wait_with_output().unwrap()).expect(0).stdout).collect();
    assert!(urls.iter().all(|url| *url == urls[0]), "{urls:?}");
    assert_eq!(user.cat(urls[0].trim_end()).expect(0).stdout, "content");
}

#[test]
fn a_killed_agent_is_replaced() {
    let (user, (_files, server)) = (User::new(), origin());
    let of_root = format!("root://{}//d/file", server.address);
    let mut agent = user.start();
    let url = user.url(&of_root);
    assert_eq!(user.cat(&url).expect(0).stdout, "content");
    agent.kill().unwrap();
    agent.wait().unwrap();
    assert_eq!(user.url(&of_root), url);
    assert_eq!(user.cat(&url).expect(0).stdout, "content");
}

#[test]
fn an_idle_agent_ends() {
    let mut user = User::new();
    user.idle = "100ms";
    assert_eq!(user.start().wait().unwrap().code(), Some(0));
    user.run("agent status").expect(1);
}

#[test]
fn what_an_agent_cannot_do_is_said() {
    let user = User::new();
    for (argument, reason) in [
        ("s3://bucket/key", "does not read buckets"),
        ("https://user:secret@host/f", "~/.netrc"),
        ("file", "expected the URL of a file"),
    ] {
        let refused = user.run(&format!("agent url {argument}")).expect(2);
        assert!(refused.stderr.contains(reason) && !refused.stderr.contains("secret"), "{refused:?}");
    }
    set_permissions(user.directory.host("agent"), Permissions::from_mode(0o755)).unwrap();
    let refused = user.run("agent env").expect(2);
    assert!(refused.stderr.contains("TOWPATH_AGENT_DIRECTORY"), "{refused:?}");
    set_permissions(user.directory.host("agent"), Permissions::from_mode(0o700)).unwrap();
    user.directory.put("home/.config/towpath/agent.toml", "idel = \"1h\"\n");
    let refused = user.run("agent env").expect(2);
    assert!(refused.stderr.contains("agent.toml:1") && refused.stderr.contains("idle"), "{refused:?}");
}
