//! Third-party copies: transfers between this server's store and another server, requested by a client that takes no
//! part in the data transfer.
//!
//! The faces ([`crate::http`], [`crate::xrootd`]) parse the request and check the caller's rights to the local path.
//! Then [`State::begin`] checks the limits and the destination. [`CopyTask`] is the copy itself, in a separate task,
//! so that a client that reads progress slowly does not slow the copy down. Dropping it aborts the copy and nothing
//! becomes visible; received parts of a large file may stay for the next attempt.
//!
//! Not here: moving the bytes. The server does not know remote stores; its creator supplies [`Transfers`].

pub(crate) mod rendezvous;

use std::{
    fmt,
    net::IpAddr,
    pin::pin,
    sync::{
        Arc, LazyLock,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use async_trait::async_trait;
use futures::FutureExt as _;
use http::HeaderMap;
use tokio::{sync::Semaphore, task::JoinError, time::timeout};
use tokio_util::task::AbortOnDropHandle;
use towpath_proto::{checksum::Algorithm, destination_policy::DestinationPolicy, url::Url};
use towpath_store::{Blame, Caller, Error, Fault, Overwrite, Result, Secret, Store, StorePath, sys::net::Resolver};

use self::rendezvous::Rendezvous;
use crate::{
    Service, StartError,
    access::{Identity, Person},
    config::ThirdPartyConfig,
};

/// Resolves host names chosen by clients, separately from all other lookups, because their name servers may be
/// hostile or slow. 16 concurrent lookups: a copy needs one, and answers take milliseconds.
static FOREIGN_NAMES: LazyLock<Resolver> = LazyLock::new(|| Resolver::new(16));

/// Moves the bytes of third-party copies.
#[async_trait]
pub trait Transfers: Send + Sync + fmt::Debug {
    /// Copies one file between `store` and another server. On success the destination has the complete file, verified
    /// by size and by the digests that both ends know. Dropping the future aborts the copy: nothing of it is visible,
    /// but the destination may keep received parts so that a later copy of the same file can resume.
    ///
    /// Every connection, also after a redirect, is checked against `destinations`.
    async fn copy(
        &self,
        store: &Arc<dyn Store>,
        copy: &ThirdPartyCopy,
        destinations: &Arc<DestinationPolicy>,
        progress: &Arc<Progress>,
    ) -> Result<()>;
}

/// The direction of a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// From the other server to this one.
    Pull,
    /// From this server to the other one.
    Push,
}

impl Direction {
    /// Returns the name in logs and metrics.
    pub fn name(self) -> &'static str {
        match self {
            Direction::Pull => "pull",
            Direction::Push => "push",
        }
    }
}

/// A copy of one file.
#[derive(Debug, Clone)]
pub struct ThirdPartyCopy {
    /// The direction.
    pub direction: Direction,
    /// The file in this server's store.
    pub local: StorePath,
    /// The caller, for the store. Its token is valid for this server only.
    pub caller: Caller,
    /// The file on the other server.
    pub remote: Url,
    /// The bearer token for the other server.
    pub token: Option<Secret>,
    /// Additional header fields for the other server. They may be secrets, so they are not forwarded on redirects to
    /// other servers.
    pub headers: HeaderMap,
    /// What to do if the destination exists.
    pub overwrite: Overwrite,
    /// Verify this digest, even if one of the ends must read the file to compute it.
    pub checksum: Option<Algorithm>,
    /// Whether the source allows only one open, by one connection.
    pub opens_once: bool,
}

/// Progress of a copy.
#[derive(Debug, Default)]
pub struct Progress {
    /// Total number of bytes to write, over all attempts; 0 while unknown.
    expected: AtomicU64,
    written: AtomicU64,
    /// Whether existing data is being read back, or nothing is left to write.
    is_comparing: AtomicBool,
}

impl Progress {
    /// Records that the destination reads back the data of an earlier copy, which takes time in proportion to its
    /// size. [`Self::expect`] ends this phase.
    pub fn proves(&self) {
        self.is_comparing.store(true, Relaxed);
    }

    /// Records that `bytes` more are to be moved; for a resumed copy, the missing bytes.
    pub fn expect(&self, bytes: u64) {
        self.expected.store(self.written() + bytes, Relaxed);
        self.is_comparing.store(bytes == 0, Relaxed);
    }

    /// Records that `bytes` more have been written to the destination.
    pub fn wrote(&self, bytes: u64) {
        self.written.fetch_add(bytes, Relaxed);
    }

    /// Returns the number of bytes written to the destination so far.
    pub fn written(&self) -> u64 {
        self.written.load(Relaxed)
    }

