//! Nonces of Digest: created without state, and tracked from their first use, so that each digest is valid once.
//!
//! A nonce is a timestamp and a number, signed by this process. Requesting a challenge takes no memory. Used nonces
//! are tracked with their counts (`nc`): concurrent requests may arrive in any order, within a window.

use std::{
    collections::BTreeMap,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use aws_lc_rs::hmac;
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use towpath_store::sys::{clock::Instant, random};

use super::LoginError;

/// Lifetime of a nonce. Clients retry with a new one without prompting the user.
const LIFETIME: Duration = Duration::from_secs(5 * 60);

/// Maximum number of used nonces tracked, about 1 MiB. Beyond it the oldest is evicted and becomes invalid.
const MAX_USED_NONCES: usize = 10_000;

/// Sizes of an [`Id`] and, with its signature, of a nonce, in bytes.
const ID_BYTES: usize = 16;
const NONCE_BYTES: usize = ID_BYTES + 32;

/// The nonces of this process.
#[derive(Debug)]
pub(super) struct Nonces {
    key: hmac::Key,
    born: Instant,
    next: AtomicU64,
    used: Mutex<UsedNonces>,
}

/// Unique identifier of a nonce, ordered by creation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Id {
    /// Creation time, in milliseconds since the process started issuing nonces.
    made_ms: u64,
    number: u64,
}

#[derive(Debug, Default)]
struct UsedNonces {
    counts: BTreeMap<Id, ReplayWindow>,
    /// The last nonce evicted before its expiry; older ones may have been used too.
    forgotten: Option<Id>,
}

/// The counts that a nonce was used with.
#[derive(Debug, Default)]
struct ReplayWindow {
    highest: u32,
    /// Bit `1 << n` is set if `highest - n` was used. Counts below the window are treated as used.
    seen: u128,
}

impl ReplayWindow {
    /// Records a count. Returns whether it is new.
    fn take(&mut self, count: u32) -> bool {
        if let Some(ahead) = count.checked_sub(self.highest).filter(|ahead| *ahead > 0) {
            self.seen = self.seen.checked_shl(ahead).unwrap_or(0) | 1;
            self.highest = count;
            return true;
        }
        let bit = 1_u128.checked_shl(self.highest - count).unwrap_or(0);
        let is_new = bit != 0 && self.seen & bit == 0;
        self.seen |= bit;
        is_new
    }
}

impl Id {
    fn to_bytes(self) -> [u8; ID_BYTES] {
        ((u128::from(self.made_ms) << 64) | u128::from(self.number)).to_be_bytes()
    }

    fn from_bytes(bytes: [u8; ID_BYTES]) -> Self {
        let [made_ms, number] = [&bytes[..8], &bytes[8..]]
            .map(|half| u64::from_be_bytes(half.try_into().expect("halves of 16 bytes have 8")));
        Self { made_ms, number }
    }
}

impl Nonces {
    /// Starts issuing nonces, with a new signing key.
    pub(super) fn new(now: Instant) -> Self {
        let key = hmac::Key::new(hmac::HMAC_SHA256, &random::bytes::<32>());
        Self { key, born: now, next: AtomicU64::new(0), used: Mutex::default() }
    }

    /// Creates a nonce.
    pub(super) fn make(&self, now: Instant) -> String {
        let id = Id { made_ms: self.age_ms(now), number: self.next.fetch_add(1, Ordering::Relaxed) }.to_bytes();
        URL_SAFE_NO_PAD.encode([&id[..], hmac::sign(&self.key, &id).as_ref()].concat())
    }

    /// Uses a nonce with a count, once.
    ///
    /// # Errors
    /// [`LoginError::Stale`] if the nonce is not from this process, expired, evicted, or was used with this count
    /// before.
    pub(super) fn take(&self, nonce: &str, count: u32, now: Instant) -> Result<(), LoginError> {
        let now_ms = self.age_ms(now);
        let id = self.signed(nonce).filter(|id| is_fresh(*id, now_ms)).ok_or(LoginError::Stale)?;
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        if used.take(id, count, now_ms) { Ok(()) } else { Err(LoginError::Stale) }
    }

    /// Returns the identifier in a nonce if its signature is valid.
    fn signed(&self, nonce: &str) -> Option<Id> {
        let bytes: [u8; NONCE_BYTES] = URL_SAFE_NO_PAD.decode(nonce).ok()?.try_into().ok()?;
        let (id, signature) = bytes.split_first_chunk::<ID_BYTES>()?;
        hmac::verify(&self.key, id, signature).ok()?;
        Some(Id::from_bytes(*id))
    }

