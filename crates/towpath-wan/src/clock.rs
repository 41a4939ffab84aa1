//! The clock of the engine.

use rustix::time::{ClockId, Timespec, clock_gettime};

/// Returns nanoseconds since the machine started.
pub(crate) fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    // Monotonic time is never negative, and 2⁶⁴ ns are 584 years.
    now.tv_sec.unsigned_abs() * 1_000_000_000 + now.tv_nsec.unsigned_abs()
}

/// Converts a duration to the form used by system calls.
pub(crate) fn timespec(span_ns: u64) -> Timespec {
    // Both parts of any u64 of nanoseconds fit.
    Timespec { tv_sec: (span_ns / 1_000_000_000) as i64, tv_nsec: (span_ns % 1_000_000_000) as i64 }
}
