//! Agents: what knows the network, each a task of its own that tells what it knows, and the one place where that comes together.
//!
//! ```text
//! asked: files, servers ──┐
//! program: lines ─────────┼── Report ──► Agents ── facts of all ──► a new world
//! bmp: routers ───────────┤
//! delegate: what to ask ──┘
//! ```
//!
//! A task tells all that its agent knows, each time, or what is wrong; then what it knew before holds, and is *stale*. So it is if what it tells makes no world with the rest ([`news`]). [`Agents`] keep the last word of each and know
//! which PIDs all of them tell, by which results of measurements are understood. Who fails is asked, or started, less often.
//!
//! With a [`Snapshot`], what agents told an earlier server holds from the start, and is stale until they tell something themselves.

mod asked;
mod bmp;
mod delegate;
mod news;
mod pauses;
mod program;

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
use towpath_alto::{facts::Facts, names::Tag};
use towpath_store::sys::clock;

use self::{asked::Asked, bmp::Collector, delegate::Delegated, news::Told};
use super::{
    desk::Desk,
    settings::agent::AgentConfig,
    snapshot::{self, Known, Remembered, Snapshot},
    sources::{Knowledge, Pids},
};
/// Name of an agent whose facts may be out of date, and since when, from the Unix epoch.
pub type Stale<'a> = (&'a str, Duration);

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
        facts: impl Iterator<Item = &'a Facts>,
        stale: impl Iterator<Item = Stale<'a>>,
    ) -> Result<(), Self::Fault>;

    /// Checks facts without using them.
    ///
    /// # Errors
    /// If the facts contradict each other.
    fn would_renew<'a>(&self, facts: impl Iterator<Item = &'a Facts>) -> Result<(), Self::Fault>;

    /// Waits until the facts in use have other values because time has passed; for ever if they never will.
    fn until_over(&self) -> impl Future<Output = ()> + Send;

    /// Updates values that depend on time. May block as [`Self::renew`].
    fn go_on(&self);
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

/// Reports that may wait to be taken: an agent that tells faster than worlds are made waits.
const WAITING_REPORTS: usize = 16;

/// What agents are started for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// To answer from what they know.
    Serve,
    /// To see whether they work. None of them listens: where they would, a server may do so.
    Check,
}

impl Purpose {
    /// How long to wait for agents that tell when they like: a server should start, a proof should be whole.
    fn patience(self) -> Duration {
        match self {
            Purpose::Serve => Duration::from_secs(10),
            Purpose::Check => Duration::from_secs(60),
        }
    }
}

/// What an agent tells.
#[derive(Debug)]
struct Report {
    /// Its number.
    agent: usize,
    /// All that it knows; none if that is what it told before.
    knowledge: Option<Knowledge>,
    /// What is wrong with it; none if what it knows is as the network is.
    trouble: Option<String>,
}

/// How an agent's task tells.
#[derive(Debug)]
struct Teller {
    agent: usize,
    name: Arc<str>,
    reports: mpsc::Sender<Report>,
}

impl Teller {
    /// Waits until there is room. Nobody listens when the server ends, which is no concern of agents.
    async fn tell(&self, knowledge: Option<Knowledge>, trouble: Option<String>) {
        let _ = self.reports.send(Report { agent: self.agent, knowledge, trouble }).await;
    }
}

/// How an agent comes to tell something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Manner {
    /// It is asked.
    Asked,
    /// It tells when it likes, and soon after its start for the first time.
    Tells,
    /// It tells what others tell it, who may never come.
    Listens,
}

/// One agent with what it last told.
#[derive(Debug)]
struct Agent {
    name: Arc<str>,
    manner: Manner,
    /// A digest of its settings, if the snapshot is to have what it tells.
    settings: Option<Tag>,
    has_told: bool,
    /// Whether its facts are what it told an earlier server.
    is_remembered: bool,
    /// Whether something is known of it: its task notes that it told something, and has to know what is forgotten.
    knows: Arc<AtomicBool>,
    told: Told,
    /// What it told since, which is not taken yet, or makes no world with what others tell.
    news: Option<Told>,
    /// Why it makes none.
    misfit: Option<String>,
    trouble: Option<String>,
    /// Since when something is wrong with it, or it was not heard, in seconds since the Unix epoch.
    stale_since_s: Option<i64>,
}

