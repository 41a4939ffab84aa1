//! Scenarios: worlds described in TOML.
//!
//! Pipes between random nodes, their connections and the arrivals of requests follow from the seed, so that optimisers
//! are compared in the same world.

use rand::{RngExt as _, SeedableRng as _};
use rand_distr::{Distribution as _, Exp, LogNormal};
use rand_pcg::Pcg64Mcg;
use serde::{Deserialize, Deserializer, de};
use towpath_alto::topology::{Topology, TopologyError};

use super::world::{CapacityChange, Deterioration, FileSize, KnownNetwork, PipePlan, Request, World};
use crate::{
    network::{Incidences, Paths, ResourceIndex, Resources},
    period::PipeTerms,
};

/// Maximum number of pipes, which is that of 600 × 600 storages with some room.
const MAX_PIPES: u64 = 400_000;

/// Maximum number of attempts to find two connected nodes, per pipe.
const ATTEMPTS: usize = 1_000;

/// A scenario.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// Seed of the random numbers.
    #[serde(default)]
    pub seed: u64,
    /// Time between two decisions in seconds.
    #[serde(default = "default_period_s", deserialize_with = "within::<_, 1, 86_400>")]
    pub period_s: f64,
    /// Standard deviation of the measured bytes of a period, as a fraction of them.
    #[serde(default, deserialize_with = "within::<_, 0, 1>")]
    pub noise: f64,
    /// The simulation ends at this multiple of the bound, whatever is complete.
    #[serde(default = "default_limit", deserialize_with = "within::<_, 1, 10_000>")]
    pub limit_to_bound: f64,
    /// The network.
    pub network: NetworkSettings,
    /// What the optimiser knows about the network.
    #[serde(default)]
    pub view: ViewSettings,
    /// The connections.
    #[serde(default)]
    pub connections: ConnectionSettings,
    /// The requests.
    pub requests: Vec<RequestSettings>,
    /// Limits of projects on links.
    #[serde(default)]
    pub rules: Vec<RuleSettings>,
    /// Changes of capacities.
    #[serde(default)]
    pub changes: Vec<ChangeSettings>,
}

/// Settings of the network.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NetworkSettings {
    /// File with the topology, relative to that of the scenario; without one, the network is a single link.
    pub topology: Option<String>,
    /// Capacity in bits per second of each direction of a link for which the topology has none.
    #[serde(deserialize_with = "within::<_, 1, 1_000_000_000_000_000>")]
    pub capacity_bits_per_s: f64,
    /// Exponent d of the loss of capacity by many connections; 0 for none.
    #[serde(default, deserialize_with = "within::<_, 0, 10>")]
    pub deterioration: f64,
    /// Number N0 of connections that a link carries without loss.
    #[serde(default = "default_lossless", deserialize_with = "within::<_, 1, 1_000_000>")]
    pub lossless_connections: f64,
}

/// Settings of the knowledge about the network.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ViewSettings {
    /// The known links of each path.
    pub paths: KnownPaths,
    /// Known capacity divided by the capacity.
    #[serde(deserialize_with = "within::<_, 0, 1_000>")]
    pub capacity_factor: f64,
}

impl Default for ViewSettings {
    fn default() -> Self {
        Self { paths: KnownPaths::Full, capacity_factor: 1.0 }
    }
}

/// The known links of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum KnownPaths {
    /// All links.
    Full,
    /// The first and the last link.
    Ends,
    /// No link.
    None,
}

impl ViewSettings {
    /// Returns the known paths, without rules; `None` if nothing is known.
    fn known_paths(&self, paths: &Paths) -> Option<Vec<Vec<ResourceIndex>>> {
        let known = |path: &[ResourceIndex]| match (self.paths, path) {
            (KnownPaths::Ends, [first, .., last]) => vec![*first, *last],
            _ => path.to_vec(),
        };
        let is_known = self.paths != KnownPaths::None;
        is_known.then(|| (0..paths.pipes()).map(|pipe| known(paths.resources_of(pipe))).collect())
    }
}

