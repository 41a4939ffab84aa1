//! Responses that need no waiting, produced by the connection's reader without a task.
//!
//! A request that needs more writes nothing and becomes a job ([`super::job`]): a read that is not in memory
//! ([`super::read`]), a file that is still being opened, a long response.

use std::sync::Arc;

use bytes::{BufMut as _, BytesMut};
use futures::FutureExt as _;
use towpath_proto::xrootd::{
    FileHandle, Request, RequestHeader, StatOptions, StreamId, Target, request::Query, response,
};

use super::{
    active_request::{ErrorResponse, Outcome, verb},
    connection::Connection,
    files::{OpenFile, Slot},
    metadata, query,
};
use crate::log_server_fault;

/// The outcome with the number of bytes of file data moved; `None` if the request has to wait.
pub(super) type ImmediateOutcome = Option<Result<u64, ErrorResponse>>;

impl Connection {
    /// Answers the request if that needs no waiting. Returns whether it did.
    pub(super) fn try_answer(&mut self, header: &RequestHeader, request: &Request) -> bool {
        let mark = self.out.len();
        let slot = self.slot_of(request);
        let outcome = match request {
            Request::Read(request) => self.try_read(header.stream_id, request),
            Request::Readv(request) => self.try_readv(header.stream_id, request),
            Request::PgRead(request) => self.try_pgread(header.stream_id, request),
            Request::Ping(_) | Request::Set(_) => Some(Ok(self.ok(header.stream_id, &()))),
            // `sigver` has no response; no request here requires a signature.
            Request::Sigver(_) => Some(Ok(0)),
            Request::Stat(request) => match request.target {
                Target::Handle(handle) if request.options == StatOptions::NONE => self.stat(header.stream_id, handle),
                _ => None,
            },
            Request::Close(request) => self.close(header.stream_id, request.handle),
            Request::Query(Query::Config(words)) => {
                self.reap();
                let socket = (self.socket, self.tasks.is_empty());
                Some(query::config(&self.session, words, socket).map(|values| self.ok(header.stream_id, &values)))
            }
            _ => None,
        };
        let Some(outcome) = outcome else {
            self.out.truncate(mark);
            return false;
        };
        self.conclude(header, outcome, mark, slot.as_ref().and_then(|slot| slot.file().ok()));
        true
    }

    /// Returns the handle of the request's open file, which may be closed by the request.
    fn slot_of(&self, request: &Request) -> Option<Arc<Slot>> {
        let handle = match request {
            Request::Read(request) => request.handle,
            Request::Readv(request) => request.elements.first()?.handle,
            Request::PgRead(request) => request.handle,
            Request::Close(request) => request.handle,
            Request::Stat(request) => match request.target {
                Target::Handle(handle) => handle,
                Target::Path(_) => return None,
            },
            _ => return None,
        };
        self.session.files.find(handle).ok()
    }

    fn conclude(
        &mut self,
        header: &RequestHeader,
        outcome: Result<u64, ErrorResponse>,
        mark: usize,
        file: Option<&OpenFile>,
    ) {
        let moved_bytes = *outcome.as_ref().unwrap_or(&0);
        let fault = outcome.as_ref().err().map(|refusal| refusal.fault);
        let denial = outcome.as_ref().err().and_then(ErrorResponse::denial);
        if let Err(refusal) = outcome {
            log_server_fault(self.session.peer, refusal.fault, &refusal.message);
            self.out.truncate(mark);
            self.refuse(header.stream_id, &refusal);
        }
        if let Some(file) = file.filter(|_| moved_bytes > 0) {
            self.session.record_sent(&file.identity, moved_bytes);
        }
        let path = file.map(|file| &file.path);
        let (verb, since) = (verb(header.code), self.since);
        self.session.record(&Outcome { verb, path, identity: None, fault, denial, moved_bytes, since });
    }

    fn stat(&mut self, stream_id: StreamId, handle: FileHandle) -> ImmediateOutcome {
        let slot = match self.session.files.find(handle) {
            Ok(slot) => slot,
            Err(refusal) => return Some(Err(refusal)),
        };
        let _turn = slot.queue.try_shared()?;
        let file = slot.file().ok()?;
        let can = self.session.service.store.capabilities();
        Some(match file.metadata().now_or_never()? {
            Ok(found) => Ok(self.ok(stream_id, &metadata::stat_info(&can, &file.identity, &file.path, &found))),
            Err(error) => Err(error.into()),
        })
    }

    fn close(&mut self, stream_id: StreamId, handle: FileHandle) -> ImmediateOutcome {
        let slot = match self.session.files.find(handle) {
            Ok(slot) => slot,
            Err(refusal) => return Some(Err(refusal)),
        };
        let _turn = slot.queue.try_exclusive()?;
        slot.file().ok()?.reader()?;
        let released = self.session.files.release(handle);
        Some(released.map(|_| self.ok(stream_id, &())))
    }

    /// Appends the final response with `body`, which moves no file data.
    fn ok(&mut self, stream_id: StreamId, body: &impl response::Body) -> u64 {
        let mut frame = BytesMut::new();
        response::ok(stream_id, body, &mut frame);
        self.out.put_slice(&frame);
        0
    }
}
