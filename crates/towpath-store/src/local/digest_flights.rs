//! Digest computations in flight. Concurrent requests for the same digest of the same version share one computation,
//! so that the disk reads the file once. This matters most on file systems without extended attributes.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError, Weak},
};

use rustix::fs::Stat;
use tokio::sync::OnceCell;
use towpath_proto::checksum::{Algorithm, Digest};

use super::inode::{self, Stamp};

/// One computation. The first caller runs it; if it fails or is dropped, the next waiting caller runs it.
pub(super) type Flight = Arc<OnceCell<Digest>>;

/// All computations in flight.
#[derive(Debug, Default)]
pub(super) struct DigestFlights(Mutex<HashMap<Key, Weak<OnceCell<Digest>>>>);

#[derive(Debug, PartialEq, Eq, Hash)]
struct Key {
    device: u64,
    version: Stamp,
    algorithm: Algorithm,
}

impl DigestFlights {
    /// Joins the computation in flight for the file with this status, or starts a new one. A file that may have changed
    /// since the other computation started, even without a visible change, gets a new one.
    pub(super) fn join(&self, status: &Stat, algorithm: Algorithm) -> Flight {
        if !inode::is_settled(inode::mtime_ns(status)) {
            return Flight::default();
        }
        let key = Key { device: status.st_dev, version: Stamp::of(status), algorithm };
        let mut flights = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        flights.retain(|_, flight| flight.strong_count() > 0);
        if let Some(flight) = flights.get(&key).and_then(Weak::upgrade) {
            return flight;
        }
        let flight = Flight::default();
        flights.insert(key, Arc::downgrade(&flight));
        flight
    }
}

#[cfg(test)]
mod tests {
    use rustix::fs::{fstat, stat};

    use super::*;

    #[test]
    fn only_the_same_digest_of_a_settled_file_is_shared_and_only_while_it_is_wanted() {
        let flights = DigestFlights::default();
        let settled = stat(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml")).unwrap();
        let first = flights.join(&settled, Algorithm::Md5);
        assert!(Arc::ptr_eq(&first, &flights.join(&settled, Algorithm::Md5)));
        assert!(!Arc::ptr_eq(&first, &flights.join(&settled, Algorithm::Sha256)));
        let mut other = settled;
        other.st_size += 1;
        assert!(!Arc::ptr_eq(&first, &flights.join(&other, Algorithm::Md5)));
        let gone = Arc::downgrade(&first);
        drop(first);
        assert!(gone.upgrade().is_none());

        let mut fresh = fstat(tempfile::tempfile().unwrap()).unwrap();
        fresh.st_mtime += 3600;
        assert!(!Arc::ptr_eq(&flights.join(&fresh, Algorithm::Md5), &flights.join(&fresh, Algorithm::Md5)));
    }
}
