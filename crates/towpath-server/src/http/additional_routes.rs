//! Requests to the additional routes of a server ([`crate::routes`]).
//!
//! Memory for the body and the longest response is leased at once, before the body is received: requests that hold
//! memory and wait for more could block each other. Until the response is sent it does not count for the connection,
//! whose other requests would otherwise wait for the route.

use std::sync::atomic::Ordering::Relaxed;

use bytes::Bytes;
use http::{HeaderValue, Method, Response, StatusCode, header};
use hyper::body::{Body as _, Incoming};
use tokio::time::timeout;
use towpath_store::{Error, Fault};

use super::{
    body::Content,
    connection_state::{ChunkMemoryPermit, Claim},
    exchange::Exchange,
    refusal::Refusal,
    respond::{self, value},
    upload,
    verb::Verb,
};
use crate::{
    access::DenialReason,
    routes::{MAX_REQUEST_BYTES, MAX_RESPONSE_BYTES, ROUTE_FIELD, ROUTES_PREFIX, RouteRequest, RouteResponse, Routes},
};

/// Returns the path of a request below the prefix of routes; `None` if the request is for a file.
pub(super) fn requested(exchange: &Exchange) -> Option<&[u8]> {
    exchange.headers.get(ROUTE_FIELD).filter(|_| !exchange.service.routes.is_empty())?;
    exchange.path().as_bytes().strip_prefix(ROUTES_PREFIX.as_bytes())
}

/// Answers a request to the route at `path`.
pub(super) async fn answer(exchange: &Exchange, path: &[u8], body: Incoming) -> Result<Response<Content>, Refusal> {
    let path = std::str::from_utf8(path).ok();
    let of_all = exchange.service.routes.iter();
    let found = path.and_then(|path| {
        let mut found = of_all.map(|routes| (path, &**routes, routes.methods(path)));
        found.find(|(.., methods)| !methods.is_empty())
    });
    let refusal = match found {
        None => Refusal::new(StatusCode::NOT_FOUND, "this server has no such route"),
        Some((.., methods)) if exchange.verb == Verb::Options => return Ok(options(methods)),
        Some((path, routes, methods)) => match method_of(exchange.verb).filter(|method| methods.contains(method)) {
            Some(method) => return call(exchange, routes, (method, path), body).await,
            None => Refusal::new(StatusCode::METHOD_NOT_ALLOWED, "this route does not support this method")
                .with(header::ALLOW, allow(methods)),
        },
    };
    upload::discard(&exchange.headers, body, &exchange.service.limits).await;
    Err(refusal)
}

/// Returns the method as routes see it; `None` for methods that no route has.
fn method_of(verb: Verb) -> Option<Method> {
    match verb {
        Verb::Get | Verb::Head => Some(Method::GET),
        Verb::Post => Some(Method::POST),
        Verb::Put => Some(Method::PUT),
        Verb::Delete => Some(Method::DELETE),
        _ => None,
    }
}

fn options(methods: &[Method]) -> Response<Content> {
    let mut response = respond::empty(StatusCode::NO_CONTENT);
    response.headers_mut().insert(header::ALLOW, allow(methods));
    response
}

/// Returns the value of `Allow`.
fn allow(methods: &[Method]) -> HeaderValue {
    let head = methods.contains(&Method::GET).then_some("HEAD");
    let names = methods.iter().map(Method::as_str).chain(head).chain(["OPTIONS"]);
    value(names.collect::<Vec<_>>().join(", "))
}

async fn call(
    exchange: &Exchange,
    routes: &dyn Routes,
    (method, path): (Method, &str),
    mut body: Incoming,
) -> Result<Response<Content>, Refusal> {
    let claim = exchange.claim();
    let announced = body.size_hint().exact().and_then(|length| usize::try_from(length).ok());
    let body_bytes = announced.unwrap_or(MAX_REQUEST_BYTES).min(MAX_REQUEST_BYTES);
    let mut memory = claim.lease(body_bytes + MAX_RESPONSE_BYTES).await;
    let received = match receive(exchange, &claim, &mut body).await {
        Ok(received) => received,
        Err(refusal) => {
            drop(memory);
            if refusal.status() == StatusCode::PAYLOAD_TOO_LARGE {
                upload::discard(&exchange.headers, body, &exchange.service.limits).await;
            }
            return Err(refusal);
        }
    };
    memory.shrink_to((received.len() + MAX_RESPONSE_BYTES) as u64);
    let request = RouteRequest {
        method,
        path: path.to_owned(),
        query: exchange.query().unwrap_or_default(),
        body: received,
        identity: exchange.identity.clone(),
    };
    let answered = routes.answer(request).await.map_err(|error| refuse(exchange, error))?;
    if answered.body.len() > MAX_RESPONSE_BYTES {
        let message = format!("the response of the route {path} is longer than {MAX_RESPONSE_BYTES} bytes");
        return Err(Error::new(Fault::Internal, message).into());
    }
    let memory = claim.await_client(claim.reserve_leased(memory, answered.body.len()).await);
    Ok(respond_with(exchange, answered, memory))
}

/// Receives a body into leased memory.
async fn receive(exchange: &Exchange, claim: &Claim, body: &mut Incoming) -> Result<Bytes, Refusal> {
    let limits = &exchange.service.limits;
    let too_long = || {
        let message = format!("the body is longer than {MAX_REQUEST_BYTES} bytes");
        Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, message)
    };
    if upload::is_declared_empty(body) {
        return Ok(Bytes::new());
    }
    if body.size_hint().lower() > MAX_REQUEST_BYTES as u64 {
        return Err(too_long());
    }
    let receiving = async {
        let (mut received, sender) = (Vec::new(), claim.await_sender());
        while let Some(bytes) = upload::next(body, limits).await? {
            sender.record_progress(bytes.len());
            if received.len() + bytes.len() > MAX_REQUEST_BYTES {
                return Err(too_long());
            }
            received.extend_from_slice(&bytes);
        }
        Ok(received.into())
    };
    let too_slow = || Refusal::new(StatusCode::REQUEST_TIMEOUT, "timeout while receiving the body");
    timeout(limits.stall.0, receiving).await.map_err(|_| too_slow())?
}

/// Converts the error of a route, and records whether its cause is a right that the caller's token does not grant.
fn refuse(exchange: &Exchange, error: Error) -> Refusal {
    exchange.lacks_right.fetch_or(error.reason() == Some(DenialReason::MissingScope.name()), Relaxed);
    error.into()
}

fn respond_with(exchange: &Exchange, answered: RouteResponse, memory: ChunkMemoryPermit) -> Response<Content> {
    if answered.status.is_client_error() || answered.status.is_server_error() {
        exchange.set_fault(Fault::from_http(answered.status.as_u16()));
    }
    let mut response = respond::with_status(answered.status, Content::reserved(answered.body, memory));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, answered.content_type);
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
