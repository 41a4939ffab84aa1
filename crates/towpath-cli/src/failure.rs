//! Failures of commands: messages and exit codes.

use std::{fmt, io::Write as _, sync::OnceLock};

use rustix::process::Signal;
use towpath_mover::StoreLocation;
use towpath_proto::fault::{Exit, Fault};
use towpath_server::StartError;
use towpath_store::{Blame, Error, os_message};

use crate::{config::ConfigError, interrupt, screen};

/// The subcommand of this process, a prefix of messages.
static COMMAND: OnceLock<String> = OnceLock::new();

/// Sets the subcommand that messages name.
pub(crate) fn set_command(name: Option<&str>) {
    if let Some(name) = name {
        let _ = COMMAND.set(name.to_owned());
    }
}

/// The failure of a command.
#[derive(Debug)]
pub(crate) enum Failure {
    /// A store reported an error.
    Store(Error),
    /// The command line is invalid.
    Usage(String),
    /// The settings are invalid.
    Config(ConfigError),
    /// The server could not start.
    Start(StartError),
    /// Facts about the network are contradictory or unreadable; one problem per line.
    InvalidFacts(String),
    /// The WAN emulator reported an error.
    Wan(towpath_wan::Error),
    /// The failure was printed already, as by a child command.
    Printed {
        /// Its exit code.
        exit: u8,
    },
    /// Several operations failed, and were printed immediately. The first failure determines the exit code.
    Several {
        /// Number of failures.
        count: usize,
        /// Exit code of the first failure.
        exit: u8,
    },
    /// The output cannot be written.
    Output(std::io::Error),
    /// A system call that the command itself needs failed.
    System {
        /// The attempted operation, as in "cannot …".
        doing: &'static str,
        /// The error of the system.
        source: std::io::Error,
    },
    /// A signal interrupted the command.
    Interrupted {
        /// The signal.
        signal: Signal,
        /// The effect on the interrupted work, appended to the message.
        consequence: String,
    },
}

/// Counts failures of single operations, which are printed immediately and do not stop the others.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    /// Number of failures.
    pub(crate) count: usize,
    first_exit: u8,
}

impl Tally {
    /// Adds a failure with the exit code `exit`.
    pub(crate) fn add(&mut self, exit: u8) {
        if self.count == 0 {
            self.first_exit = exit;
        }
        self.count += 1;
    }

    /// Prints and adds the error of a store.
    pub(crate) fn print(&mut self, error: &Error) {
        print_error(error);
        self.add(error.exit_code());
    }

    /// Returns the result of the whole command, whose message was printed already.
    pub(crate) fn printed_outcome(&self) -> Result<(), Failure> {
        if self.count == 0 { Ok(()) } else { Err(Failure::Printed { exit: self.first_exit }) }
    }

    /// Returns the result of the whole command.
    pub(crate) fn outcome(&self) -> Result<(), Failure> {
        match self.count {
            0 => Ok(()),
            count => Err(Failure::Several { count, exit: self.first_exit }),
        }
    }
}

impl Failure {
    /// Creates the failure for a defect of towpath itself.
    pub(crate) fn internal(message: impl Into<String>) -> Self {
        Failure::Store(Error::new(Fault::Internal, message))
    }

    /// Adds the location, as the user wrote it, to the error of a store.
    pub(crate) fn at(self, location: &StoreLocation) -> Self {
        match self {
            Failure::Store(error) => Failure::Store(location.locate(error)),
            other => other,
        }
    }

    /// Returns a converter for `map_err`, for errors of the system other than failed writes of the output.
    pub(crate) fn system(doing: &'static str) -> impl FnOnce(std::io::Error) -> Self {
        move |source| Failure::System { doing, source }
    }

    /// Returns the exit code, from the error table.
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Failure::Store(error) => error.exit_code(),
            Failure::Usage(_) | Failure::Config(_) => Exit::Usage as u8,
            Failure::Start(StartError::Tls(_) | StartError::Access(_)) => Exit::Usage as u8,
            Failure::Start(_) | Failure::System { .. } => Fault::Unavailable.exit_code(),
            Failure::InvalidFacts(_) => Exit::Invalid as u8,
            Failure::Wan(towpath_wan::Error::NeedsRoot) => Fault::PermissionDenied.exit_code(),
            Failure::Wan(towpath_wan::Error::Invalid(_)) => Exit::Usage as u8,
            Failure::Wan(towpath_wan::Error::Kernel { .. }) => Fault::Unavailable.exit_code(),
            Failure::Wan(towpath_wan::Error::Ended) => Fault::Internal.exit_code(),
            Failure::Several { exit, .. } | Failure::Printed { exit } => *exit,
            // Same exit code as a program killed by SIGPIPE: no message, but not a success.
            Failure::Output(_) if self.is_broken_pipe() => interrupt::exit_code(Signal::PIPE),
            Failure::Output(error) => fault_of(error).exit_code(),
            Failure::Interrupted { signal, .. } => interrupt::exit_code(*signal),
        }
    }

    /// Returns whether the reader of the standard output has closed it: no further output is possible.
    pub(crate) fn is_broken_pipe(&self) -> bool {
        matches!(self, Failure::Output(error) if error.kind() == std::io::ErrorKind::BrokenPipe)
    }

    /// Prints the failure on the standard error stream: what happened, who has to act, and what to do.
    pub(crate) fn print(&self) {
        match self {
            Failure::Store(error) => print_error(error),
            Failure::Usage(message) => complain(format_args!("{message}\nTry `towpath --help`.")),
            Failure::Config(error) => complain(error),
            Failure::Start(error) => complain(error),
            Failure::InvalidFacts(faults) => faults.lines().for_each(complain),
            Failure::Wan(error) => complain(error),
            Failure::Several { count: 1, .. } | Failure::Printed { .. } => {}
            Failure::Several { count, .. } => complain(format_args!("{count} errors")),
            Failure::Output(_) if self.is_broken_pipe() => {}
            Failure::Output(error) => complain(format_args!("cannot write the output: {}", os_message(error))),
            Failure::System { doing, source } => complain(format_args!("cannot {doing}: {}", os_message(source))),
            Failure::Interrupted { consequence, .. } => complain(format_args!("interrupted{consequence}")),
        }
    }
}

/// Returns the fault of an error of this machine.
pub(crate) fn fault_of(error: &std::io::Error) -> Fault {
    error.raw_os_error().map_or(Fault::Io, Fault::from_errno)
}

/// Returns whether a storage is unreachable, so that further requests will probably fail too.
pub(crate) fn is_out_of_reach(error: &Error) -> bool {
    matches!(error.fault(), Fault::Unavailable | Fault::TimedOut) && error.blame() == Blame::Network
}

/// Returns whether a retry can never succeed: a missing permission, an impossible name, a special file, a link to a
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

/// Prints a message line of the program on the standard error stream. Write errors are ignored.
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

/// Converts failed writes of the output. All other errors of the system are converted by [`Failure::system`].
impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        Failure::Output(error)
    }
}
