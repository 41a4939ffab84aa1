//! Resolves each name in a statement to a resource of the server and the query for it.

use super::{
    configuration::{Configuration, Metric},
    directory::{Directory, Entry, Service},
    error::{ClientError, printable},
};
use towpath_alto::{
    cost::{CostMode, CostType},
    names::{CostMetric, PropertyName, ResourceId},
    order::{Aggregate, Pipeline},
};

const ENDPOINT_COSTS: &[Service] = &[Service::EndpointCosts];
const COST_MAPS: &[Service] = &[Service::FilteredCostMap, Service::CostMap];
const PATH_VECTORS: &[Service] = &[Service::PathVector];
const PROPERTIES: &[Service] = &[Service::PropertyMap, Service::EndpointProperties];

/// The source of a name's value. Resources are identified by their directory ids.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum ValueSource {
    /// The path between a replica and the client.
    Path {
        /// The name in the statement.
        name: String,
        /// Whether data flow from the client to the replica.
        reverse: bool,
        query: PathQuery,
    },
    /// A property of one end.
    Property {
        /// The name in the statement.
        name: String,
        resource: String,
        /// The name at the resource.
        property: String,
        /// Whether it is a property of the client.
        of_client: bool,
        transformer: Option<Pipeline>,
    },
}

impl ValueSource {
    /// Returns the name in the statement.
    pub(super) fn name(&self) -> &str {
        match self {
            Self::Path { name, .. } | Self::Property { name, .. } => name,
        }
    }

    /// Returns whether the values are ranks.
    pub(super) fn is_rank(&self) -> bool {
        match self {
            Self::Path { query: PathQuery::EndpointCosts { kind, .. } | PathQuery::CostMap { kind, .. }, .. } => {
                kind.cost_mode == CostMode::Ordinal
            }
            Self::Path { query: PathQuery::PathVector { .. }, .. } | Self::Property { .. } => false,
        }
    }
}

/// The query for a value of a path.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum PathQuery {
    EndpointCosts { resource: String, kind: CostType },
    CostMap { resource: String, map: String, kind: CostType },
    PathVector { resource: String, elements: ElementAggregation },
}

/// Computes a value from the elements on a path.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ElementAggregation {
    /// The property to aggregate; `None` counts each element as 1.
    pub(super) property: Option<PropertyName>,
    /// Counts only elements whose names start with this prefix.
    pub(super) prefix: String,
    pub(super) transformer: Option<Pipeline>,
    pub(super) aggregate: Aggregate,
}

/// Resolves names to their sources.
#[derive(Debug, Clone, Copy)]
pub(super) struct SourceResolver<'a> {
    pub(super) configuration: &'a Configuration,
    pub(super) directory: &'a Directory,
    /// Whether the client's address is known.
    pub(super) has_client: bool,
}

impl<'a> SourceResolver<'a> {
    /// Resolves `name`.
    ///
    /// # Errors
    /// If the directory has no matching resource or several, or if the client's address is required but unknown.
    pub(super) fn of(&self, name: &str) -> Result<ValueSource, ClientError> {
        if let Some(property) = name.strip_prefix("src.") {
            return self.or_unknown(name, self.property(name, &property_spellings(property), None, true, None));
        }
        let metric_name = name.strip_prefix("dst.").unwrap_or(name);
        match self.configuration.metrics.get(metric_name) {
            Some(metric) => self.configured_source(name, metric_name, metric),
            None => self.unconfigured_source(name, metric_name),
        }
    }

