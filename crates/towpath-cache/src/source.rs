//! The file of an entry at its origin: opened with the entry, or only when bytes are needed.

use std::sync::Arc;

use tokio::sync::OnceCell;
use towpath_store::{Caller, Error, Fault, OpenOptions, ReadHandle, Result};

use crate::{cache::Cache, names::KnownVersion, origin::Origin, version::Version};

/// A file at an origin, pinned to one version.
#[derive(Debug)]
pub(crate) struct Source {
    handle: OnceCell<Arc<dyn ReadHandle>>,
    /// How to open it.
    opening: Option<Opening>,
}

#[derive(Debug)]
struct Opening {
    cache: Cache,
    origin: Arc<Origin>,
    caller: Caller,
    version: Version,
}

impl Source {
    /// Wraps an open file.
    pub(crate) fn open(handle: Arc<dyn ReadHandle>) -> Self {
        Self { handle: OnceCell::new_with(Some(handle)), opening: None }
    }

    /// A file that is opened by the first request.
    pub(crate) fn lazy(cache: Cache, origin: Arc<Origin>, caller: &Caller, version: Version) -> Self {
        let opening = Opening { cache, origin, caller: caller.clone(), version };
        Self { handle: OnceCell::new(), opening: Some(opening) }
    }

    /// Returns the open file.
    ///
    /// # Errors
    /// Errors of the origin; `Changed` if it has another version.
    pub(crate) async fn handle(&self) -> Result<&Arc<dyn ReadHandle>> {
        self.handle.get_or_try_init(|| self.open_now()).await
    }

    async fn open_now(&self) -> Result<Arc<dyn ReadHandle>> {
        let missing = || Error::new(Fault::Internal, "the file at the origin is not open");
        let Opening { cache, origin, caller, version } = self.opening.as_ref().ok_or_else(missing)?;
        let opened = origin.store.open(&origin.identity(caller), &version.path, OpenOptions::default()).await?;
        let metadata = opened.metadata().await?;
        if Version::of(&origin.name, &version.path, &metadata).as_ref() == Some(version) {
            return Ok(opened);
        }
        let (cache, version) = (cache.clone(), version.clone());
        let message = format!("the origin {} has another version, although a rule says that it has not", origin.name);
        let forget = move || {
            KnownVersion::forget(cache.disk(), &version.origin, &version.path);
            Ok(())
        };
        let pool = self.opening.as_ref().map(|opening| opening.cache.disk().pool.clone());
        if let Some(pool) = pool {
            pool.run(forget).await?;
        }
        Err(Error::new(Fault::Changed, message))
    }
}
