//! What programs ask of an ALTO server: the `towpath` commands and the Python package alike.
//!
//! [`AltoClient`] has read a server's directory, with those that are linked from it: of one that was named, or that the DNS has. Then answers are asked for by name ([`AltoClient::ask`]), all
//! that a statement needs is ([`AltoClient::survey`]), and answers are followed as they change ([`AltoClient::follow`]). [`order()`] puts a list of
//! replicas into order, [`rank`] some URLs. What is asked, and what answers mean, is this crate's root; here it meets connections and time.
//!
//! A token is shown only to the server whose directory was named, whatever that directory says.

mod asker;
mod cache;
mod discover;
mod followed;
pub mod hosts;
mod ordering;
mod trouble;

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use serde_json::Value as Json;
use towpath_alto::order::Statement;
use towpath_client::{Client, Outcome, Reply};
use towpath_store::sys::clock;

use self::{
    asker::Asker,
    cache::{Cache, Key},
};

pub use self::{
    asker::PATIENCE,
    discover::Search,
    followed::{Change, Followed, Means},
    ordering::{Judge, Ordered, OrderedFile, Place, order, rank},
    trouble::AltoTrouble,
};
use crate::MAX_ANSWER_BYTES;
pub use crate::{Configuration, Directory, Document, DomainName, Ends, Entry, Part, Survey, Wanted};

/// The most servers that the DNS has in one place and that are tried.
const MOST_TRIED: usize = 3;

/// A client of one server. Copies share what they know.
///
/// Memory: the directory, up to 64 answers that came with a version, together 128 MiB as they were sent, and what is being asked for. What is read takes up to 30
/// times as much as it was.
#[derive(Clone)]
pub struct AltoClient(Arc<Inner>);

struct Inner {
    asker: Asker,
    directory: Arc<Directory>,
    /// How long whoever asks waits for a call.
    limit: Duration,
    cache: Mutex<Cache>,
}

impl fmt::Debug for AltoClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AltoClient").finish_non_exhaustive()
    }
}

impl AltoClient {
    /// Reads the directory at `ird`, an http or https URL, and those linked from it: at most 32, and at most four links away. One of those that cannot be
    /// read is left out, which the log says. `limit` is how long the caller waits for this call, and for each later one: linked directories, and the
    /// addresses of hosts, are waited for a third of that at most, and what came until then is used.
    ///
    /// # Errors
    /// If the server does not answer, or has no directory there.
    pub async fn open(client: Arc<Client>, ird: &str, limit: Duration) -> Result<Self, AltoTrouble> {
        Self::begin(Asker::new(client, ird, true), limit, limit).await
    }

    /// Finds a server in the DNS (RFC 7286, RFC 8686): the first one that answers of those that the DNS has. It sees no token. The name that has it there is told as well.
    /// `limit` is as for [`Self::open`]; each server is waited for an equal share of what is left of it.
    ///
    /// # Errors
    /// If none is found, or as [`Self::open`] of the first one if none of them answers.
    pub async fn discover(
        client: Arc<Client>,
        search: &Search,
        limit: Duration,
    ) -> Result<(Self, DomainName), AltoTrouble> {
        let end = clock::now() + limit;
        let found = discover::directories(search).await?;
        let mut silent = None;
        let tried = found.directories.len().min(MOST_TRIED);
        for (ird, left) in found.directories.iter().zip((1..=tried as u32).rev()) {
            let share = end.saturating_duration_since(clock::now()) / left;
            match Self::begin(Asker::new(Arc::clone(&client), ird.as_str(), false), share, limit).await {
                Ok(server) => return Ok((server, found.name)),
                Err(trouble) => {
                    tracing::warn!("{} names {ird}, but {trouble}", found.name);
                    silent.get_or_insert(trouble);
                }
            }
        }
        Err(silent.expect("the DNS has one at least"))
    }

