//! Path vectors: the elements on the paths between endpoints or PIDs, and their properties (RFC 9275).
//!
//! The response has two parts that refer to each other: the paths, with costs if requested, and the properties of their
//! elements.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use super::{
    AltoResponse, Caller, Resource,
    endpoints::Endpoints,
    maps::{Pids, cost_meta},
    multipart::{MultipartFormat, json_bytes},
    property_map, vtags,
};
use crate::{
    address::Endpoint,
    cost::{CostCapabilities, CostQuery, CostType},
    entity::{Domain, Entity},
    fields::Fields,
    matrix::{FilteredPairs, Grid, Matrix, PathColumn},
    media,
    names::{AneName, PropertyName, ResourceId, VersionTag},
    network_state::{CostPosition, NetworkState, Region},
    path::{Element, PathEndpoint, Paths, system},
    problem::Problem,
    reserved::{BANDWIDTH, PROPERTIES},
    topology::Topology,
};

/// Property that identifies an element in the property map (RFC 9275 §6.4.2).
const PERSISTENT: &str = "persistent-entity-id";
/// Property for the far side of an element, as one word: for a link the next router, for an adjacency the autonomous
/// system that is entered. On a path with one router their number equals the length of the AS path, because the link
/// leads into its first system.
const HOP: &str = "priv:hop";

/// Maximum number of elements on all paths of a response: ten for each of the maximum number of pairs.
const MAX_ELEMENTS: usize = 5_000_000;

/// Format for paths between endpoints.
pub(super) const ENDPOINTS: MultipartFormat = MultipartFormat {
    media_type: "multipart/related;boundary=towpath-alto-part;type=\"application/alto-endpointcost+json\"",
    boundary: "towpath-alto-part",
    part: "ecs",
    part_type: media::ENDPOINT_COST,
    member: "endpoint-cost-map",
};

/// Format for paths between PIDs.
pub(super) const PIDS: MultipartFormat = MultipartFormat {
    media_type: "multipart/related;boundary=towpath-alto-part;type=\"application/alto-costmap+json\"",
    boundary: "towpath-alto-part",
    part: "costmap",
    part_type: media::COST_MAP,
    member: "cost-map",
};

/// Returns the cost capabilities: paths, which cannot be tested, and `costs`.
pub(super) fn with_path_vector(costs: CostCapabilities) -> CostCapabilities {
    let cost_types = [CostType::path_vector()].into_iter().chain(costs.cost_types).collect();
    CostCapabilities { cost_types, max_cost_types: costs.max_cost_types + 1, testable: costs.testable }
}

/// Returns the ID of the property map with persistent elements, if it contains any.
pub(super) fn lasting_elements(network_state: &NetworkState) -> Option<ResourceId> {
    let speaks = network_state.domains.contains_key(&Domain::Ane(None));
    speaks.then(|| ResourceId::new(PROPERTIES).expect("a valid name"))
}

/// Returns the properties that elements may have.
fn element_properties(network_state: &NetworkState) -> BTreeSet<PropertyName> {
    let mut names = network_state.domains.get(&Domain::Ane(None)).cloned().unwrap_or_default();
    if !names.is_empty() {
        names.insert(PropertyName::new(PERSISTENT).expect("a valid name"));
    }
    if network_state.topologies().any(Topology::has_capacities) {
        names.insert(PropertyName::new(BANDWIDTH).expect("a valid name"));
    }
    names.insert(PropertyName::new(HOP).expect("a valid name"));
    names
}

/// Returns the capabilities for the directory (RFC 9275 §7.2.4). `flows` is the field for pairs that do not form a full
/// mesh.
pub(super) fn capabilities(network_state: &NetworkState, costs: CostCapabilities, flows: &str) -> Value {
    let can = with_path_vector(costs);
    let names = |kinds: &[CostType]| kinds.iter().map(CostType::to_string).collect::<Vec<_>>();
    let mut capabilities = json!({
        "cost-type-names": names(&can.cost_types),
        "max-cost-types": can.max_cost_types,
        "cost-constraints": false,
        "ane-property-names": element_properties(network_state),
    });
    // If present, the list must not be empty (RFC 8189 §4.1.1).
    if !can.testable.is_empty() {
        capabilities["testable-cost-type-names"] = names(&can.testable).into();
    }
    if network_state.profile().is_some() {
        capabilities[format!("priv:{flows}")] = true.into();
    }
    capabilities
}

