//! The signals that end a command, and the grace period.
//!
//! The first SIGINT, SIGTERM or SIGHUP lets the command clean up; a second one, or [`GRACE`] later, ends the process
//! even if it waits for an unresponsive storage or an unread pipe. Signals ignored by the parent (`nohup`) stay
//! ignored.

use std::{path::Path, time::Duration};

use rustix::process::Signal;
use tokio::{
    signal::unix::{self, SignalKind},
    sync::oneshot,
};
use towpath_store::sys::disk;

use crate::failure::Failure;

/// Time limit for the removal of incomplete files: a few round trips to the farthest storage.
pub(crate) const CLEANING: Duration = Duration::from_secs(5);
/// Maximum lifetime of the process after a signal: less than the time of batch systems between SIGTERM and SIGKILL.
const GRACE: Duration = Duration::from_secs(7);

/// Signals that end the process.
#[derive(Debug)]
pub(crate) struct Interrupts(Vec<(Signal, unix::Signal)>);

impl Interrupts {
    /// Installs handlers for SIGINT, SIGTERM and SIGHUP, which then no longer end the process immediately.
    ///
    /// # Errors
    /// The system refuses a handler.
    pub(crate) fn new() -> Result<Self, Failure> {
        Self::of(&[Signal::INT, Signal::TERM, Signal::HUP])
    }

    /// Installs handlers for `signals`.
    ///
    /// # Errors
    /// The system refuses a handler.
    pub(crate) fn of(signals: &[Signal]) -> Result<Self, Failure> {
        let ignored = ignored_signals();
        let wanted = signals.iter().copied().filter(|signal| ignored & (1 << (signal.as_raw() - 1)) == 0);
        let streams: std::io::Result<Vec<_>> =
            wanted.map(|signal| Ok((signal, unix::signal(SignalKind::from_raw(signal.as_raw()))?))).collect();
        streams.map(Self).map_err(Failure::system("listen for signals"))
    }

    /// Waits for the next signal.
    pub(crate) async fn next(&mut self) -> Signal {
        if self.0.is_empty() {
            // All signals are ignored.
            return std::future::pending().await;
        }
        let waiting = self.0.iter_mut().map(|(signal, stream)| {
            Box::pin(async move {
                match stream.recv().await {
                    Some(()) => *signal,
                    None => std::future::pending().await,
                }
            })
        });
        futures::future::select_all(waiting).await.0
    }

    /// Sends the first signal through the channel, and ends the process after a second signal or the grace period.
    pub(crate) fn watch(mut self) -> oneshot::Receiver<Signal> {
        let (sender, first) = oneshot::channel();
        // A separate task, because a write may block the task of the command.
        tokio::spawn(async move {
            let signal = self.next().await;
            let _ = sender.send(signal);
            tokio::select! {
                _ = self.next() => {}
                () = tokio::time::sleep(GRACE) => {},
            }
            std::process::exit(i32::from(exit_code(signal)));
        });
        first
    }
}

/// SIGHUP for a server: an order to reload, or the end of its terminal.
#[derive(Debug)]
pub(crate) struct Hangups {
    signals: unix::Signal,
    has_terminal: bool,
}

impl Hangups {
    /// Installs a handler for SIGHUP, which then no longer ends the process.
    ///
    /// # Errors
    /// The system refuses a handler.
    pub(crate) fn new() -> Result<Self, Failure> {
        let signals = unix::signal(SignalKind::hangup()).map_err(Failure::system("listen for SIGHUP"))?;
        Ok(Self { signals, has_terminal: has_terminal() })
    }

    /// Waits for the next order to reload; returns `None` once the terminal of the process is closed.
    pub(crate) async fn next(&mut self) -> Option<()> {
        self.signals.recv().await?;
        (!self.has_terminal || has_terminal()).then_some(())
    }
}

/// Whether the process has a controlling terminal. The kernel takes it away before it sends SIGHUP for a closed one.
fn has_terminal() -> bool {
    disk::open(Path::new("/dev/tty")).is_ok()
}

/// Returns the exit code of a process that `signal` ended, as shells report it.
pub(crate) fn exit_code(signal: Signal) -> u8 {
    128_u8.saturating_add(u8::try_from(signal.as_raw()).unwrap_or(0))
}

/// Returns the bit mask of the signals that the parent of this process set to be ignored; 0 if unknown.
fn ignored_signals() -> u64 {
    let status = disk::read(Path::new("/proc/self/status"), 1 << 20).unwrap_or_default();
    let status = String::from_utf8_lossy(&status);
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}
