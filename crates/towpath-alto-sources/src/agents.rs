//! Agents: sources of facts about the network. Each runs as a task that reports its facts; [`Agents`] collects the
//! reports.
//!
//! ```text
//! polled: files, servers ─┐
//! program: lines ─────────┼── Report ──► Agents ── facts of all ──► a new network state
//! bmp: routers ───────────┤
//! delegate: its offer ────┘
//! ```
//!
//! A report holds all facts of an agent, or its problem; with a problem the previous facts remain in use and are
//! *stale*. The same applies if the new facts do not fit together with those of the other agents ([`news`]). [`Agents`]
//! keeps the latest report of each agent, and the PIDs of all of them, which measurements refer to. A failing agent is
//! queried, or restarted, less often.
//!
//! With a [`SnapshotWriter`], facts from an earlier run of the server are used from the start, and are stale until the
//! agent reports.

mod bmp;
mod delegate;
mod news;
mod pauses;
mod polled;
mod program;
mod statistics;

use std::{
    collections::BTreeMap,
    fmt::Display,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use futures::future::{FutureExt as _, ready};
use tokio::{
    signal::unix::Signal,
    sync::{mpsc, watch},
    task::block_in_place,
    time::sleep_until,
};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};
use towpath_alto::{agent_state::AgentState, names::Tag};
use towpath_store::sys::clock;

pub use self::statistics::AgentStatistics;
use self::{bmp::Collector, delegate::DelegateAgent, news::FactReport, polled::PolledAgent};
use super::{
    query_batcher::QueryBatcher,
    settings::agent::AgentConfig,
    snapshot::{self, AgentRecord, SnapshotWriter, StoredFacts},
    sources::{AgentData, Pids},
};
/// Name of an agent whose facts may be out of date, and since when, from the Unix epoch.
pub type StaleAgent<'a> = (&'a str, Duration);

/// Receives the facts of all agents.
pub trait Consumer: Send + Sync + 'static {
    /// Why facts cannot be used.
    type Fault: Display;

    /// Replaces the facts in use. May block for as long as a large network takes to build.
    ///
    /// # Errors
    /// If the facts contradict each other; then the previous ones stay in use.
    fn renew<'a>(
        &self,
        facts: impl Iterator<Item = &'a AgentState>,
        stale: impl Iterator<Item = StaleAgent<'a>>,
    ) -> Result<(), Self::Fault>;

    /// Checks facts without using them.
    ///
    /// # Errors
    /// If the facts contradict each other.
    fn check_facts<'a>(&self, facts: impl Iterator<Item = &'a AgentState>) -> Result<(), Self::Fault>;

    /// Waits until the facts in use have other values because time has passed; for ever if they never will.
    fn until_over(&self) -> impl Future<Output = ()> + Send;

    /// Updates values that depend on time. May block as [`Self::renew`].
    fn advance_time(&self);
}

/// Why agents cannot be started.
#[derive(Debug, thiserror::Error)]
pub enum AgentsError {
    /// Settings of an agent contradict each other.
    #[error("{0}")]
    Settings(String),
    /// An agent cannot listen on its address.
    #[error("{0}")]
    Unavailable(String),
}

/// Capacity of the report queue. Agents that report faster than network states are built wait.
const WAITING_REPORTS: usize = 16;

/// Purpose for which agents are started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// To serve requests.
    Serve,
    /// To validate them. None of them listens, because a running server may use the addresses.
    Check,
}

impl Purpose {
    /// Returns how long to wait for agents that report on their own: a server should start soon, a check should be
    /// complete.
    fn patience(self) -> Duration {
        match self {
            Purpose::Serve => Duration::from_secs(10),
            Purpose::Check => Duration::from_secs(60),
        }
    }
}

/// A report of an agent.
#[derive(Debug)]
struct Report {
    /// Index of the agent.
    agent: usize,
    /// All its facts; `None` if they are unchanged.
    agent_data: Option<AgentData>,
    /// Its current problem; `None` if its facts are up to date.
    trouble: Option<String>,
}

