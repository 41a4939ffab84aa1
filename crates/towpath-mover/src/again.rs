//! A file that is copied again: from where it broke off, anew if nothing of it stayed or its source changed, and once more if it arrived damaged.

use std::time::Duration;

use tokio::time::sleep;
use towpath_proto::checksum::Digests;
use towpath_store::{Error, Fault, Result};

use crate::{
    Copied, Job, Mover,
    file::{self, Failure},
    progress::Part,
    window::Room,
};

/// The seconds before a copy that broke off goes on, the first ones after a start that brought something: a minute in all.
const PAUSES_S: [u64; 6] = [1, 2, 4, 8, 16, 30];

/// How often one source may change before that is told.
const MOST_CHANGES: u32 = 3;

/// How often one version of it may arrive damaged before that is told.
const MOST_DAMAGES: u32 = 1;

/// What earlier starts of one copy came to.
#[derive(Debug, Default)]
struct Starts {
    /// How often the source has changed.
    changes: u32,
    /// Starts in a row that brought nothing.
    losses: usize,
    /// What was missing when the last one that lost an end began to move bytes.
    missing_bytes: Option<u64>,
    /// How often it has arrived damaged.
    damages: u32,
    /// What the source promised of what arrived damaged.
    promised: Digests,
}

/// Copies one file, as [`file::copy`], with as many starts as bring it on.
pub(crate) async fn copy(job: &Job, part: &Part, mover: &Mover, mut room: Room) -> Result<Copied> {
    let mut starts = Starts::default();
    loop {
        let replicas = job.from.replicas();
        let failure = match file::copy(job, part, mover, room, &starts.promised).await {
            Ok(copied) => {
                replicas.inspect(|replicas| replicas.note_arrival());
                return Ok(copied);
            }
            Err(failure) => failure,
        };
        let (pause, error) = match replicas.is_some_and(|replicas| replicas.may_do_better(&failure)) {
            true => starts.with_others(failure),
            false => starts.after(failure)?,
        };
        let seconds = pause.as_secs();
        tracing::warn!(from = %job.from, to = %job.to, %error, seconds, "a copy starts again");
        sleep(pause).await;
        room = mover.first_room(job).await;
    }
}

impl Starts {
    /// How long to wait before the next start, and why there is to be one.
    ///
    /// # Errors
    /// The one to tell if there is to be none.
    fn after(&mut self, failure: Failure) -> Result<(Duration, Error)> {
        match failure {
            Failure::Changed(error) if self.changes < MOST_CHANGES => {
                *self = Self { changes: self.changes + 1, ..Self::default() };
                Ok((Duration::ZERO, error))
            }
            Failure::BrokenOff { error, missing_bytes } => {
                if self.missing_bytes.is_none_or(|before| missing_bytes < before) {
                    self.losses = 0;
                }
                self.missing_bytes = Some(missing_bytes);
                self.pause(error)
            }
            Failure::NotBegun(error) if self.missing_bytes.is_some() && is_loss(&error) => self.pause(error),
            Failure::Unlike { error, promised } if self.damages < MOST_DAMAGES => {
                self.damages += 1;
                self.promised = promised;
                Ok((Duration::ZERO, error))
            }
            failure => Err(self.in_doubt(failure.into())),
        }
    }

    /// How long to wait before a start that reads other sources of the file, and why there is to be one. What was promised of the file still holds.
    fn with_others(&mut self, failure: Failure) -> (Duration, Error) {
        let mut promised = std::mem::take(&mut self.promised);
        if let Failure::Unlike { promised: digests, .. } = &failure {
            digests.iter().for_each(|digest| promised.insert(*digest));
        }
        *self = Self { promised, ..Self::default() };
        (Duration::ZERO, failure.into())
    }

