//! How a command fails: what is printed, and the exit code.

use towpath_proto::fault::{Exit, Fault, Retry};
use towpath_server::StartError;
use towpath_store::Error;

use crate::config::ConfigError;

/// Why a command failed.
#[derive(Debug)]
pub(crate) enum Failure {
    /// A store said no.
    Store(Error),
    /// The command line makes no sense.
    Usage(String),
    /// Settings that cannot be used.
    Config(ConfigError),
    /// The server could not start.
    Start(StartError),
    /// Several things failed; each was printed when it did. The exit code is the first one's.
    Several {
        /// How many.
        count: usize,
        /// The first one's exit code.
        exit: u8,
    },
    /// The output cannot be written.
    Output(std::io::Error),
    /// The user interrupted it.
    Interrupted,
}

/// Failures of single things that were printed when they happened, while the others went on.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    /// How many.
    pub(crate) count: usize,
    first_exit: u8,
}

impl Tally {
    /// Takes note of one more, which would end the process with the code `exit`.
    pub(crate) fn add(&mut self, exit: u8) {
        if self.count == 0 {
            self.first_exit = exit;
        }
        self.count += 1;
    }

    /// How the whole command ends.
    pub(crate) fn outcome(&self) -> Result<(), Failure> {
        match self.count {
            0 => Ok(()),
            count => Err(Failure::Several { count, exit: self.first_exit }),
        }
    }
}

impl Failure {
    /// A defect of towpath itself.
    pub(crate) fn internal(message: impl Into<String>) -> Self {
        Failure::Store(Error::new(Fault::Internal, message))
    }

    /// The exit code, from the error table.
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Failure::Store(error) => error.fault().exit_code(),
            Failure::Usage(_) | Failure::Config(_) => Exit::Usage as u8,
            Failure::Start(_) => Fault::Unavailable.exit_code(),
            Failure::Several { exit, .. } => *exit,
            // The reader of a pipe had enough: that is no failure of ours.
            Failure::Output(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Exit::Success as u8,
            Failure::Output(_) => Fault::Io.exit_code(),
            Failure::Interrupted => Exit::Cancelled as u8,
        }
    }

    /// Says on the standard error stream what happened, whose fault it is, and what to do.
    pub(crate) fn print(&self) {
        match self {
            Failure::Store(error) => print_error(error),
            Failure::Usage(message) => eprintln!("towpath: {message}\nTry `towpath --help`."),
            Failure::Config(error) => eprintln!("towpath: {error}"),
            Failure::Start(error) => eprintln!("towpath: {error}"),
            Failure::Several { count: 1, .. } => {}
            Failure::Several { count, .. } => eprintln!("towpath: {count} failed, as said above"),
            Failure::Output(error) if error.kind() == std::io::ErrorKind::BrokenPipe => {}
            Failure::Output(error) => eprintln!("towpath: cannot write the output: {error}"),
            Failure::Interrupted => {
                eprintln!("towpath: interrupted; files that were not whole were not kept: run it again");
            }
        }
    }
}

/// Prints one store's error in one line, and the advice that its fault allows.
pub(crate) fn print_error(error: &Error) {
    eprintln!("towpath: {error} [{}; at fault: {}]", error.fault().phrase(), error.blame());
    if error.fault().row().retry != Retry::No {
        eprintln!("towpath: it may work when tried again");
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Failure::Store(error)
    }
}

impl From<ConfigError> for Failure {
    fn from(error: ConfigError) -> Self {
        Failure::Config(error)
    }
}

impl From<StartError> for Failure {
    fn from(error: StartError) -> Self {
        Failure::Start(error)
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        Failure::Output(error)
    }
}
