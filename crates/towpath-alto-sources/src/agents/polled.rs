//! Polled agents: they check files and query servers, and read what changed.

use std::{
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, SystemTime},
};

use tokio::{sync::watch, task::spawn_blocking, time::sleep};
use towpath_client::{Client, ClientOptions, DocumentRequest, DocumentStatus, PasswordSource, TokenSource};
use towpath_store::{Caller, sys::disk};

use super::{AgentHandle, pauses};
use crate::{
    settings::agent::{AgentConfig, PollRequest, Source},
    sources::{AgentData, Content, PreviousData, ReadOutcome, Results, SourceResponse},
};

/// Maximum time for a server's response, including redirects and retries.
const ANSWER_TIME: Duration = Duration::from_secs(60);

/// Maximum size of a response. A looking glass prints more for all routes of the Internet, which should not be
/// requested from one.
const ANSWER_BYTES: usize = 64 << 20;

/// A polled agent.
#[derive(Debug)]
pub(super) struct PolledAgent {
    config: Arc<AgentConfig>,
    requests: Vec<PollRequest>,
    client: Arc<Client>,
    /// Version of each response last read; `None` if it has none or was not read.
    marks: Vec<Option<DocumentVersion>>,
    /// Whether facts are already known. Those from the snapshot may be dropped at any time.
    knows: Arc<AtomicBool>,
    /// The last results of each document, if the agent reads measurements.
    results: Option<Results>,
}

/// Version of a response.
#[derive(Debug, Clone, PartialEq, Eq)]
enum DocumentVersion {
    /// Inode number, length and modification time: a copy may preserve the time, but not the inode number.
    File(u64, u64, Option<SystemTime>),
    /// An entity tag.
    Page(String),
}

/// A response and its version, unless unchanged.
type PollResponse = Option<(Content, Option<DocumentVersion>)>;

/// Creates an HTTP client without credentials, since the servers are third parties.
pub(super) fn client() -> Client {
    let (token, passwords) = (TokenSource::Nothing, PasswordSource::Nothing);
    let options = ClientOptions { token, passwords, stall: ANSWER_TIME, retries: 1, ..ClientOptions::default() };
    Client::new(Arc::new(options))
}

impl PolledAgent {
    /// Creates an agent that has not been polled; facts may be known from the snapshot.
    pub(super) fn new(config: &AgentConfig, client: Arc<Client>, knows: Arc<AtomicBool>) -> Self {
        let requests = config.requests();
        let marks = vec![None; requests.len()];
        Self { config: Arc::new(config.clone()), requests, client, marks, knows, results: None }
    }

    /// Polls indefinitely: at the configured interval, and immediately, rereading everything, when signalled.
    pub(super) async fn run(mut self, handle: AgentHandle, mut anew: watch::Receiver<()>) {
        let mut failures = 0_u32;
        loop {
            let knew = self.knows();
            match self.poll().await {
                // It was rejected relative to facts that have been dropped since.
                Err(_) if knew && !self.knows() => continue,
                Ok((agent_data, trouble)) => {
                    failures = 0;
                    handle.report(agent_data, trouble).await;
                }
                Err(trouble) => {
                    failures = failures.saturating_add(1);
                    handle.report(None, Some(trouble)).await;
                }
            }
            tokio::select! {
                () = sleep(pauses::until_next_poll(self.config.refresh(), failures)) => {}
                signal = anew.changed() => match signal {
                    Ok(()) => self.marks.fill(None),
                    Err(_) => return,
                }
            }
        }
    }

