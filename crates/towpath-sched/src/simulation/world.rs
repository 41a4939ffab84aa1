//! The simulated world: a network, pipes, and requests.

use rand::RngExt as _;
use rand_distr::{Distribution as _, Exp1, LogNormal};
use rand_pcg::Pcg64Mcg;

use crate::{
    network::{Paths, ResourceIndex, Resources},
    period::{NetworkView, PipeMeasurement, PipeTerms, link_count},
    shares::ProjectWeight,
};

/// Largest part of the capacity of a link that the traffic of others has.
const LARGEST_BACKGROUND: f64 = 0.9;

/// The simulated world. All fields are independent of the optimiser.
#[derive(Debug, Clone, PartialEq)]
pub struct World {
    /// The resources of the network.
    pub resources: Resources,
    /// The resources of each pipe.
    pub paths: Paths,
    /// The pipes.
    pub pipes: Vec<PipePlan>,
    /// The requests, each for one pipe.
    pub requests: Vec<Request>,
    /// Number of resources that are links; those after them are storages.
    pub links: usize,
    /// What the optimiser knows about the network, by time; the first from the start.
    pub known: Vec<KnownNetwork>,
    /// Changes of capacities, by time.
    pub changes: Vec<CapacityChange>,
    /// The traffic of others on each link; optimisers do not know it.
    pub background: Option<Background>,
    /// The loss of capacity by many connections.
    pub deterioration: Deterioration,
    /// Time between two decisions in seconds.
    pub period_s: f64,
    /// Standard deviation of the measured bytes of a period, as a fraction of them.
    pub noise: f64,
    /// Mean idle time of the connection at the start of each file, in seconds: from half of it to one and a half.
    pub startup_s: f64,
    /// Probability with which an attempt fails, at a random part of the file. It is always tried again.
    pub failures: f64,
    /// Time in seconds at which the simulation ends if requests are not complete.
    pub limit_s: f64,
}

/// The network as the optimiser knows it from a time on.
#[derive(Debug, Clone, PartialEq)]
pub struct KnownNetwork {
    /// The time in seconds.
    pub from_s: f64,
    /// The resources of the network with their assumed capacities, and those of rules. The simulation enforces limits of
    /// connections; the optimiser keeps the other rules.
    pub resources: Resources,
    /// The known resources of each pipe, and its rules.
    pub paths: Paths,
    /// The weights of projects.
    pub weights: Vec<ProjectWeight>,
    /// The limits of the rates of storages.
    pub storage_rates: Vec<ResourceIndex>,
    /// Whether the paths have all resources of the network.
    pub is_complete: bool,
}

impl KnownNetwork {
    /// Returns it as an optimiser receives it.
    pub(super) fn view(&self) -> NetworkView<'_> {
        let Self { resources, paths, weights, is_complete, .. } = self;
        NetworkView { resources, paths, weights, is_complete: *is_complete }
    }

    /// Notes the pipes of storages that exceed the limit of their rate.
    pub(super) fn note_exceeded_limits(&self, measured: &mut [PipeMeasurement], period_s: f64) {
        for limit in &self.storage_rates {
            let pipes = self.paths.pipes_of(*limit);
            let received: f64 = pipes.iter().map(|pipe| measured[*pipe as usize].received_bytes).sum();
            if received > self.resources.capacities()[*limit as usize] * period_s {
                pipes.iter().for_each(|pipe| measured[*pipe as usize].exceeds_storage_limit = true);
            }
        }
    }
}

/// A pipe.
#[derive(Debug, Clone, PartialEq)]
pub struct PipePlan {
    /// Its name for reports.
    pub name: String,
    /// Maximum rate of a connection in bytes per second.
    pub connection_bytes_per_s: f64,
    /// Its project, for rules and reports.
    pub project: Option<String>,
    /// Its configuration.
    pub terms: PipeTerms,
    /// Weight of its connections where they share a resource with others: the inverse of the round-trip time.
    pub rtt_weight: f64,
}

