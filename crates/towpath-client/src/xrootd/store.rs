//! The store behind a `root://` or `roots://` URL.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use towpath_proto::{
    checksum::{Algorithm, Algorithms, Digest},
    url::{Url, without_secrets},
    xrootd::{
        MkdirOptions, Mode, PathAndCgi, Request, StatOptions, Target,
        request::{Chmod, Mkdir, Mv, Query, Rm, Rmdir, Stat, Truncate},
        response::{StatInfo, Text, VfsInfo},
    },
};
use towpath_store::{
    Caller, Capabilities, Changes, CreateOptions, Error, Fault, Kind, ListOptions, Listing, Metadata, OpenOptions,
    Overwrite, ReadHandle, Result, Space, Store, StorePath, WriteHandle, sys::environment,
};

use super::{
    attributes, listing, metadata,
    origin::{Origin, RequestOptions, with_pair},
    read::RemoteFile,
    server::Server,
    sites::Sites,
    vector,
    write::Upload,
};
use crate::digest::compute;

/// A site that speaks the xroot protocol.
///
/// Some promises of the trait depend on the server, because the protocol cannot express them:
/// - A towpath server hides an upload until it is committed. Others show it under its name while it is written; there,
///   replacing a file destroys it immediately. A new file is opened with persist-on-successful-close, so that a lost
///   client leaves nothing.
/// - For a rename or directory that must not exist, the target is checked first; another client may create it in
///   between.
/// - The version of a file is its number, size and time in whole seconds.
/// - A handle for reading survives its connection, one for writing does not: its writes fail with `Unavailable`.
/// - Only a towpath server can set times and resume uploads, if its storage can. It is queried with the first upload
///   or change; before that, resuming counts as possible and setting times does not.
#[derive(Debug, Clone)]
pub struct XrootdStore {
    pub(super) origin: Origin,
}

impl XrootdStore {
    /// Creates the store of `url`, without a request.
    pub fn new(sites: &Arc<Sites>, url: &Url) -> Self {
        let cgi = url.query().unwrap_or_default();
        let server = Server {
            host: url.host().to_owned(),
            port: url.port(),
            tls: url.endpoint().tls,
            path: None,
            cgi: Bytes::copy_from_slice(cgi.as_bytes()),
            login_cgi: Bytes::new(),
            trusted: true,
        };
        let user = url.user().map(str::to_owned).or_else(|| environment::text("USER")).filter(|user| !user.is_empty());
        let origin = Origin {
            sites: Arc::clone(sites),
            server,
            user: user.unwrap_or_else(|| "nobody".to_owned()),
            careful: without_secrets(cgi) != cgi,
        };
        Self { origin }
    }

    /// Creates the store of a known origin.
    pub(super) fn of(origin: Origin) -> Self {
        Self { origin }
    }

    /// Returns the digest of a file that the server stores or computes; fails with `Unsupported` if it does neither.
    pub(super) async fn ask_digest(&self, caller: &Caller, path: &StorePath, algorithm: Algorithm) -> Result<Digest> {
        let request_options = RequestOptions { patient: true, ..RequestOptions::new(path) };
        let pair = format!("cks.type={algorithm}");
        let request = |mut path: PathAndCgi| {
            path.cgi = with_pair(&path.cgi, &pair);
            Query::Checksum(path).into()
        };
        let answered = self.origin.ask_for(caller, request_options, request).await;
        let Text(answer) = answered.map_err(|error| {
            // 5.5.3 reports this as a server error.
            let unknown = error.fault() == Fault::Internal && error.message().contains("not supported");
            if unknown { Error::new(Fault::Unsupported, error.message()).at(path) } else { error }
        })?;
        metadata::digest(&answer, algorithm).map_err(|error| error.at(path))
    }

    /// Computes the digest of a file by reading its content.
    pub(super) async fn digest_by_reading(
        &self,
        caller: &Caller,
        path: &StorePath,
        algorithm: Algorithm,
        progress: &(dyn Fn(u64) + Send + Sync),
    ) -> Result<Digest> {
        let file = self.open(caller, path, OpenOptions::default()).await?;
        compute(&*file, algorithm, progress).await
    }

