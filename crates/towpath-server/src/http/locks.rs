//! The table of WebDAV locks (RFC 4918 §6, §7). It is in memory, so locks end with the server at the latest. They
//! bind HTTP clients only: XRootD clients ignore locks.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use towpath_proto::http::dav::{ActiveLock, Depth, Element, LockScope};
use towpath_store::{
    Caller, StorePath,
    sys::{
        clock::{self, Instant},
        random,
    },
};

use super::target;
use crate::{
    access::Person,
    shares::{Class, Lease, LeaseHolder, Shares},
};

/// Maximum number of locks on the whole server, which are searched linearly. Each holder gets its fair share.
const MAX_LOCKS: u64 = 4096;

/// Maximum lifetime of a lock before it must be refreshed.
pub(super) const MAX_LIFETIME: Duration = Duration::from_secs(3600);

/// The depth of a lock or a query.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reach {
    /// The path alone.
    One,
    /// The path and everything below it.
    Tree,
}

/// The parameters of a new lock.
#[derive(Debug)]
pub(super) struct Wish {
    pub(super) path: StorePath,
    pub(super) reach: Reach,
    pub(super) scope: LockScope,
    pub(super) owner: Option<Element>,
    pub(super) lasts: Duration,
}

/// Why a lock was not granted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum NoLock {
    /// A conflicting lock on this path.
    Conflict(StorePath),
    /// The holder's share of locks is exhausted.
    TooMany,
}

#[derive(Debug)]
struct Lock {
    _lease: Lease,
    wish: Arc<Wish>,
    token: String,
    holder: Person,
    ends: Instant,
}

impl Lock {
    /// Whether it protects `path` itself.
    fn protects(&self, path: &StorePath) -> bool {
        self.wish.path == *path || (self.wish.reach == Reach::Tree && path.is_within(&self.wish.path))
    }

    /// Whether it protects any path in the given reach of `path`.
    fn meets(&self, path: &StorePath, reach: Reach) -> bool {
        self.protects(path) || (reach == Reach::Tree && self.wish.path.is_within(path))
    }

    fn tell(&self) -> ActiveLock {
        let left = self.ends.saturating_duration_since(clock::now()).as_secs();
        ActiveLock {
            scope: self.wish.scope,
            depth: if self.wish.reach == Reach::Tree { Depth::Infinity } else { Depth::Zero },
            owner: self.wish.owner.clone(),
            timeout_s: Some(u32::try_from(left).unwrap_or(u32::MAX)),
            token: self.token.clone(),
            root_href: target::encode(&self.wish.path, false),
        }
    }
}

/// All locks.
#[derive(Debug)]
pub(super) struct Locks {
    table: Mutex<Vec<Lock>>,
    shares: Shares,
}

impl Default for Locks {
    fn default() -> Self {
        Self { table: Mutex::default(), shares: Shares::new(MAX_LOCKS, 1, 1) }
    }
}

impl Locks {
    /// Locks the table and removes expired locks.
    fn live(&self) -> MutexGuard<'_, Vec<Lock>> {
        let mut locks = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        if !locks.is_empty() {
            let now = clock::now();
            locks.retain(|lock| lock.ends > now);
        }
        locks
    }

    /// Grants a lock.
    ///
    /// # Errors
    /// [`NoLock`].
    pub(super) fn give(&self, caller: &Caller, wish: Wish) -> Result<ActiveLock, NoLock> {
        let mut locks = self.live();
        let exclusive = |scope| scope == LockScope::Exclusive;
        let in_the_way = locks
            .iter()
            .find(|lock| lock.meets(&wish.path, wish.reach) && (exclusive(wish.scope) || exclusive(lock.wish.scope)));
        if let Some(lock) = in_the_way {
            return Err(NoLock::Conflict(lock.wish.path.clone()));
        }
        let lease = self.shares.try_take(&LeaseHolder::of(caller), 1, Class::Large).ok_or(NoLock::TooMany)?;
        let ends = clock::now() + wish.lasts.min(MAX_LIFETIME);
        let lock = Lock { _lease: lease, wish: Arc::new(wish), token: token(), holder: Person::of(caller), ends };
        let told = lock.tell();
        locks.push(lock);
        Ok(told)
    }

    /// Extends the caller's lock with that token, which must protect `path`. Returns `None` if there is none.
    pub(super) fn refresh(
        &self,
        caller: &Caller,
        path: &StorePath,
        token: &str,
        lasts: Duration,
    ) -> Option<ActiveLock> {
        let mut locks = self.live();
        let holder = Person::of(caller);
        let lock = locks.iter_mut().find(|lock| lock.token == token && lock.holder == holder && lock.protects(path))?;
        lock.ends = clock::now() + lasts.min(MAX_LIFETIME);
        Some(lock.tell())
    }

    /// Removes the caller's lock with that token, which must protect `path`. Returns whether there was one.
    pub(super) fn end(&self, caller: &Caller, path: &StorePath, token: &str) -> bool {
        let mut locks = self.live();
        let holder = Person::of(caller);
        let index = locks.iter().position(|lock| lock.token == token && lock.holder == holder && lock.protects(path));
        index.map(|index| locks.swap_remove(index)).is_some()
    }

    /// Removes the locks on `path` and below it, because the resources are gone.
    pub(super) fn forget(&self, path: &StorePath) {
        self.live().retain(|lock| !lock.wish.path.is_within(path));
    }

    /// Returns the locks that protect `path`.
    pub(super) fn on(&self, path: &StorePath) -> Vec<ActiveLock> {
        self.live().iter().filter(|lock| lock.protects(path)).map(Lock::tell).collect()
    }

    /// Whether a lock with that token protects `path`.
    pub(super) fn has(&self, path: &StorePath, token: &str) -> bool {
        self.live().iter().any(|lock| lock.token == token && lock.protects(path))
    }

    /// Returns the path of a lock that prevents the caller with these tokens from changing `path` in its reach. One
    /// token is enough for several shared locks.
    pub(super) fn in_the_way(
        &self,
        caller: &Caller,
        path: &StorePath,
        reach: Reach,
        tokens: &[&str],
    ) -> Option<StorePath> {
        let locks = self.live();
        let holder = Person::of(caller);
        let shown = |lock: &Lock| lock.holder == holder && tokens.contains(&lock.token.as_str());
        let meeting = || locks.iter().filter(|lock| lock.meets(path, reach));
        let opened = |at: &Lock| meeting().any(|other| other.wish.path == at.wish.path && shown(other));
        meeting().find(|lock| !opened(lock)).map(|lock| lock.wish.path.clone())
    }
}

