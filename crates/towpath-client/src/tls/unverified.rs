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

/// Accepts every certificate, with one warning per host.
#[derive(Debug)]
pub(super) struct UnverifiedServers {
    provider: Arc<CryptoProvider>,
    warned: Mutex<HashSet<String>>,
}

impl Default for UnverifiedServers {
    fn default() -> Self {
        Self { provider: Arc::new(aws_lc_rs::default_provider()), warned: Mutex::default() }
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
        let host = server.to_str().into_owned();
        let mut warned = self.warned.lock().unwrap_or_else(PoisonError::into_inner);
        if warned.len() >= MAX_HOSTS {
            warned.clear();
        }
        if warned.insert(host.clone()) {
            tracing::warn!(
                "the certificate of {host} is not verified (--insecure): anyone on the way can read and change the data; \
                 tokens and passwords are withheld"
            );
        }
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
