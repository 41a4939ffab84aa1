//! The digest of a whole file: the server's, or one computed by reading the file.

use std::sync::Arc;

use futures::{StreamExt as _, TryStreamExt as _, stream};
use towpath_proto::{
    checksum::{Algorithm, Algorithms, Digest, Hasher},
    http::digest::write_want_digest,
};
use towpath_store::{Blame, Caller, Error, Fault, Result, StorePath};

use super::{describe, read::RemoteFile, stat, store::HttpStore};

/// What is read at once, and how many such pieces are underway.
const PIECE_BYTES: u64 = 4 << 20;
const PIECES: usize = 4;

impl HttpStore {
    pub(super) async fn digest_of(
        &self,
        caller: &Caller,
        path: &StorePath,
        algorithm: Algorithm,
        progress: &(dyn Fn(u64) + Send + Sync),
    ) -> Result<Digest> {
        let metadata = self.stat_path(caller, path).await?;
        if metadata.is_directory() {
            return Err(Error::new(Fault::IsDirectory, "it is a directory"));
        }
        if let Some(known) = metadata.digests.get(algorithm) {
            return Ok(known);
        }
        if let Some(told) = self.ask_digest(caller, path, algorithm).await? {
            return Ok(told);
        }
        let place = self.place(path);
        let file = RemoteFile::new(Arc::clone(&self.site), caller.clone(), path.clone(), place, metadata.version);
        compute(&file, algorithm, progress).await
    }

    /// The digest that the server has, or computes.
    pub(super) async fn ask_digest(
        &self,
        caller: &Caller,
        path: &StorePath,
        algorithm: Algorithm,
    ) -> Result<Option<Digest>> {
        if write_want_digest(&[algorithm]).is_empty() || !self.site.facts.want_digest.possible() {
            return Ok(None);
        }
        // It may have to read the file.
        let patience = self.site.options.patience;
        let answer = stat::ask_head(&self.site, caller, &self.place(path), &[algorithm], patience).await?;
        Ok(describe::digests(&answer.headers).get(algorithm))
    }
}

async fn compute(file: &RemoteFile, algorithm: Algorithm, progress: &(dyn Fn(u64) + Send + Sync)) -> Result<Digest> {
    let size = file.pin().await?.metadata.size;
    let pieces = (0..size).step_by(PIECE_BYTES as usize).map(|offset| {
        let length = usize::try_from(PIECE_BYTES.min(size - offset)).unwrap_or(usize::MAX);
        file.fetch(offset, length, Vec::new())
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
