//! The store behind an `http://`, `https://`, `dav://` or `davs://` URL.

use std::{fmt, sync::Arc};

use async_trait::async_trait;
use bytes::Bytes;
use towpath_proto::{
    checksum::{Algorithm, Algorithms, Digest},
    url::{Scheme, Url},
};
use towpath_store::{
    Caller, Capabilities, Changes, CreateOptions, Error, Fault, ListOptions, Listing, Metadata, OpenOptions, Overwrite,
    ReadHandle, Result, Space, Store, StorePath, WriteHandle,
};

use super::{
    listing,
    parts::PartsUpload,
    put::{InitialState, Put},
    read::{self, RemoteFile},
    site::{Site, Sites},
    stat,
    target::Target,
    upload::Upload,
    vector,
};
use crate::passwords::Login;

/// Minimum size in bytes of a file for which free space is checked before the upload begins.
const ROOM_CHECKED_BYTES: u64 = 1 << 30;

/// A site that supports HTTP, and possibly WebDAV.
///
/// Capabilities are learned from responses; before the first one, [`Store::capabilities`] returns the possible ones.
/// Some promises depend on the server. If it ignores `If-None-Match` or `Overwrite: F`, the target is checked before;
/// changes in between are not detected. If it shows uploads while they are written, failed ones are removed. Only
/// towpath servers can resume uploads, if their storage can; before the first response this counts as possible.
#[derive(Clone)]
pub struct HttpStore {
    pub(super) site: Arc<Site>,
    /// May contain secrets.
    query: Option<Arc<str>>,
}

impl fmt::Debug for HttpStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("HttpStore").field(&self.target(&StorePath::root())).finish()
    }
}

impl HttpStore {
    /// Creates the store of `url`, without a request. The query of the URL is sent with every request.
    pub fn new(sites: &Arc<Sites>, url: &Url) -> Self {
        let site = sites.at(&url.endpoint(), Login::of(url));
        if matches!(url.scheme(), Scheme::Dav | Scheme::Davs) {
            site.features.dav.learn(true);
        }
        Self { site, query: url.query().map(Arc::from) }
    }

    /// Returns the target of `path`.
    pub(super) fn target(&self, path: &StorePath) -> Target {
        Target::new(&self.site.endpoint, path, self.query.as_deref())
    }

    /// Checks whether there is space for `bytes`, if the site reports its free space.
    async fn check_room(&self, caller: &Caller, path: &StorePath, bytes: u64) -> Result<()> {
        if bytes < ROOM_CHECKED_BYTES || !self.site.features.quota.possible() {
            return Ok(());
        }
        let parent = path.parent().unwrap_or_else(StorePath::root);
        match self.space(caller, &parent).await {
            Ok(space) if space.free < bytes => {
                let message = format!("the file needs {bytes} bytes, and {} are free", space.free);
                Err(Error::new(Fault::NoSpace, message).at(path))
            }
            // The upload itself shows whether there is enough space.
            _ => Ok(()),
        }
    }
}

/// Returns the error for an operation that HTTP does not have.
fn unsupported(what: &str, path: &StorePath) -> Error {
    Error::new(Fault::Unsupported, format!("HTTP cannot {what}")).at(path)
}

#[async_trait]
impl Store for HttpStore {
    fn capabilities(&self) -> Capabilities {
        let features = &self.site.features;
        Capabilities {
            create: true,
            write_any_order: false,
            update: false,
            remove: true,
            remove_tree: !features.is_xrootd.certain(),
            rename: features.dav.possible(),
            copy: features.dav.possible() && !features.is_xrootd.certain(),
            attributes: false,
            set_mtime: features.is_towpath.certain() || features.keeps_times.certain(),
            read_bytes: read::MAX_BYTES,
            vector_ranges: vector::MAX_RANGES,
            vector_range_bytes: vector::MAX_RANGE_BYTES,
            digests: Algorithm::ALL.into_iter().collect::<Algorithms>(),
            resume: features.is_towpath.possible() && features.takes_parts.possible() && features.resumes.possible(),
            queries: true,
            confirms: false,
        }
    }

    async fn stat(&self, caller: &Caller, path: &StorePath) -> Result<Metadata> {
        self.stat_path(caller, path).await
    }

    fn list(&self, caller: &Caller, path: &StorePath, options: ListOptions) -> Listing {
        listing::list(Arc::clone(&self.site), caller.clone(), path.clone(), self.target(path), options)
    }

