//! Resumable uploads in parts: `PUT` with `Content-Range`.
//!
//! | request | response |
//! | --- | --- |
//! | `PUT`, `Content-Range: bytes 0-99/300`, the bytes | 308, `Range: bytes=0-99`: stored, more is missing |
//! | `PUT`, `Content-Range: bytes */300`, no body | 308, `Range: bytes=0-99`: the received bytes; no `Range` if there are none |
//! | `PUT`, `Content-Range: bytes 100-299/300`, the bytes | 201 or 204: the file is complete, verified and visible |
//!
//! Parts may arrive in any order and concurrently if the store supports it. The received bytes of an interrupted part
//! are kept. `Digest`, `Repr-Digest` and `OC-Checksum` apply to the whole file and may come with any part;
//! `Content-Digest` and `Content-MD5` apply to the part. An upload is identified by its sender (for anonymous
//! callers, their address), path and size. It is aborted when no request has used it for [`IDLE_TIMEOUT`], and when the
//! server stops. With `Towpath-Resume: KEY` (32 hexadecimal digits that identify one version of the source) the
//! received data are kept even then, if the store supports it; without a key, a later client could not verify that
//! the source is unchanged. At most [`MAX_UPLOADS`] are open, shared fairly between callers ([`crate::fair_pool`]).
//! The `Towpath-Upload` field of towpath's own client is described in [`super::parts`].

use std::{
    collections::{HashMap, hash_map::Entry},
    fmt,
    net::IpAddr,
    ops::Range,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};

use towpath_proto::checksum::{Digests, Extent};
use towpath_store::{
    Caller, Error, Fault, Result, ResumeKey, StorePath, WriteHandle,
    sys::{
        clock::{self, Instant},
        random,
    },
};

use crate::{
    access::Person,
    fair_pool::{Class, FairPool, Lease, LeaseHolder},
};

/// Maximum time that an upload waits for its next part.
const IDLE_TIMEOUT: Duration = Duration::from_secs(900);

/// Interval between checks of an upload in use. The data of an interrupted request may be kept for up to this much
/// less time.
const RECHECK_INTERVAL: Duration = Duration::from_secs(60);

/// Maximum number of open uploads; each holds a file descriptor. One caller gets its fair share.
const MAX_UPLOADS: u64 = 1024;

/// Minimum idle time after which an upload is superseded by another one of the same source, whose client was killed.
const SUPERSEDE_IDLE: Duration = Duration::from_secs(3);

/// Maximum number of discontiguous extents of one upload.
const MAX_EXTENTS: usize = 1024;

/// Maximum number of present extents reported; more would leave no room for new parts. The others are sent again.
pub(super) const MAX_PRESENT_EXTENTS: usize = MAX_EXTENTS / 2;

/// The owner and the file of an upload.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Key {
    owner: Owner,
    path: StorePath,
    size: u64,
    name: Name,
}

/// Distinguishes an upload from others of the same file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Name {
    /// No distinction.
    None,
    /// The version of its source.
    Resume(ResumeKey),
    /// The identifier returned to its client at the start.
    Begun(UploadId),
}

/// Identifies an upload started with `begin`. Formatted as 32 hexadecimal digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct UploadId(u128);

impl UploadId {
    /// Generates an unguessable identifier.
    pub(super) fn new() -> Self {
        Self(u128::from_be_bytes(random::bytes()))
    }

    /// Parses an identifier.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let is_id = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        u128::from_str_radix(text, 16).ok().filter(|_| is_id).map(Self)
    }
}

impl fmt::Display for UploadId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// The sender of an upload. Without authentication, its address.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Owner {
    person: Person,
    address: Option<IpAddr>,
}

impl Key {
    /// Creates the key of an upload of `size` bytes by `caller`.
    pub(super) fn new(caller: &Caller, path: &StorePath, size: u64, name: Name) -> Self {
        let person = Person::of(caller);
        let address = caller.address.filter(|_| person.is_anonymous());
        let owner = Owner { person, address };
        Self { owner, path: path.clone(), size, name }
    }
}

/// All uploads in parts.
#[derive(Debug)]
pub(super) struct Uploads {
    open: Arc<Mutex<HashMap<Key, Arc<Upload>>>>,
    pool: FairPool,
}

impl Default for Uploads {
    fn default() -> Self {
        Self { open: Arc::default(), pool: FairPool::new(MAX_UPLOADS, 1, 1) }
    }
}

/// The leases of one upload in parts.
#[derive(Debug)]
pub(super) struct Leases {
    _upload: Lease,
    /// The lease of the staging file.
    _file: Lease,
}

/// One upload in parts.
#[derive(Debug)]
pub(super) struct Upload {
    /// The write handle in the store.
    pub(super) handle: Arc<dyn WriteHandle>,
    /// The key under which received data are kept.
    pub(super) resume: Option<ResumeKey>,
    state: Mutex<State>,
    _leases: Leases,
}

