//! One answer that is followed.

use std::{
    hash::{DefaultHasher, Hash, Hasher},
    net::{IpAddr, Ipv4Addr},
    time::Duration,
};

use serde_json::Value;

use super::{
    Present,
    body::Tally,
    document::{Part, parts, patches},
    graph::{Graph, Limits, Version},
};
use towpath_alto::{
    media,
    names::ResourceId,
    patch::Allowed,
    problem::Problem,
    resource::{Answer, Resource},
};

/// What an answer is to: two requests with one key have one answer in each world.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Key {
    /// That of all else, taken once: an input may be long, and streams look up what they follow again and again.
    hash: u64,
    resource: ResourceId,
    /// What is posted, as JSON: that takes a tenth of the memory of values. None for what is asked for by GET.
    input: Option<Box<str>>,
    /// Who asks, if the answer depends on that.
    client: Option<IpAddr>,
}

impl Key {
    /// The key of `resource` being asked for `input` by a client at `client`. An input that is missing is an empty one.
    pub(super) fn new(resource: &Resource, input: Option<&Value>, client: IpAddr) -> Self {
        let client = depends_on_client(resource, input).then_some(client);
        let written = || input.map_or_else(|| "{}".to_owned(), Value::to_string).into_boxed_str();
        let (resource, input) = (resource.id.clone(), resource.accepts().map(|_| written()));
        let mut hasher = DefaultHasher::new();
        (&resource, &input, client).hash(&mut hasher);
        Self { hash: hasher.finish(), resource, input, client }
    }

    /// Whose answer it is.
    pub(super) fn resource(&self) -> &ResourceId {
        &self.resource
    }

    /// How long its input is.
    pub(super) fn bytes(&self) -> usize {
        self.input.as_ref().map_or(0, |input| input.len())
    }

    fn answer(&self, resource: &Resource, present: Present<'_>) -> Result<Answer, Problem> {
        let read = |input: &str| serde_json::from_str(input).expect("it was written from a value that was read");
        let input = self.input.as_deref().map_or(Value::Null, read);
        // Where nobody is named, nobody is asked for.
        let client = self.client.unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED));
        resource.answer(present.world, &input, client)
    }

    /// The tag that the answer names as its own. That of a part is not one of the whole (RFC 7285 §11.3.1.6).
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

/// Whether one side of the pairs may be the client itself (RFC 7285 §11.5.1.3).
fn depends_on_client(resource: &Resource, input: Option<&Value>) -> bool {
    let is_told = |side: &str| {
        let endpoints = input.and_then(|input| input.get("endpoints")?.get(side)?.as_array());
        endpoints.is_some_and(|endpoints| !endpoints.is_empty())
    };
    resource.accepts() == Some(media::ENDPOINT_COST_PARAMS) && !(is_told("srcs") && is_told("dsts"))
}

/// An answer with its versions. Takes the memory of [`Limits`] and that of the latest answer.
#[derive(Debug)]
pub(super) struct Item {
    /// How many resources stand one upon another beneath it: what it depends on has less.
    pub(super) depth: usize,
    /// How long it took to make it last.
    pub(super) took: Duration,
    /// Its versions.
    pub(super) graph: Graph,
}

impl Item {
    /// The answer as it is now.
    ///
    /// # Errors
    /// Those of the resource.
    pub(super) fn new(
        key: &Key,
        resource: &Resource,
        present: Present<'_>,
        limits: Limits,
        tally: &Tally,
    ) -> Result<Self, Problem> {
        let answer = key.answer(resource, present)?;
        let version_tag = key.version_tag(&parts(answer.media_type, &answer.body));
        let version = Version::new(answer, version_tag, None, tally);
        Ok(Self { depth: depth(resource, present), took: Duration::ZERO, graph: Graph::new(1, version, limits) })
    }

    /// Adds the answer as it is now, if it is another one; tells whether it is.
    ///
    /// # Errors
    /// Those of the resource, if the world no longer has what is asked for.
    pub(super) fn advance(
        &mut self,
        key: &Key,
        resource: &Resource,
        present: Present<'_>,
        allowed: Allowed,
        tally: &Tally,
    ) -> Result<bool, Problem> {
        let answer = key.answer(resource, present)?;
        self.depth = depth(resource, present);
        if answer.tag == *self.graph.tag() {
            return Ok(false);
        }
        // Read again from its bytes: as values it would take ten times their memory all the time.
        let latest = self.graph.latest();
        let old = parts(latest.media_type, &latest.body);
        let new = parts(answer.media_type, &answer.body);
        let patches = patches(&old, &new, allowed, tally);
        self.graph.push(Version::new(answer, key.version_tag(&new), patches, tally));
        Ok(true)
    }
}

/// How many resources stand one upon another beneath this one. No resource depends on itself.
fn depth(resource: &Resource, present: Present<'_>) -> usize {
    let uses = resource.uses(present.world);
    let used = uses.iter().filter_map(|id| present.directory.find(id.as_str()));
    used.map(|used| 1 + depth(used, present)).max().unwrap_or(0)
}
