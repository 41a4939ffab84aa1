//! Computes the digest of a file from its content, for servers that neither store nor compute it.

use futures::{StreamExt as _, TryStreamExt as _, stream, try_join};
use towpath_proto::checksum::{Algorithm, Algorithms, Digest, Hasher};
use towpath_store::{Blame, ContentStream, Error, Expectation, Fault, Metadata, ReadHandle, Result};

/// Length of a read, and number of reads in flight or waiting for earlier ones: 8 MiB of memory per file.
const PIECE_BYTES: u64 = 2 << 20;
const PIECES: usize = 4;

/// Computes the digest of a whole file. `progress` receives the number of bytes read so far, first 0 before the first
/// read: a caller that does not want the file to be read can drop this future then.
///
/// # Errors
/// Read errors; `Truncated` if less data than the size of the file were received.
pub(crate) async fn compute(
    file: &dyn ReadHandle,
    algorithm: Algorithm,
    progress: &(dyn Fn(u64) + Send + Sync),
) -> Result<Digest> {
    progress(0);
    tokio::task::yield_now().await;
    // The first piece is read even if the reported size is 0: only the end of the content proves that the file is
    // empty.
    let (metadata, first) = match try_join!(file.metadata(), file.read(0, PIECE_BYTES as usize)) {
        Ok(begun) => begun,
        Err(error) => return of_stream(ContentStream::instead_of(error, file).await?, algorithm, progress).await,
    };
    let size = metadata.size;
    if first.len() as u64 > size {
        let message = format!("the server sent more than the reported size of {size} bytes");
        return Err(Error::new(Fault::Changed, message).blamed_on(Blame::Storage));
    }
    let pieces = (first.len() as u64..size).step_by(PIECE_BYTES as usize).map(|offset| {
        let length = usize::try_from(PIECE_BYTES.min(size - offset)).unwrap_or(usize::MAX);
        file.read(offset, length)
    });
    let mut pieces = stream::iter(pieces).buffered(PIECES);
    let mut hasher = Hasher::new(Algorithms::of(&[algorithm]));
    hasher.update(&first);
    progress(hasher.bytes());
    while let Some(piece) = pieces.try_next().await? {
        hasher.update(&piece);
        progress(hasher.bytes());
    }
    if hasher.bytes() != size {
        let message = format!("received {} of {size} bytes", hasher.bytes());
        return Err(Error::new(Fault::Truncated, message).blamed_on(Blame::Storage));
    }
    finish(hasher, algorithm)
}

/// Computes the digest of a file of unknown length.
///
/// # Errors
/// Read errors; `ChecksumMismatch` if the storage reported another digest; `Unsupported` if the end of the content
/// cannot be proven.
async fn of_stream(
    stream: ContentStream,
    algorithm: Algorithm,
    progress: &(dyn Fn(u64) + Send + Sync),
) -> Result<Digest> {
    if !stream.has_proven_end() {
        let message = "the server ends the response by closing the connection, so the data may be truncated: cannot compute a digest";
        return Err(Error::new(Fault::Unsupported, message).blamed_on(Blame::Storage));
    }
    let ContentStream { mut pieces, metadata: Metadata { digests, .. }, .. } = stream;
    let mut hasher = Hasher::new(digests.algorithms().iter().chain([algorithm]).collect());
    while let Some(piece) = pieces.try_next().await? {
        hasher.update(&piece);
        progress(hasher.bytes());
    }
    let promised = Expectation { digests, ..Expectation::default() };
    promised.check_digests(&hasher.clone().finish()).map_err(|error| error.blamed_on(Blame::Storage))?;
    finish(hasher, algorithm)
}

fn finish(hasher: Hasher, algorithm: Algorithm) -> Result<Digest> {
    let digest = hasher.finish().get(algorithm);
    digest.ok_or_else(|| Error::new(Fault::Internal, format!("computing the {algorithm} gave no result")))
}
