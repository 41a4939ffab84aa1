//! Program agents: they print facts, and run as long as the server.

use std::{io, pin::pin, process::Stdio, sync::Arc, time::Duration};

use crate::program_protocol::{LineSplitter, MAX_LINE_BYTES, ProgramFacts};
use futures::future::{Either, select};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _},
    process::{Child, Command},
    task::block_in_place,
    time::{sleep, timeout},
};
use tokio_util::task::AbortOnDropHandle;
use towpath_alto::agent_state::AgentState;
use towpath_proto::units::HumanDuration;
use towpath_store::sys::clock;

use super::{AgentHandle, pauses::RestartBackoff};
use crate::sources::AgentData;

/// Size of the read buffer for a program's output.
pub(super) const READ_BYTES: usize = 64 << 10;

/// Maximum length of a log line from a program's standard error; the rest is cut off.
const LOGGED_BYTES: usize = 4 << 10;

/// Interval at which a program's end is checked.
const END_LOOKS: Duration = Duration::from_secs(1);

/// How long to wait for the remaining output of an ended program.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// Runs a program indefinitely, restarting it with increasing backoff. Dropping the future kills the program's process
/// group.
pub(super) async fn run(command: Vec<String>, handle: AgentHandle) {
    let mut restarts = RestartBackoff::default();
    loop {
        let began = clock::now();
        let end = run_once(&command, &handle).await;
        restarts.note_run(clock::now() - began);
        let pause = restarts.pause();
        handle.report(None, Some(format!("{end}; restarting in {}", HumanDuration(pause)))).await;
        sleep(pause).await;
    }
}

/// Runs it until it ends or closes its output, and returns how it ended.
async fn run_once(command: &[String], handle: &AgentHandle) -> String {
    let mut program = match ChildProcess::start(command, Stdio::null()) {
        Ok(program) => program,
        Err(error) => return format!("{} cannot be started: {error}", command.first().map_or("", String::as_str)),
    };
    let (output, errors) = (program.child.stdout.take(), program.child.stderr.take());
    let logging = errors.map(|errors| AbortOnDropHandle::new(tokio::spawn(log(errors, Arc::clone(&handle.name)))));
    if let Some(output) = output {
        let following = pin!(follow(output, handle));
        // Processes that it started may keep its output open indefinitely.
        if let Either::Right(((), following)) = select(following, pin!(program.has_ended())).await {
            let _ = timeout(LAST_WORDS, following).await;
        }
    }
    let ended = program.finish().await;
    if let Some(logging) = logging {
        let _ = timeout(LAST_WORDS, logging).await;
    }
    ended
}

/// A running program in a process group of its own, which is killed on drop.
pub(super) struct ChildProcess {
    pub(super) child: Child,
}

impl ChildProcess {
    /// Starts the program with piped output and error streams.
    pub(super) fn start(command: &[String], input: Stdio) -> io::Result<Self> {
        let (program, arguments) = command.split_first().ok_or(io::ErrorKind::InvalidInput)?;
        let mut command = Command::new(program);
        command.args(arguments).stdin(input).stdout(Stdio::piped()).stderr(Stdio::piped());
        Ok(Self { child: command.process_group(0).spawn()? })
    }

    /// Waits until the program has ended, without reaping it, so that its process ID remains valid for the group.
    pub(super) async fn has_ended(&self) {
        let Some(number) = self.number() else { return };
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        while let Ok(None) = waitid(WaitId::Pid(number), options) {
            sleep(END_LOOKS).await;
        }
    }

    /// Returns its process ID, or `None` once it was reaped and the ID may be reused.
    fn number(&self) -> Option<Pid> {
        self.child.id().and_then(|number| i32::try_from(number).ok()).and_then(Pid::from_raw)
    }

    /// Kills what remains of its group, and returns how it ended.
    pub(super) async fn finish(&mut self) -> String {
        self.kill();
        match self.child.wait().await {
            Ok(status) => format!("the program ended ({status})"),
            Err(error) => format!("the program ended ({error})"),
        }
    }

    fn kill(&self) {
        if let Some(group) = self.number() {
            // The group may be empty.
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}

impl Drop for ChildProcess {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Processes a program's output until it is closed.
async fn follow(mut output: impl AsyncRead + Unpin, handle: &AgentHandle) {
    let splitter = LineSplitter::new(MAX_LINE_BYTES);
    let mut reader = Reader { name: &handle.name, splitter, lines: ProgramFacts::default(), skipped: 0 };
    let mut buffer = vec![0; READ_BYTES];
    loop {
        let length = match output.read(&mut buffer).await {
            Ok(0) | Err(_) => return reader.log_skipped(),
            Ok(length) => length,
        };
        // Changing a large table copies it if it is in use, which may block.
        if let Some(facts) = block_in_place(|| reader.take(&buffer[..length])) {
            handle.report(Some(AgentData::of(facts)), None).await;
        }
    }
}

/// State of one run of a program.
struct Reader<'a> {
    name: &'a str,
    splitter: LineSplitter,
    lines: ProgramFacts,
    /// Number of invalid lines since the last commit.
    skipped: u64,
}

impl Reader<'_> {
    /// Processes output. Returns the current facts if the program committed.
    fn take(&mut self, bytes: &[u8]) -> Option<AgentState> {
        let Self { name, splitter, lines, skipped } = self;
        let mut is_committed = false;
        splitter.feed(bytes, |line| match lines.take(line) {
            Ok(is_commit) => is_committed |= is_commit,
            Err(error) => {
                if *skipped == 0 {
                    tracing::warn!("agent {name}: {error}; the line is skipped");
                }
                *skipped += 1;
            }
        });
        is_committed.then(|| {
            self.log_skipped();
            self.lines.facts()
        })
    }

    /// The first one was logged immediately.
    fn log_skipped(&mut self) {
        let skipped = std::mem::take(&mut self.skipped);
        if skipped > 1 {
            tracing::warn!("agent {}: {skipped} lines were skipped", self.name);
        }
    }
}

/// Copies a program's standard error to the log until it is closed.
pub(super) async fn log(mut errors: impl AsyncRead + Unpin, name: Arc<str>) {
    let mut splitter = LineSplitter::new(LOGGED_BYTES);
    let mut buffer = vec![0; LOGGED_BYTES];
    loop {
        let length = match errors.read(&mut buffer).await {
            Ok(0) | Err(_) => return,
            Ok(length) => length,
        };
        splitter.feed(&buffer[..length], |line| {
            let line: String = String::from_utf8_lossy(line).chars().filter(|letter| !letter.is_control()).collect();
            tracing::warn!("agent {name} (stderr): {line}");
        });
    }
}
