//! Authenticates requests: `Authorization` with a bearer token or a password, `?authz=`, or anonymous.

use http::{HeaderValue, StatusCode, header, request::Parts};
use towpath_proto::http::challenge::{BearerError, quotable};
use towpath_store::{Error, Fault, Secret};

use super::{connection_state::ConnectionState, refusal::Refusal, respond::value, target::Target};
use crate::{
    Service,
    access::{Access, Channel, Identity, bearer},
    metrics::Face,
    passwords::{Authorization, LoginError, LoginRequest, Passwords},
};

/// `Retry-After` for too many wrong passwords, in seconds.
const RETRY_AFTER_S: HeaderValue = HeaderValue::from_static("60");

/// Returns the bearer token of a request if this server accepts tokens: clients send theirs to every server.
fn token_of(access: &Access, request: &Parts, target: &Target) -> Option<Secret> {
    let field = request.headers.get(header::AUTHORIZATION);
    let token = field.and_then(|value| bearer::in_credentials(value.to_str().ok()?));
    token.or_else(|| target.token.clone()).filter(|_| access.takes_tokens())
}

/// Returns the identity of a request's sender. Credentials of unsupported schemes are ignored; see
/// [`crate::access::Access::identify`] for refused tokens.
///
/// # Errors
/// `TlsRequired` on a plain connection if the server requires TLS, and for a password; and [`LoginError`].
pub(super) async fn identify(
    service: &Service,
    connection: &ConnectionState,
    request: &Parts,
    target: &Target,
) -> Result<Identity, Refusal> {
    if !connection.encrypted && service.tls().is_some_and(|tls| tls.config.required) {
        return Err(Error::new(Fault::TlsRequired, "this server requires TLS: use https://").into());
    }
    let access = service.access();
    let authorization = request.headers.get(header::AUTHORIZATION);
    if let Some(passwords) = access.passwords()
        && let Some(authorization) = authorization.and_then(|value| Authorization::of(value.as_bytes()))
    {
        return log_in(&access, passwords, connection, request, &authorization).await;
    }
    let token = token_of(&access, request, target);
    let channel = Channel { face: Face::Http, address: connection.peer.ip(), is_encrypted: connection.encrypted };
    Ok(access.identify(token.as_ref(), &channel).await)
}

async fn log_in(
    access: &Access,
    passwords: &Passwords,
    connection: &ConnectionState,
    request: &Parts,
    authorization: &Authorization<'_>,
) -> Result<Identity, Refusal> {
    if !connection.encrypted {
        let why = "passwords are accepted over TLS only: use https://, and change a password sent without TLS";
        return Err(Error::new(Fault::TlsRequired, why).into());
    }
    let address = connection.peer.ip();
    let login = LoginRequest { method: request.method.as_str(), uri: &request.uri, address };
    match passwords.verify(authorization, login).await {
        Ok(name) => Ok(access.user(name, address)),
        Err(denial @ LoginError::Stale) => Err(Refusal::from(Error::from(denial)).of_stale_nonce()),
        Err(denial @ LoginError::TooMany) => {
            Err(Refusal::from(Error::from(denial)).with(header::RETRY_AFTER, RETRY_AFTER_S))
        }
        Err(denial) => Err(Error::from(denial).into()),
    }
}

/// Returns the challenge to add to a successful response if the token of the request was refused and the rights of
/// anonymous callers sufficed (RFC 9110 §11.6.1 permits challenges in any response).
pub(super) fn challenge_of_refused_token(identity: &Identity) -> Option<HeaderValue> {
    let refused = identity.refused.as_ref().filter(|refused| refused.fault() == Fault::AuthenticationFailed)?;
    let description = Some(refused.message().to_owned());
    Some(value(BearerError { code: BearerError::INVALID_TOKEN.into(), description }))
}

/// Returns the challenges of a refusal (RFC 9110 §11.6.1): on 401 the supported schemes, by token or by password over
/// TLS, and the error of the request's token (RFC 6750 §3). Empty for other refusals.
pub(super) fn challenges(service: &Service, connection: &ConnectionState, refusal: &Refusal) -> Vec<HeaderValue> {
    let access = service.access();
    let is_unauthorized = refusal.status() == StatusCode::UNAUTHORIZED;
    let passwords = access.passwords().filter(|_| is_unauthorized && connection.encrypted);
    let takes_bearer = is_unauthorized && (passwords.is_none() || access.takes_tokens());
    let mut challenges = Vec::new();
    match refusal.token_error() {
        Some(error) => challenges.push(value(error)),
        // A `Bearer` challenge has at least one parameter (RFC 6750 §3).
        None if takes_bearer => {
            challenges.push(value(format_args!("Bearer realm=\"{}\"", quotable(service.site_name()))));
        }
        None => {}
    }
    let passwords = passwords.into_iter().flat_map(|passwords| passwords.challenges(refusal.has_stale_nonce()));
    challenges.extend(passwords.map(value));
    challenges
}
