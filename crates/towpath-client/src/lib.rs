//! Remote stores over the xroot protocol and HTTP/WebDAV.

use std::{path::PathBuf, sync::Arc};

use towpath_proto::url::Url;
use towpath_store::{Error, Fault, Result, Store, StorePath};

/// How to reach remote storages.
#[derive(Debug, Default, Clone)]
pub struct ClientOptions {
    /// PEM file with certificates to trust beside the system's.
    pub ca_file: Option<PathBuf>,
}

/// The store that `url` lies in, and the path in it.
///
/// # Errors
/// `Unsupported` for a protocol that is not spoken.
pub fn connect(url: &Url, _options: &Arc<ClientOptions>) -> Result<(Arc<dyn Store>, StorePath)> {
    Err(Error::new(Fault::Unsupported, format!("{} is not spoken yet", url.scheme().name())))
}
