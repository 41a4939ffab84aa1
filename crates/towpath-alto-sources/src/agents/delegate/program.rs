//! A program that reads requests, one per line, and prints the answers.

use std::{collections::HashSet, process::Stdio, sync::Arc, time::Duration};

use crate::program_protocol::{LineSplitter, MAX_LINE_BYTES, Reply};
use futures::FutureExt as _;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    process::{ChildStdin, ChildStdout},
    time::timeout,
};
use tokio_util::task::AbortOnDropHandle;
use towpath_alto::delegation::{DelegateRequest, Item};
use towpath_proto::units::HumanDuration;

use super::{
    super::program::{ChildProcess, READ_BYTES, log},
    QueryFailure, ReportedValues,
};

/// Maximum time for one answer. Requests do not wait that long.
const PATIENCE: Duration = Duration::from_secs(30);

/// A program answering one request after another.
pub(super) struct DelegateProgram {
    program: ChildProcess,
    requests: ChildStdin,
    answers: OutputReader,
    _logging: Option<AbortOnDropHandle<()>>,
}

/// Reader for the program's output.
struct OutputReader {
    output: ChildStdout,
    splitter: LineSplitter,
    /// Name of the agent.
    name: Arc<str>,
    /// Whether unrequested items have already been logged.
    is_talkative: bool,
}

/// The answer to one request, as far as read.
struct ProgramResponse {
    /// Requested items without a value yet.
    open: HashSet<Item>,
    values: ReportedValues,
    /// Whether the answer is complete.
    is_done: bool,
    /// Whether output follows the complete answer.
    is_exceeded: bool,
    /// Number of invalid lines.
    skipped: u64,
}

/// Error for output without a request: later answers could then belong to other requests.
const UNREQUESTED_OUTPUT: &str = "the program wrote output that was not requested; end each answer with one commit";

impl DelegateProgram {
    /// Starts the program for the named agent.
    pub(super) fn open(command: &[String], name: &Arc<str>) -> Result<Self, String> {
        let cannot = |error| format!("{} cannot be started: {error}", command.first().map_or("", String::as_str));
        let mut program = ChildProcess::start(command, Stdio::piped()).map_err(cannot)?;
        let pipes = (program.child.stdin.take(), program.child.stdout.take(), program.child.stderr.take());
        let (Some(requests), Some(output), errors) = pipes else { return Err("the program has no pipes".into()) };
        let logging = errors.map(|errors| AbortOnDropHandle::new(tokio::spawn(log(errors, Arc::clone(name)))));
        let splitter = LineSplitter::new(MAX_LINE_BYTES);
        let answers = OutputReader { output, splitter, name: Arc::clone(name), is_talkative: false };
        Ok(Self { program, requests, answers, _logging: logging })
    }

    /// Sends a request and returns the values of the answer.
    ///
    /// # Errors
    /// Returns an error if the program has ended, printed output before the request or after its answer, or
    /// takes too long.
    pub(super) async fn request(&mut self, request: &DelegateRequest) -> Result<ReportedValues, QueryFailure> {
        match self.answers.wait_for_unrequested().now_or_never() {
            Some(ProgramFailure::Unrequested) => return Err(QueryFailure::Unreachable(UNREQUESTED_OUTPUT.into())),
            Some(ProgramFailure::Ended) => return Err(QueryFailure::Unreachable(self.program.finish().await)),
            None => {}
        }
        let mut line = serde_json::to_vec(request).expect("questions can be written");
        line.push(b'\n');
        let Self { requests, answers, .. } = self;
        let sending = async {
            // If the program does not read it, the missing answer reveals that.
            let _ = requests.write_all(&line).await;
        };
        let mut answer = ProgramResponse::to(request);
        let both = async { tokio::join!(sending, answers.next(&mut answer)).1 };
        match timeout(PATIENCE, both).await {
            Ok(Ok(())) => Ok(answer.values),
            Ok(Err(ProgramFailure::Ended)) => Err(QueryFailure::Unreachable(self.program.finish().await)),
            Ok(Err(ProgramFailure::Unrequested)) => {
                Err(QueryFailure::Partial(answer.values, UNREQUESTED_OUTPUT.into()))
            }
            Err(_) => {
                let trouble = format!("the program did not respond within {}", HumanDuration(PATIENCE));
                Err(QueryFailure::Partial(answer.values, trouble))
            }
        }
    }

    /// Waits until the program ends or prints unrequested output, and returns which.
    pub(super) async fn has_ended(&mut self) -> String {
        let Self { program, answers, .. } = self;
        let broken = tokio::select! {
            () = program.has_ended() => ProgramFailure::Ended,
            broken = answers.wait_for_unrequested() => broken,
        };
        match broken {
            ProgramFailure::Ended => self.program.finish().await,
            ProgramFailure::Unrequested => UNREQUESTED_OUTPUT.into(),
        }
    }
}

/// Why the program can answer no further requests.
enum ProgramFailure {
    Ended,
    Unrequested,
}

impl OutputReader {
    /// Reads the next answer.
    async fn next(&mut self, answer: &mut ProgramResponse) -> Result<(), ProgramFailure> {
        let mut buffer = vec![0; READ_BYTES];
        while !answer.is_done {
            let length = match self.output.read(&mut buffer).await {
                Ok(0) | Err(_) => return Err(ProgramFailure::Ended),
                Ok(length) => length,
            };
            let Self { splitter, name, is_talkative, .. } = self;
            splitter.feed(&buffer[..length], |line| answer.take(line, name, is_talkative));
        }
        if answer.is_exceeded { Err(ProgramFailure::Unrequested) } else { Ok(()) }
    }

    /// Waits for unrequested output or the end of output. Cancel-safe.
    async fn wait_for_unrequested(&mut self) -> ProgramFailure {
        let mut buffer = vec![0; READ_BYTES];
        let mut has_line = false;
        while !has_line {
            let length = match self.output.read(&mut buffer).await {
                Ok(0) | Err(_) => return ProgramFailure::Ended,
                Ok(length) => length,
            };
            self.splitter.feed(&buffer[..length], |line| has_line |= !line.trim_ascii().is_empty());
        }
        ProgramFailure::Unrequested
    }
}

impl ProgramResponse {
    fn to(request: &DelegateRequest) -> Self {
        let open = request.each().collect();
        Self { open, values: ReportedValues::new(), is_done: false, is_exceeded: false, skipped: 0 }
    }

    /// Processes a line. Unrequested items are ignored.
    fn take(&mut self, line: &[u8], name: &str, is_talkative: &mut bool) {
        match Reply::read(line) {
            Ok(None) => {}
            _ if self.is_done => self.is_exceeded = true,
            Ok(Some(Reply::Value(item, value))) if self.open.remove(&item) => self.values.push((item, value)),
            Ok(Some(Reply::Value(..))) => {
                if !std::mem::replace(is_talkative, true) {
                    tracing::warn!("agent {name}: ignoring values that were not requested");
                }
            }
            Ok(Some(Reply::Done)) => self.is_done = true,
            Err(fault) => {
                if self.skipped == 0 {
                    tracing::warn!("agent {name}: {fault}; skipping invalid lines of this response");
                }
                self.skipped += 1;
            }
        }
    }
}
