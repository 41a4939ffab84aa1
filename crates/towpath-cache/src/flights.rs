//! Ranges of one file version that are being fetched. Readers of a range that is in flight wait for its [`Flight`]
//! instead of fetching it again. No I/O, no clock.

use std::{
    collections::BTreeMap,
    ops::Range,
    sync::{Arc, PoisonError},
};

use towpath_store::Error;

use crate::sync::{Mutex, MutexGuard, Notify};

/// The end of a flight.
#[derive(Debug, Clone)]
pub(crate) enum Outcome {
    /// The bytes are on the disk.
    Stored,
    /// The space was freed: the bytes are absent, and may be fetched.
    Freed,
    /// The origin has failed.
    Failed(Error),
    /// The bytes could not be stored: readers must read them from the origin.
    NotStored,
}

/// A range in flight.
#[derive(Debug)]
pub(crate) struct Flight {
    /// The bytes; not empty.
    pub(crate) range: Range<u64>,
    outcome: Mutex<Option<Outcome>>,
    ended: Notify,
}

impl Flight {
    fn new(range: Range<u64>) -> Self {
        Self { range, outcome: Mutex::new(None), ended: Notify::new() }
    }

    fn outcome(&self) -> MutexGuard<'_, Option<Outcome>> {
        self.outcome.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the length in bytes.
    pub(crate) fn length(&self) -> usize {
        (self.range.end - self.range.start) as usize
    }

    /// Waits for the end.
    pub(crate) async fn wait(&self) -> Outcome {
        loop {
            let mut ended = std::pin::pin!(self.ended.notified());
            ended.as_mut().enable();
            let outcome = self.outcome().clone();
            match outcome {
                Some(outcome) => return outcome,
                None => ended.await,
            }
        }
    }

    /// Ends the flight, unless it has ended. It must have been removed from its [`Flights`] before, so that a reader
    /// that finds nothing in flight sees the result.
    pub(crate) fn end(&self, outcome: Outcome) {
        // Only the first outcome counts.
        self.outcome().get_or_insert(outcome);
        self.ended.notify_waiters();
    }
}

/// The flights of a file version. They do not overlap.
#[derive(Debug, Default)]
pub(crate) struct Flights(BTreeMap<u64, Arc<Flight>>);

impl Flights {
    /// Returns the flights that overlap `range`, in order.
    pub(crate) fn overlapping(&self, range: &Range<u64>) -> impl Iterator<Item = &Arc<Flight>> {
        let before = self.0.range(..=range.start).next_back().map(|(_, flight)| flight);
        let first = before.filter(|flight| flight.range.end > range.start && flight.range.start < range.start);
        let inside = if range.is_empty() { 0..0 } else { range.clone() };
        first.into_iter().chain(self.0.range(inside).map(|(_, flight)| flight))
    }

    /// Returns the parts of `range` that are not in flight, in order.
    pub(crate) fn gaps(&self, range: &Range<u64>) -> Vec<Range<u64>> {
        let mut gaps = Vec::new();
        let mut next = range.start;
        for flight in self.overlapping(range) {
            if flight.range.start > next {
                gaps.push(next..flight.range.start);
            }
            next = flight.range.end;
        }
        if next < range.end {
            gaps.push(next..range.end);
        }
        gaps
    }

    /// Returns whether a part of one of `ranges` is not in flight.
    pub(crate) fn has_gap(&self, ranges: &[Range<u64>]) -> bool {
        ranges.iter().any(|range| !self.gaps(range).is_empty())
    }

    /// Starts a flight of a range that overlaps no other flight.
    pub(crate) fn start(&mut self, range: Range<u64>) -> Arc<Flight> {
        debug_assert!(!range.is_empty() && self.overlapping(&range).next().is_none());
        let flight = Arc::new(Flight::new(range.clone()));
        self.0.insert(range.start, Arc::clone(&flight));
        flight
    }

    /// Removes a flight, which is about to end.
    pub(crate) fn remove(&mut self, flight: &Arc<Flight>) {
        if self.0.get(&flight.range.start).is_some_and(|found| Arc::ptr_eq(found, flight)) {
            self.0.remove(&flight.range.start);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn flights_and_gaps_divide_a_range(
            starts in proptest::collection::vec((0..1000_u64, 1..50_u64), 0..40),
            (start, length) in (0..1000_u64, 0..200_u64),
        ) {
            let (mut flights, mut model) = (Flights::default(), [false; 1300]);
            for (start, length) in starts {
                for gap in flights.gaps(&(start..start + length)) {
                    model[gap.start as usize..gap.end as usize].fill(true);
                    flights.start(gap);
                }
            }
            let range = start..start + length;
            let mut found = [false; 1300];
            for flight in flights.overlapping(&range) {
                prop_assert!(flight.range.start < range.end && flight.range.end > range.start);
                found[flight.range.start as usize..flight.range.end as usize].fill(true);
            }
            for gap in flights.gaps(&range) {
                prop_assert!(!gap.is_empty());
                prop_assert!(gap.clone().all(|at| !model[at as usize]));
                found[gap.start as usize..gap.end as usize].fill(true);
            }
            prop_assert!(range.into_iter().all(|at| found[at as usize]));
        }
    }
}
