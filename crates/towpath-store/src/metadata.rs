//! Metadata of files and directories.

use std::{
    fmt,
    hash::{Hash, Hasher as HashState},
    num::NonZeroU64,
    sync::Arc,
};

use towpath_proto::checksum::{Algorithm, Digests, Hasher};

use crate::Freshness;

/// The kind of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FileKind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// Something else (device, socket, dangling link): listed, never opened.
    Other,
}

/// How much of a file its storage has at hand. Of a directory it is always [`Residency::Online`].
///
/// Only [`Residency::Offline`] is known to other protocols: clients avoid or prepare such files. A cache whose origin
/// is offline therefore reports `Offline` until it has the whole file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Residency {
    /// All of it, as far as known: reads start immediately.
    Online,
    /// A part, in a cache: reads of the rest wait for a network, as reads from the origin do.
    Partial {
        /// Bytes in the cache, less than the size of the file; 0 if it has none.
        present_bytes: u64,
    },
    /// Not all, and a read of the rest waits for a recall, such as from tape: minutes or hours.
    Offline,
}

impl Residency {
    /// Returns the residency of a file of `size` bytes in a cache with `present_bytes` of them.
    pub fn of_cached(present_bytes: u64, size: u64) -> Self {
        if present_bytes >= size { Self::Online } else { Self::Partial { present_bytes } }
    }

    /// Returns whether reads may wait for a recall.
    pub fn is_offline(self) -> bool {
        self == Self::Offline
    }

    /// Returns the bytes at hand of a file of `size` bytes; `None` if unknown.
    pub fn present_bytes(self, size: u64) -> Option<u64> {
        match self {
            Self::Online => Some(size),
            Self::Partial { present_bytes } => Some(present_bytes),
            Self::Offline => None,
        }
    }
}

/// A tag that changes whenever the content of a file may have changed; equal tags mean equal content. Its text is
/// opaque, printable ASCII without quotes, of at most 64 bytes, so that it can be a strong entity tag of HTTP.
///
/// A weak tag is made of a modification time in whole seconds: a file that changes twice within a second may keep it. It
/// counts only if the modification time is at least 2 s before the time of the request that returned it
/// ([`Metadata::identifies_content`]). Weakness is neither compared nor part of the text: a tag created from a kept text
/// is strong.
#[derive(Clone)]
pub struct VersionTag {
    text: Arc<str>,
    is_weak: bool,
}

impl PartialEq for VersionTag {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for VersionTag {}

impl Hash for VersionTag {
    fn hash<H: HashState>(&self, state: &mut H) {
        self.text.hash(state);
    }
}

impl VersionTag {
    /// Maximum length of a tag in bytes.
    pub const MAX_BYTES: usize = 64;

    /// Creates a tag; `None` if the text is empty, too long, or contains a quote or a byte outside of printable ASCII.
    pub fn new(text: &str) -> Option<Self> {
        let fits = (1..=Self::MAX_BYTES).contains(&text.len());
        let plain = text.bytes().all(|b| (0x21..0x7f).contains(&b) && b != b'"');
        (fits && plain).then(|| Self { text: text.into(), is_weak: false })
    }

    /// Creates a tag of `prefix` and three hexadecimal numbers, `a-b-c`; `None` if the prefix is not a valid tag or
    /// leaves too little space. Avoids the overhead of `format!`, because every entry of a listing has a tag.
    pub fn of_numbers(prefix: &str, numbers: [u64; 3]) -> Option<Self> {
        let mut text = [0; Self::MAX_BYTES];
        let mut start = text.len();
        let mut put = |byte: u8| {
            start = start.checked_sub(1)?;
            *text.get_mut(start)? = byte;
            Some(())
        };
        for (place, number) in numbers.into_iter().rev().enumerate() {
            if place > 0 {
                put(b'-')?;
            }
            let mut rest = number;
            loop {
                put(b"0123456789abcdef"[(rest % 16) as usize])?;
                rest /= 16;
                if rest == 0 {
                    break;
                }
            }
        }
        for byte in prefix.bytes().rev() {
            put(byte)?;
        }
        Self::new(std::str::from_utf8(text.get(start..)?).ok()?)
    }

    /// Returns the tag marked as weak.
    #[must_use]
    pub fn into_weak(self) -> Self {
        Self { is_weak: true, ..self }
    }

