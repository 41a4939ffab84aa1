//! Files outside any store: configuration, keys, token files. (The local store opens its own relative to its root.)

use std::{fs, io, path::Path};

/// Opens a file for reading.
///
/// # Errors
/// The system's.
pub fn open(path: &Path) -> io::Result<fs::File> {
    fs::File::open(path)
}

/// Reads a small file whole.
///
/// # Errors
/// The system's, and `FileTooLarge` for a file of more than `limit_bytes`.
pub fn read(path: &Path, limit_bytes: u64) -> io::Result<Vec<u8>> {
    use io::Read as _;
    let mut bytes = Vec::new();
    fs::File::open(path)?.take(limit_bytes + 1).read_to_end(&mut bytes)?;
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
