//! Where requests and the agent that they ask meet.

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
use towpath_alto::delegation::{Askable, Item, Question, questions};
use towpath_store::sys::clock::{self, Instant};

use super::recent::{ROOM, Recent};

/// The most that is asked for in one round.
const MOST_ASKED: usize = 1 << 16;

/// The most questions of one round: what is needed meanwhile waits for so many only.
const MOST_QUESTIONS: usize = 64;

/// What requests need of one agent, in rounds of questions, the oldest first: while one is asked, what else is needed gathers for the next ones.
///
/// What is needed has a number, one after the other; so a request can wait until all to that one is settled.
///
/// Memory: what was learnt ([`ROOM`]), as much again twice of what waits to be asked for, and a little of what is asked.
#[derive(Debug)]
pub struct Desk {
    /// How long a request waits.
    wait: Duration,
    /// How long what was learnt holds.
    keep: Duration,
    state: Mutex<State>,
    /// Something is needed.
    needs: Notify,
    /// All to this number is settled.
    settled: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct State {
    /// What can be asked for; nothing while the agent is not there.
    askable: Askable,
    recent: Recent,
    /// What waits to be asked for, the oldest first, and since when.
    waiting: VecDeque<(Item, Instant)>,
    /// The same with its numbers.
    needed: HashMap<Item, u64>,
    /// The last number.
    last: u64,
    /// What is asked for in the round under way, as far as it is not settled.
    asked: HashSet<Item>,
    /// The last number of that round.
    last_asked: u64,
    /// When it began; it stands also when the agent went meanwhile.
    began: Option<Instant>,
}

/// What is known of something that a request needs.
#[derive(Debug, Clone, PartialEq)]
pub enum Found {
    /// This; none: that nobody knows it.
    Known(Option<Value>),
    /// It will be when all to this number is settled.
    Needed(u64),
    /// Nothing, and it is not worth being waited for.
    Unknown,
}

impl Desk {
    /// Of an agent for which requests wait so long, and what it says holds so long. It is closed.
    pub fn new(wait: Duration, keep: Duration) -> Self {
        let (state, needs, (settled, _)) = (Mutex::default(), Notify::new(), watch::channel(0));
        Self { wait, keep, state, needs, settled }
    }

    /// From now on that can be asked for. What waits, waits on, under its number. What was left of a round when the agent went is asked for again if that was a moment ago: a question that it
    /// cannot bear should not hurt the others.
    pub fn open(&self, askable: Askable) {
        let mut state = self.state();
        let state = &mut *state;
        state.askable = askable;
        let State { askable, waiting, needed, asked, .. } = state;
        waiting.retain(|(item, _)| askable.has(item));
        needed.retain(|item, _| askable.has(item));
        asked.retain(|item| askable.has(item));
        let (now, left) = (clock::now(), mem::take(asked));
        if state.began.take().is_some_and(|began| !self.is_over(began, now)) {
            for item in left {
                state.need(item, now);
            }
        }
        self.needs.notify_one();
    }

    /// The agent is not there: nobody waits for it, so that nothing waits to be asked for. What was learnt holds.
    pub fn close(&self) {
        let mut state = self.state();
        state.askable = Askable::default();
        state.waiting.clear();
        state.needed.clear();
        self.settled.send_replace(state.last);
    }

    /// Forgets what was learnt.
    pub fn forget(&self) {
        self.state().recent = Recent::default();
    }

    /// What is known of `item` now. If it `may_wait`, it is asked for where that is not known.
    pub fn look_up(&self, item: &Item, may_wait: bool, now: Instant) -> Found {
        let mut state = self.state();
        if let Some(known) = state.recent.get(item, now) {
            return Found::Known(known.cloned());
        }
        if !may_wait || !state.askable.has(item) {
            return Found::Unknown;
        }
        let number = match state.needed.get(item) {
            _ if state.asked.contains(item) => state.last_asked,
            Some(number) => *number,
            None if state.waiting.len() >= ROOM => return Found::Unknown,
            None => {
                self.needs.notify_one();
                state.need(item.clone(), now)
            }
        };
        // Who waits since then was answered without it.
        let oldest = state.waiting.front().map(|(_, since)| *since);
        match state.began.into_iter().chain(oldest).any(|since| self.is_over(since, now)) {
            true => Found::Unknown,
            false => Found::Needed(number),
        }
    }

    /// What is to be asked for next: a new round begins. Nothing is lost if it is dropped before it is ready.
    pub async fn next(&self) -> Vec<Question> {
        loop {
            if let Some(questions) = self.begin() {
                return questions;
            }
            self.needs.notified().await;
        }
    }

