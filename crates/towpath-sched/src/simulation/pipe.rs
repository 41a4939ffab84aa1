//! The state of a pipe: files that wait, and files on its connections.
//!
//! All sending connections of a pipe have the same rate. Their common progress is the number of bytes of a connection that
//! has been sending since the start of the simulation. A file of n bytes that begins at the progress p ends at
//! p + n, whatever the rate does meanwhile.

use std::{
    cmp::{Ordering, Reverse},
    collections::{BinaryHeap, VecDeque},
};

use super::world::Request;
use crate::period::{EndedFiles, PipeMeasurement};

/// A file on a connection.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Transfer {
    /// Progress at its end.
    end: f64,
    request: u32,
    bytes: f64,
    has_failed: bool,
    started_s: f64,
}

impl Eq for Transfer {}

impl Ord for Transfer {
    fn cmp(&self, other: &Self) -> Ordering {
        self.end.total_cmp(&other.end).then(self.started_s.total_cmp(&other.started_s))
    }
}

impl PartialOrd for Transfer {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Files of one request that wait.
#[derive(Debug, Clone, Copy)]
struct Waiting {
    request: u32,
    files: u64,
    /// The size of a file that was tried before.
    bytes: Option<f64>,
}

/// The end of a file.
#[derive(Debug, Clone, Copy)]
pub(super) struct FileEnd {
    pub(super) request: u32,
    pub(super) has_failed: bool,
}

#[derive(Debug, Default)]
pub(super) struct PipeState {
    /// The decided number of connections. Those in excess end with their file.
    pub(super) connections: u32,
    waiting: VecDeque<Waiting>,
    queued_files: u64,
    /// Files whose connections do not send yet, in the order of their start.
    starting: VecDeque<Transfer>,
    sending: BinaryHeap<Reverse<Transfer>>,
    /// Bytes per second of a connection.
    rate: f64,
    /// Sending connections when the rate was computed.
    sending_then: u32,
    progress: f64,
    advanced_s: f64,
    /// Changes with the rate and with the next file to end, so that earlier expectations of its end are ignored.
    generation: u32,
    received_bytes: f64,
    /// Sum of the times for which connections were in use.
    connection_s: f64,
    /// The part of it after the start of files.
    receiving_s: f64,
    started_files: u64,
    ended: EndedFiles,
}

impl PipeState {
    /// Adds files of a request to the queue.
    pub(super) fn enqueue(&mut self, request: u32, files: u64) {
        self.queued_files += files;
        self.waiting.push_back(Waiting { request, files, bytes: None });
    }

    /// Returns whether the pipe has fewer files on connections than it may have.
    pub(super) fn has_free_connection(&self) -> bool {
        self.running() < self.connections
    }

    /// Returns whether a file waits.
    pub(super) fn has_waiting(&self) -> bool {
        self.queued_files > 0
    }

    /// Takes a file from the queue: its request, and its size if it was tried before.
    pub(super) fn take_file(&mut self) -> Option<(u32, Option<f64>)> {
        let waiting = self.waiting.front_mut()?;
        let file = (waiting.request, waiting.bytes);
        waiting.files -= 1;
        if waiting.files == 0 {
            self.waiting.pop_front();
        }
        self.queued_files -= 1;
        Some(file)
    }

    /// Starts a file, which fails after the fraction `fails_at` of its bytes, if there is one.
    pub(super) fn start(&mut self, request: u32, bytes: f64, fails_at: Option<f64>, now_s: f64) {
        let end = bytes * fails_at.unwrap_or(1.0);
        self.started_files += 1;
        self.starting.push_back(Transfer { end, request, bytes, has_failed: fails_at.is_some(), started_s: now_s });
    }

    /// Makes the connection that was started first send.
    pub(super) fn begin_sending(&mut self) {
        let Some(mut transfer) = self.starting.pop_front() else { return };
        transfer.end += self.progress;
        self.sending.push(Reverse(transfer));
    }

    /// Returns the number of sending connections.
    pub(super) fn sending(&self) -> u32 {
        self.sending.len() as u32
    }

