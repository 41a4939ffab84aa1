//! Information resources: pure functions of the world and a request.
//!
//! A [`Resource`] says of itself what a directory tells (RFC 7285 §9.2.2), and [`Resource::answer`] is what a GET or a POST of it gives. The
//! resources that a world has follow from the world ([`crate::directory`]): nobody has to list them.

pub(crate) mod endpoints;
mod flows;
mod maps;
mod multipart;
mod openalto;
mod path_vector;
pub(crate) mod property_map;

use std::net::IpAddr;

use serde_json::{Value, json};

pub use crate::answer::Answer;
use crate::{
    calendared,
    cost::{CostCapabilities, CostMode, CostType, MOST_TYPES},
    delegation::{Delegate, Nobody},
    entity::Property,
    fields::Fields,
    media,
    names::{CostMetric, ResourceId, VersionTag},
    problem::Problem,
    world::{Region, World},
};

/// What a resource is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    /// A network map (RFC 7285 §11.2.1).
    NetworkMap(ResourceId),
    /// Parts of a network map (RFC 7285 §11.3.1).
    FilteredNetworkMap(ResourceId),
    /// The costs of one type between all PIDs of a network map (RFC 7285 §11.2.3).
    CostMap(ResourceId, CostType),
    /// Costs between PIDs of a network map (RFC 7285 §11.3.2, RFC 8189 §4.1).
    FilteredCostMap(ResourceId),
    /// Properties of endpoints (RFC 7285 §11.4.1).
    EndpointProperties,
    /// Costs between endpoints (RFC 7285 §11.5.1, RFC 8189 §4.2).
    EndpointCosts,
    /// Paths, and costs, between endpoints (RFC 9275 §7.3).
    PathVector,
    /// Paths, and costs, between PIDs of a network map (RFC 9275 §7.2).
    PidPathVector(ResourceId),
    /// Paths between endpoints in another form ([`crate::compatibility`]).
    OpenAlto,
    /// Properties of all entities (RFC 9240 §7).
    PropertyMap,
    /// Properties of some entities (RFC 9240 §8).
    FilteredPropertyMap,
}

/// A resource with its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resource {
    /// Its name in the directory, and the last part of its path.
    pub id: ResourceId,
    /// What it is.
    pub kind: Kind,
    /// The property map that path vectors refer to.
    pub(crate) property_map: property_map::Cache,
}

/// Who asks, and who is asked for what the world lacks.
#[derive(Clone, Copy)]
pub struct Caller<'a> {
    /// Where the client is: an end of ways of which a request names only the other one.
    pub address: IpAddr,
    /// Who is asked.
    pub delegate: &'a dyn Delegate,
}

/// How many pairs of endpoints or PIDs may be asked for at once: the mesh of 700 storages.
pub const MOST_PAIRS: usize = 500_000;

/// The error of `field` naming so many pairs.
fn too_many_pairs(fields: Fields<'_>, field: &str, pairs: usize) -> Problem {
    fields.refuse_present(field, &format!("at most {MOST_PAIRS} pairs can be asked for at once, not {pairs}"))
}

