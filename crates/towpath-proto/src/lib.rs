//! Encoding and decoding of all protocols that towpath supports, without I/O or clock.

pub mod checksum;
pub mod destination_policy;
pub mod fault;
pub mod http;
pub mod metalink;
pub mod probe;
pub mod s3;
#[cfg(feature = "schema")]
pub mod schema;
pub mod tcp;
pub mod units;
pub mod url;
pub mod xrootd;
pub mod zip;
