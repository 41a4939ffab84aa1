//! Distribution of the pieces of a file among its sources.
//!
//! One source, the *lead*, determines the version to copy. Other sources are read as soon as a digest of the whole file
//! is known, because the destination then detects a mixture of different files ([`admission`](self::admission)).
//! Without a digest only the lead is read.
//!
//! Each source is expected to deliver its data in flight, and one piece more, at the rate of its previous pieces, and
//! not faster than a recent piece took. A piece goes to the source that is expected to deliver it first, so that each
//! contributes as much as it can, whether rate or distance limits it. A source without any delivery gets at most
//! [`TRIED`] pieces; further ones wait for the first to complete.
//!
//! A piece that takes much longer than expected is also requested from a second source, and the first response counts.
//! At the end of the file this applies to every piece that an idle source would deliver sooner.

mod admission;
mod attempt;

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::sync::{Notify, oneshot};
use towpath_proto::checksum::{Agreement, Digest, Digests};
use towpath_store::{
    Blame, Error, Fault, Metadata, ReadHandle, Result,
    sys::clock::{self, Instant},
};

pub(super) use self::attempt::{Attempt, Ticket};
use super::{FileProperties, evidence::Evidence, proof};
use crate::DigestOrigin;

/// Maximum number of pieces in flight to a source before its first delivery: enough to keep it busy during the first
/// round trip.
const TRIED: usize = 4;

/// Weight of the latest piece in the estimate of a source.
const GAIN: f64 = 0.25;

/// Ratio of the actual to the expected time above which a piece is late.
const LATE: f64 = 3.0;

/// Minimum time after which a piece is late: the first pieces of a connection are slow, and timing on a busy machine
/// varies.
const MIN_LATE: Duration = Duration::from_secs(1);

/// Time after which a piece of a source without an estimate is late.
const UNKNOWN_LATE: Duration = Duration::from_secs(3);

/// The state shared by all sources of a file.
#[derive(Debug)]
pub(super) struct SourcePool {
    known: FileProperties,
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Debug)]
struct State {
    agreed: Option<Metadata>,
    /// The source that determines the metadata.
    lead: Option<usize>,
    /// The only source in use.
    only: Option<usize>,
    /// Whether only the lead is read while the file is open.
    is_alone: bool,
    /// Origins of the known digests.
    origins: Vec<(Digest, DigestOrigin)>,
    sources: Vec<Source>,
    /// The pieces received from each source.
    evidence: Evidence,
    /// Pieces in flight with one source only, by read number.
    pieces: BTreeMap<u64, PieceInFlight>,
    next_piece: u64,
    /// The end of the requested data.
    asked: u64,
}

#[derive(Debug)]
struct Source {
    standing: Standing,
    /// The digests that it reports for its file.
    digests: Digests,
    /// Whether it is known to have the same bytes as the lead: by a digest, or by a piece that both delivered.
    is_compared: bool,
    /// Whether it does not compute a digest on request.
    computes_none: bool,
    bytes: u64,
    underway: usize,
    underway_bytes: u64,
    last_end: Option<Instant>,
    estimate: Option<DeliveryEstimate>,
}

#[derive(Debug)]
enum Standing {
    /// Not queried.
    Unasked,
    /// Queried, without a response so far.
    Asked,
    /// Queried and open, but its version has not been compared with the lead's yet.
    Answered(Metadata, Handle),
    /// Its metadata agree with the lead, but it is not read, or not yet.
    Candidate(Handle),
    /// It is read.
    Ready(Handle),
    Out(Error),
}

/// The open file at a source.
pub(super) type Handle = Arc<dyn ReadHandle>;

/// The delivery estimate of a source.
#[derive(Debug, Clone, Copy)]
struct DeliveryEstimate {
    /// Seconds per byte between consecutive pieces.
    seconds_per_byte: f64,
    /// Duration of a single piece.
    seconds: f64,
}

