//! A member that is open: a range of the archive, or a stream that is decompressed.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use flate2::{Decompress, FlushDecompress, Status};
use futures::{StreamExt as _, stream};
use towpath_proto::zip::Member;
use towpath_store::{
    Blame, ByteRange, ContentStream, Error, Fault, LocalPart, Metadata, Preparation, ReadBuffer, ReadHandle, Result,
    VectorReads,
};

/// How much of a compressed member is read at once.
const READ_BYTES: usize = 1 << 20;

/// The longest piece that is decompressed at once.
const PIECE_BYTES: usize = 1 << 20;

/// A member that is not compressed.
#[derive(Debug)]
pub(super) struct StoredFile {
    pub(super) archive: Arc<dyn ReadHandle>,
    /// Where its content begins in the archive.
    pub(super) start: u64,
    pub(super) metadata: Metadata,
}

impl StoredFile {
    /// How much of `length` bytes from `offset` on the member has.
    fn cut(&self, offset: u64, length: usize) -> usize {
        usize::try_from(self.metadata.size.saturating_sub(offset)).unwrap_or(usize::MAX).min(length)
    }
}

#[async_trait]
impl ReadHandle for StoredFile {
    async fn metadata(&self) -> Result<Metadata> {
        Ok(self.metadata.clone())
    }

    async fn read(&self, offset: u64, length: usize) -> Result<Bytes> {
        self.read_into(offset, length, Vec::new()).await.map(Bytes::from)
    }

    async fn read_into(&self, offset: u64, length: usize, buffer: Vec<u8>) -> Result<Vec<u8>> {
        let length = self.cut(offset, length);
        if length == 0 {
            return Ok(buffer);
        }
        self.archive.read_into(self.start.saturating_add(offset), length, buffer).await
    }

    fn read_now(&self, _offset: u64, _length: usize, _buffer: &mut Vec<u8>) -> Option<Result<usize>> {
        None
    }

    fn read_vector_now(&self, _places: &mut [ReadBuffer<'_>]) -> Option<Result<()>> {
        None
    }

    fn read_vector(&self, ranges: Vec<ByteRange>) -> VectorReads<'_> {
        let (inside, outside): (Vec<_>, Vec<_>) =
            ranges.into_iter().enumerate().partition(|(_, range)| range.end() <= self.metadata.size);
        let outside = outside.into_iter().map(|(index, _)| {
            (index, Err(Error::new(Fault::InvalidArgument, "the range passes the end of the member")))
        });
        let (indexes, ranges): (Vec<_>, Vec<_>) = inside.into_iter().unzip();
        let shift = |range: ByteRange| ByteRange { offset: self.start.saturating_add(range.offset), ..range };
        let read = self.archive.read_vector(ranges.into_iter().map(shift).collect());
        let read = read.map(move |(at, result)| (indexes.get(at).copied().unwrap_or(usize::MAX), result));
        stream::iter(outside.collect::<Vec<_>>()).chain(read).boxed()
    }

    async fn stream(&self) -> Result<Option<ContentStream>> {
        Ok(None)
    }

    fn prepare(&self, _ranges: &[ByteRange]) -> Option<Arc<dyn Preparation>> {
        None
    }

    fn local_part(&self, _offset: u64, _length: u64) -> Option<LocalPart> {
        None
    }

    fn check_version(&self) -> Result<()> {
        self.archive.check_version()
    }
}

/// A member that is compressed: it is read from its start to its end.
#[derive(Debug)]
pub(super) struct DeflatedFile {
    pub(super) archive: Arc<dyn ReadHandle>,
    /// Where its compressed content begins in the archive.
    pub(super) start: u64,
    pub(super) metadata: Metadata,
    pub(super) member: Member,
}

fn only_from_the_start() -> Error {
    let message = "the member is compressed and can only be read sequentially, as `cp`, `cat` and `sum` do";
    Error::new(Fault::Unsupported, message)
}

#[async_trait]
impl ReadHandle for DeflatedFile {
    async fn metadata(&self) -> Result<Metadata> {
        Err(only_from_the_start())
    }

