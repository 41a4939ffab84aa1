//! Knowledge about the sources of a copy from its earlier starts.
//!
//! A copy with several sources is restarted if that can help: if the only readable source was lost, or if the data do
//! not match their digest. In the latter case the sources are then read one at a time. When one of them delivers
//! matching data, [`Evidence`] identifies the sources whose pieces differ.

use towpath_proto::checksum::Digests;
use towpath_store::{Blame, Error, Fault};

use super::{Replicas, evidence::Evidence};
use crate::file::Failure;

/// Findings of earlier starts.
#[derive(Debug, Default)]
pub(super) struct SourceHistory {
    /// Why a source is excluded.
    out: Vec<Option<Error>>,
    /// Only one source is read at a time.
    is_alone: bool,
    /// The pieces of the data that did not match.
    suspect: Evidence,
    restarts: usize,
}

impl SourceHistory {
    /// Creates the state of `sources` without findings.
    pub(super) fn of(sources: usize) -> Self {
        Self { out: vec![None; sources], ..Self::default() }
    }

    /// Returns why sources are excluded from the beginning, and the only source to read, if any. If all are excluded,
    /// sources with temporary errors are tried again.
    pub(super) fn start(&mut self) -> (Vec<Option<Error>>, Option<usize>) {
        if self.left().next().is_none() {
            self.out.iter_mut().for_each(|out| *out = out.take().filter(|error| !Failure::is_loss(error)));
        }
        let mut left = self.left();
        let (first, second) = (left.next(), left.next());
        let only = first.filter(|_| self.is_alone || second.is_none());
        (self.out.clone(), only)
    }

    /// Returns why a source is excluded.
    pub(super) fn error(&self, index: usize) -> Option<&Error> {
        self.out.get(index)?.as_ref()
    }

    fn left(&self) -> impl Iterator<Item = usize> {
        self.out.iter().enumerate().filter(|(_, out)| out.is_none()).map(|(index, _)| index)
    }
}

impl Replicas {
    /// Returns whether a restart of a failed copy may succeed with other sources, or with one source at a time.
    pub(crate) fn may_do_better(&self, failure: &Failure) -> bool {
        let Some(pool) = self.pool() else { return false };
        let is_mismatch = matches!(failure, Failure::Unlike { .. });
        if self.sources.len() < 2 || !(is_mismatch || pool.has_lost_lead()) {
            return false;
        }
        let contributions = pool.contributions();
        let mut history = self.history();
        history.restarts += 1;
        history.is_alone |= is_mismatch || pool.is_alone();
        for (out, contribution) in history.out.iter_mut().zip(&contributions) {
            // A source with another version than the lead is queried again, because another source may be the lead next
            // time.
            let lasting = |error: &&Error| error.fault() != Fault::Changed || pool.lead().is_none();
            let lasting = contribution.error.as_ref().filter(lasting);
            *out = out.take().or_else(|| lasting.cloned());
        }
        if let Failure::Unlike { promised, error } = failure {
            let mut givers = contributions.iter().enumerate().filter(|(_, contribution)| contribution.bytes > 0);
            match (givers.next(), givers.next()) {
                (Some((only, giver)), None) if Some(giver.bytes) == pool.size() => {
                    history.out[only].get_or_insert_with(|| unlike(promised, error));
                }
                _ => history.suspect = pool.evidence(),
            }
        }
        // Each restart excludes a source, except for the one that begins to read one source at a time, and one that
        // found pieces of an earlier run.
        history.restarts <= 2 * self.sources.len() && history.left().next().is_some()
    }

    /// Excludes the sources whose earlier pieces differ from the data that arrived and match the promised digest.
    pub(crate) fn note_arrival(&self) {
        let Some(pool) = self.pool() else { return };
        let mut history = self.history();
        let (suspect, right) = (std::mem::take(&mut history.suspect), pool.evidence());
        for given in suspect.unlike(&right) {
            let message = format!("its {} bytes at {} do not match the expected file", given.bytes, given.offset);
            let error = Error::new(Fault::ChecksumMismatch, message).blamed_on(Blame::Storage);
            history.out[given.source].get_or_insert(error);
        }
    }
}

/// Returns the error of a source that delivered the whole file, which does not match the promised digest.
fn unlike(promised: &Digests, error: &Error) -> Error {
    let promised: Vec<_> = promised.iter().map(|digest| format!("{digest:#}")).collect();
    let message = format!("its data do not match the expected file, which has {}", promised.join(", "));
    Error::new(Fault::ChecksumMismatch, message).blamed_on(error.blame()).with_retryable(error.is_retryable())
}
