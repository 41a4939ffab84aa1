//! Runs the program in separate processes.

use std::{
    io::{BufRead as _, BufReader},
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    time::{Duration, SystemTime},
};

use rustix::process::Signal;
use tempfile::TempDir;

use towpath_store::sys::{disk, environment};

/// Returns the program with `arguments` and a clean environment.
pub(super) fn towpath<'a>(arguments: impl IntoIterator<Item = &'a str>) -> Command {
    let mut command = Command::new("env");
    // Tests may run with ignored signals, as under `nohup`, which stay ignored.
    command.args(["--default-signal=INT,TERM,HUP", env!("CARGO_BIN_EXE_towpath")]).args(arguments).stdin(Stdio::null());
    let is_setting = |name: &str| {
        let name = name.to_ascii_uppercase();
        name.starts_with("TOWPATH_") || name.starts_with("BEARER_TOKEN") || name.ends_with("_PROXY")
    };
    for (name, _) in environment::variables().filter(|(name, _)| is_setting(name)) {
        command.env_remove(name);
    }
    command
}

/// A temporary working directory for commands.
pub(super) struct Directory(TempDir);

impl Directory {
    pub(super) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub(super) fn host(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Creates a file and its parent directories.
    pub(super) fn put(&self, name: &str, content: &str) {
        let path = self.host(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        disk::write(&path, content.as_bytes()).unwrap();
    }

    /// Sets the modification time of a file to this number of seconds after the Unix epoch.
    pub(super) fn age(&self, name: &str, seconds: u64) {
        let file = std::fs::File::options().write(true).open(self.host(name)).unwrap();
        file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)).unwrap();
    }

    pub(super) fn get(&self, name: &str) -> String {
        String::from_utf8(disk::read(&self.host(name), 1 << 20).unwrap()).unwrap()
    }

    pub(super) fn link(&self, name: &str, target: &str) {
        std::os::unix::fs::symlink(target, self.host(name)).unwrap();
    }

    /// Returns the names in a directory, sorted, without the staging area.
    pub(super) fn names(&self, name: &str) -> Vec<String> {
        let entries = self.host(name).read_dir().unwrap();
        let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.retain(|name| name != ".towpath");
        names.sort();
        names
    }

    pub(super) fn command<'a>(&self, arguments: impl IntoIterator<Item = &'a str>) -> Command {
        let mut command = towpath(arguments);
        command.current_dir(self.0.path());
        command
    }

    /// Runs a command line, whose words are separated by single spaces.
    pub(super) fn run(&self, line: &str) -> Outcome {
        Outcome::from(self.command(line.split(' ')).output().unwrap())
    }

    /// Serves the directory, writable by all clients.
    pub(super) fn serve(&self) -> ServerProcess {
        ServerProcess::start_with(self.0.path(), &["--writable"])
    }
}

/// The output and the exit code of a command.
#[derive(Debug)]
pub(super) struct Outcome {
    /// `None` if a signal ended the command.
    pub(super) code: Option<i32>,
    pub(super) stdout: String,
    pub(super) stderr: String,
}

impl From<Output> for Outcome {
    fn from(output: Output) -> Self {
        let text = |bytes| String::from_utf8(bytes).unwrap();
        Self { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
    }
}

impl Outcome {
    /// Fails the test unless the exit code is `code`.
    #[track_caller]
    pub(super) fn expect(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "{self:?}");
        self
    }
}

/// `towpath serve`, ended when dropped.
pub(super) struct ServerProcess {
    process: Child,
    pub(super) address: SocketAddr,
}

impl ServerProcess {
    /// Serves `directory` on a free port.
    pub(super) fn start(directory: &Path) -> Self {
        Self::start_with(directory, &[])
    }

    /// Like [`Self::start`], with additional options.
    pub(super) fn start_with(directory: &Path, flags: &[&str]) -> Self {
        Self::start_at("127.0.0.1:0", directory, flags)
    }

    /// Kills the server, and starts it at the same address again.
    pub(super) fn killed_and_started_again(self, directory: &Path, flags: &[&str]) -> Self {
        let address = self.address.to_string();
        drop(self);
        Self::start_at(&address, directory, flags)
    }

    fn start_at(address: &str, directory: &Path, flags: &[&str]) -> Self {
        let mut command = towpath(["serve", "--listen", address]);
        command.args(flags).arg(directory);
        Self::of(command)
    }

    /// Waits for the listening address in the output of a server.
    pub(super) fn of(mut command: Command) -> Self {
        let mut process = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("listening on ").expect("it says where it listens");
        Self { address: address.parse().unwrap(), process }
    }

    /// Returns the URLs of the storage by xroot and HTTP, as prefixes of paths.
    pub(super) fn urls(&self) -> [String; 2] {
        [format!("root://{}/", self.address), format!("http://{}", self.address)]
    }

    /// Sends a signal to the server.
    pub(super) fn signal(&self, signal: Signal) {
        rustix::process::kill_process(rustix::process::Pid::from_child(&self.process), signal).unwrap();
    }

    /// Waits for the end of the server; returns its exit code.
    pub(super) async fn ended(mut self) -> Option<i32> {
        loop {
            if let Some(status) = self.process.try_wait().unwrap() {
                return status.code();
            }
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    }

    /// Returns the resident memory of the process (`VmRSS`).
    pub(super) fn resident_bytes(&self) -> u64 {
        let status = disk::read(&PathBuf::from(format!("/proc/{}/status", self.process.id())), 1 << 20).unwrap();
        let status = String::from_utf8(status).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().strip_suffix(" kB").unwrap().parse::<u64>().unwrap() << 10
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
