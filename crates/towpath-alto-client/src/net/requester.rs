//! HTTP requests to a server, and its directory with those linked from it.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use futures::future::join_all;
use towpath_alto::{media, update_services::EVENT_STREAM};
use towpath_client::{Client, DocumentRequest, DocumentResponse, DocumentStatus, Subscription};
use towpath_proto::{http::media_type, url::Url};
use towpath_store::{Caller, sys::clock};

use super::AltoError;
use crate::{ClientError, Directory, MAX_ANSWER_BYTES, Request};

/// Maximum time for one response, and default time limit of a call. Ordering replicas delays reading them.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// Maximum silence of a stream, which should send a comment every 15 s (RFC 8895 §6.8).
const SILENCE: Duration = Duration::from_secs(60);

/// Maximum number of directories read, and of links to follow from the first.
const MAX_DIRECTORIES: usize = 32;
const MAX_LINKS: usize = 4;

/// Maximum size of a linked directory, in bytes: thousands of resources. All together are limited to the maximum of the
/// first.
const MAX_LINKED_BYTES: usize = MAX_ANSWER_BYTES / MAX_DIRECTORIES;

/// Fraction of a call's time limit for reading all linked directories, so that other servers cannot use it up.
const SHARE_OF_LINKED: u32 = 3;

/// Sends requests to one server and to those that it links to.
pub(super) struct Requester {
    client: Arc<Client>,
    /// URI of the directory.
    ird: String,
    /// Whether the caller named the server, rather than DNS.
    is_named: bool,
}

impl Requester {
    /// Creates a requester for the directory at `ird`. A token is sent only if the server was named by the caller.
    pub(super) fn new(client: Arc<Client>, ird: &str, is_named: bool) -> Self {
        Self { client, ird: ird.to_owned(), is_named }
    }

    /// Returns the URI of the directory.
    pub(super) fn ird(&self) -> &str {
        &self.ird
    }

    /// Reads the directory within `limit`, and those linked from it, each once, as far as they arrive within their
    /// share of it.
    pub(super) async fn directories(&self, limit: Duration) -> Result<Directory, AltoError> {
        let limit = limit.min(PATIENCE);
        let mut directory = self.directory(&self.ird, MAX_ANSWER_BYTES, limit).await?;
        let end = clock::now() + limit / SHARE_OF_LINKED;
        let mut met = BTreeSet::from([self.ird.clone()]);
        let mut left = MAX_DIRECTORIES - 1;
        for _ in 0..MAX_LINKS {
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

    /// Reads one directory without those linked from it.
    pub(super) async fn directory(
        &self,
        uri: &str,
        limit_bytes: usize,
        patience: Duration,
    ) -> Result<Directory, AltoError> {
        let accept = format!("{}, {}", media::DIRECTORY, media::ERROR);
        let request = Request { uri: uri.to_owned(), accept, document: None };
        let document_request = DocumentRequest { limit_bytes, ..document_request(&request, None, patience) };
        let reply = check_outcome(self.client.request_document(uri, &self.caller(uri), document_request).await?)?;
        Ok(Directory::parse(&reply.url, &reply.body)?)
    }

    /// Sends a request. The content is omitted from the response if it still has the entity tag.
    pub(super) async fn send_request(
        &self,
        request: &Request,
        etag: Option<&str>,
        patience: Duration,
    ) -> Result<DocumentResponse, AltoError> {
        let document_request = document_request(request, etag, patience);
        check_outcome(self.client.request_document(&request.uri, &self.caller(&request.uri), document_request).await?)
    }

    /// Sends a request whose response may be delayed, outside of the concurrency limit for normal requests. `patience`
    /// limits each period of silence.
    pub(super) async fn await_answer(
        &self,
        request: &Request,
        patience: Duration,
    ) -> Result<DocumentResponse, AltoError> {
        let document_request = document_request(request, None, patience);
        let begun = self.client.subscribe(&request.uri, &self.caller(&request.uri), document_request).await?;
        let (url, outcome, media_type) = (begun.url.clone(), begun.outcome, begun.media_type.clone());
        let body = begun.whole(MAX_ANSWER_BYTES).await?;
        check_outcome(DocumentResponse { url, outcome, media_type, etag: None, body })
    }

    /// Sends a request with an endless response.
    pub(super) async fn subscribe(&self, request: &Request) -> Result<Subscription, AltoError> {
        let document_request = document_request(request, None, SILENCE);
        let subscription = self.client.subscribe(&request.uri, &self.caller(&request.uri), document_request).await?;
        if subscription.outcome == DocumentStatus::Refused {
            let url = subscription.url.clone();
            let body = subscription.whole(MAX_ANSWER_BYTES).await?;
            return Err(ClientError::refused(&url, &body).into());
        }
        if !media_type::is(&subscription.media_type, EVENT_STREAM) {
            let essence = media_type::essence(&subscription.media_type);
            return Err(ClientError::no_events(&subscription.url, essence).into());
        }
        Ok(subscription)
    }

    /// Notifies the server that the resource at `uri` is no longer needed.
    pub(super) async fn withdraw(&self, uri: &str) {
        if let Err(error) = self.client.withdraw(uri, &self.caller(uri), PATIENCE).await {
            tracing::debug!("{error}; the server will drop it after a timeout");
        }
    }

    /// A directory may link to any server, but the token is only for the one named by the caller.
    fn caller(&self, uri: &str) -> Caller {
        if self.is_named && is_same_server(&self.ird, uri) { Caller::local() } else { Caller::nobody() }
    }
}

/// Returns an error for a refusal.
fn check_outcome(reply: DocumentResponse) -> Result<DocumentResponse, AltoError> {
    match reply.outcome {
        DocumentStatus::Refused => Err(ClientError::refused(&reply.url, &reply.body).into()),
        DocumentStatus::Content | DocumentStatus::Unchanged => Ok(reply),
    }
}

/// Adds a linked directory, if it was read.
fn add(directory: &mut Directory, linked: Result<Directory, AltoError>) {
    match linked {
        Ok(linked) => {
            let taken = directory.add(linked);
            if let Some(name) = taken.first() {
                let count = taken.len();
                tracing::warn!(
                    "ignoring {count} resources of a linked directory whose names are taken, such as {name}"
                );
            }
        }
        Err(trouble) => tracing::warn!("{trouble}; ignoring this linked directory"),
    }
}

fn document_request<'a>(request: &'a Request, etag: Option<&'a str>, patience: Duration) -> DocumentRequest<'a> {
    DocumentRequest {
        accept: &request.accept,
        document: request.document.as_ref().map(|(media_type, document)| (*media_type, document.as_slice())),
        refusal_type: Some(media::ERROR),
        etag,
        field: None,
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
