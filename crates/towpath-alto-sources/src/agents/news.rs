//! Reports of agents that have not been applied yet.
//!
//! New facts of one agent may conflict with those of others: it drops a PID for which another agent has costs. Then
//! only that agent keeps its previous facts and is stale; the reports of the others are applied, even if they fit only
//! together. A conflicting report is retried whenever another agent reports, after the new reports.

use std::{iter, mem};

use towpath_alto::agent_state::AgentState;
use towpath_store::sys::clock;

use super::{Agent, Agents, Consumer};
use crate::sources::{AgentData, Pids, Results};

/// Facts reported by an agent.
#[derive(Debug, Default)]
pub(super) struct FactReport {
    pub(super) facts: AgentState,
    /// The measurements that the facts derive from, if any.
    results: Option<Results>,
    /// Whether the facts match these measurements and the current PIDs.
    is_understood: bool,
}

/// State of an agent before its news was applied.
pub(super) struct PreviousState {
    reported: FactReport,
    is_remembered: bool,
    stale_since_s: Option<i64>,
}

impl From<AgentState> for FactReport {
    fn from(facts: AgentState) -> Self {
        Self { facts, ..Self::default() }
    }
}

impl From<AgentData> for FactReport {
    fn from(agent_data: AgentData) -> Self {
        match agent_data {
            AgentData::AgentState(facts) => Self::from(*facts),
            AgentData::Results(results) => Self { results: Some(results), ..Self::default() },
        }
    }
}

impl FactReport {
    /// Returns whether the facts equal `agent_data`.
    fn is(&self, agent_data: &AgentData) -> bool {
        match agent_data {
            AgentData::AgentState(facts) => self.results.is_none() && **facts == self.facts,
            AgentData::Results(results) => self.results.as_ref() == Some(results),
        }
    }

    /// Derives the facts from measurements if outdated.
    fn understand(&mut self, pids: &Pids) {
        if let Some(results) = self.results.as_ref().filter(|_| !self.is_understood) {
            self.facts = results.facts(pids);
        }
        self.is_understood = true;
    }
}

impl Agents {
    /// Updates the responses if facts changed, and returns whether they did. Conflicting news is set aside and logged.
    pub(super) fn renew(&mut self, answers: &impl Consumer) -> bool {
        self.note_stale();
        if !mem::take(&mut self.has_news) {
            return false;
        }
        // Agents with an earlier conflict most likely still have it.
        let fresh = self.agents_with_news(|agent| agent.misfit.is_none());
        let earlier = self.take_news(&fresh);
        let outcome = answers.renew(self.facts(), self.stale());
        if outcome.is_err() {
            self.set_news_aside(earlier);
        }
        let has_taken_more = self.take_compatible_news(answers);
        if outcome.is_err() || has_taken_more {
            self.note_stale();
            if let Err(fault) = answers.renew(self.facts(), self.stale()) {
                tracing::error!("without the latest reports, {fault}; keeping the previous network state");
            }
        }
        self.agents.iter_mut().filter(|agent| agent.news.is_none()).for_each(|agent| agent.misfit = None);
        self.has_news = false;
        true
    }

    /// Returns the agents that have news and satisfy `holds`.
    pub(super) fn agents_with_news(&self, holds: impl Fn(&Agent) -> bool) -> Vec<usize> {
        let agents = self.agents.iter().enumerate();
        agents.filter(|(_, agent)| agent.news.is_some() && holds(agent)).map(|(number, _)| number).collect()
    }

    /// Applies the news of these agents and returns their previous state.
    pub(super) fn take_news(&mut self, whose: &[usize]) -> Vec<(usize, PreviousState)> {
        let take = |number: &usize| Some((*number, self.agents[*number].take_news()?));
        let earlier = whose.iter().filter_map(take).collect();
        self.note_stale();
        self.derive_facts();
        earlier
    }

    /// Restores the previous state of these agents and sets their news aside.
    fn set_news_aside(&mut self, earlier: Vec<(usize, PreviousState)>) {
        for (number, earlier) in earlier {
            self.agents[number].set_news_aside(earlier);
        }
        self.derive_facts();
    }

