//! Settings of agents: the sources of facts, and how to query them.

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::OsStr,
    fmt,
    net::SocketAddr,
    path::PathBuf,
    str::FromStr,
    time::Duration,
};

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use towpath_alto::{
    agent_state::Prefix,
    names::{NodeName, ResourceId, RouterName, TopologyName},
};
use towpath_proto::url::{Family, Location};
use towpath_proto::{text_schema, units::HumanDuration};

use super::delegate::DelegateConfig;
use towpath_proto::url::shown;

/// Default polling interval of files.
const REFRESH_OF_FILES: Duration = Duration::from_secs(5);

/// Default polling interval of servers. Longer than for files, because looking glasses and registries are third
/// parties.
pub(crate) const REFRESH_OF_PAGES: Duration = Duration::from_secs(5 * 60);

/// Maximum hold time of routes without their router.
const MAX_HOLD: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// Maximum number of queries per looking glass.
const MAX_QUERIES: usize = 1000;

/// A source of facts about a part of the network.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum AgentConfig {
    /// Facts in TOML or JSON.
    Static {
        /// The document with the facts. The setting may also be named `url`.
        #[serde(alias = "url")]
        file: Source,
        /// Polling interval, at least `100ms`. By default `5s` for files, and `5m` with a URL.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        refresh: Option<HumanDuration>,
    },
    /// Dumps of routing tables and of updates (MRT, RFC 6396; plain or gzip). Each peer of the collector is a router
    /// that serves the prefixes it originates.
    Mrt {
        /// The dumps, oldest first.
        files: Vec<PathBuf>,
        /// Polling interval, at least `100ms`. By default `5s`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        refresh: Option<HumanDuration>,
    },
    /// Sites with their prefixes, in the JSON of WLCG's registry (CRIC): a network map with a PID per site, their
    /// properties, and their distances as costs.
    Sites {
        /// The list of sites. The setting may also be named `url`.
        #[serde(alias = "url")]
        file: Source,
        /// Name of the network map that the sites become.
        #[serde(default = "default_map")]
        map: ResourceId,
        /// Polling interval, at least `100ms`. By default `5s` for files, and `5m` with a URL.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        refresh: Option<HumanDuration>,
    },
    /// Measurements between addresses or prefixes, or between PIDs of other agents: CSV, JSON, iperf3, perfSONAR,
    /// `towpath probe --json`.
    Measurements {
        /// The results.
        files: Vec<Source>,
        /// Address, prefix or PID of the measuring end, for results that name only the remote end. Without it, such results
        /// are skipped.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        here: Option<String>,
        /// Address or PID of the source of the values, for pages of perfSONAR archives, which do not contain it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        source: Option<String>,
        /// Address or PID of the destination of the values, for pages of perfSONAR archives.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        destination: Option<String>,
        /// Event type of the values, for pages of perfSONAR archives, such as `throughput`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        event: Option<String>,
        /// The network map that PIDs in the results refer to.
        #[serde(default = "default_map")]
        map: ResourceId,
        /// Polling interval, at least `100ms`. By default `5s` for files, and `5m` with a URL.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        refresh: Option<HumanDuration>,
    },
    /// A topology of nodes and links: GraphML, or node-link JSON. Paths between prefixes attached to its nodes are
    /// shortest paths.
    Topology {
        /// The document with the topology. The setting may also be named `url`.
        #[serde(alias = "url")]
        file: Source,
        /// Name of the topology in responses and messages.
        name: TopologyName,
        /// Prefixes behind each node, by its name in the document.
        #[serde(default)]
        attach: BTreeMap<NodeName, BTreeSet<Prefix>>,
        /// Polling interval, at least `100ms`. By default `5s` for files, and `5m` with a URL.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        refresh: Option<HumanDuration>,
    },
    /// Geolocation databases in MaxMind's format (GeoLite2, DB-IP): countries, cities and coordinates of endpoints, and
    /// the distances between them.
    #[serde(rename = "geoip")]
    GeoIp {
        /// Path of the database, decompressed.
        file: PathBuf,
        /// Polling interval, at least `100ms`. By default `5s`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        refresh: Option<HumanDuration>,
    },
    /// Routes of one router as printed by a looking glass (Junos, FRR, IOS, BIRD): text, or the page with it.
    LookingGlass {
        /// A file with the output, or the URL to query. The setting may also be named `url`.
        #[serde(alias = "url")]
        file: Source,
        /// Form fields to send to the URL by POST, by name. Without any, a GET is sent.
        #[serde(default)]
        form: BTreeMap<String, String>,
        /// Values of the form field `args`, at most 1000; the form is sent once per value. A query without routes is
        /// ignored as long as another one has routes.
        #[serde(default)]
        queries: Vec<String>,
        /// Name of the router.
        router: RouterName,
        /// Prefixes behind the router; by default all that no other router serves.
        #[serde(default)]
        serves: Vec<Prefix>,
        /// Polling interval, at least `100ms`. By default `5s` for files, and `5m` with a URL.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        refresh: Option<HumanDuration>,
    },
    /// A program that prints facts as lines of JSON. It runs as long as the server, and is restarted when it ends.
    Program {
        /// The program and its arguments, run without a shell.
        command: Vec<String>,
    },
    /// Routers that send their routes over BMP (RFC 7854). Each of their peers is a router that serves the prefixes it
    /// originates.
    Bmp {
        /// Address and port to listen on.
        #[schemars(extend("examples" = ["192.0.2.1:11019"]))]
        listen: SocketAddr,
        /// Prefixes from which routers may connect.
        #[serde(default = "loopback")]
        from: Vec<Prefix>,
        /// How long changes are collected before they are applied.
        #[serde(default = "settle")]
        settle: HumanDuration,
        /// How long routes stay valid after their router disconnects, unless it sends them again. At most `30d`.
        #[serde(default = "hold")]
        hold: HumanDuration,
    },
    /// Another ALTO server, or a program, queried on demand for facts that no other agent has.
    Delegate(DelegateConfig),
}

