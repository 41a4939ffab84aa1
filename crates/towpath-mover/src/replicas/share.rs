//! Which source gives which piece.
//!
//! Each source is expected to bring what it has underway, and one piece more, at the rate at which it brought pieces so far, and not sooner than
//! a piece took lately. A piece goes to the source that is expected to have it first; so each gets as much as it delivers, whether rate or
//! distance limits it. One that has brought nothing yet gets [`TRIED`] pieces at most, and further pieces wait for the first that is done.
//!
//! A piece that takes much longer than was expected, and at the end of the file every piece that somebody idle would bring sooner, is asked for at a
//! second source too; what comes first counts.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::sync::{Notify, oneshot};
use towpath_proto::checksum::Agreement;
use towpath_store::{
    Blame, Error, Fault, Metadata, ReadHandle, Result,
    sys::clock::{self, Instant},
};

use super::Known;
use crate::again;

/// Pieces that a source may have underway before it has brought one: enough to keep it busy while the first is on its way.
const TRIED: usize = 4;

/// The weight of the latest piece in what is expected of a source.
const GAIN: f64 = 0.25;

/// A piece is late after this many times the time that was expected.
const LATE: f64 = 3.0;

/// But not before: the first pieces of a connection are slow, and all times of a busy machine vary.
const LEAST_LATE: Duration = Duration::from_secs(1);

/// When a piece is late of a source of which nothing is known.
const UNKNOWN_LATE: Duration = Duration::from_secs(3);

/// How all sources of a file share the work.
#[derive(Debug)]
pub(super) struct Sharing {
    known: Known,
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Debug)]
struct State {
    agreed: Option<Metadata>,
    sources: Vec<Source>,
    /// Pieces underway that nobody else was asked for, by the number of their reading.
    pieces: BTreeMap<u64, Piece>,
    next_piece: u64,
    /// The end of what has been asked for.
    asked: u64,
}

#[derive(Debug)]
struct Source {
    standing: Standing,
    bytes: u64,
    underway: usize,
    underway_bytes: u64,
    last_end: Option<Instant>,
    pace: Option<Pace>,
}

#[derive(Debug)]
enum Standing {
    /// It has not said what it has.
    Asked,
    /// It has, but whether that is the right version is not known.
    Answered(Metadata, Handle),
    /// It gives pieces.
    Ready(Handle),
    Out(Error),
}

/// The file at a source.
pub(super) type Handle = Arc<dyn ReadHandle>;

/// What is expected of a source.
#[derive(Debug, Clone, Copy)]
struct Pace {
    /// From one piece to the next.
    seconds_per_byte: f64,
    /// Of a piece by itself.
    seconds: f64,
}

#[derive(Debug)]
struct Piece {
    source: usize,
    bytes: u64,
    expected_end: Option<Instant>,
    helper: oneshot::Sender<Attempt>,
}

/// A piece that is being read from a source. Dropping it says that it is not, any more.
#[derive(Debug)]
pub(super) struct Attempt {
    sharing: Arc<Sharing>,
    source: usize,
    bytes: u64,
    started: Instant,
    handle: Handle,
    is_done: bool,
    /// How long it may take.
    pub(super) late: Duration,
}

/// A piece that somebody may offer to help with.
#[derive(Debug)]
pub(super) struct Ticket {
    sharing: Arc<Sharing>,
    number: u64,
    helper: oneshot::Receiver<Attempt>,
    is_used: bool,
}

