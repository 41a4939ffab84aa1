//! TLS without verification of certificates (`--insecure`).

use std::{
    collections::HashSet,
    sync::{Arc, Mutex, PoisonError},
};

use rustls::{
    DigitallySignedStruct, SignatureScheme,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    crypto::{CryptoProvider, aws_lc_rs, verify_tls12_signature, verify_tls13_signature},
    pki_types::{CertificateDer, ServerName, UnixTime},
};

/// Maximum number of hosts whose warnings are counted; beyond that, they may repeat.
const MAX_HOSTS: usize = 1024;

/// Accepts every certificate.
#[derive(Debug)]
pub(super) struct UnverifiedServers {
    provider: Arc<CryptoProvider>,
    /// Hosts that a warning was logged for; `None` without warnings.
    warned: Option<Mutex<HashSet<String>>>,
}

impl UnverifiedServers {
    /// Creates a verifier that logs one warning per host if `has_warnings`.
    pub(super) fn new(has_warnings: bool) -> Self {
        let warned = has_warnings.then(Mutex::default);
        Self { provider: Arc::new(aws_lc_rs::default_provider()), warned }
    }

    fn warn_once(&self, host: &str) {
        let Some(warned) = &self.warned else { return };
        let mut warned = warned.lock().unwrap_or_else(PoisonError::into_inner);
        if warned.len() >= MAX_HOSTS {
            warned.clear();
        }
        if warned.insert(host.to_owned()) {
            tracing::warn!(
                "the certificate of {host} is not verified (--insecure): anyone on the way can read and change the data; \
                 tokens and passwords are withheld"
            );
        }
    }
}

impl ServerCertVerifier for UnverifiedServers {
    fn verify_server_cert(
        &self,
        _certificate: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        server: &ServerName<'_>,
        _ocsp: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        self.warn_once(&server.to_str());
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signature, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signature, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
