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
//! | `scrub` | POST | starts a scrub, unless one runs, and returns its number `id` |
//! | `scrub?id=N` | POST | the state of scrub N, and its outcome until the next one starts |
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
    routes::{MAX_RESPONSE_BYTES, RouteRequest, RouteResponse, Routes},
};
use towpath_store::{Error, Fault, Result, StorePath};

use super::control::ControlKey;

/// Rate of a scrub in bytes per second: about a third of a single disk.
const SCRUB_BYTES_PER_S: u64 = 100 << 20;
/// Maximum number of rows in a response: entries, accesses or pins.
const MAX_ROWS: usize = 2000;
/// Maximum length of the rows of a response in bytes, which leaves room for the rest of it within the server's limit.
const MAX_ROWS_BYTES: usize = MAX_RESPONSE_BYTES - 4096;

/// The routes of a cache.
#[derive(Debug, Clone)]
pub(super) struct CacheRoutes {
    cache: Cache,
    namespace: Arc<CacheNamespace>,
    key: ControlKey,
    scrub: Arc<Mutex<LastScrub>>,
}

/// The last scrub.
#[derive(Debug, Default)]
struct LastScrub {
    /// Its number, from 1; 0 before the first.
    id: u64,
    /// `None` while it runs.
    outcome: Option<Result<ScrubOutcome>>,
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
            "ls" => {
                let list = self.cache.describe(&selection, MAX_ROWS).await?;
                let row = |entry| entry_row(entry, &self.namespace.shown(&entry.origin, &entry.target));
                json!({"total": list.total, "rows": bounded(list.entries.iter().map(row))})
            }
            "explain" => last_rows(&self.cache.accesses(&selection), |record| {
                access_row(record, &self.namespace.shown(&record.origin, &record.target))
            }),
            "pins" => last_rows(
                &self.cache.pins(),
                |pin| json!({"origin": pin.origin, "path": self.namespace.shown(&pin.origin, &pin.path.clone().into())}),
            ),
            "pin" => self.pin(path, true).await?,
            "unpin" => self.pin(path, false).await?,
            "evict" => {
                let evicted = self.cache.evict_selected(&selection).await?;
                json!({"entries": evicted.entries, "freed_bytes": evicted.freed_bytes, "in_use": evicted.in_use,
                       "pinned": evicted.pinned})
            }
            "scrub" => self.scrub(request.parameter("id").as_deref())?,
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
                "request_seconds": origin.request_time.total.as_secs_f64(),
                "request_storage_seconds": origin.request_time.server.as_secs_f64(),
            })).collect::<Vec<_>>(),
        })
    }

    /// Returns the state of the scrub with this number; without one, starts a scrub unless one runs.
    fn scrub(&self, id: Option<&[u8]>) -> Result<Value> {
        let mut last = self.scrub.lock().unwrap_or_else(PoisonError::into_inner);
        let is_running = last.id > 0 && last.outcome.is_none();
        let running = |id: u64| Ok(json!({"id": id, "running": true}));
        match id {
            Some(id) if id != last.id.to_string().as_bytes() => {
                Err(Error::new(Fault::NotFound, "there is no outcome of this scrub: another one has started since"))
            }
            Some(_) => match &last.outcome {
                None => running(last.id),
                Some(outcome) => {
                    let ScrubOutcome { entries, compared_bytes, damaged_bytes, failures } = outcome.clone()?;
                    Ok(json!({"id": last.id, "running": false, "entries": entries, "compared_bytes": compared_bytes,
                              "damaged_bytes": damaged_bytes, "failures": failures}))
                }
            },
            None if is_running => running(last.id),
            None => {
                *last = LastScrub { id: last.id + 1, outcome: None };
                let (cache, scrub) = (self.cache.clone(), Arc::clone(&self.scrub));
                tokio::spawn(async move {
                    let outcome = cache.scrub(SCRUB_BYTES_PER_S).await;
                    scrub.lock().unwrap_or_else(PoisonError::into_inner).outcome = Some(outcome);
                });
                running(last.id)
            }
        }
    }
}

/// Returns the first rows, within [`MAX_ROWS`] and [`MAX_ROWS_BYTES`].
fn bounded(rows: impl Iterator<Item = Value>) -> Vec<Value> {
    let mut left = MAX_ROWS_BYTES;
    let mut fits = |row: &Value| {
        let length = row.to_string().len() + 1;
        left.checked_sub(length).is_some_and(|rest| {
            left = rest;
            true
        })
    };
    rows.take(MAX_ROWS).take_while(|row| fits(row)).collect()
}

