//! Staging of uploads that are not yet visible: in a hidden directory `.towpath` on the same mount as the target, so
//! that the commit is a single rename.
//!
//! A staging file is named `upload-` plus 16 hexadecimal digits and is locked (`flock`) by the process that writes it.
//! The lock ends with the process: an unlocked file was left by a crash, and is removed when the area is first used,
//! and once a day after that. The areas of an export are as high in the tree as possible (the store's root or a mount
//! point), and lower only if the process has no write permission there. The area of the user's own files
//! ([`Scope::User`]) is in their target directory, and is removed after the last upload unless it contains a resumable
//! one.
//!
//! The staging file of a resumable upload is named `resume-` plus 32 digits of a key derived from its resume key and
//! the caller. It has a journal next to it, and is kept for a week after its last write, unless its user leaves too
//! many: then the oldest are removed.
//!
//! A user with write permission in an area could replace staging files. Only an area that belongs to the process's user
//! and is not writable by others is used; if the usual name is taken by another user, the area is called `.towpath-`
//! followed by the user's number.

mod staging_file;
mod stale;

use std::{
    collections::HashMap,
    os::fd::OwnedFd,
    sync::{Arc, Mutex, PoisonError, Weak},
    time::Duration,
};

use rustix::{
    fs::{self, AtFlags, Dir, Gid, Mode, OFlags, StatxFlags},
    io::Errno,
    process::geteuid,
};

pub(super) use self::staging_file::{StagingFile, rename_without_replacing};
use self::{staging_file::StagingLookup, stale::remove_stale};
use super::{
    Scope,
    errno::{self, ErrnoContext as _},
    root::{RESERVED_NAME, Root, is_reserved},
};
use crate::{
    Error, Fault, Result, ResumeKey,
    sys::clock::{self, Instant},
};

const FILE_PREFIX: &str = "upload-";
const RESUME_PREFIX: &str = "resume-";
/// Leading digits of the key that all uploads of one user have in common.
const USER_DIGITS: usize = 8;
/// Suffixes of the journal of a staging file, and of the journal that will replace it.
const JOURNAL_SUFFIX: &str = ".journal";
const NEW_JOURNAL_SUFFIX: &str = ".journal-new";

/// How long the leftovers of a resumable upload are kept.
const KEPT: Duration = Duration::from_secs(7 * 86_400);

/// Maximum number of attempts to create a file in an area that another process removes concurrently.
const ATTEMPTS: usize = 64;

/// Interval between cleanups of an area in use.
const CLEANING_INTERVAL: Duration = Duration::from_secs(86_400);

/// A mount: renames work only within it (not even between two mounts of one file system).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Mount {
    id: u64,
    device: (u32, u32),
}

/// The identity of a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct DirectoryIdentity {
    mount: Mount,
    inode: u64,
}

/// The staging areas of a store: one per mount of an export, or one per target directory of the user's files.
#[derive(Debug)]
pub(super) struct Staging {
    scope: Scope,
    areas: Mutex<HashMap<Key, KnownArea>>,
}

/// The scope of an area.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Key {
    mount: Mount,
    /// The directory, if each directory has its own area.
    inode: Option<u64>,
}

/// A known area.
#[derive(Debug)]
struct KnownArea {
    area: Weak<Area>,
    /// Keeps the area of a mount open.
    _kept: Option<Arc<Area>>,
    cleaned: Instant,
}

/// A staging area in use.
#[derive(Debug)]
struct Area {
    directory: OwnedFd,
    name: String,
    /// The parent directory of the area, if it is removed after its last upload.
    parent: Option<OwnedFd>,
}

impl Drop for Area {
    fn drop(&mut self) {
        if let Some(parent) = &self.parent {
            // Fails while the area contains resumable uploads, or uploads of another process.
            let _ = fs::unlinkat(parent, &self.name, AtFlags::REMOVEDIR);
        }
    }
}

impl Staging {
    /// Creates the state without areas.
    pub(super) fn new(scope: Scope) -> Self {
        Self { scope, areas: Mutex::default() }
    }

    /// Removes leftovers of crashes from the areas in an export's root. Other areas are cleaned at their first use.
    pub(super) fn clean_root(&self, root: &Root) -> Result<()> {
        if self.scope == Scope::User {
            return Ok(());
        }
        for name in [RESERVED_NAME, &own_name()] {
            match open_area(&root.directory()?, name) {
                Ok(area) => remove_stale(&area, KEPT)?,
                Err(Errno::NOENT | Errno::ACCESS | Errno::PERM) => {}
                Err(errno) => return Err(errno::error(errno, "opening the staging directory")),
            }
        }
        Ok(())
    }