    /// Returns the agent's facts, or `None` if unchanged, and the problem with a part of them.
    async fn poll(&mut self) -> Result<(Option<AgentData>, Option<String>), String> {
        let mut looks = Vec::new();
        for (request, mark) in self.requests.iter().zip(&self.marks) {
            looks.push(self.look_or_miss(request, mark.as_ref()).await?);
        }
        if looks.iter().all(Option::is_none) {
            return Ok((None, None));
        }
        let (mut responses, mut marks) = (Vec::new(), Vec::new());
        for (request, look) in self.requests.iter().zip(looks) {
            let (content, mark) = match look {
                Some(look) => look,
                // Unchanged, but needed together with the changed ones.
                None => self.look_or_miss(request, None).await?.expect("a request without a version returns content"),
            };
            responses.push(SourceResponse { source: request.source.to_string(), content });
            marks.push(mark);
        }
        let (config, before) = (Arc::clone(&self.config), self.before());
        let read = spawn_blocking(move || config.read(responses, &before)).await;
        let ReadOutcome { agent_data, trouble } =
            read.map_err(|error| format!("internal error while reading: {error}"))??;
        self.marks = match trouble {
            None => marks,
            // Parts that could not be read must be checked again.
            Some(_) => vec![None; marks.len()],
        };
        if let AgentData::Results(results) = &agent_data {
            self.results = Some(results.clone());
        }
        self.knows.store(true, Ordering::Relaxed);
        Ok((Some(agent_data), trouble))
    }

    /// Returns the previous knowledge.
    fn before(&self) -> PreviousData {
        match &self.results {
            Some(results) => PreviousData::Results(results.clone()),
            None if self.knows() => PreviousData::Something,
            None => PreviousData::Nothing,
        }
    }

    fn knows(&self) -> bool {
        self.knows.load(Ordering::Relaxed)
    }

    /// Like [`Self::look`], but a missing response is not an error if an earlier one can replace it.
    async fn look_or_miss(
        &self,
        request: &PollRequest,
        mark: Option<&DocumentVersion>,
    ) -> Result<PollResponse, String> {
        let looked = self.look(request, mark).await;
        looked.or_else(|trouble| match &self.results {
            Some(_) => Ok(Some((Content::Missing(trouble), None))),
            None => Err(trouble),
        })
    }

    async fn look(&self, request: &PollRequest, mark: Option<&DocumentVersion>) -> Result<PollResponse, String> {
        let PollRequest { source, form } = request;
        let looked = match source {
            Source::File(path) => look_at_file(path.clone(), mark).await,
            Source::Page(url) => self.look_at_page(url, form.as_deref(), mark).await,
        };
        looked.map_err(|error| format!("{source}: {error}"))
    }

    async fn look_at_page(
        &self,
        url: &str,
        form: Option<&[(String, String)]>,
        mark: Option<&DocumentVersion>,
    ) -> Result<PollResponse, String> {
        let etag = match mark {
            Some(DocumentVersion::Page(etag)) => Some(&**etag),
            _ => None,
        };
        let form = form.map(towpath_client::form);
        let document = form.as_ref().map(|(media_type, document)| (*media_type, document.as_slice()));
        let document_request = DocumentRequest {
            accept: "*/*",
            document,
            refusal_type: None,
            etag,
            field: None,
            limit_bytes: ANSWER_BYTES,
            patience: ANSWER_TIME,
        };
        let reply = self
            .client
            .request_document(url, &Caller::nobody(), document_request)
            .await
            .map_err(|error| error.to_string())?;
        let content = || (Content::Bytes(reply.body), reply.etag.map(DocumentVersion::Page));
        Ok((reply.outcome != DocumentStatus::Unchanged).then(content))
    }
}

async fn look_at_file(path: PathBuf, mark: Option<&DocumentVersion>) -> Result<PollResponse, String> {
    let looking = spawn_blocking(move || (mark_of_file(&path), path));
    let (found, path) = looking.await.map_err(|error| format!("internal error while checking the file: {error}"))?;
    // A write between now and reading the file changes this mark.
    let found = found.map_err(|error| error.to_string())?;
    Ok((mark != Some(&found)).then_some((Content::File(path), Some(found))))
}

fn mark_of_file(path: &Path) -> std::io::Result<DocumentVersion> {
    let metadata = disk::open(path)?.metadata()?;
    Ok(DocumentVersion::File(metadata.ino(), metadata.len(), metadata.modified().ok()))
}
