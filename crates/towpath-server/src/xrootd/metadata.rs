//! `stat` and `statx`: metadata of paths and open files.

use std::borrow::Cow;

use towpath_proto::{
    checksum::Algorithm,
    xrootd::{
        Mode, StatFlags, StatOptions, Target,
        request::{Stat, Statx},
        response::{EntryChecksum, NodeInfo, StatExtended, StatInfo, StatxReply, VfsInfo},
    },
};
use towpath_store::{Capabilities, DirectoryId, Fault, FileKind, Metadata, StorePath};

use super::{
    active_request::{ActiveRequest, ErrorResponse, ServeResult},
    files::OpenFile,
};
use crate::access::{Activity, Identity};

/// Maximum number of paths in one `statx`; each costs a store call.
const MAX_PATHS: usize = 1024;
/// Placeholder for an unknown owner or group.
const UNKNOWN_NAME: &str = "-";

/// Returns the stat text of `path`, with the permissions of `identity` in a store with the capabilities `can`.
pub(super) fn stat_info(can: &Capabilities, identity: &Identity, path: &StorePath, found: &Metadata) -> StatInfo {
    StatInfo {
        id: found.file_id.unwrap_or(0),
        size: found.size,
        flags: flags(can, identity, path, found),
        mtime: found.mtime_s(),
        extended: extended(found),
        node: None,
    }
}

/// Like [`stat_info`], with the identifiers of the entry for clients that request them.
pub(super) fn stat_info_with_node(
    can: &Capabilities,
    identity: &Identity,
    path: &StorePath,
    found: &Metadata,
) -> StatInfo {
    let directory_id = found.directory_id.map(DirectoryId::number);
    let node = NodeInfo { is_link: found.is_link, directory_id };
    StatInfo { node: Some(node), ..stat_info(can, identity, path, found) }
}

/// Whether entries can be added to the directory, or the file can be changed or replaced.
pub(super) fn is_changeable(can: &Capabilities, found: &Metadata) -> bool {
    if found.is_directory() { can.create } else { can.update || (can.create && can.remove) }
}

fn flags(can: &Capabilities, identity: &Identity, path: &StorePath, found: &Metadata) -> StatFlags {
    // Only the store knows which mode bits apply: a permission counts as denied if no class has it.
    let has_mode = |bits| found.mode.is_none_or(|mode| mode & bits != 0);
    let executable = found.mode.is_some() && has_mode(0o111);
    let (kind, read, write) = match found.kind {
        FileKind::Directory => (StatFlags::isDir | StatFlags::xset, Activity::List, Activity::CreateDirectory),
        FileKind::File if executable => (StatFlags::xset, Activity::Read, Activity::Modify),
        FileKind::File => (StatFlags::NONE, Activity::Read, Activity::Modify),
        FileKind::Other => (StatFlags::other, Activity::Read, Activity::Modify),
    };
    let mut flags = kind;
    for (flag, holds) in [
        (StatFlags::readable, has_mode(0o444) && identity.may(read, path)),
        (StatFlags::writable, has_mode(0o222) && is_changeable(can, found) && identity.may(write, path)),
        (StatFlags::offline, found.residency.is_offline()),
    ] {
        if holds {
            flags |= flag;
        }
    }
    flags
}

/// Returns the extended stat fields if the store provides all of them.
fn extended(found: &Metadata) -> Option<StatExtended> {
    let seconds = |ns: i64| ns.div_euclid(1_000_000_000);
    Some(StatExtended {
        ctime: seconds(found.ctime_ns?),
        atime: seconds(found.atime_ns?),
        mode: Mode((found.mode? & 0o777) as u16),
        owner: Cow::Borrowed(UNKNOWN_NAME),
        group: Cow::Borrowed(UNKNOWN_NAME),
    })
}

/// Returns a known checksum of the whole file, preferring the stronger of those that towpath always computes.
pub(super) fn known_checksum(found: &Metadata) -> Option<EntryChecksum> {
    [Algorithm::Crc32c, Algorithm::Adler32].iter().find_map(|algorithm| checksum(found, *algorithm))
}

/// Returns the checksum of this algorithm, if it is known.
pub(super) fn checksum(found: &Metadata, algorithm: Algorithm) -> Option<EntryChecksum> {
    let digest = found.digests.get(algorithm)?;
    Some(EntryChecksum { algorithm: algorithm.name().into(), value: digest.to_string() })
}

/// Handles `stat` of an open file.
pub(super) async fn stat_file(active_request: &ActiveRequest, file: &OpenFile, request: &Stat) -> ServeResult {
    if request.options.contains(StatOptions::vfs) {
        return vfs(active_request, &file.identity, &file.path).await;
    }
    let can = active_request.session.service.store.capabilities();
    active_request.ok(&stat_info(&can, &file.identity, &file.path, &file.metadata().await?))
}

/// Handles `stat` of a path.
pub(super) async fn stat_path(active_request: &ActiveRequest, request: &Stat) -> ServeResult {
    let Target::Path(path) = &request.target else {
        return Err(ErrorResponse::new(Fault::InvalidArgument, "neither a path nor a handle is given").into());
    };
    let (identity, path) = active_request.subject(path).await?;
    identity.check(Activity::Stat, &path)?;
    if request.options.contains(StatOptions::vfs) {
        return vfs(active_request, &identity, &path).await;
    }
    let found = active_request.session.service.store.stat(&identity.caller, &path).await?;
    let can = active_request.session.service.store.capabilities();
    active_request.ok(&match request.wants_node {
        true => stat_info_with_node(&can, &identity, &path, &found),
        false => stat_info(&can, &identity, &path, &found),
    })
}

async fn vfs(active_request: &ActiveRequest, identity: &Identity, path: &StorePath) -> ServeResult {
    let space = active_request.session.service.store.space(&identity.caller, path).await?;
    let used = u128::from(space.total.saturating_sub(space.free));
    let percent = (used * 100).checked_div(u128::from(space.total)).unwrap_or(0);
    active_request.ok(&VfsInfo {
        rw_nodes: 1,
        rw_free_mib: space.free >> 20,
        rw_used_percent: percent as u32,
        ..VfsInfo::default()
    })
}

/// Returns the `statx` flags: file type, and whether it is online. Clients compare the byte with single flags.
fn kind_flags(found: &Metadata) -> StatFlags {
    let kind = match found.kind {
        FileKind::Directory => StatFlags::isDir,
        FileKind::File => StatFlags::NONE,
        FileKind::Other => StatFlags::other,
    };
    if found.residency.is_offline() { kind | StatFlags::offline } else { kind }
}

/// Handles `statx`: one byte per path. A missing path fails the request, as with the reference server.
pub(super) async fn statx(active_request: &ActiveRequest, request: &Statx) -> ServeResult {
    let mut flags_of_all = Vec::new();
    for path in request.paths() {
        if flags_of_all.len() >= MAX_PATHS {
            return Err(
                ErrorResponse::new(Fault::NameTooLong, format!("more than {MAX_PATHS} paths in one request")).into()
            );
        }
        let (identity, path) = active_request.subject(&path).await?;
        identity.check(Activity::Stat, &path)?;
        let found = active_request.session.service.store.stat(&identity.caller, &path).await?;
        flags_of_all.push(kind_flags(&found));
    }
    active_request.ok(&StatxReply(flags_of_all))
}
