//! A simulator of transfers over a network, with every file.
//!
//! Each connection of a pipe transfers one file after another. All connections of a pipe have the same rate, so a file
//! ends when their common progress reaches a known value ([`pipe`]). Rates are weighted max-min shares
//! ([`crate::shares`]) of capacities that many connections can lower ([`Deterioration`]). They are computed again after
//! a decision, and when the number of sending connections of a pipe changed by more than [`TOLERANCE`].
//!
//! A simulation depends on the [`World`], the seed and the optimiser only. The n-th file of a request has the same size
//! whatever the optimiser does. Memory is needed for the files in flight, not for those that wait.

mod fair;
mod outcome;
mod pipe;
mod predictions;
mod report;
mod scenario;
mod slots;
#[cfg(test)]
mod tests;
mod world;

use std::{
    cmp::{Ordering, Reverse},
    collections::BinaryHeap,
    convert::Infallible,
};

use rand::{RngExt as _, SeedableRng as _};
use rand_distr::{Distribution as _, StandardNormal};
use rand_pcg::Pcg64Mcg;

pub use self::{
    outcome::{Outcome, Summary},
    predictions::{PredictionSummary, Predictions},
    report::{PeriodReport, PipeReport},
    scenario::{Scenario, ScenarioError},
    world::{Background, CapacityChange, Deterioration, FileSize, KnownNetwork, PipePlan, Request, World},
};
use self::{
    pipe::{FileEnd, PipeState},
    slots::Slots,
};
use crate::{
    limits::Limits,
    network::Paths,
    optimiser::{Assignment, Optimiser},
    period::{Decision, Period, PipeTerms},
    shares::{Demand, max_min},
};

/// Relative change of the number of sending connections of a pipe after which rates are computed again.
const TOLERANCE: f64 = 0.01;

/// A period of a simulation: measurements, and the decisions after it.
#[derive(Debug, Clone, Copy)]
pub struct PeriodRecord<'a> {
    /// What the optimiser received.
    pub period: Period<'a>,
    /// The received bytes of the pipes without an error of measurement.
    pub received_bytes: &'a [f64],
    /// The decisions for the next period.
    pub decisions: &'a [Decision],
    /// Indices of the requests that arrived in the period, in order.
    pub arrivals: &'a [u32],
    /// The requests that were completed in the period, in order.
    pub completions: &'a [RequestCompletion],
}

/// The completion of a request.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RequestCompletion {
    /// Index of the request.
    pub request: u32,
    /// Its time in seconds.
    pub at_s: f64,
}

