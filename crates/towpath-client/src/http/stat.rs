//! Metadata of a path: by PROPFIND if the server supports WebDAV, else by HEAD.

use std::time::Duration;

use http::{Method, StatusCode, header};
use towpath_proto::{
    checksum::Algorithm,
    http::{
        dav::{Entries, Entry, propfind_body},
        digest::{write_want_digest, write_want_repr_digest},
        range::{self, ContentRange},
    },
    url::decode_href,
};
use towpath_store::{Blame, Caller, Error, Fault, FileKind, Kind, Metadata, Result, StorePath};

use super::{
    describe, features, payload::Payload, refusal, request::Request, response::HttpResponse, retry_state::Failure,
    site::Site, target::Target,
};
use crate::words::readable;

/// Requested digests, in order of preference: those that all sides here can compute while they transfer data.
pub(super) const WANTED: [Algorithm; 4] = [Algorithm::Crc32c, Algorithm::Adler32, Algorithm::Md5, Algorithm::Sha256];

/// Maximum length in bytes of a response about a single path.
const ANSWER_BYTES: usize = 1 << 20;

/// Returns the method PROPFIND, for which the `http` crate has no constant.
pub(super) fn propfind() -> Method {
    method("PROPFIND")
}

/// Returns a WebDAV method.
pub(super) fn method(name: &'static str) -> Method {
    Method::from_bytes(name.as_bytes()).expect("method names are tokens")
}

/// Returns the metadata of `path`, which is at `target`.
///
/// # Errors
/// `NotFound`, and those of the request.
pub(super) async fn stat(site: &Site, caller: &Caller, path: &StorePath, target: &Target) -> Result<Metadata> {
    match request_metadata(site, caller, target).await {
        Ok(StatResult::Entry(entry)) => Ok(describe::of_entry(&entry)),
        Ok(StatResult::Metadata(_)) if path.is_root() => Ok(Metadata::new(FileKind::Directory, 0)),
        Ok(StatResult::Metadata(metadata)) => Ok(metadata),
        Err(error) if error.fault() == Fault::IsDirectory => Ok(Metadata::new(FileKind::Directory, 0)),
        Err(error) => Err(error.at(path)),
    }
}

/// Returns the WebDAV properties of `path`.
///
/// # Errors
/// `NotFound`, `Unsupported` if the server does not support WebDAV, and those of the request.
pub(super) async fn entry(site: &Site, caller: &Caller, path: &StorePath, target: &Target) -> Result<Entry> {
    match request_metadata(site, caller, target).await.map_err(|error| error.at(path))? {
        StatResult::Entry(entry) => Ok(*entry),
        StatResult::Metadata(_) => Err(no_dav(target).at(path)),
    }
}

/// Returns the error for a server without WebDAV.
pub(super) fn no_dav(target: &Target) -> Error {
    let message = format!("{} does not support WebDAV, which this requires", target.root());
    Error::new(Fault::Unsupported, message).blamed_on(Blame::Storage)
}

enum StatResult {
    Entry(Box<Entry>),
    Metadata(Metadata),
}

async fn request_metadata(site: &Site, caller: &Caller, target: &Target) -> Result<StatResult> {
    if !site.features.dav.possible() || target.is_query {
        return head(site, caller, target).await.map(StatResult::Metadata);
    }
    let (mut retry_state, request) = (site.retry_state(target), propfind_request(site, "0"));
    let answer = loop {
        let answer = site.send_request(caller, &mut retry_state, &request).await?;
        match answer.status {
            StatusCode::MULTI_STATUS => match PropfindResponse::receive(answer).await {
                Ok(described) => {
                    site.features.dav.learn(true);
                    let entry = described.entry()?;
                    return match entry.is_collection || entry.is_special || entry.size_bytes.is_some() {
                        true => Ok(StatResult::Entry(Box::new(entry))),
                        // An unknown size is not 0.
                        false => head(site, caller, target).await.map(StatResult::Metadata),
                    };
                }
                Err(failure) => site.handle_failure(&mut retry_state, failure, &request).await?,
            },
            _ => break answer,
        }
    };
    let credentials = site.credentials(caller)?;
    if site.features.dav.certain() && answer.status != StatusCode::METHOD_NOT_ALLOWED {
        return Err(refusal::of(answer, &request.method, &credentials).await);
    }
    // Not every server responds so to an unknown method, and a server may permit reads but not PROPFIND.
    if matches!(answer.status, StatusCode::METHOD_NOT_ALLOWED | StatusCode::NOT_IMPLEMENTED) {
        site.features.dav.learn(false);
    }
    let refused = refusal::of(answer, &request.method, &credentials).await;
    let found = head(site, caller, target).await.map(StatResult::Metadata);
    // The response to HEAD has no message, and that to GET is about the right to read.
    let is_same_denial = |error: &Error| error.kind() == Kind::Denied && error.fault() == refused.fault();
    found.map_err(|error| if is_same_denial(&error) { refused.clone() } else { error })
}

