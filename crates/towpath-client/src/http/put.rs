//! The request of an upload, and the verification after it.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use http::{HeaderName, Method, StatusCode, header};
use tokio::time::timeout;
use towpath_proto::{
    checksum::{Agreement, Digests},
    http::digest::{write_digest, write_repr_digest},
};
use towpath_store::{
    Blame, Caller, CreateOptions, Error, Expectation, Fault, FileKind, Kind, Metadata, Result, StorePath,
};

use super::{
    body_channel::BodyChannel, describe, payload::Payload, refusal, request::Request, response::HttpResponse, stat,
    store::HttpStore,
};
use crate::dial::timed_out;

/// Delays before each check for leftovers of an interrupted upload.
const LOOKS: [Duration; 4] =
    [Duration::ZERO, Duration::from_millis(100), Duration::from_millis(400), Duration::from_millis(1000)];

/// The state of the name before an upload.
#[derive(Debug, Clone)]
pub(super) enum InitialState {
    Nothing,
    Something(Metadata),
    /// Not known: a caller with permission to write may lack permission to read.
    Unknown,
}

impl InitialState {
    /// Returns whether `now` is known to differ from the state before the upload.
    fn differs_from(&self, now: &Metadata) -> bool {
        match self {
            Self::Nothing => true,
            Self::Something(before) => before.version.is_some() && before.version != now.version,
            Self::Unknown => false,
        }
    }
}

/// The parameters of an upload.
#[derive(Debug, Clone)]
pub(super) struct Put {
    pub(super) store: HttpStore,
    pub(super) caller: Caller,
    pub(super) path: StorePath,
    pub(super) options: CreateOptions,
    pub(super) before: InitialState,
}

impl Put {
    /// Sends a whole file in one request. Retries after a lost connection, unless the file of the first attempt could
    /// make the second one fail.
    pub(super) async fn at_once(&self, content: Bytes, digests: &Digests, mtime_ns: Option<i64>) -> Result<Metadata> {
        let size = content.len() as u64;
        let request = self.request(Payload::Whole(content), digests, mtime_ns);
        let answer = self.send_request(&request).await?;
        let answer = match answer.status {
            // Parents are created only if they are missing, because they usually exist. nginx responds 500 if they are
            // missing.
            StatusCode::CONFLICT | StatusCode::NOT_FOUND | StatusCode::INTERNAL_SERVER_ERROR
                if self.options.parents =>
            {
                answer.discard().await;
                self.make_parents().await?;
                self.send_request(&request).await?
            }
            _ => answer,
        };
        self.accepted(answer, size).await
    }

    /// Sends the content of `body_channel`.
    pub(super) async fn stream(&self, body_channel: &Arc<BodyChannel>) -> Result<Metadata> {
        if self.options.parents {
            self.make_parents().await?;
        }
        let mut request =
            self.request(Payload::Stream(Arc::clone(body_channel)), &Digests::new(), self.options.mtime_ns);
        request.prompt = false;
        let answer = self.send_request(&request).await?;
        self.accepted(answer, body_channel.taken_bytes()).await
    }

    pub(super) async fn send_request(&self, request: &Request) -> Result<HttpResponse> {
        let site = &self.store.site;
        site.send_request(&self.caller, &mut site.retry_state(&self.store.target(&self.path)), request).await
    }

    fn request(&self, payload: Payload, digests: &Digests, mtime_ns: Option<i64>) -> Request {
        let site = &self.store.site;
        let mut request = Request::new(site, Method::PUT).with(header::CONTENT_TYPE, "application/octet-stream");
        if let Payload::Whole(content) = &payload {
            // Required even for an empty file: hyper omits it, and then nginx fails.
            request = request.with(header::CONTENT_LENGTH, content.len().to_string());
        }
        if let Some(mtime_ns) = mtime_ns {
            request = request.with(HeaderName::from_static("x-oc-mtime"), modified(mtime_ns));
        }
        if let Some(value) = write_digest(digests) {
            request = request.with(HeaderName::from_static("digest"), value);
        }
        if let Some(value) = write_repr_digest(digests) {
            request = request.with(HeaderName::from_static("repr-digest"), value);
        }
        if site.features.want_digest.possible() && !site.features.is_xrootd.certain() {
            request = stat::with_wanted_digests(request, &stat::WANTED);
        }
        if self.only_new() {
            request = request.with(header::IF_NONE_MATCH, "*");
            request.repeatable = false;
        }
        request.wait = site.options.patience;
        request.payload = payload;
        request
    }

    /// Returns the metadata of the new file in the response.
    pub(super) async fn accepted(&self, answer: HttpResponse, size: u64) -> Result<Metadata> {
        if answer.status == StatusCode::ACCEPTED {
            return self.promised(answer, size).await;
        }
        if answer.status.is_success() {
            let (mut metadata, _) = describe::of_headers(&answer.headers, size);
            // It is about the response, not about the file.
            metadata.freshness = None;
            // A digest in the header may be that of the response body.
            if answer.remaining_bytes() != Some(0) {
                metadata.digests = Digests::new();
            }
            answer.discard().await;
            return Ok(metadata);
        }
        Err(self.refused(answer).await)
    }

