//! Rejects copies that would recurse without end or destroy their source, before anything is written.
//!
//! Paths are compared first. A directory reachable under several paths (links, mounts, host aliases, a served directory
//! and its URL) is identified by its [`DirectoryId`]. If one end reports no ids, the server addresses are compared
//! instead. Before a deletion, a marker file is also created at the destination and must not be visible at the source.

use std::{
    collections::{HashMap, HashSet},
    ffi::OsStr,
    iter,
    os::unix::ffi::OsStrExt as _,
    path::Path,
    pin::pin,
    time::Duration,
};

use futures::{StreamExt as _, join, stream};
use tokio::{task::spawn_blocking, time::timeout};
use towpath_store::{
    CreateOptions, DirectoryId, Error, Expectation, Fault, Metadata, Result, StorePath, gone,
    sys::{disk, net, random},
};

use crate::{Job, StoreLocation, compare::EntrySummary};

/// Maximum number of `stat` requests in flight.
const MAX_REQUESTS: usize = 64;

/// Timeout of the name resolution of both hosts.
const RESOLVER_WAIT: Duration = Duration::from_secs(5);

/// Prefix of the marker's file name; a random part follows.
const MARKER_PREFIX: &str = ".towpath-marker-";

/// Directory ids of both ends of a copy and of their ancestors. Empty for an end without ids.
#[derive(Debug, Default)]
pub(crate) struct EndIds {
    source: Vec<DirectoryId>,
    destination: Vec<DirectoryId>,
    /// Id of the source's root.
    root: Option<DirectoryId>,
    /// Whether the ids prove that neither end contains the other.
    are_proven: bool,
}

impl EndIds {
    /// Returns the ids of the source and its ancestors, none if they cannot be on the destination's machine.
    pub(crate) fn source(&self) -> &[DirectoryId] {
        &self.source
    }

    /// Records the id of a destination that was just created.
    pub(crate) async fn add_destination(&mut self, to: &StoreLocation) {
        if self.root.is_some()
            && let Ok(Metadata { directory_id: Some(id), .. }) = to.store.stat(&to.caller, &to.path).await
        {
            self.destination.push(id);
        }
    }

    /// Rejects a source directory that is the destination or one of its ancestors: the copy would recurse into itself.
    pub(crate) fn refuse_destination(&self, path: &StorePath, source: &EntrySummary) -> Result<()> {
        match source.directory_id.is_some_and(|id| self.destination.contains(&id)) {
            true => {
                Err(invalid_argument("it is skipped: it is the destination, or a parent directory of it".into(), path))
            }
            false => Ok(()),
        }
    }
}

/// Rejects two sources with the same destination, and a destination that equals or is within its source.
pub(super) fn refuse_clashes(pairs: &[Job]) -> Result<()> {
    let mut taken = HashMap::new();
    for Job { from, to, .. } in pairs {
        if let Some(other) = taken.insert(&to.path, from) {
            let message = format!("{other} and {from} would both be copied to it");
            return Err(to.locate(invalid_argument(message, &to.path)));
        }
        if from.is_beside(to) && to.path.is_within(&from.path) {
            return Err(copied_into_itself(from, to));
        }
    }
    Ok(())
}

/// Rejects a destination that contains its source, which the deletion could remove.
pub(super) fn refuse_source_within(ends: &Job) -> Result<()> {
    match ends.from.is_beside(&ends.to) && ends.from.path.is_within(&ends.to.path) {
        true => Err(contains_source_error(ends)),
        false => Ok(()),
    }
}

fn contains_source_error(Job { from, to, .. }: &Job) -> Error {
    to.locate(invalid_argument(format!("it cannot be synchronized with {from}, which is inside it"), &to.path))
}

fn copied_into_itself(from: &StoreLocation, to: &StoreLocation) -> Error {
    from.locate(invalid_argument(format!("it cannot be copied to {to}, which is the same or inside it"), &from.path))
}

