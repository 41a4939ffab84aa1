//! Responses to requests from the current network state.

use std::{
    future::pending,
    net::IpAddr,
    sync::{Arc, PoisonError, RwLock},
    time::{Duration, SystemTime},
};

use crate::updates::{self, CurrentNetwork, EVENT_STREAM, UPDATE_STREAM_PARAMS};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header};
use prometheus_client::registry::Registry;
use serde_json::Value;
use tokio::time::sleep;
use towpath_alto::{
    agent_state::AgentState,
    delegation::{Delegate, NoDelegate},
    directory::{DIRECTORY, Directory, DirectoryViolation, LinkFault, TIPS, UPDATES},
    fields, media,
    network_state::{NetworkState, NetworkStateFault},
    problem::Problem,
    resource::{AltoResponse, Caller, Resource},
};
use towpath_alto_sources::{AgentStatistics, Consumer, StaleAgent};
use towpath_proto::{http::media_type, url::decode_href};
use towpath_server::{
    application::{Application, Body, Reply},
    metrics::Collector,
};
use towpath_store::sys::clock;

use super::{
    delegates::{Delegates, RequestContext},
    metrics, overview,
    rucio::{self, Rucio, Source},
    settings::DirectoryOptions,
    streams::Streams,
    views::{EdgeResult, Views},
};

/// Minimum lifetime of a network state, in seconds, however short the calendar intervals: each new one is compared with
/// the previous one for followers.
const MIN_SNAPSHOT_S: i64 = 10;

/// Maximum sleep, in seconds, while waiting for a time of day: timers stop while the machine is suspended, the clock
/// does not.
const LOOK_AT_DATE_EVERY_S: u64 = 60;

/// A network state and its directory.
#[derive(Debug)]
pub(super) struct Snapshot {
    pub(super) network_state: NetworkState,
    pub(super) directory: Directory,
    pub(super) violations: Vec<DirectoryViolation>,
    /// When its costs expire, in seconds since 1970; `None` if they never do.
    over_s: Option<i64>,
}

/// Why no network state can be served.
#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    /// The facts of the agents are inconsistent.
    #[error(transparent)]
    NetworkState(#[from] NetworkStateFault),
    /// The directory cannot link to the configured others.
    #[error(transparent)]
    Link(#[from] LinkFault),
}

impl Snapshot {
    /// Builds the network state from facts, as of now, and the additional offer.
    pub(super) fn of<'a>(
        facts: impl Iterator<Item = &'a AgentState>,
        stale: impl Iterator<Item = StaleAgent<'a>>,
        directory_options: &DirectoryOptions,
    ) -> Result<Self, SnapshotError> {
        let since = |at: Duration| humantime::format_rfc3339_seconds(SystemTime::UNIX_EPOCH + at).to_string();
        let mut network_state =
            NetworkState::of(facts)?.with_stale(stale.map(|(agent, at)| (agent.to_owned(), since(at))));
        if let Some(profile) = &directory_options.profile {
            network_state = network_state.compatible(profile.clone())?;
        }
        let (directory, _) = Directory::of(&network_state);
        Ok(Self::at(clock::unix_s(), network_state, directory.with_linked(directory_options.linked.clone())?))
    }

    /// Sets the time of a network state, in seconds since 1970.
    fn at(unix_s: i64, network_state: NetworkState, directory: Directory) -> Self {
        let network_state = network_state.at(unix_s);
        let (_, violations) = Directory::of(&network_state);
        let over_s = network_state.next_interval_s().map(|next_s| next_s.max(unix_s.saturating_add(MIN_SNAPSHOT_S)));
        Self { network_state, directory, violations, over_s }
    }

    /// Returns whether its costs have expired.
    fn is_over(&self) -> bool {
        self.over_s.is_some_and(|over_s| over_s <= clock::unix_s())
    }

    /// Returns the source for Rucio's distance table.
    fn source<'a>(&'a self, delegate: &'a dyn Delegate) -> Source<'a> {
        Source { network_state: &self.network_state, directory: &self.directory, delegate }
    }

    /// Returns the network state for followers.
    pub(super) fn present(&self) -> CurrentNetwork<'_> {
        CurrentNetwork { network_state: &self.network_state, directory: &self.directory }
    }
}

