//! Information resources: pure functions of the network state and a request.
//!
//! A [`Resource`] provides its directory entry (RFC 7285 §9.2.2); [`Resource::answer`] returns the response to a GET or
//! POST. The list of resources is derived from the network state ([`crate::directory`]) and not configured.

pub(crate) mod endpoints;
mod flows;
mod maps;
mod multipart;
mod openalto;
mod path_vector;
pub(crate) mod property_map;

use std::net::IpAddr;

use serde_json::{Value, json};

pub use crate::response::AltoResponse;
use crate::{
    cost::{CostCapabilities, CostMode, CostType, MAX_TYPES},
    delegation::{Delegate, NoDelegate},
    entity::Property,
    fields::Fields,
    media,
    names::{CostMetric, ResourceId, VersionTag},
    network_state::{NetworkState, Region},
    problem::Problem,
    requested_calendars,
};

/// Kind of a resource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    /// A network map (RFC 7285 §11.2.1).
    NetworkMap(ResourceId),
    /// A filtered network map (RFC 7285 §11.3.1).
    FilteredNetworkMap(ResourceId),
    /// Costs of one type between all PIDs of a network map (RFC 7285 §11.2.3).
    CostMap(ResourceId, CostType),
    /// Costs between PIDs of a network map (RFC 7285 §11.3.2, RFC 8189 §4.1).
    FilteredCostMap(ResourceId),
    /// Properties of endpoints (RFC 7285 §11.4.1).
    EndpointProperties,
    /// Costs between endpoints (RFC 7285 §11.5.1, RFC 8189 §4.2).
    EndpointCosts,
    /// Paths, and optionally costs, between endpoints (RFC 9275 §7.3).
    PathVector,
    /// Paths, and optionally costs, between PIDs of a network map (RFC 9275 §7.2).
    PidPathVector(ResourceId),
    /// Paths between endpoints in the format of OpenALTO ([`crate::compatibility`]).
    OpenAlto,
    /// Properties of all entities (RFC 9240 §7).
    PropertyMap,
    /// Properties of selected entities (RFC 9240 §8).
    FilteredPropertyMap,
}

/// A resource and its ID.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resource {
    /// ID in the directory, and last segment of its path.
    pub id: ResourceId,
    /// Kind of the resource.
    pub kind: Kind,
    /// The property map that path vectors refer to.
    pub(crate) property_map: property_map::Cache,
}

/// Origin of a request, and the delegate for facts missing from the network state.
#[derive(Clone, Copy)]
pub struct Caller<'a> {
    /// Address of the client, used as the other end if a request names only one.
    pub address: IpAddr,
    /// Source of missing facts.
    pub delegate: &'a dyn Delegate,
}

/// Maximum number of endpoint or PID pairs per request: the full mesh of 700 storages.
pub const MAX_PAIRS: usize = 500_000;

/// Returns the error for a `field` that names too many pairs.
fn too_many_pairs(fields: Fields<'_>, field: &str, pairs: usize) -> Problem {
    fields.refuse_present(field, &format!("at most {MAX_PAIRS} pairs are allowed per request, got {pairs}"))
}

impl Resource {
    /// Returns the media type of responses; for multipart responses without the boundary.
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

    /// Returns the media type of POST requests, or `None` if the resource is read by GET.
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

    /// Returns the resources that this one depends on (RFC 7285 §9.1.5).
    pub fn uses(&self, network_state: &NetworkState) -> Vec<ResourceId> {
        let every_map = || network_state.regions().map(|region| region.map.id().clone()).collect();
        match &self.kind {
            Kind::FilteredNetworkMap(map) | Kind::CostMap(map, _) | Kind::FilteredCostMap(map) => vec![map.clone()],
            Kind::PidPathVector(map) => {
                [map.clone()].into_iter().chain(path_vector::lasting_elements(network_state)).collect()
            }
            Kind::PathVector => path_vector::lasting_elements(network_state).into_iter().collect(),
            Kind::PropertyMap | Kind::FilteredPropertyMap => every_map(),
            Kind::NetworkMap(_) | Kind::EndpointProperties | Kind::EndpointCosts | Kind::OpenAlto => Vec::new(),
        }
    }

    /// Returns the supported cost types.
    pub fn cost_types(&self, network_state: &NetworkState) -> Vec<CostType> {
        match &self.kind {
            Kind::CostMap(_, kind) => vec![kind.clone()],
            Kind::FilteredCostMap(_) | Kind::EndpointCosts => self.costs(network_state).cost_types,
            Kind::PathVector | Kind::PidPathVector(_) => {
                path_vector::with_path_vector(self.costs(network_state)).cost_types
            }
            Kind::OpenAlto => openalto::costs().cost_types,
            _ => Vec::new(),
        }
    }

    /// Returns the cost capabilities.
    fn costs(&self, network_state: &NetworkState) -> CostCapabilities {
        let cost_types = match &self.kind {
            Kind::FilteredCostMap(map) | Kind::PidPathVector(map) => {
                let region = network_state.region(map.as_str());
                cost_types(region.into_iter().flat_map(|region| region.costs.keys()))
            }
            _ => cost_types(network_state.metrics()),
        };
        let max_cost_types = cost_types.len().min(MAX_TYPES);
        CostCapabilities { max_cost_types, testable: cost_types.clone(), cost_types }
    }

