//! Update streams (RFC 8895).

use std::{
    collections::{BTreeMap, VecDeque},
    mem,
    net::IpAddr,
    sync::Arc,
};

use serde_json::{Value, json};

use super::{
    Event, Followed, Present, Refusal,
    graph::{Graph, Held},
    item::Key,
    request::{Asked, SubstreamId, Updates},
};
use towpath_alto::problem::Problem;

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
    /// Whose turn it is to be told, one after another, and up to which version.
    turns: VecDeque<(SubstreamId, u64)>,
    /// What is told next: of the stream itself, whose names are few, and of one version.
    due: VecDeque<Event>,
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
    /// Opens a stream for a client at `client`: the answer to a POST of `request` (RFC 8895 §6.5). Its first event tells `control_uri`, where the stream can be
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
    ) -> Result<Self, Refusal> {
        let asked = Updates::read(request)?;
        if asked.add.is_empty() {
            return Err(Problem::missing("add").into());
        }
        let due = VecDeque::from([Event::control(&json!({ "control-uri": control_uri }))]);
        let (substreams, turns) = (BTreeMap::new(), VecDeque::new());
        let mut stream = Self { client, substreams, turns, due, is_closed: false };
        stream.substreams = stream.follow(&asked.add, present, followed)?;
        Ok(stream)
    }

    /// The next event; none until something else is new. Answers on which others depend come first. What ended is told as stopped, and the stream ends with the last of
    /// them. So that a stream keeps little from being dropped, it holds no more events than those that make one version of one answer.
    pub fn next(&mut self, followed: &Followed) -> Option<Event> {
        while self.due.is_empty() {
            if self.turns.is_empty() {
                self.look(followed);
            }
            let Some((id, until)) = self.turns.front() else { break };
            let substream = self.substreams.get_mut(id).and_then(Option::as_mut);
            let behind = substream.filter(|substream| substream.seen.is_none_or(|seen| seen < *until));
            match behind.and_then(|substream| Some((followed.item(&substream.key)?, substream))) {
                Some((item, substream)) => self.due.extend(substream.advance(id, &item.graph)),
                None => drop(self.turns.pop_front()),
            }
        }
        self.due.pop_front()
    }

    /// Looks for what is new of each answer, and what ended.
    fn look(&mut self, followed: &Followed) {
        let (mut ended, mut behind) = (Vec::new(), Vec::new());
        for (id, slot) in &mut self.substreams {
            let Some(substream) = slot else { continue };
            match followed.item(&substream.key) {
                Some(item) if substream.seen == Some(item.graph.end()) => {}
                Some(item) => behind.push((item.depth, id.clone(), item.graph.end())),
                None => {
                    *slot = None;
                    ended.push(id.to_string());
                }
            }
        }
        behind.sort_by_key(|(depth, ..)| *depth);
        self.turns.extend(behind.into_iter().map(|(_, id, end)| (id, end)));
        if !ended.is_empty() {
            let reason = "the server no longer knows what this was about: read the directory again";
            self.due.push_back(Event::control(&json!({ "stopped": ended, "description": reason })));
            self.close_if_empty();
        }
    }

    /// Starts and stops to follow: a POST of `request` to the control URI (RFC 8895 §7). The next events tell it.
    ///
    /// # Errors
    /// [`Refusal::Problem`] as [`Self::open`], or if a substream is to be removed that no earlier request added, a name is used again, or everything is to be
    /// removed and something added; [`Refusal::TooMany`]. Then nothing changes.
    /// [`Refusal::Unknown`] once the stream is closed, as it is when all that it followed is removed.
    pub fn control(&mut self, request: &Value, present: Present<'_>, followed: &mut Followed) -> Result<(), Refusal> {
        if self.is_closed {
            return Err(Refusal::Unknown);
        }
        let asked = Updates::read(request)?;
        self.check_removal(&asked)?;
        let added = self.follow(&asked.add, present, followed)?;
        if !added.is_empty() {
            let started: Vec<String> = added.keys().map(SubstreamId::to_string).collect();
            self.due.push_back(Event::control(&json!({ "started": started })));
        }
        self.substreams.extend(added);
        if let Some(remove) = asked.remove {
            let removed = self.substreams.iter_mut().filter(|(id, _)| remove.is_empty() || remove.contains(*id));
            let stopped = removed.filter_map(|(id, slot)| slot.take().map(|_| id.to_string()));
            let stopped: Vec<String> = stopped.collect();
            if !stopped.is_empty() {
                self.due.push_back(Event::control(&json!({ "stopped": stopped })));
            }
        }
        self.close_if_empty();
        Ok(())
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

    /// What leads on from the version that the client has, which is not the last: to the next one, or to the last.
    fn advance(&mut self, id: &SubstreamId, graph: &Graph) -> Vec<Event> {
        let has_bytes = mem::replace(&mut self.has_bytes, true);
        let seen = self.seen.filter(|_| has_bytes && self.takes_changes);
        match seen.and_then(|seen| Some((seen, graph.next_patches(seen)?))) {
            Some((seen, patches)) => {
                self.seen = Some(seen + 1);
                patches.iter().map(|patch| Event::change(id, patch)).collect()
            }
            None => {
                self.seen = Some(graph.end());
                vec![Event::whole(id, graph.latest())]
            }
        }
    }
}
