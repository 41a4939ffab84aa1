//! Fetches small documents over HTTPS. Each fetch opens a new connection; there are about two per hour.
//!
//! Redirects are followed within one origin only. Plain HTTP is limited to this machine, for tests and for issuers
//! behind a local proxy. Proxies of the environment (`https_proxy`) are ignored.

use std::{fmt, io, path::Path, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{
    Request, Response, StatusCode, Uri,
    header::{ACCEPT, ACCEPT_ENCODING, HOST, LOCATION, USER_AGENT},
};
use http_body_util::{BodyExt as _, Empty, LengthLimitError, Limited};
use hyper::{body::Incoming, client::conn::http1};
use hyper_util::rt::TokioIo;
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, ServerName, pem::PemObject as _},
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    time::timeout,
};
use tokio_rustls::TlsConnector;
use towpath_proto::http::location;
use towpath_store::sys::{disk, net};

/// Maximum size of a document, in bytes: that of the keys.
const MAX_DOCUMENT_BYTES: usize = super::keys::MAX_JWKS_BYTES as usize;
/// Maximum size of a file of certificates, in bytes; the system's roots take about 250 KiB.
const MAX_CA_BYTES: u64 = 4 << 20;
/// Maximum number of redirects.
const MAX_REDIRECTS: usize = 3;
/// Connect timeout for one address of a host, before the next is tried.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);

/// Why a fetch failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum FetchError {
    #[error("the host cannot be found: {0}")]
    Resolve(io::Error),
    #[error("the host cannot be reached: {0}")]
    Connect(io::Error),
    #[error("plain http is allowed for this machine only")]
    NotLoopback,
    #[error("TLS: {0}")]
    Tls(io::Error),
    #[error("{0}")]
    Http(#[from] hyper::Error),
    #[error("the response is incomplete or invalid: {0}")]
    Body(Box<dyn std::error::Error + Send + Sync>),
    #[error("the response has the status {0}")]
    Status(StatusCode),
    #[error("the response has more than {MAX_DOCUMENT_BYTES} bytes")]
    TooLong,
    #[error("a redirect to another origin is not followed")]
    OtherOrigin,
    #[error("too many redirects")]
    TooManyRedirects,
}

/// Why a text is not a valid document URL.
#[derive(Debug, thiserror::Error)]
pub(super) enum UrlError {
    #[error("it is not a URL")]
    Malformed,
    #[error("it must be https (http is for this machine only)")]
    Scheme,
    #[error("it has a user name in it")]
    UserInfo,
}

/// An absolute URL, `https` or, for this machine only, `http`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Url(Uri);

impl Url {
    /// Parses a URL.
    pub(super) fn parse(text: &str) -> Result<Self, UrlError> {
        let url = Self(text.parse().map_err(|_| UrlError::Malformed)?);
        if url.0.authority().is_none_or(|authority| authority.host().is_empty()) {
            return Err(UrlError::Malformed);
        }
        if url.0.authority().is_some_and(|authority| authority.as_str().contains('@')) {
            return Err(UrlError::UserInfo);
        }
        match url.0.scheme_str() {
            Some("https") => Ok(url),
            Some("http") if url.names_this_machine() => Ok(url),
            _ => Err(UrlError::Scheme),
        }
    }

    /// Whether the scheme is `https`.
    pub(super) fn is_encrypted(&self) -> bool {
        self.0.scheme_str() == Some("https")
    }

    /// Returns the host name or address, without brackets.
    fn host(&self) -> &str {
        self.0.host().unwrap_or_default().trim_start_matches('[').trim_end_matches(']')
    }

    fn port(&self) -> u16 {
        self.0.port_u16().unwrap_or(if self.is_encrypted() { 443 } else { 80 })
    }

    fn names_this_machine(&self) -> bool {
        let host = self.host();
        host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
    }

    /// Resolves `location` against this URL. Returns `None` for another origin.
    fn follow(&self, location: &[u8]) -> Option<Self> {
        let root = format!("{}://{}", self.0.scheme_str()?, self.0.authority()?);
        let next = Self::parse(&location::resolve(&root, self.0.path_and_query()?.as_str(), location));
        let origin = |url: &Self| (url.is_encrypted(), url.host().to_ascii_lowercase(), url.port());
        next.ok().filter(|next| origin(next) == origin(self))
    }
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Fetches documents.
pub(super) struct Fetch {
    tls: Option<TlsConnector>,
}

impl fmt::Debug for Fetch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fetch").field("encrypted", &self.tls.is_some()).finish()
    }
}

