//! Paths between endpoints in the format of OpenALTO ([`crate::compatibility`]).

use std::{
    cmp::Reverse,
    collections::{BTreeSet, HashMap},
    net::IpAddr,
};

use serde_json::{Map, Value, json};

use super::{
    AltoResponse, Caller, Resource,
    endpoints::{Endpoints, FLOWS},
    multipart::{MultipartFormat, json_bytes},
};
use crate::{
    compatibility,
    cost::{CostCapabilities, CostQuery, CostType},
    entity::Entity,
    fields::Fields,
    matrix::{FilteredPairs, Grid, Matrix, PathColumn},
    media,
    names::{AneName, CostMetric, RouterName},
    network_state::NetworkState,
    problem::Problem,
    route::AsPath,
    routes::PathAttributes,
};

/// Prefixes of element names, followed by a number.
const LINK: &str = "autolink_";
const PATH: &str = "autopath_";
/// Link property: the address of the next router.
const NEXT_HOP: &str = "next_hop";
/// Path property: its autonomous systems, nearest first.
const AS_PATH: &str = "as_path";

const FORM: MultipartFormat = MultipartFormat {
    media_type: "multipart/related;boundary=d41d8cd98f00b204e9800998ecf8427e;type=\"application/alto-endpointcost+json\"",
    ..CLIENT_FORM
};

/// The same format for OpenALTO's client, which does not accept quotes.
const CLIENT_FORM: MultipartFormat = MultipartFormat {
    media_type: "multipart/related;boundary=d41d8cd98f00b204e9800998ecf8427e;type=application/alto-endpointcost+json",
    boundary: "d41d8cd98f00b204e9800998ecf8427e",
    part: "ecs",
    part_type: media::ENDPOINT_COST,
    member: "endpoint-cost-map",
};

/// Returns the cost capabilities: paths only.
pub(super) fn costs() -> CostCapabilities {
    CostCapabilities { cost_types: vec![CostType::path_vector()], max_cost_types: 1, testable: Vec::new() }
}

/// Returns the capabilities for the directory.
pub(super) fn capabilities() -> Value {
    let mut capabilities = json!({
        "cost-type-names": [CostType::path_vector().to_string()],
        "max-cost-types": 1,
        "cost-constraints": false,
        "ane-property-names": [NEXT_HOP, AS_PATH],
    });
    capabilities[format!("priv:{FLOWS}")] = true.into();
    capabilities
}

/// Returns the response described in [`crate::compatibility`].
pub(super) fn endpoints(
    network_state: &NetworkState,
    resource: &Resource,
    request: &Value,
    caller: Caller<'_>,
) -> Result<AltoResponse, Problem> {
    let fields = Fields::of(request)?;
    let query = CostQuery::read(fields, &costs())?;
    let property = |text: &str| {
        [NEXT_HOP, AS_PATH].into_iter().find(|name| *name == text).ok_or("this property is not offered for elements")
    };
    let properties = fields.texts("ane-property-names", property)?.unwrap_or_else(|| vec![NEXT_HOP, AS_PATH]);
    let is_typed =
        network_state.profile().is_some_and(|profile| profile.form() == compatibility::ResponseFormat::Client);
    let grid = EndpointGrid { endpoints: Endpoints::read_flows(network_state, fields, caller)?, is_typed };
    let passing = FilteredPairs::of(&grid, &query);
    let mut routes = RouteCache::of(network_state);
    let pairs =
        passing.pairs().map(|((from, to), _)| (grid.endpoints.sources[from].0.0, grid.endpoints.destinations[to].0.0));
    let of_pairs = pairs.map(|(source, destination)| routes.between(source, destination)).collect();
    let numbering = Numbering::of(&routes.routes);
    let paths = routes.routes.iter().map(|route| numbering.elements(*route)).collect();
    let first = json_bytes(&Matrix::with_paths(&grid, &query, passing, PathColumn { paths, of_pairs }));
    let form = if is_typed { CLIENT_FORM } else { FORM };
    Ok(form.answer(
        resource,
        Map::from_iter([("cost-type".to_owned(), json!(query.types.first()))]),
        &first,
        |vtag| json!({ "meta": { "dependent-vtags": [vtag] }, "property-map": numbering.describe(&properties) }),
    ))
}

/// Endpoints whose addresses are written with or without their type.
struct EndpointGrid<'a> {
    endpoints: Endpoints<'a>,
    is_typed: bool,
}