#[derive(Debug)]
struct PieceInFlight {
    source: usize,
    bytes: u64,
    expected_end: Option<Instant>,
    helper: oneshot::Sender<Attempt>,
}

/// The data received from one source.
#[derive(Debug, Clone, Default)]
pub(super) struct Contribution {
    /// Number of bytes delivered.
    pub(super) bytes: u64,
    /// Why it is excluded, if it is.
    pub(super) error: Option<Error>,
    /// Whether it is not read because no digest can prove that its bytes match the lead's.
    pub(super) is_spare: bool,
}

impl SourcePool {
    /// Creates sources without information; those with an error are excluded from the beginning. With `only`, no other
    /// source is read.
    pub(super) fn new(known: FileProperties, out: &[Option<Error>], only: Option<usize>) -> Self {
        let sources = out.iter().enumerate().map(|(index, error)| Source {
            standing: match error {
                Some(error) => Standing::Out(error.clone()),
                None if only.is_some_and(|only| only != index) => Standing::Unasked,
                None => Standing::Asked,
            },
            digests: Digests::default(),
            is_compared: false,
            computes_none: false,
            bytes: 0,
            underway: 0,
            underway_bytes: 0,
            last_end: None,
            estimate: None,
        });
        let state = State {
            agreed: None,
            lead: None,
            only,
            is_alone: only.is_some(),
            origins: Vec::new(),
            sources: sources.collect(),
            evidence: Evidence::default(),
            pieces: BTreeMap::new(),
            next_piece: 0,
            asked: 0,
        };
        Self { known, state: Mutex::new(state), changed: Notify::new() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the contribution of each source.
    pub(super) fn contributions(&self) -> Vec<Contribution> {
        let state = self.state();
        let size = state.agreed.as_ref().map_or(0, |agreed| agreed.size);
        let needs_proof = size >= proof::MIN_BYTES && !state.is_provable();
        let each = state.sources.iter().enumerate().map(|(index, source)| {
            let (error, is_spare) = match &source.standing {
                Standing::Out(error) => (Some(error.clone()), false),
                Standing::Candidate(_) | Standing::Asked => (None, needs_proof && state.lead != Some(index)),
                _ => (None, false),
            };
            Contribution { bytes: source.bytes, error, is_spare }
        });
        each.collect()
    }

    /// Returns the size of the file, once known.
    pub(super) fn size(&self) -> Option<u64> {
        self.state().agreed.as_ref().map(|agreed| agreed.size)
    }

    /// Returns the pieces received from each source.
    pub(super) fn evidence(&self) -> Evidence {
        self.state().evidence.clone()
    }

    /// Returns whether to query a source.
    pub(super) fn is_asked(&self, index: usize) -> bool {
        matches!(self.state().sources[index].standing, Standing::Asked)
    }

    /// Records the response of a source.
    pub(super) fn answered(&self, index: usize, answer: Result<(Metadata, Handle)>) {
        let mut state = self.state();
        let size_differs = |metadata: &Metadata| self.known.size.is_some_and(|size| size != metadata.size);
        state.sources[index].standing = match answer {
            Ok((metadata, _)) if metadata.is_directory() => {
                Standing::Out(Error::new(Fault::IsDirectory, "it is a directory"))
            }
            Ok((metadata, _)) if size_differs(&metadata) => Standing::Out(differs("size")),
            Ok((metadata, handle)) => match unexpected(&metadata.digests, &self.known.digests) {
                Some(error) => Standing::Out(error),
                None => Standing::Answered(metadata, handle),
            },
            Err(error) => Standing::Out(error),
        };
        state.settle(&self.known, false);
        drop(state);
        self.changed.notify_waiters();
    }

    /// Returns the agreed properties; waits up to `grace` after the first response for sources that precede it.
    ///
    /// # Errors
    /// An error if no source is left.
    pub(super) async fn agreed(&self, grace: Duration) -> Result<Metadata> {
        loop {
            let changed = self.changed.notified();
            let is_answered = {
                let state = self.state();
                if let Some(agreed) = &state.agreed {
                    return Ok(agreed.clone());
                }
                state.check_left()?;
                state.sources.iter().any(|source| matches!(source.standing, Standing::Answered(..)))
            };
            if !is_answered {
                changed.await;
            } else if tokio::time::timeout(grace, changed).await.is_err() {
                self.state().settle(&self.known, true);
                self.changed.notify_waiters();
            }
        }
    }

    /// Waits for a source for the `bytes` at `offset`, excluding those in `tried`.
    ///
    /// # Errors
    /// An error if no source is left.
    pub(super) async fn assign(self: &Arc<Self>, offset: u64, bytes: u64, tried: &[usize]) -> Result<Attempt> {
        loop {
            let changed = self.changed.notified();
            {
                let mut state = self.state();
                state.asked = state.asked.max(offset.saturating_add(bytes));
                if let Some(attempt) = self.attempt_of_best(&mut state, bytes, tried) {
                    return Ok(attempt);
                }
                state.check_left()?;
            }
            changed.await;
        }
    }

    /// Assigns a late piece to another source; `None` if no source would be faster.
    pub(super) fn assign_second(self: &Arc<Self>, bytes: u64, tried: &[usize]) -> Option<Attempt> {
        self.attempt_of_best(&mut self.state(), bytes, tried)
    }

    fn attempt_of_best(self: &Arc<Self>, state: &mut State, bytes: u64, tried: &[usize]) -> Option<Attempt> {
        let index = state.best(bytes, tried)?;
        self.attempt(state, index, bytes)
    }

    fn attempt(self: &Arc<Self>, state: &mut State, index: usize, bytes: u64) -> Option<Attempt> {
        let source = &mut state.sources[index];
        let Standing::Ready(handle) = &source.standing else { return None };
        let handle = Arc::clone(handle);
        let late = source
            .expected(bytes)
            .map_or(UNKNOWN_LATE, |expected| Duration::from_secs_f64((expected * LATE).min(3600.0)).max(MIN_LATE));
        source.underway += 1;
        source.underway_bytes += bytes;
        Some(Attempt::new(Arc::clone(self), index, bytes, handle, late))
    }

    /// Offers a piece in flight to idle sources.
    pub(super) fn offer(self: &Arc<Self>, attempt: &Attempt) -> Ticket {
        let (sender, helper) = oneshot::channel();
        let mut state = self.state();
        let number = state.next_piece;
        state.next_piece += 1;
        let expected = state.sources[attempt.source()].estimate.map(|estimate| {
            Duration::from_secs_f64(
                (estimate.seconds_per_byte * attempt.bytes() as f64).max(estimate.seconds).min(3600.0),
            )
        });
        let expected_end = expected.map(|expected| attempt.started() + expected);
        let piece = PieceInFlight { source: attempt.source(), bytes: attempt.bytes(), expected_end, helper: sender };
        state.pieces.insert(number, piece);
        Ticket::new(Arc::clone(self), number, helper)
    }

    /// Reassigns the piece that is expected last to a source that is idle at the end of the file.
    fn help(self: &Arc<Self>, index: usize) {
        let mut state = self.state();
        let size = state.agreed.as_ref().map_or(u64::MAX, |agreed| agreed.size);
        let source = &state.sources[index];
        if state.asked < size || source.underway > 0 || !matches!(source.standing, Standing::Ready(_)) {
            return;
        }
        let now = clock::now();
        let left = |piece: &PieceInFlight| piece.expected_end.map_or(f64::MAX, |end| (end - now).as_secs_f64());
        let slowest = state.pieces.iter().filter(|(_, piece)| piece.source != index);
        let slowest = slowest.max_by(|(_, a), (_, b)| left(a).total_cmp(&left(b)));
        let Some((&number, piece)) = slowest else { return };
        // An overdue piece may arrive at any moment, or never.
        let is_overdue = piece.expected_end.is_some_and(|end| end <= now);
        let own = source.expected(piece.bytes).unwrap_or(f64::MAX);
        if !is_overdue && own >= left(piece) {
            return;
        }
        if let Some(piece) = state.pieces.remove(&number) {
            let attempt = self.attempt(&mut state, index, piece.bytes);
            drop(state);
            if let Some(attempt) = attempt {
                // If the piece has arrived in the meantime, the attempt is dropped.
                let _ = piece.helper.send(attempt);
            }
        }
    }
}

impl State {
    /// Returns the source that would deliver `bytes` more first, among those that may take a piece and are not in
    /// `tried`.
    fn best(&self, bytes: u64, tried: &[usize]) -> Option<usize> {
        let ready = self.sources.iter().enumerate().filter(|(index, source)| {
            let has_time = source.estimate.is_some() || source.underway < TRIED;
            matches!(source.standing, Standing::Ready(_)) && has_time && !tried.contains(index)
        });
        // Sources without an estimate come first; otherwise they would never get one.
        let cost = |source: &Source| source.expected(bytes).unwrap_or(-1.0 / (1 + source.underway) as f64);
        ready.min_by(|(_, a), (_, b)| cost(a).total_cmp(&cost(b))).map(|(index, _)| index)
    }
}

impl Source {
    /// Excludes a source that has a different file.
    fn contradicts(&mut self, what: &str) {
        if !matches!(self.standing, Standing::Out(_)) {
            self.standing = Standing::Out(differs(what));
        }
        self.digests = Digests::default();
    }

    /// Returns whether its digests count. Those of a failed source count if it was shown to have the file or delivered
    /// a part of it.
    fn has_vote(&self) -> bool {
        !matches!(self.standing, Standing::Out(_)) || self.is_compared || self.bytes > 0
    }

    /// Returns whether it is available and has not refused to compute a digest.
    fn may_compute(&self) -> bool {
        matches!(self.standing, Standing::Ready(_) | Standing::Candidate(_)) && !self.computes_none
    }

    /// Returns the seconds until it would deliver `bytes` more; `None` without an estimate.
    fn expected(&self, bytes: u64) -> Option<f64> {
        let estimate = self.estimate?;
        Some((estimate.seconds_per_byte * (self.underway_bytes + bytes) as f64).max(estimate.seconds))
    }

    fn learn(&mut self, started: Instant, now: Instant, bytes: u64) {
        let since = self.last_end.map_or(started, |end| end.max(started));
        let sample = DeliveryEstimate {
            seconds_per_byte: (now - since).as_secs_f64() / bytes.max(1) as f64,
            seconds: (now - started).as_secs_f64(),
        };
        let mixed = |old: f64, new: f64| old + GAIN * (new - old);
        self.estimate = Some(self.estimate.map_or(sample, |old| DeliveryEstimate {
            seconds_per_byte: mixed(old.seconds_per_byte, sample.seconds_per_byte),
            seconds: mixed(old.seconds, sample.seconds),
        }));
        self.last_end = Some(now);
    }
}

/// Returns the error of a source that reports a different digest than the `expected` one; `None` if it does not.
fn unexpected(reported: &Digests, expected: &Digests) -> Option<Error> {
    let Agreement::Different(algorithm) = reported.compare(expected) else { return None };
    let (found, expected) = (reported.get(algorithm)?, expected.get(algorithm)?);
    let message = format!("its {algorithm} is {found}, expected {expected}");
    // Either of them may be wrong.
    Some(Error::new(Fault::ChecksumMismatch, message).blamed_on(Blame::Caller).with_retryable(false))
}

/// Returns the error of a source that has a different file.
fn differs(what: &str) -> Error {
    let message = format!("its {what} differs from that of the other sources or from the expected one");
    Error::new(Fault::Changed, message).blamed_on(Blame::Storage)
}
