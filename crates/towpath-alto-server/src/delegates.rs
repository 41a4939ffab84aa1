//! Agents queried on demand ([`towpath_alto::delegation`]).
//!
//! Each delegate has a [`Desk`], where requests register the items they need and find learned values. Items needed at the same
//! time are requested together. A request waits for its items, up to the limit in the agent's settings, and is then answered
//! with the available values.

use std::{cell::RefCell, collections::BTreeMap, sync::Arc};

use futures::future::{BoxFuture, FutureExt as _, join_all};
use serde_json::Value;
use tokio::sync::Semaphore;
use towpath_alto::delegation::{Delegate, Item};
use towpath_alto_sources::{Desk, Found};
use towpath_store::sys::clock::{self, Instant};

/// Maximum number of waiting requests; others are answered with the available values.
const MAX_WAITING: usize = 1024;

/// All delegates in order of precedence.
#[derive(Debug)]
pub struct Delegates {
    desks: Vec<Arc<Desk>>,
    waiting: Arc<Semaphore>,
}

impl Delegates {
    /// Those of these desks.
    pub fn new(desks: Vec<Arc<Desk>>) -> Self {
        Self { desks, waiting: Arc::new(Semaphore::new(MAX_WAITING)) }
    }

    /// Returns the lookup for one request, which may wait or not.
    pub(super) fn asking(&self, may_wait: bool) -> Asking<'_> {
        Asking { delegates: self, may_wait, now: clock::now(), needed: RefCell::default() }
    }
}

/// Lookups of one request.
#[derive(Debug)]
pub(super) struct Asking<'a> {
    delegates: &'a Delegates,
    may_wait: bool,
    now: Instant,
    /// By desk index, the number up to which items must be settled.
    needed: RefCell<BTreeMap<usize, u64>>,
}

impl Delegate for Asking<'_> {
    fn look_up(&self, item: Item) -> Option<Value> {
        let desks = self.delegates.desks.iter().enumerate().rev();
        desks.into_iter().find_map(|(place, desk)| match desk.look_up(&item, self.may_wait, self.now) {
            Found::Known(value) => value,
            Found::Needed(until) => {
                let mut needed = self.needed.borrow_mut();
                let last = needed.entry(place).or_insert(until);
                *last = until.max(*last);
                None
            }
            Found::Unknown => None,
        })
    }
}

impl Asking<'_> {
    /// Returns what to wait for before the response is computed again, or `None` if it cannot improve.
    pub(super) fn pending(self) -> Option<BoxFuture<'static, ()>> {
        let needed = self.needed.into_inner();
        if needed.is_empty() {
            return None;
        }
        let place = Arc::clone(&self.delegates.waiting).try_acquire_owned().ok()?;
        let waits = needed.into_iter().map(|(place, number)| Arc::clone(&self.delegates.desks[place]).until(number));
        let all = join_all(waits.collect::<Vec<_>>());
        Some(all.map(move |_| drop(place)).boxed())
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, time::Duration};

    use towpath_alto::delegation::Askable;

    use super::*;

    fn desk() -> Arc<Desk> {
        let desk = Desk::new(Duration::from_secs(2), Duration::from_secs(60));
        let metrics = BTreeSet::from(["delay-ow".parse().unwrap()]);
        desk.open(Askable { metrics, properties: BTreeSet::new() });
        Arc::new(desk)
    }

    fn item(to: u8) -> Item {
        Item::Cost("delay-ow".parse().unwrap(), [192, 0, 2, 1].into(), [192, 0, 2, to].into())
    }

    #[tokio::test]
    async fn what_the_last_one_says_holds() {
        let desks = [desk(), desk()];
        let delegates = Delegates::new(desks.to_vec());
        let asking = delegates.asking(true);
        assert_eq!((asking.look_up(item(7)), asking.look_up(item(8))), (None, None));
        let pending = asking.pending().unwrap();
        for (desk, told) in
            desks.iter().zip([vec![(item(7), 1.into()), (item(8), 1.into())], vec![(item(7), 2.into())]])
        {
            let [question] = &desk.next().await[..] else { panic!() };
            assert_eq!(question.items(), 2);
            desk.settle(question, told, clock::now());
        }
        pending.await;
        let asking = delegates.asking(false);
        assert_eq!((asking.look_up(item(7)), asking.look_up(item(8))), (Some(2.into()), Some(1.into())));
        assert!(asking.pending().is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_waits_no_longer_than_it_may() {
        let delegates = Delegates::new(vec![desk()]);
        let asking = delegates.asking(true);
        asking.look_up(item(7));
        let began = clock::now();
        asking.pending().unwrap().await;
        assert_eq!((clock::now() - began).as_secs(), 2);
        let again = delegates.asking(false);
        assert_eq!(again.look_up(item(7)), None);
        assert!(again.pending().is_none());
    }

    #[test]
    fn of_very_many_requests_not_all_wait() {
        let delegates = Delegates::new(vec![desk()]);
        let pending = || {
            let asking = delegates.asking(true);
            asking.look_up(item(7));
            asking.pending()
        };
        let mut waiting: Vec<_> = (0..MAX_WAITING).map(|_| pending().unwrap()).collect();
        assert!(pending().is_none());
        waiting.pop();
        assert!(pending().is_some());
    }
}
