//! Files open for reading.
//!
//! A [`RemoteFile`] sends no request until it is used. Each of its streams (one per session of the site) holds one open
//! of the file, created when the stream is first used, and again after the session was lost. All opens must find the
//! same version, and a `stat` accompanies a read once a second ([`version_check`]). Ranges are received into the
//! caller's buffer; corrupted pages are fetched again individually.

mod attempt;
mod version_check;

use std::{
    cmp::Ordering,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
};

use async_trait::async_trait;
use bytes::Bytes;
use towpath_proto::xrootd::{
    FileHandle, OpenOptions as OpenFlags, Request, StatOptions, Target,
    page::Page,
    request::{Open, Stat},
    response::{Body, OpenReply, StatInfo},
};
use towpath_store::{
    Blame, ByteRange, ContentStream, Error, Fault, LocalPart, Metadata, OpenOptions, Preparation, ReadHandle, Result,
    StorePath, VectorReads, sys::clock,
};

use super::{
    connection::{Failure, OutgoingRequest},
    metadata,
    origin::Origin,
    retry_state::RetryState,
    server::Server,
    session::{HandleState, OpenFile},
    site::{Identity, Site},
};
use attempt::{PAGE_RETRIES, damaged, is_not_open};
use version_check::VersionCheck;

pub(super) use attempt::{Attempt, Check, fetch, reopen};

/// Maximum length of a request in bytes; longer reads are split, so that no request exceeds the window.
const MAX_REQUEST_BYTES: usize = 32 << 20;

/// One version of a file at a site.
#[derive(Debug)]
pub(super) struct RemoteFile {
    pub(super) origin: Origin,
    identity: Identity,
    pub(super) path: StorePath,
    options: OpenOptions,
    streams: Mutex<Vec<Option<ReadStream>>>,
    /// The metadata found by the first open.
    pinned: OnceLock<Metadata>,
    version_check: VersionCheck,
}

/// One open of the file.
#[derive(Debug, Clone)]
pub(super) struct ReadStream {
    /// The location of the file, with the opaque information that the redirector added for the server.
    server: Server,
    pub(super) site: Arc<Site>,
    pub(super) file: Arc<OpenFile>,
}

impl RemoteFile {
    /// Creates a handle of the file at `path`, without a request.
    pub(super) fn new(origin: Origin, identity: Identity, path: StorePath, options: OpenOptions) -> Self {
        Self {
            origin,
            identity,
            path,
            options,
            streams: Mutex::default(),
            pinned: OnceLock::new(),
            version_check: VersionCheck::default(),
        }
    }

    fn streams(&self) -> MutexGuard<'_, Vec<Option<ReadStream>>> {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the open of the file in a stream; starts it if there is none. Returns immediately.
    pub(super) fn read_stream(&self, number: usize, retry_state: &mut RetryState) -> Result<ReadStream> {
        let mut streams = self.streams();
        if let Some(Some(stream)) = streams.get(number)
            && stream.file.is_usable()
        {
            retry_state.set_server(stream.server.clone());
            return Ok(stream.clone());
        }
        // The other streams know the target of the redirect.
        let usable = streams.iter().flatten().find(|stream| stream.file.is_usable());
        if let Some(server) = usable.map(|stream| stream.server.clone()) {
            retry_state.set_server(server);
        }
        let site = self.origin.sites.at(retry_state.server(), &self.identity);
        let open = Open {
            options: OpenFlags::open_read | OpenFlags::retstat,
            wants_checksum: true,
            path: site.path_now(retry_state.server().path_of(&self.path), &retry_state.server().cgi)?,
            ..Open::default()
        };
        let file = site.session(number)?.open(open, true);
        let stream = ReadStream { server: retry_state.server().clone(), site, file };
        if streams.len() <= number {
            streams.resize(number + 1, None);
        }
        if let Some(server) = streams.get_mut(number) {
            *server = Some(stream.clone());
        }
        Ok(stream)
    }

    /// Returns the server where the file is open, after all redirects; `None` if it is not open.
    pub(super) fn server(&self) -> Option<Server> {
        self.streams().iter().flatten().find(|stream| stream.file.is_usable()).map(|stream| stream.server.clone())
    }

    /// Abandons a stream, unless it has been replaced already.
    pub(super) fn abandon(&self, failed: &ReadStream) {
        for stream in self.streams().iter_mut() {
            if stream.as_ref().is_some_and(|stream| Arc::ptr_eq(&stream.file, &failed.file)) {
                *stream = None;
            }
        }
    }

