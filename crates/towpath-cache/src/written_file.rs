//! An upload or a change of a file through the cache.

use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use bytes::Bytes;
use towpath_proto::checksum::Extent;
use towpath_store::{Expectation, Metadata, Result, WriteHandle};

use crate::writes::Write;

/// A file at the origin that is open for writing. Nothing about its path is remembered while it is open.
#[derive(Debug)]
pub(crate) struct WrittenFile {
    file: Arc<dyn WriteHandle>,
    write: Mutex<Option<Write>>,
}

impl WrittenFile {
    /// Wraps a file of the origin.
    pub(crate) fn new(file: Arc<dyn WriteHandle>, write: Write) -> Self {
        Self { file, write: Mutex::new(Some(write)) }
    }

    fn complete(&self) {
        let write = self.write.lock().unwrap_or_else(PoisonError::into_inner).take();
        write.into_iter().for_each(Write::complete);
    }
}

#[async_trait]
impl WriteHandle for WrittenFile {
    async fn write(&self, offset: u64, data: Bytes) -> Result<()> {
        self.file.write(offset, data).await
    }

    async fn present(&self) -> Result<Vec<Extent>> {
        self.file.present().await
    }

    async fn read(&self, offset: u64, length: usize) -> Result<Bytes> {
        self.file.read(offset, length).await
    }

    async fn set_size(&self, size: u64) -> Result<()> {
        self.file.set_size(size).await
    }

    async fn sync(&self) -> Result<()> {
        self.file.sync().await
    }

    async fn metadata(&self) -> Result<Metadata> {
        self.file.metadata().await
    }

    async fn commit(&self, expected: Expectation) -> Result<Metadata> {
        let outcome = self.file.commit(expected).await;
        if outcome.is_ok() {
            self.complete();
        }
        outcome
    }

    async fn abort(&self) -> Result<()> {
        let outcome = self.file.abort().await;
        if outcome.is_ok() {
            self.complete();
        }
        outcome
    }
}