/// Responds to RFC 9275 §7.3.
pub(super) fn endpoints(
    network_state: &NetworkState,
    resource: &Resource,
    request: &Value,
    costs: CostCapabilities,
    caller: Caller<'_>,
) -> Result<AltoResponse, Problem> {
    let fields = Fields::of(request)?;
    let query = PathVectorQuery::read(network_state, resource, &ENDPOINTS, fields, costs)?;
    let grid = match network_state.profile() {
        Some(_) => Endpoints::read_flows(network_state, fields, caller)?,
        None => Endpoints::read(network_state, fields, caller)?,
    };
    let ends = |side: &[(Endpoint, CostPosition)]| {
        side.iter().map(|(endpoint, _)| PathEndpoint::of(network_state, endpoint.0)).collect::<Vec<_>>()
    };
    let (sources, destinations) = (ends(&grid.sources), ends(&grid.destinations));
    let way = |from: usize, to: usize| Some((&sources[from], &destinations[to]));
    let field = if grid.pairs().is_some() { super::endpoints::FLOWS } else { "endpoints" };
    query.answer(field, &grid, &way, &[])
}

/// Responds to RFC 9275 §7.2. The path of a PID starts or ends at the first network address of its prefixes: an IPv4
/// address if both PIDs have one, else IPv6.
pub(super) fn pids(
    network_state: &NetworkState,
    resource: &Resource,
    region: &Region,
    request: &Value,
    costs: CostCapabilities,
) -> Result<AltoResponse, Problem> {
    let fields = Fields::of(request)?;
    let query = PathVectorQuery::read(network_state, resource, &PIDS, fields, costs)?;
    let grid = match network_state.profile() {
        Some(_) => Pids::read_flows(region, fields)?,
        None => Pids::read(region, fields)?,
    };
    let of_both = |pid: &u32| {
        [true, false].map(|is_ipv4| Some(PathEndpoint::of(network_state, region.map.first_address(*pid, is_ipv4)?)))
    };
    let sources: Vec<_> = grid.sources.iter().map(of_both).collect();
    let destinations: Vec<_> = grid.destinations.iter().map(of_both).collect();
    let way = |from: usize, to: usize| {
        let mut families = sources[from].iter().zip(&destinations[to]);
        families.find_map(|(from, to)| from.as_ref().filter(|from| from.is_known()).zip(to.as_ref()))
    };
    let field = if grid.pairs().is_some() { super::maps::FLOWS } else { "pids" };
    query.answer(field, &grid, &way, &[region])
}

/// Looks up the ends of the path for a pair.
type EndpointLookup<'a> = dyn Fn(usize, usize) -> Option<(&'a PathEndpoint<'a>, &'a PathEndpoint<'a>)> + 'a;

/// A parsed request.
struct PathVectorQuery<'a> {
    network_state: &'a NetworkState,
    resource: &'a Resource,
    form: &'static MultipartFormat,
    fields: Fields<'a>,
    query: CostQuery,
    properties: BTreeSet<PropertyName>,
}

impl<'a> PathVectorQuery<'a> {
    fn read(
        network_state: &'a NetworkState,
        resource: &'a Resource,
        form: &'static MultipartFormat,
        fields: Fields<'a>,
        costs: CostCapabilities,
    ) -> Result<Self, Problem> {
        let offered_properties = element_properties(network_state);
        let query = CostQuery::read(fields, &with_path_vector(costs))?;
        let property = |text: &str| match PropertyName::new(text) {
            Ok(name) if offered_properties.contains(&name) => Ok(name),
            Ok(_) => Err("this property is not offered for elements".to_owned()),
            Err(error) => Err(error.to_string()),
        };
        let properties = fields.texts("ane-property-names", property)?.unwrap_or_default();
        Ok(Self { network_state, resource, form, fields, query, properties: properties.into_iter().collect() })
    }

