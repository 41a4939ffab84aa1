//! What agents told and is not answered from yet.
//!
//! News of one agent may contradict what others tell: a PID has gone of which another one tells costs. Then it alone keeps what it knew before, and is stale; what the others tell is taken.
//! Its news is tried again whenever an agent tells something else.

use std::mem;

use towpath_alto::facts::Facts;
use towpath_store::sys::clock;

use super::{Agent, Agents};
use crate::alto::{
    answers::Answers,
    sources::{Knowledge, Pids, Results},
};

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
    pub(super) fn renew(&mut self, answers: &Answers) -> bool {
        self.note_stale();
        if !mem::take(&mut self.has_news) {
            return false;
        }
        let earlier = self.take_news();
        if let Err(fault) = answers.renew(self.facts(), self.stale()) {
            let whose: Vec<usize> = earlier.iter().map(|(number, _)| *number).collect();
            for (number, earlier) in earlier {
                self.agents[number].leave_aside(earlier);
            }
            self.take_what_fits(whose, answers);
            if let Err(again) = answers.renew(self.facts(), self.stale()) {
                tracing::error!("{fault}; without what agents told last, {again}; the world before holds");
            }
        }
        self.agents.iter_mut().filter(|agent| agent.news.is_none()).for_each(|agent| agent.misfit = None);
        self.has_news = false;
        true
    }

    /// Takes the news of all agents. What they were before, by their numbers.
    pub(super) fn take_news(&mut self) -> Vec<(usize, Earlier)> {
        let agents = self.agents.iter_mut().enumerate();
        let earlier = agents.filter_map(|(number, agent)| Some((number, agent.take_news()?))).collect();
        self.note_stale();
        self.put_together();
        earlier
    }

    /// Takes the news of these agents one after the other, as far as it makes a world with the rest.
    fn take_what_fits(&mut self, mut agents: Vec<usize>, answers: &Answers) {
        loop {
            let count = agents.len();
            agents.retain(|agent| !self.takes(*agent, answers));
            // What was taken may be what others need.
            if agents.is_empty() || agents.len() == count {
                break;
            }
        }
        self.note_stale();
        self.put_together();
    }

    /// Takes the news of an agent, if it makes a world with what all others were taken to know. Whether it does.
    fn takes(&mut self, number: usize, answers: &Answers) -> bool {
        let Some(earlier) = self.agents[number].take_news() else { return true };
        self.put_together();
        let fits = answers.would_renew(self.facts());
        if let Err(fault) = &fits {
            let agent = &mut self.agents[number];
            agent.leave_aside(earlier);
            agent.note_misfit(fault.to_string());
        }
        fits.is_ok()
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