/// Creates a PROPFIND request of the given depth.
pub(super) fn propfind_request(site: &Site, depth: &'static str) -> Request {
    let mut request = Request::new(site, propfind())
        .with(http::HeaderName::from_static("depth"), depth)
        .with(header::CONTENT_TYPE, "application/xml; charset=utf-8");
    request.payload = Payload::Whole(propfind_body(site.features.is_towpath.possible()).into());
    request
}

/// A response to a PROPFIND of depth 0.
struct PropfindResponse {
    body: Vec<u8>,
    /// The server that responded, after all redirects.
    target: Target,
    is_from_xrootd: bool,
}

impl PropfindResponse {
    /// Receives the response.
    ///
    /// # Errors
    /// Those of [`HttpResponse::whole`].
    async fn receive(answer: HttpResponse) -> Result<Self, Failure> {
        let (target, is_from_xrootd) = (answer.target.clone(), features::is_xrootd(&answer.headers));
        Ok(Self { body: answer.whole(ANSWER_BYTES).await?, target, is_from_xrootd })
    }

    /// Returns the metadata of the resource.
    ///
    /// # Errors
    /// `Protocol` if the response has no usable entry; the error of the resource.
    fn entry(&self) -> Result<Entry> {
        let entries = Entries::new(&self.body).map_err(|error| self.unusable(&error.to_string()))?;
        let entries = entries.from_xrootd(self.is_from_xrootd).collect::<Result<Vec<_>, _>>();
        let entries = entries.map_err(|error| self.unusable(&readable(&error.to_string())))?;
        let entry = self.find(entries)?;
        match entry.status {
            None => Ok(entry),
            Some(status) => Err(refused(status, &self.target)),
        }
    }

    /// Finds the entry of the resource. A server may ignore the depth, and list members of a directory before the
    /// directory.
    ///
    /// Behind a proxy, a server may use a path with a longer or shorter prefix than the requested one. A single entry
    /// is accepted if one of the two paths ends with the other, compared name by name: `/webdav/d/f` for `/d/f`, or
    /// `/d/f` for `/webdav/d/f`. The last name is then the same, so neither a child nor a parent is mistaken for the
    /// resource. The exception is `/`, with which every path ends: it is accepted only if it is a directory, so that a
    /// wrong match is rejected where a file is to be read or removed.
    fn find(&self, mut entries: Vec<Entry>) -> Result<Entry> {
        let requested = decode_href(self.target.path()).map_err(|error| self.unusable(&error.to_string()))?;
        let requested = names(&requested);
        if let Some(index) = entries.iter().position(|entry| names(&entry.path) == requested) {
            return Ok(entries.swap_remove(index));
        }
        match <[Entry; 1]>::try_from(entries) {
            Ok([only]) if is_under_another_prefix(&only, &requested) => Ok(only),
            Ok([only]) => {
                let other = readable(&String::from_utf8_lossy(&only.path));
                Err(self.unusable(&format!("unexpected entry {other}")))
            }
            Err(none) if none.is_empty() => Err(self.unusable("no entry")),
            Err(_) => Err(self.unusable("unexpected entries")),
        }
    }

