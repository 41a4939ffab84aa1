//! The only access to clocks, random numbers, sockets, files and environment variables of the host; clippy rejects it elsewhere. Tests can
//! therefore inject faults or a virtual clock.
#![allow(clippy::disallowed_methods, reason = "this module is the one place that may call them")]

pub mod clock;
pub mod disk;
pub mod environment;
pub(crate) mod host;
pub mod net;
pub mod processes;
pub mod processor;
pub mod random;
pub mod volume;
pub(crate) mod writeback;
