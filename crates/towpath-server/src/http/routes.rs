//! Request routing: target, caller, handler function, and the record in log and metrics.

use std::{
    net::IpAddr,
    sync::{Arc, Mutex, PoisonError, atomic::AtomicBool},
};

use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, Version, header, uri::Authority};
use hyper::body::Incoming;
use towpath_proto::tcp::{TCP_INFO_FIELD, TcpInfo};
use towpath_store::{
    PathError,
    sys::{net, processor},
};

use super::{
    additional_routes, application,
    body::{Content, ResponseBody},
    connection_state::ConnectionState,
    copying, cors,
    exchange::Exchange,
    framing, get, http10, identity, locking, namespace, probe, propfind, proppatch, put,
    refusal::Refusal,
    request_tracker::RequestTracker,
    respond, service_pages,
    target::Target,
    upload,
    verb::Verb,
};
use crate::{Port, Service, fair_pool::LeaseHolder, log_server_fault};

/// The value of `Server`.
const SERVER: HeaderValue = HeaderValue::from_static(concat!("towpath/", env!("CARGO_PKG_VERSION")));

/// Answers a request; errors become responses.
pub(super) async fn answer(
    service: Arc<Service>,
    connection: Arc<ConnectionState>,
    request: Request<Incoming>,
) -> Response<ResponseBody> {
    let verb = Verb::of(request.method());
    let path = request.uri().path().to_owned();
    let tracker = RequestTracker::open(&service, &connection, verb.name(), path, request.version() == Version::HTTP_2);
    let origin = request.headers().get(header::ORIGIN).cloned();
    let http10 = (request.version() == Version::HTTP_10).then(|| http10::keeps_alive(request.headers()));
    if http10.is_some() {
        connection.status_line.raise();
    }
    let (outcome, mut tracker) = carry_out(Arc::clone(&service), &connection, verb, request, tracker).await;
    let mut response = outcome.unwrap_or_else(|refusal| {
        log_server_fault(connection.peer, refusal.fault(), refusal.text());
        tracker.set_refusal(&refusal);
        let challenges = identity::challenges(&service, &connection, &refusal);
        let mut response = refusal.into_response();
        if response.status() == StatusCode::METHOD_NOT_ALLOWED && !response.headers().contains_key(header::ALLOW) {
            response.headers_mut().insert(header::ALLOW, Verb::allowed(&service.store.capabilities()));
        }
        challenges.into_iter().for_each(|challenge| {
            response.headers_mut().append(header::WWW_AUTHENTICATE, challenge);
        });
        response
    });
    response.headers_mut().insert(header::SERVER, SERVER);
    if connection.port == Port::Main {
        cors::permit(&service, verb, origin, response.headers_mut());
    }
    if verb == Verb::Head {
        *response.body_mut() = Content::Empty;
    }
    if http10.is_some_and(|keeps_alive| !keeps_alive || response.body().length().is_none()) {
        // A response without a length ends with its connection: HTTP/1.0 has no chunked coding.
        http10::announce_close(response.headers_mut());
    }
    response.map(|content| ResponseBody::new(content, connection, tracker))
}

/// Adds TCP and processor statistics to the response of a successful request with that field whose caller has
/// any rights.
fn insert_tcp_info(exchange: &Exchange, headers: &mut HeaderMap) {
    if exchange.headers.contains_key(TCP_INFO_FIELD)
        && exchange.identity.has_rights()
        && let Ok(info) = net::tcp_info(&exchange.connection.socket)
        // Between two responses an empty send queue is normal.
        && let info = (TcpInfo { is_starved: false, processor_percent: processor::percent_wanted_lately(), ..info })
        && let Ok(value) = HeaderValue::try_from(info.to_string())
    {
        headers.insert(TCP_INFO_FIELD, value);
    }
}

async fn carry_out(
    service: Arc<Service>,
    connection: &Arc<ConnectionState>,
    verb: Verb,
    request: Request<Incoming>,
    mut tracker: RequestTracker,
) -> (Result<Response<Content>, Refusal>, RequestTracker) {
    let (parts, body) = request.into_parts();
    let begun = match check_head(&service, &parts) {
        Ok(()) => match service_pages::without_rights(&service, connection.port, &parts).await {
            Some(Ok(page)) => return (Ok(page), tracker),
            Some(Err(refusal)) => Err(refusal),
            None => begin(&service, connection, &parts).await,
        },
        Err(refusal) => Err(refusal),
    };
    let (target, identity) = match begun {
        Ok(begun) => begun,
        Err(refusal) => {
            upload::discard(&parts.headers, body, &service.limits).await;
            return (Err(refusal), tracker);
        }
    };
    tracker.set_caller(&identity.caller);
    let exchange = Exchange {
        holder: LeaseHolder::of(&identity.caller),
        service,
        connection: Arc::clone(connection),
        identity,
        verb,
        version: parts.version,
        target,
        uri: parts.uri,
        headers: parts.headers,
        tracker: Mutex::new(tracker),
        lacks_right: AtomicBool::new(false),
    };
    let mut outcome = dispatch(&exchange, body).await.map_err(|refusal| exchange.explain(refusal));
    if let Ok(response) = &mut outcome {
        insert_tcp_info(&exchange, response.headers_mut());
        if let Some(challenge) = identity::challenge_of_refused_token(&exchange.identity) {
            response.headers_mut().append(header::WWW_AUTHENTICATE, challenge);
        }
    }
    (outcome, exchange.tracker.into_inner().unwrap_or_else(PoisonError::into_inner))
}

