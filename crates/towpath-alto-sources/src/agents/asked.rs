//! Agents that are asked now and then: files are looked at, servers asked, and what changed is read anew.

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
use towpath_client::{Client, ClientOptions, Inquiry, Outcome, TokenSource};
use towpath_store::{Caller, sys::disk};

use super::{Teller, pauses};
use crate::{
    settings::agent::{AgentConfig, Question, Source},
    sources::{Before, Content, Knowledge, Material, Reading, Results},
};

/// How long a server may take for an answer, redirects and repetitions included.
const ANSWER_TIME: Duration = Duration::from_secs(60);

/// The longest answer of a server: what a looking glass prints of all routes of the Internet has more, and is no question for it.
const ANSWER_BYTES: usize = 64 << 20;

/// An agent that is asked.
#[derive(Debug)]
pub(super) struct Asked {
    config: Arc<AgentConfig>,
    questions: Vec<Question>,
    client: Arc<Client>,
    /// What told the version of each answer that was read last; none if nothing did, or none was read.
    marks: Vec<Option<Mark>>,
    /// Whether something is known of it already. What an earlier server knew may be forgotten at any time.
    knows: Arc<AtomicBool>,
    /// The last results of each of its documents, if it measures.
    results: Option<Results>,
}

/// What tells versions of an answer apart.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Mark {
    /// Its number, how long it is, and when it was written: a copy may keep the time, but not the number.
    File(u64, u64, Option<SystemTime>),
    /// An entity tag.
    Page(String),
}

/// An answer, if it is not the one of the mark, with its mark.
type Look = Option<(Content, Option<Mark>)>;

/// What asks servers: without any token, for they are strangers.
pub(super) fn client() -> Client {
    let stall = ANSWER_TIME;
    Client::new(Arc::new(ClientOptions { token: TokenSource::Nothing, stall, retries: 1, ..ClientOptions::default() }))
}

impl Asked {
    /// An agent that was not asked yet, though something may be known of it from an earlier server.
    pub(super) fn new(config: &AgentConfig, client: Arc<Client>, knows: Arc<AtomicBool>) -> Self {
        let questions = config.questions();
        let marks = vec![None; questions.len()];
        Self { config: Arc::new(config.clone()), questions, client, marks, knows, results: None }
    }

    /// Asks for ever: at its times, and at once, all anew, when `anew` changes.
    pub(super) async fn run(mut self, teller: Teller, mut anew: watch::Receiver<()>) {
        let mut failures = 0_u32;
        loop {
            let knew = self.knows();
            match self.ask().await {
                // It was refused for the sake of what is forgotten.
                Err(_) if knew && !self.knows() => continue,
                Ok((knowledge, trouble)) => {
                    failures = 0;
                    teller.tell(knowledge, trouble).await;
                }
                Err(trouble) => {
                    failures = failures.saturating_add(1);
                    teller.tell(None, Some(trouble)).await;
                }
            }
            tokio::select! {
                () = sleep(pauses::until_asked(self.config.refresh(), failures)) => {}
                told = anew.changed() => match told {
                    Ok(()) => self.marks.fill(None),
                    Err(_) => return,
                }
            }
        }
    }

    /// What it knows now, none if that is what it knew the last time; and what is wrong with a part of it.
    async fn ask(&mut self) -> Result<(Option<Knowledge>, Option<String>), String> {
        let mut looks = Vec::new();
        for (question, mark) in self.questions.iter().zip(&self.marks) {
            looks.push(self.look_or_miss(question, mark.as_ref()).await?);
        }
        if looks.iter().all(Option::is_none) {
            return Ok((None, None));
        }
        let (mut materials, mut marks) = (Vec::new(), Vec::new());
        for (question, look) in self.questions.iter().zip(looks) {
            let (content, mark) = match look {
                Some(look) => look,
                // It is as it was, but is needed together with what changed.
                None => self.look_or_miss(question, None).await?.expect("who has no version is given one"),
            };
            materials.push(Material { source: question.source.to_string(), content });
            marks.push(mark);
        }
        let (config, before) = (Arc::clone(&self.config), self.before());
        let read = spawn_blocking(move || config.read(materials, &before)).await;
        let Reading { knowledge, trouble } =
            read.map_err(|error| format!("reading failed, which is a defect: {error}"))??;
        self.marks = match trouble {
            None => marks,
            // What was not read is to be looked at again.
            Some(_) => vec![None; marks.len()],
        };
        if let Knowledge::Results(results) = &knowledge {
            self.results = Some(results.clone());
        }
        self.knows.store(true, Ordering::Relaxed);
        Ok((Some(knowledge), trouble))
    }

    /// What is known of it already.
    fn before(&self) -> Before {
        match &self.results {
            Some(results) => Before::Results(results.clone()),
            None if self.knows() => Before::Something,
            None => Before::Nothing,
        }
    }

    fn knows(&self) -> bool {
        self.knows.load(Ordering::Relaxed)
    }

    /// The same; that there is no answer is one where an earlier one may stand in.
    async fn look_or_miss(&self, question: &Question, mark: Option<&Mark>) -> Result<Look, String> {
        let looked = self.look(question, mark).await;
        looked.or_else(|trouble| match &self.results {
            Some(_) => Ok(Some((Content::Missing(trouble), None))),
            None => Err(trouble),
        })
    }

    async fn look(&self, question: &Question, mark: Option<&Mark>) -> Result<Look, String> {
        let Question { source, form } = question;
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
        mark: Option<&Mark>,
    ) -> Result<Look, String> {
        let etag = match mark {
            Some(Mark::Page(etag)) => Some(&**etag),
            _ => None,
        };
        let form = form.map(towpath_client::form);
        let document = form.as_ref().map(|(media_type, document)| (*media_type, document.as_slice()));
        let inquiry = Inquiry {
            accept: "*/*",
            document,
            refusal_type: None,
            etag,
            limit_bytes: ANSWER_BYTES,
            patience: ANSWER_TIME,
        };
        let reply = self.client.inquire(url, &Caller::nobody(), inquiry).await.map_err(|error| error.to_string())?;
        let content = || (Content::Bytes(reply.body), reply.etag.map(Mark::Page));
        Ok((reply.outcome != Outcome::Unchanged).then(content))
    }
}

async fn look_at_file(path: PathBuf, mark: Option<&Mark>) -> Result<Look, String> {
    let looking = spawn_blocking(move || (mark_of_file(&path), path));
    let (found, path) = looking.await.map_err(|error| format!("looking failed, which is a defect: {error}"))?;
    // What is written until it is read has another mark than this.
    let found = found.map_err(|error| error.to_string())?;
    Ok((mark != Some(&found)).then_some((Content::File(path), Some(found))))
}

fn mark_of_file(path: &Path) -> std::io::Result<Mark> {
    let metadata = disk::open(path)?.metadata()?;
    Ok(Mark::File(metadata.ino(), metadata.len(), metadata.modified().ok()))
}