#[derive(Debug)]
struct State {
    /// The written ranges: sorted, non-empty, never adjacent.
    extents: Vec<Range<u64>>,
    promised: Digests,
    touched: Instant,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Uploads {
    /// Returns the upload with that key, if it is open. It stays open while the caller holds it, and [`IDLE_TIMEOUT`]
    /// longer.
    pub(super) fn get(&self, key: &Key) -> Option<Arc<Upload>> {
        lock(&self.open).get(key).map(Arc::clone)
    }

    /// Takes the leases for one more upload from the shares of `holder`; `files` is the pool of open files.
    ///
    /// # Errors
    /// `Overloaded` if the holder's shares do not permit one more.
    pub(super) fn lease(&self, holder: &Arc<LeaseHolder>, files: &FairPool) -> Result<Leases> {
        let leases = self.pool.try_take(holder, 1, Class::Large).zip(files.try_take(holder, 1, Class::Large));
        let message = "your share of open uploads is exhausted: finish some, or try again later";
        let (upload, file) = leases.ok_or_else(|| Error::new(Fault::Overloaded, message))?;
        Ok(Leases { _upload: upload, _file: file })
    }

    /// Closes an idle upload of the same source to the same destination as `key`'s, so that a client can resume it
    /// under the key `resume`.
    ///
    /// # Errors
    /// `Overloaded` if another client is using it.
    pub(super) fn supersede(&self, key: &Key, resume: ResumeKey) -> Result<()> {
        let mut uploads = lock(&self.open);
        let is_same = |other: &Key, upload: &Upload| {
            (&other.owner, &other.path, other.size) == (&key.owner, &key.path, key.size)
                && upload.resume == Some(resume)
        };
        let is_in_use = |upload: &Arc<Upload>| {
            Arc::strong_count(upload) > 1 || lock(&upload.state).touched.elapsed() < SUPERSEDE_IDLE
        };
        if uploads.iter().any(|(other, upload)| is_same(other, upload) && is_in_use(upload)) {
            return Err(Error::new(
                Fault::Overloaded,
                "an upload of this file is in progress: try again in a few seconds",
            ));
        }
        uploads.retain(|other, upload| !is_same(other, upload));
        Ok(())
    }

    /// Registers the upload of `key` with a new `handle`, which may have data `present` and is resumable under the
    /// key `resume`. If another request was faster, returns that upload and drops `handle`.
    pub(super) fn open(
        &self,
        key: Key,
        handle: Arc<dyn WriteHandle>,
        resume: Option<ResumeKey>,
        present: &[Extent],
        leases: Leases,
    ) -> Arc<Upload> {
        match lock(&self.open).entry(key.clone()) {
            Entry::Occupied(open) => Arc::clone(open.get()),
            Entry::Vacant(entry) => {
                let extents =
                    present.iter().take(MAX_PRESENT_EXTENTS).map(|extent| extent.offset()..extent.end()).collect();
                let state = State { extents, promised: Digests::new(), touched: clock::now() };
                let upload = Upload { handle, resume, state: Mutex::new(state), _leases: leases };
                let upload = Arc::clone(entry.insert(Arc::new(upload)));
                tokio::spawn(abort_when_idle(Arc::downgrade(&self.open), key));
                upload
            }
        }
    }

    /// Removes the upload from the table; `None` if another request already did.
    pub(super) fn close(&self, key: &Key) -> Option<Arc<Upload>> {
        lock(&self.open).remove(key)
    }
}

/// Aborts an idle upload. Otherwise returns when to check again; `None` if it is gone.
fn abort_if_idle(uploads: &Mutex<HashMap<Key, Arc<Upload>>>, key: &Key) -> Option<Instant> {
    let mut uploads = lock(uploads);
    let upload = uploads.get(key)?;
    let now = clock::now();
    // A request that holds it may be receiving a long part. No request can get it while the map is locked.
    if Arc::strong_count(upload) > 1 {
        lock(&upload.state).touched = now;
        return Some(now + RECHECK_INTERVAL);
    }
    let idle_at = lock(&upload.state).touched + IDLE_TIMEOUT;
    if idle_at <= now {
        uploads.remove(key);
        return None;
    }
    Some(idle_at)
}

/// Aborts an upload once it is idle. Ends when the server drops its uploads.
async fn abort_when_idle(uploads: Weak<Mutex<HashMap<Key, Arc<Upload>>>>, key: Key) {
    let look = || abort_if_idle(&*uploads.upgrade()?, &key);
    while let Some(idle_at) = look() {
        tokio::time::sleep_until(idle_at).await;
    }
}

impl Upload {
    /// Adds digests that the whole file must match.
    pub(super) fn add_promised(&self, digests: &Digests) {
        let mut state = lock(&self.state);
        digests.iter().for_each(|digest| state.promised.insert(*digest));
    }

    /// Returns all digests promised so far.
    pub(super) fn promised(&self) -> Digests {
        lock(&self.state).promised.clone()
    }