/// Refuses requests that a web page could make: those to another origin, and those to a name of its own site that leads to
/// this machine.
fn check_is_no_page(parts: &http::request::Parts) -> Result<(), Refusal> {
    let authority = parts.headers.get(header::HOST).and_then(|host| Authority::try_from(host.as_bytes()).ok());
    let host = authority.as_ref().or(parts.uri.authority()).map(Authority::host);
    let is_loopback = |host: &str| {
        let address = host.trim_matches(['[', ']']).parse::<IpAddr>();
        host.eq_ignore_ascii_case("localhost") || address.is_ok_and(|address| address.is_loopback())
    };
    // Browsers send this field to the addresses of this machine, also for images and scripts of a page.
    let site = parts.headers.get("sec-fetch-site").map(HeaderValue::as_bytes);
    let is_own = matches!(site, None | Some(b"none" | b"same-origin"));
    match is_own && host.is_none_or(is_loopback) && !parts.headers.contains_key(header::ORIGIN) {
        true => Ok(()),
        false => {
            let message =
                "this server is for programs of its user: name it 127.0.0.1 or localhost; web pages have no access";
            Err(Refusal::new(StatusCode::FORBIDDEN, message))
        }
    }
}

/// Checks the framing and the header size of every request.
fn check_head(service: &Service, parts: &http::request::Parts) -> Result<(), Refusal> {
    framing::check(parts.version, &parts.headers)?;
    if service.only_user.is_some() {
        check_is_no_page(parts)?;
    }
    if header_bytes(&parts.headers) > service.limits.header_bytes.0 {
        return Err(Refusal::new(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, "the header is too long"));
    }
    Ok(())
}

async fn begin(
    service: &Service,
    connection: &ConnectionState,
    parts: &http::request::Parts,
) -> Result<(Target, crate::access::Identity), Refusal> {
    let target = Target::of(&parts.uri)?;
    if target.long_name.is_some() && !service.store.capabilities().queries {
        return Err(Refusal::new(StatusCode::URI_TOO_LONG, PathError::TooLong.to_string()));
    }
    let identity = identity::identify(service, connection, parts, &target).await?;
    Ok((target, identity))
}

async fn dispatch(exchange: &Exchange, body: Incoming) -> Result<Response<Content>, Refusal> {
    if let Some(path) = additional_routes::requested(exchange) {
        return additional_routes::answer(exchange, path, body).await;
    }
    if let Some(hosted) = &exchange.service.application {
        return application::answer(exchange, hosted, body).await;
    }
    if let Some(path) = probe::path(exchange) {
        return probe::answer(exchange, &path, body).await;
    }
    match exchange.verb {
        Verb::Get | Verb::Head => get::answer(exchange).await,
        Verb::Options => Ok(options(exchange)),
        _ if exchange.content_query().is_some() => {
            let message = "a query is a part of the name of a file here: only GET and HEAD support it";
            Err(Refusal::bad_request(message))
        }
        Verb::Put => put::answer(exchange, body).await,
        Verb::Delete => namespace::delete(exchange).await,
        Verb::Mkcol => namespace::make_directory(exchange, &body).await,
        Verb::Move => namespace::rename(exchange).await,
        Verb::Copy => copying::copy(exchange).await,
        Verb::Propfind => propfind::answer(exchange, body).await,
        Verb::Proppatch => proppatch::answer(exchange, body).await,
        Verb::Lock => locking::lock(exchange, body).await,
        Verb::Unlock => locking::unlock(exchange).await,
        Verb::Post | Verb::Other => Err(Refusal::method_not_allowed("this method is not supported here")),
    }
}

/// Handles OPTIONS on any path: reports the capabilities of the server and its store, not the rights of the caller.
fn options(exchange: &Exchange) -> Response<Content> {
    let mut response = respond::empty(StatusCode::OK);
    let headers = response.headers_mut();
    headers.insert(header::ALLOW, Verb::allowed(&exchange.store().capabilities()));
    headers.insert("dav", HeaderValue::from_static("1, 2"));
    headers.insert(header::ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    // Windows clients try FrontPage extensions first without it.
    headers.insert("ms-author-via", HeaderValue::from_static("DAV"));
    response
}

/// Returns the size of a header as counted by HTTP/2 (RFC 9113 §6.5.2).
fn header_bytes(headers: &HeaderMap) -> u64 {
    headers.iter().map(|(name, value)| (name.as_str().len() + value.len() + 32) as u64).sum()
}
