//! The certificate of the server: its names and its expiry.

use std::net::{Ipv4Addr, Ipv6Addr};

use x509_parser::{
    extensions::GeneralName,
    prelude::{FromDer as _, X509Certificate},
};

/// The properties of a certificate that an operator must know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CertificateInfo {
    /// Host names and addresses.
    pub(crate) names: Vec<String>,
    /// Expiry in seconds since the Unix epoch.
    pub(crate) expires_s: i64,
}

impl CertificateInfo {
    /// Parses a certificate in DER.
    ///
    /// # Errors
    /// The syntax error.
    pub(crate) fn parse(der: &[u8]) -> Result<Self, String> {
        let (_, certificate) = X509Certificate::from_der(der).map_err(|error| error.to_string())?;
        let alternative = certificate.subject_alternative_name().map_err(|error| error.to_string())?;
        let names = alternative.map(|names| names.value.general_names.iter().filter_map(name).collect());
        Ok(Self { names: names.unwrap_or_default(), expires_s: certificate.validity().not_after.timestamp() })
    }
}

fn name(name: &GeneralName<'_>) -> Option<String> {
    match name {
        GeneralName::DNSName(name) => Some((*name).to_owned()),
        GeneralName::IPAddress(bytes) => match bytes.len() {
            4 => <[u8; 4]>::try_from(*bytes).ok().map(|bytes| Ipv4Addr::from(bytes).to_string()),
            _ => <[u8; 16]>::try_from(*bytes).ok().map(|bytes| Ipv6Addr::from(bytes).to_string()),
        },
        _ => None,
    }
}
