//! Properties of endpoints, and costs between them.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use serde_json::{Map, Value, json};

use super::{Answer, Caller, MAX_PAIRS, flows::Flows, maps::cost_meta, too_many_pairs, vtags};
use crate::{
    address::Endpoint,
    calendared::Calendared,
    cost::{CostCapabilities, CostQuery},
    delegation::{Delegate, Item},
    entity::{Domain, Entity, Property},
    fields::Fields,
    geo::Point,
    matrix::{Grid, Matrix},
    media,
    names::{CostMetric, PropertyName},
    problem::Problem,
    world::{Place, World},
};

/// Returns the properties that endpoints may have.
pub(crate) fn offered(world: &World) -> Vec<Property> {
    let pids = world.regions().map(|region| Property::pid_of(region.map.id()));
    let of_addresses = world.domains.iter().filter(|(domain, _)| matches!(domain, Domain::Address(_)));
    let names: BTreeSet<&PropertyName> =
        of_addresses.flat_map(|(_, names)| names).chain(&world.askable.properties).collect();
    pids.chain(names.into_iter().map(|name| Property { resource: None, name: name.clone() })).collect()
}

/// Returns a property of an address.
pub(super) fn property_of(
    world: &World,
    entity: &Entity,
    property: &Property,
    delegate: &dyn Delegate,
) -> Option<Value> {
    match (entity, &property.resource) {
        (Entity::Address(prefix), Some(map)) if property.is_pid() => {
            let map = &world.region(map.as_str())?.map;
            Some(map.name(map.locate_prefix(*prefix)?).as_str().into())
        }
        (_, None) => {
            let name = property.name.as_str();
            // Location databases are not queried for prefixes, because a prefix may span many locations.
            let located = || world.location(entity.single_address()?)?.property(name);
            world.told(entity, name, delegate).or_else(located)
        }
        (_, Some(_)) => None,
    }
}

/// Responds to RFC 7285 §11.4.1.
pub(super) fn properties(world: &World, request: &Value, delegate: &dyn Delegate) -> Result<Answer, Problem> {
    let fields = Fields::of(request)?;
    let offered = offered(world);
    let read = |text: &str| match Property::parse(text) {
        Ok(property) if offered.contains(&property) => Ok(property),
        Ok(_) => Err("this property is not offered for endpoints".to_owned()),
        Err(error) => Err(error.to_string()),
    };
    let wanted = fields.texts("properties", read)?.ok_or_else(|| fields.missing("properties"))?;
    let endpoints = fields.texts("endpoints", Endpoint::parse)?.ok_or_else(|| fields.missing("endpoints"))?;
    // Duplicates have no effect.
    let (wanted, endpoints) = (BTreeSet::from_iter(wanted), BTreeSet::from_iter(endpoints));
    for (field, length) in [("properties", wanted.len()), ("endpoints", endpoints.len())] {
        if length == 0 {
            return Err(fields.refuse(field, "[]", "this must not be empty"));
        }
    }
    let of = |endpoint: &Endpoint| {
        let entity = Entity::Address(endpoint.prefix());
        let values = wanted.iter().filter_map(|property| {
            Some((
                property.to_string(),
                property_of(world, &entity, property, delegate).filter(|value| !value.is_null())?,
            ))
        });
        (endpoint.to_string(), values.collect::<BTreeMap<_, _>>())
    };
    let maps = wanted.iter().filter_map(|property| world.region(property.resource.as_ref()?.as_str()));
    let mut meta = world.meta();
    meta.insert("dependent-vtags".into(), json!(vtags(maps)));
    let document = json!({
        "meta": meta,
        "endpoint-properties": endpoints.iter().map(of).collect::<BTreeMap<_, _>>(),
    });
    Ok(Answer::of(media::ENDPOINT_PROPERTIES, &document))
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
    world: &World,
    request: &Value,
    can: &CostCapabilities,
    caller: Caller<'_>,
) -> Result<Answer, Problem> {
    let fields = Fields::of(request)?;
    let query = CostQuery::read(fields, can)?;
    let endpoints = Endpoints::read(world, fields, caller)?;
    let pairs = endpoints.sources.len() * endpoints.destinations.len();
    query.bound(fields, pairs)?;
    let calendared = Calendared::read(fields, &query, world, pairs)?;
    let endpoint_cost_map = Matrix::of(&endpoints, &query).over_time(&endpoints, &query, &calendared);
    let mut meta = cost_meta(world, &query);
    meta.extend(calendared.meta(&query));
    Ok(Answer::of(media::ENDPOINT_COST, &EndpointCostDocument { meta, endpoint_cost_map }))
}

