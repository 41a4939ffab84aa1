//! Finds the running agent, and starts one.

use std::{
    io::{self, Write as _},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use rustix::process::geteuid;
use tokio::time::{Instant, sleep};
use towpath_store::{
    Blame, Error, Fault,
    sys::{
        disk::{self, RequiredOwner},
        environment, net, processes,
    },
};

use super::directory::AgentDirectory;
use crate::{args::Remote, cache::RunningCache, failure::Failure};

/// Maximum time for an agent to respond after its start.
const START_TIME: Duration = Duration::from_secs(20);
/// Time after which an agent that has ended at once is started again.
const RESTART_INTERVAL: Duration = Duration::from_millis(200);
/// Time between two attempts to find it.
const ATTEMPT_INTERVAL: Duration = Duration::from_millis(20);
/// Maximum size in bytes of a log that the next agent continues.
const MAX_LOG_BYTES: u64 = 1 << 20;
/// Maximum length of the file with the last port in bytes.
const MAX_PORT_BYTES: u64 = 16;
/// Number of bytes at the end of a log that are printed if an agent does not start.
const SHOWN_LOG_BYTES: usize = 2000;

/// Returns the running agent, if it responds. A program of another user at the address of an agent that has ended is none.
pub(super) async fn find(directory: &AgentDirectory) -> Option<RunningCache> {
    let agent = RunningCache::find(&directory.data()).ok()?;
    let address = agent.url().strip_prefix("http://")?.parse().ok()?;
    let is_own = net::listening_user(address).is_ok_and(|user| user == Some(geteuid().as_raw()));
    (is_own && agent.request("cache/stats").await.is_ok()).then_some(agent)
}

/// Returns the running agent. If none runs, starts one in the background, and waits for it.
///
/// # Errors
/// The agent does not start.
pub(super) async fn running(directory: &AgentDirectory, remote: &Remote) -> Result<RunningCache, Failure> {
    let deadline = Instant::now() + START_TIME;
    let mut started: Option<Child> = None;
    while Instant::now() < deadline {
        if let Some(agent) = find(directory).await {
            return Ok(agent);
        }
        // It ends at once if another agent has the directory: one that another command has just started, or one that is
        // about to end.
        let runs = started.as_mut().is_some_and(|agent| agent.try_wait().is_ok_and(|status| status.is_none()));
        if !runs {
            sleep(if started.is_some() { RESTART_INTERVAL } else { Duration::ZERO }).await;
            started = Some(start(directory, remote).map_err(Failure::system("start the agent"))?);
        }
        sleep(ATTEMPT_INTERVAL).await;
    }
    let log = directory.log();
    let message = format!("the agent does not start; the end of {}:\n{}", log.display(), end_of(&log));
    Err(Error::new(Fault::Unavailable, message).blamed_on(Blame::Caller).into())
}

/// Removes the address of an agent that ends. Its port stays known.
pub(super) fn forget(directory: &AgentDirectory) {
    if let Some(port) = last_port(directory) {
        // Without it, the next agent has another port.
        let _ = disk::replace(&directory.port(), |file| file.write_all(port.to_string().as_bytes()));
    }
    let _ = disk::remove(&directory.data().join("control"));
}

/// Returns the port of the agent that ran last.
pub(super) fn last_port(directory: &AgentDirectory) -> Option<u16> {
    if let Ok(agent) = RunningCache::find(&directory.data()) {
        return agent.url().parse::<http::Uri>().ok()?.port_u16();
    }
    let text = disk::read_regular(&directory.port(), MAX_PORT_BYTES, RequiredOwner::CurrentUser).ok()?;
    std::str::from_utf8(&text).ok()?.parse().ok()
}

/// Starts an agent in the background, in a session of its own.
fn start(directory: &AgentDirectory, remote: &Remote) -> io::Result<Child> {
    let path = directory.log();
    if disk::open(&path).and_then(|log| log.metadata()).is_ok_and(|log| log.len() > MAX_LOG_BYTES) {
        disk::remove(&path)?;
    }
    let log = disk::append_private(&path)?;
    // A file of the calling script must not stay open, and perhaps locked, as long as the agent runs.
    processes::close_in_children();
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["agent", "run", "--detached"]).current_dir("/");
    command.env("TOWPATH_AGENT_DIRECTORY", directory.path());
    let files =
        ["TOWPATH_AGENT_CA", "BEARER_TOKEN_FILE"].map(|name| (name, environment::variable(name).map(PathBuf::from)));
    for (name, path) in files.into_iter().chain([("TOWPATH_CA_FILE", remote.ca_file.clone())]) {
        if let Some(path) = path {
            command.env(name, std::path::absolute(path)?);
        }
    }
    command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).spawn()
}

/// Returns the last lines of a log.
fn end_of(log: &Path) -> String {
    let text = disk::read(log, 2 * MAX_LOG_BYTES).unwrap_or_default();
    let end = &text[text.len().saturating_sub(SHOWN_LOG_BYTES)..];
    String::from_utf8_lossy(end).trim_end().to_owned()
}
