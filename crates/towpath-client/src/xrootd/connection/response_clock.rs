//! Divides the time of a connection among its responses.

use std::time::Duration;

use towpath_store::sys::clock::Instant;

/// Arrivals on a connection.
#[derive(Debug)]
pub(super) struct ResponseClock {
    /// Time of the last received byte.
    arrived: Instant,
    /// Times of the last byte before the latest response, and of its first byte, until the response is recorded.
    silence: Option<(Instant, Instant)>,
    /// Until when the time has been counted.
    counted: Instant,
}

impl ResponseClock {
    pub(super) fn new(now: Instant) -> Self {
        Self { arrived: now, silence: None, counted: now }
    }

    /// Records received bytes: the first ones of a response, or of its rest.
    pub(super) fn received(&mut self, now: Instant, is_first: bool) {
        if is_first {
            self.silence = Some((self.arrived, now));
        }
        self.arrived = now;
    }

    /// Records the end of a response to a request of the time `since`. Returns the time of the connection since the
    /// previous response or the request, and the silence before the response.
    pub(super) fn ended(&mut self, now: Instant, since: Instant) -> (Duration, Duration) {
        let total = now.saturating_duration_since(self.counted.max(since));
        self.counted = now;
        let silence = self.silence.take();
        let silence = silence.map(|(before, arrived)| arrived.saturating_duration_since(before.max(since)));
        (total, silence.unwrap_or_default().min(total))
    }
}

#[cfg(test)]
mod tests {
    use towpath_store::sys::clock;

    use super::*;

    #[test]
    fn pipelined_responses_share_the_time() {
        let start = clock::now();
        let at = |ms: u64| start + Duration::from_millis(ms);
        let mut responses = ResponseClock::new(start);
        // Two requests at 1 s; the first byte after 100 ms, and both responses within the next 50 ms.
        responses.received(at(1100), true);
        responses.received(at(1120), false);
        assert_eq!(responses.ended(at(1120), at(1000)), (Duration::from_millis(120), Duration::from_millis(100)));
        responses.received(at(1150), true);
        assert_eq!(responses.ended(at(1150), at(1000)), (Duration::from_millis(30), Duration::from_millis(30)));
        // Two responses that arrive together.
        responses.received(at(5200), true);
        assert_eq!(responses.ended(at(5200), at(5000)), (Duration::from_millis(200), Duration::from_millis(200)));
        assert_eq!(responses.ended(at(5200), at(5000)), (Duration::ZERO, Duration::ZERO));
    }
}
