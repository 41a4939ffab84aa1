//! Questions to a server over HTTP, and its directory with those linked from it.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use futures::future::join_all;
use towpath_alto::{media, update_services::EVENT_STREAM};
use towpath_client::{Client, Inquiry, Outcome, Reply, Subscription};
use towpath_proto::{http::media_type, url::Url};
use towpath_store::{Caller, sys::clock};

use super::AltoTrouble;
use crate::{ClientError, Directory, MAX_ANSWER_BYTES, Question};

/// How long one answer is waited for, and a call in all if nobody says how long. Whoever orders replicas waits to read them.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// How long a stream may say nothing: it should send a comment every 15 s (RFC 8895 §6.8).
const SILENCE: Duration = Duration::from_secs(60);

/// How many directories are read, and how many links from the first they may be away.
const MOST_DIRECTORIES: usize = 32;
const MOST_LINKS: usize = 4;

/// The longest linked directory that is read, in bytes: thousands of resources. All of them together have no more than the first may.
const MAX_LINKED_BYTES: usize = MAX_ANSWER_BYTES / MOST_DIRECTORIES;

/// All linked directories together are waited for this part of the time that a call may take: other servers than the one that was named should not use it up.
const SHARE_OF_LINKED: u32 = 3;

/// What asks one server, and those to which it refers.
pub(super) struct Asker {
    client: Arc<Client>,
    /// The directory from which all that is asked follows.
    ird: String,
    /// Whether somebody named it who can answer for that, and not the DNS.
    is_named: bool,
}

impl Asker {
    /// Asks the server with the directory at `ird`, which sees a token only if it was named.
    pub(super) fn new(client: Arc<Client>, ird: &str, is_named: bool) -> Self {
        Self { client, ird: ird.to_owned(), is_named }
    }

    /// Where the directory is.
    pub(super) fn ird(&self) -> &str {
        &self.ird
    }

    /// The directory, which is waited for so long, with all that are linked from it, each once, as far as they come in their share of `limit`.
    pub(super) async fn directories(&self, limit: Duration) -> Result<Directory, AltoTrouble> {
        let limit = limit.min(PATIENCE);
        let mut directory = self.directory(&self.ird, MAX_ANSWER_BYTES, limit).await?;
        let end = clock::now() + limit / SHARE_OF_LINKED;
        let mut met = BTreeSet::from([self.ird.clone()]);
        let mut left = MOST_DIRECTORIES - 1;
        for _ in 0..MOST_LINKS {
            let new = directory.linked().filter(|uri| met.insert((*uri).to_owned())).take(left);
            let new: Vec<String> = new.map(str::to_owned).collect();
            if new.is_empty() {
                break;
            }
            left -= new.len();
            let patience = end.saturating_duration_since(clock::now());
            let read = new.iter().map(|uri| self.directory(uri, MAX_LINKED_BYTES, patience));
            for linked in join_all(read).await {
                add(&mut directory, linked);
            }
        }
        Ok(directory)
    }

    /// One directory, with nothing of those that are linked from it.
    pub(super) async fn directory(
        &self,
        uri: &str,
        limit_bytes: usize,
        patience: Duration,
    ) -> Result<Directory, AltoTrouble> {
        let accept = format!("{}, {}", media::DIRECTORY, media::ERROR);
        let question = Question { uri: uri.to_owned(), accept, document: None };
        let inquiry = Inquiry { limit_bytes, ..inquiry(&question, None, patience) };
        let reply = accepted(self.client.inquire(uri, &self.caller(uri), inquiry).await?)?;
        Ok(Directory::parse(&reply.url, &reply.body)?)
    }

    /// The answer to a question, which is not sent again if it is the version of that entity tag.
    pub(super) async fn ask(
        &self,
        question: &Question,
        etag: Option<&str>,
        patience: Duration,
    ) -> Result<Reply, AltoTrouble> {
        let inquiry = inquiry(question, etag, patience);
        accepted(self.client.inquire(&question.uri, &self.caller(&question.uri), inquiry).await?)
    }

