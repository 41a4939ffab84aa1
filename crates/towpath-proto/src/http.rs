//! The pieces of HTTP and WebDAV that a data server and its clients need beyond what hyper does.
//!
//! - [`challenge`]: why a bearer token was refused.
//! - [`date`]: dates in headers, as Unix seconds.
//! - [`condition`]: entity tags, and whether a conditional request is to be carried out.
//! - [`location`]: where a redirect leads.
//! - [`range`]: which bytes are asked for, and which an answer brings; [`multipart`]: answers with several ranges.
//! - [`digest`]: the five ways in which checksums travel in headers.
//! - [`dav`]: the XML of WebDAV requests and answers.
//! - [`tpc`]: what the answer to a third-party COPY tells of it.
//!
//! All of it works on values of header fields and on bytes of bodies. Requests, connections and policy are elsewhere.

pub mod challenge;
pub mod condition;
pub mod date;
pub mod dav;
pub mod digest;
pub mod location;
pub mod media_type;
pub mod multipart;
pub mod range;
pub mod tpc;
