//! Requests to an [`Application`]: the HTTP behaviour common to all of them.
//!
//! A request waits until its connection has memory for a response, then for a permit. With the permit the response is
//! computed, checked against the request's conditions, and compressed ([`coding`]); the permit is kept until the
//! memory for all connections has room for the response. A stream releases its permit immediately and reserves memory
//! chunk by chunk.

mod coding;

use std::{net::IpAddr, sync::Arc};

use bytes::Bytes;
use futures::{StreamExt as _, future::BoxFuture, stream::BoxStream};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Uri, header, uri::Scheme};
use hyper::body::Incoming;
use tokio::sync::OwnedSemaphorePermit;
use towpath_proto::http::condition::{Conditions, Decision, EntityTag, Validators};
use towpath_store::Error;

use super::{
    body::{Chunk, Content},
    connection_state::ResponseMemoryPermit,
    exchange::Exchange,
    refusal::Refusal,
    respond, service_pages, upload,
    verb::Verb,
};
use crate::{
    access::Activity,
    application::{Application, Body, HostedApplication, Reply},
};

/// The value of `Allow`.
const METHODS: HeaderValue = HeaderValue::from_static("GET, HEAD, POST, DELETE, OPTIONS");

/// Answers a request; methods other than these get 405.
pub(super) async fn answer(
    exchange: &Exchange,
    hosted: &HostedApplication,
    body: Incoming,
) -> Result<Response<Content>, Refusal> {
    let mut response = match exchange.verb {
        Verb::Options => respond::empty(StatusCode::NO_CONTENT),
        Verb::Get | Verb::Head | Verb::Post | Verb::Delete => ask(exchange, hosted, body).await?,
        _ => {
            upload::discard(&exchange.headers, body, &exchange.service.limits).await;
            return Err(
                Refusal::new(StatusCode::METHOD_NOT_ALLOWED, "this server has no files").with(header::ALLOW, METHODS)
            );
        }
    };
    if exchange.verb == Verb::Options {
        response.headers_mut().insert(header::ALLOW, METHODS);
    }
    Ok(response)
}

async fn ask(exchange: &Exchange, hosted: &HostedApplication, body: Incoming) -> Result<Response<Content>, Refusal> {
    exchange.may(Activity::Read)?;
    let body = upload::text(exchange, body).await?;
    if matches!(exchange.verb, Verb::Get | Verb::Head)
        && let Some(page) = service_pages::find(exchange).await
    {
        return Ok(page);
    }
    let request = Arc::new(ApplicationRequest::of(exchange, body)?);
    let mut is_again = false;
    loop {
        // Taken before the permit: a client that leaves responses unread waits here without blocking others.
        let advance = exchange.connection.advance().await;
        let busy = || Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "too many concurrent requests: try again later");
        let permit = hosted.acquire_permit().await.ok_or_else(busy)?;
        let shared = Arc::clone(&request);
        let made = hosted.work(permit, move |application| shared.answer(application, is_again)).await;
        let failed = || Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, "the response could not be computed");
        let (reply, permit) = made.ok_or_else(failed)?;
        match reply? {
            Reply::Now(answer) => return Ok(reserve_and_respond(exchange, answer, advance, permit).await),
            Reply::Later(waiting) => {
                drop((advance, permit));
                wait(exchange, waiting).await?;
                is_again = true;
            }
        }
    }
}

/// Waits until a response may be available, unless the server stops first.
async fn wait(exchange: &Exchange, waiting: BoxFuture<'static, ()>) -> Result<(), Refusal> {
    tokio::select! {
        () = waiting => Ok(()),
        () = exchange.service.stopping.cancelled() => {
            Err(Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "the server is stopping: try again later"))
        }
    }
}

/// A request for the application, and the conditions of its response.
#[derive(Debug)]
struct ApplicationRequest {
    request: Request<Vec<u8>>,
    client: IpAddr,
    conditions: Conditions,
}

impl ApplicationRequest {
    fn of(exchange: &Exchange, body: Vec<u8>) -> Result<Self, Refusal> {
        let mut request = Request::new(body);
        *request.method_mut() = match exchange.verb {
            Verb::Post => Method::POST,
            Verb::Delete => Method::DELETE,
            _ => Method::GET,
        };
        *request.uri_mut() = absolute(exchange);
        *request.headers_mut() = exchange.headers.clone();
        let is_get = request.method() == Method::GET;
        let conditions = if is_get { exchange.conditions()? } else { Conditions::default() };
        Ok(Self { request, client: address_of(exchange), conditions })
    }

