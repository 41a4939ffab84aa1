//! An ALTO client: obtains values for ordering replicas from a server. Outside of [`net`] it has no I/O and no clock.
//!
//! The caller fetches the documents. Given a [`Configuration`], it reads a [`Directory`] and creates a [`QueryPlan`] of
//! it for a [`Statement`](towpath_alto::order::Statement) and the [`TransferEndpoints`] of the paths: the client and
//! its replicas. While [`QueryPlan::next_request`] returns a request, the caller sends it and passes the response to
//! [`QueryPlan::take`]. Then [`QueryPlan::replica_values`] has the values, and each replica is a [`Candidate`] that the
//! statement can order.
//!
//! Other resources are requested by id ([`Directory::request`]) and parsed as [`Document`]s. To follow changes, the
//! caller opens one update stream for all of them ([`Directory::stream`]), whose bytes an [`EventReader`] splits into
//! events, or one TIPS view for each ([`Directory::view`]).
//!
//! | topic | module |
//! | --- | --- |
//! | user-defined metrics, also in the notation of the talk | `configuration` |
//! | discovery of servers | `discovery` |
//! | resources of a server | `directory`, `media_type`, `uri` |
//! | responses | `document`, `multipart` |
//! | followed responses | `follow` and `sse`, or `view`; `held` |
//! | queries on behalf of another server | `delegation` |
//! | source of each value in a statement | `need` |
//! | requests, and values extracted from responses | `query_plan`, `answers` |
//!
//! A name in a statement is a metric of the configuration, else a cost metric of the server (`delay_ow` maps to
//! `delay-ow`), else a property (`continent`, `priv:continent`). Properties refer to the replica, with or without a
//! `dst.` prefix, and to the client with `src.`, regardless of the direction of the data.
//!
//! One request covers all replicas for a metric (several if there are more than 4000 addresses). Values missing from
//! a response stay unknown; the replica remains in the order. Responses are parsed leniently, but each is limited to
//! [`MAX_ANSWER_BYTES`].

mod configuration;
mod delegation;
mod directory;
mod discovery;
mod document;
mod error;
mod follow;
mod followed_response;
#[cfg(feature = "net")]
pub mod net;
mod query_plan;
mod responses;
mod sse;
#[cfg(test)]
mod tests;
mod uri;
mod value_source;
mod view;

pub use self::{
    configuration::{Configuration, ConfigurationError, MAX_CONFIGURATION_BYTES, Metric},
    delegation::ResourceRequest,
    directory::{Directory, Entry},
    discovery::{Discovery, DiscoveryResult, DomainName, IgnoredRecord, Naptr},
    document::{Document, Kind, Part},
    error::{ClientError, ErrorResponse},
    follow::{FollowEvent, FollowTarget, StreamFollower},
    query_plan::{Candidate, QueryPlan, ReplicaValues, Request, TransferEndpoints},
    sse::{Event, EventReader, EventTooLong},
    view::ViewFollower,
};

/// Maximum size of a response in bytes: a cost map of a thousand PIDs. In memory it takes up to 30 times as much.
pub(crate) const MAX_ANSWER_BYTES: usize = 32 << 20;
