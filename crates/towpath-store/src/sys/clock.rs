//! Clocks. Durations use tokio's clock, which tests may pause; dates come from the system.

use std::time::{SystemTime, UNIX_EPOCH};

pub use tokio::time::Instant;

/// Returns the current instant, to measure durations.
pub fn now() -> Instant {
    Instant::now()
}

/// Returns the date in nanoseconds since the Unix epoch.
pub fn unix_ns() -> i64 {
    match SystemTime::now().duration_since(UNIX_EPOCH) {
        Ok(since) => i64::try_from(since.as_nanos()).unwrap_or(i64::MAX),
        Err(before) => i64::try_from(before.duration().as_nanos()).map_or(i64::MIN, |ns| -ns),
    }
}

/// Returns the date in whole seconds since the Unix epoch.
pub fn unix_s() -> i64 {
    unix_ns().div_euclid(1_000_000_000)
}