    /// Applies all pending news that fits the known facts. Returns whether there was any, and records the conflicts of
    /// the rest.
    fn take_compatible_news(&mut self, answers: &impl Consumer) -> bool {
        let mut has_taken = false;
        loop {
            let mut waiting = self.agents_with_news(|agent| agent.misfit.is_some());
            waiting.extend(self.agents_with_news(|agent| agent.misfit.is_none()));
            let mut faults = Vec::new();
            let is_taken = attempts(&waiting).any(|whose| match self.try_news(&whose, answers) {
                Ok(()) => true,
                Err(fault) => {
                    faults.extend(whose.first().filter(|_| whose.len() == 1).map(|number| (*number, fault)));
                    false
                }
            });
            // The applied news may resolve other conflicts.
            if is_taken {
                has_taken = true;
                continue;
            }
            faults.into_iter().for_each(|(number, fault)| self.agents[number].note_misfit(fault.to_string()));
            return has_taken;
        }
    }

    /// Applies the news of these agents if it fits the applied facts of all others.
    ///
    /// # Errors
    /// Returns the conflict; the news is set aside then.
    fn try_news<C: Consumer>(&mut self, whose: &[usize], answers: &C) -> Result<(), C::Fault> {
        let earlier = self.take_news(whose);
        let fits = answers.check_facts(self.facts());
        if fits.is_err() {
            self.set_news_aside(earlier);
        }
        fits
    }

    /// Derives the facts of all agents from their applied reports.
    fn derive_facts(&mut self) {
        let mut pids = Pids::default();
        for (map, names) in self.agents.iter().flat_map(|agent| &agent.reported.facts.network_map) {
            pids.entry(map.clone()).or_default().extend(names.keys().cloned());
        }
        if pids != self.pids {
            self.pids = pids;
            self.agents.iter_mut().for_each(|agent| agent.reported.is_understood = false);
        }
        self.agents.iter_mut().for_each(|agent| agent.reported.understand(&self.pids));
    }

    /// Updates the staleness of all agents.
    fn note_stale(&mut self) {
        for agent in &mut self.agents {
            let was_stale = agent.stale_since_s.is_some();
            agent.note_stale();
            self.has_news |= agent.stale_since_s.is_some() != was_stale;
        }
    }
}

/// Returns the combinations of pending news to try: all, all but one (starting without the first), and single ones.
fn attempts(waiting: &[usize]) -> impl Iterator<Item = Vec<usize>> {
    let without = |one: &usize| waiting.iter().copied().filter(|other| other != one).collect();
    // With two, all but one is already a single one.
    let count = match waiting.len() {
        0 => 0,
        1 => 1,
        2 => 3,
        many => 1 + 2 * many,
    };
    iter::once(waiting.to_vec())
        .chain(waiting.iter().map(without))
        .chain(waiting.iter().map(|one| vec![*one]))
        .take(count)
}

impl Agent {
    /// Stores the agent's latest facts. Returns whether they differ from its last report.
    pub(super) fn learn(&mut self, agent_data: AgentData) -> bool {
        let is_new = !self.news.as_ref().unwrap_or(&self.reported).is(&agent_data);
        if self.reported.is(&agent_data) {
            (self.news, self.misfit, self.is_remembered) = (None, None, false);
        } else if is_new {
            self.news = Some(agent_data.into());
        }
        is_new
    }

    /// Applies the agent's news, if any, and returns the previous state.
    fn take_news(&mut self) -> Option<PreviousState> {
        let reported = mem::replace(&mut self.reported, self.news.take()?);
        self.reported.is_understood = false;
        let is_remembered = mem::take(&mut self.is_remembered);
        Some(PreviousState { reported, is_remembered, stale_since_s: self.stale_since_s })
    }

    /// Restores the previous state and sets the news aside.
    fn set_news_aside(&mut self, earlier: PreviousState) {
        self.news = Some(mem::replace(&mut self.reported, earlier.reported));
        self.reported.is_understood = false;
        (self.is_remembered, self.stale_since_s) = (earlier.is_remembered, earlier.stale_since_s);
    }

    /// Stores the conflict of its news, and logs it if new.
    fn note_misfit(&mut self, fault: String) {
        if self.misfit.as_ref() != Some(&fault) {
            tracing::error!("agent {}: its latest facts are invalid: {fault}; keeping its previous facts", self.name);
        }
        self.misfit = Some(fault);
    }

    /// Updates since when the agent's facts may be out of date.
    fn note_stale(&mut self) {
        let is_stale = self.trouble.is_some() || self.news.is_some() || self.is_remembered;
        self.stale_since_s = is_stale.then(|| self.stale_since_s.unwrap_or_else(clock::unix_s));
    }
}
