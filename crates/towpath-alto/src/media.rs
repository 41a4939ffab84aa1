//! ALTO media types.

/// Information resource directory (RFC 7285 §9.2).
pub const DIRECTORY: &str = "application/alto-directory+json";
/// Network map (RFC 7285 §11.2.1).
pub const NETWORK_MAP: &str = "application/alto-networkmap+json";
/// Request for a filtered network map (RFC 7285 §11.3.1).
pub const NETWORK_MAP_FILTER: &str = "application/alto-networkmapfilter+json";
/// Cost map (RFC 7285 §11.2.3).
pub const COST_MAP: &str = "application/alto-costmap+json";
/// Request for a filtered cost map (RFC 7285 §11.3.2).
pub const COST_MAP_FILTER: &str = "application/alto-costmapfilter+json";
/// Endpoint properties (RFC 7285 §11.4.1).
pub const ENDPOINT_PROPERTIES: &str = "application/alto-endpointprop+json";
/// Request for endpoint properties (RFC 7285 §11.4.1).
pub const ENDPOINT_PROPERTIES_PARAMS: &str = "application/alto-endpointpropparams+json";
/// Endpoint costs (RFC 7285 §11.5.1).
pub const ENDPOINT_COST: &str = "application/alto-endpointcost+json";
/// Request for endpoint costs (RFC 7285 §11.5.1).
pub const ENDPOINT_COST_PARAMS: &str = "application/alto-endpointcostparams+json";
/// Property map (RFC 9240 §7).
pub const PROPERTY_MAP: &str = "application/alto-propmap+json";
/// Request for a filtered property map (RFC 9240 §8).
pub const PROPERTY_MAP_PARAMS: &str = "application/alto-propmapparams+json";
/// Error (RFC 7285 §8.5.1).
pub const ERROR: &str = "application/alto-error+json";
