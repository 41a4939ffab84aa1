//! Files open for reading.
//!
//! A [`RemoteFile`] sends no request until it is used. The first response pins the version: all later requests are
//! conditional on it, and all responses are compared with it. Other calls wait for the header of the first response,
//! and then run concurrently, each over its own connection.
//!
//! A read that breaks off continues at the first missing byte.

use std::{
    collections::VecDeque,
    ops::Range,
    sync::{Arc, Mutex, OnceLock, PoisonError},
};

use async_trait::async_trait;
use bytes::Bytes;
use futures::{SinkExt as _, StreamExt as _, channel::mpsc::Sender, stream};
use http::{HeaderName, Method, StatusCode, header};
use tokio::sync::MutexGuard;
use towpath_proto::http::{
    condition::PIN_FIELD,
    range::{self, ContentRange, RangeRequest},
};
use towpath_store::{
    Blame, ByteRange, Caller, ContentStream, Error, Fault, FileKind, LocalPart, Metadata, Preparation, ReadHandle,
    Result, StorePath, VectorReads, VersionTag, sys::clock,
};

use super::{
    describe::{self, Condition, Version},
    refusal,
    request::Request,
    response::HttpResponse,
    retry_state::{Failure, RetryState},
    site::Site,
    stat,
    target::Target,
    vector,
};

/// Maximum offset in bytes of a read at a server that always sends the whole file: the bytes before the offset are
/// received and discarded.
const SKIPPED_BYTES: u64 = 64 << 20;

/// Maximum useful length of a request in bytes. Each request has its own connection: a hundred of 2 MiB, which 5
/// Gbit/s over 200 ms need, would open a hundred windows.
pub(super) const MAX_BYTES: usize = 8 << 20;

/// Number of received bytes after which past failures of a read are forgotten.
const PROGRESS_BYTES: usize = 256 << 10;

/// One version of a file at a site.
#[derive(Debug)]
pub(super) struct RemoteFile {
    pub(super) site: Arc<Site>,
    pub(super) caller: Caller,
    path: StorePath,
    target: Target,
    /// If set, reads of any other version fail.
    wanted: Option<VersionTag>,
    /// If set, streams of this version fail with 304.
    held: Option<Metadata>,
    /// Locked by the call that sends the first request. Its error, if the site did not respond.
    first: tokio::sync::Mutex<Option<Error>>,
    pinned: OnceLock<PinnedMetadata>,
    /// The version in the first response to a GET. The pinned version may come from PROPFIND or HEAD, which may have
    /// no entity tag, or another one.
    answered: OnceLock<Option<Version>>,
    /// Metadata requested after the first response, because that was incomplete.
    completed: OnceLock<Metadata>,
    /// The target of the site's redirect.
    redirected_to: Mutex<Option<Target>>,
}

/// The metadata in the first response.
#[derive(Debug)]
pub(super) struct PinnedMetadata {
    pub(super) metadata: Metadata,
    version: Option<Version>,
}

impl PinnedMetadata {
    /// Returns the offset of the last byte, if `offset` is past it and the version is weak: a request for it compares the
    /// version.
    fn weak_end(&self, offset: u64) -> Option<u64> {
        let is_weak = self.version.as_ref().is_some_and(|version| version.tag.is_weak());
        self.metadata.size.checked_sub(1).filter(|_| is_weak && offset >= self.metadata.size)
    }
}

impl RemoteFile {
    /// Creates a handle of the file at `path`, whose URL is `target`, without a request.
    pub(super) fn new(
        site: Arc<Site>,
        caller: Caller,
        path: StorePath,
        target: Target,
        wanted: Option<VersionTag>,
    ) -> Self {
        Self {
            site,
            caller,
            path,
            target,
            wanted,
            held: None,
            first: tokio::sync::Mutex::default(),
            pinned: OnceLock::new(),
            answered: OnceLock::new(),
            completed: OnceLock::new(),
            redirected_to: Mutex::default(),
        }
    }

    /// Adds the metadata of a version that the caller has.
    pub(super) fn unless(self, held: Option<Metadata>) -> Self {
        Self { held, ..self }
    }

