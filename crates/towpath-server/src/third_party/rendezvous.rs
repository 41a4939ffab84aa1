//! Where the two connections of an xroot third-party copy meet at its source: the client, who may read the file, says to which server it is
//! to be given, under a key; then that server opens it with the key, in the client's name.
//!
//! A grant is for one open, by one host, of one file, for a short time. Either of the two may come first: XRootD's destinations
//! begin as soon as they are told that there will be a copy.

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

use crate::{access::Identity, shares::Holder};

/// The longest key, in bytes. XRootD's clients make keys of 24, dCache's of 36.
const MAX_KEY_BYTES: usize = 128;

/// Grants at once. They live for a minute, so this is some 60 copies begun each second.
const MAX_GRANTS: usize = 4096;

/// Grants at once of one [`Holder`] without a token: two copies begun each second, none of which is fetched within the minute. Others have room as
/// long as fewer than 32 do that.
const MAX_GRANTS_OF_ONE: usize = 128;

/// The same of one with a token, as a transfer service has.
const MAX_GRANTS_OF_PERSON: usize = 1024;

/// How long a grant holds if its client does not say, and at most. XRootD: 7 and 15 s.
const USUAL_TTL: Duration = Duration::from_secs(60);
const LONGEST_TTL: Duration = Duration::from_secs(300);

/// How long a server that comes first waits for the client.
const PATIENCE: Duration = Duration::from_secs(30);

/// The grants of a server that have not been used.
#[derive(Debug, Default)]
pub(crate) struct Rendezvous {
    grants: Mutex<HashMap<Key, Grant>>,
    /// Told of each new grant.
    granted: Notify,
}

/// What both sides show. It is a secret, and does not print.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct Key(Box<[u8]>);

impl Key {
    /// Reads a key.
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

/// That a host may open a file once, in the name of whoever granted it.
#[derive(Debug)]
pub(crate) struct Grant {
    /// The file.
    pub(crate) path: StorePath,
    /// Who may read it, and lets the host read it.
    pub(crate) identity: Arc<Identity>,
    /// What that one is called in its login, `user.pid`: the host tells it too.
    pub(crate) login: String,
    /// The addresses of the host.
    pub(crate) addresses: Vec<IpAddr>,
    expires: Instant,
}

impl Grant {
    /// A grant that begins now, and lasts for `ttl` within bounds.
    pub(crate) fn new(
        path: StorePath,
        identity: Arc<Identity>,
        login: String,
        addresses: Vec<IpAddr>,
        ttl: Option<Duration>,
    ) -> Self {
        let expires = clock::now() + ttl.unwrap_or(USUAL_TTL).min(LONGEST_TTL);
        Self { path, identity, login, addresses, expires }
    }

    fn granter(&self) -> Arc<Holder> {
        Holder::of(&self.identity.caller)
    }

    fn is_for(&self, visit: &Visit<'_>) -> bool {
        self.path == *visit.path
            && self.login == visit.login
            && self.addresses.iter().any(|address| is_same_host(*address, visit.address))
    }
}

/// A server that comes with a key.
#[derive(Debug)]
pub(crate) struct Visit<'a> {
    /// The file that it opens.
    pub(crate) path: &'a StorePath,
    /// What it calls the client.
    pub(crate) login: &'a str,
    /// Where it comes from.
    pub(crate) address: IpAddr,
}

/// All addresses of loopback are this machine.
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
    /// `AlreadyExists` if the key is in use, which is then good for nobody any more: keys are random, so somebody has spied one out. `Overloaded` if
    /// there are too many grants, of this caller or of all.
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
            let message = format!("{most} copies that you prepared wait to be fetched: try again later");
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

    /// In whose name the visitor may open the file; waits for the grant if it has not been given yet. It is used up then.
    ///
    /// # Errors
    /// `PermissionDenied` if there is none for this visitor and key in time.
    pub(crate) async fn take(&self, key: &Key, visit: &Visit<'_>) -> Result<Arc<Identity>> {
        let end = clock::now() + PATIENCE;
        loop {
            let mut granted = std::pin::pin!(self.granted.notified());
            granted.as_mut().enable();
            if let Some(identity) = self.find(key, visit) {
                return Ok(identity);
            }
            if timeout_at(end, granted).await.is_err() {
                let message = "nobody has allowed this third-party copy, or not for this host";
                return Err(Error::new(Fault::PermissionDenied, message).at(visit.path));
            }
        }
    }

    fn find(&self, key: &Key, visit: &Visit<'_>) -> Option<Arc<Identity>> {
        let mut grants = self.grants();
        // Whoever shows the right key for the wrong file, or from elsewhere, must not be able to spoil it for its owner.
        grants.get(key).filter(|grant| grant.expires > clock::now() && grant.is_for(visit))?;
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
        let identity = Identity { caller, grants: Vec::new().into(), expires_s: None };
        let ttl = Some(Duration::from_secs(ttl_s));
        Grant::new(path("/f"), Arc::new(identity), "me.1".into(), vec![HOME], ttl)
    }

    async fn take(rendezvous: &Rendezvous, text: &str, at: &str, login: &str, from: &str) -> bool {
        let (at, address) = (path(at), from.parse().unwrap());
        rendezvous.take(&key(text), &Visit { path: &at, login, address }).await.is_ok()
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
        tokio::time::advance(LONGEST_TTL + Duration::from_secs(1)).await;
        assert!(!take(&rendezvous, "k", "/f", "me.1", "192.0.2.1").await);
    }

    #[tokio::test(start_paused = true)]
    async fn the_host_may_come_first() {
        let rendezvous = Rendezvous::default();
        let visit = take(&rendezvous, "k", "/f", "me.1", "192.0.2.1");
        let client = async {
            tokio::task::yield_now().await;
            rendezvous.grant(key("other"), grant(60)).unwrap();
            tokio::task::yield_now().await;
            rendezvous.grant(key("k"), grant(60)).unwrap();
        };
        let start = clock::now();
        assert!(tokio::join!(visit, client).0);
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
