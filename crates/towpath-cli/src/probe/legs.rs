//! The measured legs, and those that were not measured.

use std::time::Duration;

use tokio::time::timeout;
use towpath_mover::{
    Account, Cause, StoreLocation,
    probe::{self, Files, MeasurementOptions, NetworkMeasurement, Scratch, StorageMeasurement},
};
use towpath_proto::probe::Direction;
use towpath_store::{Error, Fault};

use crate::{
    args,
    failure::{Failure, complain},
    location::StoreResolver,
};

/// Size in bytes of the files for the measurement of the cost per file.
const FILE_BYTES: usize = 10_000;

/// Numbers of files: their difference gives the cost of each additional file.
const FILE_COUNTS: [usize; 2] = [64, 576];

/// Time limit of the measurement of the cost per file, as a multiple of the duration of other legs.
const FILES_PATIENCE: u32 = 4;

/// Ratio below which a storage, compared with the network at the same time, counts as the bottleneck of a copy.
const SLOWER: f64 = 0.75;

/// Minimum fraction of the time of a leg that a storage was waited for, if the storage is the bottleneck: over a long path
/// the leg can also be slow because of slow start and losses.
const WAITED: f64 = 0.25;

/// Bytes in flight if the path was not measured.
const WINDOW: u64 = 16 << 20;

/// The results of all legs.
#[derive(Debug, Default)]
pub(super) struct ProbeResults {
    /// The network alone.
    pub(super) network: Vec<NetworkMeasurement>,
    /// Read of a file at the server.
    pub(super) far_read: Option<StorageMeasurement>,
    /// Write of a file to the server.
    pub(super) far_write: Option<StorageMeasurement>,
    /// Read of a file on the local disk.
    pub(super) near_read: Option<StorageMeasurement>,
    /// Write of a file to the local disk.
    pub(super) near_write: Option<StorageMeasurement>,
    /// Cost per file at the server.
    pub(super) files: Option<Files>,
    /// Minimum round-trip time of the connections to the storage.
    storage_round_trip: Option<Duration>,
    /// Legs that could not be measured, with the errors.
    pub(super) skipped: Vec<(&'static str, Error)>,
    /// Legs that were not requested, with the reasons.
    pub(super) not_requested: Vec<(&'static str, &'static str)>,
}

impl ProbeResults {
    /// Records that a leg could not be measured.
    pub(super) fn skip(&mut self, leg: &'static str, error: Error) {
        self.skipped.push((leg, error));
    }

    /// Returns whether nothing was measured.
    pub(super) fn are_empty(&self) -> bool {
        let storage = [&self.far_read, &self.far_write, &self.near_read, &self.near_write];
        self.network.is_empty() && storage.into_iter().all(Option::is_none)
    }

    /// Returns the first error as the reason why nothing was measured, and prints the others.
    pub(super) fn failure(&self) -> Failure {
        self.skipped.iter().skip(1).for_each(|(leg, error)| complain(format_args!("{leg}: not measured: {error}")));
        let first = self.skipped.first().map(|(_, error)| error.clone().into());
        first.unwrap_or_else(|| Failure::internal("nothing was measured"))
    }

    /// Returns the minimum round-trip time of all connections.
    pub(super) fn round_trip(&self) -> Option<Duration> {
        self.network.iter().filter_map(NetworkMeasurement::round_trip).chain(self.storage_round_trip).min()
    }

    /// Returns the network leg with the number of connections that a copy would use; `None` if this direction was not
    /// measured.
    pub(super) fn best(&self, direction: Direction) -> Option<&NetworkMeasurement> {
        let lines = self.network.iter().filter(|line| line.probe.direction == direction);
        lines.max_by(|a, b| a.utility().total_cmp(&b.utility()))
    }

    /// Returns the slower of the two storages of a direction, with its name; `None` if neither was measured.
    pub(super) fn storage(&self, direction: Direction) -> Option<(&'static str, &StorageMeasurement)> {
        let ends = match direction {
            Direction::Down => [("storage read", &self.far_read), ("own disk write", &self.near_write)],
            Direction::Up => [("own disk read", &self.near_read), ("storage write", &self.far_write)],
        };
        let ends = ends.into_iter().filter_map(|(name, line)| Some((name, line.as_ref()?)));
        ends.min_by(|a, b| a.1.rate().total_cmp(&b.1.rate()))
    }

