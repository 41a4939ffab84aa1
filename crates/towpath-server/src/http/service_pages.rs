//! Pages about the server: metrics and health.
//!
//! They are at `/.well-known/towpath/metrics` and `/.well-known/towpath/health`, and also at the customary `/metrics`
//! and `/healthz`. On the main port, exported files of the same name take precedence, and the metrics need the right
//! to read; only the health page at its well-known path is for all clients. The ports for monitoring have these pages
//! for all clients, and nothing else.

use http::{HeaderMap, HeaderValue, Method, Response, StatusCode, header, request::Parts};

use super::{body::Content, exchange::Exchange, refusal::Refusal, respond};
use crate::{Port, Service, access::Activity, metrics::Exposition};

/// Path of the health page that needs no rights on any port.
const HEALTH_PATH: &str = "/.well-known/towpath/health";

#[derive(Clone, Copy)]
enum Page {
    Metrics,
    Health,
}

const PAGES: [(&str, Page); 4] = [
    ("/.well-known/towpath/metrics", Page::Metrics),
    (HEALTH_PATH, Page::Health),
    ("/metrics", Page::Metrics),
    ("/healthz", Page::Health),
];

/// Returns the response to a request that needs no rights: to any request on a port for monitoring, and to one for the
/// health page at its well-known path on the main port.
pub(super) async fn without_rights(
    service: &Service,
    port: Port,
    request: &Parts,
) -> Option<Result<Response<Content>, Refusal>> {
    let path = request.uri.path();
    let is_read = matches!(request.method, Method::GET | Method::HEAD);
    let page = page_at(path.as_bytes()).filter(|_| is_read);
    match (port, page) {
        (Port::Main, Some(page)) if path == HEALTH_PATH => Some(Ok(render(service, &request.headers, page).await)),
        (Port::Main, _) => None,
        (Port::Monitoring, Some(page)) => Some(Ok(render(service, &request.headers, page).await)),
        (Port::Monitoring, None) => {
            Some(Err(Refusal::new(StatusCode::NOT_FOUND, "this port has /metrics and /healthz only")))
        }
    }
}

/// Returns the page at the target of a request that matches no file, if there is one.
pub(super) async fn find(exchange: &Exchange) -> Option<Response<Content>> {
    // No rule applies outside of the exports. There the pages need the right to read all exports.
    let may = exchange.identity.may(Activity::Read, exchange.path()) || exchange.identity.may_read_all();
    let page = page_at(exchange.path().as_bytes()).filter(|_| may)?;
    Some(render(&exchange.service, &exchange.headers, page).await)
}

fn page_at(path: &[u8]) -> Option<Page> {
    PAGES.iter().find(|(known, _)| known.as_bytes() == path).map(|(_, page)| *page)
}

async fn render(service: &Service, headers: &HeaderMap, page: Page) -> Response<Content> {
    let (status, media_type, text) = match page {
        Page::Metrics => {
            let format = Exposition::accepted(headers);
            (StatusCode::OK, format.media_type(), service.render_metrics(format).await)
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