    /// Pins metadata that the caller received from this site a moment ago, so that they are not requested again. Those
    /// of an empty file only add a required version: a server may report the size 0 for other files too.
    ///
    /// # Errors
    /// `Changed` if they are not of the required version, `IsDirectory`, `NotRegular`.
    pub(super) fn pin_known(&mut self, known: Metadata) -> Result<()> {
        expect_file(&known)?;
        if self.wanted.is_some() && known.version.is_some() && self.wanted != known.version {
            return Err(changed());
        }
        let version = Version::of_metadata(&known);
        if known.size == 0 {
            self.wanted = self.wanted.take().or(known.version);
            return Ok(());
        }
        let is_versioned = version.is_some();
        self.settle(known.clone(), version)?;
        if !is_versioned {
            let _ = self.completed.set(known);
        }
        Ok(())
    }

    /// Returns the pinned metadata; requests them if there are none yet.
    pub(super) async fn pin(&self) -> Result<&PinnedMetadata> {
        if let Some(pinned) = self.pinned.get() {
            return Ok(pinned);
        }
        let first = self.first.lock().await;
        match (self.pinned.get(), &*first) {
            (Some(pinned), _) => Ok(pinned),
            // A site that has never responded is not waited for again.
            (None, Some(error)) if !self.site.features.answers.certain() => Err(error.clone()),
            (None, _) => self.pin_by_stat().await,
        }
    }

    async fn pin_by_stat(&self) -> Result<&PinnedMetadata> {
        let mut metadata = stat::stat(&self.site, &self.caller, &self.path, &self.target).await?;
        expect_file(&metadata)?;
        if metadata.size == 0 {
            metadata = stat::unless_empty(metadata, &self.site, &self.caller, &self.target).await?;
        }
        let version = Version::of_metadata(&metadata);
        self.settle(metadata, version)
    }

    /// Pins the metadata of a response, or compares them with the pinned ones.
    pub(super) fn settle(&self, metadata: Metadata, version: Option<Version>) -> Result<&PinnedMetadata> {
        let wanted = self.wanted.as_ref().map(Version::of_tag);
        let pinned = self.pinned.get().and_then(|pinned| pinned.version.as_ref());
        let known = [wanted.as_ref(), pinned, self.answered.get().and_then(Option::as_ref)];
        let is_other = version
            .as_ref()
            .is_some_and(|reported| known.into_iter().flatten().any(|known| known.is_same(reported) == Some(false)));
        if is_other || self.pinned.get().is_some_and(|pinned| pinned.metadata.size != metadata.size) {
            return Err(changed());
        }
        Ok(self.pinned.get_or_init(|| PinnedMetadata { metadata, version }))
    }

    /// Like [`Self::settle`], for the response to a GET of a file of `size` bytes. If the condition was rejected by
    /// the server and omitted, the response must prove to be of the pinned version.
    fn settle_answer(&self, answer: &HttpResponse, size: u64, is_conditional: bool) -> Result<()> {
        let (metadata, version) = describe::of_headers(&answer.headers, size);
        if !is_conditional {
            let wanted = self.wanted.as_ref().map(Version::of_tag);
            let known = [self.pinned.get().and_then(|pinned| pinned.version.as_ref()), wanted.as_ref()];
            let is_same =
                |reported: &Version| known.into_iter().flatten().any(|known| known.is_same(reported) == Some(true));
            if !version.as_ref().is_some_and(is_same) {
                return Err(changed());
            }
        }
        self.settle(metadata, version.clone())?;
        self.answered.get_or_init(|| version);
        self.answered_by(&answer.target);
        Ok(())
    }

    /// Returns whether a rejected condition may have used an entity tag that only PROPFIND or HEAD returns.
    pub(super) fn may_be_another_tag(&self) -> bool {
        self.answered.get().is_none()
    }

    /// Creates a GET request for `ranges`, or for the whole file, on condition that the file is the pinned version.
    pub(super) fn request(&self, ranges: Option<&RangeRequest>) -> Request {
        let request = self.unconditional(ranges);
        let version = match (self.answered.get(), self.pinned.get()) {
            (Some(Some(answered)), _) => Some(answered.clone()),
            (_, Some(pinned)) => pinned.version.clone(),
            (_, None) => self.wanted.as_ref().map(Version::of_tag),
        };
        match version.and_then(|version| version.condition) {
            Some(Condition::Match(tag)) => request.with(header::IF_MATCH, tag),
            Some(Condition::UnmodifiedSince(date)) => request.with(header::IF_UNMODIFIED_SINCE, date),
            // Towpath servers then send one version; others ignore the field.
            None => request.with(HeaderName::from_static(PIN_FIELD), "1"),
        }
    }

