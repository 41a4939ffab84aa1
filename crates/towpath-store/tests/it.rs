//! The stores of this crate against the promises of RFC 0001, and what only a local directory can break.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

#[path = "it/combined.rs"]
mod combined;
#[path = "it/confinement.rs"]
mod confinement;
#[path = "it/conformance.rs"]
mod conformance;
#[path = "it/crash.rs"]
mod crash;
#[path = "it/directory.rs"]
mod directory;
#[path = "it/disk_full.rs"]
mod disk_full;
#[path = "it/following.rs"]
mod following;
#[path = "it/kept_digests.rs"]
mod kept_digests;
#[path = "it/large_directory.rs"]
mod large_directory;
#[path = "it/model.rs"]
mod model;
#[path = "it/power_failure.rs"]
mod power_failure;
#[path = "it/resuming.rs"]
mod resuming;
#[path = "it/rights.rs"]
mod rights;
#[path = "it/sparse.rs"]
mod sparse;
#[path = "it/staging.rs"]
mod staging;
#[path = "it/user_files.rs"]
mod user_files;
