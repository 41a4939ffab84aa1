//! Files outside of stores: configuration, keys, token files. (The local store opens its files relative to its root.)

use std::{
    fs, io,
    os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
};

use rustix::fs::OFlags;

/// Opens a file for reading.
///
/// # Errors
/// Errors of the system.
pub fn open(path: &Path) -> io::Result<fs::File> {
    fs::File::open(path)
}

/// Opens an existing device or pipe for writing, without truncation. Waits for the reader of a pipe.
///
/// # Errors
/// Errors of the system.
pub fn open_to_write(path: &Path) -> io::Result<fs::File> {
    fs::OpenOptions::new().write(true).custom_flags(OFlags::NOCTTY.bits().cast_signed()).open(path)
}

/// Drops the clean cached pages of a file, so that it is read from disk. Failures are ignored.
pub fn forget(file: &fs::File) {
    let _ = rustix::fs::fadvise(file, 0, None, rustix::fs::Advice::DontNeed);
}

/// Reads a small file.
///
/// # Errors
/// Errors of the system, and `FileTooLarge` for a file of more than `limit_bytes`.
pub fn read(path: &Path, limit_bytes: u64) -> io::Result<Vec<u8>> {
    read_bounded(fs::File::open(path)?, limit_bytes)
}

/// The required owner of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequiredOwner {
    /// Any user, because the user named the file.
    Any,
    /// The user of this process, so that other users cannot change the file. Links are not followed.
    CurrentUser,
}

/// Reads a small regular file; anything that could block the reader, such as a pipe, is rejected.
///
/// # Errors
/// Errors of the system, `FileTooLarge` for a file of more than `limit_bytes`, and an explanation for a file that is
/// not acceptable.
pub fn read_regular(path: &Path, limit_bytes: u64, owner: RequiredOwner) -> io::Result<Vec<u8>> {
    read_bounded(open_regular(path, owner)?, limit_bytes)
}

/// Opens a regular file for reading; anything that could block the reader, such as a pipe, is rejected.
///
/// # Errors
/// Errors of the system, and an explanation for a file that is not acceptable.
pub fn open_regular(path: &Path, owner: RequiredOwner) -> io::Result<fs::File> {
    let link = if owner == RequiredOwner::CurrentUser { OFlags::NOFOLLOW } else { OFlags::empty() };
    let flags = (OFlags::NONBLOCK | link).bits().cast_signed();
    let file = fs::OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    let metadata = file.metadata()?;
    let own = metadata.uid() == rustix::process::geteuid().as_raw() && metadata.mode() & 0o022 == 0;
    match owner {
        _ if !metadata.is_file() => Err(io::Error::other("it is not a regular file")),
        RequiredOwner::CurrentUser if !own => {
            Err(io::Error::other("it belongs to another user, or others can write it"))
        }
        _ => Ok(file),
    }
}

/// Creates a directory, and those above it, for the user of this process alone; an existing one is accepted if others have
/// no rights to it.
///
/// # Errors
/// Errors of the system, and an explanation for a directory that is not acceptable.
pub fn private_directory(path: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(path)?;
    // Not that of a link, which another user may have made.
    let metadata = fs::symlink_metadata(path)?;
    let is_own = metadata.uid() == rustix::process::geteuid().as_raw() && metadata.mode() & 0o077 == 0;
    match metadata.is_dir() && is_own {
        true => Ok(()),
        false => Err(io::Error::other("it is not a directory of this user without rights for others")),
    }
}

/// Returns the paths of the entries of a directory, in no particular order.
///
/// # Errors
/// Errors of the system, and `FileTooLarge` for a directory of more than `limit` entries.
pub fn entries(directory: &Path, limit: usize) -> io::Result<Vec<PathBuf>> {
    let entries: Vec<_> = fs::read_dir(directory)?.take(limit + 1).collect::<io::Result<_>>()?;
    if entries.len() > limit {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, format!("it has more than {limit} entries")));
    }
    Ok(entries.iter().map(fs::DirEntry::path).collect())
}

/// Reads a small file that is already open.
///
/// # Errors
/// Errors of the system, and `FileTooLarge` for a file of more than `limit_bytes`.
pub fn read_bounded(file: fs::File, limit_bytes: u64) -> io::Result<Vec<u8>> {
    use io::Read as _;
    let mut bytes = Vec::new();
    file.take(limit_bytes + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > limit_bytes {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, format!("it has more than {limit_bytes} bytes")));
    }
    Ok(bytes)
}