    fn configured_source(&self, name: &str, metric_name: &str, metric: &Metric) -> Result<ValueSource, ClientError> {
        let costs = |cost_metric: &Option<CostMetric>| match cost_metric {
            Some(metric) => vec![metric.to_string()],
            None => spellings(metric_name),
        };
        let query = match metric {
            Metric::PathVector {
                resource_id, prop_name, element_prefix, prop_transformer, aggr_transformer, ..
            } => {
                let elements = ElementAggregation {
                    property: prop_name.clone(),
                    prefix: element_prefix.clone().unwrap_or_default(),
                    transformer: prop_transformer.clone(),
                    aggregate: aggr_transformer.unwrap_or(Aggregate::Sum),
                };
                self.path_vector(name, resource_id.as_ref(), elements)
            }
            Metric::CostMap { resource_id, cost_metric, dependent_network_map, .. } => {
                let map = dependent_network_map.as_ref().map(ResourceId::as_str);
                self.cost_map(name, &costs(cost_metric), resource_id.as_ref(), map)
            }
            Metric::EndpointCost { resource_id, cost_metric, .. } => {
                self.endpoint_costs(name, &costs(cost_metric), resource_id.as_ref())
            }
            Metric::PropertyMap { resource_id, prop_name, prop_transformer, .. } => {
                let names = match prop_name {
                    Some(property) => vec![property.clone()],
                    None => property_spellings(metric_name),
                };
                return self.property(name, &names, resource_id.as_ref(), false, prop_transformer.clone());
            }
        };
        Ok(ValueSource::Path { name: name.to_owned(), reverse: metric.is_reverse(), query: query? })
    }

    /// Resolves an unconfigured name: a cost metric of some resource, or a property.
    fn unconfigured_source(&self, name: &str, metric_name: &str) -> Result<ValueSource, ClientError> {
        let metrics = spellings(metric_name);
        let is_missing = |query: &Result<PathQuery, ClientError>| matches!(query, Err(ClientError::NoResource { .. }));
        let mut query = self.endpoint_costs(name, &metrics, None);
        if is_missing(&query) {
            query = self.cost_map(name, &metrics, None, None);
        }
        if is_missing(&query) {
            let property = self.property(name, &property_spellings(metric_name), None, false, None);
            return self.or_unknown(name, property);
        }
        Ok(ValueSource::Path { name: name.to_owned(), reverse: false, query: query? })
    }

    /// For an unconfigured name, a missing resource means that the name is unknown.
    fn or_unknown(&self, name: &str, source: Result<ValueSource, ClientError>) -> Result<ValueSource, ClientError> {
        match source {
            Err(ClientError::NoResource { directory, .. }) => {
                Err(ClientError::Unknown { name: name.to_owned(), directory, offers: self.directory.offers() })
            }
            source => source,
        }
    }

    fn endpoint_costs(
        &self,
        name: &str,
        metrics: &[String],
        id: Option<&ResourceId>,
    ) -> Result<PathQuery, ClientError> {
        let with = format!("the cost metric {}", metrics.join(" or "));
        let entry = self.resource(name, ENDPOINT_COSTS, id, &with, |entry| Some(rank(cost_type(entry, metrics)?)))?;
        Ok(PathQuery::EndpointCosts { resource: entry.id.clone(), kind: kind_of(entry, metrics) })
    }

    /// Among several cost maps, prefers one of the default network map.
    fn cost_map(
        &self,
        name: &str,
        metrics: &[String],
        id: Option<&ResourceId>,
        map: Option<&str>,
    ) -> Result<PathQuery, ClientError> {
        let with = format!("the cost metric {}", metrics.join(" or "));
        let default_map = self.directory.default_map();
        let is_of = |entry: &Entry, map: &str| entry.uses.is_empty() || entry.uses.iter().any(|used| used == map);
        let entry = self.resource(name, COST_MAPS, id, &with, |entry| {
            let rank = rank(cost_type(entry, metrics)?);
            let is_default = default_map.is_some_and(|default| is_of(entry, default));
            map.is_none_or(|map| is_of(entry, map)).then_some(2 * rank + u8::from(!is_default))
        })?;
        let used = entry.uses.first().map(String::as_str);
        let map = map.or(default_map.filter(|default| is_of(entry, default))).or(used).unwrap_or_default();
        if self.directory.entry(map).is_none_or(|entry| entry.service != Service::NetworkMap) {
            let kind = format!("{} '{}'", Service::NetworkMap.name(), printable(map));
            let directory = self.directory.printable_address();
            return Err(ClientError::NoResource { name: name.to_owned(), kind, directory });
        }
        if !self.has_client {
            return Err(ClientError::NeedsClient { name: name.to_owned() });
        }
        Ok(PathQuery::CostMap { resource: entry.id.clone(), map: map.to_owned(), kind: kind_of(entry, metrics) })
    }

