//! Errors of certificates, with the remedy.

use rustls::CertificateError;
use towpath_proto::http::date;
use towpath_store::{Blame, Error, Fault};

use super::trusted_servers::is_of_authority;
use crate::words::readable;

/// Maximum number of names of a certificate in an error.
const MAX_NAMES: usize = 8;

/// Returns the error for the certificate of `host`, which is invalid because of `why`.
pub(super) fn of(host: &str, why: &CertificateError) -> Error {
    let day = |time: &rustls::pki_types::UnixTime| {
        i64::try_from(time.as_secs()).map_or_else(|_| "an unknown date".to_owned(), date::format)
    };
    let problem = match why {
        // In the other cases a trusted authority has the name of the issuer and another key, such as the `localhost` of
        // Debian's ssl-cert.
        CertificateError::UnknownIssuer
        | CertificateError::BadSignature
        | CertificateError::UnsupportedSignatureAlgorithmForPublicKeyContext { .. } => {
            "is signed by an unknown authority: name its CA with --ca-file, or try with --insecure".to_owned()
        }
        CertificateError::ExpiredContext { not_after, .. } => {
            format!("expired on {}: ask the operator of the server, or try with --insecure", day(not_after))
        }
        CertificateError::Expired => "expired: ask the operator of the server, or try with --insecure".to_owned(),
        CertificateError::NotValidYetContext { not_before, .. } => {
            format!("is not valid before {}: check the clock of this machine, or try with --insecure", day(not_before))
        }
        CertificateError::NotValidYet => {
            "is not valid yet: check the clock of this machine, or try with --insecure".to_owned()
        }
        CertificateError::NotValidForNameContext { presented, .. } if !presented.is_empty() => {
            format!("is for other names ({}): use one of them, or try with --insecure", names(presented))
        }
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            "has no name that a client can verify: ask the operator of the server, or try with --insecure".to_owned()
        }
        other if is_of_authority(other) => {
            "is that of an authority: if it is the server's own, name it with --ca-file, or try with --insecure"
                .to_owned()
        }
        other => format!("is not trusted ({other}): name its CA with --ca-file, or try with --insecure"),
    };
    Error::new(Fault::ServerUntrusted, format!("the certificate of {host} {problem}")).blamed_on(Blame::Storage)
}

/// Returns the names, which have the form `DnsName("host")` or `IpAddress(address)`.
fn names(presented: &[String]) -> String {
    let plain = |name: &String| {
        let inner = name.split_once('(').map_or(name.as_str(), |(_, inner)| inner.trim_end_matches(')'));
        readable(inner.trim_matches('"'))
    };
    let mut names: Vec<_> = presented.iter().take(MAX_NAMES).map(plain).collect();
    if presented.len() > MAX_NAMES {
        names.push("…".to_owned());
    }
    names.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_authority_with_the_same_name_and_another_key_is_unknown() {
        let (signature_algorithm_id, public_key_algorithm_id) = (vec![1], vec![2]);
        let other_kind = CertificateError::UnsupportedSignatureAlgorithmForPublicKeyContext {
            signature_algorithm_id,
            public_key_algorithm_id,
        };
        for why in [CertificateError::BadSignature, other_kind] {
            let error = of("host", &why);
            assert!(
                error.message().starts_with("the certificate of host is signed by an unknown authority: "),
                "{error}"
            );
        }
    }
}