/// Runs a simulation until all requests are complete, or until [`World::limit_s`]. Calls `observe` after each decision.
pub fn simulate(
    world: &World,
    seed: u64,
    optimiser: &mut dyn Optimiser,
    observe: &mut dyn FnMut(&PeriodRecord<'_>),
) -> Outcome {
    let Ok(outcome) = try_simulate::<Infallible>(world, seed, optimiser, &mut |record| {
        observe(record);
        Ok(())
    });
    outcome
}

/// Runs a simulation as [`simulate`] does, unless `observe` ends it.
///
/// # Errors
/// The first error of `observe`.
pub fn try_simulate<E>(
    world: &World,
    seed: u64,
    optimiser: &mut dyn Optimiser,
    observe: &mut dyn FnMut(&PeriodRecord<'_>) -> Result<(), E>,
) -> Result<Outcome, E> {
    let mut simulation = Simulation::new(world, seed, optimiser.assignment());
    while simulation.open_requests > 0
        && let Some(Reverse(Timed { at_s, event, .. })) = simulation.events.pop()
    {
        simulation.now_s = at_s.min(world.limit_s);
        if at_s > world.limit_s {
            break;
        }
        match event {
            Event::Arrival(request) => simulation.arrive(request),
            Event::CapacityChange(change) => simulation.change_capacity(change),
            Event::Background(resource) => simulation.change_background(resource),
            Event::Decision => simulation.decide(optimiser, observe)?,
            Event::Started(pipe) => simulation.start_sending(pipe),
            Event::FileEnd { pipe, generation } => simulation.end_files(pipe, generation),
        }
        if simulation.is_outdated {
            simulation.compute_rates();
        }
    }
    Ok(simulation.finish())
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Event {
    Arrival(u32),
    /// Index of the change.
    CapacityChange(u32),
    /// The traffic of others on the link changes.
    Background(u32),
    Decision,
    /// A connection of the pipe begins to send.
    Started(u32),
    /// The next file of the pipe ends, if its rate has not changed since.
    FileEnd {
        pipe: u32,
        generation: u32,
    },
}

/// An event with its time. Events of the same time happen in the order of their numbers.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Timed {
    at_s: f64,
    number: u64,
    event: Event,
}

impl Eq for Timed {}

impl Ord for Timed {
    fn cmp(&self, other: &Self) -> Ordering {
        self.at_s.total_cmp(&other.at_s).then(self.number.cmp(&other.number))
    }
}

impl PartialOrd for Timed {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

struct Simulation<'a> {
    world: &'a World,
    now_s: f64,
    events: BinaryHeap<Reverse<Timed>>,
    scheduled: u64,
    pipes: Vec<PipeState>,
    terms: Vec<PipeTerms>,
    /// The pipes of each link.
    links: Vec<Vec<u32>>,
    assignment: Assignment,
    slots: Slots,
    limits: Limits,
    paths: &'a Paths,
    /// The capacities of the resources now relative to the original ones, without the loss by many connections.
    factors: Vec<f64>,
    /// The part of each resource that the traffic of others leaves.
    left: Vec<f64>,
    /// For each request the files that are not finished.
    open_files: Vec<u64>,
    open_requests: usize,
    /// For each request the generator of its file sizes.
    sizes: Vec<Pcg64Mcg>,
    failures: Pcg64Mcg,
    noise: Pcg64Mcg,
    draws: Pcg64Mcg,
    startups: Pcg64Mcg,
    background: Pcg64Mcg,
    /// Whether the rates must be computed again.
    is_outdated: bool,
    /// Requests that arrived and that were completed since the last decision.
    arrivals: Vec<u32>,
    completions: Vec<RequestCompletion>,
    outcome: Outcome,
}

impl<'a> Simulation<'a> {
    fn new(world: &'a World, seed: u64, assignment: Assignment) -> Self {
        // One generator for each purpose, so that the use of one does not change the numbers of another.
        let mut seeds = Pcg64Mcg::seed_from_u64(seed);
        let mut simulation = Self {
            world,
            now_s: 0.0,
            events: BinaryHeap::new(),
            scheduled: 0,
            pipes: world.pipes.iter().map(|_| PipeState::default()).collect(),
            terms: world.pipes.iter().map(|plan| plan.terms).collect(),
            links: world.pipes_of_links(),
            assignment,
            slots: Slots::new(&world.known[0].view()),
            limits: Limits::default(),
            paths: &world.paths,
            factors: vec![1.0; world.resources.len()],
            left: vec![1.0; world.resources.len()],
            open_files: world.requests.iter().map(|request| request.files).collect(),
            open_requests: world.requests.iter().filter(|request| request.files > 0).count(),
            failures: Pcg64Mcg::from_rng(&mut seeds),
            noise: Pcg64Mcg::from_rng(&mut seeds),
            sizes: world.requests.iter().map(|_| Pcg64Mcg::from_rng(&mut seeds)).collect(),
            draws: Pcg64Mcg::from_rng(&mut seeds),
            startups: Pcg64Mcg::from_rng(&mut seeds),
            background: Pcg64Mcg::from_rng(&mut seeds),
            is_outdated: false,
            arrivals: Vec::new(),
            completions: Vec::new(),
            outcome: Outcome::new(world),
        };
        for (number, request) in world.requests.iter().enumerate() {
            simulation.schedule(request.arrives_s, Event::Arrival(number as u32));
        }
        for (number, change) in world.changes.iter().enumerate() {
            simulation.schedule(change.at_s, Event::CapacityChange(number as u32));
        }
        if world.background.is_some() {
            (0..world.links as u32).for_each(|link| simulation.schedule(0.0, Event::Background(link)));
        }
        simulation.schedule(0.0, Event::Decision);
        simulation
    }

    fn schedule(&mut self, at_s: f64, event: Event) {
        self.scheduled += 1;
        self.events.push(Reverse(Timed { at_s, number: self.scheduled, event }));
    }

    fn arrive(&mut self, request: u32) {
        let Request { pipe, files, .. } = self.world.requests[request as usize];
        self.pipes[pipe as usize].enqueue(request, files);
        self.arrivals.push(request);
        self.fill(pipe);
    }

    fn change_capacity(&mut self, change: u32) {
        let CapacityChange { resource, factor, paths, .. } = &self.world.changes[change as usize];
        self.factors[*resource as usize] = *factor;
        self.paths = paths.as_ref().unwrap_or(self.paths);
        self.is_outdated = true;
    }

    fn change_background(&mut self, link: u32) {
        let Some(background) = self.world.background else { return };
        let (left, for_s) = background.sample(&mut self.background);
        self.left[link as usize] = left;
        self.schedule(self.now_s + for_s, Event::Background(link));
        self.is_outdated = true;
    }

    /// Starts files on the free connections of a pipe, or of its link if the pipes of a link share them.
    fn fill(&mut self, pipe: u32) {
        if self.assignment == Assignment::ByPipe {
            while self.pipes[pipe as usize].has_free_connection() && self.start_file(pipe) {}
            self.expect_file_end(pipe);
            return;
        }
        let link = self.terms[pipe as usize].link as usize;
        while let Some(next) = self.next_activity(link)
            && self.start_file(next)
        {}
        for index in 0..self.links[link].len() {
            self.expect_file_end(self.links[link][index]);
        }
    }

    /// Returns the pipe of a link that starts the next file; `None` without a free connection or a file.
    fn next_activity(&mut self, link: usize) -> Option<u32> {
        let state = |pipe: &u32| &self.pipes[*pipe as usize];
        let weight = |pipe: &u32| self.terms[*pipe as usize].activity_weight;
        let sum = |count: fn(&PipeState) -> u32| self.links[link].iter().map(|pipe| count(state(pipe))).sum::<u32>();
        if sum(PipeState::running) >= sum(|state| state.connections) {
            return None;
        }
        let waiting: Vec<u32> = self.links[link].iter().copied().filter(|pipe| state(pipe).has_waiting()).collect();
        if self.assignment == Assignment::RoundRobin {
            let used = |pipe: &u32| f64::from(state(pipe).running()) / weight(pipe);
            return waiting.into_iter().min_by(|one, other| used(one).total_cmp(&used(other)));
        }
        let mut rest = self.draws.random_range(0.0..1.0) * waiting.iter().map(weight).sum::<f64>();
        let last = waiting.last().copied();
        let is_drawn = |pipe: &u32| {
            rest -= weight(pipe);
            rest < 0.0
        };
        waiting.into_iter().find(is_drawn).or(last)
    }

    /// Starts the next file of a pipe. Returns false if there is none, or no connection of a storage is free.
    fn start_file(&mut self, pipe: u32) -> bool {
        let Self { world, now_s, .. } = *self;
        let state = &mut self.pipes[pipe as usize];
        if !state.has_waiting() || !self.slots.take(pipe) {
            return false;
        }
        state.advance(now_s);
        let Some((request, known_bytes)) = state.take_file() else { return false };
        let sizes = &mut self.sizes[request as usize];
        let bytes = known_bytes.unwrap_or_else(|| world.requests[request as usize].size.sample(sizes));
        state.start(request, bytes, world.failing_fraction(&mut self.failures), now_s);
        if world.startup_s > 0.0 {
            // Without a difference, files of one size that start together would always start together.
            let startup_s = world.startup_s * self.startups.random_range(0.5..1.5);
            self.schedule(now_s + startup_s, Event::Started(pipe));
        } else {
            state.begin_sending();
        }
        true
    }

    /// Schedules the end of the next file of a pipe, or new rates if its number of connections has changed.
    fn expect_file_end(&mut self, pipe: u32) {
        let state = &mut self.pipes[pipe as usize];
        if state.has_changed_by(TOLERANCE) {
            self.is_outdated = true;
        } else if let Some((at_s, generation)) = state.next_end() {
            self.schedule(at_s, Event::FileEnd { pipe, generation });
        }
    }

    fn start_sending(&mut self, pipe: u32) {
        let state = &mut self.pipes[pipe as usize];
        state.advance(self.now_s);
        state.begin_sending();
        self.expect_file_end(pipe);
    }

    fn end_files(&mut self, pipe: u32, generation: u32) {
        let state = &mut self.pipes[pipe as usize];
        if !state.is_current(generation) {
            return;
        }
        state.advance_to_end(self.now_s);
        while let Some(FileEnd { request, has_failed }) = state.take_ended(self.now_s) {
            self.slots.give_back(pipe);
            if has_failed {
                continue;
            }
            let open = &mut self.open_files[request as usize];
            *open -= 1;
            if *open == 0 {
                self.open_requests -= 1;
                self.completions.push(RequestCompletion { request, at_s: self.now_s });
                self.outcome.complete(request, self.now_s);
            }
        }
        self.fill(pipe);
        for waiting in self.slots.take_waiting() {
            self.fill(waiting);
        }
    }

    fn decide<E>(
        &mut self,
        optimiser: &mut dyn Optimiser,
        observe: &mut dyn FnMut(&PeriodRecord<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut measured = Vec::with_capacity(self.pipes.len());
        let mut received_bytes = Vec::with_capacity(self.pipes.len());
        for state in &mut self.pipes {
            state.advance(self.now_s);
            let (mut measurement, bytes) = state.measure(&self.world.requests);
            self.outcome.add_period(bytes, measurement.connection_s);
            let error: f64 = StandardNormal.sample(&mut self.noise);
            measurement.received_bytes = (bytes * (1.0 + self.world.noise * error)).max(0.0);
            measured.push(measurement);
            received_bytes.push(bytes);
        }
        let world = self.world;
        let known = world.known.iter().rfind(|known| known.from_s <= self.now_s);
        let known = known.expect("a network is known from the start");
        known.note_exceeded_limits(&mut measured, world.period_s);
        let (end_s, length_s) = (self.now_s, self.world.period_s);
        let period = Period { end_s, length_s, pipes: &measured, terms: &self.terms, network: known.view() };
        let mut decisions = optimiser.decide(&period);
        assert_eq!(decisions.len(), self.pipes.len(), "an optimiser decides about each pipe");
        self.limits.apply(&period, &mut decisions);
        for (pipe, decision) in decisions.iter().enumerate() {
            self.pipes[pipe].connections = decision.connections;
        }
        (0..decisions.len()).for_each(|pipe| self.fill(pipe as u32));
        let (received_bytes, decisions) = (&received_bytes, &decisions);
        let (arrivals, completions) = (&self.arrivals, &self.completions);
        let period = Period { end_s, length_s, pipes: &measured, terms: &self.terms, network: known.view() };
        observe(&PeriodRecord { period, received_bytes, decisions, arrivals, completions })?;
        self.arrivals.clear();
        self.completions.clear();
        self.schedule(self.now_s + self.world.period_s, Event::Decision);
        Ok(())
    }

    /// Computes the rates of all pipes, and the ends of their next files.
    fn compute_rates(&mut self) {
        self.is_outdated = false;
        let demand = |(state, plan): (&PipeState, &PipePlan)| {
            let sending = f64::from(state.sending());
            Demand { weight: sending * plan.rtt_weight, limit: sending * plan.connection_bytes_per_s }
        };
        let demands: Vec<_> = self.pipes.iter().zip(&self.world.pipes).map(demand).collect();
        let now = self.world.resources.capacities().iter().zip(&self.factors).zip(&self.left);
        let now: Vec<_> = now.map(|((capacity, factor), left)| capacity * factor * left).collect();
        let capacities = self.world.capacities(&now, self.paths, |pipe| self.pipes[pipe as usize].sending());
        let rates = max_min(&capacities, self.paths, &demands).rates;
        self.forget_outdated_events();
        for (pipe, rate) in rates.into_iter().enumerate() {
            if let Some((at_s, generation)) = self.pipes[pipe].set_rate(rate, self.now_s) {
                self.schedule(at_s, Event::FileEnd { pipe: pipe as u32, generation });
            }
        }
    }

    /// Removes the expected ends of files whose rate has changed since, if they are most of the events.
    fn forget_outdated_events(&mut self) {
        if self.events.len() > 4 * (self.pipes.len() + self.world.requests.len() + self.slots_in_use()) {
            let pipes = &self.pipes;
            self.events.retain(|Reverse(Timed { event, .. })| match event {
                Event::FileEnd { pipe, generation } => pipes[*pipe as usize].is_current(*generation),
                _ => true,
            });
        }
    }

    /// Returns the number of files on connections.
    fn slots_in_use(&self) -> usize {
        self.pipes.iter().map(|state| state.running() as usize).sum()
    }

    fn finish(mut self) -> Outcome {
        for state in &mut self.pipes {
            state.advance(self.now_s);
            let (measurement, bytes) = state.measure(&self.world.requests);
            self.outcome.add_period(bytes, measurement.connection_s);
        }
        self.outcome.end(self.now_s);
        self.outcome
    }
}
