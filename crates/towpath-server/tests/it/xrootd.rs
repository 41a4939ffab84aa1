//! The xroot face, tested frame by frame, including requests that no well-behaved client would send.

mod attributes;
mod bound_connections;
mod broken_requests;
mod checksums;
mod fair_shares;
mod golden;
mod handles;
mod limits;
mod login;
mod mixture;
mod names;
mod peer;
mod pipelining;
mod reads;
mod resuming;
mod sharing;
mod third_party;
mod tls;
mod writes;
