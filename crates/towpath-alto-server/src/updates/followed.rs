//! All that is followed, each once.

use std::{collections::HashMap, net::IpAddr, sync::Arc, time::Duration};

use super::{
    Present, Refusal, allowed,
    body::Tally,
    graph::Limits,
    item::{Item, Key},
    request::Asked,
};
use towpath_alto::{patch::Allowed, problem::Problem, resource::Resource};

/// So many bytes of latest answers, and of what was posted for them, may be followed before nothing new is. Ten meshes of 600 storages.
pub const MOST_BYTES: usize = 256 << 20;

/// So much time it may take to make all answers that are followed anew before nothing new is: so long nobody else begins to follow when there is a new world.
pub const MOST_TIME: Duration = Duration::from_secs(30);

/// What the shortest answer counts as, because each is made anew in each world.
const LEAST_BYTES: usize = 64 << 10;

/// The answers that streams and views follow, with their versions. Equal ones are shared.
///
/// Memory: [`MOST_BYTES`] and one answer, and as much again of earlier versions, of which each answer has an equal share and not more than its [`Limits`] say. What was taken
/// to be sent counts until it is sent: nothing new is followed while all that together is there. Answers that grow with the world are not refused.
///
/// Time: as the clock of [`Self::timed`] has it, [`MOST_TIME`] for a new world, by what each answer took last, and one answer.
#[derive(Debug)]
pub struct Followed {
    pub(super) allowed: fn(&Resource) -> Allowed,
    pub(super) most_bytes: usize,
    /// The time since whenever.
    pub(super) clock: fn() -> Duration,
    limits: Limits,
    items: HashMap<Arc<Key>, Item>,
    /// The bytes of all answers and changes that are there, whoever has them.
    pub(super) tally: Tally,
}

impl Followed {
    /// Nothing is followed. Of each answer as much is kept as `limits` say.
    pub fn new(limits: Limits) -> Self {
        let clock = || Duration::ZERO;
        Self { allowed, most_bytes: MOST_BYTES, clock, limits, items: HashMap::new(), tally: Tally::default() }
    }

    /// The same, which takes the time by `clock`: that since whenever.
    #[must_use]
    pub fn timed(self, clock: fn() -> Duration) -> Self {
        Self { clock, ..self }
    }

    /// How many different answers are followed.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.items.len()
    }

    /// Makes each answer anew from this world, finds what changed, and drops what nobody follows any more. What the world can
    /// no longer answer ends. Tells whether a stream or a view may have something new. Takes the time of all the answers.
    pub fn advance(&mut self, present: Present<'_>) -> bool {
        self.drop_unused();
        let mut is_news = false;
        let bytes = self.limits.bytes.min(self.most_bytes / self.items.len().max(1));
        self.items.retain(|key, item| {
            item.graph.keep(bytes);
            let begun = (self.clock)();
            let resource = present.directory.find(key.resource().as_str());
            let advanced =
                resource.map(|resource| item.advance(key, resource, present, (self.allowed)(resource), &self.tally));
            item.took = (self.clock)().saturating_sub(begun);
            match advanced {
                Some(Ok(has_changed)) => {
                    is_news |= has_changed;
                    true
                }
                // The request was right once, so this is no fault of the client.
                Some(Err(_)) | None => {
                    is_news = true;
                    false
                }
            }
        });
        is_news
    }

    /// Follows what is asked for by a client at `client`, as long as the key is held. The world must be that of the last
    /// [`Self::advance`].
    ///
    /// # Errors
    /// If there is no such resource to follow, or those of the resource, within `input`; [`Refusal::TooMany`] if [`MOST_BYTES`] are followed, or what takes
    /// [`MOST_TIME`].
    pub(super) fn follow(&mut self, asked: &Asked, client: IpAddr, present: Present<'_>) -> Result<Arc<Key>, Refusal> {
        self.drop_unused();
        let resource = present.directory.find(&asked.resource);
        let resource = resource.ok_or_else(|| {
            let reason = "there is no such resource to follow: take one that the directory names in uses";
            Problem::bad_value("resource-id", &asked.resource, reason)
        })?;
        let key = Arc::new(Key::new(resource, asked.input.as_ref(), client));
        if let Some((held, _)) = self.items.get_key_value(&key) {
            return Ok(Arc::clone(held));
        }
        if self.is_full() {
            return Err(Refusal::TooMany);
        }
        let begun = (self.clock)();
        let item = Item::new(&key, resource, present, self.limits, &self.tally);
        let mut item = item.map_err(|problem| problem.within("input"))?;
        item.took = (self.clock)().saturating_sub(begun);
        self.items.insert(Arc::clone(&key), item);
        Ok(key)
    }

    /// The answer that is followed by that key; none if it ended, even if another with an equal key is there.
    pub(super) fn item(&self, key: &Arc<Key>) -> Option<&Item> {
        let (held, item) = self.items.get_key_value(key)?;
        Arc::ptr_eq(held, key).then_some(item)
    }

    fn is_full(&self) -> bool {
        let took: Duration = self.items.values().map(|item| item.took).sum();
        took >= MOST_TIME || self.bytes() >= self.most_bytes || self.tally.bytes() >= 2 * self.most_bytes
    }

    /// How many bytes the latest answers have, and what was posted for them.
    fn bytes(&self) -> usize {
        let items = self.items.iter().map(|(key, item)| key.bytes() + item.graph.latest().body.len());
        items.map(|bytes| bytes.max(LEAST_BYTES)).sum()
    }

    fn drop_unused(&mut self) {
        self.items.retain(|key, _| Arc::strong_count(key) > 1);
    }
}

impl Default for Followed {
    fn default() -> Self {
        Self::new(Limits::default())
    }
}
