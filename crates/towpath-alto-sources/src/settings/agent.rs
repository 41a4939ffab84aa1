//! The settings of agents: what knows the network, and how to ask it.

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::OsStr,
    fmt,
    net::SocketAddr,
    path::PathBuf,
    str::FromStr,
    time::Duration,
};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use towpath_alto::{
    facts::Prefix,
    names::{NodeName, ResourceId, RouterName, TopologyName},
};
use towpath_proto::units::Span;
use towpath_proto::url::{Family, Location};

use super::delegate::DelegateConfig;
use towpath_proto::url::shown;

/// How often files are looked at, unless settings say otherwise.
const REFRESH_OF_FILES: Duration = Duration::from_secs(5);

/// How often servers are asked: looking glasses and registries belong to others.
pub const REFRESH_OF_PAGES: Duration = Duration::from_secs(5 * 60);

/// The longest time for which routes may hold without their router.
const LONGEST_HOLD: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// The most queries of one looking glass.
const MAX_QUERIES: usize = 1000;

/// Something that knows a part of the network.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum AgentConfig {
    /// Facts, TOML or JSON.
    Static {
        /// The file, or the `url` of one.
        #[serde(alias = "url")]
        file: Source,
        /// How often to look whether it has changed: `5s` for files, `5m` for what a server has.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        refresh: Option<Span>,
    },
    /// Dumps of routing tables and of updates (MRT, RFC 6396; plain or gzip). Each peer of the collector is a router, which serves what it originates.
    Mrt {
        /// The dumps, the oldest first.
        files: Vec<PathBuf>,
        /// How often to look whether one has changed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        refresh: Option<Span>,
    },
    /// Sites with their prefixes, as WLCG's registry (CRIC) lists them in JSON: a network map with a PID for each, properties of them, and their distances as costs.
    Sites {
        /// The list, or the `url` of one.
        #[serde(alias = "url")]
        file: Source,
        /// How the network map is called.
        #[serde(default = "default_map")]
        map: ResourceId,
        /// How often to look whether the list has changed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        refresh: Option<Span>,
    },
    /// Results of measurements between addresses or prefixes, or between PIDs that other agents tell: CSV, JSON, iperf3, perfSONAR, `towpath probe --json`.
    Measurements {
        /// The results: files, or URLs.
        files: Vec<Source>,
        /// Where they were measured: the near end of those that name only the far one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        here: Option<String>,
        /// Of what the values are on pages of perfSONAR's archives, which do not say so: from where,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        source: Option<String>,
        /// to where,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        destination: Option<String>,
        /// and the type of the events, as `throughput`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        event: Option<String>,
        /// The network map whose PIDs they name.
        #[serde(default = "default_map")]
        map: ResourceId,
        /// How often to look whether one has changed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        refresh: Option<Span>,
    },
    /// A network of nodes and links: GraphML, or node-link JSON. Paths between what is attached to its nodes are the shortest.
    Topology {
        /// The network, or the `url` of one.
        #[serde(alias = "url")]
        file: Source,
        /// How the topology is called.
        name: TopologyName,
        /// The prefixes that are behind each node.
        #[serde(default)]
        attach: BTreeMap<NodeName, BTreeSet<Prefix>>,
        /// How often to look whether it has changed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        refresh: Option<Span>,
    },
    /// Where addresses are (GeoLite2, DB-IP: databases in MaxMind's format): countries, cities and coordinates of endpoints, and the distances between them.
    #[serde(rename = "geoip")]
    GeoIp {
        /// The database, unpacked.
        file: PathBuf,
        /// How often to look whether it has changed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        refresh: Option<Span>,
    },
    /// What a looking glass prints of the routes of one router (Junos, FRR, IOS, BIRD): text, or the page with it.
    LookingGlass {
        /// A file with it, or the `url` where it is asked.
        #[serde(alias = "url")]
        file: Source,
        /// The fields of its form, which is sent by POST; none: a GET.
        #[serde(default)]
        form: BTreeMap<String, String>,
        /// What the field `args` of the form is to be: it is sent once for each of them. A query that gives no route is passed over as long as another gives one.
        #[serde(default)]
        queries: Vec<String>,
        /// How the router is called.
        router: RouterName,
        /// What is behind it; nothing: all that no other router serves.
        #[serde(default)]
        serves: Vec<Prefix>,
        /// How often to ask.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        refresh: Option<Span>,
    },
    /// A program that prints what it knows as lines of JSON. It runs as long as the server, and is started again when it ends.
    Program {
        /// The program and its arguments. No shell reads them.
        command: Vec<String>,
    },
    /// Routers that tell their routes by BMP (RFC 7854). Each peer of theirs is a router, which serves what it originates.
    Bmp {
        /// Where they connect to.
        listen: SocketAddr,
        /// Who may connect.
        #[serde(default = "loopback")]
        from: Vec<Prefix>,
        /// How long changes are gathered before they are answered from.
        #[serde(default = "settle")]
        settle: Span,
        /// How long routes hold that are not told again.
        #[serde(default = "hold")]
        hold: Span,
    },
    /// Somebody who is asked when a request comes.
    Delegate(DelegateConfig),
}

/// Where something is to be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// A file.
    File(PathBuf),
    /// What a server gives, by HTTP: its URL as it is written.
    Page(String),
}

/// One thing that an agent asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Question {
    /// Where.
    pub source: Source,
    /// The fields of a form to send there.
    pub form: Option<Vec<(String, String)>>,
}

