//! Responses that need no waiting, produced by the connection's reader without a task.
//!
//! A request that needs more writes nothing and becomes a job ([`super::job`]): a read that is not in memory, a file
//! that is still being opened, a response of more than [`MAX_IMMEDIATE_BYTES`].

use bytes::{BufMut as _, BytesMut};
use futures::FutureExt as _;
use towpath_proto::xrootd::{
    FileHandle, Request, RequestHeader, ResponseHeader, StatOptions, Status, StreamId, Target, VectorElement, page,
    request::{PgRead, Query, Read, Readv},
    response::{self, PgReadStatus, StatusKind},
};
use towpath_store::{ReadHandle, StorePath};

use super::{
    connection::Connection,
    exchange::{Outcome, Refusal, seal, verb},
    files::{FileAccess, Slot},
    metadata, query, vector,
};
use crate::{log_server_fault, metrics::Face};

/// Maximum file data in an immediate response, in bytes: longer ones would block the network thread for other
/// connections.
const MAX_IMMEDIATE_BYTES: usize = 64 << 10;
/// Maximum number of vector elements read without yielding; longer vectors are read in groups.
const MAX_IMMEDIATE_ELEMENTS: usize = 16;

/// The outcome with the number of bytes of file data moved; `None` if the request has to wait.
type ImmediateOutcome = Option<Result<u64, Refusal>>;

impl Connection {
    /// Answers the request if that needs no waiting. Returns whether it did.
    pub(super) fn try_answer(&mut self, header: &RequestHeader, request: &Request) -> bool {
        let mark = self.out.len();
        let path = self.path_to_log(request);
        let outcome = match request {
            Request::Read(request) => self.read(header.stream_id, request),
            Request::Readv(request) => self.readv(header.stream_id, request),
            Request::PgRead(request) => self.pgread(header.stream_id, request),
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
        self.conclude(header, outcome, mark, path.as_ref());
        true
    }

    /// Returns the path of the request's open file if the access log is enabled.
    fn path_to_log(&self, request: &Request) -> Option<StorePath> {
        if !self.session.service.access_log.is_on() {
            return None;
        }
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
        Some(self.session.files.find(handle).ok()?.file().ok()?.path.clone())
    }

    fn conclude(
        &mut self,
        header: &RequestHeader,
        outcome: Result<u64, Refusal>,
        mark: usize,
        path: Option<&StorePath>,
    ) {
        let moved_bytes = *outcome.as_ref().unwrap_or(&0);
        let fault = outcome.as_ref().err().map(|refusal| refusal.fault);
        if let Err(refusal) = outcome {
            log_server_fault(self.session.peer, refusal.fault, &refusal.message);
            self.out.truncate(mark);
            self.refuse(header.stream_id, &refusal);
        }
        if moved_bytes > 0 {
            self.session.service.metrics.record_sent(Face::Xrootd, moved_bytes);
        }
        let (verb, since) = (verb(header.code), self.since);
        self.session.record(&Outcome { verb, path, subject: None, fault, moved_bytes, since });
    }

    fn read(&mut self, stream_id: StreamId, request: &Read) -> ImmediateOutcome {
        if request.path_id.0 != 0 || request.length as usize > MAX_IMMEDIATE_BYTES {
            return None;
        }
        self.with_reader(request.handle, |this, file| {
            let start = this.out.len();
            this.out.put_bytes(0, ResponseHeader::LEN);
            let read = file.read_now(request.offset, request.length as usize, &mut this.out)?;
            Some(read.map(|_| seal(&mut this.out, start, stream_id, Status::ok)).map_err(Refusal::from))
        })
    }

    fn pgread(&mut self, stream_id: StreamId, request: &PgRead) -> ImmediateOutcome {
        if request.path_id.0 != 0 || request.length as usize > MAX_IMMEDIATE_BYTES {
            return None;
        }
        self.with_reader(request.handle, |this, file| {
            this.scratch.clear();
            let length = match file.read_now(request.offset, request.length as usize, &mut this.scratch)? {
                Ok(length) => length as u64,
                Err(error) => return Some(Err(error.into())),
            };
            let data_len = page::encoded_len(request.offset, length) as u32;
            let head = PgReadStatus { kind: StatusKind::Final, offset: request.offset, data_len };
            this.out.put_slice(&head.to_bytes(stream_id));
            page::encode(request.offset, &this.scratch, &mut this.out);
            Some(Ok(length))
        })
    }

    fn readv(&mut self, stream_id: StreamId, request: &Readv) -> ImmediateOutcome {
        let bytes = vector::answer_bytes(&request.elements);
        if request.path_id.0 != 0
            || request.elements.len() > MAX_IMMEDIATE_ELEMENTS
            || bytes > MAX_IMMEDIATE_BYTES as u64
        {
            return None;
        }
        let start = self.out.len();
        self.out.put_bytes(0, ResponseHeader::LEN);
        for elements in vector::of_one_file(&request.elements) {
            if let Err(refusal) = self.read_elements(elements)? {
                return Some(Err(refusal));
            }
        }
        let headers = request.elements.len() * VectorElement::LEN;
        Some(Ok(seal(&mut self.out, start, stream_id, Status::ok) - headers as u64))
    }

    /// Appends elements of one file to the response.
    fn read_elements(&mut self, elements: &[VectorElement]) -> Option<Result<(), Refusal>> {
        self.with_reader(elements.first()?.handle, |this, file| {
            let start = this.out.len();
            this.out.put_bytes(0, vector::answer_bytes(elements) as usize);
            vector::read_now(file, elements, this.out.get_mut(start..)?)
        })
    }

    /// Calls `read` with the file of `handle` if it is open for reader_of and no earlier request delays it.
    fn with_reader<T>(
        &mut self,
        handle: FileHandle,
        read: impl FnOnce(&mut Self, &dyn ReadHandle) -> Option<Result<T, Refusal>>,
    ) -> Option<Result<T, Refusal>> {
        let slot = match self.session.files.find(handle) {
            Ok(slot) => slot,
            Err(refusal) => return Some(Err(refusal)),
        };
        slot.touch(self.since);
        let _turn = slot.order.try_shared()?;
        read(self, reader_of(&slot)?)
    }

    fn stat(&mut self, stream_id: StreamId, handle: FileHandle) -> ImmediateOutcome {
        let slot = match self.session.files.find(handle) {
            Ok(slot) => slot,
            Err(refusal) => return Some(Err(refusal)),
        };
        let _turn = slot.order.try_shared()?;
        let file = slot.file().ok()?;
        Some(match file.metadata().now_or_never()? {
            Ok(found) => Ok(self.ok(stream_id, &metadata::stat_info(&file.identity, &file.path, &found))),
            Err(error) => Err(error.into()),
        })
    }

    fn close(&mut self, stream_id: StreamId, handle: FileHandle) -> ImmediateOutcome {
        let slot = match self.session.files.find(handle) {
            Ok(slot) => slot,
            Err(refusal) => return Some(Err(refusal)),
        };
        let _turn = slot.order.try_exclusive()?;
        reader_of(&slot)?;
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

/// Returns the file of `slot` if it is open for reader_of.
fn reader_of(slot: &Slot) -> Option<&dyn ReadHandle> {
    match &slot.file().ok()?.access {
        FileAccess::Read(handle) => Some(&**handle),
        FileAccess::Write(_) | FileAccess::Pull(_) => None,
    }
}
