//! Directory listings as a page for browsers ([`html`]) and as JSON for scripts ([`json`], with
//! `Accept: application/json`).
//!
//! A listing is collected before its response begins, so that it can be sorted, and an error while the directory is
//! read still sets the status. The memory of the collected entries is limited to half of
//! [`memory_of_connection`](crate::config::Limits::memory_of_connection): 4 MiB by default, enough for 65,000 names of
//! 30 bytes, or 14,000 of 255 bytes. The entries of a larger directory are sent in the order of the store, and the page
//! says that they are not sorted. An error then breaks the response off, and the page says that it is incomplete.
//!
//! The collected entries are counted in the pool of all connections until the response is sent. Their text is produced
//! in pieces as the client reads it. A piece is small enough for the pool's reserve, so that listings that hold their
//! entries do not wait for each other's memory. A directory is closed once it is collected.

mod entry_list;
mod html;
mod json;

use futures::{
    Stream, StreamExt as _,
    stream::{self, Fuse},
};
use http::{HeaderValue, Response, StatusCode, header};
use towpath_proto::http::date;
use towpath_store::{Entry, FileKind, ListOptions, Listing, Metadata, Result, StorePath};

use self::entry_list::{EntryList, EntryView, SortOrder};
use super::{
    body::{Chunk, Content},
    connection_state::Claim,
    exchange::{Exchange, too_many_files},
    propfind::MAX_RESERVE_ENTRIES,
    refusal::Refusal,
    respond, target,
    verb::Verb,
};
use crate::{access::Activity, fair_pool::Lease, web_page};

/// Minimum size of a piece of the response, in bytes; the last one may be smaller.
const PIECE_BYTES: usize = 32 << 10;

/// The format of a listing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ListingFormat {
    Html,
    Json,
}

impl ListingFormat {
    fn wanted(exchange: &Exchange) -> Self {
        let accept = exchange.field(header::ACCEPT).unwrap_or_default();
        if accept.contains("application/json") && !accept.contains("text/html") {
            ListingFormat::Json
        } else {
            ListingFormat::Html
        }
    }

    fn media_type(self) -> HeaderValue {
        match self {
            ListingFormat::Html => web_page::HTML,
            ListingFormat::Json => HeaderValue::from_static("application/json"),
        }
    }
}

/// Builds a directory response without its entries.
pub(super) fn fields(exchange: &Exchange, metadata: &Metadata) -> Response<Content> {
    if !exchange.target.slash {
        return redirect_to_slash(exchange);
    }
    let mut response = Response::new(Content::Empty);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, ListingFormat::wanted(exchange).media_type());
    headers.insert(header::VARY, HeaderValue::from_static("Accept"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(header::CONTENT_SECURITY_POLICY, html::POLICY.clone());
    // A growing file changes the listing, but not the directory's modification time.
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    if let Some(modified_s) = respond::validators(metadata).modified_s {
        headers.insert(header::LAST_MODIFIED, respond::value(date::format(modified_s)));
    }
    response
}

/// Redirects to the URL with a trailing slash. Clients use it to distinguish directories from files (for example
/// rclone's `http`), and links to entries are relative to it.
fn redirect_to_slash(exchange: &Exchange) -> Response<Content> {
    let query = exchange.uri.query().map(|query| format!("?{query}")).unwrap_or_default();
    let mut response = respond::empty(StatusCode::MOVED_PERMANENTLY);
    let location = format!("{}{query}", target::encode(exchange.path(), true));
    response.headers_mut().insert(header::LOCATION, respond::value(location));
    response
}

/// Handles a GET of a directory.
pub(super) async fn answer(exchange: &Exchange) -> Result<Response<Content>, Refusal> {
    exchange.may(Activity::List)?;
    let lease = exchange.open_file().await?;
    let options = ListOptions { metadata: true, digests: false };
    let mut listing = exchange.store().list(exchange.caller(), exchange.path(), options).fuse();
    // Before the first piece, an error can still set the status.
    let first = listing.next().await.transpose()?.unwrap_or_default();
    let metadata = exchange.store().stat(exchange.caller(), exchange.path()).await?;
    let mut response = fields(exchange, &metadata);
    if response.status() != StatusCode::OK || exchange.verb == Verb::Head {
        return Ok(response);
    }
    if lease.is_of_reserve() && first.len() > MAX_RESERVE_ENTRIES {
        return Err(too_many_files());
    }
    let page = Page::collect(exchange, first, OpenListing { listing, _lease: lease }).await?;
    *response.body_mut() = Content::Stream(page.stream().boxed(), None);
    Ok(response)
}

/// A directory being read.
struct OpenListing {
    listing: Fuse<Listing>,
    /// The lease of the open directory.
    _lease: Lease,
}

/// The part of a listing before its entries.
#[derive(Debug)]
struct ListingHead {
    directory: StorePath,
    site: String,
    /// The order and the sums of the entries; `None` if there are too many to sort.
    sorted: Option<(SortOrder, Totals)>,
}

/// The sums of the entries of a listing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Totals {
    entries: u64,
    directories: u64,
    /// Total size of the files, in bytes.
    bytes: u64,
}