    /// Returns the size of the whole file; 0 while unknown.
    pub fn expected(&self) -> u64 {
        self.expected.load(Relaxed)
    }

    /// Whether a storage verifies existing data or, at the end, the whole file. No bytes move during this time.
    fn is_comparing(&self) -> bool {
        let expected = self.expected.load(Relaxed);
        self.is_comparing.load(Relaxed) || (expected > 0 && self.written() >= expected)
    }
}

/// State shared by the third-party copies of a server.
#[derive(Debug)]
pub struct State {
    pub(crate) settings: ThirdPartyConfig,
    transfers: Option<Arc<dyn Transfers>>,
    destinations: Arc<DestinationPolicy>,
    permits: Arc<Semaphore>,
    pub(crate) rendezvous: Rendezvous,
}

impl State {
    /// Creates the state at server start. Without `transfers`, third-party copies are disabled.
    ///
    /// # Errors
    /// [`StartError::ThirdParty`] for an invalid entry of `allow`.
    pub fn new(settings: ThirdPartyConfig, transfers: Option<Arc<dyn Transfers>>) -> Result<Self, StartError> {
        let destinations = DestinationPolicy::beyond_public(&settings.allow)
            .map_err(|error| StartError::ThirdParty(error.to_string()))?;
        Ok(Self {
            transfers: transfers.filter(|_| settings.enabled),
            destinations: Arc::new(destinations),
            permits: Arc::new(Semaphore::new(settings.copies.max(1))),
            rendezvous: Rendezvous::default(),
            settings,
        })
    }

    /// Whether third-party copies are enabled.
    pub(crate) fn is_served(&self) -> bool {
        self.transfers.is_some()
    }

    /// Returns the number of copies in flight.
    pub fn in_flight(&self) -> usize {
        self.settings.copies.max(1) - self.permits.available_permits()
    }

    /// Rejects callers that may not request copies.
    ///
    /// # Errors
    /// `AuthenticationFailed` for an anonymous caller, unless the settings allow it.
    pub(crate) fn admit(&self, identity: &Identity) -> Result<()> {
        if self.settings.anonymous || !Person::of(&identity.caller).is_anonymous() {
            return Ok(());
        }
        Err(identity.unauthenticated("request third-party copies"))
    }

    /// Starts a copy if its destination is permitted and the limit on copies is not reached.
    ///
    /// # Errors
    /// `Unsupported` if copies are disabled, `PermissionDenied` for a host without a permitted address, `Overloaded`
    /// if too many copies are in flight, or the error of the host lookup.
    pub(crate) async fn begin(service: &Arc<Service>, copy: ThirdPartyCopy) -> Result<CopyTask> {
        let state = &service.third_party;
        let transfers = state.transfers.clone().ok_or_else(not_served)?;
        let permit = Arc::clone(&state.permits).try_acquire_owned().map_err(|_| {
            let message = format!("{} third-party copies are in progress: try again later", state.settings.copies);
            Error::new(Fault::Overloaded, message)
        })?;
        state.check(&copy.remote).await?;
        let progress = Arc::new(Progress::default());
        let (idle, destinations) = (state.settings.idle.0, Arc::clone(&state.destinations));
        let record = CopyRecord { service: Arc::clone(service), copy, progress: Arc::clone(&progress), outcome: None };
        let task = async move {
            let _permit = permit;
            let mut record = record;
            let copying = transfers.copy(&record.service.store, &record.copy, &destinations, &record.progress);
            let outcome = unless_idle(copying, &record.progress, idle).await;
            record.outcome = Some(outcome.clone());
            outcome
        };
        let task = AbortOnDropHandle::new(tokio::spawn(task));
        Ok(CopyTask { task, progress })
    }

    /// Rejects a host without a permitted address, for an early error message. Each connection checks its address
    /// again.
    async fn check(&self, url: &Url) -> Result<()> {
        let addresses = addresses(url).await?;
        if addresses.is_empty() || addresses.iter().any(|address| self.destinations.permits(url.host(), *address)) {
            return Ok(());
        }
        let message = format!("copies from and to {} are not allowed: it has no public address", url.host());
        Err(Error::new(Fault::PermissionDenied, message))
    }
}

/// Resolves the addresses of the host of `url`.
///
/// # Errors
/// `Unavailable` if the host is not found within ten seconds.
pub(crate) async fn addresses(url: &Url) -> Result<Vec<IpAddr>> {
    let found = FOREIGN_NAMES.resolve(url.host(), url.port()).await.map_err(|error| {
        let message = format!("{} cannot be found: {error}", url.host());
        Error::new(Fault::Unavailable, message).blamed_on(Blame::Network)
    })?;
    Ok(found.into_iter().map(|address| address.ip()).collect())
}

