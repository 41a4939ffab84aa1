//! What routers told a collector that is no more, of which only their names and tables are left: which peers these were is not known until they speak.
//!
//! A peer of such a name that speaks for the first time begins with that table, as if it had told it on a connection that ended ([`Feed::begin`]): it holds until the peer has told all of a family,
//! or for so long as [`Earlier::expire`] is told. One that has several tables (RFC 8671, RFC 9069) begins with it in each, because the last of them is what counts.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use super::{Feed, name};
use crate::bgp_update::{Event, Peer};
use towpath_alto::{address::AddressType, facts::Router, names::RouterName};

/// Routers of an earlier collector; none at first.
#[derive(Debug, Default)]
pub struct Earlier {
    /// None if there are none.
    began: Option<Instant>,
    routers: BTreeMap<RouterName, Router>,
    /// The families with routes of which nobody has told all since.
    untold: BTreeSet<(RouterName, AddressType)>,
}

impl Earlier {
    /// What [`Feed::routers`] told of the earlier collector; `now` is when its time begins to run out.
    pub fn new(routers: BTreeMap<RouterName, Router>, now: Instant) -> Self {
        let families = |(name, router): (&RouterName, &Router)| {
            let routes = router.routes.iter().flat_map(|table| table.routes());
            let families: BTreeSet<_> = routes.map(|(prefix, _)| AddressType::of_prefix(prefix)).collect();
            families.into_iter().map(|family| (name.clone(), family)).collect::<Vec<_>>()
        };
        let untold = routers.iter().flat_map(families).collect();
        Self { began: Some(now).filter(|_| !routers.is_empty()), routers, untold }
    }

    /// Hears what is about to be taken by `feed`, and has the peer begin there with its earlier table, if it speaks for the first time.
    pub fn hear(&mut self, event: &Event, feed: &mut Feed) {
        let Some(began) = self.began else { return };
        let (Event::Route { router, .. }
        | Event::Withdraw { router, .. }
        | Event::EndOfRib { router, .. }
        | Event::Lost { router }) = event;
        if let Event::Lost { router } = event {
            self.forget(router);
        } else if !feed.routers.contains_key(router)
            && let Some(earlier) = self.routers.get(&name(router))
        {
            feed.plant(*router, earlier, began);
        }
        if let Event::EndOfRib { router, family } = event {
            self.untold.remove(&(name(router), *family));
        }
    }

    /// Who is down takes its routes with it.
    fn forget(&mut self, router: &Peer) {
        let name = name(router);
        self.routers.remove(&name);
        self.untold.retain(|(untold, _)| *untold != name);
    }

    /// Forgets all `hold` after the beginning.
    pub fn expire(&mut self, now: Instant, hold: Duration) {
        if self.began.is_some_and(|began| now.saturating_duration_since(began) >= hold) {
            *self = Self::default();
        }
    }

    /// When its time began to run out, if there is something to forget.
    pub fn began(&self) -> Option<Instant> {
        self.began
    }

    /// The routers as they were. What a feed says of one of them holds in place of this.
    pub fn routers(&self) -> &BTreeMap<RouterName, Router> {
        &self.routers
    }

    /// Whether one of them has not told all anew.
    pub fn is_awaited(&self) -> bool {
        !self.untold.is_empty()
    }
}
