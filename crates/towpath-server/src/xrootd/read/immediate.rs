//! Reads whose data are in memory, answered by the connection's reader without a task ([`super::super::immediate`]).

use bytes::BufMut as _;
use towpath_proto::xrootd::{
    FileHandle, PathId, ResponseHeader, Status, StreamId, VectorElement, page,
    request::{PgRead, Read, Readv},
    response::{PgReadStatus, StatusKind},
};
use towpath_store::ReadHandle;

use super::{
    super::{
        active_request::{ErrorResponse, seal},
        connection::Connection,
        immediate::ImmediateOutcome,
    },
    vector,
};

/// Maximum file data in an immediate response, in bytes: longer ones would block the network thread for other
/// connections.
const MAX_IMMEDIATE_BYTES: usize = 64 << 10;
/// Maximum number of vector elements read without yielding; longer vectors are read in groups.
const MAX_IMMEDIATE_ELEMENTS: usize = 16;

/// Whether a response of `bytes` on this path may be sent by the connection's reader.
fn is_small(path_id: PathId, bytes: u64) -> bool {
    path_id == PathId::MAIN && bytes <= MAX_IMMEDIATE_BYTES as u64
}

impl Connection {
    /// Answers `read` if the data are in memory.
    pub(in crate::xrootd) fn try_read(&mut self, stream_id: StreamId, request: &Read) -> ImmediateOutcome {
        if !is_small(request.path_id, u64::from(request.length)) {
            return None;
        }
        self.with_reader(request.handle, |this, file| {
            let start = this.out.len();
            this.out.put_bytes(0, ResponseHeader::LEN);
            let read = file.read_now(request.offset, request.length as usize, &mut this.out)?;
            Some(read.map(|_| seal(&mut this.out, start, stream_id, Status::ok)).map_err(ErrorResponse::from))
        })
    }

    /// Answers `pgread` if the data are in memory.
    pub(in crate::xrootd) fn try_pgread(&mut self, stream_id: StreamId, request: &PgRead) -> ImmediateOutcome {
        if !is_small(request.path_id, u64::from(request.length)) {
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

    /// Answers `readv` if the data are in memory.
    pub(in crate::xrootd) fn try_readv(&mut self, stream_id: StreamId, request: &Readv) -> ImmediateOutcome {
        if request.elements.len() > MAX_IMMEDIATE_ELEMENTS
            || !is_small(request.path_id, vector::answer_bytes(&request.elements))
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
    fn read_elements(&mut self, elements: &[VectorElement]) -> Option<Result<(), ErrorResponse>> {
        self.with_reader(elements.first()?.handle, |this, file| {
            let start = this.out.len();
            this.out.put_bytes(0, vector::answer_bytes(elements) as usize);
            vector::read_now(file, elements, this.out.get_mut(start..)?)
        })
    }

    /// Calls `read` with the file of `handle` if it is open for reading and no earlier request delays it.
    fn with_reader<T>(
        &mut self,
        handle: FileHandle,
        read: impl FnOnce(&mut Self, &dyn ReadHandle) -> Option<Result<T, ErrorResponse>>,
    ) -> Option<Result<T, ErrorResponse>> {
        let slot = match self.session.files.find(handle) {
            Ok(slot) => slot,
            Err(refusal) => return Some(Err(refusal)),
        };
        slot.touch(self.since);
        let _turn = slot.queue.try_shared()?;
        read(self, &**slot.file().ok()?.reader()?)
    }
}
