//! Amazon's S3, and what speaks like it (MinIO, Ceph, SeaweedFS, …): `s3://bucket/key` as a store.
//!
//! | layer | module |
//! | --- | --- |
//! | a bucket as a [`Store`](towpath_store::Store) | `store`, `names`, `listing` |
//! | an object being read; written, in parts | `file`; `upload`, `parts`, `budget` |
//! | single requests | `bucket` |
//! | where buckets are, as whom they are asked for | `settings`, `profile` |
//! | signatures, and where credentials come from (`object_store`) | `signer`, `messenger` |
//!
//! S3 is HTTP: requests go by the same sites and connections as those of `http(s)://`, with the same repetitions and bounds, and are signed on
//! their way out. Of the crate `object_store` come the signature and Amazon's ways to get credentials. Its own stores cannot say what is needed
//! here: a condition on the end of an upload in parts, the digests of an object, markers of directories, and whose fault an error is.
//! `docs/s3.md` tells what a bucket can and cannot promise.

mod bucket;
mod budget;
mod file;
mod listing;
mod messenger;
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
use crate::{ClientOptions, dial::Dialer};
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
    dialer: Arc<Dialer>,
    ways: OnceLock<Result<Ways>>,
    sites: Mutex<HashMap<towpath_proto::url::Endpoint, Arc<Site>>>,
    budget: Arc<Budget>,
}

/// What is found out once: from then on it is as it was.
#[derive(Debug)]
struct Ways {
    settings: Settings,
    signer: Arc<Signer>,
}

impl Sites {
    /// No buckets yet; nothing is looked for.
    pub(crate) fn new(options: Arc<ClientOptions>, http: Arc<HttpSites>, dialer: Arc<Dialer>) -> Arc<Self> {
        let budget = Budget::new(options.window_bytes as u64);
        Arc::new(Self { options, http, dialer, ways: OnceLock::new(), sites: Mutex::default(), budget })
    }

    fn ways(&self) -> Result<&Ways> {
        let find = || {
            let settings = Settings::find(&self.options.s3)?;
            let signer = Arc::new(Signer::new(&settings, &self.options, &self.dialer)?);
            Ok(Ways { settings, signer })
        };
        self.ways.get_or_init(find).as_ref().map_err(Clone::clone)
    }

    /// The bucket of that name.
    fn bucket(&self, name: &str) -> Result<bucket::Bucket> {
        let Ways { settings, signer } = self.ways()?;
        let (endpoint, prefix) = settings.place_of(name);
        let mut sites = self.sites.lock().unwrap_or_else(PoisonError::into_inner);
        let site = sites
            .entry(endpoint)
            .or_insert_with_key(|endpoint| Arc::new(self.http.signed(endpoint.clone(), Arc::clone(signer))));
        let region = Some(settings.region.as_str().into()).filter(|_| settings.is_amazon());
        Ok(bucket::Bucket { site: Arc::clone(site), prefix, name: name.into(), region })
    }
}
