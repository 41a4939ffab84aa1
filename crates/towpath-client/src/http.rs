//! Client side of HTTP and WebDAV: `http(s)://` and `dav(s)://` sites as stores.
//!
//! | layer | module |
//! | --- | --- |
//! | a site as a [`Store`](towpath_store::Store) | `store`, `stat`, `listing`, `namespace`, `digest` |
//! | a file being read, ranges of it | `read`, `vector` |
//! | an upload, its PUT request, and the channel for its body; multipart uploads | `upload`, `put`, `body_channel`; `parts` |
//! | copies between this site and another | `third_party` |
//! | metadata in responses; error responses | `describe`, `refusal` |
//! | one request over all its attempts: retry, redirect, backoff | `request`, `site`, `retry_state`, `target`; `features` are known capabilities |
//! | one response as it arrives | `response` |
//! | a probe of the network | `probe` |
//! | a request to a service that is not a storage | `document` |
//! | connections: TCP, TLS, HTTP/1.1, proxies | `pool`, `tunnel`, `payload` |
//!
//! A first read: [`HttpStore`] creates a handle without a request. The read sends a GET with a range; the header of
//! the response has size, version and digests, which pins them; the body is received into the caller's buffer. Further
//! reads run concurrently, each over its own connection, on condition that the version is unchanged (`If-Match`), and
//! their responses are checked again.
//!
//! A bearer token is sent only to the site that it is intended for, over TLS or within this machine, regardless of
//! redirects.
//!
//! S3 uses the same sites: `s3`. Not here: caching.

mod body_channel;
mod concurrency;
mod describe;
mod digest;
mod document;
mod features;
mod freshness;
mod listing;
mod namespace;
mod parts;
mod payload;
mod pool;
mod probe;
mod put;
mod read;
mod refusal;
mod request;
mod response;
mod retry_state;
pub mod s3;
mod site;
mod stat;
mod store;
mod target;
mod third_party;
mod tunnel;
mod upload;
mod vector;

pub use document::{DocumentRequest, DocumentResponse, DocumentStatus, Subscription, form};
pub use probe::{Probe, ProbeResult, Side, Trace};
pub use site::Sites;
pub use store::HttpStore;
pub(crate) use third_party::PeerSite;
