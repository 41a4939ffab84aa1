//! Fair shares of bounded resources: memory, connections, open files, locks, multipart uploads (RFC 0005).
//!
//! A [`FairPool`] is a pool. A [`LeaseHolder`], a person at a network address, takes a [`Lease`] from it, which is
//! returned on drop. A holder may take more while its total does not exceed the free capacity (the dynamic threshold
//! of Choudhury and Hahne, 1998). One holder thus gets half of the pool, `n` holders an equal part each, and the same
//! amount remains for the next one; the number of holders need not be known. A sixteenth of the pool is a reserve,
//! shared in the same way, for requests of class [`Class::Small`].
//!
//! [`FairPool::take`] waits, [`FairPool::take_soon`] for a short time; holders without leases are served first. While
//! requests wait, leases are revoked according to the progress of their peers ([`PeerProgress`]): for a holder at its
//! share, its own leases whose peers are idle; for a holder without leases, also those of slow peers, from the
//! largest holders over their share first. Revoking a lease ends its connection. (Slow clients without such competition
//! are disconnected after `limits.stall`: `Service::record_disconnect` lists all places.)

mod lease_holder;
mod peer_progress;
#[cfg(test)]
mod tests;

use std::{
    cmp::Reverse,
    collections::{BTreeMap, HashMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};

use tokio::sync::oneshot;
use towpath_store::sys::clock::{self, Instant};

pub use lease_holder::LeaseHolder;
use peer_progress::Slowness;
pub use peer_progress::{PeerProgress, PeerWaitGuard};

/// The reserve is this fraction of the pool: one sixteenth.
const RESERVE_PART: u64 = 16;

/// Divisor of the general part that limits one lease. Larger requests are granted, but counted as this much.
const MAX_LEASE_PART: u64 = 4;

/// Factor of `alpha` for a site compared with one network. More than one, so that a greedy network leaves capacity to
/// its neighbours.
const SITE_ALPHA: u64 = 2;

/// Maximum time that a holder without open files waits for one.
pub(crate) const FILE_LEASE_TIMEOUT: Duration = Duration::from_secs(2);

/// Interval at which a pool with waiting requests looks for leases to revoke.
const RECLAIM_INTERVAL: Duration = Duration::from_millis(100);

/// The part of the pool that can serve a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// The pool or its reserve: for small, short-lived leases.
    Small,
    /// The pool without the reserve.
    Large,
}

/// A pool with fair shares. Clones share the same pool.
#[derive(Debug, Clone)]
pub struct FairPool(Arc<Pool>);

#[derive(Debug)]
struct Pool {
    /// Minimum amount that a lease counts for.
    unit: u64,
    largest_lease: u64,
    /// A holder may hold up to this multiple of the free capacity.
    alpha: u64,
    state: Mutex<State>,
}

/// Index of the general part in `free` and `held`.
const GENERAL: usize = 0;
/// Index of the reserve.
const RESERVE: usize = 1;

#[derive(Debug)]
struct State {
    free: [u64; 2],
    members: HashMap<Arc<LeaseHolder>, Member>,
    /// Holders with waiting requests, in round-robin order.
    turns: VecDeque<Arc<LeaseHolder>>,
    /// Whether a holder without leases waits; other holders are then not served.
    has_starving: bool,
    /// Whether the reclaim task is running.
    is_reclaiming: bool,
    last_lease: u64,
}

/// The account of a holder with leases or waiting requests, or of a site whose holders have leases.
#[derive(Debug, Default)]
struct Member {
    held: [u64; 2],
    /// Revocable leases, oldest first.
    leases: BTreeMap<u64, (Arc<PeerProgress>, u64)>,
    /// Waiting requests, by class.
    waiting: [VecDeque<Waiter>; 2],
}

#[derive(Debug)]
struct Waiter {
    request: Request,
    granted: oneshot::Sender<Lease>,
}

#[derive(Debug, Clone)]
struct Request {
    amount: u64,
    class: Class,
    progress: Option<Arc<PeerProgress>>,
}

/// The right to a part of a pool, returned on drop.
#[derive(Debug)]
pub struct Lease {
    pool: Arc<Pool>,
    holder: Arc<LeaseHolder>,
    amount: u64,
    from: usize,
    id: u64,
}

impl FairPool {
    /// Creates a pool of `capacity`; a lease counts for at least one `unit`. A holder may hold up to `alpha` times
    /// the free capacity: alone it gets `alpha` parts of `alpha + 1`.
    pub fn new(capacity: u64, unit: u64, alpha: u64) -> Self {
        let unit = unit.max(1);
        let capacity = capacity.max(unit);
        let reserve = capacity / RESERVE_PART;
        let general = capacity - reserve;
        let state = State {
            free: [general, reserve],
            members: HashMap::new(),
            turns: VecDeque::new(),
            has_starving: false,
            is_reclaiming: false,
            last_lease: 0,
        };
        let largest_lease = (general / MAX_LEASE_PART).max(unit);
        Self(Arc::new(Pool { unit, largest_lease, alpha, state: Mutex::new(state) }))
    }

