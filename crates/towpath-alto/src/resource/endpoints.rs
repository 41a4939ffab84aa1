//! Properties of endpoints, and costs between them.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use serde_json::{Map, Value, json};

use super::{AltoResponse, Caller, MAX_PAIRS, flows::Flows, maps::cost_meta, too_many_pairs, vtags};
use crate::{
    address::Endpoint,
    cost::{CostCapabilities, CostQuery},
    delegation::{Delegate, Item},
    entity::{Domain, Entity, Property},
    fields::Fields,
    geo::Point,
    matrix::{Grid, Matrix},
    media,
    names::{CostMetric, PropertyName},
    network_state::{CostPosition, NetworkState},
    problem::Problem,
    requested_calendars::RequestedCalendars,
};

/// Returns the properties that endpoints may have.
pub(crate) fn endpoint_properties(network_state: &NetworkState) -> Vec<Property> {
    let pids = network_state.regions().map(|region| Property::pid_of(region.map.id()));
    let of_addresses = network_state.domains.iter().filter(|(domain, _)| matches!(domain, Domain::Address(_)));
    let names: BTreeSet<&PropertyName> =
        of_addresses.flat_map(|(_, names)| names).chain(&network_state.on_demand.properties).collect();
    pids.chain(names.into_iter().map(|name| Property { resource: None, name: name.clone() })).collect()
}

/// Returns a property of an address.
pub(super) fn property_of(
    network_state: &NetworkState,
    entity: &Entity,
    property: &Property,
    delegate: &dyn Delegate,
) -> Option<Value> {
    match (entity, &property.resource) {
        (Entity::Address(prefix), Some(map)) if property.is_pid() => {
            let map = &network_state.region(map.as_str())?.map;
            Some(map.name(map.locate_prefix(*prefix)?).as_str().into())
        }
        (_, None) => {
            let name = property.name.as_str();
            // Location databases are not queried for prefixes, because a prefix may span many locations.
            let located = || network_state.location(entity.single_address()?)?.property(name);
            network_state.property_value(entity, name, delegate).or_else(located)
        }
        (_, Some(_)) => None,
    }
}

/// Responds to RFC 7285 §11.4.1.
pub(super) fn properties(
    network_state: &NetworkState,
    request: &Value,
    delegate: &dyn Delegate,
) -> Result<AltoResponse, Problem> {
    let fields = Fields::of(request)?;
    let offered = endpoint_properties(network_state);
    let read = |text: &str| match Property::parse(text) {
        Ok(property) if offered.contains(&property) => Ok(property),
        Ok(_) => Err("this property is not offered for endpoints".to_owned()),
        Err(error) => Err(error.to_string()),
    };
    let requested = fields.texts("properties", read)?.ok_or_else(|| fields.missing("properties"))?;
    let endpoints = fields.texts("endpoints", Endpoint::parse)?.ok_or_else(|| fields.missing("endpoints"))?;
    // Duplicates have no effect.
    let (requested, endpoints) = (BTreeSet::from_iter(requested), BTreeSet::from_iter(endpoints));
    for (field, length) in [("properties", requested.len()), ("endpoints", endpoints.len())] {
        if length == 0 {
            return Err(fields.refuse(field, "[]", "this must not be empty"));
        }
    }
    let of = |endpoint: &Endpoint| {
        let entity = Entity::Address(endpoint.prefix());
        let values = requested.iter().filter_map(|property| {
            Some((
                property.to_string(),
                property_of(network_state, &entity, property, delegate).filter(|value| !value.is_null())?,
            ))
        });
        (endpoint.to_string(), values.collect::<BTreeMap<_, _>>())
    };
    let maps = requested.iter().filter_map(|property| network_state.region(property.resource.as_ref()?.as_str()));
    let mut meta = network_state.meta();
    meta.insert("dependent-vtags".into(), json!(vtags(maps)));
    let document = json!({
        "meta": meta,
        "endpoint-properties": endpoints.iter().map(of).collect::<BTreeMap<_, _>>(),
    });
    Ok(AltoResponse::of(media::ENDPOINT_PROPERTIES, &document))
}

/// `InfoResourceEndpointCostMap` (RFC 7285 §11.5.1.6).
#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct EndpointCostDocument<'a> {
    meta: Map<String, Value>,
    endpoint_cost_map: Matrix<'a>,
}

/// Responds to RFC 7285 §11.5.1, and RFC 8896 §5.2.
pub(super) fn costs(
    network_state: &NetworkState,
    request: &Value,
    can: &CostCapabilities,
    caller: Caller<'_>,
) -> Result<AltoResponse, Problem> {
    let fields = Fields::of(request)?;
    let query = CostQuery::read(fields, can)?;
    let endpoints = Endpoints::read(network_state, fields, caller)?;
    let pairs = endpoints.sources.len() * endpoints.destinations.len();
    query.check_limit(fields, pairs)?;
    let calendared = RequestedCalendars::read(fields, &query, network_state, pairs)?;
    let endpoint_cost_map = Matrix::of(&endpoints, &query).over_time(&endpoints, &query, &calendared);
    let mut meta = cost_meta(network_state, &query);
    meta.extend(calendared.meta(&query));
    Ok(AltoResponse::of(media::ENDPOINT_COST, &EndpointCostDocument { meta, endpoint_cost_map }))
}

/// Field for pairs that do not form a full mesh.
pub(super) const FLOWS: &str = "endpoint-flows";

