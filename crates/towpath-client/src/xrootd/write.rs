//! Files being written.
//!
//! Pieces are sent as pages with checksums, in any order and concurrently, limited by the site's window; corrupted
//! pages are sent again. A small file is sent to a towpath server together with its close ([`tail`]), and corruption
//! fails its commit. [`WriteHandle::commit`] closes the file; the response is the server's confirmation. A towpath
//! server receives size and digests with the close, and compares them before it shows the file. For another server,
//! size and digest are queried afterwards, and a mismatching file is removed.
//!
//! A large file uses all connections of the site ([`streams`]), and tolerates the loss of one. A write handle does not
//! survive the loss of the last one: the server aborts the upload (it is opened with persist-on-successful-close), so
//! writes fail with `Unavailable` and the upload has to restart. With a key ([`CreateOptions::resume`]) a towpath
//! server keeps stored data, and reports them in the response to the next open.

mod pieces;
mod streams;
mod tail;
mod target;

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU64, Ordering},
};

use async_trait::async_trait;
use bytes::Bytes;
use tokio::sync::OnceCell;
use towpath_proto::{
    checksum::{Digest, Extent},
    xrootd::{
        FileHandle, Mode, OpenOptions as OpenFlags, Request, StatOptions, Target as Subject,
        request::{CloseAction, FileExpectation, Open, Stat, Sync, Truncate},
        response::{Body, OpenReply, StatInfo},
    },
};
use towpath_store::{
    Blame, ByteRange, Caller, CreateOptions, Error, Expectation, Fault, MAX_PRESENT_EXTENTS, Metadata, Overwrite,
    Result, Store as _, StorePath, WriteHandle,
};

use super::{
    connection::{Failure, OutgoingRequest, RequestCompletion},
    metadata,
    origin::{Origin, with_pair},
    read::{Check, fetch},
    session::{OpenFile, Session},
    site::Site,
    store::XrootdStore,
};
use streams::UploadStreams;
use tail::Tail;
use target::WriteTarget;

/// Maximum length of a piece sent in one request, in bytes; longer pieces are split.
const MAX_REQUEST_BYTES: usize = 8 << 20;

/// A file being written at a site.
#[derive(Debug)]
pub(super) struct Upload {
    target: WriteTarget,
    site: Arc<Site>,
    handle: FileHandle,
    streams: UploadStreams,
    /// The server's number of the file, once requested.
    id: OnceCell<u64>,
    /// Extents stored when the upload began.
    present: Vec<Extent>,
    /// Current size of a new file according to its writes.
    size: AtomicU64,
    tail: Tail,
    /// Whether commit or abort has started; further requests are rejected.
    finished: AtomicBool,
    /// Whether commit or abort has ended, so that no cleanup is necessary.
    settled: AtomicBool,
}

impl Upload {
    /// Starts an upload of a new file.
    pub(super) async fn create(
        origin: Origin,
        caller: &Caller,
        path: &StorePath,
        options: &CreateOptions,
    ) -> Result<Self> {
        let parents = if options.parents { OpenFlags::mkpath } else { OpenFlags::NONE };
        let mode = metadata::mode_bits(options.mode.unwrap_or(0o644));
        let site = origin.sites.at(&origin.server, &origin.identity(caller));
        let mut options = options.clone();
        // A server that does not support the key may treat it as a part of the file's name. Besides, a repeated open of
        // an upload with a key would find that upload in progress.
        if options.resume.is_some() && !(site.may_be_ours().await && site.is_known_to_be_ours()) {
            options.resume = None;
        }
        let options = &options;
        let pairs = pairs(options)?;
        let open = |flags| {
            Self::open(origin.clone(), caller, path, OpenFlags::open_updt | parents | flags, mode, pairs.as_deref())
        };
        let replaces = options.overwrite == Overwrite::Replace;
        if replaces && site.is_known_to_be_ours() {
            return Ok(open(OpenFlags::delete).await?.keeping(options));
        }
        // A replacement is first opened as a new file: only then may the open request removal after a lost connection.
        // For an existing file or a directory, 5.5.3 would remove those too.
        let mut replaced = match open(OpenFlags::new | OpenFlags::posc).await {
            Err(error) if error.fault() == Fault::AlreadyExists && replaces => open(OpenFlags::delete).await?,
            // A server that hides the upload protects an existing file anyway, and would reject the commit if a file
            // appeared meanwhile.
            Ok(hidden) if replaces && !hidden.target.shown.load(Ordering::Acquire) => open(OpenFlags::delete).await?,
            other => return Ok(other?.keeping(options)),
        };
        if replaced.target.shown.load(Ordering::Acquire) {
            replaced.tail = Tail::of_shown(options);
            return Ok(replaced);
        }
        Ok(replaced.keeping(options))
    }