    async fn open(&self, caller: &Caller, path: &StorePath, options: OpenOptions) -> Result<Arc<dyn ReadHandle>> {
        let (site, target) = (Arc::clone(&self.site), self.target(path).with_query(options.query.as_deref()));
        let file = RemoteFile::new(site, caller.clone(), path.clone(), target, options.version);
        let mut file = file.unless(options.held);
        if let Some(known) = options.known {
            file.pin_known(known).map_err(|error| error.at(path))?;
        }
        Ok(Arc::new(file))
    }

    async fn create(&self, caller: &Caller, path: &StorePath, options: CreateOptions) -> Result<Arc<dyn WriteHandle>> {
        if path.is_root() {
            return Err(Error::new(Fault::IsDirectory, "it is a directory").at(path));
        }
        self.check_room(caller, path, options.size_hint.unwrap_or(0)).await?;
        // A towpath server checks conditions itself, and never shows failed uploads; other servers may do neither.
        let before = match self.site.features.is_towpath.certain() {
            true => InitialState::Unknown,
            false => match self.stat_path(caller, path).await {
                Ok(_) if options.overwrite == Overwrite::Refuse => {
                    return Err(Error::new(Fault::AlreadyExists, "it exists already").at(path));
                }
                Ok(metadata) => InitialState::Something(metadata),
                Err(error) if error.fault() == Fault::NotFound => InitialState::Nothing,
                Err(error) if error.fault() == Fault::NotDirectory => return Err(error),
                Err(_) => InitialState::Unknown,
            },
        };
        let put = Put { store: self.clone(), caller: caller.clone(), path: path.clone(), options, before };
        if let Some(size) = put.size_in_parts()?
            && let Some(parts) = PartsUpload::begin(&put, size).await.map_err(|error| error.at(path))?
        {
            return Ok(Arc::new(parts));
        }
        Ok(Arc::new(Upload::new(put)))
    }

    async fn update(&self, _caller: &Caller, path: &StorePath) -> Result<Arc<dyn WriteHandle>> {
        Err(unsupported("change a file in place", path))
    }

    async fn make_directory(&self, caller: &Caller, path: &StorePath, parents: bool, _mode: Option<u32>) -> Result<()> {
        if parents { self.make_directories(caller, path).await } else { self.make_one_directory(caller, path).await }
    }

    async fn remove_file(&self, caller: &Caller, path: &StorePath) -> Result<()> {
        self.delete_file(caller, path).await
    }

    async fn remove_directory(&self, caller: &Caller, path: &StorePath) -> Result<()> {
        self.delete_directory(caller, path).await
    }

    async fn remove_tree(&self, caller: &Caller, path: &StorePath) -> Result<()> {
        self.delete_tree(caller, path).await
    }

    async fn rename(&self, caller: &Caller, from: &StorePath, to: &StorePath, overwrite: Overwrite) -> Result<()> {
        self.transfer("MOVE", caller, (from, to), overwrite).await
    }

    async fn copy(&self, caller: &Caller, from: &StorePath, to: &StorePath, overwrite: Overwrite) -> Result<()> {
        self.transfer("COPY", caller, (from, to), overwrite).await
    }

    async fn change(&self, caller: &Caller, path: &StorePath, changes: Changes) -> Result<()> {
        match changes {
            Changes { mode: None, mtime_ns, size: None } => match mtime_ns {
                Some(mtime_ns) => self.set_mtime(caller, path, mtime_ns).await,
                None => Ok(()),
            },
            _ => Err(unsupported("change mode or size of a file", path)),
        }
    }

    async fn digest(
        &self,
        caller: &Caller,
        path: &StorePath,
        algorithm: Algorithm,
        progress: &(dyn Fn(u64) + Send + Sync),
    ) -> Result<Digest> {
        self.digest_of(caller, path, algorithm, progress).await.map_err(|error| error.at(path))
    }

    async fn attributes(&self, _caller: &Caller, path: &StorePath) -> Result<Vec<(Bytes, Bytes)>> {
        Err(unsupported("read attributes", path))
    }

    async fn set_attribute(
        &self,
        _caller: &Caller,
        path: &StorePath,
        _name: &[u8],
        _value: Option<&[u8]>,
        _create: bool,
    ) -> Result<()> {
        Err(unsupported("set attributes", path))
    }

    async fn space(&self, caller: &Caller, path: &StorePath) -> Result<Space> {
        let entry = stat::entry(&self.site, caller, path, &self.target(path)).await?;
        self.site.features.quota.learn(entry.quota_available_bytes.is_some());
        let Some(free) = entry.quota_available_bytes else {
            let message = "the server does not report free space";
            return Err(Error::new(Fault::Unsupported, message).at(path));
        };
        Ok(Space { total: free.saturating_add(entry.quota_used_bytes.unwrap_or(0)), free })
    }
}