    /// Returns whether the tag is weak.
    pub fn is_weak(&self) -> bool {
        self.is_weak
    }

    /// Returns the text of the tag.
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

impl fmt::Debug for VersionTag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Identifies a directory across stores: equal ids are the same directory, independent of paths, host names and
/// protocols.
///
/// The upper 16 bits identify the running kernel, the lower 48 the directory. Both are hashes, so that they reveal
/// neither device and inode numbers nor the machine. Two different directories of one machine have equal ids with a
/// probability of 2⁻⁴⁸. An id is valid until the machine restarts. A network file system mounted on two machines has
/// different ids on each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct DirectoryId(NonZeroU64);

impl DirectoryId {
    /// Number of bits that identify the directory; the bits above identify the machine.
    const DIRECTORY_BITS: u32 = 48;

    /// Creates the id of the directory with `device` and `inode` on the machine with `kernel`.
    pub fn new(kernel: &[u8], device: u64, inode: u64) -> Self {
        let hash = |parts: &[&[u8]]| {
            let hash = Hasher::digest_of(Algorithm::Sha256, &parts.concat());
            hash.bytes().iter().take(8).fold(0, |number: u64, byte| number << 8 | u64::from(*byte))
        };
        let machine = hash(&[b"machine", kernel]) >> Self::DIRECTORY_BITS;
        let directory = hash(&[b"directory", kernel, &device.to_be_bytes(), &inode.to_be_bytes()]);
        let number = machine << Self::DIRECTORY_BITS | directory >> (u64::BITS - Self::DIRECTORY_BITS);
        Self(NonZeroU64::new(number).unwrap_or(NonZeroU64::MIN))
    }

    /// Decodes the number used in protocols; `None` for 0.
    pub fn from_number(number: u64) -> Option<Self> {
        NonZeroU64::new(number).map(Self)
    }

    /// Returns the number used in protocols; never 0.
    pub fn number(self) -> u64 {
        self.0.get()
    }

    /// Returns whether both directories may be on one machine. If not, neither contains the other.
    pub fn may_share_machine(self, other: Self) -> bool {
        self.number() >> Self::DIRECTORY_BITS == other.number() >> Self::DIRECTORY_BITS
    }
}

/// Metadata of one path. `None` means unknown to the store, not absent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Metadata {
    /// Kind of the path.
    pub kind: FileKind,
    /// Whether an entry of a listing is a symbolic link. All other fields describe its target, or the link itself if
    /// the target is out of reach. False if the store cannot detect links, and outside listings, where links are
    /// followed.
    pub is_link: bool,
    /// Length in bytes; 0 for a directory.
    pub size: u64,
    /// Last change of the content, in nanoseconds since the Unix epoch.
    pub mtime_ns: Option<i64>,
    /// Last change of content or attributes, in nanoseconds since the Unix epoch.
    pub ctime_ns: Option<i64>,
    /// Last access, in nanoseconds since the Unix epoch.
    pub atime_ns: Option<i64>,
    /// Permission bits (`0o7777`).
    pub mode: Option<u32>,
    /// Version of the content.
    pub version: Option<VersionTag>,
    /// Number of the file within its store (an inode number); reported by XRootD's stat.
    pub file_id: Option<u64>,
    /// Identity of a directory across stores; `None` for other kinds.
    pub directory_id: Option<DirectoryId>,
    /// How much of a file is at hand.
    pub residency: Residency,
    /// Digests of this version that are known without reading the file.
    pub digests: Digests,
    /// How long the origin lets caches use these metadata; `None` if it states nothing.
    pub freshness: Option<Arc<Freshness>>,
}

impl Metadata {
    /// Creates metadata with kind and size only.
    pub fn new(kind: FileKind, size: u64) -> Self {
        Self {
            kind,
            is_link: false,
            size,
            mtime_ns: None,
            ctime_ns: None,
            atime_ns: None,
            mode: None,
            version: None,
            file_id: None,
            directory_id: None,
            residency: Residency::Online,
            digests: Digests::default(),
            freshness: None,
        }
    }

    /// Returns whether this is a directory.
    pub fn is_directory(&self) -> bool {
        self.kind == FileKind::Directory
    }

