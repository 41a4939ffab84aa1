//! Rejection of copies that would never end or would destroy their source, before anything is written.
//!
//! Names are compared first. Directories with several names (links, mounts, host aliases, a served directory and its
//! URL) are identified by their [`DirectoryId`]; if an end has none, by the addresses of the servers, and before
//! deletions by a marker file that is created at the destination and must not appear at the source.

use std::{collections::HashSet, ffi::OsStr, iter, os::unix::ffi::OsStrExt as _, path::Path, pin::pin, time::Duration};

use futures::{StreamExt as _, join, stream};
use tokio::{task::spawn_blocking, time::timeout};
use towpath_store::{
    CreateOptions, DirectoryId, Error, Expectation, Fault, Metadata, Result, StorePath, gone,
    sys::{disk, net, random},
};

use crate::{Job, Place, compare::Known};

/// Questions under way at once.
const QUESTIONS: usize = 64;

/// How long the addresses of two hosts are waited for.
const RESOLVER_WAIT: Duration = Duration::from_secs(5);

/// What stands before the random part of the name of a marker.
const MARKER: &str = ".towpath-marker-";

/// Which directories the ends of a copy are and lie in, as far as both ends identify directories.
#[derive(Debug, Default)]
pub(crate) struct Ends {
    source: Vec<DirectoryId>,
    destination: Vec<DirectoryId>,
    /// The id of the source's root.
    root: Option<DirectoryId>,
    /// It is proven that neither lies in the other.
    are_proven: bool,
}

impl Ends {
    /// The source, and the directories above it that could be on the destination's machine.
    pub(crate) fn source(&self) -> &[DirectoryId] {
        &self.source
    }

    /// Takes note of the destination, which was made a moment ago.
    pub(crate) async fn add_destination(&mut self, to: &Place) {
        if self.root.is_some()
            && let Ok(Metadata { directory_id: Some(id), .. }) = to.store.stat(&to.caller, &to.path).await
        {
            self.destination.push(id);
        }
    }

    /// Refuses to enter a directory of the source that is the destination, or one above it: the copy would copy itself without end.
    pub(crate) fn refuse_destination(&self, path: &StorePath, source: &Known) -> Result<()> {
        match source.directory_id.is_some_and(|id| self.destination.contains(&id)) {
            true => Err(refused("it is not entered: it is the destination, or a directory above it".into(), path)),
            false => Ok(()),
        }
    }
}

/// Refuses two sources that would get one name, and a destination that is its source or lies in it.
pub(super) fn refuse_clashes(pairs: &[Job]) -> Result<()> {
    let mut taken = HashSet::new();
    for Job { from, to, .. } in pairs {
        if !taken.insert(&to.path) {
            return Err(refused(format!("two of the sources would be copied to {to}"), &from.path));
        }
        if from.is_beside(to) && to.path.is_within(&from.path) {
            return Err(refused(format!("it cannot be copied to {to}, which is the same or lies in it"), &from.path));
        }
    }
    Ok(())
}

/// Rejects a destination that contains its source, which the deletion could remove.
pub(super) fn refuse_source_within(ends: &Job) -> Result<()> {
    match ends.from.is_beside(&ends.to) && ends.from.path.is_within(&ends.to.path) {
        true => Err(holds_its_source(ends)),
        false => Ok(()),
    }
}

fn holds_its_source(ends: &Job) -> Error {
    refused(format!("it cannot be made as {} is, which lies in it", ends.from), &ends.to.path)
}

