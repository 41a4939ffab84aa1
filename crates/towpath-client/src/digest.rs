//! The digest of a file, computed here from its bytes, where its server neither knows nor computes it.

use futures::{StreamExt as _, TryStreamExt as _, stream};
use towpath_proto::checksum::{Algorithm, Algorithms, Digest, Hasher};
use towpath_store::{Blame, Error, Fault, ReadHandle, Result};

/// What is read at once, and how many such pieces are underway or wait for those before them: 8 MiB of memory for each file.
const PIECE_BYTES: u64 = 2 << 20;
const PIECES: usize = 4;

/// The digest of a whole file; `progress` is told the bytes read so far.
///
/// # Errors
/// Those of reading; `Truncated` if less came than the file is long.
pub(crate) async fn compute(
    file: &dyn ReadHandle,
    algorithm: Algorithm,
    progress: &(dyn Fn(u64) + Send + Sync),
) -> Result<Digest> {
    let size = file.metadata().await?.size;
    let pieces = (0..size).step_by(PIECE_BYTES as usize).map(|offset| {
        let length = usize::try_from(PIECE_BYTES.min(size - offset)).unwrap_or(usize::MAX);
        file.read(offset, length)
    });
    let mut pieces = stream::iter(pieces).buffered(PIECES);
    let mut hasher = Hasher::new(Algorithms::of(&[algorithm]));
    while let Some(piece) = pieces.try_next().await? {
        hasher.update(&piece);
        progress(hasher.bytes());
    }
    if hasher.bytes() != size {
        let message = format!("{} bytes came of a file of {size}", hasher.bytes());
        return Err(Error::new(Fault::Truncated, message).blamed_on(Blame::Storage));
    }
    let digest = hasher.finish().get(algorithm);
    digest.ok_or_else(|| Error::new(Fault::Internal, format!("no {algorithm} came out of its computation")))
}
