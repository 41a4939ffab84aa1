//! PUT: a whole file, or a part of one ([`super::uploads`], [`super::parts`]). The file becomes visible when it is
//! complete and matches all promised digests.
//!
//! `X-OC-Mtime` sets the modification time (ownCloud; rclone sends it). A missing parent is 409 (RFC 4918 §9.7.1)
//! unless the setting `http.create_parents` is on.

use std::{ops::Range, sync::Arc};

use http::{HeaderValue, Response, StatusCode, header};
use hyper::body::{Body as _, Incoming};
use towpath_proto::{checksum::Digests, http::range::ContentRange};
use towpath_store::{CreateOptions, Expectation, Fault, Metadata, Overwrite, ResumeKey, WriteHandle};

use super::{
    body::Content,
    digests,
    exchange::Exchange,
    locking,
    parts::UploadAction,
    refusal::Refusal,
    respond::{self, value},
    upload::{self, BodyExpectation, BodyReceiver},
    uploads::{Key, Name, Upload, Uploads},
};
use crate::access::Activity;

/// Handles a PUT.
pub(super) async fn answer(exchange: &Exchange, body: Incoming) -> Result<Response<Content>, Refusal> {
    match PutRequest::begin(exchange, &body).await {
        Ok(put) => put.carry_out(body).await,
        Err(refusal) => {
            upload::discard(&exchange.headers, body, &exchange.service.limits).await;
            Err(refusal)
        }
    }
}

/// A PUT that passed all initial checks.
pub(super) struct PutRequest<'a> {
    pub(super) exchange: &'a Exchange,
    existing: Option<Metadata>,
    piece: Option<ContentRange>,
    length: Option<u64>,
    pub(super) promised: Digests,
    promised_of_content: Digests,
    mtime_ns: Option<i64>,
    pub(super) resume: Option<ResumeKey>,
    action: Option<UploadAction>,
}

impl<'a> PutRequest<'a> {
    /// Makes all checks that are possible before the body arrives.
    async fn begin(exchange: &'a Exchange, body: &Incoming) -> Result<Self, Refusal> {
        if exchange.target.slash {
            return Err(not_a_directory());
        }
        exchange.may_stat_before(Activity::Create, exchange.path())?;
        let existing = exchange.metadata().await?;
        exchange.may(if existing.is_some() { Activity::Modify } else { Activity::Create })?;
        if existing.as_ref().is_some_and(Metadata::is_directory) {
            return Err(not_a_directory());
        }
        exchange.check_create(existing.as_ref())?;
        match existing {
            Some(_) => locking::may_change(exchange, exchange.path()).await?,
            None => locking::may_add(exchange, exchange.path()).await?,
        }
        exchange.check_conditions(existing.as_ref())?;
        let piece = match exchange.field(header::CONTENT_RANGE) {
            None => None,
            Some(text) => {
                let piece = ContentRange::parse(&text).filter(|piece| piece.size().is_some());
                Some(piece.ok_or_else(|| {
                    Refusal::bad_request("Content-Range must contain a byte range and the total size")
                })?)
            }
        };
        Ok(Self {
            existing,
            piece,
            length: body.size_hint().exact(),
            promised: digests::promised(exchange)?,
            promised_of_content: digests::promised_of_content(exchange)?,
            mtime_ns: mtime(exchange)?,
            resume: resume_key(exchange)?,
            action: UploadAction::of(exchange)?,
            exchange,
        })
    }

    async fn carry_out(self, body: Incoming) -> Result<Response<Content>, Refusal> {
        match (self.piece, self.action) {
            (None, None) => self.whole(body).await,
            (Some(piece), None) => self.piece(body, piece).await,
            (Some(piece), Some(action)) => self.take_step(body, piece, action).await,
            (None, Some(_)) => Err(Refusal::bad_request("Towpath-Upload needs a Content-Range")),
        }
    }

    async fn whole(mut self, body: Incoming) -> Result<Response<Content>, Refusal> {
        // The content is the whole file, so the digests of both apply.
        self.promised_of_content.iter().for_each(|digest| self.promised.insert(*digest));
        let _lease = self.exchange.open_file().await?;
        let handle = self.create(self.length, None).await?;
        let expectation = BodyExpectation::default();
        let size = BodyReceiver::new(self.exchange, &*handle, 0, &expectation).take(body, &expectation).await?;
        self.commit(&*handle, size, self.promised.clone()).await
    }

