//! Measures the read and write rates of a storage, over the network if it is remote: reads an existing file, and writes
//! scratch files.

use std::{
    future::Future,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

use bytes::Bytes;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use tokio::time::sleep;
use towpath_client::Client;
use towpath_proto::probe::noise;
use towpath_store::{
    CreateOptions, Error, Expectation, Fault, OpenOptions, Result,
    sys::{clock, disk, processor},
};

use super::{LegRecorder, Scratch};
use crate::{
    StoreLocation,
    account::{Account, Leg},
    file, sampler,
    stage::Stage,
};

/// Length of a piece in bytes, as in a copy.
const PIECE_BYTES: usize = file::PIECE_BYTES as usize;

/// Minimum and maximum of the bytes in flight.
const WINDOW: [u64; 2] = [8 << 20, 64 << 20];

/// Maximum number of files in flight: more than are measured, so that no file waits for another.
const FILES: usize = 1024;

/// Minimum duration of a measurement in round trips, and in time: with less, windows have not grown and a disk has only
/// started.
const MIN_ROUND_TRIPS: u32 = 25;
const LEAST: Duration = Duration::from_millis(100);

/// Number of pieces between syncs of a local file: the page cache would absorb seconds of data, for which the disk
/// then needs a minute.
const SYNCED_PIECES: usize = 64;

/// Measurement of a storage in one direction.
#[derive(Debug, Clone)]
pub struct StorageMeasurement {
    /// Bytes that were read or written.
    pub bytes: u64,
    /// Duration in seconds; for writes, until the data were durable.
    pub seconds: f64,
    /// What limited the transfer.
    pub account: Account,
}

impl StorageMeasurement {
    /// Returns the rate in bytes per second.
    pub fn rate(&self) -> f64 {
        self.bytes as f64 / self.seconds.max(1e-9)
    }
}

/// Cost of single files.
#[derive(Debug, Clone, Copy)]
pub struct Files {
    /// Size of each file in bytes.
    pub bytes: usize,
    /// Seconds per additional file written.
    pub write_s: f64,
    /// Seconds per additional file read.
    pub read_s: f64,
}

/// Parameters of a storage measurement.
#[derive(Debug, Clone, Copy)]
pub struct MeasurementOptions {
    /// Approximate duration; the maximum is twice as long.
    pub duration: Duration,
    /// Desired bytes in flight: twice the bandwidth-delay product.
    pub window: u64,
}

impl MeasurementOptions {
    /// Returns the minimum duration of a valid measurement: half of the requested one, or less if the path is short.
    fn least(&self, round_trip: Duration) -> Duration {
        (round_trip * MIN_ROUND_TRIPS).max(LEAST).min(self.duration / 2)
    }

    fn pieces(&self) -> usize {
        self.window.clamp(WINDOW[0], WINDOW[1]) as usize / PIECE_BYTES
    }
}

/// Reads `file` for the requested time or to its end.
///
/// # Errors
/// Errors of the store; `InvalidArgument` for a file that is too short to measure, and `TimedOut` without any data.
pub async fn read(client: &Client, file: &StoreLocation, options: MeasurementOptions) -> Result<StorageMeasurement> {
    let handle = file.store.open(&file.caller, &file.path, OpenOptions::default()).await?;
    let size = handle.metadata().await?.size;
    if size == 0 {
        return Err(Error::new(Fault::InvalidArgument, "an empty file cannot be measured").at(&file.path));
    }
    if let Some(local) = handle.local_part(0, size) {
        disk::forget(&local.file);
    }
    let ends = clock::now() + options.duration;
    let transferred = AtomicU64::new(0);
    let pieces = (0..size).step_by(PIECE_BYTES).take_while(|_| clock::now() < ends);
    let reading = stream::iter(pieces)
        .map(|offset| {
            let length = usize::try_from(size - offset).unwrap_or(usize::MAX).min(PIECE_BYTES);
            let (handle, transferred) = (&handle, &transferred);
            async move {
                let data = handle.read(offset, length).await?;
                transferred.fetch_add(data.len() as u64, Relaxed);
                if data.len() == length { Ok(()) } else { Err(Error::new(Fault::Truncated, "the file became shorter")) }
            }
        })
        .buffer_unordered(options.pieces())
        .try_collect::<()>();
    match run_sampled(client, file, Stage::Read, &transferred, options, reading).await? {
        TimedMeasurement::TooEarly(line) => {
            Err(Error::new(Fault::InvalidArgument, too_little(&line, "name a larger file")).at(&file.path))
        }
        TimedMeasurement::Done(line) | TimedMeasurement::TooLate(line) => Ok(line),
    }
}

fn too_little(line: &StorageMeasurement, advice: &str) -> String {
    format!("too little data to measure: {} bytes in {:.2} s: {advice}", line.bytes, line.seconds)
}

/// Writes a file for the requested time and waits until it is durable. Returns the file as well.
///
/// # Errors
/// Errors of the store; `NoSpace` with too little space to measure, and `TimedOut` if written data are not durable in
/// time.
pub async fn write(
    client: &Client,
    scratch: &Scratch,
    options: MeasurementOptions,
) -> Result<(StorageMeasurement, StoreLocation)> {
    let file = scratch.file("large")?;
    let room = scratch.room().await;
    let handle = file.store.create(&file.caller, &file.path, CreateOptions::default()).await?;
    let ends = clock::now() + options.duration;
    let transferred = AtomicU64::new(0);
    let piece = Bytes::from(noise(PIECE_BYTES));
    let mut offsets = (0..room).step_by(PIECE_BYTES).take_while(|_| clock::now() < ends).peekable();
    let side_by_side = if file.store.capabilities().write_any_order { options.pieces() } else { 1 };
    let put = async |offset| {
        handle.write(offset, piece.clone()).await?;
        transferred.fetch_add(PIECE_BYTES as u64, Relaxed);
        Ok::<_, Error>(())
    };
    let writing = async {
        while offsets.peek().is_some() {
            let some = offsets.by_ref().take(if file.is_remote() { usize::MAX } else { SYNCED_PIECES });
            stream::iter(some).map(&put).buffer_unordered(side_by_side).try_collect::<()>().await?;
            if !file.is_remote() {
                handle.sync().await?;
            }
        }
        handle.commit(Expectation { size: Some(transferred.load(Relaxed)), ..Expectation::default() }).await.map(drop)
    };
    let error = match run_sampled(client, &file, Stage::Write, &transferred, options, writing).await? {
        TimedMeasurement::Done(line) => return Ok((line, file)),
        TimedMeasurement::TooEarly(line) => {
            Error::new(Fault::NoSpace, too_little(&line, "the probe uses only part of the free space"))
        }
        TimedMeasurement::TooLate(StorageMeasurement { bytes, seconds, .. }) => Error::new(
            Fault::TimedOut,
            format!("{bytes} bytes were written, but were not durable within {seconds:.0} s"),
        ),
    };
    Err(error.at(&file.path))
}

/// Measures the cost of single files of `bytes`: writes a group of files, writes a larger group, and reads both.
///
/// # Errors
/// Errors of the store.
pub async fn files(scratch: &Scratch, bytes: usize, counts: [usize; 2]) -> Result<Files> {
    let data = Bytes::from(noise(bytes));
    let make = async |name: String| {
        let file = scratch.file(&name)?;
        let options = CreateOptions { size_hint: Some(bytes as u64), ..CreateOptions::default() };
        let handle = file.store.create(&file.caller, &file.path, options).await?;
        handle.write(0, data.clone()).await?;
        handle.commit(Expectation { size: Some(bytes as u64), ..Expectation::default() }).await.map(drop)
    };
    let fetch = async |name: String| {
        let file = scratch.file(&name)?;
        let handle = file.store.open(&file.caller, &file.path, OpenOptions::default()).await?;
        handle.read(0, bytes).await.map(drop)
    };
    let names = |group: usize| (0..counts[group]).map(move |index| format!("{group}-{index}"));
    let wrote = [each(names(0), make).await?, each(names(1), make).await?];
    let read = [each(names(0), fetch).await?, each(names(1), fetch).await?];
    // The difference excludes round trips, which both groups take independent of their size.
    let more = counts[1].saturating_sub(counts[0]).max(1) as f64;
    let [write_s, read_s] = [wrote, read].map(|[few, many]| ((many - few) / more).max(0.0));
    Ok(Files { bytes, write_s, read_s })
}

/// Runs `one` for each name concurrently; returns the duration in seconds.
async fn each(names: impl Iterator<Item = String>, one: impl AsyncFn(String) -> Result<()>) -> Result<f64> {
    let began = clock::now();
    stream::iter(names).map(|name| one(name)).buffer_unordered(FILES).try_collect::<()>().await?;
    Ok(began.elapsed().as_secs_f64())
}

/// A measurement of a storage, classified by when it ended.
enum TimedMeasurement {
    /// Too early for a valid rate.
    TooEarly(StorageMeasurement),
    Done(StorageMeasurement),
    /// Not in time; it was aborted.
    TooLate(StorageMeasurement),
}

/// Runs `work` on `location` and samples it.
async fn run_sampled(
    client: &Client,
    location: &StoreLocation,
    stage: Stage,
    transferred: &AtomicU64,
    options: MeasurementOptions,
    work: impl Future<Output = Result<()>>,
) -> Result<TimedMeasurement> {
    let leg = match stage {
        Stage::Read => Leg::In,
        _ => Leg::Out,
    };
    let began = clock::now();
    let mut recorder = LegRecorder::new(began, location.is_remote().then_some(leg), stage, processor::time_wanted());
    let connections = || if location.is_remote() { client.connections() } else { Vec::new() };
    let sample = |recorder: &mut LegRecorder| {
        recorder.add(clock::now(), transferred.load(Relaxed), connections(), processor::time_wanted());
    };
    let watching = async {
        let mut ticks = sampler::ticks(sampler::EVERY);
        loop {
            ticks.tick().await;
            sample(&mut recorder);
            client.ask_far_ends().await;
        }
    };
    let is_done = tokio::select! {
        outcome = work => outcome.map(|()| true)?,
        () = sleep(options.duration * 2) => false,
        () = watching => unreachable!("it looks until it is dropped"),
    };
    let (bytes, took) = (transferred.load(Relaxed), began.elapsed());
    sample(&mut recorder);
    let seconds = took.as_secs_f64();
    if bytes == 0 && !is_done {
        let message = format!("less than {PIECE_BYTES} bytes in {seconds:.0} s");
        return Err(Error::new(Fault::TimedOut, message).at(&location.path));
    }
    let round_trips = connections().into_iter().map(|connection| connection.info.min_rtt);
    let least = options.least(round_trips.filter(|round_trip| !round_trip.is_zero()).min().unwrap_or_default());
    let line = StorageMeasurement { bytes, seconds, account: recorder.account() };
    Ok(match is_done {
        true if took < least => TimedMeasurement::TooEarly(line),
        true => TimedMeasurement::Done(line),
        false => TimedMeasurement::TooLate(line),
    })
}

#[cfg(test)]
mod tests;
