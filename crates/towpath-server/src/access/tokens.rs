//! Bearer tokens: JWT by the [WLCG profile](https://zenodo.org/records/20734267) (1.x) and
//! [SciTokens](https://scitokens.org/technical_docs/Claims) (1.0 and 2.0).
//!
//! The life of a token: [`Verifier::identify`] looks it up in the cache of verified tokens ([`cache`]). On a miss the
//! token is parsed ([`jwt`]), its issuer is looked up among the configured ones, its signature is verified with the
//! issuer's [`keys`] (kept fresh by a [`key_ring`], which loads them from a file or by [`discovery`]), its [`claims`]
//! are checked against the clock and this server's audiences, and its [`scope`]s become grants. A failure is a
//! [`TokenError`] with the reason.
//!
//! Not here: groups (`wlcg.groups`) grant no rights, tokens are not introspected at the issuer (RFC 7662), and keys
//! and certificates inside a token are ignored.

mod cache;
mod claims;
mod discovery;
mod fetch;
mod jwt;
mod key_ring;
mod keys;
mod scope;
#[cfg(test)]
mod tests;
mod token_error;

use std::{collections::HashMap, net::IpAddr, path::PathBuf, sync::Arc};

use towpath_store::{Caller, Error, Secret, StorePath, sys::clock};

pub(crate) use jwt::MAX_TOKEN_BYTES;

use self::{
    cache::TokenCache,
    claims::Audiences,
    discovery::Discovery,
    jwt::Jwt,
    key_ring::KeyRing,
    keys::{KeyFile, KeysError},
    token_error::TokenError,
};
use super::{Grant, Identity};
use crate::{
    StartError,
    config::{AccessConfig, IssuerConfig},
};

/// Parses `input` as a token, as keys of an issuer, and as scopes.
#[cfg(fuzzing)]
pub fn fuzz(input: &[u8]) {
    let _ = keys::KeySet::parse(input);
    let Ok(text) = std::str::from_utf8(input) else { return };
    let _ = jwt::bounded(text).and_then(Jwt::parse).map(drop);
    for profile in [claims::Profile::Wlcg, claims::Profile::SciTokens] {
        let _ = scope::grants(profile, text, &StorePath::root());
    }
}

/// Verifies tokens of the configured issuers.
#[derive(Debug)]
pub struct Verifier {
    issuers: HashMap<String, Issuer>,
    audiences: Audiences,
    cache: TokenCache,
}

/// A trusted issuer.
#[derive(Debug)]
struct Issuer {
    name: Arc<str>,
    base: StorePath,
    keys: Arc<KeyRing>,
}

/// The content of a verified token.
#[derive(Debug)]
struct VerifiedToken {
    subject: Option<Arc<str>>,
    issuer: Arc<str>,
    token: Secret,
    grants: Arc<[Grant]>,
    expires_s: i64,
}

impl Verifier {
    /// Creates a verifier for the issuers in `config`. Reads files but does not access the network.
    ///
    /// # Errors
    /// [`StartError::Access`] if an issuer's URL, path, keys or certificates are invalid.
    pub fn new(config: &AccessConfig) -> Result<Self, StartError> {
        let mut issuers = HashMap::new();
        for settings in &config.issuers {
            let issuer = Issuer::new(settings)
                .map_err(|error| StartError::Access(format!("issuer `{}`: {error}", settings.issuer)))?;
            if issuers.insert(settings.issuer.clone(), issuer).is_some() {
                return Err(StartError::Access(format!("issuer `{}` is configured twice", settings.issuer)));
            }
        }
        Ok(Self { issuers, audiences: Audiences::new(&config.audiences), cache: TokenCache::default() })
    }

    /// Copies the keys that `previous` has fetched, so that they need not be available now.
    pub(crate) fn adopt_keys(&self, previous: &Self) {
        for (name, issuer) in &self.issuers {
            if let Some(known) = previous.issuers.get(name) {
                issuer.keys.adopt(&known.keys);
            }
        }
    }

