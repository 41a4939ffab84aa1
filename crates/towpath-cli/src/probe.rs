//! `towpath probe`: measures a network path and the storage at both ends, and predicts the duration of a copy.
//! docs/guides/probe.md is the user guide.
//!
//! [`run`] measures the legs: the network in each direction with each number of connections, the remote storage, the
//! local disk. Legs that are not measured are reported with the reason. [`report`] prints the results, [`trace`]
//! writes the kernel statistics.

mod legs;
mod report;
mod trace;

use std::{ffi::OsStr, time::Duration};

use towpath_client::Probe;
use towpath_mover::{
    Job, StoreLocation, Walk,
    probe::{self, FileSet, NetworkMeasurement, PathMeasurement, Prediction, StoragePace},
};
use towpath_proto::{
    probe::{Direction, MAX_PROBE},
    url::{Family, Location, Url},
};
use towpath_store::{Error, Fault, ListOptions};

use crate::{
    args,
    failure::Failure,
    location::{StoreResolver, shown},
};
use legs::ProbeResults;

/// Duration of the first probe, which measures the round-trip time.
const FIRST_LOOK: Duration = Duration::from_millis(100);

/// Duration of a leg, unless requested otherwise.
const LEG: Duration = Duration::from_secs(5);

/// Minimum duration of a leg in round trips: slow start ends in its first half, and the second half gives the settled
/// rate.
const LEG_ROUND_TRIPS: u32 = 30;

/// Numbers of connections to probe with `--sweep`.
const SWEEP: [usize; 4] = [1, 2, 4, 8];

/// Runs `towpath probe`.
pub(crate) async fn run(arguments: &args::Probe, resolver: &StoreResolver) -> Result<(), Failure> {
    let url = remote(&arguments.url)?;
    let location = resolver.remote(&url)?;
    let mut trace = arguments.trace.as_deref().map(trace::Writer::create).transpose()?;
    let set = match (&arguments.set, arguments.files, arguments.bytes) {
        (Some(of), ..) => Some(listed(&resolver.location(of)?).await?),
        (None, Some(files), Some(bytes)) => Some((FileSet { files, bytes }, None)),
        _ => None,
    };
    let mut legs = ProbeResults::default();
    network(arguments, resolver, &url, &mut legs).await;
    if let Some(trace) = &mut trace {
        trace.write(&url, &legs.network)?;
    }
    // The storage is measured with the number of connections of a copy.
    let most = [Direction::Down, Direction::Up].iter().filter_map(|direction| legs.best(*direction));
    if let Some(connections) = most.map(|line| line.probe.connections).max() {
        resolver.client().set_connection_limit(connections);
    }
    storage(arguments, resolver, &location, &mut legs).await;
    if let Some(directory) = &arguments.local {
        legs.disk(resolver, &resolver.location(directory.as_os_str())?, leg_length(arguments.seconds, Duration::ZERO))
            .await;
    }
    if legs.are_empty() {
        return Err(legs.failure());
    }
    let predictions = set.map(|(set, direction)| (set, predictions(&legs, set, direction))).unwrap_or_default();
    report::print(arguments.json, &url, &legs, &predictions)
}

fn remote(text: &OsStr) -> Result<Url, Failure> {
    match Location::from_argument(text) {
        Ok(Location::Remote(url)) => Ok(url),
        Ok(_) => Err(Failure::Usage(format!("{}: probe requires the URL of a server", text.display()))),
        Err(error) => Err(Failure::Usage(format!("{}: {error}", shown(text)))),
    }
}

/// Returns the duration of a leg over a path with this round trip.
fn leg_length(requested_s: Option<u32>, round_trip: Duration) -> Duration {
    match requested_s {
        Some(seconds) => Duration::from_secs(seconds.into()),
        None => LEG.max(round_trip * LEG_ROUND_TRIPS).min(MAX_PROBE),
    }
}

/// Measures the network legs.
async fn network(arguments: &args::Probe, resolver: &StoreResolver, url: &Url, legs: &mut ProbeResults) {
    if url.scheme().family() == Family::S3 {
        let error = Error::new(Fault::Unsupported, "S3 servers do not support probes: only towpath servers do");
        return legs.skip("network", error);
    }
    for &direction in arguments.direction.directions() {
        if let Err(error) = one_way(arguments, resolver, url, direction, legs).await {
            let is_hopeless = is_hopeless(&error);
            legs.skip(report::network_name(direction), error);
            if is_hopeless {
                return;
            }
        }
    }
}

/// Measures the network legs in one direction. Returns errors that make further legs useless.
async fn one_way(
    arguments: &args::Probe,
    resolver: &StoreResolver,
    url: &Url,
    direction: Direction,
    legs: &mut ProbeResults,
) -> Result<(), Error> {
    let client = resolver.client();
    let first = Probe { direction, connections: 1, duration: FIRST_LOOK, interval: arguments.interval };
    let numbers = match (arguments.sweep, arguments.connections.as_slice()) {
        (true, _) => SWEEP.to_vec(),
        (false, []) => remembered_connections(resolver, url, direction).into_iter().collect(),
        (false, numbers) => numbers.to_vec(),
    };
    let look = match arguments.seconds.is_some() && !numbers.is_empty() {
        true => None,
        false => Some(probe::network(&client, url, &first).await?),
    };
    let numbers = match &look {
        Some(look) if numbers.is_empty() => vec![look.first_connections(client.connection_limit())],
        _ => numbers,
    };
    let round_trip = look.as_ref().and_then(NetworkMeasurement::round_trip);
    let duration = leg_length(arguments.seconds, round_trip.unwrap_or_default());
    for connections in numbers {
        let probe = Probe { connections, duration, ..first };
        match probe::network(&client, url, &probe).await {
            Ok(line) => legs.network.push(line),
            Err(error) if is_hopeless(&error) => return Err(error),
            Err(error) => legs.skip(report::network_name(direction), error),
        }
    }
    Ok(())
}

