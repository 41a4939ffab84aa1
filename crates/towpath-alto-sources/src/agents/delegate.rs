//! Delegates: agents queried on demand, either another ALTO server or a program.
//!
//! The [`QueryBatcher`] supplies the needed items in rounds of a few requests, each settled separately. A delegate that
//! does not answer is left alone for a while, longer each time; meanwhile clients are answered without it.

mod program;
#[cfg(test)]
mod tests;

use std::{
    future::{pending, ready},
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use crate::program_protocol::MAX_VALUE_BYTES;
use futures::{StreamExt as _, stream};
use serde_json::Value;
use tokio::{sync::watch, time::sleep};
use towpath_alto::{
    agent_state::AgentState,
    delegation::{DelegateRequest, Item, OnDemandItems},
    names::{CostMetric, PropertyName},
};
use towpath_alto_client::{
    ResourceRequest,
    net::{AltoClient, PATIENCE},
};
use towpath_client::Client;
use towpath_proto::units::HumanDuration;
use towpath_store::sys::clock;

use self::program::DelegateProgram;
use super::{AgentHandle, Purpose, pauses::RestartBackoff};
use crate::{
    query_batcher::QueryBatcher,
    settings::delegate::{DelegateBackend, DelegateConfig},
    sources::AgentData,
};

/// Maximum number of concurrent requests to a server within a round.
const AT_A_TIME: usize = 4;

/// Values learned from one request.
type ReportedValues = Vec<(Item, Value)>;

/// Why a request has no complete answer, as a message.
#[derive(Debug)]
enum QueryFailure {
    /// The answer is partial, possibly because of the request itself: the remaining items count as unknown.
    Partial(ReportedValues, String),
    /// The delegate is unreachable, so that the request must be repeated.
    Unreachable(String),
}

/// A delegate and the items needed from it.
pub(super) struct DelegateAgent {
    pub(super) config: DelegateConfig,
    pub(super) query_batcher: Arc<QueryBatcher>,
    pub(super) client: Arc<Client>,
    pub(super) purpose: Purpose,
}

impl DelegateAgent {
    /// Answers the batcher's requests indefinitely. A reload signal drops learned values.
    pub(super) async fn run(self, handle: AgentHandle, mut anew: watch::Receiver<()>) {
        let mut restarts = RestartBackoff::default();
        loop {
            let trouble = match self.open(&handle.name).await {
                Ok(mut source) => self.serve(&mut source, &handle, &mut anew, &mut restarts).await,
                Err(trouble) => Some(trouble),
            };
            let Some(trouble) = trouble else {
                restarts.note_work();
                continue;
            };
            self.query_batcher.close();
            let pause = restarts.pause();
            handle.report(None, Some(format!("{trouble}; retrying in {}", HumanDuration(pause)))).await;
            tokio::select! {
                () = sleep(pause) => {}
                signal = anew.changed() => match signal {
                    Ok(()) => self.query_batcher.forget(),
                    Err(_) => return,
                }
            }
        }
    }

    /// Serves requests until the source must be reopened or fails.
    async fn serve(
        &self,
        source: &mut Source,
        handle: &AgentHandle,
        anew: &mut watch::Receiver<()>,
        restarts: &mut RestartBackoff,
    ) -> Option<String> {
        let on_demand = match self.items_to_request(source) {
            Ok(on_demand) => on_demand,
            Err(trouble) => return Some(trouble),
        };
        self.query_batcher.open(on_demand.clone());
        handle.report(Some(AgentData::of(AgentState { on_demand, ..AgentState::default() })), None).await;
        let mut is_due = pin!(sleep(self.config.refresh()));
        loop {
            let requests = tokio::select! {
                requests = self.query_batcher.next() => requests,
                () = &mut is_due, if source.may_change() => return None,
                trouble = source.has_ended() => return Some(trouble),
                signal = anew.changed() => {
                    // The sender is gone: the server stops.
                    signal.ok()?;
                    self.query_batcher.forget();
                    match source.may_change() {
                        true => return None,
                        false => continue,
                    }
                }
            };
            if let Some(trouble) = self.request_all(requests, source, handle, restarts).await {
                return Some(trouble);
            }
        }
    }

    /// Sends the requests until one fails. Each answer is recorded when it arrives.
    async fn request_all(
        &self,
        requests: Vec<DelegateRequest>,
        source: &mut Source,
        handle: &AgentHandle,
        restarts: &mut RestartBackoff,
    ) -> Option<String> {
        match source {
            Source::Server(server) => {
                let server = &*server;
                self.request_concurrently(
                    requests,
                    |request| request_from_server(server, request, &handle.name),
                    restarts,
                )
                .await
            }
            Source::Program(program) => {
                for request in requests {
                    let answer = program.request(&request).await;
                    if let Some(trouble) = self.record_answer(&request, answer, restarts) {
                        return Some(trouble);
                    }
                }
                None
            }
            #[cfg(test)]
            Source::Scripted(script) => self.request_concurrently(requests, &*script, restarts).await,
        }
    }

    /// Sends several requests concurrently. After a failure no new ones are sent, but those in flight are awaited.
    async fn request_concurrently<F: Future<Output = (DelegateRequest, Result<ReportedValues, QueryFailure>)>>(
        &self,
        requests: Vec<DelegateRequest>,
        send: impl Fn(DelegateRequest) -> F,
        restarts: &mut RestartBackoff,
    ) -> Option<String> {
        let is_troubled = AtomicBool::new(false);
        let left = stream::iter(requests).take_while(|_| ready(!is_troubled.load(Ordering::Relaxed)));
        let mut answers = pin!(left.map(send).buffer_unordered(AT_A_TIME));
        let mut first = None;
        while let Some((request, answer)) = answers.next().await {
            let trouble = self.record_answer(&request, answer, restarts);
            is_troubled.fetch_or(trouble.is_some(), Ordering::Relaxed);
            first = first.or(trouble);
        }
        first
    }

    /// Records the answer to a request. Returns the problem of the delegate, if any.
    fn record_answer(
        &self,
        request: &DelegateRequest,
        answer: Result<ReportedValues, QueryFailure>,
        restarts: &mut RestartBackoff,
    ) -> Option<String> {
        match answer {
            Ok(values) => {
                restarts.note_work();
                self.query_batcher.record_answer(request, values, clock::now());
                None
            }
            Err(QueryFailure::Partial(values, trouble)) => {
                self.query_batcher.record_answer(request, values, clock::now());
                Some(trouble)
            }
            Err(QueryFailure::Unreachable(trouble)) => {
                self.query_batcher.give_up(request);
                Some(trouble)
            }
        }
    }

    async fn open(&self, name: &Arc<str>) -> Result<Source, String> {
        match self.config.whom()? {
            DelegateBackend::Server(url) => {
                let opened = AltoClient::open(Arc::clone(&self.client), url, PATIENCE).await;
                opened.map(Source::Server).map_err(|trouble| trouble.to_string())
            }
            DelegateBackend::Program(command) => {
                let mut program = DelegateProgram::open(command, name)?;
                if self.purpose == Purpose::Check {
                    self.check_program(&mut program).await?;
                }
                Ok(Source::Program(Box::new(program)))
            }
        }
    }

    /// Sends a program an empty request, which it must still answer.
    async fn check_program(&self, program: &mut DelegateProgram) -> Result<(), String> {
        let OnDemandItems { metrics, properties } = self.config.on_demand();
        let request = match metrics.into_iter().next() {
            Some(metric) => DelegateRequest::Costs { metric, sources: Vec::new(), destinations: Vec::new() },
            None => DelegateRequest::Properties { names: properties.into_iter().collect(), addresses: Vec::new() },
        };
        match program.request(&request).await {
            Ok(_) => Ok(()),
            Err(QueryFailure::Partial(_, trouble) | QueryFailure::Unreachable(trouble)) => Err(trouble),
        }
    }

    /// Returns the items to request from the delegate: as configured, else all that it offers.
    fn items_to_request(&self, source: &Source) -> Result<OnDemandItems, String> {
        let wanted = self.config.on_demand();
        let Source::Server(server) = source else { return Ok(wanted) };
        let offered = server.directory().on_demand();
        if wanted.is_empty() && offered.is_empty() {
            return Err("the server has neither costs between endpoints nor endpoint properties".into());
        }
        let metrics = wanted.metrics.difference(&offered.metrics).map(CostMetric::as_str);
        let properties = wanted.properties.difference(&offered.properties).map(PropertyName::as_str);
        let lacks: Vec<&str> = metrics.chain(properties).collect();
        match lacks[..] {
            [] if wanted.is_empty() => Ok(offered),
            [] => Ok(wanted),
            _ => Err(format!(
                "the server has no {}: name costs or properties of endpoints that its directory lists",
                lacks.join(", ")
            )),
        }
    }
}

/// The delegate's backend.
enum Source {
    Server(AltoClient),
    Program(Box<DelegateProgram>),
    #[cfg(test)]
    Scripted(tests::Script),
}

impl Source {
    /// Returns whether its offer may change over time.
    fn may_change(&self) -> bool {
        matches!(self, Self::Server(_))
    }

    /// Waits for its end and returns the reason; never returns for a server.
    async fn has_ended(&mut self) -> String {
        match self {
            Self::Server(_) => pending().await,
            Self::Program(program) => program.has_ended().await,
            #[cfg(test)]
            Self::Scripted(_) => pending().await,
        }
    }
}

/// Sends a request to a server and returns it with the answer. A refusal is logged and yields no values.
async fn request_from_server(
    server: &AltoClient,
    request: DelegateRequest,
    name: &str,
) -> (DelegateRequest, Result<ReportedValues, QueryFailure>) {
    let mut values = ReportedValues::new();
    for ResourceRequest { resource, part, input } in server.directory().resource_requests(&request) {
        match server.request_uncached(resource, Some(&input)).await {
            Ok(document) => values.extend(document.values_for(&part).into_iter().filter(|(_, value)| is_short(value))),
            Err(trouble) if trouble.is_refusal() => {
                tracing::warn!("agent {name}: {trouble}; this request yields no values");
            }
            // Distinguish a slow answer from an unreachable server.
            Err(trouble) if trouble.is_late() && server.is_there().await => {
                return (request, Err(QueryFailure::Partial(values, trouble.to_string())));
            }
            Err(trouble) => return (request, Err(QueryFailure::Unreachable(trouble.to_string()))),
        }
    }
    (request, Ok(values))
}

/// Returns whether a value is within the length limit for agents.
fn is_short(value: &Value) -> bool {
    value.is_number() || value.to_string().len() <= MAX_VALUE_BYTES
}