impl Resource {
    /// The media type of its answers, without the boundary of those that have parts.
    pub fn media_type(&self) -> &'static str {
        match self.kind {
            Kind::NetworkMap(_) | Kind::FilteredNetworkMap(_) => media::NETWORK_MAP,
            Kind::CostMap(..) | Kind::FilteredCostMap(_) => media::COST_MAP,
            Kind::EndpointProperties => media::ENDPOINT_PROPERTIES,
            Kind::EndpointCosts => media::ENDPOINT_COST,
            Kind::PathVector | Kind::OpenAlto => "multipart/related;type=application/alto-endpointcost+json",
            Kind::PidPathVector(_) => "multipart/related;type=application/alto-costmap+json",
            Kind::PropertyMap | Kind::FilteredPropertyMap => media::PROPERTY_MAP,
        }
    }

    /// The media type of the requests that it takes by POST. None: it is asked for by GET.
    pub fn accepts(&self) -> Option<&'static str> {
        match self.kind {
            Kind::NetworkMap(_) | Kind::CostMap(..) | Kind::PropertyMap => None,
            Kind::FilteredNetworkMap(_) => Some(media::NETWORK_MAP_FILTER),
            Kind::FilteredCostMap(_) => Some(media::COST_MAP_FILTER),
            Kind::EndpointProperties => Some(media::ENDPOINT_PROPERTIES_PARAMS),
            Kind::EndpointCosts | Kind::PathVector | Kind::OpenAlto => Some(media::ENDPOINT_COST_PARAMS),
            Kind::PidPathVector(_) => Some(media::COST_MAP_FILTER),
            Kind::FilteredPropertyMap => Some(media::PROPERTY_MAP_PARAMS),
        }
    }

    /// The resources on which it depends (RFC 7285 §9.1.5).
    pub fn uses(&self, world: &World) -> Vec<ResourceId> {
        let every_map = || world.regions().map(|region| region.map.id().clone()).collect();
        match &self.kind {
            Kind::FilteredNetworkMap(map) | Kind::CostMap(map, _) | Kind::FilteredCostMap(map) => vec![map.clone()],
            Kind::PidPathVector(map) => [map.clone()].into_iter().chain(path_vector::lasting_elements(world)).collect(),
            Kind::PathVector => path_vector::lasting_elements(world).into_iter().collect(),
            Kind::PropertyMap | Kind::FilteredPropertyMap => every_map(),
            Kind::NetworkMap(_) | Kind::EndpointProperties | Kind::EndpointCosts | Kind::OpenAlto => Vec::new(),
        }
    }

    /// The cost types that it has.
    pub fn cost_types(&self, world: &World) -> Vec<CostType> {
        match &self.kind {
            Kind::CostMap(_, kind) => vec![kind.clone()],
            Kind::FilteredCostMap(_) | Kind::EndpointCosts => self.costs(world).cost_types,
            Kind::PathVector | Kind::PidPathVector(_) => path_vector::offered(self.costs(world)).cost_types,
            Kind::OpenAlto => openalto::costs().cost_types,
            _ => Vec::new(),
        }
    }

    /// What of costs it can be asked for.
    fn costs(&self, world: &World) -> CostCapabilities {
        let cost_types = match &self.kind {
            Kind::FilteredCostMap(map) | Kind::PidPathVector(map) => {
                let region = world.region(map.as_str());
                cost_types(region.into_iter().flat_map(|region| region.costs.keys()))
            }
            _ => cost_types(world.metrics()),
        };
        let max_cost_types = cost_types.len().min(MOST_TYPES);
        CostCapabilities { max_cost_types, testable: cost_types.clone(), cost_types }
    }

    /// What it can, as a directory tells it; null if there is nothing to tell.
    pub fn capabilities(&self, world: &World) -> Value {
        let names = |kinds: &[CostType]| kinds.iter().map(CostType::to_string).collect::<Vec<_>>();
        match &self.kind {
            Kind::NetworkMap(_) | Kind::FilteredNetworkMap(_) => Value::Null,
            Kind::CostMap(_, kind) => json!({ "cost-type-names": [kind.to_string()] }),
            Kind::FilteredCostMap(_) | Kind::EndpointCosts => {
                let can = self.costs(world);
                // That all of them can be tested is said so, and only so (RFC 8189 §4.1.1).
                let mut told = json!({
                    "cost-type-names": names(&can.cost_types),
                    "cost-constraints": true,
                    "max-cost-types": can.max_cost_types,
                });
                let calendars = calendared::capabilities(world, &can.cost_types);
                if !calendars.is_empty() {
                    told["calendar-attributes"] = calendars.into();
                }
                told
            }
            Kind::PathVector => path_vector::capabilities(world, self.costs(world), endpoints::FLOWS),
            Kind::PidPathVector(_) => path_vector::capabilities(world, self.costs(world), maps::FLOWS),
            Kind::OpenAlto => openalto::capabilities(),
            Kind::EndpointProperties => {
                let properties: Vec<_> = endpoints::offered(world).iter().map(Property::to_string).collect();
                json!({ "prop-types": properties })
            }
            Kind::PropertyMap => json!({ "mappings": property_map::mappings(world, property_map::Offer::Told) }),
            Kind::FilteredPropertyMap => {
                json!({ "mappings": property_map::mappings(world, property_map::Offer::Askable) })
            }
        }
    }

    /// What a GET gives, or a POST of `request` by a client at `caller`. The caller of this has looked at the method.
    ///
    /// # Errors
    /// [`Problem`] if the request is malformed or asks for what is not offered.
    pub fn answer(&self, world: &World, request: &Value, caller: IpAddr) -> Result<Answer, Problem> {
        self.answer_with(world, request, Caller { address: caller, delegate: &Nobody })
    }

    /// The same with what the world lacks of addresses, as far as that is known ([`crate::delegation`]).
    ///
    /// # Errors
    /// As [`Self::answer`].
    pub fn answer_with(&self, world: &World, request: &Value, caller: Caller<'_>) -> Result<Answer, Problem> {
        let region = |map: &ResourceId| world.region(map.as_str()).expect("a directory is of its world");
        match &self.kind {
            Kind::NetworkMap(map) => Ok(maps::network_map(world, region(map), region(map).map.whole())),
            Kind::FilteredNetworkMap(map) => {
                Ok(maps::network_map(world, region(map), region(map).map.filtered(request)?))
            }
            Kind::CostMap(map, kind) => Ok(maps::cost_map(world, region(map), kind)),
            Kind::FilteredCostMap(map) => maps::filtered_cost_map(world, region(map), request, &self.costs(world)),
            Kind::EndpointProperties => endpoints::properties(world, request, caller.delegate),
            Kind::EndpointCosts => endpoints::costs(world, request, &self.costs(world), caller),
            Kind::PathVector => path_vector::endpoints(world, self, request, self.costs(world), caller),
            Kind::PidPathVector(map) => path_vector::pids(world, self, region(map), request, self.costs(world)),
            Kind::OpenAlto => openalto::endpoints(world, self, request, caller),
            Kind::PropertyMap => Ok(property_map::whole(world, &self.property_map).0.clone()),
            Kind::FilteredPropertyMap => property_map::filtered(world, request, caller.delegate),
        }
    }
}

/// Each metric in each mode.
fn cost_types<'a>(metrics: impl IntoIterator<Item = &'a CostMetric>) -> Vec<CostType> {
    let modes = |metric: &'a CostMetric| {
        [CostMode::Numerical, CostMode::Ordinal].map(|cost_mode| CostType { cost_mode, cost_metric: metric.clone() })
    };
    metrics.into_iter().flat_map(modes).collect()
}

/// The `dependent-vtags` of answers that depend on these regions.
fn vtags<'a>(regions: impl IntoIterator<Item = &'a Region>) -> Vec<&'a VersionTag> {
    regions.into_iter().map(|region| region.map.vtag()).collect()
}
