//! Queue between requests and the delegate that answers them.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    mem,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use serde_json::Value;
use tokio::{
    sync::{Notify, watch},
    time::timeout,
};
use towpath_alto::delegation::{DelegateRequest, Item, OnDemandItems, requests};
use towpath_store::sys::clock::{self, Instant};

use super::recent::Recent;

/// Maximum number of items requested in one round.
const MAX_REQUESTED: usize = 1 << 16;

/// Maximum number of items that wait for a round.
const MAX_WAITING: usize = towpath_alto::resource::MAX_PAIRS;

/// Maximum number of requests in one round; items needed meanwhile wait for no more than that.
const MAX_REQUESTS: usize = 64;

/// Items that client requests need from one delegate. They are requested in rounds of [`DelegateRequest`]s, oldest
/// first; items needed during a round are collected for the next ones.
///
/// Needed items are numbered consecutively, so that a request can wait until all up to a number are settled.
///
/// Memory: learned values ([`Recent`]), as much for waiting items ([`MAX_WAITING`]), and a little for requested ones.
#[derive(Debug)]
pub struct QueryBatcher {
    /// How long a request waits.
    wait: Duration,
    /// How long learned values are valid.
    keep: Duration,
    state: Mutex<State>,
    /// Signals that items are needed.
    needs: Notify,
    /// Number up to which all items are settled.
    settled: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct State {
    /// Items that may be requested; none while the delegate is unreachable.
    on_demand: OnDemandItems,
    recent: Recent,
    /// Waiting items, oldest first, and since when.
    waiting: VecDeque<(Item, Instant)>,
    /// Numbers of the waiting items.
    needed: HashMap<Item, u64>,
    /// The last number.
    last: u64,
    /// Unsettled items of the current round.
    requested: HashSet<Item>,
    /// The last number of that round.
    last_requested: u64,
    /// Start of the round; kept if the delegate disconnects meanwhile.
    began: Option<Instant>,
}

/// Result of looking up an item.
#[derive(Debug, Clone, PartialEq)]
pub enum ItemLookup {
    /// Its value, or `None` if the delegate has none.
    Known(Option<Value>),
    /// It will be known once all up to this number is settled.
    Needed(u64),
    /// Unknown, and not worth waiting for.
    Unknown,
}

impl QueryBatcher {
    /// Creates a closed batcher with these limits for waiting and for the validity of values.
    pub fn new(wait: Duration, keep: Duration) -> Self {
        let (state, needs, (settled, _)) = (Mutex::default(), Notify::new(), watch::channel(0));
        Self { wait, keep, state, needs, settled }
    }

    /// Opens the batcher for these items. Waiting items keep their numbers. Unsettled items of an interrupted round are
    /// requested again only if it started recently, so that a request the delegate cannot handle does not harm the
    /// others.
    pub fn open(&self, on_demand: OnDemandItems) {
        let mut state = self.state();
        let state = &mut *state;
        state.on_demand = on_demand;
        let State { on_demand, waiting, needed, requested, .. } = state;
        waiting.retain(|(item, _)| on_demand.has(item));
        needed.retain(|item, _| on_demand.has(item));
        requested.retain(|item| on_demand.has(item));
        let (now, left) = (clock::now(), mem::take(requested));
        if state.began.take().is_some_and(|began| !self.is_over(began, now)) {
            for item in left {
                state.need(item, now);
            }
        }
        self.needs.notify_one();
    }

    /// Closes the batcher while the delegate is unreachable: nothing waits. Learned values stay valid.
    pub fn close(&self) {
        let mut state = self.state();
        state.on_demand = OnDemandItems::default();
        state.waiting.clear();
        state.needed.clear();
        self.settled.send_replace(state.last);
    }

    /// Drops learned values.
    pub fn forget(&self) {
        self.state().recent = Recent::default();
    }

    /// Looks up `item`. If it `may_wait` and the item is unknown, the item is requested.
    pub fn look_up(&self, item: &Item, may_wait: bool, now: Instant) -> ItemLookup {
        let mut state = self.state();
        if let Some(value) = state.recent.get(item, now) {
            return ItemLookup::Known(value.cloned());
        }
        if !may_wait || !state.on_demand.has(item) {
            return ItemLookup::Unknown;
        }
        let number = match state.needed.get(item) {
            _ if state.requested.contains(item) => state.last_requested,
            Some(number) => *number,
            None if state.waiting.len() >= MAX_WAITING => return ItemLookup::Unknown,
            None => {
                self.needs.notify_one();
                state.need(item.clone(), now)
            }
        };
        // Requests that have been waiting since then were answered without it.
        let oldest = state.waiting.front().map(|(_, since)| *since);
        match state.began.into_iter().chain(oldest).any(|since| self.is_over(since, now)) {
            true => ItemLookup::Unknown,
            false => ItemLookup::Needed(number),
        }
    }