    /// Returns the upload, which holds a small file back until its commit if the server is towpath.
    fn keeping(mut self, options: &CreateOptions) -> Self {
        if self.site.is_known_to_be_ours() {
            self.tail = Tail::of_hidden(options);
        }
        self
    }

    /// Opens an existing file for changes.
    pub(super) async fn update(origin: Origin, caller: &Caller, path: &StorePath) -> Result<Self> {
        Self::open(origin, caller, path, OpenFlags::open_updt, Mode::NONE, None).await
    }

    async fn open(
        origin: Origin,
        caller: &Caller,
        path: &StorePath,
        flags: OpenFlags,
        mode: Mode,
        pairs: Option<&str>,
    ) -> Result<Self> {
        let identity = origin.identity(caller);
        // If the upload is not hidden, a repeated open of a file that must not exist would find it.
        let hides = origin.sites.at(&origin.server, &identity).is_known_to_be_ours();
        let mut retry_state = origin.retry_state(hides || !flags.contains(OpenFlags::new));
        loop {
            let site = origin.sites.at(retry_state.server(), &identity);
            let server = retry_state.server().clone();
            let cgi = pairs.map_or_else(|| server.cgi.clone(), |pairs| with_pair(&server.cgi, pairs));
            let path_and_cgi = site.path(server.path_of(path), &cgi).await?;
            let open = Open { options: flags, mode, path: path_and_cgi, ..Open::default() };
            let session = site.session(site.next_session())?;
            if flags.contains(OpenFlags::new) {
                // Like every change, it is not sent before the response to the login.
                session.settled().await;
            }
            let target = WriteTarget {
                store: XrootdStore::of(origin.clone()),
                caller: caller.clone(),
                path: path.clone(),
                site: Arc::clone(&site),
                file: session.open(open, false),
                is_new: flags.creates(),
                server,
                shown: Arc::default(),
            };
            let opening = OpenGuard { target: Some(target.clone()), site: Arc::clone(&site) };
            let (opened, ()) = futures::future::join(target.file.opened(), target.query_visibility(&site)).await;
            opening.ended();
            match opened {
                Ok(reply) => {
                    site.warn_of_refusal();
                    return Self::of_reply(target, site, reply);
                }
                Err(failure) => origin.handle_failure(&mut retry_state, &site, failure).await?,
            }
        }
    }

    /// Creates the upload from the response to its open.
    fn of_reply(target: WriteTarget, site: Arc<Site>, reply: OpenReply) -> Result<Self> {
        let present = reply.present.unwrap_or_default();
        let are_apart = present.is_sorted_by(|one, next| one.end() < next.offset());
        let upload = Self {
            streams: UploadStreams::new(Arc::clone(&target.file)),
            target,
            site,
            handle: reply.handle,
            id: OnceCell::new(),
            size: AtomicU64::new(present.last().map_or(0, Extent::end)),
            present,
            tail: Tail::default(),
            finished: AtomicBool::new(false),
            settled: AtomicBool::new(false),
        };
        if !are_apart || upload.present.len() > MAX_PRESENT_EXTENTS {
            return Err(upload.session().garbled(&"invalid list of received extents"));
        }
        Ok(upload)
    }

    fn session(&self) -> &Arc<Session> {
        &self.target.file.session
    }

    /// Sends a request about the file over one of its connections. Returns the open that was used, and the response.
    async fn request_about(
        &self,
        outgoing: impl Fn(FileHandle) -> OutgoingRequest,
    ) -> Result<(Arc<OpenFile>, RequestCompletion)> {
        let file = self.remaining().file;
        let handle = file.open_handle().unwrap_or(self.handle);
        match self.send_request(&file, None, || outgoing(handle)).await {
            Ok(finished) => Ok((file, finished)),
            Err(failure) => Err(self.error(&file, failure)),
        }
    }

    /// Returns the server's metadata of the open file.
    async fn stat(&self, file: &OpenFile) -> Result<StatInfo> {
        let handle = file.open_handle().unwrap_or(self.handle);
        let request = Stat { options: StatOptions::NONE, wants: 0, wants_node: false, target: Subject::Handle(handle) };
        let answered =
            self.send_request(file, None, || OutgoingRequest::new(Request::from(request.clone()), 64 << 10)).await;
        let finished = answered.map_err(|failure| self.error(file, failure))?;
        StatInfo::decode(Bytes::from(finished.buffer)).map_err(|error| file.session.garbled(&error))
    }