/// Returns the host name of a client's address, or the address as text if it has none.
pub(crate) async fn name_of(address: IpAddr) -> String {
    FOREIGN_NAMES.name_of(address).await.unwrap_or_else(|_| address.to_string())
}

/// Returns the error for disabled third-party copies.
pub(crate) fn not_served() -> Error {
    Error::new(Fault::Unsupported, "this server makes no third-party copies")
}

/// A copy in flight. Dropping it aborts the copy.
#[derive(Debug)]
pub(crate) struct CopyTask {
    task: AbortOnDropHandle<Result<()>>,
    pub(crate) progress: Arc<Progress>,
}

impl CopyTask {
    /// Waits for the copy to finish. Cancel safe until it has returned once.
    pub(crate) async fn finished(&mut self) -> Result<()> {
        (&mut self.task).map(|ended| ended.unwrap_or_else(|error| Err(broken(&error)))).await
    }
}

fn broken(error: &JoinError) -> Error {
    tracing::error!(%error, "the task of a third-party copy failed");
    Error::new(Fault::Internal, "the copy failed internally: see the server's log")
}

/// Aborts a copy that makes no progress for `idle`, at the latest after twice that time. No bytes move while storages
/// verify data; that phase is bounded by the calls that request it.
async fn unless_idle(copying: impl Future<Output = Result<()>>, progress: &Progress, idle: Duration) -> Result<()> {
    let mut copying = pin!(copying);
    loop {
        let before = progress.written();
        if let Ok(outcome) = timeout(idle, &mut copying).await {
            return outcome;
        }
        if progress.written() == before && !progress.is_comparing() {
            let message = format!("no byte was written for {} s", idle.as_secs_f64());
            return Err(Error::new(Fault::TimedOut, message).blamed_on(Blame::Network));
        }
    }
}

/// Logs and counts one finished copy. If dropped before it finished, the copy was cancelled by the client or by the
/// server's shutdown.
struct CopyRecord {
    service: Arc<Service>,
    copy: ThirdPartyCopy,
    progress: Arc<Progress>,
    outcome: Option<Result<()>>,
}

impl Drop for CopyRecord {
    fn drop(&mut self) {
        let unfinished = || match () {
            () if std::thread::panicking() => Error::new(Fault::Internal, "the copy panicked"),
            () if self.service.stopping.is_cancelled() => Error::new(Fault::Cancelled, "the server is stopping"),
            () => Error::new(Fault::Cancelled, "the client disconnected or cancelled it"),
        };
        let outcome = self.outcome.take().unwrap_or_else(|| Err(unfinished()));
        let (direction, bytes) = (self.copy.direction, self.progress.written());
        let fault = outcome.as_ref().err().map(Error::fault);
        self.service.metrics.record_copy(direction, fault, bytes);
        let (direction, local, host) = (direction.name(), &self.copy.local, self.copy.remote.host());
        match outcome {
            Ok(()) => tracing::info!(direction, %local, host, bytes, "third-party copy done"),
            Err(error) => tracing::info!(direction, %local, host, bytes, %error, "third-party copy failed"),
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::sleep;

    use super::*;

    const IDLE: Duration = Duration::from_secs(10);

    /// Runs a copy that verifies existing data, stalls, writes the missing bytes and is compared; durations are
    /// multiples of the idle timeout.
    async fn outcome(proof: u32, missing_bytes: u64, stall: u32, comparison: u32) -> Result<()> {
        let progress = Progress::default();
        let copying = async {
            progress.proves();
            sleep(IDLE * proof).await;
            progress.expect(missing_bytes);
            sleep(IDLE * stall).await;
            progress.wrote(missing_bytes);
            sleep(IDLE * comparison).await;
            Ok(())
        };
        unless_idle(copying, &progress, IDLE).await
    }

    #[tokio::test(start_paused = true)]
    async fn a_copy_may_move_nothing_while_storages_compare_and_not_otherwise() {
        outcome(100, 1, 0, 100).await.unwrap();
        outcome(100, 0, 0, 100).await.unwrap();
        assert_eq!(outcome(100, 1, 3, 0).await.unwrap_err().fault(), Fault::TimedOut);
        let never_begun = unless_idle(std::future::pending(), &Progress::default(), IDLE).await;
        assert_eq!(never_begun.unwrap_err().fault(), Fault::TimedOut);
    }
}