    fn unusable(&self, why: &str) -> Error {
        let message = format!("invalid PROPFIND response from {}: {why}", self.target.root());
        Error::new(Fault::Protocol, message).blamed_on(Blame::Storage)
    }
}

/// Returns the names in a path; none for the root.
fn names(path: &[u8]) -> Vec<&[u8]> {
    path.split(|byte| *byte == b'/').filter(|name| !name.is_empty()).collect()
}

/// Returns whether `entry` may be the resource with the `requested` names ([`PropfindResponse::find`]).
fn is_under_another_prefix(entry: &Entry, requested: &[&[u8]]) -> bool {
    let described = names(&entry.path);
    let is_suffix = described.ends_with(requested) || requested.ends_with(&described);
    is_suffix && (entry.is_collection || !described.is_empty())
}

/// Returns the error for properties of `target` that the server does not return.
pub(super) fn refused(status: u16, target: &Target) -> Error {
    let fault = Fault::from_http(status);
    Error::new(fault, fault.phrase()).in_store(target.root()).with_code(status.into())
}

/// Returns the metadata of a file by HEAD, with the digests that the server has; by GET if HEAD is not sufficient.
///
/// # Errors
/// `NotFound`, `IsDirectory`, and those of the request.
pub(super) async fn head(site: &Site, caller: &Caller, target: &Target) -> Result<Metadata> {
    // XRootD would read the file to compute them.
    let wanted: &[Algorithm] = if site.features.is_xrootd.certain() { &[] } else { &WANTED };
    let metadata = match ask_head(site, caller, target, wanted, site.options.stall).await {
        Ok(answer) => described(&answer),
        Err(error) if may_be_for_get_only(&error) => None,
        Err(error) => return Err(error),
    };
    match metadata {
        // Some frameworks respond to any HEAD with length 0. Object stores and towpath servers do not.
        Some(metadata) if metadata.size > 0 || site.is_signed() || site.features.is_towpath.certain() => Ok(metadata),
        Some(metadata) => unless_empty(metadata, site, caller, target).await,
        None => by_get(site, caller, target).await,
    }
}

/// Returns `metadata`, which describe an empty file, or those of a GET if the file is not empty. A read of an empty
/// file sends no request, so it could not detect this.
///
/// # Errors
/// Those of [`by_get`].
pub(super) async fn unless_empty(
    metadata: Metadata,
    site: &Site,
    caller: &Caller,
    target: &Target,
) -> Result<Metadata> {
    let found = by_get(site, caller, target).await?;
    Ok(if found.size == 0 { metadata } else { found })
}

/// Returns whether GET may succeed although HEAD was rejected: a URL may be signed for GET only, and not every server
/// supports HEAD.
pub(super) fn may_be_for_get_only(error: &Error) -> bool {
    matches!(error.fault(), Fault::PermissionDenied | Fault::Unsupported | Fault::InvalidArgument)
}

/// Returns the metadata of a file by a GET of its first byte.
///
/// A server that does not support the range may respond with 416 even for a non-empty file. Unless that response has
/// size 0, a GET of the whole file decides; its body is not read.
///
/// # Errors
/// Those of the request; [`unknown_length`].
pub(super) async fn by_get(site: &Site, caller: &Caller, target: &Target) -> Result<Metadata> {
    let mut request = Request::new(site, Method::GET).with(header::RANGE, "bytes=0-0");
    request.of_file = true;
    let mut answer = site.send_request(caller, &mut site.retry_state(target), &request).await?;
    let is_empty = size_without_range(&answer) == Some(0);
    if answer.status == StatusCode::RANGE_NOT_SATISFIABLE && !is_empty {
        answer.discard().await;
        request.headers.remove(header::RANGE);
        answer = site.send_request(caller, &mut site.retry_state(target), &request).await?;
    }
    let reported = answer.field(header::CONTENT_RANGE).and_then(range::complete_length);
    let size = match answer.status {
        StatusCode::PARTIAL_CONTENT => reported,
        StatusCode::OK => reported.or(answer.remaining_bytes()),
        StatusCode::RANGE_NOT_SATISFIABLE if is_empty => Some(0),
        _ => return Err(refusal::of(answer, &request.method, &site.credentials(caller)?).await),
    };
    let size = size.ok_or_else(|| unknown_length(&answer.target))?;
    Ok(describe::of_headers(&answer.headers, size).0)
}

