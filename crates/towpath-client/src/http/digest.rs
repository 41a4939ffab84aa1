//! The digest of a whole file: requested from the server, or computed by reading the file.

use std::sync::Arc;

use towpath_proto::{
    checksum::{Algorithm, Digest},
    http::digest::write_want_digest,
};
use towpath_store::{Caller, Error, Fault, Result, StorePath};

use super::{
    describe::{self, Version},
    read::RemoteFile,
    stat,
    store::HttpStore,
};
use crate::digest::compute;

impl HttpStore {
    pub(super) async fn digest_of(
        &self,
        caller: &Caller,
        path: &StorePath,
        algorithm: Algorithm,
        progress: &(dyn Fn(u64) + Send + Sync),
    ) -> Result<Digest> {
        let metadata = match self.stat_path(caller, path).await {
            // A file of unknown length can still be read to its end.
            Err(error) if error.fault() == Fault::Unsupported => {
                let file =
                    RemoteFile::new(Arc::clone(&self.site), caller.clone(), path.clone(), self.target(path), None);
                return compute(&file, algorithm, progress).await;
            }
            metadata => metadata?,
        };
        if metadata.is_directory() {
            return Err(Error::new(Fault::IsDirectory, "it is a directory"));
        }
        if let Some(known) = metadata.digests.get(algorithm) {
            return Ok(known);
        }
        if let Some(reported) = self.request_digest(caller, path, algorithm).await? {
            return Ok(reported);
        }
        let target = self.target(path);
        let wanted = metadata.version.clone();
        let file = RemoteFile::new(Arc::clone(&self.site), caller.clone(), path.clone(), target, wanted);
        if metadata.size > 0 {
            let version = Version::of_metadata(&metadata);
            file.settle(metadata, version)?;
        }
        compute(&file, algorithm, progress).await
    }

    /// Requests a digest that the server has stored, or computes.
    pub(super) async fn request_digest(
        &self,
        caller: &Caller,
        path: &StorePath,
        algorithm: Algorithm,
    ) -> Result<Option<Digest>> {
        if write_want_digest(&[algorithm]).is_empty() || !self.site.features.want_digest.possible() {
            return Ok(None);
        }
        // The server may have to read the file.
        let patience = self.site.options.patience;
        match stat::ask_head(&self.site, caller, &self.target(path), &[algorithm], patience).await {
            Ok(answer) => Ok(describe::digests(&answer.headers).get(algorithm)),
            Err(error) if stat::may_be_for_get_only(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }
}
