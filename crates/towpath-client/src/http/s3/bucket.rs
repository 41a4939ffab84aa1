//! A bucket, and single requests to it.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderName, Method, StatusCode, header};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};
use towpath_proto::{
    checksum::{Algorithm, Digest, Digests},
    http::dav::InvalidXml,
    s3::{self, MAX_KEY_BYTES, MAX_PUT_BYTES, Page, Part},
};
use towpath_store::{Blame, Caller, Error, Fault, FileKind, Metadata, Result, StorePath, VersionTag};

use crate::{
    http::{
        describe::{Condition, Version},
        payload::Payload,
        refusal,
        request::Request,
        response::HttpResponse,
        site::Site,
        stat,
        target::Target,
    },
    words::readable,
};

/// Characters that a query value may have unencoded (RFC 3986 §2.3).
const IN_QUERY: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Maximum length in bytes of a response other than a page of a listing.
const ANSWER_BYTES: usize = s3::ANSWER.bytes;

/// Length of each part of a multipart copy, and maximum size of an object copied by one request, in bytes: as much as
/// one request may copy.
const COPIED_BYTES: u64 = MAX_PUT_BYTES;

/// Header field of a copy that names its source.
const COPY_SOURCE: HeaderName = HeaderName::from_static("x-amz-copy-source");

/// A bucket at a site.
#[derive(Debug, Clone)]
pub(super) struct Bucket {
    pub(super) site: Arc<Site>,
    /// The part of the request path before the key.
    pub(super) prefix: String,
    pub(super) name: Arc<str>,
    /// The region to create the bucket in.
    pub(super) region: Option<Arc<str>>,
}

/// Returns the key of a file.
///
/// # Errors
/// `InvalidArgument` if the path is not UTF-8, `NameTooLong`.
pub(super) fn key_of(path: &StorePath) -> Result<&str> {
    let key = path.as_bytes().strip_prefix(b"/").unwrap_or(path.as_bytes());
    if key.len() > MAX_KEY_BYTES {
        let message = format!("an S3 key has at most {MAX_KEY_BYTES} bytes");
        return Err(Error::new(Fault::NameTooLong, message).at(path));
    }
    str::from_utf8(key).map_err(|_| Error::new(Fault::InvalidArgument, "an S3 key must be UTF-8").at(path))
}

/// Returns the prefix of all keys in a directory; empty for the root.
///
/// # Errors
/// Those of [`key_of`].
pub(super) fn prefix_of(path: &StorePath) -> Result<String> {
    let key = key_of(path)?;
    Ok(if key.is_empty() { String::new() } else { format!("{key}/") })
}

fn encoded(value: &str) -> String {
    percent_encode(value.as_bytes(), IN_QUERY).to_string()
}

impl Bucket {
    /// Returns the target of the object `key`. `query` must already be encoded; it may be empty.
    pub(super) fn target(&self, key: &str, query: &str) -> Target {
        let path = key.split('/').map(encoded).collect::<Vec<_>>().join("/");
        let query = if query.is_empty() { String::new() } else { format!("?{query}") };
        Target::encoded(self.site.endpoint.clone(), format!("{}/{path}{query}", self.prefix))
    }

    /// Returns the path of the bucket, without a trailing slash, which some servers mistake for a key.
    fn bucket_path(&self) -> &str {
        if self.prefix.is_empty() { "/" } else { &self.prefix }
    }

    /// Sends a request and returns the response if it is successful.
    async fn send_request(&self, caller: &Caller, target: &Target, request: &Request) -> Result<HttpResponse> {
        let answer = self.site.send_request(caller, &mut self.site.retry_state(target), request).await?;
        if answer.status.is_success() { Ok(answer) } else { Err(self.refused(answer, &request.method, caller).await) }
    }

    pub(super) async fn refused(&self, answer: HttpResponse, method: &Method, caller: &Caller) -> Error {
        match self.site.credentials(caller) {
            Ok(credentials) => refusal::of(answer, method, &credentials).await,
            Err(error) => error,
        }
    }

    /// Reads the body of a response; retries if it breaks off.
    async fn body(&self, caller: &Caller, target: &Target, request: &Request, limit_bytes: usize) -> Result<Vec<u8>> {
        let mut retry_state = self.site.retry_state(target);
        loop {
            let answer = self.site.send_request(caller, &mut retry_state, request).await?;
            if !answer.status.is_success() {
                return Err(self.refused(answer, &request.method, caller).await);
            }
            match answer.whole(limit_bytes).await {
                Ok(body) => return Ok(body),
                Err(failure) => self.site.handle_failure(&mut retry_state, failure, request).await?,
            }
        }
    }

