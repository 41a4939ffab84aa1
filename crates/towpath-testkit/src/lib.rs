//! What tests need and users do not: faults, reference data, peers to talk with. Never shipped.

pub mod issuer;
