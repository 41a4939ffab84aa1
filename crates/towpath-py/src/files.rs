//! Files at storages, for `towpath.fs`. Places are URLs; those of copies are also absolute local paths.

use std::{
    ffi::OsStr,
    os::unix::ffi::OsStrExt as _,
    path::{Path, PathBuf},
    sync::{Arc, OnceLock},
    time::Duration,
};

use bytes::Bytes;
use futures::{StreamExt as _, TryStreamExt as _};
use pyo3::{
    exceptions::PyValueError,
    prelude::*,
    pybacked::PyBackedBytes,
    types::{PyBytes, PyDict, PyList},
};
use towpath_client::{ClientOptions, TokenSource};
use towpath_mover::{
    Filter, Job, Mover, NoopObserver, Options, RemoteStores, Removal, SkipPolicy, StoreLocation, ThirdParty,
};
use towpath_proto::{
    checksum::Algorithm,
    url::{Location, shown},
};
use towpath_store::{
    ByteRange, Caller, Changes, CreateOptions, Entry, Error, Expectation, Fault, FileKind, ListOptions, Metadata,
    OpenOptions, Overwrite, ReadHandle, Result, Secret, Store, StorePath, VersionTag, WriteHandle,
    local::{LocalOptions, LocalStore, Scope},
};

use crate::{
    calls::{Call, Held, failure, submit},
    runtime::{Runtime, runtime},
};

/// Number of open files in copies at the same time.
const MAX_COPIED_FILES: usize = 64;
/// Permission bits that no copy gets, as the umask of most systems.
const UMASK: u32 = 0o022;

/// The storages that URLs name, with shared connections.
#[pyclass(frozen, module = "towpath._towpath")]
pub(crate) struct Storages {
    stores: RemoteStores,
    local: OnceLock<Arc<dyn Store>>,
    mover: Arc<Mover>,
    runtime: Arc<Runtime>,
}

#[pymethods]
impl Storages {
    /// `token` replaces the one that is found for the user, and `wait` limits how long a storage may be silent, in seconds.
    #[new]
    fn new(py: Python<'_>, token: Option<String>, ca_file: Option<PathBuf>, wait: Option<f64>) -> PyResult<Self> {
        let runtime = runtime(py)?;
        let defaults = ClientOptions::default();
        let wait = wait.map(|seconds| {
            let wait = Duration::try_from_secs_f64(seconds).ok().filter(|wait| !wait.is_zero());
            wait.ok_or_else(|| PyValueError::new_err(format!("wait: {seconds} s, expected more than 0")))
        });
        let wait = wait.transpose()?;
        let options = ClientOptions {
            token: token.map_or(TokenSource::Discover, |token| TokenSource::Fixed(Secret::new(token))),
            ca_file,
            max_wait: wait,
            retry_time: wait.unwrap_or(defaults.retry_time),
            window_bytes: towpath_mover::MAX_BYTES as usize,
            ..defaults
        };
        let client = runtime.client_with(options);
        let mover = Mover::new(
            Options {
                overwrite: Overwrite::Replace,
                skip: SkipPolicy::Nothing,
                checksum: None,
                umask: UMASK,
                third_party: ThirdParty::default(),
                max_files: MAX_COPIED_FILES,
                window_bytes: towpath_mover::MAX_BYTES,
                limit_bytes_per_s: None,
                nice: false,
                paths: None,
                client: Some(Arc::clone(&client)),
            },
            Arc::new(NoopObserver),
        );
        Ok(Self { stores: RemoteStores::new(client), local: OnceLock::new(), mover, runtime })
    }

    /// The properties of a file or directory.
    fn stat(&self, py: Python<'_>, url: &str, done: Py<PyAny>) -> PyResult<Call> {
        let stat = |place: StoreLocation| async move { place.store.stat(&place.caller, &place.path).await };
        self.at(py, url, done, stat, |py, found| Ok(properties(py, &found)?.into_any().unbind()))
    }

    /// The names in a directory, each with the properties of its entry.
    fn list(&self, py: Python<'_>, url: &str, done: Py<PyAny>) -> PyResult<Call> {
        let list = |place: StoreLocation| async move {
            let options = ListOptions { metadata: true, digests: false };
            place.store.list(&place.caller, &place.path, options).try_concat().await
        };
        self.at(py, url, done, list, |py, entries| {
            let entries = entries.iter().map(|Entry { name, metadata }| {
                Ok((String::from_utf8_lossy(name).into_owned(), properties(py, metadata)?))
            });
            Ok(PyList::new(py, entries.collect::<PyResult<Vec<_>>>()?)?.into_any().unbind())
        })
    }