/// All agents, in the order in which what they say holds.
#[derive(Debug)]
pub struct Agents {
    agents: Vec<Agent>,
    /// Of those that are asked when a request comes.
    desks: Vec<Arc<Desk>>,
    reports: mpsc::Receiver<Report>,
    /// Tells those that are asked to ask all anew, and those that listen to forget who will not come again.
    anew: watch::Sender<()>,
    tasks: Vec<AbortOnDropHandle<()>>,
    /// The PIDs by which results of measurements were understood.
    pids: Pids,
    /// Whether one of them told something else, or began or ceased to be stale, since [`Agents::renew`].
    has_news: bool,
    snapshot: Option<Snapshot>,
}

impl Agents {
    /// Starts them; what that snapshot has of them holds at once. To be called within a runtime of several threads.
    ///
    /// # Errors
    /// For settings that contradict themselves, and an address that cannot be listened on; then none is started.
    pub fn start(
        configs: &BTreeMap<String, AgentConfig>,
        purpose: Purpose,
        snapshot: Option<&Path>,
    ) -> Result<Self, AgentsError> {
        let read = |path| block_in_place(|| snapshot::read(path, configs));
        let mut remembered = snapshot.map(read).unwrap_or_default();
        let (sender, reports) = mpsc::channel(WAITING_REPORTS);
        let (anew, asks_anew) = watch::channel(());
        let client = Arc::new(asked::client());
        let (mut agents, mut desks, mut lives) = (Vec::new(), Vec::new(), Vec::new());
        for (name, config) in configs {
            config.check().map_err(|fault| AgentsError::Settings(format!("agent {name}: {fault}")))?;
            let remembered = remembered.remove(name);
            let knows = Arc::new(AtomicBool::new(remembered.is_some()));
            let name: Arc<str> = name.as_str().into();
            let teller = Teller { agent: agents.len(), name: Arc::clone(&name), reports: sender.clone() };
            let (manner, life) = match config {
                AgentConfig::Program { command } => (Manner::Tells, program::run(command.clone(), teller).boxed()),
                AgentConfig::Bmp { .. } if purpose == Purpose::Check => (Manner::Listens, ready(()).boxed()),
                AgentConfig::Bmp { listen, from, settle, hold } => {
                    let earlier = remembered.as_ref().map(|known| known.facts.routers.clone()).unwrap_or_default();
                    let collector = Collector::bind(&name, *listen, from, [settle.0, hold.0], earlier);
                    let refused =
                        |error| AgentsError::Unavailable(format!("agent {name}: cannot listen on {listen}: {error}"));
                    (Manner::Listens, collector.map_err(refused)?.run(teller, asks_anew.clone()).boxed())
                }
                AgentConfig::Delegate(config) => {
                    let desk = Arc::new(Desk::new(config.wait.0, config.keep.0));
                    desks.push(Arc::clone(&desk));
                    let (config, client) = (config.clone(), Arc::clone(&client));
                    let delegated = Delegated { config, desk, client, purpose };
                    (Manner::Tells, delegated.run(teller, asks_anew.clone()).boxed())
                }
                config => {
                    let asked = Asked::new(config, Arc::clone(&client), Arc::clone(&knows));
                    (Manner::Asked, asked.run(teller, asks_anew.clone()).boxed())
                }
            };
            agents.push(Agent::new(name, manner, snapshot::settings(config), knows).remembering(remembered));
            lives.push(life);
        }
        // Only now: nothing runs unless all can.
        let tasks = lives.into_iter().map(|life| AbortOnDropHandle::new(tokio::spawn(life))).collect();
        let snapshot = snapshot.map(Snapshot::new);
        Ok(Self { agents, desks, reports, anew, tasks, pids: Pids::default(), has_news: false, snapshot })
    }

