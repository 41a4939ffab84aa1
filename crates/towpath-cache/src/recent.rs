//! A map of bounded size that keeps the entries used last. No I/O, no clock.

use std::{collections::HashMap, hash::Hash, mem};

/// What a [`RecentMap`] no longer keeps. Drop it after the lock of the map is released: it may be long.
pub(crate) type Retired<K, V> = HashMap<K, V>;

/// The entries that were used last: at least half of `capacity`, at most `capacity`, and at most two for a smaller one.
///
/// There are two generations. A used entry moves to the young one; when that is full it becomes the old one, whose
/// entries are dropped. So each use costs a constant time, and no order has to be kept.
#[derive(Debug)]
pub(crate) struct RecentMap<K, V> {
    young: HashMap<K, V>,
    old: HashMap<K, V>,
    /// Maximum number of entries in a generation; at least one.
    generation: usize,
}

impl<K: Eq + Hash, V> RecentMap<K, V> {
    /// Creates an empty map.
    pub(crate) fn new(capacity: usize) -> Self {
        Self { young: HashMap::new(), old: HashMap::new(), generation: (capacity / 2).max(1) }
    }

    /// Adds or replaces an entry, which counts as used. Returns the entries dropped for it.
    pub(crate) fn insert(&mut self, key: K, value: V) -> Retired<K, V> {
        let mut retired = match self.young.len() >= self.generation && !self.young.contains_key(&key) {
            true => mem::replace(&mut self.old, mem::take(&mut self.young)),
            false => HashMap::new(),
        };
        if let Some(before) = self.old.remove_entry(&key) {
            retired.extend([before]);
        }
        self.young.insert(key, value);
        retired
    }

    /// Returns an entry, which counts as used, and the entries dropped for it.
    pub(crate) fn get(&mut self, key: &K) -> (Option<V>, Retired<K, V>)
    where
        V: Clone,
    {
        if let Some(found) = self.young.get(key) {
            return (Some(found.clone()), HashMap::new());
        }
        match self.old.remove_entry(key) {
            Some((key, value)) => (Some(value.clone()), self.insert(key, value)),
            None => (None, HashMap::new()),
        }
    }

    /// Returns an entry without counting it as used.
    pub(crate) fn peek(&self, key: &K) -> Option<&V> {
        self.young.get(key).or_else(|| self.old.get(key))
    }

    /// Returns whether there are no entries.
    pub(crate) fn is_empty(&self) -> bool {
        self.young.is_empty() && self.old.is_empty()
    }

    /// Returns the numbers of young and of old entries.
    #[cfg(test)]
    pub(crate) fn lengths(&self) -> (usize, usize) {
        (self.young.len(), self.old.len())
    }

    /// Removes an entry.
    pub(crate) fn remove(&mut self, key: &K) -> Option<V> {
        let (young, old) = (self.young.remove(key), self.old.remove(key));
        young.or(old)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl RecentMap<u32, u32> {
        fn contains(&self, key: &u32) -> bool {
            self.young.contains_key(key) || self.old.contains_key(key)
        }
    }

    fn len(map: &RecentMap<u32, u32>) -> usize {
        (0..1000).filter(|key| map.contains(key)).count()
    }

    #[test]
    fn the_last_half_is_kept_and_no_more_than_the_capacity() {
        let mut map = RecentMap::new(20);
        let mut dropped = 0;
        for key in 0..1000 {
            dropped += map.insert(key, key).len();
            assert!(len(&map) <= 20, "{key}");
            assert!((key.saturating_sub(9)..=key).all(|recent| map.contains(&recent)), "{key}");
        }
        assert_eq!(dropped + len(&map), 1000);
    }

    #[test]
    fn a_used_entry_stays_and_an_unused_one_goes() {
        let mut map = RecentMap::new(8);
        drop(map.insert(0, 7));
        drop(map.insert(1, 8));
        for key in 2..500 {
            drop(map.insert(key, key));
            assert_eq!(map.get(&0).0, Some(7), "{key}");
        }
        assert_eq!(map.get(&1).0, None);
        drop(map.insert(0, 9));
        assert_eq!(map.remove(&0), Some(9));
        assert!(!map.contains(&0));
        assert_eq!(map.remove(&0), None);
    }

    #[test]
    fn the_smallest_map_keeps_the_last_entry() {
        let mut map = RecentMap::new(0);
        for key in 0..10 {
            drop(map.insert(key, key));
            assert!(map.contains(&key) && len(&map) <= 2);
        }
    }
}