/// Field for pairs that do not form a full mesh.
pub(super) const FLOWS: &str = "endpoint-flows";

/// Endpoints of a cost request.
pub(super) struct Endpoints<'a> {
    world: &'a World,
    delegate: &'a dyn Delegate,
    pub(super) sources: Vec<(Endpoint, Place)>,
    pub(super) destinations: Vec<(Endpoint, Place)>,
    /// Indices of source and destination, or `None` for the full mesh.
    pairs: Option<Vec<(usize, usize)>>,
}

impl<'a> Endpoints<'a> {
    /// Reads an `EndpointFilter`. An empty side stands for the caller.
    pub(super) fn read(world: &'a World, fields: Fields<'_>, caller: Caller<'a>) -> Result<Self, Problem> {
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
            placed(world, once)
        };
        let (sources, destinations) = (place(sources), place(destinations));
        Ok(Self { world, delegate: caller.delegate, sources, destinations, pairs: None })
    }

    /// Reads [`FLOWS`] if present, else as [`Self::read`].
    pub(super) fn read_flows(world: &'a World, fields: Fields<'_>, caller: Caller<'a>) -> Result<Self, Problem> {
        let Some(flows) = Flows::read(fields, FLOWS, "endpoints", |text| Endpoint::parse(text).map(Some))? else {
            return Self::read(world, fields, caller);
        };
        let (sources, destinations) = (placed(world, flows.sources), placed(world, flows.destinations));
        Ok(Self { world, delegate: caller.delegate, sources, destinations, pairs: Some(flows.pairs) })
    }

    /// Returns the geographic positions of the endpoints.
    fn points(&self, endpoints: &[(Endpoint, Place)]) -> Vec<Option<Point>> {
        let position = |endpoint: &Endpoint| self.world.position(endpoint.0, self.delegate);
        endpoints.iter().map(|(endpoint, _)| position(endpoint).map(Point::at)).collect()
    }
}

/// Looks up the place of each endpoint for cost lookups.
fn placed(world: &World, endpoints: impl IntoIterator<Item = Endpoint>) -> Vec<(Endpoint, Place)> {
    endpoints.into_iter().map(|endpoint| (endpoint, world.place(endpoint.0))).collect()
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
        let (scale, is_geo_distance) = (self.world.scale(metric), self.world.is_geo_distance(metric));
        let told = move |from: usize, to: usize| scale.cost(&self.sources[from].1, &self.destinations[to].1);
        let is_askable = self.world.askable.metrics.contains(metric);
        let metric = metric.clone();
        let asked = move |from: usize, to: usize| {
            let (from, to) = (self.sources[from].0.0, self.destinations[to].0.0);
            is_askable.then(|| self.delegate.look_up(Item::Cost(metric.clone(), from, to))).flatten()?.as_f64()
        };
        let known = move |from: usize, to: usize| told(from, to).or_else(|| asked(from, to));
        if !is_geo_distance {
            return Box::new(known);
        }
        let (sources, destinations) = (self.points(&self.sources), self.points(&self.destinations));
        let distance = move |from: usize, to: usize| {
            let distance_km = sources[from].as_ref()?.distance_km(destinations[to].as_ref()?);
            Some(distance_km.round())
        };
        Box::new(move |from, to| known(from, to).or_else(|| distance(from, to)))
    }

    fn series<'a>(&'a self, metric: &CostMetric) -> Box<dyn Fn(usize, usize) -> Option<&'a [f64]> + 'a> {
        let scale = self.world.scale(metric);
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
