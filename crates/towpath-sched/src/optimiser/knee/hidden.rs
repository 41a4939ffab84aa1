//! Links that pipes share, but no path vector has.
//!
//! A pipe whose connections stay slow, although no known link is full, shares a link with others that the optimiser does
//! not know. An [experiment] finds them. The slow pipe and those that were found are then a resource like the known ones. Its
//! capacity is their load while the pipe was slow, and later the largest mean load of some periods.

mod experiment;

use std::{cmp::Reverse, collections::BTreeSet};

use rand_pcg::Pcg64Mcg;

use self::experiment::Experiment;
use super::resource::Load;
use crate::{
    network::{Incidences, Paths, ResourceKind, Resources},
    period::NetworkView,
};

/// Maximum efficiency of a slow pipe, as a logarithm: far below the errors of measurement.
const MAX_SLOW: f64 = -0.25;

/// Consecutive slow periods after which an experiment may start. Contention by the pipe itself is over before.
const MIN_SLOW_PERIODS: i32 = 6;

/// Periods without an experiment for a pipe after one that found other pipes, or none.
const COOLDOWN_FOUND: i32 = 8;
const COOLDOWN: i32 = 30;

/// Maximum number of slow pipes of an experiment: first those that have been slow for the longest time.
const MAX_SLOW_PIPES: usize = 64;

/// Minimum overlap of two sets of pipes that use the same link: pipes in both / pipes in any.
const MIN_OVERLAP: f64 = 1.0 / 3.0;

/// Maximum number of links. More are not added.
const MAX_LINKS: usize = 1_024;

/// Periods after which a link is forgotten that was never full in them.
const MAX_FREE_PERIODS: u32 = 60;

/// Weight of the newest period in the mean load of a link.
const NEWEST: f64 = 0.3;

/// The hidden links that were found.
#[derive(Debug, Default)]
pub(super) struct HiddenLinks {
    /// For each pipe the number of consecutive slow periods; negative during a cooldown.
    slow: Vec<i32>,
    /// A forgotten link has no pipes, and its number is used again.
    links: Vec<HiddenLink>,
    experiment: Option<Experiment>,
}

#[derive(Debug, Default)]
struct HiddenLink {
    pipes: BTreeSet<usize>,
    /// Bytes per second: the mean of the last periods, and the largest mean.
    load: f64,
    capacity: f64,
    /// Periods since it was full.
    free_periods: u32,
}

/// The measurements of a pipe in a period.
#[derive(Debug, Clone, Copy)]
pub(super) struct Residual {
    /// Logarithm of its efficiency.
    pub(super) efficiency: f64,
    /// Whether a link of its path is full.
    pub(super) is_explained: bool,
    /// Mean number of connections that received data.
    pub(super) connections: f64,
    /// Bytes per second.
    pub(super) rate: f64,
}

impl Residual {
    fn is_slow(&self) -> bool {
        self.efficiency < MAX_SLOW
    }
}

impl HiddenLinks {
    /// Returns the network with the hidden links as further resources; `None` if there are none.
    pub(super) fn added_to(&self, network: &NetworkView<'_>) -> Option<(Resources, Paths)> {
        if network.is_complete || self.links.is_empty() {
            return None;
        }
        let mut resources = network.resources.clone();
        let mut hidden = vec![Vec::new(); network.paths.pipes()];
        for (number, link) in self.links.iter().enumerate() {
            let resource = resources.add(format!("hidden link {number}"), ResourceKind::Network, link.capacity);
            link.pipes.iter().for_each(|pipe| hidden[*pipe].push(resource));
        }
        let (mut of_pipes, mut path) = (Incidences::default(), Vec::new());
        for (pipe, hidden) in hidden.iter().enumerate() {
            path.clear();
            path.extend_from_slice(network.paths.resources_of(pipe));
            path.extend_from_slice(hidden);
            of_pipes.push(&path);
        }
        let paths = Paths::new(of_pipes, resources.len());
        Some((resources, paths))
    }

    /// Ends the search: the network is known completely.
    pub(super) fn stop(&mut self) {
        (self.experiment, self.slow) = (None, Vec::new());
    }

