//! Prediction of the duration of a copy from measurements of a path.

use std::time::Duration;

/// The files of a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FileSet {
    /// Number of files.
    pub files: u64,
    /// Total size in bytes.
    pub bytes: u64,
}

/// Measurement of a path in one direction.
#[derive(Debug, Clone)]
pub struct PathMeasurement {
    /// Minimum round trip.
    pub round_trip: Duration,
    /// Duration of the connection setup.
    pub connect: Duration,
    /// Seconds since the first request and bytes received by then, both increasing; includes slow start. At least one
    /// point.
    pub ramp: Vec<(f64, f64)>,
    /// Rate in bytes per second after slow start.
    pub settled_rate: f64,
    /// The slower storage.
    pub storage: StoragePace,
    /// Seconds per additional file; `None` if not measured.
    pub seconds_a_file: Option<f64>,
}

/// What a measurement says about the slower storage of a copy.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum StoragePace {
    /// It was not measured.
    Unknown,
    /// It is at least as fast as the network, with which it was measured.
    KeepsUp,
    /// Its rate in bytes per second.
    Rate(f64),
}

/// The predicted duration of a copy.
#[derive(Debug, Clone, PartialEq)]
pub struct Prediction {
    /// Total duration in seconds.
    pub seconds: f64,
    /// Seconds until the first byte, and from the last byte to the commit.
    pub setup_s: f64,
    /// Seconds that the network takes for the bytes.
    pub network_s: f64,
    /// Seconds that the storages take for the bytes; `None` if they were not measured, or keep up with the network.
    pub storage_s: Option<f64>,
    /// Seconds for opening, creating and committing files.
    pub files_s: f64,
    /// Assumptions of the prediction.
    pub assumptions: Vec<&'static str>,
}

/// Round trips between connecting and the first byte: handshake, login, `stat` of source and destination, open.
const SETUP_ROUND_TRIPS: u32 = 4;

/// Round trips after the last byte: its transfer and the commit.
const CLOSING_ROUND_TRIPS: u32 = 1;

/// Bytes of requests and responses per file.
const REQUEST_BYTES: u64 = 512;

/// CPU seconds per file of both ends, if not measured: 10,000 files of 10 kB take 2.9 s on two cores shared by both
/// ends (docs/concepts/tuning.md).
const SECONDS_A_FILE: f64 = 0.000_25;

impl FileSet {
    /// Adds a file of `bytes`. Counters saturate.
    pub fn add(&mut self, bytes: u64) {
        self.files = self.files.saturating_add(1);
        self.bytes = self.bytes.saturating_add(bytes);
    }
}

impl Prediction {
    /// Predicts a copy of `set`. Network, storages and files overlap, so the slowest of them determines the duration.
    pub fn new(path: &PathMeasurement, set: FileSet) -> Self {
        let mut assumptions = vec!["the path carries no other traffic and does not change"];
        let setup_s = (path.connect + path.round_trip * (SETUP_ROUND_TRIPS + CLOSING_ROUND_TRIPS)).as_secs_f64();
        let network_s = path.seconds(set.bytes.saturating_add(set.files.saturating_mul(REQUEST_BYTES)) as f64);
        let storage_s = match path.storage {
            StoragePace::Rate(rate) => Some(set.bytes as f64 / rate.max(1.0)),
            StoragePace::Unknown | StoragePace::KeepsUp => None,
        };
        if path.storage == StoragePace::Unknown {
            assumptions.push("the storages keep up with the network (not measured)");
        }
        let seconds_a_file = path.seconds_a_file.unwrap_or(SECONDS_A_FILE);
        if path.seconds_a_file.is_none() && set.files > 1 {
            assumptions.push("each file adds 0.25 ms (not measured)");
        }
        let files_s = set.files as f64 * seconds_a_file;
        let seconds = setup_s + network_s.max(files_s).max(storage_s.unwrap_or(0.0));
        Self { seconds, setup_s, network_s, storage_s, files_s, assumptions }
    }