    /// Creates a staging file from which a rename into `parent` works, with the group that a file created there would
    /// get.
    pub(super) fn create(&self, root: &Root, parent: &OwnedFd) -> Result<StagingFile> {
        let (identity, group) = identity_and_group(parent)?;
        let staging_file = self.stage(root, parent, identity, StagingFile::create)?;
        staging_file.set_group(group)?;
        Ok(staging_file)
    }

    /// Like [`Self::create`], for a resumable upload: opens the file that the last upload with `key` left, or creates
    /// one. Returns `None` if the file system does not support locks.
    ///
    /// # Errors
    /// `Overloaded` if that upload is in flight.
    pub(super) fn open_resumable(&self, root: &Root, parent: &OwnedFd, key: ResumeKey) -> Result<Option<StagingFile>> {
        let (identity, group) = identity_and_group(parent)?;
        match self.stage(root, parent, identity, |area| StagingFile::open_resumable(area, key))? {
            StagingLookup::Opened(staging_file) => {
                staging_file.set_group(group)?;
                Ok(Some(staging_file))
            }
            StagingLookup::Unlockable => Ok(None),
            StagingLookup::InUse => {
                let message = "another upload with the same resume key is in flight: wait until it has ended";
                Err(Error::new(Fault::Overloaded, message))
            }
        }
    }

    /// Runs `make` with the area for files in `parent`.
    fn stage<T>(
        &self,
        root: &Root,
        parent: &OwnedFd,
        identity: DirectoryIdentity,
        make: impl Fn(&Arc<Area>) -> rustix::io::Result<T>,
    ) -> Result<T> {
        let mut attempts = 0;
        loop {
            let area = self.area(root, parent, identity)?;
            match make(&area) {
                // The directory was removed in the meantime, perhaps after the last upload of another process.
                Err(Errno::NOENT) if attempts < ATTEMPTS => {
                    attempts += 1;
                    self.lock().remove(&self.key(identity));
                }
                outcome => return outcome.context("creating a temporary file"),
            }
        }
    }

    fn key(&self, identity: DirectoryIdentity) -> Key {
        Key { mount: identity.mount, inode: Some(identity.inode).filter(|_| self.scope == Scope::User) }
    }

    fn area(&self, root: &Root, parent: &OwnedFd, identity: DirectoryIdentity) -> Result<Arc<Area>> {
        let key = self.key(identity);
        let known = self.lock().get(&key).and_then(|known| Some((known.area.upgrade()?, known.cleaned)));
        let area = match known {
            Some((area, cleaned)) if cleaned.elapsed() < CLEANING_INTERVAL => return Ok(area),
            Some((area, _)) => area,
            // Concurrent uploads may get here; they find or create the same directory.
            None => Arc::new(self.make(root, parent, identity)?),
        };
        remove_stale(&area.directory, KEPT)?;
        let kept = Some(Arc::clone(&area)).filter(|area| area.parent.is_none());
        let known = KnownArea { area: Arc::downgrade(&area), _kept: kept, cleaned: clock::now() };
        let mut areas = self.lock();
        areas.retain(|_, known| known.area.strong_count() > 0);
        areas.insert(key, known);
        Ok(area)
    }

