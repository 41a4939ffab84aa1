//! Resource use of this process, under the standard names of Prometheus' client libraries.

use std::path::Path;

use prometheus_client::{
    metrics::{counter::ConstCounter, gauge::ConstGauge},
    registry::{Registry, Unit},
};
use rustix::{
    param::page_size,
    process::{Resource, getrlimit},
    time::{ClockId, clock_gettime},
};
use towpath_store::sys::disk;

/// Maximum number of descriptors that are counted.
const MAX_DESCRIPTORS: usize = 1 << 20;
/// Maximum size of `/proc/self/statm`, in bytes: seven numbers.
const MAX_STATM_BYTES: u64 = 4096;

/// Registers the resource use of this process, which started at `started_s` since the Unix epoch.
pub(super) fn register(registry: &mut Registry, started_s: i64) {
    let processor = clock_gettime(ClockId::ProcessCPUTime);
    #[allow(clippy::cast_precision_loss, reason = "a process does not use 2^52 ns in a second")]
    let seconds = processor.tv_sec as f64 + processor.tv_nsec as f64 / 1e9;
    let help = "Processor time used";
    registry.register_with_unit("process_cpu", help, Unit::Seconds, ConstCounter::new(seconds));
    let started = ConstGauge::new(started_s);
    registry.register_with_unit(
        "process_start_time",
        "Start of the server since the Unix epoch",
        Unit::Seconds,
        started,
    );
    if let Some(bytes) = resident_bytes() {
        let gauge = ConstGauge::new(bytes);
        registry.register_with_unit("process_resident_memory", "Resident memory", Unit::Bytes, gauge);
    }
    if let Ok(open) = disk::entries(Path::new("/proc/self/fd"), MAX_DESCRIPTORS) {
        // Without the descriptor of this listing.
        let open = ConstGauge::new(saturate(open.len().saturating_sub(1)));
        registry.register("process_open_fds", "Open file descriptors", open);
    }
    if let Some(most) = getrlimit(Resource::Nofile).current {
        registry.register(
            "process_max_fds",
            "Maximum number of open file descriptors",
            ConstGauge::new(saturate(most)),
        );
    }
}

/// Returns the second field of `/proc/self/statm`, in bytes.
fn resident_bytes() -> Option<i64> {
    let statm = disk::read(Path::new("/proc/self/statm"), MAX_STATM_BYTES).ok()?;
    let pages: u64 = std::str::from_utf8(&statm).ok()?.split(' ').nth(1)?.parse().ok()?;
    Some(saturate(pages.saturating_mul(page_size() as u64)))
}

/// Converts a number for a gauge, whose values are at most `i64::MAX`.
pub(super) fn saturate(number: impl TryInto<i64>) -> i64 {
    number.try_into().unwrap_or(i64::MAX)
}
