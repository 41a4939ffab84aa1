//! Why what agents know makes no world.

use crate::{
    entity::Entity,
    names::{CostMetric, PidName, ResourceId},
    network_map::MapFault,
    topology::AttachFault,
};

/// The longest name of a network map: with a metric of 32 characters and a mode it still is a resource id.
pub(super) const MAP_NAME_LENGTH: usize = 20;

/// Why what agents know makes no world; the operator's fault, or an agent's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WorldFault {
    /// A network map is none.
    #[error(transparent)]
    Map(#[from] MapFault),
    /// A network map has a name that others are made of.
    #[error(
        "network map {map}: call it otherwise: at most {MAP_NAME_LENGTH} characters, not as another resource, nor as another map with a dash behind it"
    )]
    MapName {
        /// Its name.
        map: ResourceId,
    },
    /// A cost map has a metric of which the resource would have the name of another one.
    #[error("cost map {map}: call metric {metric} otherwise: its resource would have the name of another one")]
    MetricName {
        /// The map.
        map: ResourceId,
        /// The metric.
        metric: CostMetric,
    },
    /// Something has a name with a dot.
    #[error("{what} {name}: call it otherwise: RFC 7285 keeps dots for other uses")]
    Dot {
        /// What it is.
        what: &'static str,
        /// Its name.
        name: String,
    },
    /// Properties are told of a PID that is not there.
    #[error("properties of {entity}: there is no such PID")]
    NoEntity {
        /// What is spoken of.
        entity: Entity,
    },
    /// Properties are told of an element of a resource that speaks of none.
    #[error("properties of {entity}: no resource of that name tells of elements; begin it with .ane")]
    NoDomain {
        /// What is spoken of.
        entity: Entity,
    },
    /// What can be reserved on an element is no such number.
    #[error("properties of {entity}: max-reservable-bandwidth is a number of bits per second, 0 or more")]
    Bandwidth {
        /// The element.
        entity: Entity,
    },
    /// Costs are told of a network map that nobody tells.
    #[error("cost map {map}: there is no network map of that name")]
    NoMap {
        /// Its name.
        map: ResourceId,
    },
    /// Costs are told of a PID that its network map does not have.
    #[error("cost map {map}, {metric}: the network map has no PID {pid}")]
    NoPid {
        /// The map.
        map: ResourceId,
        /// The metric.
        metric: CostMetric,
        /// The PID.
        pid: PidName,
    },
    /// A cost has a fraction, and its metric none.
    #[error("costs by {metric}, {pair}: RFC 9439 has whole numbers only; call what has fractions priv:{metric}")]
    Fraction {
        /// The metric.
        metric: CostMetric,
        /// From where to where.
        pair: String,
    },
    /// Costs are told one by one of intervals, and nobody tells when these are.
    #[error(
        "costs by {metric}, {pair}: these are a list, so let an agent tell when its intervals are: [calendars.{metric}]"
    )]
    NoCalendar {
        /// The metric.
        metric: CostMetric,
        /// From where to where.
        pair: String,
    },
    /// Costs are told of more or fewer intervals than the calendar of their metric has.
    #[error("costs by {metric}, {pair}: there are {told}, but calendars.{metric} has {expected} intervals")]
    Intervals {
        /// The metric.
        metric: CostMetric,
        /// From where to where.
        pair: String,
        /// How many costs are told.
        told: usize,
        /// How many intervals there are.
        expected: usize,
    },
    /// What is said to be attached to a topology cannot be.
    #[error(transparent)]
    Attach(#[from] AttachFault),
    /// The resource of the compatibility profile has a name that another one has, or may get.
    #[error("compatibility profile: call {name} otherwise: not like a resource, nor like a map with a dash behind it")]
    ProfileName {
        /// Its name.
        name: ResourceId,
    },
}
