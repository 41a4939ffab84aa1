//! Asking what a path is: PROPFIND where the server speaks WebDAV, HEAD elsewhere.

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
use towpath_store::{Blame, Caller, Error, Fault, FileKind, Metadata, Result, StorePath};

use super::{
    answer::Answer, describe, features, payload::Payload, refusal, request::Request, retry_state::Failure, site::Site,
    target::Target,
};
use crate::words::readable;

/// The digests that are wanted, best first: those that all sides here can compute in passing.
pub(super) const WANTED: [Algorithm; 4] = [Algorithm::Crc32c, Algorithm::Adler32, Algorithm::Md5, Algorithm::Sha256];

/// The longest answer about a single path.
const ANSWER_BYTES: usize = 1 << 20;

/// PROPFIND, which the `http` crate has no constant for.
pub(super) fn propfind() -> Method {
    method("PROPFIND")
}

/// A method of WebDAV.
pub(super) fn method(name: &'static str) -> Method {
    Method::from_bytes(name.as_bytes()).expect("method names are tokens")
}

/// The metadata of `path`, which is at `target`.
///
/// # Errors
/// Those of the request, and `NotFound`.
pub(super) async fn stat(site: &Site, caller: &Caller, path: &StorePath, target: &Target) -> Result<Metadata> {
    match request_metadata(site, caller, target).await {
        Ok(Found::Entry(entry)) => Ok(describe::of_entry(&entry)),
        Ok(Found::Metadata(_)) if path.is_root() => Ok(Metadata::new(FileKind::Directory, 0)),
        Ok(Found::Metadata(metadata)) => Ok(metadata),
        Err(error) if error.fault() == Fault::IsDirectory => Ok(Metadata::new(FileKind::Directory, 0)),
        Err(error) => Err(error.at(path)),
    }
}

/// What WebDAV knows of `path`.
///
/// # Errors
/// Those of the request, `NotFound`, and `Unsupported` if the server does not support WebDAV.
pub(super) async fn entry(site: &Site, caller: &Caller, path: &StorePath, target: &Target) -> Result<Entry> {
    match request_metadata(site, caller, target).await.map_err(|error| error.at(path))? {
        Found::Entry(entry) => Ok(*entry),
        Found::Metadata(_) => Err(no_dav(target).at(path)),
    }
}

/// That a server does not speak WebDAV.
pub(super) fn no_dav(target: &Target) -> Error {
    let message = format!("{} does not speak WebDAV, which this needs", target.root());
    Error::new(Fault::Unsupported, message).blamed_on(Blame::Storage)
}

enum Found {
    Entry(Box<Entry>),
    Metadata(Metadata),
}