    pub(super) fn begin(&self) -> Option<Vec<Question>> {
        let mut state = self.state();
        let state = &mut *state;
        let (count, questions) = state.first()?;
        for (item, _) in state.waiting.drain(..count) {
            state.last_asked = state.needed.remove(&item).unwrap_or(state.last_asked);
            state.asked.insert(item);
        }
        state.began = Some(clock::now());
        Some(questions)
    }

    /// Settles a question: that was told. Of what else it asked for nothing is known; what was not asked for is passed over.
    pub fn settle(&self, question: &Question, told: impl IntoIterator<Item = (Item, Value)>, now: Instant) {
        let mut state = self.state();
        let until = now + self.keep;
        for (item, value) in told {
            if state.asked.remove(&item) {
                state.recent.put(item, Some(value), until);
            }
        }
        for item in question.each() {
            if state.asked.remove(&item) {
                state.recent.put(item, None, until);
            }
        }
        self.end_if_settled(&mut state);
    }

    /// Gives up a question that could not be answered: who needs something of it has to ask again.
    pub fn give_up(&self, question: &Question) {
        let mut state = self.state();
        for item in question.each() {
            state.asked.remove(&item);
        }
        self.end_if_settled(&mut state);
    }

    /// Ends the round if all of it is settled.
    fn end_if_settled(&self, state: &mut State) {
        if state.asked.is_empty() {
            state.began = None;
            self.settled.send_replace(state.last_asked);
        }
    }

    /// Waits until all to that number is settled, but not too long.
    pub async fn until(self: Arc<Self>, number: u64) {
        let mut settled = self.settled.subscribe();
        // Later, or never, is no matter: then the answer is made without.
        let _ = timeout(self.wait, settled.wait_for(|settled| *settled >= number)).await;
    }

