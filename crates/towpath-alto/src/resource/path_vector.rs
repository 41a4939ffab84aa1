//! Path vectors: which elements are on the way between two endpoints, or two PIDs, and what is known of them (RFC 9275).
//!
//! The answer has two parts, which refer to each other: the paths, with costs beside them if some are asked for, and the properties of the elements on them.

use std::{collections::BTreeSet, io::Write as _, net::IpAddr};

use ipnet::IpNet;
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::{
    Answer, Resource,
    endpoints::Endpoints,
    maps::{Pids, cost_meta},
    property_map, vtags,
};
use crate::{
    cost::{CostCapabilities, CostQuery, CostType},
    directory::PROPERTIES,
    entity::{Domain, Entity},
    fields::Fields,
    matrix::{Grid, Matrix, Passing, PathColumn},
    media,
    names::{AneName, PropertyName, ResourceId, RouterName, Tag, VersionTag},
    path::{Element, Paths},
    problem::Problem,
    world::{Region, World},
};

/// The property by which an element is found there (RFC 9275 §6.4.2).
const PERSISTENT: &str = "persistent-entity-id";
/// Parts of names in this answer.
const PROPERTIES_PART: &str = "propmap";
/// The domain in `Content-ID`: parts are found in their answer, not by their host.
const DOMAIN: &str = "towpath.alto";

/// One of the two forms of the first part.
#[derive(Debug)]
pub(super) struct Form {
    /// The media type of the answer. Documents are one line, which no boundary begins. (A slash must be quoted, RFC 2045 §5.1, also where RFC 9275 does not.)
    media_type: &'static str,
    part: &'static str,
    part_type: &'static str,
    member: &'static str,
}

/// Paths between endpoints.
pub(super) const ENDPOINTS: Form = Form {
    media_type: "multipart/related;boundary=towpath-alto-part;type=\"application/alto-endpointcost+json\"",
    part: "ecs",
    part_type: media::ENDPOINT_COST,
    member: "endpoint-cost-map",
};

/// Paths between PIDs.
pub(super) const PIDS: Form = Form {
    media_type: "multipart/related;boundary=towpath-alto-part;type=\"application/alto-costmap+json\"",
    part: "costmap",
    part_type: media::COST_MAP,
    member: "cost-map",
};

/// What can be asked for beside paths, which cannot be tested.
pub(super) fn offered(costs: CostCapabilities) -> CostCapabilities {
    let cost_types = [CostType::path_vector()].into_iter().chain(costs.cost_types).collect();
    CostCapabilities { cost_types, max_cost_types: costs.max_cost_types + 1, testable: costs.testable }
}

/// The name of the property map with the elements that last, if it speaks of any.
pub(super) fn lasting_elements(world: &World) -> Option<ResourceId> {
    let speaks = world.domains.contains_key(&Domain::Ane(None));
    speaks.then(|| ResourceId::new(PROPERTIES).expect("a valid name"))
}

/// The properties that elements may have.
fn element_properties(world: &World) -> BTreeSet<PropertyName> {
    let mut names = world.domains.get(&Domain::Ane(None)).cloned().unwrap_or_default();
    if !names.is_empty() {
        names.insert(PropertyName::new(PERSISTENT).expect("a valid name"));
    }
    names
}

/// What a directory tells of the resource (RFC 9275 §7.2.4).
pub(super) fn capabilities(world: &World, costs: CostCapabilities) -> Value {
    let can = offered(costs);
    let names = |kinds: &[CostType]| kinds.iter().map(CostType::to_string).collect::<Vec<_>>();
    json!({
        "cost-type-names": names(&can.cost_types),
        "max-cost-types": can.max_cost_types,
        "testable-cost-type-names": names(&can.testable),
        "cost-constraints": false,
        "ane-property-names": element_properties(world),
    })
}

/// Answers RFC 9275 §7.3.
pub(super) fn endpoints(
    world: &World,
    resource: &Resource,
    request: &Value,
    costs: CostCapabilities,
    caller: IpAddr,
) -> Result<Answer, Problem> {
    let fields = Fields::of(request)?;
    let asked = Asked::read(world, resource, &ENDPOINTS, fields, costs)?;
    let grid = Endpoints::read(world, fields, caller)?;
    let routers: Vec<_> = grid.sources.iter().map(|(endpoint, _)| world.router_of(endpoint.0)).collect();
    let way = |from: usize, to: usize| {
        let (source, destination) = (grid.sources[from].0.0, grid.destinations[to].0.0);
        // Packets of one family do not become those of the other.
        (source.is_ipv4() == destination.is_ipv4()).then_some((routers[from]?, destination))
    };
    Ok(asked.answer(&grid, &way, &[]))
}

/// Answers RFC 9275 §7.2. The way from, and to, a PID is that of the first of its addresses with which a prefix of it begins: of IPv4 if both PIDs have such, else of IPv6.
pub(super) fn pids(
    world: &World,
    resource: &Resource,
    region: &Region,
    request: &Value,
    costs: CostCapabilities,
) -> Result<Answer, Problem> {
    let fields = Fields::of(request)?;
    let asked = Asked::read(world, resource, &PIDS, fields, costs)?;
    let grid = Pids::read(region, fields)?;
    let first = |pid: u32, is_ipv4: bool| {
        let addresses = region.map.prefixes(pid).iter().map(IpNet::addr).filter(|address| address.is_ipv4() == is_ipv4);
        addresses.into_iter().find(|address| region.map.locate(*address) == Some(pid))
    };
    let of_both =
        |pids: &[u32]| pids.iter().map(|pid| [true, false].map(|family| first(*pid, family))).collect::<Vec<_>>();
    let (sources, destinations) = (of_both(&grid.sources), of_both(&grid.destinations));
    let routers: Vec<_> = sources.iter().map(|families| families.map(|address| world.router_of(address?))).collect();
    let way = |from: usize, to: usize| {
        let families = routers[from].iter().zip(destinations[to]);
        families.filter_map(|(router, destination)| Some(((*router)?, destination?))).next()
    };
    Ok(asked.answer(&grid, &way, &[region]))
}