    /// Records a written part.
    ///
    /// # Errors
    /// `InvalidArgument` if it leaves too many gaps.
    pub(super) fn record_written(&self, piece: Range<u64>) -> Result<()> {
        let mut state = lock(&self.state);
        state.touched = clock::now();
        insert(&mut state.extents, piece);
        if state.extents.len() > MAX_EXTENTS {
            return Err(Error::new(Fault::InvalidArgument, "the parts of the upload leave too many gaps"));
        }
        Ok(())
    }

    /// Removes a range that is about to be overwritten, because the new data may turn out damaged.
    pub(super) fn forget(&self, piece: &Range<u64>) {
        remove(&mut lock(&self.state).extents, piece);
    }

    /// Returns the written ranges.
    pub(super) fn extents(&self) -> Vec<Range<u64>> {
        lock(&self.state).extents.clone()
    }

    /// Whether all of `size` bytes have been written.
    pub(super) fn is_whole(&self, size: u64) -> bool {
        let state = lock(&self.state);
        size == 0 || state.extents.first() == Some(&(0..size))
    }

    /// Returns the offset of the next part if the store only writes sequentially.
    pub(super) fn end_of_first(&self) -> u64 {
        lock(&self.state).extents.first().filter(|first| first.start == 0).map_or(0, |first| first.end)
    }
}

/// Inserts a range into sorted ones, merging adjacent ranges.
fn insert(extents: &mut Vec<Range<u64>>, mut piece: Range<u64>) {
    if piece.is_empty() {
        return;
    }
    extents.retain(|known| {
        let touches = known.start <= piece.end && piece.start <= known.end;
        if touches {
            piece = piece.start.min(known.start)..piece.end.max(known.end);
        }
        !touches
    });
    let index = extents.partition_point(|known| known.start < piece.start);
    extents.insert(index, piece);
}

/// Removes a range from sorted ones.
fn remove(extents: &mut Vec<Range<u64>>, piece: &Range<u64>) {
    if piece.is_empty() {
        return;
    }
    let rest = extents
        .iter()
        .flat_map(|known| [known.start..known.end.min(piece.start), known.start.max(piece.end)..known.end]);
    *extents = rest.filter(|range| !range.is_empty()).collect();
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use towpath_store::{CreateOptions, Store as _, memory::MemoryStore};

    use super::*;

    proptest! {
        #[test]
        fn extents_are_what_a_map_of_bytes_says(pieces in proptest::collection::vec((0..40u64, 0..10u64, any::<bool>()), 0..20)) {
            let (mut extents, mut map) = (Vec::new(), [false; 64]);
            for (start, length, written) in pieces {
                match written {
                    true => insert(&mut extents, start..start + length),
                    false => remove(&mut extents, &(start..start + length)),
                }
                map[start as usize..(start + length) as usize].fill(written);
                prop_assert!(extents.is_sorted_by(|a: &Range<u64>, b| a.end < b.start), "{extents:?}");
            }
            for (at, there) in map.iter().enumerate() {
                prop_assert_eq!(extents.iter().any(|range| range.contains(&(at as u64))), *there);
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_upload_in_use_is_not_given_up() {
        let store = MemoryStore::new(1 << 20);
        let (caller, path) = (Caller::local(), StorePath::parse(b"/f").unwrap());
        let handle = store.create(&caller, &path, CreateOptions::default()).await.unwrap();
        let (uploads, key) = (Uploads::default(), Key::new(&caller, &path, 10, Name::None));
        let files = FairPool::new(16, 1, 1);
        let leases = uploads.lease(&LeaseHolder::of(&caller), &files).unwrap();
        let upload = uploads.open(key.clone(), handle, None, &[], leases);
        tokio::time::sleep(3 * IDLE_TIMEOUT).await;
        assert!(uploads.get(&key).is_some(), "a long piece is under way");
        drop(upload);
        tokio::time::sleep(IDLE_TIMEOUT + RECHECK_INTERVAL).await;
        assert!(uploads.get(&key).is_none());
    }

    #[tokio::test]
    async fn one_caller_does_not_take_all() {
        let store = MemoryStore::new(1 << 20);
        let path = StorePath::parse(b"/f").unwrap();
        let caller = |octet| Caller { address: Some([10, 0, 0, octet].into()), ..Caller::default() };
        let (uploads, files) = (Uploads::default(), FairPool::new(1 << 20, 1, 1));
        let open = async |octet, size| {
            let leases = uploads.lease(&LeaseHolder::of(&caller(octet)), &files)?;
            let handle = store.create(&caller(octet), &path, CreateOptions::default()).await.unwrap();
            drop(uploads.open(Key::new(&caller(octet), &path, size, Name::None), handle, None, &[], leases));
            Ok::<_, Error>(())
        };
        let mut size = 0;
        while open(1, size).await.is_ok() {
            size += 1;
        }
        assert!((MAX_UPLOADS / 3..MAX_UPLOADS / 2).contains(&size), "{size}");
        assert_eq!(open(1, 1 << 20).await.unwrap_err().fault(), Fault::Overloaded);
        open(2, 0).await.unwrap();
    }
}
