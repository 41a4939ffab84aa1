//! Converts the server's text responses about files.

use towpath_proto::{
    checksum::{Algorithm, Digest},
    xrootd::{
        Mode, StatFlags,
        response::{EntryChecksum, StatInfo, VfsInfo},
    },
};
use towpath_store::{DirectoryId, Error, Fault, FileKind, Metadata, Residency, Result, Space, VersionTag};

use crate::words::readable;

/// Returns the metadata in a stat response.
pub(super) fn of_stat(stat: &StatInfo) -> Metadata {
    let kind = if stat.flags.contains(StatFlags::isDir) {
        FileKind::Directory
    } else if stat.flags.contains(StatFlags::other) {
        FileKind::Other
    } else {
        FileKind::File
    };
    let more = stat.extended.as_ref();
    let mut metadata = Metadata::new(kind, if kind == FileKind::Directory { 0 } else { stat.size });
    metadata.mtime_ns = Some(nanoseconds(stat.mtime));
    metadata.ctime_ns = more.map(|more| nanoseconds(more.ctime));
    metadata.atime_ns = more.map(|more| nanoseconds(more.atime));
    metadata.mode = more.map(|more| u32::from(more.mode.0));
    metadata.version = version(stat).filter(|_| kind == FileKind::File);
    metadata.file_id = Some(stat.id).filter(|id| *id != 0);
    if let Some(node) = stat.node {
        metadata.is_link = node.is_link;
        metadata.directory_id = node.directory_id.and_then(DirectoryId::from_number);
    }
    if stat.flags.contains(StatFlags::offline) {
        metadata.residency = Residency::Offline;
    }
    metadata
}

/// Returns the version of a file: the server's number of it, its size and its time in whole seconds. The tag is weak.
fn version(stat: &StatInfo) -> Option<VersionTag> {
    VersionTag::of_numbers("x", [stat.id, stat.size, stat.mtime as u64]).map(VersionTag::into_weak)
}

/// Returns the permission bits of the protocol.
pub(super) fn mode_bits(mode: u32) -> Mode {
    Mode((mode & 0o777) as u16)
}

fn nanoseconds(seconds: i64) -> i64 {
    seconds.saturating_mul(1_000_000_000)
}

/// Returns the digest in the response to a checksum query, `name hex`.
///
/// # Errors
/// `Protocol` if the response is not a digest, `Unsupported` if the digest is of another algorithm.
pub(super) fn digest(answer: &[u8], algorithm: Algorithm) -> Result<Digest> {
    let text = String::from_utf8_lossy(answer);
    let mut words = text.split_whitespace();
    let (name, value) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    match name.parse::<Algorithm>() {
        Ok(found) if found == algorithm => Digest::from_hex(algorithm, value)
            .map_err(|error| Error::new(Fault::Protocol, format!("invalid checksum in the response: {error}"))),
        _ => {
            let message = format!("the server does not compute {algorithm}: it returned {}", readable(name));
            Err(Error::new(Fault::Unsupported, message))
        }
    }
}

/// Returns the checksum of a directory entry.
pub(super) fn entry_digest(checksum: &EntryChecksum) -> Option<Digest> {
    let algorithm = checksum.algorithm.parse().ok()?;
    Digest::from_hex(algorithm, &checksum.value).ok()
}

/// Returns the space in the response to a space query, `oss.space=..&oss.free=..`.
pub(super) fn space(answer: &[u8]) -> Option<Space> {
    let text = std::str::from_utf8(answer).ok()?;
    let number = |key: &str| {
        let pair = text.split('&').find_map(|pair| pair.strip_prefix(key));
        pair.and_then(|rest| rest.strip_prefix('=')).and_then(|digits| digits.trim().parse().ok())
    };
    Some(Space { total: number("oss.space")?, free: number("oss.free")? })
}

/// Converts a `statvfs` response, in MiB and percent.
pub(super) fn space_of_vfs(vfs: &VfsInfo) -> Space {
    let free = vfs.rw_free_mib.saturating_mul(1 << 20);
    let unused_percent = u64::from(100_u32.saturating_sub(vfs.rw_used_percent)).max(1);
    Space { total: free.saturating_mul(100) / unused_percent, free }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_offline_only_with_the_flag_and_its_version_is_weak() {
        for (flags, residency) in [
            (StatFlags::readable, Residency::Online),
            (StatFlags::readable | StatFlags::cachersp, Residency::Online),
            (StatFlags::readable | StatFlags::offline, Residency::Offline),
        ] {
            let stat = StatInfo { id: 1, size: 5, flags, mtime: 100, extended: None, node: None };
            let metadata = of_stat(&stat);
            assert_eq!(metadata.residency, residency, "{flags:?}");
            let tag = metadata.version.unwrap();
            assert!(tag.is_weak() && tag.as_str() == "x1-5-64", "{tag:?}");
        }
    }

    #[test]
    fn checksum_answers() {
        let digest = digest(b"adler32 5c0ebe1f", Algorithm::Adler32).unwrap();
        assert_eq!(digest.to_string(), "5c0ebe1f");
        let other = super::digest(b"crc32c 5c0ebe1f", Algorithm::Adler32).unwrap_err();
        assert_eq!(other.fault(), Fault::Unsupported);
        assert_eq!(super::digest(b"adler32 none", Algorithm::Adler32).unwrap_err().fault(), Fault::Protocol);
    }

    #[test]
    fn space_answers() {
        let answer = b"oss.cgroup=public&oss.space=1000&oss.free=400&oss.maxf=300&oss.used=600&oss.quota=-1";
        assert_eq!(space(answer), Some(Space { total: 1000, free: 400 }));
        assert_eq!(space(b"oss.space=x"), None);
        let vfs = VfsInfo { rw_free_mib: 25, rw_used_percent: 75, ..VfsInfo::default() };
        assert_eq!(space_of_vfs(&vfs), Space { total: 100 << 20, free: 25 << 20 });
    }
}