    fn unconditional(&self, ranges: Option<&RangeRequest>) -> Request {
        let mut request = Request::new(&self.site, Method::GET);
        request.of_file = true;
        match ranges {
            Some(ranges) => request.with(header::RANGE, ranges.to_string()),
            None => request,
        }
    }

    /// Returns the retry state of a request to the server that sent the last response.
    pub(super) fn retry_state(&self) -> RetryState {
        let redirected_to = self.redirected_to.lock().unwrap_or_else(PoisonError::into_inner).clone();
        self.site.retry_state(&self.target).with_first_target(redirected_to)
    }

    /// Reads `length` bytes of the file from `offset` on, or fewer at the end, and appends them to `buffer`.
    pub(super) async fn fetch(&self, offset: u64, length: usize, buffer: Vec<u8>) -> Result<Vec<u8>> {
        if length == 0 {
            return Ok(buffer);
        }
        if let Some(last) = self.pinned.get().and_then(|pinned| pinned.weak_end(offset))
            && !self.has_unversioned_responses()
        {
            Box::pin(self.fetch(last, 1, Vec::new())).await?;
            // It may have been the first response to a GET.
            if self.has_unversioned_responses() {
                self.look().await?;
            }
            return Ok(buffer);
        }
        let end = offset.saturating_add(length as u64);
        self.start_fetch(offset, end, buffer, Cuts::default()).await?.run().await
    }

    /// Reads the file from `offset` on, up to the last one of `ends`, and sends the bytes up to each of them as soon as
    /// they have arrived. All of it lies within the pinned size.
    ///
    /// # Errors
    /// As [`Self::fetch`].
    pub(super) async fn fetch_parts(
        &self,
        offset: u64,
        ends: VecDeque<u64>,
        parts: Sender<Result<Bytes>>,
    ) -> Result<()> {
        let Some(end) = ends.back().copied() else { return Ok(()) };
        let fetch = self.start_fetch(offset, end, Vec::new(), Cuts { ends, parts: Some(parts) }).await?;
        fetch.run().await.map(drop)
    }

