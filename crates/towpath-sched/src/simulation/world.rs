//! The simulated world: a network, pipes, and requests.

use rand::RngExt as _;
use rand_distr::{Distribution as _, LogNormal};
use rand_pcg::Pcg64Mcg;

use crate::network::{Paths, Resources};

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
    /// The loss of capacity by many connections.
    pub deterioration: Deterioration,
    /// Time between two decisions in seconds.
    pub period_s: f64,
    /// Standard deviation of the measured bytes of a period, as a fraction of them.
    pub noise: f64,
    /// Idle time of the connection at the start of each file, in seconds.
    pub startup_s: f64,
    /// Probability with which an attempt fails, at a random part of the file. It is always tried again.
    pub failures: f64,
    /// Time in seconds at which the simulation ends if requests are not complete.
    pub limit_s: f64,
}

/// A pipe.
#[derive(Debug, Clone, PartialEq)]
pub struct PipePlan {
    /// Its name for reports.
    pub name: String,
    /// Maximum rate of a connection in bytes per second.
    pub connection_bytes_per_s: f64,
    /// Weight of its connections where they share a resource with others: the inverse of the round-trip time.
    pub rtt_weight: f64,
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

impl World {
    /// Returns the capacities for the numbers of `sending` connections of pipes.
    pub(super) fn capacities(&self, sending: impl Fn(u32) -> u32) -> Vec<f64> {
        let Deterioration { exponent, connections } = self.deterioration;
        let capacities = self.resources.capacities();
        if exponent == 0.0 {
            return capacities.to_vec();
        }
        let left = |(resource, capacity): (usize, &f64)| {
            let count: u32 = self.paths.pipes_of(resource as u32).iter().map(|pipe| sending(*pipe)).sum();
            capacity * (connections / f64::from(count).max(1.0)).powf(exponent).min(1.0)
        };
        capacities.iter().enumerate().map(left).collect()
    }

    /// Returns the part of a file after which an attempt fails; `None` if it succeeds.
    pub(super) fn failing_fraction(&self, random: &mut Pcg64Mcg) -> Option<f64> {
        (self.failures > 0.0 && random.random_bool(self.failures)).then(|| random.random_range(0.0..1.0))
    }

    /// Returns the time in seconds before which no schedule completes all requests: for each resource, and each time,
    /// what arrives from then on takes at least its bytes / the capacity. Connections have limits of their own, which are
    /// ignored. Of files with random sizes the mean is used.
    pub fn bound_s(&self) -> f64 {
        let mut arrivals: Vec<_> = self.requests.iter().collect();
        arrivals.sort_by(|one, other| other.arrives_s.total_cmp(&one.arrives_s));
        let mut bytes = vec![0.0; self.resources.capacities().len()];
        let mut bound_s: f64 = 0.0;
        for request in arrivals {
            for resource in self.paths.resources_of(request.pipe as usize) {
                let bytes = &mut bytes[*resource as usize];
                *bytes += request.files as f64 * request.size.mean();
                bound_s = bound_s.max(request.arrives_s + *bytes / self.resources.capacities()[*resource as usize]);
            }
        }
        bound_s
    }
}