    /// Converts the failure of a request on `file` into the error of an upload that cannot be opened again.
    fn error(&self, file: &OpenFile, failure: Failure) -> Error {
        match failure {
            Failure::Refused(reply) => super::retry_state::refusal(&file.session.root(), &reply),
            Failure::Fatal(error) => error,
            Failure::Lost(error) | Failure::EarlyLoss(error) | Failure::NotSent(error) => {
                let rest = match self.target.file.is_resumable() {
                    true => "the received part is kept, and the upload can be resumed",
                    false => "the upload must be restarted",
                };
                let message = format!("{}; {rest}", error.message());
                Error::new(Fault::Unavailable, message).blamed_on(Blame::Network)
            }
            Failure::Redirect { .. } | Failure::Wait { .. } | Failure::TooEarly | Failure::Occupied => {
                Error::new(Fault::Protocol, format!("{}: unexpected response to a write", file.session.host))
            }
        }
    }

    /// Closes the file, and returns its metadata if they match the expectation.
    async fn close_and_check(&self, expected: &Expectation) -> Result<Metadata> {
        // Checked before the close, with which a server shows a hidden file.
        let size = self.size.load(Ordering::Acquire);
        if self.target.is_new {
            expected.check_size(size)?;
        }
        if self.closes_with_promise() {
            return self
                .close_with_promise(FileExpectation {
                    size,
                    mtime_ns: expected.mtime_ns,
                    digests: expected.digests.clone(),
                })
                .await;
        }
        let target = self.remaining();
        self.gather(&target).await.map_err(|failure| self.error(&target.file, failure))?;
        target.close(None).await.map_err(|failure| self.error(&target.file, failure))?;
        let stat = self.target.store.stat(&self.target.caller, &self.target.path);
        let (metadata, digest) = futures::future::join(stat, self.check_digests(expected)).await;
        let mut metadata = metadata?;
        expected.check_size(metadata.size)?;
        if let Some(digest) = digest? {
            metadata.digests.insert(digest);
        }
        Ok(metadata)
    }

    /// Returns whether the server verifies the expectation before it shows the file, as towpath does.
    fn closes_with_promise(&self) -> bool {
        self.target.is_new && self.site.is_known_to_be_ours()
    }

    /// Closes the file with a promise; the server commits it only if it matches.
    async fn close_with_promise(&self, promise: FileExpectation) -> Result<Metadata> {
        let target = self.remaining();
        let ending = CloseAction::Commit(promise.clone());
        let answer = match self.take_tail().await {
            Some(tail) => self.close_behind(&target, tail, ending).await,
            None => target.close(Some(ending)).await,
        };
        let answer = answer.map_err(|failure| self.error(&target.file, failure))?;
        let stat = StatInfo::decode(answer).map_err(|error| target.file.session.garbled(&error))?;
        let mut metadata = metadata::of_stat(&stat);
        promise.digests.iter().for_each(|digest| metadata.digests.insert(*digest));
        Ok(metadata)
    }

    /// Compares the first of the promised digests that the server knows; reads the file back if it knows none.
    async fn check_digests(&self, expected: &Expectation) -> Result<Option<Digest>> {
        for promised in expected.digests.iter() {
            match self.target.store.ask_digest(&self.target.caller, &self.target.path, promised.algorithm()).await {
                Ok(found) if found == *promised => return Ok(Some(found)),
                Ok(found) => return Err(mismatch(promised, &found)),
                Err(error) if error.fault() == Fault::Unsupported => {}
                Err(error) => return Err(error),
            }
        }
        match expected.digests.iter().next() {
            Some(promised) => {
                let found = self
                    .target
                    .store
                    .digest_by_reading(&self.target.caller, &self.target.path, promised.algorithm(), &|_| ())
                    .await?;
                if found == *promised { Ok(Some(found)) } else { Err(mismatch(promised, &found)) }
            }
            None => Ok(None),
        }
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        if self.settled.load(Ordering::Acquire) {
            return;
        }
        let target = self.remaining();
        let underway = target.start_clear();
        self.target.spawn(async move { target.clear_abandoned(underway).await });
    }
}

/// An open in flight. If it is no longer needed, the created file is removed.
struct OpenGuard {
    target: Option<WriteTarget>,
    site: Arc<Site>,
}

impl OpenGuard {
    /// Marks the open as answered.
    fn ended(mut self) {
        self.target = None;
    }
}

impl Drop for OpenGuard {
    fn drop(&mut self) {
        let Some(target) = self.target.take() else { return };
        let (site, spawner) = (Arc::clone(&self.site), target.clone());
        spawner.spawn(async move {
            if target.file.opened().await.is_ok() {
                target.query_visibility(&site).await;
                target.clear_abandoned(target.start_clear()).await;
            }
        });
    }
}

/// Returns the opaque information for the open of a new file.
fn pairs(options: &CreateOptions) -> Result<Option<String>> {
    let size = options.size_hint.map(|size| format!("oss.asize={size}"));
    let Some(key) = options.resume else { return Ok(size) };
    let message = "an upload with a resume key requires the file size";
    let size = size.ok_or_else(|| Error::new(Fault::InvalidArgument, message))?;
    Ok(Some(format!("{size}&{}={key}", OpenReply::RESUME_KEY)))
}

