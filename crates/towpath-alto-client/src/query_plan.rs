//! The sequence of requests needed for one statement, and the values obtained from the responses.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, VecDeque},
    net::IpAddr,
    sync::Arc,
};

use serde_json::{Value as Json, json};

use super::{
    configuration::Configuration,
    directory::{Directory, Entry, Service},
    error::ClientError,
    responses::{self, LocatedMap, ServerResponse},
    value_source::{PathQuery, SourceResolver, ValueSource},
};
use towpath_alto::{
    address::Endpoint,
    cost::CostType,
    media,
    order::{CandidateValues, Direction, Pipeline, Statement, Value},
};

/// Maximum number of replica addresses per request. More would exceed the 256 KiB that a towpath server accepts per
/// request.
const MAX_ENDPOINTS: usize = 4000;

/// The endpoints of a transfer.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TransferEndpoints {
    /// Address of the client; `None` for the address that the server sees.
    pub client: Option<IpAddr>,
    /// Addresses of the replicas.
    pub replicas: BTreeSet<IpAddr>,
}

/// A request to a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// The absolute URI.
    pub uri: String,
    /// The value of the `Accept` header.
    pub accept: String,
    /// Media type and body of a POST; `None` for a GET.
    pub document: Option<(&'static str, Vec<u8>)>,
}

/// The requests for one statement, and the values obtained so far. Takes a few hundred bytes of memory per address
/// and name.
pub struct QueryPlan {
    directory: Arc<Directory>,
    ends: TransferEndpoints,
    tasks: VecDeque<Task>,
    maps: BTreeMap<String, Arc<LocatedMap>>,
    replica_values: ReplicaValues,
    /// The keys of the statement, and the fallback key for replicas without any known key.
    keys: Vec<String>,
    backup: Option<String>,
}

/// The purpose of one request.
enum Task {
    /// A network map, needed for costs between PIDs.
    NetworkMap(String),
    /// The value of a name for the paths of these replicas.
    Path { name: String, reverse: bool, query: PathQuery, replicas: Vec<IpAddr> },
    /// Properties of these addresses.
    Properties { resource: String, requested: Vec<RequestedProperty>, of_client: bool, addresses: Vec<IpAddr> },
}

/// A property to request.
#[derive(Clone)]
struct RequestedProperty {
    name: String,
    property: String,
    transformer: Option<Pipeline>,
}

impl QueryPlan {
    /// Plans the requests to the server with the given directory that provide the names in `statement`.
    ///
    /// # Errors
    /// If a name is unknown, or the server lacks a required resource.
    pub fn new(
        configuration: &Configuration,
        directory: impl Into<Arc<Directory>>,
        statement: &Statement,
        ends: TransferEndpoints,
    ) -> Result<Self, ClientError> {
        let directory = directory.into();
        let resolver = SourceResolver { configuration, directory: &directory, has_client: ends.client.is_some() };
        let sources = statement.names().map(|name| resolver.of(name)).collect::<Result<Vec<_>, _>>()?;
        let ranks = sources.iter().filter(|source| source.is_rank()).map(|source| source.name().to_owned()).collect();
        let replica_values = ReplicaValues { ranks, ..ReplicaValues::default() };
        let (mut tasks, maps) = (tasks(sources, &ends), BTreeMap::new());
        // A fallback that the statement also names is always requested.
        let backup = statement.backup().filter(|name| !statement.has(name)).map(str::to_owned);
        // Last, because it may not be needed by then.
        tasks.make_contiguous().sort_by_key(|task| task.is_of(backup.as_deref()));
        let keys = statement.keys().iter().map(|key| key.name.clone()).collect();
        Ok(Self { directory, ends, tasks, maps, replica_values, keys, backup })
    }

    /// Reuses the network maps already read by `other`, a query plan of the same directory.
    #[must_use]
    pub fn with_maps_of(mut self, other: &Self) -> Self {
        self.maps.clone_from(&other.maps);
        let maps = &self.maps;
        self.tasks.retain(|task| !matches!(task, Task::NetworkMap(id) if maps.contains_key(id)));
        self
    }

