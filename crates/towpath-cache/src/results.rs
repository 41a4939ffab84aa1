//! Content that can be read only once, such as the result of a query: collected in memory, so that it can be stored.

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

use async_trait::async_trait;
use bytes::Bytes;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use towpath_proto::checksum::{Algorithm, Algorithms, Hasher};
use towpath_store::{
    Blame, ByteRange, ContentStream, Error, Expectation, Fault, LocalPart, Metadata, Preparation, ReadBuffer,
    ReadHandle, Result, VectorReads, VersionTag,
};

use crate::file::past_the_end;

/// Maximum size of collected content in bytes.
const MAX_RESULT_BYTES: usize = 16 << 20;
/// Memory for collected content in bytes: more is passed on without being stored.
const MEMORY_BYTES: usize = 256 << 20;
/// Unit of the memory for collected content in bytes.
const MEMORY_UNIT: usize = 64 << 10;
/// Prefix of the tags of content whose version the origin does not state. With a tilde no client takes the rest for an
/// entity tag of the origin.
const CONTENT_TAG: &str = "~sha256-";
/// Number of hexadecimal digits of the digest in such a tag: 192 bits.
const TAG_DIGITS: usize = 48;

/// Memory for content that is being collected or stored.
#[derive(Debug, Clone)]
pub(crate) struct ResultMemory(Arc<Semaphore>);

impl Default for ResultMemory {
    fn default() -> Self {
        Self::new(MEMORY_BYTES)
    }
}

impl ResultMemory {
    /// Creates a limit of `bytes`.
    fn new(bytes: usize) -> Self {
        Self(Arc::new(Semaphore::new(bytes / MEMORY_UNIT)))
    }

    /// Adds a further unit to a permit. Returns whether there was one.
    fn extend(&self, held: &mut Option<OwnedSemaphorePermit>) -> bool {
        let more = Arc::clone(&self.0).try_acquire_owned().ok();
        match (more, held.as_mut()) {
            (None, _) => return false,
            (Some(more), Some(held)) => held.merge(more),
            (more, None) => *held = more,
        }
        true
    }
}

/// Content in memory, or a stream of it that can be read once.
pub(crate) enum ResultFile {
    Whole {
        content: Bytes,
        metadata: Box<Metadata>,
        /// Held as long as the content is in memory.
        _memory: Option<OwnedSemaphorePermit>,
    },
    /// It is too long, there is no memory for it, or its end is not proven. `None` after it was taken.
    Stream(Mutex<Option<ContentStream>>),
}

impl fmt::Debug for ResultFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Whole { metadata, .. } => f.debug_tuple("Whole").field(metadata).finish(),
            Self::Stream(stream) => f.debug_tuple("Stream").field(stream).finish(),
        }
    }
}

impl ResultFile {
    /// Collects a stream. Its version is the strong one that the storage stated, or its SHA-256.
    ///
    /// # Errors
    /// Errors of the stream; `Truncated` and `ChecksumMismatch` if it is not what the storage announced.
    pub(crate) async fn collect(mut stream: ContentStream, memory: &ResultMemory) -> Result<Self> {
        if !stream.has_proven_end() || stream.metadata.size > MAX_RESULT_BYTES as u64 {
            return Ok(Self::passed_on(stream));
        }
        let (mut pieces, mut bytes, mut reserved, mut permit) = (Vec::new(), 0, 0, None);
        while let Some(piece) = stream.pieces.try_next().await? {
            bytes += piece.len();
            pieces.push(piece);
            while reserved < bytes && bytes <= MAX_RESULT_BYTES && memory.extend(&mut permit) {
                reserved += MEMORY_UNIT;
            }
            if reserved < bytes {
                // The permit is held until the first pieces are sent.
                let first = stream::iter(pieces).map(move |piece| {
                    let _held = &permit;
                    Ok(piece)
                });
                return Ok(Self::passed_on(ContentStream { pieces: first.chain(stream.pieces).boxed(), ..stream }));
            }
        }
        let mut content = Vec::with_capacity(bytes);
        pieces.into_iter().for_each(|piece| content.extend_from_slice(&piece));
        let content = Bytes::from(content);
        let metadata = Box::new(described(&content, stream.metadata)?);
        Ok(Self::Whole { content, metadata, _memory: permit })
    }

