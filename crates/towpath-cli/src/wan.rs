//! `towpath wan`: the WAN emulator on the command line.
//!
//! `up` starts this program again as `up --foreground`, which holds the emulator and serves its control socket; `set`,
//! `stats`, `down` and `exec` are its clients. `run` holds a separate emulator, with a socket, for the duration of its
//! command. The crate `towpath-wan` implements the links.

pub(crate) mod args;

use std::{
    ffi::OsString,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    os::unix::process::ExitStatusExt as _,
    process::{Child, Command, ExitStatus, Stdio},
    sync::Arc,
    thread,
};

use tokio::sync::oneshot;
use towpath_wan::{
    Control, ControlResponse, LinkName, LinkSettings, Report, Request, StopConfirmation, Wan, ask, exec_in,
};

use crate::{failure::Failure, interrupt::Interrupts};
use args::{Action, Exec, Network, Run, Set, Stats, Up};

/// Environment variable with the name of the emulator, set for the command of `run` and its children.
const NAME_VARIABLE: &str = "TOWPATH_WAN";

/// Runs `towpath wan`.
pub(crate) async fn run(arguments: args::Wan) -> Result<(), Failure> {
    match arguments.action {
        Action::Up(arguments) if arguments.foreground => hold(&arguments).await,
        Action::Up(_) => start_holder(),
        Action::Set(arguments) => set(&arguments),
        Action::Exec(arguments) => exec(&arguments),
        Action::Stats(arguments) => stats(&arguments),
        Action::Down(name) => Ok(ask(&name.name, &Request::Stop).map(drop)?),
        Action::Run(arguments) => run_command(&arguments).await,
    }
}

fn build(network: &Network) -> Result<Wan, towpath_wan::Error> {
    let mut builder = Wan::builder().hosts(network.hosts).mtu(network.mtu).seed(network.seed);
    builder = builder.pairs(network.link.change(&LinkSettings::default()));
    if let Some(name) = &network.cc {
        builder = builder.congestion_control(name);
    }
    if let Some(bytes) = network.buf {
        builder = builder.most_buffer(bytes);
    }
    if network.access.is_some() {
        let access = LinkSettings { rate: network.access, ..LinkSettings::default() };
        let hosts = (1..=network.hosts).filter_map(|number| u8::try_from(number).ok());
        for host in hosts.filter_map(towpath_wan::HostIndex::from_number) {
            builder = builder.link(LinkName::Up(host), access.clone()).link(LinkName::Down(host), access.clone());
        }
    }
    builder.build()
}

/// An emulator whose control socket is served by a separate thread.
struct RunningEmulator {
    name: String,
    wan: Arc<Wan>,
    server: thread::JoinHandle<Result<(StopConfirmation, Control), towpath_wan::Error>>,
    /// Signals the end of the server, for instance after a stop request.
    ended: oneshot::Receiver<()>,
}

impl RunningEmulator {
    fn new(name: String, network: &Network) -> Result<Self, Failure> {
        let wan = Arc::new(build(network)?);
        let control = Control::open(&name)?;
        let (end_sender, ended) = oneshot::channel();
        let served = Arc::clone(&wan);
        let server = thread::spawn(move || {
            let outcome = control.serve(&served);
            // The receiver may be gone.
            let _ = end_sender.send(());
            outcome.map(|stopper| (stopper, control))
        });
        Ok(Self { name, wan, server, ended })
    }

    /// Kills the processes in the hosts, and removes the hosts.
    fn end(self) -> Result<(), Failure> {
        let Self { name, wan, server, .. } = self;
        // The server holds the emulator until a stop request; if it stopped before, this gets no response.
        let stop_request = thread::spawn(move || ask(&name, &Request::Stop));
        let (stopper, control) =
            server.join().map_err(|_| Failure::internal("the thread of the control socket panicked"))??;
        drop(wan);
        drop(control);
        stopper.confirm();
        // Everything is removed, whatever the response is.
        let _ = stop_request.join();
        Ok(())
    }
}