    /// Returns the next request; `None` when all are answered. It stays the same until [`Self::take`] receives the
    /// response.
    pub fn next_request(&mut self) -> Option<Request> {
        while let Some(task) = self.tasks.front() {
            let request = self.request_for(task);
            if request.is_some() && !self.is_needless(task) {
                return request;
            }
            self.tasks.pop_front();
        }
        None
    }

    /// Processes the response to the last request. The caller limits the body to
    /// [`MAX_ANSWER_BYTES`](super::MAX_ANSWER_BYTES).
    ///
    /// # Errors
    /// If the document is malformed, or a cost map depends on another version of the network map than the one read.
    pub fn take(&mut self, media_type: &str, body: &[u8]) -> Result<(), ClientError> {
        let Some(task) = self.tasks.pop_front() else { return Ok(()) };
        let address = self.directory.entry(task.resource()).map(|entry| entry.uri.as_str()).unwrap_or_default();
        let answer = ServerResponse::read(address, media_type, body)?;
        match task {
            Task::NetworkMap(id) => drop(self.maps.insert(id, Arc::new(LocatedMap::read(&answer)?))),
            Task::Path { name, reverse, query, replicas } => {
                let values = self.values(&query, reverse, &replicas, &answer)?;
                self.replica_values.of_replicas.entry(name).or_default().extend(values);
            }
            Task::Properties { requested, of_client, addresses, .. } => {
                self.take_properties(&requested, of_client, &addresses, &answer)?;
            }
        }
        Ok(())
    }

    /// Returns the values obtained so far.
    pub fn replica_values(&self) -> &ReplicaValues {
        &self.replica_values
    }

    /// Returns whether a task only serves the fallback of replicas that have a known key.
    fn is_needless(&self, task: &Task) -> bool {
        let is_known = |replica: &IpAddr| {
            let candidate = self.replica_values.at(Some(*replica));
            self.keys.iter().any(|key| candidate.value(key).is_some())
        };
        let Task::Path { replicas, .. } = task else { return false };
        task.is_of(self.backup.as_deref()) && replicas.iter().all(is_known)
    }

    /// Returns the request for a task; `None` if it cannot yield any value.
    fn request_for(&self, task: &Task) -> Option<Request> {
        let entry = self.directory.entry(task.resource())?;
        match task {
            Task::NetworkMap(_) => Some(get(entry)),
            Task::Properties { requested, addresses, .. } => {
                let names: BTreeSet<&str> = requested.iter().map(|requested| requested.property.as_str()).collect();
                let addresses = endpoints(addresses);
                Some(match entry.service {
                    Service::EndpointProperties => {
                        let document = json!({ "properties": names, "endpoints": addresses });
                        post(entry, media::ENDPOINT_PROPERTIES_PARAMS, &document)
                    }
                    _ => {
                        let document = json!({ "entities": addresses, "properties": names });
                        post(entry, media::PROPERTY_MAP_PARAMS, &document)
                    }
                })
            }
            Task::Path { reverse, query, replicas, .. } => self.request_for_path(entry, query, *reverse, replicas),
        }
    }

    fn request_for_path(
        &self,
        entry: &Entry,
        query: &PathQuery,
        reverse: bool,
        replicas: &[IpAddr],
    ) -> Option<Request> {
        match query {
            PathQuery::EndpointCosts { kind, .. } => {
                let document = json!({ "cost-type": kind, "endpoints": self.filter(replicas, reverse) });
                Some(post(entry, media::ENDPOINT_COST_PARAMS, &document))
            }
            PathQuery::PathVector { elements, .. } => {
                let properties: Vec<_> = elements.property.iter().collect();
                let document = json!({
                    "cost-type": CostType::path_vector(),
                    "endpoints": self.filter(replicas, reverse),
                    "ane-property-names": properties,
                });
                Some(post(entry, media::ENDPOINT_COST_PARAMS, &document))
            }
            PathQuery::CostMap { map, kind, .. } => {
                let pairs = replicas.iter().filter_map(|replica| self.pids(map, *replica, reverse));
                let (sources, destinations): (BTreeSet<&str>, BTreeSet<&str>) = pairs.unzip();
                // Empty lists would select all PIDs.
                if sources.is_empty() {
                    return None;
                }
                Some(match entry.service {
                    Service::FilteredCostMap => {
                        let pids = json!({ "srcs": sources, "dsts": destinations });
                        post(entry, media::COST_MAP_FILTER, &json!({ "cost-type": kind, "pids": pids }))
                    }
                    _ => get(entry),
                })
            }
        }
    }