    fn path_vector(
        &self,
        name: &str,
        id: Option<&ResourceId>,
        elements: ElementAggregation,
    ) -> Result<PathQuery, ClientError> {
        let property = elements.property.as_ref().map(PropertyName::as_str);
        let with = property.map_or_else(|| "paths".to_owned(), |property| format!("the property {property}"));
        let has = |entry: &Entry| property.is_none_or(|property| entry.properties.contains(property));
        let entry = self.resource(name, PATH_VECTORS, id, &with, |entry| has(entry).then_some(0))?;
        Ok(PathQuery::PathVector { resource: entry.id.clone(), elements })
    }

    fn property(
        &self,
        name: &str,
        names: &[String],
        id: Option<&ResourceId>,
        of_client: bool,
        transformer: Option<Pipeline>,
    ) -> Result<ValueSource, ClientError> {
        let with = format!("the property {}", names.join(" or "));
        let position = |entry: &Entry| names.iter().position(|name| entry.properties.contains(name));
        let entry = self.resource(name, PROPERTIES, id, &with, |entry| u8::try_from(position(entry)?).ok())?;
        if of_client && !self.has_client {
            return Err(ClientError::NeedsClient { name: name.to_owned() });
        }
        let property = names[position(entry).expect("selected because it has one")].clone();
        Ok(ValueSource::Property {
            name: name.to_owned(),
            resource: entry.id.clone(),
            property,
            of_client,
            transformer,
        })
    }

    /// Returns the resource `id`, or the one among `services` with the lowest `rank`; resources without a rank do not
    /// qualify. For equal ranks, the first service wins.
    fn resource(
        &self,
        name: &str,
        services: &'static [Service],
        id: Option<&ResourceId>,
        with: &str,
        rank: impl Fn(&Entry) -> Option<u8>,
    ) -> Result<&'a Entry, ClientError> {
        let (name, directory) = (name.to_owned(), self.directory.printable_address());
        let kind = format!("{} with {with}", services[0].name());
        if let Some(id) = id {
            let found = self.directory.entry(id.as_str());
            let found = found.filter(|entry| services.contains(&entry.service) && rank(entry).is_some());
            return found.ok_or_else(|| ClientError::OtherResource { name, id: id.to_string(), directory, kind });
        }
        let candidates = self.directory.of(services);
        let mut ranked: Vec<((u8, Service), &Entry)> =
            candidates.filter_map(|entry| Some(((rank(entry)?, entry.service), entry))).collect();
        let best = ranked.iter().map(|(rank, _)| *rank).min();
        ranked.retain(|(rank, _)| Some(*rank) == best);
        match ranked[..] {
            [(_, only)] => Ok(only),
            [] => Err(ClientError::NoResource { name, kind, directory }),
            _ => {
                let ids = ranked.iter().map(|(_, entry)| entry.id.as_str()).collect::<Vec<_>>().join(", ");
                Err(ClientError::Ambiguous { name, kind, ids })
            }
        }
    }
}

/// Returns the resource's cost type for a metric in one of these spellings.
fn cost_type<'e>(entry: &'e Entry, metrics: &[String]) -> Option<&'e CostType> {
    metrics.iter().find_map(|metric| entry.cost_type(metric))
}

fn kind_of(entry: &Entry, metrics: &[String]) -> CostType {
    cost_type(entry, metrics).expect("selected because it has it").clone()
}

/// Numerical values carry more information than ranks.
fn rank(kind: &CostType) -> u8 {
    u8::from(kind.cost_mode == CostMode::Ordinal)
}

/// Returns the possible spellings of a metric at a server.
fn spellings(name: &str) -> Vec<String> {
    let mut spellings = vec![name.to_owned(), name.replace('_', "-")];
    spellings.dedup();
    spellings
}

/// Returns the possible spellings of a property at a server (RFC 7285 §10.8.2).
fn property_spellings(name: &str) -> Vec<String> {
    spellings(name).iter().flat_map(|name| [name.clone(), format!("priv:{name}")]).collect()
}