/// Holds an emulator until `down` or a signal. The first line of output reports that it is ready, and the addresses of
/// the hosts.
async fn hold(arguments: &Up) -> Result<(), Failure> {
    // From now on a signal does not end the process immediately: the hosts are removed first.
    let mut interrupts = Interrupts::new()?;
    let mut held = RunningEmulator::new(arguments.name.name.clone(), &arguments.network)?;
    let outcome = match announce(&held.wan) {
        Ok(()) => tokio::select! {
            _ = &mut held.ended => Ok(()),
            signal = interrupts.next() => Err(Failure::Interrupted { signal, consequence: String::new() }),
        },
        Err(error) => Err(error.into()),
    };
    held.end()?;
    outcome
}

fn announce(wan: &Wan) -> std::io::Result<()> {
    let hosts = wan.hosts().iter().map(|host| format!("{} {}", host.index().number(), host.address()));
    let mut output = std::io::stdout();
    writeln!(output, "hosts: {}", hosts.collect::<Vec<_>>().join(", "))?;
    output.flush()
}

/// Starts the process that holds the emulator, and waits until it is ready or has failed.
fn start_holder() -> Result<(), Failure> {
    let program = std::env::current_exe().map_err(Failure::system("find the executable of towpath"))?;
    let mut command = Command::new(program);
    command.args(std::env::args_os().skip(1)).arg("--foreground");
    // Closing the terminal, or Ctrl-C in it, must not end the emulator.
    std::os::unix::process::CommandExt::process_group(&mut command, 0);
    let holder = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let mut holder = holder.map_err(Failure::system("start the process that holds the emulator"))?;
    let mut line = String::new();
    if let Some(output) = holder.stdout.take() {
        let read = BufReader::new(output).read_line(&mut line);
        read.map_err(Failure::system("read from the process that holds the emulator"))?;
    }
    if line.is_empty() {
        let exit = forward_failure(&mut holder)
            .map_err(Failure::system("read the error of the process that holds the emulator"))?;
        return Err(Failure::Printed { exit });
    }
    Ok(write!(std::io::stdout(), "{line}")?)
}

/// Forwards the error messages of a holder that failed to start, and returns its exit code.
fn forward_failure(holder: &mut Child) -> std::io::Result<u8> {
    let mut messages = String::new();
    if let Some(mut errors) = holder.stderr.take() {
        errors.read_to_string(&mut messages)?;
    }
    // Write errors are ignored: the standard error stream may be closed.
    let _ = write!(std::io::stderr(), "{messages}");
    Ok(exit_code(holder.wait()?))
}

fn set(arguments: &Set) -> Result<(), Failure> {
    let name = &arguments.name.name;
    let report = report(name)?;
    for link in links(arguments, &report) {
        let before = report.settings(link);
        let after = arguments.link.change(&before);
        if after != before {
            ask(name, &Request::Set(link, after))?;
        }
        if let Some(length) = arguments.outage {
            ask(name, &Request::Outage(link, length))?;
        }
    }
    Ok(())
}

/// Returns the links that the arguments select.
fn links(arguments: &Set, report: &Report) -> Vec<LinkName> {
    match (arguments.pair, arguments.up, arguments.down) {
        (Some(args::Pair(from, to)), ..) if arguments.one_way => vec![LinkName::Pair(from, to)],
        (Some(args::Pair(from, to)), ..) => vec![LinkName::Pair(from, to), LinkName::Pair(to, from)],
        (None, Some(host), _) => vec![LinkName::Up(host)],
        (None, None, Some(host)) => vec![LinkName::Down(host)],
        (None, None, None) => {
            let names = report.network.links.iter().map(|link| link.link);
            names.filter(|name| matches!(name, LinkName::Pair(..))).collect()
        }
    }
}

fn report(name: &str) -> Result<Report, Failure> {
    match ask(name, &Request::Report)? {
        ControlResponse::Report(report) => Ok(*report),
        ControlResponse::Done | ControlResponse::Refused(_) => {
            Err(Failure::internal("the emulator returned an unexpected response"))
        }
    }
}

