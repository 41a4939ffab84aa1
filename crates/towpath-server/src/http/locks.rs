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
    fair_pool::{Class, FairPool, Lease, LeaseHolder},
};

/// Maximum number of locks on the whole server, which are searched linearly. Each holder gets its fair share.
const MAX_LOCKS: u64 = 4096;

/// Maximum lifetime of a lock before it must be refreshed.
pub(super) const MAX_LIFETIME: Duration = Duration::from_secs(3600);

/// The depth of a lock or a query.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LockDepth {
    /// The path alone.
    One,
    /// The path and everything below it.
    Tree,
}

/// The parameters of a new lock.
#[derive(Debug)]
pub(super) struct LockParameters {
    pub(super) path: StorePath,
    pub(super) depth: LockDepth,
    pub(super) scope: LockScope,
    pub(super) owner: Option<Element>,
    pub(super) lasts: Duration,
}

/// Why a lock was not granted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum LockError {
    /// A conflicting lock on this path.
    Conflict(StorePath),
    /// The holder's share of locks is exhausted.
    TooMany,
}

#[derive(Debug)]
struct Lock {
    _lease: Lease,
    parameters: Arc<LockParameters>,
    token: String,
    holder: Person,
    ends: Instant,
}

impl Lock {
    /// Whether it protects `path` itself.
    fn protects(&self, path: &StorePath) -> bool {
        self.parameters.path == *path
            || (self.parameters.depth == LockDepth::Tree && path.is_within(&self.parameters.path))
    }

    /// Whether it conflicts with an operation of this depth on `path`.
    fn overlaps(&self, path: &StorePath, depth: LockDepth) -> bool {
        self.protects(path) || (depth == LockDepth::Tree && self.parameters.path.is_within(path))
    }

    fn to_active_lock(&self) -> ActiveLock {
        let left = self.ends.saturating_duration_since(clock::now()).as_secs();
        ActiveLock {
            scope: self.parameters.scope,
            depth: if self.parameters.depth == LockDepth::Tree { Depth::Infinity } else { Depth::Zero },
            owner: self.parameters.owner.clone(),
            timeout_s: Some(u32::try_from(left).unwrap_or(u32::MAX)),
            token: self.token.clone(),
            root_href: target::encode(&self.parameters.path, false),
        }
    }
}

/// All locks.
#[derive(Debug)]
pub(super) struct Locks {
    table: Mutex<Vec<Lock>>,
    pool: FairPool,
}

