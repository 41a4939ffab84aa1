//! The parts of HTTP and WebDAV that a data server and its clients need in addition to hyper.
//!
//! - [`cache_control`]: the directives for caches.
//! - [`challenge`]: the reason for rejecting a bearer token.
//! - [`date`]: dates in headers, as Unix seconds.
//! - [`condition`]: entity tags, and evaluation of conditional requests.
//! - [`location`]: the target of a redirect.
//! - [`range`]: requested and returned byte ranges; [`multipart`]: responses with several ranges.
//! - [`digest`]: the header fields that contain checksums.
//! - [`dav`]: the XML of WebDAV requests and responses.
//! - [`tpc`]: progress markers and result of a third-party COPY.
//!
//! All of it operates on values of header fields and on bytes of bodies. Requests, connections and policy are
//! elsewhere.

pub mod cache_control;
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
