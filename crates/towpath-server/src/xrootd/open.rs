//! `open` and `close`.
//!
//! An upload (`new`, `delete`) is invisible until its `close`, which commits it; until then readers see the old file,
//! or none. If two uploads have the same name, the last one closed wins; with `new` it fails instead. `open` for
//! update of an existing file changes it in place, with immediate visibility. A client that requested the checksum
//! with the open, like towpath's, reads one version, and gets an error if the file changes; other readers get the
//! current content, including appended data.
//!
//! A connection that ends aborts its uploads, except those with a key (`towpath.resume` in the opaque part): their
//! data are kept, and the response to the next `open` with that key describes them.
//!
//! An `open` with `towpath.share` returns another handle of a file that is being written, usually to another session
//! of the same client, which then sends one file over several connections. All such handles are equivalent: one
//! `close` commits, `keep` only releases the handle, and the upload exists as long as any of them.
//!
//! Opens that belong to a third-party copy are handled in [`super::third_party`].

use std::sync::Arc;

use towpath_proto::xrootd::{
    OpenOptions, PathAndCgi,
    request::{CloseAction, Open, SharedHandle},
    response::OpenReply,
};
use towpath_store::{CreateOptions, Expectation, Fault, OpenOptions as StoreOptions, Overwrite, ResumeKey, StorePath};

use super::{
    active_request::{ActiveRequest, ErrorResponse, ServeResult, is_written_as_directory},
    attributes,
    files::{FileAccess, OpenFile, Slot, WritableFile},
    metadata, names, third_party,
};
use crate::access::{Activity, Identity, Person};

/// Handles `open`. The file is stored in `slot`, which is released if the open fails.
pub(super) async fn open(active_request: &ActiveRequest, slot: &Arc<Slot>, request: &Open) -> ServeResult {
    let opened = open_file(active_request, request).await;
    let retstat = request.options.contains(OpenOptions::retstat);
    let answer = async {
        let file = opened?;
        let found = if retstat { Some(file.metadata().await?) } else { None };
        let checksum = found.as_ref().filter(|_| request.wants_checksum).and_then(metadata::known_checksum);
        let can = active_request.session.service.store.capabilities();
        let stat = found.map(|found| metadata::stat_info(&can, &file.identity, &file.path, &found));
        let present = match &file.access {
            FileAccess::Write(writing) if writing.is_resumable() && shared(&request.path)?.is_none() => {
                Some(writing.handle.present().await?)
            }
            _ => None,
        };
        slot.set_file(file);
        active_request.ok(&OpenReply { handle: slot.handle(), stat, checksum, present })
    };
    let answer = answer.await;
    if answer.is_err() {
        active_request.session.files.release_slot(slot);
    }
    answer
}

async fn open_file(active_request: &ActiveRequest, request: &Open) -> ServeResult<OpenFile> {
    let (mut identity, path) = active_request.subject(&request.path).await?;
    if request.options.creates() && is_written_as_directory(&request.path) {
        return Err(ErrorResponse::new(Fault::IsDirectory, "a trailing slash means a directory").into());
    }
    let store = &active_request.session.service.store;
    let is_part_of_copy = third_party::is_part_of_copy(request);
    let access = if let Some(shared) = shared(&request.path)? {
        FileAccess::Write(share(active_request, &identity, &path, shared)?)
    } else if request.options.creates() && is_part_of_copy {
        FileAccess::Pull(Box::new(third_party::pull(active_request, request, &identity, &path).await?))
    } else if request.options.creates() {
        FileAccess::Write(Arc::new(create(active_request, &identity, &path, request).await?))
    } else if request.options.writes() {
        identity.check(Activity::Modify, &path)?;
        FileAccess::Write(Arc::new(WritableFile::update(store.update(&identity.caller, &path).await?)))
    } else {
        if is_part_of_copy {
            identity = third_party::reader(active_request, request, identity, &path).await?;
        }
        identity.check(Activity::Read, &path)?;
        // Plain reads follow the current content, as with other servers. Checksums and copies refer to one version.
        let follows = !is_part_of_copy && !request.wants_checksum;
        let options = StoreOptions { follows, ..StoreOptions::default() };
        FileAccess::Read(store.open(&identity.caller, &path, options).await?)
    };
    Ok(OpenFile { path, identity, access })
}

/// Starts an upload. For a caller with `Create` but not `Modify`, the store rejects replacing a file.
async fn create(
    active_request: &ActiveRequest,
    identity: &Identity,
    path: &StorePath,
    request: &Open,
) -> ServeResult<WritableFile> {
    let replaces = request.options.contains(OpenOptions::delete);
    let modifies = identity.check(Activity::Modify, path);
    if modifies.is_err() {
        identity.check(Activity::Create, path)?;
    }
    let can = active_request.session.service.store.capabilities();
    can.check_create(path)?;
    let overwrite = if replaces && modifies.is_ok() { Overwrite::Replace } else { Overwrite::Refuse };
    let size_hint = announced_size(&request.path);
    let resume = resume_key(&request.path)?.filter(|_| can.resume);
    let options = CreateOptions {
        overwrite,
        parents: makes_parents(request.options),
        mode: Some(names::permissions(request.mode)).filter(|mode| *mode != 0),
        size_hint,
        resume,
        ..CreateOptions::default()
    };
    // This first reads back the data of an interrupted upload.
    let created = active_request
        .with_wait_notices(active_request.session.service.store.create(&identity.caller, path, options))
        .await?;
    match created {
        Ok(handle) => Ok(WritableFile::create(handle, size_hint, resume.is_some())),
        Err(error) if replaces && error.fault() == Fault::AlreadyExists => Err(modifies.err().unwrap_or(error).into()),
        Err(error) => Err(error.into()),
    }
}

