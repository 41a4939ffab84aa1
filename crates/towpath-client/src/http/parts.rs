//! Uploads of large new files to a towpath server in parts: each part is its own PUT; parts are sent concurrently and
//! in any order, and interrupted uploads are resumed. The server's `http/parts.rs` describes the protocol. Other
//! servers do not support parts: a file is one PUT there.
//!
//! A lost part is sent again. The final request has the digests of all sent and stored data, and the server compares
//! them before it shows the file.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use bytes::Bytes;
use http::{HeaderName, Method, StatusCode, header};
use tokio::runtime::Handle;
use towpath_proto::{
    checksum::{Algorithm, Algorithms, CombineError, Digest, Digests, Extent, ExtentDigests, Holes},
    http::digest::{write_digest, write_repr_digest},
};
use towpath_store::{Blame, Error, Expectation, Fault, FileKind, MAX_PRESENT_EXTENTS, Metadata, Result, WriteHandle};

use super::{payload::Payload, put::Put, request::Request, response::HttpResponse, stat::error_of};

/// Minimum size in bytes of a file that is sent in parts, if its size is known: for smaller files a single PUT has one
/// round trip less. Files with a key are always sent in parts.
const MIN_BYTES: u64 = 64 << 20;

/// Maximum length of a part in bytes; longer pieces are cut.
const MAX_PART_BYTES: usize = 8 << 20;

/// Maximum length of the first response in bytes: the stored extents.
const PRESENT_BYTES: usize = MAX_PRESENT_EXTENTS * 64;

/// Time to wait for an upload in progress with the same key. The server detects the loss of its client after three
/// seconds.
const IN_USE_WAIT: Duration = Duration::from_secs(12);

/// Minimum rate at which a server reads back the data of an interrupted upload.
const PROVEN_BYTES_PER_S: u64 = 50_000_000;

const UPLOAD: HeaderName = HeaderName::from_static("towpath-upload");
const RESUME: HeaderName = HeaderName::from_static("towpath-resume");

/// A large file being written in parts.
#[derive(Debug)]
pub(super) struct PartsUpload {
    put: Arc<Put>,
    size: u64,
    /// The server's id of the upload.
    id: String,
    /// Whether stored data are kept when the upload is interrupted.
    is_resumable: bool,
    present: Vec<Extent>,
    written: Mutex<ExtentDigests>,
    finished: AtomicBool,
}

impl PartsUpload {
    /// Begins an upload of a file of `size` bytes, or resumes one; returns `None` if the server does not support parts.
    ///
    /// # Errors
    /// `Overloaded` if an upload with the same key is in progress; errors that prevent the creation of the file.
    pub(super) async fn begin(put: &Put, size: u64) -> Result<Option<Self>> {
        let features = &put.store.site.features;
        let resume = put.options.resume;
        // After this the server has been informed of dropped uploads.
        drop(put.store.site.farewells.write().await);
        let mut request = step(put, "begin", &format!("bytes */{size}"));
        if let Some(key) = resume {
            request = request.with(RESUME, key.to_string());
            request.wait += Duration::from_secs(size / PROVEN_BYTES_PER_S);
        }
        // A retry would find the upload of the first attempt in progress.
        request.repeatable = resume.is_none() && request.repeatable;
        let answer = put.insist(&request, IN_USE_WAIT).await?;
        let Some(id) = answer.field(UPLOAD).filter(|_| answer.status == StatusCode::OK).map(str::to_owned) else {
            // The status 308 rejects a part of another upload.
            if answer.status.is_success() || answer.status == StatusCode::PERMANENT_REDIRECT {
                features.takes_parts.learn(false);
                answer.discard().await;
                return Ok(None);
            }
            return Err(put.refused(answer).await);
        };
        let is_resumable = resume.is_some() && answer.field(RESUME).is_some();
        if resume.is_some() {
            features.resumes.learn(is_resumable);
        }
        let root = answer.target.root();
        let text = answer.whole(PRESENT_BYTES).await.map_err(error_of)?;
        let garbled = || {
            Error::new(Fault::Protocol, format!("{root}: invalid list of received extents")).blamed_on(Blame::Storage)
        };
        let present = extents(&text, size).ok_or_else(garbled)?;
        let mut written = ExtentDigests::new(Algorithms::DEFAULT);
        present.iter().for_each(|extent| written.insert(*extent));
        let (written, finished) = (Mutex::new(written), AtomicBool::new(false));
        Ok(Some(Self { put: Arc::new(put.clone()), size, id, is_resumable, present, written, finished }))
    }

    fn written(&self) -> MutexGuard<'_, ExtentDigests> {
        self.written.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn check_open(&self) -> Result<()> {
        match self.finished.load(Ordering::Acquire) {
            true => Err(Error::new(Fault::HandleNotOpen, "the upload is finished").at(&self.put.path)),
            false => Ok(()),
        }
    }

