//! Client side of TLS: trusted authorities, and the verification of certificates.

mod authorities;
mod certificate_error;
mod unverified;

use std::sync::Arc;

use rustls::{ClientConfig, pki_types::ServerName};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::{TlsConnector, client::TlsStream};
use towpath_store::{Blame, Error, Fault, Result};

use crate::ClientOptions;
pub use authorities::{AuthorityPath, AuthoritySettings};
use unverified::UnverifiedServers;

/// Starts TLS on connections.
#[derive(Clone)]
pub(crate) struct Tls {
    connector: TlsConnector,
}

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tls").finish_non_exhaustive()
    }
}

impl Tls {
    /// Creates a TLS configuration that trusts the authorities in `options`, or any certificate if they say so.
    ///
    /// # Errors
    /// `InvalidArgument` if a named file or directory has no certificate, or if there is no trusted certificate.
    pub(crate) fn new(options: &ClientOptions) -> Result<Self> {
        let config = match options.insecure {
            true => {
                let verifier = Arc::new(UnverifiedServers::default());
                ClientConfig::builder().dangerous().with_custom_certificate_verifier(verifier).with_no_client_auth()
            }
            false => {
                let roots = authorities::load(options.ca_file.as_deref(), &options.authorities)?;
                ClientConfig::builder().with_root_certificates(roots).with_no_client_auth()
            }
        };
        Ok(Self { connector: TlsConnector::from(Arc::new(config)) })
    }

    /// Performs the handshake with `host`, whose certificate must contain that name.
    ///
    /// # Errors
    /// `AuthenticationFailed` if the certificate is not trusted, `Unavailable` if the connection is lost.
    pub(crate) async fn start<S>(&self, host: &str, stream: S) -> Result<TlsStream<S>>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let name = ServerName::try_from(towpath_proto::url::without_zone(host).to_owned())
            .map_err(|_| Error::new(Fault::InvalidArgument, format!("{host} is not a valid certificate name")))?;
        self.connector.connect(name, stream).await.map_err(|error| {
            let rustls = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
            match rustls {
                Some(rustls::Error::InvalidCertificate(why)) => certificate_error::of(host, why),
                _ => {
                    Error::new(Fault::Unavailable, format!("TLS with {host} failed: {error}")).blamed_on(Blame::Network)
                }
            }
        })
    }
}
