//! Client for ALTO servers, used by the `towpath` commands and the Python package.
//!
//! [`AltoClient`] reads the directory of a server, named by the caller or discovered through DNS, with those linked
//! from it. It requests resources by ID ([`AltoClient::request`]), collects the values that a statement needs
//! ([`AltoClient::query_plan`]), and follows responses as they change ([`AltoClient::follow`]). [`order()`] orders a
//! list of replicas, [`rank`] a list of URLs. The root of this crate defines requests and interprets responses; this
//! module adds connections and time limits.
//!
//! A token is sent only to the server whose directory the caller named, whatever that directory refers to.

mod cache;
mod change_stream;
mod discover;
mod error;
pub mod hosts;
mod ordering;
mod requester;

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use serde_json::Value as Json;
use towpath_alto::order::Statement;
use towpath_client::{Client, DocumentResponse, DocumentStatus};
use towpath_store::sys::clock;

use self::{
    cache::{Cache, Key},
    requester::Requester,
};

pub use self::{
    change_stream::{ChangeStream, FollowMethod, ResponseChange},
    discover::DiscoveryOptions,
    error::AltoError,
    ordering::{OrderedFile, OrderedList, RankedReplica, ReplicaRanker, order, rank},
    requester::PATIENCE,
};
use crate::MAX_ANSWER_BYTES;
pub use crate::{
    Configuration, Directory, Document, DomainName, Entry, FollowTarget, Part, QueryPlan, TransferEndpoints,
};

/// Maximum number of servers to try of those found through DNS.
const MAX_TRIED: usize = 3;

/// A client of one server. Clones share their state.
///
/// Memory: the directory, up to 64 responses with an entity tag, of up to 128 MiB in total as sent, and requests in
/// flight. Parsing takes up to 30 times the size of a response.
#[derive(Clone)]
pub struct AltoClient(Arc<Inner>);

struct Inner {
    requester: Requester,
    directory: Arc<Directory>,
    /// Time limit of a call.
    limit: Duration,
    cache: Mutex<Cache>,
}

impl fmt::Debug for AltoClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AltoClient").finish_non_exhaustive()
    }
}

impl AltoClient {
    /// Reads the directory at `ird`, an http or https URL, and those linked from it: at most 32, up to four links away.
    /// A linked directory that cannot be read is logged and skipped. `limit` is the time limit of this call and of each
    /// later one; reading linked directories and resolving hosts may each take at most a third of it, after which the
    /// results so far are used.
    ///
    /// # Errors
    /// Returns an error if the server does not respond or has no directory there.
    pub async fn open(client: Arc<Client>, ird: &str, limit: Duration) -> Result<Self, AltoError> {
        Self::begin(Requester::new(client, ird, true), limit, limit).await
    }

    /// Discovers a server through DNS (RFC 7286, RFC 8686) and opens the first that responds. It receives no token.
    /// Also returns the domain name that has the record. `limit` is as for [`Self::open`]; each server may take an
    /// equal share of the remaining time.
    ///
    /// # Errors
    /// Returns an error if none is found, or if none responds, the error of [`Self::open`] for the first.
    pub async fn discover(
        client: Arc<Client>,
        search: &DiscoveryOptions,
        limit: Duration,
    ) -> Result<(Self, DomainName), AltoError> {
        let end = clock::now() + limit;
        let found = discover::directories(search).await?;
        let mut silent = None;
        let tried = found.directories.len().min(MAX_TRIED);
        for (ird, left) in found.directories.iter().zip((1..=tried as u32).rev()) {
            let share = end.saturating_duration_since(clock::now()) / left;
            match Self::begin(Requester::new(Arc::clone(&client), ird.as_str(), false), share, limit).await {
                Ok(server) => return Ok((server, found.name)),
                Err(trouble) => {
                    tracing::warn!("{} names {ird}, but {trouble}", found.name);
                    silent.get_or_insert(trouble);
                }
            }
        }
        Err(silent.expect("a successful discovery finds at least one server"))
    }