/// Writes a small file, replacing any existing one.
///
/// # Errors
/// Errors of the system.
pub fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    fs::write(path, bytes)
}

/// Replaces a file atomically by the output of `write`: readers see either the old or the new content, also after a
/// power failure. Only its owner may read it. The unfinished file has `.part` appended to its name; concurrent calls
/// for one file are not supported.
///
/// # Errors
/// Errors of the system and of `write`; the old content then stays, unless only the sync of the directory failed.
pub fn replace(path: &Path, write: impl FnOnce(&mut fs::File) -> io::Result<()>) -> io::Result<()> {
    let mut name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?.to_owned();
    name.push(".part");
    let part = path.with_file_name(name);
    match fs::remove_file(&part) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        // A file created by this call has the right mode and is not a link of another user.
        _ => {}
    }
    let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&part)?;
    let written = write(&mut file).and_then(|()| file.sync_all()).and_then(|()| fs::rename(&part, path));
    if written.is_err() {
        // Only the first error is reported.
        let _ = fs::remove_file(&part);
        return written;
    }
    let directory = path.parent().filter(|directory| !directory.as_os_str().is_empty());
    fs::File::open(directory.unwrap_or(Path::new(".")))?.sync_all()
}

/// Opens a file for appending, and creates it if it is missing.
///
/// # Errors
/// Errors of the system.
pub fn append(path: &Path) -> io::Result<fs::File> {
    fs::OpenOptions::new().append(true).create(true).open(path)
}

/// Opens a file for appending. A missing one is created so that others cannot read or write it, whatever the umask is.
///
/// # Errors
/// Errors of the system.
pub fn append_private(path: &Path) -> io::Result<fs::File> {
    fs::OpenOptions::new().append(true).create(true).mode(0o600).open(path)
}

/// Creates a file, or truncates an existing one.
///
/// # Errors
/// Errors of the system.
pub fn create(path: &Path) -> io::Result<fs::File> {
    fs::File::create(path)
}

/// Creates a file that does not exist. Only its owner may read it.
///
/// # Errors
/// `AlreadyExists`, and other errors of the system.
pub fn create_new(path: &Path) -> io::Result<fs::File> {
    fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
}

/// Returns the canonical path of an existing file or directory.
///
/// # Errors
/// Errors of the system.
pub fn canonicalize(path: &Path) -> io::Result<PathBuf> {
    fs::canonicalize(path)
}

/// Renames a file, replacing any existing one.
///
/// # Errors
/// Errors of the system.
pub fn rename(from: &Path, to: &Path) -> io::Result<()> {
    fs::rename(from, to)
}

/// Removes a file.
///
/// # Errors
/// Errors of the system.
pub fn remove(path: &Path) -> io::Result<()> {
    fs::remove_file(path)
}

#[cfg(test)]
mod tests {
    use std::{io::Write as _, os::unix::fs::PermissionsExt as _};

    use super::*;

    #[test]
    fn a_file_is_replaced_whole_or_not_at_all() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        let put = |text: &str| replace(&path, |file| file.write_all(text.as_bytes()));
        let found = || (fs::read_to_string(&path).unwrap(), fs::read_dir(directory.path()).unwrap().count());
        write(&directory.path().join("file.part"), b"what an earlier process left").unwrap();
        put("one").unwrap();
        assert_eq!(found(), ("one".to_owned(), 1));
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        put("two").unwrap();
        let failed = replace(&path, |file| {
            file.write_all(b"thr")?;
            Err(io::Error::other("no more"))
        });
        assert_eq!(failed.unwrap_err().to_string(), "no more");
        assert_eq!(found(), ("two".to_owned(), 1));
    }

    #[test]
    fn what_could_make_a_reader_wait_is_not_opened() {
        let directory = tempfile::tempdir().unwrap();
        let error = open_regular(directory.path(), RequiredOwner::Any).unwrap_err();
        assert_eq!(error.to_string(), "it is not a regular file");
        let path = directory.path().join("file");
        replace(&path, |_| Ok(())).unwrap();
        assert!(open_regular(&path, RequiredOwner::CurrentUser).is_ok());
    }

    #[test]
    fn a_private_directory_is_not_that_of_others() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("a/b");
        private_directory(&path).unwrap();
        private_directory(&path).unwrap();
        for (mode, is_accepted) in [(0o755, false), (0o710, false), (0o500, true)] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(private_directory(&path).is_ok(), is_accepted, "{mode:o}");
        }
        std::os::unix::fs::symlink(&path, parent.path().join("link")).unwrap();
        assert!(private_directory(&parent.path().join("link")).is_err());
    }
}
