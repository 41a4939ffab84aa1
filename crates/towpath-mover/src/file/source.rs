//! The source of a copy: opened, with its first bytes requested.

use std::{pin::Pin, sync::Arc};

use futures::future::{BoxFuture, Either, FutureExt as _, MaybeDone, maybe_done, select};
use towpath_proto::checksum::Digests;
use towpath_store::{ContentStream, Error, Fault, Metadata, OpenOptions, ReadHandle, Result};

use crate::{
    Job, StoreLocation,
    context::{CopyContext, first_bytes},
};

/// An open source file.
pub(super) struct SourceFile {
    pub(super) handle: Arc<dyn ReadHandle>,
    /// Its metadata, with the digests that it promised in an earlier attempt.
    pub(super) metadata: Metadata,
    pub(super) first: FirstRead,
}

/// The result of [`SourceFile::open`].
pub(super) enum OpenedSource {
    /// A file of known size.
    File(SourceFile),
    /// The content of a file of unknown size.
    Unsized(ContentStream),
}

impl SourceFile {
    /// Opens the source and requests its first bytes. If there are `promised` digests, all checksums in transit are
    /// used.
    ///
    /// # Errors
    /// Those of the store; `IsDirectory` for a directory.
    pub(super) async fn open(job: &Job, promised: &Digests) -> Result<OpenedSource> {
        let from = &job.from;
        let options = OpenOptions { verifies_digests: promised.is_empty(), ..OpenOptions::default() };
        let opened = from.store.open(&from.caller, &from.path, options).await;
        let handle = opened.map_err(|error| explain(job, error))?;
        let mut first = FirstRead::begin(Arc::clone(&handle), first_bytes(job));
        let mut metadata = match first.beside(handle.metadata()).await {
            Ok(metadata) => metadata,
            Err(error) => {
                let content = ContentStream::instead_of(error, &*handle).await;
                return Ok(OpenedSource::Unsized(content.map_err(|error| explain(job, error))?));
            }
        };
        if metadata.is_directory() {
            return Err(is_directory(job));
        }
        warn_of_time(from, &metadata);
        add_promised(&mut metadata.digests, promised);
        Ok(OpenedSource::File(Self { handle, metadata, first }))
    }
}

/// Checks after the last read that the source is still the opened version, unless a digest will show it: if the file is
/// modified in place, its pieces may be of two versions.
///
/// # Errors
/// `Changed`, and those of the store.
pub(super) async fn check_unchanged(
    job: &Job,
    context: &CopyContext,
    handle: &dyn ReadHandle,
    metadata: &Metadata,
) -> Result<()> {
    let is_compared = !metadata.digests.is_empty() && job.to.checks_on_the_way();
    let has_digest = context.options.checksum.is_some() || is_compared;
    if !job.from.is_remote() || has_digest || metadata.size <= first_bytes(job) {
        return Ok(());
    }
    match handle.read(metadata.size, 1).await?.is_empty() {
        true => Ok(()),
        false => Err(resized().at(&job.from.path)),
    }
}

/// The read of the first bytes of a file, which makes progress only while it is polled.
pub(super) struct FirstRead(MaybeDone<Read>);

type Read = BoxFuture<'static, Result<Vec<u8>>>;

impl FirstRead {
    fn begin(handle: Arc<dyn ReadHandle>, bytes: u64) -> Self {
        let read = async move { handle.read_into(0, bytes as usize, Vec::new()).await };
        Self(maybe_done(read.boxed()))
    }

    /// Awaits `main` while the read continues. Otherwise the pending response would hold a request permit of its site,
    /// for which `main` may be waiting, and data in flight on a long path would stall.
    pub(super) async fn beside<T>(&mut self, main: impl Future<Output = T>) -> T {
        match select(std::pin::pin!(main), &mut self.0).await {
            Either::Left((output, _)) => output,
            Either::Right(((), main)) => main.await,
        }
    }

    /// Waits for the bytes. A second call returns an empty buffer.
    pub(super) async fn take(&mut self) -> Result<Vec<u8>> {
        (&mut self.0).await;
        Pin::new(&mut self.0).take_output().unwrap_or_else(|| Ok(Vec::new()))
    }
}

/// Returns the error for a source that is a directory.
fn is_directory(job: &Job) -> Error {
    Error::new(Fault::IsDirectory, "it is a directory: use -r to copy it").at(&job.from.path)
}

/// Adds the path of the source to `error`, and advice if the source is a directory.
pub(super) fn explain(job: &Job, error: Error) -> Error {
    if error.fault() == Fault::IsDirectory { is_directory(job) } else { error.at(&job.from.path) }
}

/// Returns the error of a read whose length contradicts the size of the source.
pub(crate) fn resized() -> Error {
    Error::new(Fault::Changed, "its size changed while it was read")
}

/// Adds digests promised in an earlier attempt. Current digests take precedence: they may be of another version.
pub(super) fn add_promised(digests: &mut Digests, promised: &Digests) {
    for digest in promised.iter() {
        if digests.get(digest.algorithm()).is_none() {
            digests.insert(*digest);
        }
    }
}

/// Warns if the modification time of a local file does not fit into 64-bit nanoseconds.
fn warn_of_time(from: &StoreLocation, metadata: &Metadata) {
    if metadata.mtime_ns.is_none() && !from.is_remote() {
        tracing::warn!(
            %from,
            "its modification time is not between the years 1678 and 2261 and cannot be kept: the copy gets the current time"
        );
    }
}
