//! The bytes in flight that all files of a copy together may have: the only bound on how much is done at once.
//!
//! Room is given in the order in which it was asked for, but for one rule: a file that is under way goes before one that has not begun. So
//! large files are copied a few at a time, as many as fill the window, and small files fill what is left.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::oneshot;

/// Who asks for room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Turn {
    /// A piece of a file that is being copied.
    Piece,
    /// A file that has not begun.
    File,
}

/// A bound on the bytes in flight, which may change at any time.
#[derive(Debug, Clone)]
pub(crate) struct Window {
    state: Arc<Mutex<State>>,
}

#[derive(Debug)]
struct State {
    limit: u64,
    used: u64,
    /// Bytes for which there was room, and which have arrived.
    moved: u64,
    pieces: VecDeque<Waiter>,
    files: VecDeque<Waiter>,
}

#[derive(Debug)]
struct Waiter {
    bytes: u64,
    granted: oneshot::Sender<Room>,
}

/// Bytes that count as in flight until it is dropped.
#[derive(Debug)]
pub(crate) struct Room {
    window: Window,
    bytes: u64,
}

impl Window {
    /// A window of `limit` bytes.
    pub(crate) fn new(limit: u64) -> Self {
        let state = State { limit, used: 0, moved: 0, pieces: VecDeque::new(), files: VecDeque::new() };
        Self { state: Arc::new(Mutex::new(state)) }
    }

    /// Changes the bound. What is in flight stays so.
    pub(crate) fn set_limit(&self, limit: u64) {
        self.state().limit = limit;
        self.grant();
    }

    /// The bound.
    pub(crate) fn limit(&self) -> u64 {
        self.state().limit
    }

    /// Bytes whose room was left because they arrived ([`Room::leave`]).
    pub(crate) fn moved(&self) -> u64 {
        self.state().moved
    }

    /// Room for `bytes`, once there is. What is larger than the window gets it when nothing else is in flight.
    pub(crate) async fn room(&self, bytes: u64, turn: Turn) -> Room {
        self.ask(bytes, turn).await.expect("whoever waits is never dropped but with the window")
    }

    /// Joins the line.
    fn ask(&self, bytes: u64, turn: Turn) -> oneshot::Receiver<Room> {
        let (granted, room) = oneshot::channel();
        self.state().line(turn).push_back(Waiter { bytes, granted });
        self.grant();
        room
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets in whom there is room for.
    fn grant(&self) {
        loop {
            let Some(next) = self.state().admit() else { return };
            // Somebody who stops waiting at this moment gives it back at once.
            let _ = next.granted.send(Room { window: self.clone(), bytes: next.bytes });
        }
    }
}

impl State {
    fn line(&mut self, turn: Turn) -> &mut VecDeque<Waiter> {
        match turn {
            Turn::Piece => &mut self.pieces,
            Turn::File => &mut self.files,
        }
    }

