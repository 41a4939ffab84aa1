//! An ALTO client: learns from a server what replicas are ordered by. It has no I/O and no clock.
//!
//! Somebody who can fetch documents has a [`Configuration`], reads a [`Directory`], and makes a [`Survey`] of it for one
//! [`Statement`](towpath_alto::order::Statement) and the [`Ends`] of the ways: the client and its replicas. As long as [`Survey::question`] has one, it is
//! asked and its answer is given to [`Survey::take`]. Then [`Survey::known`] has the values, and each replica is a [`Candidate`] that the statement
//! can put into order.
//!
//! Other answers are asked for by name ([`Directory::question`]) and read as [`Document`]s. Answers that change are followed by one update stream
//! ([`Directory::stream`]), whose bytes an [`EventReader`] takes apart, or by a TIPS view each ([`Directory::view`]).
//!
//! | what | module |
//! | --- | --- |
//! | metrics as somebody defines them, also in the form of the talk | `configuration` |
//! | where servers are that nobody named | `discovery` |
//! | what a server has | `directory`, `media_type`, `uri` |
//! | what it answers | `document`, `multipart` |
//! | answers that are followed | `follow` and `sse`, or `view`; `held` |
//! | what is asked for another server | `delegation` |
//! | where the value of each name comes from | `need` |
//! | what is asked, and what its answers tell | `survey`, `answers` |
//!
//! A name of a statement is a metric of the configuration; else a cost metric of the server (`delay_ow` is `delay-ow` there); else a property
//! (`continent`, `priv:continent`). Properties are those of the replica, with or without `dst.` before them, and with `src.` those of the client,
//! whichever way the data go.
//!
//! One question is asked for all replicas of a metric (of more than 4000 addresses several). What an answer does not tell stays unknown; no
//! replica gets lost by that. Answers are read leniently, but each is bounded to [`MAX_ANSWER_BYTES`].

mod answers;
mod configuration;
mod delegation;
mod directory;
mod discovery;
mod document;
mod error;
mod follow;
mod held;
mod media_type;
mod multipart;
mod need;
#[cfg(feature = "net")]
pub mod net;
mod sse;
mod survey;
#[cfg(test)]
mod tests;
mod uri;
mod view;

pub use self::{
    configuration::{Configuration, ConfigurationError, MAX_CONFIGURATION_BYTES, Metric},
    delegation::Posting,
    directory::{Directory, Entry},
    discovery::{Discovered, Discovery, DomainName, Naptr, PassedOver},
    document::{Document, Kind, Part},
    error::{ClientError, Refusal},
    follow::{Following, News, Wanted},
    sse::{Event, EventReader, TooLong},
    survey::{Candidate, Ends, Known, Question, Survey},
    view::Viewing,
};

/// The longest answer that is read, in bytes: a cost map of a thousand PIDs. In memory it is up to 30 times as much.
pub const MAX_ANSWER_BYTES: usize = 32 << 20;