    async fn start_fetch(&self, offset: u64, end: u64, buffer: Vec<u8>, cuts: Cuts) -> Result<Fetch<'_>> {
        let mut first = None;
        if self.pinned.get().is_none() {
            first = Some(self.first.lock().await);
            // XRootD announces bytes beyond the end of a file, so the size must be known first.
            if self.pinned.get().is_none() && self.site.features.is_xrootd.certain() {
                self.pin_by_stat().await?;
            }
        }
        if let Some(pinned) = self.pinned.get()
            && (pinned.version.is_none() || self.has_unversioned_responses())
            && offset >= pinned.metadata.size
        {
            self.look().await?;
        }
        let retry_state = self.retry_state();
        let (wishes, is_conditional, is_ranged) = (true, true, true);
        Ok(Fetch { file: self, next: offset, end, buffer, cuts, retry_state, first, wishes, is_conditional, is_ranged })
    }

    /// Returns whether responses to GET have no version. XRootD 5.5 reports the time of the last change only in PROPFIND.
    fn has_unversioned_responses(&self) -> bool {
        matches!(self.answered.get(), Some(None))
    }

    /// Checks that the file is unchanged, at a site whose responses have no version.
    async fn look(&self) -> Result<()> {
        let seen = self.completed.get().or_else(|| self.pinned.get().map(|pinned| &pinned.metadata));
        let Some(seen) = seen.filter(|seen| seen.mtime_ns.is_some()) else { return Ok(()) };
        let found = stat::stat(&self.site, &self.caller, &self.path, &self.target).await?;
        if (found.size, found.mtime_ns) == (seen.size, seen.mtime_ns) { Ok(()) } else { Err(changed()) }
    }

    /// Streams the whole file, if the server does not send its length, or the result of a query, if the server sends it
    /// whole. If the result of a query has ranges, this costs one request as well, for a single byte.
    async fn begin_stream(&self) -> Result<Option<ContentStream>> {
        let mut request = Request::new(&self.site, Method::GET);
        (request.of_file, request.prompt) = (true, false);
        let may_be_ranged = self.target.is_query && self.pinned.get().is_none();
        if may_be_ranged {
            request = request.with(header::RANGE, "bytes=0-0");
        }
        if let Some(held) = &self.held {
            request = describe::unless(request, held);
        }
        let answer = self.site.send_request(&self.caller, &mut self.site.retry_state(&self.target), &request).await?;
        match answer.status {
            StatusCode::OK => {}
            StatusCode::PARTIAL_CONTENT if may_be_ranged => return self.settle_first_byte(answer).await.map(|()| None),
            StatusCode::RANGE_NOT_SATISFIABLE if may_be_ranged => return Ok(None),
            _ => return Err(self.refused(answer).await),
        }
        let size = answer.remaining_bytes();
        if size.is_some() && !self.target.is_query || stat::coding_of(&answer).is_some() {
            return Ok(None);
        }
        let (metadata, version) = describe::of_headers(&answer.headers, size.unwrap_or(0));
        if size.is_some() {
            self.settle(metadata.clone(), version)?;
        }
        // In HTTP/1.1 the last chunk proves that the body is complete; a closed connection does not (RFC 9112 §8).
        // Responses with another transfer coding are rejected before.
        let is_framed = size.is_some() || answer.headers.contains_key(header::TRANSFER_ENCODING);
        let path = self.path.clone();
        let pieces = stream::try_unfold(answer, move |mut answer| {
            let path = path.clone();
            async move {
                let piece = answer.next().await.map_err(|failure| stat::error_of(failure).at(&path))?;
                Ok(piece.map(|piece| (piece, answer)))
            }
        });
        Ok(Some(ContentStream { pieces: pieces.boxed(), metadata, is_framed }))
    }

    /// Pins the metadata in the response to a request for the first byte. If they lack the size, nothing is pinned.
    async fn settle_first_byte(&self, answer: HttpResponse) -> Result<()> {
        if let Some(size) = answer.field(header::CONTENT_RANGE).and_then(range::complete_length) {
            self.settle_answer(&answer, size, true)?;
        }
        answer.discard().await;
        Ok(())
    }

    /// Returns the error for a response that has no data and cannot be retried.
    pub(super) async fn refused(&self, answer: HttpResponse) -> Error {
        match self.site.credentials(&self.caller) {
            Ok(credentials) => refusal::of(answer, &Method::GET, &credentials).await,
            Err(error) => error,
        }
    }

    /// Returns whether `answer` means that the file is no longer at the target of a redirect; `retry_state` then
    /// restarts at the origin.
    pub(super) fn is_gone(&self, answer: &HttpResponse, retry_state: &mut RetryState) -> bool {
        let gone = matches!(
            answer.status,
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN | StatusCode::NOT_FOUND | StatusCode::GONE
        );
        let starts_anew = gone && retry_state.abandon_first_target();
        if starts_anew {
            *self.redirected_to.lock().unwrap_or_else(PoisonError::into_inner) = None;
        }
        starts_anew
    }

    /// Remembers the server that responded, so that the next request goes there directly.
    pub(super) fn answered_by(&self, target: &Target) {
        let redirected_to = (*target != self.target).then(|| target.clone());
        *self.redirected_to.lock().unwrap_or_else(PoisonError::into_inner) = redirected_to;
    }
}

/// A read in progress.
struct Fetch<'a> {
    file: &'a RemoteFile,
    /// Offset of the first missing byte.
    next: u64,
    end: u64,
    /// The bytes before `next`, from the last cut on.
    buffer: Vec<u8>,
    cuts: Cuts,
    retry_state: RetryState,
    /// Held until metadata are pinned.
    first: Option<MutexGuard<'a, Option<Error>>>,
    /// Whether to request digests with the first request.
    wishes: bool,
    /// Whether the server checks the version; otherwise only the client compares the response.
    is_conditional: bool,
    /// Whether to request a range, or the whole file because the server does not support ranges.
    is_ranged: bool,
}

/// The parts of a read, which are sent when they are complete.
#[derive(Default)]
struct Cuts {
    /// The ends of the parts that are not complete, in order.
    ends: VecDeque<u64>,
    parts: Option<Sender<Result<Bytes>>>,
}