impl Sharing {
    /// `sources` that nothing is known of.
    pub(super) fn new(sources: usize, known: Known) -> Self {
        let source = || Source {
            standing: Standing::Asked,
            bytes: 0,
            underway: 0,
            underway_bytes: 0,
            last_end: None,
            pace: None,
        };
        let sources = std::iter::repeat_with(source).take(sources).collect();
        let state = State { agreed: None, sources, pieces: BTreeMap::new(), next_piece: 0, asked: 0 };
        Self { known, state: Mutex::new(state), changed: Notify::new() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What each source brought, and why it is out.
    pub(super) fn told(&self) -> Vec<(u64, Option<Error>)> {
        let state = self.state();
        let each = state.sources.iter().map(|source| match &source.standing {
            Standing::Out(error) => (source.bytes, Some(error.clone())),
            _ => (source.bytes, None),
        });
        each.collect()
    }

    /// A source says what it has.
    pub(super) fn answered(&self, index: usize, answer: Result<(Metadata, Handle)>) {
        let mut state = self.state();
        let size_differs = |metadata: &Metadata| self.known.size.is_some_and(|size| size != metadata.size);
        state.sources[index].standing = match answer {
            Ok((metadata, _)) if metadata.is_directory() => {
                Standing::Out(Error::new(Fault::IsDirectory, "it is a directory"))
            }
            Ok((metadata, _)) if size_differs(&metadata) => Standing::Out(differs("size")),
            Ok((metadata, _)) if matches!(metadata.digests.compare(&self.known.digests), Agreement::Different(_)) => {
                Standing::Out(differs("digest"))
            }
            Ok((metadata, handle)) => Standing::Answered(metadata, handle),
            Err(error) => Standing::Out(error),
        };
        state.settle(&self.known, false);
        drop(state);
        self.changed.notify_waiters();
    }

    /// What they agree on; waits up to `grace` after the first answer for sources that stand before it.
    ///
    /// # Errors
    /// If none is left.
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
            }
        }
    }

    /// A source for the bytes from `offset` on, once one has time for them; none of `tried`.
    ///
    /// # Errors
    /// If none is left.
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

    /// Another source for a piece that is late; none if nobody would be sooner.
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
            .map_or(UNKNOWN_LATE, |expected| Duration::from_secs_f64((expected * LATE).min(3600.0)).max(LEAST_LATE));
        source.underway += 1;
        source.underway_bytes += bytes;
        let (sharing, started) = (Arc::clone(self), clock::now());
        Some(Attempt { sharing, source: index, bytes, started, handle, is_done: false, late })
    }

    /// Lets others help with a piece.
    pub(super) fn offer(self: &Arc<Self>, attempt: &Attempt) -> Ticket {
        let (sender, helper) = oneshot::channel();
        let mut state = self.state();
        let number = state.next_piece;
        state.next_piece += 1;
        let expected = state.sources[attempt.source].pace.map(|pace| {
            Duration::from_secs_f64((pace.seconds_per_byte * attempt.bytes as f64).max(pace.seconds).min(3600.0))
        });
        let expected_end = expected.map(|expected| attempt.started + expected);
        let piece = Piece { source: attempt.source, bytes: attempt.bytes, expected_end, helper: sender };
        state.pieces.insert(number, piece);
        Ticket { sharing: Arc::clone(self), number, helper, is_used: false }
    }

    /// A source that has nothing to do at the end of the file takes over the piece that would come last.
    fn help(self: &Arc<Self>, index: usize) {
        let mut state = self.state();
        let size = state.agreed.as_ref().map_or(u64::MAX, |agreed| agreed.size);
        let source = &state.sources[index];
        if state.asked < size || source.underway > 0 || !matches!(source.standing, Standing::Ready(_)) {
            return;
        }
        let now = clock::now();
        let left = |piece: &Piece| piece.expected_end.map_or(f64::MAX, |end| (end - now).as_secs_f64());
        let slowest = state.pieces.iter().filter(|(_, piece)| piece.source != index);
        let slowest = slowest.max_by(|(_, a), (_, b)| left(a).total_cmp(&left(b)));
        let Some((&number, piece)) = slowest else { return };
        // What is overdue may come at any moment, or never.
        let is_overdue = piece.expected_end.is_some_and(|end| end <= now);
        let own = source.expected(piece.bytes).unwrap_or(f64::MAX);
        if !is_overdue && own >= left(piece) {
            return;
        }
        if let Some(piece) = state.pieces.remove(&number) {
            let attempt = self.attempt(&mut state, index, piece.bytes);
            drop(state);
            if let Some(attempt) = attempt {
                // If the piece has arrived at this moment, the attempt ends here.
                let _ = piece.helper.send(attempt);
            }
        }
    }
}

impl State {
    /// Takes the sources in that have the right version, if that can be told.
    fn settle(&mut self, known: &Known, is_enough: bool) {
        if self.agreed.is_none() {
            let mut before =
                self.sources.iter().take_while(|source| !matches!(source.standing, Standing::Answered(..)));
            let waits =
                known.size.is_none() && !is_enough && before.any(|source| matches!(source.standing, Standing::Asked));
            if waits {
                return;
            }
            let first = self.sources.iter().find_map(|source| match &source.standing {
                Standing::Answered(metadata, _) => Some(metadata.clone()),
                _ => None,
            });
            let Some(mut agreed) = first else { return };
            known.digests.iter().for_each(|digest| agreed.digests.insert(*digest));
            self.agreed = Some(agreed);
        }
        let Some(agreed) = &mut self.agreed else { return };
        for source in &mut self.sources {
            let Standing::Answered(metadata, handle) = &source.standing else { continue };
            source.standing = match metadata.digests.compare(&agreed.digests) {
                _ if metadata.size != agreed.size => Standing::Out(differs("size")),
                Agreement::Different(_) => Standing::Out(differs("digest")),
                _ => {
                    metadata.digests.iter().for_each(|digest| agreed.digests.insert(*digest));
                    Standing::Ready(Arc::clone(handle))
                }
            };
        }
    }