async fn request_metadata(site: &Site, caller: &Caller, target: &Target) -> Result<Found> {
    if !site.features.dav.possible() {
        return head(site, caller, target).await.map(Found::Metadata);
    }
    let (mut retry_state, request) = (site.retry_state(target), propfind_request(site, "0"));
    let answer = loop {
        let answer = site.send_request(caller, &mut retry_state, &request).await?;
        match answer.status {
            StatusCode::MULTI_STATUS => match Described::receive(answer).await {
                Ok(described) => {
                    site.features.dav.learn(true);
                    let entry = described.entry()?;
                    return match entry.is_collection || entry.is_special || entry.size_bytes.is_some() {
                        true => Ok(Found::Entry(Box::new(entry))),
                        // An unknown size is not 0.
                        false => head(site, caller, target).await.map(Found::Metadata),
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
    // Not every server says so if it does not know the method, or it may allow reading but not this.
    if matches!(answer.status, StatusCode::METHOD_NOT_ALLOWED | StatusCode::NOT_IMPLEMENTED) {
        site.features.dav.learn(false);
    }
    answer.discard().await;
    head(site, caller, target).await.map(Found::Metadata)
}

/// A PROPFIND of that depth.
pub(super) fn propfind_request(site: &Site, depth: &'static str) -> Request {
    let mut request = Request::new(site, propfind())
        .with(http::HeaderName::from_static("depth"), depth)
        .with(header::CONTENT_TYPE, "application/xml; charset=utf-8");
    request.payload = Payload::Whole(propfind_body(site.features.is_towpath.possible()).into());
    request
}

/// An answer to a PROPFIND of depth 0.
struct Described {
    body: Vec<u8>,
    /// Who answered, after all redirects.
    target: Target,
    is_from_xrootd: bool,
}

impl Described {
    /// Receives the answer.
    ///
    /// # Errors
    /// As [`Answer::whole`].
    async fn receive(answer: Answer) -> Result<Self, Failure> {
        let (target, is_from_xrootd) = (answer.target.clone(), features::is_xrootd(&answer.headers));
        Ok(Self { body: answer.whole(ANSWER_BYTES).await?, target, is_from_xrootd })
    }

    /// The metadata of the resource.
    ///
    /// # Errors
    /// `Protocol` if it says nothing that can be used; the error of the resource.
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

    /// The entry of the resource. A server may ignore the depth, and list members of a directory before the directory.
    ///
    /// Behind a proxy a server may know the resource by a path with a prefix more, or less, than the one that was
    /// requested. A single entry is taken if one of the two paths ends with the other, name by name: `/webdav/d/f` for
    /// `/d/f`, or `/d/f` for `/webdav/d/f`. That keeps the last name, so that neither a child nor a parent is taken for
    /// the resource, except for `/`, which every path ends with, and which is only taken if it is a directory: a wrong
    /// one is then refused where a file is to be read or removed.
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
                Err(self.unusable(&format!("it describes {other} instead")))
            }
            Err(none) if none.is_empty() => Err(self.unusable("it describes nothing")),
            Err(_) => Err(self.unusable("it describes other resources")),
        }
    }

    fn unusable(&self, why: &str) -> Error {
        let message = format!("the answer of {} to PROPFIND cannot be used: {why}", self.target.root());
        Error::new(Fault::Protocol, message).blamed_on(Blame::Storage)
    }
}

/// The names in a path; none in that of the root.
fn names(path: &[u8]) -> Vec<&[u8]> {
    path.split(|byte| *byte == b'/').filter(|name| !name.is_empty()).collect()
}

/// Whether `entry` may be the resource that was `requested` by these names ([`Described::find`]).
fn is_under_another_prefix(entry: &Entry, requested: &[&[u8]]) -> bool {
    let described = names(&entry.path);
    let is_suffix = described.ends_with(requested) || requested.ends_with(&described);
    is_suffix && (entry.is_collection || !described.is_empty())
}

/// That the properties of `target` could not be had.
pub(super) fn refused(status: u16, target: &Target) -> Error {
    let fault = Fault::from_http(status);
    Error::new(fault, fault.phrase()).in_store(target.root()).with_code(status.into())
}

/// Returns the metadata of a file by HEAD, with the server's digests; by GET where HEAD is not sufficient.
///
/// # Errors
/// Those of the request, `NotFound`, `IsDirectory`.
pub(super) async fn head(site: &Site, caller: &Caller, target: &Target) -> Result<Metadata> {
    // XRootD would read the file to compute them.
    let wanted: &[Algorithm] = if site.features.is_xrootd.certain() { &[] } else { &WANTED };
    let metadata = match ask_head(site, caller, target, wanted, site.options.stall).await {
        Ok(answer) => described(&answer),
        Err(error) if may_be_for_get_only(&error) => None,
        Err(error) => return Err(error),
    };
    match metadata {
        // Some frameworks answer any HEAD with the length 0. Object stores and our own server do not.
        Some(metadata) if metadata.size > 0 || site.is_signed() || site.features.is_towpath.certain() => Ok(metadata),
        Some(metadata) => unless_empty(metadata, site, caller, target).await,
        None => by_get(site, caller, target).await,
    }
}

/// Returns `metadata`, which describe an empty file, or those of a GET if the file is not empty: reads of an empty
/// file send no request that could show it.
///
/// # Errors
/// As [`by_get`].
pub(super) async fn unless_empty(
    metadata: Metadata,
    site: &Site,
    caller: &Caller,
    target: &Target,
) -> Result<Metadata> {
    let found = by_get(site, caller, target).await?;
    Ok(if found.size == 0 { metadata } else { found })
}

/// Whether a refusal of HEAD says nothing about GET: a URL may be signed for GET alone, and not every server knows
/// HEAD.
pub(super) fn may_be_for_get_only(error: &Error) -> bool {
    matches!(error.fault(), Fault::PermissionDenied | Fault::Unsupported | Fault::InvalidArgument)
}

/// The metadata of a file by a GET of its first byte.
///
/// A server without support of the range may respond 416 to a non-empty file too. Unless that response has size 0, a
/// GET of the whole file decides; its body is not read.
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

/// Returns the size of the file in a response 416 (`Content-Range: bytes */N`, RFC 9110 §14.4), if present.
pub(super) fn size_without_range(answer: &Answer) -> Option<u64> {
    match ContentRange::parse(answer.field(header::CONTENT_RANGE)?)? {
        ContentRange::Unsatisfied { size } => Some(size),
        ContentRange::Part { .. } => None,
    }
}

/// What the body of an answer is encoded as, if the server says so. Stored that way (as archives of Apache are, and
/// objects with that attribute) it is the content of the file; encoded on its way it has no length.
pub(super) fn coding_of(answer: &Answer) -> Option<&str> {
    answer
        .field(header::CONTENT_ENCODING)
        .filter(|coding| !coding.is_empty() && !coding.eq_ignore_ascii_case("identity"))
}

/// Returns the error for a file of unknown length: it can only be read as a stream
/// ([`towpath_store::ReadHandle::stream`]).
pub(super) fn unknown_length(target: &Target) -> Error {
    let message = format!("{} does not tell how long the file is: only `cp` and `cat` can read it", target.root());
    Error::new(Fault::Unsupported, message).blamed_on(Blame::Storage)
}

/// The metadata in an answer to HEAD; none without a length.
fn described(answer: &Answer) -> Option<Metadata> {
    let size = answer.field(header::CONTENT_LENGTH)?.parse().ok()?;
    Some(describe::of_headers(&answer.headers, size).0)
}

/// Sends a HEAD and returns its successful response; it requests digests unless the server rejects that.
///
/// # Errors
/// Those of the request, `NotFound`, `IsDirectory`.
pub(super) async fn ask_head(
    site: &Site,
    caller: &Caller,
    target: &Target,
    wanted: &[Algorithm],
    wait: Duration,
) -> Result<Answer> {
    let mut asks = !wanted.is_empty() && site.features.want_digest.possible();
    loop {
        let mut request = Request::new(site, Method::HEAD);
        if asks {
            request = with_wanted_digests(request, wanted);
        }
        request.of_file = true;
        request.wait = wait;
        let answer = site.send_request(caller, &mut site.retry_state(target), &request).await?;
        // 202 describes what the server will do, as with a file that comes from tape, not the file.
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

/// Adds a request for digests, in both forms, to `request`.
pub(super) fn with_wanted_digests(request: Request, wanted: &[Algorithm]) -> Request {
    request
        .with(http::HeaderName::from_static("want-digest"), write_want_digest(wanted))
        .with(http::HeaderName::from_static("want-repr-digest"), write_want_repr_digest(wanted))
}

/// Whether the request may have been refused for its wish for a digest, as XRootD without checksums configured does;
/// then it is worth asking again without.
pub(super) fn may_refuse_wishes(answer: &Answer) -> bool {
    matches!(answer.status, StatusCode::METHOD_NOT_ALLOWED | StatusCode::FORBIDDEN | StatusCode::BAD_REQUEST)
}

/// Returns the error of a truncated body that is not requested again.
pub(super) fn error_of(failure: Failure) -> Error {
    match failure {
        Failure::NotSent(error) | Failure::Lost(error) | Failure::Later(error, _) | Failure::Fatal(error) => error,
        Failure::Redirect(_) => Error::new(Fault::Protocol, "a redirect where none can be"),
    }
}