/// Serves responses, each from a single network state.
#[derive(Debug)]
pub struct AltoService {
    snapshot: RwLock<Arc<Snapshot>>,
    directory_options: DirectoryOptions,
    rucio: Option<Rucio>,
    delegates: Delegates,
    agents: Vec<Arc<AgentStatistics>>,
    streams: Arc<Streams>,
    views: Views,
}

impl AltoService {
    /// Creates the responses from the facts of agents and the additional offer.
    ///
    /// # Errors
    /// If that makes no network state.
    pub fn of<'a>(
        facts: impl Iterator<Item = &'a AgentState>,
        stale: impl Iterator<Item = StaleAgent<'a>>,
        directory_options: DirectoryOptions,
    ) -> Result<Self, SnapshotError> {
        let snapshot = RwLock::new(Arc::new(Snapshot::of(facts, stale, &directory_options)?));
        let streams = Streams::new();
        let views = Views::new(Arc::clone(&streams));
        let delegates = Delegates::new(Vec::new());
        Ok(Self { snapshot, directory_options, rucio: None, delegates, agents: Vec::new(), streams, views })
    }

    /// Adds Rucio's distance table.
    pub fn with_rucio(self, rucio: Option<Rucio>) -> Self {
        Self { rucio, ..self }
    }

    /// Adds the delegates.
    pub fn with_delegates(self, delegates: Delegates) -> Self {
        Self { delegates, ..self }
    }

    /// Adds the statistics of the agents, for monitoring.
    pub fn with_agents(self, agents: Vec<Arc<AgentStatistics>>) -> Self {
        Self { agents, ..self }
    }

    fn serve(&self, snapshot: Snapshot) {
        let before = self.snapshot();
        let new = snapshot.violations.iter().filter(|lack| !before.violations.contains(lack));
        new.for_each(|lack| tracing::warn!("{lack}"));
        let snapshot = Arc::new(snapshot);
        self.views.forget_idle();
        self.streams.renew(&snapshot, || {
            *self.snapshot.write().unwrap_or_else(PoisonError::into_inner) = Arc::clone(&snapshot);
        });
    }

    /// Returns what the directory lacks.
    pub fn violations(&self) -> Vec<DirectoryViolation> {
        self.snapshot().violations.clone()
    }

    fn snapshot(&self) -> Arc<Snapshot> {
        Arc::clone(&self.snapshot.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns a summary with one line per resource.
    pub fn summary(&self) -> Vec<String> {
        let snapshot = self.snapshot();
        let resources = snapshot.directory.resources().map(|resource| (&resource.id, resource.media_type()));
        let linked = snapshot.directory.linked().map(|(id, _)| (id, media::DIRECTORY));
        resources.chain(linked).map(|(id, media_type)| format!("{id}  {media_type}")).collect()
    }

    /// Resolves the hosts in Rucio's table.
    pub async fn look_up(&self) {
        if let Some(rucio) = &self.rucio {
            rucio.look_up().await;
        }
    }

    /// Resolves the hosts periodically.
    pub async fn look_up_again_and_again(self: Arc<Self>) {
        loop {
            sleep(rucio::LOOK_UP_EVERY).await;
            self.look_up().await;
        }
    }

    /// Returns the problems of Rucio's table.
    pub fn table_problems(&self) -> Vec<String> {
        let snapshot = self.snapshot();
        self.rucio.as_ref().map_or_else(Vec::new, |rucio| rucio.problems(snapshot.source(&NoDelegate)))
    }
}

impl Consumer for AltoService {
    type Fault = SnapshotError;

    /// Replaces the network state by one built from these facts. May block.
    ///
    /// # Errors
    /// Returns an error if the facts are inconsistent; the previous state stays in use.
    fn renew<'a>(
        &self,
        facts: impl Iterator<Item = &'a AgentState>,
        stale: impl Iterator<Item = StaleAgent<'a>>,
    ) -> Result<(), SnapshotError> {
        self.serve(Snapshot::of(facts, stale, &self.directory_options)?);
        tracing::info!("facts changed: network state updated");
        Ok(())
    }

    /// Checks that a network state can be built from these facts.
    ///
    /// # Errors
    /// Returns an error if they are inconsistent.
    fn check_facts<'a>(&self, facts: impl Iterator<Item = &'a AgentState>) -> Result<(), SnapshotError> {
        Snapshot::of(facts, std::iter::empty(), &self.directory_options).map(drop)
    }

    /// Waits until costs change because time passes; never returns if they do not.
    async fn until_over(&self) {
        let Some(over_s) = self.snapshot().over_s else { return pending().await };
        while let Ok(left_s @ 1..) = u64::try_from(over_s.saturating_sub(clock::unix_s())) {
            sleep(Duration::from_secs(left_s.min(LOOK_AT_DATE_EVERY_S))).await;
        }
    }

    /// Updates costs to the current time if they have expired. May block.
    fn advance_time(&self) {
        let snapshot = self.snapshot();
        if snapshot.is_over() {
            self.serve(Snapshot::at(clock::unix_s(), snapshot.network_state.clone(), snapshot.directory.clone()));
        }
    }
}