/// The router behind which the source of a pair is, and an address of its destination.
type Way<'a> = dyn Fn(usize, usize) -> Option<(&'a RouterName, IpAddr)> + 'a;

/// What is asked for.
struct Asked<'a> {
    world: &'a World,
    resource: &'a Resource,
    form: &'static Form,
    query: CostQuery,
    properties: BTreeSet<PropertyName>,
}

impl<'a> Asked<'a> {
    fn read(
        world: &'a World,
        resource: &'a Resource,
        form: &'static Form,
        fields: Fields<'_>,
        costs: CostCapabilities,
    ) -> Result<Self, Problem> {
        let offered_properties = element_properties(world);
        let query = CostQuery::read(fields, &offered(costs))?;
        let property = |text: &str| match PropertyName::new(text) {
            Ok(name) if offered_properties.contains(&name) => Ok(name),
            Ok(_) => Err("elements have no such property here".to_owned()),
            Err(error) => Err(error.to_string()),
        };
        let properties = fields.texts("ane-property-names", property)?.unwrap_or_default();
        Ok(Self { world, resource, form, query, properties: properties.into_iter().collect() })
    }

    fn answer(&self, grid: &dyn Grid, way: &Way<'a>, regions: &[&Region]) -> Answer {
        let mut paths = Paths::of(self.world);
        let passing = Passing::of(grid, &self.query);
        let mut of_pairs = Vec::new();
        if self.query.types.contains(&CostType::path_vector()) {
            let pairs = (0..grid.sources()).flat_map(|from| (0..grid.destinations()).map(move |to| (from, to)));
            let ways = pairs.enumerate().map(|(pair, (from, to))| way(from, to).filter(|_| passing.passes(pair)));
            of_pairs = ways.map(|way| way.and_then(|(router, to)| paths.between(router, to))).collect();
        }
        let names = paths.paths().map(|path| path.map(Element::name).collect()).collect();
        let first = json_bytes(&Matrix::with_paths(grid, &self.query, passing, PathColumn { paths: names, of_pairs }));
        self.multipart(&first, &paths, regions)
    }

    fn multipart(&self, first: &[u8], paths: &Paths<'_>, regions: &[&Region]) -> Answer {
        let part_id = |part: &str| format!("{}.{part}", self.resource.id);
        let tag = VersionTag {
            resource_id: ResourceId::new(&part_id(self.form.part)).expect("names of resources leave room for parts"),
            tag: Tag::of(first),
        };
        let mut meta = cost_meta(&self.query);
        meta.insert("vtag".into(), json!(tag));
        if !regions.is_empty() {
            meta.insert("dependent-vtags".into(), json!(vtags(regions.iter().copied())));
        }
        let properties = self.second_part(&tag, paths);
        let mut body = Vec::with_capacity(first.len() + 4096);
        let parts: [(&str, &str, &[&[u8]]); 2] = [
            (
                self.form.part_type,
                self.form.part,
                &[b"{\"meta\":", &json_bytes(&meta), b",\"", self.form.member.as_bytes(), b"\":", first, b"}"],
            ),
            (media::PROPERTY_MAP, PROPERTIES_PART, &[&json_bytes(&properties)]),
        ];
        for (media_type, part, content) in parts {
            write!(body, "--towpath-alto-part\r\nContent-Type: {media_type}\r\nContent-ID: <{part}@{DOMAIN}>\r\n\r\n")
                .expect("memory takes all");
            content.iter().for_each(|bytes| body.extend_from_slice(bytes));
            body.extend_from_slice(b"\r\n");
        }
        body.extend_from_slice(b"--towpath-alto-part--\r\n");
        Answer { media_type: self.form.media_type, tag: Tag::of(&body), body }
    }

    /// The properties of the elements on the paths.
    fn second_part(&self, first: &VersionTag, paths: &Paths<'_>) -> Value {
        let names: BTreeSet<AneName> = paths.elements().iter().map(Element::name).collect();
        let entities = names.into_iter().map(|name| {
            let properties = self.properties_of(&name);
            (Entity::Ane(None, name).to_string(), Value::Object(properties))
        });
        // Who is told where elements last is told in which version (RFC 9275 §7.2.6).
        let refers = self.properties.iter().any(|name| name.as_str() == PERSISTENT);
        let lasting = refers.then(|| &property_map::whole(self.world).1);
        let depends: Vec<&VersionTag> = [first].into_iter().chain(lasting).collect();
        json!({ "meta": { "dependent-vtags": depends }, "property-map": Value::Object(entities.collect()) })
    }

    fn properties_of(&self, name: &AneName) -> Map<String, Value> {
        let entity = Entity::Ane(None, name.clone());
        let value = |property: &PropertyName| match property.as_str() {
            PERSISTENT => self.world.properties.speaks_of(&entity).then(|| format!("{PROPERTIES}.ane:{name}").into()),
            property => self.world.properties.get(&entity, property).cloned(),
        };
        self.properties.iter().filter_map(|property| Some((property.to_string(), value(property)?))).collect()
    }
}

fn json_bytes(value: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(value).expect("what resources are made of can be written")
}