impl Grid for EndpointGrid<'_> {
    fn sources(&self) -> usize {
        self.endpoints.sources()
    }

    fn destinations(&self) -> usize {
        self.endpoints.destinations()
    }

    fn pairs(&self) -> Option<&[(usize, usize)]> {
        self.endpoints.pairs()
    }

    fn column<'a>(&'a self, metric: &CostMetric) -> Box<dyn Fn(usize, usize) -> Option<f64> + 'a> {
        self.endpoints.column(metric)
    }

    fn universe(&self, metric: &CostMetric) -> Option<&[f64]> {
        self.endpoints.universe(metric)
    }

    fn source(&self, number: usize) -> String {
        if self.is_typed { self.endpoints.source(number) } else { self.endpoints.sources[number].0.0.to_string() }
    }

    fn destination(&self, number: usize) -> String {
        if self.is_typed {
            self.endpoints.destination(number)
        } else {
            self.endpoints.destinations[number].0.0.to_string()
        }
    }
}

/// A router and one of its routes.
type RouterRoute<'a> = (&'a RouterName, &'a PathAttributes);

/// Looks up and caches the requested routes.
struct RouteCache<'a> {
    network_state: &'a NetworkState,
    routes: Vec<RouterRoute<'a>>,
    /// Indices by router and route index.
    numbers: HashMap<(&'a RouterName, u32), u32>,
}

impl<'a> RouteCache<'a> {
    fn of(network_state: &'a NetworkState) -> Self {
        Self { network_state, routes: Vec::new(), numbers: HashMap::new() }
    }

    /// Returns the index of the route from the router of `source` to `destination`, or `None` if either is unknown.
    fn between(&mut self, source: IpAddr, destination: IpAddr) -> Option<u32> {
        let network_state = self.network_state;
        // Packets are not translated between address families.
        let router = network_state.router_of(source).filter(|_| source.is_ipv4() == destination.is_ipv4())?;
        let table = network_state.table(router)?;
        let found = table.find(destination)?;
        let number = self.numbers.entry((router, found)).or_insert_with(|| {
            self.routes.push((router, table.attributes(found)));
            u32::try_from(self.routes.len() - 1).expect("there are at most as many ways as pairs")
        });
        Some(*number)
    }
}

/// Numbers the links and AS paths of a response, depending only on their content: links by the address of the next
/// router; AS paths by length, longest first, and then by AS number.
struct Numbering<'a> {
    links: Vec<(IpAddr, &'a RouterName)>,
    as_paths: Vec<(Reverse<usize>, &'a AsPath)>,
}

impl<'a> Numbering<'a> {
    fn of(routes: &[RouterRoute<'a>]) -> Self {
        let links: BTreeSet<_> = routes.iter().filter_map(|route| link(*route)).collect();
        let as_paths: BTreeSet<_> = routes.iter().filter_map(|route| as_path(*route)).collect();
        Self { links: links.into_iter().collect(), as_paths: as_paths.into_iter().collect() }
    }

    /// Returns the elements of a route: its link and its AS path, as far as known.
    fn elements(&self, route: RouterRoute<'a>) -> Vec<AneName> {
        let link = link(route).and_then(|link| self.links.binary_search(&link).ok());
        let as_path = as_path(route).and_then(|as_path| self.as_paths.binary_search(&as_path).ok());
        let names = [(LINK, link), (PATH, as_path)];
        names.into_iter().filter_map(|(kind, position)| Some(name(kind, position?))).collect()
    }

    /// Returns all elements with these properties.
    fn describe(&self, properties: &[&str]) -> Map<String, Value> {
        let links = self.links.iter().map(|(next_hop, _)| next_hop.to_string()).enumerate();
        let as_paths = self.as_paths.iter().map(|(_, as_path)| as_path.to_string()).enumerate();
        let links = links.map(|(position, next_hop)| (name(LINK, position), NEXT_HOP, next_hop));
        let as_paths = as_paths.map(|(position, as_path)| (name(PATH, position), AS_PATH, as_path));
        let described = links.chain(as_paths).map(|(name, property, value)| {
            let values = if properties.contains(&property) { json!({ property: value }) } else { json!({}) };
            (Entity::Ane(None, name).to_string(), values)
        });
        described.collect()
    }
}

fn link((router, route): RouterRoute<'_>) -> Option<(IpAddr, &RouterName)> {
    Some((route.next_hop?, router))
}

fn as_path((_, route): RouterRoute<'_>) -> Option<(Reverse<usize>, &AsPath)> {
    let length = route.as_path.hops().len();
    (length > 0).then_some((Reverse(length), &route.as_path))
}

/// Returns the name of the element at `position`, counted from 0; names count from 1.
fn name(kind: &str, position: usize) -> AneName {
    AneName::new(&format!("{kind}{}", position + 1)).expect("a word and a number form a valid name")
}