    /// The answer to a question that may wait for it: so it takes none of the places of those that are answered at once. `patience` bounds each silence.
    pub(super) async fn await_answer(&self, question: &Question, patience: Duration) -> Result<Reply, AltoTrouble> {
        let inquiry = inquiry(question, None, patience);
        let begun = self.client.subscribe(&question.uri, &self.caller(&question.uri), inquiry).await?;
        let (url, outcome, media_type) = (begun.url.clone(), begun.outcome, begun.media_type.clone());
        let body = begun.whole(MAX_ANSWER_BYTES).await?;
        accepted(Reply { url, outcome, media_type, etag: None, body })
    }

    /// The answer to a question that goes on and on.
    pub(super) async fn subscribe(&self, question: &Question) -> Result<Subscription, AltoTrouble> {
        let inquiry = inquiry(question, None, SILENCE);
        let subscription = self.client.subscribe(&question.uri, &self.caller(&question.uri), inquiry).await?;
        if subscription.outcome == Outcome::Refused {
            let url = subscription.url.clone();
            let body = subscription.whole(MAX_ANSWER_BYTES).await?;
            return Err(ClientError::refused(&url, &body).into());
        }
        if !media_type::is(&subscription.media_type, EVENT_STREAM) {
            let told = media_type::essence(&subscription.media_type);
            return Err(ClientError::no_events(&subscription.url, told).into());
        }
        Ok(subscription)
    }

    /// Tells the server that nobody needs what it keeps at `uri` any more.
    pub(super) async fn withdraw(&self, uri: &str) {
        if let Err(error) = self.client.withdraw(uri, &self.caller(uri), PATIENCE).await {
            tracing::debug!("{error}; the server will see for itself that nobody asks for it");
        }
    }

    /// A directory may name any server, and the token is for the one that was named.
    fn caller(&self, uri: &str) -> Caller {
        if self.is_named && is_same_server(&self.ird, uri) { Caller::local() } else { Caller::nobody() }
    }
}

/// An answer that is no refusal.
fn accepted(reply: Reply) -> Result<Reply, AltoTrouble> {
    match reply.outcome {
        Outcome::Refused => Err(ClientError::refused(&reply.url, &reply.body).into()),
        Outcome::Content | Outcome::Unchanged => Ok(reply),
    }
}

/// Adds what a linked directory has, if it was read.
fn add(directory: &mut Directory, linked: Result<Directory, AltoTrouble>) {
    match linked {
        Ok(linked) => {
            let taken = directory.add(linked);
            if let Some(name) = taken.first() {
                let count = taken.len();
                tracing::warn!("{count} resources of a linked directory have names of others, as {name}: those hold");
            }
        }
        Err(trouble) => tracing::warn!("{trouble}; what this linked directory has is not known"),
    }
}

fn inquiry<'a>(question: &'a Question, etag: Option<&'a str>, patience: Duration) -> Inquiry<'a> {
    Inquiry {
        accept: &question.accept,
        document: question.document.as_ref().map(|(media_type, document)| (*media_type, document.as_slice())),
        refusal_type: Some(media::ERROR),
        etag,
        limit_bytes: MAX_ANSWER_BYTES,
        patience,
    }
}

fn is_same_server(one: &str, other: &str) -> bool {
    let endpoint = |address: &str| address.parse::<Url>().ok().map(|url| url.endpoint());
    endpoint(one).is_some() && endpoint(one) == endpoint(other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_for_the_server_that_was_named() {
        for (other, is_same) in [
            ("https://HOST:443/x", true),
            ("https://host:8443/x", false),
            ("http://host/x", false),
            ("https://other/x", false),
            ("mailto:x", false),
        ] {
            assert_eq!(is_same_server("https://host/directory", other), is_same, "{other}");
        }
        assert!(!is_same_server("x", "x"));
    }
}
