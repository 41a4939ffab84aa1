//! Scenarios: worlds described in TOML.
//!
//! Pipes between random nodes, their connections and the arrivals of requests follow from the seed, so that optimisers
//! are compared in the same world.

mod build;
mod layout;
mod view;

use serde::{Deserialize, Deserializer, de};
use towpath_alto::topology::TopologyError;

/// Maximum number of files of all requests.
const MAX_FILES: u64 = 1_000_000_000;

/// Maximum time of a simulation in seconds.
const MAX_S: f64 = 1e12;

/// Maximum number of paths that changes may replace.
const MAX_REROUTES: usize = 10_000_000;

/// Maximum number of pipes, which is that of 600 × 600 storages with some room.
const MAX_PIPES: u64 = 400_000;

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
    /// Storages with limits.
    #[serde(default)]
    pub storages: Vec<StorageSettings>,
    /// The requests.
    pub requests: Vec<RequestSettings>,
    /// Limits and weights of projects.
    #[serde(default)]
    pub rules: Vec<RuleSettings>,
    /// The traffic of others.
    pub background: Option<BackgroundSettings>,
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
    /// The nodes that pipes connect.
    #[serde(default)]
    pub ends: PipeEnds,
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

/// The nodes of a topology that pipes connect.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PipeEnds {
    /// All nodes.
    #[default]
    All,
    /// Nodes with one link, as the storages of a network whose other nodes are routers.
    Leaves,
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
    /// Time in seconds after which a change is known; without one, changes are never known.
    #[serde(deserialize_with = "optional::<_, 0, 1_000_000_000>")]
    pub delay_s: Option<f64>,
    /// Time in seconds at which all knowledge of the network is lost.
    #[serde(deserialize_with = "optional::<_, 0, 1_000_000_000>")]
    pub until_s: Option<f64>,
}

impl Default for ViewSettings {
    fn default() -> Self {
        Self { paths: KnownPaths::Full, capacity_factor: 1.0, delay_s: None, until_s: None }
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

/// Settings of storages. For each limit, the last settings that have it count.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StorageSettings {
    /// The node of the storage; all storages without one.
    pub name: Option<String>,
    /// Its output or its input; without one, each of them.
    pub direction: Option<Direction>,
    /// Its capacity in bits per second.
    #[serde(default, deserialize_with = "optional::<_, 1, 1_000_000_000_000_000>")]
    pub capacity_bits_per_s: Option<f64>,
    /// What its administrator permits in bits per second. The optimiser keeps it.
    #[serde(default, deserialize_with = "optional::<_, 1, 1_000_000_000_000_000>")]
    pub max_bits_per_s: Option<f64>,
    /// Connections that its administrator permits. No optimiser exceeds them.
    #[serde(default, deserialize_with = "whole")]
    pub max_connections: Option<f64>,
}

/// A direction of a storage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// Bytes that it sends.
    Out,
    /// Bytes that it receives.
    In,
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
    /// Mean idle time of the connection at the start of each file, in seconds.
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
    /// Whether these pipes connect the same storages as those of the requests before, in the same order: they are other
    /// activities of these links, and `weight` is that among activities.
    #[serde(default)]
    pub beside: bool,
    /// Weight of these pipes among those that share a link.
    #[serde(default = "default_weight", deserialize_with = "within::<_, 0, 1_000>")]
    pub weight: f64,
    /// Weight of the connections of these pipes where they share a link with others: the inverse of the round-trip time.
    #[serde(default = "default_weight", deserialize_with = "within::<_, 0, 1_000>")]
    pub rtt_weight: f64,
}

/// A rule for the pipes of a project: a limit, or a weight.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RuleSettings {
    /// The project.
    pub project: String,
    /// The link as `from -> to`, or the storage as `node out` or `node in`, where the rule holds. Without one, a limit is
    /// of all pipes of the project together, and a weight holds on each link.
    pub link: Option<String>,
    /// Whether the limit is of each pipe, not of their sum.
    #[serde(default)]
    pub each: bool,
    /// Maximum rate in bits per second (`tcn_abs_limit`).
    #[serde(default, deserialize_with = "optional::<_, 1, 1_000_000_000_000_000>")]
    pub bits_per_s: Option<f64>,
    /// Weight among the projects that share a link (`tcn_rel_weight`). All pipes without a weight are one more project,
    /// with the weight 1.
    #[serde(default, deserialize_with = "positive")]
    pub weight: Option<f64>,
}