    /// Computes the response. Uses CPU time.
    fn answer(&self, application: &dyn Application, is_again: bool) -> Result<Reply, Refusal> {
        let mut answer = match application.answer(&self.request, self.client, is_again) {
            Reply::Now(answer) => answer,
            later @ Reply::Later(_) => return Ok(later),
        };
        let is_compressed = coding::choose_gzip(&mut answer, self.request.headers());
        let answer = self.condition(answer)?;
        Ok(Reply::Now(if is_compressed { coding::gzip(answer) } else { answer }))
    }

    /// Applies the conditions: returns the response, or 304 if the client has it.
    fn condition(&self, answer: Response<Body>) -> Result<Response<Body>, Refusal> {
        let tag = tag_of(answer.headers());
        if answer.status() != StatusCode::OK || tag.is_none() {
            return Ok(answer);
        }
        match self.conditions.evaluate(true, &Validators { exists: true, etag: tag, modified_s: None }) {
            Decision::Proceed => Ok(answer),
            Decision::PreconditionFailed => Err(Refusal::precondition_failed()),
            Decision::NotModified => {
                let (mut parts, _) = answer.into_parts();
                parts.status = StatusCode::NOT_MODIFIED;
                Ok(Response::from_parts(parts, Body::Whole(Vec::new())))
            }
        }
    }
}

/// Returns the request URI with the host that the client sent, as RFC 9110 §7.1 requires.
fn absolute(exchange: &Exchange) -> Uri {
    let mut parts = exchange.uri.clone().into_parts();
    parts.authority = exchange.authority();
    let scheme = if exchange.connection.encrypted { Scheme::HTTPS } else { Scheme::HTTP };
    parts.scheme = parts.authority.as_ref().map(|_| scheme);
    Uri::from_parts(parts).unwrap_or_else(|_| exchange.uri.clone())
}

/// Returns the client's address; IPv4-mapped addresses become IPv4.
fn address_of(exchange: &Exchange) -> IpAddr {
    exchange.connection.peer.ip().to_canonical()
}

fn tag_of(headers: &HeaderMap) -> Option<EntityTag> {
    headers.get(header::ETAG).and_then(|tag| tag.to_str().ok()).and_then(EntityTag::parse)
}

/// Returns the response once memory is reserved for it. Keeps its permit until then, which limits the number of
/// responses.
async fn reserve_and_respond(
    exchange: &Exchange,
    answer: Response<Body>,
    advance: ResponseMemoryPermit,
    permit: OwnedSemaphorePermit,
) -> Response<Content> {
    let (parts, body) = answer.into_parts();
    let content = match body {
        Body::Stream(pieces) => stream(exchange, pieces),
        Body::Whole(body) if body.is_empty() => Content::Empty,
        Body::Whole(body) => whole(exchange, body, advance).await,
    };
    drop(permit);
    let mut response = respond::with_status(parts.status, content);
    response.headers_mut().extend(parts.headers);
    response
}

/// Returns a complete body that now waits for the client.
async fn whole(exchange: &Exchange, body: Vec<u8>, advance: ResponseMemoryPermit) -> Content {
    let (claim, length) = (exchange.claim(), body.len());
    let reserved = claim.await_client(claim.reserve_advanced(advance, length).await);
    Content::reserved(body.into(), reserved)
}

/// Returns a body of chunks, each sent once memory is reserved, until the stream ends or the server stops.
fn stream(exchange: &Exchange, pieces: BoxStream<'static, Bytes>) -> Content {
    let claim = exchange.claim();
    let chunks = pieces.then(move |piece| {
        let claim = claim.clone();
        async move {
            let reserved = claim.await_client(claim.reserve(piece.len()).await);
            Ok::<_, Error>(Chunk::Bytes(piece, Some(reserved)))
        }
    });
    let stopping = exchange.service.stopping.clone().cancelled_owned();
    Content::Stream(chunks.take_until(stopping).boxed(), None)
}