    /// A file, opened for reading.
    fn open(&self, py: Python<'_>, url: &str, done: Py<PyAny>) -> PyResult<Call> {
        let runtime = Arc::clone(&self.runtime);
        let open = |place: StoreLocation| async move {
            let handle = place.store.open(&place.caller, &place.path, OpenOptions::default()).await?;
            Ok((handle, place))
        };
        self.at(py, url, done, open, move |py, (handle, place)| {
            Ok(Py::new(py, ReadFile { handle: Held::new(handle, runtime), place })?.into_any())
        })
    }

    /// A new file, which replaces an existing one when it is committed, unless `refuse`.
    fn create(&self, py: Python<'_>, url: &str, refuse: bool, done: Py<PyAny>) -> PyResult<Call> {
        let runtime = Arc::clone(&self.runtime);
        let create = move |place: StoreLocation| async move {
            let overwrite = if refuse { Overwrite::Refuse } else { Overwrite::Replace };
            let options = CreateOptions { overwrite, parents: true, ..CreateOptions::default() };
            let handle = place.store.create(&place.caller, &place.path, options).await?;
            Ok((handle, place))
        };
        self.at(py, url, done, create, move |py, (handle, place)| {
            Ok(Py::new(py, WriteFile { handle: Held::new(handle, runtime), place })?.into_any())
        })
    }

    /// Creates a directory; with `parents` also those above it, and an existing one is no error.
    fn make_directory(&self, py: Python<'_>, url: &str, parents: bool, done: Py<PyAny>) -> PyResult<Call> {
        let make = move |place: StoreLocation| async move {
            place.store.make_directory(&place.caller, &place.path, parents, None).await
        };
        self.at(py, url, done, make, none)
    }

    /// Removes a file.
    fn remove_file(&self, py: Python<'_>, url: &str, done: Py<PyAny>) -> PyResult<Call> {
        let remove = |place: StoreLocation| async move { place.store.remove_file(&place.caller, &place.path).await };
        self.at(py, url, done, remove, none)
    }

    /// Removes an empty directory.
    fn remove_directory(&self, py: Python<'_>, url: &str, done: Py<PyAny>) -> PyResult<Call> {
        let remove =
            |place: StoreLocation| async move { place.store.remove_directory(&place.caller, &place.path).await };
        self.at(py, url, done, remove, none)
    }

    /// Removes a directory with all that is in it. Links are removed, not followed. The error is the first one.
    fn remove_tree(&self, py: Python<'_>, url: &str, done: Py<PyAny>) -> PyResult<Call> {
        let remove = |place: StoreLocation| async move {
            let mut errors = Vec::new();
            Removal::new(&place, (&Filter::default(), &place.path), |error| errors.push(error)).run().await;
            let others = errors.len().saturating_sub(1);
            match errors.into_iter().next() {
                None => Ok(()),
                Some(first) if others == 0 => Err(first),
                Some(first) => {
                    let message = format!("{}; {others} more could not be removed", first.message());
                    Err(first.with_message(message))
                }
            }
        };
        self.at(py, url, done, remove, none)
    }

    /// Renames a file or directory within a storage.
    fn rename(&self, py: Python<'_>, from: &str, to: &str, replace: bool, done: Py<PyAny>) -> PyResult<Call> {
        self.runtime.check_process(py)?;
        let target = self.place(to)?;
        let rename = move |place: StoreLocation| async move {
            if !place.is_beside(&target) {
                let message = format!("{target} is at another storage: copy the file, and remove it then");
                return Err(Error::new(Fault::Unsupported, message));
            }
            let overwrite = if replace { Overwrite::Replace } else { Overwrite::Refuse };
            place.store.rename(&place.caller, &place.path, &target.path, overwrite).await
        };
        self.at(py, from, done, rename, none)
    }

    /// Changes the permission bits of a path.
    fn set_mode(&self, py: Python<'_>, url: &str, mode: u32, done: Py<PyAny>) -> PyResult<Call> {
        let change = move |place: StoreLocation| async move {
            let changes = Changes { mode: Some(mode), ..Changes::default() };
            place.store.change(&place.caller, &place.path, changes).await
        };
        self.at(py, url, done, change, none)
    }

    /// The digest of a file as hexadecimal digits; the storage computes it, or the file is read.
    fn digest(&self, py: Python<'_>, url: &str, algorithm: &str, done: Py<PyAny>) -> PyResult<Call> {
        let algorithm: Algorithm = algorithm
            .parse()
            .map_err(|_| PyValueError::new_err(format!("algorithm: {algorithm:?} is not a checksum of towpath")))?;
        let digest = move |place: StoreLocation| async move {
            place.store.digest(&place.caller, &place.path, algorithm, &|_| ()).await
        };
        self.at(py, url, done, digest, |py, digest| Ok(digest.to_string().into_pyobject(py)?.into_any().unbind()))
    }