/// The use of a response.
enum ResponseAction {
    /// Its body is this part of the file.
    Part(Range<u64>),
    /// Retry with the new information.
    Again,
    /// The response is an error.
    Refused,
}

impl Fetch<'_> {
    async fn run(mut self) -> Result<Vec<u8>> {
        loop {
            if let Some(pinned) = self.file.pinned.get() {
                self.first = None;
                self.end = self.end.min(pinned.metadata.size);
            }
            if self.next >= self.end {
                return Ok(self.buffer);
            }
            let range = if self.is_ranged { Some(self.range()?) } else { None };
            let mut request = match self.is_conditional {
                true => self.file.request(range.as_ref()),
                false => self.file.unconditional(range.as_ref()),
            };
            if self.first.is_some() && self.wishes && self.file.site.features.want_digest.possible() {
                request = stat::with_wanted_digests(request, &stat::WANTED);
            }
            let sent = self.file.site.send_request(&self.file.caller, &mut self.retry_state, &request).await;
            let mut answer = sent.inspect_err(|error| {
                if let Some(first) = &mut self.first {
                    **first = Some(error.clone());
                }
            })?;
            let part = match self.check_response(&mut answer).await? {
                ResponseAction::Part(part) => part,
                ResponseAction::Again => continue,
                ResponseAction::Refused => return Err(self.file.refused(answer).await),
            };
            if let Err(failure) = self.receive(answer, part).await {
                self.file.site.handle_failure(&mut self.retry_state, failure, &request).await?;
            }
        }
    }

    fn range(&self) -> Result<RangeRequest> {
        RangeRequest::of(self.next, self.end - self.next)
            .ok_or_else(|| Error::new(Fault::InvalidArgument, "the range exceeds the maximum file size"))
    }

    /// Checks that the response has the requested range of the pinned version; pins the version if there is none.
    async fn check_response(&mut self, answer: &mut HttpResponse) -> Result<ResponseAction> {
        match answer.status {
            StatusCode::PARTIAL_CONTENT => self.check_part(answer).await,
            // A response of rclone's S3 server (seen with 1.75).
            StatusCode::OK if answer.headers.contains_key(header::CONTENT_RANGE) => self.check_part(answer).await,
            StatusCode::OK => self.check_whole(answer).await,
            StatusCode::PRECONDITION_FAILED if self.is_conditional && self.file.may_be_another_tag() => {
                self.is_conditional = false;
                Ok(ResponseAction::Again)
            }
            StatusCode::PRECONDITION_FAILED => Err(changed()),
            StatusCode::RANGE_NOT_SATISFIABLE => self.check_unsatisfied(answer).await,
            _ => Ok(self.check_refusal(answer)),
        }
    }

    /// Handles a 416 response. Either the file ends before the range, or the server does not support ranges; then the
    /// whole file is requested. That response also detects a file that became shorter.
    async fn check_unsatisfied(&mut self, answer: &mut HttpResponse) -> Result<ResponseAction> {
        let Some(pinned) = self.file.pinned.get() else {
            answer.release_permit();
            return self.file.pin_by_stat().await.map(|_| ResponseAction::Again);
        };
        let is_other = stat::size_without_range(answer).is_some_and(|size| size != pinned.metadata.size);
        if is_other || !self.is_ranged {
            return Err(changed());
        }
        self.is_ranged = false;
        Ok(ResponseAction::Again)
    }

    async fn check_part(&mut self, answer: &mut HttpResponse) -> Result<ResponseAction> {
        let field = answer.field(header::CONTENT_RANGE).unwrap_or_default();
        let root = answer.target.root();
        let Some(ContentRange::Part { first, last, size }) = ContentRange::parse(field) else {
            return self.check_impossible_part(answer, field);
        };
        if first != self.next || last >= self.end {
            return Err(protocol(format!("{root} sent a different range than requested: {field}")));
        }
        let size = match (size, self.file.pinned.get()) {
            (Some(size), _) => size,
            (None, Some(pinned)) => pinned.metadata.size,
            (None, None) => {
                answer.release_permit();
                return self.file.pin_by_stat().await.map(|_| ResponseAction::Again);
            }
        };
        if answer.remaining_bytes().is_some_and(|bytes| bytes != last - first + 1) {
            return Err(protocol(format!("{root} sent a Content-Length that contradicts its Content-Range: {field}")));
        }
        self.file.settle_answer(answer, size, self.is_conditional)?;
        Ok(ResponseAction::Part(first..last + 1))
    }

    /// Handles an invalid range. XRootD (seen with 5.5.3) announces bytes beyond the end of a file, but a correct size.
    fn check_impossible_part(&mut self, answer: &HttpResponse, field: &str) -> Result<ResponseAction> {
        match range::complete_length(field).filter(|size| self.file.pinned.get().is_none() && *size < self.end) {
            Some(size) => {
                let (metadata, version) = describe::of_headers(&answer.headers, size);
                self.file.settle(metadata, version).map(|_| ResponseAction::Again)
            }
            None => {
                let message = format!("{} sent an invalid Content-Range: '{field}'", answer.target.root());
                Err(protocol(message))
            }
        }
    }

    /// Handles a server that always sends the whole file.
    async fn check_whole(&mut self, answer: &mut HttpResponse) -> Result<ResponseAction> {
        let root = answer.target.root();
        let features = &self.file.site.features;
        if self.first.is_some() && features.dav.possible() && !answer.headers.contains_key(header::ETAG) {
            // The response may be a page that shows a directory.
            answer.release_permit();
            self.file.pin_by_stat().await?;
        }
        let size = match (answer.remaining_bytes(), self.file.pinned.get()) {
            (Some(size), _) => size,
            (None, _) if let Some(coding) = stat::coding_of(answer) => {
                let message = format!("{root} sent the file with the content coding {coding}, which was not requested");
                return Err(protocol(message));
            }
            (None, Some(pinned)) => pinned.metadata.size,
            (None, None) => {
                answer.release_permit();
                self.file.pin_by_stat().await?.metadata.size
            }
        };
        self.file.settle_answer(answer, size, self.is_conditional)?;
        if self.next > SKIPPED_BYTES {
            let message = format!("{root} does not support range requests, and the range is too far into the file");
            return Err(Error::new(Fault::Unsupported, message).blamed_on(Blame::Storage));
        }
        Ok(ResponseAction::Part(0..size))
    }

    fn check_refusal(&mut self, answer: &HttpResponse) -> ResponseAction {
        if self.file.is_gone(answer, &mut self.retry_state) {
            return ResponseAction::Again;
        }
        if self.first.is_some() && self.wishes && stat::may_refuse_wishes(answer) {
            self.wishes = false;
            return ResponseAction::Again;
        }
        ResponseAction::Refused
    }

    /// Receives the missing bytes from a body that is `part` of the file.
    async fn receive(&mut self, mut answer: HttpResponse, part: Range<u64>) -> Result<(), Failure> {
        // The version is pinned: other calls may proceed.
        self.first = None;
        let end = self.end.min(part.end);
        let mut at = part.start;
        let mut gained = 0;
        // The file may end before the requested range.
        self.reserve(end);
        while self.next < end {
            let Some(data) = answer.next().await? else {
                let message = format!("the response from {} ended early", answer.target.root());
                return Err(Failure::Lost(Error::new(Fault::Truncated, message).blamed_on(Blame::Storage)));
            };
            let skipped = data.len().min(usize::try_from(self.next - at).unwrap_or(usize::MAX));
            let wanted = data.len().min(skipped.saturating_add(usize::try_from(end - self.next).unwrap_or(usize::MAX)));
            let useful = data.get(skipped..wanted).unwrap_or_default();
            at += data.len() as u64;
            self.accept(useful).await;
            gained += useful.len();
            if gained >= PROGRESS_BYTES {
                gained = 0;
                self.retry_state.record_progress(clock::now());
            }
        }
        // Without a length, only the end of the body proves that it is not longer than the expected size of the file.
        let is_unbounded = answer.status == StatusCode::OK && answer.remaining_bytes().is_none();
        if is_unbounded && self.next == part.end && (at > part.end || answer.next().await?.is_some()) {
            let root = answer.target.root();
            let message = format!("{root} sent more than the reported file size of {} bytes", part.end);
            return Err(Failure::Fatal(protocol(message)));
        }
        // The connection can be reused only after the end of the body.
        answer.discard().await;
        Ok(())
    }

    /// Reserves memory for the bytes up to the next cut, at most up to `end`.
    fn reserve(&mut self, end: u64) {
        let end = self.cuts.ends.front().map_or(end, |cut| end.min(*cut));
        self.buffer.reserve(usize::try_from(end.saturating_sub(self.next)).unwrap_or(0));
    }

    /// Adds bytes that have arrived, and sends the parts that are complete. Waits for their receiver.
    async fn accept(&mut self, mut data: &[u8]) {
        while let Some(cut) = self.cuts.ends.front().copied()
            && cut <= self.next + data.len() as u64
        {
            let (head, tail) = data.split_at((cut - self.next) as usize);
            self.buffer.extend_from_slice(head);
            self.next = cut;
            self.cuts.ends.pop_front();
            let part = std::mem::take(&mut self.buffer);
            if let Some(parts) = &mut self.cuts.parts {
                // Without a receiver, the read itself is dropped.
                let _ = parts.send(Ok(part.into())).await;
            }
            data = tail;
            self.reserve(self.end);
        }
        self.buffer.extend_from_slice(data);
        self.next += data.len() as u64;
    }
}