    /// Passes a stream on as it is.
    pub(crate) fn passed_on(stream: ContentStream) -> Self {
        Self::Stream(Mutex::new(Some(stream)))
    }

    /// Returns content and metadata; `None` for a stream.
    pub(crate) fn whole(&self) -> Option<(&Bytes, &Metadata)> {
        match self {
            Self::Whole { content, metadata, .. } => Some((content, metadata)),
            Self::Stream(_) => None,
        }
    }

    fn content(&self) -> Result<&Bytes> {
        self.whole().map(|(content, _)| content).ok_or_else(only_once)
    }

    fn slice(&self, offset: u64, length: usize) -> Result<Bytes> {
        let content = self.content()?;
        let start = usize::try_from(offset).unwrap_or(usize::MAX).min(content.len());
        Ok(content.slice(start..start.saturating_add(length).min(content.len())))
    }
}

/// Returns the metadata of collected content, and compares it with what the storage `announced`.
fn described(content: &Bytes, announced: Metadata) -> Result<Metadata> {
    let size = content.len() as u64;
    if announced.size > 0 && announced.size != size {
        let message = format!("the origin sent {size} bytes in place of {}", announced.size);
        return Err(Error::new(Fault::Truncated, message).blamed_on(Blame::Storage));
    }
    let wanted = announced.digests.algorithms().iter().chain([Algorithm::Sha256]).collect::<Algorithms>();
    let mut hasher = Hasher::new(wanted);
    hasher.update(content);
    let digests = hasher.finish();
    let promised = Expectation { digests: announced.digests.clone(), ..Expectation::default() };
    promised.check_digests(&digests).map_err(|error| error.blamed_on(Blame::Storage))?;
    let stated = announced.version.clone().filter(|tag| !tag.is_weak());
    let version = stated.or_else(|| content_tag(&digests.get(Algorithm::Sha256)?.to_string()));
    Ok(Metadata { size, version, ..announced })
}

fn content_tag(sha256: &str) -> Option<VersionTag> {
    VersionTag::new(&format!("{CONTENT_TAG}{}", sha256.get(..TAG_DIGITS)?))
}

/// Returns whether a tag is made of the content: then it alone identifies it, at all origins.
pub(crate) fn is_of_content(tag: Option<&VersionTag>) -> bool {
    tag.is_some_and(|tag| tag.as_str().starts_with(CONTENT_TAG))
}

fn only_once() -> Error {
    let message = "the storage does not report the file's size, and the file is too long to be collected";
    Error::new(Fault::Unsupported, message).blamed_on(Blame::Storage)
}

#[async_trait]
impl ReadHandle for ResultFile {
    async fn metadata(&self) -> Result<Metadata> {
        self.whole().map(|(_, metadata)| metadata.clone()).ok_or_else(only_once)
    }

    async fn read(&self, offset: u64, length: usize) -> Result<Bytes> {
        self.slice(offset, length)
    }

    async fn read_into(&self, offset: u64, length: usize, mut buffer: Vec<u8>) -> Result<Vec<u8>> {
        buffer.extend_from_slice(&self.slice(offset, length)?);
        Ok(buffer)
    }

    fn read_now(&self, _offset: u64, _length: usize, _buffer: &mut Vec<u8>) -> Option<Result<usize>> {
        None
    }

    fn read_vector_now(&self, _buffers: &mut [ReadBuffer<'_>]) -> Option<Result<()>> {
        None
    }

    fn read_vector(&self, ranges: Vec<ByteRange>) -> VectorReads<'_> {
        let results = ranges.into_iter().enumerate().map(|(index, range)| {
            let result = self.content().and_then(|content| match range.end() <= content.len() as u64 {
                true => self.slice(range.offset, range.length),
                false => Err(past_the_end()),
            });
            (index, result)
        });
        stream::iter(results).boxed()
    }