    /// Returns whether an object exists at `path`.
    async fn exists(&self, caller: &Caller, path: &StorePath) -> Result<bool> {
        match self.stat(caller, path).await {
            Ok(_) => Ok(true),
            Err(error) if error.fault() == Fault::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }
}

/// Returns the error for an operation that the protocol lacks.
fn unsupported(what: &str, path: &StorePath) -> Error {
    Error::new(Fault::Unsupported, format!("the xroot protocol cannot {what}")).at(path)
}

#[async_trait]
impl Store for XrootdStore {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            create: true,
            write_any_order: true,
            update: true,
            remove: true,
            remove_tree: false,
            rename: true,
            copy: false,
            attributes: true,
            set_mtime: self.origin.sites.is_known_to_be_ours(&self.origin.server),
            read_bytes: towpath_store::READ_BYTES,
            vector_ranges: vector::MAX_ELEMENTS,
            vector_range_bytes: vector::MAX_ELEMENT_BYTES,
            digests: Algorithms::DEFAULT,
            resume: self.origin.sites.resumes(&self.origin.server).unwrap_or(true),
            queries: false,
            confirms: true,
        }
    }

    async fn stat(&self, caller: &Caller, path: &StorePath) -> Result<Metadata> {
        stat(&self.origin, caller, path).await
    }

    fn list(&self, caller: &Caller, path: &StorePath, options: ListOptions) -> Listing {
        listing::list(self.origin.clone(), caller, path, options)
    }

    async fn open(&self, caller: &Caller, path: &StorePath, options: OpenOptions) -> Result<Arc<dyn ReadHandle>> {
        let identity = self.origin.identity(caller);
        // Whether the path can be encoded must be known before the lazy open.
        self.origin.sites.at(&self.origin.server, &identity).path(path, &Bytes::new()).await?;
        Ok(Arc::new(RemoteFile::new(self.origin.clone(), identity, path.clone(), options)))
    }

    async fn create(&self, caller: &Caller, path: &StorePath, options: CreateOptions) -> Result<Arc<dyn WriteHandle>> {
        let upload = Upload::create(self.origin.clone(), caller, path, &options).await;
        Ok(Arc::new(upload.map_err(|error| error.at(path))?))
    }

    async fn update(&self, caller: &Caller, path: &StorePath) -> Result<Arc<dyn WriteHandle>> {
        let upload = Upload::update(self.origin.clone(), caller, path).await;
        Ok(Arc::new(upload.map_err(|error| error.at(path))?))
    }

    async fn make_directory(&self, caller: &Caller, path: &StorePath, parents: bool, mode: Option<u32>) -> Result<()> {
        let options = if parents { MkdirOptions::mkdirpath } else { MkdirOptions::NONE };
        let mode = metadata::mode_bits(mode.unwrap_or(0o755));
        if !parents {
            // The reference server reports success for an existing directory.
            match self.exists(caller, path).await {
                Ok(true) => return Err(Error::new(Fault::AlreadyExists, "it exists already").at(path)),
                // Without the right to find out, the response to the request itself counts.
                Err(error) if error.kind() != Kind::Denied => return Err(error),
                Ok(false) | Err(_) => {}
            }
        }
        let request_options = if parents { RequestOptions::new(path) } else { RequestOptions::change(path) };
        match self.origin.send_request(caller, request_options, |path| Mkdir { options, mode, path }.into()).await {
            Err(error) if parents && error.fault() == Fault::AlreadyExists => {
                let there = self.stat(caller, path).await?;
                if there.is_directory() { Ok(()) } else { Err(error) }
            }
            other => other.map(|_| ()),
        }
    }

    async fn remove_file(&self, caller: &Caller, path: &StorePath) -> Result<()> {
        let removed = self.origin.send_request(caller, RequestOptions::change(path), |path| Rm { path }.into()).await;
        removed.map(|_| ()).map_err(|error| match error.fault() {
            // 5.5.3 also tries to remove a directory, and responds as to `remove_directory`.
            Fault::AlreadyExists | Fault::NotEmpty => Error::new(Fault::IsDirectory, error.message()).at(path),
            _ => error,
        })
    }

    async fn remove_directory(&self, caller: &Caller, path: &StorePath) -> Result<()> {
        let removed =
            self.origin.send_request(caller, RequestOptions::change(path), |path| Rmdir { path }.into()).await;
        removed.map(|_| ()).map_err(|error| match error.fault() {
            // 3018 means 'exists': here that the directory has entries.
            Fault::AlreadyExists => Error::new(Fault::NotEmpty, error.message()).at(path),
            _ => error,
        })
    }

    async fn remove_tree(&self, _: &Caller, path: &StorePath) -> Result<()> {
        Err(unsupported("remove a tree at once", path))
    }

    async fn rename(&self, caller: &Caller, from: &StorePath, to: &StorePath, overwrite: Overwrite) -> Result<()> {
        if overwrite == Overwrite::Refuse && self.exists(caller, to).await? {
            return Err(Error::new(Fault::AlreadyExists, "it exists already").at(to));
        }
        let site = self.origin.sites.at(&self.origin.server, &self.origin.identity(caller));
        let to = site.path(to, &Bytes::new()).await?;
        self.origin
            .send_request(caller, RequestOptions::change(from), |from| Mv { from, to: to.clone() }.into())
            .await?;
        Ok(())
    }

    async fn copy(&self, _caller: &Caller, from: &StorePath, _to: &StorePath, _overwrite: Overwrite) -> Result<()> {
        Err(unsupported("copy a file inside a server", from))
    }

    async fn change(&self, caller: &Caller, path: &StorePath, changes: Changes) -> Result<()> {
        let is_ours = self.origin.is_ours(caller).await;
        if let Some(mtime_ns) = changes.mtime_ns {
            if !is_ours {
                return Err(unsupported("set the time of a file", path));
            }
            let mode = changes.mode.map_or(Mode::NONE, metadata::mode_bits);
            let pair = format!("{}={mtime_ns}", Chmod::MTIME_KEY);
            let request = |mut path: PathAndCgi| {
                path.cgi = with_pair(&path.cgi, &pair);
                Chmod { mode, path }.into()
            };
            self.origin.send_request(caller, RequestOptions::new(path), request).await?;
        } else if let Some(mode) = changes.mode.map(metadata::mode_bits) {
            self.origin.send_request(caller, RequestOptions::new(path), |path| Chmod { mode, path }.into()).await?;
        }
        if let Some(size) = changes.size {
            let request = |path| Request::from(Truncate { target: Target::Path(path), size });
            self.origin.send_request(caller, RequestOptions::new(path), request).await?;
        }
        Ok(())
    }

    async fn digest(
        &self,
        caller: &Caller,
        path: &StorePath,
        algorithm: Algorithm,
        progress: &(dyn Fn(u64) + Send + Sync),
    ) -> Result<Digest> {
        match self.ask_digest(caller, path, algorithm).await {
            Err(error) if error.fault() == Fault::Unsupported => {
                self.digest_by_reading(caller, path, algorithm, progress).await
            }
            answered => answered,
        }
    }

    async fn attributes(&self, caller: &Caller, path: &StorePath) -> Result<Vec<(Bytes, Bytes)>> {
        attributes::list(&self.origin, caller, path).await
    }

    async fn set_attribute(
        &self,
        caller: &Caller,
        path: &StorePath,
        name: &[u8],
        value: Option<&[u8]>,
        create: bool,
    ) -> Result<()> {
        attributes::set(&self.origin, caller, path, name, value, create).await
    }

    async fn space(&self, caller: &Caller, path: &StorePath) -> Result<Space> {
        let answered = self.origin.ask_for(caller, RequestOptions::new(path), |path| Query::Space(path).into()).await;
        if let Some(space) = answered.ok().and_then(|Text(answer)| metadata::space(&answer)) {
            return Ok(space);
        }
        let request =
            |path| Stat { options: StatOptions::vfs, wants: 0, wants_node: false, target: Target::Path(path) }.into();
        let vfs: VfsInfo = self.origin.ask_for(caller, RequestOptions::new(path), request).await?;
        Ok(metadata::space_of_vfs(&vfs))
    }
}

/// Returns the metadata of a path.
pub(super) async fn stat(origin: &Origin, caller: &Caller, path: &StorePath) -> Result<Metadata> {
    let request =
        |path| Stat { options: StatOptions::NONE, wants: 0, wants_node: true, target: Target::Path(path) }.into();
    let stat: StatInfo = origin.ask_for(caller, RequestOptions::new(path), request).await?;
    Ok(metadata::of_stat(&stat))
}
