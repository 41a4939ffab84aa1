//! Readers, flights and extents of an entry under many schedules: shuttle chooses which task runs at each lock. A task
//! that never ends is a deadlock, which fails the test.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use futures::future::{join_all, select};
use shuttle::{future, rand::Rng as _};
use towpath_store::StorePath;
use towpath_testkit::volume::FaultVolume;

use super::*;
use crate::extents::CHUNK_BYTES;

/// Number of schedules of each test.
const SCHEDULES: usize = 400;
/// The range that is read: no multiple of anything.
const RANGE: Range<u64> = 1003..90_001;
/// Maximum number of responses of the origin without data in one test.
const MAX_FAILURES: u64 = 3;

/// An entry without data, and an origin of zeros.
struct Setup {
    entry: Arc<Entry>,
    requests: AtomicU64,
    fetched_bytes: AtomicU64,
    /// How often the origin may still respond without data.
    failures: AtomicU64,
}

/// How a read ended.
#[derive(Debug, PartialEq, Eq)]
enum Read {
    FromDisk,
    FromOrigin,
}

impl Setup {
    fn new(failures: u64) -> Arc<Self> {
        let disk = Arc::new(CacheDisk::open(Arc::new(FaultVolume::default()), 1).unwrap());
        let path = StorePath::parse(b"/file").unwrap();
        let version =
            Version { origin: "memory".into(), target: path.into(), size: 100_000, mtime_ns: Some(1), tag: None };
        let entry = Entry::new(version.clone(), version.name(), &disk, &Arc::default());
        entry.load().unwrap();
        Arc::new(Self {
            entry: Arc::new(entry),
            requests: AtomicU64::new(0),
            fetched_bytes: AtomicU64::new(0),
            failures: AtomicU64::new(failures),
        })
    }

    /// Reads `range` as [`crate::file`] does, except that failures of the origin are retried without a limit.
    async fn read(self: Arc<Self>, range: Range<u64>) -> Read {
        'attempts: while !self.entry.covers(&range) {
            let started = self.entry.start_flights(std::slice::from_ref(&range), CHUNK_BYTES);
            let mut flights: Vec<_> = started.iter().map(|open| Arc::clone(&open.flight)).collect();
            if !started.is_empty() {
                future::spawn(Arc::clone(&self).fetch(started));
            }
            flights.extend(self.entry.flights(&range));
            if flights.is_empty() && !self.entry.covers(&range) {
                return Read::FromOrigin;
            }
            for flight in flights {
                match flight.wait().await {
                    Outcome::Stored | Outcome::Freed => {}
                    Outcome::Failed(_) => continue 'attempts,
                    Outcome::NotStored => return Read::FromOrigin,
                }
            }
        }
        Read::FromDisk
    }

    /// Ends flights in any order and way.
    async fn fetch(self: Arc<Self>, mut flights: Vec<OpenFlight>) {
        self.requests.fetch_add(1, Relaxed);
        while !flights.is_empty() {
            future::yield_now().await;
            let open = flights.swap_remove(shuttle::rand::thread_rng().gen_range(0..flights.len()));
            let may_fail = self.failures.load(Relaxed) > 0;
            let way = if may_fail { shuttle::rand::thread_rng().gen_range(0..5) } else { 0 };
            if way > 0 {
                self.failures.fetch_sub(1, Relaxed);
            }
            match way {
                0 => {
                    let length = open.flight.length();
                    self.fetched_bytes.fetch_add(length as u64, Relaxed);
                    let written = self.entry.write_now(open, &vec![0; length]).unwrap();
                    future::yield_now().await;
                    self.entry.show(vec![written]);
                }
                1 => open.end(Outcome::Freed),
                2 => open.end(Outcome::NotStored),
                3 => open.end(Outcome::Failed(Error::new(Fault::TimedOut, "the origin is silent"))),
                // Abandoned.
                _ => drop(open),
            }
        }
    }

    /// Checks that nothing is in flight, and all bytes of `range` are present.
    fn check(&self, range: &Range<u64>) {
        // Bytes are visible before their flight has ended.
        for flight in self.entry.flights(&(0..u64::MAX)) {
            future::block_on(flight.wait());
        }
        assert_eq!(self.entry.flights(&(0..u64::MAX)).len(), 0);
        assert!(self.entry.covers(range));
    }
}

