//! Where requests and the agent that they ask meet.

use std::{
    collections::HashSet,
    mem,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use serde_json::Value;
use tokio::{
    sync::{Notify, watch},
    time::timeout,
};
use towpath_alto::delegation::{Askable, Item};
use towpath_store::sys::clock::{self, Instant};

use super::recent::{ROOM, Recent};

/// What requests need of one agent, in rounds of questions: while one is asked, what else is needed gathers for the next one.
///
/// Memory: what was learnt ([`ROOM`]), and as much again each of what is asked and of what waits to be.
#[derive(Debug)]
pub(in crate::alto) struct Desk {
    /// How long a request waits.
    wait: Duration,
    /// How long what was learnt holds.
    keep: Duration,
    state: Mutex<State>,
    /// Something is needed.
    needs: Notify,
    /// How many rounds ended.
    rounds: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct State {
    /// What can be asked for; nothing while the agent is not there.
    askable: Askable,
    recent: Recent,
    /// What waits to be asked for.
    needed: HashSet<Item>,
    /// What is asked for in the round under way.
    asked: HashSet<Item>,
    /// When that began.
    began: Option<Instant>,
    /// How many rounds ended.
    rounds: u64,
}

/// What is known of something that a request needs.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Found {
    /// This; none: that nobody knows it.
    Known(Option<Value>),
    /// It will be when so many rounds have ended.
    Needed(u64),
    /// Nothing, and it is not worth being waited for.
    Unknown,
}

impl Desk {
    /// Of an agent for which requests wait so long, and what it says holds so long. It is closed.
    pub(in crate::alto) fn new(wait: Duration, keep: Duration) -> Self {
        let (state, needs, (rounds, _)) = (Mutex::default(), Notify::new(), watch::channel(0));
        Self { wait, keep, state, needs, rounds }
    }

    /// From now on that can be asked for.
    pub(in crate::alto) fn open(&self, askable: Askable) {
        self.state().askable = askable;
    }

    /// The agent is not there: nobody waits for it. What was learnt holds.
    pub(in crate::alto) fn close(&self) {
        let mut state = self.state();
        state.askable = Askable::default();
        // Also for those that wait for the round after the one under way.
        state.rounds += 2;
        state.asked.clear();
        state.needed.clear();
        state.began = None;
        self.rounds.send_replace(state.rounds);
    }

    /// Forgets what was learnt.
    pub(in crate::alto) fn forget(&self) {
        self.state().recent = Recent::default();
    }

    /// What is known of `item` now. If it `may_wait`, it is asked for where that is not known.
    pub(super) fn look_up(&self, item: &Item, may_wait: bool, now: Instant) -> Found {
        let mut state = self.state();
        if let Some(known) = state.recent.get(item, now) {
            return Found::Known(known.cloned());
        }
        if !may_wait || !state.askable.has(item) {
            return Found::Unknown;
        }
        let is_asked = state.asked.contains(item);
        if !is_asked && !state.needed.contains(item) {
            if state.needed.len() >= ROOM {
                return Found::Unknown;
            }
            state.needed.insert(item.clone());
            self.needs.notify_one();
        }
        match state.began {
            // Who waited since then was answered without it.
            Some(began) if now.saturating_duration_since(began) >= self.wait => Found::Unknown,
            Some(_) if !is_asked => Found::Needed(state.rounds + 2),
            _ => Found::Needed(state.rounds + 1),
        }
    }

    /// What is to be asked for next: a new round begins. Nothing is lost if it is dropped before it is ready.
    pub(in crate::alto) async fn next(&self) -> Vec<Item> {
        loop {
            if let Some(items) = self.begin() {
                return items;
            }
            self.needs.notified().await;
        }
    }

    fn begin(&self) -> Option<Vec<Item>> {
        let mut state = self.state();
        if state.needed.is_empty() {
            return None;
        }
        state.asked = mem::take(&mut state.needed);
        state.began = Some(clock::now());
        Some(state.asked.iter().cloned().collect())
    }

    /// Ends the round: that was told. Of what else was asked for nothing is known; what was not asked for is passed over.
    pub(in crate::alto) fn settle(&self, told: impl IntoIterator<Item = (Item, Value)>, now: Instant) {
        let mut state = self.state();
        let until = now + self.keep;
        for (item, value) in told {
            if state.asked.remove(&item) {
                state.recent.put(item, Some(value), until);
            }
        }
        for item in mem::take(&mut state.asked) {
            state.recent.put(item, None, until);
        }
        state.began = None;
        state.rounds += 1;
        self.rounds.send_replace(state.rounds);
    }

    /// Waits until so many rounds have ended, but not too long.
    pub(super) async fn until(self: Arc<Self>, rounds: u64) {
        let mut ended = self.rounds.subscribe();
        // Later, or never, is no matter: then the answer is made without.
        let _ = timeout(self.wait, ended.wait_for(|ended| *ended >= rounds)).await;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WAIT: Duration = Duration::from_secs(2);

    fn desk() -> Desk {
        let desk = Desk::new(WAIT, Duration::from_secs(60));
        desk.open(askable());
        desk
    }

    fn askable() -> Askable {
        Askable { properties: ["x".parse().unwrap()].into(), ..Askable::default() }
    }

    fn item(number: u8) -> Item {
        Item::Property("x".parse().unwrap(), [192, 0, 2, number].into())
    }

    fn look_up(desk: &Desk, number: u8) -> Found {
        desk.look_up(&item(number), true, clock::now())
    }

    #[test]
    fn what_is_needed_while_one_round_is_asked_comes_with_the_next() {
        let desk = desk();
        assert_eq!((look_up(&desk, 1), look_up(&desk, 1)), (Found::Needed(1), Found::Needed(1)));
        assert_eq!(desk.begin(), Some(vec![item(1)]));
        assert_eq!((look_up(&desk, 1), look_up(&desk, 2)), (Found::Needed(1), Found::Needed(2)));
        desk.settle([(item(1), 7.into()), (item(3), 8.into())], clock::now());
        assert_eq!((look_up(&desk, 1), look_up(&desk, 2)), (Found::Known(Some(7.into())), Found::Needed(2)));
        assert_eq!(desk.begin(), Some(vec![item(2)]), "what was told and not asked for is not known");
        desk.settle([], clock::now());
        assert_eq!((look_up(&desk, 2), look_up(&desk, 3)), (Found::Known(None), Found::Needed(3)));
    }

    #[test]
    fn what_cannot_be_asked_for_is_not_asked() {
        let desk = desk();
        let other = Item::Property("y".parse().unwrap(), [192, 0, 2, 1].into());
        assert_eq!(desk.look_up(&other, true, clock::now()), Found::Unknown);
        assert_eq!(desk.look_up(&item(1), false, clock::now()), Found::Unknown);
        assert_eq!(desk.begin(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_waits_for_a_round_that_takes_too_long() {
        let desk = desk();
        look_up(&desk, 1);
        desk.begin();
        tokio::time::advance(WAIT).await;
        assert_eq!((look_up(&desk, 1), look_up(&desk, 2)), (Found::Unknown, Found::Unknown));
        desk.settle([(item(1), 7.into())], clock::now());
        assert_eq!(look_up(&desk, 1), Found::Known(Some(7.into())));
        assert_eq!(desk.begin(), Some(vec![item(2)]), "it was noted all the same");
    }

    #[tokio::test(start_paused = true)]
    async fn when_the_agent_goes_nobody_waits_for_it() {
        let desk = Arc::new(desk());
        look_up(&desk, 1);
        desk.begin();
        let (Found::Needed(this), Found::Needed(next)) = (look_up(&desk, 1), look_up(&desk, 2)) else { panic!() };
        let began = clock::now();
        let waiting = [this, next].map(|round| Arc::clone(&desk).until(round));
        desk.close();
        futures::future::join_all(waiting).await;
        assert_eq!(clock::now(), began);
        assert_eq!(look_up(&desk, 1), Found::Unknown);
        desk.open(askable());
        assert_eq!(desk.begin(), None);
        assert!(matches!(look_up(&desk, 1), Found::Needed(_)));
    }

    #[test]
    fn what_was_learnt_holds_for_a_while_also_when_the_agent_is_gone() {
        let (desk, now) = (desk(), clock::now());
        look_up(&desk, 1);
        desk.begin();
        desk.settle([(item(1), 7.into())], now);
        desk.close();
        let after = |seconds| desk.look_up(&item(1), true, now + Duration::from_secs(seconds));
        assert_eq!((after(59), after(60)), (Found::Known(Some(7.into())), Found::Unknown));
        desk.forget();
        assert_eq!(after(0), Found::Unknown);
    }
}
