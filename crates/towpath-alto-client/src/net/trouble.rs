//! Why nothing can be learnt of a server.

use crate::ClientError;
use towpath_store::{Error, Fault, Kind};

/// Why there is no answer, or it is of no use.
#[derive(Debug, Clone, thiserror::Error)]
pub enum AltoTrouble {
    /// The server does not answer, or it does not give what it lists.
    #[error(transparent)]
    Unanswered(#[from] Error),
    /// What the server has or says is of no use, or what is asked for makes no sense.
    #[error(transparent)]
    Useless(#[from] ClientError),
    /// What the caller gave cannot be used: a list of replicas, or a configuration.
    #[error("{0}")]
    Unusable(String),
    /// Nobody named a server, and the DNS has none.
    #[error("{0}")]
    Unfound(String),
}

impl AltoTrouble {
    /// That no host in the list has an address, so that nothing can be asked: rather the name server's fault than that of so many.
    pub fn no_addresses() -> Self {
        let message = "none of the hosts in the list has an address: can the name server be reached?";
        Self::Unanswered(Error::new(Fault::Unavailable, message))
    }

    /// The same of a question that a statement made. It is well-formed, so who refuses it is to blame, as one that does not answer is.
    pub(super) fn of_survey(self) -> Self {
        match self {
            Self::Useless(refused @ ClientError::Refused { .. }) => {
                Self::Unanswered(Error::new(Fault::Unavailable, refused.to_string()))
            }
            other => other,
        }
    }

    /// Whether the server or the network is to blame, and not the one who asks.
    pub fn is_servers(&self) -> bool {
        match self {
            Self::Unanswered(error) => !matches!(error.fault(), Fault::AuthenticationFailed | Fault::PermissionDenied),
            Self::Useless(error) => !error.is_askers(),
            Self::Unusable(_) | Self::Unfound(_) => false,
        }
    }

    /// Whether the server refuses this one question, and may answer another: it says so as ALTO servers do, or that the question is bad or too long, or the answer is too long. That it
    /// forbids something, or has not what it lists, may come from a proxy, and then all questions share it.
    pub fn is_refusal(&self) -> bool {
        match self {
            Self::Unanswered(error) => {
                matches!(error.fault(), Fault::InvalidArgument | Fault::NameTooLong | Fault::TooLarge)
            }
            Self::Useless(error) => matches!(error, ClientError::Refused { .. }),
            Self::Unusable(_) | Self::Unfound(_) => false,
        }
    }

    /// What the caller can do about it.
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

    /// Whether it may go by itself: the same is worth being asked again, after a while.
    pub(super) fn is_passing(&self) -> bool {
        matches!(self.kind(), Kind::Unavailable | Kind::Corrupt | Kind::Internal)
    }

    /// Whether the server has not what it was asked for, which it may have had before, and have again.
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

    /// Whether there is more than is taken.
    pub(super) fn is_too_much(&self) -> bool {
        match self {
            Self::Unanswered(error) => error.fault() == Fault::TooLarge,
            Self::Useless(error) => matches!(error, ClientError::TooMuch { .. }),
            _ => false,
        }
    }

    /// Whether no answer came in the time allowed.
    pub fn is_late(&self) -> bool {
        matches!(self, Self::Unanswered(error) if error.fault() == Fault::TimedOut)
    }
}
