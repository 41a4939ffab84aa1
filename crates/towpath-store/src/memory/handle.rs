//! The handles of a memory store.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use bytes::Bytes;
use futures::{StreamExt as _, stream};
use towpath_proto::checksum::{Algorithms, Digests, Extent, Hasher};

use super::{FILE_MODE, Inner, Inode, lock};
use crate::{
    ByteRange, ContentStream, CreateOptions, Error, Expectation, Fault, LocalPart, Metadata, OpenOptions, Overwrite,
    Preparation, ReadBuffer, ReadHandle, Result, StorePath, VectorReads, WriteHandle, sys::clock,
};

/// One version of a file, open for reading.
#[derive(Debug)]
pub(super) struct MemoryFile {
    inode: Arc<Mutex<Inode>>,
    path: StorePath,
    metadata: Metadata,
}

impl MemoryFile {
    pub(super) fn open(inode: &Arc<Mutex<Inode>>, path: &StorePath, options: &OpenOptions) -> Result<Self> {
        let metadata = {
            let inode = lock(inode);
            inode.expect_file()?;
            inode.metadata()
        };
        if !options.accept(&metadata) {
            return Err(Error::new(Fault::Changed, "the file no longer has the requested version"));
        }
        Ok(Self { inode: Arc::clone(inode), path: path.clone(), metadata })
    }

    /// Returns the content if it still has the opened version.
    fn content(&self) -> Result<Bytes> {
        let inode = lock(&self.inode);
        if inode.tag() != self.metadata.version {
            return Err(Error::new(Fault::Changed, "the file was changed while it was open").at(&self.path));
        }
        inode.expect_file().cloned()
    }

    fn past_the_end(&self) -> Error {
        Error::new(Fault::InvalidArgument, "the range passes the end of the file").at(&self.path)
    }

    fn slice(&self, offset: u64, length: usize) -> Result<Bytes> {
        self.content().map(|content| slice(&content, offset, length))
    }
}

#[async_trait]
impl ReadHandle for MemoryFile {
    async fn metadata(&self) -> Result<Metadata> {
        Ok(self.metadata.clone())
    }

    async fn read(&self, offset: u64, length: usize) -> Result<Bytes> {
        self.slice(offset, length)
    }

    async fn read_into(&self, offset: u64, length: usize, mut buffer: Vec<u8>) -> Result<Vec<u8>> {
        buffer.extend_from_slice(&self.slice(offset, length)?);
        Ok(buffer)
    }

    fn read_now(&self, offset: u64, length: usize, buffer: &mut Vec<u8>) -> Option<Result<usize>> {
        Some(self.slice(offset, length).map(|data| {
            buffer.extend_from_slice(&data);
            data.len()
        }))
    }

    fn read_vector_now(&self, buffers: &mut [ReadBuffer<'_>]) -> Option<Result<()>> {
        Some(self.content().and_then(|content| {
            for range in buffers {
                let data = slice(&content, range.offset, range.buffer.len());
                if data.len() < range.buffer.len() || range.offset > content.len() as u64 {
                    return Err(self.past_the_end());
                }
                range.buffer.copy_from_slice(&data);
            }
            Ok(())
        }))
    }

    fn read_vector(&self, ranges: Vec<ByteRange>) -> VectorReads<'_> {
        let results = ranges.into_iter().enumerate().map(|(index, range)| {
            let result = self.content().and_then(|content| match range.end() <= content.len() as u64 {
                true => Ok(slice(&content, range.offset, range.length)),
                false => Err(self.past_the_end()),
            });
            (index, result)
        });
        stream::iter(results).boxed()
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
        self.content().map(drop)
    }
}

/// A file being written.
#[derive(Debug)]
pub(super) struct MemoryWriter {
    inner: Arc<Inner>,
    path: StorePath,
    /// `None` after commit or abort.
    body: Mutex<Option<Body>>,
}

#[derive(Debug)]
enum Body {
    New { content: Vec<u8>, overwrite: Overwrite, mode: u32, wanted: Algorithms },
    Existing(Arc<Mutex<Inode>>),
}

impl MemoryWriter {
    pub(super) fn create(inner: Arc<Inner>, path: &StorePath, options: &CreateOptions) -> Self {
        let wanted = options.digests.union(Algorithms::DEFAULT);
        let mode = options.mode.unwrap_or(FILE_MODE) & 0o7777;
        let body = Body::New { content: Vec::new(), overwrite: options.overwrite, mode, wanted };
        Self { inner, path: path.clone(), body: Mutex::new(Some(body)) }
    }

    pub(super) fn update(inner: Arc<Inner>, path: &StorePath, inode: Arc<Mutex<Inode>>) -> Self {
        Self { inner, path: path.clone(), body: Mutex::new(Some(Body::Existing(inode))) }
    }

    fn with_body<T>(&self, job: impl FnOnce(&mut Body) -> Result<T>) -> Result<T> {
        let mut body = lock(&self.body);
        body.as_mut().ok_or_else(finished).and_then(job).map_err(|error| error.at(&self.path))
    }

