//! Errors of the ALTO client.

use crate::ClientError;
use towpath_store::{Error, Fault, Kind};

/// Why there is no usable response.
#[derive(Debug, Clone, thiserror::Error)]
pub enum AltoError {
    /// The server does not respond, or lacks a resource that it lists.
    #[error(transparent)]
    Unanswered(#[from] Error),
    /// The response is unusable, or the request is invalid.
    #[error(transparent)]
    Useless(#[from] ClientError),
    /// Input of the caller is invalid: a list of replicas, or a configuration.
    #[error("{0}")]
    Unusable(String),
    /// No server was named, and DNS has none.
    #[error("{0}")]
    Unfound(String),
}

impl AltoError {
    /// Creates the error that no host in the list has an address. More likely a fault of the name server than of all
    /// hosts.
    pub fn no_addresses() -> Self {
        let message = "none of the hosts in the list has an address: can the name server be reached?";
        Self::Unanswered(Error::new(Fault::Unavailable, message))
    }

    /// Converts the error of a query plan. Its requests are well-formed, so that a refusal is the server's fault, like
    /// a missing response.
    pub(super) fn of_survey(self) -> Self {
        match self {
            Self::Useless(refused @ ClientError::Refused { .. }) => {
                Self::Unanswered(Error::new(Fault::Unavailable, refused.to_string()))
            }
            other => other,
        }
    }

    /// Returns whether the server or the network is at fault, not the caller.
    pub fn is_servers(&self) -> bool {
        match self {
            Self::Unanswered(error) => {
                !matches!(error.fault(), Fault::AuthenticationFailed | Fault::PermissionDenied | Fault::ServerUntrusted)
            }
            Self::Useless(error) => !error.is_caller_error(),
            Self::Unusable(_) | Self::Unfound(_) => false,
        }
    }

    /// Returns whether the server refuses this request but may answer others: by an ALTO error, or because the request
    /// is invalid or too long, or the response too large. A denial or a missing resource may come from a proxy, and
    /// then affects all requests.
    pub fn is_refusal(&self) -> bool {
        match self {
            Self::Unanswered(error) => {
                matches!(error.fault(), Fault::InvalidArgument | Fault::NameTooLong | Fault::TooLarge)
            }
            Self::Useless(error) => matches!(error, ClientError::Refused { .. }),
            Self::Unusable(_) | Self::Unfound(_) => false,
        }
    }

    /// Returns what the caller can do about it.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Unanswered(error) => error.kind(),
            Self::Useless(ClientError::NoSuch { .. } | ClientError::Stopped { .. }) | Self::Unfound(_) => {
                Kind::NotFound
            }
            Self::Useless(ClientError::Malformed { .. } | ClientError::Unfit { .. }) => Kind::Corrupt,
            Self::Useless(ClientError::Changed { .. }) => Kind::Unavailable,
            Self::Useless(_) | Self::Unusable(_) => Kind::Invalid,
        }
    }

    /// Returns whether the error may be temporary, so that a later retry makes sense.
    pub(super) fn is_passing(&self) -> bool {
        matches!(self.kind(), Kind::Unavailable | Kind::Corrupt | Kind::Internal)
    }

    /// Returns whether the server lacks the resource, which it may have had before and may have again.
    pub(super) fn is_absence(&self) -> bool {
        match self {
            Self::Unanswered(error) => error.fault() == Fault::NotFound,
            Self::Useless(ClientError::Refused { refusal, .. }) => {
                let field = refusal.field.as_deref().and_then(|field| field.rsplit('/').next());
                refusal.code == "E_INVALID_FIELD_VALUE" && field == Some("resource-id")
            }
            _ => false,
        }
    }

    /// Returns whether a size limit was exceeded.
    pub(super) fn is_too_much(&self) -> bool {
        match self {
            Self::Unanswered(error) => error.fault() == Fault::TooLarge,
            Self::Useless(error) => matches!(error, ClientError::TooMuch { .. }),
            _ => false,
        }
    }

    /// Returns whether the request timed out.
    pub fn is_late(&self) -> bool {
        matches!(self, Self::Unanswered(error) if error.fault() == Fault::TimedOut)
    }
}
