//! Who asks: `Authorization` with a bearer token or a password, `?authz=`, or nobody in particular.

use http::{HeaderMap, HeaderValue, header, request::Parts};
use towpath_store::{Error, Fault};

use super::{link::Link, refusal::Refusal, respond::value, target::Target};
use crate::{
    Service,
    access::{Identity, bearer},
    passwords::{Asked, Denial, Passwords, Shown},
};

/// When to come again after too many wrong passwords, in seconds.
const GUESSERS_WAIT: HeaderValue = HeaderValue::from_static("60");

/// The one who sent a request. Credentials of other schemes than are understood here count as none.
///
/// # Errors
/// `TlsRequired` on a plain connection where the server insists on TLS, and for a password; [`Denial`]; and see [`crate::access::Access::identify`].
pub(super) async fn identify(
    service: &Service,
    link: &Link,
    request: &Parts,
    target: &Target,
) -> Result<Identity, Refusal> {
    if !link.encrypted && service.tls.as_ref().is_some_and(|tls| tls.required) {
        return Err(Error::new(Fault::TlsRequired, "this server answers only over TLS: use https://").into());
    }
    let authorization = request.headers.get(header::AUTHORIZATION);
    if let Some(passwords) = service.access.passwords()
        && let Some(shown) = authorization.and_then(|value| Shown::of(value.as_bytes()))
    {
        return log_in(service, passwords, link, request, &shown).await;
    }
    let token = authorization.and_then(|value| bearer::in_credentials(value.to_str().ok()?));
    let token = token.as_ref().or(target.token.as_ref());
    let identity = service.access.identify(token, link.peer.ip()).await;
    identity.map_err(|error| if token.is_some() { Refusal::from(error).of_token() } else { error.into() })
}

async fn log_in(
    service: &Service,
    passwords: &Passwords,
    link: &Link,
    request: &Parts,
    shown: &Shown<'_>,
) -> Result<Identity, Refusal> {
    if !link.encrypted {
        let why = "passwords are taken over TLS only: use https://, and change one that was sent without";
        return Err(Error::new(Fault::TlsRequired, why).into());
    }
    let address = link.peer.ip();
    let asked = Asked { method: request.method.as_str(), uri: &request.uri, address };
    match passwords.verify(shown, asked).await {
        Ok(name) => Ok(service.access.user(name, address)),
        Err(denial @ Denial::Stale) => Err(Refusal::from(Error::from(denial)).of_stale_nonce()),
        Err(denial @ Denial::TooMany) => {
            Err(Refusal::from(Error::from(denial)).with(header::RETRY_AFTER, GUESSERS_WAIT))
        }
        Err(denial) => Err(Error::from(denial).into()),
    }
}

/// Adds the challenges that a refusal offers (RFC 9110 §11.6.1): `bearer` for a token, and over TLS one for a password.
pub(super) fn challenge(
    service: &Service,
    link: &Link,
    (bearer, has_stale_nonce): (HeaderValue, bool),
    headers: &mut HeaderMap,
) {
    let passwords = service.access.passwords().filter(|_| link.encrypted);
    if passwords.is_none() || service.access.takes_tokens() {
        headers.append(header::WWW_AUTHENTICATE, bearer);
    }
    for challenge in passwords.into_iter().flat_map(|passwords| passwords.challenges(has_stale_nonce)) {
        headers.append(header::WWW_AUTHENTICATE, value(challenge));
    }
}
