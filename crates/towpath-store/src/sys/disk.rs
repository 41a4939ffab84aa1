//! Files outside any store: configuration, keys, token files. (The local store opens its own relative to its root.)

use std::{
    fs, io,
    os::unix::fs::{MetadataExt as _, OpenOptionsExt as _},
    path::Path,
};

use rustix::fs::OFlags;

/// Opens a file for reading.
///
/// # Errors
/// The system's.
pub fn open(path: &Path) -> io::Result<fs::File> {
    fs::File::open(path)
}

/// Has the system forget what it keeps of a file in memory, as far as that is on disk already, so that it is read from there. If it cannot, nothing is
/// lost.
pub fn forget(file: &fs::File) {
    let _ = rustix::fs::fadvise(file, 0, None, rustix::fs::Advice::DontNeed);
}

/// Reads a small file whole.
///
/// # Errors
/// The system's, and `FileTooLarge` for a file of more than `limit_bytes`.
pub fn read(path: &Path, limit_bytes: u64) -> io::Result<Vec<u8>> {
    read_bounded(fs::File::open(path)?, limit_bytes)
}

/// Who must have made a file that is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Maker {
    /// Somebody: the user named the file.
    Anybody,
    /// The user whom this process acts for, and nobody else can change it. Links are not followed.
    Oneself,
}

/// Reads a small file whole, if it is one: nothing that could make the reader wait, such as a pipe.
///
/// # Errors
/// The system's, `FileTooLarge` for a file of more than `limit_bytes`, and one that says what is wrong with the file.
pub fn read_regular(path: &Path, limit_bytes: u64, maker: Maker) -> io::Result<Vec<u8>> {
    let link = if maker == Maker::Oneself { OFlags::NOFOLLOW } else { OFlags::empty() };
    let flags = (OFlags::NONBLOCK | link).bits().cast_signed();
    let file = fs::OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    let metadata = file.metadata()?;
    let own = metadata.uid() == rustix::process::geteuid().as_raw() && metadata.mode() & 0o022 == 0;
    match maker {
        _ if !metadata.is_file() => Err(io::Error::other("it is not a regular file")),
        Maker::Oneself if !own => Err(io::Error::other("it belongs to somebody else, or others can write it")),
        _ => read_bounded(file, limit_bytes),
    }
}

fn read_bounded(file: fs::File, limit_bytes: u64) -> io::Result<Vec<u8>> {
    use io::Read as _;
    let mut bytes = Vec::new();
    file.take(limit_bytes + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > limit_bytes {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, format!("it has more than {limit_bytes} bytes")));
    }
    Ok(bytes)
}

/// Writes a small file, replacing what is there.
///
/// # Errors
/// The system's.
pub fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    fs::write(path, bytes)
}

/// Opens a file for appending, and makes it if there is none.
///
/// # Errors
/// The system's.
pub fn append(path: &Path) -> io::Result<fs::File> {
    fs::OpenOptions::new().append(true).create(true).open(path)
}

/// Makes a file, or empties the one that is there.
///
/// # Errors
/// The system's.
pub fn create(path: &Path) -> io::Result<fs::File> {
    fs::File::create(path)
}

/// Gives a file another name, replacing what has it.
///
/// # Errors
/// The system's.
pub fn rename(from: &Path, to: &Path) -> io::Result<()> {
    fs::rename(from, to)
}

/// Removes a file.
///
/// # Errors
/// The system's.
pub fn remove(path: &Path) -> io::Result<()> {
    fs::remove_file(path)
}
