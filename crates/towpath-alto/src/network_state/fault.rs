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
        "network map {map}: call it otherwise: at most {MAP_NAME_LENGTH} characters, not as another resource, nor as another map with a dash behind it"
    )]
    MapName {
        /// The name.
        map: ResourceId,
    },
    /// A cost map has a metric whose resource would have the name of another one.
    #[error("cost map {map}: call metric {metric} otherwise: its resource would have the name of another one")]
    MetricName {
        /// The map.
        map: ResourceId,
        /// The metric.
        metric: CostMetric,
    },
    /// A name contains a dot.
    #[error("{what} {name}: call it otherwise: RFC 7285 keeps dots for other uses")]
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
    #[error("properties of {entity}: no resource of that name tells of elements; begin it with .ane")]
    NoDomain {
        /// The entity.
        entity: Entity,
    },
    /// The reservable bandwidth of an element is not a valid number.
    #[error("properties of {entity}: max-reservable-bandwidth is a number of bits per second, 0 or more")]
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
    #[error("costs by {metric}, {pair}: RFC 9439 has whole numbers only; call what has fractions priv:{metric}")]
    Fraction {
        /// The metric.
        metric: CostMetric,
        /// Source and destination.
        pair: String,
    },
    /// Costs are given per interval, but no agent defines the calendar.
    #[error(
        "costs by {metric}, {pair}: these are a list, so let an agent tell when its intervals are: [calendars.{metric}]"
    )]
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
    #[error("compatibility profile: call {name} otherwise: not like a resource, nor like a map with a dash behind it")]
    ProfileName {
        /// The name.
        name: ResourceId,
    },
}
