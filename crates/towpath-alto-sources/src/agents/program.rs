//! Agents that are programs: they print what they know, and run as long as the server.

use std::{io, pin::pin, process::Stdio, sync::Arc, time::Duration};

use crate::lines::{Cutter, Lines, MAX_LINE_BYTES};
use futures::future::{Either, select};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _},
    process::{Child, Command},
    task::block_in_place,
    time::{sleep, timeout},
};
use tokio_util::task::AbortOnDropHandle;
use towpath_alto::facts::Facts;
use towpath_proto::units::Span;
use towpath_store::sys::clock;

use super::{Teller, pauses::Restarts};
use crate::sources::Knowledge;

/// What is read at once of what a program prints.
pub(super) const READ_BYTES: usize = 64 << 10;

/// What is kept of a line that a program prints for people.
const LOGGED_BYTES: usize = 4 << 10;

/// How often it is looked whether a program has ended.
const END_LOOKS: Duration = Duration::from_secs(1);

/// How long to wait for what a program that has ended printed.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// Runs a program for ever: it is started again, later each time, when it ends. Dropping the future kills it, and all that it started in its process group.
pub(super) async fn run(command: Vec<String>, teller: Teller) {
    let mut restarts = Restarts::default();
    loop {
        let began = clock::now();
        let end = run_once(&command, &teller).await;
        restarts.note_run(clock::now() - began);
        let pause = restarts.pause();
        teller.tell(None, Some(format!("{end}; it is started again in {}", Span(pause)))).await;
        sleep(pause).await;
    }
}

/// Runs it until it ends or prints nothing more, and says how it ended.
async fn run_once(command: &[String], teller: &Teller) -> String {
    let mut program = match Running::start(command, Stdio::null()) {
        Ok(program) => program,
        Err(error) => return format!("{} cannot be started: {error}", command.first().map_or("", String::as_str)),
    };
    let (output, errors) = (program.child.stdout.take(), program.child.stderr.take());
    let logging = errors.map(|errors| AbortOnDropHandle::new(tokio::spawn(log(errors, Arc::clone(&teller.name)))));
    if let Some(output) = output {
        let following = pin!(follow(output, teller));
        // What it started may hold its output for ever.
        if let Either::Right(((), following)) = select(following, pin!(program.has_ended())).await {
            let _ = timeout(LAST_WORDS, following).await;
        }
    }
    let ended = program.ended().await;
    if let Some(logging) = logging {
        let _ = timeout(LAST_WORDS, logging).await;
    }
    ended
}

/// A program, with all that it starts: a process group of its own, which is killed when this is dropped.
pub(super) struct Running {
    pub(super) child: Child,
}

impl Running {
    /// Starts it, with that as its input, and with its output and what it prints for people to be read.
    pub(super) fn start(command: &[String], input: Stdio) -> io::Result<Self> {
        let (program, arguments) = command.split_first().ok_or(io::ErrorKind::InvalidInput)?;
        let mut command = Command::new(program);
        command.args(arguments).stdin(input).stdout(Stdio::piped()).stderr(Stdio::piped());
        Ok(Self { child: command.process_group(0).spawn()? })
    }

    /// Waits until the program itself has ended. Its end is only looked at, so that its number still is its group's.
    pub(super) async fn has_ended(&self) {
        let Some(number) = self.number() else { return };
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        while let Ok(None) = waitid(WaitId::Pid(number), options) {
            sleep(END_LOOKS).await;
        }
    }

    /// Its process. None once its end was heard of: then the number may be another's.
    fn number(&self) -> Option<Pid> {
        self.child.id().and_then(|number| i32::try_from(number).ok()).and_then(Pid::from_raw)
    }

    /// Ends what is left of it, and says how it ended.
    pub(super) async fn ended(&mut self) -> String {
        self.kill();
        match self.child.wait().await {
            Ok(status) => format!("the program ended ({status})"),
            Err(error) => format!("the program ended ({error})"),
        }
    }

    fn kill(&self) {
        if let Some(group) = self.number() {
            // There may be nobody left.
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Takes what a program prints, until it prints nothing more.
async fn follow(mut output: impl AsyncRead + Unpin, teller: &Teller) {
    let cutter = Cutter::new(MAX_LINE_BYTES);
    let mut reader = Reader { name: &teller.name, cutter, lines: Lines::default(), skipped: 0 };
    let mut buffer = vec![0; READ_BYTES];
    loop {
        let length = match output.read(&mut buffer).await {
            Ok(0) | Err(_) => return reader.tell_skipped(),
            Ok(length) => length,
        };
        // Large tables are copied when they are still answered from, which takes its time.
        if let Some(facts) = block_in_place(|| reader.take(&buffer[..length])) {
            teller.tell(Some(Knowledge::of(facts)), None).await;
        }
    }
}

/// What one run of a program has told.
struct Reader<'a> {
    name: &'a str,
    cutter: Cutter,
    lines: Lines,
    /// Bad lines since the last commit.
    skipped: u64,
}

impl Reader<'_> {
    /// Takes what was printed. The facts as they are now, if it committed.
    fn take(&mut self, bytes: &[u8]) -> Option<Facts> {
        let Self { name, cutter, lines, skipped } = self;
        let mut is_committed = false;
        cutter.feed(bytes, |line| match lines.take(line) {
            Ok(is_commit) => is_committed |= is_commit,
            Err(error) => {
                if *skipped == 0 {
                    tracing::warn!("agent {name}: {error}; the line is skipped");
                }
                *skipped += 1;
            }
        });
        is_committed.then(|| {
            self.tell_skipped();
            self.lines.facts()
        })
    }

    /// The first one was told at once.
    fn tell_skipped(&mut self) {
        let skipped = std::mem::take(&mut self.skipped);
        if skipped > 1 {
            tracing::warn!("agent {}: {skipped} lines were skipped", self.name);
        }
    }
}

/// Passes what a program prints for people on to the log, until it prints nothing more.
pub(super) async fn log(mut errors: impl AsyncRead + Unpin, name: Arc<str>) {
    let mut cutter = Cutter::new(LOGGED_BYTES);
    let mut buffer = vec![0; LOGGED_BYTES];
    loop {
        let length = match errors.read(&mut buffer).await {
            Ok(0) | Err(_) => return,
            Ok(length) => length,
        };
        cutter.feed(&buffer[..length], |line| {
            let line: String = String::from_utf8_lossy(line).chars().filter(|letter| !letter.is_control()).collect();
            tracing::warn!("agent {name} says: {line}");
        });
    }
}
