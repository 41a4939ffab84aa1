//! Cache of recently learned values.

use std::num::NonZeroUsize;

use clru::{CLruCache, CLruCacheConfig, WeightScale};
use serde_json::Value;
use towpath_alto::delegation::Item;
use towpath_store::sys::clock::Instant;

/// Capacity: the costs of two full responses. Each takes about 150 bytes.
const CAPACITY: NonZeroUsize = NonZeroUsize::new(2 * towpath_alto::resource::MAX_PAIRS).unwrap();

/// A value takes one more unit of capacity per this many bytes.
const UNIT_BYTES: usize = 128;

/// Items with their learned values, including negative results. The least recently learned one is evicted.
#[derive(Debug)]
pub(super) struct Recent(CLruCache<Item, CachedValue, std::hash::RandomState, Units>);

#[derive(Debug)]
struct CachedValue {
    value: Option<Value>,
    /// Units of capacity that it takes besides the one of its item.
    units: usize,
    until: Instant,
}

#[derive(Debug)]
struct Units;

impl WeightScale<Item, CachedValue> for Units {
    fn weight(&self, _: &Item, cached: &CachedValue) -> usize {
        cached.units
    }
}

impl Default for Recent {
    fn default() -> Self {
        Self::with_capacity(CAPACITY)
    }
}

impl Recent {
    fn with_capacity(capacity: NonZeroUsize) -> Self {
        Self(CLruCache::with_config(CLruCacheConfig::new(capacity).with_scale(Units)))
    }

    /// Returns the learned value if still valid; `Some(None)` for a negative result.
    pub(super) fn get(&self, item: &Item, now: Instant) -> Option<Option<&Value>> {
        self.0.peek(item).filter(|cached| now < cached.until).map(|cached| cached.value.as_ref())
    }

    /// Stores a learned value, valid until then at most. A value that exceeds the capacity is not stored.
    pub(super) fn put(&mut self, item: Item, value: Option<Value>, until: Instant) {
        let units = match &value {
            None | Some(Value::Number(_) | Value::Bool(_) | Value::Null) => 0,
            Some(value) => value.to_string().len() / UNIT_BYTES,
        };
        let cached = CachedValue { value, units, until };
        if let Err((item, _)) = self.0.put_with_weight(item, cached) {
            self.0.pop(&item);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use towpath_store::sys::clock;

    use super::*;

    fn item(number: u8) -> Item {
        Item::Property("x".parse().unwrap(), [192, 0, 2, number].into())
    }

    #[test]
    fn what_is_known_holds_for_a_while() {
        let (mut recent, now) = (Recent::default(), clock::now());
        recent.put(item(1), Some("a".into()), now + Duration::from_secs(5));
        recent.put(item(2), None, now + Duration::from_secs(5));
        let later = now + Duration::from_secs(4);
        assert_eq!(recent.get(&item(1), later), Some(Some(&"a".into())));
        assert_eq!((recent.get(&item(2), later), recent.get(&item(3), later)), (Some(None), None));
        assert_eq!(recent.get(&item(1), now + Duration::from_secs(5)), None);
    }

    #[test]
    fn the_capacity_is_kept_and_long_values_take_more_of_it() {
        let (mut recent, now) = (Recent::with_capacity(NonZeroUsize::new(8).unwrap()), clock::now());
        let until = now + Duration::from_secs(5);
        let kept = |recent: &Recent| -> Vec<u8> {
            (0..12).filter(|number| recent.get(&item(*number), now).is_some()).collect()
        };
        (0..10).for_each(|number| recent.put(item(number), Some(1.into()), until));
        assert_eq!(kept(&recent), [2, 3, 4, 5, 6, 7, 8, 9]);
        recent.put(item(10), Some("x".repeat(3 * UNIT_BYTES).into()), until);
        assert_eq!(kept(&recent), [6, 7, 8, 9, 10]);
        recent.put(item(10), Some(2.into()), until);
        assert_eq!(recent.get(&item(10), now), Some(Some(&2.into())), "the latest holds");
        recent.put(item(10), Some("x".repeat(9 * UNIT_BYTES).into()), until);
        assert_eq!(recent.get(&item(10), now), None, "it does not fit, and the one before is no longer true");
    }
}
