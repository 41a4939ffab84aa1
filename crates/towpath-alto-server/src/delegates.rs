//! Agents queried on demand ([`towpath_alto::delegation`]).
//!
//! Each delegate has a [`QueryBatcher`], where requests register the items they need and find learned values. Items
//! needed at the same time are requested together. A request waits for its items, up to the limit in the agent's
//! settings, and is then answered with the available values.

use std::{cell::RefCell, collections::BTreeMap, sync::Arc};

use futures::future::{BoxFuture, FutureExt as _, join_all};
use serde_json::Value;
use tokio::sync::Semaphore;
use towpath_alto::delegation::{Delegate, Item};
use towpath_alto_sources::{ItemLookup, QueryBatcher};
use towpath_store::sys::clock::{self, Instant};

/// Maximum number of waiting requests; others are answered with the available values.
const MAX_WAITING: usize = 1024;

/// All delegates in order of precedence.
#[derive(Debug)]
pub struct Delegates {
    query_batchers: Vec<Arc<QueryBatcher>>,
    waiting: Arc<Semaphore>,
}

impl Delegates {
    /// Those of these batchers.
    pub fn new(query_batchers: Vec<Arc<QueryBatcher>>) -> Self {
        Self { query_batchers, waiting: Arc::new(Semaphore::new(MAX_WAITING)) }
    }

    /// Returns the lookup for one request, which may wait or not.
    pub(super) fn context(&self, may_wait: bool) -> RequestContext<'_> {
        RequestContext { delegates: self, may_wait, now: clock::now(), needed: RefCell::default() }
    }
}

/// Lookups of one request.
#[derive(Debug)]
pub(super) struct RequestContext<'a> {
    delegates: &'a Delegates,
    may_wait: bool,
    now: Instant,
    /// By batcher index, the number up to which items must be settled.
    needed: RefCell<BTreeMap<usize, u64>>,
}

impl Delegate for RequestContext<'_> {
    fn look_up(&self, item: Item) -> Option<Value> {
        let query_batchers = self.delegates.query_batchers.iter().enumerate().rev();
        query_batchers.into_iter().find_map(|(place, query_batcher)| {
            match query_batcher.look_up(&item, self.may_wait, self.now) {
                ItemLookup::Known(value) => value,
                ItemLookup::Needed(until) => {
                    let mut needed = self.needed.borrow_mut();
                    let last = needed.entry(place).or_insert(until);
                    *last = until.max(*last);
                    None
                }
                ItemLookup::Unknown => None,
            }
        })
    }
}

impl RequestContext<'_> {
    /// Returns what to wait for before the response is computed again, or `None` if it cannot improve.
    pub(super) fn pending(self) -> Option<BoxFuture<'static, ()>> {
        let needed = self.needed.into_inner();
        if needed.is_empty() {
            return None;
        }
        let place = Arc::clone(&self.delegates.waiting).try_acquire_owned().ok()?;
        let waits =
            needed.into_iter().map(|(place, number)| Arc::clone(&self.delegates.query_batchers[place]).until(number));
        let all = join_all(waits.collect::<Vec<_>>());
        Some(all.map(move |_| drop(place)).boxed())
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, time::Duration};

    use towpath_alto::delegation::OnDemandItems;

    use super::*;

    fn query_batcher() -> Arc<QueryBatcher> {
        let query_batcher = QueryBatcher::new(Duration::from_secs(2), Duration::from_secs(60));
        let metrics = BTreeSet::from(["delay-ow".parse().unwrap()]);
        query_batcher.open(OnDemandItems { metrics, properties: BTreeSet::new() });
        Arc::new(query_batcher)
    }

    fn item(to: u8) -> Item {
        Item::Cost("delay-ow".parse().unwrap(), [192, 0, 2, 1].into(), [192, 0, 2, to].into())
    }

    #[tokio::test]
    async fn what_the_last_one_says_holds() {
        let query_batchers = [query_batcher(), query_batcher()];
        let delegates = Delegates::new(query_batchers.to_vec());
        let context = delegates.context(true);
        assert_eq!((context.look_up(item(7)), context.look_up(item(8))), (None, None));
        let pending = context.pending().unwrap();
        for (query_batcher, values) in
            query_batchers.iter().zip([vec![(item(7), 1.into()), (item(8), 1.into())], vec![(item(7), 2.into())]])
        {
            let [request] = &query_batcher.next().await[..] else { panic!() };
            assert_eq!(request.items(), 2);
            query_batcher.record_answer(request, values, clock::now());
        }
        pending.await;
        let context = delegates.context(false);
        assert_eq!((context.look_up(item(7)), context.look_up(item(8))), (Some(2.into()), Some(1.into())));
        assert!(context.pending().is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_waits_no_longer_than_it_may() {
        let delegates = Delegates::new(vec![query_batcher()]);
        let context = delegates.context(true);
        context.look_up(item(7));
        let began = clock::now();
        context.pending().unwrap().await;
        assert_eq!((clock::now() - began).as_secs(), 2);
        let again = delegates.context(false);
        assert_eq!(again.look_up(item(7)), None);
        assert!(again.pending().is_none());
    }

    #[test]
    fn of_very_many_requests_not_all_wait() {
        let delegates = Delegates::new(vec![query_batcher()]);
        let pending = || {
            let context = delegates.context(true);
            context.look_up(item(7));
            context.pending()
        };
        let mut waiting: Vec<_> = (0..MAX_WAITING).map(|_| pending().unwrap()).collect();
        assert!(pending().is_none());
        waiting.pop();
        assert!(pending().is_some());
    }
}