    /// Returns whether a copy would wait for the storage rather than for the network. The mean rate of the network
    /// counts too, because the storage leg also includes slow start.
    pub(super) fn is_slower(storage: &StorageMeasurement, network: &NetworkMeasurement) -> bool {
        let is_behind = storage.rate() < SLOWER * network.mean_rate().min(network.settled_rate());
        is_behind && waited_for_storage(&storage.account) >= WAITED
    }

    fn measurement_options(&self, direction: Direction, duration: Duration) -> MeasurementOptions {
        let holds =
            |line: &NetworkMeasurement| line.settled_rate() * line.round_trip().unwrap_or_default().as_secs_f64();
        let window = self.best(direction).map_or(WINDOW, |line| (2.0 * holds(line)) as u64);
        MeasurementOptions { duration, window }
    }

    /// Reads a file at the server.
    pub(super) async fn read(&mut self, resolver: &StoreResolver, file: &StoreLocation, length: Duration) {
        match probe::read(&resolver.client(), file, self.measurement_options(Direction::Down, length)).await {
            Ok(line) => self.far_read = Some(line),
            Err(error) => self.skip("storage read", file.locate(error)),
        }
        self.note_round_trip(resolver);
    }

    /// Measures writes to a directory at the server, if requested.
    pub(super) async fn write(
        &mut self,
        arguments: &args::Probe,
        resolver: &StoreResolver,
        above: Option<StoreLocation>,
        length: Duration,
    ) {
        let Some(above) = above.filter(|_| arguments.write) else {
            self.not_requested.push(("storage write", "nothing is written at the server without --write"));
            return;
        };
        let scratch = match Scratch::new(&above, resolver.afterwards()).await {
            Ok(scratch) => scratch,
            Err(error) => return self.skip("storage write", above.locate(error)),
        };
        match probe::write(&resolver.client(), &scratch, self.measurement_options(Direction::Up, length)).await {
            Ok((line, _)) => self.far_write = Some(line),
            Err(error) => self.skip("storage write", error),
        }
        match timeout(length * FILES_PATIENCE, probe::files(&scratch, FILE_BYTES, FILE_COUNTS)).await {
            Ok(Ok(files)) => self.files = Some(files),
            Ok(Err(error)) => self.skip("files", error),
            Err(_) => self.skip(
                "files",
                Error::new(Fault::TimedOut, "the path is too slow for the measurement of the cost per file"),
            ),
        }
        scratch.remove().await;
        self.note_round_trip(resolver);
    }

    /// Measures writes to a local directory, and reads from it.
    pub(super) async fn disk(&mut self, resolver: &StoreResolver, above: &StoreLocation, length: Duration) {
        let scratch = match Scratch::new(above, resolver.afterwards()).await {
            Ok(scratch) => scratch,
            Err(error) => return self.skip("own disk", error),
        };
        let client = resolver.client();
        let options = MeasurementOptions { duration: length, window: WINDOW };
        match probe::write(&client, &scratch, options).await {
            Ok((line, file)) => {
                self.near_write = Some(line);
                match probe::read(&client, &file, options).await {
                    Ok(line) => self.near_read = Some(line),
                    Err(error) => self.skip("own disk read", error),
                }
            }
            Err(error) => self.skip("own disk write", error),
        }
        scratch.remove().await;
    }

    /// Records the minimum round-trip time of the connections of the client.
    pub(super) fn note_round_trip(&mut self, resolver: &StoreResolver) {
        let seen = resolver.client().connections().into_iter().map(|connection| connection.info.min_rtt);
        let least = seen.filter(|round_trip| !round_trip.is_zero()).chain(self.storage_round_trip).min();
        self.storage_round_trip = least;
    }
}

/// Returns the fraction of the time that a storage was, or can have been, waited for.
fn waited_for_storage(account: &Account) -> f64 {
    let is_storage = |cause: Cause| {
        matches!(
            cause,
            Cause::SourceRead | Cause::DestinationWrite | Cause::FileOverhead | Cause::Checksum | Cause::FarEnd
        )
    };
    let waited: f64 =
        account.spent().iter().filter(|(cause, ..)| is_storage(*cause)).map(|(.., seconds)| seconds).sum();
    waited / account.seconds.max(1e-9)
}
