//! Who asks: `Authorization: Bearer`, `?authz=`, or nobody in particular.

use http::{HeaderMap, header};
use towpath_store::{Error, Fault, Result};

use super::{link::Link, target::Target};
use crate::{Service, access::Identity};

/// The one who sent a request. Credentials other than bearer tokens are not understood, and count as none.
///
/// # Errors
/// `TlsRequired` on a plain connection where the server insists on TLS; and see [`crate::access::Access::bearer`].
pub(super) async fn identify(service: &Service, link: &Link, headers: &HeaderMap, target: &Target) -> Result<Identity> {
    if !link.encrypted && service.tls.as_ref().is_some_and(|tls| tls.required) {
        return Err(Error::new(Fault::TlsRequired, "this server answers only over TLS: use https://"));
    }
    let address = link.peer.ip();
    let in_query = || target.token.as_ref().map(towpath_store::Secret::expose);
    // A server that believes no issuer treats everybody alike: clients send the token they have to whomever they ask.
    match bearer(headers).or_else(in_query).filter(|_| service.access.takes_tokens()) {
        Some(token) => service.access.bearer(token, address).await,
        None => Ok(service.access.anonymous(address)),
    }
}

/// The bearer token of a header (RFC 6750 §2.1).
fn bearer(headers: &HeaderMap) -> Option<&str> {
    let credentials = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = credentials.split_once(' ')?;
    scheme.eq_ignore_ascii_case("Bearer").then(|| token.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_bearer_tokens_count() {
        for (field, token) in
            [("Bearer abc", Some("abc")), ("bearer  abc ", Some("abc")), ("Basic abc", None), ("abc", None)]
        {
            let headers = HeaderMap::from_iter([(header::AUTHORIZATION, field.parse().unwrap())]);
            assert_eq!(bearer(&headers), token, "{field}");
        }
    }
}
