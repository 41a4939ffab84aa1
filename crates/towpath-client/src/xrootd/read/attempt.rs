//! One attempt to read a range, and its result.

use std::sync::Arc;

use bytes::Bytes;
use towpath_proto::xrootd::{
    ErrorCode, FileHandle, PageFlags,
    page::Page,
    request::{PgRead, Read},
};
use towpath_store::{Blame, ByteRange, Error, Fault, Metadata};

use crate::xrootd::{
    connection::{Failure, OutgoingRequest, RequestCompletion},
    retry_state::refusal,
    session::Session,
    sink::{Pages, Sink},
    site::Site,
};

/// Maximum number of retries for a damaged page.
pub(super) const PAGE_RETRIES: usize = 3;

/// The verification of the data of one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::xrootd) enum Check {
    /// Page by page, unless TLS is used or the server lacks pages.
    Pages,
    /// Page by page, for pages that were damaged before.
    DamagedPages,
    /// By the caller, for all ranges together.
    Later,
}

impl Check {
    fn wants_pages(self) -> bool {
        self != Self::Later
    }

    fn flags(self) -> PageFlags {
        if self == Self::DamagedPages { PageFlags::retry } else { PageFlags::NONE }
    }
}

/// The result of an attempt to read; received data are in the buffer in any case.
pub(in crate::xrootd) struct Attempt {
    pub(in crate::xrootd) buffer: Vec<u8>,
    pub(super) bad_pages: Vec<Page>,
    pub(in crate::xrootd) outcome: Result<(), Failure>,
    /// The state of the file after the read, if it was requested with it.
    pub(in crate::xrootd) after: Option<Metadata>,
}

impl Attempt {
    /// Returns the data if they are complete and undamaged.
    pub(in crate::xrootd) fn whole(self) -> Result<Bytes, Failure> {
        self.outcome?;
        match self.bad_pages.first() {
            None => Ok(Bytes::from(self.buffer)),
            Some(page) => Err(Failure::Fatal(damaged("the server", page.offset))),
        }
    }

    /// Creates the result of a failed attempt; data received after `start` are dropped.
    pub(in crate::xrootd) fn failed(mut buffer: Vec<u8>, start: usize, failure: Failure) -> Self {
        buffer.truncate(start);
        Self { buffer, bad_pages: Vec::new(), outcome: Err(failure), after: None }
    }
}

impl From<RequestCompletion> for Attempt {
    fn from(finished: RequestCompletion) -> Self {
        let RequestCompletion { buffer, bad_pages, outcome, .. } = finished;
        Self { buffer, bad_pages, outcome: outcome.map(|_| ()), after: None }
    }
}

/// Sends the request for a range of at most `i32::MAX` bytes and waits for the data.
pub(in crate::xrootd) async fn fetch(
    site: &Site,
    session: &Arc<Session>,
    handle: FileHandle,
    range: ByteRange,
    mut buffer: Vec<u8>,
    check: Check,
) -> Attempt {
    let ByteRange { offset, length } = range;
    let permit = match site.room(length).await {
        Ok(permit) => permit,
        Err(error) => {
            let start = buffer.len();
            return Attempt::failed(buffer, start, Failure::Fatal(error));
        }
    };
    let wire_length = length as u32;
    let outgoing = if check.wants_pages() && site.wants_pages(session) {
        let flags = check.flags();
        let request = PgRead { handle, offset, length: wire_length, flags, ..PgRead::default() };
        OutgoingRequest { sink: Sink::Pages(Pages::new(offset, length, buffer)), ..OutgoingRequest::new(request, 0) }
    } else {
        buffer.reserve(length);
        let request = Read { handle, offset, length: wire_length, ..Read::default() };
        OutgoingRequest { sink: Sink::Plain { buffer, limit: length }, ..OutgoingRequest::new(request, 0) }
    };
    session.submit(OutgoingRequest { permit: Some(permit), ..outgoing }).finished().await.into()
}

/// Returns whether the server rejected the handle as unknown.
pub(super) fn is_not_open(outcome: &Result<(), Failure>) -> bool {
    matches!(outcome, Err(Failure::Refused(reply)) if reply.code == ErrorCode::FileNotOpen)
}

/// Converts the rejection of an unknown handle to a lost connection: the server has lost the session.
pub(in crate::xrootd) fn reopen(failure: Failure) -> Failure {
    match failure {
        Failure::Refused(reply) if reply.code == ErrorCode::FileNotOpen => {
            Failure::Lost(refusal("the session was lost", &reply))
        }
        other => other,
    }
}

/// Returns the error for a page that was damaged in every attempt.
pub(super) fn damaged(host: &str, offset: u64) -> Error {
    let message = format!("{host}: the page at {offset} arrived damaged {} times", PAGE_RETRIES + 1);
    Error::new(Fault::ChecksumMismatch, message).blamed_on(Blame::Network)
}
