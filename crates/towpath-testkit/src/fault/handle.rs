//! The handles of a store that fails on purpose.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use futures::{StreamExt as _, stream};
use towpath_proto::checksum::Extent;
use towpath_store::{
    ByteRange, ContentStream, Error, Expectation, Fault, LocalPart, Metadata, Preparation, ReadBuffer, ReadHandle,
    Result, VectorReads, WriteHandle,
};

use super::{Injection, Injector, ReadFaults, Transfer};

/// A file open for reading. It never hands out the local file: reads must not get past the faults.
#[derive(Debug)]
pub(super) struct FaultFile {
    pub(super) inner: Arc<dyn ReadHandle>,
    pub(super) injector: Arc<Injector>,
    pub(super) read_faults: ReadFaults,
}

impl FaultFile {
    /// How much of `length` shall be read.
    async fn before_read(&self, name: &'static str, length: usize) -> Result<usize> {
        self.injector.gates.pass(name).await;
        match self.injector.next(name, Transfer::Read(length)) {
            Some(Injection::ShortRead(short)) => Ok(short),
            Some(Injection::Delay(delay)) => {
                tokio::time::sleep(delay).await;
                Ok(length)
            }
            injection => self.injector.refuse(injection).map(|()| length),
        }
    }
}

#[async_trait]
impl ReadHandle for FaultFile {
    async fn metadata(&self) -> Result<Metadata> {
        self.injector.before("metadata").await?;
        self.inner.metadata().await.map(|metadata| self.read_faults.metadata(metadata))
    }

    async fn read(&self, offset: u64, length: usize) -> Result<Bytes> {
        let length = self.before_read("read", length).await?;
        let mut data = self.inner.read(offset, length).await?.to_vec();
        self.read_faults.spoil(offset, &mut data);
        Ok(data.into())
    }

    async fn read_into(&self, offset: u64, length: usize, buffer: Vec<u8>) -> Result<Vec<u8>> {
        let length = self.before_read("read_into", length).await?;
        let start = buffer.len();
        let mut data = self.inner.read_into(offset, length, buffer).await?;
        if let Some(read) = data.get_mut(start..) {
            self.read_faults.spoil(offset, read);
        }
        Ok(data)
    }

    fn read_now(&self, offset: u64, length: usize, buffer: &mut Vec<u8>) -> Option<Result<usize>> {
        if self.injector.gates.is_closed("read_into") || self.read_faults.are_in_content() {
            return None;
        }
        match self.injector.next("read_now", Transfer::Read(length)) {
            // What takes longer cannot be had now.
            Some(Injection::Delay(_)) => None,
            Some(Injection::ShortRead(short)) => self.inner.read_now(offset, short, buffer),
            injection => match self.injector.refuse(injection) {
                Ok(()) => self.inner.read_now(offset, length, buffer),
                Err(error) => Some(Err(error)),
            },
        }
    }

    fn read_vector_now(&self, places: &mut [ReadBuffer<'_>]) -> Option<Result<()>> {
        let gates = &self.injector.gates;
        if gates.is_closed("read_into") || gates.is_closed("read_vector") || self.read_faults.are_in_content() {
            return None;
        }
        let length = places.iter().map(|place| place.buffer.len()).sum();
        match self.injector.next("read_vector_now", Transfer::Read(length)) {
            // What takes longer, or comes short, cannot be had now.
            Some(Injection::Delay(_) | Injection::ShortRead(_)) => None,
            injection => match self.injector.refuse(injection) {
                Ok(()) => self.inner.read_vector_now(places),
                Err(error) => Some(Err(error)),
            },
        }
    }

    fn read_vector(&self, ranges: Vec<ByteRange>) -> VectorReads<'_> {
        let offsets: Vec<_> = ranges.iter().map(|range| range.offset).collect();
        let results = self.inner.read_vector(ranges).zip(stream::repeat(offsets));
        let results = results.then(move |((index, result), offsets)| async move {
            let Ok(data) = result else { return (index, result) };
            let length = self.before_read("read_vector", data.len()).await;
            let mut data = data.to_vec();
            self.read_faults.spoil(offsets[index], &mut data);
            (index, length.map(|length| Bytes::from(data).slice(..length)))
        });
        results.boxed()
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
        let injection = self.injector.next("check_version", Transfer::None);
        self.injector.refuse(injection)?;
        self.inner.check_version()
    }
}

/// A file being written.
#[derive(Debug)]
pub(super) struct FaultWriter {
    /// Taken only when it is dropped.
    inner: Option<Arc<dyn WriteHandle>>,
    injector: Arc<Injector>,
}

impl FaultWriter {
    pub(super) fn new(inner: Arc<dyn WriteHandle>, injector: Arc<Injector>) -> Self {
        Self { inner: Some(inner), injector }
    }

    fn inner(&self) -> &Arc<dyn WriteHandle> {
        self.inner.as_ref().expect("only dropping takes it")
    }
}

impl Drop for FaultWriter {
    fn drop(&mut self) {
        if self.injector.has_crashed() {
            // A process that is killed cleans nothing up.
            std::mem::forget(self.inner.take());
        }
    }
}

#[async_trait]
impl WriteHandle for FaultWriter {
    async fn write(&self, offset: u64, data: Bytes) -> Result<()> {
        self.injector.gates.pass("write").await;
        match self.injector.next("write", Transfer::Write(data.len())) {
            Some(Injection::TornWrite(torn)) => {
                self.inner().write(offset, data.slice(..torn)).await?;
                return Err(Error::new(Fault::Io, "injected: a part was written"));
            }
            Some(Injection::Delay(delay)) => tokio::time::sleep(delay).await,
            injection => self.injector.refuse(injection)?,
        }
        self.inner().write(offset, data).await
    }

    async fn present(&self) -> Result<Vec<Extent>> {
        self.injector.before("present").await?;
        self.inner().present().await
    }

    async fn read(&self, offset: u64, length: usize) -> Result<Bytes> {
        self.injector.before("read").await?;
        self.inner().read(offset, length).await
    }

    async fn set_size(&self, size: u64) -> Result<()> {
        self.injector.before("set_size").await?;
        self.inner().set_size(size).await
    }

    async fn sync(&self) -> Result<()> {
        self.injector.before("sync").await?;
        self.inner().sync().await
    }

    async fn metadata(&self) -> Result<Metadata> {
        self.injector.before("metadata").await?;
        self.inner().metadata().await
    }

    async fn commit(&self, expected: Expectation) -> Result<Metadata> {
        self.injector.before("commit").await?;
        self.inner().commit(expected).await
    }

    async fn abort(&self) -> Result<()> {
        self.injector.before("abort").await?;
        self.inner().abort().await
    }
}