/// Settings of connections.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ConnectionSettings {
    /// Median over pipes of the maximum rate of a connection in bytes per second.
    #[serde(deserialize_with = "within::<_, 1, 1_000_000_000_000>")]
    pub bytes_per_s: f64,
    /// Standard deviation of the natural logarithm of this rate over pipes.
    #[serde(deserialize_with = "within::<_, 0, 3>")]
    pub spread: f64,
    /// Idle time of the connection at the start of each file, in seconds.
    #[serde(deserialize_with = "within::<_, 0, 86_400>")]
    pub startup_s: f64,
    /// Probability with which an attempt fails; less than 1.
    #[serde(deserialize_with = "probability")]
    pub failures: f64,
}

impl Default for ConnectionSettings {
    fn default() -> Self {
        Self { bytes_per_s: 20e6, spread: 0.0, startup_s: 0.0, failures: 0.0 }
    }
}

/// Requests of the same kind.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RequestSettings {
    /// Number of pipes, with one request each.
    #[serde(deserialize_with = "count::<_, MAX_PIPES>")]
    pub pipes: u64,
    /// Files of a request.
    #[serde(deserialize_with = "count::<_, 10_000_000>")]
    pub files: u64,
    /// Standard deviation of the number of files over requests.
    #[serde(default, deserialize_with = "within::<_, 0, 10_000_000>")]
    pub files_spread: f64,
    /// Median size of a file in bytes.
    #[serde(deserialize_with = "within::<_, 1, 1_000_000_000_000_000>")]
    pub file_bytes: f64,
    /// Standard deviation of the natural logarithm of the size; 0 for files of one size.
    #[serde(default, deserialize_with = "within::<_, 0, 3>")]
    pub size_spread: f64,
    /// Mean time in seconds between two arrivals, with an exponential distribution; 0 for all at the start.
    #[serde(default, deserialize_with = "within::<_, 0, 86_400>")]
    pub every_s: f64,
    /// The project of these pipes, for rules.
    pub project: Option<String>,
    /// Weight of these pipes among those that share a link.
    #[serde(default = "default_weight", deserialize_with = "within::<_, 0, 1_000>")]
    pub weight: f64,
    /// Weight of the connections of these pipes where they share a link with others: the inverse of the round-trip time.
    #[serde(default = "default_weight", deserialize_with = "within::<_, 0, 1_000>")]
    pub rtt_weight: f64,
}

/// A limit for the pipes of a project that use a link.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RuleSettings {
    /// The project.
    pub project: String,
    /// The link as `from -> to`; without one, the link whose bytes need the longest time.
    pub link: Option<String>,
    /// Maximum of the sum of their rates in bits per second.
    #[serde(deserialize_with = "within::<_, 1, 1_000_000_000_000_000>")]
    pub bits_per_s: f64,
}

/// A change of the capacity of a link.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChangeSettings {
    /// Its time in seconds.
    #[serde(deserialize_with = "within::<_, 0, 1_000_000_000>")]
    pub at_s: f64,
    /// The link as `from -> to`; without one, the link whose bytes need the longest time.
    pub link: Option<String>,
    /// The capacity from then on, as a multiple of the original one; 0 for a link that is cut.
    #[serde(deserialize_with = "within::<_, 0, 1_000>")]
    pub factor: f64,
}

fn default_period_s() -> f64 {
    60.0
}

fn default_limit() -> f64 {
    15.0
}

fn default_lossless() -> f64 {
    100.0
}

fn default_weight() -> f64 {
    1.0
}

/// Why a scenario cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ScenarioError {
    /// The text is not a scenario; the message has the line and the key.
    #[error("{0}")]
    Invalid(String),
    /// The topology cannot be read.
    #[error("network.topology: {0}")]
    Topology(#[from] TopologyError),
    /// The network is one link, or has no two nodes that are connected.
    #[error("network.topology: no two of its nodes are connected, so there are no pipes")]
    Unconnected,
    /// The scenario has more than the maximum number of pipes.
    #[error("requests: more than {MAX_PIPES} pipes in total")]
    TooManyPipes,
    /// A change or a rule is of a link that the network lacks.
    #[error("there is no link {0:?}; write it as \"from -> to\"")]
    NoSuchLink(String),
    /// A rule is for a project without requests.
    #[error("rules: no request has the project {0:?}")]
    NoSuchProject(String),
    /// The scenario has no request.
    #[error("requests: at least one is required")]
    NoRequest,
}

