//! Who asks: `Authorization: Bearer`, `?authz=`, or nobody in particular.

use http::{HeaderMap, header};
use towpath_store::{Error, Fault, Result};

use super::{link::Link, target::Target};
use crate::{
    Service,
    access::{Identity, bearer},
};

/// The one who sent a request. Credentials other than bearer tokens are not understood, and count as none.
///
/// # Errors
/// `TlsRequired` on a plain connection where the server insists on TLS; and see [`crate::access::Access::identify`].
pub(super) async fn identify(service: &Service, link: &Link, headers: &HeaderMap, target: &Target) -> Result<Identity> {
    if !link.encrypted && service.tls.as_ref().is_some_and(|tls| tls.required) {
        return Err(Error::new(Fault::TlsRequired, "this server answers only over TLS: use https://"));
    }
    let header = headers.get(header::AUTHORIZATION).and_then(|value| bearer::in_credentials(value.to_str().ok()?));
    service.access.identify(header.as_ref().or(target.token.as_ref()), link.peer.ip()).await
}
