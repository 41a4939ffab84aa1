//! Where the bytes in flight are: the stages that a file passes, and how much was in each over time.
//!
//! Work gathers before whatever is slow. So the stage that holds more bytes than their way through it takes by itself is the one that the
//! others wait for; [`crate::account`] makes of it what a copy spent its time on.

use std::sync::{Mutex, MutexGuard, PoisonError};

use towpath_store::sys::clock::{self, Instant};

/// What is being waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    /// A file is opened at its source and made at its destination.
    Open,
    /// The destination still holds an earlier upload of a file.
    Wait,
    /// Bytes come from the source.
    Read,
    /// Bytes go to the destination.
    Write,
    /// A file is whole, and is being shown under its name.
    Commit,
    /// One of the ends computes a digest, which the other one is compared with.
    Check,
    /// Two sites copy a file between themselves.
    Elsewhere,
}

/// So many stages there are.
const STAGES: usize = 7;

/// Bytes in each stage.
#[derive(Debug)]
pub(crate) struct Stages(Mutex<State>);

#[derive(Debug)]
struct State {
    at: Instant,
    bytes: [u64; STAGES],
    /// Bytes times seconds until then.
    area: Occupancy,
}

/// Byte seconds in each stage; divided by a time, the bytes that were there on average.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Occupancy([f64; STAGES]);

/// Bytes in a stage, until it is dropped.
#[derive(Debug)]
pub(crate) struct Stay<'a> {
    stages: &'a Stages,
    stage: Stage,
    bytes: u64,
}

impl Stages {
    /// Nothing anywhere.
    pub(crate) fn new() -> Self {
        Self(Mutex::new(State { at: clock::now(), bytes: [0; STAGES], area: Occupancy::default() }))
    }

    /// `bytes` come to a stage.
    pub(crate) fn enter(&self, stage: Stage, bytes: u64) -> Stay<'_> {
        self.state().add(stage, bytes);
        Stay { stages: self, stage, bytes }
    }

    /// What was in each stage since the beginning.
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

impl Stay<'_> {
    /// They go on to another stage.
    pub(crate) fn pass(&mut self, stage: Stage) {
        let mut state = self.stages.state();
        state.take(self.stage, self.bytes);
        state.add(stage, self.bytes);
        self.stage = stage;
    }
}

impl Drop for Stay<'_> {
    fn drop(&mut self) {
        self.stages.state().take(self.stage, self.bytes);
    }
}

impl Occupancy {
    /// Of one stage.
    pub(crate) fn of(&self, stage: Stage) -> f64 {
        self.0[stage as usize]
    }

    /// One that has so much in one stage.
    pub(crate) fn with(mut self, stage: Stage, byte_seconds: f64) -> Self {
        self.0[stage as usize] = byte_seconds;
        self
    }

    /// What came since `earlier`.
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