/// Sends the reports of one agent.
#[derive(Debug)]
struct AgentHandle {
    agent: usize,
    name: Arc<str>,
    statistics: Arc<AgentStatistics>,
    reports: mpsc::Sender<Report>,
}

impl AgentHandle {
    fn new(agent: usize, name: &Arc<str>, reports: &mpsc::Sender<Report>) -> Self {
        let statistics = Arc::new(AgentStatistics::new(Arc::clone(name)));
        Self { agent, name: Arc::clone(name), statistics, reports: reports.clone() }
    }

    /// Counts the report, and waits for room in the queue. The receiver is gone only when the server stops, which agents can ignore.
    async fn report(&self, agent_data: Option<AgentData>, trouble: Option<String>) {
        self.statistics.record(trouble.is_some());
        let _ = self.reports.send(Report { agent: self.agent, agent_data, trouble }).await;
    }
}

/// How an agent obtains its facts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum UpdateMode {
    /// It is polled.
    Polled,
    /// It reports on its own, for the first time soon after its start.
    Reporting,
    /// It forwards what peers send, which may never connect.
    Listening,
}

/// An agent with its latest report.
#[derive(Debug)]
struct Agent {
    name: Arc<str>,
    update_mode: UpdateMode,
    /// Digest of its settings, if its facts belong in the snapshot.
    settings: Option<Tag>,
    has_reported: bool,
    /// Whether its facts are from the snapshot.
    is_remembered: bool,
    /// Whether any facts of it are known. Set by its task when it reports; the task must notice when they are dropped.
    knows: Arc<AtomicBool>,
    reported: FactReport,
    /// Newer facts that have not been applied, or that conflict with those of other agents.
    news: Option<FactReport>,
    /// The conflict.
    misfit: Option<String>,
    trouble: Option<String>,
    /// Since when it has a problem or has not reported, in seconds since the Unix epoch.
    stale_since_s: Option<i64>,
}

/// All agents, in order of precedence: later ones override earlier ones.
#[derive(Debug)]
pub struct Agents {
    agents: Vec<Agent>,
    statistics: Vec<Arc<AgentStatistics>>,
    /// Query batchers of the delegates.
    query_batchers: Vec<Arc<QueryBatcher>>,
    reports: mpsc::Receiver<Report>,
    /// Signals polled agents to reload, and listening agents to forget peers that do not return.
    anew: watch::Sender<()>,
    tasks: Vec<AbortOnDropHandle<()>>,
    /// The PIDs that measurements were resolved with.
    pids: Pids,
    /// Whether any facts or staleness changed since [`Agents::renew`].
    has_news: bool,
    snapshot: Option<SnapshotWriter>,
}

