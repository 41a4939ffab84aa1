//! The pieces of HTTP and WebDAV that a data server and its clients need beyond what hyper does.
//!
//! - [`challenge`]: why a bearer token was refused.
//! - [`date`]: dates in headers, as Unix seconds.
//! - [`condition`]: entity tags, and evaluation of conditional requests.
//! - [`location`]: where a redirect leads.
//! - [`range`]: requested and returned byte ranges; [`multipart`]: responses with several ranges.
//! - [`digest`]: the five header fields that carry checksums.
//! - [`dav`]: the XML of WebDAV requests and answers.
//! - [`tpc`]: progress markers and result of a third-party COPY.
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