    /// Sends one part.
    async fn part(&self, offset: u64, data: Bytes) -> Result<()> {
        let Some(last) = (offset + data.len() as u64).checked_sub(1) else { return Ok(()) };
        let mut request = step(&self.put, &self.id, &format!("bytes {offset}-{last}/{}", self.size));
        request.payload = Payload::Whole(data.clone());
        let sums = Extent::of(Algorithms::DEFAULT, offset, &data);
        let answer = self.put.insist(&request, Duration::MAX).await?;
        if answer.status != StatusCode::ACCEPTED {
            return Err(self.lost(self.put.refused(answer).await));
        }
        answer.discard().await;
        sums.into_iter().for_each(|sums| self.written().insert(sums));
        Ok(())
    }

    /// Explains the error of an upload that the server no longer has.
    fn lost(&self, error: Error) -> Error {
        if error.fault() != Fault::HandleNotOpen {
            return error;
        }
        let rest = if self.is_resumable {
            "the received part is kept, and the upload can be resumed"
        } else {
            "the upload must be restarted"
        };
        Error::new(Fault::Unavailable, format!("{}; {rest}", error.message())).blamed_on(Blame::Storage)
    }

    async fn end(&self, expected: &Expectation, digests: &Digests) -> Result<Metadata> {
        let mut request = step(&self.put, &self.id, &format!("bytes */{}", self.size));
        for (name, value) in [("digest", write_digest(digests)), ("repr-digest", write_repr_digest(digests))] {
            if let Some(value) = value {
                request = request.with(HeaderName::from_static(name), value);
            }
        }
        if let Some(mtime_ns) = expected.mtime_ns {
            request = request.with(HeaderName::from_static("x-oc-mtime"), super::put::modified(mtime_ns));
        }
        request.repeatable = false;
        let answer = self.put.insist(&request, Duration::MAX).await?;
        let reported = self.put.accepted(answer, self.size).await.map_err(|error| self.lost(error))?;
        self.put.verify(reported, self.size, digests, expected).await
    }
}

/// Creates the request for one step of an upload.
fn step(put: &Put, what: &str, range: &str) -> Request {
    let request = any_step(put, what, range);
    match put.only_new() {
        true => request.with(header::IF_NONE_MATCH, "*"),
        false => request,
    }
}

/// Like [`step`], but independent of the file that has the name now.
fn any_step(put: &Put, what: &str, range: &str) -> Request {
    let mut request = Request::new(&put.store.site, Method::PUT).with(UPLOAD, what).with(header::CONTENT_RANGE, range);
    request.wait = put.store.site.options.patience;
    request
}

/// Parses the extents that the server reports as stored; `None` if they are invalid.
fn extents(text: &[u8], size: u64) -> Option<Vec<Extent>> {
    let line = |line: &str| {
        let mut words = line.split(' ');
        let (offset, bytes) = (words.next()?.parse::<u64>().ok()?, words.next()?.parse::<u64>().ok()?);
        let mut digests = Digests::new();
        for algorithm in [Algorithm::Crc32c, Algorithm::Adler32] {
            digests.insert(Digest::from_hex(algorithm, words.next()?).ok()?);
        }
        offset.checked_add(bytes).filter(|end| *end <= size && bytes > 0)?;
        Extent::from_digests(offset, bytes, &digests).filter(|_| words.next().is_none())
    };
    let extents: Vec<_> = std::str::from_utf8(text).ok()?.lines().map(line).collect::<Option<_>>()?;
    let are_apart = extents.is_sorted_by(|one, next| one.end() < next.offset());
    (are_apart && extents.len() <= MAX_PRESENT_EXTENTS).then_some(extents)
}

impl Put {
    /// Sends a request, and waits for at most `patience` if the server defers it. Creates missing parents if the
    /// options permit it.
    async fn insist(&self, request: &Request, patience: Duration) -> Result<HttpResponse> {
        let site = &self.store.site;
        let mut retry_state = site.retry_state(&self.store.target(&self.path)).with_patience(patience);
        let answer = site.send_request(&self.caller, &mut retry_state, request).await?;
        match answer.status {
            StatusCode::CONFLICT | StatusCode::NOT_FOUND if self.options.parents => {
                answer.discard().await;
                self.make_parents().await?;
                self.send_request(request).await
            }
            _ => Ok(answer),
        }
    }

