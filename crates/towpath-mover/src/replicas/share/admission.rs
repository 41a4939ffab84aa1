//! Decides which sources are read.
//!
//! Bytes of several sources may be mixed only if a digest of the whole file is known, because only that shows that the
//! result is one file: sources with the same size, time and even entity tag may have different content. The digest
//! comes from a Metalink or a source, or a source computes it on request ([`super::super::proof`]). A source whose own
//! digest has not been compared first delivers a piece that another source delivered too ([`Overlap`]): two different
//! files are detected immediately, not after a complete read.
//!
//! As long as no digest is known only the lead is read, and permanently once none is available. If the lead is then
//! lost, its data cannot be continued from another source: the copy restarts.

use std::{sync::Arc, time::Duration};

use towpath_proto::checksum::{Agreement, Digest};
use towpath_store::{Blame, Error, Fault, Metadata, Result};

use super::{Handle, Source, SourcePool, Standing, State, attempt::read_exactly};
use crate::{
    DigestOrigin,
    file::Failure,
    replicas::{FileProperties, evidence::DeliveredPiece},
};

/// A piece that a source must deliver identically to another source before it is read.
#[derive(Debug)]
pub(in super::super) struct Overlap {
    handle: Handle,
    given: DeliveredPiece,
}

impl Overlap {
    /// Reads the piece and returns whether it is identical.
    ///
    /// # Errors
    /// Errors of the source.
    pub(in super::super) async fn is_same(&self) -> Result<bool> {
        Ok(self.given.is_like(&read_exactly(&self.handle, self.given.offset, self.given.bytes).await?))
    }
}

impl SourcePool {
    /// Waits for a source that may compute its digest, the lead first. Returns `None` if none is left, or if no digest
    /// is needed any more.
    pub(in super::super) async fn next_to_compute(&self) -> Option<usize> {
        loop {
            let changed = self.changed.notified();
            {
                let state = self.state();
                if state.is_provable() || state.is_alone {
                    return None;
                }
                let mut lead_first: Vec<_> = (0..state.sources.len()).collect();
                lead_first.sort_by_key(|index| Some(*index) != state.lead);
                if let Some(next) = lead_first.into_iter().find(|index| state.sources[*index].may_compute()) {
                    return Some(next);
                }
                let may_come = |standing: &Standing| matches!(standing, Standing::Asked | Standing::Answered(..));
                if !state.sources.iter().any(|source| may_come(&source.standing)) {
                    return None;
                }
            }
            changed.await;
        }
    }

    /// Records the digest that a source computed.
    pub(in super::super) fn computed(&self, index: usize, digest: Digest) {
        let mut state = self.state();
        state.sources[index].digests.insert(digest);
        state.note(digest, DigestOrigin::Computed);
        state.compare_digests(&self.known);
        state.admit(&self.known);
        drop(state);
        self.changed.notify_waiters();
    }

    /// Records that a source does not compute a digest.
    pub(in super::super) fn computes_none(&self, index: usize) {
        self.state().sources[index].computes_none = true;
    }

    /// Restricts reads to the lead, unless a digest is known or being computed.
    pub(in super::super) fn stay_alone(&self) {
        let mut state = self.state();
        if !state.is_provable() && !state.sources.iter().any(Source::may_compute) {
            state.is_alone = true;
        }
        drop(state);
        self.changed.notify_waiters();
    }

    /// Returns whether only one source is read.
    pub(in super::super) fn is_alone(&self) -> bool {
        self.state().is_alone
    }

    /// Returns the source that determines the version to copy.
    pub(in super::super) fn lead(&self) -> Option<usize> {
        self.state().lead
    }

    /// Returns whether the lead was lost and its data cannot be continued from another source.
    pub(in super::super) fn has_lost_lead(&self) -> bool {
        let state = self.state();
        state.lost().is_some_and(|error| error.fault() != Fault::Changed || state.lead.is_none())
    }

    /// Returns the origin of a digest that the sources agree on.
    pub(in super::super) fn origin(&self, digest: &Digest) -> Option<DigestOrigin> {
        self.state().origins.iter().find(|(known, _)| known == digest).map(|(_, origin)| *origin)
    }