    /// Returns an `EndpointFilter` (RFC 7285 §11.5.1.3). An empty side stands for the requesting client.
    fn filter(&self, replicas: &[IpAddr], reverse: bool) -> Json {
        let client: Vec<IpAddr> = self.ends.client.into_iter().collect();
        let (sources, destinations) = if reverse { (&*client, replicas) } else { (replicas, &*client) };
        json!({ "srcs": endpoints(sources), "dsts": endpoints(destinations) })
    }

    /// Returns the source and destination PIDs; `None` if either is unknown.
    fn pids(&self, map: &str, replica: IpAddr, reverse: bool) -> Option<(&str, &str)> {
        let map = self.maps.get(map)?;
        let (replica, client) = (map.locate(replica)?, map.locate(self.ends.client?)?);
        Some(if reverse { (client, replica) } else { (replica, client) })
    }

    /// Returns the values in a response for the paths of `replicas`.
    fn values(
        &self,
        query: &PathQuery,
        reverse: bool,
        replicas: &[IpAddr],
        answer: &ServerResponse,
    ) -> Result<Vec<(IpAddr, Value)>, ClientError> {
        match query {
            PathQuery::EndpointCosts { .. } => {
                let cells = responses::cells(answer.member(&["endpoint-cost-map"])?, &self.ends, reverse);
                Ok(cells.into_iter().filter_map(|(replica, cell)| Some((replica, Value::from_json(cell)?))).collect())
            }
            PathQuery::PathVector { elements, .. } => {
                // An example in RFC 9275 §8 uses the second name.
                let paths = answer.member(&["endpoint-cost-map", "cost-map"])?;
                let by_element = responses::elements(answer.member(&["property-map"])?);
                let cells = responses::cells(paths, &self.ends, reverse).into_iter();
                Ok(cells.filter_map(|(replica, path)| Some((replica, elements.value(path, &by_element)?))).collect())
            }
            PathQuery::CostMap { map: id, .. } => {
                let costs = answer.member(&["cost-map"])?;
                if self.maps.get(id).is_some_and(|map| answer.is_of_another(id, map)) {
                    return Err(ClientError::Changed { map: id.clone() });
                }
                let cost = |replica: &IpAddr| responses::cost(costs, self.pids(id, *replica, reverse)?);
                Ok(replicas.iter().filter_map(|replica| Some((*replica, cost(replica)?))).collect())
            }
        }
    }

    fn take_properties(
        &mut self,
        requested: &[RequestedProperty],
        of_client: bool,
        addresses: &[IpAddr],
        answer: &ServerResponse,
    ) -> Result<(), ClientError> {
        let entities = answer.member(&["property-map", "endpoint-properties"])?;
        for RequestedProperty { name, property, transformer } in requested {
            let by_prefix = responses::property(entities, property);
            for address in addresses {
                let value = by_prefix.get_lpm(&(*address).into()).and_then(|(_, value)| Value::from_json(value));
                let value = match transformer {
                    Some(transformer) => value.and_then(|value| transformer.apply(value)),
                    None => value,
                };
                let Some(value) = value else { continue };
                match of_client {
                    true => drop(self.replica_values.of_client.insert(name.clone(), value)),
                    false => {
                        drop(self.replica_values.of_replicas.entry(name.clone()).or_default().insert(*address, value));
                    }
                }
            }
        }
        Ok(())
    }
}