/// Rejects a copy of the directory `source` into itself under any name, and a copy over `found`, a directory at the
/// destination that contains the source. Returns the identities of both ends.
pub(super) async fn refuse_same_tree(ends: &Job, source: &Metadata, found: Option<&Metadata>) -> Result<Ends> {
    let Job { from, to, .. } = ends;
    let into_itself =
        || Err(refused(format!("it cannot be copied to {to}, which is the same or lies in it"), &from.path));
    let found_id = found.and_then(|found| found.directory_id);
    let (above_destination, above_source) = join!(ids_above(to, source.directory_id), ids_above(from, found_id));
    if source.directory_id.is_some_and(|id| above_destination.ids.contains(&id)) {
        return into_itself();
    }
    if found_id.is_some_and(|id| above_source.ids.contains(&id)) {
        return Err(holds_its_source(ends));
    }
    // Paths of one name have been compared already.
    let is_alias = !from.is_beside(to) && !above_destination.is_identified && is_same_address(from, to).await;
    let is_beside = is_alias || from.is_beside(to);
    if (is_alias && to.path.is_within(&from.path)) || (is_beside && lies_in(to, source).await?) {
        return into_itself();
    }
    if let Some(found) = found
        && ((is_alias && from.path.is_within(&to.path)) || (is_beside && lies_in(from, found).await?))
    {
        return Err(holds_its_source(ends));
    }
    let (source_ids, destination) = (above_source.ids, above_destination.ids);
    Ok(Ends { source: source_ids, destination, root: source.directory_id, are_proven: above_source.are_all })
}

/// Refuses to delete at a destination that holds its source: a file that is made at the destination must not be seen in the source, nor in a directory above it.
/// Nothing is made where directory ids have proven it.
pub(super) async fn refuse_by_marker(ends: &Job, known: &Ends) -> Result<()> {
    if known.are_proven {
        return Ok(());
    }
    let Job { from, to, .. } = ends;
    let name = format!("{MARKER}{}", random::key());
    let marker = to.join(name.as_bytes())?;
    let made = async {
        let options = CreateOptions { size_hint: Some(0), ..CreateOptions::default() };
        let file = marker.store.create(&marker.caller, &marker.path, options).await?;
        file.commit(Expectation { size: Some(0), ..Expectation::default() }).await
    };
    let undecided = |what: &str, error: &Error| {
        let message = format!(
            "nothing is deleted: whether the source lies in the destination is not known: {what}: {}",
            error.message()
        );
        Error::new(error.fault(), message)
    };
    let seen = async {
        made.await.map_err(|error| undecided("a file must be made there", &error).at(&marker.path))?;
        let places = above(from).await.into_iter().map(|path| from.with_path(path).join(name.as_bytes()));
        let mut seen = pin!(stream::iter(places).map(is_there).buffer_unordered(QUESTIONS));
        while let Some(seen) = seen.next().await {
            if seen.map_err(|error| undecided("the source does not answer", &error).at(&from.path))? {
                return Ok(true);
            }
        }
        Ok(false)
    };
    let seen: Result<bool> = seen.await;
    // Also if the answer to its creation was lost.
    let removed = gone(marker.store.remove_file(&marker.caller, &marker.path).await);
    if seen? {
        return Err(holds_its_source(ends));
    }
    removed
}

