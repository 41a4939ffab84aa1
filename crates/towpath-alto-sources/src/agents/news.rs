//! What agents told and is not answered from yet.
//!
//! News of one agent may contradict what others tell: a PID has gone of which another one tells costs. Then it alone keeps what it knew before, and is stale; what the others tell is taken, also
//! where only all of theirs together makes a world. Its news is tried again whenever an agent tells something else, after theirs.

use std::{iter, mem};

use towpath_alto::facts::Facts;
use towpath_store::sys::clock;

use super::{Agent, Agents, Consumer};
use crate::sources::{Knowledge, Pids, Results};

/// What an agent told.
#[derive(Debug, Default)]
pub(super) struct Told {
    pub(super) facts: Facts,
    /// What its facts follow from, if it measures.
    results: Option<Results>,
    /// Whether they follow from these results and from the PIDs that there are.
    is_understood: bool,
}

/// What an agent was before its news was taken.
pub(super) struct Earlier {
    told: Told,
    is_remembered: bool,
    stale_since_s: Option<i64>,
}

impl From<Facts> for Told {
    fn from(facts: Facts) -> Self {
        Self { facts, ..Self::default() }
    }
}

impl From<Knowledge> for Told {
    fn from(knowledge: Knowledge) -> Self {
        match knowledge {
            Knowledge::Facts(facts) => Self::from(*facts),
            Knowledge::Results(results) => Self { results: Some(results), ..Self::default() },
        }
    }
}

impl Told {
    /// Whether it is that.
    fn is(&self, knowledge: &Knowledge) -> bool {
        match knowledge {
            Knowledge::Facts(facts) => self.results.is_none() && **facts == self.facts,
            Knowledge::Results(results) => self.results.as_ref() == Some(results),
        }
    }

    /// Makes facts of results, where that was not done yet.
    fn understand(&mut self, pids: &Pids) {
        if let Some(results) = self.results.as_ref().filter(|_| !self.is_understood) {
            self.facts = results.facts(pids);
        }
        self.is_understood = true;
    }
}

impl Agents {
    /// Answers from what agents know now, if that is something else than before. Whether it is. News that makes no world with the rest is left aside, and told in the log.
    pub(super) fn renew(&mut self, answers: &impl Consumer) -> bool {
        self.note_stale();
        if !mem::take(&mut self.has_news) {
            return false;
        }
        // Who contradicted others before most likely does so still.
        let fresh = self.who_waits(|agent| agent.misfit.is_none());
        let earlier = self.take_news(&fresh);
        let outcome = answers.renew(self.facts(), self.stale());
        if outcome.is_err() {
            self.leave_aside(earlier);
        }
        let has_taken_more = self.take_what_fits(answers);
        if outcome.is_err() || has_taken_more {
            self.note_stale();
            if let Err(fault) = answers.renew(self.facts(), self.stale()) {
                tracing::error!("without what agents told last, {fault}; the world before holds");
            }
        }
        self.agents.iter_mut().filter(|agent| agent.news.is_none()).for_each(|agent| agent.misfit = None);
        self.has_news = false;
        true
    }

    /// The numbers of agents whose news is not taken yet and of which that holds.
    pub(super) fn who_waits(&self, holds: impl Fn(&Agent) -> bool) -> Vec<usize> {
        let agents = self.agents.iter().enumerate();
        agents.filter(|(_, agent)| agent.news.is_some() && holds(agent)).map(|(number, _)| number).collect()
    }

    /// Takes the news of these agents. What they were before, by their numbers.
    pub(super) fn take_news(&mut self, whose: &[usize]) -> Vec<(usize, Earlier)> {
        let take = |number: &usize| Some((*number, self.agents[*number].take_news()?));
        let earlier = whose.iter().filter_map(take).collect();
        self.note_stale();
        self.put_together();
        earlier
    }

    /// What these agents knew before holds; what they told since is left aside.
    fn leave_aside(&mut self, earlier: Vec<(usize, Earlier)>) {
        for (number, earlier) in earlier {
            self.agents[number].leave_aside(earlier);
        }
        self.put_together();
    }

