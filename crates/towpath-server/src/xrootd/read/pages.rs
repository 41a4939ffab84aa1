//! `pgread`: one range of a file, each page with its CRC32C.
//!
//! The data are read at once and sent from their buffer; a vectored send inserts the checksums between the pages.

use std::io::IoSlice;

use towpath_proto::xrootd::{
    page::{self, CRC_BYTES},
    request::PgRead,
    response::{PgReadStatus, StatusKind},
};
use towpath_store::ByteRange;

use super::super::{
    active_request::{ActiveRequest, FinalFrame, ServeResult},
    files::OpenFile,
};
use super::{Announced, piece_bytes};

/// Handles `pgread`.
pub(in crate::xrootd) async fn pgread(
    active_request: &ActiveRequest,
    file: &OpenFile,
    request: &PgRead,
) -> ServeResult {
    active_request.set_path(&file.path);
    let mut offset = request.offset;
    let mut left = request.length as usize;
    let announced = Announced::new(file, &[ByteRange { offset, length: left }]);
    let piece = piece_bytes(file, offset).await?;
    let mut memory = None;
    let mut data = Vec::new();
    loop {
        // Pieces end at page boundaries, so that only the first and the last page of the response can be short.
        let to_boundary = piece - (offset % page::PAGE_BYTES as u64) as usize;
        let length = left.min(to_boundary);
        if announced.may_wait() {
            (memory, data) = (None, Vec::new());
            announced.ready(offset, length).await?;
        }
        if memory.is_none() {
            memory = Some(active_request.session.memory_to_answer(left.min(piece)).await);
            data.reserve_exact(left.min(piece));
        }
        data.clear();
        data = file.read_into(offset, length, data).await?;
        let got = data.len();
        left -= got.min(left);
        let last = got < length || left == 0;
        send(active_request, offset, &data, if last { StatusKind::Final } else { StatusKind::Partial }).await?;
        active_request.session.record_sent(&file.identity, got as u64);
        offset += got as u64;
        if last {
            return Ok(FinalFrame::sent(offset - request.offset));
        }
    }
}

async fn send(active_request: &ActiveRequest, offset: u64, data: &[u8], kind: StatusKind) -> ServeResult<()> {
    let data_len = u32::try_from(page::encoded_len(offset, data.len() as u64)).unwrap_or(0);
    let head = PgReadStatus { kind, offset, data_len }.to_bytes(active_request.stream_id);
    let checksums: Vec<[u8; CRC_BYTES]> = pages(offset, data).map(|page| page::crc32c(page).to_be_bytes()).collect();
    let mut slices = Vec::with_capacity(2 * checksums.len() + 1);
    slices.push(IoSlice::new(&head));
    for (checksum, page) in checksums.iter().zip(pages(offset, data)) {
        slices.push(IoSlice::new(checksum));
        slices.push(IoSlice::new(page));
    }
    active_request.send_vectored(&mut slices).await
}

/// Splits `data`, which start at `offset`, at the page boundaries of the file.
fn pages(offset: u64, data: &[u8]) -> impl Iterator<Item = &[u8]> {
    page::pages(offset, data.len() as u64).map(move |page| {
        let start = (page.offset - offset) as usize;
        data.get(start..start + page.length).unwrap_or_default()
    })
}
