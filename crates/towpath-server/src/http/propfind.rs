//! PROPFIND: what is known about a file, or about a directory and what is in it.
//!
//! The answer is made batch by batch as the client takes it, so that a directory of any size costs the same memory. Depth infinity is
//! refused, as RFC 4918 §9.1 allows.

use std::sync::Arc;

use futures::{Stream, StreamExt as _, stream};
use http::{Response, StatusCode};
use hyper::body::Incoming;
use towpath_proto::http::dav::{Depth, Multistatus, Name, OWNCLOUD, Property, Propfind, error_body};
use towpath_store::{Caller, Entry, FileKind, ListOptions, Listing, Metadata, Result, Space, Store, StorePath};

use super::{
    body::{Chunk, Content},
    exchange::Exchange,
    link::Link,
    locks::Locks,
    media_type, namespace, proppatch,
    refusal::Refusal,
    respond, target, upload,
};
use crate::{Service, access::Activity};

/// The memory for one batch of entries: a thousand of them at some 800 bytes.
pub(super) const BATCH_BYTES: usize = 1 << 20;

/// Answers a PROPFIND.
pub(super) async fn answer(exchange: &Exchange, body: Incoming) -> Result<Response<Content>, Refusal> {
    let text = upload::text(exchange, body).await?;
    let request = Propfind::parse(&text).map_err(|error| Refusal::bad_request(error.to_string()))?;
    let depth = namespace::depth(exchange)?;
    if depth == Depth::Infinity {
        return Err(Refusal::condition(StatusCode::FORBIDDEN, error_body("propfind-finite-depth", None)));
    }
    exchange.may(Activity::Stat)?;
    let metadata = exchange.store().stat(exchange.caller(), exchange.path()).await?;
    let teller = Teller::new(exchange, request).await;
    let mut multistatus = Multistatus::new();
    teller.tell(&mut multistatus, exchange.path(), &metadata).await?;
    if depth == Depth::Zero || !metadata.is_directory() {
        return Ok(respond::multistatus(Content::text(multistatus.finish())));
    }
    exchange.may(Activity::List)?;
    let mut listing = exchange.store().list(exchange.caller(), exchange.path(), teller.list_options());
    // An error before the first entry can still be told by the status.
    let first = listing.next().await.transpose()?;
    let members = Members {
        teller,
        multistatus,
        directory: exchange.path().clone(),
        first,
        listing,
        link: Arc::clone(&exchange.link),
    };
    Ok(respond::multistatus(Content::Stream(members.stream().boxed(), None)))
}

/// Tells about files what a request asks for.
struct Teller {
    service: Arc<Service>,
    caller: Caller,
    request: Propfind,
    digests: bool,
    /// The room where the target lies, if it is asked for; told of all directories, because to ask for each would take its time.
    space: Option<Space>,
    dead: bool,
}

impl Teller {
    async fn new(exchange: &Exchange, request: Propfind) -> Self {
        let named: &[Name] = match &request {
            Propfind::AllProp { include } => include,
            Propfind::PropName => &[],
            Propfind::Prop(names) => names,
        };
        // Digests of each entry cost a look at its attributes, quotas one at the file system: only who names them gets them.
        let digests = named.contains(&Name::new(OWNCLOUD, "checksums"));
        let quota = named.iter().any(|name| name.is_dav("quota-available-bytes") || name.is_dav("quota-used-bytes"));
        let dead = match &request {
            Propfind::Prop(names) => names.iter().any(|name| !proppatch::is_protected(name)),
            Propfind::AllProp { .. } | Propfind::PropName => true,
        };
        let space = match quota {
            // A store that cannot say has no such property.
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

    async fn tell(&self, multistatus: &mut Multistatus, path: &StorePath, metadata: &Metadata) -> Result<()> {
        let mut properties = live(path, metadata, &self.service.http.locks);
        if self.digests && metadata.kind == FileKind::File {
            properties.push(Property::Checksums(metadata.digests.clone()));
        }
        if let Some(space) = self.space.filter(|_| metadata.is_directory()) {
            properties.push(Property::QuotaAvailableBytes(space.free));
            properties.push(Property::QuotaUsedBytes(space.total.saturating_sub(space.free)));
        }
        if self.dead {
            properties.extend(proppatch::dead(self.store(), &self.caller, path).await?);
        }
        let href = target::encode(path, metadata.is_directory());
        multistatus.properties(&href, &self.request, &properties);
        Ok(())
    }
}

/// The properties that follow from a file's metadata.
fn live(path: &StorePath, metadata: &Metadata, locks: &Locks) -> Vec<Property> {
    let is_collection = metadata.is_directory();
    let mut properties = vec![Property::ResourceType { is_collection }, Property::SupportedLock];
    properties.push(Property::LockDiscovery(locks.on(path)));
    if let Some(name) = path.name().and_then(|name| std::str::from_utf8(name).ok()) {
        properties.push(Property::DisplayName(name.into()));
    }
    let validators = respond::validators(metadata);
    properties.extend(validators.modified_s.map(Property::LastModified));
    if let Some(mode) = metadata.mode {
        let kind = if is_collection { 0o040_000 } else { 0o100_000 };
        properties.push(Property::Mode(kind | mode));
    }
    if !is_collection {
        properties.push(Property::ContentLength(metadata.size));
        properties.push(Property::ContentType(media_type::of(path.name().unwrap_or_default()).into()));
        properties.extend(validators.etag.map(Property::ETag));
    }
    properties
}

/// The answer about a directory and what is in it, in the making.
struct Members {
    teller: Teller,
    multistatus: Multistatus,
    directory: StorePath,
    first: Option<Vec<Entry>>,
    listing: Listing,
    link: Arc<Link>,
}

impl Members {
    fn stream(self) -> impl Stream<Item = Result<Chunk>> + Send {
        stream::try_unfold(Some(self), |members| async move {
            let Some(mut members) = members else { return Ok(None) };
            let reserved = members.link.reserve(BATCH_BYTES).await.owed_to_client(&members.link);
            let chunk = |text: String| Chunk::Bytes(text.into(), Some(reserved));
            match members.next_batch().await? {
                Some(entries) => {
                    members.tell(entries).await?;
                    Ok(Some((chunk(members.multistatus.take()), Some(members))))
                }
                None => Ok(Some((chunk(members.multistatus.finish()), None))),
            }
        })
    }

    async fn next_batch(&mut self) -> Result<Option<Vec<Entry>>> {
        match self.first.take() {
            Some(first) => Ok(Some(first)),
            None => self.listing.next().await.transpose(),
        }
    }

    async fn tell(&mut self, entries: Vec<Entry>) -> Result<()> {
        for entry in entries {
            // A name that is none cannot be asked about either.
            if let Ok(path) = self.directory.join(&entry.name) {
                self.teller.tell(&mut self.multistatus, &path, &entry.metadata).await?;
            }
        }
        Ok(())
    }
}
