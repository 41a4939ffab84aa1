//! The creation of a world from a scenario.

use rand::SeedableRng as _;
use rand_distr::{Distribution as _, Exp, LogNormal, StandardNormal};
use rand_pcg::Pcg64Mcg;
use towpath_alto::topology::Topology;

use super::{
    super::world::{Background, CapacityChange, Deterioration, FileSize, PipePlan, Request, World},
    BackgroundSettings, MAX_REROUTES, MAX_S, NetworkSettings, RequestSettings, Scenario, ScenarioError,
    StorageSettings,
    layout::Layout,
};
use crate::{
    network::{ResourceIndex, ResourceKind},
    period::PipeTerms,
};

impl Scenario {
    /// Creates the world. `topology` is the text of a topology; without one, the network is a single link.
    ///
    /// # Errors
    /// [`ScenarioError`] for a topology that cannot be read, has no path, or is missing although the settings name it, and
    /// for names that the network lacks.
    pub fn world(&self, topology: Option<&str>) -> Result<World, ScenarioError> {
        if let (Some(name), None) = (&self.network.topology, topology) {
            return Err(ScenarioError::MissingTopology(name.clone()));
        }
        let topology = topology.map(Topology::parse).transpose()?;
        let mut random = Pcg64Mcg::seed_from_u64(self.seed);
        let mut layout = match &topology {
            Some(topology) => Layout::of_topology(topology, &self.network)?,
            None => Layout::of_link(self.network.capacity_bits_per_s),
        };
        let (pipes, requests) = self.pipes(&mut layout, &mut random)?;
        let links = layout.resources.len();
        self.add_storages(&mut layout)?;
        let NetworkSettings { deterioration: exponent, lossless_connections: connections, .. } = self.network;
        let mut world = World {
            links,
            known: Vec::new(),
            resources: layout.resources.clone(),
            paths: layout.paths(&layout.links()),
            pipes,
            requests,
            changes: Vec::new(),
            background: self.background.map(BackgroundSettings::world),
            deterioration: Deterioration { exponent, connections },
            period_s: self.period_s,
            noise: self.noise,
            startup_s: self.connections.startup_s,
            failures: self.connections.failures,
            limit_s: 0.0,
        };
        world.limit_s = world.bound_s() * self.limit_to_bound;
        if world.limit_s > MAX_S {
            return Err(ScenarioError::TooLong);
        }
        world.changes = self.changes(&layout, &world)?;
        world.known = self.known_networks(&layout, &world)?;
        Ok(world)
    }

    fn pipes(
        &self,
        layout: &mut Layout<'_>,
        random: &mut Pcg64Mcg,
    ) -> Result<(Vec<PipePlan>, Vec<Request>), ScenarioError> {
        let (mut pipes, mut requests) = (Vec::<PipePlan>::new(), Vec::new());
        let projects = self.projects();
        let mut before = 0..0;
        for settings in &self.requests {
            let count = settings.pipes;
            if settings.beside && count != before.len() as u64 {
                return Err(ScenarioError::Beside(count, before.len() as u64));
            }
            let (start, mut arrives_s) = (pipes.len(), 0.0);
            for index in 0..count as usize {
                let number = pipes.len() as u32;
                let project = projects.iter().position(|project| settings.project.as_deref() == Some(project));
                let project = project.map(|project| project as u32);
                let rtt_weight = settings.rtt_weight;
                let plan = if settings.beside {
                    let of_link = &pipes[before.start + index];
                    layout.places.push(layout.places[before.start + index].clone());
                    let terms = PipeTerms { activity_weight: settings.weight, project, ..of_link.terms };
                    PipePlan { terms, rtt_weight, project: settings.project.clone(), ..of_link.clone() }
                } else {
                    layout.add_pipe(random)?;
                    let rate = spread(self.connections.bytes_per_s, self.connections.spread, random);
                    PipePlan {
                        name: layout.pipe_name(&layout.places[number as usize]),
                        connection_bytes_per_s: rate,
                        project: settings.project.clone(),
                        terms: PipeTerms { weight: settings.weight, project, ..PipeTerms::of_link(number) },
                        rtt_weight,
                    }
                };
                pipes.push(plan);
                requests.push(settings.request(number, arrives_s, random));
                if settings.every_s > 0.0 {
                    arrives_s += Exp::new(1.0 / settings.every_s).expect("the rate is positive").sample(random);
                }
            }
            before = start..pipes.len();
        }
        Ok((pipes, requests))
    }