    /// Creates the upload in the store.
    pub(super) async fn create(
        &self,
        size: Option<u64>,
        resume: Option<ResumeKey>,
    ) -> Result<Arc<dyn WriteHandle>, Refusal> {
        let options = CreateOptions {
            overwrite: self.overwrite(),
            parents: self.exchange.service.http.settings.create_parents,
            mode: None,
            mtime_ns: self.mtime_ns,
            size_hint: size,
            digests: self.promised.algorithms(),
            resume,
        };
        let created = self.exchange.store().create(self.exchange.caller(), self.exchange.path(), options).await;
        // The missing path is the parent (RFC 4918 §9.7.1).
        created.map_err(|error| {
            Refusal::from(error).or_status(Fault::NotFound, StatusCode::CONFLICT).of_refused_overwrite()
        })
    }

    /// `If-None-Match: *` is enforced until the file becomes visible.
    fn overwrite(&self) -> Overwrite {
        let only_new = self.exchange.field(header::IF_NONE_MATCH).is_some_and(|text| text.trim() == "*");
        if only_new || self.exchange.may(Activity::Modify).is_err() { Overwrite::Refuse } else { Overwrite::Replace }
    }

    pub(super) async fn commit(
        &self,
        handle: &dyn WriteHandle,
        size: u64,
        digests: Digests,
    ) -> Result<Response<Content>, Refusal> {
        if !self.exchange.conditions()?.is_empty() {
            self.exchange.check_conditions(self.exchange.metadata().await?.as_ref())?;
        }
        let expected = Expectation { size: Some(size), digests, mtime_ns: self.mtime_ns };
        let metadata = handle.commit(expected).await.map_err(|error| Refusal::from(error).of_refused_overwrite())?;
        let status = if self.existing.is_some() { StatusCode::NO_CONTENT } else { StatusCode::CREATED };
        let mut response = respond::empty(status);
        let headers = response.headers_mut();
        respond::insert_validators(headers, &respond::validators(&metadata));
        if self.mtime_ns.is_some() {
            headers.insert("x-oc-mtime", HeaderValue::from_static("accepted"));
        }
        headers.extend(digests::wanted(self.exchange, &metadata).await);
        Ok(response)
    }

    async fn piece(self, body: Incoming, piece: ContentRange) -> Result<Response<Content>, Refusal> {
        let uploads = &self.exchange.service.http.uploads;
        let size = piece.size().unwrap_or(0);
        let name = self.resume.map_or(Name::None, Name::Resume);
        let key = Key::new(self.exchange.caller(), self.exchange.path(), size, name);
        let Some(range) = piece.offsets() else {
            upload::text(self.exchange, body).await?;
            return match size {
                0 => self.finish(uploads, &key, &*self.open(uploads, &key, 0).await?, 0).await,
                // Data kept by an earlier server run are found by opening the upload.
                _ if self.resume.is_some() => Ok(incomplete(Some(&*self.open(uploads, &key, size).await?))),
                _ => Ok(incomplete(uploads.get(&key).as_deref())),
            };
        };
        let upload = self.open(uploads, &key, size).await?;
        upload.add_promised(&self.promised);
        if !self.exchange.store().capabilities().write_any_order && range.start != upload.end_of_first() {
            return Ok(incomplete(Some(&upload)));
        }
        self.take(body, range, &upload, || uploads.close(&key)).await?;
        if upload.is_whole(size) {
            self.finish(uploads, &key, &upload, size).await
        } else {
            Ok(incomplete(Some(&upload)))
        }
    }

    /// Receives the bytes of `range`; `close` removes the upload from the table.
    pub(super) async fn take(
        &self,
        body: Incoming,
        range: Range<u64>,
        upload: &Upload,
        close: impl FnOnce() -> Option<Arc<Upload>>,
    ) -> Result<(), Refusal> {
        let expectation =
            BodyExpectation { length: Some(range.end - range.start), digests: self.promised_of_content.clone() };
        if !expectation.digests.is_empty() {
            upload.forget(&range);
        }
        let mut receiver = BodyReceiver::new(self.exchange, &*upload.handle, range.start, &expectation);
        let outcome = receiver.take(body, &expectation).await;
        let damaged = matches!(&outcome, Err(refusal) if refusal.fault() == Fault::ChecksumMismatch);
        if !damaged {
            upload.record_written(range.start..range.start + receiver.written())?;
        } else if upload.resume.is_some() && close().is_some() {
            // The partially written data would otherwise be found and taken as valid.
            upload.handle.abort().await?;
        }
        outcome.map(drop)
    }

