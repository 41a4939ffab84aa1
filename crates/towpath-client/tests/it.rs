//! The client against peers: a real `xrootd` where there is one, our own server, a network that fails, and a server
//! that does what real ones seldom do.
#![allow(clippy::unwrap_used, reason = "what helps a test may fail it")]

#[path = "it/faults.rs"]
mod faults;
#[path = "it/own.rs"]
mod own;
#[path = "it/peer.rs"]
mod peer;
#[path = "it/reference.rs"]
mod reference;
#[path = "it/script.rs"]
mod script;
#[path = "it/scripted.rs"]
mod scripted;