impl Application for AltoService {
    fn answer(&self, request: &Request<Vec<u8>>, client: IpAddr, is_again: bool) -> Reply {
        let path = decode_href(request.uri().path()).ok().and_then(|path| String::from_utf8(path).ok());
        let reply = match path.as_deref().map(|path| path.trim_start_matches('/')) {
            Some(path) => match path.strip_prefix(VIEW) {
                Some(view) => self.view(view, request),
                None => self.try_respond(path, request, client, is_again),
            },
            None => Err(RequestError::NotFound),
        };
        reply.unwrap_or_else(|refusal| refusal.into_response().into())
    }
}

impl Collector for AltoService {
    fn register_metrics(&self, registry: &mut Registry) {
        let snapshot = self.snapshot();
        metrics::register_resources(registry, &snapshot);
        metrics::register_followers(registry, self.streams.count(), self.views.count());
        let stale = snapshot.network_state.stale_agents();
        metrics::register_agents(registry, self.agents.iter().map(|agent| &**agent), |name| stale.contains_key(name));
    }
}

/// Path prefix of views, followed by the key.
const VIEW: &str = "tips/";

impl AltoService {
    /// Returns the document at `path`, or when to retry because a delegate is being queried.
    fn try_respond(
        &self,
        path: &str,
        request: &Request<Vec<u8>>,
        client: IpAddr,
        is_again: bool,
    ) -> Result<Reply, RequestError> {
        let context = self.delegates.context(!is_again);
        let document = self.document(path, request, client, &context)?;
        Ok(context.pending().map_or(Reply::Now(document), Reply::Later))
    }

    fn document(
        &self,
        path: &str,
        request: &Request<Vec<u8>>,
        client: IpAddr,
        context: &RequestContext<'_>,
    ) -> Result<Response<Body>, RequestError> {
        let snapshot = self.snapshot();
        match (path, request.uri().query()) {
            ("", _) => {
                let mut response = match request.method() == Method::GET && overview::is_wanted(request.headers()) {
                    true => self.overview(&snapshot, request),
                    false => directory(&snapshot, request)?,
                };
                response.headers_mut().append(header::VARY, HeaderValue::from_static("accept"));
                Ok(response)
            }
            (DIRECTORY, _) => directory(&snapshot, request),
            (UPDATES, Some(key)) => self.control(key, request),
            (UPDATES, None) => self.follow(request, client),
            (TIPS, _) => self.open(request, client),
            (rucio::PATH, query) => self.distances(&snapshot, query, request, context),
            (id, _) => {
                let resource = snapshot.directory.find(id).ok_or(RequestError::NotFound)?;
                let caller = Caller { address: client, delegate: context };
                resource_answer(&snapshot, resource, request, caller)
            }
        }
    }

    /// Responds with the page for browsers.
    fn overview(&self, snapshot: &Snapshot, request: &Request<Vec<u8>>) -> Response<Body> {
        let host = request.uri().host().unwrap_or("towpath");
        overview::respond(snapshot, &self.directory_options, host, self.rucio.is_some())
    }

    /// Responds with Rucio's distance table.
    fn distances(
        &self,
        snapshot: &Snapshot,
        query: Option<&str>,
        request: &Request<Vec<u8>>,
        delegate: &dyn Delegate,
    ) -> Result<Response<Body>, RequestError> {
        let rucio = self.rucio.as_ref().ok_or(RequestError::NotFound)?;
        if request.method() != Method::GET {
            return Err(RequestError::Method(BY_GET));
        }
        let table = rucio.table(snapshot.source(delegate), query)?;
        Ok(response(StatusCode::OK, rucio::CSV, table.into_bytes()))
    }