    fn unusable(&self, error: InvalidXml) -> Error {
        let message = format!("invalid response from {}: {error}", self.target("", "").root());
        Error::new(Fault::Protocol, message).blamed_on(Blame::Storage)
    }

    /// Returns the metadata of an object, with the digests that the server has.
    ///
    /// # Errors
    /// `NotFound`, and those of the request.
    pub(super) async fn head(&self, caller: &Caller, key: &str) -> Result<Metadata> {
        stat::head(&self.site, caller, &self.target(key, "")).await
    }

    /// Lists one page of the keys that begin with `prefix`, at most `limit` of them. If `grouped`, keys with a further
    /// slash after the prefix are returned as common prefixes.
    ///
    /// # Errors
    /// `NotFound` if the bucket does not exist; `Protocol` if the page has keys with another prefix: they must not be
    /// used, least of all for a removal.
    pub(super) async fn page(
        &self,
        caller: &Caller,
        prefix: &str,
        grouped: bool,
        limit: usize,
        next: Option<&str>,
    ) -> Result<Page> {
        let mut query = String::new();
        if let Some(next) = next {
            query.push_str(&format!("continuation-token={}&", encoded(next)));
        }
        if grouped {
            query.push_str("delimiter=%2F&");
        }
        query.push_str(&format!("encoding-type=url&list-type=2&max-keys={limit}&prefix={}", encoded(prefix)));
        let target = Target::encoded(self.site.endpoint.clone(), format!("{}?{query}", self.bucket_path()));
        let request = Request::new(&self.site, Method::GET);
        let body = self.body(caller, &target, &request, s3::PAGE.bytes).await?;
        let page = Page::parse(&body).map_err(|error| self.unusable(error))?;
        match page.stray_key(prefix) {
            Some(key) => {
                let key = readable(&String::from_utf8_lossy(key));
                let message = format!("{} lists `{key}`, which is not below `{prefix}`", target.root());
                Err(Error::new(Fault::Protocol, message).blamed_on(Blame::Storage))
            }
            None => Ok(page),
        }
    }

    /// Returns whether any key begins with `prefix`; for the bucket itself, whether it exists.
    ///
    /// # Errors
    /// `NotFound` if the bucket does not exist.
    pub(super) async fn has_keys(&self, caller: &Caller, prefix: &str) -> Result<bool> {
        let page = self.page(caller, prefix, false, 1, None).await?;
        Ok(prefix.is_empty() || !page.objects.is_empty())
    }

    /// Returns the metadata of `path`: an object, or a directory if there are keys below it or a marker.
    ///
    /// # Errors
    /// `NotFound`.
    pub(super) async fn stat(&self, caller: &Caller, path: &StorePath) -> Result<Metadata> {
        if !path.is_root() {
            match self.head(caller, key_of(path)?).await {
                Err(error) if error.fault() == Fault::NotFound => {}
                found => return found.map_err(|error| error.at(path)),
            }
        }
        self.stat_directory(caller, path).await
    }

    /// Returns the metadata of the directory `path`, even if an object has the same name.
    ///
    /// # Errors
    /// `NotFound` if there are no keys below it and no marker.
    pub(super) async fn stat_directory(&self, caller: &Caller, path: &StorePath) -> Result<Metadata> {
        let prefix = prefix_of(path)?;
        match self.has_keys(caller, &prefix).await.map_err(|error| error.at(path))? {
            true => Ok(Metadata::new(FileKind::Directory, 0)),
            false => Err(Error::new(Fault::NotFound, format!("the bucket {} has no such key", self.name)).at(path)),
        }
    }

    /// Creates the bucket.
    pub(super) async fn make(&self, caller: &Caller) -> Result<()> {
        let target = Target::encoded(self.site.endpoint.clone(), self.bucket_path().to_owned());
        let mut request = Request::new(&self.site, Method::PUT).with(header::CONTENT_LENGTH, "0");
        // Amazon's first region must be omitted here, and other servers accept any region.
        let region = self.region.as_deref().filter(|region| *region != "us-east-1");
        if let Some(region) = region {
            let body = s3::make_bucket_body(region);
            request = request.with(header::CONTENT_LENGTH, body.len().to_string());
            request.payload = Payload::Whole(body.into());
        }
        self.send_request(caller, &target, &request).await?.discard().await;
        Ok(())
    }