    /// Takes `amount` immediately, or returns `None` if the holder's share does not permit it. Such a lease is never
    /// revoked.
    pub fn try_take(&self, holder: &Arc<LeaseHolder>, amount: u64, class: Class) -> Option<Lease> {
        let request = self.0.request(amount, class, None);
        self.0.state().try_grant(&self.0, holder, &request)
    }

    /// Takes `amount` once the holder's share permits it. The lease is revoked through `progress` if its peer makes
    /// no progress while others wait. Dropping the future leaves the queue.
    pub async fn take(
        &self,
        holder: &Arc<LeaseHolder>,
        amount: u64,
        class: Class,
        progress: &Arc<PeerProgress>,
    ) -> Lease {
        loop {
            let request = self.0.request(amount, class, Some(Arc::clone(progress)));
            let granted = {
                let mut state = self.0.state();
                if let Some(lease) = state.try_grant(&self.0, holder, &request) {
                    return lease;
                }
                state.enqueue(&self.0, holder, request)
            };
            // The sender is dropped without a grant only together with the pool, which `self` keeps alive.
            if let Ok(lease) = granted.await {
                return lease;
            }
        }
    }

    /// Takes one unit. A holder without leases waits up to `patience` for others to return or lose theirs; any other
    /// holder is served immediately or not at all.
    pub(crate) async fn take_soon(
        &self,
        holder: &Arc<LeaseHolder>,
        class: Class,
        progress: &Arc<PeerProgress>,
        patience: Duration,
    ) -> Option<Lease> {
        let request = self.0.request(1, class, Some(Arc::clone(progress)));
        let granted = {
            let mut state = self.0.state();
            if let Some(lease) = state.try_grant(&self.0, holder, &request) {
                return Some(lease);
            }
            if !state.is_newcomer(holder) {
                return None;
            }
            state.enqueue(&self.0, holder, request)
        };
        tokio::time::timeout(patience, granted).await.ok()?.ok()
    }

    /// Returns the free capacity, including the reserve.
    pub fn free(&self) -> u64 {
        self.0.state().free.iter().sum()
    }

    /// Returns the number of waiting requests.
    pub fn waiting(&self) -> usize {
        let state = self.0.state();
        let queues = state.members.values().flat_map(|member| &member.waiting);
        queues.flatten().filter(|waiter| !waiter.granted.is_closed()).count()
    }
}

impl Pool {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn request(&self, amount: u64, class: Class, progress: Option<Arc<PeerProgress>>) -> Request {
        Request { amount: amount.clamp(self.unit, self.largest_lease), class, progress }
    }

    fn give_back(self: &Arc<Self>, lease: &Lease) {
        let unclaimed = {
            let mut state = self.state();
            state.release(lease);
            state.serve(self)
        };
        // Outside of the lock, because dropping leases locks it again.
        drop(unclaimed);
    }

    /// Revokes leases where possible. Returns whether requests still wait.
    fn reclaim(self: &Arc<Self>) -> bool {
        let (unclaimed, waits) = {
            let mut state = self.state();
            let unclaimed = state.serve(self);
            let waits = !state.turns.is_empty();
            state.is_reclaiming = waits;
            state.disconnect_slow_peers(self, clock::now());
            (unclaimed, waits)
        };
        drop(unclaimed);
        waits
    }
}

/// Revokes leases periodically while requests wait.
async fn reclaim(pool: Weak<Pool>) {
    loop {
        tokio::time::sleep(RECLAIM_INTERVAL).await;
        if !pool.upgrade().is_some_and(|pool| pool.reclaim()) {
            return;
        }
    }
}

impl State {
    /// Returns the amount that an account holds of one part of the pool.
    fn held(&self, account: &LeaseHolder, part: usize) -> u64 {
        self.members.get(account).map_or(0, |member| member.held[part])
    }

    /// Whether the share of an account permits `amount` more of one part of the pool.
    fn fits(&self, pool: &Pool, account: &LeaseHolder, part: usize, amount: u64) -> bool {
        let (held, free) = (self.held(account, part), self.free[part]);
        let alpha = if account.is_site { pool.alpha.saturating_mul(SITE_ALPHA) } else { pool.alpha };
        let is_first_unit = held == 0 && amount <= pool.unit;
        amount <= free && (is_first_unit || held + amount <= (free - amount).saturating_mul(alpha))
    }

