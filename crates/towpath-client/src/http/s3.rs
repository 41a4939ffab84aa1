//! Stores for `s3://bucket/key`: Amazon's S3 and compatible servers (MinIO, Ceph, SeaweedFS, …).
//!
//! | layer | module |
//! | --- | --- |
//! | a bucket as a [`Store`](towpath_store::Store) | `store`, `names`, `listing` |
//! | an object being read; written, in parts | `file`; `upload`, `parts`, `budget` |
//! | single requests | `bucket` |
//! | endpoints and credentials of buckets | `settings`, `profile` |
//! | signatures, and sources of credentials (`object_store`) | `signer`, `credential_client` |
//!
//! S3 is HTTP: requests use the same sites and connections as `http(s)://`, with the same retries and limits, and are
//! signed. The crate `object_store` provides the signature and Amazon's ways to get credentials. Its own stores lack
//! some requirements: a condition on the completion of a multipart upload, the digests of an object, directory
//! markers, and blame for errors. `docs/guides/s3.md` describes the guarantees of a bucket.

mod bucket;
mod budget;
mod credential_client;
mod file;
mod listing;
mod names;
mod parts;
mod profile;
mod settings;
mod signer;
mod store;
mod upload;

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, OnceLock, PoisonError},
};

use towpath_store::Result;

use super::{site::Site, site::Sites as HttpSites};
use crate::ClientOptions;
use budget::Budget;
use settings::Settings;
pub use settings::{S3Keys, S3Options};
pub(super) use signer::Signer;
pub use store::S3Store;

/// The buckets of one client.
#[derive(Debug)]
pub struct Sites {
    options: Arc<ClientOptions>,
    http: Arc<HttpSites>,
    resolved: OnceLock<Result<ResolvedSettings>>,
    sites: Mutex<HashMap<towpath_proto::url::Endpoint, Arc<Site>>>,
    budget: Arc<Budget>,
}

/// Settings and credentials, determined once and then cached.
#[derive(Debug)]
struct ResolvedSettings {
    settings: Settings,
    signer: Arc<Signer>,
}

impl Sites {
    /// Creates the set without any bucket; reads no settings yet.
    pub(crate) fn new(options: Arc<ClientOptions>, http: Arc<HttpSites>) -> Arc<Self> {
        let budget = Budget::new(options.window_bytes as u64);
        Arc::new(Self { options, http, resolved: OnceLock::new(), sites: Mutex::default(), budget })
    }

    fn resolved_settings(&self) -> Result<&ResolvedSettings> {
        let find = || {
            let settings = Settings::find(&self.options.s3)?;
            let signer = Arc::new(Signer::new(&settings, &self.http.pools)?);
            Ok(ResolvedSettings { settings, signer })
        };
        self.resolved.get_or_init(find).as_ref().map_err(Clone::clone)
    }

    /// Returns the bucket with this name.
    fn bucket(&self, name: &str) -> Result<bucket::Bucket> {
        let ResolvedSettings { settings, signer } = self.resolved_settings()?;
        let (endpoint, prefix) = settings.target_of(name);
        let mut sites = self.sites.lock().unwrap_or_else(PoisonError::into_inner);
        let site = sites
            .entry(endpoint)
            .or_insert_with_key(|endpoint| Arc::new(self.http.signed(endpoint.clone(), Arc::clone(signer))));
        let region = Some(settings.region.as_str().into()).filter(|_| settings.is_amazon());
        Ok(bucket::Bucket { site: Arc::clone(site), prefix, name: name.into(), region })
    }
}