    /// Returns the metadata that all opens must find; called once the file is open in this stream.
    async fn pin(&self, stream: &ReadStream, reply: &OpenReply) -> Result<&Metadata, Failure> {
        let stat = match &reply.stat {
            Some(stat) => stat.clone(),
            // Of servers that do not return it with the open.
            None => submit_stat(stream, reply.handle).await?,
        };
        let mut found = metadata::of_stat(&stat);
        if let Some(digest) = reply.checksum.as_ref().and_then(metadata::entry_digest) {
            found.digests.insert(digest);
        }
        let pinned = self.pinned.get_or_init(|| found.clone());
        if self.options.accept(&found) && pinned.size == found.size && pinned.mtime_ns == found.mtime_ns {
            self.version_check.start(clock::now());
            return Ok(pinned);
        }
        self.version_check.changed();
        Err(Failure::Fatal(self.changed()))
    }

    /// Returns the metadata that the caller knows, unless the response to the open may add a digest that the caller
    /// wants.
    fn known(&self) -> Option<&Metadata> {
        let is_complete = |known: &&Metadata| !self.options.verifies_digests || !known.digests.is_empty();
        self.options.known.as_ref().filter(is_complete)
    }

    fn changed(&self) -> Error {
        let message = format!("{}: the file changed since it was opened", self.origin.server.name());
        Error::new(Fault::Changed, message)
    }

    /// Makes one attempt at the request of `send`, which receives the file's handle, and its size if known. If the
    /// handle can be predicted, the request is sent together with the open; after a wrong prediction, it is sent again.
    pub(super) async fn attempt<F>(
        &self,
        stream: &ReadStream,
        buffer: Vec<u8>,
        send: impl Fn(FileHandle, Option<u64>, Vec<u8>) -> F,
    ) -> Attempt
    where
        F: Future<Output = Attempt>,
    {
        let start = buffer.len();
        let mut buffer = buffer;
        if let HandleState::Guessed(guess) = stream.file.handle_state() {
            let (attempt, opened) = futures::future::join(send(guess, None, buffer), self.opened(stream)).await;
            // The server's support of pages was predicted too.
            let unheard_of =
                matches!(attempt.outcome, Err(Failure::Refused(_))) && !stream.site.wants_pages(&stream.file.session);
            let right = matches!(&opened, Ok(reply) if reply.handle == guess) && !is_not_open(&attempt.outcome);
            if right && !unheard_of {
                return match self.pinned(stream).await {
                    Ok(_) => attempt,
                    Err(failure) => Attempt::failed(attempt.buffer, start, failure),
                };
            }
            buffer = attempt.buffer;
            buffer.truncate(start);
        }
        match self.pinned(stream).await {
            Ok((handle, size)) => send(handle, Some(size), buffer).await,
            Err(failure) => Attempt::failed(buffer, start, failure),
        }
    }

    /// Returns handle and size once the file is open in this stream and has the expected version.
    async fn pinned(&self, stream: &ReadStream) -> Result<(FileHandle, u64), Failure> {
        let reply = self.opened(stream).await?;
        let pinned = self.pin(stream, &reply).await?;
        Ok((reply.handle, pinned.size))
    }

    /// Waits for the open. If each read is to be confirmed, the server is queried meanwhile whether it does that itself.
    async fn opened(&self, stream: &ReadStream) -> Result<OpenReply, Failure> {
        let opened = stream.file.opened();
        match self.options.confirms {
            true => futures::future::join(opened, stream.file.session.learn_software()).await.0,
            false => opened.await,
        }
    }

    /// Returns how to verify a range requested now.
    fn check(&self) -> Check {
        let has_digest = self.pinned.get().is_some_and(|pinned| !pinned.digests.is_empty());
        if self.options.verifies_digests && has_digest { Check::Later } else { Check::Pages }
    }

    /// Requests a range, or the part of it within the file.
    async fn piece(
        &self,
        stream: &ReadStream,
        handle: FileHandle,
        size: Option<u64>,
        range: ByteRange,
        buffer: Vec<u8>,
    ) -> Attempt {
        // A size of 0 does not mean an empty file: servers also report it for streams, such as the files of `/proc`.
        let size = size.filter(|size| *size > 0);
        let left = size.map_or(u64::MAX, |size| size.saturating_sub(range.offset));
        let length = range.length.min(usize::try_from(left).unwrap_or(usize::MAX));
        if length == 0 {
            return Attempt { buffer, bad_pages: Vec::new(), outcome: Ok(()), after: None };
        }
        fetch(&stream.site, &stream.file.session, handle, ByteRange { length, ..range }, buffer, self.check()).await
    }

