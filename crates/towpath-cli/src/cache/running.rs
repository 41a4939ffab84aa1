//! A running cache of this machine, found by its directory.

use std::{path::Path, sync::Arc, time::Duration};

use serde_json::Value;
use towpath_client::{Client, ClientOptions, DocumentRequest, ProxySettings, TokenSource};
use towpath_server::routes::{ROUTE_FIELD, ROUTES_PREFIX};
use towpath_store::Caller;

use super::control::ControlFile;
use crate::failure::Failure;

/// Maximum length of a response in bytes.
const MAX_RESPONSE_BYTES: usize = 1 << 20;
/// Maximum duration of a request.
const PATIENCE: Duration = Duration::from_secs(600);

/// A running cache, and the right to control it.
#[derive(Debug)]
pub(crate) struct RunningCache {
    client: Client,
    control: ControlFile,
}

impl RunningCache {
    /// Finds the cache that uses `directory`. It may have ended without removing its file.
    ///
    /// # Errors
    /// There is none, or it belongs to another user.
    pub(crate) fn find(directory: &Path) -> Result<Self, Failure> {
        let control = ControlFile::read(directory).map_err(|error| {
            let directory = directory.display();
            Failure::Usage(format!("{directory}: no running cache is found there: reading `control`: {error}"))
        })?;
        let options = ClientOptions {
            token: TokenSource::Nothing,
            proxies: ProxySettings::default(),
            // The certificate is for the name of the cache, and the connection stays within this machine.
            insecure: true,
            warn_insecure: false,
            retries: 0,
            ..ClientOptions::default()
        };
        Ok(Self { client: Client::new(Arc::new(options)), control })
    }

    /// Returns the URL of the cache, without a path: `http://127.0.0.1:1094`.
    pub(crate) fn url(&self) -> &str {
        &self.control.url
    }

    /// Returns the response of a route, such as `cache/stats`, with its query.
    ///
    /// # Errors
    /// The cache does not respond, or refuses.
    pub(crate) async fn request(&self, route: &str) -> Result<Value, Failure> {
        let url = format!("{}{ROUTES_PREFIX}{route}", self.control.url);
        let request = DocumentRequest {
            accept: "application/json",
            document: Some(("text/plain", self.control.key.as_bytes())),
            refusal_type: None,
            etag: None,
            field: Some((ROUTE_FIELD, "1")),
            limit_bytes: MAX_RESPONSE_BYTES,
            patience: PATIENCE,
        };
        let response = self.client.request_document(&url, &Caller::nobody(), request).await?;
        serde_json::from_slice(&response.body)
            .map_err(|error| Failure::internal(format!("the response of the cache is not JSON: {error}")))
    }
}
