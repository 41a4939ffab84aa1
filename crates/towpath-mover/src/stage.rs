//! The stages of a copy and the bytes in flight in each stage over time.
//!
//! Bytes queue in front of the bottleneck: a stage that holds more bytes than its own latency explains is the one that
//! the other stages wait for. [`crate::account`] derives from it where a copy spent its time.

use std::sync::{Mutex, MutexGuard, PoisonError};

use towpath_store::sys::clock::{self, Instant};

/// A stage of a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Opening the file at the source and creating it at the destination.
    Open,
    /// Waiting for the destination to release an earlier upload of the file.
    Wait,
    /// Reading from the source.
    Read,
    /// Writing to the destination.
    Write,
    /// Committing a complete file.
    Commit,
    /// Computing a digest at one end to compare it with the other.
    Check,
    /// Third-party copy between two sites.
    Elsewhere,
    /// Backoff before a retry of the file.
    Retry,
}

/// Number of stages.
const STAGES: usize = 8;

/// Counts the bytes in each stage.
#[derive(Debug)]
pub(crate) struct Stages(Mutex<State>);

#[derive(Debug)]
struct State {
    at: Instant,
    bytes: [u64; STAGES],
    /// Byte-seconds in each stage until `at`.
    area: Occupancy,
}

/// Byte-seconds in each stage; divided by a duration, the mean number of bytes in the stage.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Occupancy([f64; STAGES]);

/// Counts bytes in a stage until it is dropped.
#[derive(Debug)]
pub(crate) struct StageGuard<'a> {
    stages: &'a Stages,
    stage: Stage,
    bytes: u64,
}

impl Stages {
    /// Creates counters without any bytes.
    pub(crate) fn new() -> Self {
        Self(Mutex::new(State { at: clock::now(), bytes: [0; STAGES], area: Occupancy::default() }))
    }

    /// Adds `bytes` to a stage until the guard is dropped.
    pub(crate) fn enter(&self, stage: Stage, bytes: u64) -> StageGuard<'_> {
        self.state().add(stage, bytes);
        StageGuard { stages: self, stage, bytes }
    }

    /// Returns the byte-seconds in each stage since the start.
    pub(crate) fn area(&self) -> Occupancy {
        let mut state = self.state();
        state.integrate();
        state.area
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn integrate(&mut self) {
        let now = clock::now();
        let seconds = (now - self.at).as_secs_f64();
        self.at = now;
        for (area, bytes) in self.area.0.iter_mut().zip(self.bytes) {
            *area += bytes as f64 * seconds;
        }
    }

    fn add(&mut self, stage: Stage, bytes: u64) {
        self.integrate();
        self.bytes[stage as usize] += bytes;
    }

    fn take(&mut self, stage: Stage, bytes: u64) {
        self.integrate();
        self.bytes[stage as usize] -= bytes;
    }
}

impl StageGuard<'_> {
    /// Moves the bytes to another stage.
    pub(crate) fn pass(&mut self, stage: Stage) {
        let mut state = self.stages.state();
        state.take(self.stage, self.bytes);
        state.add(stage, self.bytes);
        self.stage = stage;
    }
}

impl Drop for StageGuard<'_> {
    fn drop(&mut self) {
        self.stages.state().take(self.stage, self.bytes);
    }
}

impl Occupancy {
    /// Returns the byte-seconds of one stage.
    pub(crate) fn of(&self, stage: Stage) -> f64 {
        self.0[stage as usize]
    }

    /// Sets the byte-seconds of one stage.
    pub(crate) fn with(mut self, stage: Stage, byte_seconds: f64) -> Self {
        self.0[stage as usize] = byte_seconds;
        self
    }

    /// Returns the difference to `earlier`.
    pub(crate) fn since(&self, earlier: &Self) -> Self {
        Self(std::array::from_fn(|stage| self.0[stage] - earlier.0[stage]))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn bytes_count_where_they_are_for_as_long_as_they_are_there() {
        let stages = Stages::new();
        let mut stay = stages.enter(Stage::Read, 10);
        tokio::time::advance(Duration::from_secs(2)).await;
        stay.pass(Stage::Write);
        let other = stages.enter(Stage::Write, 5);
        tokio::time::advance(Duration::from_secs(1)).await;
        let before = stages.area();
        drop((stay, other));
        tokio::time::advance(Duration::from_secs(9)).await;
        assert_eq!(stages.area(), Occupancy::default().with(Stage::Read, 20.0).with(Stage::Write, 15.0));
        assert_eq!(stages.area().since(&before), Occupancy::default());
    }
}
