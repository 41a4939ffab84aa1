//! The response to `pgread`: verifies the pages and removes their checksums in the caller's own buffer.
//!
//! On the wire each page of 4096 bytes is preceded by its CRC32C. Runs of pages are received after the existing data
//! of the buffer; then, while they are in the processor's cache, each checksum is removed, the page is moved into
//! place, and compared. The buffer never holds more than one run beyond the data, and never grows beyond the requested
//! data: a run is at most as long as the remaining space.

use towpath_proto::xrootd::page::{CRC_BYTES, PAGE_BYTES, Page, crc32c, encoded_len};

use super::InvalidResponse;

/// Maximum length in bytes of a run that is received before it is verified; it fits the cache of a core beside other
/// data.
const RUN_BYTES: usize = 256 << 10;

/// A range of a file received as pages.
#[derive(Debug)]
pub(in crate::xrootd) struct Pages {
    buffer: Vec<u8>,
    /// Offset in the file of the next byte of data.
    offset: u64,
    /// Maximum number of remaining data bytes.
    left: usize,
    /// Remaining bytes of this response on the wire.
    wire_left: u64,
    crc: [u8; CRC_BYTES],
    /// Number of received bytes of `crc`.
    crc_have: usize,
    /// Number of received bytes of the current page, at the end of the data.
    page_have: usize,
    bad: Vec<Page>,
}

impl Pages {
    /// Receives `length` bytes from `offset`, appended to the contents of `buffer`.
    pub(in crate::xrootd) fn new(offset: u64, length: usize, mut buffer: Vec<u8>) -> Self {
        buffer.reserve(length);
        Self {
            buffer,
            offset,
            left: length,
            wire_left: 0,
            crc: [0; CRC_BYTES],
            crc_have: 0,
            page_have: 0,
            bad: Vec::new(),
        }
    }

    /// Starts a piece of `wire` bytes, whose data start at `offset`.
    pub(super) fn begin(&mut self, offset: u64, wire: u64) -> Result<(), InvalidResponse> {
        if offset != self.offset && wire > 0 {
            return Err(InvalidResponse::WrongOffset);
        }
        // Checked before data enter the buffer, which would exceed the requested length.
        if wire > encoded_len(self.offset, self.left as u64) {
            return Err(InvalidResponse::TooMuch);
        }
        self.wire_left = wire;
        Ok(())
    }

    /// Appends bytes that were received elsewhere.
    pub(super) fn push(&mut self, mut bytes: &[u8]) -> Result<(), InvalidResponse> {
        while !bytes.is_empty() {
            let (_, room) = self.room();
            let (run, rest) = bytes.split_at_checked(room).filter(|_| room > 0).unwrap_or((bytes, &[]));
            self.buffer.extend_from_slice(run);
            self.received(run.len())?;
            bytes = rest;
        }
        Ok(())
    }

    /// Returns the buffer to receive into, and the maximum number of bytes.
    pub(super) fn room(&mut self) -> (&mut Vec<u8>, usize) {
        let room = (self.buffer.capacity() - self.buffer.len()).min(RUN_BYTES);
        (&mut self.buffer, room)
    }

    /// Processes `length` bytes that were received at the end of the buffer.
    pub(super) fn received(&mut self, length: usize) -> Result<(), InvalidResponse> {
        self.wire_left = self.wire_left.checked_sub(length as u64).ok_or(InvalidResponse::TooMuch)?;
        let end = self.buffer.len();
        let mut read = end.saturating_sub(length);
        let mut write = read;
        while read < end {
            if self.crc_have < CRC_BYTES {
                let take = (CRC_BYTES - self.crc_have).min(end - read);
                self.crc[self.crc_have..self.crc_have + take].copy_from_slice(&self.buffer[read..read + take]);
                self.crc_have += take;
                read += take;
                continue;
            }
            let page_left = self.page_bytes() - self.page_have;
            let take = page_left.min(end - read);
            self.left = self.left.checked_sub(take).ok_or(InvalidResponse::TooMuch)?;
            if read != write {
                self.buffer.copy_within(read..read + take, write);
            }
            (read, write) = (read + take, write + take);
            self.page_have += take;
            if take == page_left {
                self.finish_page(write);
            }
        }
        self.buffer.truncate(write);
        Ok(())
    }

    /// Ends a piece, whose last page may be short.
    pub(super) fn end(&mut self) -> Result<(), InvalidResponse> {
        match (self.crc_have, self.page_have) {
            (0, _) => Ok(()),
            (_, 0) => Err(InvalidResponse::EmptyPage),
            _ => {
                self.finish_page(self.buffer.len());
                Ok(())
            }
        }
    }

    /// Returns the length of the page at the current offset, unless the file ends in it.
    fn page_bytes(&self) -> usize {
        PAGE_BYTES - (self.offset % PAGE_BYTES as u64) as usize
    }

