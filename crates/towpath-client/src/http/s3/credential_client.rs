//! Adapter that lets `object_store` request credentials over the connections of this client, so that its rules apply
//! (permitted addresses, proxies, trusted authorities).

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use http::{Uri, header};
use http_body_util::{BodyExt as _, Limited};
use object_store::{
    ClientOptions as StoreOptions,
    client::{HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpService},
};
use tokio::time::timeout;
use towpath_proto::url::{Endpoint, Family};
use towpath_store::{Error, Fault};

use crate::http::{payload::Payload, pool::Pools, stat::error_of, target::Target};

/// Maximum length in bytes of a response of a credential service.
const ANSWER_BYTES: usize = 256 << 10;

/// Timeout of one request. Without a credential service the request gets no response.
const WAIT: Duration = Duration::from_secs(3);

/// Sends the requests for credentials.
#[derive(Debug, Clone)]
pub(super) struct CredentialClient {
    pools: Arc<Pools>,
}

impl CredentialClient {
    /// Creates a client that opens its connections with `pools`.
    pub(super) fn new(pools: Arc<Pools>) -> Self {
        Self { pools }
    }

    async fn carry(&self, request: HttpRequest) -> Result<HttpResponse, Error> {
        let lost = |error: &dyn std::fmt::Display| {
            Error::new(Fault::Unavailable, format!("the credentials service did not respond: {error}"))
        };
        let target = target_of(request.uri())?;
        let (mut parts, body) = request.into_parts();
        let body = body.collect().await.map_err(|error| lost(&error))?.to_bytes();
        parts.headers.insert(header::HOST, target.host_field()?);
        parts.uri = target.path_and_query.parse().map_err(|error| lost(&error))?;
        let mut message = http::Request::from_parts(parts, Payload::Whole(body));
        let mut connection = self.pools.dial(&target.endpoint).await.map_err(error_of)?;
        connection.address(&mut message, &target)?;
        let response = connection.sender.send_request(message).await.map_err(|error| lost(&error))?;
        let (parts, body) = response.into_parts();
        let body = Limited::new(body, ANSWER_BYTES).collect().await.map_err(|error| lost(&error))?;
        Ok(HttpResponse::from_parts(parts, body.to_bytes().into()))
    }
}

/// Returns the target of the URL of a service.
fn target_of(url: &Uri) -> Result<Target, Error> {
    let broken = |why: &str| Error::new(Fault::InvalidArgument, format!("the credentials service {why}"));
    let host = url.host().ok_or_else(|| broken("has no address"))?;
    let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
    let tls = url.scheme_str() == Some("https");
    let port = url.port_u16().unwrap_or(if tls { 443 } else { 80 });
    let path_and_query = url.path_and_query().map_or("/", |target| target.as_str()).to_owned();
    Ok(Target::encoded(Endpoint { family: Family::Http, tls, host, port }, path_and_query))
}

#[async_trait]
impl HttpService for CredentialClient {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        match timeout(WAIT, self.carry(request)).await {
            Ok(carried) => carried.map_err(|error| HttpError::new(HttpErrorKind::Unknown, error)),
            Err(late) => Err(HttpError::new(HttpErrorKind::Unknown, late)),
        }
    }
}

impl HttpConnector for CredentialClient {
    fn connect(&self, _options: &StoreOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(self.clone()))
    }
}