impl Scenario {
    /// Parses a scenario.
    ///
    /// # Errors
    /// [`ScenarioError`] with the line and the key.
    pub fn parse(text: &str) -> Result<Self, ScenarioError> {
        let scenario: Self = toml::from_str(text).map_err(|error| ScenarioError::Invalid(error.to_string()))?;
        match scenario.requests.iter().map(|settings| settings.pipes).fold(0_u64, u64::saturating_add) {
            0 => Err(ScenarioError::NoRequest),
            pipes if pipes > MAX_PIPES => Err(ScenarioError::TooManyPipes),
            _ => Ok(scenario),
        }
    }

    /// Creates the world. `topology` is the text of the file named in the settings, if there is one.
    ///
    /// # Errors
    /// [`ScenarioError`] for a topology that cannot be read, or has no path.
    pub fn world(&self, topology: Option<&str>) -> Result<World, ScenarioError> {
        let topology = topology.map(Topology::parse).transpose()?;
        let mut random = Pcg64Mcg::seed_from_u64(self.seed);
        let mut network = match &topology {
            Some(topology) => Network::of_topology(topology, self.network.capacity_bits_per_s),
            None => Network::of_link(self.network.capacity_bits_per_s),
        };
        let (mut pipes, mut requests) = (Vec::new(), Vec::new());
        for settings in &self.requests {
            let mut arrives_s = 0.0;
            for _ in 0..settings.pipes {
                let name = network.add_pipe(&mut random)?;
                let connection_bytes_per_s = spread(self.connections.bytes_per_s, self.connections.spread, &mut random);
                let terms = PipeTerms { weight: settings.weight };
                pipes.push(PipePlan { name, connection_bytes_per_s, terms, rtt_weight: settings.rtt_weight });
                let pipe = u32::try_from(pipes.len() - 1).expect("there are at most MAX_PIPES");
                requests.push(settings.request(pipe, arrives_s, &mut random));
                if settings.every_s > 0.0 {
                    arrives_s += Exp::new(1.0 / settings.every_s).expect("the rate is positive").sample(&mut random);
                }
            }
        }
        let paths = Paths::new(network.of_pipes, network.resources.capacities().len());
        let NetworkSettings { deterioration: exponent, lossless_connections: connections, .. } = self.network;
        let mut world = World {
            known: None,
            resources: network.resources,
            paths,
            pipes,
            requests,
            changes: Vec::new(),
            deterioration: Deterioration { exponent, connections },
            period_s: self.period_s,
            noise: self.noise,
            startup_s: self.connections.startup_s,
            failures: self.connections.failures,
            limit_s: 0.0,
        };
        world.limit_s = world.bound_s() * self.limit_to_bound;
        world.known = self.known_network(&world)?;
        world.changes = self.changes.iter().map(|change| change.of(&world)).collect::<Result<_, _>>()?;
        Ok(world)
    }
}

/// Returns the link with the name `from -> to`; without a name, the one whose bytes need the longest time.
fn link(world: &World, name: Option<&str>) -> Result<ResourceIndex, ScenarioError> {
    let Some(name) = name else { return Ok(world.busiest_resource()) };
    let mut links = 0..world.resources.capacities().len() as ResourceIndex;
    let found = links.find(|link| world.resources.name(*link) == name);
    found.ok_or_else(|| ScenarioError::NoSuchLink(name.to_owned()))
}

impl ChangeSettings {
    fn of(&self, world: &World) -> Result<CapacityChange, ScenarioError> {
        let resource = link(world, self.link.as_deref())?;
        Ok(CapacityChange { at_s: self.at_s, resource, factor: self.factor })
    }
}

impl Scenario {
    /// Returns the network as the optimiser knows it. A rule is a resource of the pipes of its project that are known to
    /// use its link.
    fn known_network(&self, world: &World) -> Result<Option<KnownNetwork>, ScenarioError> {
        let Some(mut paths) = self.view.known_paths(&world.paths) else { return Ok(None) };
        let capacities = world.resources.capacities();
        let mut known: Vec<_> = capacities.iter().map(|capacity| capacity * self.view.capacity_factor).collect();
        for rule in &self.rules {
            let link = link(world, rule.link.as_deref())?;
            let pipes = self.pipes_of(&rule.project);
            if pipes.is_empty() {
                return Err(ScenarioError::NoSuchProject(rule.project.clone()));
            }
            for pipe in pipes {
                if paths[pipe].contains(&link) {
                    paths[pipe].push(known.len() as ResourceIndex);
                }
            }
            known.push(rule.bits_per_s / 8.0);
        }
        let mut of_pipes = Incidences::default();
        paths.iter().for_each(|path| of_pipes.push(path));
        Ok(Some(KnownNetwork {
            paths: Paths::new(of_pipes, known.len()),
            capacities: known,
            first_rule: capacities.len(),
            is_complete: self.view.paths == KnownPaths::Full,
        }))
    }