#[async_trait]
impl ReadHandle for RemoteFile {
    async fn metadata(&self) -> Result<Metadata> {
        // Let a concurrent read go first: its response has all the required metadata.
        tokio::task::yield_now().await;
        let pinned = self.pin().await.map_err(|error| error.at(&self.path))?;
        if let Some(metadata) = self.completed.get() {
            return Ok(metadata.clone());
        }
        if pinned.version.is_none() && self.target.is_query {
            // Several requests would execute the query several times, and could mix the results.
            let message = "the result of the query has no version: it can only be read at once, as a stream";
            return Err(Error::new(Fault::Unsupported, message).blamed_on(Blame::Storage).at(&self.path));
        }
        if pinned.version.is_some() || !self.site.features.dav.possible() {
            return Ok(pinned.metadata.clone());
        }
        let metadata = stat::stat(&self.site, &self.caller, &self.path, &self.target).await?;
        if metadata.size != pinned.metadata.size {
            return Err(changed().at(&self.path));
        }
        Ok(self.completed.get_or_init(|| metadata).clone())
    }

    async fn read(&self, offset: u64, length: usize) -> Result<Bytes> {
        self.read_into(offset, length, Vec::new()).await.map(Bytes::from)
    }

    async fn read_into(&self, offset: u64, length: usize, buffer: Vec<u8>) -> Result<Vec<u8>> {
        self.fetch(offset, length, buffer).await.map_err(|error| error.at(&self.path))
    }

