//! All that is followed, each once.

use std::{collections::HashMap, net::IpAddr, sync::Arc};

use super::{
    Present, allowed,
    graph::Limits,
    item::{Item, Key},
    request::Asked,
};
use crate::{patch::Allowed, problem::Problem, resource::Resource};

/// The answers that streams and views follow, with their versions. Equal ones are shared.
///
/// Memory: for each what [`Limits`] say, and the latest answer as bytes and as JSON values. Who serves bounds how many streams and views there are, or
/// looks at [`Self::len`].
#[derive(Debug)]
pub struct Followed {
    pub(super) allowed: fn(&Resource) -> Allowed,
    limits: Limits,
    items: HashMap<Arc<Key>, Item>,
}

impl Followed {
    /// Nothing is followed. Of each answer as much is kept as `limits` say.
    pub fn new(limits: Limits) -> Self {
        Self { allowed, limits, items: HashMap::new() }
    }

    /// How many different answers are followed.
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// Whether nothing is followed.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Makes each answer anew from this world, finds what changed, and drops what nobody follows any more. What the world can
    /// no longer answer ends. Tells whether a stream or a view may have something new. Takes the time of all the answers.
    pub fn advance(&mut self, present: Present<'_>) -> bool {
        self.drop_unused();
        let mut is_news = false;
        self.items.retain(|key, item| {
            let resource = present.directory.find(key.resource().as_str());
            let advanced = resource.map(|resource| item.advance(key, resource, present, (self.allowed)(resource)));
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
    /// If there is no such resource to follow, or those of the resource, within `input`.
    pub(super) fn follow(&mut self, asked: &Asked, client: IpAddr, present: Present<'_>) -> Result<Arc<Key>, Problem> {
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
        let item = Item::new(&key, resource, present, self.limits).map_err(|problem| problem.within("input"))?;
        self.items.insert(Arc::clone(&key), item);
        Ok(key)
    }

    /// The answer that is followed by that key; none if it ended, even if another with an equal key is there.
    pub(super) fn item(&self, key: &Arc<Key>) -> Option<&Item> {
        let (held, item) = self.items.get_key_value(key)?;
        Arc::ptr_eq(held, key).then_some(item)
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