    /// Waits until a digest is known or known to be unavailable, but no longer than `patience`.
    pub(in super::super) async fn decided(&self, patience: Duration) {
        let waiting = async {
            loop {
                let changed = self.changed.notified();
                {
                    let state = self.state();
                    if state.is_provable() || state.is_alone || state.check_left().is_err() {
                        return;
                    }
                }
                changed.await;
            }
        };
        if tokio::time::timeout(patience, waiting).await.is_err() {
            // Sources that have not even responded are not waited for.
            self.stay_alone();
        }
    }

    /// Waits for a piece of another source that this source must deliver identically before it is read. Returns `None`
    /// if no comparison is needed.
    pub(in super::super) async fn overlap(&self, index: usize) -> Option<Overlap> {
        loop {
            let changed = self.changed.notified();
            {
                let state = self.state();
                match &state.sources[index].standing {
                    _ if state.is_alone => return None,
                    Standing::Candidate(handle) if state.is_provable() => {
                        if let Some(given) = state.evidence.of_others_than(index) {
                            return Some(Overlap { handle: Arc::clone(handle), given });
                        }
                    }
                    Standing::Candidate(_) | Standing::Answered(..) => {}
                    _ => return None,
                }
            }
            changed.await;
        }
    }

    /// Records the result of comparing a piece with that of another source.
    pub(in super::super) fn compared(&self, index: usize, is_same: Result<bool>) {
        let mut state = self.state();
        match is_same {
            Ok(true) => state.sources[index].is_compared = true,
            Ok(false) => state.sources[index].contradicts("content"),
            Err(error) => state.sources[index].standing = Standing::Out(error),
        }
        state.compare_digests(&self.known);
        state.admit(&self.known);
        drop(state);
        self.changed.notify_waiters();
    }

    /// Returns the handles of the sources that delivered data, or of the lead if none did.
    pub(in super::super) fn givers(&self) -> Vec<Handle> {
        let state = self.state();
        let gave = |index: usize| state.sources[index].bytes > 0 || state.lead == Some(index);
        let handles = state.sources.iter().enumerate().filter(|(index, _)| gave(*index));
        let handles = handles.filter_map(|(_, source)| match &source.standing {
            Standing::Ready(handle) | Standing::Candidate(handle) => Some(Arc::clone(handle)),
            _ => None,
        });
        handles.collect()
    }
}

impl State {
    /// Classifies the sources that have responded, once the version is known.
    pub(super) fn settle(&mut self, known: &FileProperties, is_enough: bool) {
        if self.agreed.is_none() && !self.choose_lead(known, is_enough) {
            return;
        }
        let Some(size) = self.agreed.as_ref().map(|agreed| agreed.size) else { return };
        for index in 0..self.sources.len() {
            let source = &mut self.sources[index];
            let Standing::Answered(metadata, handle) = &source.standing else { continue };
            if metadata.size != size {
                source.contradicts("size");
                continue;
            }
            let digests = metadata.digests.clone();
            source.standing = Standing::Candidate(Arc::clone(handle));
            source.digests = digests.clone();
            digests.iter().for_each(|digest| self.note(*digest, DigestOrigin::Reported));
        }
        self.compare_digests(known);
        self.admit(known);
    }

    /// Records the origin of a digest.
    fn note(&mut self, digest: Digest, origin: DigestOrigin) {
        if !self.origins.iter().any(|(known, _)| *known == digest) {
            self.origins.push((digest, origin));
        }
    }

    /// Collects the digests of the file: those given with the list of sources, those of the lead, and those of other
    /// sources that do not contradict; contradicting sources are excluded. The digest of a source that delivered a
    /// part stays when that source fails.
    fn compare_digests(&mut self, known: &FileProperties) {
        let Some(lead) = self.lead else { return };
        let mut promised = known.digests.clone();
        self.sources[lead].digests.iter().for_each(|digest| promised.insert(*digest));
        let of_lead = promised.clone();
        for (index, source) in self.sources.iter_mut().enumerate() {
            // Digests of other sources do not count if only the lead is read.
            if self.is_alone || index == lead || !source.has_vote() {
                continue;
            }
            if matches!(source.digests.compare(&promised), Agreement::Different(_)) {
                source.contradicts("digest");
                continue;
            }
            source.is_compared |= source.digests.compare(&of_lead) == Agreement::Same;
            source.digests.iter().for_each(|digest| promised.insert(*digest));
        }
        if let Some(agreed) = &mut self.agreed {
            agreed.digests = promised;
        }
    }

