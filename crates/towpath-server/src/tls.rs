//! The server's side of TLS: certificate and key from PEM files, ALPN for HTTP/2 and HTTP/1.1.

use std::{path::Path, sync::Arc};

use rustls::{
    ServerConfig,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
};
use tokio::net::TcpStream;
use tokio_rustls::{TlsAcceptor, server::TlsStream};
use towpath_store::{os_message, sys::disk};

use crate::{StartError, certificate::CertificateInfo, config::TlsConfig, file_stamp::FileStamp};

/// Maximum size of a certificate chain or key file, in bytes.
pub(crate) const MAX_PEM_BYTES: u64 = 1 << 20;

/// TLS settings of the server.
#[derive(Clone)]
pub(crate) struct Tls {
    acceptor: TlsAcceptor,
    pub(crate) config: TlsConfig,
    /// Expiry of the certificate, in seconds since the Unix epoch, if it is known.
    pub(crate) expires_s: Option<i64>,
    /// The versions of the certificate and of the key when they were read.
    pub(crate) stamp: [Option<FileStamp>; 2],
}

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tls").field("config", &self.config).finish_non_exhaustive()
    }
}

impl Tls {
    /// Loads TLS from `config`. Returns `None` if no certificate is configured.
    ///
    /// # Errors
    /// [`StartError::Tls`] for files that cannot be read or do not match.
    pub(crate) fn new(config: &TlsConfig) -> Result<Option<Self>, StartError> {
        let (certificate, key) = match (&config.certificate, &config.key) {
            (Some(certificate), Some(key)) => (certificate, key),
            (None, None) if !config.required => return Ok(None),
            (None, None) => return Err(StartError::Tls("it is required, but no certificate is configured".into())),
            _ => return Err(StartError::Tls("certificate and key must be set together: one is missing".into())),
        };
        // Before the files are read: a change meanwhile is then found later.
        let stamp = stamp(config);
        let chain = CertificateDer::pem_slice_iter(&read(certificate)?)
            .collect::<Result<Vec<_>, _>>()
            .map_err(|error| StartError::Tls(format!("{}: {error}", certificate.display())))?;
        let expires_s = chain.first().and_then(|own| Some(CertificateInfo::parse(own).ok()?.expires_s));
        let private = PrivateKeyDer::from_pem_slice(&read(key)?)
            .map_err(|error| StartError::Tls(format!("{}: {error}", key.display())))?;
        let mut rustls = ServerConfig::builder()
            .with_no_client_auth()
            .with_single_cert(chain, private)
            .map_err(|error| match error {
                rustls::Error::InconsistentKeys(_) => {
                    format!("{}: it is not the key of the certificate {}", key.display(), certificate.display())
                }
                error => format!("{}: {error}", certificate.display()),
            })
            .map_err(StartError::Tls)?;
        rustls.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        let (acceptor, config) = (TlsAcceptor::from(Arc::new(rustls)), config.clone());
        Ok(Some(Self { acceptor, expires_s, stamp, config }))
    }

    /// Returns the current versions of the certificate and of the key.
    pub(crate) fn stamp_of_files(&self) -> [Option<FileStamp>; 2] {
        stamp(&self.config)
    }

    /// Performs the server side of the TLS handshake.
    ///
    /// # Errors
    /// The error of the connection, or the client's alert.
    pub(crate) async fn accept(&self, stream: TcpStream) -> std::io::Result<TlsStream<TcpStream>> {
        self.acceptor.accept(stream).await
    }
}

/// Returns the versions of the certificate and of the key; `None` for a file that cannot be accessed.
fn stamp(config: &TlsConfig) -> [Option<FileStamp>; 2] {
    [&config.certificate, &config.key].map(|path| {
        let file = disk::open(path.as_ref()?).ok()?;
        Some(FileStamp::of(&file.metadata().ok()?))
    })
}

fn read(path: &Path) -> Result<Vec<u8>, StartError> {
    disk::read(path, MAX_PEM_BYTES)
        .map_err(|error| StartError::Tls(format!("{}: {}", path.display(), os_message(&error))))
}
