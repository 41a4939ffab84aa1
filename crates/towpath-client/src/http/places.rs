//! How many questions a site is asked at a time.
//!
//! Each has a connection for itself, and a small file is bound by round trips alone: at 32 at a time 10,000 of them take half a minute over 100 ms. But a server has
//! only so many workers, and others want some too. So it begins with [`FIRST`] places. When all are taken, each answer makes room for one more, up to [`MOST`], which doubles
//! them in a round trip. Each question that is put off, or gets no answer, takes a place away, down to [`LEAST`]; from the first one on it takes as many answers as there are places to
//! make room for one more. A client that makes room for others takes no more than that least number.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

const FIRST: usize = 32;

/// Servers as they are installed take 512 connections and more (nginx), or let more than 150 to 400 wait (Apache).
const MOST: usize = 320;

const LEAST: usize = 8;

/// The places of one site. A place is free again when what [`Self::take`] gave is dropped.
#[derive(Debug)]
pub(super) struct Places {
    free: Arc<Semaphore>,
    /// Those that there are, taken or free.
    all: AtomicUsize,
    /// Those that are to go as soon as they are free.
    surplus: AtomicUsize,
    /// Answers since one more was made, of a site that has put something off.
    answers: AtomicUsize,
    has_put_off: AtomicBool,
    /// Whether the client makes room for others.
    is_nice: Arc<AtomicBool>,
}

impl Places {
    /// Those to begin with. `is_nice` may change at any time.
    pub(super) fn new(is_nice: Arc<AtomicBool>) -> Self {
        Self {
            free: Arc::new(Semaphore::new(FIRST)),
            all: AtomicUsize::new(FIRST),
            surplus: AtomicUsize::default(),
            answers: AtomicUsize::default(),
            has_put_off: AtomicBool::default(),
            is_nice,
        }
    }

    /// A place, as soon as one is free.
    pub(super) async fn take(&self) -> Option<OwnedSemaphorePermit> {
        loop {
            let place = Arc::clone(&self.free).acquire_owned().await.ok()?;
            match less(&self.surplus, 0) || less(&self.all, self.most()) {
                true => place.forget(),
                false => return Some(place),
            }
        }
    }

    /// As many as there may be.
    fn most(&self) -> usize {
        if self.is_nice.load(Relaxed) { LEAST } else { MOST }
    }

    /// A question was answered.
    pub(super) fn more(&self) {
        if self.has_put_off.load(Relaxed) {
            if self.answers.fetch_add(1, Relaxed) < self.all.load(Relaxed) {
                return;
            }
            self.answers.store(0, Relaxed);
        }
        let is_room = |all: usize| (all < self.most()).then_some(all + 1);
        if self.free.available_permits() == 0 && self.all.fetch_update(Relaxed, Relaxed, is_room).is_ok() {
            self.free.add_permits(1);
        }
    }

    /// A question was put off, or got no answer.
    pub(super) fn fewer(&self) {
        self.has_put_off.store(true, Relaxed);
        if less(&self.all, LEAST) {
            self.surplus.fetch_add(1, Relaxed);
        }
    }
}

/// Takes one from `number` if it is above `least`. Whether it was.
fn less(number: &AtomicUsize, least: usize) -> bool {
    number.fetch_update(Relaxed, Relaxed, |number| (number > least).then(|| number - 1)).is_ok()
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    fn begun() -> Places {
        Places::new(Arc::default())
    }

    /// All that can be taken at once.
    fn all(places: &Places) -> Vec<OwnedSemaphorePermit> {
        std::iter::from_fn(|| places.take().now_or_never().flatten()).collect()
    }

    #[test]
    fn answers_double_them_in_a_round_trip_up_to_a_bound() {
        let places = begun();
        let mut taken = Vec::new();
        for expected in [FIRST, 2 * FIRST, 4 * FIRST, 8 * FIRST, MOST, MOST] {
            taken.extend(all(&places));
            assert_eq!(taken.len(), expected);
            for _ in 0..expected {
                places.more();
                // Somebody waits.
                taken.extend(places.take().now_or_never().flatten());
            }
        }
    }

    #[test]
    fn who_makes_room_for_others_takes_few() {
        let is_nice = Arc::<AtomicBool>::default();
        let places = Places::new(Arc::clone(&is_nice));
        let taken = all(&places);
        is_nice.store(true, Relaxed);
        assert_eq!(all(&places).len(), 0);
        drop(taken);
        for _ in 0..3 {
            let taken = all(&places);
            assert_eq!(taken.len(), LEAST);
            (0..100).for_each(|_| places.more());
        }
        (0..100).for_each(|_| places.fewer());
        assert_eq!(all(&places).len(), LEAST);
    }

    #[test]
    fn those_that_nobody_needs_do_not_become_more() {
        let places = begun();
        let _one = places.take().now_or_never();
        (0..100).for_each(|_| places.more());
        assert_eq!(all(&places).len(), FIRST - 1);
    }

    #[test]
    fn they_settle_where_a_server_puts_little_off() {
        const CAPACITY: usize = 64;
        let places = begun();
        let (mut asked, mut put_off) = (0, 0);
        for round in 0..200 {
            let taken = all(&places);
            for number in 0..taken.len() {
                match number < CAPACITY {
                    true => places.more(),
                    false => places.fewer(),
                }
            }
            let is_late = round >= 100;
            asked += if is_late { taken.len() } else { 0 };
            put_off += if is_late { taken.len().saturating_sub(CAPACITY) } else { 0 };
        }
        assert!(asked > 100 * CAPACITY * 9 / 10 && put_off * 20 < asked, "{put_off} of {asked} are put off");
    }

    #[test]
    fn each_that_is_put_off_takes_one_away_down_to_a_bound() {
        let places = begun();
        let taken = all(&places);
        (0..10).for_each(|_| places.fewer());
        drop(taken);
        assert_eq!(all(&places).len(), FIRST - 10);
        (0..100).for_each(|_| places.fewer());
        assert_eq!(all(&places).len(), LEAST);
    }
}
