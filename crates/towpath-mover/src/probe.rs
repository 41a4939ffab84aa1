//! Measurements of a path without copying files: the network between memory at both ends, the remote storage, and a
//! prediction of the duration of a copy ([`predict`]).
//!
//! The limits of a leg are attributed to the same causes as for a copy ([`crate::account_builder`]). The bottleneck
//! stage is known in advance.

mod network;
mod predict;
mod scratch;
mod storage;

use std::{collections::HashMap, path, time::Duration};

use towpath_client::Connection;
use towpath_store::sys::clock::{self, Instant};

pub use network::{NetworkMeasurement, network};
pub use predict::{FileSet, PathMeasurement, Prediction, StoragePace};
pub use scratch::Scratch;
pub use storage::{Files, MeasurementOptions, StorageMeasurement, files, read, write};

use crate::{
    Job,
    account::{Account, Leg},
    account_builder::{AccountBuilder, Sample},
    paths,
    stage::{Occupancy, Stage},
};

/// Number of bytes in the measured stage, larger than any bandwidth-delay product, so that the stage always is the
/// bottleneck.
const PLENTY: f64 = 1e15;

/// Returns the initial number of connections of a copy like `job` according to the stored properties of its path
/// ([`crate::Options::paths`]), if any.
pub fn remembered_connections(paths: &path::Path, job: &Job) -> Option<usize> {
    paths::load(paths, &paths::ends(job.from.at(), job.to.at()), clock::unix_s()).map(|metrics| metrics.connections)
}

/// Accumulates the account of one leg.
struct LegRecorder {
    account_builder: AccountBuilder,
    stage: Stage,
    began: Instant,
    is_remote: [bool; 2],
}

impl LegRecorder {
    /// Creates the account of a leg that starts at `began` with all bytes in `stage`. `leg` is `None` for a storage
    /// without a network; `threads` is the CPU time that each thread of this process has used or waited for so far.
    fn new(began: Instant, leg: Option<Leg>, stage: Stage, threads: HashMap<u32, Duration>) -> Self {
        let is_remote = [leg == Some(Leg::In), leg == Some(Leg::Out)];
        let first = sample(began, began, stage, is_remote, 0, Vec::new(), threads);
        Self { account_builder: AccountBuilder::new(first), stage, began, is_remote }
    }

    /// Adds a sample at `at` with `transferred` bytes in total.
    fn add(&mut self, at: Instant, transferred: u64, connections: Vec<Connection>, threads: HashMap<u32, Duration>) {
        self.account_builder.add(sample(at, self.began, self.stage, self.is_remote, transferred, connections, threads));
    }

    fn account(&self) -> Account {
        self.account_builder.account().clone()
    }
}

fn sample(
    at: Instant,
    began: Instant,
    stage: Stage,
    is_remote: [bool; 2],
    transferred: u64,
    connections: Vec<Connection>,
    threads: HashMap<u32, Duration>,
) -> Sample {
    let held = Occupancy::default().with(stage, PLENTY * (at - began).as_secs_f64());
    Sample { at, transferred, files: 0, held, window: u64::MAX, is_limited: false, threads, is_remote, connections }
}
