//! Pages about the server itself: its counters, and whether it works.
//!
//! They live at `/.well-known/towpath/metrics` and `/.well-known/towpath/health`, and also at `/metrics` and `/healthz` where people look
//! for them. A file of such a name in the export wins: nothing that is exported is hidden by them, but for the health page, which a watchdog
//! must get at the former place whoever it is ([`health`]).

use http::{HeaderValue, Method, Response, StatusCode, header};

use super::{body::Content, exchange::Exchange, respond};
use crate::Service;

#[derive(Clone, Copy)]
enum Page {
    Metrics,
    Health,
}

const PAGES: [(&[u8], Page); 4] = [
    (b"/.well-known/towpath/metrics", Page::Metrics),
    (b"/.well-known/towpath/health", Page::Health),
    (b"/metrics", Page::Metrics),
    (b"/healthz", Page::Health),
];

/// The health page, for anybody who asks for it at its own place.
pub(super) fn health(service: &Service, method: &Method, path: &str) -> Option<Response<Content>> {
    let asks = matches!(*method, Method::GET | Method::HEAD) && path == "/.well-known/towpath/health";
    asks.then(|| render(service, Page::Health))
}

/// The page at the target of the request, which is known to be no file; none if there is none either.
pub(super) fn find(exchange: &Exchange) -> Option<Response<Content>> {
    let (_, page) = PAGES.iter().find(|(path, _)| *path == exchange.path().as_bytes())?;
    Some(render(&exchange.service, *page))
}

fn render(service: &Service, page: Page) -> Response<Content> {
    let (status, media_type, text) = match page {
        Page::Metrics => {
            (StatusCode::OK, "application/openmetrics-text; version=1.0.0; charset=utf-8", service.metrics.render())
        }
        Page::Health if service.stopping.is_cancelled() => {
            (StatusCode::SERVICE_UNAVAILABLE, "text/plain; charset=utf-8", "stopping\n".into())
        }
        Page::Health => (StatusCode::OK, "text/plain; charset=utf-8", "ok\n".into()),
    };
    let mut response = respond::with_status(status, Content::text(text));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(media_type));
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
