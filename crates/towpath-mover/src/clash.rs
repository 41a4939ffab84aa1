//! Copies that would never end or would destroy what they copy, refused before anything is written.
//!
//! Names are compared first; directories that have several names (links, mounts) are told by what the store says of them.

use std::{collections::HashSet, iter};

use towpath_store::{Error, Fault, Metadata, Result, StorePath};

use crate::{Job, Place};

/// How often a path below the root of a copy may have the name of a directory that cannot be told from others, before its time is compared with that of
/// the last one of its name. Trees whose directories are numbers, as those of OME-Zarr (`0/0/0/0/0/0`), have a name six times or seven.
const MOST_TIMES_NAMED: usize = 8;

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

/// Refuses a destination that holds its source, which may be what is deleted there.
pub(super) fn refuse_source_within(ends: &Job) -> Result<()> {
    match ends.from.is_beside(&ends.to) && ends.from.path.is_within(&ends.to.path) {
        true => Err(holds_its_source(ends)),
        false => Ok(()),
    }
}

/// Refuses the same of the directory `found` at the destination, under whatever names the two have.
pub(super) async fn refuse_source_in(ends: &Job, found: &Metadata) -> Result<()> {
    match ends.from.is_beside(&ends.to) && lies_in(&ends.from, found).await? {
        true => Err(holds_its_source(ends)),
        false => Ok(()),
    }
}

fn holds_its_source(ends: &Job) -> Error {
    refused(format!("it cannot be made as {} is, which lies in it", ends.from), &ends.to.path)
}

/// Refuses to copy the directory `source` into itself under another name.
pub(super) async fn refuse_copy_into_itself(ends: &Job, source: &Metadata) -> Result<()> {
    if ends.from.is_beside(&ends.to) && lies_in(&ends.to, source).await? {
        return Err(refused(format!("it cannot be copied to {}, which lies in it", ends.to), &ends.from.path));
    }
    Ok(())
}

/// Whether a directory has the name of one above it, as all have on a way without end. Listings of remote stores do not always tell links.
pub(super) fn repeats_a_name(path: &StorePath) -> bool {
    let mut names = path.components().rev();
    let last = names.next();
    names.any(|name| Some(name) == last)
}

/// Refuses a link to a directory that holds the link itself, or the destination: following it would never end.
pub(super) async fn refuse_endless_link(link: &Job, ends: &Job) -> Result<()> {
    let target = link.from.store.stat(&link.from.caller, &link.from.path).await?;
    if target.file_id.is_none() && seems_endless(link, ends, &target).await? {
        let message = "it is not followed: its path has its name so often, and the same time, that it must be a link to a directory above; if it is none, copy it by itself";
        return Err(refused(message.into(), &link.from.path));
    }
    let parent = link.from.path.parent().map(|path| link.from.with_path(path));
    let holds_itself = match &parent {
        Some(parent) => lies_in(parent, &target).await?,
        None => false,
    };
    if holds_itself || (ends.from.is_beside(&ends.to) && lies_in(&ends.to, &target).await?) {
        return Err(refused("this link is not followed: it leads to a directory above".into(), &link.from.path));
    }
    Ok(())
}

/// Whether a directory that cannot be told from others has the name of many above it, and the time of the last of them.
async fn seems_endless(link: &Job, ends: &Job, target: &Metadata) -> Result<bool> {
    let path = &link.from.path;
    let is_below = |above: &StorePath| above.is_within(&ends.from.path) && *above != ends.from.path;
    let above = iter::successors(path.parent(), StorePath::parent).take_while(is_below);
    let named: Vec<_> = above.filter(|above| above.name() == path.name()).collect();
    match named.first() {
        Some(last) if named.len() >= MOST_TIMES_NAMED && target.mtime_ns.is_some() => {
            Ok(link.from.store.stat(&link.from.caller, last).await?.mtime_ns == target.mtime_ns)
        }
        _ => Ok(false),
    }
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
        // What is wrong with it is seen when it is written.
        _ => Ok(()),
    }
}

/// Whether `place` is `directory` or lies in it. What does not exist yet lies where its parents do.
async fn lies_in(place: &Place, directory: &Metadata) -> Result<bool> {
    // Where the storage gives no numbers, nothing can be told.
    if directory.file_id.is_none() {
        return Ok(false);
    }
    let mut next = Some(place.path.clone());
    while let Some(path) = next {
        match place.store.stat(&place.caller, &path).await {
            Ok(found) if is_same(&found, directory) => return Ok(true),
            Err(error) if error.fault() != Fault::NotFound => return Err(error),
            _ => next = path.parent(),
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
