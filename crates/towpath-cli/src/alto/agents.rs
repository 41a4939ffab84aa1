//! Agents: what reads facts, and looks whether they have changed.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use tokio::signal::unix::Signal;
use towpath_alto::facts::Facts;
use towpath_store::sys::clock::{self, Instant};

use super::{answers::Answers, settings::AgentConfig, sources::Fingerprint};

/// No agent reads more often, whatever its settings say.
const SHORTEST: Duration = Duration::from_millis(100);

/// One agent with what it last knew.
#[derive(Debug)]
struct Agent {
    name: String,
    config: AgentConfig,
    /// What its files were when they were last read.
    read: Option<Fingerprint>,
    /// When to look at them again.
    due: Instant,
    facts: Facts,
    /// Why its last reading failed.
    failure: Option<String>,
}

/// All agents, in the order in which what they say holds.
#[derive(Debug)]
pub(super) struct Agents {
    agents: Vec<Agent>,
    /// How often one of them knew something else.
    changes: u64,
}

impl Agents {
    /// Agents that know nothing yet.
    pub(super) fn new(configs: &BTreeMap<String, AgentConfig>) -> Self {
        let agent = |(name, config): (&String, &AgentConfig)| Agent {
            name: name.clone(),
            config: config.clone(),
            read: None,
            due: clock::now(),
            facts: Facts::default(),
            failure: None,
        };
        Self { agents: configs.iter().map(agent).collect(), changes: 0 }
    }

    /// What they know.
    pub(super) fn facts(&self) -> impl Iterator<Item = &Facts> {
        self.agents.iter().map(|agent| &agent.facts)
    }

    /// Has those read anew whose time has come, and tells what fails that did not fail in the same way before. Who fails keeps what it knew.
    pub(super) fn refresh(&mut self) -> Vec<String> {
        let mut failures = Vec::new();
        let now = clock::now();
        for agent in self.agents.iter_mut().filter(|agent| agent.due <= now) {
            agent.due = now + agent.config.refresh().max(SHORTEST);
            let failure = match agent.read() {
                Ok(is_new) => {
                    self.changes += u64::from(is_new);
                    None
                }
                Err(failure) => Some(failure),
            };
            if let Some(failure) = failure.as_ref().filter(|failure| agent.failure.as_ref() != Some(failure)) {
                failures.push(format!("agent {}: {failure}", agent.name));
            }
            agent.failure = failure;
        }
        failures
    }

    /// Has all files read anew, also those that look as they did.
    fn forget_files(&mut self) {
        tracing::info!("told to read anew");
        for agent in &mut self.agents {
            (agent.read, agent.due) = (None, clock::now());
        }
    }

    /// How long until one of them should read anew.
    fn pause(&self) -> Duration {
        let now = clock::now();
        self.agents.iter().map(|agent| agent.due.saturating_duration_since(now)).min().unwrap_or(Duration::MAX)
    }
}

impl Agent {
    /// Reads, and tells whether that brought something new.
    fn read(&mut self) -> Result<bool, String> {
        let fingerprint = self.config.fingerprint()?;
        if self.read.as_ref() == Some(&fingerprint) {
            return Ok(false);
        }
        self.facts = self.config.facts()?;
        // What was written meanwhile has another fingerprint than the one from before.
        self.read = Some(fingerprint);
        Ok(true)
    }
}

/// Looks after agents for ever: now and then, and at once when told to by SIGHUP.
pub(super) async fn mind(mut agents: Agents, answers: Arc<Answers>, mut hangups: Signal) {
    loop {
        tokio::select! {
            () = tokio::time::sleep(agents.pause()) => {}
            _ = hangups.recv() => agents.forget_files(),
        }
        let before = agents.changes;
        let minded = Arc::clone(&answers);
        let refreshed = tokio::task::spawn_blocking(move || {
            agents.refresh().iter().for_each(|error| tracing::error!("{error}; what it knew before holds"));
            if agents.changes > before {
                minded.renew(agents.facts());
            }
            agents
        });
        agents = match refreshed.await {
            Ok(refreshed) => refreshed,
            Err(error) => return tracing::error!(%error, "agents are not looked after any more, which is a defect"),
        };
    }
}
