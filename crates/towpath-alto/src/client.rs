//! An ALTO client: learns from a server what replicas are ordered by. It has no I/O and no clock.
//!
//! Somebody who can fetch documents has a [`Configuration`], reads a [`Directory`], and makes a [`Survey`] of it for one
//! [`Statement`](crate::order::Statement) and the [`Ends`] of the ways: the client and its replicas. As long as [`Survey::question`] has one, it is
//! asked and its answer is given to [`Survey::take`]. Then [`Survey::known`] has the values, and each replica is a [`Candidate`] that the statement
//! can put into order.
//!
//! | what | module |
//! | --- | --- |
//! | metrics as somebody defines them, also in the form of the talk | `configuration` |
//! | what a server has | `directory`, `media_type`, `uri` |
//! | where the value of each name comes from | `need` |
//! | what is asked, and what its answers tell | `survey`, `answers`, `multipart` |
//!
//! A name of a statement is a metric of the configuration; else a cost metric of the server (`delay_ow` is `delay-ow` there); else a property
//! (`continent`, `priv:continent`). Properties are those of the replica, with or without `dst.` before them, and with `src.` those of the client,
//! whichever way the data go.
//!
//! One question is asked for all replicas of a metric (of more than 4000 addresses several). What an answer does not tell stays unknown; no
//! replica gets lost by that. Answers are read leniently, but each is bounded to [`MAX_ANSWER_BYTES`].

mod answers;
mod configuration;
mod directory;
mod error;
mod media_type;
mod multipart;
mod need;
mod survey;
#[cfg(test)]
mod tests;
mod uri;

pub use self::{
    configuration::{Configuration, ConfigurationError, MAX_CONFIGURATION_BYTES, Metric},
    directory::Directory,
    error::{ClientError, Refusal},
    survey::{Candidate, Ends, Known, Question, Survey},
};

/// The longest answer that is read, in bytes: a cost map of a thousand PIDs. In memory it is up to 30 times as much.
pub const MAX_ANSWER_BYTES: usize = 32 << 20;
