//! A cache of verified tokens, so that repeated tokens cost a hash instead of a signature check.

use std::{
    collections::HashMap,
    mem,
    sync::{Arc, Mutex, PoisonError},
};

use sha2::{Digest as _, Sha256};

use super::Verified;

/// TTL of a verified token, in seconds. It bounds how long a revoked key stays usable.
const BELIEVED_S: i64 = 300;
/// Number of tokens in a generation. Two generations of 1 KiB tokens take about 5 MiB, and 40 MiB with the longest
/// ones.
const GENERATION: usize = 1024;

type Key = [u8; 32];

/// Verified tokens by SHA-256, in two generations: a full young generation replaces the old one.
#[derive(Debug, Default)]
pub(super) struct Known(Mutex<Generations>);

#[derive(Debug, Default)]
struct Generations {
    young: HashMap<Key, Entry>,
    old: HashMap<Key, Entry>,
}

#[derive(Debug, Clone)]
struct Entry {
    verified: Arc<Verified>,
    until_s: i64,
}

impl Known {
    /// Returns the cached verification of `token` if it is still valid.
    pub(super) fn get(&self, token: &str, now_s: i64) -> Option<Arc<Verified>> {
        let key = Sha256::digest(token).into();
        let mut generations = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let entry = match generations.young.get(&key) {
            Some(entry) => entry.clone(),
            None => {
                let entry = generations.old.remove(&key)?;
                generations.keep(key, entry.clone());
                entry
            }
        };
        (now_s < entry.until_s).then_some(entry.verified)
    }

    /// Caches the verification of `token`.
    pub(super) fn put(&self, token: &str, verified: Arc<Verified>, now_s: i64) {
        let until_s = verified.expires_s.min(now_s.saturating_add(BELIEVED_S));
        let mut generations = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        generations.keep(Sha256::digest(token).into(), Entry { verified, until_s });
    }
}

impl Generations {
    fn keep(&mut self, key: Key, entry: Entry) {
        if self.young.len() >= GENERATION && !self.young.contains_key(&key) {
            self.old = mem::take(&mut self.young);
        }
        self.young.insert(key, entry);
    }
}

#[cfg(test)]
mod tests {
    use towpath_store::Secret;

    use super::*;

    fn verified(expires_s: i64) -> Arc<Verified> {
        let (subject, issuer) = (Some("alice".into()), "https://issuer".into());
        Arc::new(Verified { subject, issuer, token: Secret::new("t"), grants: [].into(), expires_s })
    }

    #[test]
    fn a_token_is_believed_for_a_while_and_not_beyond_its_end() {
        let known = Known::default();
        known.put("long", verified(10_000), 1_000);
        known.put("short", verified(1_010), 1_000);
        assert!(known.get("long", 1_000 + BELIEVED_S - 1).is_some());
        assert!(known.get("long", 1_000 + BELIEVED_S).is_none());
        assert!(known.get("short", 1_009).is_some());
        assert!(known.get("short", 1_010).is_none());
        assert!(known.get("other", 1_000).is_none());
    }

    #[test]
    fn it_does_not_grow_and_keeps_what_is_used() {
        let known = Known::default();
        known.put("used", verified(i64::MAX), 0);
        for number in 0..10 * GENERATION {
            known.put(&number.to_string(), verified(i64::MAX), 0);
            assert!(known.get("used", 0).is_some(), "after {number}");
        }
        let generations = known.0.lock().unwrap();
        assert!(generations.young.len() <= GENERATION && generations.old.len() <= GENERATION);
    }
}