    /// Returns the metadata of a new file after a 202 response, if it exists already. If it does not, nothing may be
    /// removed: the name may still belong to the file to be replaced.
    async fn promised(&self, answer: HttpResponse, size: u64) -> Result<Metadata> {
        let root = answer.target.root();
        answer.discard().await;
        let found = match self.look().await {
            Ok(found) => found,
            Err(error) if error.fault() == Fault::NotFound => return Err(refusal::not_done(&root, &Method::PUT, None)),
            Err(error) => return Err(refusal::not_done(&root, &Method::PUT, Some(error.message()))),
        };
        let is_like = (found.kind, found.size) == (FileKind::File, size);
        if is_like && self.before.differs_from(&found) {
            return Ok(found);
        }
        let unseen = is_like.then_some("the file may have existed before");
        Err(refusal::not_done(&root, &Method::PUT, unseen))
    }

    /// Returns the error for a response that rejects the upload.
    pub(super) async fn refused(&self, answer: HttpResponse) -> Error {
        let status = answer.status;
        let credentials = match self.store.site.credentials(&self.caller) {
            Ok(credentials) => credentials,
            Err(error) => return error,
        };
        let error = refusal::of(answer, &Method::PUT, &credentials).await;
        match status {
            StatusCode::CONFLICT | StatusCode::NOT_FOUND => self.explain(error).await,
            StatusCode::METHOD_NOT_ALLOWED | StatusCode::FORBIDDEN if self.is_directory().await => {
                Error::new(Fault::IsDirectory, "it is a directory")
            }
            _ => error,
        }
    }

    /// Explains the conflict of a PUT with an existing file.
    async fn explain(&self, error: Error) -> Error {
        if self.is_directory().await {
            return Error::new(Fault::IsDirectory, "it is a directory");
        }
        self.store.explain_missing_parent(&self.caller, &self.path, error).await
    }

    async fn is_directory(&self) -> bool {
        self.store.stat_path(&self.caller, &self.path).await.is_ok_and(|metadata| metadata.is_directory())
    }

    /// Creates the parent directory, if it is missing.
    pub(super) async fn make_parents(&self) -> Result<()> {
        let Some(parent) = self.path.parent() else { return Ok(()) };
        match self.store.stat_path(&self.caller, &parent).await {
            Err(error) if error.fault() == Fault::NotFound => self.store.make_directories(&self.caller, &parent).await,
            // The upload reports its own errors.
            _ => Ok(()),
        }
    }

    /// Compares the stored file with the sent data.
    ///
    /// # Errors
    /// `Truncated`, `ChecksumMismatch`, `Changed` if it was replaced by another file, and errors of the comparison.
    pub(super) async fn verify(
        &self,
        reported: Metadata,
        size: u64,
        digests: &Digests,
        expected: &Expectation,
    ) -> Result<Metadata> {
        let mut metadata = self.compare(reported, size, digests).await?;
        self.request_promised(expected, &mut metadata.digests).await?;
        self.verify_others(digests, expected, &mut metadata.digests).await?;
        Ok(metadata)
    }

    /// Removes the new file. Waits for the response no longer than for that of an ordinary request: the error of the
    /// upload is reported only afterwards.
    pub(super) async fn remove(&self) -> bool {
        let target = self.store.target(&self.path);
        let removal = self.store.delete(&self.caller, &self.path, &target);
        let removed = timeout(self.store.site.options.stall, removal).await;
        let removed = removed.unwrap_or_else(|_| Err(timed_out(target.root(), "the removal")));
        if let Err(error) = &removed {
            tracing::warn!(%error, path = %self.path, "cannot remove the remains of a failed upload");
        }
        removed.is_ok()
    }

    /// Returns the metadata of the new file, if size and digests match the sent data. No request is sent if the
    /// response to the PUT was sufficient.
    async fn compare(&self, reported: Metadata, size: u64, digests: &Digests) -> Result<Metadata> {
        if reported.version.is_some()
            && reported.mtime_ns.is_some()
            && matches!(reported.digests.compare(digests), Agreement::Same)
        {
            return Ok(reported);
        }
        let metadata = match self.look().await {
            Ok(metadata) => metadata,
            // A caller with permission to write may lack permission to read.
            Err(error) if error.kind() == Kind::Denied || error.fault() == Fault::Unsupported => {
                tracing::warn!(%error, path = %self.path, "an upload could not be verified");
                return Ok(reported);
            }
            Err(error) => return Err(error),
        };
        let is_other = reported.version.is_some() && metadata.version != reported.version;
        match damage(&metadata, size, digests) {
            None => Ok(metadata),
            Some(error) if !is_other => Err(error),
            Some(_) if matches!(reported.digests.compare(digests), Agreement::Same) => Ok(reported),
            Some(_) => {
                let message = "the file was replaced in the meantime, and whether this upload arrived is unknown";
                Err(Error::new(Fault::Changed, message))
            }
        }
    }