/// Generates an unguessable token: a random UUID (RFC 9562 §5.4).
fn token() -> String {
    let mut bytes: [u8; 16] = random::bytes();
    bytes[6] = (bytes[6] & 0x0f) | 0x40;
    bytes[8] = (bytes[8] & 0x3f) | 0x80;
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("urn:uuid:{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> StorePath {
        StorePath::parse(text.as_bytes()).unwrap()
    }

    fn wish(at: &str, reach: Reach, scope: LockScope) -> Wish {
        Wish { path: path(at), reach, scope, owner: None, lasts: MAX_LIFETIME }
    }

    fn alice() -> Caller {
        Caller { subject: Some("alice".into()), ..Caller::default() }
    }

    #[test]
    fn exclusive_locks_exclude_above_and_below() {
        use LockScope::{Exclusive, Shared};
        for (first, second, given) in [
            (("/a", Reach::One, Exclusive), ("/a", Reach::One, Shared), false),
            (("/a", Reach::One, Shared), ("/a", Reach::One, Shared), true),
            (("/a", Reach::One, Exclusive), ("/a/b", Reach::One, Exclusive), true),
            (("/a", Reach::Tree, Exclusive), ("/a/b", Reach::One, Shared), false),
            (("/a/b", Reach::One, Shared), ("/a", Reach::Tree, Exclusive), false),
            (("/a/b", Reach::One, Exclusive), ("/a", Reach::One, Exclusive), true),
            (("/a", Reach::Tree, Exclusive), ("/ab", Reach::One, Exclusive), true),
        ] {
            let locks = Locks::default();
            locks.give(&alice(), wish(first.0, first.1, first.2)).unwrap();
            assert_eq!(locks.give(&alice(), wish(second.0, second.1, second.2)).is_ok(), given, "{first:?} {second:?}");
        }
    }

    #[test]
    fn only_the_holder_who_shows_the_token_passes() {
        let locks = Locks::default();
        let lock = locks.give(&alice(), wish("/a", Reach::Tree, LockScope::Exclusive)).unwrap();
        let token = lock.token.as_str();
        let blocked = |caller: &Caller, at: &str, tokens: &[&str]| {
            locks.in_the_way(caller, &path(at), Reach::Tree, tokens).is_some()
        };
        assert!(blocked(&alice(), "/a/b", &[]));
        assert!(blocked(&Caller::local(), "/a/b", &[token]));
        assert!(!blocked(&alice(), "/a/b", &[token]));
        assert!(blocked(&alice(), "/", &[]), "a tree holds what is locked in it");
        assert!(!locks.end(&Caller::local(), &path("/a"), token));
        assert!(locks.end(&alice(), &path("/a/b"), token));
        assert!(!blocked(&alice(), "/a", &[]));
    }

    #[test]
    fn one_of_the_shared_tokens_is_enough() {
        let locks = Locks::default();
        let mine = locks.give(&alice(), wish("/a", Reach::One, LockScope::Shared)).unwrap().token;
        locks.give(&Caller::local(), wish("/a", Reach::One, LockScope::Shared)).unwrap();
        assert_eq!(locks.in_the_way(&alice(), &path("/a"), Reach::One, &[&mine]), None);
    }

    #[test]
    fn one_holder_does_not_take_all_locks() {
        let locks = Locks::default();
        let caller = |octet| Caller { address: Some([10, 0, 0, octet].into()), ..Caller::default() };
        let give = |octet, number| {
            let at = format!("/{octet}/{number}");
            locks.give(&caller(octet), wish(&at, Reach::One, LockScope::Exclusive)).map(drop)
        };
        let given = (0..MAX_LOCKS).take_while(|number| give(1, *number).is_ok()).count() as u64;
        assert!((MAX_LOCKS / 3..MAX_LOCKS / 2).contains(&given), "{given}");
        assert_eq!(give(1, MAX_LOCKS), Err(NoLock::TooMany));
        assert_eq!(give(2, 0), Ok(()));
        locks.forget(&path("/1"));
        assert_eq!(give(1, 0), Ok(()));
    }

    #[tokio::test(start_paused = true)]
    async fn locks_end() {
        let locks = Locks::default();
        let lasts = Duration::from_secs(10);
        let lock = locks.give(&alice(), Wish { lasts, ..wish("/a", Reach::One, LockScope::Exclusive) }).unwrap();
        tokio::time::advance(Duration::from_secs(9)).await;
        assert_eq!(locks.refresh(&alice(), &path("/a"), &lock.token, lasts).unwrap().timeout_s, Some(10));
        tokio::time::advance(Duration::from_secs(9)).await;
        assert!(locks.has(&path("/a"), &lock.token));
        tokio::time::advance(Duration::from_secs(2)).await;
        assert!(locks.on(&path("/a")).is_empty());
    }
}