    /// Returns the size of the file if it is to be sent in parts, else `None`.
    ///
    /// # Errors
    /// `InvalidArgument` for a key without a size.
    pub(super) fn size_in_parts(&self) -> Result<Option<u64>> {
        let (features, options) = (&self.store.site.features, &self.options);
        if !features.is_towpath.certain() || !features.takes_parts.possible() {
            return Ok(None);
        }
        match options.size_hint {
            None if options.resume.is_some() => {
                let message = "an upload with a resume key requires the file size";
                Err(Error::new(Fault::InvalidArgument, message).at(&self.path))
            }
            size => Ok(size.filter(|size| {
                *size >= MIN_BYTES || (*size > 0 && options.resume.is_some() && features.resumes.possible())
            })),
        }
    }

    /// Ends the upload with the server's id `id`: `how` is `keep` or `abandon`.
    async fn leave(&self, how: &str, size: u64, id: &str) -> Result<()> {
        let request = any_step(self, &format!("{how} {id}"), &format!("bytes */{size}"));
        self.send_request(&request).await?.discard().await;
        Ok(())
    }
}

#[async_trait]
impl WriteHandle for PartsUpload {
    async fn write(&self, offset: u64, data: Bytes) -> Result<()> {
        self.check_open()?;
        if offset.checked_add(data.len() as u64).is_none_or(|end| end > self.size) {
            let message = "the file is longer than the size declared at its creation";
            return Err(Error::new(Fault::InvalidArgument, message).at(&self.put.path));
        }
        let parts = (0..data.len())
            .step_by(MAX_PART_BYTES)
            .map(|start| self.part(offset + start as u64, data.slice(start..data.len().min(start + MAX_PART_BYTES))));
        futures::future::try_join_all(parts).await.map(drop).map_err(|error| error.at(&self.put.path))
    }

    async fn present(&self) -> Result<Vec<Extent>> {
        Ok(self.present.clone())
    }

    async fn read(&self, _offset: u64, _length: usize) -> Result<Bytes> {
        Err(Error::new(Fault::Unsupported, "HTTP uploads cannot be read back while they are written")
            .at(&self.put.path))
    }

    async fn set_size(&self, size: u64) -> Result<()> {
        self.check_open()?;
        match size == self.size {
            true => Ok(()),
            false => {
                Err(Error::new(Fault::Unsupported, "the size of an HTTP upload is fixed when it starts")
                    .at(&self.put.path))
            }
        }
    }

    async fn sync(&self) -> Result<()> {
        self.check_open()
    }

    async fn metadata(&self) -> Result<Metadata> {
        self.check_open()?;
        let end = self.written().extents().map(Extent::end).max().unwrap_or(0);
        Ok(Metadata::new(FileKind::File, end))
    }

    async fn commit(&self, expected: Expectation) -> Result<Metadata> {
        self.check_open()?;
        self.finished.store(true, Ordering::Release);
        let found = self.written().finish(self.size, Holes::Refuse);
        let checked = async {
            let digests = match found {
                Err(CombineError::Hole { .. }) => {
                    let message = format!("not all of {} bytes were written", self.size);
                    return Err(Error::new(Fault::Truncated, message));
                }
                // If digests are to be compared, the server reads back data that were written twice.
                Err(_) => expected.digests.clone(),
                Ok(digests) => digests,
            };
            expected.check_size(self.size)?;
            expected.check_digests(&digests)?;
            self.end(&expected, &digests).await
        };
        let outcome = checked.await;
        if let Err(error) = &outcome
            // Without a response the outcome is unknown: the file may already be visible.
            && error.fault() != Fault::Unavailable
        {
            let how = if self.is_resumable && error.fault() != Fault::ChecksumMismatch { "keep" } else { "abandon" };
            // Its error was already reported.
            let _ = self.put.leave(how, self.size, &self.id).await;
        }
        outcome.map_err(|error| error.at(&self.put.path))
    }

    async fn abort(&self) -> Result<()> {
        if self.finished.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        self.put.leave("abandon", self.size, &self.id).await.map_err(|error| error.at(&self.put.path))
    }
}

impl Drop for PartsUpload {
    /// Informs the server. Without a runtime no request is possible, and the server detects the loss by itself.
    fn drop(&mut self) {
        if self.finished.swap(true, Ordering::AcqRel) {
            return;
        }
        let Ok(runtime) = Handle::try_current() else { return };
        let (put, size, id) = (Arc::clone(&self.put), self.size, self.id.clone());
        let how = if self.is_resumable { "keep" } else { "abandon" };
        let site = Arc::clone(&put.store.site);
        // `None` while another upload begins, which must then be informed that this one is in progress.
        let farewell = Arc::clone(&site.farewells).try_read_owned();
        let leaving = async move {
            if let Err(error) = put.leave(how, size, &id).await {
                tracing::warn!(path = %put.path, %error, "cannot notify the server that an upload ended");
            }
            drop(farewell);
        };
        site.background.spawn_on(leaving, &runtime);
    }
}