    /// Reads the directory in that share of the time that a call may take.
    async fn begin(asker: Asker, share: Duration, limit: Duration) -> Result<Self, AltoTrouble> {
        let directory = Arc::new(asker.directories(share).await?);
        Ok(Self(Arc::new(Inner { asker, directory, limit, cache: Mutex::default() })))
    }

    /// Where its directory is.
    pub fn ird(&self) -> &str {
        self.0.asker.ird()
    }

    /// What there is.
    pub fn directory(&self) -> &Directory {
        &self.0.directory
    }

    /// What `resource` answers: by GET, or by POST of `input`. One that did not change since it was asked for is not sent again.
    ///
    /// # Errors
    /// If there is no such resource, it is asked for otherwise, the server does not answer or refuses, or what it sends is no answer.
    pub async fn ask(&self, resource: &str, input: Option<&Json>) -> Result<Arc<Document>, AltoTrouble> {
        let question = self.0.directory.question(resource, input)?;
        let key = Key::of(&question);
        let held = self.cache().get(&key);
        let etag = held.as_ref().and_then(|held| held.etag.as_deref());
        let reply = self.0.asker.ask(&question, etag, PATIENCE).await?;
        if let (Outcome::Unchanged, Some(held)) = (reply.outcome, held) {
            return Ok(held);
        }
        let document = Arc::new(read(resource, &reply)?);
        self.cache().put(key, Arc::clone(&document), reply.body.len());
        Ok(document)
    }

    /// The same, of which nothing is kept.
    ///
    /// # Errors
    /// As [`Self::ask`].
    pub async fn ask_once(&self, resource: &str, input: Option<&Json>) -> Result<Document, AltoTrouble> {
        let question = self.0.directory.question(resource, input)?;
        read(resource, &self.0.asker.ask(&question, None, PATIENCE).await?)
    }

    /// Whether the server is there: it gives its directory.
    pub async fn is_there(&self) -> bool {
        self.0.asker.directory(self.ird(), MAX_ANSWER_BYTES, PATIENCE).await.is_ok()
    }

    /// Asks all that the names in `statement` follow from.
    ///
    /// # Errors
    /// If a name means nothing, or as [`Self::ask`].
    pub async fn survey(
        &self,
        configuration: &Configuration,
        statement: &Statement,
        ends: Ends,
    ) -> Result<Survey, AltoTrouble> {
        let mut survey = Survey::new(configuration, Arc::clone(&self.0.directory), statement, ends)?;
        while let Some(question) = survey.question() {
            let reply = self.0.asker.ask(&question, None, PATIENCE).await.map_err(AltoTrouble::of_survey)?;
            survey.take(&reply.media_type, &reply.body)?;
        }
        Ok(survey)
    }

    /// Follows answers under names of the follower's own choice, by tasks of the runtime that this is called in. By which means, the directory decides if nobody else does
    /// ([`Means::default`]): by one update stream, else by a TIPS view each, else by asking once a minute.
    ///
    /// # Errors
    /// If nothing is to be followed, there is no such resource, it is asked for otherwise, or the server has not these means. All else [`Followed::next`] tells.
    pub async fn follow(&self, wanted: BTreeMap<String, Wanted>, means: Means) -> Result<Followed, AltoTrouble> {
        Followed::begin(self, wanted, means)
    }

    fn cache(&self) -> MutexGuard<'_, Cache> {
        self.0.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The answer of a resource.
fn read(resource: &str, reply: &Reply) -> Result<Document, AltoTrouble> {
    let mut document = Document::parse(resource, &reply.url, &reply.media_type, &reply.body)?;
    document.etag.clone_from(&reply.etag);
    Ok(document)
}

/// Reads the text of a configuration: TOML, or the form of the talk.
///
/// # Errors
/// If it has not that form, or keys that there are not.
pub fn configuration(text: &str) -> Result<Configuration, AltoTrouble> {
    Configuration::parse(text).map_err(|error| AltoTrouble::Unusable(format!("the configuration: {error}")))
}
