//! The `towpath` command: parses the command line and the settings, connects stores, faces and commands, and prints
//! results.
//!
//! The life of a command: [`main`] parses the arguments ([`args`]), [`run`] selects the command, which resolves
//! paths and URLs to stores ([`location`]) and calls the stores. Data go to the standard output, everything else to the
//! standard error stream. A [`Failure`] is printed once, here, and determines the exit code.

mod access;
mod agent;
mod allocator;
mod alto;
mod args;
mod cache;
mod commands;
mod config;
mod copy;
mod descriptors;
mod events;
mod explain;
mod failure;
mod failures;
mod find;
mod interrupt;
mod lab;
mod list;
mod location;
mod manual;
mod notify;
mod order;
mod output;
mod patterns;
mod plan;
mod probe;
mod progress;
mod remove;
mod reporter;
mod sched;
mod screen;
mod serve;
mod sync;
mod usage;
mod wan;

use std::{ffi::OsString, io::IsTerminal as _, process::ExitCode, time::Duration};

use args::{Cli, Command};
use clap::FromArgMatches as _;
use copy::Resumption;
use failure::{Failure, complain};
use interrupt::Interrupts;
use location::{Requests, StoreResolver};
use rustix::fs::Mode;
use tokio::time::timeout;
use towpath_store::sys::environment;
use tracing_subscriber::EnvFilter;

/// How long an interrupted command waits for threads in a system call.
const LAST_WAIT: Duration = Duration::from_secs(1);

/// Runs the command line `arguments` (the name of the program first) and returns the exit code.
pub fn main(arguments: impl Iterator<Item = OsString>) -> ExitCode {
    allocator::configure();
    let arguments: Vec<_> = args::with_two_dashes(arguments).collect();
    let command = args::without_empty_variables(args::definition());
    let parsed = command.try_get_matches_from(&arguments).and_then(|matches| {
        failure::set_command(matches.subcommand_name());
        Cli::from_arg_matches(&matches)
    });
    let cli = match parsed {
        Ok(cli) => cli,
        Err(error) => {
            let exit_code = u8::try_from(error.exit_code()).unwrap_or(2);
            // clap prints help and version on the standard output, with exit code 0.
            match args::explain_foreign(&error, &arguments) {
                Some(explanation) => complain(explanation),
                None => drop(args::without_misleading_tip(error).print()),
            }
            return ExitCode::from(exit_code);
        }
    };
    start_tracing(cli.remote.verbose);
    match start(cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            failure.print();
            ExitCode::from(failure.exit_code())
        }
    }
}

fn start_tracing(verbose: u8) {
    let level = ["warn", "info", "debug", "trace"][usize::from(verbose.min(3))];
    // The option takes precedence over the environment.
    let filter = environment::text("TOWPATH_LOG").filter(|_| verbose == 0).map(EnvFilter::try_new);
    let filter = match filter {
        Some(Ok(filter)) => filter,
        Some(Err(error)) => {
            complain(format_args!("ignoring TOWPATH_LOG: {error}"));
            EnvFilter::new(level)
        }
        None => EnvFilter::new(level),
    };
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_target(false);
    log.with_writer(|| screen::StderrWriter).with_ansi(std::io::stderr().is_terminal()).init();
}

fn start(cli: Cli) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::internal(format!("cannot start: {error}")))?;
    let outcome = runtime.block_on(run(cli));
    match outcome {
        // Disk threads remove their staging files when they end.
        Err(Failure::Interrupted { .. }) => runtime.shutdown_timeout(LAST_WAIT),
        // Threads that wait for a disk or the terminal must not delay the exit.
        _ => runtime.shutdown_background(),
    }
    outcome
}

