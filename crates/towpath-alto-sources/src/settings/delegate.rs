//! The settings of agents that are asked when a request comes.

use std::{collections::BTreeSet, time::Duration};

use serde::{Deserialize, Serialize};
use towpath_alto::{
    delegation::Askable,
    names::{CostMetric, PropertyName},
};
use towpath_proto::units::Span;

use super::agent::{REFRESH_OF_PAGES, Source};

/// The longest time for which a request may wait: whoever asks should not have gone.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// The shortest time for which something may hold that was learnt: a request that waited for it has to find it yet.
const SHORTEST_KEEP: Duration = Duration::from_secs(30);

/// The longest one.
const LONGEST_KEEP: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// No directory is read more often.
const SHORTEST_REFRESH: Duration = Duration::from_secs(1);

/// Somebody who is asked when a request comes, for what nobody told: another ALTO server, or a program.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DelegateConfig {
    /// The directory of a server; or
    #[serde(default, skip_serializing_if = "Option::is_none")]
    url: Option<Source>,
    /// a program and its arguments, which reads questions and prints what it knows. No shell reads them.
    #[serde(default)]
    command: Vec<String>,
    /// The metrics of costs between addresses that it is asked for.
    #[serde(default)]
    metrics: BTreeSet<CostMetric>,
    /// The properties of addresses that it is asked for. If neither they nor metrics are named, a server is asked for all that its directory offers.
    #[serde(default)]
    properties: BTreeSet<PropertyName>,
    /// How long a request waits for it.
    #[serde(default = "wait")]
    pub wait: Span,
    /// How long what it said holds, and that it said nothing.
    #[serde(default = "keep")]
    pub keep: Span,
    /// How often to look what a server's directory offers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    refresh: Option<Span>,
}

/// Who is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Whom<'a> {
    /// The server with that directory.
    Server(&'a str),
    /// That program, with its arguments.
    Program(&'a [String]),
}

impl DelegateConfig {
    /// Who is asked.
    ///
    /// # Errors
    /// If that is nobody, or not one.
    pub fn whom(&self) -> Result<Whom<'_>, String> {
        match (&self.url, &self.command[..]) {
            (Some(Source::Page(url)), []) => Ok(Whom::Server(url)),
            (None, command @ [_, ..]) => Ok(Whom::Program(command)),
            (Some(Source::File(_)), _) => Err("`url` is no http or https URL of a directory".into()),
            _ => Err("name either the `url` of a directory or a `command`".into()),
        }
    }

    /// What it is asked for; nothing: what it offers.
    pub fn askable(&self) -> Askable {
        Askable { metrics: self.metrics.clone(), properties: self.properties.clone() }
    }

    /// How often its directory is read, which is not more often than once a second.
    pub fn refresh(&self) -> Duration {
        self.refresh.map_or(REFRESH_OF_PAGES, |span| span.0.max(SHORTEST_REFRESH))
    }

    /// What contradicts itself in these settings.
    ///
    /// # Errors
    /// For people: what, and what to do.
    pub fn check(&self) -> Result<(), String> {
        let is_program = matches!(self.whom()?, Whom::Program(_));
        match () {
            () if is_program && self.askable().is_empty() => {
                Err("say what the program can be asked for: `metrics` or `properties`".into())
            }
            () if self.wait.0 > LONGEST_WAIT => {
                Err(format!("`wait` is {}, and {} at most", self.wait, Span(LONGEST_WAIT)))
            }
            () if self.keep.0 < SHORTEST_KEEP => {
                Err(format!("`keep` is {}, and {} at least", self.keep, Span(SHORTEST_KEEP)))
            }
            () if self.keep.0 > LONGEST_KEEP => {
                Err(format!("`keep` is {}, and {} at most", self.keep, Span(LONGEST_KEEP)))
            }
            () => Ok(()),
        }
    }
}

fn wait() -> Span {
    Span(Duration::from_secs(2))
}

fn keep() -> Span {
    Span(Duration::from_secs(5 * 60))
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
        assert_eq!(server.whom(), Ok(Whom::Server("https://alto.example/directory")));
        assert!(server.askable().is_empty());
        assert_eq!(config("url = 'http://h/'\nrefresh = '0s'").unwrap().refresh(), SHORTEST_REFRESH);
        assert_eq!((server.wait.0.as_secs(), server.keep.0.as_secs()), (2, 300));
        let program = config("command = ['ask', 'it']\nmetrics = ['delay-ow']\nwait = '500ms'").unwrap();
        assert_eq!(program.whom(), Ok(Whom::Program(&["ask".into(), "it".into()])));
        assert_eq!(program.askable().metrics.len(), 1);
    }

    #[test]
    fn settings_that_contradict_themselves_are_told() {
        for (text, told) in [
            ("", "name either the `url`"),
            ("url = 'http://h/'\ncommand = ['x']", "name either the `url`"),
            ("url = 'directory.json'", "no http or https URL"),
            ("command = ['x']", "say what the program can be asked for"),
            ("url = 'http://h/'\nwait = '2m'", "`wait` is 2m, and 1m at most"),
            ("url = 'http://h/'\nkeep = '5s'", "`keep` is 5s, and 30s at least"),
            ("url = 'http://h/'\nkeep = '31d'", "and 30d at most"),
            ("url = 'http://h/'\nmetrics = ['a b']", "'a b' is no cost metric"),
            ("url = 'http://h/'\nwhat = 1", "unknown field `what`"),
        ] {
            let error = config(text).unwrap_err();
            assert!(error.contains(told), "{text}: {error}");
        }
    }
}
