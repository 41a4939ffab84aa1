//! One end of a copy: a path in a store, and the identity used there.

use std::{fmt, sync::Arc};

use towpath_proto::url::Url;
use towpath_store::{Caller, Error, Fault, PathError, Printable, Result, Store, StorePath};

use crate::{Replicas, Share};

/// A path in a store.
#[derive(Debug, Clone)]
pub struct Place {
    /// The store.
    pub store: Arc<dyn Store>,
    /// Who asks there.
    pub caller: Caller,
    /// The path in it.
    pub path: StorePath,
    /// Whether it is called a directory by who named it (it ends in a slash), even if it does not exist yet.
    pub is_directory: bool,
    /// What stands before the path when it is shown: scheme and authority of a remote store, nothing for local ones.
    prefix: Arc<str>,
    server: Option<Server>,
    /// URL of the place for third-party copies; `None` for local places and for stores without one.
    url: Option<Arc<Url>>,
    /// What stands behind it, if it is one file in several places.
    replicas: Option<Arc<Replicas>>,
}

/// Host and port of a remote store.
pub type Server = (Arc<str>, u16);

impl Place {
    /// `path` in a store of this machine.
    pub fn local(store: Arc<dyn Store>, caller: Caller, path: StorePath) -> Self {
        Self { store, caller, path, is_directory: false, prefix: "".into(), server: None, url: None, replicas: None }
    }

    /// `path` in the store behind `server`, shown after `prefix`.
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

    /// Returns this place as one file in several replicas. It has no URL: that would name only one of them.
    pub(crate) fn in_replicas(&self, replicas: Arc<Replicas>) -> Self {
        Self { store: Arc::clone(&replicas) as _, url: None, replicas: Some(replicas), ..self.clone() }
    }

    /// What each source has given, if it is one file in several places.
    pub fn shares(&self) -> Vec<Share> {
        self.replicas.as_ref().map(|replicas| replicas.shares()).unwrap_or_default()
    }

    /// Returns the sources of a file in several places.
    pub fn replicas(&self) -> Option<&Replicas> {
        self.replicas.as_deref()
    }

    /// Sets the URL of this place for third-party copies. Its path is ignored.
    pub fn named_by(self, url: Url) -> Self {
        Self { url: Some(Arc::new(url)), ..self }
    }

    /// Returns the URL for third-party copies; `None` if the caller's identity must not be sent there.
    pub(crate) fn url(&self) -> Option<Url> {
        if self.caller.is_nobody {
            return None;
        }
        // A URL of the XRootD family cannot say a name that is not UTF-8 or has control characters.
        self.url.as_ref()?.with_path(self.path.as_bytes()).ok()
    }

    /// Says whether who named it calls it a directory.
    pub fn called_directory(self, is_directory: bool) -> Self {
        Self { is_directory, ..self }
    }

    /// The same store with another path.
    pub fn with_path(&self, path: StorePath) -> Self {
        Self { path, is_directory: false, replicas: None, ..self.clone() }
    }

    /// What stands before the path when it is shown: scheme and authority of a remote store, nothing for local ones.
    pub fn at(&self) -> &str {
        &self.prefix
    }

    /// Names this place in an error that has no path, or the same path.
    pub fn locate(&self, error: Error) -> Error {
        let error = error.at(&self.path);
        if self.prefix.is_empty() || error.path() != Some(&self.path) { error } else { error.in_store(&*self.prefix) }
    }

    /// Whether paths of both mean the same files: both local, or on one server, whatever the protocol.
    pub fn is_beside(&self, other: &Self) -> bool {
        self.server == other.server
    }

    /// Host and port of the server; none for local ones.
    pub(crate) fn server(&self) -> Option<&Server> {
        self.server.as_ref()
    }

    /// Whether it is at a server.
    pub fn is_remote(&self) -> bool {
        self.server.is_some()
    }

    /// Returns whether uploads are verified in transit, as by this machine and by towpath servers. Known once an
    /// upload has begun.
    pub(crate) fn checks_on_the_way(&self) -> bool {
        !self.is_remote() || self.store.capabilities().resume
    }

    /// The entry `name` of this directory.
    ///
    /// # Errors
    /// `InvalidArgument` for a name that no path can have.
    pub fn join(&self, name: &[u8]) -> Result<Self> {
        let path = self.path.join(name).map_err(|error| {
            let why = if error == PathError::Relative { "it is no name".to_owned() } else { error.to_string() };
            let message = format!("no path can have its entry `{}`: {why}", Printable(name));
            Error::new(Fault::InvalidArgument, message).at(&self.path)
        })?;
        Ok(self.with_path(path))
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.prefix, self.path)
    }
}