fn mismatch(promised: &Digest, found: &Digest) -> Error {
    Error::new(Fault::ChecksumMismatch, format!("the upload has {found:#}, expected {promised:#}"))
        .blamed_on(Blame::Network)
}

fn not_open() -> Error {
    Error::new(Fault::HandleNotOpen, "the upload is finished")
}

#[async_trait]
impl WriteHandle for Upload {
    async fn write(&self, offset: u64, data: Bytes) -> Result<()> {
        if i64::try_from(offset.saturating_add(data.len() as u64)).is_err() {
            return Err(
                Error::new(Fault::InvalidArgument, "the range exceeds the maximum file size").at(&self.target.path)
            );
        }
        let end = offset + data.len() as u64;
        if self.finished.load(Ordering::Acquire) {
            return Err(not_open().at(&self.target.path));
        }
        let data = self.keep_tail(offset, data).await.map_err(|error| error.at(&self.target.path))?;
        let pieces = (0..data.len()).step_by(MAX_REQUEST_BYTES).map(|start| {
            let piece = data.slice(start..data.len().min(start + MAX_REQUEST_BYTES));
            self.piece(offset + start as u64, piece)
        });
        futures::future::try_join_all(pieces).await.map_err(|error| error.at(&self.target.path))?;
        if end > offset {
            self.size.fetch_max(end, Ordering::AcqRel);
        }
        Ok(())
    }

    async fn present(&self) -> Result<Vec<Extent>> {
        Ok(self.present.clone())
    }

    async fn read(&self, offset: u64, length: usize) -> Result<Bytes> {
        if self.finished.load(Ordering::Acquire) {
            return Err(not_open().at(&self.target.path));
        }
        let length = length.min(i32::MAX as usize);
        // This also sends the tail.
        let size = self.metadata().await?.size;
        let length = length.min(usize::try_from(size.saturating_sub(offset)).unwrap_or(usize::MAX));
        if length == 0 {
            return Ok(Bytes::new());
        }
        let range = ByteRange { offset, length };
        let file = self.remaining().file;
        let handle = file.open_handle().unwrap_or(self.handle);
        let attempt = fetch(&self.site, &file.session, handle, range, Vec::new(), Check::Pages).await;
        attempt.whole().map_err(|failure| self.error(&file, failure).at(&self.target.path))
    }

    async fn set_size(&self, size: u64) -> Result<()> {
        if i64::try_from(size).is_err() {
            return Err(
                Error::new(Fault::InvalidArgument, "the size exceeds the maximum file size").at(&self.target.path)
            );
        }
        self.send_tail().await.map_err(|error| error.at(&self.target.path))?;
        let request = |handle| Truncate { target: Subject::Handle(handle), size };
        let answered = self.request_about(|handle| OutgoingRequest::new(request(handle), 64)).await;
        answered.map_err(|error| error.at(&self.target.path))?;
        self.size.store(size, Ordering::Release);
        Ok(())
    }

    async fn sync(&self) -> Result<()> {
        self.send_tail().await.map_err(|error| error.at(&self.target.path))?;
        let answered = self
            .request_about(|handle| OutgoingRequest { patient: true, ..OutgoingRequest::new(Sync { handle }, 64) })
            .await;
        answered.map(|_| ()).map_err(|error| error.at(&self.target.path))
    }

    async fn metadata(&self) -> Result<Metadata> {
        self.send_tail().await.map_err(|error| error.at(&self.target.path))?;
        let stat = self.stat(&self.remaining().file).await.map_err(|error| error.at(&self.target.path))?;
        Ok(metadata::of_stat(&stat))
    }

    async fn commit(&self, expected: Expectation) -> Result<Metadata> {
        let sent = match self.closes_with_promise() {
            true => Ok(()),
            false => self.send_tail().await,
        };
        if self.finished.swap(true, Ordering::AcqRel) {
            return Err(not_open().at(&self.target.path));
        }
        let checked = async {
            sent?;
            self.close_and_check(&expected).await
        };
        let checked = checked.await;
        if checked.is_err()
            && let Err(left) = self.target.clear(self.remaining().start_clear()).await
        {
            tracing::warn!(path = %self.target.path, error = %left, "a failed upload could not be removed");
        }
        self.settled.store(true, Ordering::Release);
        checked.map_err(|error| error.at(&self.target.path))
    }

    async fn abort(&self) -> Result<()> {
        if self.finished.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        let cleared = self.target.clear(self.remaining().start_abandon()).await;
        self.settled.store(true, Ordering::Release);
        cleared.map_err(|error| error.at(&self.target.path))
    }
}