    /// Whether nobody waits any more who began to wait then.
    fn is_over(&self, since: Instant, now: Instant) -> bool {
        now.saturating_duration_since(since) >= self.wait
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Has `item` asked for. Its number.
    fn need(&mut self, item: Item, now: Instant) -> u64 {
        self.last += 1;
        self.needed.insert(item.clone(), self.last);
        self.waiting.push_back((item, now));
        self.last
    }

    /// How many of those that wait, the oldest first, are asked for in one round, and the questions for them; none if nothing waits.
    ///
    /// A question asks for one item at least; from there on twice as many are tried, as long as they make few questions.
    fn first(&self) -> Option<(usize, Vec<Question>)> {
        let most = self.waiting.len().min(MOST_ASKED);
        let counts = (0..).map(|doublings| most.min(MOST_QUESTIONS << doublings));
        let of_count = |count| (count, questions(self.waiting.iter().take(count).map(|(item, _)| item.clone())));
        let mut best = None;
        for (count, questions) in counts.map(of_count) {
            if questions.is_empty() || questions.len() > MOST_QUESTIONS {
                break;
            }
            best = Some((count, questions));
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

    /// What the next round asks for.
    fn begin(desk: &Desk) -> Option<Vec<Item>> {
        let mut items: Vec<Item> = desk.begin()?.iter().flat_map(Question::each).collect();
        items.sort();
        Some(items)
    }

    /// A desk for delays.
    fn desk_of_delays() -> Desk {
        let desk = desk();
        desk.open(Askable { metrics: ["delay-ow".parse().unwrap()].into(), ..Askable::default() });
        desk
    }

    fn delay(from: u16, to: u16) -> Item {
        let [from, to] = [from, to].map(|end| (u32::from(end) << 8).to_be_bytes().into());
        Item::Cost("delay-ow".parse().unwrap(), from, to)
    }

    fn question(numbers: impl IntoIterator<Item = u8>) -> Question {
        let addresses = numbers.into_iter().map(|number| [192, 0, 2, number].into()).collect();
        Question::Properties { names: vec!["x".parse().unwrap()], addresses }
    }

    #[test]
    fn what_is_needed_while_one_round_is_asked_comes_with_the_next() {
        let desk = desk();
        assert_eq!((look_up(&desk, 1), look_up(&desk, 1)), (Found::Needed(1), Found::Needed(1)));
        assert_eq!(begin(&desk), Some(vec![item(1)]));
        assert_eq!((look_up(&desk, 1), look_up(&desk, 2)), (Found::Needed(1), Found::Needed(2)));
        desk.settle(&question([1]), [(item(1), 7.into()), (item(3), 8.into())], clock::now());
        assert_eq!((look_up(&desk, 1), look_up(&desk, 2)), (Found::Known(Some(7.into())), Found::Needed(2)));
        assert_eq!(begin(&desk), Some(vec![item(2)]), "what was told and not asked for is not known");
        desk.settle(&question([2]), [], clock::now());
        assert_eq!((look_up(&desk, 2), look_up(&desk, 3)), (Found::Known(None), Found::Needed(3)));
    }

    #[test]
    fn each_question_is_settled_for_itself() {
        let desk = desk();
        let numbers: Vec<Found> = (1..=3).map(|number| look_up(&desk, number)).collect();
        assert_eq!(numbers, [Found::Needed(1), Found::Needed(2), Found::Needed(3)]);
        desk.begin();
        desk.settle(&question([2]), [(item(2), 7.into())], clock::now());
        assert_eq!((look_up(&desk, 2), look_up(&desk, 1)), (Found::Known(Some(7.into())), Found::Needed(3)));
        desk.give_up(&question([1]));
        assert_eq!(*desk.settled.borrow(), 0, "one is still asked for");
        desk.close();
        assert_eq!(*desk.settled.borrow(), 3);
        desk.open(askable());
        assert_eq!(begin(&desk), Some(vec![item(3)]), "what was not settled is asked for again");
        desk.settle(&question([3]), [], clock::now());
        assert_eq!((look_up(&desk, 3), look_up(&desk, 1)), (Found::Known(None), Found::Needed(5)));
    }

    #[test]
    fn the_oldest_is_asked_for_first_and_not_all_at_once() {
        let desk = desk_of_delays();
        let look_up = |from, to| desk.look_up(&delay(from, to), true, clock::now());
        let most = u16::try_from(MOST_QUESTIONS).unwrap();
        (0..=most).for_each(|number| assert_eq!(look_up(number, number), Found::Needed(u64::from(number) + 1)));
        assert_eq!(look_up(0, 1), Found::Needed(66));
        let first = desk.begin().unwrap();
        let mut items: Vec<Item> = first.iter().flat_map(Question::each).collect();
        items.sort();
        assert_eq!(items, (0..most).map(|number| delay(number, number)).collect::<Vec<_>>());
        assert_eq!((look_up(0, 0), look_up(most, most)), (Found::Needed(64), Found::Needed(65)));
        first.iter().for_each(|question| desk.settle(question, [], clock::now()));
        assert_eq!(begin(&desk).map(|items| items.len()), Some(2));
    }

    #[test]
    fn the_costs_of_very_many_replicas_for_one_client_are_one_round() {
        for pair in [|replica, client| delay(replica, client), |replica, client| delay(client, replica)] {
            let desk = desk_of_delays();
            (1..=4000).for_each(|replica| drop(desk.look_up(&pair(replica, 0), true, clock::now())));
            let questions = desk.begin().unwrap();
            assert_eq!((questions.len(), questions.iter().map(Question::items).sum::<usize>()), (16, 4000));
        }
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
        desk.settle(&question([1]), [(item(1), 7.into())], clock::now());
        assert_eq!(look_up(&desk, 1), Found::Known(Some(7.into())));
        assert_eq!(begin(&desk), Some(vec![item(2)]), "it was noted all the same");
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_waits_behind_what_has_waited_too_long() {
        let desk = desk_of_delays();
        let look_up = |number| desk.look_up(&delay(number, number), true, clock::now());
        let most = u16::try_from(MOST_QUESTIONS).unwrap();
        (0..3 * most).for_each(|number| drop(look_up(number)));
        let first = desk.begin().unwrap();
        tokio::time::advance(WAIT).await;
        first.iter().for_each(|question| desk.settle(question, [], clock::now()));
        assert_eq!(look_up(3 * most), Found::Unknown, "before the next round too");
        desk.begin();
        assert_eq!(look_up(3 * most), Found::Unknown);
    }

    #[test]
    fn what_waits_keeps_its_number_when_it_turns_out_what_can_be_asked_for() {
        let desk = desk();
        (1..=3).for_each(|number| drop(look_up(&desk, number)));
        desk.open(askable());
        assert_eq!((look_up(&desk, 1), look_up(&desk, 3)), (Found::Needed(1), Found::Needed(3)));
        desk.open(Askable::default());
        desk.open(askable());
        assert_eq!(begin(&desk), None, "in between it could not be asked for");
        assert_eq!(look_up(&desk, 1), Found::Needed(4));
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
        assert_eq!(begin(&desk), Some(vec![item(1)]), "what it was asked for is, but not what waited");
        desk.close();
        tokio::time::advance(WAIT).await;
        desk.open(askable());
        assert_eq!(begin(&desk), None, "that is long ago");
        assert!(matches!(look_up(&desk, 1), Found::Needed(_)));
    }

    #[test]
    fn what_was_learnt_holds_for_a_while_also_when_the_agent_is_gone() {
        let (desk, now) = (desk(), clock::now());
        look_up(&desk, 1);
        desk.begin();
        desk.settle(&question([1]), [(item(1), 7.into())], now);
        desk.close();
        let after = |seconds| desk.look_up(&item(1), true, now + Duration::from_secs(seconds));
        assert_eq!((after(59), after(60)), (Found::Known(Some(7.into())), Found::Unknown));
        desk.forget();
        assert_eq!(after(0), Found::Unknown);
    }
}
