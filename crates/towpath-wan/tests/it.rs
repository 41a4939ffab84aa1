//! The emulator with real namespaces and the kernel's TCP. Requires root; otherwise the tests are skipped with a
//! message.
#![allow(clippy::unwrap_used, reason = "what helps a test may fail it")]

#[path = "it/ending.rs"]
mod ending;
#[path = "it/hosts.rs"]
mod hosts;
#[path = "it/lab.rs"]
mod lab;
#[path = "it/transfers.rs"]
mod transfers;
