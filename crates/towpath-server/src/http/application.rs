//! Requests to an [`Application`](crate::application::Application): what HTTP says of all of them.

use std::net::IpAddr;

use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use hyper::body::Incoming;
use towpath_proto::http::condition::{Decision, EntityTag, Validators};

use super::{body::Content, exchange::Exchange, refusal::Refusal, respond, service_pages, upload, verb::Verb};
use crate::{access::Activity, application::Hosted};

/// What a page of another origin may send (CORS).
const CORS_METHODS: HeaderValue = HeaderValue::from_static("GET, HEAD, POST, OPTIONS");
const CORS_FIELDS: HeaderValue = HeaderValue::from_static("accept, authorization, content-type, if-none-match");
const EVERYBODY: HeaderValue = HeaderValue::from_static("*");

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
    // What is told does not depend on cookies, and tokens are sent by whoever has them.
    let headers = response.headers_mut();
    headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, EVERYBODY);
    headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static("etag"));
    if exchange.verb == Verb::Options {
        headers.insert(header::ALLOW, CORS_METHODS);
        headers.insert(header::ACCESS_CONTROL_ALLOW_METHODS, CORS_METHODS);
        headers.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, CORS_FIELDS);
    }
    Ok(response)
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
    let client = address_of(exchange);
    let answer = hosted.answer(request, client).await;
    let answer = answer.ok_or_else(|| Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, "no answer could be made"))?;
    condition(exchange, answer)
}

/// The client's address; an IPv4 address is one also where it came to a socket of both families.
fn address_of(exchange: &Exchange) -> IpAddr {
    exchange.link.peer.ip().to_canonical()
}

/// The answer, or that the client has it.
fn condition(exchange: &Exchange, answer: Response<Vec<u8>>) -> Result<Response<Content>, Refusal> {
    let (parts, body) = answer.into_parts();
    let tag = parts.headers.get(header::ETAG).and_then(|tag| tag.to_str().ok()).and_then(EntityTag::parse);
    let is_conditional = exchange.verb != Verb::Post && parts.status == StatusCode::OK && tag.is_some();
    let validators = Validators { exists: true, etag: tag, modified_s: None };
    let mut response = match exchange.conditions()?.evaluate(true, &validators) {
        Decision::NotModified if is_conditional => respond::empty(StatusCode::NOT_MODIFIED),
        Decision::PreconditionFailed if is_conditional => return Err(Refusal::precondition_failed()),
        _ => respond::with_status(parts.status, Content::Whole(body.into())),
    };
    response.headers_mut().extend(parts.headers);
    Ok(response)
}