async fn run(cli: Cli) -> Result<(), Failure> {
    let command = match cli.command {
        Command::Serve(arguments) => return serve::serve(&arguments).await,
        Command::Access(arguments) => return access::run(&arguments).await,
        Command::Alto(arguments) => return alto::run(&arguments).await,
        Command::Cache(arguments) => return cache::run(&arguments).await,
        Command::Agent(arguments) => return agent::run(&arguments, &cli.remote).await,
        Command::Config(arguments) => return config::command::run(&arguments),
        Command::Sched(arguments) => return sched::run(&arguments),
        Command::Lab(arguments) => return lab::run(&arguments),
        Command::Wan(arguments) => return wan::run(arguments).await,
        Command::Completions(arguments) => return manual::print_completions(&arguments),
        Command::Man(arguments) => return manual::write_pages(&arguments),
        command => command,
    };
    let requests = match &command {
        Command::Cp(_) | Command::Sync(_) | Command::Sum(_) | Command::Probe(_) => Requests::Long,
        _ => Requests::Short,
    };
    let resolver = StoreResolver::new(&cli.remote, requests);
    // `None` for commands that leave nothing incomplete.
    let resumed_by = match &command {
        Command::Cp(_) => Some(ResumeHint::ByCopy),
        Command::Sync(_) => Some(ResumeHint::Message("; run the same command again to continue")),
        Command::Probe(_) => Some(ResumeHint::Message("; its scratch files were removed")),
        _ => None,
    };
    let resumption = Resumption::default();
    let interrupted = Interrupts::new()?.watch();
    let outcome = tokio::select! {
        outcome = run_client(command, &resolver, &resumption) => Ok(outcome),
        Ok(signal) = interrupted => Err(signal),
    };
    screen::clear();
    // In all cases: removes dropped uploads from the storages.
    let is_clean = timeout(interrupt::CLEANING, resolver.cleaned_up()).await.is_ok();
    outcome.unwrap_or_else(|signal| {
        let consequence = match resumed_by {
            Some(_) if !is_clean => "; the destination does not respond: incomplete files may remain there".into(),
            Some(ResumeHint::ByCopy) => {
                resumption.command().map(|command| format!("; to copy the rest, run {command}")).unwrap_or_default()
            }
            Some(ResumeHint::Message(message)) => message.into(),
            None => String::new(),
        };
        Err(Failure::Interrupted { signal, consequence })
    })
}

/// The message about how to continue after an interruption.
enum ResumeHint {
    /// A fixed message.
    Message(&'static str),
    /// The command that copies the rest.
    ByCopy,
}

/// Runs the commands that may be interrupted at any time: dropped uploads are removed when
/// [`StoreResolver::cleaned_up`] returns.
async fn run_client(command: Command, resolver: &StoreResolver, resumption: &Resumption) -> Result<(), Failure> {
    match command {
        Command::Cp(arguments) => copy::run(&arguments, resolver, resumption).await,
        Command::Sync(arguments) => sync::run(&arguments, resolver).await,
        Command::Ls(arguments) => list::list(&arguments, resolver).await,
        Command::Find(arguments) => find::run(&arguments, resolver).await,
        Command::Du(arguments) => usage::run(&arguments, resolver).await,
        Command::Stat(arguments) => commands::stat(&arguments, resolver).await,
        Command::Cat(arguments) => commands::cat(&arguments, resolver).await,
        Command::Sum(arguments) => commands::sum(&arguments, resolver).await,
        Command::Mkdir(arguments) => commands::make_directories(&arguments, resolver).await,
        Command::Rmdir(arguments) => commands::remove_directories(&arguments, resolver).await,
        Command::Mv(arguments) => commands::rename(&arguments, resolver).await,
        Command::Rm(arguments) => remove::run(&arguments, resolver).await,
        Command::Df(arguments) => commands::space(&arguments, resolver).await,
        Command::Ping(arguments) => commands::ping(&arguments, resolver).await,
        Command::Probe(arguments) => probe::run(&arguments, resolver).await,
        Command::Order(arguments) => order::run(&arguments, resolver).await,
        Command::Plan(arguments) => plan::run(&arguments, resolver).await,
        Command::Serve(_)
        | Command::Access(_)
        | Command::Cache(_)
        | Command::Agent(_)
        | Command::Alto(_)
        | Command::Config(_)
        | Command::Sched(_)
        | Command::Lab(_)
        | Command::Wan(_)
        | Command::Completions(_)
        | Command::Man(_) => Err(Failure::internal("not a client command")),
    }
}

/// Returns the user's file mode creation mask. Reading it requires setting it; no other thread creates files meanwhile.
fn umask() -> u32 {
    let mask = rustix::process::umask(Mode::RWXG | Mode::RWXO);
    rustix::process::umask(mask);
    mask.bits()
}
