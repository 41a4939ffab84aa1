//! Directory listings as HTML for people and as JSON for scripts (with `Accept: application/json`), produced as the
//! client reads them.
//!
//! Entries come in batches of a thousand, sorted within a batch; so most directories are sorted, and the largest need
//! no more memory.

use std::fmt::Write as _;

use futures::{StreamExt as _, stream};
use http::{HeaderValue, Response, StatusCode, header};
use serde::Serialize;
use towpath_proto::http::date;
use towpath_store::{Entry, FileKind, ListOptions, Listing, Metadata, Result, StorePath};

use super::{
    body::{Chunk, Content},
    connection_state::Claim,
    exchange::{Exchange, too_many_files},
    propfind::{ENTRY_BYTES, MAX_RESERVE_ENTRIES},
    refusal::Refusal,
    respond, target,
    verb::Verb,
};
use crate::{access::Activity, fair_pool::Lease};

const STYLE: &str = "body{font:14px/1.5 system-ui,sans-serif;margin:2em}table{border-collapse:collapse}\
    td,th{padding:0 1.5em 0 0;text-align:left;white-space:nowrap}td:nth-child(2){text-align:right}";

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
        HeaderValue::from_static(match self {
            ListingFormat::Html => "text/html; charset=utf-8",
            ListingFormat::Json => "application/json",
        })
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
    headers.insert(
        header::CONTENT_SECURITY_POLICY,
        HeaderValue::from_static("default-src 'none'; style-src 'unsafe-inline'"),
    );
    // A growing file changes the listing, but not the directory's modification time.
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    if let Some(modified_s) = respond::validators(metadata).modified_s {
        headers.insert(header::LAST_MODIFIED, respond::value(date::format(modified_s)));
    }
    response
}

/// Redirects to the URL with a trailing slash. Clients use it to distinguish directories from files (for example
/// rclone's `http`).
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
    let mut listing = exchange.store().list(exchange.caller(), exchange.path(), options);
    // Before the first entry, an error can still set the status.
    let first = listing.next().await.transpose()?;
    let metadata = exchange.store().stat(exchange.caller(), exchange.path()).await?;
    let mut response = fields(exchange, &metadata);
    if response.status() != StatusCode::OK || exchange.verb == Verb::Head {
        return Ok(response);
    }
    if lease.is_of_reserve() && first.as_ref().is_some_and(|first| first.len() > MAX_RESERVE_ENTRIES) {
        return Err(too_many_files());
    }
    let page = Page {
        format: ListingFormat::wanted(exchange),
        directory: exchange.path().clone(),
        site: exchange.service.site.clone(),
        entries: 0,
        first,
        listing,
        claim: exchange.claim(),
        _lease: lease,
    };
    *response.body_mut() = Content::Stream(page.stream().boxed(), None);
    Ok(response)
}

/// A listing being sent.
struct Page {
    format: ListingFormat,
    directory: StorePath,
    site: String,
    /// Number of entries written so far.
    entries: u64,
    first: Option<Vec<Entry>>,
    listing: Listing,
    claim: Claim,
    /// The lease of the open directory.
    _lease: Lease,
}

/// An entry in JSON.
#[derive(Serialize)]
struct JsonEntry<'a> {
    /// With replacement characters if it is not UTF-8; `href` is exact.
    name: &'a str,
    href: &'a str,
    kind: &'static str,
    size: Option<u64>,
    mtime: Option<i64>,
}

impl Page {
    fn stream(mut self) -> impl futures::Stream<Item = Result<Chunk>> + Send {
        let beginning = self.beginning();
        stream::try_unfold((Some(self), beginning), |(page, mut text)| async move {
            let Some(mut page) = page else { return Ok(None) };
            let batch = match page.first.take() {
                Some(first) => Some(first),
                None => page.listing.next().await.transpose()?,
            };
            let bytes = text.len() + batch.as_ref().map_or(0, |entries| entries.len() * ENTRY_BYTES);
            let reserved = page.claim.await_client(page.claim.reserve(bytes).await);
            let rest = match batch {
                Some(entries) => {
                    page.write(&mut text, entries);
                    Some(page)
                }
                None => {
                    text.push_str(page.ending());
                    None
                }
            };
            Ok(Some((Chunk::Bytes(text.into(), Some(reserved)), (rest, String::new()))))
        })
    }

    fn beginning(&mut self) -> String {
        let path = self.directory.to_string();
        match self.format {
            ListingFormat::Json => {
                let path = serde_json::to_string(&path).unwrap_or_default();
                format!("{{\"path\":{path},\"entries\":[")
            }
            ListingFormat::Html => {
                let (path, site) = (escape(&path), escape(&self.site));
                let mut html = format!(
                    "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>{path} – {site}</title>\
                     <style>{STYLE}</style></head>\n<body><h1>{path}</h1>\n<table>\
                     <tr><th>Name</th><th>Size</th><th>Last change</th></tr>\n"
                );
                if let Some(parent) = self.directory.parent() {
                    let href = target::encode(&parent, true);
                    writeln!(html, "<tr><td><a href=\"{href}\">../</a></td><td></td><td></td></tr>").ok();
                }
                html
            }
        }
    }

    fn ending(&self) -> &'static str {
        match self.format {
            ListingFormat::Json => "\n]}\n",
            ListingFormat::Html => "</table></body></html>\n",
        }
    }

    fn write(&mut self, text: &mut String, mut entries: Vec<Entry>) {
        entries.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        for entry in &entries {
            let Ok(path) = self.directory.join(&entry.name) else { continue };
            let href = target::encode(&path, entry.metadata.is_directory());
            match self.format {
                ListingFormat::Html => write_row(text, &href, entry),
                ListingFormat::Json => {
                    text.push_str(if self.entries == 0 { "\n" } else { ",\n" });
                    write_object(text, &href, entry);
                }
            }
            self.entries += 1;
        }
    }
}

fn write_row(text: &mut String, href: &str, entry: &Entry) {
    let name = escape(&String::from_utf8_lossy(&entry.name));
    let (slash, size) = match entry.metadata.kind {
        FileKind::Directory => ("/", String::new()),
        _ => ("", entry.metadata.size.to_string()),
    };
    let changed = entry.metadata.mtime_ns.map(|_| date::format(entry.metadata.mtime_s())).unwrap_or_default();
    writeln!(text, "<tr><td><a href=\"{href}\">{name}{slash}</a></td><td>{size}</td><td>{changed}</td></tr>").ok();
}

fn write_object(text: &mut String, href: &str, entry: &Entry) {
    let metadata = &entry.metadata;
    let kind = match metadata.kind {
        FileKind::Directory => "directory",
        FileKind::File => "file",
        FileKind::Other => "other",
    };
    let line = JsonEntry {
        name: &String::from_utf8_lossy(&entry.name),
        href,
        kind,
        size: (metadata.kind == FileKind::File).then_some(metadata.size),
        mtime: metadata.mtime_ns.map(|_| metadata.mtime_s()),
    };
    text.push_str(&serde_json::to_string(&line).unwrap_or_default());
}

/// Escapes text for HTML.
fn escape(text: &str) -> String {
    let mut html = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => html.push_str("&amp;"),
            '<' => html.push_str("&lt;"),
            '>' => html.push_str("&gt;"),
            '"' => html.push_str("&quot;"),
            '\'' => html.push_str("&#39;"),
            other => html.push(other),
        }
    }
    html
}
