//! The measurements of a period, and the decisions after it.

use std::fmt;

use towpath_proto::units::rate_text;

use crate::{
    network::{Paths, ResourceIndex, ResourceKind, Resources},
    shares::ProjectWeight,
};

/// The measurements of a period: what an optimiser knows.
#[derive(Debug, Clone, Copy)]
pub struct Period<'a> {
    /// Time of its end in seconds, from any fixed start.
    pub end_s: f64,
    /// Its length in seconds.
    pub length_s: f64,
    /// The pipes, always in the same order.
    pub pipes: &'a [PipeMeasurement],
    /// The configuration of each pipe.
    pub terms: &'a [PipeTerms],
    /// The network as far as it is known, and the rules.
    pub network: NetworkView<'a>,
}

/// The known part of the network, and the rules.
#[derive(Debug, Clone, Copy)]
pub struct NetworkView<'a> {
    /// The resources.
    pub resources: &'a Resources,
    /// The known resources of each pipe.
    pub paths: &'a Paths,
    /// The weights of projects.
    pub weights: &'a [ProjectWeight],
    /// Whether the paths have all resources that pipes share.
    pub is_complete: bool,
}

impl NetworkView<'_> {
    /// Returns the parts of the network that a pipe uses, without rules.
    pub(crate) fn links_of(&self, pipe: usize) -> impl Iterator<Item = ResourceIndex> + Clone {
        self.resources_of(pipe, ResourceKind::Network)
    }

    /// Returns the resources of a pipe that are of a kind.
    pub(crate) fn resources_of(&self, pipe: usize, kind: ResourceKind) -> impl Iterator<Item = ResourceIndex> + Clone {
        let all = self.paths.resources_of(pipe).iter().copied();
        all.filter(move |resource| self.resources.kind(*resource) == kind)
    }
}

/// The configuration of a pipe.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PipeTerms {
    /// The source and the destination together: the pipes of a link are its activities.
    pub link: u32,
    /// The weight of the link among those that share a resource, divided among its activities.
    pub weight: f64,
    /// The weight of the pipe among the activities of its link.
    pub activity_weight: f64,
    /// Its project, for rules.
    pub project: Option<u32>,
}

impl PipeTerms {
    /// Returns the terms of a pipe that is the only one of its link, with the weight 1 and without a project.
    pub fn of_link(link: u32) -> Self {
        Self { link, weight: 1.0, activity_weight: 1.0, project: None }
    }
}

/// Returns the number of links, which are counted from 0.
pub(crate) fn link_count<'a>(terms: impl Iterator<Item = &'a PipeTerms>) -> usize {
    terms.map(|terms| terms.link as usize + 1).max().unwrap_or(0)
}

/// Returns the weight of each pipe: that of its link, divided among the live pipes of the link; 0 for the others.
pub(crate) fn pipe_weights<'a>(
    terms: impl Iterator<Item = &'a PipeTerms> + Clone,
    is_live: impl Fn(usize) -> bool,
) -> Vec<f64> {
    let mut activities = vec![0.0; link_count(terms.clone())];
    for (pipe, terms) in terms.clone().enumerate() {
        if is_live(pipe) {
            activities[terms.link as usize] += terms.activity_weight;
        }
    }
    let weight = |(pipe, terms): (usize, &PipeTerms)| match activities[terms.link as usize] {
        all if is_live(pipe) && all > 0.0 => terms.weight * terms.activity_weight / all,
        _ => 0.0,
    };
    terms.enumerate().map(weight).collect()
}

/// The measurements of a pipe in a period.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct PipeMeasurement {
    /// Connections that the pipe was permitted to use, after all limits.
    pub granted: u32,
    /// Connections in use at the end of the period.
    pub connections: u32,
    /// Time for which connections were in use, summed over them, in seconds.
    pub connection_s: f64,
    /// The part of it for which bytes were received: without the start of each file.
    pub receiving_s: f64,
    /// Files that were started.
    pub started_files: u64,
    /// Received bytes, with the error of the measurement.
    pub received_bytes: f64,
    /// Files that wait for a connection.
    pub queued_files: u64,
    /// Bytes of these files, and of those on the connections.
    pub remaining_bytes: f64,
    /// The files that ended.
    pub ended: EndedFiles,
    /// Whether the source or the destination exceeds the throughput that its administrator permits.
    pub exceeds_storage_limit: bool,
}

impl PipeMeasurement {
    /// Returns whether the pipe has something to transfer.
    pub fn is_live(&self) -> bool {
        self.queued_files > 0 || self.connections > 0
    }

    /// Adds the measurements of another pipe of the same link.
    pub(crate) fn add(&mut self, other: &Self) {
        self.granted += other.granted;
        self.connections += other.connections;
        self.connection_s += other.connection_s;
        self.receiving_s += other.receiving_s;
        self.started_files += other.started_files;
        self.received_bytes += other.received_bytes;
        self.queued_files += other.queued_files;
        self.remaining_bytes += other.remaining_bytes;
        self.ended.add(&other.ended);
        self.exceeds_storage_limit |= other.exceeds_storage_limit;
    }
}