/// Location of a document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// A file.
    File(PathBuf),
    /// An HTTP URL, exactly as written.
    Page(String),
}

/// One request of a polled agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PollRequest {
    /// Location.
    pub source: Source,
    /// Form fields to send.
    pub form: Option<Vec<(String, String)>>,
}

impl AgentConfig {
    /// Returns the requests of each poll; empty if the agent is not polled.
    pub fn requests(&self) -> Vec<PollRequest> {
        let plain = |source: Source| PollRequest { source, form: None };
        match self {
            AgentConfig::Static { file, .. } | AgentConfig::Sites { file, .. } | AgentConfig::Topology { file, .. } => {
                vec![plain(file.clone())]
            }
            AgentConfig::GeoIp { file, .. } => vec![plain(Source::File(file.clone()))],
            AgentConfig::Mrt { files, .. } => files.iter().map(|file| plain(Source::File(file.clone()))).collect(),
            AgentConfig::Measurements { files, .. } => files.iter().map(|file| plain(file.clone())).collect(),
            AgentConfig::LookingGlass { file, form, queries, .. } if form.is_empty() && queries.is_empty() => {
                vec![plain(file.clone())]
            }
            AgentConfig::LookingGlass { file, form, queries, .. } => {
                forms(form, queries).map(|form| PollRequest { source: file.clone(), form: Some(form) }).collect()
            }
            AgentConfig::Program { .. } | AgentConfig::Bmp { .. } | AgentConfig::Delegate(_) => Vec::new(),
        }
    }

    /// Returns the polling interval.
    pub fn refresh(&self) -> Duration {
        let configured = match self {
            AgentConfig::Static { refresh, .. }
            | AgentConfig::Mrt { refresh, .. }
            | AgentConfig::Sites { refresh, .. }
            | AgentConfig::Measurements { refresh, .. }
            | AgentConfig::Topology { refresh, .. }
            | AgentConfig::GeoIp { refresh, .. }
            | AgentConfig::LookingGlass { refresh, .. } => *refresh,
            AgentConfig::Program { .. } | AgentConfig::Bmp { .. } | AgentConfig::Delegate(_) => None,
        };
        configured.map_or(if self.asks_servers() { REFRESH_OF_PAGES } else { REFRESH_OF_FILES }, |span| span.0)
    }

    /// Returns whether the agent queries servers, not only files.
    pub(crate) fn asks_servers(&self) -> bool {
        self.requests().iter().any(|request| matches!(request.source, Source::Page(_)))
    }

    /// Checks the settings for contradictions.
    ///
    /// # Errors
    /// Returns a message with the problem and its remedy.
    pub fn check(&self) -> Result<(), String> {
        match self {
            AgentConfig::Program { command } if command.is_empty() => Err("`command` names no program".into()),
            AgentConfig::LookingGlass { file: Source::File(_), form, queries, .. }
                if !form.is_empty() || !queries.is_empty() =>
            {
                Err("`form` and `queries` require a looking glass with a `url`".into())
            }
            AgentConfig::LookingGlass { queries, .. } if queries.len() > MAX_QUERIES => {
                Err(format!("there are more than {MAX_QUERIES} `queries`: use larger prefixes"))
            }
            AgentConfig::Bmp { hold, .. } if hold.0 > MAX_HOLD => {
                Err(format!("`hold` is {hold}, but must be at most {}", HumanDuration(MAX_HOLD)))
            }
            AgentConfig::Delegate(config) => config.check(),
            _ => Ok(()),
        }
    }
}