/// A change of the capacity of a resource.
#[derive(Debug, Clone, PartialEq)]
pub struct CapacityChange {
    /// Its time in seconds.
    pub at_s: f64,
    /// The resource.
    pub resource: ResourceIndex,
    /// From then on the capacity is this multiple of that of [`World::resources`]; 0 for a link that is cut.
    pub factor: f64,
    /// The paths from then on, and the links of each pipe, if they change.
    pub paths: Option<Paths>,
    pub(super) links: Option<Vec<Vec<ResourceIndex>>>,
}

/// Traffic of others on links, with exponential distributions.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Background {
    /// Mean part of the capacity of a link.
    pub part: f64,
    /// Mean time in seconds between two changes.
    pub every_s: f64,
}

impl Background {
    /// Returns the next part of the capacity that is left, and the time in seconds for which it is.
    pub(super) fn sample(self, random: &mut Pcg64Mcg) -> (f64, f64) {
        let exponential: [f64; 2] = std::array::from_fn(|_| Exp1.sample(random));
        (1.0 - (self.part * exponential[0]).min(LARGEST_BACKGROUND), self.every_s * exponential[1])
    }
}

/// A number of files that arrive together.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Request {
    /// Index of its pipe.
    pub pipe: u32,
    /// Time of its arrival in seconds.
    pub arrives_s: f64,
    /// Number of files.
    pub files: u64,
    /// The size of each file.
    pub size: FileSize,
}

impl Request {
    /// Returns the bytes of its files; the mean if their sizes are random.
    pub(super) fn bytes(&self) -> f64 {
        self.files as f64 * self.size.mean()
    }
}

/// Sizes of files.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum FileSize {
    /// All files have this number of bytes.
    Constant(f64),
    /// Sizes have a log-normal distribution.
    LogNormal {
        /// Median in bytes.
        median: f64,
        /// Standard deviation of the natural logarithm.
        sigma: f64,
    },
}

impl FileSize {
    /// Returns the size of the next file in bytes, at least 1.
    pub(super) fn sample(self, random: &mut Pcg64Mcg) -> f64 {
        match self {
            Self::Constant(bytes) => bytes,
            Self::LogNormal { median, sigma } => {
                let distribution = LogNormal::new(median.ln(), sigma).expect("a scenario has valid distributions");
                distribution.sample(random).max(1.0)
            }
        }
    }

    /// Returns the mean size in bytes.
    pub fn mean(self) -> f64 {
        match self {
            Self::Constant(bytes) => bytes,
            Self::LogNormal { median, sigma } => median * (sigma * sigma / 2.0).exp(),
        }
    }
}

/// The loss of capacity by many connections: C · min(1, (N0 / N)^d) for N connections.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Deterioration {
    /// The exponent d; 0 for none.
    pub exponent: f64,
    /// The number N0 of connections that a resource carries without loss.
    pub connections: f64,
}

impl Deterioration {
    /// Returns the maximum rate of a resource with connections that have one rate each, all in bytes per second, if each
    /// number of connections lowers it: the solution x of x = C · (N0 / N)^d with N = x / connection. It is above the
    /// capacity if N < N0.
    fn alone(&self, capacity: f64, connection: f64) -> f64 {
        (capacity * (self.connections * connection).powf(self.exponent)).powf(1.0 / (1.0 + self.exponent))
    }
}

impl World {
    /// Returns `capacities` after the loss by the numbers of `sending` connections of pipes.
    pub(super) fn capacities(&self, capacities: &[f64], paths: &Paths, sending: impl Fn(u32) -> u32) -> Vec<f64> {
        let Deterioration { exponent, connections } = self.deterioration;
        if exponent == 0.0 {
            return capacities.to_vec();
        }
        let left = |(resource, capacity): (usize, &f64)| {
            let count: u32 = paths.pipes_of(resource as u32).iter().map(|pipe| sending(*pipe)).sum();
            capacity * (connections / f64::from(count).max(1.0)).powf(exponent).min(1.0)
        };
        capacities.iter().enumerate().map(left).collect()
    }

