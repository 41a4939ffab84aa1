//! The cache against the promises of RFC 0001, and those of RFC 0008.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

#[path = "it/accounting.rs"]
mod accounting;
#[path = "it/administration.rs"]
mod administration;
#[path = "it/cancelling.rs"]
mod cancelling;
#[path = "it/conformance.rs"]
mod conformance;
#[path = "it/damage.rs"]
mod damage;
#[path = "it/failover.rs"]
mod failover;
#[path = "it/fetching.rs"]
mod fetching;
#[path = "it/forwarding.rs"]
mod forwarding;
#[path = "it/freshness.rs"]
mod freshness;
#[path = "it/model.rs"]
mod model;
#[path = "it/opened_ahead.rs"]
mod opened_ahead;
#[path = "it/origin.rs"]
mod origin;
#[path = "it/rules.rs"]
mod rules;
#[path = "it/space.rs"]
mod space;
#[path = "it/versions.rs"]
mod versions;
