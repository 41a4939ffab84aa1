//! A followed response.

use std::{
    hash::{DefaultHasher, Hash, Hasher},
    net::{IpAddr, Ipv4Addr},
    time::Duration,
};

use serde_json::Value;

use super::{
    CurrentNetwork,
    body::ByteCounter,
    document::{Part, parts, patches},
    graph::{Graph, Limits, Version},
};
use towpath_alto::{
    media,
    names::ResourceId,
    patch::AllowedChanges,
    problem::Problem,
    resource::{AltoResponse, Resource},
};

/// Identifies a response: requests with equal keys have equal responses in each network state.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Key {
    /// Hash of the other fields, computed once: inputs may be long, and streams look up their responses often.
    hash: u64,
    resource: ResourceId,
    /// The posted input as JSON text, which takes a tenth of the memory of parsed values. `None` for resources read by
    /// GET.
    input: Option<Box<str>>,
    /// The client's address, if the response depends on it.
    client: Option<IpAddr>,
}

impl Key {
    /// Creates the key for a request of `resource` with `input` by a client at `client`. A missing input is an empty
    /// object.
    pub(super) fn new(resource: &Resource, input: Option<&Value>, client: IpAddr) -> Self {
        let client = depends_on_client(resource, input).then_some(client);
        let written = || input.map_or_else(|| "{}".to_owned(), Value::to_string).into_boxed_str();
        let (resource, input) = (resource.id.clone(), resource.accepts().map(|_| written()));
        let mut hasher = DefaultHasher::new();
        (&resource, &input, client).hash(&mut hasher);
        Self { hash: hasher.finish(), resource, input, client }
    }

    /// Returns the ID of the resource.
    pub(super) fn resource(&self) -> &ResourceId {
        &self.resource
    }

    /// Returns the length of the input.
    pub(super) fn bytes(&self) -> usize {
        self.input.as_ref().map_or(0, |input| input.len())
    }

    fn answer(&self, resource: &Resource, present: CurrentNetwork<'_>) -> Result<AltoResponse, Problem> {
        let read = |input: &str| serde_json::from_str(input).expect("it was written from a value that was read");
        let input = self.input.as_deref().map_or(Value::Null, read);
        // A response without a client in its key does not depend on the client.
        let client = self.client.unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED));
        resource.answer(present.network_state, &input, client)
    }

    /// Returns the tag that the response names as its own. That of a filtered map is not a tag of the response (RFC
    /// 7285 §11.3.1.6).
    fn version_tag(&self, parts: &[Part]) -> Option<String> {
        let [part] = parts else { return None };
        part.value["meta"]["vtag"]["tag"].as_str().filter(|_| self.input.is_none()).map(str::to_owned)
    }
}

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.hash.hash(state);
    }
}

/// Returns whether one side of the pairs may default to the client itself (RFC 7285 §11.5.1.3).
fn depends_on_client(resource: &Resource, input: Option<&Value>) -> bool {
    let is_told = |side: &str| {
        let endpoints = input.and_then(|input| input.get("endpoints")?.get(side)?.as_array());
        endpoints.is_some_and(|endpoints| !endpoints.is_empty())
    };
    resource.accepts() == Some(media::ENDPOINT_COST_PARAMS) && !(is_told("srcs") && is_told("dsts"))
}

/// A response with its versions. Takes the memory of [`Limits`] and of the latest response.
#[derive(Debug)]
pub(super) struct Item {
    /// Depth in the dependency graph of resources; dependencies have a smaller depth.
    pub(super) depth: usize,
    /// Duration of the last computation.
    pub(super) took: Duration,
    /// Its versions.
    pub(super) graph: Graph,
}

impl Item {
    /// Computes the current response.
    ///
    /// # Errors
    /// As for the resource.
    pub(super) fn new(
        key: &Key,
        resource: &Resource,
        present: CurrentNetwork<'_>,
        limits: Limits,
        byte_counter: &ByteCounter,
    ) -> Result<Self, Problem> {
        let answer = key.answer(resource, present)?;
        let version_tag = key.version_tag(&parts(answer.media_type, &answer.body));
        let version = Version::new(answer, version_tag, None, byte_counter);
        Ok(Self { depth: depth(resource, present), took: Duration::ZERO, graph: Graph::new(1, version, limits) })
    }

    /// Recomputes the response, adds a version if it changed, and returns whether it did.
    ///
    /// # Errors
    /// As for the resource, if the network state no longer has the requested items.
    pub(super) fn advance(
        &mut self,
        key: &Key,
        resource: &Resource,
        present: CurrentNetwork<'_>,
        allowed: AllowedChanges,
        byte_counter: &ByteCounter,
    ) -> Result<bool, Problem> {
        let answer = key.answer(resource, present)?;
        self.depth = depth(resource, present);
        if answer.tag == *self.graph.tag() {
            return Ok(false);
        }
        // Parse the old bytes again, because keeping parsed values would permanently take ten times the memory.
        let latest = self.graph.latest();
        let old = parts(latest.media_type, &latest.body);
        let new = parts(answer.media_type, &answer.body);
        let patches = patches(&old, &new, allowed, byte_counter);
        self.graph.push(Version::new(answer, key.version_tag(&new), patches, byte_counter));
        Ok(true)
    }
}

/// Returns the depth of a resource in the dependency graph, which is acyclic.
fn depth(resource: &Resource, present: CurrentNetwork<'_>) -> usize {
    let uses = resource.uses(present.network_state);
    let used = uses.iter().filter_map(|id| present.directory.find(id.as_str()));
    used.map(|used| 1 + depth(used, present)).max().unwrap_or(0)
}
