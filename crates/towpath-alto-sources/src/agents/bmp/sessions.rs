//! Routes received on live and recently ended connections. No sockets, no clock.
//!
//! The routes of an ended connection pass to the next one from the same address and stay valid until its routers send
//! their tables again ([`RouteTables::begin`]): reconnecting changes nothing. Routes that are not sent again expire
//! when a table ends, or some time after the connection.

#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    time::Duration,
};

use crate::{
    bmp::{Event, Peer},
    rib::{EarlierRoutes, RouteTables},
};
use towpath_alto::{agent_state::Router, names::RouterName};
use towpath_store::sys::clock::Instant;

/// Maximum number of connections. Ended ones count as long as their routes are valid.
const MAX_SESSIONS: usize = 256;

/// Maximum number of addresses tracked as missing. Others are forgotten with their routes.
const MAX_MISSED: usize = 256;

/// Maximum number of routes per connection: ten peers with full Internet tables. They take about 1 GiB, twice that with
/// several routes per prefix. While they are being sent again there may be twice as many ([`has_room`]).
const MAX_ROUTES: usize = 12_000_000;

/// Maximum number of peers per connection, including those without routes.
const MAX_PEERS: usize = 1 << 16;

/// All connections in order of their start.
#[derive(Debug, Default)]
pub(super) struct Sessions {
    sessions: BTreeMap<u64, BmpSession>,
    /// Number of the next connection.
    next: u64,
    /// Routes from earlier runs.
    earlier: EarlierRoutes,
    /// Disconnected addresses that had sent routes, even if these have expired.
    missed: BTreeSet<IpAddr>,
}

/// Routes of one connection and of its predecessors from the same address.
#[derive(Debug)]
struct BmpSession {
    from: IpAddr,
    feed: RouteTables,
    /// A session that is not live must be needed ([`Self::is_needed`]), and is then the only one of its address.
    is_live: bool,
}

impl BmpSession {
    /// Returns whether dropping it would change the reported routes: it has routes, or hides `earlier` ones that its
    /// peers withdrew.
    fn is_needed(&self, earlier: &EarlierRoutes) -> bool {
        !self.feed.is_empty() || (earlier.began().is_some() && self.feed.peers() > 0)
    }
}

impl Sessions {
    /// Creates an empty set with these routers from earlier runs, as if they had disconnected at `now`.
    pub(super) fn with_earlier(earlier: BTreeMap<RouterName, Router>, now: Instant) -> Self {
        Self { earlier: EarlierRoutes::new(earlier, now.into_std()), ..Self::default() }
    }

    /// Registers a connection, which continues the last one from the same address. Returns its number, or `None` at the
    /// limit.
    pub(super) fn begin(&mut self, from: IpAddr) -> Option<u64> {
        let mut sessions = self.sessions.iter();
        let ended = sessions.find(|(_, session)| !session.is_live && session.from == from).map(|(number, _)| *number);
        let ended = ended.and_then(|number| self.sessions.remove(&number));
        if self.sessions.len() >= MAX_SESSIONS {
            return None;
        }
        self.missed.remove(&from);
        let number = self.next;
        self.next += 1;
        let feed = ended.map(|session| session.feed).unwrap_or_default();
        self.sessions.insert(number, BmpSession { from, feed, is_live: true });
        Some(number)
    }

    /// Records that `router` starts to send its routes again on a connection. Its routes on another connection from the
    /// same address, whose end was not noticed, count as received on this one: while both live, two routers behind one
    /// address with the same peer are treated as one. The other connection keeps its own copy, in case this one ends
    /// first.
    pub(super) fn renew(&mut self, number: u64, router: Peer, now: Instant) {
        let Some(mut session) = self.sessions.remove(&number) else { return };
        let earlier = self.sessions.range_mut(..number).rev().map(|(_, earlier)| earlier);
        for earlier in earlier.filter(|earlier| earlier.from == session.from) {
            session.feed.copy(router, &earlier.feed);
            earlier.feed.set_aside(router);
        }
        session.feed.begin_router(router, now.into_std());
        self.sessions.insert(number, session);
    }

    /// Applies a change received on a connection. Returns whether the limits are respected.
    pub(super) fn take(&mut self, number: u64, event: Event) -> bool {
        let Some(session) = self.sessions.get_mut(&number) else { return false };
        self.earlier.hear(&event, &mut session.feed);
        session.feed.take(event);
        has_room(&session.feed, MAX_ROUTES) && session.feed.peers() <= MAX_PEERS
    }

    /// Ends a connection. Its routes stay valid, on another connection from the same address if there is one. So do its
    /// peers' withdrawals, as long as they hide earlier routes.
    pub(super) fn end(&mut self, number: u64, now: Instant) {
        let Some(mut ended) = self.sessions.remove(&number) else { return };
        ended.feed.begin(now.into_std());
        match self.sessions.values_mut().rev().find(|session| session.from == ended.from) {
            Some(other) => other.feed.join(ended.feed),
            None if ended.is_needed(&self.earlier) => {
                ended.is_live = false;
                if self.missed.len() < MAX_MISSED {
                    self.missed.insert(ended.from);
                }
                self.sessions.insert(number, ended);
            }
            None => {}
        }
    }

    /// Drops routes that were not sent again within `hold` after their connection ended or their router restarted.
    pub(super) fn expire(&mut self, now: Instant, hold: Duration) {
        self.earlier.expire(now.into_std(), hold);
        self.sessions.values_mut().for_each(|session| session.feed.expire(now.into_std(), hold));
        self.sessions.retain(|_, session| session.is_live || session.is_needed(&self.earlier));
    }

    /// Returns when the next routes expire.
    pub(super) fn next_expiry(&self, hold: Duration) -> Option<Instant> {
        let feeds = self.sessions.values().filter_map(|session| session.feed.began());
        let began = feeds.chain(self.earlier.began()).min()?;
        Some(Instant::from_std(began) + hold)
    }

    /// Returns the current routers. If several connections report one, the latest takes precedence.
    pub(super) fn routers(&self) -> BTreeMap<RouterName, Router> {
        let live = self.sessions.values().flat_map(|session| session.feed.routers());
        self.earlier.routers().clone().into_iter().chain(live).collect()
    }

    /// Returns whether some routes are from earlier runs and have not all been sent again.
    pub(super) fn awaits_earlier(&self) -> bool {
        self.earlier.is_awaited()
    }

    /// Forgets missing addresses without routes, which may never return.
    pub(super) fn forget_missed(&mut self) {
        let sessions = &self.sessions;
        self.missed.retain(|address| sessions.values().any(|session| session.from == *address));
    }

    /// Returns a missing address, if there is one.
    pub(super) fn gone(&self) -> Option<IpAddr> {
        self.missed.first().copied()
    }
}

/// Returns whether a feed is within `routes`, or twice as many while routes are sent again: with ADD-PATH each may have
/// a new identifier, and the earlier ones remain valid next to it.
fn has_room(feed: &RouteTables, routes: usize) -> bool {
    feed.len() <= routes || (feed.len() <= 2 * routes && feed.is_awaited())
}
