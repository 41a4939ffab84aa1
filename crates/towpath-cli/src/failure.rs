//! Failures of commands: messages and exit codes.

use std::{fmt, io::Write as _, sync::OnceLock};

use rustix::process::Signal;
use towpath_mover::StoreLocation;
use towpath_proto::fault::{Exit, Fault};
use towpath_server::StartError;
use towpath_store::{Blame, Error, os_message};

use crate::{config::ConfigError, interrupt, screen};

/// The command that this process runs, for messages.
static COMMAND: OnceLock<String> = OnceLock::new();

/// Sets the command that messages name.
pub(crate) fn set_command(name: Option<&str>) {
    if let Some(name) = name {
        let _ = COMMAND.set(name.to_owned());
    }
}

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
    /// Network facts that are contradictory or unreadable, one per line.
    InvalidFacts(String),
    /// The WAN emulator said no.
    Wan(towpath_wan::Error),
    /// A command that was run for the user failed, and has said so itself.
    Command {
        /// Its exit code.
        exit: u8,
    },
    /// Several things failed; each was printed when it did. The exit code is the first one's.
    Several {
        /// How many.
        count: usize,
        /// The first one's exit code.
        exit: u8,
    },
    /// The output cannot be written.
    Output(std::io::Error),
    /// The system refused what the command needs for itself.
    System {
        /// The attempted operation, as in "cannot …".
        doing: &'static str,
        /// What the system said.
        source: std::io::Error,
    },
    /// A signal ended it.
    Interrupted {
        /// Which.
        signal: Signal,
        /// The effect on the interrupted work.
        consequence: String,
    },
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

    /// Prints a store's error, and takes note of it.
    pub(crate) fn print(&mut self, error: &Error) {
        print_error(error);
        self.add(error.fault().exit_code());
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

    /// Adds the location, as the user wrote it, to a store's error.
    pub(crate) fn at(self, location: &StoreLocation) -> Self {
        match self {
            Failure::Store(error) => Failure::Store(location.locate(error)),
            other => other,
        }
    }

    /// For `map_err`: what the system refused, which is no write of the output.
    pub(crate) fn system(doing: &'static str) -> impl FnOnce(std::io::Error) -> Self {
        move |source| Failure::System { doing, source }
    }

    /// The exit code, from the error table.
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Failure::Store(error) => error.fault().exit_code(),
            Failure::Usage(_) | Failure::Config(_) => Exit::Usage as u8,
            Failure::Start(StartError::Tls(_) | StartError::Access(_)) => Exit::Usage as u8,
            Failure::Start(_) | Failure::System { .. } => Fault::Unavailable.exit_code(),
            Failure::InvalidFacts(_) => Exit::Invalid as u8,
            Failure::Wan(towpath_wan::Error::NeedsRoot) => Fault::PermissionDenied.exit_code(),
            Failure::Wan(towpath_wan::Error::Invalid(_)) => Exit::Usage as u8,
            Failure::Wan(towpath_wan::Error::Kernel { .. }) => Fault::Unavailable.exit_code(),
            Failure::Wan(towpath_wan::Error::Ended) => Fault::Internal.exit_code(),
            Failure::Several { exit, .. } | Failure::Command { exit } => *exit,
            // As programs end that do not ignore the signal: nothing is said, but it is no success either.
            Failure::Output(_) if self.is_broken_pipe() => interrupt::exit_code(Signal::PIPE),
            Failure::Output(error) => fault_of(error).exit_code(),
            Failure::Interrupted { signal, .. } => interrupt::exit_code(*signal),
        }
    }

    /// Returns whether the reader of the standard output is gone: nothing more can be done or reported.
    pub(crate) fn is_broken_pipe(&self) -> bool {
        matches!(self, Failure::Output(error) if error.kind() == std::io::ErrorKind::BrokenPipe)
    }

    /// Says on the standard error stream what happened, whose fault it is, and what to do.
    pub(crate) fn print(&self) {
        match self {
            Failure::Store(error) => print_error(error),
            Failure::Usage(message) => complain(format_args!("{message}\nTry `towpath --help`.")),
            Failure::Config(error) => complain(error),
            Failure::Start(error) => complain(error),
            Failure::InvalidFacts(faults) => faults.lines().for_each(complain),
            Failure::Wan(error) => complain(error),
            Failure::Several { count: 1, .. } | Failure::Command { .. } => {}
            Failure::Several { count, .. } => complain(format_args!("{count} errors")),
            Failure::Output(_) if self.is_broken_pipe() => {}
            Failure::Output(error) => complain(format_args!("cannot write the output: {}", os_message(error))),
            Failure::System { doing, source } => complain(format_args!("cannot {doing}: {}", os_message(source))),
            Failure::Interrupted { consequence, .. } => complain(format_args!("interrupted{consequence}")),
        }
    }
}

/// The fault behind an error of this machine.
pub(crate) fn fault_of(error: &std::io::Error) -> Fault {
    error.raw_os_error().map_or(Fault::Io, Fault::from_errno)
}

/// Returns whether a storage is unreachable, so that further requests will probably fail too.
pub(crate) fn is_out_of_reach(error: &Error) -> bool {
    matches!(error.fault(), Fault::Unavailable | Fault::TimedOut) && error.blame() == Blame::Network
}

/// Returns whether the same can never succeed: a missing permission, an impossible name, a special file, a link to a
/// directory above, or an unsupported operation.
pub(crate) fn is_hopeless(error: &Error) -> bool {
    matches!(
        error.fault(),
        Fault::PermissionDenied
            | Fault::ReadOnly
            | Fault::InvalidArgument
            | Fault::NameTooLong
            | Fault::NotRegular
            | Fault::TooLarge
            | Fault::Unsupported
    )
}

/// Prints a line about the program on the standard error stream, if there still is one.
pub(crate) fn complain(message: impl fmt::Display) {
    screen::above(|| {
        let _ = match COMMAND.get() {
            Some(command) => writeln!(std::io::stderr(), "towpath: {command}: {message}"),
            None => writeln!(std::io::stderr(), "towpath: {message}"),
        };
    });
}

/// Prints the error of a store in one line.
pub(crate) fn print_error(error: &Error) {
    complain(error.describe());
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Failure::Store(error)
    }
}

impl From<towpath_wan::Error> for Failure {
    fn from(error: towpath_wan::Error) -> Self {
        Failure::Wan(error)
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

/// A write of the output, wherever something is printed. All else that the system refuses goes through
/// [`Failure::system`].
impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        Failure::Output(error)
    }
}
