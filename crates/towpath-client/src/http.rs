//! HTTP and WebDAV, the client's side: `http(s)://` and `dav(s)://` sites as stores.
//!
//! | layer | module |
//! | --- | --- |
//! | a site as a [`Store`](towpath_store::Store) | `store`, `stat`, `listing`, `namespace`, `digest` |
//! | a file being read, ranges of it | `read`, `vector` |
//! | an upload, its PUT request, and the channel for its body; multipart uploads | `upload`, `put`, `body_channel`; `parts` |
//! | copies between this site and another | `third_party` |
//! | what answers tell of a file; that they say no | `describe`, `refusal` |
//! | one request over all its attempts: retry, redirect, backoff | `question`, `site`, `retry_state`, `place`; `facts` are what was learnt |
//! | one answer as it arrives | `answer` |
//! | a probe of the network | `probe` |
//! | a question to a service that is no storage | `inquiry` |
//! | connections: TCP, TLS, HTTP/1.1 | `pool`, `payload` |
//!
//! The life of a first read: [`HttpStore`] makes a handle without asking anybody. The read sends a GET with a range; the header of
//! the answer tells size, version and digests, which pins them; the body goes into the caller's buffer. Further reads go side by side,
//! each over its own connection, on condition that the version is still the same (`If-Match`), and what comes is checked again.
//!
//! A bearer token goes only to the site that it is meant for, over TLS or within this machine, whatever redirects say.
//!
//! S3 is spoken over the same sites: `s3`. What is not here: caching.

mod answer;
mod body_channel;
mod concurrency;
mod describe;
mod digest;
mod facts;
mod inquiry;
mod listing;
mod namespace;
mod parts;
mod payload;
mod place;
mod pool;
mod probe;
mod put;
mod question;
mod read;
mod refusal;
mod retry_state;
pub mod s3;
mod site;
mod stat;
mod store;
mod third_party;
mod upload;
mod vector;

pub use inquiry::{Inquiry, Outcome, Reply, Subscription, form};
pub use probe::{End, Probe, Probed, Trace};
pub use site::Sites;
pub use store::HttpStore;
pub(crate) use third_party::Other;