impl AgentConfig {
    /// What it asks for, each time; nothing if it tells by itself.
    pub fn questions(&self) -> Vec<Question> {
        let plain = |source: Source| Question { source, form: None };
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
                forms(form, queries).map(|form| Question { source: file.clone(), form: Some(form) }).collect()
            }
            AgentConfig::Program { .. } | AgentConfig::Bmp { .. } | AgentConfig::Delegate(_) => Vec::new(),
        }
    }

    /// How often it asks.
    pub fn refresh(&self) -> Duration {
        let said = match self {
            AgentConfig::Static { refresh, .. }
            | AgentConfig::Mrt { refresh, .. }
            | AgentConfig::Sites { refresh, .. }
            | AgentConfig::Measurements { refresh, .. }
            | AgentConfig::Topology { refresh, .. }
            | AgentConfig::GeoIp { refresh, .. }
            | AgentConfig::LookingGlass { refresh, .. } => *refresh,
            AgentConfig::Program { .. } | AgentConfig::Bmp { .. } | AgentConfig::Delegate(_) => None,
        };
        said.map_or(if self.asks_servers() { REFRESH_OF_PAGES } else { REFRESH_OF_FILES }, |span| span.0)
    }

    /// Whether it asks servers, and not files alone.
    pub fn asks_servers(&self) -> bool {
        self.questions().iter().any(|question| matches!(question.source, Source::Page(_)))
    }

    /// What contradicts itself in these settings.
    ///
    /// # Errors
    /// For people: what, and what to do.
    pub fn check(&self) -> Result<(), String> {
        match self {
            AgentConfig::Program { command } if command.is_empty() => Err("`command` names no program".into()),
            AgentConfig::LookingGlass { file: Source::File(_), form, queries, .. }
                if !form.is_empty() || !queries.is_empty() =>
            {
                Err("`form` and `queries` are for a looking glass that is asked: name its `url`".into())
            }
            AgentConfig::LookingGlass { queries, .. } if queries.len() > MAX_QUERIES => {
                Err(format!("there are more than {MAX_QUERIES} `queries`: ask for larger prefixes"))
            }
            AgentConfig::Bmp { hold, .. } if hold.0 > LONGEST_HOLD => {
                Err(format!("`hold` is {hold}, and {} at most", Span(LONGEST_HOLD)))
            }
            AgentConfig::Delegate(config) => config.check(),
            _ => Ok(()),
        }
    }
}

/// The fields of a form for each query; the form alone if there is none.
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
        // Never quoted: it may hold a token.
        match text.parse::<Location>().map_err(|error| error.to_string())? {
            Location::Local(path) => Ok(Source::File(path)),
            Location::Remote(url) if url.scheme().family() == Family::Http => Ok(Source::Page(text.to_owned())),
            Location::Remote(_) | Location::Standard => Err("this is no file, nor an http or https URL".into()),
        }
    }
}

/// Without the secrets that a URL may hold.
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

fn default_map() -> ResourceId {
    ResourceId::new("default").expect("a valid name")
}

fn loopback() -> Vec<Prefix> {
    ["127.0.0.0/8", "::1/128"].map(|prefix| Prefix(prefix.parse().expect("a valid prefix"))).into()
}

fn settle() -> Span {
    Span(Duration::from_secs(1))
}

fn hold() -> Span {
    Span(Duration::from_secs(10 * 60))
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
        assert_eq!(file.questions()[0].source, Source::File("facts.toml".into()));
        assert_eq!(file.refresh(), REFRESH_OF_FILES);
        let page = config("kind = 'sites'\nurl = 'https://cric.example/api/?json'").unwrap();
        assert_eq!(page.questions()[0].source, Source::Page("https://cric.example/api/?json".into()));
        assert_eq!(page.questions()[0].source.to_string(), "https://cric.example/api/", "the rest may be secret");
        assert_eq!(page.refresh(), REFRESH_OF_PAGES);
        let often = config("kind = 'sites'\nurl = 'https://cric.example/'\nrefresh = '1m'").unwrap();
        assert_eq!(often.refresh(), Duration::from_secs(60));
        for (text, told) in [
            ("kind = 'static'", "missing field `file`"),
            ("kind = 'static'\nfile = 'a'\nurl = 'http://b/'", "duplicate field"),
            ("kind = 'static'\nurl = 'root://b//c'", "nor an http or https URL"),
            ("kind = 'static'\nfile = '-'", "this is no file"),
        ] {
            let error = config(text).unwrap_err();
            assert!(error.contains(told), "{text}: {error}");
        }
    }

    #[test]
    fn a_form_is_sent_once_for_each_query() {
        let glass = "kind = 'looking-glass'\nrouter = 'r'\nurl = 'http://lg.example/'\n";
        assert_eq!(config(glass).unwrap().questions()[0].form, None);
        let glass = format!("{glass}form = {{ query = 'route', args = '' }}\n");
        let forms = |text: &str| -> Vec<String> {
            let questions = config(text).unwrap().questions().into_iter();
            questions.map(|question| question.form.unwrap()[0].1.clone()).collect()
        };
        assert_eq!(forms(&glass), [""]);
        assert_eq!(forms(&format!("{glass}queries = ['10.0.0.0/8', '11.0.0.0/8']")), ["10.0.0.0/8", "11.0.0.0/8"]);
    }

    #[test]
    fn settings_that_contradict_themselves_are_told() {
        for (text, told) in [
            ("kind = 'program'\ncommand = []", "names no program"),
            ("kind = 'looking-glass'\nrouter = 'r'\nfile = 'f'\nqueries = ['x']", "name its `url`"),
            ("kind = 'bmp'\nlisten = '127.0.0.1:11019'\nhold = '31d'", "30d at most"),
        ] {
            let error = config(text).unwrap_err();
            assert!(error.contains(told), "{text}: {error}");
        }
        assert!(config("kind = 'program'\ncommand = ['true']").is_ok());
        assert!(config("kind = 'bmp'\nlisten = '127.0.0.1:11019'").is_ok());
    }
}
