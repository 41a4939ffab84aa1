//! Requests to an HTTP service that is not a storage, such as an ALTO server or a web form: a GET, or a POST of a small
//! document. The response is returned complete, or as a stream ([`Subscription`]).

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderName, Method, StatusCode, header};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use tokio::time::timeout;
use towpath_proto::{
    http::media_type,
    url::{Family, Url},
};
use towpath_store::{Caller, Error, Fault, Result};

use super::{
    payload::Payload,
    refusal,
    request::Request,
    response::HttpResponse,
    retry_state::{Failure, RetryState},
    site::{Site, Sites},
    target::Target,
};
use crate::dial::timed_out;

/// Characters that a form does not percent-encode; a space becomes a plus.
const PLAIN_IN_FORMS: &AsciiSet = &NON_ALPHANUMERIC.remove(b'*').remove(b'-').remove(b'.').remove(b'_').remove(b' ');

/// The parameters of a request.
#[derive(Debug, Clone, Copy)]
pub struct DocumentRequest<'a> {
    /// The value of `Accept`.
    pub accept: &'a str,
    /// The body of a POST with its media type; `None` for a GET. Must be idempotent.
    pub document: Option<(&'a str, &'a [u8])>,
    /// The media type of error responses that the caller parses, if any.
    pub refusal_type: Option<&'a str>,
    /// The entity tag of the cached version, which is not sent again (`If-None-Match`).
    pub etag: Option<&'a str>,
    /// A header field that the service requires.
    pub field: Option<(&'static str, &'static str)>,
    /// Maximum length of a response in bytes; of a streamed response, the maximum for an error response.
    pub limit_bytes: usize,
    /// Timeout of the whole request, with redirects and retries. For a streamed response: timeout until it begins, and
    /// between two chunks.
    pub patience: Duration,
}

/// The response of a service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DocumentResponse {
    /// The URL that responded, after all redirects: the base of relative references in the document. May contain
    /// secrets.
    pub url: String,
    /// The kind of the response.
    pub outcome: DocumentStatus,
    /// `Content-Type` as sent; empty if absent.
    pub media_type: String,
    /// The entity tag of the version, if present.
    pub etag: Option<String>,
    /// The body.
    pub body: Vec<u8>,
}

/// A response that is streamed until the service ends it. Dropping it closes the connection.
#[derive(Debug)]
pub struct Subscription {
    /// The URL that responds, after all redirects: the base of relative references in the response. May contain
    /// secrets.
    pub url: String,
    /// The kind of the response.
    pub outcome: DocumentStatus,
    /// `Content-Type` as sent; empty if absent.
    pub media_type: String,
    /// The entity tag of the version, if present.
    pub etag: Option<String>,
    answer: HttpResponse,
    patience: Duration,
}

/// The kind of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DocumentStatus {
    /// The requested content.
    Content,
    /// The cached version is current.
    Unchanged,
    /// An error response of [`DocumentRequest::refusal_type`].
    Refused,
}

/// Encodes the fields of a form as browsers do; returns media type and body (WHATWG URL §5.2).
pub fn form(fields: &[(String, String)]) -> (&'static str, Vec<u8>) {
    let encode = |text: &str| utf8_percent_encode(text, PLAIN_IN_FORMS).to_string().replace(' ', "+");
    let pairs: Vec<String> = fields.iter().map(|(name, value)| format!("{}={}", encode(name), encode(value))).collect();
    ("application/x-www-form-urlencoded", pairs.join("&").into_bytes())
}

impl Sites {
    /// Implements [`crate::Client::request_document`].
    pub(crate) async fn request_document(
        &self,
        url: &str,
        caller: &Caller,
        document_request: DocumentRequest<'_>,
    ) -> Result<DocumentResponse> {
        let target = target_of(url)?;
        let asked = timeout(document_request.patience, self.send_once(&target, caller, document_request)).await;
        asked.unwrap_or_else(|_| Err(timed_out(target.root(), "the response")))
    }

    async fn send_once(
        &self,
        target: &Target,
        caller: &Caller,
        document_request: DocumentRequest<'_>,
    ) -> Result<DocumentResponse> {
        let site = self.at(&target.endpoint, None);
        let request = request(&site, document_request);
        let mut retry_state = site.retry_state(target).with_patience(document_request.patience);
        loop {
            let begun = begin(&site, caller, &mut retry_state, &request, document_request).await?;
            let Subscription { url, outcome, media_type, etag, answer, .. } = begun;
            match answer.whole(document_request.limit_bytes).await {
                Ok(body) => return Ok(DocumentResponse { url, outcome, media_type, etag, body }),
                Err(failure) => site.handle_failure(&mut retry_state, failure, &request).await?,
            }
        }
    }

    /// Implements [`crate::Client::subscribe`].
    pub(crate) async fn subscribe(
        &self,
        url: &str,
        caller: &Caller,
        document_request: DocumentRequest<'_>,
    ) -> Result<Subscription> {
        let target = target_of(url)?;
        let site = self.at(&target.endpoint, None);
        // The stream may never end, so it must not hold a permit meant for short responses.
        let request = Request { prompt: false, ..request(&site, document_request) };
        let mut retry_state = site.retry_state(&target).with_patience(document_request.patience);
        let begun =
            timeout(document_request.patience, begin(&site, caller, &mut retry_state, &request, document_request))
                .await;
        begun.unwrap_or_else(|_| Err(timed_out(target.root(), "the response")))
    }