/// Returns the file size in a 416 response (`Content-Range: bytes */N`, RFC 9110 §14.4), if present.
pub(super) fn size_without_range(answer: &HttpResponse) -> Option<u64> {
    match ContentRange::parse(answer.field(header::CONTENT_RANGE)?)? {
        ContentRange::Unsatisfied { size } => Some(size),
        ContentRange::Part { .. } => None,
    }
}

/// Returns the content coding of a response body, if there is one. If the file is stored encoded (as Apache's archives
/// are, and objects with that attribute), the encoded body is the content of the file; if it is encoded for transfer,
/// its length is unknown.
pub(super) fn coding_of(answer: &HttpResponse) -> Option<&str> {
    answer
        .field(header::CONTENT_ENCODING)
        .filter(|coding| !coding.is_empty() && !coding.eq_ignore_ascii_case("identity"))
}

/// Returns the error for a file of unknown length: it can only be read as a stream
/// ([`towpath_store::ReadHandle::stream`]).
pub(super) fn unknown_length(target: &Target) -> Error {
    let message = format!("{} does not report the file's size: only `cp` and `cat` can read it", target.root());
    Error::new(Fault::Unsupported, message).blamed_on(Blame::Storage)
}

/// Returns the metadata in a response to HEAD; `None` without a length.
fn described(answer: &HttpResponse) -> Option<Metadata> {
    let size = answer.field(header::CONTENT_LENGTH)?.parse().ok()?;
    Some(describe::of_headers(&answer.headers, size).0)
}

/// Sends a HEAD request and returns the successful response. Requests digests unless the server rejects that.
///
/// # Errors
/// `NotFound`, `IsDirectory`, and those of the request.
pub(super) async fn ask_head(
    site: &Site,
    caller: &Caller,
    target: &Target,
    wanted: &[Algorithm],
    wait: Duration,
) -> Result<HttpResponse> {
    let mut asks = !wanted.is_empty() && site.features.want_digest.possible();
    loop {
        let mut request = Request::new(site, Method::HEAD);
        if asks {
            request = with_wanted_digests(request, wanted);
        }
        request.of_file = true;
        request.wait = wait;
        let answer = site.send_request(caller, &mut site.retry_state(target), &request).await?;
        // A 202 response describes a pending action, such as a recall from tape, and not the file.
        if answer.status.is_success() && answer.status != StatusCode::ACCEPTED {
            if !asks && !wanted.is_empty() {
                site.features.want_digest.learn(false);
            }
            return Ok(answer);
        }
        if !(asks && may_refuse_wishes(&answer)) {
            let credentials = site.credentials(caller)?;
            return Err(refusal::of(answer, &request.method, &credentials).await);
        }
        asks = false;
    }
}

/// Adds header fields that request digests, in both forms.
pub(super) fn with_wanted_digests(request: Request, wanted: &[Algorithm]) -> Request {
    request
        .with(http::HeaderName::from_static("want-digest"), write_want_digest(wanted))
        .with(http::HeaderName::from_static("want-repr-digest"), write_want_repr_digest(wanted))
}

/// Returns whether `request` requests digests.
pub(super) fn wants_digest(request: &Request) -> bool {
    request.headers.contains_key("want-digest")
}

/// Returns whether the request may have been rejected because it requests a digest, as by XRootD without configured
/// checksums. It should then be retried without.
pub(super) fn may_refuse_wishes(answer: &HttpResponse) -> bool {
    matches!(answer.status, StatusCode::METHOD_NOT_ALLOWED | StatusCode::FORBIDDEN | StatusCode::BAD_REQUEST)
}

/// Returns the error for a truncated body that is not requested again.
pub(super) fn error_of(failure: Failure) -> Error {
    match failure {
        Failure::NotSent(error) | Failure::Lost(error) | Failure::Later(error, _) | Failure::Fatal(error) => error,
        Failure::Redirect(_) => Error::new(Fault::Protocol, "unexpected redirect"),
    }
}