    /// Puts a whole object and returns its entity tag, if the server sends it. With `only_new`, a server that supports
    /// conditions does not replace an object.
    ///
    /// # Errors
    /// `AlreadyExists`; `ChecksumMismatch` if the data were damaged in transit.
    pub(super) async fn put(
        &self,
        caller: &Caller,
        key: &str,
        content: Bytes,
        crc32c: Option<Digest>,
        only_new: bool,
    ) -> Result<Option<String>> {
        let mut request = with_checksum(self.sending(Method::PUT, content), crc32c);
        if only_new {
            request = request.with(header::IF_NONE_MATCH, "*");
            request.repeatable = false;
        }
        let answer = self.send_request(caller, &self.target(key, ""), &request).await?;
        let etag = answer.field(header::ETAG).map(str::to_owned);
        answer.discard().await;
        Ok(etag)
    }

    /// Creates a request with a body.
    fn sending(&self, method: Method, content: Bytes) -> Request {
        let mut request = Request::new(&self.site, method)
            .with(header::CONTENT_TYPE, "application/octet-stream")
            .with(header::CONTENT_LENGTH, content.len().to_string());
        request.payload = Payload::Whole(content);
        request.wait = self.site.options.patience;
        request
    }

    /// Removes an object; succeeds if it does not exist.
    pub(super) async fn delete(&self, caller: &Caller, key: &str) -> Result<()> {
        let request = Request::new(&self.site, Method::DELETE);
        self.send_request(caller, &self.target(key, ""), &request).await?.discard().await;
        Ok(())
    }

