//! Matches the two connections of an xroot third-party copy at its source. The client, which may read the file,
//! grants access to the destination server under a key; then that server opens the file with the key, in the client's
//! name.
//!
//! A grant permits one open of one file by one host, for a short time. Either connection may come first: XRootD
//! destinations begin as soon as they learn of the copy.

use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{sync::Notify, time::timeout_at};
use towpath_store::{
    Blame, Error, Fault, Result, StorePath,
    sys::clock::{self, Instant},
};

use crate::{access::Identity, fair_pool::LeaseHolder};

/// Maximum length of a key, in bytes. XRootD clients create keys of 24 bytes, dCache keys of 36.
const MAX_KEY_BYTES: usize = 128;

/// Maximum number of grants. They last a minute, so this allows about 60 new copies per second.
const MAX_GRANTS: usize = 4096;

/// Maximum number of grants of one [`LeaseHolder`] without a token: two new copies per second, none of which is fetched
/// within the minute. Others can get grants as long as fewer than 32 holders do that.
const MAX_GRANTS_OF_ONE: usize = 128;

/// Maximum number of grants of one holder with a token, such as a transfer service.
const MAX_GRANTS_OF_PERSON: usize = 1024;

/// Lifetime of a grant, by default and at most. XRootD uses 7 and 15 s.
const DEFAULT_TTL: Duration = Duration::from_secs(60);
const MAX_TTL: Duration = Duration::from_secs(300);

/// Maximum time that a server that comes first waits for the client.
const GRANT_TIMEOUT: Duration = Duration::from_secs(30);

/// The unused grants of a server.
#[derive(Debug, Default)]
pub(crate) struct Rendezvous {
    grants: Mutex<HashMap<Key, Grant>>,
    /// Notified of each new grant.
    granted: Notify,
}

/// The key shown by both sides. It is a secret, so it is not printed.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct Key(Box<[u8]>);

impl Key {
    /// Parses a key.
    ///
    /// # Errors
    /// `InvalidArgument` if it is empty or too long.
    pub(crate) fn new(text: &[u8]) -> Result<Self> {
        if text.is_empty() || text.len() > MAX_KEY_BYTES {
            let message = format!("a key of a third-party copy has 1 to {MAX_KEY_BYTES} bytes");
            return Err(Error::new(Fault::InvalidArgument, message));
        }
        Ok(Self(text.into()))
    }
}

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Key(***)")
    }
}

/// Permission for a host to open a file once, in the name of the grantor.
#[derive(Debug)]
pub(crate) struct Grant {
    /// The file.
    pub(crate) path: StorePath,
    /// The grantor, who may read the file.
    pub(crate) identity: Arc<Identity>,
    /// The grantor's login name, `user.pid`; the host sends it too.
    pub(crate) login: String,
    /// The addresses of the host.
    pub(crate) addresses: Vec<IpAddr>,
    expires: Instant,
}

impl Grant {
    /// Creates a grant that is valid from now on for `ttl`, within bounds.
    pub(crate) fn new(
        path: StorePath,
        identity: Arc<Identity>,
        login: String,
        addresses: Vec<IpAddr>,
        ttl: Option<Duration>,
    ) -> Self {
        let expires = clock::now() + ttl.unwrap_or(DEFAULT_TTL).min(MAX_TTL);
        Self { path, identity, login, addresses, expires }
    }

    fn granter(&self) -> Arc<LeaseHolder> {
        LeaseHolder::of(&self.identity.caller)
    }

    fn is_for(&self, attempt: &OpenAttempt<'_>) -> bool {
        self.path == *attempt.path
            && self.login == attempt.login
            && self.addresses.iter().any(|address| is_same_host(*address, attempt.address))
    }
}

/// A server that presents a key.
#[derive(Debug)]
pub(crate) struct OpenAttempt<'a> {
    /// The file to open.
    pub(crate) path: &'a StorePath,
    /// The login name that it sends for the client.
    pub(crate) login: &'a str,
    /// Its address.
    pub(crate) address: IpAddr,
}

/// Compares addresses; all loopback addresses are this machine.
fn is_same_host(one: IpAddr, other: IpAddr) -> bool {
    let (one, other) = (one.to_canonical(), other.to_canonical());
    one == other || (one.is_loopback() && other.is_loopback())
}

