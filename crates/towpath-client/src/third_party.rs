//! Third-party copies between two sites at the request of this client. The content of the file does not pass through
//! this machine.

use std::fmt;

use towpath_proto::url::{Family, Url};
use towpath_store::{Caller, Error, Fault, Overwrite, Result, StorePath};

use crate::{Client, http, xrootd};

/// The site that carries out the copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TransferMode {
    /// The destination fetches the file.
    Pull,
    /// The source sends the file.
    Push,
}

impl fmt::Display for TransferMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            TransferMode::Pull => "pull",
            TransferMode::Push => "push",
        })
    }
}

/// The source and destination of a copy, and its options.
#[derive(Debug, Clone, Copy)]
pub struct SiteCopy<'a> {
    /// The source file.
    pub from: &'a Url,
    /// The destination file.
    pub to: &'a Url,
    /// The site that carries out the copy.
    pub mode: TransferMode,
    /// What to do if the destination exists.
    pub overwrite: Overwrite,
}

/// Called periodically with the number of bytes written at the destination.
pub type OnProgress<'a> = &'a (dyn Fn(u64) + Send + Sync);

impl Client {
    /// Requests a copy between two sites. On return the destination has confirmed the file. Dropping the future
    /// cancels the copy.
    ///
    /// The token of `caller`, or else that of the options, is passed to the site that carries out the copy, for
    /// authentication at the other site, if both use TLS (or are this machine).
    ///
    /// # Errors
    /// `Unsupported` if the sites do not support the copy, or not in this direction; errors of the site that carries
    /// out the copy.
    pub async fn copy_between(&self, caller: &Caller, copy: SiteCopy<'_>, written: OnProgress<'_>) -> Result<()> {
        let SiteCopy { from, to, mode, overwrite } = copy;
        let (active, other) = if mode == TransferMode::Pull { (to, from) } else { (from, to) };
        let path_of = |url: &Url| {
            StorePath::parse(url.path()).map_err(|error| Error::new(Fault::InvalidArgument, error.to_string()))
        };
        match (from.scheme().family(), to.scheme().family(), mode) {
            (Family::Http, Family::Http, _) => {
                http::HttpStore::new(&self.http, other).check_name(&path_of(other)?)?;
                let store = http::HttpStore::new(&self.http, active);
                let active = path_of(active)?;
                store.copy_with(caller, &active, http::PeerSite { url: other, mode, overwrite }, written).await
            }
            (Family::Xrootd, Family::Xrootd, TransferMode::Pull) => {
                let ends = [(from, path_of(from)?), (to, path_of(to)?)]
                    .map(|(url, path)| (xrootd::XrootdStore::new(&self.xrootd, url), path));
                xrootd::copy_between(caller, ends, overwrite, written).await
            }
            (Family::Xrootd, Family::Xrootd, TransferMode::Push) => {
                Err(Error::new(Fault::Unsupported, "xroot third-party copies support only pull by the destination"))
            }
            _ => Err(Error::new(Fault::Unsupported, "the two servers use different protocols")),
        }
    }
}
