//! The file that lets commands find and control a running cache: `control` in its directory.
//!
//! It has the URL of the cache and a random key, and only the user of the cache can read it.

use std::{
    io::{self, Write as _},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    path::Path,
};

use serde::{Deserialize, Serialize};
use towpath_store::sys::{
    disk::{self, RequiredOwner},
    random,
};

/// Name of the file.
const FILE: &str = "control";
/// Maximum length of the file in bytes.
const MAX_BYTES: u64 = 4096;

/// How to control a running cache.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct ControlFile {
    /// URL of the cache, without a path.
    pub(super) url: String,
    /// The key.
    pub(super) key: String,
}

impl std::fmt::Debug for ControlFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ControlFile").field("url", &self.url).field("key", &"<redacted>").finish()
    }
}

impl ControlFile {
    /// Writes the file of a cache that listens on `address`, and has a certificate if `has_tls`: then its plain
    /// connections may be refused.
    pub(super) fn write(directory: &Path, address: SocketAddr, has_tls: bool, key: &ControlKey) -> io::Result<()> {
        let ip = match address.ip() {
            IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
            IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
            ip => ip,
        };
        let scheme = if has_tls { "https" } else { "http" };
        let control = Self { url: format!("{scheme}://{}", SocketAddr::new(ip, address.port())), key: key.0.clone() };
        let text = serde_json::to_vec(&control).map_err(io::Error::other)?;
        disk::replace(&directory.join(FILE), |file| file.write_all(&text))
    }

    /// Reads the file of a cache.
    pub(super) fn read(directory: &Path) -> io::Result<Self> {
        let text = disk::read_regular(&directory.join(FILE), MAX_BYTES, RequiredOwner::CurrentUser)?;
        serde_json::from_slice(&text).map_err(io::Error::other)
    }
}

/// The key of one start of a cache.
#[derive(Clone)]
pub(crate) struct ControlKey(String);

impl std::fmt::Debug for ControlKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("<redacted>")
    }
}

impl ControlKey {
    /// Creates a random key.
    pub(super) fn new() -> Self {
        Self(random::key())
    }

    /// Returns the key, as a request carries it.
    #[cfg(test)]
    pub(super) fn as_bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }

    /// Returns whether `body` is the key. Takes the same time for every wrong key of this length.
    pub(crate) fn matches(&self, body: &[u8]) -> bool {
        let key = self.0.as_bytes();
        body.len() == key.len()
            && body.iter().zip(key).fold(0, |difference, (one, other)| difference | (one ^ other)) == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_key_of_this_start_is_accepted() {
        let directory = tempfile::tempdir().unwrap();
        let keys = [ControlKey::new(), ControlKey::new()];
        ControlFile::write(directory.path(), ([127, 0, 0, 1], 1095).into(), true, &keys[0]).unwrap();
        assert_eq!(&*ControlFile::read(directory.path()).unwrap().url, "https://127.0.0.1:1095");
        ControlFile::write(directory.path(), ([0, 0, 0, 0], 1094).into(), false, &keys[1]).unwrap();
        let read = ControlFile::read(directory.path()).unwrap();
        assert_eq!(&*read.url, "http://127.0.0.1:1094");
        assert!(keys[1].matches(read.key.as_bytes()) && !keys[0].matches(read.key.as_bytes()));
        assert!(!keys[1].matches(b"") && !format!("{read:?} {keys:?}").contains(&read.key));
    }
}