    /// Reads a range of at most [`MAX_REQUEST_BYTES`], with retries.
    pub(super) async fn range(&self, range: ByteRange, mut buffer: Vec<u8>) -> Result<Vec<u8>> {
        self.check_version()?;
        // A size of 0 does not mean that there is nothing to read.
        if self.pinned.get().is_some_and(|pinned| pinned.size > 0 && range.offset >= pinned.size) {
            return self.confirm_version().await.map(|()| buffer);
        }
        let start = buffer.len();
        let mut retry_state = self.origin.retry_state(true);
        let number = self.busy_stream();
        loop {
            let stream = self.read_stream(number, &mut retry_state)?;
            let done = buffer.len() - start;
            let rest = ByteRange { offset: range.offset + done as u64, length: range.length - done };
            // Counted before the open, so that concurrent requests do not all choose this stream too.
            let load = stream.file.session.loaded(rest.length);
            let attempt =
                self.attempt(&stream, buffer, |handle, size, buffer| self.piece(&stream, handle, size, rest, buffer));
            let (attempt, looked) = futures::future::join(attempt, self.look(&stream)).await;
            buffer = attempt.buffer;
            if buffer.len() < start {
                let message = "the connection was lost, and with it the data already read";
                return Err(Error::new(Fault::Unavailable, message).blamed_on(Blame::Network));
            }
            drop(load);
            let mended = self.mend(&stream, rest.offset, start + done, &mut buffer, attempt.bad_pages).await;
            match looked.and(attempt.outcome).and(mended) {
                Ok(()) => {
                    self.check_length(&stream, range, buffer.len() - start)?;
                    self.confirm(&stream, attempt.after.as_ref()).await?;
                    return Ok(buffer);
                }
                Err(failure) => {
                    if !matches!(failure, Failure::Wait { .. }) {
                        self.abandon(&stream);
                    }
                    if self.options.confirms {
                        // The next attempt may be at another server, which cannot confirm them.
                        buffer.truncate(start);
                    }
                    self.origin.handle_failure(&mut retry_state, &stream.site, reopen(failure)).await?;
                }
            }
        }
    }

    /// Returns the stream for the next request, according to the load of the site that has the file.
    pub(super) fn busy_stream(&self) -> usize {
        self.site().next_session()
    }

    /// Returns the site that has the file, as far as it is known.
    fn site(&self) -> Arc<Site> {
        let site = self.streams().iter().flatten().next().map(|stream| Arc::clone(&stream.site));
        site.unwrap_or_else(|| self.origin.sites.at(&self.origin.server, &self.identity))
    }

    /// Fetches damaged pages again. The data of `offset` begin at `start` of the buffer, which is truncated at the
    /// first page that cannot be fetched.
    async fn mend(
        &self,
        stream: &ReadStream,
        offset: u64,
        start: usize,
        buffer: &mut Vec<u8>,
        bad_pages: Vec<Page>,
    ) -> Result<(), Failure> {
        for page in bad_pages {
            let at = start + usize::try_from(page.offset - offset).unwrap_or(usize::MAX);
            let data = match self.fetch_again(stream, page).await {
                Ok(data) => data,
                Err(failure) => {
                    buffer.truncate(at);
                    return Err(failure);
                }
            };
            if let Some(server) = buffer.get_mut(at..at + page.length) {
                server.copy_from_slice(&data);
            }
        }
        Ok(())
    }

    /// Fetches one damaged page again.
    async fn fetch_again(&self, stream: &ReadStream, page: Page) -> Result<Vec<u8>, Failure> {
        let handle = stream.file.opened().await?.handle;
        let range = ByteRange { offset: page.offset, length: page.length };
        for _ in 0..PAGE_RETRIES {
            tracing::warn!(host = &*stream.file.session.host, path = %self.path, offset = page.offset, "damaged page");
            let attempt =
                fetch(&stream.site, &stream.file.session, handle, range, Vec::new(), Check::DamagedPages).await;
            attempt.outcome?;
            if attempt.bad_pages.is_empty() && attempt.buffer.len() == page.length {
                return Ok(attempt.buffer);
            }
        }
        Err(Failure::Fatal(damaged(&stream.file.session.host, page.offset)))
    }