/// Replaces this process with the command.
fn exec(arguments: &Exec) -> Result<(), Failure> {
    let report = report(&arguments.name.name)?;
    let host = report.hosts.iter().find(|host| host.host == arguments.host);
    let host = host.ok_or_else(|| {
        let message = format!(
            "host {} does not exist: hosts are numbered from 1 to {}",
            arguments.host.number(),
            report.hosts.len()
        );
        towpath_wan::Error::Invalid(message)
    })?;
    Err(exec_in(&host.namespace, command(&arguments.command)?).into())
}

fn command(words: &[OsString]) -> Result<Command, Failure> {
    let (program, arguments) =
        words.split_first().ok_or_else(|| Failure::Usage("the command is missing".to_owned()))?;
    let mut command = Command::new(program);
    command.args(arguments);
    Ok(command)
}

fn stats(arguments: &Stats) -> Result<(), Failure> {
    let report = report(&arguments.name.name)?;
    let mut output = std::io::stdout();
    if arguments.json {
        let text = serde_json::to_string(&report).map_err(|error| Failure::internal(error.to_string()))?;
        return Ok(writeln!(output, "{text}")?);
    }
    for host in &report.hosts {
        let is_cut_off = report.network.cut_off.contains(&host.host);
        writeln!(
            output,
            "host {}: {}, {} packets dropped by this machine{}",
            host.host.number(),
            host.address,
            host.overruns,
            if is_cut_off { "; cut off: its device was deleted" } else { "" }
        )?;
    }
    for link in &report.network.links {
        let counters = &link.counters;
        writeln!(
            output,
            "{}: {} packets passed ({} MB including Ethernet headers); dropped by the queue {}, lost {}, by outages \
             {}; queue at most {} KB",
            link_name(link.link),
            counters.passed_segments,
            counters.passed_wire_bytes / 1_000_000,
            counters.queue_dropped_segments,
            counters.lost_segments,
            counters.outage_segments,
            counters.most_queued_bytes / 1000,
        )?;
    }
    let engine = &report.network.engine;
    let mean_us = engine.late_ns / engine.delivered_packets.max(1) / 1000;
    Ok(writeln!(output, "emulator: packets late by {mean_us} us on average, {} us at most", engine.latest_ns / 1000)?)
}

fn link_name(link: LinkName) -> String {
    match link {
        LinkName::Pair(from, to) => format!("{} to {}", from.number(), to.number()),
        LinkName::Up(host) => format!("up from {}", host.number()),
        LinkName::Down(host) => format!("down to {}", host.number()),
    }
}

/// Runs a command in the first host of an emulator that ends with the command.
async fn run_command(arguments: &Run) -> Result<(), Failure> {
    // As in `hold`.
    let mut interrupts = Interrupts::new()?;
    let mut held = RunningEmulator::new(towpath_wan::own_name(), &arguments.network)?;
    let outcome = match start_command(arguments, &held) {
        Ok(status) => tokio::select! {
            Ok(status) = status => succeeded(status),
            _ = &mut held.ended => Err(towpath_wan::Error::Ended.into()),
            signal = interrupts.next() => Err(Failure::Interrupted { signal, consequence: String::new() }),
        },
        Err(failure) => Err(failure),
    };
    held.end()?;
    outcome
}

/// Starts the command in the first host, and returns a receiver of its exit status.
fn start_command(
    arguments: &Run,
    held: &RunningEmulator,
) -> Result<oneshot::Receiver<std::io::Result<ExitStatus>>, Failure> {
    let mut command = command(&arguments.command)?;
    command.env(NAME_VARIABLE, &held.name);
    let first = held.wan.hosts().first().ok_or(towpath_wan::Error::Ended)?;
    let mut child = first.spawn(command)?;
    let (status_sender, status) = oneshot::channel();
    // The receiver may be gone.
    thread::spawn(move || status_sender.send(child.wait()));
    Ok(status)
}

fn succeeded(status: std::io::Result<ExitStatus>) -> Result<(), Failure> {
    match exit_code(status.map_err(Failure::system("wait for the command"))?) {
        0 => Ok(()),
        exit => Err(Failure::Printed { exit }),
    }
}

/// Returns the exit code as a shell reports it.
fn exit_code(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1)
}