    /// Returns the name of the largest part.
    pub fn bound(&self) -> &'static str {
        let storage_s = self.storage_s.unwrap_or(0.0);
        let parts = [
            ("network", self.network_s),
            ("storage", storage_s),
            ("files", self.files_s),
            ("round trips", self.setup_s),
        ];
        parts.into_iter().max_by(|a, b| a.1.total_cmp(&b.1)).map_or("", |(name, _)| name)
    }
}

impl PathMeasurement {
    /// Returns the duration of a transfer of `bytes`: as measured in the probe, and beyond it at the settled rate.
    fn seconds(&self, bytes: f64) -> f64 {
        let mut before = (0.0, 0.0);
        for point in &self.ramp {
            if point.1 >= bytes {
                let share = (bytes - before.1) / (point.1 - before.1).max(1.0);
                return before.0 + share.clamp(0.0, 1.0) * (point.0 - before.0);
            }
            before = *point;
        }
        before.0 + (bytes - before.1) / self.settled_rate.max(1.0)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// 100 MB/s after one second of slow start, over 100 ms.
    fn path() -> PathMeasurement {
        PathMeasurement {
            round_trip: Duration::from_millis(100),
            connect: Duration::from_millis(100),
            ramp: vec![(0.0, 0.0), (0.5, 5e6), (1.0, 40e6), (2.0, 140e6)],
            settled_rate: 100e6,
            storage: StoragePace::Unknown,
            seconds_a_file: None,
        }
    }

    fn seconds(path: &PathMeasurement, files: u64, bytes: u64) -> f64 {
        (Prediction::new(path, FileSet { files, bytes }).seconds * 1e3).round() / 1e3
    }

    #[test]
    fn a_large_file_takes_what_the_network_takes_and_the_round_trips() {
        assert_eq!(seconds(&path(), 1, 1_140_000_000 - 512), 0.6 + 2.0 + 10.0);
        assert_eq!(seconds(&path(), 1, 5_000_000 - 512), 0.6 + 0.5, "windows open as they did");
        assert_eq!(Prediction::new(&path(), FileSet { files: 1, bytes: 0 }).bound(), "round trips");
    }

    #[test]
    fn the_slowest_decides() {
        let slow = PathMeasurement { storage: StoragePace::Rate(50e6), ..path() };
        assert_eq!(seconds(&slow, 1, 1_000_000_000), 20.6);
        let many = PathMeasurement { seconds_a_file: Some(0.01), ..path() };
        assert_eq!(seconds(&many, 10_000, 100_000_000), 100.6);
        assert_eq!(Prediction::new(&many, FileSet { files: 10_000, bytes: 100_000_000 }).bound(), "files");
    }

    #[test]
    fn what_was_not_measured_is_said() {
        let told = |path: &PathMeasurement| Prediction::new(path, FileSet { files: 2, bytes: 2 }).assumptions.len();
        assert_eq!(told(&path()), 3);
        for storage in [StoragePace::Rate(1.0), StoragePace::KeepsUp] {
            assert_eq!(told(&PathMeasurement { storage, seconds_a_file: Some(1.0), ..path() }), 1);
        }
    }

    #[test]
    fn sizes_that_no_storage_has_are_no_trouble() {
        let mut set = FileSet { files: u64::MAX, bytes: u64::MAX - 1 };
        set.add(1000);
        assert_eq!(set, FileSet { files: u64::MAX, bytes: u64::MAX });
        for path in [path(), PathMeasurement { storage: StoragePace::Rate(0.0), settled_rate: 0.0, ..path() }] {
            assert!(Prediction::new(&path, set).seconds.is_finite());
        }
    }

    proptest! {
        #[test]
        fn more_takes_longer(files in 0..1_u64 << 32, bytes in 0..1_u64 << 50, more in 0..1_u64 << 40) {
            let of = |files, bytes| Prediction::new(&path(), FileSet { files, bytes }).seconds;
            prop_assert!(of(files, bytes + more) >= of(files, bytes));
            prop_assert!(of(files + more % 1000, bytes) >= of(files, bytes));
        }
    }
}
