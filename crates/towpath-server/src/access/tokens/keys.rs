//! The public keys of an issuer: a JWKS (RFC 7517), from a file or another source.

use std::{fmt, io, path::PathBuf};

use async_trait::async_trait;
use jsonwebtoken::{
    Algorithm, DecodingKey, crypto,
    jwk::{AlgorithmParameters, EllipticCurve, Jwk, KeyAlgorithm, KeyOperations, PublicKeyUse},
};
use serde::Deserialize;
use towpath_store::sys::disk;

use super::{discovery::DiscoveryError, jwt::Jwt};

/// Maximum size of a JWKS, in bytes. Real ones have a few keys of a few KiB with their certificates.
pub(super) const MAX_JWKS_BYTES: u64 = 256 << 10;
/// Maximum number of keys of an issuer; further ones are ignored.
const MAX_KEYS: usize = 64;

/// A source of keys.
#[async_trait]
pub(super) trait KeySource: fmt::Debug + Send + Sync {
    /// Returns the issuer or the file, for the log.
    fn name(&self) -> String;
    /// Loads the issuer's current keys.
    async fn load(&self) -> Result<KeySet, KeysError>;
}

/// Why keys could not be loaded. Clients may read it, so it does not contain file names.
#[derive(Debug, thiserror::Error)]
pub(super) enum KeysError {
    #[error("their file cannot be read: {0}")]
    File(#[from] io::Error),
    #[error("they are not a valid JWKS: {0}")]
    Malformed(serde_json::Error),
    #[error("none of them is an RSA or P-256 key for signatures by RS256 or ES256")]
    NoneUsable,
    #[error(transparent)]
    Discovery(#[from] DiscoveryError),
}

/// The keys of an issuer that can verify a token.
#[derive(Debug, Default)]
pub(super) struct KeySet(Vec<Key>);

#[derive(Debug)]
struct Key {
    id: Option<String>,
    algorithm: Algorithm,
    key: DecodingKey,
}

#[derive(Deserialize)]
struct Jwks {
    keys: Vec<serde_json::Value>,
}

impl KeySet {
    /// Parses the usable keys of a JWKS. Keys of other types or for other uses are skipped (RFC 7517 §5).
    pub(super) fn parse(json: &[u8]) -> Result<Self, KeysError> {
        let jwks: Jwks = serde_json::from_slice(json).map_err(KeysError::Malformed)?;
        let keys: Vec<Key> = jwks.keys.into_iter().filter_map(Key::new).take(MAX_KEYS).collect();
        if keys.is_empty() { Err(KeysError::NoneUsable) } else { Ok(Self(keys)) }
    }

    /// Returns the keys that may have signed `jwt`: those with its key identifier or, if it has none, the only key.
    fn candidates(&self, jwt: &Jwt<'_>) -> impl Iterator<Item = &Key> {
        let fit = |key: &&Key| key.algorithm == jwt.algorithm;
        let only = self.0.iter().filter(fit).count() == 1;
        self.0.iter().filter(fit).filter(move |key| match &jwt.key_id {
            Some(id) => key.id.as_ref() == Some(id),
            None => only,
        })
    }

    /// Returns the number of keys.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether a key may have signed `jwt`.
    pub(super) fn has_key_of(&self, jwt: &Jwt<'_>) -> bool {
        self.candidates(jwt).next().is_some()
    }

    /// Whether `jwt` was signed with one of the keys.
    pub(super) fn verifies(&self, jwt: &Jwt<'_>) -> bool {
        self.candidates(jwt).any(|candidate| {
            crypto::verify(jwt.signature, jwt.signed, &candidate.key, candidate.algorithm).unwrap_or(false)
        })
    }
}

impl Key {
    fn new(json: serde_json::Value) -> Option<Self> {
        let jwk: Jwk = serde_json::from_value(json).ok()?;
        let (algorithm, name) = match &jwk.algorithm {
            AlgorithmParameters::RSA(_) => (Algorithm::RS256, KeyAlgorithm::RS256),
            AlgorithmParameters::EllipticCurve(curve) if curve.curve == EllipticCurve::P256 => {
                (Algorithm::ES256, KeyAlgorithm::ES256)
            }
            _ => return None,
        };
        let common = &jwk.common;
        let meant = common.key_algorithm.is_none_or(|meant| meant == name)
            && common.public_key_use.as_ref().is_none_or(|meant| *meant == PublicKeyUse::Signature)
            && common.key_operations.as_ref().is_none_or(|meant| meant.contains(&KeyOperations::Verify));
        let key = DecodingKey::from_jwk(&jwk).ok()?;
        meant.then_some(Self { id: jwk.common.key_id, algorithm, key })
    }
}

/// A JWKS file.
#[derive(Debug, Clone)]
pub(super) struct KeyFile(PathBuf);

impl KeyFile {
    pub(super) fn new(path: PathBuf) -> Self {
        Self(path)
    }

    /// Reads the keys in the file.
    pub(super) fn read(&self) -> Result<KeySet, KeysError> {
        KeySet::parse(&disk::read(&self.0, MAX_JWKS_BYTES)?)
    }
}

#[async_trait]
impl KeySource for KeyFile {
    fn name(&self) -> String {
        self.0.display().to_string()
    }

    async fn load(&self) -> Result<KeySet, KeysError> {
        let file = self.clone();
        tokio::task::spawn_blocking(move || file.read())
            .await
            .unwrap_or_else(|error| Err(io::Error::other(error).into()))
    }
}
