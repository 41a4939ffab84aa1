//! Bearer tokens: JWT by the WLCG profile and SciTokens.

use std::net::IpAddr;

use towpath_store::{Error, Fault, Result};

use super::Identity;
use crate::{StartError, config::AccessConfig};

/// Verifies tokens of the configured issuers.
#[derive(Debug)]
pub struct Verifier {}

impl Verifier {
    /// A verifier for the issuers in `config`.
    ///
    /// # Errors
    /// [`StartError::Access`] if an issuer's path or keys cannot be used.
    pub fn new(_config: &AccessConfig) -> Result<Self, StartError> {
        Ok(Self {})
    }

    /// Who bears `token`.
    ///
    /// # Errors
    /// See [`super::Access::bearer`].
    pub async fn identify(&self, _token: &str, _address: IpAddr) -> Result<Identity> {
        Err(Error::new(Fault::AuthenticationFailed, "no issuer is believed"))
    }
}
