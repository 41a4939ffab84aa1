//! Retries of a copy: it resumes after a lost connection, restarts if nothing was kept or the source changed, and
//! restarts once if the data arrived corrupted.

use std::{fmt, time::Duration};

use tokio::time::sleep;
use towpath_proto::checksum::Digests;
use towpath_store::{
    Backoff, Error, Fault, Result,
    sys::clock::{self, Instant},
};

use crate::{
    Job,
    context::{CopyContext, FILE_BYTES, first_bytes},
    copied_file::CopiedFile,
    file::{self, Failure},
    progress::FileProgress,
    stage::Stage,
    window::Permit,
};

/// Backoff before each retry after a loss. It restarts after an attempt that made progress.
const BACKOFF: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(30));

/// Maximum number of consecutive losses without progress: about a minute of backoff in all.
const MAX_LOSSES: u32 = 6;

/// Maximum number of restarts because the source changed.
const MAX_SOURCE_CHANGES: u32 = 3;

/// Maximum number of restarts because one version of the source arrived corrupted.
const MAX_CORRUPTIONS: u32 = 1;

/// The next attempt of a copy, displayed in one line: `retrying in 2 s (attempt 3 of 7): REASON`.
#[derive(Debug)]
pub struct RetryNotice {
    /// Pause before the attempt.
    pub pause: Duration,
    /// Number of the attempt in its series, counted from 1, and of the last one; `None` if other sources are used.
    pub attempt: Option<(u32, u32)>,
    /// The error of the last attempt.
    pub error: Error,
}

impl RetryNotice {
    fn immediate(error: Error, attempt: Option<(u32, u32)>) -> Self {
        Self { pause: Duration::ZERO, attempt, error }
    }
}

impl fmt::Display for RetryNotice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.pause.as_secs_f64().ceil() {
            0.0 => f.write_str("retrying now")?,
            seconds => write!(f, "retrying in {seconds} s")?,
        }
        match self.attempt {
            Some((number, last)) => write!(f, " (attempt {number} of {last})")?,
            None => f.write_str(" with other sources")?,
        }
        write!(f, ": {}", self.error)
    }
}

/// The retry state of one copy.
#[derive(Debug)]
struct CopyRetry {
    /// Restarts because the source changed.
    source_changes: u32,
    /// Counts consecutive attempts that lost a connection without progress.
    backoff: Backoff,
    /// When the first of these attempts began.
    since: Instant,
    /// Bytes that were missing when the last attempt that lost a connection began to transfer.
    missing_bytes: Option<u64>,
    /// Restarts because the data arrived corrupted.
    corruptions: u32,
    /// Digests that the source promised of the data that arrived corrupted.
    promised: Digests,
}

/// Copies one file as [`file::copy`] does, with retries as long as they make progress.
pub(crate) async fn copy(
    job: &Job,
    part: &FileProgress,
    context: &CopyContext,
    mut permit: Permit,
) -> Result<CopiedFile> {
    let mut retry = CopyRetry::default();
    loop {
        let replicas = job.from.replicas();
        let failure = match file::copy(job, part, context, permit, &retry.promised).await {
            Ok(copied) => {
                replicas.inspect(|replicas| replicas.note_arrival());
                return Ok(copied);
            }
            Err(failure) => failure,
        };
        let retry_notice = match replicas.is_some_and(|replicas| replicas.may_do_better(&failure)) {
            true => retry.after_source_failure(failure),
            false => retry.backoff_after(failure)?,
        };
        let _stage = context.stages.enter(Stage::Retry, FILE_BYTES + first_bytes(job));
        let retry_notice = RetryNotice { error: job.locate(retry_notice.error), ..retry_notice };
        context.progress.retries(job, &retry_notice);
        sleep(retry_notice.pause).await;
        permit = context.first_permit(job).await;
    }
}

impl Default for CopyRetry {
    fn default() -> Self {
        Self {
            source_changes: 0,
            backoff: BACKOFF,
            since: clock::now(),
            missing_bytes: None,
            corruptions: 0,
            promised: Digests::default(),
        }
    }
}

impl CopyRetry {
    /// Returns the next attempt.
    ///
    /// # Errors
    /// The error of the copy if it is not retried.
    fn backoff_after(&mut self, failure: Failure) -> Result<RetryNotice> {
        match failure {
            Failure::Changed(error) if self.source_changes < MAX_SOURCE_CHANGES => {
                *self = Self { source_changes: self.source_changes + 1, ..Self::default() };
                Ok(RetryNotice::immediate(error, Some((self.source_changes + 1, MAX_SOURCE_CHANGES + 1))))
            }
            Failure::BrokenOff { error, missing_bytes } => {
                if self.missing_bytes.is_none_or(|before| missing_bytes < before) {
                    self.backoff.reset();
                    self.since = clock::now();
                }
                self.missing_bytes = Some(missing_bytes);
                self.after_loss(error)
            }
            Failure::NotBegun(error) if self.missing_bytes.is_some() && Failure::is_loss(&error) => {
                self.after_loss(error)
            }
            Failure::Unlike { error, promised } if self.corruptions < MAX_CORRUPTIONS => {
                self.corruptions += 1;
                self.promised = promised;
                Ok(RetryNotice::immediate(error, Some((self.corruptions + 1, MAX_CORRUPTIONS + 1))))
            }
            failure => Err(self.explain_existing(failure.into())),
        }
    }

