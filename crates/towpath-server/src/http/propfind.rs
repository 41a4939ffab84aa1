//! PROPFIND: properties of a file, or of a directory and its members.
//!
//! The response is produced in batches as the client reads it, so that memory does not depend on the size of the
//! directory. Depth infinity is rejected, as RFC 4918 §9.1 allows.

use std::{sync::Arc, vec};

use futures::{
    Stream, StreamExt as _,
    stream::{self, Fuse},
};
use http::{Response, StatusCode};
use hyper::body::Incoming;
use towpath_proto::http::dav::{Depth, Multistatus, Name, OWNCLOUD, Property, Propfind, ResourceType, error_body};
use towpath_store::{
    Caller, DirectoryId, Entry, Fault, FileKind, ListOptions, Listing, Metadata, Printable, Result, Space, Store,
    StorePath,
};

use super::{
    body::{Chunk, Content},
    connection_state::Claim,
    exchange::{Exchange, too_many_files},
    locks::Locks,
    media_type, namespace, proppatch,
    refusal::Refusal,
    respond, target, upload,
};
use crate::{Service, access::Activity, fair_pool::Lease};

/// Size of the first piece of a response, in bytes, and maximum size of later ones, which grow as the client reads.
/// The last entry may exceed it.
const FIRST_PIECE_BYTES: usize = 64 << 10;
const MAX_PIECE_BYTES: usize = 1 << 20;

/// Maximum number of entries for a response in one piece, whose directory is closed soon.
pub(super) const MAX_RESERVE_ENTRIES: usize = 200;

/// Memory accounted for an entry of a listing with its line in a page, in bytes.
const ENTRY_BYTES: usize = 512;

/// File types of `st_mode`.
const S_IFREG: u32 = 0o100_000;
const S_IFDIR: u32 = 0o040_000;

/// Handles a PROPFIND.
pub(super) async fn answer(exchange: &Exchange, body: Incoming) -> Result<Response<Content>, Refusal> {
    exchange.may(Activity::Stat)?;
    let text = upload::text(exchange, body).await?;
    let request = Propfind::parse(&text).map_err(|error| Refusal::bad_request(error.to_string()))?;
    let depth = namespace::depth(exchange)?;
    if depth == Depth::Infinity {
        return Err(Refusal::condition(StatusCode::FORBIDDEN, error_body("propfind-finite-depth", None)));
    }
    let metadata = exchange.store().stat(exchange.caller(), exchange.path()).await?;
    let reader = PropertyReader::new(exchange, request).await;
    let mut multistatus = Multistatus::new();
    reader.write_properties(&mut multistatus, exchange.path(), &metadata).await;
    if depth == Depth::Zero || !metadata.is_directory() {
        return Ok(respond::multistatus(Content::text(multistatus.finish())));
    }
    exchange.may(Activity::List)?;
    let lease = exchange.open_file().await?;
    let mut listing = exchange.store().list(exchange.caller(), exchange.path(), reader.list_options()).fuse();
    // Before the first entry, an error can still set the status.
    let first = listing.next().await.transpose()?.unwrap_or_default();
    if lease.is_of_reserve() && first.len() > MAX_RESERVE_ENTRIES {
        return Err(too_many_files());
    }
    let members = PropfindStream {
        reader,
        multistatus,
        directory: exchange.path().clone(),
        entries: first.into_iter(),
        listing,
        piece_bytes: FIRST_PIECE_BYTES,
        claim: exchange.claim(),
        _lease: lease,
    };
    Ok(respond::multistatus(Content::Stream(members.stream().boxed(), None)))
}

/// Looks up the requested properties of files.
struct PropertyReader {
    service: Arc<Service>,
    caller: Caller,
    request: Propfind,
    digests: bool,
    /// The space of the target, if requested. Reported for all directories, because a lookup for each would take too
    /// long.
    space: Option<Space>,
    dead: bool,
}

impl PropertyReader {
    async fn new(exchange: &Exchange, request: Propfind) -> Self {
        let named: &[Name] = match &request {
            Propfind::AllProp { include } => include,
            Propfind::PropName => &[],
            Propfind::Prop(names) => names,
        };
        // Digests cost an attribute lookup per entry, quotas one in the file system: only sent if requested by name.
        let digests = named.contains(&Name::new(OWNCLOUD, "checksums"));
        let quota = named.iter().any(|name| name.is_dav("quota-available-bytes") || name.is_dav("quota-used-bytes"));
        let dead = match &request {
            Propfind::Prop(names) => names.iter().any(|name| !proppatch::is_protected(name)),
            Propfind::AllProp { .. } | Propfind::PropName => true,
        };
        let space = match quota {
            // A store without this information has no such property.
            true => exchange.store().space(exchange.caller(), exchange.path()).await.ok(),
            false => None,
        };
        let dead = dead && exchange.store().capabilities().attributes;
        let (service, caller) = (Arc::clone(&exchange.service), exchange.caller().clone());
        Self { service, caller, request, digests, space, dead }
    }

