//! The decisions of the transfer scheduler: how many connections each pipe may use.
//!
//! A pipe is all transfers from one storage to another. Once per period an [`optimiser::Optimiser`] receives the
//! measurements of a [`period::Period`] and returns one [`period::Decision`] per pipe, with its reason. [`shares`]
//! computes the fair rates of pipes over a [`network`]. [`completion`] forecasts the time to complete of requests.
//! [`simulation`] runs an optimiser against a model of a network,
//! with every file, and compares the result with the bound that no schedule can beat. RFC 0009
//! (`docs/rfcs/0009-scheduler-optimisers.md`) explains the design.
//!
//! The crate does no I/O and reads no clock: a simulation and a service call the same code.

pub mod completion;
pub mod limits;
pub mod network;
pub mod optimiser;
pub mod period;
pub mod shares;
pub mod simulation;