    /// Takes the news of all agents that wait, as far as it makes a world with what is known. Whether there was such. Of the others it is noted why theirs makes none.
    fn take_what_fits(&mut self, answers: &impl Consumer) -> bool {
        let mut has_taken = false;
        loop {
            let mut waiting = self.who_waits(|agent| agent.misfit.is_some());
            waiting.extend(self.who_waits(|agent| agent.misfit.is_none()));
            let mut faults = Vec::new();
            let is_taken = attempts(&waiting).any(|whose| match self.takes(&whose, answers) {
                Ok(()) => true,
                Err(fault) => {
                    faults.extend(whose.first().filter(|_| whose.len() == 1).map(|number| (*number, fault)));
                    false
                }
            });
            // What was taken may be what others need.
            if is_taken {
                has_taken = true;
                continue;
            }
            faults.into_iter().for_each(|(number, fault)| self.agents[number].note_misfit(fault.to_string()));
            return has_taken;
        }
    }

    /// Takes the news of these agents, if it makes a world with what all others were taken to know.
    ///
    /// # Errors
    /// If it makes none; then it is left aside.
    fn takes<C: Consumer>(&mut self, whose: &[usize], answers: &C) -> Result<(), C::Fault> {
        let earlier = self.take_news(whose);
        let fits = answers.would_renew(self.facts());
        if fits.is_err() {
            self.leave_aside(earlier);
        }
        fits
    }

    /// Makes facts of all that was told and taken.
    fn put_together(&mut self) {
        let mut pids = Pids::default();
        for (map, names) in self.agents.iter().flat_map(|agent| &agent.told.facts.network_map) {
            pids.entry(map.clone()).or_default().extend(names.keys().cloned());
        }
        if pids != self.pids {
            self.pids = pids;
            self.agents.iter_mut().for_each(|agent| agent.told.is_understood = false);
        }
        self.agents.iter_mut().for_each(|agent| agent.told.understand(&self.pids));
    }

    /// Notes of each since when it is stale, and whether one began or ceased to be.
    fn note_stale(&mut self) {
        for agent in &mut self.agents {
            let was_stale = agent.stale_since_s.is_some();
            agent.note_stale();
            self.has_news |= agent.stale_since_s.is_some() != was_stale;
        }
    }
}

/// Whose news to try together, of those that wait: that of all, that of all but one, beginning without the first, and that of one alone.
fn attempts(waiting: &[usize]) -> impl Iterator<Item = Vec<usize>> {
    let without = |one: &usize| waiting.iter().copied().filter(|other| other != one).collect();
    // Of two, all but one is one alone.
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
    /// Takes note of what it knows now. Whether that is something else than it told last.
    pub(super) fn learn(&mut self, knowledge: Knowledge) -> bool {
        let is_new = !self.news.as_ref().unwrap_or(&self.told).is(&knowledge);
        if self.told.is(&knowledge) {
            (self.news, self.misfit, self.is_remembered) = (None, None, false);
        } else if is_new {
            self.news = Some(knowledge.into());
        }
        is_new
    }

    /// Takes its news, if there is any. What it was before.
    fn take_news(&mut self) -> Option<Earlier> {
        let told = mem::replace(&mut self.told, self.news.take()?);
        self.told.is_understood = false;
        let is_remembered = mem::take(&mut self.is_remembered);
        Some(Earlier { told, is_remembered, stale_since_s: self.stale_since_s })
    }

    /// What it knew before holds; what it told since is left aside.
    fn leave_aside(&mut self, earlier: Earlier) {
        self.news = Some(mem::replace(&mut self.told, earlier.told));
        self.told.is_understood = false;
        (self.is_remembered, self.stale_since_s) = (earlier.is_remembered, earlier.stale_since_s);
    }

    /// Notes why its news makes no world; told in the log if it was not so before.
    fn note_misfit(&mut self, fault: String) {
        if self.misfit.as_ref() != Some(&fault) {
            tracing::error!("agent {}: with what it tells, {fault}; what it knew before holds", self.name);
        }
        self.misfit = Some(fault);
    }

    /// Notes since when what it knows may not be as the network is.
    fn note_stale(&mut self) {
        let is_stale = self.trouble.is_some() || self.news.is_some() || self.is_remembered;
        self.stale_since_s = is_stale.then(|| self.stale_since_s.unwrap_or_else(clock::unix_s));
    }
}