    async fn read(&self, _offset: u64, _length: usize) -> Result<Bytes> {
        Err(only_from_the_start())
    }

    async fn read_into(&self, _offset: u64, _length: usize, _buffer: Vec<u8>) -> Result<Vec<u8>> {
        Err(only_from_the_start())
    }

    fn read_now(&self, _offset: u64, _length: usize, _buffer: &mut Vec<u8>) -> Option<Result<usize>> {
        None
    }

    fn read_vector_now(&self, _places: &mut [ReadBuffer<'_>]) -> Option<Result<()>> {
        None
    }

    fn read_vector(&self, ranges: Vec<ByteRange>) -> VectorReads<'_> {
        stream::iter((0..ranges.len()).map(|index| (index, Err(only_from_the_start())))).boxed()
    }

    async fn stream(&self) -> Result<Option<ContentStream>> {
        let inflating = InflateStream {
            archive: Arc::clone(&self.archive),
            next: self.start,
            end: self.start.saturating_add(self.member.stored_bytes),
            input: Bytes::new(),
            inflater: Decompress::new(false),
            missing_bytes: self.member.bytes,
            has_ended: false,
        };
        let pieces = stream::try_unfold(inflating, |mut inflating| async move {
            Ok(inflating.piece().await?.map(|piece| (piece, inflating)))
        });
        Ok(Some(ContentStream { pieces: pieces.boxed(), metadata: self.metadata.clone(), is_framed: true }))
    }

    fn prepare(&self, _ranges: &[ByteRange]) -> Option<Arc<dyn Preparation>> {
        None
    }

    fn local_part(&self, _offset: u64, _length: u64) -> Option<LocalPart> {
        None
    }

    fn check_version(&self) -> Result<()> {
        self.archive.check_version()
    }
}

/// A member that is being decompressed.
struct InflateStream {
    archive: Arc<dyn ReadHandle>,
    /// Offset of the next read of the archive.
    next: u64,
    end: u64,
    /// Data read and not decompressed yet.
    input: Bytes,
    inflater: Decompress,
    /// How much content is still to come: no more is decompressed.
    missing_bytes: u64,
    has_ended: bool,
}

impl InflateStream {
    /// The next piece, never empty; none at the end.
    async fn piece(&mut self) -> Result<Option<Bytes>> {
        while !self.has_ended {
            if self.input.is_empty() && self.next < self.end {
                let length = usize::try_from(self.end - self.next).unwrap_or(usize::MAX).min(READ_BYTES);
                self.input = self.archive.read(self.next, length).await?;
                self.next += self.input.len() as u64;
                if self.input.is_empty() {
                    return Err(torn("unexpected end of data"));
                }
            }
            let piece = self.inflate()?;
            if !piece.is_empty() {
                return Ok(Some(piece.into()));
            }
        }
        if self.missing_bytes > 0 {
            return Err(torn("it is shorter than the size in the archive's directory"));
        }
        Ok(None)
    }

    fn inflate(&mut self) -> Result<Vec<u8>> {
        let mut piece = Vec::with_capacity(PIECE_BYTES);
        let before = self.inflater.total_in();
        let status = self.inflater.decompress_vec(&self.input, &mut piece, FlushDecompress::None);
        let status = status.map_err(|error| torn(&error.to_string()))?;
        let taken = usize::try_from(self.inflater.total_in() - before).unwrap_or(usize::MAX);
        self.input = self.input.split_off(taken.min(self.input.len()));
        let left = self.missing_bytes.checked_sub(piece.len() as u64);
        self.missing_bytes = left.ok_or_else(|| torn("it is longer than the size in the archive's directory"))?;
        self.has_ended = status == Status::StreamEnd;
        let is_stuck = piece.is_empty() && taken == 0 && !self.has_ended;
        if is_stuck && self.next >= self.end {
            return Err(torn("its compressed data have no end"));
        }
        Ok(piece)
    }
}

fn torn(why: &str) -> Error {
    Error::new(Fault::ChecksumMismatch, format!("the member cannot be decompressed: {why}")).blamed_on(Blame::Storage)
}
