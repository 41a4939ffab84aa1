//! What was learnt lately.

use std::{collections::HashMap, mem};

use serde_json::Value;
use towpath_alto::delegation::Item;
use towpath_store::sys::clock::Instant;

/// As much is learnt before what is older is forgotten: the costs of a whole answer. In memory it is some 150 bytes each, and there are twice as many.
pub(super) const ROOM: usize = towpath_alto::resource::MOST_PAIRS;

/// What a value takes for each so many bytes beyond a number.
const BYTES: usize = 128;

/// Items with what was learnt of them, or that nothing is known of them. In two halves: when the younger one is full, the older one is forgotten, so that it costs next to nothing to
/// keep it within its room.
#[derive(Debug)]
pub(super) struct Recent {
    young: HashMap<Item, Known>,
    old: HashMap<Item, Known>,
    /// How much room the younger half takes.
    taken: usize,
    room: usize,
}

#[derive(Debug)]
struct Known {
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

    /// What was learnt of it, if that holds now; `Some(None)` if it was that nobody knows it.
    pub(super) fn get(&self, item: &Item, now: Instant) -> Option<Option<&Value>> {
        let known = self.young.get(item).or_else(|| self.old.get(item))?;
        (now < known.until).then_some(known.value.as_ref())
    }

    /// Keeps what was learnt, at most until then.
    pub(super) fn put(&mut self, item: Item, value: Option<Value>, until: Instant) {
        let takes = 1 + value.as_ref().map_or(0, bytes) / BYTES;
        if self.taken + takes > self.room {
            self.old = mem::take(&mut self.young);
            self.taken = 0;
        }
        self.taken += takes;
        self.young.insert(item, Known { value, until });
    }
}

/// How long a value is, about.
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
