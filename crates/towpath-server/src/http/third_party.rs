//! `COPY` between this server and another one ([WLCG
//! HTTP-TPC](https://twiki.cern.ch/twiki/bin/view/LCG/HttpTpcTechnical)): with `Source` the file is fetched (pull),
//! with a `Destination` on another server it is sent there (push).
//!
//! The response begins immediately with 202 and a performance marker; further markers follow every few seconds with
//! the number of bytes written at the destination, and the last line reports the outcome. Disconnecting cancels the
//! copy.
//!
//! | field | meaning here |
//! | --- | --- |
//! | `TransferHeader*` | sent to the other server without its prefix |
//! | `Overwrite` | `F`: do not replace an existing file |
//! | `RequireChecksumVerification` | `true`: fail unless Adler-32 can be compared; otherwise compare the digests known to both ends |
//! | `Credential` | `none`; delegation is not supported |
//! | `X-Number-Of-Streams`, `SciTag`, `ClientInfo`, `Secure-Redirection`, `Copy-Flags` | accepted and ignored |

use std::time::Duration;

use bytes::Bytes;
use futures::stream;
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode, header};
use tokio::time::{Instant, timeout_at};
use towpath_proto::{
    checksum::Algorithm,
    http::tpc::{CopyOutcome, Marker},
    url::{Family, Url},
};
use towpath_store::{Error, Fault, FileKind, Metadata, Overwrite, Secret, sys::clock};

use super::{
    body::{Chunk, Content},
    exchange::Exchange,
    locking, namespace,
    refusal::Refusal,
    respond::{self, TEXT},
};
use crate::{
    access::{Activity, bearer},
    third_party::{CopyTask, Direction, State, ThirdPartyCopy},
};

/// Maximum interval between two markers; clients time out after 30 s.
const MAX_MARKER_INTERVAL: Duration = Duration::from_secs(30);

/// Digest required by `RequireChecksumVerification`: every storage in the field can compute it.
const REQUIRED: Algorithm = Algorithm::Adler32;

/// Prefix of request header fields meant for the other server.
const FORWARDED: &str = "transferheader";

/// Hop-by-hop and message-specific fields, set by each sender itself (RFC 9110 §7.6.1).
const NOT_FORWARDED: [&str; 15] = [
    "accept-encoding",
    "connection",
    "content-encoding",
    "content-length",
    "content-range",
    "content-type",
    "expect",
    "host",
    "keep-alive",
    "range",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "http2-settings",
];

/// The remote end of a COPY.
#[derive(Debug)]
pub(super) enum RemoteEndpoint {
    /// Copies from that URL to this server.
    Source(String),
    /// Copies from this server to that URL.
    Destination(String),
}

/// Handles a COPY between this server and another.
pub(super) async fn copy(exchange: &Exchange, endpoint: &RemoteEndpoint) -> Result<Response<Content>, Refusal> {
    if !exchange.service.third_party.is_served() {
        // WebDAV defines a status for a Destination on another server (RFC 4918 §9.8.5).
        let status = if matches!(endpoint, RemoteEndpoint::Source(_)) {
            StatusCode::NOT_IMPLEMENTED
        } else {
            StatusCode::BAD_GATEWAY
        };
        return Err(Refusal::new(status, "this server makes no third-party copies"));
    }
    exchange.service.third_party.admit(&exchange.identity)?;
    let (direction, url) = match endpoint {
        RemoteEndpoint::Source(url) => (Direction::Pull, url),
        RemoteEndpoint::Destination(url) => (Direction::Push, url),
    };
    let remote = remote(url)?;
    refuse_delegation(exchange)?;
    let overwrite = namespace::overwrite(exchange)?;
    let overwrite = match direction {
        Direction::Pull => may_pull(exchange, overwrite).await?,
        Direction::Push => {
            may_push(exchange).await?;
            overwrite
        }
    };
    let mut headers = forwarded(&exchange.headers);
    let copy = ThirdPartyCopy {
        direction,
        local: exchange.path().clone(),
        caller: exchange.caller().clone(),
        remote,
        token: take_token(&mut headers),
        headers,
        overwrite,
        checksum: required_checksum(exchange)?,
        opens_once: false,
    };
    let copy_task = State::begin(&exchange.service, copy).await.map_err(Refusal::from)?;
    Ok(answer(exchange, copy_task))
}

/// Parses the URL of the remote file.
fn remote(url: &str) -> Result<Url, Refusal> {
    let url: Url = url.trim().parse().map_err(|error| Refusal::bad_request(format!("the other URL: {error}")))?;
    match url.scheme().family() {
        Family::Http => Ok(url),
        Family::Xrootd | Family::S3 => Err(Refusal::bad_request("the other URL must be http, https, dav or davs")),
    }
}

fn refuse_delegation(exchange: &Exchange) -> Result<(), Refusal> {
    match exchange.custom_field("credential") {
        Some(kind) if !kind.trim().eq_ignore_ascii_case("none") => {
            Err(Refusal::bad_request("credential delegation is not supported: send Credential: none"))
        }
        _ => Ok(()),
    }
}

fn required_checksum(exchange: &Exchange) -> Result<Option<Algorithm>, Refusal> {
    match exchange.custom_field("requirechecksumverification").as_deref().map(str::trim) {
        None => Ok(None),
        Some(text) if text.eq_ignore_ascii_case("false") => Ok(None),
        Some(text) if text.eq_ignore_ascii_case("true") => Ok(Some(REQUIRED)),
        Some(_) => Err(Refusal::bad_request("RequireChecksumVerification is true or false")),
    }
}

