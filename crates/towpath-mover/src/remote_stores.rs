//! The stores behind URLs.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use towpath_client::Client;
use towpath_proto::url::{Endpoint, Family, Password, Url};
use towpath_store::{Caller, Result, Store, StorePath};

use crate::StoreLocation;

/// Resolves URLs to locations. Locations of one site share a store, and so its connections.
#[derive(Debug)]
pub struct RemoteStores {
    client: Arc<Client>,
    stores: Mutex<HashMap<Site, Arc<dyn Store>>>,
}

/// The URLs that one store serves.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Site {
    endpoint: Endpoint,
    /// User to log in as, and the password in the URL.
    user: Option<String>,
    password: Option<Password>,
    /// Sent with every request.
    query: Option<String>,
    /// The path, if the store depends on it: a ZIP archive, or a directory of a bucket.
    path: Option<Vec<u8>>,
}

impl RemoteStores {
    /// Creates a resolver without stores; their requests are sent by `client`.
    pub fn new(client: Arc<Client>) -> Self {
        Self { client, stores: Mutex::default() }
    }

    /// Returns the client of all stores.
    pub fn client(&self) -> &Arc<Client> {
        &self.client
    }

    /// Returns the location of `url`, used with the identity of `caller`. No request is sent.
    ///
    /// # Errors
    /// As [`Client::connect`].
    pub fn locate(&self, url: &Url, caller: Caller) -> Result<StoreLocation> {
        let family = url.scheme().family();
        let is_bucket = family == Family::S3;
        // A member of an archive is named by the query, which changes the path.
        let is_archive = url.query().is_some_and(|query| query.contains("xrdcl."));
        let is_bound = is_archive || (is_bucket && url.path().ends_with(b"/"));
        let site = Site {
            endpoint: url.endpoint(),
            user: url.user().map(str::to_string),
            password: url.password().cloned(),
            query: url.query().map(str::to_string),
            path: is_bound.then(|| url.path().to_vec()),
        };
        let mut stores = self.stores.lock().unwrap_or_else(PoisonError::into_inner);
        let known = stores.get(&site).filter(|_| !is_archive).cloned();
        let (store, path) = match (known, StorePath::parse(url.path())) {
            (Some(store), Ok(path)) => (store, path),
            _ => {
                let (store, path) = self.client.connect(url)?;
                (Arc::clone(stores.entry(site).or_insert(store)), path)
            }
        };
        drop(stores);
        let separator = if family == Family::Xrootd { "/" } else { "" };
        // Over HTTP people also write a token in place of the user: it is omitted in messages.
        let user = url.user().filter(|_| family == Family::Xrootd);
        let user = user.map(|user| format!("{user}@")).unwrap_or_default();
        let prefix = format!("{}://{user}{}{separator}", url.scheme().name(), url.authority());
        // A bucket is like a server of its own: the same path in two buckets is not the same file.
        let host = if is_bucket { prefix.as_str() } else { url.host() };
        let server = (host.into(), url.port());
        let location = StoreLocation::remote(store, caller, path, server, &prefix);
        // Members of an archive are not available to third-party copies.
        let location = if is_archive { location } else { location.named_by(url.clone()) };
        Ok(location.called_directory(url.path().ends_with(b"/")))
    }
}