    /// Returns whether the version identifies the content: another content has another tag. `requested_ns` is the time
    /// before the request that returned these metadata, in nanoseconds since the Unix epoch.
    pub fn identifies_content(&self, requested_ns: i64) -> bool {
        match &self.version {
            Some(tag) if tag.is_weak() => self.mtime_ns.is_some_and(|mtime_ns| is_settled(mtime_ns, requested_ns)),
            version => version.is_some(),
        }
    }

    /// Returns the last change of the content in whole seconds since the Unix epoch, rounded down; 0 if unknown.
    pub fn mtime_s(&self) -> i64 {
        self.mtime_ns.unwrap_or(0).div_euclid(1_000_000_000)
    }
}

/// Minimum age in nanoseconds of a modification time in whole seconds that no later change can get: the second itself,
/// and one for clock skew. The clock of a file system may lag by ten milliseconds, that of a file server by more.
const SETTLED_NS: i64 = 2_000_000_000;

/// Returns whether any change after `now_ns` is certain to give a file another time than `time_ns`, even in whole
/// seconds. A file changed just before, or in the future, could change again with the same time. Both are in
/// nanoseconds since the Unix epoch.
pub fn is_settled(time_ns: i64, now_ns: i64) -> bool {
    now_ns.saturating_sub(time_ns) >= SETTLED_NS
}

/// Space of a store in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Space {
    /// Total space.
    pub total: u64,
    /// Space available to new files.
    pub free: u64,
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn directory_ids_tell_directories_and_machines_apart() {
        let id = DirectoryId::new(b"kernel", 1, 2);
        assert_eq!(id, DirectoryId::new(b"kernel", 1, 2));
        assert_eq!(DirectoryId::from_number(id.number()), Some(id));
        for other in [DirectoryId::new(b"kernel", 1, 3), DirectoryId::new(b"kernel", 2, 2)] {
            assert!(other != id && other.may_share_machine(id), "{other:?}");
        }
        assert!(!DirectoryId::new(b"other", 1, 2).may_share_machine(id));
    }

    #[test]
    fn a_weak_tag_counts_once_its_time_has_settled() {
        let tag = VersionTag::new("tag").unwrap();
        let weak = tag.clone().into_weak();
        assert!(weak.is_weak() && !tag.is_weak());
        assert_eq!((&weak, weak.as_str(), format!("{weak:?}")), (&tag, "tag", "tag".to_owned()));
        assert_eq!(HashSet::from([tag.clone(), weak.clone()]).len(), 1);
        let now = 1_700_000_000_000_000_000;
        let with = |version: Option<&VersionTag>, mtime_ns| Metadata {
            version: version.cloned(),
            mtime_ns,
            ..Metadata::new(FileKind::File, 1)
        };
        for (age_ns, counts) in [(2_000_000_000, true), (1_999_999_999, false), (0, false), (-1_000_000_000, false)] {
            assert_eq!(with(Some(&weak), Some(now - age_ns)).identifies_content(now), counts, "{age_ns}");
            assert!(with(Some(&tag), Some(now - age_ns)).identifies_content(now));
        }
        assert!(!with(Some(&weak), None).identifies_content(now));
        assert!(!with(None, Some(0)).identifies_content(now));
    }

    #[test]
    fn a_cached_file_is_online_once_it_is_complete() {
        for (present_bytes, size, expected) in [
            (0, 10, Residency::Partial { present_bytes: 0 }),
            (9, 10, Residency::Partial { present_bytes: 9 }),
            (10, 10, Residency::Online),
            (0, 0, Residency::Online),
        ] {
            let residency = Residency::of_cached(present_bytes, size);
            assert_eq!((residency, residency.present_bytes(size)), (expected, Some(present_bytes)));
            assert!(!residency.is_offline());
        }
        assert!(Residency::Offline.is_offline());
        assert_eq!(Residency::Offline.present_bytes(10), None);
    }

    #[test]
    fn tags_of_numbers_are_what_format_would_make() {
        for numbers in [[0, 1, 2], [15, 16, 255], [u64::MAX; 3], [0x1234_5678_9abc_def0, 0, i64::MIN as u64]] {
            let [a, b, c] = numbers;
            let tag = VersionTag::of_numbers("x", numbers).unwrap();
            assert_eq!(tag.as_str(), format!("x{a:x}-{b:x}-{c:x}"));
        }
        assert!(VersionTag::of_numbers("a prefix of which there is too much", [u64::MAX; 3]).is_none());
    }
}
