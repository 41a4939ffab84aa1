//! Third-party copies between two sites at the request of this client. No byte of the file passes through this
//! machine.

use std::fmt;

use towpath_proto::url::{Family, Url};
use towpath_store::{Caller, Error, Fault, Overwrite, Result, StorePath};

use crate::{Client, http, xrootd};

/// Which of the two sites does the work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// The destination fetches the file.
    Pull,
    /// The source sends it.
    Push,
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Way::Pull => "pull",
            Way::Push => "push",
        })
    }
}

/// The files of a copy.
#[derive(Debug, Clone, Copy)]
pub struct SiteCopy<'a> {
    /// The file.
    pub from: &'a Url,
    /// Its copy.
    pub to: &'a Url,
    /// The site that carries out the copy.
    pub way: Way,
    /// What to do about a file that is there already.
    pub overwrite: Overwrite,
}

/// Told now and then how many bytes have been written at the destination.
pub type Written<'a> = &'a (dyn Fn(u64) + Send + Sync);

impl Client {
    /// Requests a copy between two sites. On return the destination has confirmed the file. Dropping the future
    /// cancels the copy.
    ///
    /// The token of `caller`, or else that of the options, is handed to the site that does the work, to be shown to the
    /// other one, if both speak TLS (or are this machine).
    ///
    /// # Errors
    /// `Unsupported` if the sites cannot do that, or not this way; those of the site that does the work.
    pub async fn copy_between(&self, caller: &Caller, copy: SiteCopy<'_>, written: Written<'_>) -> Result<()> {
        let SiteCopy { from, to, way, overwrite } = copy;
        let (active, other) = if way == Way::Pull { (to, from) } else { (from, to) };
        let path_of = |url: &Url| {
            StorePath::parse(url.path()).map_err(|error| Error::new(Fault::InvalidArgument, error.to_string()))
        };
        match (from.scheme().family(), to.scheme().family(), way) {
            (Family::Http, Family::Http, _) => {
                http::HttpStore::new(&self.http, other).check_name(&path_of(other)?)?;
                let store = http::HttpStore::new(&self.http, active);
                let active = path_of(active)?;
                store.copy_with(caller, &active, http::Other { url: other, way, overwrite }, written).await
            }
            (Family::Xrootd, Family::Xrootd, Way::Pull) => {
                let ends = [(from, path_of(from)?), (to, path_of(to)?)]
                    .map(|(url, path)| (xrootd::XrootdStore::new(&self.xrootd, url), path));
                xrootd::copy_between(caller, ends, overwrite, written).await
            }
            (Family::Xrootd, Family::Xrootd, Way::Push) => {
                Err(Error::new(Fault::Unsupported, "over xroot it is the destination that fetches"))
            }
            _ => Err(Error::new(Fault::Unsupported, "the two sites speak different protocols")),
        }
    }
}
