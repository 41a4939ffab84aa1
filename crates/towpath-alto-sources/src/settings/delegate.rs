//! Settings of agents queried on demand.

use std::{collections::BTreeSet, time::Duration};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use towpath_alto::{
    delegation::OnDemandItems,
    names::{CostMetric, PropertyName},
};
use towpath_proto::units::HumanDuration;

use super::agent::{REFRESH_OF_PAGES, Source};

/// Maximum time that a request may wait, before clients are likely to give up.
const MAX_WAIT: Duration = Duration::from_secs(60);

/// Minimum validity of learned values: a request that waited for one must still find it.
const MIN_KEEP: Duration = Duration::from_secs(30);

/// Maximum validity of learned values.
const MAX_KEEP: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// Minimum interval between reads of a directory.
const MIN_REFRESH: Duration = Duration::from_secs(1);

/// Another ALTO server, or a program, queried on demand for facts that no other agent has.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DelegateConfig {
    /// URL of a server's directory. Either it or `command` is required.
    #[schemars(extend("accepted" = "an http or https URL", "examples" = ["https://alto.example.org/directory"]))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    url: Option<Source>,
    /// A program and its arguments, run without a shell. It reads queries and prints their results.
    #[serde(default)]
    command: Vec<String>,
    /// Metrics of costs between addresses to request, such as `delay-ow`. A program requires them or `properties`.
    #[serde(default)]
    metrics: BTreeSet<CostMetric>,
    /// Properties of addresses to request. If neither they nor `metrics` are set, all that a server's directory offers.
    #[serde(default)]
    properties: BTreeSet<PropertyName>,
    /// How long a client's request waits for the results, at most `1m`.
    #[serde(default = "wait")]
    pub wait: HumanDuration,
    /// How long results are valid, also those without a value: from `30s` to `30d`.
    #[serde(default = "keep")]
    pub keep: HumanDuration,
    /// Interval at which a server's directory is read, at least `1s`. By default `5m`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    refresh: Option<HumanDuration>,
}

/// The delegate's backend.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DelegateBackend<'a> {
    /// The server with this directory.
    Server(&'a str),
    /// A program with its arguments.
    Program(&'a [String]),
}

impl DelegateConfig {
    /// Returns the backend.
    ///
    /// # Errors
    /// Returns an error unless exactly one is configured.
    pub(crate) fn whom(&self) -> Result<DelegateBackend<'_>, String> {
        match (&self.url, &self.command[..]) {
            (Some(Source::Page(url)), []) => Ok(DelegateBackend::Server(url)),
            (None, command @ [_, ..]) => Ok(DelegateBackend::Program(command)),
            (Some(Source::File(_)), _) => Err("`url` is not an http or https URL of a directory".into()),
            _ => Err("name either the `url` of a directory or a `command`".into()),
        }
    }

    /// Returns the configured items; empty for all that it offers.
    pub fn on_demand(&self) -> OnDemandItems {
        OnDemandItems { metrics: self.metrics.clone(), properties: self.properties.clone() }
    }

    /// Returns the interval for reading the directory, at least one second.
    pub fn refresh(&self) -> Duration {
        self.refresh.map_or(REFRESH_OF_PAGES, |span| span.0.max(MIN_REFRESH))
    }

    /// Checks the settings for contradictions.
    ///
    /// # Errors
    /// Returns a message with the problem and its remedy.
    pub fn check(&self) -> Result<(), String> {
        let is_program = matches!(self.whom()?, DelegateBackend::Program(_));
        match () {
            () if is_program && self.on_demand().is_empty() => {
                Err("name what the program provides: `metrics` or `properties`".into())
            }
            () if self.wait.0 > MAX_WAIT => {
                Err(format!("`wait` is {}, but must be at most {}", self.wait, HumanDuration(MAX_WAIT)))
            }
            () if self.keep.0 < MIN_KEEP => {
                Err(format!("`keep` is {}, but must be at least {}", self.keep, HumanDuration(MIN_KEEP)))
            }
            () if self.keep.0 > MAX_KEEP => {
                Err(format!("`keep` is {}, but must be at most {}", self.keep, HumanDuration(MAX_KEEP)))
            }
            () => Ok(()),
        }
    }
}

fn wait() -> HumanDuration {
    HumanDuration(Duration::from_secs(2))
}

fn keep() -> HumanDuration {
    HumanDuration(Duration::from_secs(5 * 60))
}

#[cfg(test)]
mod tests {
    use super::{super::agent::AgentConfig, *};

    fn config(text: &str) -> Result<DelegateConfig, String> {
        match toml::from_str(&format!("kind = 'delegate'\n{text}")).map_err(|error| error.to_string())? {
            AgentConfig::Delegate(config) => config.check().map(|()| config),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn who_is_asked_is_a_server_or_a_program() {
        let server = config("url = 'https://alto.example/directory'").unwrap();
        assert_eq!(server.whom(), Ok(DelegateBackend::Server("https://alto.example/directory")));
        assert!(server.on_demand().is_empty());
        assert_eq!(config("url = 'http://h/'\nrefresh = '0s'").unwrap().refresh(), MIN_REFRESH);
        assert_eq!((server.wait.0.as_secs(), server.keep.0.as_secs()), (2, 300));
        let program = config("command = ['ask', 'it']\nmetrics = ['delay-ow']\nwait = '500ms'").unwrap();
        assert_eq!(program.whom(), Ok(DelegateBackend::Program(&["ask".into(), "it".into()])));
        assert_eq!(program.on_demand().metrics.len(), 1);
    }

    #[test]
    fn settings_that_contradict_themselves_are_told() {
        for (text, expected) in [
            ("", "name either the `url`"),
            ("url = 'http://h/'\ncommand = ['x']", "name either the `url`"),
            ("url = 'directory.json'", "is not an http or https URL"),
            ("command = ['x']", "name what the program provides"),
            ("url = 'http://h/'\nwait = '2m'", "`wait` is 2m, but must be at most 1m"),
            ("url = 'http://h/'\nkeep = '5s'", "`keep` is 5s, but must be at least 30s"),
            ("url = 'http://h/'\nkeep = '31d'", "must be at most 30d"),
            ("url = 'http://h/'\nmetrics = ['a b']", "'a b' is not a valid cost metric"),
            ("url = 'http://h/'\nwhat = 1", "unknown field `what`"),
        ] {
            let error = config(text).unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}
