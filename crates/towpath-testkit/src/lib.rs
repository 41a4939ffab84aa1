//! What the tests of the other crates share; never shipped.
//!
//! [`conformance`] checks that a store keeps the promises of RFC 0001; [`fault`] wraps a store and breaks it on purpose;
//! [`pattern`] makes content in which each byte tells its place; [`random`] makes all of it repeatable from one seed;
//! [`issuer`] and [`liar`] are peers to talk with; [`socket`] cuts ways.

pub mod conformance;
pub mod fault;
pub mod issuer;
pub mod liar;
pub mod pattern;
pub mod random;
pub mod socket;