    async fn open(&self, uploads: &Uploads, key: &Key, size: u64) -> Result<Arc<Upload>, Refusal> {
        match uploads.get(key) {
            Some(upload) => Ok(upload),
            None => {
                let resume = self.resume.filter(|_| self.exchange.store().capabilities().resume);
                let leases = uploads.lease(&self.exchange.holder, &self.exchange.service.files)?;
                let handle = self.create(Some(size), resume).await?;
                let present = handle.present().await?;
                Ok(uploads.open(key.clone(), handle, resume, &present, leases))
            }
        }
    }

    async fn finish(
        &self,
        uploads: &Uploads,
        key: &Key,
        upload: &Upload,
        size: u64,
    ) -> Result<Response<Content>, Refusal> {
        match uploads.close(key) {
            Some(_) => self.commit(&*upload.handle, size, upload.promised()).await,
            // Another request delivered the last part concurrently and commits. (Nothing else closes an upload in
            // use.)
            None => Ok(incomplete(Some(upload))),
        }
    }
}

fn not_a_directory() -> Refusal {
    Refusal::method_not_allowed("a directory cannot be uploaded: use MKCOL")
}

/// Returns 308 with the received ranges.
fn incomplete(upload: Option<&Upload>) -> Response<Content> {
    let mut response = respond::empty(StatusCode::PERMANENT_REDIRECT);
    let extents = upload.map(Upload::extents).unwrap_or_default();
    if !extents.is_empty() {
        let show = |extent: &Range<u64>| format!("{}-{}", extent.start, extent.end - 1);
        let list: Vec<_> = extents.iter().map(show).collect();
        response.headers_mut().insert(header::RANGE, value(format!("bytes={}", list.join(","))));
    }
    response
}

/// Parses the key under which the upload can be resumed.
fn resume_key(exchange: &Exchange) -> Result<Option<ResumeKey>, Refusal> {
    let Some(text) = exchange.custom_field("towpath-resume") else { return Ok(None) };
    text.trim().parse().map(Some).map_err(|_| Refusal::bad_request("Towpath-Resume has 32 hexadecimal digits"))
}

/// Parses the requested modification time.
fn mtime(exchange: &Exchange) -> Result<Option<i64>, Refusal> {
    let Some(text) = exchange.custom_field("x-oc-mtime") else { return Ok(None) };
    let unreadable = || Refusal::bad_request("X-OC-Mtime is a time in seconds since 1970");
    mtime_ns(&text).map(Some).ok_or_else(unreadable)
}

/// Parses `X-OC-Mtime`: seconds since the Unix epoch, with or without a fraction. Returns nanoseconds.
pub(super) fn mtime_ns(text: &str) -> Option<i64> {
    let (whole, fraction) = text.trim().split_once('.').unwrap_or((text.trim(), ""));
    let seconds: i64 = whole.parse().ok()?;
    if !fraction.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let digits: String = fraction.chars().chain("000000000".chars()).take(9).collect();
    let nanoseconds: i64 = digits.parse().ok()?;
    // Before 1970 the fraction is negative too.
    let nanoseconds = if whole.starts_with('-') { -nanoseconds } else { nanoseconds };
    seconds.checked_mul(1_000_000_000)?.checked_add(nanoseconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_fractions() {
        for (text, ns) in [
            ("1700000000", Some(1_700_000_000_000_000_000)),
            ("1700000000.5", Some(1_700_000_000_500_000_000)),
            ("1.0000000019", Some(1_000_000_001)),
            ("-1.5", Some(-1_500_000_000)),
            ("1.+5", None),
            ("", None),
            ("x", None),
            ("9999999999999", None),
        ] {
            assert_eq!(mtime_ns(text), ns, "{text}");
        }
    }
}
