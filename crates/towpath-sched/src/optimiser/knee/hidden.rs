//! Links that pipes share, but no path vector has.
//!
//! A pipe whose connections stay slow, although no known link is full, shares a link with others that the optimiser does
//! not know. An [experiment] finds them. The slow pipe and those that were found are then a resource like the known ones. Its
//! capacity is the largest load seen.

mod experiment;

use std::{cmp::Reverse, collections::BTreeSet};

use rand_pcg::Pcg64Mcg;

use self::experiment::Experiment;
use super::resource::Load;
use crate::{
    network::{Incidences, Paths, ResourceKind, Resources},
    period::NetworkView,
};

/// Maximum efficiency, as a logarithm, of a slow pipe, and the number of slow periods after which the reason is looked for.
const SLOW: f64 = -0.25;
const PATIENCE: i32 = 6;

/// Periods for which a pipe is left alone after an experiment that found suspects, or none.
const PAUSE_FOUND: i32 = 8;
const PAUSE: i32 = 30;

/// Minimum overlap of two sets of pipes that use the same link: pipes in both / pipes in any.
const SAME: f64 = 1.0 / 3.0;

/// Maximum number of links: the oldest one is forgotten.
const MAX_LINKS: usize = 1_024;

/// Maximum number of slow pipes of an experiment: first those that have been slow for the longest time.
const MAX_CASES: usize = 64;

/// Weight of the newest period in the mean load of a link.
const NEWEST: f64 = 0.3;

/// The hidden links that were found.
#[derive(Debug, Default)]
pub(super) struct HiddenLinks {
    /// For each pipe the number of slow periods; negative while it is left alone.
    slow: Vec<i32>,
    links: Vec<HiddenLink>,
    experiment: Option<Experiment>,
}

#[derive(Debug)]
struct HiddenLink {
    pipes: BTreeSet<usize>,
    /// Bytes per second: the mean of the last periods, and the largest mean.
    load: f64,
    capacity: f64,
}

/// What a pipe did in a period.
#[derive(Debug, Clone, Copy)]
pub(super) struct Residual {
    /// Logarithm of the efficiency that no known link explains.
    pub(super) efficiency: f64,
    /// Mean number of connections that received data.
    pub(super) connections: f64,
    /// Bytes per second.
    pub(super) rate: f64,
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
        let mut of_pipes = Incidences::default();
        for (pipe, hidden) in hidden.iter().enumerate() {
            of_pipes.push(&[network.paths.resources_of(pipe), hidden].concat());
        }
        let paths = Paths::new(of_pipes, resources.len());
        Some((resources, paths))
    }

    /// Learns from the loads of the hidden links in a period, and from the residuals of all pipes. Returns the pipes of links
    /// that were found or changed.
    pub(super) fn learn(
        &mut self,
        loads: &[Load],
        residuals: &[Option<Residual>],
        random: &mut Pcg64Mcg,
    ) -> BTreeSet<usize> {
        for (link, load) in self.links.iter_mut().zip(loads) {
            link.load += NEWEST * (load.rate - link.load);
            link.capacity = link.capacity.max(link.load);
        }
        self.count_slow_periods(residuals);
        let Some(experiment) = &mut self.experiment else {
            self.experiment = Experiment::new(self.cases(), residuals, random);
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

    fn count_slow_periods(&mut self, residuals: &[Option<Residual>]) {
        self.slow.resize(residuals.len(), 0);
        for (count, residual) in self.slow.iter_mut().zip(residuals) {
            let is_slow = residual.is_some_and(|residual| residual.efficiency < SLOW);
            *count = if is_slow || *count < 0 { *count + 1 } else { 0 };
        }
    }

    fn cases(&self) -> Vec<usize> {
        let mut cases: Vec<_> = (0..self.slow.len()).filter(|pipe| self.slow[*pipe] >= PATIENCE).collect();
        cases.sort_by_key(|pipe| Reverse(self.slow[*pipe]));
        cases.truncate(MAX_CASES);
        cases
    }

    fn conclude(&mut self, experiment: &Experiment, residuals: &[Option<Residual>]) -> BTreeSet<usize> {
        self.links.retain(|link| link.pipes.iter().any(|pipe| residuals[*pipe].is_some()));
        let mut changed = BTreeSet::new();
        for case in &experiment.cases {
            let mut pipes = experiment.suspects_of(case);
            self.slow[case.pipe] = if pipes.is_empty() { -PAUSE } else { -PAUSE_FOUND };
            if !pipes.is_empty() {
                pipes.insert(case.pipe);
                changed.extend(&self.add(pipes, |pipes| experiment.load_of(pipes, case, residuals)).pipes);
            }
        }
        let forgotten = self.links.len().saturating_sub(MAX_LINKS);
        self.links.drain(..forgotten);
        changed
    }

    /// Adds a link, or pipes to one that is known. `load` returns the load of all its pipes.
    fn add(&mut self, pipes: BTreeSet<usize>, load: impl Fn(&BTreeSet<usize>) -> f64) -> &HiddenLink {
        let overlap = |link: &HiddenLink| {
            let both = link.pipes.intersection(&pipes).count();
            both as f64 / (link.pipes.len() + pipes.len() - both) as f64
        };
        let overlaps = self.links.iter().map(overlap).enumerate();
        let same = overlaps.filter(|(_, overlap)| *overlap >= SAME).max_by(|one, other| one.1.total_cmp(&other.1));
        let number = same.map_or(self.links.len(), |(number, _)| number);
        if number == self.links.len() {
            self.links.push(HiddenLink { pipes: BTreeSet::new(), load: 0.0, capacity: 0.0 });
        }
        let link = &mut self.links[number];
        link.pipes.extend(pipes);
        link.load = load(&link.pipes);
        link.capacity = link.load;
        link
    }
}