impl Agents {
    /// Starts the agents with facts from the snapshot. Must be called within a multi-threaded runtime.
    ///
    /// # Errors
    /// Returns an error for contradictory settings or an address that cannot be bound; no agent is started then.
    pub fn start(
        configs: &BTreeMap<String, AgentConfig>,
        purpose: Purpose,
        snapshot: Option<&Path>,
    ) -> Result<Self, AgentsError> {
        let read = |path| block_in_place(|| snapshot::read(path, configs));
        let mut remembered = snapshot.map(read).unwrap_or_default();
        let (sender, reports) = mpsc::channel(WAITING_REPORTS);
        let (anew, reload) = watch::channel(());
        let client = Arc::new(polled::client());
        let (mut agents, mut query_batchers, mut lives) = (Vec::new(), Vec::new(), Vec::new());
        let mut statistics = Vec::new();
        for (name, config) in configs {
            config.check().map_err(|fault| AgentsError::Settings(format!("agent {name}: {fault}")))?;
            let remembered = remembered.remove(name);
            let knows = Arc::new(AtomicBool::new(remembered.is_some()));
            let name: Arc<str> = name.as_str().into();
            let handle = AgentHandle::new(agents.len(), &name, &sender);
            statistics.push(Arc::clone(&handle.statistics));
            let (update_mode, life) = match config {
                AgentConfig::Program { command } => {
                    (UpdateMode::Reporting, program::run(command.clone(), handle).boxed())
                }
                AgentConfig::Bmp { .. } if purpose == Purpose::Check => (UpdateMode::Listening, ready(()).boxed()),
                AgentConfig::Bmp { listen, from, settle, hold } => {
                    let earlier = remembered.as_ref().map(|saved| saved.facts.routers.clone()).unwrap_or_default();
                    let collector = Collector::bind(&name, *listen, from, [settle.0, hold.0], earlier);
                    let refused =
                        |error| AgentsError::Unavailable(format!("agent {name}: cannot listen on {listen}: {error}"));
                    (UpdateMode::Listening, collector.map_err(refused)?.run(handle, reload.clone()).boxed())
                }
                AgentConfig::Delegate(config) => {
                    let query_batcher = Arc::new(QueryBatcher::new(config.wait.0, config.keep.0));
                    query_batchers.push(Arc::clone(&query_batcher));
                    let (config, client) = (config.clone(), Arc::clone(&client));
                    let delegated = DelegateAgent { config, query_batcher, client, purpose };
                    (UpdateMode::Reporting, delegated.run(handle, reload.clone()).boxed())
                }
                config => {
                    let poller = PolledAgent::new(config, Arc::clone(&client), Arc::clone(&knows));
                    (UpdateMode::Polled, poller.run(handle, reload.clone()).boxed())
                }
            };
            agents.push(Agent::new(name, update_mode, snapshot::settings(config), knows).with_snapshot(remembered));
            lives.push(life);
        }
        // Only now, so that no agent runs unless all can.
        let tasks = lives.into_iter().map(|life| AbortOnDropHandle::new(tokio::spawn(life))).collect();
        let snapshot = snapshot.map(SnapshotWriter::new);
        Ok(Self {
            agents,
            statistics,
            query_batchers,
            reports,
            anew,
            tasks,
            pids: Pids::default(),
            has_news: false,
            snapshot,
        })
    }

    /// Waits until each agent has reported, in this run or an earlier one, or [`Purpose::patience`] has passed. For
    /// serving, polled agents are awaited without a limit.
    pub async fn gather(&mut self, purpose: Purpose) {
        let deadline = clock::now() + purpose.patience();
        loop {
            let is_late = clock::now() >= deadline;
            if !self.agents.iter().any(|agent| agent.is_waited_for(purpose, is_late)) {
                break;
            }
            tokio::select! {
                reports = Self::receive(&mut self.reports) => drop(self.take(reports)),
                () = sleep_until(deadline), if !is_late => {}
            }
        }
        self.take_news(&self.agents_with_news(|_| true));
        self.has_news = false;
    }

    /// Returns the problems of polled agents that never reported facts, and those of other agents.
    pub fn troubles(&self) -> (Vec<String>, Vec<String>) {
        let problem = |agent: &Agent| {
            let is_silent = !agent.has_reported && !agent.is_remembered && agent.update_mode != UpdateMode::Listening;
            let trouble = agent.trouble.as_deref().or(is_silent.then_some("no report yet"))?;
            let is_needed = agent.update_mode == UpdateMode::Polled && !agent.knows.load(Ordering::Relaxed);
            Some((is_needed, format!("agent {}: {trouble}", agent.name)))
        };
        let (polled, others): (Vec<_>, Vec<_>) =
            self.agents.iter().filter_map(problem).partition(|(is_needed, _)| *is_needed);
        let texts = |troubles: Vec<(bool, String)>| troubles.into_iter().map(|(_, text)| text).collect();
        (texts(polled), texts(others))
    }

