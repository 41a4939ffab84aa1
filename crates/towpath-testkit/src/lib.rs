//! Shared test support of the other crates; never shipped.
//!
//! [`conformance`] checks that a store keeps the promises of RFC 0001; [`fault`] wraps a store and breaks it on
//! purpose; [`limited_store`] takes capabilities away; [`pattern`] creates content whose bytes depend on their offsets;
//! [`random`] makes it repeatable from one seed; [`issuer`] and [`misbehaving_server`] are test peers; [`socket`] breaks
//! connections.

pub mod conformance;
pub mod fault;
pub mod issuer;
pub mod limited_store;
pub mod misbehaving_server;
pub mod pattern;
pub mod random;
pub mod socket;
pub mod volume;
