//! Requests that change names: `mkdir`, `rm`, `rmdir`, `mv`, `chmod`, `truncate` of a path.

use towpath_proto::xrootd::{
    MkdirOptions, Mode, Target,
    request::{Chmod, Mkdir, Mv, Rm, Rmdir, Truncate},
};
use towpath_store::{Changes, Error, Fault, Overwrite};

use super::active_request::{ActiveRequest, ErrorResponse, ServeResult, is_written_as_directory};
use crate::access::Activity;

/// Returns the permission bits of a mode, the only ones in the protocol. Others would allow the remote creation of
/// set-user-id files.
pub(super) fn permissions(mode: Mode) -> u32 {
    u32::from(mode.0) & 0o777
}

/// Handles `mkdir`. An existing directory is accepted only with `mkdirpath`, as by the reference server.
pub(super) async fn mkdir(active_request: &ActiveRequest, request: &Mkdir) -> ServeResult {
    let (identity, path) = active_request.subject(&request.path).await?;
    identity.check(Activity::CreateDirectory, &path)?;
    active_request.session.service.store.capabilities().check_create(&path)?;
    let parents = request.options.contains(MkdirOptions::mkdirpath);
    let mode = Some(permissions(request.mode)).filter(|mode| *mode != 0);
    active_request.session.service.store.make_directory(&identity.caller, &path, parents, mode).await?;
    active_request.done()
}

/// Handles `rm`.
pub(super) async fn rm(active_request: &ActiveRequest, request: &Rm) -> ServeResult {
    let (identity, path) = active_request.subject(&request.path).await?;
    identity.check(Activity::Modify, &path)?;
    active_request.session.service.store.capabilities().check_remove(&path)?;
    active_request.session.service.store.remove_file(&identity.caller, &path).await?;
    active_request.done()
}

/// Handles `rmdir`.
pub(super) async fn rmdir(active_request: &ActiveRequest, request: &Rmdir) -> ServeResult {
    let (identity, path) = active_request.subject(&request.path).await?;
    identity.check(Activity::Modify, &path)?;
    active_request.session.service.store.capabilities().check_remove(&path)?;
    active_request.session.service.store.remove_directory(&identity.caller, &path).await?;
    active_request.done()
}

/// Handles `mv`. The new name may replace a file if the caller may modify it.
pub(super) async fn mv(active_request: &ActiveRequest, request: &Mv) -> ServeResult {
    let (identity, from) = active_request.subject(&request.from).await?;
    let (_, to) = active_request.subject(&request.to).await?;
    identity.check_stat_before(Activity::Rename, &from)?;
    let store = &active_request.session.service.store;
    let is_directory = store.stat(&identity.caller, &from).await.is_ok_and(|found| found.is_directory());
    if !is_directory && is_written_as_directory(&request.to) {
        return Err(
            ErrorResponse::new(Fault::NotDirectory, "a trailing slash in the new name means a directory").into()
        );
    }
    identity.check(if is_directory { Activity::Modify } else { Activity::Rename }, &from)?;
    let replaces = identity.check(Activity::Modify, &to);
    if replaces.is_err() {
        identity.check(Activity::Create, &to)?;
    }
    store.capabilities().check_rename(&from)?;
    let overwrite = if replaces.is_ok() { Overwrite::Replace } else { Overwrite::Refuse };
    store.rename(&identity.caller, &from, &to, overwrite).await.map_err(|error| refused_replacing(error, replaces))?;
    active_request.done()
}

/// Returns the denial instead of `AlreadyExists` to a caller who may not replace files, so as not to reveal the
/// existing file.
fn refused_replacing(error: Error, replaces: Result<(), Error>) -> Error {
    match replaces {
        Err(denied) if error.fault() == Fault::AlreadyExists => denied,
        _ => error,
    }
}

/// Handles `chmod`, which also sets the time with [`Chmod::MTIME_KEY`].
pub(super) async fn chmod(active_request: &ActiveRequest, request: &Chmod) -> ServeResult {
    let (identity, path) = active_request.subject(&request.path).await?;
    identity.check(Activity::Modify, &path)?;
    let mtime_ns = match request.path.cgi_value(Chmod::MTIME_KEY) {
        None => None,
        Some(text) => {
            let time = std::str::from_utf8(text).ok().and_then(|text| text.parse().ok());
            let message = || format!("{} is not a number of nanoseconds", Chmod::MTIME_KEY);
            Some(time.ok_or_else(|| ErrorResponse::new(Fault::InvalidArgument, message()))?)
        }
    };
    let mode = Some(permissions(request.mode)).filter(|mode| *mode != 0 || mtime_ns.is_none());
    let changes = Changes { mode, mtime_ns, size: None };
    active_request.session.service.store.change(&identity.caller, &path, changes).await?;
    active_request.done()
}

/// Handles `truncate` of a path.
pub(super) async fn truncate(active_request: &ActiveRequest, request: &Truncate) -> ServeResult {
    let Target::Path(path) = &request.target else {
        return Err(ErrorResponse::new(Fault::InvalidArgument, "neither a path nor a handle is given").into());
    };
    let (identity, path) = active_request.subject(path).await?;
    identity.check(Activity::Modify, &path)?;
    let changes = Changes { size: Some(request.size), ..Changes::default() };
    active_request.session.service.store.change(&identity.caller, &path, changes).await?;
    active_request.done()
}