    /// Returns the facts of all agents.
    pub fn facts(&self) -> impl Iterator<Item = &AgentState> {
        self.agents.iter().map(|agent| &agent.reported.facts)
    }

    /// Returns the statistics of all agents.
    pub fn statistics(&self) -> Vec<Arc<AgentStatistics>> {
        self.statistics.clone()
    }

    /// Returns the batchers of the delegates in order of precedence.
    pub fn query_batchers(&self) -> Vec<Arc<QueryBatcher>> {
        self.query_batchers.clone()
    }

    /// Returns the agents whose facts may be out of date.
    pub fn stale(&self) -> impl Iterator<Item = StaleAgent<'_>> {
        let since = |agent: &Agent| u64::try_from(agent.stale_since_s?).ok().map(Duration::from_secs);
        self.agents.iter().filter_map(move |agent| Some((&*agent.name, since(agent)?)))
    }

    /// Drops facts that are only from the snapshot, so that their agents are awaited and polled again. Returns whether
    /// there were any.
    pub fn forget_snapshot_facts(&mut self) -> bool {
        while let Ok(report) = self.reports.try_recv() {
            self.take(vec![report]);
        }
        let was_there = self.agents.iter().any(|agent| agent.is_remembered);
        self.agents.iter_mut().filter(|agent| agent.is_remembered).for_each(Agent::forget);
        if was_there {
            self.anew.send_replace(());
        }
        was_there
    }

    /// Writes the snapshot for the last time, if configured.
    async fn finish_snapshot(&mut self) {
        if let Some(snapshot) = &mut self.snapshot {
            snapshot.finish(block_in_place(|| records(&self.agents))).await;
        }
    }

    /// Applies reports and updates the responses if facts changed or costs changed over time.
    fn attend(&mut self, reports: Vec<Report>, answers: &impl Consumer) {
        self.take(reports).iter().for_each(|trouble| tracing::error!("{trouble}; keeping its previous facts"));
        if self.renew(answers) {
            self.snapshot.iter_mut().for_each(SnapshotWriter::note_news);
        }
        answers.advance_time();
        if let Some(snapshot) = self.snapshot.as_mut().filter(|snapshot| snapshot.is_due()) {
            snapshot.begin(records(&self.agents));
        }
    }

    /// Stops all agents and the programs they started.
    pub async fn end(self) {
        self.tasks.iter().for_each(AbortOnDropHandle::abort);
        for task in self.tasks {
            // It was aborted.
            let _ = task.await;
        }
    }

    /// Makes polled agents reload everything, even if unchanged.
    fn reload_all(&self) {
        tracing::info!("reloading all agents");
        self.anew.send_replace(());
    }

    /// Receives the next report and all others in the queue.
    async fn receive(reports: &mut mpsc::Receiver<Report>) -> Vec<Report> {
        let mut heard = Vec::new();
        if reports.recv_many(&mut heard, WAITING_REPORTS).await == 0 {
            // All agents have stopped reporting.
            std::future::pending::<()>().await;
        }
        heard
    }

    /// Stores reports and returns the problems that are new.
    fn take(&mut self, reports: Vec<Report>) -> Vec<String> {
        let mut troubles = Vec::new();
        for Report { agent, agent_data, trouble } in reports {
            let agent = &mut self.agents[agent];
            agent.has_reported = true;
            self.has_news |= agent_data.is_some_and(|agent_data| agent.learn(agent_data));
            troubles.extend(agent.note(trouble));
        }
        troubles
    }
}

impl Agent {
    fn new(name: Arc<str>, update_mode: UpdateMode, settings: Option<Tag>, knows: Arc<AtomicBool>) -> Self {
        Self {
            name,
            update_mode,
            settings,
            has_reported: false,
            is_remembered: false,
            knows,
            reported: FactReport::default(),
            news: None,
            misfit: None,
            trouble: None,
            stale_since_s: None,
        }
    }