    /// Verifies the page whose data end at `end` of the buffer.
    fn finish_page(&mut self, end: usize) {
        let length = self.page_have;
        if crc32c(&self.buffer[end - length..end]) != u32::from_be_bytes(self.crc) {
            self.bad.push(Page { offset: self.offset, length });
        }
        self.offset += length as u64;
        (self.crc_have, self.page_have) = (0, 0);
    }

    /// Returns the buffer, and the pages that failed. Uncompared data of a response that ended within a page are
    /// dropped.
    pub(super) fn into_parts(mut self) -> (Vec<u8>, Vec<Page>) {
        self.buffer.truncate(self.buffer.len() - self.page_have);
        (self.buffer, self.bad)
    }
}

#[cfg(test)]
mod tests {
    use bytes::BytesMut;
    use proptest::prelude::*;
    use towpath_proto::xrootd::page;

    use super::*;

    fn content(offset: u64, length: usize) -> Vec<u8> {
        (offset..offset + length as u64).map(|at| (at * 31 % 251) as u8).collect()
    }

    fn wire(offset: u64, length: usize) -> BytesMut {
        let mut out = BytesMut::new();
        page::encode(offset, &content(offset, length), &mut out);
        out
    }

    proptest! {
        /// For any division of the wire into pieces and runs, the data are appended to the existing ones without
        /// growth of the buffer.
        #[test]
        fn strips_whatever_the_cuts(
            offset in 0_u64..10_000,
            length in 1_usize..20_000,
            pieces in prop::collection::vec(1_usize..3, 1..4),
            run in 1_usize..9000,
            direct: bool,
        ) {
            let mut buffer = Vec::with_capacity(3 + length);
            buffer.extend_from_slice(b"abc");
            let capacity = buffer.capacity();
            let mut pages = Pages::new(offset, length, buffer);
            let mut at = offset;
            let end = offset + length as u64;
            let mut sizes = pieces.iter().cycle();
            while at < end {
                // Pieces end at page boundaries, except the last.
                let whole = (at / 4096 + *sizes.next().unwrap() as u64) * 4096;
                let piece = (whole.min(end) - at) as usize;
                let encoded = wire(at, piece);
                pages.begin(at, encoded.len() as u64).unwrap();
                let mut rest = &encoded[..];
                while !rest.is_empty() {
                    if direct {
                        let (buffer, room) = pages.room();
                        let take = room.min(run).min(rest.len());
                        prop_assert!(take > 0);
                        buffer.extend_from_slice(&rest[..take]);
                        pages.received(take).unwrap();
                        rest = &rest[take..];
                    } else {
                        let (now, later) = rest.split_at(run.min(rest.len()));
                        pages.push(now).unwrap();
                        rest = later;
                    }
                }
                pages.end().unwrap();
                at += piece as u64;
            }
            let (buffer, bad) = pages.into_parts();
            prop_assert!(bad.is_empty());
            prop_assert_eq!(&buffer[..3], b"abc");
            prop_assert_eq!(&buffer[3..], &content(offset, length)[..]);
            prop_assert_eq!(buffer.capacity(), capacity);
        }
    }

    #[test]
    fn bad_pages_are_told_and_keep_their_place() {
        let mut encoded = wire(4090, 5000);
        encoded[4 + 6 + 4 + 100] ^= 1;
        let mut pages = Pages::new(4090, 5000, Vec::new());
        pages.begin(4090, encoded.len() as u64).unwrap();
        pages.push(&encoded).unwrap();
        pages.end().unwrap();
        let (buffer, bad) = pages.into_parts();
        assert_eq!(bad, [Page { offset: 4096, length: 4096 }]);
        assert_eq!(buffer.len(), 5000);
    }

    #[test]
    fn what_was_not_compared_is_not_given_out() {
        let encoded = wire(0, 8192);
        let mut pages = Pages::new(0, 8192, b"abc".to_vec());
        pages.begin(0, encoded.len() as u64).unwrap();
        pages.push(&encoded[..4100 + 4 + 50]).unwrap();
        assert_eq!(pages.into_parts().0.len(), 3 + 4096);
    }

    #[test]
    fn more_than_was_asked_for_is_refused() {
        let encoded = wire(0, 5000);
        let mut pages = Pages::new(0, 4999, Vec::new());
        assert_eq!(pages.begin(0, encoded.len() as u64), Err(InvalidResponse::TooMuch));
        pages.begin(0, wire(0, 4096).len() as u64).unwrap();
        pages.push(&encoded[..4100]).unwrap();
        assert_eq!(pages.begin(4096, encoded.len() as u64 - 4100), Err(InvalidResponse::TooMuch));
        assert_eq!(pages.into_parts().0.len(), 4096);
        assert_eq!(Pages::new(0, 10, Vec::new()).begin(5, 10), Err(InvalidResponse::WrongOffset));
    }
}