    /// Returns the pipes of each link.
    pub(super) fn pipes_of_links(&self) -> Vec<Vec<u32>> {
        let mut links = vec![Vec::new(); link_count(self.pipes.iter().map(|plan| &plan.terms))];
        for (pipe, plan) in self.pipes.iter().enumerate() {
            links[plan.terms.link as usize].push(pipe as u32);
        }
        links
    }

    /// Returns the part of a file after which an attempt fails; `None` if it succeeds.
    pub(super) fn failing_fraction(&self, random: &mut Pcg64Mcg) -> Option<f64> {
        (self.failures > 0.0 && random.random_bool(self.failures)).then(|| random.random_range(0.0..1.0))
    }

    /// Returns for each resource the bytes that pass it, and the sum of bytes / [`Deterioration::alone`] in seconds.
    fn totals(&self) -> Vec<(f64, f64)> {
        let mut totals = vec![(0.0, 0.0); self.resources.capacities().len()];
        for request in &self.requests {
            let (bytes, connection) = (request.bytes(), self.pipes[request.pipe as usize].connection_bytes_per_s);
            for resource in self.paths.resources_of(request.pipe as usize) {
                let capacity = self.resources.capacities()[*resource as usize];
                let (sum, alone_s) = &mut totals[*resource as usize];
                *sum += bytes;
                *alone_s += bytes / self.deterioration.alone(capacity, connection);
            }
        }
        totals
    }

    /// Returns the link whose bytes need the longest time, the first if there are several.
    pub(super) fn busiest_resource(&self) -> ResourceIndex {
        let totals = self.totals();
        let durations_s = totals
            .iter()
            .zip(self.resources.capacities())
            .take(self.links)
            .map(|((bytes, _), capacity)| bytes / capacity);
        let longer = |one: (usize, f64), other: (usize, f64)| if other.1 > one.1 { other } else { one };
        durations_s.enumerate().reduce(longer).map_or(0, |(resource, _)| resource as ResourceIndex)
    }

    /// Returns the capacities that schedules can use, in bytes per second: the bytes of each resource / the time of
    /// [`Self::bound_s`] for it if all requests arrived together.
    pub fn attainable_capacities(&self) -> Vec<f64> {
        let attainable = |(capacity, (bytes, alone_s)): (&f64, (f64, f64))| match alone_s > 0.0 {
            true => capacity.min(bytes / alone_s),
            false => *capacity,
        };
        self.resources.capacities().iter().zip(self.totals()).map(attainable).collect()
    }

    /// Returns the time in seconds before which no schedule completes all requests: for each resource, and each time,
    /// what arrives from then on takes at least the sum of bytes / rate, where the rate is
    ///
    /// - the capacity, or
    /// - the maximum rate of the pipe with this resource to itself (`Deterioration::alone`). By Hölder's inequality, pipes
    ///   that share a resource are not faster than one after the other.
    ///
    /// Random sizes count with their mean; changes of capacities are ignored.
    pub fn bound_s(&self) -> f64 {
        let mut arrivals: Vec<_> = self.requests.iter().collect();
        arrivals.sort_by(|one, other| other.arrives_s.total_cmp(&one.arrives_s));
        let mut durations_s = vec![[0.0; 2]; self.resources.capacities().len()];
        let mut bound_s: f64 = 0.0;
        for request in arrivals {
            let bytes = request.bytes();
            let connection = self.pipes[request.pipe as usize].connection_bytes_per_s;
            for resource in self.paths.resources_of(request.pipe as usize) {
                let capacity = self.resources.capacities()[*resource as usize];
                let durations_s = &mut durations_s[*resource as usize];
                for (duration_s, rate) in
                    durations_s.iter_mut().zip([capacity, self.deterioration.alone(capacity, connection)])
                {
                    *duration_s += bytes / rate;
                    bound_s = bound_s.max(request.arrives_s + *duration_s);
                }
            }
        }
        bound_s
    }
}
