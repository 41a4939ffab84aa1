//! Selects a security protocol from the offers of a server, and creates the credentials for it.
//!
//! `ztn` carries a bearer token and is used over TLS only; `unix` and `host` prove nothing, but some sites require
//! them. Protocols with their own cryptography (`gsi`, `sss`, `krb5`) are not supported: a token over TLS replaces
//! them.

use bytes::Bytes;
use towpath_proto::xrootd::{
    auth::{SecurityProtocol, UnixCredentials, ZtnCredentials},
    request::Auth,
};
use towpath_store::{Blame, Error, Fault, Result, Secret};

use crate::{token::WithholdReason, words::readable};

/// The available credentials of this client.
#[derive(Debug, Clone)]
pub(super) struct AvailableCredentials {
    /// The bearer token, or the error of its lookup, which matters only if a server requires a token.
    pub token: Result<Option<Secret>>,
    /// The reason why no token is sent to this server, if there is one.
    pub withheld: Option<WithholdReason>,
    /// User name of the login.
    pub user: String,
}

impl AvailableCredentials {
    /// Returns the credentials for `offer`, on a connection with or without TLS; `None` if the offer cannot be used.
    pub(super) fn credentials(&self, offer: &SecurityProtocol, tls: bool) -> Result<Option<Auth>> {
        let credentials = match &*offer.name {
            "ztn" if tls => match self.token.clone()? {
                Some(token) => ZtnCredentials { token: Bytes::copy_from_slice(token.expose().as_bytes()) }.encode(),
                None => None,
            },
            "unix" => Some(UnixCredentials { user: self.user.clone(), group: String::new() }.encode()),
            "host" => Some(Bytes::from_static(b"host\0")),
            _ => None,
        };
        Ok(credentials.map(|credentials| Auth { credential_type: offer.credential_type(), credentials }))
    }

    /// Returns the error when none of the offers of `host` led to a login; `refusal` is the last response of the
    /// server.
    pub(super) fn exhausted(&self, host: &str, offers: &[SecurityProtocol], tls: bool, refusal: Option<&str>) -> Error {
        let names: Vec<&str> = offers.iter().map(|offer| &*offer.name).collect();
        let offered = readable(&names.join(", "));
        let has_token = matches!(self.token, Ok(Some(_)));
        let (why, remedy) = match refusal {
            Some(message) => (format!("refused the credentials: {}", readable(message)), ""),
            None if !names.contains(&"ztn") => ("offers no supported authentication protocol".into(), ""),
            None if self.withheld == Some(WithholdReason::Unencrypted) => {
                let why = "requires a bearer token, which is not sent to servers named without encryption";
                (why.into(), "; use roots:// instead of root://")
            }
            None if self.withheld == Some(WithholdReason::Unverified) => {
                ("requires a bearer token, which is not sent with --insecure".into(), "; use --ca-file instead")
            }
            None if self.withheld == Some(WithholdReason::Nobody) => {
                ("requires a bearer token, but no credentials were sent".into(), "")
            }
            None if !has_token => {
                let remedy = "; set BEARER_TOKEN or BEARER_TOKEN_FILE";
                ("requires a bearer token, but none was found".into(), remedy)
            }
            None if !tls => ("accepts bearer tokens only over TLS".into(), "; use roots:// instead of root://"),
            None => ("did not accept the credentials".into(), ""),
        };
        let message = format!("{host} {why} (it offers: {offered}){remedy}");
        Error::new(Fault::AuthenticationFailed, message).blamed_on(Blame::Caller)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn available(token: Option<&str>) -> AvailableCredentials {
        AvailableCredentials { token: Ok(token.map(Secret::new)), withheld: None, user: "marie".into() }
    }

    #[test]
    fn a_token_leaves_only_over_tls() {
        let offer = SecurityProtocol::ztn(4096);
        assert_eq!(available(Some("t")).credentials(&offer, false).unwrap(), None);
        let auth = available(Some("t")).credentials(&offer, true).unwrap().unwrap();
        assert_eq!(auth.credential_type, *b"ztn\0");
        assert_eq!(available(None).credentials(&offer, true).unwrap(), None);
    }

    #[test]
    fn what_is_not_spoken_is_left_out() {
        let gsi = SecurityProtocol { name: "gsi".into(), arguments: "v:10400".into() };
        assert_eq!(available(Some("t")).credentials(&gsi, true).unwrap(), None);
        assert!(available(None).credentials(&SecurityProtocol::unix(), false).unwrap().is_some());
    }

    #[test]
    fn the_error_says_what_was_offered_and_what_to_do() {
        let error = available(None).exhausted("se.example:1094", &[SecurityProtocol::ztn(4096)], true, None);
        assert_eq!(error.fault(), Fault::AuthenticationFailed);
        assert!(error.message().contains("ztn") && error.message().contains("BEARER_TOKEN"), "{error}");
        let error = available(Some("t")).exhausted("se.example:1094", &[SecurityProtocol::ztn(4096)], false, None);
        assert!(error.message().contains("roots://"), "{error}");
    }
}
