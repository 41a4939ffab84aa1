//! Update streams (RFC 8895).

use std::{collections::BTreeMap, mem, net::IpAddr, sync::Arc};

use serde_json::{Value, json};

use super::{
    Event, Followed, Present, Refusal,
    graph::Held,
    item::{Item, Key},
    request::{Asked, SubstreamId, Updates},
};
use crate::problem::Problem;

/// How many answers a stream follows at once.
pub const MOST_SUBSTREAMS: usize = 128;

/// How many names of answers a stream knows in all its life. None may be used twice (RFC 8895 §6.5), so all are kept.
pub const MOST_NAMES: usize = 8 * MOST_SUBSTREAMS;

/// The update stream of one client.
#[derive(Debug)]
pub struct Stream {
    client: IpAddr,
    /// All that were ever followed. None: no longer.
    substreams: BTreeMap<SubstreamId, Option<Substream>>,
    is_closed: bool,
}

/// An answer that a stream follows.
#[derive(Debug)]
struct Substream {
    key: Arc<Key>,
    takes_changes: bool,
    /// The version that the client has.
    seen: Option<u64>,
    /// Whether it has all the bytes of that, so that changes fit.
    has_bytes: bool,
}

impl Stream {
    /// Opens a stream for a client at `client`: the answer to a POST of `request` (RFC 8895 §6.5). The first event tells `control_uri`, where the stream can be
    /// controlled; whoever can guess it can do that. The next ones tell all answers of which the client has not the version that is now, those first on which others depend.
    ///
    /// # Errors
    /// If the request is malformed, follows nothing, or more than [`MOST_SUBSTREAMS`], or a resource refuses its input; [`Refusal::TooMany`].
    pub fn open(
        request: &Value,
        control_uri: Option<&str>,
        client: IpAddr,
        present: Present<'_>,
        followed: &mut Followed,
    ) -> Result<(Self, Vec<Event>), Refusal> {
        let asked = Updates::read(request)?;
        if asked.add.is_empty() {
            return Err(Problem::missing("add").into());
        }
        let mut stream = Self { client, substreams: BTreeMap::new(), is_closed: false };
        stream.substreams = stream.follow(&asked.add, present, followed)?;
        let mut events = vec![Event::control(&json!({ "control-uri": control_uri }))];
        events.extend(stream.advance(followed));
        Ok((stream, events))
    }

    /// What is new since this was last called, those answers first on which others depend. What ended is told as stopped; the stream ends with the last of them.
    pub fn advance(&mut self, followed: &Followed) -> Vec<Event> {
        let mut ended = Vec::new();
        for (id, slot) in &mut self.substreams {
            if slot.take_if(|substream| followed.item(&substream.key).is_none()).is_some() {
                ended.push(id.to_string());
            }
        }
        let following = self.substreams.iter_mut().filter_map(|(id, slot)| {
            let substream = slot.as_mut()?;
            Some((followed.item(&substream.key)?, id, substream))
        });
        let mut following: Vec<_> = following.collect();
        following.sort_by_key(|(item, ..)| item.depth);
        let news = following.into_iter().flat_map(|(item, id, substream)| substream.advance(id, item));
        let mut events: Vec<Event> = news.collect();
        if !ended.is_empty() {
            let reason = "the server no longer knows what this was about: read the directory again";
            events.push(Event::control(&json!({ "stopped": ended, "description": reason })));
            self.close_if_empty();
        }
        events
    }

    /// Starts and stops to follow: a POST of `request` to the control URI (RFC 8895 §7). Gives the events that tell it.
    ///
    /// # Errors
    /// [`Refusal::Problem`] as [`Self::open`], or if a substream is to be removed that no earlier request added, a name is used again, or everything is to be
    /// removed and something added; [`Refusal::TooMany`]. Then nothing changes.
    /// [`Refusal::Unknown`] once the stream is closed, as it is when all that it followed is removed.
    pub fn control(
        &mut self,
        request: &Value,
        present: Present<'_>,
        followed: &mut Followed,
    ) -> Result<Vec<Event>, Refusal> {
        if self.is_closed {
            return Err(Refusal::Unknown);
        }
        let asked = Updates::read(request)?;
        self.check_removal(&asked)?;
        let added = self.follow(&asked.add, present, followed)?;
        let mut events = Vec::new();
        if !added.is_empty() {
            let started: Vec<String> = added.keys().map(SubstreamId::to_string).collect();
            events.push(Event::control(&json!({ "started": started })));
        }
        self.substreams.extend(added);
        events.extend(self.advance(followed));
        if let Some(remove) = asked.remove {
            let removed = self.substreams.iter_mut().filter(|(id, _)| remove.is_empty() || remove.contains(*id));
            let stopped = removed.filter_map(|(id, slot)| slot.take().map(|_| id.to_string()));
            let stopped: Vec<String> = stopped.collect();
            if !stopped.is_empty() {
                events.push(Event::control(&json!({ "stopped": stopped })));
            }
        }
        self.close_if_empty();
        Ok(events)
    }