    /// Returns the current metadata of the file.
    async fn look(&self) -> Result<Metadata> {
        let (site, target) = (&self.store.site, self.store.target(&self.path));
        match site.features.is_xrootd.certain() {
            // The server's response to HEAD has no time.
            true => stat::stat(site, &self.caller, &self.path, &target).await,
            false => stat::head(site, &self.caller, &target).await,
        }
    }

    /// Requests the expected digest from XRootD, which sends one only on request, because it reads the file for it.
    /// Adds it to `found_right`.
    async fn request_promised(&self, expected: &Expectation, found_right: &mut Digests) -> Result<()> {
        let is_compared = !matches!(expected.digests.compare(found_right), Agreement::Incomparable);
        if is_compared || !self.store.site.features.is_xrootd.certain() {
            return Ok(());
        }
        for promised in expected.digests.iter() {
            match self.store.request_digest(&self.caller, &self.path, promised.algorithm()).await {
                Ok(Some(found)) if found == *promised => {
                    found_right.insert(found);
                    return Ok(());
                }
                Ok(Some(found)) => {
                    let message = format!("the storage reports {found:#}, expected {promised:#}");
                    return Err(Error::new(Fault::ChecksumMismatch, message).blamed_on(Blame::Storage));
                }
                Ok(None) => {}
                // A caller with permission to write may lack permission to read.
                Err(error) if error.kind() == Kind::Denied || error.fault() == Fault::Unsupported => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Verifies promised digests that were not computed during the transfer, and adds them to `found_right`.
    async fn verify_others(&self, digests: &Digests, expected: &Expectation, found_right: &mut Digests) -> Result<()> {
        for promised in expected.digests.iter().filter(|promised| digests.get(promised.algorithm()).is_none()) {
            let found = self.store.digest_of(&self.caller, &self.path, promised.algorithm(), &|_| {}).await?;
            if found != *promised {
                let message =
                    format!("the {} of the written file is {found}, expected {promised}", promised.algorithm());
                return Err(Error::new(Fault::ChecksumMismatch, message));
            }
            found_right.insert(found);
        }
        Ok(())
    }

    /// Removes the visible part of an upload that was interrupted after `sent_bytes`. Only if the file did not exist
    /// before and is not longer than the sent data: then this upload created it.
    pub(super) async fn clean_up(&self, sent_bytes: u64) {
        let features = &self.store.site.features;
        if matches!(self.before, InitialState::Unknown) || features.is_towpath.certain() {
            return;
        }
        // XRootD may create the file after the connection is closed; the other servers seen show nothing before it is
        // complete.
        let looks = if features.is_xrootd.certain() { LOOKS.as_slice() } else { LOOKS.split_at(1).0 };
        for pause in looks {
            tokio::time::sleep(*pause).await;
            if self.remove_torso(sent_bytes).await {
                return;
            }
        }
    }

    /// Removes the visible part of an upload. Returns whether there was one that could be removed.
    async fn remove_torso(&self, sent_bytes: u64) -> bool {
        let found = self.store.stat_path(&self.caller, &self.path).await;
        let is_ours = |found: Metadata| {
            found.kind == FileKind::File && found.size <= sent_bytes && self.before.differs_from(&found)
        };
        found.is_ok_and(is_ours) && self.remove().await
    }
}

/// Returns the error for a file that does not match `size` and `digests` of the sent data.
fn damage(metadata: &Metadata, size: u64, digests: &Digests) -> Option<Error> {
    if metadata.kind != FileKind::File || metadata.size != size {
        let message = format!("the storage reports a size of {} bytes, expected {size}", metadata.size);
        return Some(Error::new(Fault::Truncated, message).blamed_on(Blame::Storage));
    }
    let Agreement::Different(algorithm) = metadata.digests.compare(digests) else { return None };
    let message = format!("the storage reports a different {algorithm} than that of the sent data");
    Some(Error::new(Fault::ChecksumMismatch, message).blamed_on(Blame::Storage))
}

/// Formats `X-OC-Mtime`: seconds since the Unix epoch, with a fraction if it is not zero.
pub(super) fn modified(mtime_ns: i64) -> String {
    // Before 1970 the fraction is negative, like the whole number.
    let sign = if mtime_ns < 0 { "-" } else { "" };
    let (seconds, nanoseconds) = (mtime_ns.unsigned_abs() / 1_000_000_000, mtime_ns.unsigned_abs() % 1_000_000_000);
    if nanoseconds == 0 { format!("{sign}{seconds}") } else { format!("{sign}{seconds}.{nanoseconds:09}") }
}