    /// Returns the number of files on connections.
    pub(super) fn running(&self) -> u32 {
        (self.sending.len() + self.starting.len()) as u32
    }

    /// Returns whether the number of sending connections differs by the fraction `tolerance` from that for which the
    /// rate was computed.
    pub(super) fn has_changed_by(&self, tolerance: f64) -> bool {
        f64::from(self.sending().abs_diff(self.sending_then)) > tolerance * f64::from(self.sending_then)
    }

    /// Counts the bytes up to `now_s`.
    pub(super) fn advance(&mut self, now_s: f64) {
        let passed_s = now_s - self.advanced_s;
        let progress = self.rate * passed_s;
        self.connection_s += passed_s * f64::from(self.running());
        self.receiving_s += passed_s * f64::from(self.sending());
        self.advanced_s = now_s;
        self.progress += progress;
        self.received_bytes += progress * f64::from(self.sending());
    }

    /// Like [`Self::advance`], to the end of the next file, without rounding errors.
    pub(super) fn advance_to_end(&mut self, now_s: f64) {
        self.advance(now_s);
        if let Some(Reverse(next)) = self.sending.peek() {
            self.progress = self.progress.max(next.end);
        }
    }

    /// Takes a file that ended. One that failed waits again.
    pub(super) fn take_ended(&mut self, now_s: f64) -> Option<FileEnd> {
        self.sending.peek().filter(|Reverse(next)| next.end <= self.progress)?;
        let Reverse(Transfer { request, bytes, has_failed, started_s, .. }) = self.sending.pop()?;
        if has_failed {
            self.ended.retried += 1;
            self.queued_files += 1;
            self.waiting.push_back(Waiting { request, files: 1, bytes: Some(bytes) });
        } else {
            self.ended.finished += 1;
            self.ended.bytes += bytes;
            self.ended.duration_s += now_s - started_s;
        }
        Some(FileEnd { request, has_failed })
    }

    /// Sets the rate of all connections together. Returns the end of the next file.
    pub(super) fn set_rate(&mut self, bytes_per_s: f64, now_s: f64) -> Option<(f64, u32)> {
        self.advance(now_s);
        self.sending_then = self.sending();
        self.rate = if self.sending.is_empty() { 0.0 } else { bytes_per_s / f64::from(self.sending()) };
        self.next_end()
    }

    /// Returns the time at which the next file ends, and the generation of this expectation; `None` if none ends.
    pub(super) fn next_end(&mut self) -> Option<(f64, u32)> {
        self.generation = self.generation.wrapping_add(1);
        let Reverse(next) = self.sending.peek()?;
        let rest = (next.end - self.progress).max(0.0);
        (self.rate > 0.0).then(|| (self.advanced_s + rest / self.rate, self.generation))
    }

    /// Returns whether an expectation still holds.
    pub(super) fn is_current(&self, generation: u32) -> bool {
        self.generation == generation
    }

    /// Returns the measurements since the last call, except for the received bytes, and these. Files that wait count
    /// with the mean size of their request.
    pub(super) fn measure(&mut self, requests: &[Request]) -> (PipeMeasurement, f64) {
        let mean = |waiting: &Waiting| waiting.bytes.unwrap_or_else(|| requests[waiting.request as usize].size.mean());
        let queued: f64 = self.waiting.iter().map(|waiting| waiting.files as f64 * mean(waiting)).sum();
        let sending: f64 = self.sending.iter().map(|Reverse(transfer)| transfer.end - self.progress).sum();
        let starting: f64 = self.starting.iter().map(|transfer| transfer.end).sum();
        let measurement = PipeMeasurement {
            granted: self.connections,
            connections: self.running(),
            connection_s: std::mem::take(&mut self.connection_s),
            receiving_s: std::mem::take(&mut self.receiving_s),
            started_files: std::mem::take(&mut self.started_files),
            queued_files: self.queued_files,
            remaining_bytes: queued + sending + starting,
            ended: std::mem::take(&mut self.ended),
            ..PipeMeasurement::default()
        };
        (measurement, std::mem::take(&mut self.received_bytes))
    }
}
