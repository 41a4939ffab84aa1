//! Multipart uploads of large files by towpath's own client: over several connections, and resumable.
//!
//! Each step is a `PUT` of the file with `Content-Range`, as in [`super::uploads`], with the step in
//! `Towpath-Upload`. Other servers ignore that field, so the client sends these requests to towpath servers only.
//!
//! | `Towpath-Upload` | `Content-Range` | response |
//! | --- | --- | --- |
//! | `begin` | `bytes */300` | 200, `Towpath-Upload: ID`; the body lists the present extents, one per line: offset, length, CRC32C and Adler32 in hexadecimal. Repeats `Towpath-Resume` if the upload is resumable |
//! | `ID` | `bytes 0-99/300` | 202: stored |
//! | `ID` | `bytes */300` | 201 or 204: the file is complete, verified and visible; 409 if bytes are missing |
//! | `keep ID` | `bytes */300` | 204: ended; the data are kept if possible |
//! | `abandon ID` | `bytes */300` | 204: aborted; nothing is kept |
//!
//! Present extents were read back and verified ([`towpath_store::WriteHandle::present`]), which `begin` waits for. It
//! supersedes an upload with the same `Towpath-Resume` whose client has been idle for three seconds; otherwise the
//! response is 429.

use std::fmt::Write as _;

use http::{HeaderValue, Response, StatusCode, header};
use hyper::body::Incoming;
use towpath_proto::{
    checksum::{Algorithm, Extent},
    http::range::ContentRange,
};
use towpath_store::Fault;

use super::{
    body::Content,
    exchange::Exchange,
    put::PutRequest,
    refusal::Refusal,
    respond::{self, value},
    upload,
    uploads::{Key, MAX_PRESENT_EXTENTS, Name, UploadId},
};

/// The step that a request performs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum UploadAction {
    Begin,
    /// A part, or the commit if the request has no range.
    Part(UploadId),
    Keep(UploadId),
    Abandon(UploadId),
}

impl UploadAction {
    /// Parses `Towpath-Upload`; `None` if it is absent.
    pub(super) fn of(exchange: &Exchange) -> Result<Option<Self>, Refusal> {
        let Some(text) = exchange.custom_field("towpath-upload") else { return Ok(None) };
        let action = match text.trim() {
            "begin" => Some(Self::Begin),
            text => match text.split_once(' ') {
                None => UploadId::parse(text).map(Self::Part),
                Some(("keep", id)) => UploadId::parse(id).map(Self::Keep),
                Some(("abandon", id)) => UploadId::parse(id).map(Self::Abandon),
                Some(_) => None,
            },
        };
        action
            .map(Some)
            .ok_or_else(|| Refusal::bad_request("Towpath-Upload is `begin`, an id, or `keep` or `abandon` and an id"))
    }
}

impl PutRequest<'_> {
    /// Performs the step.
    pub(super) async fn take_step(
        self,
        body: Incoming,
        piece: ContentRange,
        action: UploadAction,
    ) -> Result<Response<Content>, Refusal> {
        let size = piece.size().unwrap_or(0);
        match (action, piece.offsets()) {
            (UploadAction::Begin, _) => {
                upload::text(self.exchange, body).await?;
                self.begin_upload(size).await
            }
            (UploadAction::Part(id), Some(range)) => {
                let (uploads, key) = (&self.exchange.service.http.uploads, self.key(size, id));
                let upload = uploads.get(&key).ok_or_else(not_open)?;
                self.take(body, range, &upload, || uploads.close(&key)).await?;
                Ok(respond::empty(StatusCode::ACCEPTED))
            }
            (UploadAction::Part(id), None) => {
                upload::text(self.exchange, body).await?;
                self.end_upload(size, id).await
            }
            (UploadAction::Keep(id) | UploadAction::Abandon(id), _) => {
                upload::text(self.exchange, body).await?;
                let upload = self.exchange.service.http.uploads.close(&self.key(size, id)).ok_or_else(not_open)?;
                if matches!(action, UploadAction::Abandon(_)) {
                    upload.handle.abort().await?;
                }
                // Dropped before the response, so that the client may begin again.
                drop(upload);
                Ok(respond::empty(StatusCode::NO_CONTENT))
            }
        }
    }

    fn key(&self, size: u64, id: UploadId) -> Key {
        Key::new(self.exchange.caller(), self.exchange.path(), size, Name::Begun(id))
    }

    async fn begin_upload(&self, size: u64) -> Result<Response<Content>, Refusal> {
        let can = self.exchange.store().capabilities();
        if !can.write_any_order {
            return Err(Refusal::new(StatusCode::NOT_IMPLEMENTED, "this storage only supports sequential writes"));
        }
        let resume = self.resume.filter(|_| can.resume);
        let (uploads, id) = (&self.exchange.service.http.uploads, UploadId::new());
        let key = self.key(size, id);
        if let Some(resume) = resume {
            uploads.supersede(&key, resume)?;
        }
        let leases = uploads.lease(&self.exchange.holder, &self.exchange.service.files)?;
        let handle = self.create(Some(size), resume).await?;
        let present = handle.present().await?;
        uploads.open(key, handle, resume, &present, leases);
        let mut text = String::new();
        present.iter().take(MAX_PRESENT_EXTENTS).for_each(|extent| line(extent, &mut text));
        let mut response = respond::with_status(StatusCode::OK, Content::text(text));
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, respond::TEXT);
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        headers.insert("towpath-upload", value(id));
        if let Some(resume) = resume {
            headers.insert("towpath-resume", value(resume));
        }
        Ok(response)
    }

    async fn end_upload(&self, size: u64, id: UploadId) -> Result<Response<Content>, Refusal> {
        let (uploads, key) = (&self.exchange.service.http.uploads, self.key(size, id));
        let upload = uploads.get(&key).ok_or_else(not_open)?;
        if !upload.is_whole(size) {
            return Err(Refusal::new(StatusCode::CONFLICT, "bytes of the file are missing").of(Fault::Truncated));
        }
        uploads.close(&key).ok_or_else(not_open)?;
        self.commit(&*upload.handle, size, self.promised.clone()).await
    }
}

/// Appends a line for a present extent.
fn line(extent: &Extent, text: &mut String) {
    let digests = extent.digests();
    let [crc32c, adler32] = [Algorithm::Crc32c, Algorithm::Adler32].map(|algorithm| digests.get(algorithm));
    if let (Some(crc32c), Some(adler32)) = (crc32c, adler32) {
        let written = writeln!(text, "{} {} {crc32c} {adler32}", extent.offset(), extent.bytes());
        debug_assert!(written.is_ok(), "a string grows as needed");
    }
}

fn not_open() -> Refusal {
    Refusal::new(StatusCode::GONE, "no such upload is open: it ended or was superseded").of(Fault::HandleNotOpen)
}