impl Totals {
    fn of(entries: &EntryList) -> Self {
        let mut totals = Self::default();
        entries.iter_from(0).for_each(|entry| totals.add(entry));
        totals
    }

    fn add(&mut self, entry: EntryView<'_>) {
        self.entries += 1;
        self.directories += u64::from(entry.kind == FileKind::Directory);
        let bytes = if entry.kind == FileKind::File { entry.size } else { 0 };
        self.bytes = self.bytes.saturating_add(bytes);
    }
}

/// A listing being sent.
struct Page {
    format: ListingFormat,
    head: ListingHead,
    /// The entries in memory, and the number of those that were sent.
    entries: EntryList,
    sent: usize,
    /// The sums of all entries that were sent.
    totals: Totals,
    /// The rest of the directory, if there are too many entries to sort.
    rest: Option<OpenListing>,
    claim: Claim,
    /// The lease of the memory of `entries`.
    _memory: Lease,
}

impl Page {
    /// Reads the directory as far as its entries fit into memory, and sorts them if they are all.
    async fn collect(exchange: &Exchange, first: Vec<Entry>, mut open: OpenListing) -> Result<Self> {
        let claim = exchange.claim();
        let max_bytes = usize::try_from(exchange.service.limits.memory_of_connection()).unwrap_or(usize::MAX);
        let mut entries = EntryList::default();
        entries.extend(first)?;
        let mut next = open.listing.next().await.transpose()?;
        let mut memory = claim.lease(if next.is_some() { max_bytes } else { entries.memory_bytes() }).await;
        let mut is_complete = true;
        while let Some(batch) = next {
            entries.extend(batch)?;
            // Buffers grow by doubling.
            is_complete = entries.used_bytes() <= max_bytes / 2;
            next = if is_complete { open.listing.next().await.transpose()? } else { None };
        }
        let order = SortOrder::of_query(exchange.uri.query());
        let sorted = is_complete.then(|| {
            entries.sort(order);
            memory.shrink_to(entries.memory_bytes() as u64);
            (order, Totals::of(&entries))
        });
        let head = ListingHead { directory: exchange.path().clone(), site: exchange.site_name(), sorted };
        Ok(Self {
            format: ListingFormat::wanted(exchange),
            head,
            entries,
            sent: 0,
            totals: Totals::default(),
            rest: (!is_complete).then_some(open),
            claim,
            _memory: memory,
        })
    }

    fn stream(self) -> impl Stream<Item = Result<Chunk>> + Send {
        let head = match self.format {
            ListingFormat::Html => html::head(&self.head),
            ListingFormat::Json => json::head(&self.head),
        };
        stream::try_unfold(Some((self, head)), |state| async move {
            let Some((mut page, mut text)) = state else { return Ok(None) };
            let reserved = page.claim.reserve(text.len() + PIECE_BYTES).await;
            let is_more = page.fill_piece(&mut text).await?;
            let chunk = Chunk::Bytes(text.into(), Some(page.claim.await_client(reserved)));
            Ok(Some((chunk, is_more.then(|| (page, String::new())))))
        })
    }

    /// Adds entries until a piece is complete, or the end of the listing. Returns whether there are more.
    async fn fill_piece(&mut self, text: &mut String) -> Result<bool> {
        self.write_entries(text);
        while text.len() < PIECE_BYTES {
            let Some(batch) = self.next_batch().await? else {
                match self.format {
                    ListingFormat::Html => html::write_end(text, &self.totals),
                    ListingFormat::Json => json::write_end(text),
                }
                return Ok(false);
            };
            self.entries.clear();
            self.sent = 0;
            self.entries.extend(batch)?;
            self.write_entries(text);
        }
        Ok(true)
    }

    async fn next_batch(&mut self) -> Result<Option<Vec<Entry>>> {
        match &mut self.rest {
            Some(open) => open.listing.next().await.transpose(),
            None => Ok(None),
        }
    }

    /// Writes entries in memory until a piece is complete.
    fn write_entries(&mut self, text: &mut String) {
        for entry in self.entries.iter_from(self.sent) {
            if text.len() >= PIECE_BYTES {
                break;
            }
            match self.format {
                ListingFormat::Html => html::write_entry(text, entry),
                ListingFormat::Json => {
                    json::write_entry(text, &self.head.directory, entry, self.totals.entries == 0);
                }
            }
            self.totals.add(entry);
            self.sent += 1;
        }
    }
}
