//! Adapter that lets `object_store` request credentials over the connections of this client, so that its rules apply
//! (permitted addresses, trusted authorities).

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use http::header;
use http_body_util::{BodyExt as _, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use object_store::{
    ClientOptions as StoreOptions,
    client::{HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpService},
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    time::timeout,
};
use towpath_store::{Error, Fault};

use crate::{ClientOptions, dial::Dialer, tls::Tls};

/// Maximum length in bytes of a response of a credential service.
const ANSWER_BYTES: usize = 256 << 10;

/// Timeout of one request. Without a credential service the request gets no response.
const WAIT: Duration = Duration::from_secs(3);

/// Sends the requests for credentials.
#[derive(Debug, Clone)]
pub(super) struct CredentialClient {
    options: Arc<ClientOptions>,
    dialer: Arc<Dialer>,
}

impl CredentialClient {
    /// Creates a client that connects with `dialer`.
    pub(super) fn new(options: &Arc<ClientOptions>, dialer: &Arc<Dialer>) -> Self {
        Self { options: Arc::clone(options), dialer: Arc::clone(dialer) }
    }

    async fn carry(&self, request: HttpRequest) -> Result<HttpResponse, Error> {
        let broken = |why: &str| Error::new(Fault::InvalidArgument, format!("the credentials service {why}"));
        let host = request.uri().host().ok_or_else(|| broken("has no address"))?.to_owned();
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let is_encrypted = request.uri().scheme_str() == Some("https");
        let port = request.uri().port_u16().unwrap_or(if is_encrypted { 443 } else { 80 });
        let (stream, _tap) = self.dialer.connect(&host, port, &Arc::default()).await?;
        if !is_encrypted {
            return exchange(stream, request).await;
        }
        let stream = Tls::new(self.options.ca_file.as_deref())?.start(&host, stream).await?;
        exchange(stream, request).await
    }
}

/// Sends one request and receives its response.
async fn exchange<T>(stream: T, mut request: HttpRequest) -> Result<HttpResponse, Error>
where
    T: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let lost = |error: &dyn std::fmt::Display| {
        Error::new(Fault::Unavailable, format!("the credentials service did not respond: {error}"))
    };
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(|error| lost(&error))?;
    let authority = request.uri().authority().map_or("", |authority| authority.as_str());
    let host = authority.parse().map_err(|error| lost(&error))?;
    request.headers_mut().insert(header::HOST, host);
    let target = request.uri().path_and_query().map_or("/", |target| target.as_str());
    *request.uri_mut() = target.parse().map_err(|error| lost(&error))?;
    let exchange = async {
        let (parts, body) = sender.send_request(request).await.map_err(|error| lost(&error))?.into_parts();
        let body = Limited::new(body, ANSWER_BYTES).collect().await.map_err(|error| lost(&error))?;
        Ok(HttpResponse::from_parts(parts, body.to_bytes().into()))
    };
    let mut exchange = std::pin::pin!(exchange);
    tokio::select! {
        answer = &mut exchange => answer,
        ended = connection => match ended {
            // The response may have arrived with the end of the connection.
            Ok(()) => exchange.await,
            Err(error) => Err(lost(&error)),
        },
    }
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
