//! Reserved names: those of resources and services that each directory may have, which no network map and no metric may take.

/// The name of the directory itself.
pub const DIRECTORY: &str = "directory";
pub(crate) const ENDPOINT_PROPERTIES: &str = "endpoint-properties";
pub(crate) const ENDPOINT_COSTS: &str = "endpoint-costs";
pub(crate) const PATH_VECTOR: &str = "path-vector";
/// The property map of everything.
pub(crate) const PROPERTIES: &str = "properties";
pub(crate) const PROPERTIES_FILTERED: &str = "properties-filtered";
/// The service by which answers are followed ([`crate::update_services`]). It is no resource: its answer is a stream, and whoever serves keeps that.
pub const UPDATES: &str = "updates";
/// The service by which changes of answers are fetched; no resource either.
pub const TIPS: &str = "tips";
/// Names that no network map may have.
pub(crate) const OTHERS: [&str; 8] =
    [DIRECTORY, ENDPOINT_PROPERTIES, ENDPOINT_COSTS, PATH_VECTOR, PROPERTIES, PROPERTIES_FILTERED, UPDATES, TIPS];

pub(crate) const FILTERED: &str = "filtered";
pub(crate) const COSTS: &str = "costs";
/// What stands behind the name of a network map and a dash in the names of its resources that are no cost maps: no metric may be called so.
pub(crate) const OF_MAPS: [&str; 3] = [FILTERED, COSTS, PATH_VECTOR];
/// What stands behind a metric in the name of the cost map with its ranks.
pub(crate) const ORDINAL: &str = "-ordinal";

/// The property with what can be reserved on an element at most, in bits per second (RFC 9275 §6.4.1).
pub(crate) const BANDWIDTH: &str = "max-reservable-bandwidth";