    /// Returns the next attempt, with other sources of the file. Digests promised of the file still hold.
    fn after_source_failure(&mut self, failure: Failure) -> RetryNotice {
        let mut promised = std::mem::take(&mut self.promised);
        if let Failure::Unlike { promised: digests, .. } = &failure {
            digests.iter().for_each(|digest| promised.insert(*digest));
        }
        *self = Self { promised, ..Self::default() };
        RetryNotice::immediate(failure.into(), None)
    }

    /// Returns `error`, which ends the copy. If the destination already exists, the message says that an earlier
    /// attempt may have created it.
    fn explain_existing(&self, error: Error) -> Error {
        if error.fault() != Fault::AlreadyExists || self.missing_bytes.is_none() {
            return error;
        }
        let message = format!("{}: this copy may have created it when its connection was lost", error.message());
        error.with_message(message)
    }

    /// Returns the next attempt after the loss of a connection.
    ///
    /// # Errors
    /// `error` if there have been too many losses in a row.
    fn after_loss(&mut self, error: Error) -> Result<RetryNotice> {
        if self.backoff.failures() == MAX_LOSSES {
            return Err(error.after_attempts(MAX_LOSSES + 1, self.since.elapsed()));
        }
        let pause = self.backoff.fail();
        Ok(RetryNotice { pause, attempt: Some((self.backoff.failures() + 1, MAX_LOSSES + 1)), error })
    }
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

    /// Returns the backoff in seconds before the next attempt; none if there is no further attempt.
    fn backoff_after(retry: &mut CopyRetry, failure: Failure) -> Option<u64> {
        retry.backoff_after(failure).ok().map(|notice| notice.pause.as_secs())
    }

    #[test]
    fn a_copy_is_retried_as_long_as_attempts_make_progress() {
        let mut retry = CopyRetry::default();
        for missing_bytes in (0..100).rev() {
            assert_eq!(backoff_after(&mut retry, broken_off(missing_bytes)), Some(1));
        }
        let lost = || Failure::NotBegun(error(Fault::TimedOut));
        let backoffs =
            [broken_off(0), lost(), broken_off(0), lost(), lost()].map(|failure| backoff_after(&mut retry, failure));
        assert_eq!(backoffs, [2, 4, 8, 16, 30].map(Some));
        assert_eq!(backoff_after(&mut retry, lost()), None);
    }

    #[test]
    fn a_retry_is_announced_with_its_pause_and_its_number() {
        let mut retry = CopyRetry::default();
        retry.backoff_after(broken_off(9)).unwrap();
        let notice = retry.backoff_after(broken_off(9)).unwrap().to_string();
        assert_eq!(notice, "retrying in 2 s (attempt 3 of 7): as it was");
        let notice = retry.backoff_after(Failure::Changed(error(Fault::Changed))).unwrap().to_string();
        assert_eq!(notice, "retrying now (attempt 2 of 4): as it was");
        let notice = retry.after_source_failure(broken_off(9)).to_string();
        assert_eq!(notice, "retrying now with other sources: as it was");
    }

    #[test]
    fn a_copy_that_has_not_begun_is_not_retried() {
        assert_eq!(backoff_after(&mut CopyRetry::default(), Failure::NotBegun(error(Fault::Unavailable))), None);
        let mut retry = CopyRetry::default();
        backoff_after(&mut retry, broken_off(10));
        assert_eq!(backoff_after(&mut retry, Failure::NotBegun(error(Fault::PermissionDenied))), None);
        assert_eq!(backoff_after(&mut retry, Failure::Final(error(Fault::Unavailable))), None);
    }

    #[test]
    fn an_existing_file_after_a_loss_may_be_the_copy_itself() {
        let exists =
            |retry: &mut CopyRetry| retry.backoff_after(Failure::NotBegun(error(Fault::AlreadyExists))).unwrap_err();
        let mut retry = CopyRetry::default();
        assert_eq!(exists(&mut retry).message(), "as it was");
        backoff_after(&mut retry, broken_off(10));
        assert!(exists(&mut retry).message().contains("this copy may have created it"));
    }

    #[test]
    fn a_source_may_change_three_times_and_arrive_corrupted_once() {
        let mut retry = CopyRetry::default();
        let unlike = || Failure::Unlike {
            error: error(Fault::ChecksumMismatch),
            promised: Hasher::digest_of(Algorithm::Crc32c, b"a").into(),
        };
        assert_eq!([unlike(), unlike()].map(|failure| backoff_after(&mut retry, failure)), [Some(0), None]);
        let damaged = || Failure::Unlike { error: error(Fault::ChecksumMismatch), promised: Digests::default() };
        assert_eq!([damaged(), damaged()].map(|failure| backoff_after(&mut retry, failure)), [None, None]);
        retry = CopyRetry::default();
        assert_eq!([damaged(), damaged()].map(|failure| backoff_after(&mut retry, failure)), [Some(0), None]);
        let changed = || Failure::Changed(error(Fault::Changed));
        for _ in 0..3 {
            assert_eq!(backoff_after(&mut retry, changed()), Some(0));
            assert!(retry.promised.is_empty(), "another version has another digest");
        }
        assert_eq!(backoff_after(&mut retry, changed()), None);
    }
}
