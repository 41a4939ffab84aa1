//! Third-party copies: between this server's store and another server, at the request of a client through which no byte goes.
//!
//! The faces ([`crate::http`], [`crate::xrootd`]) read what is asked for and check that the caller may do that to the local path. Then
//! [`State::begin`] looks at the bounds and at where the copy would lead, and [`Running`] is the copy itself, in a task of its own: how fast a client reads
//! its progress must not slow it down. Dropping it ends the copy, and nothing of it is seen; of a large file what arrived may stay for the next attempt.
//!
//! What is not here: how bytes are moved. The server does not know remote stores; whoever starts it gives it [`Transfers`].

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
use towpath_proto::{checksum::Algorithm, reach::Reach, url::Url};
use towpath_store::{Blame, Caller, Error, Fault, Overwrite, Result, Secret, Store, StorePath, sys::net::Resolver};

use self::rendezvous::Rendezvous;
use crate::{Service, StartError, access::Person, config::ThirdPartyConfig};

/// Looks up the names that clients choose, so that a name server that they have chosen too keeps no other lookup waiting. 16 at once: a copy needs
/// one, and answers take milliseconds.
static FOREIGN_NAMES: LazyLock<Resolver> = LazyLock::new(|| Resolver::new(16));

/// What moves the bytes of third-party copies.
#[async_trait]
pub trait Transfers: Send + Sync + fmt::Debug {
    /// Makes one copy between `store` and another server. When it returns, the destination has all of it, compared in size with the source, and in
    /// the digests that both ends know. Dropping the future ends the copy; nothing of it is then visible, but the destination may keep what arrived, for
    /// another copy of the same file to go on from.
    ///
    /// It connects to nothing that `reach` does not permit, at each connection anew, redirects included.
    async fn copy(
        &self,
        store: &Arc<dyn Store>,
        copy: &ThirdPartyCopy,
        reach: &Arc<Reach>,
        progress: &Arc<Progress>,
    ) -> Result<()>;
}

/// Which way a copy goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// From the other server to this one.
    Pull,
    /// From this server to the other one.
    Push,
}

impl Direction {
    /// Its name in logs and metrics.
    pub fn name(self) -> &'static str {
        match self {
            Direction::Pull => "pull",
            Direction::Push => "push",
        }
    }
}

/// One copy of one file.
#[derive(Debug, Clone)]
pub struct ThirdPartyCopy {
    /// Which way.
    pub direction: Direction,
    /// The file in this server's store.
    pub local: StorePath,
    /// Who asked for it, for the store. The token in it is for this server alone.
    pub caller: Caller,
    /// The file at the other server.
    pub remote: Url,
    /// The bearer token to show there.
    pub token: Option<Secret>,
    /// Further header fields for the other server, which may be secrets. For that server alone, whatever it redirects to.
    pub headers: HeaderMap,
    /// What to do about a file that is there already.
    pub overwrite: Overwrite,
    /// Compare this digest, even if one of the two ends must read the file for it.
    pub checksum: Option<Algorithm>,
    /// The source gives the file once: it may be opened only once, and by one connection.
    pub opens_once: bool,
}

/// How far a copy has come.
#[derive(Debug, Default)]
pub struct Progress {
    /// All that is to be written, over all starts of the copy; 0 until that is known.
    expected: AtomicU64,
    written: AtomicU64,
    /// What is there already is being read back, or nothing is missing.
    is_comparing: AtomicBool,
}

impl Progress {
    /// The destination reads back what an earlier copy left of the file. How long that takes depends on its size only; [`Self::expect`] ends it.
    pub fn proves(&self) {
        self.is_comparing.store(true, Relaxed);
    }

    /// `bytes` more are to be moved: of a copy that goes on, what was missing then.
    pub fn expect(&self, bytes: u64) {
        self.expected.store(self.written() + bytes, Relaxed);
        self.is_comparing.store(bytes == 0, Relaxed);
    }

    /// `bytes` more have been written at the destination.
    pub fn wrote(&self, bytes: u64) {
        self.written.fetch_add(bytes, Relaxed);
    }

    /// Bytes written at the destination so far.
    pub fn written(&self) -> u64 {
        self.written.load(Relaxed)
    }

    /// Bytes of the whole file; 0 until that is known.
    pub fn expected(&self) -> u64 {
        self.expected.load(Relaxed)
    }

    /// Whether a storage compares what is there: what an earlier copy left, or at the end the whole. Nothing moves meanwhile.
    fn is_comparing(&self) -> bool {
        let expected = self.expected.load(Relaxed);
        self.is_comparing.load(Relaxed) || (expected > 0 && self.written() >= expected)
    }
}

/// What third-party copies of a server share.
#[derive(Debug)]
pub struct State {
    pub(crate) settings: ThirdPartyConfig,
    transfers: Option<Arc<dyn Transfers>>,
    reach: Arc<Reach>,
    places: Arc<Semaphore>,
    pub(crate) rendezvous: Rendezvous,
}

impl State {
    /// The state of a server that starts. Without `transfers` no copies are made.
    ///
    /// # Errors
    /// [`StartError::ThirdParty`] for an entry of `allow` that means nothing.
    pub fn new(settings: ThirdPartyConfig, transfers: Option<Arc<dyn Transfers>>) -> Result<Self, StartError> {
        let reach = Reach::beyond_public(&settings.allow).map_err(|error| StartError::ThirdParty(error.to_string()))?;
        Ok(Self {
            transfers: transfers.filter(|_| settings.enabled),
            reach: Arc::new(reach),
            places: Arc::new(Semaphore::new(settings.copies.max(1))),
            rendezvous: Rendezvous::default(),
            settings,
        })
    }

