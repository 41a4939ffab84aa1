//! Client side of TLS: trusted authorities, and the verification of certificates.

mod authorities;
mod certificate_error;
mod trusted_servers;
mod unverified;

use std::{
    io::{self, ErrorKind},
    sync::Arc,
};

use rustls::{
    AlertDescription, ClientConfig, InvalidMessage, client::danger::ServerCertVerifier, pki_types::ServerName,
};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::{TlsConnector, client::TlsStream};
use towpath_store::{Blame, Error, Fault, Result, os_message};

use crate::ClientOptions;
pub use authorities::{AuthorityPath, AuthoritySettings};
use trusted_servers::TrustedServers;
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
        let verifier: Arc<dyn ServerCertVerifier> = match options.insecure {
            true => Arc::new(UnverifiedServers::new(options.warn_insecure)),
            false => {
                let (roots, named) = authorities::load(options.ca_file.as_deref(), &options.authorities)?;
                let verifier = TrustedServers::new(roots, named);
                Arc::new(verifier.map_err(|error| Error::new(Fault::Internal, error.to_string()))?)
            }
        };
        let config =
            ClientConfig::builder().dangerous().with_custom_certificate_verifier(verifier).with_no_client_auth();
        Ok(Self { connector: TlsConnector::from(Arc::new(config)) })
    }

    /// Performs the handshake with `host`, whose certificate must contain that name.
    ///
    /// # Errors
    /// `ServerUntrusted` if the certificate is not trusted, `TlsRequired` if the server does not support TLS,
    /// `Unavailable` if the connection is lost.
    pub(crate) async fn start<S>(&self, host: &str, stream: S) -> Result<TlsStream<S>>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let name = ServerName::try_from(towpath_proto::url::without_zone(host).to_owned())
            .map_err(|_| Error::new(Fault::InvalidArgument, format!("{host} is not a valid certificate name")))?;
        self.connector.connect(name, stream).await.map_err(|error| handshake_failure(host, &error))
    }
}

/// Returns the error for a failed handshake with `host`.
fn handshake_failure(host: &str, error: &io::Error) -> Error {
    const PLAIN: &str = "the server may not support TLS: use http:// or root://";
    let rustls = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    let message = format!("TLS with {host} failed: {}", os_message(error));
    match rustls {
        Some(rustls::Error::InvalidCertificate(why)) => certificate_error::of(host, why),
        // The server responded, in another protocol or with an alert: a retry gets the same response.
        Some(
            rustls::Error::InvalidMessage(InvalidMessage::InvalidContentType)
            | rustls::Error::AlertReceived(AlertDescription::HandshakeFailure),
        ) => Error::new(Fault::TlsRequired, format!("{message}; {PLAIN}")).blamed_on(Blame::Storage),
        // Many servers close a connection that does not begin in their protocol, but a server that restarts does so too.
        None if matches!(
            error.kind(),
            ErrorKind::ConnectionReset | ErrorKind::UnexpectedEof | ErrorKind::BrokenPipe
        ) =>
        {
            let error = Error::new(Fault::Unavailable, format!("{message}; {PLAIN}")).blamed_on(Blame::Storage);
            error.with_retryable(false)
        }
        _ => Error::new(Fault::Unavailable, message).blamed_on(Blame::Network),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_that_ends_in_the_handshake_may_be_to_a_server_without_tls() {
        for kind in [ErrorKind::ConnectionReset, ErrorKind::UnexpectedEof] {
            let error = handshake_failure("host", &kind.into());
            // The client retries, because the server may be restarting.
            assert_eq!((error.fault(), error.is_retryable()), (Fault::Unavailable, false));
            assert!(error.message().contains("the server may not support TLS: use http:// or root://"), "{error}");
        }
        let plain = rustls::Error::InvalidMessage(InvalidMessage::InvalidContentType);
        let error = handshake_failure("host", &io::Error::new(ErrorKind::InvalidData, plain));
        assert_eq!(error.fault(), Fault::TlsRequired, "{error}");
        let error = handshake_failure("host", &io::Error::new(ErrorKind::InvalidData, rustls::Error::DecryptError));
        assert!(error.is_retryable() && !error.message().contains("http://"), "{error}");
    }
}