impl Rendezvous {
    fn grants(&self) -> MutexGuard<'_, HashMap<Key, Grant>> {
        self.grants.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets the host of `grant` open its file with `key`.
    ///
    /// # Errors
    /// `AlreadyExists` if the key is in use, which then becomes invalid: keys are random, so it has been stolen.
    /// `Overloaded` if there are too many grants, of this caller or in total.
    pub(crate) fn grant(&self, key: Key, grant: Grant) -> Result<()> {
        let now = clock::now();
        let mut grants = self.grants();
        grants.retain(|_, grant| grant.expires > now);
        if grants.remove(&key).is_some() {
            return Err(Error::new(Fault::AlreadyExists, "the key of the third-party copy is in use"));
        }
        let granter = grant.granter();
        let most = if granter.is_anonymous() { MAX_GRANTS_OF_ONE } else { MAX_GRANTS_OF_PERSON };
        if grants.values().filter(|other| other.granter() == granter).count() >= most {
            let message = format!("{most} of your prepared copies are waiting to be fetched: try again later");
            return Err(Error::new(Fault::Overloaded, message).blamed_on(Blame::Caller));
        }
        if grants.len() >= MAX_GRANTS {
            let message = "too many third-party copies of others are being prepared: try again later";
            return Err(Error::new(Fault::Overloaded, message));
        }
        grants.insert(key, grant);
        drop(grants);
        self.granted.notify_waiters();
        Ok(())
    }

    /// Consumes the grant for a visitor and returns the grantor; waits if the grant does not exist yet.
    ///
    /// # Errors
    /// `PermissionDenied` if there is no grant for this visitor and key in time.
    pub(crate) async fn take(&self, key: &Key, attempt: &OpenAttempt<'_>) -> Result<Arc<Identity>> {
        let end = clock::now() + GRANT_TIMEOUT;
        loop {
            let mut granted = std::pin::pin!(self.granted.notified());
            granted.as_mut().enable();
            if let Some(identity) = self.find(key, attempt) {
                return Ok(identity);
            }
            if timeout_at(end, granted).await.is_err() {
                let message = "this third-party copy was not granted, or not for this host";
                return Err(Error::new(Fault::PermissionDenied, message).at(attempt.path));
            }
        }
    }

    fn find(&self, key: &Key, attempt: &OpenAttempt<'_>) -> Option<Arc<Identity>> {
        let mut grants = self.grants();
        // A visitor with the right key for the wrong file, or from another host, must not consume the grant.
        grants.get(key).filter(|grant| grant.expires > clock::now() && grant.is_for(attempt))?;
        grants.remove(key).map(|grant| grant.identity)
    }
}

#[cfg(test)]
mod tests {
    use towpath_store::Caller;

    use super::*;

