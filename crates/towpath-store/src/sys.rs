//! The seams: every clock, chance, socket and file of towpath comes from here, and clippy refuses them elsewhere.
//! It is what lets a test put a fault or a virtual clock in their place.
#![allow(clippy::disallowed_methods, reason = "this module is the one place that may call them")]

pub mod clock;
pub mod disk;
pub(crate) mod host;
pub mod net;
pub mod processor;
pub mod random;
pub mod writeback;