    /// Whether copies are made.
    pub fn is_served(&self) -> bool {
        self.transfers.is_some()
    }

    /// How many copies are under way.
    pub fn under_way(&self) -> usize {
        self.settings.copies.max(1) - self.places.available_permits()
    }

    /// Refuses callers that have no copies made here.
    ///
    /// # Errors
    /// `AuthenticationFailed` for an anonymous caller, unless the settings let them.
    pub(crate) fn admit(&self, caller: &Caller) -> Result<()> {
        if self.settings.anonymous || !Person::of(caller).is_anonymous() {
            return Ok(());
        }
        Err(Error::new(Fault::AuthenticationFailed, "anonymous callers have no third-party copies made: send a token"))
    }

    /// Starts a copy, if it may lead where it would, and there is a place for it.
    ///
    /// # Errors
    /// `Unsupported` if copies are not made here, `PermissionDenied` for a host that has no address which may be connected to, `Overloaded`
    /// if too many are under way, and why the host cannot be found.
    pub(crate) async fn begin(service: &Arc<Service>, copy: ThirdPartyCopy) -> Result<Running> {
        let state = &service.third_party;
        let transfers = state.transfers.clone().ok_or_else(not_served)?;
        let place = Arc::clone(&state.places).try_acquire_owned().map_err(|_| {
            let message = format!("{} third-party copies are under way: try again later", state.settings.copies);
            Error::new(Fault::Overloaded, message)
        })?;
        state.check(&copy.remote).await?;
        let progress = Arc::new(Progress::default());
        let (idle, reach) = (state.settings.idle.0, Arc::clone(&state.reach));
        let account = Account { service: Arc::clone(service), copy, progress: Arc::clone(&progress), outcome: None };
        let task = async move {
            let _place = place;
            let mut account = account;
            let copying = transfers.copy(&account.service.store, &account.copy, &reach, &account.progress);
            let outcome = unless_idle(copying, &account.progress, idle).await;
            account.outcome = Some(outcome.clone());
            outcome
        };
        let task = AbortOnDropHandle::new(tokio::spawn(task));
        Ok(Running { task, progress })
    }

    /// Refuses a host none of whose addresses may be connected to, so that the caller is told at once. What counts is asked again with
    /// each connection.
    async fn check(&self, url: &Url) -> Result<()> {
        let addresses = addresses(url).await?;
        if addresses.is_empty() || addresses.iter().any(|address| self.reach.permits(url.host(), *address)) {
            return Ok(());
        }
        let message = format!("copies from and to {} are not allowed: it has no public address", url.host());
        Err(Error::new(Fault::PermissionDenied, message))
    }
}

/// The addresses of the host of `url`.
///
/// # Errors
/// `Unavailable` if it cannot be found within ten seconds.
pub(crate) async fn addresses(url: &Url) -> Result<Vec<IpAddr>> {
    let found = FOREIGN_NAMES.resolve(url.host(), url.port()).await.map_err(|error| {
        let message = format!("{} cannot be found: {error}", url.host());
        Error::new(Fault::Unavailable, message).blamed_on(Blame::Network)
    })?;
    Ok(found.into_iter().map(|address| address.ip()).collect())
}

/// Returns the name of a client's address, or the address as text if it has none.
pub(crate) async fn name_of(address: IpAddr) -> String {
    FOREIGN_NAMES.name_of(address).await.unwrap_or_else(|_| address.to_string())
}

/// That no third-party copies are made here.
pub(crate) fn not_served() -> Error {
    Error::new(Fault::Unsupported, "this server makes no third-party copies")
}

/// A copy under way. Dropping it ends the copy.
#[derive(Debug)]
pub(crate) struct Running {
    task: AbortOnDropHandle<Result<()>>,
    pub(crate) progress: Arc<Progress>,
}

impl Running {
    /// Waits for its end. It may be given up and called again, until it has returned once.
    pub(crate) async fn finished(&mut self) -> Result<()> {
        (&mut self.task).map(|ended| ended.unwrap_or_else(|error| Err(broken(&error)))).await
    }
}

fn broken(error: &JoinError) -> Error {
    tracing::error!(%error, "a third-party copy ended by itself");
    Error::new(Fault::Internal, "the copy ended by itself: the server's log says why")
}

/// Ends a copy that has moved nothing for `idle`, and at the latest after twice that. While storages compare what they have nothing moves; how
/// long that may take is up to whoever asks them.
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

/// The account of one copy: one line in the log and one count in the metrics, when it has ended. Dropped before that, it was cancelled: by the client, or
/// because the server stops.
struct Account {
    service: Arc<Service>,
    copy: ThirdPartyCopy,
    progress: Arc<Progress>,
    outcome: Option<Result<()>>,
}

impl Drop for Account {
    fn drop(&mut self) {
        let unfinished = || match () {
            () if std::thread::panicking() => Error::new(Fault::Internal, "it ended by a defect"),
            () if self.service.stopping.is_cancelled() => Error::new(Fault::Cancelled, "the server stops"),
            () => Error::new(Fault::Cancelled, "the client has left, or does not want it any more"),
        };
        let outcome = self.outcome.take().unwrap_or_else(|| Err(unfinished()));
        let (direction, bytes) = (self.copy.direction, self.progress.written());
        let fault = outcome.as_ref().err().map(Error::fault);
        self.service.metrics.copied(direction, fault, bytes);
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

    /// The outcome of a copy that proves what is there, stalls, writes what is missing, and is compared, each for so many times the patience.
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
