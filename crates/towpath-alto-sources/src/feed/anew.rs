//! What a router has told since it began to tell its routes anew: what it told before, and not since, holds until it has told all.
//!
//! Only what is told since is noted, so that a beginning costs nothing, and the table of before stays as it is. That is about 50 bytes a route, until the end.

use std::{
    collections::{BTreeMap, HashSet, btree_map::Entry},
    mem,
    time::{Duration, Instant},
};

use ipnet::IpNet;

use towpath_alto::address::AddressType;

/// The families of which a router has not told all since it began.
#[derive(Debug, Clone, Default)]
pub(super) struct Anew(BTreeMap<AddressType, Telling>);

/// A family that is told anew, perhaps once more before that came to its end.
#[derive(Debug, Clone)]
struct Telling {
    /// All beginnings but the last one, as long as what was told before the first of them may hold. What they told holds longer than that.
    earlier: Option<Beginning>,
    last: Beginning,
}

#[derive(Debug, Clone)]
struct Beginning {
    at: Instant,
    told: Told,
}

/// Routes that were told.
#[derive(Debug, Clone, Default)]
pub(super) struct Told(HashSet<(IpNet, u32)>);

impl Told {
    /// Whether this one was. One without path identifier counts as 0: a prefix has routes with identifiers or one without.
    pub(super) fn has(&self, prefix: IpNet, path_id: Option<u32>) -> bool {
        self.0.contains(&(prefix, path_id.unwrap_or_default()))
    }
}

impl Beginning {
    fn at(now: Instant) -> Self {
        Self { at: now, told: Told::default() }
    }
}

impl Anew {
    /// All is told anew from here on. Who begins again and again keeps nothing alive by that: what it does not tell goes in its time.
    pub(super) fn begin(&mut self, now: Instant) {
        for family in AddressType::ALL {
            match self.0.entry(family) {
                Entry::Vacant(place) => {
                    place.insert(Telling { earlier: None, last: Beginning::at(now) });
                }
                Entry::Occupied(place) => place.into_mut().begin(now),
            }
        }
    }

    /// Notes what is told.
    pub(super) fn note(&mut self, prefix: IpNet, path_id: Option<u32>) {
        if let Some(telling) = self.0.get_mut(&AddressType::of_prefix(prefix)) {
            telling.last.told.0.insert((prefix, path_id.unwrap_or_default()));
        }
    }

    /// It was withdrawn since, or there was no room for it: there is nothing to keep.
    pub(super) fn forget(&mut self, prefix: IpNet, path_id: Option<u32>) {
        let Some(telling) = self.0.get_mut(&AddressType::of_prefix(prefix)) else { return };
        let route = (prefix, path_id.unwrap_or_default());
        telling.last.told.0.remove(&route);
        if let Some(earlier) = &mut telling.earlier {
            earlier.told.0.remove(&route);
        }
    }

    /// Whether that is told since the last beginning, if its family has not ended.
    pub(super) fn has(&self, prefix: IpNet, path_id: Option<u32>) -> bool {
        self.0.get(&AddressType::of_prefix(prefix)).is_some_and(|telling| telling.last.told.has(prefix, path_id))
    }

    /// Whether that is yet to be told since the last beginning, if its family has not ended.
    pub(super) fn awaits(&self, prefix: IpNet, path_id: Option<u32>) -> bool {
        self.0.get(&AddressType::of_prefix(prefix)).is_some_and(|telling| !telling.last.told.has(prefix, path_id))
    }

    /// What was told of a family that ends now; none if it did not begin.
    pub(super) fn end(&mut self, family: AddressType) -> Option<Told> {
        self.0.remove(&family).map(|telling| telling.last.told)
    }

    /// The next family that began `hold` ago, with what was told then: what is neither in it nor told since has had its time.
    pub(super) fn expire(&mut self, now: Instant, hold: Duration) -> Option<(AddressType, Told)> {
        let is_over = |telling: &Telling| now.saturating_duration_since(telling.first().at) >= hold;
        let (family, telling) = self.0.iter_mut().find(|(_, telling)| is_over(telling))?;
        let (family, earlier) = (*family, telling.earlier.take());
        let told = match earlier {
            Some(earlier) => earlier.told,
            None => self.end(family)?,
        };
        Some((family, told))
    }

    /// When the first of them began.
    pub(super) fn began(&self) -> Option<Instant> {
        self.0.values().map(|telling| telling.first().at).min()
    }
}

impl Telling {
    fn begin(&mut self, now: Instant) {
        if self.last.told.0.is_empty() {
            return;
        }
        let ended = mem::replace(&mut self.last, Beginning::at(now));
        match &mut self.earlier {
            Some(earlier) => earlier.told.0.extend(ended.told.0),
            None => self.earlier = Some(ended),
        }
    }

    /// The first beginning that something waits for.
    fn first(&self) -> &Beginning {
        self.earlier.as_ref().unwrap_or(&self.last)
    }
}