/// Returns the tasks in order: network maps precede the cost maps that need them.
fn tasks(sources: Vec<ValueSource>, ends: &TransferEndpoints) -> VecDeque<Task> {
    let (mut maps, mut path_tasks, mut properties) =
        (BTreeSet::new(), Vec::new(), BTreeMap::<_, Vec<RequestedProperty>>::new());
    let replicas: Vec<IpAddr> = ends.replicas.iter().copied().collect();
    for source in sources {
        match source {
            ValueSource::Path { name, reverse, query } => {
                if let PathQuery::CostMap { map, .. } = &query {
                    maps.insert(map.clone());
                }
                path_tasks.extend(replicas.chunks(MAX_ENDPOINTS).map(|replicas| Task::Path {
                    name: name.clone(),
                    reverse,
                    query: query.clone(),
                    replicas: replicas.to_vec(),
                }));
            }
            ValueSource::Property { name, resource, property, of_client, transformer } => {
                let requested = RequestedProperty { name, property, transformer };
                properties.entry((resource, of_client)).or_default().push(requested);
            }
        }
    }
    let client: Vec<IpAddr> = ends.client.into_iter().collect();
    let properties = properties.into_iter().flat_map(|((resource, of_client), requested)| {
        let addresses = if of_client { &client } else { &replicas };
        let part = |addresses: &[IpAddr]| Task::Properties {
            resource: resource.clone(),
            requested: requested.clone(),
            of_client,
            addresses: addresses.to_vec(),
        };
        addresses.chunks(MAX_ENDPOINTS).map(part).collect::<Vec<_>>()
    });
    maps.into_iter().map(Task::NetworkMap).chain(path_tasks).chain(properties).collect()
}

impl Task {
    /// Returns whether the task obtains the path value with the given name.
    fn is_of(&self, requested: Option<&str>) -> bool {
        matches!(self, Self::Path { name, .. } if Some(name.as_str()) == requested)
    }

    /// Returns the resource of the task.
    fn resource(&self) -> &str {
        match self {
            Self::NetworkMap(resource) | Self::Properties { resource, .. } => resource,
            Self::Path { query, .. } => match query {
                PathQuery::EndpointCosts { resource, .. }
                | PathQuery::CostMap { resource, .. }
                | PathQuery::PathVector { resource, .. } => resource,
            },
        }
    }
}

fn get(entry: &Entry) -> Request {
    Request { uri: entry.uri.clone(), accept: entry.accept(), document: None }
}

fn post(entry: &Entry, media_type: &'static str, document: &Json) -> Request {
    Request { document: Some((media_type, document.to_string().into_bytes())), ..get(entry) }
}

/// Formats addresses for requests.
pub(super) fn endpoints(addresses: &[IpAddr]) -> Vec<String> {
    addresses.iter().map(|address| Endpoint(*address).to_string()).collect()
}

/// The values of replicas and of the client, by their names in a statement.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ReplicaValues {
    of_replicas: BTreeMap<String, HashMap<IpAddr, Value>>,
    of_client: BTreeMap<String, Value>,
    /// Names with ordinal costs.
    ranks: BTreeSet<String>,
}

impl ReplicaValues {
    /// Returns which values of a name are better, if the statement does not specify it: the least for ranks (RFC 7285
    /// §6.1.2.2), else [`Configuration::direction`].
    pub fn direction(&self, name: &str, configuration: &Configuration) -> Direction {
        if self.ranks.contains(name) { Direction::Min } else { configuration.direction(name) }
    }

    /// Returns the values of the replica at the given address; `None` if its address is unknown.
    pub fn at(&self, address: Option<IpAddr>) -> Candidate<'_> {
        Candidate { replica_values: self, address }
    }
}

/// A replica for evaluation by a statement.
#[derive(Debug, Clone, Copy)]
pub struct Candidate<'a> {
    replica_values: &'a ReplicaValues,
    address: Option<IpAddr>,
}

impl CandidateValues for Candidate<'_> {
    fn value(&self, name: &str) -> Option<Value> {
        let of_replica = || self.replica_values.of_replicas.get(name)?.get(&self.address?);
        self.replica_values.of_client.get(name).or_else(of_replica).cloned()
    }
}