    /// Returns the capabilities for the directory, or null if there are none.
    pub fn capabilities(&self, network_state: &NetworkState) -> Value {
        let names = |kinds: &[CostType]| kinds.iter().map(CostType::to_string).collect::<Vec<_>>();
        match &self.kind {
            Kind::NetworkMap(_) | Kind::FilteredNetworkMap(_) => Value::Null,
            Kind::CostMap(_, kind) => json!({ "cost-type-names": [kind.to_string()] }),
            Kind::FilteredCostMap(_) | Kind::EndpointCosts => {
                let can = self.costs(network_state);
                // If all cost types can be tested, the separate list must be omitted (RFC 8189 §4.1.1).
                let mut capabilities = json!({
                    "cost-type-names": names(&can.cost_types),
                    "cost-constraints": true,
                    "max-cost-types": can.max_cost_types,
                });
                let calendars = requested_calendars::capabilities(network_state, &can.cost_types);
                if !calendars.is_empty() {
                    capabilities["calendar-attributes"] = calendars.into();
                }
                capabilities
            }
            Kind::PathVector => path_vector::capabilities(network_state, self.costs(network_state), endpoints::FLOWS),
            Kind::PidPathVector(_) => path_vector::capabilities(network_state, self.costs(network_state), maps::FLOWS),
            Kind::OpenAlto => openalto::capabilities(),
            Kind::EndpointProperties => {
                let properties: Vec<_> =
                    endpoints::endpoint_properties(network_state).iter().map(Property::to_string).collect();
                json!({ "prop-types": properties })
            }
            Kind::PropertyMap => {
                json!({ "mappings": property_map::mappings(network_state, property_map::PropertyScope::Reported) })
            }
            Kind::FilteredPropertyMap => {
                json!({ "mappings": property_map::mappings(network_state, property_map::PropertyScope::OnDemand) })
            }
        }
    }

    /// Returns the response to a GET, or to a POST of `request` by a client at `caller`. The method has already been
    /// checked.
    ///
    /// # Errors
    /// Returns [`Problem`] if the request is malformed or needs something that is not offered.
    pub fn answer(
        &self,
        network_state: &NetworkState,
        request: &Value,
        caller: IpAddr,
    ) -> Result<AltoResponse, Problem> {
        self.answer_with(network_state, request, Caller { address: caller, delegate: &NoDelegate })
    }

    /// Like [`Self::answer`], with a delegate for facts about addresses missing from the network state
    /// ([`crate::delegation`]).
    ///
    /// # Errors
    /// As [`Self::answer`].
    pub fn answer_with(
        &self,
        network_state: &NetworkState,
        request: &Value,
        caller: Caller<'_>,
    ) -> Result<AltoResponse, Problem> {
        let region = |map: &ResourceId| {
            network_state.region(map.as_str()).expect("the directory was built from this network state")
        };
        match &self.kind {
            Kind::NetworkMap(map) => Ok(maps::network_map(network_state, region(map), region(map).map.whole())),
            Kind::FilteredNetworkMap(map) => {
                Ok(maps::network_map(network_state, region(map), region(map).map.select(request)?))
            }
            Kind::CostMap(map, kind) => Ok(maps::cost_map(network_state, region(map), kind)),
            Kind::FilteredCostMap(map) => {
                maps::filtered_cost_map(network_state, region(map), request, &self.costs(network_state))
            }
            Kind::EndpointProperties => endpoints::properties(network_state, request, caller.delegate),
            Kind::EndpointCosts => endpoints::costs(network_state, request, &self.costs(network_state), caller),
            Kind::PathVector => path_vector::endpoints(network_state, self, request, self.costs(network_state), caller),
            Kind::PidPathVector(map) => {
                path_vector::pids(network_state, self, region(map), request, self.costs(network_state))
            }
            Kind::OpenAlto => openalto::endpoints(network_state, self, request, caller),
            Kind::PropertyMap => Ok(property_map::whole(network_state, &self.property_map).0.clone()),
            Kind::FilteredPropertyMap => property_map::filtered_property_map(network_state, request, caller.delegate),
        }
    }
}

/// Returns each metric in each cost mode.
fn cost_types<'a>(metrics: impl IntoIterator<Item = &'a CostMetric>) -> Vec<CostType> {
    let modes = |metric: &'a CostMetric| {
        [CostMode::Numerical, CostMode::Ordinal].map(|cost_mode| CostType { cost_mode, cost_metric: metric.clone() })
    };
    metrics.into_iter().flat_map(modes).collect()
}

/// Returns the `dependent-vtags` of responses that depend on these regions.
fn vtags<'a>(regions: impl IntoIterator<Item = &'a Region>) -> Vec<&'a VersionTag> {
    regions.into_iter().map(|region| region.map.vtag()).collect()
}
