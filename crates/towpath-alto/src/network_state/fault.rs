//! Errors of building a network state.

use crate::{
    entity::Entity,
    names::{CostMetric, PidName, ResourceId},
    network_map::MapFault,
    topology::AttachFault,
};

/// Maximum length of a network map's name, so that a resource ID can be derived with a metric of 32 characters and a
/// mode.
pub(super) const MAP_NAME_LENGTH: usize = 20;

/// Why no network state can be built from the facts. The operator or an agent must correct them.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NetworkStateFault {
    /// A network map is invalid.
    #[error(transparent)]
    Map(#[from] MapFault),
    /// The name of a network map collides with derived names.
    #[error(
        "network map {map}: rename it: at most {MAP_NAME_LENGTH} characters, not the name of another resource, nor that of another map followed by a dash"
    )]
    MapName {
        /// The name.
        map: ResourceId,
    },
    /// A cost map has a metric whose resource would have the name of another one.
    #[error("cost map {map}: rename metric {metric}: the name of its resource is already in use")]
    MetricName {
        /// The map.
        map: ResourceId,
        /// The metric.
        metric: CostMetric,
    },
    /// A name contains a dot.
    #[error("{what} {name}: rename it: RFC 7285 reserves dots")]
    Dot {
        /// Kind of the named object.
        what: &'static str,
        /// The name.
        name: String,
    },
    /// Properties refer to an unknown PID.
    #[error("properties of {entity}: there is no such PID")]
    NoEntity {
        /// The entity.
        entity: Entity,
    },
    /// Properties refer to an element of a resource that has no elements.
    #[error("properties of {entity}: no resource of that name has elements; start the name with .ane")]
    NoDomain {
        /// The entity.
        entity: Entity,
    },
    /// The reservable bandwidth of an element is not a valid number.
    #[error("properties of {entity}: max-reservable-bandwidth must be a number of bits per second, 0 or more")]
    Bandwidth {
        /// The element.
        entity: Entity,
    },
    /// Costs refer to an unknown network map.
    #[error("cost map {map}: there is no network map of that name")]
    NoMap {
        /// Name of the map.
        map: ResourceId,
    },
    /// Costs refer to a PID that is not in the network map.
    #[error("cost map {map}, {metric}: the network map has no PID {pid}")]
    NoPid {
        /// The map.
        map: ResourceId,
        /// The metric.
        metric: CostMetric,
        /// The PID.
        pid: PidName,
    },
    /// A cost of an integer metric has a fraction.
    #[error(
        "costs by {metric}, {pair}: RFC 9439 allows whole numbers only; rename a metric with fractions to priv:{metric}"
    )]
    Fraction {
        /// The metric.
        metric: CostMetric,
        /// Source and destination.
        pair: String,
    },
    /// Costs are given per interval, but no agent defines the calendar.
    #[error("costs by {metric}, {pair}: a list of costs requires a calendar from an agent: [calendars.{metric}]")]
    NoCalendar {
        /// The metric.
        metric: CostMetric,
        /// Source and destination.
        pair: String,
    },
    /// The number of costs differs from the number of calendar intervals.
    #[error("costs by {metric}, {pair}: there are {found}, but calendars.{metric} has {expected} intervals")]
    Intervals {
        /// The metric.
        metric: CostMetric,
        /// Source and destination.
        pair: String,
        /// Number of costs.
        found: usize,
        /// Number of intervals.
        expected: usize,
    },
    /// Prefixes cannot be attached to a topology.
    #[error(transparent)]
    Attach(#[from] AttachFault),
    /// The resource of the compatibility profile collides with the name of another resource.
    #[error(
        "compatibility profile: rename {name}: it must not be the name of a resource, nor that of a map followed by a dash"
    )]
    ProfileName {
        /// The name.
        name: ResourceId,
    },
}