    /// Whether neither the holder nor its site holds anything of the general part.
    fn is_newcomer(&self, holder: &Arc<LeaseHolder>) -> bool {
        holder.accounts().all(|account| self.held(account, GENERAL) == 0)
    }

    /// Whether the holder has no leases and a waiting request.
    fn is_starving(&self, holder: &Arc<LeaseHolder>) -> bool {
        self.is_newcomer(holder) && self.members.get(holder).is_some_and(Member::waits)
    }

    /// Returns the part of the pool that can serve the request now.
    fn source(&self, pool: &Pool, holder: &Arc<LeaseHolder>, request: &Request) -> Option<usize> {
        let fits = |part| holder.accounts().all(|account| self.fits(pool, account, part, request.amount));
        if fits(GENERAL) && (!self.has_starving || self.is_newcomer(holder)) {
            return Some(GENERAL);
        }
        (request.class == Class::Small && fits(RESERVE)).then_some(RESERVE)
    }

    /// Grants a new request unless it must wait, or an earlier one of its class is waiting.
    fn try_grant(&mut self, pool: &Arc<Pool>, holder: &Arc<LeaseHolder>, request: &Request) -> Option<Lease> {
        let is_behind = |member: &Member| !member.waiting[request.class as usize].is_empty();
        if self.members.get(holder).is_some_and(is_behind) {
            return None;
        }
        let from = self.source(pool, holder, request)?;
        Some(self.grant(pool, holder, request, from))
    }

    fn grant(&mut self, pool: &Arc<Pool>, holder: &Arc<LeaseHolder>, request: &Request, from: usize) -> Lease {
        self.free[from] -= request.amount;
        self.last_lease += 1;
        for account in holder.accounts() {
            self.members.entry(Arc::clone(account)).or_default().held[from] += request.amount;
        }
        if let Some((progress, member)) = request.progress.as_ref().zip(self.members.get_mut(holder)) {
            member.leases.insert(self.last_lease, (Arc::clone(progress), request.amount));
        }
        let (pool, holder) = (Arc::clone(pool), Arc::clone(holder));
        Lease { pool, holder, amount: request.amount, from, id: self.last_lease }
    }

    fn release(&mut self, lease: &Lease) {
        self.free[lease.from] += lease.amount;
        for account in lease.holder.accounts() {
            let Some(member) = self.members.get_mut(account) else { continue };
            member.held[lease.from] -= lease.amount;
            member.leases.remove(&lease.id);
            if member.is_gone() {
                self.members.remove(account);
            }
        }
    }

    /// Returns `rest` of a lease.
    fn shrink(&mut self, lease: &mut Lease, rest: u64) {
        lease.amount -= rest;
        self.free[lease.from] += rest;
        for account in lease.holder.accounts() {
            let Some(member) = self.members.get_mut(account) else { continue };
            member.held[lease.from] -= rest;
            if let Some((_, amount)) = member.leases.get_mut(&lease.id) {
                *amount = lease.amount;
            }
        }
    }

    fn enqueue(&mut self, pool: &Arc<Pool>, holder: &Arc<LeaseHolder>, request: Request) -> oneshot::Receiver<Lease> {
        let (granted, receiver) = oneshot::channel();
        let member = self.members.entry(Arc::clone(holder)).or_default();
        if member.waiting.iter().all(VecDeque::is_empty) {
            self.turns.push_back(Arc::clone(holder));
        }
        member.waiting[request.class as usize].push_back(Waiter { request, granted });
        self.has_starving |= self.is_newcomer(holder);
        if !self.is_reclaiming {
            self.is_reclaiming = true;
            tokio::spawn(reclaim(Arc::downgrade(pool)));
        }
        receiver
    }

    /// Grants waiting requests, one holder after the other. Returns leases whose requests were cancelled.
    fn serve(&mut self, pool: &Arc<Pool>) -> Vec<Lease> {
        let mut unclaimed = Vec::new();
        loop {
            self.has_starving = self.turns.iter().any(|holder| self.is_starving(holder));
            let mut is_done = true;
            for _ in 0..self.turns.len() {
                let Some(holder) = self.turns.pop_front() else { break };
                is_done &= !self.serve_one(pool, &holder, &mut unclaimed);
                match self.members.get(&holder) {
                    Some(member) if member.waiting.iter().any(|queue| !queue.is_empty()) => {
                        self.turns.push_back(holder);
                    }
                    Some(member) if member.is_gone() => drop(self.members.remove(&holder)),
                    _ => {}
                }
            }
            if is_done {
                return unclaimed;
            }
        }
    }

