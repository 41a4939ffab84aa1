//! The set of followed responses, without duplicates.

use std::{collections::HashMap, net::IpAddr, sync::Arc, time::Duration};

use super::{
    CurrentNetwork, UpdateError, allowed_changes,
    body::ByteCounter,
    graph::Limits,
    item::{Item, Key},
    request::FollowRequest,
};
use towpath_alto::{patch::AllowedChanges, problem::Problem, resource::Resource};

/// Maximum size of the latest responses and their inputs, in bytes, beyond which nothing new is followed. Ten meshes of
/// 600 storages.
pub const MAX_BYTES: usize = 256 << 20;

/// Maximum time to recompute all followed responses, beyond which nothing new is followed. No client can start to
/// follow while a new network state is processed, which takes up to this long.
pub const MAX_TIME: Duration = Duration::from_secs(30);

/// Minimum size charged per response, because each is recomputed for each network state.
const MIN_BYTES: usize = 64 << 10;

/// The responses followed by streams and views, with their versions. Equal ones are shared.
///
/// Memory: [`MAX_BYTES`] plus one response, and as much again for earlier versions, shared equally between the
/// responses and limited by their [`Limits`]. Content counts until it has been sent; nothing new is followed while the
/// total exceeds twice [`MAX_BYTES`]. Followed responses may grow with the network state without being dropped.
///
/// Time: [`MAX_TIME`] per network state as measured by the clock of [`Self::with_clock`], estimated from the last
/// duration of each response, plus one response.
#[derive(Debug)]
pub struct FollowedResponses {
    pub(super) allowed: fn(&Resource) -> AllowedChanges,
    pub(super) most_bytes: usize,
    /// Time since an arbitrary start.
    pub(super) clock: fn() -> Duration,
    limits: Limits,
    items: HashMap<Arc<Key>, Item>,
    /// Counts the bytes of all existing responses and changes, including those being sent.
    pub(super) byte_counter: ByteCounter,
}

impl FollowedResponses {
    /// Creates an empty set. `limits` bounds the versions kept of each response.
    pub fn new(limits: Limits) -> Self {
        let clock = || Duration::ZERO;
        Self {
            allowed: allowed_changes,
            most_bytes: MAX_BYTES,
            clock,
            limits,
            items: HashMap::new(),
            byte_counter: ByteCounter::default(),
        }
    }

    /// Measures time by `clock`, relative to an arbitrary start.
    #[must_use]
    pub fn with_clock(self, clock: fn() -> Duration) -> Self {
        Self { clock, ..self }
    }

    /// Returns the number of distinct responses followed.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.items.len()
    }

    /// Recomputes each response from a new network state, records what changed, and drops responses without followers
    /// or that can no longer be computed. Returns whether a stream or a view may have updates. Takes the time of
    /// computing all the responses.
    pub fn advance(&mut self, present: CurrentNetwork<'_>) -> bool {
        self.drop_unused();
        let mut is_news = false;
        let bytes = self.limits.bytes.min(self.most_bytes / self.items.len().max(1));
        self.items.retain(|key, item| {
            item.graph.keep(bytes);
            let begun = (self.clock)();
            let resource = present.directory.find(key.resource().as_str());
            let advanced = resource
                .map(|resource| item.advance(key, resource, present, (self.allowed)(resource), &self.byte_counter));
            item.took = (self.clock)().saturating_sub(begun);
            match advanced {
                Some(Ok(has_changed)) => {
                    is_news |= has_changed;
                    true
                }
                // The request was valid earlier, so the client is not at fault.
                Some(Err(_)) | None => {
                    is_news = true;
                    false
                }
            }
        });
        is_news
    }

    /// Follows a response for a client at `client` until the returned key is dropped. The network state must be that of
    /// the last [`Self::advance`].
    ///
    /// # Errors
    /// Returns an error if the resource does not exist or rejects `input`; [`UpdateError::TooMany`] if [`MAX_BYTES`] or
    /// [`MAX_TIME`] is reached.
    pub(super) fn follow(
        &mut self,
        request: &FollowRequest,
        client: IpAddr,
        present: CurrentNetwork<'_>,
    ) -> Result<Arc<Key>, UpdateError> {
        self.drop_unused();
        let resource = present.directory.find(&request.resource);
        let resource = resource.ok_or_else(|| {
            let reason = "this resource cannot be followed: use one that the directory lists in uses";
            Problem::bad_value("resource-id", &request.resource, reason)
        })?;
        let key = Arc::new(Key::new(resource, request.input.as_ref(), client));
        if let Some((held, _)) = self.items.get_key_value(&key) {
            return Ok(Arc::clone(held));
        }
        if self.is_full() {
            return Err(UpdateError::TooMany);
        }
        let begun = (self.clock)();
        let item = Item::new(&key, resource, present, self.limits, &self.byte_counter);
        let mut item = item.map_err(|problem| problem.within("input"))?;
        item.took = (self.clock)().saturating_sub(begun);
        self.items.insert(Arc::clone(&key), item);
        Ok(key)
    }

    /// Returns the response followed by `key`. Returns `None` if it ended, even if it is followed again by an equal
    /// key.
    pub(super) fn item(&self, key: &Arc<Key>) -> Option<&Item> {
        let (held, item) = self.items.get_key_value(key)?;
        Arc::ptr_eq(held, key).then_some(item)
    }

    fn is_full(&self) -> bool {
        let took: Duration = self.items.values().map(|item| item.took).sum();
        took >= MAX_TIME || self.bytes() >= self.most_bytes || self.byte_counter.bytes() >= 2 * self.most_bytes
    }

    /// Returns the size of the latest responses and their inputs.
    fn bytes(&self) -> usize {
        let items = self.items.iter().map(|(key, item)| key.bytes() + item.graph.latest().body.len());
        items.map(|bytes| bytes.max(MIN_BYTES)).sum()
    }

    fn drop_unused(&mut self) {
        self.items.retain(|key, _| Arc::strong_count(key) > 1);
    }
}

impl Default for FollowedResponses {
    fn default() -> Self {
        Self::new(Limits::default())
    }
}