    /// Adds the facts from the snapshot, if any.
    fn with_snapshot(self, remembered: Option<StoredFacts>) -> Self {
        let Some(StoredFacts { facts, since_s }) = remembered else { return self };
        tracing::info!("agent {}: using the facts in the snapshot until it reports", self.name);
        Self { reported: FactReport::from(facts), stale_since_s: Some(since_s), is_remembered: true, ..self }
    }

    /// Drops facts from the snapshot. If the agent is polled and has reported nothing else, its next report counts as
    /// the first, because an earlier one may have been rejected for having less.
    fn forget(&mut self) {
        self.reported = FactReport::default();
        self.is_remembered = false;
        if self.update_mode == UpdateMode::Polled && self.news.is_none() {
            self.knows.store(false, Ordering::Relaxed);
            (self.has_reported, self.trouble) = (false, None);
        }
        self.stale_since_s = self.trouble.as_ref().map(|_| clock::unix_s());
    }

    /// Returns its entry for the snapshot, or `None` if it has no facts.
    fn record(&self) -> Option<AgentRecord> {
        let settings = self.settings.clone().filter(|_| self.reported.facts != AgentState::default())?;
        let (agent, facts) = (Arc::clone(&self.name), self.reported.facts.clone());
        Some(AgentRecord { agent, settings, stale_since_s: self.stale_since_s, facts })
    }

    /// Returns whether to wait for its first report.
    fn is_waited_for(&self, purpose: Purpose, is_late: bool) -> bool {
        let is_needed = match self.update_mode {
            UpdateMode::Polled => purpose == Purpose::Serve || !is_late,
            UpdateMode::Reporting => !is_late,
            UpdateMode::Listening => false,
        };
        is_needed && !self.has_reported && !self.is_remembered
    }

    /// Stores its current problem and returns it if it is new.
    fn note(&mut self, trouble: Option<String>) -> Option<String> {
        let is_new = trouble != self.trouble;
        self.trouble = trouble;
        self.trouble.as_ref().filter(|_| is_new).map(|trouble| format!("agent {}: {trouble}", self.name))
    }
}

/// Processes reports until `stopping`, then writes the snapshot and stops the agents. SIGHUP reloads all of them.
pub async fn run_agents(
    mut agents: Agents,
    answers: Arc<impl Consumer>,
    mut hangups: Signal,
    stopping: CancellationToken,
) {
    // Updating the network state takes long if many responses are followed, and blocks new followers. Pause for as long
    // as the last update took.
    let mut rested = clock::now();
    loop {
        let reports = tokio::select! {
            () = stopping.cancelled() => break,
            _ = hangups.recv() => {
                agents.reload_all();
                continue;
            }
            () = until_due(agents.snapshot.as_mut()) => Vec::new(),
            () = async { tokio::join!(sleep_until(rested), answers.until_over()); } => Vec::new(),
            reports = async { sleep_until(rested).await; Agents::receive(&mut agents.reports).await } => reports,
        };
        let began = clock::now();
        let consumer = Arc::clone(&answers);
        let processing = tokio::task::spawn_blocking(move || {
            agents.attend(reports, &*consumer);
            agents
        });
        agents = match processing.await {
            Ok(agents) => agents,
            Err(error) => return tracing::error!(%error, "internal error: agent reports are no longer processed"),
        };
        rested = clock::now() + (clock::now() - began);
    }
    agents.finish_snapshot().await;
    agents.end().await;
}

/// Returns the snapshot entries of all agents. Routes are shared, not copied.
fn records(agents: &[Agent]) -> Vec<AgentRecord> {
    agents.iter().filter_map(Agent::record).collect()
}

/// Waits until the snapshot is due; never returns if none is configured.
async fn until_due(snapshot: Option<&mut SnapshotWriter>) {
    match snapshot {
        Some(snapshot) => snapshot.until_due().await,
        None => std::future::pending().await,
    }
}
