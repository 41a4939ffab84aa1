//! Handles of files in a member store, whose errors carry the path in the namespace.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use futures::StreamExt as _;
use towpath_proto::checksum::Extent;

use super::locate;
use crate::{
    ByteRange, ContentStream, Expectation, LocalPart, Metadata, Preparation, ReadBuffer, ReadHandle, Result, StorePath,
    VectorReads, WriteHandle,
};

/// A file open for reading in the store at `prefix`.
#[derive(Debug)]
pub(super) struct CombinedReadHandle {
    pub(super) handle: Arc<dyn ReadHandle>,
    pub(super) prefix: StorePath,
}

/// A file open for writing in the store at `prefix`.
#[derive(Debug)]
pub(super) struct CombinedWriteHandle {
    pub(super) handle: Arc<dyn WriteHandle>,
    pub(super) prefix: StorePath,
}

impl CombinedReadHandle {
    fn located<T>(&self, outcome: Result<T>) -> Result<T> {
        outcome.map_err(|error| locate(&self.prefix, error))
    }
}

impl CombinedWriteHandle {
    fn located<T>(&self, outcome: Result<T>) -> Result<T> {
        outcome.map_err(|error| locate(&self.prefix, error))
    }
}

#[async_trait]
impl ReadHandle for CombinedReadHandle {
    async fn metadata(&self) -> Result<Metadata> {
        self.located(self.handle.metadata().await)
    }

    async fn read(&self, offset: u64, length: usize) -> Result<Bytes> {
        self.located(self.handle.read(offset, length).await)
    }

    async fn read_into(&self, offset: u64, length: usize, buffer: Vec<u8>) -> Result<Vec<u8>> {
        self.located(self.handle.read_into(offset, length, buffer).await)
    }

    fn read_now(&self, offset: u64, length: usize, buffer: &mut Vec<u8>) -> Option<Result<usize>> {
        self.handle.read_now(offset, length, buffer).map(|outcome| self.located(outcome))
    }

    fn read_vector_now(&self, buffers: &mut [ReadBuffer<'_>]) -> Option<Result<()>> {
        self.handle.read_vector_now(buffers).map(|outcome| self.located(outcome))
    }

    fn read_vector(&self, ranges: Vec<ByteRange>) -> VectorReads<'_> {
        self.handle.read_vector(ranges).map(|(index, outcome)| (index, self.located(outcome))).boxed()
    }

    async fn stream(&self) -> Result<Option<ContentStream>> {
        let stream = self.located(self.handle.stream().await)?;
        let prefix = self.prefix.clone();
        Ok(stream.map(|stream| ContentStream {
            pieces: stream.pieces.map(move |piece| piece.map_err(|error| locate(&prefix, error))).boxed(),
            ..stream
        }))
    }

    fn prepare(&self, ranges: &[ByteRange]) -> Option<Arc<dyn Preparation>> {
        let preparation = self.handle.prepare(ranges)?;
        Some(Arc::new(CombinedPreparation { preparation, prefix: self.prefix.clone() }))
    }

    fn local_part(&self, offset: u64, length: u64) -> Option<LocalPart> {
        self.handle.local_part(offset, length)
    }

    fn check_version(&self) -> Result<()> {
        self.located(self.handle.check_version())
    }
}

/// Announced reads of a file in the store at `prefix`.
#[derive(Debug)]
struct CombinedPreparation {
    preparation: Arc<dyn Preparation>,
    prefix: StorePath,
}

#[async_trait]
impl Preparation for CombinedPreparation {
    async fn ready(&self, part: ByteRange) -> Result<()> {
        self.preparation.ready(part).await.map_err(|error| locate(&self.prefix, error))
    }
}

#[async_trait]
impl WriteHandle for CombinedWriteHandle {
    async fn write(&self, offset: u64, data: Bytes) -> Result<()> {
        self.located(self.handle.write(offset, data).await)
    }

    async fn present(&self) -> Result<Vec<Extent>> {
        self.located(self.handle.present().await)
    }

    async fn read(&self, offset: u64, length: usize) -> Result<Bytes> {
        self.located(self.handle.read(offset, length).await)
    }

    async fn set_size(&self, size: u64) -> Result<()> {
        self.located(self.handle.set_size(size).await)
    }

    async fn sync(&self) -> Result<()> {
        self.located(self.handle.sync().await)
    }

    async fn metadata(&self) -> Result<Metadata> {
        self.located(self.handle.metadata().await)
    }

    async fn commit(&self, expected: Expectation) -> Result<Metadata> {
        self.located(self.handle.commit(expected).await)
    }

    async fn abort(&self) -> Result<()> {
        self.located(self.handle.abort().await)
    }
}
