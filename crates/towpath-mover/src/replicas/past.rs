//! What earlier starts of one copy found out about its sources.
//!
//! A copy from several sources is restarted if that can help: if the only readable source was lost, or if the data do
//! not match their digest. In the latter case each source is read alone, one after the other. When one of them
//! delivers matching data, [`Evidence`] identifies the sources of different pieces.

use towpath_proto::checksum::Digests;
use towpath_store::{Blame, Error, Fault};

use super::{Replicas, evidence::Evidence};
use crate::file::Failure;

/// What earlier starts found out.
#[derive(Debug, Default)]
pub(super) struct Past {
    /// Why a source is excluded.
    out: Vec<Option<Error>>,
    /// Only one source is read at a time.
    is_alone: bool,
    /// The pieces of the data that did not match.
    suspect: Evidence,
    restarts: usize,
}

impl Past {
    /// Nothing is known of `sources`.
    pub(super) fn of(sources: usize) -> Self {
        Self { out: vec![None; sources], ..Self::default() }
    }

    /// Why sources are left out from the beginning, and the only one to read if others must not be. If all are out, those that were lost get another chance.
    pub(super) fn start(&mut self) -> (Vec<Option<Error>>, Option<usize>) {
        if self.left().next().is_none() {
            self.out.iter_mut().for_each(|out| *out = out.take().filter(|error| !Failure::is_loss(error)));
        }
        let mut left = self.left();
        let (first, second) = (left.next(), left.next());
        let only = first.filter(|_| self.is_alone || second.is_none());
        (self.out.clone(), only)
    }

    /// Why a source is left out.
    pub(super) fn error(&self, index: usize) -> Option<&Error> {
        self.out.get(index)?.as_ref()
    }

    fn left(&self) -> impl Iterator<Item = usize> {
        self.out.iter().enumerate().filter(|(_, out)| out.is_none()).map(|(index, _)| index)
    }
}

impl Replicas {
    /// Whether another start of a copy that failed may do better with other sources, or with one at a time.
    pub(crate) fn may_do_better(&self, failure: &Failure) -> bool {
        let Some(sharing) = self.sharing() else { return false };
        let is_mismatch = matches!(failure, Failure::Unlike { .. });
        if self.sources.len() < 2 || !(is_mismatch || sharing.has_lost_lead()) {
            return false;
        }
        let contributions = sharing.contributions();
        let mut past = self.past();
        past.restarts += 1;
        past.is_alone |= is_mismatch || sharing.is_alone();
        for (out, contribution) in past.out.iter_mut().zip(&contributions) {
            // A source with another version than the lead is queried again: the lead may be another source next time.
            let lasting = |error: &&Error| error.fault() != Fault::Changed || sharing.lead().is_none();
            let lasting = contribution.error.as_ref().filter(lasting);
            *out = out.take().or_else(|| lasting.cloned());
        }
        if let Failure::Unlike { promised, error } = failure {
            let mut givers = contributions.iter().enumerate().filter(|(_, contribution)| contribution.bytes > 0);
            match (givers.next(), givers.next()) {
                (Some((only, giver)), None) if Some(giver.bytes) == sharing.size() => {
                    past.out[only].get_or_insert_with(|| unlike(promised, error));
                }
                _ => past.suspect = sharing.evidence(),
            }
        }
        // Each restart leaves a source out, but for the one that reads sources one by one from then on, and one that found pieces of an earlier run.
        past.restarts <= 2 * self.sources.len() && past.left().next().is_some()
    }

    /// The copy has arrived as it was promised: notes which sources gave other pieces before.
    pub(crate) fn note_arrival(&self) {
        let Some(sharing) = self.sharing() else { return };
        let mut past = self.past();
        let (suspect, right) = (std::mem::take(&mut past.suspect), sharing.evidence());
        for given in suspect.unlike(&right) {
            let message = format!("its {} bytes at {} were not those of the promised file", given.bytes, given.offset);
            let error = Error::new(Fault::ChecksumMismatch, message).blamed_on(Blame::Storage);
            past.out[given.source].get_or_insert(error);
        }
    }
}

/// The error of a source that gave the whole file, and not the promised one.
fn unlike(promised: &Digests, error: &Error) -> Error {
    let promised: Vec<_> = promised.iter().map(|digest| format!("{digest:#}")).collect();
    let message = format!("what it gave is not the promised file, which has {}", promised.join(", "));
    Error::new(Fault::ChecksumMismatch, message).blamed_on(error.blame())
}
