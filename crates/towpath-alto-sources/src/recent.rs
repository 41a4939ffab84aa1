//! Cache of recently learned values.

use std::{collections::HashMap, mem};

use serde_json::Value;
use towpath_alto::delegation::Item;
use towpath_store::sys::clock::Instant;

/// Capacity of one half: the costs of a full response. Each takes about 150 bytes, and there are two halves.
pub(super) const ROOM: usize = towpath_alto::resource::MAX_PAIRS;

/// A value takes one more unit of capacity per this many bytes.
const BYTES: usize = 128;

/// Items with their learned values, including negative results. Two generations: when the younger one is full, the older one
/// is dropped, which makes eviction cheap.
#[derive(Debug)]
pub(super) struct Recent {
    young: HashMap<Item, CachedValue>,
    old: HashMap<Item, CachedValue>,
    /// Capacity used by the younger generation.
    taken: usize,
    room: usize,
}

#[derive(Debug)]
struct CachedValue {
    value: Option<Value>,
    until: Instant,
}

impl Default for Recent {
    fn default() -> Self {
        Self::with_room(ROOM)
    }
}

impl Recent {
    fn with_room(room: usize) -> Self {
        Self { young: HashMap::new(), old: HashMap::new(), taken: 0, room }
    }

    /// Returns the learned value if still valid; `Some(None)` for a negative result.
    pub(super) fn get(&self, item: &Item, now: Instant) -> Option<Option<&Value>> {
        let known = self.young.get(item).or_else(|| self.old.get(item))?;
        (now < known.until).then_some(known.value.as_ref())
    }

    /// Stores a learned value, valid until then at most.
    pub(super) fn put(&mut self, item: Item, value: Option<Value>, until: Instant) {
        let takes = 1 + value.as_ref().map_or(0, bytes) / BYTES;
        if self.taken + takes > self.room {
            self.old = mem::take(&mut self.young);
            self.taken = 0;
        }
        self.taken += takes;
        self.young.insert(item, CachedValue { value, until });
    }
}

/// Returns the approximate size of a value.
fn bytes(value: &Value) -> usize {
    match value {
        Value::Number(_) | Value::Bool(_) | Value::Null => 0,
        value => value.to_string().len(),
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
    fn as_much_as_has_room_is_kept_and_twice_that_never() {
        let (mut recent, now) = (Recent::with_room(4), clock::now());
        let until = now + Duration::from_secs(5);
        (0..6).for_each(|number| recent.put(item(number), Some(1.into()), until));
        assert!((0..6).all(|number| recent.get(&item(number), now).is_some()));
        (6..9).for_each(|number| recent.put(item(number), Some(1.into()), until));
        let kept: Vec<u8> = (0..9).filter(|number| recent.get(&item(*number), now).is_some()).collect();
        assert_eq!(kept, [4, 5, 6, 7, 8]);
        recent.put(item(9), Some("x".repeat(3 * BYTES).into()), until);
        recent.put(item(9), Some(2.into()), until);
        assert_eq!(recent.get(&item(9), now), Some(Some(&2.into())), "the latest holds");
        assert!(recent.young.len() + recent.old.len() <= 8);
    }
}
