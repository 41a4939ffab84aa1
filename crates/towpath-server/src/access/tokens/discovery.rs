//! Key discovery by OpenID Connect Discovery 1.0: the issuer's metadata contain the URL of its JWKS.

use std::{path::Path, time::Duration};

use async_trait::async_trait;
use serde::Deserialize;

use super::{
    fetch::{Fetch, FetchError, Url},
    keys::{KeySet, KeySource, KeysError},
    token_error::clip,
};

/// Path of an issuer's metadata below its URL (OpenID Connect Discovery §4).
const METADATA: &str = "/.well-known/openid-configuration";
/// Timeout for fetching metadata and keys. A request waits for them, and its client is to get a response within 10 s.
const FETCH_TIMEOUT: Duration = Duration::from_secs(8);

/// Fetches the keys of one issuer.
#[derive(Debug)]
pub(super) struct Discovery {
    issuer: String,
    metadata: Url,
    fetch: Fetch,
}

/// Why discovery failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum DiscoveryError {
    #[error("{url}: {source}")]
    Fetch { url: String, source: FetchError },
    #[error("the issuer's metadata is malformed: {0}")]
    Malformed(#[from] serde_json::Error),
    #[error("the metadata at that URL belongs to another issuer, `{0}`")]
    OtherIssuer(String),
    #[error("the URL of the keys in the issuer's metadata, `{0}`, is not allowed: it must be https")]
    KeysPlace(String),
    #[error("the issuer did not respond within {} s", FETCH_TIMEOUT.as_secs())]
    TimedOut,
}

/// The required part of an issuer's metadata.
#[derive(Deserialize)]
struct Metadata {
    issuer: String,
    jwks_uri: String,
}

/// Returns the URL of the metadata of `issuer`.
///
/// # Errors
/// Describes what is wrong with the issuer's URL.
pub(super) fn metadata_url(issuer: &str) -> Result<Url, String> {
    if issuer.contains(['?', '#']) {
        return Err("the URL of an issuer has no query and no fragment".into());
    }
    let url = format!("{}{METADATA}", issuer.strip_suffix('/').unwrap_or(issuer));
    Url::parse(&url).map_err(|error| error.to_string())
}

impl Discovery {
    /// Creates discovery for `issuer` that trusts the certificates in the file `ca` in addition to the system's.
    ///
    /// # Errors
    /// Describes what is wrong with the certificates.
    pub(super) fn new(issuer: &str, metadata: Url, ca: Option<&Path>) -> Result<Self, String> {
        let fetch = Fetch::new(metadata.is_encrypted(), ca)?;
        Ok(Self { issuer: issuer.into(), metadata, fetch })
    }

    async fn find(&self) -> Result<KeySet, KeysError> {
        let metadata: Metadata =
            serde_json::from_slice(&self.get(&self.metadata).await?).map_err(DiscoveryError::Malformed)?;
        if metadata.issuer != self.issuer {
            return Err(DiscoveryError::OtherIssuer(clip(&metadata.issuer)).into());
        }
        let url = Url::parse(&metadata.jwks_uri)
            .ok()
            .filter(|url| url.is_encrypted() == self.metadata.is_encrypted())
            .ok_or_else(|| DiscoveryError::KeysPlace(clip(&metadata.jwks_uri)))?;
        KeySet::parse(&self.get(&url).await?)
    }

    async fn get(&self, url: &Url) -> Result<bytes::Bytes, DiscoveryError> {
        self.fetch.get(url).await.map_err(|source| DiscoveryError::Fetch { url: url.to_string(), source })
    }
}

#[async_trait]
impl KeySource for Discovery {
    fn name(&self) -> String {
        self.issuer.clone()
    }

    async fn load(&self) -> Result<KeySet, KeysError> {
        tokio::time::timeout(FETCH_TIMEOUT, self.find()).await.unwrap_or_else(|_| Err(DiscoveryError::TimedOut.into()))
    }
}