/// Returns the last rows, within [`MAX_ROWS`] and [`MAX_ROWS_BYTES`], and how many there are.
fn last_rows<T>(all: &[T], row: impl Fn(&T) -> Value) -> Value {
    let mut rows = bounded(all.iter().rev().map(row));
    rows.reverse();
    json!({"total": all.len(), "rows": rows})
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
           "origin_storage_seconds": record.storage_wait.map(|wait| wait.as_secs_f64()),
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
        let is_query = matches!(&*request.path, "cache/stats" | "cache/ls" | "cache/explain" | "cache/pins");
        let answer = match is_query {
            true => self.act(&request, &path).await?,
            // A change is completed, also if its client disconnects.
            false => {
                let routes = self.clone();
                let change = tokio::spawn(async move { routes.act(&request, &path).await });
                change.await.map_err(|error| Error::new(Fault::Internal, error.to_string()))??
            }
        };
        Ok(RouteResponse::ok("application/json", answer.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use towpath_cache::{CacheOptions, Credential, OriginOptions, Rules, TreeOptions};
    use towpath_server::access::Identity;
    use towpath_store::{Store, memory::MemoryStore};

    use super::*;

    /// Routes of an empty cache of two origins.
    fn routes(directory: &tempfile::TempDir) -> CacheRoutes {
        let cache = Cache::open(directory.path(), CacheOptions::default()).unwrap();
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new(1 << 20));
        let origin = |name: &str| OriginOptions {
            name: name.into(),
            store: Arc::clone(&store),
            root: StorePath::root(),
            credential: Credential::Own,
            bytes_in_flight: 64 << 20,
            request_times: Arc::default(),
        };
        let origins = vec![origin("one"), origin("two")];
        let tree = TreeOptions { origins, rules: Rules::default(), deadline: Duration::from_secs(10) };
        let tree = cache.around(tree).unwrap();
        CacheRoutes::new(cache.clone(), Arc::new(CacheNamespace::new(cache, Some(tree), None)), ControlKey::new())
    }

    fn request(routes: &CacheRoutes, path: &str, query: &str) -> RouteRequest {
        let body = routes.key.as_bytes().to_vec().into();
        let (path, query, identity) = (format!("cache/{path}"), query.to_owned(), Identity::default());
        RouteRequest { method: Method::POST, path, query, body, identity }
    }

    async fn call(routes: &CacheRoutes, path: &str, query: &str) -> Result<Value> {
        let response = routes.answer(request(routes, path, query)).await?;
        Ok(serde_json::from_slice(&response.body).unwrap())
    }

    #[tokio::test]
    async fn a_change_is_completed_if_its_client_disconnects() {
        let directory = tempfile::tempdir().unwrap();
        let routes = routes(&directory);
        let mut answer = routes.answer(request(&routes, "pin", "path=/a"));
        assert!(futures::poll!(&mut answer).is_pending());
        drop(answer);
        let is_pinned = async {
            while routes.cache.pins().len() < 2 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(30), is_pinned).await.expect("both origins are pinned");
        let pins = call(&routes, "pins", "").await.unwrap();
        assert_eq!((&pins["total"], &pins["rows"][1]["path"]), (&json!(2), &json!("/a")));
    }

    #[tokio::test]
    async fn the_outcome_of_a_scrub_is_that_of_its_number() {
        let directory = tempfile::tempdir().unwrap();
        let routes = routes(&directory);
        for id in 1..3 {
            assert_eq!(call(&routes, "scrub", "").await.unwrap(), json!({"id": id, "running": true}));
            let query = format!("id={id}");
            let ended = async {
                loop {
                    let state = call(&routes, "scrub", &query).await.unwrap();
                    if state["running"] == false {
                        return state;
                    }
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            };
            let state = tokio::time::timeout(Duration::from_secs(30), ended).await.unwrap();
            assert_eq!((&state["id"], &state["entries"]), (&json!(id), &json!(0)));
            assert_eq!(call(&routes, "scrub", &query).await.unwrap(), state, "the outcome can be read again");
        }
        for id in ["0", "1", "3", "", "x"] {
            let refused = call(&routes, "scrub", &format!("id={id}")).await.unwrap_err();
            assert_eq!(refused.fault(), Fault::NotFound, "{id}");
        }
    }

    #[test]
    fn rows_are_bounded_in_number_and_length() {
        let all: Vec<usize> = (0..MAX_ROWS + 1).collect();
        let short = last_rows(&all, |number| json!(number));
        assert_eq!(short["total"], json!(MAX_ROWS + 1));
        let numbers = short["rows"].as_array().unwrap();
        assert_eq!((numbers.len(), &numbers[0]), (MAX_ROWS, &json!(1)));
        let long = last_rows(&all, |number| json!({"path": "\"".repeat(4000), "number": number}));
        let rows = long["rows"].as_array().unwrap();
        assert_eq!((rows.len() < 200, &rows[rows.len() - 1]["number"]), (true, &json!(MAX_ROWS)));
        assert!(long.to_string().len() <= MAX_RESPONSE_BYTES && long.to_string().len() > MAX_RESPONSE_BYTES / 2);
    }
}