/// Returns the best number of connections of earlier copies over this path; `None` if it is not recorded.
fn remembered_connections(resolver: &StoreResolver, url: &Url, direction: Direction) -> Option<usize> {
    let (far, here) = (resolver.remote(url).ok()?, resolver.location(OsStr::new(".")).ok()?);
    let job = match direction {
        Direction::Down => Job::new(far, here),
        Direction::Up => Job::new(here, far),
    };
    probe::remembered_connections(&args::paths_file()?, &job)
}

/// Returns whether a server does not support probes, or is unreachable, so that further ones are useless.
fn is_hopeless(error: &Error) -> bool {
    matches!(error.fault(), Fault::Unsupported | Fault::Unavailable | Fault::TimedOut)
}

/// Measures the legs that include the remote storage.
async fn storage(arguments: &args::Probe, resolver: &StoreResolver, location: &StoreLocation, legs: &mut ProbeResults) {
    let found = location.store.stat(&location.caller, &location.path).await;
    legs.note_round_trip(resolver);
    let length = leg_length(arguments.seconds, legs.round_trip().unwrap_or_default());
    match found {
        Ok(metadata) if metadata.is_directory() => {
            legs.skip("storage read", Error::new(Fault::IsDirectory, "specify a large file to measure reads"));
            legs.write(arguments, resolver, Some(location.clone()), length).await;
        }
        Ok(_) => {
            legs.read(resolver, location, length).await;
            let above = location.path.parent().map(|above| location.with_path(above));
            legs.write(arguments, resolver, above, length).await;
        }
        Err(error) => legs.skip("storage", error),
    }
}

/// Returns the files at a location, and the direction of their transfer.
async fn listed(location: &StoreLocation) -> Result<(FileSet, Option<Direction>), Failure> {
    let direction = Some(if location.is_remote() { Direction::Down } else { Direction::Up });
    let metadata = location.store.stat(&location.caller, &location.path).await?;
    if !metadata.is_directory() {
        return Ok((FileSet { files: 1, bytes: metadata.size }, direction));
    }
    let mut set = FileSet::default();
    let mut walk = Walk::new(location, ListOptions { metadata: true, ..ListOptions::default() });
    while let Some(batch) = walk.next().await {
        let batch = batch.map_err(|unlisted| unlisted.error)?;
        for entry in &batch.entries {
            match entry.metadata.is_directory() {
                true => walk.enter(&batch, batch.path_of(entry)?, &entry.metadata),
                false => set.add(entry.metadata.size),
            }
        }
    }
    Ok((set, direction))
}

/// Predicts the duration of a copy in the `wanted` direction, or else in each measured direction.
fn predictions(legs: &ProbeResults, set: FileSet, wanted: Option<Direction>) -> Vec<(Direction, Prediction)> {
    let directions = [Direction::Down, Direction::Up].into_iter();
    let directions = directions.filter(|direction| wanted.is_none_or(|wanted| wanted == *direction));
    directions.filter_map(|direction| Some((direction, Prediction::new(&path(legs, direction)?, set)))).collect()
}

/// Returns the measurements of a direction, if any.
fn path(legs: &ProbeResults, direction: Direction) -> Option<PathMeasurement> {
    let storage = legs.storage(direction).map(|(_, line)| line);
    let far = match direction {
        Direction::Down => &legs.far_read,
        Direction::Up => &legs.far_write,
    };
    let seconds_a_file = legs.files.map(|files| match direction {
        Direction::Down => files.read_s,
        Direction::Up => files.write_s,
    });
    match (legs.best(direction), far) {
        (Some(line), _) => Some(PathMeasurement {
            round_trip: line.round_trip().unwrap_or_default(),
            connect: line.probed.connected,
            ramp: line.ramp(),
            settled_rate: line.settled_rate(),
            storage: match storage {
                None => StoragePace::Unknown,
                Some(storage) if ProbeResults::is_slower(storage, line) => StoragePace::Rate(storage.rate()),
                Some(_) => StoragePace::KeepsUp,
            },
            seconds_a_file,
        }),
        // The leg of the remote storage includes the network.
        (None, Some(far)) => Some(PathMeasurement {
            round_trip: legs.round_trip().unwrap_or_default(),
            connect: Duration::ZERO,
            ramp: vec![(0.0, 0.0)],
            settled_rate: far.rate(),
            storage: match storage {
                Some(storage) if storage.rate() < far.rate() => StoragePace::Rate(storage.rate()),
                _ => StoragePace::KeepsUp,
            },
            seconds_a_file,
        }),
        (None, None) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_leg_has_time_for_slow_start_unless_requested_otherwise() {
        for (requested_s, round_trip_ms, expected_ms) in
            [(None, 0, 5000), (None, 100, 5000), (None, 300, 9000), (None, 5000, 60_000), (Some(1), 300, 1000)]
        {
            let length = leg_length(requested_s, Duration::from_millis(round_trip_ms));
            assert_eq!(length, Duration::from_millis(expected_ms), "{requested_s:?} {round_trip_ms}");
        }
    }
}