    const HOME: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));

    fn path(text: &str) -> StorePath {
        StorePath::parse(text.as_bytes()).unwrap()
    }

    fn key(text: &str) -> Key {
        Key::new(text.as_bytes()).unwrap()
    }

    fn grant(ttl_s: u64) -> Grant {
        grant_of(Caller::local(), ttl_s)
    }

    fn grant_of(caller: Caller, ttl_s: u64) -> Grant {
        let identity = Identity { caller, ..Identity::default() };
        let ttl = Some(Duration::from_secs(ttl_s));
        Grant::new(path("/f"), Arc::new(identity), "me.1".into(), vec![HOME], ttl)
    }

    async fn take(rendezvous: &Rendezvous, text: &str, at: &str, login: &str, from: &str) -> bool {
        let (at, address) = (path(at), from.parse().unwrap());
        rendezvous.take(&key(text), &OpenAttempt { path: &at, login, address }).await.is_ok()
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_opens_one_file_once_for_one_host() {
        let rendezvous = Rendezvous::default();
        rendezvous.grant(key("k"), grant(300)).unwrap();
        for (text, at, login, from) in [
            ("j", "/f", "me.1", "192.0.2.1"),
            ("k", "/g", "me.1", "192.0.2.1"),
            ("k", "/f", "me.2", "192.0.2.1"),
            ("k", "/f", "me.1", "192.0.2.2"),
            ("k", "/f", "me.1", "127.0.0.1"),
        ] {
            assert!(!take(&rendezvous, text, at, login, from).await, "{text} {at} {login} {from}");
        }
        assert!(take(&rendezvous, "k", "/f", "me.1", "::ffff:192.0.2.1").await);
        assert!(!take(&rendezvous, "k", "/f", "me.1", "192.0.2.1").await);
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_expires() {
        let rendezvous = Rendezvous::default();
        rendezvous.grant(key("k"), grant(1)).unwrap();
        tokio::time::advance(Duration::from_secs(2)).await;
        assert!(!take(&rendezvous, "k", "/f", "me.1", "192.0.2.1").await);
        rendezvous.grant(key("k"), grant(u64::MAX)).unwrap();
        tokio::time::advance(MAX_TTL + Duration::from_secs(1)).await;
        assert!(!take(&rendezvous, "k", "/f", "me.1", "192.0.2.1").await);
    }

    #[tokio::test(start_paused = true)]
    async fn the_host_may_come_first() {
        let rendezvous = Rendezvous::default();
        let attempt = take(&rendezvous, "k", "/f", "me.1", "192.0.2.1");
        let client = async {
            tokio::task::yield_now().await;
            rendezvous.grant(key("other"), grant(60)).unwrap();
            tokio::task::yield_now().await;
            rendezvous.grant(key("k"), grant(60)).unwrap();
        };
        let start = clock::now();
        assert!(tokio::join!(attempt, client).0);
        assert_eq!(clock::now(), start, "it did not wait for its time to run out");
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_that_two_know_is_good_for_nobody() {
        let rendezvous = Rendezvous::default();
        rendezvous.grant(key("k"), grant(60)).unwrap();
        assert_eq!(rendezvous.grant(key("k"), grant(60)).unwrap_err().fault(), Fault::AlreadyExists);
        assert!(!take(&rendezvous, "k", "/f", "me.1", "192.0.2.1").await);
    }

    fn at(address: &str) -> Caller {
        Caller { address: Some(address.parse().unwrap()), ..Caller::default() }
    }

    #[tokio::test(start_paused = true)]
    async fn one_reader_does_not_keep_the_others_from_copying() {
        let rendezvous = Rendezvous::default();
        for number in 0..MAX_GRANTS_OF_ONE {
            rendezvous.grant(key(&number.to_string()), grant_of(at("2001:db8::1"), 60)).unwrap();
        }
        let refused = rendezvous.grant(key("k"), grant_of(at("2001:db8::2"), 60)).unwrap_err();
        assert_eq!((refused.fault(), refused.blame()), (Fault::Overloaded, Blame::Caller));
        let alice = Caller { issuer: Some("https://issuer.test".into()), ..at("2001:db8::1") };
        for (name, other) in [("alice", alice), ("neighbour", at("2001:db8:0:1::1")), ("other", at("192.0.2.9"))] {
            rendezvous.grant(key(name), grant_of(other, 60)).unwrap();
        }
        assert!(take(&rendezvous, "0", "/f", "me.1", "192.0.2.1").await);
        rendezvous.grant(key("k"), grant_of(at("2001:db8::2"), 60)).unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn grants_are_bounded() {
        let rendezvous = Rendezvous::default();
        for number in 0..MAX_GRANTS {
            let reader = at(&format!("198.51.100.{}", number / MAX_GRANTS_OF_ONE));
            rendezvous.grant(key(&number.to_string()), grant_of(reader, 60)).unwrap();
        }
        let refused = rendezvous.grant(key("k"), grant(60)).unwrap_err();
        assert_eq!((refused.fault(), refused.blame()), (Fault::Overloaded, Blame::Storage));
        tokio::time::advance(Duration::from_secs(61)).await;
        rendezvous.grant(key("k"), grant(60)).unwrap();
        assert_eq!(rendezvous.grants().len(), 1);
        assert!(Key::new(&[b'x'; MAX_KEY_BYTES + 1]).is_err() && Key::new(b"").is_err());
        assert!(!format!("{rendezvous:?}").contains("\"k\""));
    }
}