/// Runs a test under `schedules` random schedules.
fn explore(schedules: usize, test: impl Fn() + Send + Sync + 'static) {
    let mut config = shuttle::Config::new();
    config.stack_size = 256 << 10;
    let scheduler = shuttle::scheduler::RandomScheduler::new(schedules);
    shuttle::Runner::new(scheduler, config).run(test);
}

async fn all(readers: impl Iterator<Item = future::JoinHandle<Read>>) -> Vec<Read> {
    join_all(readers.collect::<Vec<_>>()).await.into_iter().map(|reader| reader.unwrap()).collect()
}

/// `count` readers of one cold extent: one request, and all get the bytes from the disk.
fn herd(count: usize) {
    let setup = Setup::new(0);
    let readers = (0..count).map(|_| future::spawn(Arc::clone(&setup).read(RANGE)));
    let reads = future::block_on(all(readers));
    assert!(reads.iter().all(|read| *read == Read::FromDisk));
    assert_eq!((setup.requests.load(Relaxed), setup.fetched_bytes.load(Relaxed)), (1, RANGE.end - RANGE.start));
    setup.check(&RANGE);
}

#[test]
fn readers_of_a_cold_extent_cause_one_request() {
    explore(SCHEDULES, || herd(4));
}

#[test]
fn a_thousand_readers_of_a_cold_extent_cause_one_request() {
    explore(3, || herd(1000));
}

#[test]
fn overlapping_reads_fetch_each_byte_once() {
    explore(SCHEDULES, || {
        let setup = Setup::new(0);
        let ranges = [0..20_000, 10_000..40_000, 15_000..16_000, 39_999..60_000, 0..60_000];
        let readers = ranges.into_iter().map(|range| future::spawn(Arc::clone(&setup).read(range)));
        let reads = future::block_on(all(readers));
        assert!(reads.iter().all(|read| *read == Read::FromDisk));
        assert_eq!(setup.fetched_bytes.load(Relaxed), 60_000);
        setup.check(&(0..60_000));
    });
}

#[test]
fn a_reader_that_leaves_cancels_nothing_for_the_others() {
    explore(SCHEDULES, || {
        let setup = Setup::new(0);
        let leaving = (0..2).map(|patience| {
            let read = Box::pin(Arc::clone(&setup).read(RANGE));
            future::spawn(async move {
                let leave = Box::pin(async move {
                    for _ in 0..patience {
                        future::yield_now().await;
                    }
                });
                select(read, leave).await;
                Read::FromDisk
            })
        });
        let leaving: Vec<_> = leaving.collect();
        let staying = (0..2).map(|_| future::spawn(Arc::clone(&setup).read(RANGE)));
        let reads = future::block_on(all(staying.collect::<Vec<_>>().into_iter().chain(leaving)));
        assert!(reads.iter().all(|read| *read == Read::FromDisk));
        assert_eq!(setup.requests.load(Relaxed), 1);
        setup.check(&RANGE);
    });
}

#[test]
fn each_reader_ends_however_its_flights_end() {
    explore(SCHEDULES, || {
        let setup = Setup::new(MAX_FAILURES);
        let readers = (0..4_u64).map(|reader| {
            let range = RANGE.start + reader * 20_000..RANGE.end;
            future::spawn(Arc::clone(&setup).read(range))
        });
        future::block_on(all(readers.collect::<Vec<_>>().into_iter()));
        setup.failures.store(0, Relaxed);
        assert_eq!(future::block_on(Arc::clone(&setup).read(RANGE)), Read::FromDisk);
        setup.check(&RANGE);
    });
}

#[test]
fn a_flight_has_one_outcome_for_all() {
    explore(SCHEDULES, || {
        let flight = Flights::default().start(0..10);
        let waiting = |_| {
            let flight = Arc::clone(&flight);
            future::spawn(async move { flight.wait().await })
        };
        let waiting: Vec<_> = (0..3).map(waiting).collect();
        flight.end(Outcome::Stored);
        flight.end(Outcome::NotStored);
        for outcome in future::block_on(join_all(waiting)) {
            assert!(matches!(outcome.unwrap(), Outcome::Stored));
        }
    });
}