    async fn stream(&self) -> Result<Option<ContentStream>> {
        match self {
            Self::Whole { .. } => Ok(None),
            Self::Stream(stream) => match stream.lock().unwrap_or_else(PoisonError::into_inner).take() {
                Some(stream) => Ok(Some(stream)),
                None => Err(Error::new(Fault::Unsupported, "the content was read already")),
            },
        }
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

#[cfg(test)]
mod tests {
    use towpath_proto::checksum::Digests;
    use towpath_store::FileKind;

    use super::*;

    fn streamed(pieces: &[&'static [u8]], metadata: Metadata) -> ContentStream {
        let pieces: Vec<_> = pieces.iter().map(|piece| Ok(Bytes::from_static(piece))).collect();
        ContentStream { pieces: stream::iter(pieces).boxed(), metadata, is_framed: true }
    }

    fn nothing() -> Metadata {
        Metadata::new(FileKind::File, 0)
    }

    async fn passed(file: &ResultFile) -> Vec<u8> {
        let stream = file.stream().await.unwrap().unwrap();
        assert!(file.stream().await.is_err(), "a second stream");
        stream.pieces.try_collect::<Vec<_>>().await.unwrap().concat()
    }

    #[tokio::test]
    async fn collected_content_has_a_version() {
        let memory = ResultMemory::new(2 * MEMORY_UNIT);
        let file = ResultFile::collect(streamed(&[b"ab", b"c"], nothing()), &memory).await.unwrap();
        let metadata = file.metadata().await.unwrap();
        let sha256 = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9c";
        assert_eq!(
            (metadata.size, metadata.version.as_ref().map(VersionTag::as_str)),
            (3, Some(&*format!("~sha256-{sha256}")))
        );
        assert_eq!(file.read(1, 9).await.unwrap(), "bc");
        assert!(file.read(9, 1).await.unwrap().is_empty());
        assert!(is_of_content(metadata.version.as_ref()));
        let tag = VersionTag::new("v1");
        for (tag, is_kept) in [(tag.clone(), true), (tag.map(VersionTag::into_weak), false)] {
            let stated = Metadata { version: tag.clone(), ..nothing() };
            let file = ResultFile::collect(streamed(&[b"abc"], stated), &memory).await.unwrap();
            assert_eq!(file.metadata().await.unwrap().version == tag, is_kept, "{tag:?}");
        }
    }

    #[tokio::test]
    async fn content_without_memory_or_proof_is_passed_on_whole() {
        let memory = ResultMemory::new(2 * MEMORY_UNIT);
        let held = ResultFile::collect(streamed(&[b"abc"], nothing()), &memory).await.unwrap();
        let long: &[u8] = &[7; MEMORY_UNIT];
        let file = ResultFile::collect(streamed(&[long, b"a", b"b"], nothing()), &memory).await.unwrap();
        assert!(file.metadata().await.is_err() && file.read(0, 1).await.is_err());
        drop(held);
        assert_eq!(memory.0.available_permits(), 1, "its first pieces are in memory");
        assert_eq!(passed(&file).await, [long, b"ab"].concat());
        assert_eq!(memory.0.available_permits(), 2);
        let file = ResultFile::collect(streamed(&[long, b"a", b"b"], nothing()), &memory).await.unwrap();
        assert_eq!(file.metadata().await.unwrap().size, MEMORY_UNIT as u64 + 2);
        drop(file);
        assert_eq!(memory.0.available_permits(), 2);
        let unproven = ContentStream { is_framed: false, ..streamed(&[b"abc"], nothing()) };
        assert_eq!(passed(&ResultFile::collect(unproven, &memory).await.unwrap()).await, b"abc");
    }

    #[tokio::test]
    async fn content_that_was_announced_differently_is_an_error() {
        let memory = ResultMemory::new(MEMORY_UNIT);
        let digests: Digests = [Hasher::digest_of(Algorithm::Md5, b"abc")].into_iter().collect();
        let promised = Metadata { digests, ..nothing() };
        for (content, metadata, fault) in [
            (b"abd", promised.clone(), Some(Fault::ChecksumMismatch)),
            (b"abc", promised, None),
            (b"abc", Metadata::new(FileKind::File, 4), Some(Fault::Truncated)),
            (b"abc", Metadata::new(FileKind::File, 3), None),
        ] {
            let outcome = ResultFile::collect(streamed(&[content], metadata), &memory).await;
            assert_eq!(outcome.err().map(|error| error.fault()), fault);
        }
    }
}
