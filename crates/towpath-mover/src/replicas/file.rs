//! The open file: queries all sources concurrently, and reads each piece from the source that is expected to deliver
//! it first.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use async_trait::async_trait;
use bytes::Bytes;
use futures::{
    FutureExt as _, StreamExt as _,
    future::{self, BoxFuture},
    stream::{self, FuturesUnordered},
};
use tokio::time::{Sleep, sleep};
use tokio_util::task::AbortOnDropHandle;
use towpath_store::{
    ByteRange, ContentStream, Error, Fault, LocalPart, Metadata, OpenOptions, Preparation, ReadBuffer as Memory,
    ReadHandle, Result, VectorReads,
};

use super::{
    proof,
    share::{Attempt, Handle, SourcePool},
};
use crate::{StoreLocation, file::MIN_RESUMABLE_BYTES};

/// Maximum delay of the first source behind the first response within which it still determines the version.
const GRACE: Duration = Duration::from_secs(3);

/// Maximum number of ranges of a vector read in flight.
const VECTOR_READS: usize = 32;

/// An open file with several sources.
#[derive(Debug)]
pub(super) struct ReplicaFile {
    pool: Arc<SourcePool>,
    /// Whether no call has waited for a digest yet.
    is_undecided: AtomicBool,
    _openings: Vec<AbortOnDropHandle<()>>,
}

impl ReplicaFile {
    /// Queries all sources; their responses arrive later.
    pub(super) fn open(sources: &[StoreLocation], options: &OpenOptions, pool: Arc<SourcePool>) -> Self {
        let open = |(index, from): (usize, &StoreLocation)| {
            let (from, options, pool) = (from.clone(), options.clone(), Arc::clone(&pool));
            AbortOnDropHandle::new(tokio::spawn(async move {
                let answer = open_source(&from, options).await;
                pool.answered(index, answer.map_err(|error| error.at(&from.path)));
                if let Some(overlap) = pool.overlap(index).await {
                    pool.compared(index, overlap.is_same().await);
                }
            }))
        };
        let asked = sources.iter().enumerate().filter(|(index, _)| pool.is_asked(*index));
        let mut openings: Vec<_> = asked.map(open).collect();
        if openings.len() > 1 {
            let (sources, pool) = (sources.to_vec(), Arc::clone(&pool));
            let proving = async move { proof::find(&sources, &pool, GRACE).await };
            openings.push(AbortOnDropHandle::new(tokio::spawn(proving)));
        }
        Self { pool, is_undecided: AtomicBool::new(true), _openings: openings }
    }

    /// Reads a piece of the file from the source that delivers it first.
    async fn piece(&self, offset: u64, bytes: u64) -> Result<Vec<u8>> {
        let mut attempts: FuturesUnordered<BoxFuture<'_, Result<Vec<u8>>>> = FuturesUnordered::new();
        let mut tried = Vec::new();
        loop {
            let first = self.pool.assign(offset, bytes, &tried).await?;
            let mut ticket = self.pool.offer(&first);
            let mut late = Box::pin(sleep(first.late));
            tried.push(first.source());
            attempts.push(first.read(offset).boxed());
            // Until all attempts have failed.
            while !attempts.is_empty() {
                let second: Option<Attempt> = tokio::select! {
                    outcome = attempts.next() => match outcome {
                        Some(Ok(data)) => return Ok(data),
                        _ => None,
                    },
                    attempt = ticket.helper() => attempt,
                    () = &mut late => self.second(&mut late, bytes, &tried),
                };
                if let Some(attempt) = second {
                    tried.push(attempt.source());
                    attempts.push(attempt.read(offset).boxed());
                }
            }
        }
    }

    /// Assigns a late piece to a second source.
    fn second(&self, late: &mut std::pin::Pin<Box<Sleep>>, bytes: u64, tried: &[usize]) -> Option<Attempt> {
        let attempt = self.pool.assign_second(bytes, tried);
        let wait = attempt.as_ref().map_or(GRACE, |attempt| attempt.late);
        late.set(sleep(wait));
        attempt
    }
}

async fn open_source(from: &StoreLocation, options: OpenOptions) -> Result<(Metadata, Handle)> {
    let handle = from.store.open(&from.caller, &from.path, options).await?;
    Ok((handle.metadata().await?, handle))
}

#[async_trait]
impl ReadHandle for ReplicaFile {
    /// For a resumable file this waits until it is known whether a digest is available, because the resume key depends
    /// on it.
    async fn metadata(&self) -> Result<Metadata> {
        let agreed = self.pool.agreed(GRACE).await?;
        if agreed.size < MIN_RESUMABLE_BYTES || !self.is_undecided.swap(false, Relaxed) {
            return Ok(agreed);
        }
        self.pool.decided(GRACE).await;
        self.pool.agreed(GRACE).await
    }

    async fn read(&self, offset: u64, length: usize) -> Result<Bytes> {
        self.read_into(offset, length, Vec::new()).await.map(Bytes::from)
    }

    async fn read_into(&self, offset: u64, length: usize, mut buffer: Vec<u8>) -> Result<Vec<u8>> {
        let size = self.pool.agreed(GRACE).await?.size;
        let bytes = (length as u64).min(size.saturating_sub(offset));
        if bytes == 0 && length > 0 {
            // Each source checks whether it still has the opened version.
            let beyond = self.pool.givers().into_iter().map(|handle| async move { handle.read(offset, length).await });
            for data in future::try_join_all(beyond).await? {
                buffer.extend_from_slice(&data);
            }
            return Ok(buffer);
        }
        let data = self.piece(offset, bytes).await?;
        if buffer.is_empty() {
            return Ok(data);
        }
        buffer.extend_from_slice(&data);
        Ok(buffer)
    }

    fn read_now(&self, _offset: u64, _length: usize, _buffer: &mut Vec<u8>) -> Option<Result<usize>> {
        None
    }

    fn read_vector_now(&self, _places: &mut [Memory<'_>]) -> Option<Result<()>> {
        None
    }

    fn read_vector(&self, ranges: Vec<ByteRange>) -> VectorReads<'_> {
        let read = stream::iter(ranges.into_iter().enumerate()).map(move |(index, range)| async move {
            let data = self.read(range.offset, range.length).await;
            let data = data.and_then(|data| match data.len() == range.length {
                true => Ok(data),
                false => Err(Error::new(Fault::InvalidArgument, "the range passes the end of the file")),
            });
            (index, data)
        });
        read.buffer_unordered(VECTOR_READS).boxed()
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
        Ok(())
    }
}
