//! Client side of TLS: trusted authorities. Host names are always verified.

use std::{path::Path, sync::Arc};

use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, ServerName, pem::PemObject as _},
};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::{TlsConnector, client::TlsStream};
use towpath_store::{Blame, Error, Fault, Result, sys::disk};

/// Maximum size of a file of authorities, in bytes; the system's has 200 KiB.
const LIMIT_BYTES: u64 = 8 << 20;

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
    /// Creates a TLS configuration that trusts the system's authorities and those in `ca_file`.
    ///
    /// # Errors
    /// `InvalidArgument` if `ca_file` cannot be read, or if there is no trusted certificate.
    pub(crate) fn new(ca_file: Option<&Path>) -> Result<Self> {
        let mut roots = RootCertStore::empty();
        let (system, _) = roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        tracing::debug!(system, "loaded certificate authorities of the system");
        if let Some(path) = ca_file {
            add_file(&mut roots, path)?;
        }
        if roots.is_empty() {
            return Err(invalid("no certificate authorities found: install ca-certificates or name a CA file"));
        }
        let config = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
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
            .map_err(|_| invalid(&format!("{host} is not a valid certificate name")))?;
        self.connector.connect(name, stream).await.map_err(|error| {
            let rustls = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
            match rustls {
                Some(why @ rustls::Error::InvalidCertificate(_)) => {
                    Error::new(Fault::AuthenticationFailed, format!("the certificate of {host} is not trusted: {why}"))
                        .blamed_on(Blame::Storage)
                }
                _ => {
                    Error::new(Fault::Unavailable, format!("TLS with {host} failed: {error}")).blamed_on(Blame::Network)
                }
            }
        })
    }
}

fn add_file(roots: &mut RootCertStore, path: &Path) -> Result<()> {
    let shown = path.display();
    let pem = disk::read(path, LIMIT_BYTES).map_err(|error| invalid(&format!("CA file {shown}: {error}")))?;
    for certificate in CertificateDer::pem_slice_iter(&pem) {
        let certificate = certificate.map_err(|error| invalid(&format!("CA file {shown}: {error}")))?;
        roots.add(certificate).map_err(|error| invalid(&format!("CA file {shown}: {error}")))?;
    }
    Ok(())
}

fn invalid(message: &str) -> Error {
    Error::new(Fault::InvalidArgument, message)
}
