//! Schedules the checks that an open file is still the version that was opened.
//!
//! Read requests of the protocol do not name the version, so a `stat` of the handle periodically accompanies a read in
//! the same flight. Times have whole seconds, so checks more frequent than [`INTERVAL`] would not detect more.
//!
//! A cache needs more: it confirms the version after each response ([`OpenOptions::confirms`]):
//!
//! | server | confirmation |
//! | --- | --- |
//! | towpath | none: it compares the version itself, after each read |
//! | XRootD, `readv` | a `stat` right behind it in the session, in the same round trip |
//! | others | a `stat` after the response |
//!
//! The last one has a session without bulk data if those in flight in the first one take longer than a request there;
//! behind them it would wait until all of them arrived.
//!
//! [`OpenOptions::confirms`]: towpath_store::OpenOptions::confirms

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use towpath_proto::xrootd::FileHandle;
use towpath_store::{
    Metadata, ReadHandle as _, Result,
    sys::clock::{self, Instant},
};

use super::{ReadStream, RemoteFile, reopen, submit_stat};
use crate::xrootd::{connection::Failure, metadata, session::HandleState};

/// Validity of the last check.
const INTERVAL: Duration = Duration::from_secs(1);

/// The last known state of a file, and its time.
#[derive(Debug, Default)]
pub(super) struct VersionCheck(Mutex<VersionState>);

#[derive(Debug, Default)]
struct VersionState {
    /// Time of the last check; `None` before the file has been opened.
    last: Option<Instant>,
    changed: bool,
}

impl VersionCheck {
    fn with<T>(&self, act: impl FnOnce(&mut VersionState) -> T) -> T {
        act(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Records that the file has been opened and its version is known; only the first call has an effect.
    pub(super) fn start(&self, now: Instant) {
        self.with(|seen| {
            seen.last.get_or_insert(now);
        });
    }

    /// Records that the file was found to be another version.
    pub(super) fn changed(&self) {
        self.with(|seen| seen.changed = true);
    }

    /// Returns whether the file has ever been found to be another version.
    pub(super) fn has_changed(&self) -> bool {
        self.with(|seen| seen.changed)
    }

    /// Returns whether a check is due; only one caller gets true per interval.
    pub(super) fn is_due(&self, now: Instant) -> bool {
        self.with(|seen| match seen.last {
            Some(last) if now - last >= INTERVAL => {
                seen.last = Some(now);
                true
            }
            _ => false,
        })
    }
}

impl RemoteFile {
    /// Checks that the file is still the version that was opened, if a check is due.
    pub(in crate::xrootd) async fn look(&self, stream: &ReadStream) -> Result<(), Failure> {
        let HandleState::Known(handle) = stream.file.handle_state() else { return Ok(()) };
        if !self.version_check.is_due(clock::now()) {
            return Ok(());
        }
        match self.compare(stream, handle).await {
            // The read reports other errors.
            Err(failure) if !failure.is_loss() && !self.version_check.has_changed() => Ok(()),
            outcome => outcome,
        }
    }

    /// Confirms that a read is of the version that was opened, if that is wanted. `after` is the state of the file after
    /// the read, if it is known.
    ///
    /// # Errors
    /// `Changed`; errors of the server.
    pub(in crate::xrootd) async fn confirm(&self, stream: &ReadStream, after: Option<&Metadata>) -> Result<()> {
        let compares_itself = stream.file.session.software().is_some_and(|software| software.is_ours);
        match after {
            _ if !self.options.confirms || compares_itself => Ok(()),
            Some(found) => self.expect_pinned(found),
            None => self.confirm_version().await,
        }
    }

    /// Returns whether a `stat` behind a `readv` confirms it.
    pub(in crate::xrootd) fn confirms_vectors(&self, stream: &ReadStream) -> bool {
        self.options.confirms && stream.file.session.reads_vectors_in_order()
    }

    /// Checks that everything that was read before is of the version that was opened. Costs a round trip.
    ///
    /// # Errors
    /// `Changed`; errors of the server.
    pub(super) async fn confirm_version(&self) -> Result<()> {
        let mut retry_state = self.origin.retry_state(true);
        let number = self.site().quiet_session();
        loop {
            self.check_version()?;
            let stream = self.read_stream(number, &mut retry_state)?;
            let confirmed = async {
                let (handle, _) = self.pinned(&stream).await?;
                // Also if it was opened just now: the request for that may be older than the data.
                self.compare(&stream, handle).await
            };
            let Err(failure) = confirmed.await else { return Ok(()) };
            if !matches!(failure, Failure::Wait { .. }) {
                self.abandon(&stream);
            }
            self.origin.handle_failure(&mut retry_state, &stream.site, reopen(failure)).await?;
        }
    }

    async fn compare(&self, stream: &ReadStream, handle: FileHandle) -> Result<(), Failure> {
        let found = metadata::of_stat(&submit_stat(stream, handle).await?);
        self.expect_pinned(&found).map_err(Failure::Fatal)
    }

    /// Checks that the file has the version that was opened, if one was.
    fn expect_pinned(&self, found: &Metadata) -> Result<()> {
        match self.pinned.get() {
            Some(pinned) if found.size != pinned.size || found.mtime_ns != pinned.mtime_ns => {
                self.version_check.changed();
                Err(self.changed())
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use towpath_store::sys::clock;

    use super::*;

    #[test]
    fn one_looks_once_an_interval() {
        let (version_check, start) = (VersionCheck::default(), clock::now());
        assert!(!version_check.is_due(start), "it has not been opened");
        version_check.start(start);
        assert!(!version_check.is_due(start + INTERVAL / 2));
        assert!(version_check.is_due(start + INTERVAL));
        assert!(!version_check.is_due(start + INTERVAL), "somebody else looks");
        assert!(version_check.is_due(start + INTERVAL * 2));
    }
}