    /// Changes the content. A new file may grow to the capacity of the store, and is counted when it is committed.
    fn edit(&self, change: impl FnOnce(&mut Vec<u8>, u64) -> Result<()>) -> Result<()> {
        self.with_body(|body| match body {
            Body::New { content, .. } => change(content, self.inner.capacity_bytes),
            Body::Existing(inode) => {
                let free = self.inner.free_bytes(&self.inner.lock());
                let mut inode = lock(inode);
                let mut content = Vec::from(inode.expect_file()?.clone());
                change(&mut content, free.saturating_add(inode.size()))?;
                inode.set_content(content.into());
                Ok(())
            }
        })
    }

    /// Takes the body, so that later calls fail.
    fn commit_body(&self, expected: &Expectation) -> Result<Metadata> {
        match lock(&self.body).take().ok_or_else(finished)? {
            Body::New { content, overwrite, mode, wanted } => {
                let digests = verify(&content, expected, wanted)?;
                let file = self.inner.inode(Some(content.into()), mode);
                let metadata = finish(&mut lock(&file), expected, &digests);
                self.inner.publish(&mut self.inner.lock(), &self.path, file, overwrite)?;
                Ok(metadata)
            }
            Body::Existing(inode) => {
                let mut inode = lock(&inode);
                let digests = verify(inode.expect_file()?, expected, Algorithms::NONE)?;
                Ok(finish(&mut inode, expected, &digests))
            }
        }
    }
}

#[async_trait]
impl WriteHandle for MemoryWriter {
    async fn write(&self, offset: u64, data: Bytes) -> Result<()> {
        self.edit(|content, limit| {
            if data.is_empty() {
                return Ok(());
            }
            let end = offset.saturating_add(data.len() as u64);
            resize(content, end.max(content.len() as u64), limit)?;
            let start = usize::try_from(offset).unwrap_or(usize::MAX);
            if let Some(written) = content.get_mut(start..).and_then(|rest| rest.get_mut(..data.len())) {
                written.copy_from_slice(&data);
            }
            Ok(())
        })
    }

    /// Always empty: data in memory do not survive the process, so uploads need not survive a handle.
    async fn present(&self) -> Result<Vec<Extent>> {
        Ok(Vec::new())
    }

    async fn read(&self, offset: u64, length: usize) -> Result<Bytes> {
        self.with_body(|body| {
            Ok(match body {
                Body::New { content, .. } => Bytes::copy_from_slice(part(content, offset, length)),
                Body::Existing(inode) => slice(lock(inode).expect_file()?, offset, length),
            })
        })
    }

    async fn set_size(&self, size: u64) -> Result<()> {
        self.edit(|content, limit| resize(content, size, limit))
    }

    async fn sync(&self) -> Result<()> {
        self.with_body(|_| Ok(()))
    }

    async fn metadata(&self) -> Result<Metadata> {
        self.with_body(|body| {
            Ok(match body {
                Body::New { content, .. } => Metadata::new(crate::FileKind::File, content.len() as u64),
                Body::Existing(inode) => lock(inode).metadata(),
            })
        })
    }

    async fn commit(&self, expected: Expectation) -> Result<Metadata> {
        self.commit_body(&expected).map_err(|error| error.at(&self.path))
    }

    async fn abort(&self) -> Result<()> {
        lock(&self.body).take();
        Ok(())
    }
}

/// Computes the wanted and expected digests of `content`; fails if it does not match the expectation.
fn verify(content: &[u8], expected: &Expectation, wanted: Algorithms) -> Result<Digests> {
    expected.check_size(content.len() as u64)?;
    let digests = Hasher::digest(wanted.union(expected.digests.algorithms()), content);
    expected.check_digests(&digests)?;
    Ok(digests)
}

fn finish(inode: &mut Inode, expected: &Expectation, digests: &Digests) -> Metadata {
    digests.iter().for_each(|digest| inode.digests.insert(*digest));
    inode.mtime_ns = expected.mtime_ns.unwrap_or(inode.mtime_ns);
    inode.ctime_ns = clock::unix_ns();
    inode.metadata()
}

/// Truncates or extends `content` with zeros, to at most `limit_bytes`.
pub(super) fn resize(content: &mut Vec<u8>, size: u64, limit_bytes: u64) -> Result<()> {
    let length = usize::try_from(size).ok().filter(|_| size <= limit_bytes);
    let length = length.ok_or_else(|| Error::new(Fault::NoSpace, "it exceeds the free space of the store"))?;
    content.resize(length, 0);
    Ok(())
}

fn slice(content: &Bytes, offset: u64, length: usize) -> Bytes {
    content.slice_ref(part(content, offset, length))
}

/// Returns the part of `content` that a read returns.
fn part(content: &[u8], offset: u64, length: usize) -> &[u8] {
    let start = usize::try_from(offset).map_or(content.len(), |start| start.min(content.len()));
    let end = start.saturating_add(length).min(content.len());
    content.get(start..end).unwrap_or_default()
}

fn finished() -> Error {
    Error::new(Fault::HandleNotOpen, "the file was committed or aborted already")
}
