//! The administration of a running cache over HTTP, below `/.well-known/towpath/cache/`.
//!
//! | route | method | does |
//! | --- | --- | --- |
//! | `stats` | GET | counters |
//! | `ls?path=P` | GET | entries at or below a path |
//! | `explain?path=P` | GET | recent accesses at or below a path |
//! | `pins` | GET | pinned paths |
//! | `pin?path=P`, `unpin?path=P` | POST | pins or unpins a path |
//! | `evict?path=P` | POST | evicts what is at or below a path |
//! | `scrub` | POST | starts a scrub, unless one runs; its state until it has ended |
//! | `corrupt?path=P`, `truncate?path=P` | POST | damages a file on purpose |
//!
//! Paths are those of the cache, percent-encoded. A caller needs the right to read the path for GET, and to modify it for
//! POST; or sends the key of `control` ([`super::control`]), which only the user of the cache can read, as the body.

use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use http::Method;
use serde_json::{Value, json};
use towpath_cache::{AccessRecord, Cache, CacheNamespace, EntryDescription, QuotaStatistics, ScrubOutcome, Spoiling};
use towpath_server::{
    access::Activity,
    routes::{RouteRequest, RouteResponse, Routes},
};
use towpath_store::{Error, Fault, Result, StorePath};

use super::control::ControlKey;

/// Rate of a scrub in bytes per second: about a third of a single disk.
const SCRUB_BYTES_PER_S: u64 = 100 << 20;
/// Maximum number of entries or accesses in a response, so that it stays below the server's limit.
const MAX_ROWS: usize = 2000;

/// The routes of a cache.
#[derive(Debug)]
pub(super) struct CacheRoutes {
    cache: Cache,
    namespace: Arc<CacheNamespace>,
    key: ControlKey,
    scrub: Arc<Mutex<ScrubState>>,
}

/// The last scrub.
#[derive(Debug, Default)]
enum ScrubState {
    #[default]
    None,
    Running,
    Ended(Result<ScrubOutcome>),
}

impl CacheRoutes {
    /// Creates the routes of a cache.
    pub(super) fn new(cache: Cache, namespace: Arc<CacheNamespace>, key: ControlKey) -> Self {
        Self { cache, namespace, key, scrub: Arc::default() }
    }

    /// Returns the path of a request; the root without one.
    fn path(request: &RouteRequest) -> Result<StorePath> {
        if matches!(&*request.path, "cache/stats" | "cache/pins" | "cache/scrub") {
            // They concern the whole cache, and need the right to all of it.
            return Ok(StorePath::root());
        }
        let invalid = |error: towpath_store::PathError| Error::new(Fault::InvalidArgument, format!("path: {error}"));
        request.parameter("path").map_or_else(|| Ok(StorePath::root()), |path| StorePath::parse(&path).map_err(invalid))
    }

    fn check(&self, request: &RouteRequest, path: &StorePath) -> Result<()> {
        if self.key.matches(&request.body) {
            return Ok(());
        }
        let activity = if request.method == Method::GET { Activity::Read } else { Activity::Modify };
        request.identity.check(activity, path)
    }

    async fn act(&self, request: &RouteRequest, path: &StorePath) -> Result<Value> {
        let selection = self.namespace.select(path)?;
        Ok(match request.path.strip_prefix("cache/").unwrap_or_default() {
            "stats" => self.statistics(),
            "ls" => rows(&self.cache.describe(&selection).await?, |entry| {
                entry_row(entry, &self.namespace.shown(&entry.origin, &entry.path))
            }),
            "explain" => rows(&self.cache.accesses(&selection), |record| {
                access_row(record, &self.namespace.shown(&record.origin, &record.path))
            }),
            "pins" => self
                .cache
                .pins()
                .iter()
                .map(|pin| json!({"origin": pin.origin, "path": self.namespace.shown(&pin.origin, &pin.path)}))
                .collect(),
            "pin" => self.pin(path, true).await?,
            "unpin" => self.pin(path, false).await?,
            "evict" => {
                let evicted = self.cache.evict_selected(&selection).await?;
                json!({"entries": evicted.entries, "freed_bytes": evicted.freed_bytes, "in_use": evicted.in_use,
                       "pinned": evicted.pinned})
            }
            "scrub" => self.scrub()?,
            "corrupt" => json!({"entries": self.cache.spoil(&selection, Spoiling::Corrupt).await?}),
            "truncate" => json!({"entries": self.cache.spoil(&selection, Spoiling::Truncate).await?}),
            _ => return Err(Error::new(Fault::NotFound, "there is no such route")),
        })
    }

