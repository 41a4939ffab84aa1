//! Finds the running agent, and starts one.

use std::{
    io,
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};

use tokio::time::{Instant, sleep};
use towpath_store::sys::disk;

use super::directory::AgentDirectory;
use crate::{args::Remote, cache::RunningCache, failure::Failure};

/// Maximum time for an agent to respond after its start.
const START_TIME: Duration = Duration::from_secs(20);
/// Maximum time for an agent to respond that another command has started.
const OTHER_START_TIME: Duration = Duration::from_secs(2);
/// Time between two attempts to find it.
const ATTEMPT_INTERVAL: Duration = Duration::from_millis(20);
/// Maximum size in bytes of a log that the next agent continues.
const MAX_LOG_BYTES: u64 = 1 << 20;
/// Number of bytes at the end of a log that are printed if an agent does not start.
const SHOWN_LOG_BYTES: usize = 2000;

/// Returns the running agent, if it responds.
pub(super) async fn find(directory: &AgentDirectory) -> Option<RunningCache> {
    let agent = RunningCache::find(&directory.data()).ok()?;
    agent.request("cache/stats").await.is_ok().then_some(agent)
}

/// Returns the running agent. If none runs, starts one in the background, and waits for it.
///
/// # Errors
/// The agent does not start.
pub(super) async fn running(directory: &AgentDirectory, remote: &Remote) -> Result<RunningCache, Failure> {
    if let Some(agent) = find(directory).await {
        return Ok(agent);
    }
    let mut started = start(directory, remote).map_err(Failure::system("start the agent"))?;
    let (mut deadline, mut has_ended) = (Instant::now() + START_TIME, false);
    while Instant::now() < deadline {
        if let Some(agent) = find(directory).await {
            return Ok(agent);
        }
        // It ends if another command has started an agent at the same time, which then responds soon.
        if !has_ended && started.try_wait().is_ok_and(|status| status.is_some()) {
            has_ended = true;
            deadline = Instant::now() + OTHER_START_TIME;
        }
        sleep(ATTEMPT_INTERVAL).await;
    }
    let log = directory.log();
    Err(Failure::internal(format!("the agent does not start; the end of {}:\n{}", log.display(), end_of(&log))))
}

/// Returns the port of the agent that ran last.
pub(super) fn last_port(directory: &AgentDirectory) -> Option<u16> {
    let url: http::Uri = RunningCache::find(&directory.data()).ok()?.url().parse().ok()?;
    url.port_u16()
}

/// Starts an agent in the background, in a session of its own.
fn start(directory: &AgentDirectory, remote: &Remote) -> io::Result<Child> {
    let path = directory.log();
    if disk::open(&path).and_then(|log| log.metadata()).is_ok_and(|log| log.len() > MAX_LOG_BYTES) {
        disk::remove(&path)?;
    }
    let log = disk::append(&path)?;
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["agent", "run", "--detached"]).current_dir("/");
    if let Some(ca) = &remote.ca_file {
        command.env("TOWPATH_CA_FILE", std::path::absolute(ca)?);
    }
    command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).spawn()
}

/// Returns the last lines of a log.
fn end_of(log: &Path) -> String {
    let text = disk::read(log, 2 * MAX_LOG_BYTES).unwrap_or_default();
    let end = &text[text.len().saturating_sub(SHOWN_LOG_BYTES)..];
    String::from_utf8_lossy(end).trim_end().to_owned()
}