    /// Returns the names of projects by index.
    pub(super) fn projects(&self) -> Vec<&str> {
        let mut projects = Vec::new();
        for project in self.requests.iter().filter_map(|settings| settings.project.as_deref()) {
            if !projects.contains(&project) {
                projects.push(project);
            }
        }
        projects
    }

    /// Adds the storages that have a capacity.
    fn add_storages(&self, layout: &mut Layout<'_>) -> Result<(), ScenarioError> {
        let mut used: Vec<_> = layout.places.iter().flat_map(|place| place.storages()).collect();
        used.sort_unstable();
        used.dedup();
        for settings in &self.storages {
            let Some(name) = &settings.name else { continue };
            if !used.iter().any(|(storage, _)| layout.storage_name(*storage) == *name) {
                return Err(ScenarioError::NoSuchStorage(name.clone()));
            }
        }
        for storage in used {
            if let Some(bits_per_s) = self.storage_limit(layout, storage, |settings| settings.capacity_bits_per_s) {
                let name = layout.direction_name(storage);
                let resource = layout.resources.add(name, ResourceKind::Network, bits_per_s / 8.0);
                layout.storages.insert(storage, resource);
            }
        }
        Ok(())
    }

    /// Returns a limit of a direction of a storage: that of the last settings for it.
    pub(super) fn storage_limit(
        &self,
        layout: &Layout<'_>,
        (storage, direction): (u32, super::Direction),
        limit: impl Fn(&StorageSettings) -> Option<f64>,
    ) -> Option<f64> {
        let name = layout.storage_name(storage);
        let is_for = |settings: &&StorageSettings| {
            settings.name.as_ref().is_none_or(|wanted| *wanted == name)
                && settings.direction.is_none_or(|wanted| wanted == direction)
        };
        self.storages.iter().rev().filter(is_for).find_map(limit)
    }

    fn changes(&self, layout: &Layout<'_>, world: &World) -> Result<Vec<CapacityChange>, ScenarioError> {
        let reroutes = self.changes.iter().filter(|change| change.reroute).count();
        if reroutes.saturating_mul(world.pipes.len()) > MAX_REROUTES {
            return Err(ScenarioError::TooManyReroutes);
        }
        let mut removed = Vec::new();
        let mut sorted: Vec<_> = self.changes.iter().collect();
        sorted.sort_by(|one, other| one.at_s.total_cmp(&other.at_s));
        let mut changes = Vec::new();
        for settings in sorted {
            let resource = link(world, settings.link.as_deref())?;
            if settings.reroute && resource as usize >= world.links {
                return Err(ScenarioError::StorageReroute(world.resources.name(resource).to_owned()));
            }
            let links = settings.reroute.then(|| {
                removed.push(resource);
                layout.links_without(&removed)
            });
            let paths = links.as_ref().map(|links| layout.paths(links));
            changes.push(CapacityChange { at_s: settings.at_s, resource, factor: settings.factor, paths, links });
        }
        Ok(changes)
    }
}

impl BackgroundSettings {
    fn world(self) -> Background {
        Background { part: self.part, every_s: self.every_s }
    }
}

/// Returns the link with the name `from -> to`; without a name, the one whose bytes need the longest time.
pub(super) fn link(world: &World, name: Option<&str>) -> Result<ResourceIndex, ScenarioError> {
    let Some(name) = name else { return Ok(world.busiest_resource()) };
    world.resources.find(name).ok_or_else(|| ScenarioError::NoSuchLink(name.to_owned()))
}

impl RequestSettings {
    fn request(&self, pipe: u32, arrives_s: f64, random: &mut Pcg64Mcg) -> Request {
        let error: f64 = StandardNormal.sample(random);
        // A request with few files in the tail of the distribution has at least a fortieth of the mean.
        let least = (self.files as f64 / 40.0).max(1.0);
        let files = (self.files as f64 + self.files_spread * error).round().max(least) as u64;
        let size = match self.size_spread {
            0.0 => FileSize::Constant(self.file_bytes),
            sigma => FileSize::LogNormal { median: self.file_bytes, sigma },
        };
        Request { pipe, arrives_s, files, size }
    }
}

/// Returns a random number with a log-normal distribution.
fn spread(median: f64, sigma: f64, random: &mut Pcg64Mcg) -> f64 {
    let distribution = LogNormal::new(median.ln(), sigma).expect("the settings are within their ranges");
    distribution.sample(random)
}