    fn read_now(&self, _offset: u64, _length: usize, _buffer: &mut Vec<u8>) -> Option<Result<usize>> {
        None
    }

    fn read_vector_now(&self, _places: &mut [towpath_store::ReadBuffer<'_>]) -> Option<Result<()>> {
        None
    }

    fn read_vector(&self, ranges: Vec<ByteRange>) -> VectorReads<'_> {
        vector::read(self, ranges)
    }

    async fn stream(&self) -> Result<Option<ContentStream>> {
        self.begin_stream().await.map_err(|error| error.at(&self.path))
    }

    fn prepare(&self, _ranges: &[ByteRange]) -> Option<Arc<dyn Preparation>> {
        None
    }

    fn local_part(&self, _offset: u64, _length: u64) -> Option<LocalPart> {
        None
    }

    fn check_version(&self) -> Result<()> {
        Ok(())
    }
}

/// Returns the error for a file that is no longer the version that was opened.
pub(super) fn changed() -> Error {
    Error::new(Fault::Changed, "the file changed since it was opened").blamed_on(Blame::Storage)
}

/// Returns an error for metadata of anything but a regular file.
fn expect_file(metadata: &Metadata) -> Result<()> {
    match metadata.kind {
        FileKind::File => Ok(()),
        FileKind::Directory => Err(Error::new(Fault::IsDirectory, "it is a directory")),
        FileKind::Other => Err(Error::new(Fault::NotRegular, "it is not a regular file")),
    }
}

fn protocol(message: String) -> Error {
    Error::new(Fault::Protocol, message).blamed_on(Blame::Storage)
}
