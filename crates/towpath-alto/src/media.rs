//! Media types of ALTO.

/// An information resource directory (RFC 7285 §9.2).
pub const DIRECTORY: &str = "application/alto-directory+json";
/// A network map (RFC 7285 §11.2.1).
pub const NETWORK_MAP: &str = "application/alto-networkmap+json";
/// Which part of a network map is asked for (RFC 7285 §11.3.1).
pub const NETWORK_MAP_FILTER: &str = "application/alto-networkmapfilter+json";
/// A cost map (RFC 7285 §11.2.3).
pub const COST_MAP: &str = "application/alto-costmap+json";
/// Which part of a cost map is asked for (RFC 7285 §11.3.2).
pub const COST_MAP_FILTER: &str = "application/alto-costmapfilter+json";
/// Properties of endpoints (RFC 7285 §11.4.1).
pub const ENDPOINT_PROPERTIES: &str = "application/alto-endpointprop+json";
/// Which properties of which endpoints are asked for (RFC 7285 §11.4.1).
pub const ENDPOINT_PROPERTIES_PARAMS: &str = "application/alto-endpointpropparams+json";
/// Costs between endpoints (RFC 7285 §11.5.1).
pub const ENDPOINT_COST: &str = "application/alto-endpointcost+json";
/// Which costs between which endpoints are asked for (RFC 7285 §11.5.1).
pub const ENDPOINT_COST_PARAMS: &str = "application/alto-endpointcostparams+json";
/// Properties of entities (RFC 9240 §7).
pub const PROPERTY_MAP: &str = "application/alto-propmap+json";
/// Which properties of which entities are asked for (RFC 9240 §8).
pub const PROPERTY_MAP_PARAMS: &str = "application/alto-propmapparams+json";
/// An error (RFC 7285 §8.5.1).
pub const ERROR: &str = "application/alto-error+json";
