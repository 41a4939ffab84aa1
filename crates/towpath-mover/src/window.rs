//! The limit of the bytes in flight of all files of a copy. It is the only limit on the concurrency of a copy.
//!
//! Permits are granted in the order of the requests, except that pieces of files in progress have priority over files
//! that have not begun. As a result only as many large files are copied concurrently as fill the window, and small
//! files fill the rest.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::oneshot;

/// The priority of a request for a permit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Priority {
    /// A piece of a file that is being copied.
    Piece,
    /// A file that has not begun.
    File,
}

/// A limit of the bytes in flight, which may change at any time.
#[derive(Debug, Clone)]
pub(crate) struct Window {
    state: Arc<Mutex<State>>,
}

#[derive(Debug)]
struct State {
    limit: u64,
    used: u64,
    /// Bytes of completed permits.
    transferred: u64,
    pieces: VecDeque<Waiter>,
    files: VecDeque<Waiter>,
}

#[derive(Debug)]
struct Waiter {
    bytes: u64,
    granted: oneshot::Sender<Permit>,
}

/// Counts bytes as in flight until it is dropped.
#[derive(Debug)]
pub(crate) struct Permit {
    window: Window,
    bytes: u64,
}

impl Window {
    /// Creates a window of `limit` bytes.
    pub(crate) fn new(limit: u64) -> Self {
        let state = State { limit, used: 0, transferred: 0, pieces: VecDeque::new(), files: VecDeque::new() };
        Self { state: Arc::new(Mutex::new(state)) }
    }

    /// Changes the limit. Permits that are held stay valid.
    pub(crate) fn set_limit(&self, limit: u64) {
        self.state().limit = limit;
        self.grant();
    }

    /// Returns the limit in bytes.
    pub(crate) fn limit(&self) -> u64 {
        self.state().limit
    }

    /// Returns the bytes of completed permits ([`Permit::complete`]).
    pub(crate) fn transferred(&self) -> u64 {
        self.state().transferred
    }

    /// Waits for a permit for `bytes`. A request larger than the window is granted when nothing else is in flight.
    pub(crate) async fn acquire(&self, bytes: u64, priority: Priority) -> Permit {
        self.request(bytes, priority).await.expect("a waiting request is dropped only with the window")
    }

    /// Queues a request.
    fn request(&self, bytes: u64, priority: Priority) -> oneshot::Receiver<Permit> {
        let (granted, permit) = oneshot::channel();
        self.state().queue(priority).push_back(Waiter { bytes, granted });
        self.grant();
        permit
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Grants permits to waiting requests in priority order while capacity remains.
    fn grant(&self) {
        loop {
            let Some(next) = self.state().admit() else { return };
            // A request that was cancelled in the meantime drops the permit immediately.
            let _ = next.granted.send(Permit { window: self.clone(), bytes: next.bytes });
        }
    }
}

impl State {
    fn queue(&mut self, priority: Priority) -> &mut VecDeque<Waiter> {
        match priority {
            Priority::Piece => &mut self.pieces,
            Priority::File => &mut self.files,
        }
    }

    /// Takes the next request from its queue, if it fits into the window.
    fn admit(&mut self) -> Option<Waiter> {
        for queue in [&mut self.pieces, &mut self.files] {
            while queue.pop_front_if(|waiter| waiter.granted.is_closed()).is_some() {}
        }
        let priority = if self.pieces.is_empty() { Priority::File } else { Priority::Piece };
        let bytes = self.queue(priority).front()?.bytes;
        if self.used > 0 && self.used.saturating_add(bytes) > self.limit {
            return None;
        }
        self.used = self.used.saturating_add(bytes);
        self.queue(priority).pop_front()
    }
}

impl Permit {
    /// Releases the permit of bytes that have arrived. Only completed permits count in [`Window::transferred`].
    pub(crate) fn complete(self) {
        let mut state = self.window.state();
        state.transferred = state.transferred.saturating_add(self.bytes);
    }
}

impl Drop for Permit {
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
    fn permits_are_granted_in_order_and_to_pieces_before_files() {
        let window = Window::new(100);
        let first = window.acquire(60, Priority::File).now_or_never().unwrap();
        let mut file = Box::pin(window.acquire(60, Priority::File));
        assert!((&mut file).now_or_never().is_none());
        let mut piece = Box::pin(window.acquire(50, Priority::Piece));
        assert!((&mut piece).now_or_never().is_none(), "there is no permit yet");
        drop(first);
        let piece = piece.now_or_never().unwrap();
        assert!((&mut file).now_or_never().is_none(), "the piece has the permit");
        drop(piece);
        file.now_or_never().unwrap();
    }