/// Whether something is visible at `place`, if that is a place at all.
///
/// # Errors
/// Those that leave it open.
async fn is_there(place: Result<Place>) -> Result<bool> {
    let Ok(place) = place else { return Ok(false) };
    match place.store.stat(&place.caller, &place.path).await {
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
async fn is_same_address(a: &Place, b: &Place) -> bool {
    let (Some((a, a_port)), Some((b, b_port))) = (a.server(), b.server()) else { return false };
    // A bucket is no host.
    if a_port != b_port || [a, b].iter().any(|host| host.contains('/')) {
        return false;
    }
    let both = async { join!(net::resolve(a, *a_port), net::resolve(b, *b_port)) };
    let Ok((a, b)) = timeout(RESOLVER_WAIT, both).await else { return false };
    let a: HashSet<_> = a.into_iter().flatten().map(|address| address.ip().to_canonical()).collect();
    b.into_iter().flatten().any(|address| a.contains(&address.ip().to_canonical()))
}

/// The path of a place and those of all directories above it: on this machine also of those that links on the way lead to.
async fn above(place: &Place) -> Vec<StorePath> {
    let mut paths: Vec<_> = ancestors(&place.path).collect();
    if !place.is_remote() {
        let real = spawn_blocking({
            let paths = paths.clone();
            move || paths.iter().find_map(|path| disk::canonicalize(Path::new(OsStr::from_bytes(path.as_bytes()))).ok())
        });
        let real = real.await.expect("looking at a path does not panic");
        let real = real.and_then(|path| StorePath::parse(path.as_os_str().as_bytes()).ok());
        paths.extend(real.iter().flat_map(ancestors));
    }
    paths
}

fn ancestors(path: &StorePath) -> impl Iterator<Item = StorePath> {
    iter::successors(Some(path.clone()), StorePath::parent)
}

/// The ids of a directory and of those above it.
#[derive(Debug, Default)]
struct Above {
    ids: Vec<DirectoryId>,
    /// The storage identifies directories.
    is_identified: bool,
    /// No directory above is left out that could have the id that is looked for.
    are_all: bool,
}

/// The ids of the directory at `place` and of all above it, as far as they can be seen; none if none can be the directory `other`. What does not exist yet lies where
/// its parents do.
async fn ids_above(place: &Place, other: Option<DirectoryId>) -> Above {
    let Some(other) = other else { return Above::default() };
    let stat = |path: StorePath| async move { place.store.stat(&place.caller, &path).await };
    let mut paths = above(place).await.into_iter();
    let mut are_all = true;
    let first = loop {
        let Some(path) = paths.next() else { return Above::default() };
        match stat(path).await {
            Ok(Metadata { directory_id: Some(id), .. }) => break id,
            Err(error) if error.fault() == Fault::NotFound => {}
            Err(error) if error.fault() == Fault::PermissionDenied => are_all = false,
            Ok(_) | Err(_) => return Above::default(),
        }
    };
    if !first.may_share_machine(other) {
        return Above { ids: Vec::new(), is_identified: true, are_all: true };
    }
    let mut ids = vec![first];
    let mut others = pin!(stream::iter(paths).map(stat).buffer_unordered(QUESTIONS));
    while let Some(found) = others.next().await {
        match found.ok().and_then(|found| found.directory_id) {
            Some(id) => ids.push(id),
            None => are_all = false,
        }
    }
    Above { ids, is_identified: true, are_all }
}

/// Refuses to replace a remote file by itself under another name: many servers empty it before the first byte of the new one comes. A local one
/// is replaced by a whole copy.
pub(super) async fn refuse_itself(job: &Job, source: &Metadata) -> Result<()> {
    if !job.from.is_remote() || !job.to.is_remote() || source.file_id.is_none() {
        return Ok(());
    }
    let told = |of: &Metadata| (of.file_id, of.size, of.mtime_ns);
    match job.to.store.stat(&job.to.caller, &job.to.path).await {
        Ok(found) if told(&found) == told(source) => {
            let message = format!("it cannot be copied to {}, which is the same file", job.to);
            Err(Error::new(Fault::InvalidArgument, message).at(&job.from.path))
        }
        // Other errors appear when the destination is written.
        _ => Ok(()),
    }
}

/// Whether `place` is `directory` or lies in it. What does not exist yet lies where its parents do.
async fn lies_in(place: &Place, directory: &Metadata) -> Result<bool> {
    // Without file ids there is nothing to compare.
    if directory.file_id.is_none() {
        return Ok(false);
    }
    for path in above(place).await {
        match place.store.stat(&place.caller, &path).await {
            Ok(found) if is_same(&found, directory) => return Ok(true),
            Err(error) if error.fault() != Fault::NotFound => return Err(error),
            _ => {}
        }
    }
    Ok(false)
}

/// Numbers are unique within a file system only, times of change nearly everywhere.
fn is_same(a: &Metadata, b: &Metadata) -> bool {
    (a.file_id, a.ctime_ns, a.mtime_ns) == (b.file_id, b.ctime_ns, b.mtime_ns)
}

fn refused(message: String, path: &StorePath) -> Error {
    Error::new(Fault::InvalidArgument, message).at(path)
}