    /// Implements [`crate::Client::withdraw`].
    pub(crate) async fn withdraw(&self, url: &str, caller: &Caller, patience: Duration) -> Result<()> {
        let target = target_of(url)?;
        let site = self.at(&target.endpoint, None);
        let request = Request::new(&site, Method::DELETE);
        let mut retry_state = site.retry_state(&target).with_patience(patience);
        let asked = timeout(patience, site.send_request(caller, &mut retry_state, &request)).await;
        let answer = asked.unwrap_or_else(|_| Err(timed_out(target.root(), "the response")))?;
        if !answer.status.is_success() {
            return Err(refusal::of(answer, &request.method, &site.credentials(caller)?).await);
        }
        answer.discard().await;
        Ok(())
    }
}

impl Subscription {
    /// Returns the next bytes, never empty; `None` at the end.
    ///
    /// # Errors
    /// `Unavailable` if the connection breaks, `TimedOut` if no data arrive within the timeout.
    pub async fn next(&mut self) -> Result<Option<Bytes>> {
        // Any data, however few, count as activity.
        self.answer.allow(self.patience);
        self.answer.next().await.map_err(error_of)
    }

    /// Returns the whole body of an error response, which is at most `limit_bytes` long.
    ///
    /// # Errors
    /// Those of [`Self::next`]; `TooLarge`.
    pub async fn whole(mut self, limit_bytes: usize) -> Result<Vec<u8>> {
        self.answer.allow(self.patience);
        self.answer.whole(limit_bytes).await.map_err(error_of)
    }
}

/// Creates the HTTP request of a document request.
fn request(site: &Site, document_request: DocumentRequest<'_>) -> Request {
    let method = if document_request.document.is_some() { Method::POST } else { Method::GET };
    let mut request = Request::new(site, method).with(header::ACCEPT, document_request.accept);
    if let Some((media_type, document)) = document_request.document {
        request = request.with(header::CONTENT_TYPE, media_type);
        request.payload = Payload::Whole(Bytes::copy_from_slice(document));
    }
    if let Some((name, value)) = document_request.field {
        request = request.with(HeaderName::from_static(name), value);
    }
    match document_request.etag {
        Some(etag) => request.with(header::IF_NONE_MATCH, etag),
        None => request,
    }
}

/// Sends the request and returns the response if its status and media type are usable.
async fn begin(
    site: &Site,
    caller: &Caller,
    retry_state: &mut RetryState,
    request: &Request,
    document_request: DocumentRequest<'_>,
) -> Result<Subscription> {
    let answer = site.send_request(caller, retry_state, request).await?;
    let field = |name| answer.field(name).map(str::to_owned);
    let media_type = field(header::CONTENT_TYPE).unwrap_or_default();
    let is_refusal = document_request.refusal_type.is_some_and(|wanted| media_type::is(&media_type, wanted));
    let outcome = match answer.status {
        StatusCode::OK => DocumentStatus::Content,
        // 304 for a GET, 412 for a POST (RFC 9110 §13.1.2): no other condition is sent.
        StatusCode::NOT_MODIFIED | StatusCode::PRECONDITION_FAILED if document_request.etag.is_some() => {
            DocumentStatus::Unchanged
        }
        _ if is_refusal => DocumentStatus::Refused,
        _ => return Err(refusal::of(answer, &request.method, &site.credentials(caller)?).await),
    };
    let (url, etag) = (format!("{}{}", answer.target.root(), answer.target.path_and_query), field(header::ETAG));
    Ok(Subscription { url, outcome, media_type, etag, answer, patience: document_request.patience })
}

/// Returns the error of a response that broke off after it had begun; it is not retried.
fn error_of(failure: Failure) -> Error {
    match failure {
        Failure::NotSent(error) | Failure::Lost(error) | Failure::Later(error, _) | Failure::Fatal(error) => error,
        Failure::Redirect(target) => {
            Error::new(Fault::Protocol, format!("redirected to {} during the response", target.root()))
        }
    }
}

/// Returns the target of a URL as written: the service decides which of its characters are encoded.
fn target_of(url: &str) -> Result<Target> {
    let invalid = |why: String| Error::new(Fault::InvalidArgument, why);
    let parsed = url.parse::<Url>().map_err(|error| invalid(error.to_string()))?;
    if parsed.scheme().family() != Family::Http {
        return Err(invalid(format!("{}:// is neither http nor https", parsed.scheme().name())));
    }
    if parsed.password().is_some() {
        return Err(invalid("the URL of a service must have no password: write it to ~/.netrc".to_owned()));
    }
    let root = Target::encoded(parsed.endpoint(), "/".to_owned());
    root.redirected(url.as_bytes()).map_err(|_| invalid("the URL has invalid characters".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_asked_for_as_it_is_written() {
        for (url, root, path_and_query) in [
            ("https://Host/alto/directory/?a=b%20c", "https://host", "/alto/directory/?a=b%20c"),
            ("http://[::1]:8096", "http://[::1]:8096", "/"),
            ("http://host/a;b=c/d:e%2ff", "http://host", "/a;b=c/d:e%2ff"),
            ("http://host/a b", "http://host", "/a%20b"),
        ] {
            let target = target_of(url).unwrap();
            assert_eq!((target.root().as_str(), target.path_and_query.as_str()), (root, path_and_query));
        }
        for url in ["root://host//f", "host/f", "s3://b/k", "http://", "https://user:password@host/"] {
            assert_eq!(target_of(url).unwrap_err().fault(), Fault::InvalidArgument, "{url}");
        }
    }

    #[test]
    fn forms_are_written_as_browsers_do() {
        let fields = [("args", "a b&c=d/24"), ("router", "ex2j.cern.ch:juniper"), ("plus+", "ä~")];
        let (_, encoded) = form(&fields.map(|(name, value)| (name.to_owned(), value.to_owned())));
        assert_eq!(encoded, b"args=a+b%26c%3Dd%2F24&router=ex2j.cern.ch%3Ajuniper&plus%2B=%C3%A4%7E");
    }
}
