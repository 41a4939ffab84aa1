//! A cache of verified tokens, so that repeated tokens cost a hash instead of a signature check.

use std::{
    collections::HashMap,
    mem,
    sync::{Arc, Mutex, PoisonError},
};

use sha2::{Digest as _, Sha256};

use super::VerifiedToken;

/// TTL of a verified token, in seconds. It bounds how long a revoked key stays usable.
const TTL_S: i64 = 300;
/// Number of tokens in a generation. Two generations of 1 KiB tokens take about 5 MiB, and 40 MiB with the longest
/// ones.
const MAX_GENERATION_TOKENS: usize = 1024;

type TokenHash = [u8; 32];

/// Verified tokens by SHA-256, in two generations: a full young generation replaces the old one.
#[derive(Debug, Default)]
pub(super) struct TokenCache(Mutex<Generations>);

#[derive(Debug, Default)]
struct Generations {
    young: HashMap<TokenHash, Entry>,
    old: HashMap<TokenHash, Entry>,
}

#[derive(Debug, Clone)]
struct Entry {
    token: Arc<VerifiedToken>,
    until_s: i64,
}

impl TokenCache {
    /// Returns the cached verification of `token` if it is still valid.
    pub(super) fn get(&self, token: &str, now_s: i64) -> Option<Arc<VerifiedToken>> {
        let key = Sha256::digest(token).into();
        let mut generations = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let entry = match generations.young.get(&key) {
            Some(entry) => entry.clone(),
            None => {
                let entry = generations.old.remove(&key)?;
                generations.insert(key, entry.clone());
                entry
            }
        };
        (now_s < entry.until_s).then_some(entry.token)
    }

    /// Caches the verification of `token`.
    pub(super) fn insert(&self, token: &str, verified: Arc<VerifiedToken>, now_s: i64) {
        let until_s = verified.expires_s.min(now_s.saturating_add(TTL_S));
        let mut generations = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        generations.insert(Sha256::digest(token).into(), Entry { token: verified, until_s });
    }
}

impl Generations {
    fn insert(&mut self, key: TokenHash, entry: Entry) {
        if self.young.len() >= MAX_GENERATION_TOKENS && !self.young.contains_key(&key) {
            self.old = mem::take(&mut self.young);
        }
        self.young.insert(key, entry);
    }
}

#[cfg(test)]
mod tests {
    use towpath_store::Secret;

    use super::*;

    fn token(expires_s: i64) -> Arc<VerifiedToken> {
        let (subject, issuer) = (Some("alice".into()), "https://issuer".into());
        Arc::new(VerifiedToken { subject, issuer, token: Secret::new("t"), grants: [].into(), expires_s })
    }

    #[test]
    fn a_token_is_cached_for_its_ttl_and_not_beyond_its_expiry() {
        let cache = TokenCache::default();
        cache.insert("long", token(10_000), 1_000);
        cache.insert("short", token(1_010), 1_000);
        assert!(cache.get("long", 1_000 + TTL_S - 1).is_some());
        assert!(cache.get("long", 1_000 + TTL_S).is_none());
        assert!(cache.get("short", 1_009).is_some());
        assert!(cache.get("short", 1_010).is_none());
        assert!(cache.get("other", 1_000).is_none());
    }

    #[test]
    fn it_does_not_grow_and_keeps_what_is_used() {
        let cache = TokenCache::default();
        cache.insert("used", token(i64::MAX), 0);
        for number in 0..10 * MAX_GENERATION_TOKENS {
            cache.insert(&number.to_string(), token(i64::MAX), 0);
            assert!(cache.get("used", 0).is_some(), "after {number}");
        }
        let generations = cache.0.lock().unwrap();
        assert!(generations.young.len() <= MAX_GENERATION_TOKENS && generations.old.len() <= MAX_GENERATION_TOKENS);
    }
}
