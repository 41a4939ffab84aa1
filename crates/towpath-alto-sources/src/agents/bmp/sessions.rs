//! What routers told on their connections, those that live and those that ended a while ago. No sockets, no clock.
//!
//! What a connection told is left to the next one from its address, and holds there as long as its routers tell their tables anew ([`Feed::begin`]): nothing changes because a connection
//! ends and another one begins. What is not told again goes when a table has ended, or some time after the connection.

#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    time::Duration,
};

use crate::{
    bmp::{Event, Peer},
    feed::{Earlier, Feed},
};
use towpath_alto::{facts::Router, names::RouterName};
use towpath_store::sys::clock::Instant;

/// The most connections at once. Those that ended count as long as their routes hold.
const MAX_SESSIONS: usize = 256;

/// The most addresses that are missed. Others are forgotten with their routes.
const MAX_MISSED: usize = 256;

/// The most routes of one connection: ten peers with all routes of the Internet. They take about 1 GiB; twice that where there are several to each prefix. While they are told anew there
/// may be as many again ([`has_room`]).
const MAX_ROUTES: usize = 12_000_000;

/// The most peers of one connection, also those that have no route any more.
const MAX_PEERS: usize = 1 << 16;

/// All connections, in the order in which they began.
#[derive(Debug, Default)]
pub(super) struct Sessions {
    sessions: BTreeMap<u64, Session>,
    /// The number of the next one.
    next: u64,
    /// What routers told before the process began.
    earlier: Earlier,
    /// Those that told routes and are not connected any more, also when these have gone.
    missed: BTreeSet<IpAddr>,
}

/// What one connection told, and those before it from the same address.
#[derive(Debug)]
struct Session {
    from: IpAddr,
    feed: Feed,
    /// One that does not live is needed ([`Self::is_needed`]). There is no other of its address then.
    is_live: bool,
}

impl Session {
    /// Whether other routes would be told without it: it has some, or hides `earlier` ones that its peers have no more.
    fn is_needed(&self, earlier: &Earlier) -> bool {
        !self.feed.is_empty() || (earlier.began().is_some() && self.feed.peers() > 0)
    }
}

impl Sessions {
    /// None yet, after others that ended `now` with these routers.
    pub(super) fn after(earlier: BTreeMap<RouterName, Router>, now: Instant) -> Self {
        Self { earlier: Earlier::new(earlier, now.into_std()), ..Self::default() }
    }

    /// Notes a new connection, which goes on where the last one from there ended. Its number; none if there are too many.
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
        self.sessions.insert(number, Session { from, feed, is_live: true });
        Some(number)
    }

    /// Notes that `router` tells its routes anew on that connection. What it told on another one from there, whose end nobody saw, holds as if it had been this one: while both live, two
    /// routers behind one address that have the same peer are taken for one. What the other one told stays its own, for when this one ends before it.
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

    /// Takes a change that came on that connection. Whether there is room for more.
    pub(super) fn take(&mut self, number: u64, event: Event) -> bool {
        let Some(session) = self.sessions.get_mut(&number) else { return false };
        self.earlier.hear(&event, &mut session.feed);
        session.feed.take(event);
        has_room(&session.feed, MAX_ROUTES) && session.feed.peers() <= MAX_PEERS
    }

    /// Notes that a connection ended. Its routes hold, on another one from there if there is one. So does that a peer has none any more, as long as earlier ones would come back.
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

    /// Forgets what was not told again `hold` after its connection ended or its router began anew.
    pub(super) fn expire(&mut self, now: Instant, hold: Duration) {
        self.earlier.expire(now.into_std(), hold);
        self.sessions.values_mut().for_each(|session| session.feed.expire(now.into_std(), hold));
        self.sessions.retain(|_, session| session.is_live || session.is_needed(&self.earlier));
    }

    /// When there is something to forget.
    pub(super) fn next_expiry(&self, hold: Duration) -> Option<Instant> {
        let feeds = self.sessions.values().filter_map(|session| session.feed.began());
        let began = feeds.chain(self.earlier.began()).min()?;
        Some(Instant::from_std(began) + hold)
    }

    /// The routers as they are now. Of one that several connections speak of, what the last one says holds.
    pub(super) fn routers(&self) -> BTreeMap<RouterName, Router> {
        let told = self.sessions.values().flat_map(|session| session.feed.routers());
        self.earlier.routers().clone().into_iter().chain(told).collect()
    }

    /// Whether routers hold that told their routes before the process began, and not all of them since.
    pub(super) fn awaits_earlier(&self) -> bool {
        self.earlier.is_awaited()
    }

    /// Forgets who is missed and has no route any more: it may never come again.
    pub(super) fn forget_missed(&mut self) {
        let sessions = &self.sessions;
        self.missed.retain(|address| sessions.values().any(|session| session.from == *address));
    }

    /// One that told routes and is not connected any more, until it is again, or forgotten.
    pub(super) fn gone(&self) -> Option<IpAddr> {
        self.missed.first().copied()
    }
}

/// Whether there are no more than `routes`, or twice as many while they are told anew: by ADD-PATH each may have another identifier then, and those of before hold beside it.
fn has_room(feed: &Feed, routes: usize) -> bool {
    feed.len() <= routes || (feed.len() <= 2 * routes && feed.is_awaited())
}