    /// Learns from the loads of the hidden links in a period, and from the measurements of all pipes. Returns the numbers of
    /// the links that were found or have changed.
    pub(super) fn learn(
        &mut self,
        loads: &[Load],
        residuals: &[Option<Residual>],
        random: &mut Pcg64Mcg,
    ) -> BTreeSet<usize> {
        for (link, load) in self.links.iter_mut().zip(loads) {
            link.learn(load);
        }
        self.count_slow_periods(residuals);
        let Some(experiment) = &mut self.experiment else {
            self.experiment = Experiment::new(&self.slow_pipes(), residuals, random);
            return BTreeSet::new();
        };
        experiment.record(residuals);
        match self.experiment.take_if(|experiment| experiment.is_over()) {
            Some(experiment) => self.conclude(&experiment, residuals),
            None => BTreeSet::new(),
        }
    }

    /// Returns the pipes that use half of their connections in the next period.
    pub(super) fn halved(&self) -> BTreeSet<usize> {
        self.experiment.as_ref().map(Experiment::halved).unwrap_or_default()
    }

    /// Returns the pipes of a link.
    pub(super) fn pipes_of(&self, link: usize) -> &BTreeSet<usize> {
        &self.links[link].pipes
    }

    fn count_slow_periods(&mut self, residuals: &[Option<Residual>]) {
        self.slow.resize(residuals.len(), 0);
        for (count, residual) in self.slow.iter_mut().zip(residuals) {
            let is_slow = residual.is_some_and(|residual| residual.is_slow() && !residual.is_explained);
            *count = if is_slow || *count < 0 { *count + 1 } else { 0 };
        }
    }

    fn slow_pipes(&self) -> Vec<usize> {
        let mut pipes: Vec<_> = (0..self.slow.len()).filter(|pipe| self.slow[*pipe] >= MIN_SLOW_PERIODS).collect();
        pipes.sort_by_key(|pipe| Reverse(self.slow[*pipe]));
        pipes.truncate(MAX_SLOW_PIPES);
        pipes
    }

    fn conclude(&mut self, experiment: &Experiment, residuals: &[Option<Residual>]) -> BTreeSet<usize> {
        let mut changed = BTreeSet::new();
        for slow in experiment.slow_pipes() {
            let mut pipes = experiment.sharing_with(slow);
            self.slow[slow.pipe] = if pipes.is_empty() { -COOLDOWN } else { -COOLDOWN_FOUND };
            if pipes.is_empty() {
                continue;
            }
            pipes.insert(slow.pipe);
            if let Some(number) = self.number_for(&pipes) {
                let link = &mut self.links[number];
                link.pipes.extend(pipes);
                link.load = experiment.load_of(&link.pipes, slow, residuals);
                (link.capacity, link.free_periods) = (link.load, 0);
                changed.insert(number);
            }
        }
        changed
    }

    /// Returns the number of the link that these pipes share: that of a known link, or a new one; `None` if there are too
    /// many.
    fn number_for(&mut self, pipes: &BTreeSet<usize>) -> Option<usize> {
        let overlap = |link: &HiddenLink| {
            let both = link.pipes.intersection(pipes).count();
            both as f64 / (link.pipes.len() + pipes.len() - both) as f64
        };
        let overlaps = self.links.iter().map(overlap).enumerate();
        let same =
            overlaps.filter(|(_, overlap)| *overlap >= MIN_OVERLAP).max_by(|one, other| one.1.total_cmp(&other.1));
        let unused = || self.links.iter().position(|link| link.pipes.is_empty());
        same.map(|(number, _)| number).or_else(unused).or_else(|| {
            (self.links.len() < MAX_LINKS).then(|| {
                self.links.push(HiddenLink::default());
                self.links.len() - 1
            })
        })
    }
}

impl HiddenLink {
    fn learn(&mut self, load: &Load) {
        self.load += NEWEST * (load.rate - self.load);
        self.capacity = self.capacity.max(self.load);
        self.free_periods = if load.is_full(self.capacity) { 0 } else { self.free_periods + 1 };
        if self.free_periods > MAX_FREE_PERIODS {
            *self = Self::default();
        }
    }
}