    /// Returns the response for the pairs named by `field`.
    fn answer(
        &self,
        field: &str,
        grid: &dyn Grid,
        way: &EndpointLookup<'_>,
        regions: &[&Region],
    ) -> Result<AltoResponse, Problem> {
        let mut paths = Paths::of(self.network_state);
        let pairs = grid.pairs().map_or(grid.sources() * grid.destinations(), <[_]>::len);
        self.query.check_limit(self.fields, pairs)?;
        let passing = FilteredPairs::of(grid, &self.query);
        let path_vector = CostType::path_vector();
        let times = self.query.types.iter().filter(|kind| **kind == path_vector).count();
        let (mut of_pairs, mut room) = (Vec::new(), MAX_ELEMENTS);
        for ((from, to), passes) in passing.pairs().filter(|_| times > 0) {
            let ends = way(from, to).filter(|_| passes);
            let path = ends.and_then(|(from, to)| paths.between(from, to));
            let elements = times * path.map_or(0, |path| paths.length(path));
            room = room.checked_sub(elements).ok_or_else(|| self.too_much(field))?;
            of_pairs.push(path);
        }
        let names: Vec<AneName> = paths.elements().iter().map(Element::name).collect();
        let named = |path: &[u32]| path.iter().map(|position| names[*position as usize].clone()).collect::<Vec<_>>();
        let column = PathColumn { paths: paths.paths().map(named).collect(), of_pairs };
        let first = json_bytes(&Matrix::with_paths(grid, &self.query, passing, column));
        let mut meta = cost_meta(self.network_state, &self.query);
        if !regions.is_empty() {
            meta.insert("dependent-vtags".into(), json!(vtags(regions.iter().copied())));
        }
        let elements: BTreeMap<AneName, &Element> = names.into_iter().zip(paths.elements()).collect();
        Ok(self.form.answer(self.resource, meta, &first, |vtag| self.second_part(vtag, elements)))
    }

    fn too_much(&self, field: &str) -> Problem {
        let most = format!("these paths have more than {MAX_ELEMENTS} elements: request fewer pairs");
        self.fields.refuse_present(field, &most)
    }

    /// Returns the part with the properties of the elements.
    fn second_part(&self, first: &VersionTag, elements: BTreeMap<AneName, &Element>) -> Value {
        let entities = elements.into_iter().map(|(name, element)| {
            let properties = self.properties_of(&name, element);
            (Entity::Ane(None, name).to_string(), Value::Object(properties))
        });
        // A response that refers to persistent elements also names the version of their map (RFC 9275 §7.2.6).
        let refers = self.properties.iter().any(|name| name.as_str() == PERSISTENT);
        let lasting = refers.then(|| property_map::whole(self.network_state, &self.resource.property_map));
        let lasting = lasting.as_ref().map(|whole| &whole.1);
        let depends: Vec<&VersionTag> = [first].into_iter().chain(lasting).collect();
        json!({ "meta": { "dependent-vtags": depends }, "property-map": Value::Object(entities.collect()) })
    }

    fn properties_of(&self, name: &AneName, element: &Element) -> Map<String, Value> {
        let entity = Entity::Ane(None, name.clone());
        let reported = |name: &str| self.network_state.properties.get(&entity, name).cloned();
        let value = |property: &PropertyName| match property.as_str() {
            PERSISTENT => {
                self.network_state.properties.speaks_of(&entity).then(|| format!("{PROPERTIES}.ane:{name}").into())
            }
            BANDWIDTH => {
                reported(BANDWIDTH).or_else(|| element.capacity_bits_per_s(self.network_state).map(Value::from))
            }
            HOP => reported(HOP).or_else(|| Some(hop(element)?.into())),
            name => reported(name),
        };
        self.properties.iter().filter_map(|property| Some((property.to_string(), value(property)?))).collect()
    }
}

/// Returns the far side of an element, without blanks or commas.
fn hop(element: &Element) -> Option<String> {
    match element {
        Element::Link { next_hop, .. } => Some(next_hop.to_string()),
        Element::Adjacency(_, to) => Some(system(to)),
        Element::Span { .. } | Element::Node { .. } => None,
    }
}
