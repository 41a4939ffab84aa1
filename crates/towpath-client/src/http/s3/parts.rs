//! The parts of an upload in flight: one task each, and the upload id, for which all of them wait.

use std::sync::Arc;

use bytes::Bytes;
use tokio::{sync::watch, task::JoinSet};
use towpath_proto::{checksum::Digest, s3::Part};
use towpath_store::{Blame, Caller, Error, Fault, Result};

use super::{
    bucket::Bucket,
    budget::{Budget, BudgetReservation},
};

/// The destination of an upload.
#[derive(Debug, Clone)]
pub(super) struct UploadTarget {
    pub(super) bucket: Bucket,
    pub(super) caller: Caller,
    pub(super) key: Arc<str>,
    pub(super) budget: Arc<Budget>,
}

/// A multipart upload that has begun.
#[derive(Debug)]
pub(super) struct MultipartUpload {
    target: UploadTarget,
    id: watch::Receiver<Option<Result<Arc<str>>>>,
    sending: JoinSet<Result<Part>>,
    begun: u64,
    /// The first failure, which later writes return.
    failed: watch::Sender<Option<Error>>,
}

impl MultipartUpload {
    /// Requests an upload id. The request continues when this is dropped, because an upload with an unknown id could
    /// not be aborted.
    pub(super) fn begin(target: UploadTarget) -> Self {
        let (found, id) = watch::channel(None);
        let UploadTarget { bucket, caller, key, .. } = target.clone();
        target.bucket.site.background.spawn(async move {
            let begun = bucket.begin(&caller, &key).await;
            let _ = found.send(Some(begun.map(Arc::from)));
        });
        Self { target, id, sending: JoinSet::new(), begun: 0, failed: watch::Sender::new(None) }
    }

    /// Returns the error of a part that failed, if any.
    pub(super) fn failure(&self) -> Option<Error> {
        self.failed.borrow().clone()
    }

    /// Sends the next part.
    pub(super) fn send(&mut self, pieces: Vec<Bytes>, reserved: Vec<BudgetReservation>) {
        self.begun += 1;
        let (number, target, id) = (self.begun, self.target.clone(), self.id.clone());
        let sending = target.budget.sending();
        let failed = self.failed.clone();
        self.sending.spawn(async move {
            let sent = async {
                let id = wait(id).await?;
                let content = joined(pieces);
                target.bucket.put_part(&target.caller, &target.key, &id, number, content).await
            };
            let sent = sent.await;
            if let Err(error) = &sent {
                failed.send_if_modified(|first| first.replace(error.clone()).is_none());
            }
            drop((sending, reserved));
            sent
        });
    }

    /// Completes the object, once all parts have arrived.
    ///
    /// # Errors
    /// The first error of any part; then no object is created, and the caller must still call [`Self::abort`].
    pub(super) async fn complete(&mut self, crc32c: Option<Digest>, only_new: bool) -> Result<Option<String>> {
        let mut parts = Vec::new();
        while let Some(sent) = self.sending.join_next().await {
            let sent = sent.map_err(|error| Error::new(Fault::Internal, format!("a part's task ended: {error}")))?;
            parts.push(sent?);
        }
        parts.sort_unstable_by_key(|part| part.number);
        let id = wait(self.id.clone()).await?;
        let UploadTarget { bucket, caller, key, .. } = &self.target;
        bucket.complete(caller, key, &id, &parts, crc32c, only_new).await
    }

    /// Aborts the upload once its id is known. This continues when the future is dropped.
    pub(super) fn abort(self) -> impl Future<Output = ()> {
        // Without a runtime no request is possible.
        let runtime = tokio::runtime::Handle::try_current().ok();
        let background = self.target.bucket.site.background.clone();
        let removing = runtime.map(|runtime| background.spawn_on(self.remove(), &runtime));
        async move {
            if let Some(removing) = removing {
                let _ = removing.await;
            }
        }
    }

    async fn remove(mut self) {
        // Parts in flight could arrive after the removal.
        self.sending.shutdown().await;
        let Ok(id) = wait(self.id.clone()).await else { return };
        let UploadTarget { bucket, caller, key, .. } = &self.target;
        if let Err(error) = bucket.abort(caller, key, &id).await {
            tracing::warn!(%error, %key, "cannot remove the parts of an aborted upload");
        }
    }
}

async fn wait(mut id: watch::Receiver<Option<Result<Arc<str>>>>) -> Result<Arc<str>> {
    let found = id.wait_for(Option::is_some).await.map(|found| found.clone());
    found.ok().flatten().unwrap_or_else(|| {
        Err(Error::new(Fault::Unavailable, "the upload could not be started").blamed_on(Blame::Storage))
    })
}

/// Joins pieces into one.
pub(super) fn joined(pieces: Vec<Bytes>) -> Bytes {
    match <[Bytes; 1]>::try_from(pieces) {
        Ok([only]) => only,
        Err(pieces) => pieces.concat().into(),
    }
}