    /// # Errors
    /// If every source is out.
    fn check_left(&self) -> Result<()> {
        let mut errors = Vec::new();
        for source in &self.sources {
            match &source.standing {
                Standing::Out(error) => errors.push(error),
                _ => return Ok(()),
            }
        }
        // One that may be there again later decides whether the copy goes on.
        let error = errors.iter().find(|error| again::is_loss(error)).or(errors.first());
        let Some(error) = error else { return Err(Error::new(Fault::InvalidArgument, "there is no source")) };
        if let [only] = errors[..] {
            return Err(only.clone());
        }
        let message = format!("none of {} sources is left; of one: {error}", errors.len());
        Err(Error::new(error.fault(), message).blamed_on(error.blame()))
    }

    /// Who would have `bytes` more first, of those who have time and are none of `tried`.
    fn best(&self, bytes: u64, tried: &[usize]) -> Option<usize> {
        let ready = self.sources.iter().enumerate().filter(|(index, source)| {
            let has_time = source.pace.is_some() || source.underway < TRIED;
            matches!(source.standing, Standing::Ready(_)) && has_time && !tried.contains(index)
        });
        // Those of whom nothing is known first, or nothing would ever be known of them.
        let cost = |source: &Source| source.expected(bytes).unwrap_or(-1.0 / (1 + source.underway) as f64);
        ready.min_by(|(_, a), (_, b)| cost(a).total_cmp(&cost(b))).map(|(index, _)| index)
    }
}

impl Source {
    /// Seconds until it would have `bytes` more; none if nothing is known.
    fn expected(&self, bytes: u64) -> Option<f64> {
        let pace = self.pace?;
        Some((pace.seconds_per_byte * (self.underway_bytes + bytes) as f64).max(pace.seconds))
    }

    fn learn(&mut self, started: Instant, now: Instant, bytes: u64) {
        let since = self.last_end.map_or(started, |end| end.max(started));
        let sample = Pace {
            seconds_per_byte: (now - since).as_secs_f64() / bytes.max(1) as f64,
            seconds: (now - started).as_secs_f64(),
        };
        let mixed = |old: f64, new: f64| old + GAIN * (new - old);
        self.pace = Some(self.pace.map_or(sample, |old| Pace {
            seconds_per_byte: mixed(old.seconds_per_byte, sample.seconds_per_byte),
            seconds: mixed(old.seconds, sample.seconds),
        }));
        self.last_end = Some(now);
    }
}

/// That a source has another file.
fn differs(what: &str) -> Error {
    let message = format!("its {what} is not that of the other sources, or not the one that was told");
    Error::new(Fault::Changed, message).blamed_on(Blame::Storage)
}

impl Attempt {
    /// Which source it is.
    pub(super) fn source(&self) -> usize {
        self.source
    }

    /// Reads the piece. A source that cannot give it is out.
    ///
    /// # Errors
    /// Those of the source; `Truncated` if it gave less.
    pub(super) async fn read(mut self, offset: u64) -> Result<Vec<u8>> {
        let length = usize::try_from(self.bytes).unwrap_or(usize::MAX);
        let read = self.handle.read_into(offset, length, Vec::with_capacity(length)).await;
        let read = read.and_then(|data| {
            if data.len() == length {
                return Ok(data);
            }
            let message = format!("it gave {} bytes of {length} at {offset}", data.len());
            Err(Error::new(Fault::Truncated, message).blamed_on(Blame::Storage))
        });
        self.is_done = true;
        let mut state = self.sharing.state();
        let source = &mut state.sources[self.source];
        match &read {
            Ok(_) => {
                source.bytes += self.bytes;
                source.learn(self.started, clock::now(), self.bytes);
            }
            Err(error) => source.standing = Standing::Out(error.clone()),
        }
        drop(state);
        read
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        let mut state = self.sharing.state();
        let source = &mut state.sources[self.source];
        source.underway -= 1;
        source.underway_bytes -= self.bytes;
        // Whoever was overtaken is at least as slow as that.
        let now = clock::now();
        let is_slow = source.pace.is_none_or(|pace| (now - self.started).as_secs_f64() > pace.seconds);
        if !self.is_done && is_slow {
            source.learn(self.started, now, self.bytes);
        }
        drop(state);
        self.sharing.changed.notify_waiters();
        self.sharing.help(self.source);
    }
}

impl Ticket {
    /// The attempt of whoever helps; it never comes if nobody does. None the second time.
    pub(super) async fn helper(&mut self) -> Option<Attempt> {
        if self.is_used {
            return std::future::pending().await;
        }
        let attempt = (&mut self.helper).await.ok();
        self.is_used = true;
        attempt
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.sharing.state().pieces.remove(&self.number);
    }
}
