//! Requests to an [`Application`](crate::application::Application): what HTTP says of all of them.

use std::net::IpAddr;

use futures::{FutureExt as _, StreamExt as _, future};
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use hyper::body::Incoming;
use tokio::sync::OwnedSemaphorePermit;
use towpath_proto::http::condition::{Decision, EntityTag, Validators};

use super::{
    body::{Chunk, Content},
    exchange::Exchange,
    refusal::Refusal,
    respond, service_pages, upload,
    verb::Verb,
};
use crate::{access::Activity, application::Hosted};

/// What a page of another origin may send (CORS).
const CORS_METHODS: HeaderValue = HeaderValue::from_static("GET, HEAD, POST, OPTIONS");
const CORS_FIELDS: HeaderValue = HeaderValue::from_static("accept, authorization, content-type, if-none-match");

/// Answers a request; of other methods than GET, HEAD, POST and OPTIONS, that they are not allowed.
pub(super) async fn answer(exchange: &Exchange, hosted: &Hosted, body: Incoming) -> Result<Response<Content>, Refusal> {
    let mut response = match exchange.verb {
        Verb::Options => respond::empty(StatusCode::NO_CONTENT),
        Verb::Get | Verb::Head | Verb::Post => ask(exchange, hosted, body).await?,
        _ => {
            upload::discard(&exchange.headers, body, &exchange.service.limits).await;
            return Err(Refusal::new(StatusCode::METHOD_NOT_ALLOWED, "there are no files here")
                .with(header::ALLOW, CORS_METHODS));
        }
    };
    let headers = response.headers_mut();
    if exchange.verb == Verb::Options {
        headers.insert(header::ALLOW, CORS_METHODS);
        headers.insert(header::ACCESS_CONTROL_ALLOW_METHODS, CORS_METHODS);
        headers.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, CORS_FIELDS);
    }
    if let Some(origin) = permitted_origin(exchange, hosted) {
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
        headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static("etag"));
        headers.append(header::VARY, HeaderValue::from_static("origin"));
    }
    Ok(response)
}

/// The origin of the page that asks, if its pages may read what is told.
fn permitted_origin(exchange: &Exchange, hosted: &Hosted) -> Option<HeaderValue> {
    let origin = exchange.headers.get(header::ORIGIN)?;
    let is_permitted = |permitted: &String| permitted == "*" || permitted.as_bytes() == origin.as_bytes();
    hosted.origins.iter().any(is_permitted).then(|| origin.clone())
}

async fn ask(exchange: &Exchange, hosted: &Hosted, body: Incoming) -> Result<Response<Content>, Refusal> {
    exchange.may(Activity::Read)?;
    let body = upload::text(exchange, body).await?;
    if exchange.verb != Verb::Post
        && let Some(page) = service_pages::find(exchange)
    {
        return Ok(page);
    }
    let mut request = Request::new(body);
    *request.method_mut() = if exchange.verb == Verb::Post { Method::POST } else { Method::GET };
    *request.uri_mut() = exchange.uri.clone();
    *request.headers_mut() = exchange.headers.clone();
    let busy = || Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "too much is asked for at once: ask again later");
    let place = hosted.place().await.ok_or_else(busy)?;
    let answer = hosted.answer(request, address_of(exchange)).await;
    let answer = answer.ok_or_else(|| Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, "no answer could be made"))?;
    let response = condition(exchange, answer)?;
    Ok(with_room(exchange, response, place).await)
}

/// The answer, once there is room for it among those that wait to be taken. Until then it keeps its place, so that no more are made.
async fn with_room(exchange: &Exchange, response: Response<Vec<u8>>, place: OwnedSemaphorePermit) -> Response<Content> {
    let (parts, body) = response.into_parts();
    let length = body.len();
    let reserved = exchange.link.reserve(length).await;
    drop(place);
    let content = match length {
        0 => Content::Empty,
        _ => {
            let chunk = future::ready(Ok(Chunk::Bytes(body.into(), Some(reserved))));
            Content::Stream(chunk.into_stream().boxed(), Some(length as u64))
        }
    };
    let mut response = respond::with_status(parts.status, content);
    response.headers_mut().extend(parts.headers);
    response
}

/// The client's address; an IPv4 address is one also where it came to a socket of both families.
fn address_of(exchange: &Exchange) -> IpAddr {
    exchange.link.peer.ip().to_canonical()
}

/// The answer, or that the client has it.
fn condition(exchange: &Exchange, answer: Response<Vec<u8>>) -> Result<Response<Vec<u8>>, Refusal> {
    let tag = answer.headers().get(header::ETAG).and_then(|tag| tag.to_str().ok()).and_then(EntityTag::parse);
    if exchange.verb == Verb::Post || answer.status() != StatusCode::OK || tag.is_none() {
        return Ok(answer);
    }
    match exchange.conditions()?.evaluate(true, &Validators { exists: true, etag: tag, modified_s: None }) {
        Decision::Proceed => Ok(answer),
        Decision::PreconditionFailed => Err(Refusal::precondition_failed()),
        Decision::NotModified => {
            let (mut parts, _) = answer.into_parts();
            parts.status = StatusCode::NOT_MODIFIED;
            Ok(Response::from_parts(parts, Vec::new()))
        }
    }
}