    /// Copies a file, verified, in place of an existing one. The result is the number of bytes.
    fn copy(&self, py: Python<'_>, from: &str, to: &str, done: Py<PyAny>) -> PyResult<Call> {
        self.runtime.check_process(py)?;
        let (mover, job) = (Arc::clone(&self.mover), Job::new(self.place(from)?, self.place(to)?));
        let copy = async move {
            let copied = mover.copy(&job).await.map_err(|error| job.locate(error))?;
            Ok(copied.map_or(0, |copied| copied.bytes))
        };
        submit(py, &self.runtime, done, copy, |py, bytes| Ok(bytes.into_pyobject(py)?.into_any().unbind()))
    }
}

impl Storages {
    /// Runs an operation at a place. Its errors name the place.
    fn at<T: Send + 'static, F: Future<Output = Result<T>> + Send + 'static>(
        &self,
        py: Python<'_>,
        url: &str,
        done: Py<PyAny>,
        operation: impl FnOnce(StoreLocation) -> F,
        convert: impl FnOnce(Python<'_>, T) -> PyResult<Py<PyAny>> + Send + 'static,
    ) -> PyResult<Call> {
        self.runtime.check_process(py)?;
        let place = self.place(url)?;
        let operation = located(place.clone(), operation(place));
        submit(py, &self.runtime, done, operation, convert)
    }

    /// Returns the place of a URL, or of an absolute local path.
    fn place(&self, text: &str) -> PyResult<StoreLocation> {
        let invalid =
            |error: &dyn std::fmt::Display| PyValueError::new_err(format!("{}: {error}", shown(OsStr::new(text))));
        match text.parse::<Location>().map_err(|error| invalid(&error))? {
            Location::Remote(url) => {
                let _inside = self.runtime.enter();
                self.stores.locate(&url, Caller::local()).map_err(|error| invalid(&error.describe()))
            }
            Location::Local(path) => {
                let path = StorePath::parse(path.as_os_str().as_bytes()).map_err(|error| invalid(&error))?;
                let local = self.local().map_err(|error| invalid(&error.describe()))?;
                Ok(StoreLocation::local(local, Caller::local(), path))
            }
            Location::Standard => Err(invalid(&"is not a file")),
        }
    }

    fn local(&self) -> Result<Arc<dyn Store>> {
        if let Some(local) = self.local.get() {
            return Ok(Arc::clone(local));
        }
        let options = LocalOptions { scope: Scope::User, ..LocalOptions::default() };
        let local = LocalStore::open(Path::new("/"), options)?;
        Ok(Arc::clone(self.local.get_or_init(|| Arc::new(local))))
    }
}

/// A file that is open for reading, pinned to one version.
#[pyclass(frozen, module = "towpath._towpath")]
pub(crate) struct ReadFile {
    handle: Held<dyn ReadHandle>,
    place: StoreLocation,
}

#[pymethods]
impl ReadFile {
    /// Closes the file at the storage.
    fn close(&self, py: Python<'_>, done: Py<PyAny>) -> PyResult<Call> {
        let handle = self.handle.get();
        let close = async move {
            handle.close().await;
            Ok(())
        };
        submit(py, &self.handle.runtime, done, close, none)
    }

    /// The properties of the opened version.
    fn stat(&self, py: Python<'_>, done: Py<PyAny>) -> PyResult<Call> {
        let handle = self.handle.get();
        let stat = located(self.place.clone(), async move { handle.metadata().await });
        submit(py, &self.handle.runtime, done, stat, |py, found| Ok(properties(py, &found)?.into_any().unbind()))
    }

    /// The bytes of a range; less at the end of the file.
    fn read(&self, py: Python<'_>, offset: u64, length: usize, done: Py<PyAny>) -> PyResult<Call> {
        let (handle, place) = (self.handle.get(), self.place.clone());
        let read = located(self.place.clone(), async move {
            let bytes = handle.read(offset, length).await?;
            confirm(&*handle, &place).await?;
            Ok(bytes)
        });
        submit(py, &self.handle.runtime, done, read, |py, bytes| Ok(bytes_object(py, &bytes)?.into_any().unbind()))
    }

