//! Files open for reading.
//!
//! A [`RemoteFile`] sends no request until it is used. Each of its lanes (one per session of the site) holds one open
//! of the file, made when the lane is first used, and again after the session was lost; all opens must find the same
//! version, and a `stat` accompanies a read once a second ([`watch`]). Ranges are received into the caller's buffer;
//! corrupted pages are fetched again one by one.

mod attempt;
mod watch;

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
    Blame, ByteRange, ContentStream, Error, Fault, Metadata, OpenOptions, ReadHandle, Result, StorePath, VectorReads,
    sys::clock,
};

use super::{
    ask::Origin,
    connection::{Exchange, Failure},
    metadata,
    recovery::{Place, RetryState},
    session::{Naming, OpenFile},
    site::{Identity, Site},
};
use attempt::{PAGE_RETRIES, damaged, is_not_open};
use watch::Watch;

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
    lanes: Mutex<Vec<Option<Lane>>>,
    /// What the first open found.
    pinned: OnceLock<Metadata>,
    watch: Watch,
}

/// One open of the file.
#[derive(Debug, Clone)]
pub(super) struct Lane {
    /// The location of the file, with the opaque information that the redirector added for the server.
    place: Place,
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
            lanes: Mutex::default(),
            pinned: OnceLock::new(),
            watch: Watch::default(),
        }
    }

    fn lanes(&self) -> MutexGuard<'_, Vec<Option<Lane>>> {
        self.lanes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The open of the file in a lane, begun if there is none. Returns at once.
    pub(super) fn lane(&self, number: usize, retry_state: &mut RetryState) -> Result<Lane> {
        let mut lanes = self.lanes();
        if let Some(Some(lane)) = lanes.get(number)
            && lane.file.is_usable()
        {
            retry_state.arrive(lane.place.clone());
            return Ok(lane.clone());
        }
        // The other lanes know where the redirector sent the first one.
        let usable = lanes.iter().flatten().find(|lane| lane.file.is_usable());
        if let Some(place) = usable.map(|lane| lane.place.clone()) {
            retry_state.arrive(place);
        }
        let site = self.origin.sites.at(retry_state.place(), &self.identity);
        let open = Open {
            options: OpenFlags::open_read | OpenFlags::retstat,
            wants_checksum: true,
            path: site.path_now(retry_state.place().path_of(&self.path), &retry_state.place().cgi)?,
            ..Open::default()
        };
        let file = site.session(number)?.open(open, true);
        let lane = Lane { place: retry_state.place().clone(), site, file };
        if lanes.len() <= number {
            lanes.resize(number + 1, None);
        }
        if let Some(place) = lanes.get_mut(number) {
            *place = Some(lane.clone());
        }
        Ok(lane)
    }

    /// Where the file is open, after all redirects; none if it is not open.
    pub(super) fn place(&self) -> Option<Place> {
        self.lanes().iter().flatten().find(|lane| lane.file.is_usable()).map(|lane| lane.place.clone())
    }

    /// Abandons a lane, unless it was replaced already.
    pub(super) fn abandon(&self, failed: &Lane) {
        for lane in self.lanes().iter_mut() {
            if lane.as_ref().is_some_and(|lane| Arc::ptr_eq(&lane.file, &failed.file)) {
                *lane = None;
            }
        }
    }

    /// The metadata that all opens must find, once the file is open in this lane.
    async fn pin(&self, lane: &Lane, reply: &OpenReply) -> Result<&Metadata, Failure> {
        let stat = match &reply.stat {
            Some(stat) => stat.clone(),
            None => self.stat_handle(lane, reply.handle).await?,
        };
        let mut found = metadata::of_stat(&stat);
        if let Some(digest) = reply.checksum.as_ref().and_then(metadata::entry_digest) {
            found.digests.insert(digest);
        }
        let pinned = self.pinned.get_or_init(|| found.clone());
        let wanted = self.options.version.as_ref().is_none_or(|wanted| found.version.as_ref() == Some(wanted));
        if wanted && pinned.size == found.size && pinned.mtime_ns == found.mtime_ns {
            self.watch.start(clock::now());
            return Ok(pinned);
        }
        self.watch.changed();
        Err(Failure::Fatal(self.changed()))
    }

    fn changed(&self) -> Error {
        let message = format!("{}: the file is no longer the one that was opened", self.origin.place.name());
        Error::new(Fault::Changed, message)
    }

    /// Looks whether the file is still the version that was opened, if it is time to.
    pub(super) async fn look(&self, lane: &Lane) -> Result<(), Failure> {
        match self.watch.is_due(clock::now()) {
            true => self.look_now(lane).await,
            false => Ok(()),
        }
    }

    async fn look_now(&self, lane: &Lane) -> Result<(), Failure> {
        let Naming::Known(handle) = lane.file.naming() else { return Ok(()) };
        match (self.stat_handle(lane, handle).await, self.pinned.get()) {
            (Ok(stat), Some(pinned)) => {
                let found = metadata::of_stat(&stat);
                if found.size == pinned.size && found.mtime_ns == pinned.mtime_ns {
                    return Ok(());
                }
                self.watch.changed();
                Err(Failure::Fatal(self.changed()))
            }
            (Err(failure), _) if failure.is_loss() => Err(failure),
            // What else is wrong, the read will say.
            _ => Ok(()),
        }
    }

    /// For servers that do not return metadata with the open.
    async fn stat_handle(&self, lane: &Lane, handle: FileHandle) -> Result<StatInfo, Failure> {
        let stat = Stat { options: StatOptions::NONE, wants: 0, wants_node: false, target: Target::Handle(handle) };
        let finished = lane.file.session.submit(Exchange::new(Request::from(stat), 64 << 10)).finished().await;
        finished.outcome?;
        StatInfo::decode(Bytes::from(finished.buffer))
            .map_err(|error| Failure::Fatal(lane.file.session.garbled(&error)))
    }

    /// One attempt at something that `send` does with the file's handle, and with its size if that is known. Where the
    /// handle can be guessed, it leaves together with the open; if the guess was wrong, it is done again.
    pub(super) async fn attempt<F>(
        &self,
        lane: &Lane,
        buffer: Vec<u8>,
        send: impl Fn(FileHandle, Option<u64>, Vec<u8>) -> F,
    ) -> Attempt
    where
        F: Future<Output = Attempt>,
    {
        let start = buffer.len();
        let mut buffer = buffer;
        if let Naming::Guessed(guess) = lane.file.naming() {
            let (attempt, opened) = futures::future::join(send(guess, None, buffer), lane.file.opened()).await;
            // Whether the server has pages was guessed too.
            let unheard_of =
                matches!(attempt.outcome, Err(Failure::Refused(_))) && !lane.site.wants_pages(&lane.file.session);
            let right = matches!(&opened, Ok(reply) if reply.handle == guess) && !is_not_open(&attempt.outcome);
            if right && !unheard_of {
                return match self.pinned(lane).await {
                    Ok(_) => attempt,
                    Err(failure) => Attempt::failed(attempt.buffer, start, failure),
                };
            }
            buffer = attempt.buffer;
            buffer.truncate(start);
        }
        match self.pinned(lane).await {
            Ok((handle, size)) => send(handle, Some(size), buffer).await,
            Err(failure) => Attempt::failed(buffer, start, failure),
        }
    }

    /// Handle and size, once the file is open in this lane and found to be the version that is wanted.
    async fn pinned(&self, lane: &Lane) -> Result<(FileHandle, u64), Failure> {
        let reply = lane.file.opened().await?;
        let pinned = self.pin(lane, &reply).await?;
        Ok((reply.handle, pinned.size))
    }

    /// Returns how to verify a range requested now.
    fn check(&self) -> Check {
        let has_digest = self.pinned.get().is_some_and(|pinned| !pinned.digests.is_empty());
        if self.options.verifies_digests && has_digest { Check::Later } else { Check::Pages }
    }

    /// Asks for a range, or for as much of it as the file has.
    async fn piece(
        &self,
        lane: &Lane,
        handle: FileHandle,
        size: Option<u64>,
        range: ByteRange,
        buffer: Vec<u8>,
    ) -> Attempt {
        // A size of 0 is not the end: servers say so of streams too, such as the files of `/proc`.
        let size = size.filter(|size| *size > 0);
        let left = size.map_or(u64::MAX, |size| size.saturating_sub(range.offset));
        let length = range.length.min(usize::try_from(left).unwrap_or(usize::MAX));
        if length == 0 {
            return Attempt { buffer, bad_pages: Vec::new(), outcome: Ok(()) };
        }
        fetch(&lane.site, &lane.file.session, handle, ByteRange { length, ..range }, buffer, self.check()).await
    }

    /// A range of at most [`MAX_REQUEST_BYTES`], whatever it takes.
    pub(super) async fn range(&self, range: ByteRange, mut buffer: Vec<u8>) -> Result<Vec<u8>> {
        self.check_version()?;
        let start = buffer.len();
        let mut retry_state = self.origin.retry_state(true);
        let number = self.busy_lane();
        let is_at_end = self.pinned.get().is_some_and(|pinned| range.offset >= pinned.size);
        loop {
            let lane = self.lane(number, &mut retry_state)?;
            let done = buffer.len() - start;
            let rest = ByteRange { offset: range.offset + done as u64, length: range.length - done };
            // Counted before the open, so that concurrent requests do not all choose this lane too.
            let _load = lane.file.session.loaded(rest.length);
            let attempt =
                self.attempt(&lane, buffer, |handle, size, buffer| self.piece(&lane, handle, size, rest, buffer));
            let look = async { if is_at_end { self.look_now(&lane).await } else { self.look(&lane).await } };
            let (attempt, looked) = futures::future::join(attempt, look).await;
            buffer = attempt.buffer;
            if buffer.len() < start {
                let message = "the connection was lost, and with it what had been read before";
                return Err(Error::new(Fault::Unavailable, message).blamed_on(Blame::Network));
            }
            let mended = self.mend(&lane, rest.offset, start + done, &mut buffer, attempt.bad_pages).await;
            match looked.and(attempt.outcome).and(mended) {
                Ok(()) => {
                    self.check_length(&lane, range, buffer.len() - start)?;
                    return Ok(buffer);
                }
                Err(failure) => {
                    if !matches!(failure, Failure::Wait { .. }) {
                        self.abandon(&lane);
                    }
                    self.origin.after(&mut retry_state, &lane.site, reopen(failure)).await?;
                }
            }
        }
    }

    /// Returns the lane for the next request, according to the load of the site that has the file.
    pub(super) fn busy_lane(&self) -> usize {
        let site = self.lanes().iter().flatten().next().map(|lane| Arc::clone(&lane.site));
        site.unwrap_or_else(|| self.origin.sites.at(&self.origin.place, &self.identity)).lane()
    }

    /// Fetches pages again that arrived damaged; the data of `offset` stand at `start` of the buffer, which is cut at the first page that
    /// cannot be had now.
    async fn mend(
        &self,
        lane: &Lane,
        offset: u64,
        start: usize,
        buffer: &mut Vec<u8>,
        bad_pages: Vec<Page>,
    ) -> Result<(), Failure> {
        for page in bad_pages {
            let at = start + usize::try_from(page.offset - offset).unwrap_or(usize::MAX);
            let data = match self.fetch_again(lane, page).await {
                Ok(data) => data,
                Err(failure) => {
                    buffer.truncate(at);
                    return Err(failure);
                }
            };
            if let Some(place) = buffer.get_mut(at..at + page.length) {
                place.copy_from_slice(&data);
            }
        }
        Ok(())
    }

    /// A page that arrived damaged.
    async fn fetch_again(&self, lane: &Lane, page: Page) -> Result<Vec<u8>, Failure> {
        let handle = lane.file.opened().await?.handle;
        let range = ByteRange { offset: page.offset, length: page.length };
        for _ in 0..PAGE_RETRIES {
            tracing::warn!(host = &*lane.file.session.host, path = %self.path, offset = page.offset, "damaged page");
            let attempt = fetch(&lane.site, &lane.file.session, handle, range, Vec::new(), Check::DamagedPages).await;
            attempt.outcome?;
            if attempt.bad_pages.is_empty() && attempt.buffer.len() == page.length {
                return Ok(attempt.buffer);
            }
        }
        Err(Failure::Fatal(damaged(&lane.file.session.host, page.offset)))
    }

    /// A range ends where the file does, and only there.
    fn check_length(&self, lane: &Lane, range: ByteRange, came: usize) -> Result<()> {
        let size = self.pinned.get().map_or(0, |pinned| pinned.size);
        let there = usize::try_from(size.saturating_sub(range.offset)).unwrap_or(usize::MAX);
        let change = match came.cmp(&range.length.min(there)) {
            Ordering::Equal => return Ok(()),
            Ordering::Less => "shorter",
            Ordering::Greater => "longer",
        };
        let message =
            format!("{}: the file has become {change} than it was when it was opened", lane.file.session.host);
        Err(Error::new(Fault::Changed, message))
    }
}

#[async_trait]
impl ReadHandle for RemoteFile {
    async fn metadata(&self) -> Result<Metadata> {
        if let Some(pinned) = self.pinned.get() {
            return Ok(pinned.clone());
        }
        let mut retry_state = self.origin.retry_state(true);
        loop {
            let lane = self.lane(0, &mut retry_state).map_err(|error| error.at(&self.path))?;
            let found = match lane.file.opened().await {
                Ok(reply) => self.pin(&lane, &reply).await.cloned(),
                Err(failure) => Err(failure),
            };
            match found {
                Ok(pinned) => return Ok(pinned),
                Err(failure) => {
                    self.abandon(&lane);
                    self.origin
                        .after(&mut retry_state, &lane.site, failure)
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
            return Err(Error::new(Fault::InvalidArgument, "the range ends beyond any file").at(&self.path));
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

    fn local_file(&self) -> Option<Arc<std::fs::File>> {
        None
    }

    fn check_version(&self) -> Result<()> {
        if self.watch.has_changed() { Err(self.changed().at(&self.path)) } else { Ok(()) }
    }
}
