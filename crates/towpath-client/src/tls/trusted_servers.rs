//! Verification of servers by trusted authorities, or by a trusted certificate that a server has itself.

use std::{collections::HashSet, sync::Arc};

use rustls::{
    CertificateError, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
    client::{
        WebPkiServerVerifier,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
        verify_server_name,
    },
    pki_types::{CertificateDer, ServerName, UnixTime},
    server::ParsedCertificate,
};

/// Accepts servers with a certificate of a trusted authority, and servers that present a certificate of an authority as
/// their own, if the user named it. `openssl req -x509` makes such certificates, and curl accepts them; rustls does not.
/// Name and time are checked, the usage in an extension is not.
#[derive(Debug)]
pub(super) struct TrustedServers {
    webpki: Arc<WebPkiServerVerifier>,
    named: HashSet<CertificateDer<'static>>,
}

impl TrustedServers {
    /// Creates a verifier that trusts `roots`. Those of them that the user `named` may be certificates of servers.
    ///
    /// # Errors
    /// There is no root.
    pub(super) fn new(
        roots: RootCertStore,
        named: HashSet<CertificateDer<'static>>,
    ) -> Result<Self, rustls::client::VerifierBuilderError> {
        Ok(Self { webpki: WebPkiServerVerifier::builder(Arc::new(roots)).build()?, named })
    }
}

/// Returns whether a certificate was refused only because it is that of an authority. Its validity was checked before.
pub(super) fn is_of_authority(why: &CertificateError) -> bool {
    matches!(why, CertificateError::Other(other) if other.0.to_string() == "CaUsedAsEndEntity")
}

impl ServerCertVerifier for TrustedServers {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        match self.webpki.verify_server_cert(certificate, intermediates, server, ocsp, now) {
            Err(Error::InvalidCertificate(why)) if is_of_authority(&why) && self.named.contains(certificate) => {
                verify_server_name(&ParsedCertificate::try_from(certificate)?, server)?;
                Ok(ServerCertVerified::assertion())
            }
            outcome => outcome,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.webpki.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.webpki.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.webpki.supported_verify_schemes()
    }
}