    /// Waits until each has told something, to this server or an earlier one, or [`Purpose::patience`] is over: to serve, those that are asked are waited for all the same.
    pub async fn gather(&mut self, purpose: Purpose) {
        let deadline = clock::now() + purpose.patience();
        loop {
            let is_late = clock::now() >= deadline;
            if !self.agents.iter().any(|agent| agent.is_waited_for(purpose, is_late)) {
                break;
            }
            tokio::select! {
                reports = Self::hear(&mut self.reports) => drop(self.take(reports)),
                () = sleep_until(deadline), if !is_late => {}
            }
        }
        self.take_news(&self.who_waits(|_| true));
        self.has_news = false;
    }

    /// What is wrong with those that are asked and never told anything, and with the others.
    pub fn troubles(&self) -> (Vec<String>, Vec<String>) {
        let told = |agent: &Agent| {
            let is_silent = !agent.has_told && !agent.is_remembered && agent.manner != Manner::Listens;
            let trouble = agent.trouble.as_deref().or(is_silent.then_some("it has told nothing yet"))?;
            let is_needed = agent.manner == Manner::Asked && !agent.knows.load(Ordering::Relaxed);
            Some((is_needed, format!("agent {}: {trouble}", agent.name)))
        };
        let (asked, others): (Vec<_>, Vec<_>) =
            self.agents.iter().filter_map(told).partition(|(is_needed, _)| *is_needed);
        let texts = |troubles: Vec<(bool, String)>| troubles.into_iter().map(|(_, text)| text).collect();
        (texts(asked), texts(others))
    }

    /// What they know.
    pub fn facts(&self) -> impl Iterator<Item = &Facts> {
        self.agents.iter().map(|agent| &agent.told.facts)
    }

    /// Where those are asked that are when a request comes, in the order in which what they say holds.
    pub fn desks(&self) -> Vec<Arc<Desk>> {
        self.desks.clone()
    }

    /// Those of which something is wrong, so that what they know may not be as the network is.
    pub fn stale(&self) -> impl Iterator<Item = Stale<'_>> {
        let since = |agent: &Agent| u64::try_from(agent.stale_since_s?).ok().map(Duration::from_secs);
        self.agents.iter().filter_map(move |agent| Some((&*agent.name, since(agent)?)))
    }

    /// Forgets what was told to an earlier server only, so that it is waited for, and asked for anew. Whether there was such.
    pub fn forget_remembered(&mut self) -> bool {
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

    /// Writes the snapshot for the last time, if there is to be one.
    async fn finish_snapshot(&mut self) {
        if let Some(snapshot) = &mut self.snapshot {
            snapshot.finish(block_in_place(|| known(&self.agents))).await;
        }
    }

    /// Takes what agents told, and answers from it if that is news, or if time has made costs others.
    fn attend(&mut self, reports: Vec<Report>, answers: &impl Consumer) {
        self.take(reports).iter().for_each(|trouble| tracing::error!("{trouble}; what it knew before holds"));
        if self.renew(answers) {
            self.snapshot.iter_mut().for_each(Snapshot::note_news);
        }
        answers.go_on();
        if let Some(snapshot) = self.snapshot.as_mut().filter(|snapshot| snapshot.is_due()) {
            snapshot.begin(known(&self.agents));
        }
    }

    /// Ends them, and all programs that were started.
    pub async fn end(self) {
        self.tasks.iter().for_each(AbortOnDropHandle::abort);
        for task in self.tasks {
            // It was aborted.
            let _ = task.await;
        }
    }

    /// Has those that are asked ask all anew, also what looks as it did.
    fn ask_anew(&self) {
        tracing::info!("told to read anew");
        self.anew.send_replace(());
    }

    /// What agents tell next: one report, and all others that wait.
    async fn hear(reports: &mut mpsc::Receiver<Report>) -> Vec<Report> {
        let mut heard = Vec::new();
        if reports.recv_many(&mut heard, WAITING_REPORTS).await == 0 {
            // None of them says anything any more.
            std::future::pending::<()>().await;
        }
        heard
    }

    /// Takes note of what agents told. What is wrong that was not wrong in the same way before.
    fn take(&mut self, reports: Vec<Report>) -> Vec<String> {
        let mut troubles = Vec::new();
        for Report { agent, knowledge, trouble } in reports {
            let agent = &mut self.agents[agent];
            agent.has_told = true;
            self.has_news |= knowledge.is_some_and(|knowledge| agent.learn(knowledge));
            troubles.extend(agent.note(trouble));
        }
        troubles
    }
}