/// Rejects a copy of the directory `source` into itself under any name, and a copy over `found`, a directory at the
/// destination that contains the source. Returns the identities of both ends.
pub(super) async fn refuse_same_tree(ends: &Job, source: &Metadata, found: Option<&Metadata>) -> Result<EndIds> {
    let Job { from, to, .. } = ends;
    let into_itself = || Err(copied_into_itself(from, to));
    let found_id = found.and_then(|found| found.directory_id);
    let (above_destination, above_source) = join!(ancestor_ids(to, source.directory_id), ancestor_ids(from, found_id));
    if source.directory_id.is_some_and(|id| above_destination.ids.contains(&id)) {
        return into_itself();
    }
    if found_id.is_some_and(|id| above_source.ids.contains(&id)) {
        return Err(contains_source_error(ends));
    }
    // Paths of one name have been compared already.
    let is_alias = !from.is_beside(to) && !above_destination.is_identified && is_same_address(from, to).await;
    let is_beside = is_alias || from.is_beside(to);
    if (is_alias && to.path.is_within(&from.path)) || (is_beside && is_within_directory(to, source).await?) {
        return into_itself();
    }
    if let Some(found) = found
        && ((is_alias && from.path.is_within(&to.path)) || (is_beside && is_within_directory(from, found).await?))
    {
        return Err(contains_source_error(ends));
    }
    let (source_ids, destination) = (above_source.ids, above_destination.ids);
    Ok(EndIds { source: source_ids, destination, root: source.directory_id, are_proven: above_source.is_complete })
}

/// Rejects a deletion at a destination that contains its source: a file created at the destination must not be visible
/// in the source or its ancestors. Skipped if directory ids have already proven it.
pub(super) async fn refuse_by_marker(ends: &Job, known: &EndIds) -> Result<()> {
    if known.are_proven {
        return Ok(());
    }
    let Job { from, to, .. } = ends;
    let name = format!("{MARKER_PREFIX}{}", random::key());
    let marker = to.join(name.as_bytes())?;
    let made = async {
        let options = CreateOptions { size_hint: Some(0), ..CreateOptions::default() };
        let file = marker.store.create(&marker.caller, &marker.path, options).await?;
        file.commit(Expectation { size: Some(0), ..Expectation::default() }).await
    };
    let undecided = |what: &str, error: &Error| {
        let message = format!(
            "nothing is deleted: cannot determine whether the source is inside the destination: {what}: {}",
            error.message()
        );
        Error::new(error.fault(), message)
    };
    let seen = async {
        made.await.map_err(|error| undecided("cannot create a marker file", &error).at(&marker.path))?;
        let locations =
            path_and_ancestors(from).await.into_iter().map(|path| from.with_path(path).join(name.as_bytes()));
        let mut seen = pin!(stream::iter(locations).map(exists).buffer_unordered(MAX_REQUESTS));
        while let Some(seen) = seen.next().await {
            if seen.map_err(|error| undecided("the source does not respond", &error).at(&from.path))? {
                return Ok(true);
            }
        }
        Ok(false)
    };
    let seen: Result<bool> = seen.await;
    // The marker may exist even if the response to its creation was lost.
    let removed = gone(marker.store.remove_file(&marker.caller, &marker.path).await);
    if seen? {
        return Err(contains_source_error(ends));
    }
    removed
}

/// Returns whether `location` exists; `false` if its path could not be constructed.
///
/// # Errors
/// Errors that do not answer the question.
async fn exists(location: Result<StoreLocation>) -> Result<bool> {
    let Ok(location) = location else { return Ok(false) };
    match location.store.stat(&location.caller, &location.path).await {
        Ok(_) => Ok(true),
        Err(error) => match error.fault() {
            // Directories above an export, and directories without permission.
            Fault::NotFound | Fault::NotDirectory | Fault::PermissionDenied | Fault::InvalidArgument => Ok(false),
            _ => Err(error),
        },
    }
}

/// Returns whether two servers have the same address and port, under any name. A name that cannot be resolved matches
/// no address.
async fn is_same_address(a: &StoreLocation, b: &StoreLocation) -> bool {
    let (Some((a, a_port)), Some((b, b_port))) = (a.server(), b.server()) else { return false };
    // The server name of an S3 bucket is not a host name.
    if a_port != b_port || [a, b].iter().any(|host| host.contains('/')) {
        return false;
    }
    let both = async { join!(net::resolve(a, *a_port), net::resolve(b, *b_port)) };
    let Ok((a, b)) = timeout(RESOLVER_WAIT, both).await else { return false };
    let a: HashSet<_> = a.into_iter().flatten().map(|address| address.ip().to_canonical()).collect();
    b.into_iter().flatten().any(|address| a.contains(&address.ip().to_canonical()))
}