impl Default for Locks {
    fn default() -> Self {
        Self { table: Mutex::default(), pool: FairPool::new(MAX_LOCKS, 1, 1) }
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
    /// [`LockError`].
    pub(super) fn grant(&self, caller: &Caller, parameters: LockParameters) -> Result<ActiveLock, LockError> {
        let mut locks = self.live();
        let exclusive = |scope| scope == LockScope::Exclusive;
        let find_conflict = locks.iter().find(|lock| {
            lock.overlaps(&parameters.path, parameters.depth)
                && (exclusive(parameters.scope) || exclusive(lock.parameters.scope))
        });
        if let Some(lock) = find_conflict {
            return Err(LockError::Conflict(lock.parameters.path.clone()));
        }
        let lease = self.pool.try_take(&LeaseHolder::of(caller), 1, Class::Large).ok_or(LockError::TooMany)?;
        let ends = clock::now() + parameters.lasts.min(MAX_LIFETIME);
        let lock =
            Lock { _lease: lease, parameters: Arc::new(parameters), token: token(), holder: Person::of(caller), ends };
        let active = lock.to_active_lock();
        locks.push(lock);
        Ok(active)
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
        Some(lock.to_active_lock())
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
        self.live().retain(|lock| !lock.parameters.path.is_within(path));
    }

    /// Returns the locks that protect `path`.
    pub(super) fn on(&self, path: &StorePath) -> Vec<ActiveLock> {
        self.live().iter().filter(|lock| lock.protects(path)).map(Lock::to_active_lock).collect()
    }

    /// Whether a lock with that token protects `path`.
    pub(super) fn has(&self, path: &StorePath, token: &str) -> bool {
        self.live().iter().any(|lock| lock.token == token && lock.protects(path))
    }

    /// Returns the path of a lock that prevents the caller with these tokens from changing `path` to this depth. One
    /// token is enough for several shared locks.
    pub(super) fn find_conflict(
        &self,
        caller: &Caller,
        path: &StorePath,
        depth: LockDepth,
        tokens: &[&str],
    ) -> Option<StorePath> {
        let locks = self.live();
        let holder = Person::of(caller);
        let shown = |lock: &Lock| lock.holder == holder && tokens.contains(&lock.token.as_str());
        let meeting = || locks.iter().filter(|lock| lock.overlaps(path, depth));
        let opened = |at: &Lock| meeting().any(|other| other.parameters.path == at.parameters.path && shown(other));
        meeting().find(|lock| !opened(lock)).map(|lock| lock.parameters.path.clone())
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

    fn parameters(at: &str, depth: LockDepth, scope: LockScope) -> LockParameters {
        LockParameters { path: path(at), depth, scope, owner: None, lasts: MAX_LIFETIME }
    }

    fn alice() -> Caller {
        Caller { subject: Some("alice".into()), ..Caller::default() }
    }

    #[test]
    fn exclusive_locks_exclude_above_and_below() {
        use LockScope::{Exclusive, Shared};
        for (first, second, given) in [
            (("/a", LockDepth::One, Exclusive), ("/a", LockDepth::One, Shared), false),
            (("/a", LockDepth::One, Shared), ("/a", LockDepth::One, Shared), true),
            (("/a", LockDepth::One, Exclusive), ("/a/b", LockDepth::One, Exclusive), true),
            (("/a", LockDepth::Tree, Exclusive), ("/a/b", LockDepth::One, Shared), false),
            (("/a/b", LockDepth::One, Shared), ("/a", LockDepth::Tree, Exclusive), false),
            (("/a/b", LockDepth::One, Exclusive), ("/a", LockDepth::One, Exclusive), true),
            (("/a", LockDepth::Tree, Exclusive), ("/ab", LockDepth::One, Exclusive), true),
        ] {
            let locks = Locks::default();
            locks.grant(&alice(), parameters(first.0, first.1, first.2)).unwrap();
            assert_eq!(
                locks.grant(&alice(), parameters(second.0, second.1, second.2)).is_ok(),
                given,
                "{first:?} {second:?}"
            );
        }
    }

    #[test]
    fn only_the_holder_who_shows_the_token_passes() {
        let locks = Locks::default();
        let lock = locks.grant(&alice(), parameters("/a", LockDepth::Tree, LockScope::Exclusive)).unwrap();
        let token = lock.token.as_str();
        let blocked = |caller: &Caller, at: &str, tokens: &[&str]| {
            locks.find_conflict(caller, &path(at), LockDepth::Tree, tokens).is_some()
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
        let mine = locks.grant(&alice(), parameters("/a", LockDepth::One, LockScope::Shared)).unwrap().token;
        locks.grant(&Caller::local(), parameters("/a", LockDepth::One, LockScope::Shared)).unwrap();
        assert_eq!(locks.find_conflict(&alice(), &path("/a"), LockDepth::One, &[&mine]), None);
    }

    #[test]
    fn one_holder_does_not_take_all_locks() {
        let locks = Locks::default();
        let caller = |octet| Caller { address: Some([10, 0, 0, octet].into()), ..Caller::default() };
        let grant = |octet, number| {
            let at = format!("/{octet}/{number}");
            locks.grant(&caller(octet), parameters(&at, LockDepth::One, LockScope::Exclusive)).map(drop)
        };
        let given = (0..MAX_LOCKS).take_while(|number| grant(1, *number).is_ok()).count() as u64;
        assert!((MAX_LOCKS / 3..MAX_LOCKS / 2).contains(&given), "{given}");
        assert_eq!(grant(1, MAX_LOCKS), Err(LockError::TooMany));
        assert_eq!(grant(2, 0), Ok(()));
        locks.forget(&path("/1"));
        assert_eq!(grant(1, 0), Ok(()));
    }

    #[tokio::test(start_paused = true)]
    async fn locks_end() {
        let locks = Locks::default();
        let lasts = Duration::from_secs(10);
        let lock = locks
            .grant(&alice(), LockParameters { lasts, ..parameters("/a", LockDepth::One, LockScope::Exclusive) })
            .unwrap();
        tokio::time::advance(Duration::from_secs(9)).await;
        assert_eq!(locks.refresh(&alice(), &path("/a"), &lock.token, lasts).unwrap().timeout_s, Some(10));
        tokio::time::advance(Duration::from_secs(9)).await;
        assert!(locks.has(&path("/a"), &lock.token));
        tokio::time::advance(Duration::from_secs(2)).await;
        assert!(locks.on(&path("/a")).is_empty());
    }
}
