//! The file of an entry at an origin: opened with the entry, or only when bytes are needed. If its origin fails, it is
//! opened at the next one that has the same content.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures::FutureExt as _;
use towpath_store::{
    Caller, Error, Fault, Metadata, OpenOptions, READ_BYTES, ReadHandle, Result, VersionTag,
    sys::clock::{self, Instant},
};

use crate::{
    breaker::is_unreachable,
    freshness::not_cached,
    origin::{Origin, OriginFile},
    origins::Origins,
    results::ResultFile,
    store::CacheStore,
    target::Target,
    version::{SameContent, Version},
};

/// How long a failure to open a file is shared.
const SHARED_FAILURE: Duration = Duration::from_secs(1);

/// How to open the file of an entry.
#[derive(Debug)]
pub(crate) struct Opening {
    pub(crate) store: CacheStore,
    pub(crate) caller: Caller,
    /// Target in the cache.
    pub(crate) target: Target,
    /// The version of the entry.
    pub(crate) version: Version,
    /// Which files of other origins have its content.
    pub(crate) same_content: SameContent,
    /// Whether the reader forbids contacting an origin.
    pub(crate) is_forbidden: bool,
}

/// A file at an origin, pinned to one version.
#[derive(Debug)]
pub(crate) struct Source {
    opening: Opening,
    /// Held while the file is opened.
    one_open: tokio::sync::Mutex<()>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    file: Option<Arc<OpenFile>>,
    /// The last failure to open it: requests that waited for it at the same time share it.
    failed: Option<(Error, Instant)>,
}

/// A file that is open at an origin.
#[derive(Debug)]
pub(crate) struct OpenFile {
    pub(crate) origin: Arc<Origin>,
    pub(crate) handle: Arc<dyn ReadHandle>,
    size: u64,
    /// Whether the origin may answer a read after a change of the file without noticing: its tags are weak, and its store
    /// does not confirm each read.
    is_weak: bool,
}

impl OpenFile {
    /// Wraps an open file with its metadata.
    pub(crate) fn new(origin: &Arc<Origin>, handle: Arc<dyn ReadHandle>, metadata: &Metadata) -> Self {
        let is_weak =
            metadata.version.as_ref().is_none_or(VersionTag::is_weak) && !origin.store.capabilities().confirms;
        Self { origin: Arc::clone(origin), handle, size: metadata.size, is_weak }
    }

    /// Whether each response is certainly of the opened version.
    pub(crate) fn is_strong(&self) -> bool {
        !self.is_weak
    }

    /// Checks that everything read so far was of the opened version, even if the file was overwritten during a long
    /// response: its tag is that of the file at the start of the response. Costs a round trip.
    ///
    /// # Errors
    /// `Changed`; errors of the origin.
    pub(crate) async fn check_long_response(&self) -> Result<()> {
        match self.is_weak {
            true => self.check().await,
            false => self.handle.read(self.size.saturating_sub(1), 1).await.map(drop),
        }
    }

    /// Checks that everything read so far was of the opened version. Costs a round trip, unless the store
    /// has confirmed each response already.
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

impl Source {
    /// Creates a source with an open file; without one, it is opened by the first request.
    pub(crate) fn new(opening: Opening, file: Option<OpenFile>) -> Self {
        let state = State { file: file.map(Arc::new), failed: None };
        Self { opening, one_open: tokio::sync::Mutex::default(), state: Mutex::new(state) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the file is never opened, because the reader forbids contacting an origin.
    pub(crate) fn is_absent(&self) -> bool {
        self.opening.is_forbidden && self.state().file.is_none()
    }

    /// Returns the origin where the file is open, else the first one.
    pub(crate) fn origin(&self) -> Arc<Origin> {
        let state = self.state();
        Arc::clone(state.file.as_ref().map_or(self.origins().primary(), |file| &file.origin))
    }

    /// Returns the origins of the file.
    pub(crate) fn origins(&self) -> &Origins {
        &self.opening.store.origins
    }

    /// Opens the next file of the dataset in the background.
    pub(crate) fn open_successor(&self) {
        let Opening { store, caller, target, .. } = &self.opening;
        store.open_successor(caller, target);
    }

    /// Returns whether several origins may have the file.
    pub(crate) fn has_alternative(&self) -> bool {
        self.origins().all().len() > 1
    }

    /// Returns the maximum useful number of ranges in a vector request to any of the origins.
    pub(crate) fn vector_ranges(&self) -> usize {
        let ranges = self.origins().all().iter().map(|origin| origin.store.capabilities().vector_ranges);
        ranges.min().unwrap_or(1).max(1)
    }

    /// Returns whether each request has its own connection at all origins. Few long requests are then faster than
    /// many short ones: of those, all arrive at the same time, late.
    pub(crate) fn has_separate_connections(&self) -> bool {
        self.origins().all().iter().all(|origin| origin.store.capabilities().read_bytes > READ_BYTES)
    }

    /// Returns the open file, which is opened if necessary.
    ///
    /// # Errors
    /// Errors of the origins; `Changed` if the first one that can be reached has another version.
    pub(crate) async fn file(&self) -> Result<Arc<OpenFile>> {
        if let Some(file) = &self.state().file {
            return Ok(Arc::clone(file));
        }
        if self.opening.is_forbidden {
            return Err(not_cached());
        }
        let _one = self.one_open.lock().await;
        {
            let state = self.state();
            match (&state.file, &state.failed) {
                (Some(file), _) => return Ok(Arc::clone(file)),
                (None, Some((error, until))) if *until > clock::now() => return Err(error.clone()),
                _ => {}
            }
        }
        let outcome = self.open().await.map(Arc::new);
        let mut state = self.state();
        match &outcome {
            Ok(file) => state.file = Some(Arc::clone(file)),
            Err(error) => state.failed = Some((error.clone(), clock::now() + SHARED_FAILURE)),
        }
        outcome
    }

    /// Records the failure of a request for data. If the origin cannot be reached, the next request opens the file at
    /// another one. A single origin keeps its handle, whose client connects again.
    pub(crate) fn record_failure(&self, file: &Arc<OpenFile>, error: &Error) {
        let mut state = self.state();
        let is_replaced = self.has_alternative() && is_unreachable(error);
        if is_replaced && state.file.as_ref().is_some_and(|current| Arc::ptr_eq(current, file)) {
            state.file = None;
        }
    }

    async fn open(&self) -> Result<OpenFile> {
        let Opening { store, caller, target, version, same_content, .. } = &self.opening;
        let opened = store.origins.call(|origin| origin.open(caller, target, OpenOptions::default()).boxed());
        let (origin, opened) = opened.await?;
        let found: Option<(Arc<dyn ReadHandle>, Metadata)> = match opened {
            OriginFile::Open(handle, metadata) => Some((handle, metadata)),
            OriginFile::Stream(stream) => {
                let file = ResultFile::collect(stream, store.cache.result_memory()).await?;
                let Some((_, metadata)) = file.whole() else {
                    return Err(Error::new(Fault::Unavailable, "there is no memory for the content").at(target));
                };
                let metadata = metadata.clone();
                Some((Arc::new(file), metadata))
            }
            // Only after a request with a condition.
            OriginFile::Unchanged(_) => None,
        };
        if let Some((handle, metadata)) = found
            && same_content.is_of(version, &origin.name, &metadata)
        {
            return Ok(OpenFile::new(origin, handle, &metadata));
        }
        // A rule that it is still the current one was wrong.
        store.cache.forget_name(version).await?;
        let message = format!("the origin {} has another version of the file than the cache", origin.name);
        Err(Error::new(Fault::Changed, message).at(target))
    }
}
