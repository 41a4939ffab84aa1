//! Throttles password guessing: counts failed attempts by address.

use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use towpath_store::sys::clock::Instant;

use crate::access::network_of;

/// Maximum number of wrong passwords from one address within [`WINDOW`]; then all are rejected until it ends. Leaves
/// room for typing errors and limits guessing to 14,400 attempts a day.
pub(super) const MAX_FAILURES: u32 = 10;
const WINDOW: Duration = Duration::from_secs(60);

/// Maximum number of addresses tracked; beyond it, the one with the oldest failure is evicted. They take less than 1
/// MiB.
const MAX_TRACKED_ADDRESSES: usize = 10_000;

/// Wrong passwords of the last minute.
#[derive(Debug, Default)]
pub(super) struct Attempts(Mutex<HashMap<IpAddr, Failures>>);

#[derive(Debug)]
struct Failures {
    since: Instant,
    count: u32,
}

impl Failures {
    fn are_recent(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.since) < WINDOW
    }
}

impl Attempts {
    /// Whether passwords from `address` are currently checked.
    pub(super) fn is_allowed(&self, address: IpAddr, now: Instant) -> bool {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let failures = all.get(&network_of(address));
        failures.is_none_or(|failures| failures.count < MAX_FAILURES || !failures.are_recent(now))
    }

    /// Counts a wrong password from `address`. Returns whether further ones are now rejected.
    pub(super) fn record_failure(&self, address: IpAddr, now: Instant) -> bool {
        let address = network_of(address);
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !all.contains_key(&address) {
            make_room(&mut all, now);
        }
        let failures = all.entry(address).or_insert(Failures { since: now, count: 0 });
        if !failures.are_recent(now) {
            *failures = Failures { since: now, count: 0 };
        }
        failures.count = failures.count.saturating_add(1);
        failures.count == MAX_FAILURES
    }
}

fn make_room(all: &mut HashMap<IpAddr, Failures>, now: Instant) {
    if all.len() < MAX_TRACKED_ADDRESSES {
        return;
    }
    all.retain(|_, failures| failures.are_recent(now));
    if all.len() >= MAX_TRACKED_ADDRESSES
        && let Some(oldest) = all.iter().min_by_key(|(_, failures)| failures.since).map(|(address, _)| *address)
    {
        all.remove(&oldest);
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use towpath_store::sys::clock;

    use super::*;

    #[test]
    fn who_guesses_waits_for_a_minute_and_nobody_else_does() {
        let (attempts, now) = (Attempts::default(), clock::now());
        let [guesser, neighbour, other] =
            ["2001:db8::1", "2001:db8::2", "2001:db8:0:1::1"].map(|text| text.parse().unwrap());
        let stopped: Vec<bool> = (0..MAX_FAILURES).map(|_| attempts.record_failure(guesser, now)).collect();
        assert_eq!(stopped.iter().filter(|stopped| **stopped).count(), 1);
        assert!(stopped.ends_with(&[true]));
        assert!(!attempts.is_allowed(guesser, now));
        assert!(!attempts.is_allowed(neighbour, now), "one network is one guesser");
        assert!(attempts.is_allowed(other, now));
        assert!(attempts.is_allowed(guesser, now + WINDOW));
        attempts.record_failure(guesser, now + WINDOW);
        assert!(attempts.is_allowed(guesser, now + WINDOW), "it begins anew");
    }

    #[test]
    fn no_more_addresses_are_remembered_than_there_is_room_for() {
        let (attempts, now) = (Attempts::default(), clock::now());
        let address = |number: u32| IpAddr::V4(Ipv4Addr::from_bits(number));
        let most = u32::try_from(MAX_TRACKED_ADDRESSES).unwrap();
        let ms = |number: u32| now + Duration::from_millis(number.into());
        let together = Attempts::default();
        for number in 0..=most {
            attempts.record_failure(address(number), ms(number));
            together.record_failure(address(number), now);
        }
        let remembered = |attempts: &Attempts, number| attempts.0.lock().unwrap().contains_key(&address(number));
        assert_eq!(attempts.0.lock().unwrap().len(), MAX_TRACKED_ADDRESSES);
        assert!(!remembered(&attempts, 0) && remembered(&attempts, 1) && remembered(&attempts, most));
        together.record_failure(address(most + 1), now + WINDOW);
        assert_eq!(together.0.lock().unwrap().len(), 1, "what is over goes first");
    }
}