    /// Fetches the keys of all issuers; see [`super::Access::check_issuers`].
    pub(crate) async fn check_issuers(&self) -> Vec<(String, Result<usize, String>)> {
        let checks = self.issuers.iter().map(async |(name, issuer)| (name.clone(), issuer.keys.check().await));
        let mut outcomes = futures::future::join_all(checks).await;
        outcomes.sort();
        outcomes
    }

    /// Returns each issuer, and whether its keys could be fetched the last time.
    pub(crate) fn issuers(&self) -> impl Iterator<Item = (Arc<str>, bool)> {
        self.issuers.values().map(|issuer| (Arc::clone(&issuer.name), issuer.keys.is_reachable()))
    }

    /// Fetches the keys of all issuers in the background; failures are logged.
    pub(crate) fn fetch_keys(&self) {
        self.issuers.values().for_each(|issuer| issuer.keys.fetch());
    }

    /// Authenticates the bearer of `token` at `address`. A token that was verified less than five minutes ago costs
    /// one hash.
    ///
    /// # Errors
    /// See [`super::Access::bearer`].
    pub(crate) async fn identify(&self, token: &str, address: IpAddr) -> Result<Identity, Error> {
        let token = jwt::bounded(token)?;
        let verified = match self.cache.get(token, clock::unix_s()) {
            Some(verified) => verified,
            None => {
                let verified = Arc::new(self.verify(token).await?);
                self.cache.insert(token, Arc::clone(&verified), clock::unix_s());
                verified
            }
        };
        Ok(verified.borne_at(address))
    }

    async fn verify(&self, token: &str) -> Result<VerifiedToken, Error> {
        let jwt = Jwt::parse(token)?;
        let issuer = self.issuer(&jwt.claims.issuer)?;
        issuer.keys.verify(&jwt, &issuer.name).await?;
        // The signature is verified: the claims are those of the issuer.
        let profile = claims::profile(&jwt)?;
        let expires_s = claims::check_times(&jwt.claims, clock::unix_s())?;
        self.audiences.check(profile, &jwt.claims)?;
        let grants = scope::grants(profile, jwt.claims.scope.as_deref().unwrap_or_default(), &issuer.base)?;
        Ok(VerifiedToken {
            subject: jwt.claims.subject.map(Arc::from),
            issuer: Arc::clone(&issuer.name),
            token: Secret::new(token),
            grants: grants.into(),
            expires_s,
        })
    }

    fn issuer(&self, name: &str) -> Result<&Issuer, TokenError> {
        self.issuers.get(name).ok_or_else(|| {
            let bare = name.trim_end_matches('/');
            let twin = self.issuers.keys().find(|known| known.trim_end_matches('/') == bare);
            TokenError::UnknownIssuer { name: token_error::clip(name), twin: twin.cloned() }
        })
    }
}

impl Issuer {
    fn new(settings: &IssuerConfig) -> Result<Self, String> {
        let base = StorePath::parse(settings.base_path.as_bytes())
            .map_err(|error| format!("base_path `{}`: {error}", settings.base_path))?;
        let metadata = discovery::metadata_url(&settings.issuer)?;
        let keys = match &settings.keys {
            Some(path) => {
                key_ring_of_file(path.clone()).map_err(|error| format!("keys {}: {error}", path.display()))?
            }
            None => KeyRing::new(Box::new(Discovery::new(&settings.issuer, metadata, settings.ca.as_deref())?)),
        };
        Ok(Self { name: settings.issuer.as_str().into(), base, keys: Arc::new(keys) })
    }
}

/// Reads the keys in a file immediately, so that an invalid file prevents the start.
fn key_ring_of_file(path: PathBuf) -> Result<KeyRing, KeysError> {
    let file = KeyFile::new(path);
    let keys = file.read()?;
    Ok(KeyRing::with_keys(Box::new(file), keys))
}

impl VerifiedToken {
    fn borne_at(&self, address: IpAddr) -> Identity {
        let caller = Caller {
            subject: self.subject.clone(),
            issuer: Some(Arc::clone(&self.issuer)),
            token: Some(self.token.clone()),
            address: Some(address),
            is_nobody: false,
        };
        let (grants, expires_s) = (Arc::clone(&self.grants), Some(self.expires_s));
        Identity { caller, grants, expires_s, ..Identity::default() }
    }
}