    /// Selects the first source that has responded as lead, unless an earlier one has to be waited for. A source that
    /// reports an empty file is not selected while another may have content: many servers report 0 for an unknown size.
    fn choose_lead(&mut self, known: &FileProperties, is_enough: bool) -> bool {
        let size = |standing: &Standing| match standing {
            Standing::Answered(Metadata { size, .. }, _) => Some(*size),
            _ => None,
        };
        let sizes: Vec<_> = self.sources.iter().map(|source| size(&source.standing)).collect();
        let filled = sizes.iter().position(|size| size.is_some_and(|size| size > 0));
        let Some(lead) = filled.or_else(|| sizes.iter().position(Option::is_some)) else { return false };
        let waited_for = if filled.is_some() { lead } else { self.sources.len() };
        let mut earlier = self.sources.iter().take(waited_for);
        let waits =
            known.size.is_none() && !is_enough && earlier.any(|source| matches!(source.standing, Standing::Asked));
        if waits {
            return false;
        }
        if let Standing::Answered(metadata, _) = &self.sources[lead].standing {
            self.agreed = Some(metadata.clone());
            self.lead = Some(lead);
            known.digests.iter().for_each(|digest| self.note(*digest, DigestOrigin::Named));
        }
        true
    }

    /// Returns whether a digest will show that the arrived data are of one file.
    pub(super) fn is_provable(&self) -> bool {
        self.agreed.as_ref().is_some_and(|agreed| !agreed.digests.is_empty())
    }

    /// Returns whether pieces may come from different sources.
    fn may_change_source(&self) -> bool {
        self.is_provable() && !self.is_alone
    }

    /// Admits sources for reading: the lead, and with a digest all sources that were compared, or that were given
    /// together with the digest.
    pub(super) fn admit(&mut self, known: &FileProperties) {
        let (lead, may_change) = (self.lead, self.may_change_source());
        let is_named = !known.digests.is_empty();
        let is_ready = |standing: &Standing| matches!(standing, Standing::Ready(_));
        let lead_is_left = lead.is_some_and(|lead| !matches!(self.sources[lead].standing, Standing::Out(_)));
        // Without the lead no data for a comparison may arrive: then the digest alone decides.
        let none_else = !lead_is_left && !self.sources.iter().any(|source| is_ready(&source.standing));
        for (index, source) in self.sources.iter_mut().enumerate() {
            let Standing::Candidate(handle) = &source.standing else { continue };
            if lead == Some(index) || (may_change && (is_named || source.is_compared || none_else)) {
                source.standing = Standing::Ready(Arc::clone(handle));
            }
        }
    }

    /// # Errors
    /// An error if no source can deliver the missing data.
    pub(super) fn check_left(&self) -> Result<()> {
        let errors = self.sources.iter().filter_map(|source| match &source.standing {
            Standing::Out(error) => Some(error),
            _ => None,
        });
        let errors: Vec<_> = errors.collect();
        if errors.len() < self.sources.len() {
            return self.check_lead();
        }
        // Prefer the error of a source that may recover, because it decides whether the copy is retried.
        let is_lie = |error: &&&Error| error.fault() == Fault::ChecksumMismatch;
        let error =
            errors.iter().find(|error| Failure::is_loss(error)).or(errors.iter().find(is_lie)).or(errors.first());
        let Some(error) = error else { return Err(Error::new(Fault::InvalidArgument, "no source is given")) };
        if let [only] = errors[..] {
            return Err(only.clone());
        }
        let message = format!("all {} sources failed; one of them: {error}", errors.len());
        Err(Error::new(error.fault(), message).blamed_on(error.blame()).with_retryable(error.is_retryable()))
    }

    /// Returns the error of the only source that may be read, if it was lost.
    fn lost(&self) -> Option<&Error> {
        let only = self.lead.or(self.only).filter(|_| !self.may_change_source())?;
        match &self.sources[only].standing {
            Standing::Out(error) => Some(error),
            _ => None,
        }
    }

    /// # Errors
    /// An error if the only source that may be read is excluded.
    fn check_lead(&self) -> Result<()> {
        let Some(error) = self.lost() else { return Ok(()) };
        if error.fault() == Fault::Changed {
            return Err(error.clone());
        }
        let message = format!("a source was lost, and the others are not known to have the same file: {error}");
        Err(Error::new(Fault::Changed, message).blamed_on(Blame::Storage))
    }
}