    /// Grants the next request of a holder, small ones first. Returns whether it granted one.
    fn serve_one(&mut self, pool: &Arc<Pool>, holder: &Arc<LeaseHolder>, unclaimed: &mut Vec<Lease>) -> bool {
        for class in [Class::Small, Class::Large] {
            let Some(member) = self.members.get_mut(holder) else { return false };
            let queue = &mut member.waiting[class as usize];
            queue.retain(|waiter| !waiter.granted.is_closed());
            let Some(request) = queue.front().map(|waiter| waiter.request.clone()) else { continue };
            let Some(from) = self.source(pool, holder, &request) else { continue };
            let lease = self.grant(pool, holder, &request, from);
            let member = self.members.get_mut(holder);
            if let Some(waiter) = member.and_then(|member| member.waiting[class as usize].pop_front()) {
                unclaimed.extend(waiter.granted.send(lease).err());
            } else {
                unclaimed.push(lease);
            }
            return true;
        }
        false
    }

    /// Whether a holder or its site is over its share: the rule would not permit the same amount again.
    fn is_over(&self, pool: &Pool, holder: &Arc<LeaseHolder>) -> bool {
        let as_much = |account| self.held(account, GENERAL).max(pool.unit);
        holder.accounts().any(|account| !self.fits(pool, account, GENERAL, as_much(account)))
    }

    /// Ends connections of idle or slow peers until enough leases return for the waiting requests.
    fn disconnect_slow_peers(&self, pool: &Pool, now: Instant) {
        let (mut wanted_in, mut wanted_by_newcomers) = (HashMap::<&LeaseHolder, u64>::new(), 0);
        for holder in &self.turns {
            let wanted = self.members.get(holder).map_or(0, Member::wanted);
            match self.is_starving(holder) {
                true => wanted_by_newcomers += wanted,
                false => *wanted_in.entry(holder.outermost()).or_default() += wanted,
            }
        }
        for (holder, member) in &self.members {
            // Slow peers of the same holder are not revoked: they may share one slow path and have equal rights.
            if let Some(wanted) = wanted_in.get_mut(holder.outermost()) {
                *wanted = wanted.saturating_sub(member.disconnect(now, Slowness::Idle, *wanted));
            }
        }
        if wanted_by_newcomers > 0 {
            self.disconnect_for_newcomers(pool, now, wanted_by_newcomers);
        }
    }

    fn disconnect_for_newcomers(&self, pool: &Pool, now: Instant, mut wanted: u64) {
        let mut members: Vec<_> = self.members.iter().collect();
        members.sort_by_cached_key(|(holder, _)| {
            Reverse([GENERAL, RESERVE].map(|part| self.held(holder.outermost(), part)).iter().sum::<u64>())
        });
        for (holder, member) in members {
            let is_over = !self.is_starving(holder) && self.is_over(pool, holder);
            let slowness = if is_over { Slowness::Slow } else { Slowness::Idle };
            wanted = wanted.saturating_sub(member.disconnect(now, slowness, wanted));
        }
    }
}

impl Lease {
    /// Returns all but `amount` to the pool.
    pub(crate) fn shrink_to(&mut self, amount: u64) {
        let rest = self.amount.saturating_sub(amount.max(self.pool.unit));
        if rest > 0 {
            let pool = Arc::clone(&self.pool);
            let unclaimed = {
                let mut state = pool.state();
                state.shrink(self, rest);
                state.serve(&pool)
            };
            // Outside of the lock, because dropping leases locks it again.
            drop(unclaimed);
        }
    }

    /// Whether the lease is from the reserve.
    pub(crate) fn is_of_reserve(&self) -> bool {
        self.from == RESERVE
    }
}

impl Member {
    fn is_gone(&self) -> bool {
        self.held == [0; 2] && self.waiting.iter().all(VecDeque::is_empty)
    }

    /// Whether a request of this holder waits.
    fn waits(&self) -> bool {
        self.waiting.iter().flatten().any(|waiter| !waiter.granted.is_closed())
    }

    fn wanted(&self) -> u64 {
        self.waiting.iter().flatten().map(|waiter| waiter.request.amount).sum()
    }

    /// Disconnects peers no faster than `slowness`, oldest first, until `wanted` will return. Returns the revoked
    /// amount.
    fn disconnect(&self, now: Instant, slowness: Slowness, wanted: u64) -> u64 {
        let mut freed = 0;
        for (progress, amount) in self.leases.values() {
            if freed >= wanted {
                break;
            }
            if progress.disconnect_if(slowness, now) {
                freed += amount;
            }
        }
        freed
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let pool = Arc::clone(&self.pool);
        pool.give_back(self);
    }
}
