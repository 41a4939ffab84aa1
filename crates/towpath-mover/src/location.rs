//! One end of a copy: a path in a store, and the caller's identity there.

use std::{fmt, sync::Arc};

use towpath_proto::url::Url;
use towpath_store::{Caller, Error, Fault, PathError, Printable, Result, Store, StorePath};

use crate::{Replicas, SourceContribution};

/// A path in a store.
#[derive(Debug, Clone)]
pub struct StoreLocation {
    /// The store.
    pub store: Arc<dyn Store>,
    /// The identity used at the store.
    pub caller: Caller,
    /// The path within the store.
    pub path: StorePath,
    /// Whether the user marked it as a directory with a trailing slash, even if it does not exist yet.
    pub is_directory: bool,
    /// Prefix of the displayed path: scheme and authority of a remote store, empty for a local one.
    prefix: Arc<str>,
    server: Option<Server>,
    /// URL of the location for third-party copies; `None` for local locations and for stores without one.
    url: Option<Arc<Url>>,
    /// The replicas behind this path, if it stands for several copies of one file.
    replicas: Option<Arc<Replicas>>,
}

/// Host and port of a remote store.
pub type Server = (Arc<str>, u16);

impl StoreLocation {
    /// Creates a location in a local store.
    pub fn local(store: Arc<dyn Store>, caller: Caller, path: StorePath) -> Self {
        Self { store, caller, path, is_directory: false, prefix: "".into(), server: None, url: None, replicas: None }
    }

    /// Creates a location in the remote store at `server`; `prefix` precedes the path when it is displayed.
    pub fn remote(store: Arc<dyn Store>, caller: Caller, path: StorePath, server: Server, prefix: &str) -> Self {
        Self {
            store,
            caller,
            path,
            is_directory: false,
            prefix: prefix.into(),
            server: Some(server),
            url: None,
            replicas: None,
        }
    }

    /// Returns this location as one file with several replicas. It has no URL, because a URL would name only one of
    /// them.
    pub(crate) fn in_replicas(&self, replicas: Arc<Replicas>) -> Self {
        Self { store: Arc::clone(&replicas) as _, url: None, replicas: Some(replicas), ..self.clone() }
    }

    /// Returns the contribution of each source, if this is a file with several replicas.
    pub fn shares(&self) -> Vec<SourceContribution> {
        self.replicas.as_ref().map(|replicas| replicas.shares()).unwrap_or_default()
    }

    /// Returns the replicas, if this is a file with several.
    pub fn replicas(&self) -> Option<&Replicas> {
        self.replicas.as_deref()
    }

    /// Sets the URL of this location for third-party copies. Its path is ignored.
    pub(crate) fn named_by(self, url: Url) -> Self {
        Self { url: Some(Arc::new(url)), ..self }
    }

    /// Returns the URL for third-party copies; `None` if the caller's identity must not be sent there.
    pub(crate) fn url(&self) -> Option<Url> {
        if self.caller.is_nobody {
            return None;
        }
        // URLs of the XRootD family cannot represent names that are not UTF-8 or contain control characters.
        self.url.as_ref()?.with_path(self.path.as_bytes()).ok()
    }

    /// Sets whether the user marked it as a directory.
    pub fn called_directory(self, is_directory: bool) -> Self {
        Self { is_directory, ..self }
    }

    /// Returns `path` in the same store.
    pub fn with_path(&self, path: StorePath) -> Self {
        Self { path, is_directory: false, replicas: None, ..self.clone() }
    }

    /// Returns the prefix of the displayed path: scheme and authority of a remote store, empty for a local one.
    pub fn at(&self) -> &str {
        &self.prefix
    }

    /// Returns [`Self::at`] with the user of an HTTP URL, for arguments and lists that are read again. Messages omit that
    /// user, because people also write tokens in its place. The password is never included.
    pub fn at_with_user(&self) -> String {
        let user = self.url.as_ref().and_then(|url| url.user());
        match (user, self.prefix.split_once("://")) {
            (Some(user), Some((scheme, rest))) if !rest.contains('@') => format!("{scheme}://{user}@{rest}"),
            _ => self.prefix.to_string(),
        }
    }

    /// Adds this location to an error without a path, or with the same path.
    pub fn locate(&self, error: Error) -> Error {
        let error = error.at(&self.path);
        if self.prefix.is_empty() || error.path() != Some(&self.path) { error } else { error.in_store(&*self.prefix) }
    }

    /// Returns whether equal paths of both denote the same file: both are local, or on one server, over any protocol.
    pub fn is_beside(&self, other: &Self) -> bool {
        self.server == other.server
    }

    /// Returns host and port of the server; `None` for a local location.
    pub(crate) fn server(&self) -> Option<&Server> {
        self.server.as_ref()
    }

    /// Returns whether it is on a server.
    pub fn is_remote(&self) -> bool {
        self.server.is_some()
    }

    /// Returns whether uploads are verified in transit, as by this machine and by towpath servers. Known after an
    /// upload has begun.
    pub(crate) fn checks_on_the_way(&self) -> bool {
        !self.is_remote() || self.store.capabilities().resume
    }

    /// Returns the entry `name` of this directory.
    ///
    /// # Errors
    /// `InvalidArgument` for a name that is not valid in a path.
    pub fn join(&self, name: &[u8]) -> Result<Self> {
        let path = self.path.join(name).map_err(|error| {
            let why = if error == PathError::Relative { "not a valid name".to_owned() } else { error.to_string() };
            let message = format!("it has an entry with the invalid name `{}`: {why}", Printable(name));
            Error::new(Fault::InvalidArgument, message).at(&self.path)
        })?;
        Ok(self.with_path(path))
    }
}

impl fmt::Display for StoreLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.prefix, self.path)
    }
}
