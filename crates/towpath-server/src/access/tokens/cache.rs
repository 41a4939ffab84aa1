//! A cache of verified tokens, so that repeated tokens cost a hash instead of a signature check.

use std::{
    num::NonZeroUsize,
    sync::{Arc, Mutex, PoisonError},
};

use clru::CLruCache;
use sha2::{Digest as _, Sha256};

use super::VerifiedToken;

/// TTL of a verified token, in seconds. It bounds how long a revoked key stays usable.
const TTL_S: i64 = 300;
/// Maximum number of tokens. Tokens of 1 KiB take about 5 MiB in total, and the longest ones 40 MiB.
const MAX_TOKENS: NonZeroUsize = NonZeroUsize::new(2048).unwrap();

type TokenHash = [u8; 32];

/// Verified tokens by SHA-256. The least recently used one is evicted.
#[derive(Debug)]
pub(super) struct TokenCache(Mutex<CLruCache<TokenHash, Entry>>);

#[derive(Debug)]
struct Entry {
    token: Arc<VerifiedToken>,
    until_s: i64,
}

impl Default for TokenCache {
    fn default() -> Self {
        Self(Mutex::new(CLruCache::new(MAX_TOKENS)))
    }
}

impl TokenCache {
    /// Returns the cached verification of `token` if it is still valid.
    pub(super) fn get(&self, token: &str, now_s: i64) -> Option<Arc<VerifiedToken>> {
        let key: TokenHash = Sha256::digest(token).into();
        let mut cache = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        cache.get(&key).filter(|entry| now_s < entry.until_s).map(|entry| Arc::clone(&entry.token))
    }

    /// Caches the verification of `token`.
    pub(super) fn insert(&self, token: &str, verified: Arc<VerifiedToken>, now_s: i64) {
        let until_s = verified.expires_s.min(now_s.saturating_add(TTL_S));
        let key = Sha256::digest(token).into();
        self.0.lock().unwrap_or_else(PoisonError::into_inner).put(key, Entry { token: verified, until_s });
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
        for number in 0..10 * MAX_TOKENS.get() {
            cache.insert(&number.to_string(), token(i64::MAX), 0);
            assert!(cache.get("used", 0).is_some(), "after {number}");
        }
        assert_eq!(cache.0.lock().unwrap().len(), MAX_TOKENS.get());
    }
}