impl Agent {
    fn new(name: Arc<str>, manner: Manner, settings: Option<Tag>, knows: Arc<AtomicBool>) -> Self {
        Self {
            name,
            manner,
            settings,
            has_told: false,
            is_remembered: false,
            knows,
            told: Told::default(),
            news: None,
            misfit: None,
            trouble: None,
            stale_since_s: None,
        }
    }

    /// The same with what it told an earlier server, if it told something.
    fn remembering(self, remembered: Option<Remembered>) -> Self {
        let Some(Remembered { facts, since_s }) = remembered else { return self };
        tracing::info!("agent {}: what it told an earlier server holds until it tells something", self.name);
        Self { told: Told::from(facts), stale_since_s: Some(since_s), is_remembered: true, ..self }
    }

    /// Forgets what it told an earlier server. If it is asked, and told nothing else since, what it says next counts: it may have been refused because it says less.
    fn forget(&mut self) {
        self.told = Told::default();
        self.is_remembered = false;
        if self.manner == Manner::Asked && self.news.is_none() {
            self.knows.store(false, Ordering::Relaxed);
            (self.has_told, self.trouble) = (false, None);
        }
        self.stale_since_s = self.trouble.as_ref().map(|_| clock::unix_s());
    }

    /// What the snapshot is to have of it; none if that is nothing.
    fn known(&self) -> Option<Known> {
        let settings = self.settings.clone().filter(|_| self.told.facts != Facts::default())?;
        let (agent, facts) = (Arc::clone(&self.name), self.told.facts.clone());
        Some(Known { agent, settings, stale_since_s: self.stale_since_s, facts })
    }

    /// Whether what it tells first is waited for.
    fn is_waited_for(&self, purpose: Purpose, is_late: bool) -> bool {
        let is_needed = match self.manner {
            Manner::Asked => purpose == Purpose::Serve || !is_late,
            Manner::Tells => !is_late,
            Manner::Listens => false,
        };
        is_needed && !self.has_told && !self.is_remembered
    }

    /// Notes what is wrong with it now; gives that back if it was not wrong in the same way before.
    fn note(&mut self, trouble: Option<String>) -> Option<String> {
        let is_new = trouble != self.trouble;
        self.trouble = trouble;
        self.trouble.as_ref().filter(|_| is_new).map(|trouble| format!("agent {}: {trouble}", self.name))
    }
}

/// Looks after agents until `stopping`, writes the snapshot, and ends them. They ask all anew at SIGHUP.
pub async fn mind(mut agents: Agents, answers: Arc<impl Consumer>, mut hangups: Signal, stopping: CancellationToken) {
    // A new world takes time where much is followed, and meanwhile nobody begins to follow. So as long as the last one took there is none.
    let mut rested = clock::now();
    loop {
        let reports = tokio::select! {
            () = stopping.cancelled() => break,
            _ = hangups.recv() => {
                agents.ask_anew();
                continue;
            }
            () = until_due(agents.snapshot.as_mut()) => Vec::new(),
            () = async { tokio::join!(sleep_until(rested), answers.until_over()); } => Vec::new(),
            reports = async { sleep_until(rested).await; Agents::hear(&mut agents.reports).await } => reports,
        };
        let began = clock::now();
        let minded = Arc::clone(&answers);
        let minding = tokio::task::spawn_blocking(move || {
            agents.attend(reports, &*minded);
            agents
        });
        agents = match minding.await {
            Ok(agents) => agents,
            Err(error) => return tracing::error!(%error, "agents are not looked after any more, which is a defect"),
        };
        rested = clock::now() + (clock::now() - began);
    }
    agents.finish_snapshot().await;
    agents.end().await;
}

/// What the snapshot is to have of all of them. Routes are not copied for it.
fn known(agents: &[Agent]) -> Vec<Known> {
    agents.iter().filter_map(Agent::known).collect()
}

/// Waits until the snapshot is to be written; for ever if there is to be none.
async fn until_due(snapshot: Option<&mut Snapshot>) {
    match snapshot {
        Some(snapshot) => snapshot.until_due().await,
        None => std::future::pending().await,
    }
}