/// Whether to create missing parents of a new file: on `mkpath`, and on `async`, which XRootD clients always send and
/// for which the reference server creates them (5.5.3). So `xrdcp` into a missing directory works with both.
pub(super) fn makes_parents(options: OpenOptions) -> bool {
    options.intersects(OpenOptions::mkpath | OpenOptions::async_)
}

/// Parses the shared handle of another session.
fn shared(path: &PathAndCgi) -> Result<Option<SharedHandle>, ErrorResponse> {
    let Some(value) = path.cgi_value(SharedHandle::KEY) else { return Ok(None) };
    let message = || format!("{} is not 40 hexadecimal digits", SharedHandle::KEY);
    SharedHandle::decode(value).map(Some).ok_or_else(|| ErrorResponse::new(Fault::InvalidArgument, message()))
}

/// Returns the file being written for another handle, if the caller is its owner and knows the session's id.
fn share(
    active_request: &ActiveRequest,
    identity: &Identity,
    path: &StorePath,
    shared: SharedHandle,
) -> Result<Arc<WritableFile>, ErrorResponse> {
    let asking = &active_request.session;
    let session = asking.service.sessions.find(shared.session_id, asking.peer);
    let slot = session.and_then(|session| session.files.find(shared.handle).ok());
    let file = slot.as_ref().and_then(|slot| slot.file().ok());
    let is_same =
        |file: &&OpenFile| file.path == *path && Person::of(&file.identity.caller) == Person::of(&identity.caller);
    let writing = file.filter(is_same).and_then(|file| file.writing().ok());
    writing.cloned().ok_or_else(|| ErrorResponse::new(Fault::HandleNotOpen, "no such file is open for writing"))
}

/// Returns the file size announced by the client.
fn announced_size(path: &PathAndCgi) -> Option<u64> {
    std::str::from_utf8(path.cgi_value("oss.asize")?).ok()?.parse().ok()
}

/// Parses the key under which the client wants to resume the upload.
fn resume_key(path: &PathAndCgi) -> Result<Option<ResumeKey>, ErrorResponse> {
    let Some(text) = path.cgi_value(OpenReply::RESUME_KEY) else { return Ok(None) };
    let key = std::str::from_utf8(text).ok().and_then(|text| text.parse().ok());
    let message = || format!("{} is not 32 hexadecimal digits", OpenReply::RESUME_KEY);
    key.map(Some).ok_or_else(|| ErrorResponse::new(Fault::InvalidArgument, message()))
}

/// Handles `close`, whose handle has already been released.
pub(super) async fn close(
    active_request: &ActiveRequest,
    file: &OpenFile,
    ending: Option<&CloseAction>,
) -> ServeResult {
    let writing = match &file.access {
        FileAccess::Read(_) => return active_request.done(),
        FileAccess::Pull(pull) => return pull.close(active_request).await,
        FileAccess::Write(writing) => writing,
    };
    let promise = match ending {
        None => None,
        Some(CloseAction::Commit(promise)) => Some(promise),
        // Dropping the file releases it.
        Some(CloseAction::Keep) => return active_request.done(),
        Some(CloseAction::Abandon) => {
            writing.handle.abort().await?;
            return active_request.done();
        }
    };
    if let Err(refusal) = sound(writing).await {
        if !writing.is_resumable() {
            writing.handle.abort().await?;
        }
        return Err(refusal.into());
    }
    let expected = promise.map_or_else(Expectation::default, |promise| Expectation {
        size: Some(promise.size),
        digests: promise.digests.clone(),
        mtime_ns: promise.mtime_ns,
    });
    let committed = writing.handle.commit(expected).await?;
    attributes::apply_pending(active_request, file, &writing.attributes).await?;
    match promise {
        Some(_) => {
            let can = active_request.session.service.store.capabilities();
            active_request.ok(&metadata::stat_info(&can, &file.identity, &file.path, &committed))
        }
        None => active_request.done(),
    }
}

/// Checks that all data have arrived intact.
async fn sound(writing: &WritableFile) -> Result<(), ErrorResponse> {
    let bad = writing.bad_pages().len();
    if bad > 0 {
        let message = format!("{bad} pages arrived damaged and were not retransmitted: {}", writing.describe_fate());
        return Err(ErrorResponse::new(Fault::ChecksumMismatch, message));
    }
    if writing.is_spoiled() {
        return Err(ErrorResponse::new(
            Fault::Truncated,
            format!("an earlier write failed: {}", writing.describe_fate()),
        ));
    }
    let Some(announced) = writing.announced_bytes else { return Ok(()) };
    let size = writing.handle.metadata().await?.size;
    if size < announced {
        let message = format!("{announced} bytes were announced, but {size} arrived: {}", writing.describe_fate());
        return Err(ErrorResponse::new(Fault::Truncated, message));
    }
    Ok(())
}