    /// Opens a TIPS view.
    fn open(&self, request: &Request<Vec<u8>>, client: IpAddr) -> Result<Response<Body>, RequestError> {
        let input = read_posted(request, updates::TIPS_PARAMS)?;
        check_accept(request.headers(), updates::TIPS)?;
        let requested = || {
            let (scheme, authority) = request.uri().scheme().zip(request.uri().authority())?;
            Some(format!("{scheme}://{authority}"))
        };
        let above = self
            .directory_options
            .url
            .as_ref()
            .map(ToString::to_string)
            .or_else(requested)
            .ok_or(RequestError::Nowhere)?;
        let uri = |key: &str| format!("{above}/{VIEW}{key}");
        let answer = self.views.open(&input, client, || self.snapshot(), uri)?;
        Ok(no_store_response(updates::TIPS, answer.to_string().into_bytes()))
    }

    /// Handles a request to the view at `path`: `KEY`, `KEY/ug` or `KEY/ug/I/J`.
    fn view(&self, path: &str, request: &Request<Vec<u8>>) -> Result<Reply, RequestError> {
        let (key, within) = path.split_once('/').unwrap_or((path, ""));
        let takes = |kind: &str| is_taken(request.headers(), kind);
        match (within, request.method()) {
            ("", &Method::DELETE) => {
                self.views.close(key)?;
                Ok(no_content().into())
            }
            ("", _) => Err(RequestError::Method("DELETE")),
            ("ug", _) => {
                let content = self.views.recommend(key, &read_posted(request, updates::TIPS_PARAMS)?)?;
                match takes(content.media_type) {
                    true => Ok(no_store_response(content.media_type, content.body.to_vec()).into()),
                    false => Err(updates::UpdateError::NotAccepted(content.media_type).into()),
                }
            }
            (_, &Method::GET) => {
                let edge = updates::edge_numbers(within).ok_or(RequestError::NotFound)?;
                Ok(match self.views.edge(key, edge, takes)? {
                    EdgeResult::Now(content) => no_store_response(content.media_type, content.body.to_vec()).into(),
                    EdgeResult::Later(waiting) => Reply::Later(waiting),
                })
            }
            (_, _) => Err(RequestError::Method(BY_GET)),
        }
    }

    /// Opens an update stream.
    fn follow(&self, request: &Request<Vec<u8>>, client: IpAddr) -> Result<Response<Body>, RequestError> {
        let input = read_posted(request, UPDATE_STREAM_PARAMS)?;
        check_accept(request.headers(), EVENT_STREAM)?;
        self.views.forget_idle();
        // Relative, like the URIs in the directory. The key follows the `?`, because the log contains what precedes it.
        let control_uri = |key: &str| format!("./{UPDATES}?{key}");
        let events = self.streams.open(&input, client, || self.snapshot(), control_uri)?;
        Ok(no_store_response(EVENT_STREAM, Vec::new()).map(|_| Body::Stream(events)))
    }

    /// Adds or removes resources of an update stream.
    fn control(&self, key: &str, request: &Request<Vec<u8>>) -> Result<Response<Body>, RequestError> {
        let input = read_posted(request, UPDATE_STREAM_PARAMS)?;
        self.streams.control(key, &input, || self.snapshot())?;
        Ok(no_content())
    }
}

/// Returns an empty success response.
fn no_content() -> Response<Body> {
    let mut response = Response::new(Body::Whole(Vec::new()));
    *response.status_mut() = StatusCode::NO_CONTENT;
    response
}

