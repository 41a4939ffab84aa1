//! A site on this machine that answers with what a test puts there.

use std::{
    collections::HashMap,
    io,
    net::{Ipv4Addr, SocketAddr},
    sync::{Arc, Mutex, PoisonError},
};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncRead, AsyncWrite, AsyncWriteExt as _, BufReader},
    net::TcpListener,
    task::JoinHandle,
};
use tokio_rustls::{
    TlsAcceptor,
    rustls::{ServerConfig, pki_types::PrivateKeyDer},
};
use towpath_store::sys::net;

/// What a site answers on one path.
#[derive(Debug, Clone)]
pub struct CannedResponse {
    /// The HTTP status.
    pub status: u16,
    /// Where to go instead.
    pub location: Option<String>,
    /// The document.
    pub body: String,
}

impl CannedResponse {
    /// A document.
    pub fn json(body: &Value) -> Self {
        Self { status: 200, location: None, body: body.to_string() }
    }

    /// A status without a document.
    pub fn status(status: u16) -> Self {
        Self { status, location: None, body: String::new() }
    }

    /// A redirect.
    pub fn redirect(location: &str) -> Self {
        Self { status: 302, location: Some(location.into()), body: String::new() }
    }
}

/// A site that listens on loopback until it is dropped.
#[derive(Debug)]
pub struct DocumentServer {
    url: String,
    ca_pem: Option<String>,
    shared: Arc<State>,
    accepting: JoinHandle<()>,
}

#[derive(Debug, Default)]
struct State {
    answers: Mutex<HashMap<String, CannedResponse>>,
    asked: Mutex<Vec<String>>,
}

impl DocumentServer {
    /// A site without TLS, with nothing on it.
    ///
    /// # Errors
    /// The system's, if there is no port.
    pub fn plain() -> io::Result<Self> {
        Self::start(None)
    }

    /// A site with TLS, whose certificate for `localhost` comes from an authority made for it.
    ///
    /// # Errors
    /// The system's, if there is no port.
    pub fn encrypted() -> io::Result<Self> {
        let (acceptor, ca_pem) = certificate().map_err(io::Error::other)?;
        Self::start(Some((acceptor, ca_pem)))
    }

    fn start(tls: Option<(TlsAcceptor, String)>) -> io::Result<Self> {
        let listener = net::listen(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?;
        let port = listener.local_addr()?.port();
        let (tls, ca_pem) = tls.unzip();
        let scheme = if tls.is_some() { "https" } else { "http" };
        let shared = Arc::<State>::default();
        let accepting = tokio::spawn(accept(listener, tls, Arc::clone(&shared)));
        Ok(Self { url: format!("{scheme}://localhost:{port}"), ca_pem, shared, accepting })
    }

    /// Where it is, without a slash at the end.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The certificate of the authority to trust; none without TLS.
    pub fn ca_pem(&self) -> Option<&str> {
        self.ca_pem.as_deref()
    }

    /// Answers `answer` on `path` from now on.
    pub fn put(&self, path: &str, answer: CannedResponse) {
        self.shared.answers.lock().unwrap_or_else(PoisonError::into_inner).insert(path.into(), answer);
    }

    /// Publishes the metadata of an issuer at `path` (empty, or with a slash before it and none after it), and its
    /// keys.
    pub fn publish(&self, path: &str, jwks: &Value) {
        let issuer = format!("{}{path}", self.url);
        let metadata = json!({"issuer": issuer, "jwks_uri": format!("{issuer}/jwks")});
        self.put(&format!("{path}/.well-known/openid-configuration"), CannedResponse::json(&metadata));
        self.put(&format!("{path}/jwks"), CannedResponse::json(jwks));
    }

    /// Returns the paths requested so far.
    pub fn asked(&self) -> Vec<String> {
        self.shared.asked.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for DocumentServer {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

/// A server's certificate, and the certificate of its authority.
fn certificate() -> Result<(TlsAcceptor, String), Box<dyn std::error::Error + Send + Sync>> {
    let mut params = CertificateParams::new(Vec::new())?;
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(params, KeyPair::generate()?)?;
    let key = KeyPair::generate()?;
    let certificate = CertificateParams::new(vec!["localhost".into()])?.signed_by(&key, &authority)?;
    let private = PrivateKeyDer::try_from(key.serialize_der())?;
    let config =
        ServerConfig::builder().with_no_client_auth().with_single_cert(vec![certificate.der().clone()], private)?;
    Ok((TlsAcceptor::from(Arc::new(config)), authority.pem()))
}

async fn accept(listener: TcpListener, tls: Option<TlsAcceptor>, shared: Arc<State>) {
    while let Ok((stream, _)) = listener.accept().await {
        let (tls, shared) = (tls.clone(), Arc::clone(&shared));
        tokio::spawn(async move {
            // A client may disconnect or reject the certificate.
            let _ = match tls {
                None => shared.answer(stream).await,
                Some(tls) => match tls.accept(stream).await {
                    Ok(stream) => shared.answer(stream).await,
                    Err(error) => Err(error),
                },
            };
        });
    }
}

impl State {
    /// Answers one request of HTTP/1.1 and closes the connection.
    async fn answer(&self, stream: impl AsyncRead + AsyncWrite + Unpin) -> io::Result<()> {
        let mut stream = BufReader::new(stream);
        let mut request = String::new();
        while !request.ends_with("\r\n\r\n") {
            if stream.read_line(&mut request).await? == 0 {
                return Ok(());
            }
        }
        let path = request.split(' ').nth(1).unwrap_or_default().to_owned();
        let answer = self.answers.lock().unwrap_or_else(PoisonError::into_inner).get(&path).cloned();
        self.asked.lock().unwrap_or_else(PoisonError::into_inner).push(path);
        let CannedResponse { status, location, body } = answer.unwrap_or(CannedResponse::status(404));
        let location = location.map_or_else(String::new, |location| format!("Location: {location}\r\n"));
        let length = body.len();
        let answer =
            format!("HTTP/1.1 {status} \r\nContent-Length: {length}\r\nConnection: close\r\n{location}\r\n{body}");
        stream.write_all(answer.as_bytes()).await?;
        stream.shutdown().await
    }
}
