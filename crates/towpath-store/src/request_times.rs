//! How long the requests of a client took, and which part of that time their servers took.

use std::{
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

/// Times of the requests of a client so far.
#[derive(Debug, Default)]
pub struct RequestTimes {
    total_us: AtomicU64,
    server_us: AtomicU64,
}

/// The values of [`RequestTimes`] at one time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RequestTime {
    /// Time during which connections had requests without a complete response; that of several connections adds up.
    pub total: Duration,
    /// Part of `total` before the responses, beyond a round trip and without received data: the storage of the server,
    /// or its load.
    pub server: Duration,
}

impl RequestTimes {
    /// Adds the times of a response.
    pub fn record(&self, time: RequestTime) {
        let us = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        self.total_us.fetch_add(us(time.total), Relaxed);
        self.server_us.fetch_add(us(time.server), Relaxed);
    }

    /// Returns the sums.
    pub fn sums(&self) -> RequestTime {
        let time = |sum: &AtomicU64| Duration::from_micros(sum.load(Relaxed));
        RequestTime { total: time(&self.total_us), server: time(&self.server_us) }
    }
}

impl RequestTime {
    /// Returns the fraction of the time since `before` that servers took, from 0 to 1; `None` if no response came.
    pub fn server_share_since(&self, before: &Self) -> Option<f64> {
        let total = self.total.saturating_sub(before.total);
        let server = self.server.saturating_sub(before.server);
        (!total.is_zero()).then(|| (server.as_secs_f64() / total.as_secs_f64()).min(1.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_is_that_of_an_interval() {
        let times = RequestTimes::default();
        let add = |total, server| {
            let [total, server] = [total, server].map(Duration::from_millis);
            times.record(RequestTime { total, server });
        };
        add(100, 100);
        let before = times.sums();
        assert_eq!(times.sums().server_share_since(&before), None);
        add(300, 100);
        add(100, 0);
        assert_eq!(times.sums().server_share_since(&before), Some(0.25));
    }
}