    /// Removes an object if it is still `version`; a server that supports the condition does not remove another one.
    /// Succeeds if the object does not exist.
    pub(super) async fn delete_version(&self, caller: &Caller, key: &str, version: Option<&VersionTag>) -> Result<()> {
        let Some(tag) = entity_tag(version) else { return self.delete(caller, key).await };
        let request = Request::new(&self.site, Method::DELETE).with(header::IF_MATCH, tag);
        match self.send_request(caller, &self.target(key, ""), &request).await {
            Ok(answer) => answer.discard().await,
            Err(error) if error.fault() == Fault::NotFound => {}
            Err(error) if matches!(error.fault(), Fault::Changed | Fault::Locked) => {
                tracing::warn!(key, "an object was replaced before its removal: the new version is kept");
            }
            // The response of Amazon itself until 2025.
            Err(error) if error.fault() == Fault::Unsupported => return self.delete(caller, key).await,
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Copies the object `from`, which `metadata` describe, to the key `to` inside the store.
    ///
    /// # Errors
    /// `Changed` if the object is another version now.
    pub(super) async fn copy(&self, caller: &Caller, from: &str, metadata: &Metadata, to: &str) -> Result<()> {
        let source = format!("/{}/{}", self.name, from.split('/').map(encoded).collect::<Vec<_>>().join("/"));
        let condition = entity_tag(metadata.version.as_ref());
        let request = |method: Method| {
            let request = self.sending(method, Bytes::new()).with(COPY_SOURCE, &source);
            match &condition {
                Some(tag) => request.with(HeaderName::from_static("x-amz-copy-source-if-match"), tag),
                None => request,
            }
        };
        if metadata.size <= COPIED_BYTES {
            let body = self.body(caller, &self.target(to, ""), &request(Method::PUT), ANSWER_BYTES).await;
            let copied = body.map_err(source_changed)?;
            return s3::parse_copied(&copied).map(drop).map_err(|error| self.unusable(error));
        }
        let id = self.begin(caller, to).await?;
        let copied = async {
            let mut parts = Vec::new();
            for (number, first) in (1..).zip((0..metadata.size).step_by(COPIED_BYTES as usize)) {
                let last = metadata.size.min(first + COPIED_BYTES) - 1;
                let range = HeaderName::from_static("x-amz-copy-source-range");
                let request = request(Method::PUT).with(range, format!("bytes={first}-{last}"));
                let target = self.target(to, &part_query(&id, number));
                let body = self.body(caller, &target, &request, ANSWER_BYTES).await.map_err(source_changed)?;
                let etag = s3::parse_copied(&body).map_err(|error| self.unusable(error))?;
                parts.push(Part { number, etag, crc32c: None });
            }
            self.complete(caller, to, &id, &parts, None, false).await
        };
        let outcome = copied.await.map(drop);
        if outcome.is_err() {
            let _ = self.abort(caller, to, &id).await;
        }
        outcome
    }

    /// Begins a multipart upload and returns its id.
    pub(super) async fn begin(&self, caller: &Caller, key: &str) -> Result<String> {
        let request = self
            .sending(Method::POST, Bytes::new())
            .with(HeaderName::from_static("x-amz-checksum-algorithm"), "CRC32C")
            .with(HeaderName::from_static("x-amz-checksum-type"), "FULL_OBJECT");
        let body = self.body(caller, &self.target(key, "uploads="), &request, ANSWER_BYTES).await?;
        s3::parse_upload_id(&body).map_err(|error| self.unusable(error))
    }

    /// Sends a part. A part that is sent again replaces the first.
    ///
    /// # Errors
    /// `ChecksumMismatch` if the data were damaged in transit.
    pub(super) async fn put_part(
        &self,
        caller: &Caller,
        key: &str,
        id: &str,
        number: u64,
        content: Bytes,
    ) -> Result<Part> {
        let crc32c = towpath_proto::checksum::Hasher::digest_of(Algorithm::Crc32c, &content);
        let request = with_checksum(self.sending(Method::PUT, content), Some(crc32c));
        let answer = self.send_request(caller, &self.target(key, &part_query(id, number)), &request).await?;
        let etag = answer.field(header::ETAG).map(str::to_owned);
        let reported = s3::digests(|name| answer.headers.get(name)?.to_str().ok()).get(Algorithm::Crc32c);
        answer.discard().await;
        let etag = etag.ok_or_else(|| self.unusable(InvalidXml::Unexpected("a part without an ETag")))?;
        if reported.is_some_and(|reported| reported != crc32c) {
            let message = "the storage reports a different crc32c than that of the sent part";
            return Err(Error::new(Fault::ChecksumMismatch, message).blamed_on(Blame::Storage));
        }
        // A server that does not return the checksum may not support the field.
        Ok(Part { number, etag, crc32c: reported })
    }

    /// Completes the object from its parts and returns its entity tag, if the server sends it. `crc32c` is the checksum
    /// of the whole object, for a server that compared those of the parts.
    ///
    /// # Errors
    /// `AlreadyExists` if `only_new` and the object exists; `ChecksumMismatch`.
    pub(super) async fn complete(
        &self,
        caller: &Caller,
        key: &str,
        id: &str,
        parts: &[Part],
        crc32c: Option<Digest>,
        only_new: bool,
    ) -> Result<Option<String>> {
        let compares = parts.iter().all(|part| part.crc32c.is_some());
        let content = s3::complete_body(parts).into();
        let mut request = self.sending(Method::POST, content);
        if let Some(crc32c) = crc32c.filter(|_| compares) {
            request = with_checksum(request, Some(crc32c))
                .with(HeaderName::from_static("x-amz-checksum-type"), "FULL_OBJECT");
        }
        if only_new {
            request = request.with(header::IF_NONE_MATCH, "*");
        }
        // After a completion that succeeded, the upload no longer exists.
        request.repeatable = false;
        let target = self.target(key, &format!("uploadId={}", encoded(id)));
        let body = self.body(caller, &target, &request, ANSWER_BYTES).await?;
        match s3::parse_completed(&body).map_err(|error| self.unusable(error))? {
            Ok(etag) => Ok(etag),
            Err(refusal) => Err(refusal::of_s3(&self.target("", "").root(), StatusCode::OK, &Method::POST, &refusal)),
        }
    }

    /// Aborts an upload: its parts are removed. Succeeds if it does not exist.
    pub(super) async fn abort(&self, caller: &Caller, key: &str, id: &str) -> Result<()> {
        let request = Request::new(&self.site, Method::DELETE);
        let target = self.target(key, &format!("uploadId={}", encoded(id)));
        match self.send_request(caller, &target, &request).await {
            Ok(answer) => answer.discard().await,
            Err(error) if matches!(error.fault(), Fault::NotFound | Fault::HandleNotOpen) => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }
}

/// Returns the entity tag of a version, if the server sent one.
fn entity_tag(version: Option<&VersionTag>) -> Option<String> {
    match Version::of_tag(version?).condition? {
        Condition::Match(tag) => Some(tag),
        Condition::UnmodifiedSince(_) => None,
    }
}

fn part_query(id: &str, number: u64) -> String {
    format!("partNumber={number}&uploadId={}", encoded(id))
}

fn with_checksum(request: Request, crc32c: Option<Digest>) -> Request {
    match crc32c {
        Some(digest) => request.with(HeaderName::from_static("x-amz-checksum-crc32c"), digest.to_base64()),
        None => request,
    }
}

/// Translates the error of a copy: 412 concerns the source.
fn source_changed(error: Error) -> Error {
    if error.fault() != Fault::AlreadyExists {
        return error;
    }
    Error::new(Fault::Changed, "the object was replaced before it was copied").blamed_on(Blame::Storage)
}

/// Returns the digest among `all` that an upload may send.
pub(super) fn crc32c_of(all: &Digests) -> Option<Digest> {
    all.get(Algorithm::Crc32c)
}
