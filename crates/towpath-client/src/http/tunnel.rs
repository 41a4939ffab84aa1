//! Connections through a proxy: a tunnel to an https server (CONNECT, RFC 9110 §9.3.6). Requests to http servers are
//! forwarded by the proxy without a tunnel ([`super::pool::Connection::address`]).

use http::{Method, Request, header};
use http_body_util::Empty;
use hyper::{
    body::Bytes,
    client::conn::http1::{self, Parts},
};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use towpath_proto::url::Endpoint;

use super::retry_state::Failure;
use crate::proxy::Proxy;

/// Maximum length in bytes of the header of the proxy's response.
const MAX_HEADER_BYTES: usize = 64 << 10;

/// Requests a tunnel to `server` on `stream`, a connection to `proxy`.
pub(super) async fn open<S>(proxy: &Proxy, server: &Endpoint, stream: S) -> Result<S, Failure>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let lost = |error: hyper::Error| Failure::NotSent(proxy.lost(server, &error.to_string()));
    let (mut sender, connection) = http1::Builder::new()
        .max_buf_size(MAX_HEADER_BYTES)
        .title_case_headers(true)
        .handshake(TokioIo::new(stream))
        .await
        .map_err(lost)?;
    let mut connection = std::pin::pin!(connection.without_shutdown());
    let mut response = std::pin::pin!(sender.send_request(request(proxy, server)?));
    let (response, ended) = tokio::select! {
        response = &mut response => (response, None),
        // The response may have arrived with the end of the connection.
        ended = &mut connection => (response.await, Some(ended)),
    };
    let status = response.map_err(lost)?.status();
    if !status.is_success() {
        let error = proxy.refused(server, status);
        // A server error may pass, such as an unreachable server.
        return Err(if status.is_server_error() { Failure::NotSent(error) } else { Failure::Fatal(error) });
    }
    let ended = match ended {
        Some(ended) => ended,
        None => connection.await,
    };
    let Parts { io, read_buf, .. } = ended.map_err(lost)?;
    if !read_buf.is_empty() {
        return Err(Failure::NotSent(proxy.lost(server, "it sent data before the server could")));
    }
    Ok(io.into_inner())
}

fn request(proxy: &Proxy, server: &Endpoint) -> Result<Request<Empty<Bytes>>, Failure> {
    let authority = server.to_string();
    let mut request = Request::builder().method(Method::CONNECT).uri(&authority).header(header::HOST, &authority);
    if let Some(credentials) = &proxy.authorization {
        request = request.header(header::PROXY_AUTHORIZATION, credentials);
    }
    request.body(Empty::new()).map_err(|_| Failure::Fatal(proxy.lost(server, "the host name has invalid characters")))
}