    fn list_options(&self) -> ListOptions {
        ListOptions { metadata: true, digests: self.digests }
    }

    fn store(&self) -> &dyn Store {
        &*self.service.store
    }

    async fn write_properties(&self, multistatus: &mut Multistatus, path: &StorePath, metadata: &Metadata) {
        let href = target::encode(path, metadata.is_directory());
        let mut properties = live(path, metadata, &self.service.http.locks);
        if self.digests && metadata.kind == FileKind::File {
            properties.push(Property::Checksums(metadata.digests.clone()));
        }
        if let Some(space) = self.space.filter(|_| metadata.is_directory()) {
            properties.push(Property::QuotaAvailableBytes(space.free));
            properties.push(Property::QuotaUsedBytes(space.total.saturating_sub(space.free)));
        }
        if self.dead {
            match proppatch::dead(self.store(), &self.caller, path).await {
                Ok(dead) => properties.extend(dead),
                // A link that is dangling or leads out of the export, or an entry removed meanwhile, has no dead
                // properties.
                Err(error) if matches!(error.fault(), Fault::NotFound | Fault::PermissionDenied) => {}
                Err(error) => return multistatus.status(&href, error.fault().http_status()),
            }
        }
        multistatus.properties(&href, &self.request, &properties);
    }
}

/// Returns the properties derived from a file's metadata.
fn live(path: &StorePath, metadata: &Metadata, locks: &Locks) -> Vec<Property> {
    let (resource_type, file_type) = match metadata.kind {
        FileKind::File => (ResourceType::File, S_IFREG),
        FileKind::Directory => (ResourceType::Collection, S_IFDIR),
        FileKind::Other => (ResourceType::Special, 0),
    };
    let mut properties = vec![Property::ResourceType(resource_type), Property::SupportedLock];
    properties.push(Property::LockDiscovery(locks.on(path)));
    if let Some(name) = path.name().and_then(|name| std::str::from_utf8(name).ok()) {
        properties.push(Property::DisplayName(name.into()));
    }
    let validators = respond::validators(metadata);
    properties.extend(validators.modified_s.map(Property::LastModified));
    if let Some(mode) = metadata.mode {
        properties.push(Property::Mode(file_type | mode));
    }
    let directory_id = metadata.directory_id.map(DirectoryId::number);
    properties.push(Property::Node { is_link: metadata.is_link, directory_id });
    if metadata.kind == FileKind::File {
        properties.push(Property::ContentLength(metadata.size));
        properties.push(Property::ContentType(media_type::of(path.name().unwrap_or_default()).into()));
        properties.extend(validators.etag.map(Property::ETag));
    }
    properties
}

/// The response for a directory and its members, being sent.
struct PropfindStream {
    reader: PropertyReader,
    multistatus: Multistatus,
    directory: StorePath,
    /// The remaining entries of the last batch.
    entries: vec::IntoIter<Entry>,
    listing: Fuse<Listing>,
    /// Size of the next piece, in bytes.
    piece_bytes: usize,
    claim: Claim,
    /// The lease of the open directory.
    _lease: Lease,
}

impl PropfindStream {
    fn stream(self) -> impl Stream<Item = Result<Chunk>> + Send {
        stream::try_unfold(Some(self), |members| async move {
            let Some(mut members) = members else { return Ok(None) };
            let bytes = members.piece_bytes + members.entries.len() * ENTRY_BYTES;
            let reserved = members.claim.reserve(bytes).await;
            let is_more = members.fill_piece().await?;
            members.piece_bytes = MAX_PIECE_BYTES.min(2 * members.piece_bytes);
            let reserved = members.claim.await_client(reserved);
            let chunk = |text: String| Chunk::Bytes(text.into(), Some(reserved));
            match is_more {
                true => Ok(Some((chunk(members.multistatus.take()), Some(members)))),
                false => Ok(Some((chunk(members.multistatus.finish()), None))),
            }
        })
    }

    /// Adds entries of the current or next batch until a piece is complete. Returns `false` at the end.
    async fn fill_piece(&mut self) -> Result<bool> {
        if self.entries.len() == 0 {
            match self.listing.next().await.transpose()? {
                Some(entries) => self.entries = entries.into_iter(),
                None => return Ok(false),
            }
        }
        while self.multistatus.pending_bytes() < self.piece_bytes
            && let Some(entry) = self.entries.next()
        {
            match self.directory.join(&entry.name) {
                Ok(path) => self.reader.write_properties(&mut self.multistatus, &path, &entry.metadata).await,
                // The entry exists, so it must be listed.
                Err(error) => {
                    let name = Printable(&entry.name);
                    tracing::warn!(directory = %self.directory, %name, %error, "the path of a listing entry is too long or invalid");
                    let href = target::encode_name(&self.directory, &entry.name);
                    self.multistatus.status(&href, StatusCode::URI_TOO_LONG.as_u16());
                }
            }
        }
        Ok(true)
    }
}