impl Fetch {
    /// Creates a client. If `encrypted`, it uses TLS and trusts the system's certificates and those in the PEM file
    /// `ca`.
    ///
    /// # Errors
    /// Describes what is wrong with the certificates.
    pub(super) fn new(encrypted: bool, ca: Option<&Path>) -> Result<Self, String> {
        if !encrypted {
            return Ok(Self { tls: None });
        }
        let mut roots = RootCertStore::empty();
        // Unreadable system roots are ignored: if an issuer needs one, the handshake reports it.
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        if let Some(path) = ca {
            add_roots(&mut roots, path).map_err(|why| format!("ca {}: {why}", path.display()))?;
        }
        let config = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
        Ok(Self { tls: Some(TlsConnector::from(Arc::new(config))) })
    }

    /// Fetches the document at `url`. The caller sets the timeout.
    pub(super) async fn get(&self, url: &Url) -> Result<Bytes, FetchError> {
        let mut url = url.clone();
        for _ in 0..=MAX_REDIRECTS {
            let response = self.request(&url).await?;
            if !response.status().is_redirection() {
                return document(response).await;
            }
            let location = response.headers().get(LOCATION);
            url = location.and_then(|location| url.follow(location.as_bytes())).ok_or(FetchError::OtherOrigin)?;
        }
        Err(FetchError::TooManyRedirects)
    }

    async fn request(&self, url: &Url) -> Result<Response<Incoming>, FetchError> {
        let stream = connect(url).await?;
        match (&self.tls, url.is_encrypted()) {
            (_, false) => exchange(stream, url).await,
            (None, true) => Err(FetchError::Tls(io::Error::other("this issuer was configured without it"))),
            (Some(tls), true) => {
                let name = ServerName::try_from(url.host().to_owned())
                    .map_err(|error| FetchError::Tls(io::Error::other(error)))?;
                exchange(tls.connect(name, stream).await.map_err(FetchError::Tls)?, url).await
            }
        }
    }
}

fn add_roots(roots: &mut RootCertStore, path: &Path) -> Result<(), String> {
    let pem = disk::read(path, MAX_CA_BYTES).map_err(|error| error.to_string())?;
    let before = roots.len();
    for certificate in CertificateDer::pem_slice_iter(&pem) {
        let certificate = certificate.map_err(|error| error.to_string())?;
        roots.add(certificate).map_err(|error| error.to_string())?;
    }
    if roots.len() == before { Err("it has no certificate".into()) } else { Ok(()) }
}

/// Connects to the first address of the host that accepts.
async fn connect(url: &Url) -> Result<TcpStream, FetchError> {
    let mut addresses = net::resolve(url.host(), url.port()).await.map_err(FetchError::Resolve)?;
    if !url.is_encrypted() {
        addresses.retain(|address| address.ip().is_loopback());
    }
    let mut error = FetchError::NotLoopback;
    for address in addresses {
        match timeout(CONNECT_TIMEOUT, net::connect(address)).await {
            Ok(Ok(stream)) => return Ok(stream),
            Ok(Err(refused)) => error = FetchError::Connect(refused),
            Err(_) => error = FetchError::Connect(io::ErrorKind::TimedOut.into()),
        }
    }
    Err(error)
}

async fn exchange(
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    url: &Url,
) -> Result<Response<Incoming>, FetchError> {
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    // The task ends with the response body, or when that is dropped.
    tokio::spawn(connection);
    let target = url.0.path_and_query().map_or("/", |target| target.as_str());
    let authority = url.0.authority().map_or("", |authority| authority.as_str());
    let request = Request::get(target)
        .header(HOST, authority)
        .header(ACCEPT, "application/json")
        .header(ACCEPT_ENCODING, "identity")
        .header(USER_AGENT, concat!("towpath/", env!("CARGO_PKG_VERSION")))
        .body(Empty::<Bytes>::new())
        .map_err(|error| FetchError::Body(error.into()))?;
    Ok(sender.send_request(request).await?)
}

async fn document(response: Response<Incoming>) -> Result<Bytes, FetchError> {
    if response.status() != StatusCode::OK {
        return Err(FetchError::Status(response.status()));
    }
    match Limited::new(response.into_body(), MAX_DOCUMENT_BYTES).collect().await {
        Ok(body) => Ok(body.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => Err(FetchError::TooLong),
        Err(error) => Err(FetchError::Body(error)),
    }
}