    /// Starts the next round and returns its requests. Cancel-safe.
    pub async fn next(&self) -> Vec<DelegateRequest> {
        loop {
            if let Some(requests) = self.begin() {
                return requests;
            }
            self.needs.notified().await;
        }
    }

    pub(super) fn begin(&self) -> Option<Vec<DelegateRequest>> {
        let mut state = self.state();
        let state = &mut *state;
        let (count, requests) = state.first()?;
        for (item, _) in state.waiting.drain(..count) {
            state.last_requested = state.needed.remove(&item).unwrap_or(state.last_requested);
            state.requested.insert(item);
        }
        state.began = Some(clock::now());
        Some(requests)
    }

    /// Records the values learned from a request. Its other items count as unknown; unrequested ones are ignored.
    pub fn record_answer(
        &self,
        request: &DelegateRequest,
        values: impl IntoIterator<Item = (Item, Value)>,
        now: Instant,
    ) {
        let mut state = self.state();
        let until = now + self.keep;
        for (item, value) in values {
            if state.requested.remove(&item) {
                state.recent.put(item, Some(value), until);
            }
        }
        for item in request.each() {
            if state.requested.remove(&item) {
                state.recent.put(item, None, until);
            }
        }
        self.end_if_settled(&mut state);
    }

    /// Abandons a request that could not be answered. Its items must be requested again.
    pub fn give_up(&self, request: &DelegateRequest) {
        let mut state = self.state();
        for item in request.each() {
            state.requested.remove(&item);
        }
        self.end_if_settled(&mut state);
    }

    /// Ends the round if all its items are settled.
    fn end_if_settled(&self, state: &mut State) {
        if state.requested.is_empty() {
            state.began = None;
            self.settled.send_replace(state.last_requested);
        }
    }

    /// Waits until all up to this number is settled, within the time limit.
    pub async fn until(self: Arc<Self>, number: u64) {
        let mut settled = self.settled.subscribe();
        // After a timeout the response is computed without it.
        let _ = timeout(self.wait, settled.wait_for(|settled| *settled >= number)).await;
    }