/// Returns the path and its ancestors; for a local path, also those of its canonical path.
async fn path_and_ancestors(location: &StoreLocation) -> Vec<StorePath> {
    let mut paths: Vec<_> = ancestors(&location.path).collect();
    if !location.is_remote() {
        let real = spawn_blocking({
            let paths = paths.clone();
            move || paths.iter().find_map(|path| disk::canonicalize(Path::new(OsStr::from_bytes(path.as_bytes()))).ok())
        });
        let real = real.await.expect("canonicalizing a path does not panic");
        let real = real.and_then(|path| StorePath::parse(path.as_os_str().as_bytes()).ok());
        paths.extend(real.iter().flat_map(ancestors));
    }
    paths
}

fn ancestors(path: &StorePath) -> impl Iterator<Item = StorePath> {
    iter::successors(Some(path.clone()), StorePath::parent)
}

/// The ids of a directory and its ancestors.
#[derive(Debug, Default)]
struct AncestorIds {
    ids: Vec<DirectoryId>,
    /// Whether the storage reports directory ids.
    is_identified: bool,
    /// Whether no ancestor that could match is missing.
    is_complete: bool,
}

/// Returns the ids of `location` and its visible ancestors; none if the directory `other` cannot be among them. A path
/// that does not exist yet is represented by its nearest existing ancestor.
async fn ancestor_ids(location: &StoreLocation, other: Option<DirectoryId>) -> AncestorIds {
    let Some(other) = other else { return AncestorIds::default() };
    let stat = |path: StorePath| async move { location.store.stat(&location.caller, &path).await };
    let mut paths = path_and_ancestors(location).await.into_iter();
    let mut is_complete = true;
    let first = loop {
        let Some(path) = paths.next() else { return AncestorIds::default() };
        match stat(path).await {
            Ok(Metadata { directory_id: Some(id), .. }) => break id,
            Err(error) if error.fault() == Fault::NotFound => {}
            Err(error) if error.fault() == Fault::PermissionDenied => is_complete = false,
            Ok(_) | Err(_) => return AncestorIds::default(),
        }
    };
    if !first.may_share_machine(other) {
        return AncestorIds { ids: Vec::new(), is_identified: true, is_complete: true };
    }
    let mut ids = vec![first];
    let mut others = pin!(stream::iter(paths).map(stat).buffer_unordered(MAX_REQUESTS));
    while let Some(found) = others.next().await {
        match found.ok().and_then(|found| found.directory_id) {
            Some(id) => ids.push(id),
            None => is_complete = false,
        }
    }
    AncestorIds { ids, is_identified: true, is_complete }
}

/// Rejects the replacement of a remote file by itself under another path: many servers truncate the file before they
/// receive new data. A local file is replaced atomically.
pub(super) async fn refuse_same_file(job: &Job, source: &Metadata) -> Result<()> {
    if !job.from.is_remote() || !job.to.is_remote() || source.file_id.is_none() {
        return Ok(());
    }
    let identity = |of: &Metadata| (of.file_id, of.size, of.mtime_ns);
    match job.to.store.stat(&job.to.caller, &job.to.path).await {
        Ok(found) if identity(&found) == identity(source) => {
            let message = format!("it cannot be copied to {}, which is the same file", job.to);
            Err(Error::new(Fault::InvalidArgument, message).at(&job.from.path))
        }
        // Other errors appear when the destination is written.
        _ => Ok(()),
    }
}

/// Returns whether `location` is `directory` or a descendant of it. A path that does not exist yet is represented by
/// its nearest existing ancestor.
async fn is_within_directory(location: &StoreLocation, directory: &Metadata) -> Result<bool> {
    // Without file ids there is nothing to compare.
    if directory.file_id.is_none() {
        return Ok(false);
    }
    for path in path_and_ancestors(location).await {
        match location.store.stat(&location.caller, &path).await {
            Ok(found) if is_same(&found, directory) => return Ok(true),
            Err(error) if error.fault() != Fault::NotFound => return Err(error),
            _ => {}
        }
    }
    Ok(false)
}

/// Compares inode numbers and times: numbers alone are unique only within one file system.
fn is_same(a: &Metadata, b: &Metadata) -> bool {
    (a.file_id, a.ctime_ns, a.mtime_ns) == (b.file_id, b.ctime_ns, b.mtime_ns)
}

fn invalid_argument(message: String, path: &StorePath) -> Error {
    Error::new(Fault::InvalidArgument, message).at(path)
}