/// Returns the form fields for each query, or the form alone if there are no queries.
fn forms(form: &BTreeMap<String, String>, queries: &[String]) -> impl Iterator<Item = Vec<(String, String)>> {
    let alone = queries.is_empty().then(|| form.clone());
    let with = move |query: &String| {
        let mut form = form.clone();
        form.insert("args".into(), query.clone());
        form
    };
    alone.into_iter().chain(queries.iter().map(with)).map(|form| form.into_iter().collect())
}

impl FromStr for Source {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        // The text is never quoted: it may contain a token.
        match text.parse::<Location>().map_err(|error| error.to_string())? {
            Location::Local(path) => Ok(Source::File(path)),
            Location::Remote(url) if url.scheme().family() == Family::Http => Ok(Source::Page(text.to_owned())),
            Location::Remote(_) | Location::Standard => Err("this is neither a file nor an http or https URL".into()),
        }
    }
}

/// Omits secrets that a URL may contain.
impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::File(path) => write!(f, "{}", path.display()),
            Source::Page(url) => f.write_str(&shown(OsStr::new(url))),
        }
    }
}

impl Serialize for Source {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Source {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

text_schema!(Source, "a path, or an http or https URL", "...");

fn default_map() -> ResourceId {
    ResourceId::new("default").expect("a valid name")
}

fn loopback() -> Vec<Prefix> {
    ["127.0.0.0/8", "::1/128"].map(|prefix| Prefix(prefix.parse().expect("a valid prefix"))).into()
}

fn settle() -> HumanDuration {
    HumanDuration(Duration::from_secs(1))
}

fn hold() -> HumanDuration {
    HumanDuration(Duration::from_secs(10 * 60))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(text: &str) -> Result<AgentConfig, String> {
        let config: AgentConfig = toml::from_str(text).map_err(|error| error.to_string())?;
        config.check().map(|()| config)
    }

    #[test]
    fn what_is_read_is_a_file_or_a_page() {
        let file = config("kind = 'static'\nfile = 'facts.toml'").unwrap();
        assert_eq!(file.requests()[0].source, Source::File("facts.toml".into()));
        assert_eq!(file.refresh(), REFRESH_OF_FILES);
        let page = config("kind = 'sites'\nurl = 'https://cric.example/api/?json'").unwrap();
        assert_eq!(page.requests()[0].source, Source::Page("https://cric.example/api/?json".into()));
        assert_eq!(page.requests()[0].source.to_string(), "https://cric.example/api/", "the rest may be secret");
        assert_eq!(page.refresh(), REFRESH_OF_PAGES);
        let often = config("kind = 'sites'\nurl = 'https://cric.example/'\nrefresh = '1m'").unwrap();
        assert_eq!(often.refresh(), Duration::from_secs(60));
        for (text, expected) in [
            ("kind = 'static'", "missing field `file`"),
            ("kind = 'static'\nfile = 'a'\nurl = 'http://b/'", "duplicate field"),
            ("kind = 'static'\nurl = 'root://b//c'", "nor an http or https URL"),
            ("kind = 'static'\nfile = '-'", "this is neither a file"),
        ] {
            let error = config(text).unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }

    #[test]
    fn a_form_is_sent_once_for_each_query() {
        let glass = "kind = 'looking-glass'\nrouter = 'r'\nurl = 'http://lg.example/'\n";
        assert_eq!(config(glass).unwrap().requests()[0].form, None);
        let glass = format!("{glass}form = {{ query = 'route', args = '' }}\n");
        let forms = |text: &str| -> Vec<String> {
            let requests = config(text).unwrap().requests().into_iter();
            requests.map(|request| request.form.unwrap()[0].1.clone()).collect()
        };
        assert_eq!(forms(&glass), [""]);
        assert_eq!(forms(&format!("{glass}queries = ['10.0.0.0/8', '11.0.0.0/8']")), ["10.0.0.0/8", "11.0.0.0/8"]);
    }

    #[test]
    fn settings_that_contradict_themselves_are_told() {
        for (text, expected) in [
            ("kind = 'program'\ncommand = []", "names no program"),
            ("kind = 'looking-glass'\nrouter = 'r'\nfile = 'f'\nqueries = ['x']", "require a looking glass"),
            ("kind = 'bmp'\nlisten = '127.0.0.1:11019'\nhold = '31d'", "at most 30d"),
        ] {
            let error = config(text).unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
        }
        assert!(config("kind = 'program'\ncommand = ['true']").is_ok());
        assert!(config("kind = 'bmp'\nlisten = '127.0.0.1:11019'").is_ok());
    }
}
