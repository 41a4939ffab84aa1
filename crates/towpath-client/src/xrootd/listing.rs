//! Listings as streams, with backpressure that cannot block other requests.
//!
//! A listing may be of any size, and its reader may send other requests to the site between two batches. A connection
//! that waits for a slow listing reader delays every other response on it, so listings use sessions of their own,
//! without open files. A listing that is read more slowly than it arrives buffers [`ROOM_KIB`]. It then occupies its
//! session (new listings use another one), lets the requests in flight there finish, and only then stops receiving.

use std::sync::Arc;

use futures::{Stream, StreamExt as _, TryStreamExt as _, stream};
use tokio::sync::mpsc;
use towpath_proto::xrootd::{
    DirlistOptions,
    request::Dirlist,
    response::{DirlistEntry, DirlistParser},
};
use towpath_store::{Blame, Caller, Entry, Error, Fault, FileKind, ListOptions, Listing, Metadata, Result, StorePath};

use super::{
    connection::{Failure, OutgoingRequest, PendingResponse},
    metadata,
    origin::Origin,
    retry_state::{RetryState, refusal},
    sink::{ChunkSender, ResponseChunk, Sink},
    site::{Identity, Site},
    store::stat,
};

/// Maximum size in KiB of the buffered part of a listing: some ten thousand entries.
const ROOM_KIB: usize = 1024;

/// Maximum number of entries of a batch.
const BATCH: usize = 1000;

/// Maximum number of concurrent `stat` requests for entries, if the server does not include metadata.
const CONCURRENT_STATS: usize = 64;

/// A listing in progress.
struct DirectoryListing {
    origin: Origin,
    caller: Caller,
    identity: Identity,
    path: StorePath,
    flags: DirlistOptions,
    retry_state: RetryState,
    /// The request in flight; `None` before the first poll and after the end.
    answer: Option<ListingResponse>,
    finished: bool,
    /// Whether entries have been returned, so that the listing cannot be restarted.
    begun: bool,
}

struct ListingResponse {
    site: Arc<Site>,
    pieces: mpsc::UnboundedReceiver<ResponseChunk>,
    /// `None` after a successful end.
    pending: Option<PendingResponse>,
    parser: DirlistParser,
}

/// Lists the entries of the directory at `path`.
pub(super) fn list(origin: Origin, caller: &Caller, path: &StorePath, options: ListOptions) -> Listing {
    // Names alone do not distinguish files and directories.
    let checksums = if options.digests { DirlistOptions::dcksm } else { DirlistOptions::NONE };
    let listing = DirectoryListing {
        identity: origin.identity(caller),
        caller: caller.clone(),
        retry_state: origin.retry_state(true),
        origin,
        path: path.clone(),
        flags: DirlistOptions::dstat | checksums,
        answer: None,
        finished: false,
        begun: false,
    };
    batches(listing).boxed()
}

fn batches(listing: DirectoryListing) -> impl Stream<Item = Result<Vec<Entry>>> {
    stream::unfold(listing, |mut listing| async move {
        if listing.finished {
            return None;
        }
        let batch = listing.next().await;
        if batch.is_err() {
            listing.finished = true;
        }
        match batch {
            Ok(batch) if batch.is_empty() && listing.finished => None,
            other => Some((other.map_err(|error| error.at(&listing.path)), listing)),
        }
    })
}

impl ListingResponse {
    /// Returns the error of a listing that failed after entries were returned.
    fn broke_off(&self, failure: Failure) -> Error {
        match failure {
            Failure::Lost(error) | Failure::EarlyLoss(error) | Failure::NotSent(error) | Failure::Fatal(error) => error,
            Failure::Refused(reply) => refusal(&self.site.server.root(), &reply),
            Failure::Redirect { .. } | Failure::Wait { .. } | Failure::TooEarly | Failure::Occupied => {
                let message = format!("{} interrupted its listing", self.site.server.name());
                Error::new(Fault::Protocol, message).blamed_on(Blame::Storage)
            }
        }
    }
}

impl DirectoryListing {
    /// Returns the next batch; it is empty only at the end.
    async fn next(&mut self) -> Result<Vec<Entry>> {
        loop {
            let mut answer = match self.answer.take() {
                Some(answer) => answer,
                None => self.send_request().await?,
            };
            let batch = parse(&mut answer)?;
            if !batch.is_empty() {
                self.answer = Some(answer);
                self.begun = true;
                return self.complete(batch).await;
            }
            if let Some(piece) = answer.pieces.recv().await {
                answer.parser.push(&piece.bytes);
                self.answer = Some(answer);
                continue;
            }
            let Some(pending) = answer.pending.take() else {
                self.finished = true;
                return Ok(Vec::new());
            };
            match pending.finished().await.outcome {
                Ok(_) => {
                    answer.site.warn_of_refusal();
                    answer.parser.finish();
                    self.answer = Some(answer);
                }
                // Another listing may return the entries in another order.
                Err(failure) if self.begun => return Err(answer.broke_off(failure)),
                Err(failure) => self.origin.handle_failure(&mut self.retry_state, &answer.site, failure).await?,
            }
        }
    }

    async fn send_request(&mut self) -> Result<ListingResponse> {
        let site = self.origin.sites.at(self.retry_state.server(), &self.identity);
        let (sender, pieces) = ChunkSender::new(ROOM_KIB);
        let session = site.listing_session()?;
        let path = site.path(self.retry_state.server().path_of(&self.path), &self.retry_state.server().cgi).await?;
        let request = Dirlist { options: self.flags, wants_node: true, path };
        let outgoing = OutgoingRequest { sink: Sink::Stream(sender), ..OutgoingRequest::new(request, 0) };
        let pending = Some(session.submit(outgoing));
        Ok(ListingResponse { site, pieces, pending, parser: DirlistParser::new(self.flags) })
    }

    /// Requests missing metadata of entries from a server without `dstat`.
    async fn complete(&self, batch: Vec<(Entry, bool)>) -> Result<Vec<Entry>> {
        let entries = batch.into_iter().map(|(entry, known)| async move {
            if known {
                return Ok(entry);
            }
            let path = self.path.join(&entry.name).map_err(|error| Error::new(Fault::Protocol, error.to_string()))?;
            Ok(Entry { metadata: stat(&self.origin, &self.caller, &path).await?, ..entry })
        });
        stream::iter(entries).buffered(CONCURRENT_STATS).try_collect().await
    }
}

/// Parses the received entries. Returns each with whether it includes metadata.
fn parse(answer: &mut ListingResponse) -> Result<Vec<(Entry, bool)>> {
    let mut batch = Vec::new();
    while batch.len() < BATCH {
        let popped = answer.parser.pop();
        let garbled = |error| Error::new(Fault::Protocol, format!("{}: {error}", answer.site.server.name()));
        match popped.map_err(garbled)? {
            Some(found) => batch.push(entry(found)),
            None => break,
        }
    }
    Ok(batch)
}

fn entry(found: DirlistEntry) -> (Entry, bool) {
    let known = found.stat.is_some();
    let mut metadata = found.stat.as_ref().map_or_else(|| Metadata::new(FileKind::Other, 0), metadata::of_stat);
    if let Some(digest) = found.checksum.as_ref().and_then(metadata::entry_digest) {
        metadata.digests.insert(digest);
    }
    (Entry { name: found.name, metadata }, known)
}