/// Traffic that the scheduler does not know, on each link.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BackgroundSettings {
    /// Mean part of the capacity that it uses, up to 0.9 at a time, with an exponential distribution.
    #[serde(deserialize_with = "probability")]
    pub part: f64,
    /// Mean time in seconds between two changes of it, with an exponential distribution.
    #[serde(deserialize_with = "within::<_, 1, 86_400>")]
    pub every_s: f64,
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
    /// Whether pipes then use the shortest paths without this link; those without another path keep theirs.
    #[serde(default)]
    pub reroute: bool,
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
    /// The settings name a topology, but the world was created without one.
    #[error("network.topology: the text of {0:?} is missing")]
    MissingTopology(String),
    /// The network is one link, or has no two nodes that are connected.
    #[error(
        "network.topology: no two of its nodes (with ends = \"leaves\": those with one link) are connected, so there are no pipes"
    )]
    Unconnected,
    /// The scenario has more than the maximum number of pipes.
    #[error("requests: more than {MAX_PIPES} pipes in total")]
    TooManyPipes,
    /// The scenario has more than the maximum number of files.
    #[error("requests: more than {MAX_FILES} files in total")]
    TooManyFiles,
    /// The requests need more than the maximum time.
    #[error(
        "requests: no schedule completes them within {MAX_S:.0} s / limit_to_bound; fewer bytes or larger capacities are needed"
    )]
    TooLong,
    /// There are more changes of the paths of all pipes than the maximum.
    #[error("changes: more than {MAX_REROUTES} paths change in total; remove reroute, or pipes")]
    TooManyReroutes,
    /// The capacity of a link in the topology is out of range.
    #[error("network.topology: the capacity of {0:?} is out of range: expected from 1 bit/s to 10^15 bit/s")]
    Capacity(String),
    /// A storage is not a link.
    #[error("changes: {0:?} is a storage, so no path leads around it; remove reroute")]
    StorageReroute(String),
    /// A change or a rule is of a link that the network lacks.
    #[error("there is no link {0:?}; write it as \"from -> to\"")]
    NoSuchLink(String),
    /// Settings are of a storage that no pipe uses.
    #[error("storages: no pipe begins or ends at {0:?}")]
    NoSuchStorage(String),
    /// Requests are `beside` others, but have not as many pipes.
    #[error("requests: {0} pipes cannot be beside {1}; they connect the same storages, so there are as many of them")]
    Beside(u64, u64),
    /// A rule has neither a limit nor a weight, or both.
    #[error("rules: the rule of project {0:?} needs either bits_per_s or weight, and only a limit can be of each pipe")]
    AmbiguousRule(String),
    /// A rule is of a link that the optimiser does not know to be on the path of a pipe.
    #[error(
        "rules: the rule of project {project:?} on {link:?} cannot be kept, as [view] hides it; show it, or omit the rule"
    )]
    HiddenRule {
        /// The project.
        project: String,
        /// The link.
        link: String,
    },
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
            _ if scenario.requests.iter().map(|settings| settings.pipes * settings.files).sum::<u64>() > MAX_FILES => {
                Err(ScenarioError::TooManyFiles)
            }
            _ => Ok(scenario),
        }
    }
}

/// Reads a number from `MIN` to `MAX`, both inclusive.
fn within<'de, D: Deserializer<'de>, const MIN: u64, const MAX: u64>(deserializer: D) -> Result<f64, D::Error> {
    let value = f64::deserialize(deserializer)?;
    let is_within = value >= MIN as f64 && value <= MAX as f64;
    let error = || de::Error::custom(format!("{value} is out of range: expected a number from {MIN} to {MAX}"));
    is_within.then_some(value).ok_or_else(error)
}

/// Reads a number like [`within`], which may be absent.
fn optional<'de, D: Deserializer<'de>, const MIN: u64, const MAX: u64>(
    deserializer: D,
) -> Result<Option<f64>, D::Error> {
    within::<_, MIN, MAX>(deserializer).map(Some)
}

/// Reads a number above 0, up to a million.
fn positive<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<f64>, D::Error> {
    let value = within::<_, 0, 1_000_000>(deserializer)?;
    let error = || de::Error::custom("0 is out of range: expected a number above 0");
    (value > 0.0).then_some(Some(value)).ok_or_else(error)
}

/// Reads a whole number from 1 to a million.
fn whole<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<f64>, D::Error> {
    count::<_, 1_000_000>(deserializer).map(|value| Some(value as f64))
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
