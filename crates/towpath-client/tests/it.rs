//! The client against peers: a real `xrootd` where there is one, a network that fails, and a server that does what real ones
//! seldom do.
#![allow(clippy::unwrap_used, reason = "what helps a test may fail it")]

#[path = "it/peer.rs"]
mod peer;
#[path = "it/reference.rs"]
mod reference;