    fn age_ms(&self, now: Instant) -> u64 {
        u64::try_from(now.saturating_duration_since(self.born).as_millis()).unwrap_or(u64::MAX)
    }
}

fn is_fresh(id: Id, now_ms: u64) -> bool {
    Duration::from_millis(now_ms.saturating_sub(id.made_ms)) < LIFETIME
}

impl UsedNonces {
    fn take(&mut self, id: Id, count: u32, now_ms: u64) -> bool {
        if let Some(counts) = self.counts.get_mut(&id) {
            return counts.take(count);
        }
        if self.forgotten >= Some(id) {
            return false;
        }
        while self.counts.first_entry().is_some_and(|first| !is_fresh(*first.key(), now_ms)) {
            self.counts.pop_first();
        }
        let is_new = self.counts.entry(id).or_default().take(count);
        if self.counts.len() > MAX_USED_NONCES
            && let Some((oldest, _)) = self.counts.pop_first()
        {
            self.forgotten = self.forgotten.max(Some(oldest));
        }
        is_new
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;
    use towpath_store::sys::clock;

    use super::*;

    #[test]
    fn a_nonce_is_good_once_for_each_count_in_any_order() {
        let now = clock::now();
        let nonces = Nonces::new(now);
        let [nonce, other] = [nonces.make(now), nonces.make(now)];
        assert_ne!(nonce, other);
        for (count, outcome) in [
            (1, Ok(())),
            (1, Err(LoginError::Stale)),
            (4, Ok(())),
            (3, Ok(())),
            (3, Err(LoginError::Stale)),
            (131, Ok(())),
            (4, Err(LoginError::Stale)),
            (5, Ok(())),
            (3, Err(LoginError::Stale)),
            (2, Err(LoginError::Stale)),
            (u32::MAX, Ok(())),
            (131, Err(LoginError::Stale)),
        ] {
            assert_eq!(nonces.take(&nonce, count, now), outcome, "{count}");
        }
        assert_eq!(nonces.take(&other, 1, now), Ok(()), "each has counts of its own");
    }

    #[test]
    fn only_fresh_nonces_of_this_process_are_good() {
        let now = clock::now();
        let nonces = Nonces::new(now);
        let nonce = nonces.make(now);
        let just = LIFETIME - Duration::from_millis(1);
        assert_eq!(nonces.take(&nonce, 1, now + just), Ok(()));
        assert_eq!(nonces.take(&nonce, 2, now + LIFETIME), Err(LoginError::Stale));
        let changed = format!("{}{}", if nonce.starts_with('B') { 'A' } else { 'B' }, &nonce[1..]);
        for bad in ["", "AAAA", "?", &changed, &nonce[..63], &format!("{nonce}A"), &Nonces::new(now).make(now)] {
            assert_eq!(nonces.take(bad, 1, now), Err(LoginError::Stale), "{bad}");
        }
    }

    #[test]
    fn of_too_many_the_oldest_is_forgotten_and_not_good_again() {
        let now = clock::now();
        let nonces = Nonces::new(now);
        let made: Vec<String> = (0..=MAX_USED_NONCES).map(|_| nonces.make(now)).collect();
        for nonce in &made[1..] {
            assert_eq!(nonces.take(nonce, 1, now), Ok(()));
        }
        // It is used late, when the table is full.
        assert_eq!(nonces.take(&made[0], 1, now), Ok(()));
        assert_eq!(nonces.take(&made[0], 1, now), Err(LoginError::Stale));
        assert_eq!(nonces.take(&made[1], 2, now), Ok(()));
        assert_eq!(nonces.take(&nonces.make(now), 1, now), Ok(()));
        assert_eq!(nonces.take(&made[1], 3, now), Err(LoginError::Stale));
        assert_eq!(nonces.take(&made[2], 2, now), Ok(()));
        assert_eq!(nonces.used.lock().unwrap().counts.len(), MAX_USED_NONCES);
        let later = now + LIFETIME;
        assert_eq!(nonces.take(&nonces.make(later), 1, later), Ok(()));
        assert_eq!(nonces.used.lock().unwrap().counts.len(), 1, "what is over goes first");
    }

    proptest! {
        #[test]
        fn no_count_is_taken_twice(counts in proptest::collection::vec(1_u32..300, 0..400)) {
            let (mut window, mut taken) = (ReplayWindow::default(), BTreeSet::new());
            for count in counts {
                let highest = taken.last().copied().unwrap_or(0);
                let is_due = !taken.contains(&count) && highest.saturating_sub(count) < 128;
                prop_assert_eq!(window.take(count), is_due);
                if is_due {
                    taken.insert(count);
                }
            }
        }
    }
}
