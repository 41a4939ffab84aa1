//! Routers of a previous collector, of which only names and tables remain. Their peers are unknown until they
//! reconnect.
//!
//! A peer with such a name starts with that table at its first event, as if it had sent the table on a connection
//! that ended ([`RouteTables::begin`]): the routes stay valid until the peer has resent a complete family, or until
//! [`EarlierRoutes::expire`] decides that the hold time is over. If a router has several tables (RFC 8671, RFC 9069),
//! each starts with the earlier one, because the last of them is used.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use super::{RouteTables, name};
use crate::bgp_update::{Event, Peer};
use towpath_alto::{address::AddressType, agent_state::Router, names::RouterName};

/// Routers of a previous collector; empty by default.
#[derive(Debug, Default)]
pub(crate) struct EarlierRoutes {
    /// `None` if there are no routers.
    began: Option<Instant>,
    routers: BTreeMap<RouterName, Router>,
    /// Families with routes that have not been completely resent.
    untold: BTreeSet<(RouterName, AddressType)>,
}

impl EarlierRoutes {
    /// Creates it from the [`RouteTables::routers`] of the previous collector; the hold time starts at `now`.
    pub(crate) fn new(routers: BTreeMap<RouterName, Router>, now: Instant) -> Self {
        let families = |(name, router): (&RouterName, &Router)| {
            let routes = router.routes.iter().flat_map(|table| table.routes());
            let families: BTreeSet<_> = routes.map(|(prefix, _)| AddressType::of_prefix(prefix)).collect();
            families.into_iter().map(|family| (name.clone(), family)).collect::<Vec<_>>()
        };
        let untold = routers.iter().flat_map(families).collect();
        Self { began: Some(now).filter(|_| !routers.is_empty()), routers, untold }
    }

    /// Inspects an event before `feed` takes it. If it is the first one of its peer, initializes the peer in `feed`
    /// with the earlier table.
    pub(crate) fn hear(&mut self, event: &Event, feed: &mut RouteTables) {
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

    /// Removes a router whose session is down, with its routes.
    fn forget(&mut self, router: &Peer) {
        let name = name(router);
        self.routers.remove(&name);
        self.untold.retain(|(untold, _)| *untold != name);
    }

    /// Discards everything once `hold` has passed.
    pub(crate) fn expire(&mut self, now: Instant, hold: Duration) {
        if self.began.is_some_and(|began| now.saturating_duration_since(began) >= hold) {
            *self = Self::default();
        }
    }

    /// Returns the start of the hold time, if there are routers.
    pub(crate) fn began(&self) -> Option<Instant> {
        self.began
    }

    /// Returns the routers as they were. Entries of a feed take precedence.
    pub(crate) fn routers(&self) -> &BTreeMap<RouterName, Router> {
        &self.routers
    }

    /// Returns whether a router has not resent all its routes.
    pub(crate) fn is_awaited(&self) -> bool {
        !self.untold.is_empty()
    }
}
