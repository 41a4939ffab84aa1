//! A program that reads questions, a line each, and prints what it knows.

use std::{process::Stdio, sync::Arc, time::Duration};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    process::{ChildStdin, ChildStdout},
    time::timeout,
};
use tokio_util::task::AbortOnDropHandle;
use towpath_alto::{
    delegation::Question,
    lines::{Cutter, MAX_LINE_BYTES, Reply},
};
use towpath_server::units::Span;

use super::{
    super::program::{READ_BYTES, Running, log},
    Told,
};

/// How long it may take for the answer to one question. Requests do not wait so long.
const PATIENCE: Duration = Duration::from_secs(30);

/// A program that is asked one question after the other.
pub(super) struct Dialogue {
    program: Running,
    questions: ChildStdin,
    answers: Answers,
    _logging: Option<AbortOnDropHandle<()>>,
}

/// What it prints.
struct Answers {
    output: ChildStdout,
    cutter: Cutter,
    /// Whose.
    name: Arc<str>,
}

/// What it printed of the answer to one question.
#[derive(Default)]
struct Answer {
    told: Told,
    /// Whether that is all.
    is_done: bool,
    /// Bad lines.
    skipped: u64,
}

impl Dialogue {
    /// Starts it for the agent of that name.
    pub(super) fn open(command: &[String], name: &Arc<str>) -> Result<Self, String> {
        let cannot = |error| format!("{} cannot be started: {error}", command.first().map_or("", String::as_str));
        let mut program = Running::start(command, Stdio::piped()).map_err(cannot)?;
        let pipes = (program.child.stdin.take(), program.child.stdout.take(), program.child.stderr.take());
        let (Some(questions), Some(output), errors) = pipes else { return Err("it has no pipes".into()) };
        let logging = errors.map(|errors| AbortOnDropHandle::new(tokio::spawn(log(errors, Arc::clone(name)))));
        let answers = Answers { output, cutter: Cutter::new(MAX_LINE_BYTES), name: Arc::clone(name) };
        Ok(Self { program, questions, answers, _logging: logging })
    }

    /// What it says to a question.
    ///
    /// # Errors
    /// If it ends, says more than it was asked for, or takes too long.
    pub(super) async fn ask(&mut self, question: &Question) -> Result<Told, String> {
        let mut line = serde_json::to_vec(question).expect("questions can be written");
        line.push(b'\n');
        let Self { questions, answers, .. } = self;
        let asked = async {
            // That it does not read them is seen by what it answers.
            let _ = questions.write_all(&line).await;
        };
        let both = async { tokio::join!(asked, answers.next(question.items())).1 };
        match timeout(PATIENCE, both).await {
            Ok(Ok(told)) => Ok(told),
            Ok(Err(Broken::Ended)) => Err(self.program.ended().await),
            Ok(Err(Broken::TooMuch)) => Err("the program says more than it was asked for".into()),
            Err(_) => Err(format!("the program did not answer within {}", Span(PATIENCE))),
        }
    }

    /// Waits until it has ended, and says how.
    pub(super) async fn has_ended(&mut self) -> String {
        self.program.has_ended().await;
        self.program.ended().await
    }
}

/// Why there is no answer.
enum Broken {
    Ended,
    TooMuch,
}

impl Answers {
    /// The next answer, of so many items at most.
    async fn next(&mut self, most: usize) -> Result<Told, Broken> {
        let mut answer = Answer::default();
        let mut buffer = vec![0; READ_BYTES];
        while !answer.is_done {
            let length = match self.output.read(&mut buffer).await {
                Ok(0) | Err(_) => return Err(Broken::Ended),
                Ok(length) => length,
            };
            self.cutter.feed(&buffer[..length], |line| answer.take(line, &self.name));
            if answer.told.len() > most {
                return Err(Broken::TooMuch);
            }
        }
        Ok(answer.told)
    }
}

impl Answer {
    /// Takes a line. What comes behind the end of the answer is nobody's.
    fn take(&mut self, line: &[u8], name: &str) {
        match Reply::read(line) {
            _ if self.is_done => {}
            Ok(None) => {}
            Ok(Some(Reply::Told(item, value))) => self.told.push((item, value)),
            Ok(Some(Reply::Done)) => self.is_done = true,
            Err(fault) => {
                if self.skipped == 0 {
                    tracing::warn!("agent {name}: {fault}; the line is skipped, as are others of this answer");
                }
                self.skipped += 1;
            }
        }
    }
}