    /// Takes the room for the next one, if there is room for it.
    fn admit(&mut self) -> Option<Waiter> {
        for line in [&mut self.pieces, &mut self.files] {
            while line.pop_front_if(|waiter| waiter.granted.is_closed()).is_some() {}
        }
        let turn = if self.pieces.is_empty() { Turn::File } else { Turn::Piece };
        let bytes = self.line(turn).front()?.bytes;
        if self.used > 0 && self.used.saturating_add(bytes) > self.limit {
            return None;
        }
        self.used = self.used.saturating_add(bytes);
        self.line(turn).pop_front()
    }
}

impl Room {
    /// Gives it back, because the bytes have arrived. One that is only dropped was of no use, and tells nothing of the path.
    pub(crate) fn leave(self) {
        let mut state = self.window.state();
        state.moved = state.moved.saturating_add(self.bytes);
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        let mut state = self.window.state();
        state.used = state.used.saturating_sub(self.bytes);
        drop(state);
        self.window.grant();
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn room_comes_in_order_but_pieces_go_before_files() {
        let window = Window::new(100);
        let first = window.room(60, Turn::File).now_or_never().unwrap();
        let mut file = Box::pin(window.room(60, Turn::File));
        assert!((&mut file).now_or_never().is_none());
        let mut piece = Box::pin(window.room(50, Turn::Piece));
        assert!((&mut piece).now_or_never().is_none(), "there is no room yet");
        drop(first);
        let piece = piece.now_or_never().unwrap();
        assert!((&mut file).now_or_never().is_none(), "the piece has the room");
        drop(piece);
        file.now_or_never().unwrap();
    }

    #[test]
    fn what_is_larger_than_the_window_goes_alone() {
        let window = Window::new(100);
        let small = window.room(1, Turn::Piece).now_or_never().unwrap();
        let mut large = Box::pin(window.room(1000, Turn::Piece));
        assert!((&mut large).now_or_never().is_none());
        drop(small);
        let large = large.now_or_never().unwrap();
        assert!(window.room(1, Turn::Piece).now_or_never().is_none());
        drop(large);
        assert!(window.room(1, Turn::Piece).now_or_never().is_some());
    }

    #[test]
    fn who_gives_up_waiting_holds_nothing() {
        let window = Window::new(100);
        let held = window.room(100, Turn::File).now_or_never().unwrap();
        let mut given_up = Box::pin(window.room(100, Turn::File));
        assert!((&mut given_up).now_or_never().is_none());
        drop(given_up);
        drop(held);
        assert!(window.room(100, Turn::File).now_or_never().is_some());
    }

    #[test]
    fn a_wider_window_lets_in_who_waits() {
        let window = Window::new(10);
        let _held = window.room(10, Turn::File).now_or_never().unwrap();
        let mut next = Box::pin(window.room(10, Turn::File));
        assert!((&mut next).now_or_never().is_none());
        window.set_limit(20);
        assert!(next.now_or_never().is_some());
    }

    /// What may happen to a window.
    #[derive(Debug, Clone)]
    enum Event {
        Ask(Turn, u64),
        /// One of those that have room leaves it.
        Leave(usize),
        /// One of those that wait does so no longer.
        GiveUp(usize),
        Limit(u64),
    }

    fn event() -> impl Strategy<Value = Event> {
        let turn = prop_oneof![Just(Turn::Piece), Just(Turn::File)];
        prop_oneof![
            4 => (turn, 1..150_u64).prop_map(|(turn, bytes)| Event::Ask(turn, bytes)),
            3 => any::<usize>().prop_map(Event::Leave),
            1 => any::<usize>().prop_map(Event::GiveUp),
            1 => (1..200_u64).prop_map(Event::Limit),
        ]
    }

    /// One that waits.
    struct Asking {
        turn: Turn,
        bytes: u64,
        room: oneshot::Receiver<Room>,
    }

    /// Who waits, in the order in which they came, and who has room.
    #[derive(Default)]
    struct Crowd {
        waiting: Vec<Asking>,
        held: Vec<Room>,
    }

    impl Crowd {
        /// Takes those that were let in out of the line, and looks whether it was their turn.
        fn let_in(&mut self, window: &Window) {
            let mut came_in = Vec::new();
            for mut asking in std::mem::take(&mut self.waiting) {
                match asking.room.try_recv() {
                    Ok(room) => {
                        assert!(!self.is_waiting(asking.turn), "one that came earlier still waits");
                        came_in.push(asking.turn);
                        self.held.push(room);
                    }
                    Err(_) => self.waiting.push(asking),
                }
            }
            let (limit, is_alone) = (window.limit(), self.held.len() == 1);
            let used: u64 = self.held.iter().map(|room| room.bytes).sum();
            assert!(came_in.is_empty() || used <= limit || is_alone, "{used} of {limit}");
            assert!(!came_in.contains(&Turn::File) || !self.is_waiting(Turn::Piece), "a piece goes before a file");
            let first = |turn| self.waiting.iter().find(|asking| asking.turn == turn);
            let next = first(Turn::Piece).or_else(|| first(Turn::File));
            assert!(next.is_none_or(|next| used > 0 && used + next.bytes > limit), "there is room for the next one");
        }

        fn is_waiting(&self, turn: Turn) -> bool {
            self.waiting.iter().any(|asking| asking.turn == turn)
        }
    }

    proptest! {
        #[test]
        fn whatever_happens_room_is_given_in_turn_and_to_everybody(
            limit in 1..200_u64,
            events in prop::collection::vec(event(), 0..60),
        ) {
            let window = Window::new(limit);
            let (mut crowd, mut left_bytes) = (Crowd::default(), 0);
            for event in events {
                match event {
                    Event::Ask(turn, bytes) => {
                        crowd.waiting.push(Asking { turn, bytes, room: window.ask(bytes, turn) });
                    }
                    Event::Leave(which) => {
                        let Some(which) = which.checked_rem(crowd.held.len()) else { continue };
                        let room = crowd.held.swap_remove(which);
                        left_bytes += room.bytes;
                        room.leave();
                    }
                    Event::GiveUp(which) => {
                        let Some(which) = which.checked_rem(crowd.waiting.len()) else { continue };
                        drop(crowd.waiting.remove(which));
                        // Who comes behind is let in when something else happens: somebody has room.
                        continue;
                    }
                    Event::Limit(limit) => window.set_limit(limit),
                }
                crowd.let_in(&window);
            }
            prop_assert_eq!(window.moved(), left_bytes);
            while !crowd.waiting.is_empty() {
                prop_assert!(!crowd.held.is_empty(), "they wait for nobody");
                crowd.held.clear();
                crowd.let_in(&window);
            }
        }
    }
}