    /// Returns whether requests waiting since then have timed out.
    fn is_over(&self, since: Instant, now: Instant) -> bool {
        now.saturating_duration_since(since) >= self.wait
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Adds `item` to the waiting items and returns its number.
    fn need(&mut self, item: Item, now: Instant) -> u64 {
        self.last += 1;
        self.needed.insert(item.clone(), self.last);
        self.waiting.push_back((item, now));
        self.last
    }

    /// Returns how many waiting items, oldest first, to request in one round, and the requests for them. Returns
    /// `None` if nothing waits.
    ///
    /// A request has at least one item; starting there, the count is doubled as long as it yields few requests.
    fn first(&self) -> Option<(usize, Vec<DelegateRequest>)> {
        let most = self.waiting.len().min(MAX_REQUESTED);
        let counts = (0..).map(|doublings| most.min(MAX_REQUESTS << doublings));
        let of_count = |count| (count, requests(self.waiting.iter().take(count).map(|(item, _)| item.clone())));
        let mut best = None;
        for (count, requests) in counts.map(of_count) {
            if requests.is_empty() || requests.len() > MAX_REQUESTS {
                break;
            }
            best = Some((count, requests));
            if count == most {
                break;
            }
        }
        best
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WAIT: Duration = Duration::from_secs(2);

    fn query_batcher() -> QueryBatcher {
        let query_batcher = QueryBatcher::new(WAIT, Duration::from_secs(60));
        query_batcher.open(on_demand());
        query_batcher
    }

    fn on_demand() -> OnDemandItems {
        OnDemandItems { properties: ["x".parse().unwrap()].into(), ..OnDemandItems::default() }
    }

    fn item(number: u8) -> Item {
        Item::Property("x".parse().unwrap(), [192, 0, 2, number].into())
    }

    fn look_up(query_batcher: &QueryBatcher, number: u8) -> ItemLookup {
        query_batcher.look_up(&item(number), true, clock::now())
    }

    /// Returns the items of the next round.
    fn begin(query_batcher: &QueryBatcher) -> Option<Vec<Item>> {
        let mut items: Vec<Item> = query_batcher.begin()?.iter().flat_map(DelegateRequest::each).collect();
        items.sort();
        Some(items)
    }

    /// A batcher for delays.
    fn desk_of_delays() -> QueryBatcher {
        let query_batcher = query_batcher();
        query_batcher.open(OnDemandItems { metrics: ["delay-ow".parse().unwrap()].into(), ..OnDemandItems::default() });
        query_batcher
    }

    fn delay(from: u16, to: u16) -> Item {
        let [from, to] = [from, to].map(|end| (u32::from(end) << 8).to_be_bytes().into());
        Item::Cost("delay-ow".parse().unwrap(), from, to)
    }

    fn request(numbers: impl IntoIterator<Item = u8>) -> DelegateRequest {
        let addresses = numbers.into_iter().map(|number| [192, 0, 2, number].into()).collect();
        DelegateRequest::Properties { names: vec!["x".parse().unwrap()], addresses }
    }

    #[test]
    fn what_is_needed_while_one_round_is_asked_comes_with_the_next() {
        let query_batcher = query_batcher();
        assert_eq!(
            (look_up(&query_batcher, 1), look_up(&query_batcher, 1)),
            (ItemLookup::Needed(1), ItemLookup::Needed(1))
        );
        assert_eq!(begin(&query_batcher), Some(vec![item(1)]));
        assert_eq!(
            (look_up(&query_batcher, 1), look_up(&query_batcher, 2)),
            (ItemLookup::Needed(1), ItemLookup::Needed(2))
        );
        query_batcher.record_answer(&request([1]), [(item(1), 7.into()), (item(3), 8.into())], clock::now());
        assert_eq!(
            (look_up(&query_batcher, 1), look_up(&query_batcher, 2)),
            (ItemLookup::Known(Some(7.into())), ItemLookup::Needed(2))
        );
        assert_eq!(begin(&query_batcher), Some(vec![item(2)]), "what was told and not asked for is not known");
        query_batcher.record_answer(&request([2]), [], clock::now());
        assert_eq!(
            (look_up(&query_batcher, 2), look_up(&query_batcher, 3)),
            (ItemLookup::Known(None), ItemLookup::Needed(3))
        );
    }

    #[test]
    fn each_question_is_settled_for_itself() {
        let query_batcher = query_batcher();
        let numbers: Vec<ItemLookup> = (1..=3).map(|number| look_up(&query_batcher, number)).collect();
        assert_eq!(numbers, [ItemLookup::Needed(1), ItemLookup::Needed(2), ItemLookup::Needed(3)]);
        query_batcher.begin();
        query_batcher.record_answer(&request([2]), [(item(2), 7.into())], clock::now());
        assert_eq!(
            (look_up(&query_batcher, 2), look_up(&query_batcher, 1)),
            (ItemLookup::Known(Some(7.into())), ItemLookup::Needed(3))
        );
        query_batcher.give_up(&request([1]));
        assert_eq!(*query_batcher.settled.borrow(), 0, "one is still asked for");
        query_batcher.close();
        assert_eq!(*query_batcher.settled.borrow(), 3);
        query_batcher.open(on_demand());
        assert_eq!(begin(&query_batcher), Some(vec![item(3)]), "what was not settled is asked for again");
        query_batcher.record_answer(&request([3]), [], clock::now());
        assert_eq!(
            (look_up(&query_batcher, 3), look_up(&query_batcher, 1)),
            (ItemLookup::Known(None), ItemLookup::Needed(5))
        );
    }

    #[test]
    fn the_oldest_is_asked_for_first_and_not_all_at_once() {
        let query_batcher = desk_of_delays();
        let look_up = |from, to| query_batcher.look_up(&delay(from, to), true, clock::now());
        let most = u16::try_from(MAX_REQUESTS).unwrap();
        (0..=most).for_each(|number| assert_eq!(look_up(number, number), ItemLookup::Needed(u64::from(number) + 1)));
        assert_eq!(look_up(0, 1), ItemLookup::Needed(66));
        let first = query_batcher.begin().unwrap();
        let mut items: Vec<Item> = first.iter().flat_map(DelegateRequest::each).collect();
        items.sort();
        assert_eq!(items, (0..most).map(|number| delay(number, number)).collect::<Vec<_>>());
        assert_eq!((look_up(0, 0), look_up(most, most)), (ItemLookup::Needed(64), ItemLookup::Needed(65)));
        first.iter().for_each(|request| query_batcher.record_answer(request, [], clock::now()));
        assert_eq!(begin(&query_batcher).map(|items| items.len()), Some(2));
    }

    #[test]
    fn the_costs_of_very_many_replicas_for_one_client_are_one_round() {
        for pair in [|replica, client| delay(replica, client), |replica, client| delay(client, replica)] {
            let query_batcher = desk_of_delays();
            (1..=4000).for_each(|replica| drop(query_batcher.look_up(&pair(replica, 0), true, clock::now())));
            let requests = query_batcher.begin().unwrap();
            assert_eq!((requests.len(), requests.iter().map(DelegateRequest::items).sum::<usize>()), (16, 4000));
        }
    }

    #[test]
    fn what_cannot_be_asked_for_is_not_asked() {
        let query_batcher = query_batcher();
        let other = Item::Property("y".parse().unwrap(), [192, 0, 2, 1].into());
        assert_eq!(query_batcher.look_up(&other, true, clock::now()), ItemLookup::Unknown);
        assert_eq!(query_batcher.look_up(&item(1), false, clock::now()), ItemLookup::Unknown);
        assert_eq!(query_batcher.begin(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_waits_for_a_round_that_takes_too_long() {
        let query_batcher = query_batcher();
        look_up(&query_batcher, 1);
        query_batcher.begin();
        tokio::time::advance(WAIT).await;
        assert_eq!(
            (look_up(&query_batcher, 1), look_up(&query_batcher, 2)),
            (ItemLookup::Unknown, ItemLookup::Unknown)
        );
        query_batcher.record_answer(&request([1]), [(item(1), 7.into())], clock::now());
        assert_eq!(look_up(&query_batcher, 1), ItemLookup::Known(Some(7.into())));
        assert_eq!(begin(&query_batcher), Some(vec![item(2)]), "it was noted all the same");
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_waits_behind_what_has_waited_too_long() {
        let query_batcher = desk_of_delays();
        let look_up = |number| query_batcher.look_up(&delay(number, number), true, clock::now());
        let most = u16::try_from(MAX_REQUESTS).unwrap();
        (0..3 * most).for_each(|number| drop(look_up(number)));
        let first = query_batcher.begin().unwrap();
        tokio::time::advance(WAIT).await;
        first.iter().for_each(|request| query_batcher.record_answer(request, [], clock::now()));
        assert_eq!(look_up(3 * most), ItemLookup::Unknown, "before the next round too");
        query_batcher.begin();
        assert_eq!(look_up(3 * most), ItemLookup::Unknown);
    }

    #[test]
    fn what_waits_keeps_its_number_when_it_turns_out_what_can_be_asked_for() {
        let query_batcher = query_batcher();
        (1..=3).for_each(|number| drop(look_up(&query_batcher, number)));
        query_batcher.open(on_demand());
        assert_eq!(
            (look_up(&query_batcher, 1), look_up(&query_batcher, 3)),
            (ItemLookup::Needed(1), ItemLookup::Needed(3))
        );
        query_batcher.open(OnDemandItems::default());
        query_batcher.open(on_demand());
        assert_eq!(begin(&query_batcher), None, "in between it could not be asked for");
        assert_eq!(look_up(&query_batcher, 1), ItemLookup::Needed(4));
    }

    #[tokio::test(start_paused = true)]
    async fn when_the_agent_goes_nobody_waits_for_it() {
        let query_batcher = Arc::new(query_batcher());
        look_up(&query_batcher, 1);
        query_batcher.begin();
        let (ItemLookup::Needed(this), ItemLookup::Needed(next)) =
            (look_up(&query_batcher, 1), look_up(&query_batcher, 2))
        else {
            panic!()
        };
        let began = clock::now();
        let waiting = [this, next].map(|round| Arc::clone(&query_batcher).until(round));
        query_batcher.close();
        futures::future::join_all(waiting).await;
        assert_eq!(clock::now(), began);
        assert_eq!(look_up(&query_batcher, 1), ItemLookup::Unknown);
        query_batcher.open(on_demand());
        assert_eq!(begin(&query_batcher), Some(vec![item(1)]), "what it was asked for is, but not what waited");
        query_batcher.close();
        tokio::time::advance(WAIT).await;
        query_batcher.open(on_demand());
        assert_eq!(begin(&query_batcher), None, "that is long ago");
        assert!(matches!(look_up(&query_batcher, 1), ItemLookup::Needed(_)));
    }

    #[test]
    fn what_was_learnt_holds_for_a_while_also_when_the_agent_is_gone() {
        let (query_batcher, now) = (query_batcher(), clock::now());
        look_up(&query_batcher, 1);
        query_batcher.begin();
        query_batcher.record_answer(&request([1]), [(item(1), 7.into())], now);
        query_batcher.close();
        let after = |seconds| query_batcher.look_up(&item(1), true, now + Duration::from_secs(seconds));
        assert_eq!((after(59), after(60)), (ItemLookup::Known(Some(7.into())), ItemLookup::Unknown));
        query_batcher.forget();
        assert_eq!(after(0), ItemLookup::Unknown);
    }
}