/// Checks that the caller may create the file here, as for a PUT.
async fn may_pull(exchange: &Exchange, overwrite: Overwrite) -> Result<Overwrite, Refusal> {
    if exchange.target.slash {
        return Err(Refusal::method_not_allowed("a directory cannot be fetched"));
    }
    exchange.may_stat_before(Activity::Create, exchange.path())?;
    let existing = exchange.metadata().await?;
    match &existing {
        Some(existing) if existing.is_directory() => {
            return Err(Refusal::method_not_allowed("a directory of that name exists"));
        }
        Some(_) => {
            exchange.may(Activity::Modify)?;
            locking::may_change(exchange, exchange.path()).await?;
        }
        None => {
            exchange.may(Activity::Create)?;
            locking::may_add(exchange, exchange.path()).await?;
            parent_exists(exchange).await?;
        }
    }
    exchange.check_conditions(existing.as_ref())?;
    exchange.check_create(existing.as_ref())?;
    if existing.is_some() && overwrite == Overwrite::Refuse {
        return Err(Refusal::destination_exists());
    }
    Ok(if exchange.may(Activity::Modify).is_ok() { overwrite } else { Overwrite::Refuse })
}

/// Checks that the parent exists, unless the settings create missing parents as for a PUT.
async fn parent_exists(exchange: &Exchange) -> Result<(), Refusal> {
    let Some(parent) = exchange.path().parent().filter(|_| !exchange.service.http.settings.create_parents) else {
        return Ok(());
    };
    match exchange.metadata_of(&parent).await? {
        Some(found) if found.is_directory() => Ok(()),
        _ => {
            let text = "the parent directory of the file does not exist";
            Err(Refusal::new(StatusCode::CONFLICT, text).of(Fault::NotFound))
        }
    }
}

/// Checks that the caller may read the local file.
async fn may_push(exchange: &Exchange) -> Result<(), Refusal> {
    exchange.may_stat_before(Activity::Read, exchange.path())?;
    let source: Metadata = exchange.store().stat(exchange.caller(), exchange.path()).await?;
    exchange.may(Activity::Read)?;
    exchange.check_conditions(Some(&source))?;
    match source.kind {
        FileKind::File => Ok(()),
        _ => Err(Refusal::method_not_allowed("only files can be sent to other servers")),
    }
}

/// Returns the fields for the other server. All are marked sensitive, so that their values are not printed.
fn forwarded(headers: &HeaderMap) -> HeaderMap {
    let mut forwarded = HeaderMap::new();
    for (name, value) in headers {
        let Some(name) = name.as_str().strip_prefix(FORWARDED).and_then(|name| HeaderName::try_from(name).ok()) else {
            continue;
        };
        let text = name.as_str();
        let is_of_message = NOT_FORWARDED.contains(&text) || text.starts_with("proxy-") || text.starts_with("if-");
        if !is_of_message && !text.starts_with(FORWARDED) {
            let mut value: HeaderValue = value.clone();
            value.set_sensitive(true);
            forwarded.append(name, value);
        }
    }
    forwarded
}

/// Removes the bearer token from `headers`, because it is subject to the rules for tokens.
fn take_token(headers: &mut HeaderMap) -> Option<Secret> {
    let token = headers.get(header::AUTHORIZATION).and_then(|value| bearer::in_credentials(value.to_str().ok()?))?;
    headers.remove(header::AUTHORIZATION);
    Some(token)
}

/// Returns 202 with a body that lasts as long as the copy.
fn answer(exchange: &Exchange, copy_task: CopyTask) -> Response<Content> {
    let pause = exchange.service.third_party.settings.markers.0.min(MAX_MARKER_INTERVAL);
    let begun = Some(MarkerStream { copy_task, next: clock::now(), pause });
    let body = stream::unfold(begun, |marker_stream| async move { Some(marker_stream?.next().await) });
    let mut response = respond::with_status(StatusCode::ACCEPTED, Content::Stream(Box::pin(body), None));
    response.headers_mut().insert(header::CONTENT_TYPE, TEXT);
    response
}

/// Progress reports to the client.
struct MarkerStream {
    copy_task: CopyTask,
    /// Time of the next marker.
    next: Instant,
    pause: Duration,
}

impl MarkerStream {
    /// Returns the next part of the body: a marker when due, or the last marker with the outcome.
    async fn next(mut self) -> (towpath_store::Result<Chunk>, Option<Self>) {
        let ended = timeout_at(self.next, self.copy_task.finished()).await;
        let marker = self.marker();
        match ended {
            Err(_) => {
                self.next = clock::now() + self.pause;
                (Ok(Chunk::Bytes(marker.to_string().into(), None)), Some(self))
            }
            Ok(outcome) => {
                let (copy_outcome, fault) = match outcome {
                    Ok(()) => (CopyOutcome::Success, None),
                    Err(error) => (CopyOutcome::Failure(describe(&error)), Some(error.fault())),
                };
                (Ok(Chunk::Outcome(Bytes::from(format!("{marker}{copy_outcome}")), fault)), None)
            }
        }
    }

    fn marker(&self) -> Marker {
        let bytes = self.copy_task.progress.written();
        Marker { timestamp_s: clock::unix_s(), stripe: 0, bytes, stripes: 1 }
    }
}

/// Formats an error for the client that requested the copy.
fn describe(error: &Error) -> String {
    match error.fault() {
        Fault::Internal => "this server failed: see its log".into(),
        _ => error.describe().to_string(),
    }
}
