//! Reserved names: those of resources and services that each directory may have, which no network map and no metric may
//! take.

/// The id of the directory itself.
pub const DIRECTORY: &str = "directory";
pub(crate) const ENDPOINT_PROPERTIES: &str = "endpoint-properties";
pub(crate) const ENDPOINT_COSTS: &str = "endpoint-costs";
pub(crate) const PATH_VECTOR: &str = "path-vector";
/// The complete property map.
pub(crate) const PROPERTIES: &str = "properties";
pub(crate) const PROPERTIES_FILTERED: &str = "properties-filtered";
/// The update stream service ([`crate::update_services`]). Not a [`Resource`](crate::resource::Resource): its response
/// is a stream, which the server maintains.
pub const UPDATES: &str = "updates";
/// The TIPS service for incremental updates; not a [`Resource`] either.
pub const TIPS: &str = "tips";
/// Ids that network maps must not use.
pub(crate) const OTHERS: [&str; 8] =
    [DIRECTORY, ENDPOINT_PROPERTIES, ENDPOINT_COSTS, PATH_VECTOR, PROPERTIES, PROPERTIES_FILTERED, UPDATES, TIPS];

pub(crate) const FILTERED: &str = "filtered";
pub(crate) const COSTS: &str = "costs";
/// Suffixes of resources of a network map other than cost maps; no metric may have these names.
pub(crate) const OF_MAPS: [&str; 3] = [FILTERED, COSTS, PATH_VECTOR];
/// Suffix of a cost map with ordinal costs.
pub(crate) const ORDINAL: &str = "-ordinal";

/// Property for the maximum reservable bandwidth of an element, in bits per second (RFC 9275 §6.4.1).
pub(crate) const BANDWIDTH: &str = "max-reservable-bandwidth";