    /// Checks that the received length of a range is the length within the file.
    fn check_length(&self, stream: &ReadStream, range: ByteRange, came: usize) -> Result<()> {
        let size = self.pinned.get().map_or(0, |pinned| pinned.size);
        let there = usize::try_from(size.saturating_sub(range.offset)).unwrap_or(usize::MAX);
        let change = match came.cmp(&range.length.min(there)) {
            Ordering::Equal => return Ok(()),
            Ordering::Less => "shorter",
            Ordering::Greater => "longer",
        };
        let message = format!("{}: the file is {change} than when it was opened", stream.file.session.host);
        Err(Error::new(Fault::Changed, message))
    }
}

#[async_trait]
impl ReadHandle for RemoteFile {
    async fn metadata(&self) -> Result<Metadata> {
        if let Some(metadata) = self.pinned.get().or_else(|| self.known()) {
            return Ok(metadata.clone());
        }
        let mut retry_state = self.origin.retry_state(true);
        loop {
            let stream = self.read_stream(0, &mut retry_state).map_err(|error| error.at(&self.path))?;
            let found = match self.opened(&stream).await {
                Ok(reply) => self.pin(&stream, &reply).await.cloned(),
                Err(failure) => Err(failure),
            };
            match found {
                Ok(pinned) => {
                    stream.site.warn_of_refusal();
                    return Ok(pinned);
                }
                Err(failure) => {
                    self.abandon(&stream);
                    self.origin
                        .handle_failure(&mut retry_state, &stream.site, failure)
                        .await
                        .map_err(|error| error.at(&self.path))?;
                }
            }
        }
    }

    async fn read(&self, offset: u64, length: usize) -> Result<Bytes> {
        self.read_into(offset, length, Vec::new()).await.map(Bytes::from)
    }

    async fn read_into(&self, offset: u64, length: usize, mut buffer: Vec<u8>) -> Result<Vec<u8>> {
        let start = buffer.len();
        if i64::try_from(offset.saturating_add(length as u64)).is_err() {
            return Err(Error::new(Fault::InvalidArgument, "the range exceeds the maximum file size").at(&self.path));
        }
        while buffer.len() - start < length {
            let done = buffer.len() - start;
            let piece = (length - done).min(MAX_REQUEST_BYTES);
            let range = ByteRange { offset: offset + done as u64, length: piece };
            buffer = self.range(range, buffer).await.map_err(|error| error.at(&self.path))?;
            if buffer.len() - start < done + piece {
                break;
            }
        }
        Ok(buffer)
    }

    fn read_now(&self, _offset: u64, _length: usize, _buffer: &mut Vec<u8>) -> Option<Result<usize>> {
        None
    }

    fn read_vector_now(&self, _places: &mut [towpath_store::ReadBuffer<'_>]) -> Option<Result<()>> {
        None
    }

    fn read_vector(&self, ranges: Vec<ByteRange>) -> VectorReads<'_> {
        super::vector::read(self, ranges)
    }

    async fn stream(&self) -> Result<Option<ContentStream>> {
        Ok(None)
    }

    fn prepare(&self, _ranges: &[ByteRange]) -> Option<Arc<dyn Preparation>> {
        None
    }

    fn local_part(&self, _offset: u64, _length: u64) -> Option<LocalPart> {
        None
    }

    fn check_version(&self) -> Result<()> {
        if self.version_check.has_changed() { Err(self.changed().at(&self.path)) } else { Ok(()) }
    }

    async fn close(&self) {
        let streams = std::mem::take(&mut *self.streams());
        for stream in streams.into_iter().flatten() {
            // After a failure of the connection, the server closes the file by itself.
            let _ = stream.file.close(None).await;
        }
    }
}

/// Sends a request for the metadata of an open file, after the requests that were submitted before.
pub(super) fn submit_stat(
    stream: &ReadStream,
    handle: FileHandle,
) -> impl Future<Output = Result<StatInfo, Failure>> + Send + use<> {
    let stat = Stat { options: StatOptions::NONE, wants: 0, wants_node: false, target: Target::Handle(handle) };
    let session = Arc::clone(&stream.file.session);
    let pending = session.submit(OutgoingRequest::new(Request::from(stat), 64 << 10));
    async move {
        let finished = pending.finished().await;
        finished.outcome?;
        StatInfo::decode(Bytes::from(finished.buffer)).map_err(|error| Failure::Fatal(session.garbled(&error)))
    }
}
