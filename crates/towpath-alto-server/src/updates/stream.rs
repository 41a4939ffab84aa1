//! Update streams (RFC 8895).

use std::{
    collections::{BTreeMap, VecDeque},
    mem,
    net::IpAddr,
    sync::Arc,
};

use serde_json::{Value, json};

use super::{
    CurrentNetwork, Event, FollowedResponses, UpdateError,
    graph::{ClientVersion, Graph},
    item::Key,
    request::{FollowRequest, SubstreamId, UpdateRequest},
};
use towpath_alto::problem::Problem;

/// Maximum number of responses that a stream follows concurrently.
pub const MAX_SUBSTREAMS: usize = 128;

/// Maximum number of substream names over the life of a stream. No name may be reused (RFC 8895 §6.5), so that all are
/// kept.
pub const MAX_NAMES: usize = 8 * MAX_SUBSTREAMS;

/// The update stream of one client.
#[derive(Debug)]
pub struct Stream {
    client: IpAddr,
    /// All substreams ever added; `None` once removed.
    substreams: BTreeMap<SubstreamId, Option<Substream>>,
    /// Substreams with pending updates, in order, and the version to send up to.
    turns: VecDeque<(SubstreamId, u64)>,
    /// Next events: few control events, and the events of one version.
    due: VecDeque<Event>,
    is_closed: bool,
}

/// A response followed by a stream.
#[derive(Debug)]
struct Substream {
    key: Arc<Key>,
    takes_changes: bool,
    /// The version that the client has.
    seen: Option<u64>,
    /// Whether the client has exactly its bytes, so that changes apply.
    has_bytes: bool,
}

impl Stream {
    /// Opens a stream for a client at `client` in response to a POST of `request` (RFC 8895 §6.5). The first event
    /// announces `control_uri`, which must be hard to guess because it authorizes control of the stream. The following
    /// events carry all responses without a current version at the client, dependencies first.
    ///
    /// # Errors
    /// Returns an error if the request is malformed, follows nothing or more than [`MAX_SUBSTREAMS`], or a resource
    /// rejects its input; [`UpdateError::TooMany`].
    pub fn open(
        request: &Value,
        control_uri: Option<&str>,
        client: IpAddr,
        present: CurrentNetwork<'_>,
        followed: &mut FollowedResponses,
    ) -> Result<Self, UpdateError> {
        let updates = UpdateRequest::read(request)?;
        if updates.add.is_empty() {
            return Err(Problem::missing("add").into());
        }
        let due = VecDeque::from([Event::control(&json!({ "control-uri": control_uri }))]);
        let (substreams, turns) = (BTreeMap::new(), VecDeque::new());
        let mut stream = Self { client, substreams, turns, due, is_closed: false };
        stream.substreams = stream.follow(&updates.add, present, followed)?;
        Ok(stream)
    }

    /// Returns the next event, or `None` until something changes. Dependencies come first. Ended substreams are
    /// reported as stopped, and the stream ends with the last of them. To retain little content, a stream queues only
    /// the events of one version of one response.
    pub fn next(&mut self, followed: &FollowedResponses) -> Option<Event> {
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

    /// Finds substreams with updates, and those that ended.
    fn look(&mut self, followed: &FollowedResponses) {
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
            let reason = "the resource no longer exists: read the directory again";
            self.due.push_back(Event::control(&json!({ "stopped": ended, "description": reason })));
            self.close_if_empty();
        }
    }

    /// Adds and removes substreams in response to a POST of `request` to the control URI (RFC 8895 §7). The next events
    /// report it.
    ///
    /// # Errors
    /// Returns [`UpdateError::Problem`] as [`Self::open`], or if a substream to remove was not added by an earlier
    /// request, a name is reused, or everything is removed while something is added; [`UpdateError::TooMany`]. On error
    /// nothing changes. Returns [`UpdateError::Unknown`] if the stream is closed, which happens when all its substreams
    /// are removed.
    pub fn control(
        &mut self,
        request: &Value,
        present: CurrentNetwork<'_>,
        followed: &mut FollowedResponses,
    ) -> Result<(), UpdateError> {
        if self.is_closed {
            return Err(UpdateError::Unknown);
        }
        let updates = UpdateRequest::read(request)?;
        self.check_removal(&updates)?;
        let added = self.follow(&updates.add, present, followed)?;
        if !added.is_empty() {
            let started: Vec<String> = added.keys().map(SubstreamId::to_string).collect();
            self.due.push_back(Event::control(&json!({ "started": started })));
        }
        self.substreams.extend(added);
        if let Some(remove) = updates.remove {
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

    /// Returns whether no substream is left. Remaining events are still sent.
    pub fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// Closes the stream if it has no substreams (RFC 8895 §7.6).
    fn close_if_empty(&mut self) {
        self.is_closed = self.substreams.values().all(Option::is_none);
    }

    fn check_removal(&self, updates: &UpdateRequest) -> Result<(), Problem> {
        let Some(remove) = &updates.remove else {
            let is_empty = updates.add.is_empty();
            return if is_empty { Err(Problem::missing("add")) } else { Ok(()) };
        };
        if remove.is_empty() && !updates.add.is_empty() {
            return Err(Problem::bad_value(
                "remove",
                "[]",
                "an empty list closes the stream: add nothing, or remove by name",
            ));
        }
        // Nor one added by the same request (RFC 8895 §7.6).
        match remove.iter().find(|id| !self.substreams.contains_key(*id)) {
            Some(id) => {
                let reason = "no earlier request added such a substream to this stream";
                Err(Problem::bad_value("remove", &id.to_string(), reason))
            }
            None => Ok(()),
        }
    }

    /// Follows the requested responses, all or none.
    fn follow(
        &self,
        add: &BTreeMap<SubstreamId, FollowRequest>,
        present: CurrentNetwork<'_>,
        followed: &mut FollowedResponses,
    ) -> Result<BTreeMap<SubstreamId, Option<Substream>>, UpdateError> {
        if let Some(used) = add.keys().find(|id| self.substreams.contains_key(*id)) {
            return Err(
                Problem::bad_value("add", &used.to_string(), "this name was used before: choose another").into()
            );
        }
        let running = self.substreams.values().flatten().count();
        if running + add.len() > MAX_SUBSTREAMS || self.substreams.len() + add.len() > MAX_NAMES {
            let most = format!("a stream follows at most {MAX_SUBSTREAMS} responses, and {MAX_NAMES} in its lifetime");
            return Err(Problem::bad_value("add", &add.len().to_string(), &most).into());
        }
        let added = add.iter().map(|(id, request)| {
            let substream = Substream::new(request, self.client, present, followed);
            let substream = substream.map_err(|refusal| refusal.within(&format!("add/{id}")))?;
            Ok((id.clone(), Some(substream)))
        });
        added.collect()
    }
}

impl Substream {
    fn new(
        request: &FollowRequest,
        client: IpAddr,
        present: CurrentNetwork<'_>,
        followed: &mut FollowedResponses,
    ) -> Result<Self, UpdateError> {
        let key = followed.follow(request, client, present)?;
        let graph = &followed.item(&key).expect("it is followed by this key").graph;
        // A client with an older version first receives the full response (RFC 8895 §6.5).
        let held = request.tag.as_deref().map_or(ClientVersion::Nothing, |tag| graph.held(tag));
        let seen = (held != ClientVersion::Nothing).then(|| graph.end());
        Ok(Self { key, takes_changes: request.takes_changes, seen, has_bytes: held == ClientVersion::Bytes })
    }

    /// Returns the events that lead from the client's version, which is not the last, to the next or the last version.
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