    /// Pins or unpins a path at each of its origins.
    async fn pin(&self, path: &StorePath, is_pinned: bool) -> Result<Value> {
        let mut entries = 0;
        for (origin, path) in self.namespace.origin_paths(path)? {
            entries += self.cache.pin(&origin, &path, is_pinned).await?;
        }
        Ok(json!({"entries": entries}))
    }

    fn statistics(&self) -> Value {
        let (cache, origins) = (self.cache.statistics(), self.namespace.statistics());
        json!({
            "entries": cache.entries,
            "bytes": cache.bytes,
            "disk_failures": cache.disk_failures,
            "quotas": self.cache.quotas().iter().map(quota_row).collect::<Vec<_>>(),
            "origins": origins.iter().map(|(name, origin)| json!({
                "origin": **name,
                "served_bytes": origin.served_bytes,
                "missed_bytes": origin.missed_bytes,
                "bypass_bytes": origin.bypass_bytes,
                "fetched_bytes": origin.fetched_bytes,
                "requests": origin.requests,
                "failures": origin.failures,
                "damaged_bytes": origin.damaged_bytes,
                "stale": origin.stale,
                "missing": origin.missing,
            })).collect::<Vec<_>>(),
        })
    }

    /// Starts a scrub unless one runs, and returns its state. The outcome of an ended scrub is returned once.
    fn scrub(&self) -> Result<Value> {
        let mut state = self.scrub.lock().unwrap_or_else(PoisonError::into_inner);
        match std::mem::take(&mut *state) {
            ScrubState::Ended(outcome) => {
                let ScrubOutcome { entries, compared_bytes, damaged_bytes, failures } = outcome?;
                return Ok(json!({"running": false, "entries": entries, "compared_bytes": compared_bytes,
                                 "damaged_bytes": damaged_bytes, "failures": failures}));
            }
            ScrubState::Running => {}
            ScrubState::None => {
                let (cache, scrub) = (self.cache.clone(), Arc::clone(&self.scrub));
                tokio::spawn(async move {
                    let outcome = cache.scrub(SCRUB_BYTES_PER_S).await;
                    *scrub.lock().unwrap_or_else(PoisonError::into_inner) = ScrubState::Ended(outcome);
                });
            }
        }
        *state = ScrubState::Running;
        Ok(json!({"running": true}))
    }
}

/// Returns at most [`MAX_ROWS`] rows, the last ones, and how many there are.
fn rows<T>(all: &[T], row: impl Fn(&T) -> Value) -> Value {
    let skipped = all.len().saturating_sub(MAX_ROWS);
    json!({"total": all.len(), "rows": all.iter().skip(skipped).map(row).collect::<Vec<_>>()})
}

fn entry_row(entry: &EntryDescription, path: &str) -> Value {
    json!({"origin": entry.origin, "path": path, "size": entry.size,
           "present_bytes": entry.present_bytes, "pinned": entry.is_pinned})
}

fn quota_row(used: &QuotaStatistics) -> Value {
    let QuotaStatistics { quota, bytes, entries } = used;
    json!({"path": quota.path.to_string(), "max_bytes": quota.max_bytes, "bytes": bytes, "entries": entries})
}

fn access_row(record: &AccessRecord, path: &str) -> Value {
    json!({"path": path, "closed_s": record.closed_s, "seconds": record.duration.as_secs_f64(),
           "served_bytes": record.served_bytes, "missed_bytes": record.missed_bytes,
           "bypass_bytes": record.bypass_bytes, "origin_seconds": record.origin_wait.as_secs_f64(),
           "disk_seconds": record.disk_wait.as_secs_f64()})
}

#[async_trait]
impl Routes for CacheRoutes {
    fn methods(&self, path: &str) -> &[Method] {
        // With the key as its body, a query is a POST too.
        match path.strip_prefix("cache/") {
            Some("stats" | "ls" | "explain" | "pins") => &[Method::GET, Method::POST],
            Some("pin" | "unpin" | "evict" | "scrub" | "corrupt" | "truncate") => &[Method::POST],
            _ => &[],
        }
    }

    async fn answer(&self, request: RouteRequest) -> Result<RouteResponse> {
        let path = Self::path(&request)?;
        self.check(&request, &path)?;
        let answer = self.act(&request, &path).await?;
        Ok(RouteResponse::ok("application/json", answer.to_string()))
    }
}