    /// The bytes of many ranges (offset, length), each cut off at the end of the file, or number and message of its error.
    fn read_ranges(&self, py: Python<'_>, ranges: Vec<(u64, usize)>, done: Py<PyAny>) -> PyResult<Call> {
        let (handle, place) = (self.handle.get(), self.place.clone());
        let at = place.clone();
        let read = located(self.place.clone(), async move {
            let size = handle.metadata().await?.size;
            let within = |(offset, length): (u64, usize)| {
                let start = offset.min(size);
                (start, length.min(usize::try_from(size - start).unwrap_or(usize::MAX)))
            };
            let mut results: Vec<Result<Bytes>> = vec![Ok(Bytes::new()); ranges.len()];
            let wanted = ranges.into_iter().map(within).enumerate().filter(|(_, (_, length))| *length > 0);
            let (places, wanted): (Vec<_>, Vec<_>) =
                wanted.map(|(at, (offset, length))| (at, ByteRange { offset, length })).unzip();
            if !wanted.is_empty() {
                let mut reads = handle.read_vector(wanted);
                while let Some((index, outcome)) = reads.next().await {
                    results[places[index]] = outcome;
                }
                confirm(&*handle, &at).await?;
            }
            Ok(results)
        });
        submit(py, &self.handle.runtime, done, read, move |py, results| {
            let items = results.into_iter().map(|result| match result {
                Ok(bytes) => Ok(bytes_object(py, &bytes)?.into_any()),
                Err(error) => failure(&place.locate(error)).into_pyobject(py).map(Bound::into_any),
            });
            Ok(PyList::new(py, items.collect::<PyResult<Vec<_>>>()?)?.into_any().unbind())
        })
    }
}

/// A file that is written, and visible when it is committed.
#[pyclass(frozen, module = "towpath._towpath")]
pub(crate) struct WriteFile {
    handle: Held<dyn WriteHandle>,
    place: StoreLocation,
}

#[pymethods]
impl WriteFile {
    /// Writes bytes at an offset.
    fn write(&self, py: Python<'_>, offset: u64, data: PyBackedBytes, done: Py<PyAny>) -> PyResult<Call> {
        let (handle, data) = (self.handle.get(), Bytes::from_owner(data));
        let write = located(self.place.clone(), async move { handle.write(offset, data).await });
        submit(py, &self.handle.runtime, done, write, none)
    }

    /// Makes the file visible if it has `size` bytes.
    fn commit(&self, py: Python<'_>, size: u64, done: Py<PyAny>) -> PyResult<Call> {
        let handle = self.handle.get();
        let expected = Expectation { size: Some(size), ..Expectation::default() };
        let commit = located(self.place.clone(), async move { handle.commit(expected).await });
        submit(py, &self.handle.runtime, done, commit, |py, _| Ok(py.None()))
    }

    /// Removes the written data.
    fn abort(&self, py: Python<'_>, done: Py<PyAny>) -> PyResult<Call> {
        let handle = self.handle.get();
        let abort = located(self.place.clone(), async move { handle.abort().await });
        submit(py, &self.handle.runtime, done, abort, none)
    }
}

/// Compares the version after a read, if the responses have no strong tag (HTTP). Costs a round trip. Over xroot the client
/// compares it once a second.
async fn confirm(handle: &dyn ReadHandle, place: &StoreLocation) -> Result<()> {
    let metadata = handle.metadata().await?;
    let is_weak = metadata.version.as_ref().is_none_or(VersionTag::is_weak);
    if is_weak && !place.store.capabilities().confirms {
        // A read past the end compares the version.
        handle.read(metadata.size, 1).await?;
    }
    Ok(())
}

/// Adds a place to the error of an operation.
async fn located<T>(place: StoreLocation, operation: impl Future<Output = Result<T>> + Send) -> Result<T> {
    operation.await.map_err(|error| place.locate(error))
}

/// Returns bytes as an object of Python.
///
/// # Errors
/// `MemoryError`.
fn bytes_object<'py>(py: Python<'py>, bytes: &[u8]) -> PyResult<Bound<'py, PyBytes>> {
    PyBytes::new_with(py, bytes.len(), |object| {
        object.copy_from_slice(bytes);
        Ok(())
    })
}

fn none(py: Python<'_>, (): ()) -> PyResult<Py<PyAny>> {
    Ok(py.None())
}

/// Returns metadata as a dictionary, without unknown properties.
fn properties<'py>(py: Python<'py>, metadata: &Metadata) -> PyResult<Bound<'py, PyDict>> {
    let found = PyDict::new(py);
    let kind = match metadata.kind {
        FileKind::File => "file",
        FileKind::Directory => "directory",
        FileKind::Other => "other",
    };
    found.set_item("type", kind)?;
    found.set_item("size", metadata.size)?;
    found.set_item("islink", metadata.is_link)?;
    let times = [("mtime_ns", metadata.mtime_ns), ("ctime_ns", metadata.ctime_ns), ("atime_ns", metadata.atime_ns)];
    for (name, time) in times.into_iter().filter_map(|(name, time)| Some((name, time?))) {
        found.set_item(name, time)?;
    }
    if let Some(mode) = metadata.mode {
        found.set_item("mode", mode)?;
    }
    if let Some(version) = &metadata.version {
        found.set_item("version", version.as_str())?;
    }
    let digests = PyDict::new(py);
    for digest in metadata.digests.iter() {
        digests.set_item(digest.algorithm().to_string(), digest.to_string())?;
    }
    found.set_item("digests", digests)?;
    Ok(found)
}