    /// Reads the directory within `share` of the time limit.
    async fn begin(requester: Requester, share: Duration, limit: Duration) -> Result<Self, AltoError> {
        let directory = Arc::new(requester.directories(share).await?);
        Ok(Self(Arc::new(Inner { requester, directory, limit, cache: Mutex::default() })))
    }

    /// Returns the URI of the directory.
    pub fn ird(&self) -> &str {
        self.0.requester.ird()
    }

    /// Returns the directory.
    pub fn directory(&self) -> &Directory {
        &self.0.directory
    }

    /// Requests `resource`: by GET, or by POST of `input`. An unchanged response is served from the cache.
    ///
    /// # Errors
    /// Returns an error if the resource does not exist or needs another method, the server does not respond or refuses,
    /// or the response is invalid.
    pub async fn request(&self, resource: &str, input: Option<&Json>) -> Result<Arc<Document>, AltoError> {
        let request = self.0.directory.request(resource, input)?;
        let key = Key::of(resource, &request);
        let held = self.cache().get(&key);
        let etag = held.as_ref().and_then(|held| held.etag.as_deref());
        let reply = self.0.requester.send_request(&request, etag, PATIENCE).await?;
        if let (DocumentStatus::Unchanged, Some(held)) = (reply.outcome, held) {
            return Ok(held);
        }
        let document = Arc::new(read(resource, &reply)?);
        self.cache().put(key, Arc::clone(&document), reply.body.len());
        Ok(document)
    }

    /// Like [`Self::request`], bypassing the cache.
    ///
    /// # Errors
    /// As [`Self::request`].
    pub async fn request_uncached(&self, resource: &str, input: Option<&Json>) -> Result<Document, AltoError> {
        let request = self.0.directory.request(resource, input)?;
        read(resource, &self.0.requester.send_request(&request, None, PATIENCE).await?)
    }

    /// Returns whether the server responds with its directory.
    pub async fn is_there(&self) -> bool {
        self.0.requester.directory(self.ird(), MAX_ANSWER_BYTES, PATIENCE).await.is_ok()
    }

    /// Requests all values for the names in `statement`.
    ///
    /// # Errors
    /// Returns an error if a name is undefined, or as [`Self::request`].
    pub async fn query_plan(
        &self,
        configuration: &Configuration,
        statement: &Statement,
        ends: TransferEndpoints,
    ) -> Result<QueryPlan, AltoError> {
        let mut query_plan = QueryPlan::new(configuration, Arc::clone(&self.0.directory), statement, ends)?;
        while let Some(request) = query_plan.next_request() {
            let reply = self.0.requester.send_request(&request, None, PATIENCE).await.map_err(AltoError::of_survey)?;
            query_plan.take(&reply.media_type, &reply.body)?;
        }
        Ok(query_plan)
    }

    /// Follows responses under names chosen by the caller, with tasks of the current runtime. By default
    /// ([`FollowMethod::default`]) the directory determines the means: an update stream, else a TIPS view per response,
    /// else polling once a minute.
    ///
    /// # Errors
    /// Returns an error if `targets` is empty, a resource does not exist or needs another method, or the server does
    /// not support the means. All other errors are returned by [`ChangeStream::next`].
    pub async fn follow(
        &self,
        targets: BTreeMap<String, FollowTarget>,
        means: FollowMethod,
    ) -> Result<ChangeStream, AltoError> {
        ChangeStream::begin(self, targets, means)
    }

    fn cache(&self) -> MutexGuard<'_, Cache> {
        self.0.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Parses the response of a resource.
fn read(resource: &str, reply: &DocumentResponse) -> Result<Document, AltoError> {
    let mut document = Document::parse(resource, &reply.url, &reply.media_type, &reply.body)?;
    document.etag.clone_from(&reply.etag);
    Ok(document)
}

/// Parses a configuration: TOML, in either of the two notations that [`Configuration`] accepts.
///
/// # Errors
/// Returns an error for another format or unknown keys.
pub fn configuration(text: &str) -> Result<Configuration, AltoError> {
    Configuration::parse(text).map_err(|error| AltoError::Unusable(format!("the configuration: {error}")))
}
