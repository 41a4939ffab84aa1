//! Agents that are asked when a request comes: another ALTO server, or a program.
//!
//! What is needed comes from the [`Desk`] in rounds; each makes a few questions. Who does not answer is left alone for a while, longer each time; until then requests are answered
//! without it.

mod dialogue;

use std::{future::pending, pin::pin, sync::Arc};

use futures::{StreamExt as _, TryStreamExt as _, stream};
use serde_json::Value;
use tokio::{sync::watch, time::sleep};
use towpath_alto::{
    client::Posting,
    delegation::{Askable, Item, Question, questions},
    facts::Facts,
    lines::MAX_VALUE_BYTES,
    names::{CostMetric, PropertyName},
};
use towpath_client::Client;
use towpath_server::units::Span;
use towpath_store::sys::clock;

use self::dialogue::Dialogue;
use super::{Teller, pauses::Restarts};
use crate::{
    alto::{
        delegates::Desk,
        settings::delegate::{DelegateConfig, Whom},
        sources::Knowledge,
    },
    alto_client::{AltoClient, PATIENCE},
};

/// How many questions of a round another server is asked at a time.
const AT_A_TIME: usize = 4;

/// What is learnt by one question, or by all of a round.
type Told = Vec<(Item, Value)>;

/// An agent that is asked, and what is needed of it.
pub(super) struct Delegated {
    pub(super) config: DelegateConfig,
    pub(super) desk: Arc<Desk>,
    pub(super) client: Arc<Client>,
}

impl Delegated {
    /// Asks what is needed, for ever. What was learnt is forgotten when `anew` changes.
    pub(super) async fn run(self, teller: Teller, mut anew: watch::Receiver<()>) {
        let mut restarts = Restarts::default();
        loop {
            let began = clock::now();
            let trouble = match self.open(&teller.name).await {
                Ok(mut source) => self.serve(&mut source, &teller, &mut anew).await,
                Err(trouble) => Some(trouble),
            };
            let Some(trouble) = trouble else { continue };
            self.desk.close();
            let pause = restarts.pause(clock::now() - began);
            teller.tell(None, Some(format!("{trouble}; it is asked again in {}", Span(pause)))).await;
            sleep(pause).await;
        }
    }

    /// Asks until it is time to open it anew, or until there is trouble.
    async fn serve(&self, source: &mut Source, teller: &Teller, anew: &mut watch::Receiver<()>) -> Option<String> {
        let askable = match self.offered(source) {
            Ok(askable) => askable,
            Err(trouble) => return Some(trouble),
        };
        self.desk.open(askable.clone());
        teller.tell(Some(Knowledge::of(Facts { askable, ..Facts::default() })), None).await;
        let mut is_due = pin!(sleep(self.config.refresh()));
        loop {
            let items = tokio::select! {
                items = self.desk.next() => items,
                () = &mut is_due, if source.may_change() => return None,
                trouble = source.has_ended() => return Some(trouble),
                told = anew.changed() => {
                    // Else nobody is there any more who could tell: the server ends.
                    told.ok()?;
                    self.desk.forget();
                    match source.may_change() {
                        true => return None,
                        false => continue,
                    }
                }
            };
            match source.ask(questions(items), &teller.name).await {
                Ok(told) => self.desk.settle(told, clock::now()),
                Err(trouble) => return Some(trouble),
            }
        }
    }

    async fn open(&self, name: &Arc<str>) -> Result<Source, String> {
        match self.config.whom()? {
            Whom::Server(url) => {
                let opened = AltoClient::open(Arc::clone(&self.client), url, PATIENCE).await;
                opened.map(Source::Server).map_err(|trouble| trouble.to_string())
            }
            Whom::Program(command) => Dialogue::open(command, name).map(Box::new).map(Source::Program),
        }
    }

    /// What the settings say that it can be asked for; if they say nothing, what it says itself.
    fn offered(&self, source: &Source) -> Result<Askable, String> {
        let wanted = self.config.askable();
        let Source::Server(server) = source else { return Ok(wanted) };
        let offered = server.directory().askable();
        if wanted.is_empty() && offered.is_empty() {
            return Err("the server has neither costs between endpoints nor properties of them".into());
        }
        let metrics = wanted.metrics.difference(&offered.metrics).map(CostMetric::as_str);
        let properties = wanted.properties.difference(&offered.properties).map(PropertyName::as_str);
        let lacks: Vec<&str> = metrics.chain(properties).collect();
        match lacks[..] {
            [] if wanted.is_empty() => Ok(offered),
            [] => Ok(wanted),
            _ => Err(format!("the server has no {}: name what its directory offers of endpoints", lacks.join(", "))),
        }
    }
}

/// Who is asked.
enum Source {
    Server(AltoClient),
    Program(Box<Dialogue>),
}

impl Source {
    /// Whether what it can be asked for may be something else one day.
    fn may_change(&self) -> bool {
        matches!(self, Self::Server(_))
    }

    /// What it says to these questions.
    ///
    /// # Errors
    /// If it does not answer.
    async fn ask(&mut self, questions: Vec<Question>, name: &Arc<str>) -> Result<Told, String> {
        match self {
            Self::Server(server) => {
                let server = &*server;
                let asked = stream::iter(questions).map(|question| ask_server(server, question, name));
                asked.buffer_unordered(AT_A_TIME).try_concat().await
            }
            Self::Program(dialogue) => {
                let mut told = Told::new();
                for question in questions {
                    told.extend(dialogue.ask(&question).await?);
                }
                Ok(told)
            }
        }
    }

    /// Waits until it has ended, and says how; for ever if it is a server.
    async fn has_ended(&mut self) -> String {
        match self {
            Self::Server(_) => pending().await,
            Self::Program(dialogue) => dialogue.has_ended().await,
        }
    }
}

/// What a server says. That it refuses a question is told in the log, and nothing is learnt by it.
async fn ask_server(server: &AltoClient, question: Question, name: &str) -> Result<Told, String> {
    let mut told = Told::new();
    for Posting { resource, asks, input } in server.directory().postings(&question) {
        match server.ask_once(resource, Some(&input)).await {
            Ok(document) => {
                let items = document.told(&asks).into_iter();
                told.extend(items.filter(|(_, value)| is_short(value)));
            }
            Err(trouble) if trouble.is_refusal() => {
                tracing::warn!("agent {name}: {trouble}; nothing is learnt by this question");
            }
            Err(trouble) => return Err(trouble.to_string()),
        }
    }
    Ok(told)
}

/// Whether a value is no longer than those that agents tell.
fn is_short(value: &Value) -> bool {
    value.is_number() || value.to_string().len() <= MAX_VALUE_BYTES
}