    /// Opens or creates the area for files in `parent`, and cleans it.
    fn make(&self, root: &Root, parent: &OwnedFd, identity: DirectoryIdentity) -> Result<Area> {
        match self.scope {
            Scope::Export => make_area(root, parent, identity),
            Scope::User => {
                let (directory, name) = make_area_in(parent).context("creating the staging directory")?;
                let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
                let parent = fs::openat(parent, ".", flags, Mode::empty()).context("opening the directory")?;
                Ok(Area { directory, name, parent: Some(parent) })
            }
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<Key, KnownArea>> {
        self.areas.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Opens or creates the area for files in `parent`, in the topmost possible directory of its mount.
fn make_area(root: &Root, parent: &OwnedFd, identity: DirectoryIdentity) -> Result<Area> {
    let mut last = Errno::NOENT;
    for directory in ancestors_on_mount(root, parent, identity)?.iter().rev() {
        match make_area_in(directory) {
            Err(errno @ (Errno::ACCESS | Errno::PERM | Errno::ROFS)) => last = errno,
            outcome => {
                let (directory, name) = outcome.context("creating the staging directory")?;
                return Ok(Area { directory, name, parent: None });
            }
        }
    }
    Err(errno::error(last, "creating the staging directory"))
}

/// Opens or creates the area in `directory`; returns it with its name.
fn make_area_in(directory: &OwnedFd) -> rustix::io::Result<(OwnedFd, String)> {
    let make_once = |name: &str| match fs::mkdirat(directory, name, Mode::RWXU) {
        Ok(()) | Err(Errno::EXIST) => open_area(directory, name),
        Err(errno) => Err(errno),
    };
    let make = |name: String| {
        let mut attempts = 0;
        loop {
            match make_once(&name) {
                // It was removed after the last upload of another process.
                Err(Errno::NOENT) if attempts < ATTEMPTS => attempts += 1,
                outcome => return Ok((outcome?, name)),
            }
        }
    };
    match make(RESERVED_NAME.to_owned()) {
        Err(Errno::ACCESS | Errno::PERM) => make(own_name()),
        outcome => outcome,
    }
}

/// Returns the name of the area if the default one belongs to another user.
fn own_name() -> String {
    format!("{RESERVED_NAME}-{}", geteuid().as_raw())
}

/// Opens the area `name`; `EPERM` if other users could tamper with it.
fn open_area(directory: &OwnedFd, name: &str) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let area = match fs::openat(directory, name, flags, Mode::empty()) {
        // A link or a file has the area's name.
        Err(Errno::LOOP | Errno::NOTDIR) => return Err(Errno::PERM),
        outcome => outcome?,
    };
    let status = fs::fstat(&area)?;
    let is_ours = status.st_uid == geteuid().as_raw();
    let others_write = Mode::from_raw_mode(status.st_mode).intersects(Mode::WGRP | Mode::WOTH);
    if is_ours && !others_write { Ok(area) } else { Err(Errno::PERM) }
}

/// Removes unused staging areas in `directory`, so that they do not prevent its removal. Areas with resumable uploads
/// stay if the directory has other entries.
pub(super) fn remove_areas(directory: &OwnedFd) {
    if !holds_only_areas(directory).unwrap_or(false) {
        return;
    }
    for name in [RESERVED_NAME, &own_name()] {
        let Ok(area) = open_area(directory, name) else { continue };
        // If this fails, removing the directory fails too and reports it.
        let _ = remove_stale(&area, Duration::ZERO);
        let _ = fs::unlinkat(directory, name, AtFlags::REMOVEDIR);
    }
}

fn holds_only_areas(directory: &OwnedFd) -> rustix::io::Result<bool> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    for entry in Dir::new(fs::openat(directory, ".", flags, Mode::empty())?)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if !matches!(name, b"." | b"..") && !is_reserved(name) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Returns `start` and its ancestors up to the store's root or the mount point, lowest first.
fn ancestors_on_mount(root: &Root, start: &OwnedFd, start_place: DirectoryIdentity) -> Result<Vec<OwnedFd>> {
    let root_place = place_of(&root.directory()?)?;
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let open = |from: &OwnedFd, name: &str| {
        fs::openat(from, name, flags, Mode::empty()).context("looking up the staging directory")
    };
    let mut current = open(start, ".")?;
    let mut identity = start_place;
    let mut found = Vec::new();
    while identity != root_place {
        let above = open(&current, "..")?;
        let place_above = place_of(&above)?;
        if place_above.mount != start_place.mount || place_above == identity {
            if start_place.mount == root_place.mount {
                return Err(Error::new(Fault::PermissionDenied, "the directory was moved out of the store"));
            }
            break;
        }
        found.push(std::mem::replace(&mut current, above));
        identity = place_above;
    }
    found.push(current);
    Ok(found)
}

fn place_of(directory: &OwnedFd) -> Result<DirectoryIdentity> {
    identity_and_group(directory).map(|(identity, _)| identity)
}

/// Returns the identity of a directory, and the group that it passes on to new files (by its set-group-ID bit).
fn identity_and_group(directory: &OwnedFd) -> Result<(DirectoryIdentity, Option<Gid>)> {
    let mask = StatxFlags::INO | StatxFlags::MNT_ID | StatxFlags::MODE | StatxFlags::GID;
    let status = fs::statx(directory, "", AtFlags::EMPTY_PATH, mask).context("querying the mount")?;
    let device = (status.stx_dev_major, status.stx_dev_minor);
    let identity = DirectoryIdentity { mount: Mount { id: status.stx_mnt_id, device }, inode: status.stx_ino };
    let hands_on = Mode::from_raw_mode(status.stx_mode.into()).contains(Mode::SGID);
    Ok((identity, hands_on.then(|| Gid::from_raw(status.stx_gid))))
}
