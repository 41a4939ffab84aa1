//! The stores of this crate against the promises of RFC 0001, and what only a local directory can break.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

#[path = "it/conformance.rs"]
mod conformance;
