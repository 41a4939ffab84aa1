//! Additional HTTP routes of a server, such as the administration of a cache.
//!
//! A request is for a route if its path is below [`ROUTES_PREFIX`] and it has the field [`ROUTE_FIELD`], as probes have
//! theirs. All other requests are for files, so a route hides no exported file. A web page cannot send the field to
//! another origin, so it cannot use the rights that its reader's browser or network has.
//!
//! The server finds the caller, receives the body, limits memory, and writes the request to log and metrics
//! ([`crate::http`]). The route checks rights with [`RouteRequest::identity`].

use std::fmt;

use async_trait::async_trait;
use bytes::Bytes;
use http::{HeaderValue, Method, StatusCode};
use percent_encoding::percent_decode_str;
use towpath_store::Result;

use crate::access::Identity;

/// Prefix of the paths of routes.
pub const ROUTES_PREFIX: &str = "/.well-known/towpath/";

/// The header field of a request to a route. Its value is ignored.
pub const ROUTE_FIELD: &str = "towpath-route";

/// Maximum size of a request body, in bytes.
pub const MAX_REQUEST_BYTES: usize = 1 << 20;

/// Maximum size of a response body, in bytes. Memory for it is reserved before the route is called.
pub const MAX_RESPONSE_BYTES: usize = 1 << 20;

/// Answers the requests to the routes of a server.
#[async_trait]
pub trait Routes: Send + Sync + fmt::Debug {
    /// Returns the methods of the route at `path`, out of GET, POST, PUT and DELETE; none if there is no such route.
    /// The server responds with 404 and 405 accordingly, answers OPTIONS, and answers HEAD like GET without the body.
    fn methods(&self, path: &str) -> &[Method];

    /// Answers a request with one of the route's methods. Runs on a thread shared with connections, so it must not
    /// block. The future has no timeout. It is dropped if the client disconnects; work that must be completed belongs
    /// into a task.
    ///
    /// # Errors
    /// Those of the route; the client gets the status and the message of the error table. [`Identity::check`] returns
    /// the error for a caller without a right.
    async fn answer(&self, request: RouteRequest) -> Result<RouteResponse>;
}

/// A request to a route.
#[derive(Debug)]
pub struct RouteRequest {
    /// The method; GET for a HEAD request.
    pub method: Method,
    /// The decoded path below [`ROUTES_PREFIX`], without a slash at either end: `cache/pin`.
    pub path: String,
    /// The query, still encoded, without the caller's token.
    pub query: String,
    /// The body, at most [`MAX_REQUEST_BYTES`].
    pub body: Bytes,
    /// The caller and its rights.
    pub identity: Identity,
}

impl RouteRequest {
    /// Returns the decoded value of the first query parameter `name`. A `+` is not a space.
    pub fn parameter(&self, name: &str) -> Option<Vec<u8>> {
        let mut parameters = self.query.split('&').map(|pair| pair.split_once('=').unwrap_or((pair, "")));
        let (_, value) = parameters.find(|(key, _)| *key == name)?;
        Some(percent_decode_str(value).collect())
    }
}

/// The response of a route.
#[derive(Debug)]
pub struct RouteResponse {
    /// The status. A status of 400 and above is logged and counted as the fault that it stands for.
    pub status: StatusCode,
    /// The media type of the body.
    pub content_type: HeaderValue,
    /// The body, at most [`MAX_RESPONSE_BYTES`]; a longer one becomes a 500.
    pub body: Bytes,
}

impl RouteResponse {
    /// Creates a response with status 200.
    ///
    /// # Panics
    /// If the media type is not visible ASCII.
    pub fn ok(content_type: &'static str, body: impl Into<Bytes>) -> Self {
        Self { status: StatusCode::OK, content_type: HeaderValue::from_static(content_type), body: body.into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_decoded() {
        let (method, path, body, identity) = (Method::GET, String::new(), Bytes::new(), Identity::default());
        let query = "path=/a%20b%ff+c&all&path=/other&empty=".into();
        let request = RouteRequest { method, path, query, body, identity };
        for (name, value) in
            [("path", Some(&b"/a b\xff+c"[..])), ("all", Some(b"")), ("empty", Some(b"")), ("pat", None), ("", None)]
        {
            assert_eq!(request.parameter(name).as_deref(), value, "{name}");
        }
    }
}