/// Endpoints of a cost request.
pub(super) struct Endpoints<'a> {
    network_state: &'a NetworkState,
    delegate: &'a dyn Delegate,
    pub(super) sources: Vec<(Endpoint, CostPosition)>,
    pub(super) destinations: Vec<(Endpoint, CostPosition)>,
    /// Indices of source and destination, or `None` for the full mesh.
    pairs: Option<Vec<(usize, usize)>>,
}

impl<'a> Endpoints<'a> {
    /// Reads an `EndpointFilter`. An empty side stands for the caller.
    pub(super) fn read(
        network_state: &'a NetworkState,
        fields: Fields<'_>,
        caller: Caller<'a>,
    ) -> Result<Self, Problem> {
        let filter = fields.object("endpoints")?.ok_or_else(|| fields.missing("endpoints"))?;
        let side = |field| Ok(filter.texts(field, Endpoint::parse)?.unwrap_or_default());
        let (sources, destinations) = (side("srcs")?, side("dsts")?);
        if sources.is_empty() && destinations.is_empty() {
            return Err(fields.refuse_present("endpoints", "srcs or dsts must name an endpoint"));
        }
        let pairs = sources.len().saturating_mul(destinations.len());
        if pairs > MAX_PAIRS {
            return Err(too_many_pairs(fields, "endpoints", pairs));
        }
        let place = |endpoints: Vec<Endpoint>| {
            let endpoints = if endpoints.is_empty() { vec![Endpoint(caller.address)] } else { endpoints };
            let once: BTreeSet<Endpoint> = endpoints.into_iter().collect();
            look_up_places(network_state, once)
        };
        let (sources, destinations) = (place(sources), place(destinations));
        Ok(Self { network_state, delegate: caller.delegate, sources, destinations, pairs: None })
    }

    /// Reads [`FLOWS`] if present, else as [`Self::read`].
    pub(super) fn read_flows(
        network_state: &'a NetworkState,
        fields: Fields<'_>,
        caller: Caller<'a>,
    ) -> Result<Self, Problem> {
        let Some(flows) = Flows::read(fields, FLOWS, "endpoints", |text| Endpoint::parse(text).map(Some))? else {
            return Self::read(network_state, fields, caller);
        };
        let (sources, destinations) =
            (look_up_places(network_state, flows.sources), look_up_places(network_state, flows.destinations));
        Ok(Self { network_state, delegate: caller.delegate, sources, destinations, pairs: Some(flows.pairs) })
    }

    /// Returns the geographic positions of the endpoints.
    fn points(&self, endpoints: &[(Endpoint, CostPosition)]) -> Vec<Option<Point>> {
        let position = |endpoint: &Endpoint| self.network_state.position(endpoint.0, self.delegate);
        endpoints.iter().map(|(endpoint, _)| position(endpoint).map(Point::at)).collect()
    }
}

/// Looks up the place of each endpoint for cost lookups.
fn look_up_places(
    network_state: &NetworkState,
    endpoints: impl IntoIterator<Item = Endpoint>,
) -> Vec<(Endpoint, CostPosition)> {
    endpoints.into_iter().map(|endpoint| (endpoint, network_state.place(endpoint.0))).collect()
}

impl Grid for Endpoints<'_> {
    fn sources(&self) -> usize {
        self.sources.len()
    }

    fn destinations(&self) -> usize {
        self.destinations.len()
    }

    fn pairs(&self) -> Option<&[(usize, usize)]> {
        self.pairs.as_deref()
    }

    fn column<'a>(&'a self, metric: &CostMetric) -> Box<dyn Fn(usize, usize) -> Option<f64> + 'a> {
        let (scale, is_geo_distance) = (self.network_state.scale(metric), self.network_state.is_geo_distance(metric));
        let reported_cost = move |from: usize, to: usize| scale.cost(&self.sources[from].1, &self.destinations[to].1);
        let is_askable = self.network_state.on_demand.metrics.contains(metric);
        let metric = metric.clone();
        let delegated_cost = move |from: usize, to: usize| {
            let (from, to) = (self.sources[from].0.0, self.destinations[to].0.0);
            is_askable.then(|| self.delegate.look_up(Item::Cost(metric.clone(), from, to))).flatten()?.as_f64()
        };
        let known_cost = move |from: usize, to: usize| reported_cost(from, to).or_else(|| delegated_cost(from, to));
        if !is_geo_distance {
            return Box::new(known_cost);
        }
        let (sources, destinations) = (self.points(&self.sources), self.points(&self.destinations));
        let distance = move |from: usize, to: usize| {
            let distance_km = sources[from].as_ref()?.distance_km(destinations[to].as_ref()?);
            Some(distance_km.round())
        };
        Box::new(move |from, to| known_cost(from, to).or_else(|| distance(from, to)))
    }

    fn series<'a>(&'a self, metric: &CostMetric) -> Box<dyn Fn(usize, usize) -> Option<&'a [f64]> + 'a> {
        let scale = self.network_state.scale(metric);
        Box::new(move |from, to| scale.series(&self.sources[from].1, &self.destinations[to].1))
    }

    /// Ranks are relative to the costs of the response, because those between all addresses cannot be enumerated.
    fn universe(&self, _: &CostMetric) -> Option<&[f64]> {
        None
    }

    fn source(&self, number: usize) -> String {
        self.sources[number].0.to_string()
    }

    fn destination(&self, number: usize) -> String {
        self.destinations[number].0.to_string()
    }
}
