//! The client against peers: a real `xrootd` where there is one, our own server, a network that fails, and a server
//! that does what real ones seldom do.
#![allow(clippy::unwrap_used, reason = "what helps a test may fail it")]

#[path = "it/accepted.rs"]
mod accepted;
#[path = "it/changes.rs"]
mod changes;
#[path = "it/confirming.rs"]
mod confirming;
#[path = "it/dav_answers.rs"]
mod dav_answers;
#[path = "it/denials.rs"]
mod denials;
#[path = "it/failing_store.rs"]
mod failing_store;
#[path = "it/far_ends.rs"]
mod far_ends;
#[path = "it/faults.rs"]
mod faults;
#[path = "it/http_lax.rs"]
mod http_lax;
#[path = "it/http_own.rs"]
mod http_own;
#[path = "it/http_parts.rs"]
mod http_parts;
#[path = "it/http_peers.rs"]
mod http_peers;
#[path = "it/http_reads.rs"]
mod http_reads;
#[path = "it/http_uploads.rs"]
mod http_uploads;
#[path = "it/inquiries.rs"]
mod inquiries;
#[path = "it/lies.rs"]
mod lies;
#[path = "it/listings.rs"]
mod listings;
#[path = "it/lying.rs"]
mod lying;
#[path = "it/own.rs"]
mod own;
#[path = "it/passwords.rs"]
mod passwords;
#[path = "it/peer.rs"]
mod peer;
#[path = "it/proxies.rs"]
mod proxies;
#[path = "it/reference.rs"]
mod reference;
#[path = "it/request_times.rs"]
mod request_times;
#[path = "it/resuming.rs"]
mod resuming;
#[path = "it/s3_peers.rs"]
mod s3_peers;
#[path = "it/s3_requests.rs"]
mod s3_requests;
#[path = "it/same_faults.rs"]
mod same_faults;
#[path = "it/script.rs"]
mod script;
#[path = "it/scripted.rs"]
mod scripted;
#[path = "it/silence.rs"]
mod silence;
#[path = "it/third_party.rs"]
mod third_party;
#[path = "it/trust.rs"]
mod trust;
#[path = "it/upload_streams.rs"]
mod upload_streams;
#[path = "it/web.rs"]
mod web;