    /// Returns the pipes of a project. Each request setting has its pipes in a row.
    fn pipes_of(&self, project: &str) -> Vec<usize> {
        let mut first = 0;
        let mut pipes = Vec::new();
        for settings in &self.requests {
            let end = first + settings.pipes as usize;
            if settings.project.as_deref() == Some(project) {
                pipes.extend(first..end);
            }
            first = end;
        }
        pipes
    }
}

impl RequestSettings {
    fn request(&self, pipe: u32, arrives_s: f64, random: &mut Pcg64Mcg) -> Request {
        let error: f64 = rand_distr::StandardNormal.sample(random);
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

/// A network whose pipes are being chosen.
struct Network<'a> {
    topology: Option<&'a Topology>,
    resources: Resources,
    of_pipes: Incidences,
}

impl<'a> Network<'a> {
    fn of_link(bits_per_s: f64) -> Self {
        let mut resources = Resources::default();
        resources.add("link".to_owned(), bits_per_s / 8.0);
        Self { topology: None, resources, of_pipes: Incidences::default() }
    }

    fn of_topology(topology: &'a Topology, default_bits_per_s: f64) -> Self {
        let mut resources = Resources::default();
        for link in topology.links() {
            let name = |node: u32| &topology.nodes()[node as usize].name;
            let bits_per_s = link.capacity_bits_per_s.filter(|bits| *bits > 0.0).unwrap_or(default_bits_per_s);
            resources.add(format!("{} -> {}", name(link.from), name(link.to)), bits_per_s / 8.0);
        }
        Self { topology: Some(topology), resources, of_pipes: Incidences::default() }
    }

    /// Adds a pipe between two random nodes. Returns its name.
    fn add_pipe(&mut self, random: &mut Pcg64Mcg) -> Result<String, ScenarioError> {
        let Some(topology) = self.topology else {
            self.of_pipes.push(&[0]);
            return Ok(format!("pipe {}", self.of_pipes.rows()));
        };
        let nodes = topology.nodes().len() as u32;
        for _ in 0..ATTEMPTS {
            let (from, to) = (random.random_range(0..nodes), random.random_range(0..nodes));
            let Some(path) = topology.shortest_path(from, to).filter(|_| from != to) else { continue };
            let link = |ends: &[u32]| {
                let index = topology.links().binary_search_by_key(&(ends[0], ends[1]), |link| (link.from, link.to));
                index.expect("a path consists of links") as u32
            };
            self.of_pipes.push(&path.windows(2).map(link).collect::<Vec<_>>());
            let name = |node: u32| &topology.nodes()[node as usize].name;
            return Ok(format!("{} -> {}", name(from), name(to)));
        }
        Err(ScenarioError::Unconnected)
    }
}

/// Reads a number from `MIN` to `MAX`, both inclusive.
fn within<'de, D: Deserializer<'de>, const MIN: u64, const MAX: u64>(deserializer: D) -> Result<f64, D::Error> {
    let value = f64::deserialize(deserializer)?;
    let is_within = value >= MIN as f64 && value <= MAX as f64;
    let error = || de::Error::custom(format!("{value} is out of range: expected a number from {MIN} to {MAX}"));
    is_within.then_some(value).ok_or_else(error)
}

/// Reads a whole number from 1 to `MAX`.
fn count<'de, D: Deserializer<'de>, const MAX: u64>(deserializer: D) -> Result<u64, D::Error> {
    let value = u64::deserialize(deserializer)?;
    let error = || de::Error::custom(format!("{value} is out of range: expected a whole number from 1 to {MAX}"));
    (1..=MAX).contains(&value).then_some(value).ok_or_else(error)
}

/// Reads a probability less than 1.
fn probability<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    let value = f64::deserialize(deserializer)?;
    let error = || de::Error::custom(format!("{value} is out of range: expected a number from 0 to less than 1"));
    (0.0..1.0).contains(&value).then_some(value).ok_or_else(error)
}