/// Files that ended in a period.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct EndedFiles {
    /// Files that were transferred.
    pub finished: u64,
    /// Failures after which the file is tried again.
    pub retried: u64,
    /// Failures of a kind that may succeed later, without a further attempt.
    pub recoverable: u64,
    /// Sum of the durations of the finished files in seconds.
    pub duration_s: f64,
    /// Sum of the sizes of the finished files.
    pub bytes: f64,
}

impl EndedFiles {
    /// Returns the number of attempts that ended, whatever their outcome.
    pub fn attempts(&self) -> u64 {
        self.finished + self.retried + self.recoverable
    }

    /// Adds the files of another period.
    pub fn add(&mut self, other: &Self) {
        self.finished += other.finished;
        self.retried += other.retried;
        self.recoverable += other.recoverable;
        self.duration_s += other.duration_s;
        self.bytes += other.bytes;
    }
}

/// The decision about a pipe.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Decision {
    /// Connections of the next period.
    pub connections: u32,
    /// Why.
    pub reason: Reason,
}

/// The reason of a decision.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Reason {
    /// The pipe has nothing to transfer.
    Idle,
    /// The number is configured.
    Configured,
    /// The pipe has no number yet.
    Started,
    /// Nothing has changed since the last decision.
    Unchanged,
    /// A storage has more throughput than permitted.
    StorageLimit,
    /// A storage has as many connections as permitted.
    StorageConnections,
    /// The share of files that succeed is too low, in percent.
    SuccessTooLow(u8),
    /// It is too low, but rises.
    SuccessRises(u8),
    /// Nothing was received yet.
    NoThroughput,
    /// Fewer files wait than the pipe has connections.
    QueueIsShort,
    /// The throughput did not fall.
    ThroughputHolds,
    /// The throughput fell, as the files have become smaller.
    FilesAreSmaller,
    /// The throughput fell by an order of magnitude.
    ThroughputFellFar,
    /// The throughput fell, but not by an order of magnitude.
    ThroughputFell,
    /// The share of the pipe at its bottleneck.
    ShareOfLink {
        /// The bottleneck.
        resource: ResourceIndex,
        /// The share in bytes per second.
        target: f64,
        /// Rate of the connections at the bottleneck / their rate without contention.
        efficiency: f64,
    },
    /// The share of the pipe at a link that no path vector has.
    ShareOfHiddenLink {
        /// Its number, from 0. That of a link that was forgotten is used again.
        link: usize,
        /// The share in bytes per second.
        target: f64,
        /// As for a known link.
        efficiency: f64,
    },
    /// Half of the connections, to find out which pipes share a link with slow ones.
    Experiment,
    /// Connections of the pipe were contended above this rate.
    LimitedByContention {
        /// In bytes per second.
        limit: f64,
    },
    /// The connections of the pipe are not contended.
    NotContended,
    /// The utility of a connection more.
    Gradient {
        /// In bytes per second.
        bytes_per_s: f64,
    },
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self {
            Self::Idle => "nothing to transfer",
            Self::Configured => "configured",
            Self::Started => "first decision",
            Self::Unchanged => "no change",
            Self::StorageLimit => "a storage exceeds its throughput limit",
            Self::StorageConnections => "a storage has all its permitted connections",
            Self::SuccessTooLow(percent) => return write!(f, "only {percent} % of the files succeed"),
            Self::SuccessRises(percent) => return write!(f, "{percent} % of the files succeed, more than before"),
            Self::NoThroughput => "no throughput yet",
            Self::QueueIsShort => "fewer files than connections",
            Self::ThroughputHolds => "the throughput did not fall",
            Self::FilesAreSmaller => "the files became smaller",
            Self::ThroughputFellFar => "the throughput fell by an order of magnitude",
            Self::ThroughputFell => "the throughput fell",
            Self::ShareOfLink { resource, target, efficiency } => {
                let (target, percent) = (rate_text(*target), 100.0 * efficiency);
                return write!(f, "{target} is the share of resource {resource}, with an efficiency of {percent:.0} %");
            }
            Self::ShareOfHiddenLink { link, target, efficiency } => {
                let (target, percent) = (rate_text(*target), 100.0 * efficiency);
                return write!(f, "{target} is the share of hidden link {link}, with an efficiency of {percent:.0} %");
            }
            Self::Experiment => "half of the connections, to find hidden links",
            Self::LimitedByContention { limit } => {
                return write!(f, "contended above {}", rate_text(*limit));
            }
            Self::Gradient { bytes_per_s } => {
                let sign = if *bytes_per_s < 0.0 { "-" } else { "" };
                return write!(f, "one more is worth {sign}{}", rate_text(bytes_per_s.abs()));
            }
            Self::NotContended => "connections are not contended",
        };
        f.write_str(text)
    }
}
