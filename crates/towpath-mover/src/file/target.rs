//! The destination of a copy: begins its upload and explains lack of space.

use std::{sync::Arc, time::Duration};

use tokio::time::sleep;
use towpath_store::{CreateOptions, Error, Fault, Metadata, Result, ResumeKey, Space, WriteHandle, sys::clock};

use crate::{
    Job,
    context::CopyContext,
    stage::{Stage, StageGuard},
};

/// Maximum wait for a destination that still holds an earlier upload with the same key open: a server takes a minute or
/// two to detect a lost connection.
const MAX_IN_USE_WAIT: Duration = Duration::from_secs(120);

/// Interval between attempts during this wait.
const IN_USE_INTERVAL: Duration = Duration::from_secs(3);

/// Returns the options for a copy of a source with `metadata`.
pub(super) fn create_options(context: &CopyContext, metadata: &Metadata, resume: Option<ResumeKey>) -> CreateOptions {
    CreateOptions {
        overwrite: context.options.overwrite,
        parents: true,
        mode: metadata.mode.map(|mode| mode & 0o777 & !context.options.umask),
        size_hint: Some(metadata.size),
        mtime_ns: metadata.mtime_ns,
        digests: metadata.digests.algorithms(),
        resume,
    }
}

/// Begins the upload. A resumable upload is retried for up to two minutes while the destination is overloaded or still
/// holds the earlier upload with the same key.
///
/// # Errors
/// Those of the store.
pub(super) async fn begin(
    job: &Job,
    context: &CopyContext,
    stage: &mut StageGuard<'_>,
    options: CreateOptions,
) -> Result<Arc<dyn WriteHandle>> {
    let to = &job.to;
    if options.resume.is_some() {
        context.progress.proves();
    }
    let deadline = clock::now() + MAX_IN_USE_WAIT;
    let mut is_reported = false;
    loop {
        match to.store.create(&to.caller, &to.path, options.clone()).await {
            Err(error) if error.fault() == Fault::Overloaded && options.resume.is_some() && clock::now() < deadline => {
                if !is_reported {
                    stage.pass(Stage::Wait);
                    let seconds = MAX_IN_USE_WAIT.as_secs();
                    context.progress.waits(job);
                    tracing::warn!(path = %to, %error, "the destination cannot begin the upload yet; retrying for up to {seconds} s");
                }
                is_reported = true;
                sleep(IN_USE_INTERVAL).await;
            }
            outcome => {
                stage.pass(Stage::Open);
                return outcome;
            }
        }
    }
}

/// Returns `error`. If it is a lack of space and the destination reports its free space, the number of missing bytes is
/// added.
pub(super) async fn explain_no_space(job: &Job, bytes: u64, error: Error) -> Error {
    let to = &job.to;
    let mut directory = to.path.parent().filter(|_| error.fault() == Fault::NoSpace);
    while let Some(path) = directory {
        match to.store.space(&to.caller, &path).await {
            Ok(Space { free, .. }) if free < bytes => {
                let message = format!("{}: {} more bytes are needed", error.message(), bytes - free);
                return error.with_message(message).at(&to.path);
            }
            Err(error) if error.fault() == Fault::NotFound => directory = path.parent(),
            _ => break,
        }
    }
    error
}