    #[test]
    fn a_request_larger_than_the_window_is_granted_alone() {
        let window = Window::new(100);
        let small = window.acquire(1, Priority::Piece).now_or_never().unwrap();
        let mut large = Box::pin(window.acquire(1000, Priority::Piece));
        assert!((&mut large).now_or_never().is_none());
        drop(small);
        let large = large.now_or_never().unwrap();
        assert!(window.acquire(1, Priority::Piece).now_or_never().is_none());
        drop(large);
        assert!(window.acquire(1, Priority::Piece).now_or_never().is_some());
    }

    #[test]
    fn a_cancelled_request_holds_nothing() {
        let window = Window::new(100);
        let held = window.acquire(100, Priority::File).now_or_never().unwrap();
        let mut given_up = Box::pin(window.acquire(100, Priority::File));
        assert!((&mut given_up).now_or_never().is_none());
        drop(given_up);
        drop(held);
        assert!(window.acquire(100, Priority::File).now_or_never().is_some());
    }

    #[test]
    fn a_larger_limit_grants_waiting_requests() {
        let window = Window::new(10);
        let _held = window.acquire(10, Priority::File).now_or_never().unwrap();
        let mut next = Box::pin(window.acquire(10, Priority::File));
        assert!((&mut next).now_or_never().is_none());
        window.set_limit(20);
        assert!(next.now_or_never().is_some());
    }

    /// An event at a window.
    #[derive(Debug, Clone)]
    enum Event {
        Request(Priority, u64),
        /// A permit is completed.
        Complete(usize),
        /// A request is cancelled.
        Cancel(usize),
        Limit(u64),
    }

    fn event() -> impl Strategy<Value = Event> {
        let priority = prop_oneof![Just(Priority::Piece), Just(Priority::File)];
        prop_oneof![
            4 => (priority, 1..150_u64).prop_map(|(priority, bytes)| Event::Request(priority, bytes)),
            3 => any::<usize>().prop_map(Event::Complete),
            1 => any::<usize>().prop_map(Event::Cancel),
            1 => (1..200_u64).prop_map(Event::Limit),
        ]
    }

    /// A waiting request.
    struct Waiting {
        priority: Priority,
        bytes: u64,
        permit: oneshot::Receiver<Permit>,
    }

    /// Waiting requests in their order, and permits that are held.
    #[derive(Default)]
    struct Requests {
        waiting: Vec<Waiting>,
        held: Vec<Permit>,
    }

    impl Requests {
        /// Removes granted requests from the queue, and checks that they were granted in order.
        fn check_grants(&mut self, window: &Window) {
            let mut granted = Vec::new();
            for mut request in std::mem::take(&mut self.waiting) {
                match request.permit.try_recv() {
                    Ok(permit) => {
                        assert!(!self.is_waiting(request.priority), "an earlier request still waits");
                        granted.push(request.priority);
                        self.held.push(permit);
                    }
                    Err(_) => self.waiting.push(request),
                }
            }
            let (limit, is_alone) = (window.limit(), self.held.len() == 1);
            let used: u64 = self.held.iter().map(|permit| permit.bytes).sum();
            assert!(granted.is_empty() || used <= limit || is_alone, "{used} of {limit}");
            assert!(
                !granted.contains(&Priority::File) || !self.is_waiting(Priority::Piece),
                "a piece has priority over a file"
            );
            let first = |priority| self.waiting.iter().find(|request| request.priority == priority);
            let next = first(Priority::Piece).or_else(|| first(Priority::File));
            assert!(next.is_none_or(|next| used > 0 && used + next.bytes > limit), "there is permit for the next one");
        }

        fn is_waiting(&self, priority: Priority) -> bool {
            self.waiting.iter().any(|request| request.priority == priority)
        }
    }

    proptest! {
        #[test]
        fn permits_are_granted_in_order_and_to_every_request(
            limit in 1..200_u64,
            events in prop::collection::vec(event(), 0..60),
        ) {
            let window = Window::new(limit);
            let (mut requests, mut completed_bytes) = (Requests::default(), 0);
            for event in events {
                match event {
                    Event::Request(priority, bytes) => {
                        requests.waiting.push(Waiting { priority, bytes, permit: window.request(bytes, priority) });
                    }
                    Event::Complete(which) => {
                        let Some(which) = which.checked_rem(requests.held.len()) else { continue };
                        let permit = requests.held.swap_remove(which);
                        completed_bytes += permit.bytes;
                        permit.complete();
                    }
                    Event::Cancel(which) => {
                        let Some(which) = which.checked_rem(requests.waiting.len()) else { continue };
                        drop(requests.waiting.remove(which));
                        // Requests behind it are granted with the next event: a permit is held.
                        continue;
                    }
                    Event::Limit(limit) => window.set_limit(limit),
                }
                requests.check_grants(&window);
            }
            prop_assert_eq!(window.transferred(), completed_bytes);
            while !requests.waiting.is_empty() {
                prop_assert!(!requests.held.is_empty(), "no permit is held");
                requests.held.clear();
                requests.check_grants(&window);
            }
        }
    }
}
