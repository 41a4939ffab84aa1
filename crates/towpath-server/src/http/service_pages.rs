//! Pages about the server: metrics and health.
//!
//! They are at `/.well-known/towpath/metrics` and `/.well-known/towpath/health`, and also at the customary `/metrics`
//! and `/healthz`. Exported files of the same name take precedence, except for the health page at its well-known
//! path, which monitoring must reach without credentials ([`health`]).

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

/// Returns the health page for any client that requests its well-known path.
pub(super) fn health(service: &Service, method: &Method, path: &str) -> Option<Response<Content>> {
    let asks = matches!(*method, Method::GET | Method::HEAD) && path == "/.well-known/towpath/health";
    asks.then(|| render(service, Page::Health))
}

/// Returns the page at the target of a request that matches no file, if there is one.
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
