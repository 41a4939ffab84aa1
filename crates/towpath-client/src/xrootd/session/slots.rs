//! Predicts the handle that a server will assign to the next open, so that reads can be sent in the same flight as the
//! open.
//!
//! Servers assign the lowest free number of the session, in the byte order of the reference server's machine
//! (little-endian; seen with 5.5.3). This is only a prediction: the caller compares the response to the open with it
//! and discards data read through another handle.
//!
//! A prediction must not be a handle that may still refer to another file. A server may process the requests of one
//! connection concurrently, so nothing is predicted while the response to a close is outstanding. A request with a
//! handle that is not open can only be rejected. After [`Slots::MISSES`] wrong predictions there are no further ones.

use std::collections::BTreeSet;

use towpath_proto::xrootd::FileHandle;

/// The known handles of one session.
#[derive(Debug, Default)]
pub(super) struct Slots {
    /// Numbers that are open, or predicted for an open without a response yet.
    taken: BTreeSet<u32>,
    /// Number of closes, and of opens without a prediction, that are without a response yet.
    unsettled: usize,
    misses: usize,
}

impl Slots {
    /// Maximum number of wrong predictions: a failing open shifts the predictions for those after it.
    const MISSES: usize = 3;

    /// Records an open that is about to be sent. Returns the predicted handle, if there is one.
    pub(super) fn opening(&mut self) -> Option<FileHandle> {
        if self.unsettled > 0 || self.misses >= Self::MISSES {
            self.unsettled += 1;
            return None;
        }
        let free = (0..).zip(&self.taken).find(|(number, taken)| number != *taken).map(|(number, _)| number);
        let number = free.unwrap_or(self.taken.len() as u32);
        self.taken.insert(number);
        Some(FileHandle(number.to_le_bytes()))
    }

    /// Records the response to an open: its `handle`, or `None` if it was rejected.
    pub(super) fn opened(&mut self, guess: Option<FileHandle>, handle: Option<FileHandle>) {
        match guess {
            None => self.unsettled = self.unsettled.saturating_sub(1),
            Some(guess) if handle != Some(guess) => {
                self.taken.remove(&number(guess));
                self.misses += usize::from(handle.is_some());
            }
            Some(_) => {}
        }
        self.taken.extend(handle.map(number));
    }

    /// Records a close that is about to be sent.
    pub(super) fn closing(&mut self) {
        self.unsettled += 1;
    }

    /// Records the response to a close.
    pub(super) fn closed(&mut self, handle: FileHandle) {
        self.unsettled = self.unsettled.saturating_sub(1);
        self.taken.remove(&number(handle));
    }
}

fn number(handle: FileHandle) -> u32 {
    u32::from_le_bytes(handle.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn handle(number: u32) -> FileHandle {
        FileHandle(number.to_le_bytes())
    }

    #[test]
    fn the_lowest_free_number_is_guessed() {
        let mut slots = Slots::default();
        assert_eq!(slots.opening(), Some(handle(0)));
        assert_eq!(slots.opening(), Some(handle(1)));
        slots.opened(Some(handle(0)), Some(handle(0)));
        slots.opened(Some(handle(1)), Some(handle(1)));
        slots.closing();
        slots.closed(handle(0));
        assert_eq!(slots.opening(), Some(handle(0)));
        assert_eq!(slots.opening(), Some(handle(2)));
    }

    #[test]
    fn nothing_is_guessed_while_a_close_is_underway() {
        let mut slots = Slots::default();
        let guess = slots.opening();
        slots.opened(guess, Some(handle(0)));
        slots.closing();
        assert_eq!(slots.opening(), None);
        slots.closed(handle(0));
        assert_eq!(slots.opening(), None, "the open before is not answered yet, and may take any number");
        slots.opened(None, Some(handle(0)));
        slots.opened(None, Some(handle(1)));
        assert_eq!(slots.opening(), Some(handle(2)));
    }

    #[test]
    fn a_server_that_numbers_otherwise_is_not_guessed_for_long() {
        let mut slots = Slots::default();
        for odd in 100..100 + Slots::MISSES as u32 {
            let guess = slots.opening();
            assert!(guess.is_some());
            slots.opened(guess, Some(handle(odd)));
        }
        assert_eq!(slots.opening(), None);
    }

    #[test]
    fn a_refused_open_takes_no_number() {
        let mut slots = Slots::default();
        let guess = slots.opening();
        slots.opened(guess, None);
        assert_eq!(slots.opening(), Some(handle(0)));
    }
}
