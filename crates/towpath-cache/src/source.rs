//! The file of an entry at its origin: opened with the entry, or only when bytes are needed.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::sync::OnceCell;
use towpath_store::{
    Caller, Error, Fault, Metadata, OpenOptions, ReadHandle, Result, VersionTag,
    sys::clock::{self, Instant},
};

use crate::{cache::Cache, names::KnownVersion, origin::Origin, version::Version};

/// How long a failure to open a file is shared.
const SHARED_FAILURE: Duration = Duration::from_secs(1);

/// A file at an origin, pinned to one version.
#[derive(Debug)]
pub(crate) struct Source {
    handle: OnceCell<OpenFile>,
    /// The last failure to open it: requests that waited for it at the same time share it.
    failed: Mutex<Option<(Error, Instant)>>,
    /// How to open it.
    opening: Option<Opening>,
}

/// A file that is open at its origin.
#[derive(Debug)]
pub(crate) struct OpenFile {
    pub(crate) handle: Arc<dyn ReadHandle>,
    size: u64,
    /// Whether the origin may answer a read after a change of the file without noticing: its tags are weak.
    is_weak: bool,
}

impl OpenFile {
    fn new(handle: Arc<dyn ReadHandle>, metadata: &Metadata) -> Self {
        let is_weak = metadata.version.as_ref().is_none_or(VersionTag::is_weak);
        Self { handle, size: metadata.size, is_weak }
    }

    /// Whether each response is certainly of the opened version.
    pub(crate) fn is_strong(&self) -> bool {
        !self.is_weak
    }

    /// Checks that everything read so far was of the opened version. Costs a round trip if the tags are weak.
    ///
    /// # Errors
    /// `Changed`; errors of the origin.
    pub(crate) async fn check(&self) -> Result<()> {
        match self.is_weak {
            // A read past the end makes a store compare the version.
            true => self.handle.read(self.size, 1).await.map(drop),
            false => Ok(()),
        }
    }
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
    pub(crate) fn open(handle: Arc<dyn ReadHandle>, metadata: &Metadata) -> Self {
        Self {
            handle: OnceCell::new_with(Some(OpenFile::new(handle, metadata))),
            failed: Mutex::default(),
            opening: None,
        }
    }

    /// A file that is opened by the first request.
    pub(crate) fn lazy(cache: Cache, origin: Arc<Origin>, caller: &Caller, version: Version) -> Self {
        let opening = Opening { cache, origin, caller: caller.clone(), version };
        Self { handle: OnceCell::new(), failed: Mutex::default(), opening: Some(opening) }
    }

    /// Returns the open file.
    ///
    /// # Errors
    /// Errors of the origin; `Changed` if it has another version.
    pub(crate) async fn file(&self) -> Result<&OpenFile> {
        let open = || async {
            if let Some((error, until)) = &*self.failed.lock().unwrap_or_else(PoisonError::into_inner)
                && *until > clock::now()
            {
                return Err(error.clone());
            }
            let outcome = self.open_now().await;
            if let Err(error) = &outcome {
                let until = clock::now() + SHARED_FAILURE;
                *self.failed.lock().unwrap_or_else(PoisonError::into_inner) = Some((error.clone(), until));
            }
            outcome
        };
        self.handle.get_or_try_init(open).await
    }

    async fn open_now(&self) -> Result<OpenFile> {
        let missing = || Error::new(Fault::Internal, "the file at the origin is not open");
        let Opening { cache, origin, caller, version } = self.opening.as_ref().ok_or_else(missing)?;
        let (opened, metadata) = origin.open(caller, &version.path, OpenOptions::default()).await?;
        let metadata = metadata?;
        if Version::of(&origin.name, &version.path, &metadata).as_ref() == Some(version) {
            return Ok(OpenFile::new(opened, &metadata));
        }
        let message = format!("the origin {} has another version, although a rule says that it has not", origin.name);
        let (disk, version) = (Arc::clone(cache.disk()), version.clone());
        let forget = move || {
            KnownVersion::forget(&disk, &version.origin, &version.path);
            Ok(())
        };
        cache.disk().pool.run(forget).await?;
        Err(Error::new(Fault::Changed, message))
    }
}