    /// `error`, which ends the copy. Of a file that is there it says if an earlier start may have made it.
    fn in_doubt(&self, error: Error) -> Error {
        if error.fault() != Fault::AlreadyExists || self.missing_bytes.is_none() {
            return error;
        }
        let message = format!("{}: this copy may have made it when its connection was lost", error.message());
        let told = Error::new(error.fault(), message).blamed_on(error.blame());
        match error.path() {
            Some(path) => told.at(path),
            None => told,
        }
    }

    fn pause(&mut self, error: Error) -> Result<(Duration, Error)> {
        let Some(seconds) = PAUSES_S.get(self.losses) else { return Err(error) };
        self.losses += 1;
        Ok((Duration::from_secs(*seconds), error))
    }
}

/// Whether an error is that of a network, or of a storage, that may be there again later.
pub(crate) fn is_loss(error: &Error) -> bool {
    matches!(error.fault(), Fault::Unavailable | Fault::TimedOut)
}

#[cfg(test)]
mod tests {
    use towpath_proto::checksum::{Algorithm, Hasher};

    use super::*;

    fn error(fault: Fault) -> Error {
        Error::new(fault, "as it was")
    }

    fn broken_off(missing_bytes: u64) -> Failure {
        Failure::BrokenOff { error: error(Fault::Unavailable), missing_bytes }
    }

    /// The seconds before the next start, or none.
    fn after(starts: &mut Starts, failure: Failure) -> Option<u64> {
        starts.after(failure).ok().map(|(pause, _)| pause.as_secs())
    }

    #[test]
    fn a_copy_goes_on_as_long_as_starts_bring_something() {
        let mut starts = Starts::default();
        for missing_bytes in (0..100).rev() {
            assert_eq!(after(&mut starts, broken_off(missing_bytes)), Some(1));
        }
        let lost = || Failure::NotBegun(error(Fault::TimedOut));
        let pauses = [broken_off(0), lost(), broken_off(0), lost(), lost()].map(|failure| after(&mut starts, failure));
        assert_eq!(pauses, [2, 4, 8, 16, 30].map(Some));
        assert_eq!(after(&mut starts, lost()), None);
    }

    #[test]
    fn what_has_not_begun_is_not_waited_for() {
        assert_eq!(after(&mut Starts::default(), Failure::NotBegun(error(Fault::Unavailable))), None);
        let mut starts = Starts::default();
        after(&mut starts, broken_off(10));
        assert_eq!(after(&mut starts, Failure::NotBegun(error(Fault::PermissionDenied))), None);
        assert_eq!(after(&mut starts, Failure::Final(error(Fault::Unavailable))), None);
    }

    #[test]
    fn what_exists_after_a_loss_may_be_the_copy_itself() {
        let exists = |starts: &mut Starts| starts.after(Failure::NotBegun(error(Fault::AlreadyExists))).unwrap_err();
        let mut starts = Starts::default();
        assert_eq!(exists(&mut starts).message(), "as it was");
        after(&mut starts, broken_off(10));
        assert!(exists(&mut starts).message().contains("this copy may have made it"));
    }

    #[test]
    fn a_source_may_change_three_times_and_arrive_damaged_once() {
        let mut starts = Starts::default();
        let unlike = || Failure::Unlike {
            error: error(Fault::ChecksumMismatch),
            promised: Hasher::digest_of(Algorithm::Crc32c, b"a").into(),
        };
        assert_eq!([unlike(), unlike()].map(|failure| after(&mut starts, failure)), [Some(0), None]);
        let damaged = || Failure::Unlike { error: error(Fault::ChecksumMismatch), promised: Digests::default() };
        assert_eq!([damaged(), damaged()].map(|failure| after(&mut starts, failure)), [None, None]);
        starts = Starts::default();
        assert_eq!([damaged(), damaged()].map(|failure| after(&mut starts, failure)), [Some(0), None]);
        let changed = || Failure::Changed(error(Fault::Changed));
        for _ in 0..3 {
            assert_eq!(after(&mut starts, changed()), Some(0));
            assert!(starts.promised.is_empty(), "another version has another digest");
        }
        assert_eq!(after(&mut starts, changed()), None);
    }
}