/// Returns a response that must not be cached, because it belongs to a secret URI.
fn no_store_response(media_type: &'static str, body: Vec<u8>) -> Response<Body> {
    let mut response = response(StatusCode::OK, media_type, body);
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// Why there is no document.
#[derive(Debug)]
enum RequestError {
    NotFound,
    /// Only this method is allowed.
    Method(&'static str),
    /// The request must have this media type.
    Content(&'static str),
    /// The response has this media type, which the client does not accept.
    Accept(&'static str),
    Problem(Problem),
    /// The request lacks the host that the URI of a view would refer to.
    Nowhere,
    /// An update stream or view was refused.
    Update(updates::UpdateError),
    /// No distance table for this request.
    Table(rucio::RucioError),
}

impl From<rucio::RucioError> for RequestError {
    fn from(refused: rucio::RucioError) -> Self {
        Self::Table(refused)
    }
}

impl From<updates::UpdateError> for RequestError {
    fn from(refusal: updates::UpdateError) -> Self {
        match refusal {
            updates::UpdateError::Problem(problem) => Self::Problem(problem),
            other => Self::Update(other),
        }
    }
}

impl RequestError {
    fn into_response(self) -> Response<Body> {
        let (status, message) = match &self {
            RequestError::NotFound => {
                (StatusCode::NOT_FOUND, "there is no such resource; the directory lists them".to_owned())
            }
            RequestError::Method(allowed) => {
                (StatusCode::METHOD_NOT_ALLOWED, format!("this resource supports {allowed}"))
            }
            RequestError::Content(media_type) => (
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                format!("this resource requires a body of media type {media_type}"),
            ),
            RequestError::Accept(offered) => {
                (StatusCode::NOT_ACCEPTABLE, format!("this resource has media type {offered}"))
            }
            RequestError::Nowhere => {
                (StatusCode::BAD_REQUEST, "`Host` is required: a view has an absolute address".to_owned())
            }
            RequestError::Table(refused @ rucio::RucioError::Table(_)) => {
                tracing::error!("rucio: {refused}");
                (StatusCode::INTERNAL_SERVER_ERROR, refused.to_string())
            }
            RequestError::Table(refused) => (StatusCode::BAD_REQUEST, refused.to_string()),
            RequestError::Update(refusal) => {
                let status = StatusCode::from_u16(refusal.status());
                (status.expect("statuses of refusals are valid"), refusal.to_string())
            }
            RequestError::Problem(problem) => {
                tracing::debug!("{problem}");
                let document = problem.document().to_string();
                return response(StatusCode::BAD_REQUEST, media::ERROR, document.into_bytes());
            }
        };
        let mut response = no_store_response("text/plain; charset=utf-8", format!("{message}\n").into_bytes());
        *response.status_mut() = status;
        if matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE) {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("10"));
        }
        if let RequestError::Method(allowed) = self {
            response.headers_mut().insert(header::ALLOW, HeaderValue::from_static(allowed));
        }
        response
    }
}

fn response(status: StatusCode, media_type: &'static str, body: Vec<u8>) -> Response<Body> {
    let mut response = Response::new(Body::Whole(body));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(media_type));
    response
}

const BY_GET: &str = "GET, HEAD";
const BY_POST: &str = "POST";

/// Responds to a GET of the directory.
fn directory(snapshot: &Snapshot, request: &Request<Vec<u8>>) -> Result<Response<Body>, RequestError> {
    if request.method() != Method::GET {
        return Err(RequestError::Method(BY_GET));
    }
    check_accept(request.headers(), media::DIRECTORY)?;
    // Relative, so that they work behind a proxy; with a leading dot, because IDs may contain colons.
    Ok(with_etag(snapshot.directory.answer(&snapshot.network_state, |id| format!("./{id}"))))
}

/// Responds to a GET or POST of a resource.
fn resource_answer(
    snapshot: &Snapshot,
    resource: &Resource,
    request: &Request<Vec<u8>>,
    caller: Caller<'_>,
) -> Result<Response<Body>, RequestError> {
    let input = match (resource.accepts(), request.method()) {
        (None, &Method::GET) => Value::Null,
        (None, _) => return Err(RequestError::Method(BY_GET)),
        (Some(media_type), _) => read_posted(request, media_type)?,
    };
    check_accept(request.headers(), resource.media_type())?;
    resource.answer_with(&snapshot.network_state, &input, caller).map(with_etag).map_err(RequestError::Problem)
}

/// Returns the posted document, which must have this media type.
fn read_posted(request: &Request<Vec<u8>>, required: &'static str) -> Result<Value, RequestError> {
    match *request.method() {
        Method::POST if !is_of(request.headers(), required) => Err(RequestError::Content(required)),
        Method::POST => fields::parse(request.body()).map_err(RequestError::Problem),
        _ => Err(RequestError::Method(BY_POST)),
    }
}

/// Returns a response with an entity tag.
fn with_etag(answer: AltoResponse) -> Response<Body> {
    let tag = HeaderValue::try_from(format!("\"{}\"", answer.tag)).expect("hex digits form a valid header value");
    let mut response = response(StatusCode::OK, answer.media_type, answer.body);
    response.headers_mut().insert(header::ETAG, tag);
    response
}

/// Returns whether the body has this media type. Parameters are ignored.
fn is_of(headers: &HeaderMap, required: &str) -> bool {
    let given = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    media_type::is(given, required)
}

/// Checks that the client accepts the media type.
fn check_accept(headers: &HeaderMap, offered: &'static str) -> Result<(), RequestError> {
    if is_taken(headers, offered) { Ok(()) } else { Err(RequestError::Accept(media_type::essence(offered))) }
}

/// Returns whether the client accepts a media type (RFC 9110 §12.5.1). A missing `Accept` header matches any media
/// type; the most specific range decides. Parameters are ignored: of ranges that differ only in them, one with a
/// non-zero weight suffices.
fn is_taken(headers: &HeaderMap, offered: &str) -> bool {
    let ranges = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let ranges: Vec<&str> =
        ranges.flat_map(|value| value.split(',')).map(str::trim).filter(|range| !range.is_empty()).collect();
    let kind = media_type::essence(offered);
    let every_subtype = format!("{}/*", kind.split('/').next().unwrap_or_default());
    let decision = |pattern: &str| {
        let mut alike = ranges.iter().filter(|range| media_type::is(range, pattern)).peekable();
        alike.peek()?;
        Some(alike.any(|range| quality(range) != Some(0.0)))
    };
    [kind, &every_subtype, "*/*"].into_iter().find_map(decision).unwrap_or(ranges.is_empty())
}

/// Returns the weight of a range, if present.
pub(super) fn quality(range: &str) -> Option<f64> {
    let mut parameters = range.split(';').skip(1).filter_map(|parameter| parameter.trim().split_once('='));
    parameters.find(|(name, _)| name.eq_ignore_ascii_case("q"))?.1.parse().ok()
}

#[cfg(test)]
mod tests {
    use tokio::task::block_in_place;

    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    async fn k1_a_world_whose_time_is_over_gives_way_to_that_of_now() {
        let calendar =
            "[calendars.tput]\nstart = '2026-01-05T00:00:00Z'\ntime-interval-size = 0.5\nnumber-of-intervals = 2\n";
        let facts = format!(
            "{calendar}repeated = 4000000000\n[network-map.m]\nP = ['0.0.0.0/0']\n[cost-map.m.tput.P]\nP = [1, 2]"
        );
        let service = AltoService::of(
            [AgentState::parse(&facts).unwrap()].iter(),
            std::iter::empty(),
            DirectoryOptions::default(),
        );
        let service = service.unwrap();
        let snapshot = service.snapshot();
        assert!(snapshot.over_s.unwrap() - clock::unix_s() > MIN_SNAPSHOT_S / 2, "not each half a second");
        service.advance_time();
        assert!(Arc::ptr_eq(&snapshot, &service.snapshot()), "it is not over");
        let earlier =
            Snapshot::at(clock::unix_s() - MIN_SNAPSHOT_S, snapshot.network_state.clone(), snapshot.directory.clone());
        block_in_place(|| service.serve(earlier));
        service.until_over().await;
        block_in_place(|| service.advance_time());
        assert!(!service.snapshot().is_over());
    }

    #[test]
    fn what_a_client_takes() {
        let takes = |text: &'static str| {
            let headers = HeaderMap::from_iter([(header::ACCEPT, HeaderValue::from_static(text))]);
            check_accept(&headers, media::NETWORK_MAP).is_ok()
        };
        assert!(check_accept(&HeaderMap::new(), media::NETWORK_MAP).is_ok());
        for text in [
            "*/*",
            "text/html, application/*;q=0.5",
            "application/alto-networkmap+json,application/alto-error+json",
            "",
            "application/alto-networkmap+json;x=1;q=0, application/alto-networkmap+json;x=2",
        ] {
            assert!(takes(text), "{text}");
        }
        for text in
            ["text/html", "application/json", "*/*;q=0", "*/*;Q=0.0", "application/alto-networkmap+json;q=0, */*"]
        {
            assert!(!takes(text), "{text}");
        }
    }
}