    /// Whether nothing is followed any more. What events are left are sent; nothing comes after them.
    pub fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// No stream is without substreams (RFC 8895 §7.6).
    fn close_if_empty(&mut self) {
        self.is_closed = self.substreams.values().all(Option::is_none);
    }

    fn check_removal(&self, asked: &Updates) -> Result<(), Problem> {
        let Some(remove) = &asked.remove else {
            let is_empty = asked.add.is_empty();
            return if is_empty { Err(Problem::missing("add")) } else { Ok(()) };
        };
        if remove.is_empty() && !asked.add.is_empty() {
            return Err(Problem::bad_value("remove", "[]", "this closes the stream: add nothing, or remove by name"));
        }
        // Not what the same request adds either (RFC 8895 §7.6).
        match remove.iter().find(|id| !self.substreams.contains_key(*id)) {
            Some(id) => {
                let reason = "no earlier request added such a substream to this stream";
                Err(Problem::bad_value("remove", &id.to_string(), reason))
            }
            None => Ok(()),
        }
    }

    /// Begins to follow what is asked for, all or nothing.
    fn follow(
        &self,
        add: &BTreeMap<SubstreamId, Asked>,
        present: Present<'_>,
        followed: &mut Followed,
    ) -> Result<BTreeMap<SubstreamId, Option<Substream>>, Refusal> {
        if let Some(used) = add.keys().find(|id| self.substreams.contains_key(*id)) {
            return Err(Problem::bad_value("add", &used.to_string(), "this name was used before: take another").into());
        }
        let running = self.substreams.values().flatten().count();
        if running + add.len() > MOST_SUBSTREAMS || self.substreams.len() + add.len() > MOST_NAMES {
            let most = format!("a stream follows at most {MOST_SUBSTREAMS} answers, and {MOST_NAMES} in its life");
            return Err(Problem::bad_value("add", &add.len().to_string(), &most).into());
        }
        let added = add.iter().map(|(id, asked)| {
            let substream = Substream::new(asked, self.client, present, followed);
            let substream = substream.map_err(|refusal| refusal.within(&format!("add/{id}")))?;
            Ok((id.clone(), Some(substream)))
        });
        added.collect()
    }
}

impl Substream {
    fn new(asked: &Asked, client: IpAddr, present: Present<'_>, followed: &mut Followed) -> Result<Self, Refusal> {
        let key = followed.follow(asked, client, present)?;
        let graph = &followed.item(&key).expect("it is followed by this key").graph;
        // Who has an older version is told all first (RFC 8895 §6.5).
        let held = asked.tag.as_deref().map_or(Held::Nothing, |tag| graph.held(tag));
        let seen = (held != Held::Nothing).then(|| graph.end());
        Ok(Self { key, takes_changes: asked.takes_changes, seen, has_bytes: held == Held::Bytes })
    }

    fn advance(&mut self, id: &SubstreamId, item: &Item) -> Vec<Event> {
        let graph = &item.graph;
        let seen = self.seen.replace(graph.end());
        if seen == Some(graph.end()) {
            return Vec::new();
        }
        let has_bytes = mem::replace(&mut self.has_bytes, true);
        let patches = seen.filter(|_| has_bytes && self.takes_changes).and_then(|seen| graph.patches_since(seen));
        match patches {
            Some(patches) => patches.into_iter().map(|patch| Event::change(id, patch)).collect(),
            None => vec![Event::whole(id, graph.latest())],
        }
    }
}
