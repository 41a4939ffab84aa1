//! Checksum of a file that any number of writers write in pieces, in any order.
//!
//! Each writer converts its piece into an [`Extent`]: offset, length and checksums. That is the expensive part and
//! needs no lock. [`ExtentDigests`] collects extents and joins adjacent ones, which is arithmetic on a few numbers.
//! When the extents have merged into one that covers the file, its checksums are those of the file.
//!
//! The result is exact or absent: if a byte was written twice, or there are too many pieces, the collection returns
//! [`CombineError`] with the reason; the caller then reads the file once more, or leaves the digest unknown.

use std::collections::BTreeMap;

use super::{Algorithm, Algorithms, Digest, Digests, Hasher, combine};

/// Checksums of the bytes `offset..offset + bytes` of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    offset: u64,
    bytes: u64,
    /// The algorithms of `sums`; all of them combinable.
    algorithms: Algorithms,
    sums: Sums,
}

/// The checksums of an extent, one field for each combinable algorithm; unknown ones are 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Sums {
    adler32: u32,
    crc32c: u32,
    crc32: u32,
    crc64: u64,
}

impl Extent {
    /// Computes the checksums of `data` at `offset` of the file.
    ///
    /// Algorithms that cannot be combined are omitted. `None` if the extent would end beyond 2^64 - 1.
    pub fn of(algorithms: Algorithms, offset: u64, data: &[u8]) -> Option<Self> {
        let digests = Hasher::digest(algorithms.combinable(), data);
        Self::from_digests(offset, data.len() as u64, &digests)
    }

    /// Creates an extent with known checksums, for example from a journal; digests that cannot be combined are omitted.
    /// `None` if the extent would end beyond 2^64 - 1.
    pub fn from_digests(offset: u64, bytes: u64, digests: &Digests) -> Option<Self> {
        offset.checked_add(bytes)?;
        let mut sums = Sums::default();
        digests.iter().for_each(|digest| sums.set(digest.algorithm(), digest.to_integer()));
        Some(Self { offset, bytes, algorithms: digests.algorithms().combinable(), sums })
    }

    /// Returns the offset of the extent in the file.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Returns the length in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the first offset after the extent.
    pub fn end(&self) -> u64 {
        self.offset + self.bytes
    }

    /// Returns the digests of its bytes.
    pub fn digests(&self) -> Digests {
        self.algorithms.iter().map(|algorithm| Digest::from_integer(algorithm, self.sums.get(algorithm))).collect()
    }

    /// Creates an extent of zero bytes; for a length of 0 joining it changes nothing.
    fn of_zeros(algorithms: Algorithms, offset: u64, bytes: u64) -> Self {
        let mut sums = Sums::default();
        for algorithm in algorithms.iter() {
            sums.set(algorithm, combine::of_zeros(algorithm, bytes).unwrap_or(0));
        }
        Self { offset, bytes, algorithms, sums }
    }

    /// Joins this extent with the one that starts at its end; keeps the checksums that both have.
    fn join(&self, next: &Extent) -> Self {
        let algorithms = self.algorithms.intersection(next.algorithms);
        let mut sums = Sums::default();
        for algorithm in algorithms.iter() {
            let (first, second) = (self.sums.get(algorithm), next.sums.get(algorithm));
            sums.set(algorithm, combine::combine(algorithm, first, second, next.bytes).unwrap_or(0));
        }
        Self { offset: self.offset, bytes: self.bytes + next.bytes, algorithms, sums }
    }
}

impl Sums {
    fn get(&self, algorithm: Algorithm) -> u64 {
        match algorithm {
            Algorithm::Adler32 => self.adler32.into(),
            Algorithm::Crc32c => self.crc32c.into(),
            Algorithm::Crc32 => self.crc32.into(),
            Algorithm::Crc64 => self.crc64,
            Algorithm::Cksum | Algorithm::Md5 | Algorithm::Sha1 | Algorithm::Sha256 => 0,
        }
    }

    fn set(&mut self, algorithm: Algorithm, value: u64) {
        match algorithm {
            Algorithm::Adler32 => self.adler32 = value as u32,
            Algorithm::Crc32c => self.crc32c = value as u32,
            Algorithm::Crc32 => self.crc32 = value as u32,
            Algorithm::Crc64 => self.crc64 = value,
            Algorithm::Cksum | Algorithm::Md5 | Algorithm::Sha1 | Algorithm::Sha256 => {}
        }
    }
}

/// Reason why the checksum of the whole file is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CombineError {
    /// Bytes at this offset were written more than once, and only the file system knows the final content.
    #[error("bytes at offset {offset} were written more than once")]
    Rewritten {
        /// First offset found in two extents.
        offset: u64,
    },
    /// There are more separate extents than the limit.
    #[error("the file was written in more than {limit} separate extents at a time")]
    TooFragmented {
        /// The limit.
        limit: usize,
    },
    /// A range was never written.
    #[error("{bytes} bytes at offset {offset} were never written")]
    Hole {
        /// Start of the first hole.
        offset: u64,
        /// Length of the hole.
        bytes: u64,
    },
    /// Bytes were written beyond the given size of the file.
    #[error("{end} bytes were written, beyond the size of {size} bytes")]
    BeyondEnd {
        /// The first offset after the last extent.
        end: u64,
        /// The given size.
        size: u64,
    },
}

/// Treatment of ranges that were never written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holes {
    /// They are an error: the digest is [`CombineError::Hole`].
    Refuse,
    /// They are zeros, as in a sparse file; each hole costs a few multiplications, regardless of its length.
    AreZeros,
}

/// Default maximum number of separate extents in a collection.
///
/// An extent takes about 60 bytes, so a collection is limited to about 4 MiB; 64 writers of 8 MiB pieces need 64
/// extents.
pub const DEFAULT_EXTENT_LIMIT: usize = 65_536;

/// Checksums of the written ranges of a file.
#[derive(Clone, Debug)]
pub struct ExtentDigests {
    algorithms: Algorithms,
    limit: usize,
    /// Extents by offset; adjacent extents are joined, so there is a gap between any two.
    extents: BTreeMap<u64, Extent>,
    /// Once this is set, `extents` remains empty.
    unknown: Option<CombineError>,
}

impl ExtentDigests {
    /// Creates an empty collection with the combinable members of `algorithms` and [`DEFAULT_EXTENT_LIMIT`].
    pub fn new(algorithms: Algorithms) -> Self {
        Self::with_limit(algorithms, DEFAULT_EXTENT_LIMIT)
    }

    /// Creates an empty collection of at most `limit` separate extents.
    pub fn with_limit(algorithms: Algorithms, limit: usize) -> Self {
        Self { algorithms: algorithms.combinable(), limit, extents: BTreeMap::new(), unknown: None }
    }

    /// Returns the algorithms of this collection; its extents must be created with them.
    pub fn algorithms(&self) -> Algorithms {
        self.algorithms
    }

    /// Adds bytes written at `offset`. A piece that ends beyond 2^64 - 1 makes the digest unknown.
    pub fn add(&mut self, offset: u64, data: &[u8]) {
        match Extent::of(self.algorithms, offset, data) {
            Some(extent) => self.insert(extent),
            None => self.give_up(CombineError::BeyondEnd { end: u64::MAX, size: u64::MAX }),
        }
    }

    /// Adds an extent created with [`ExtentDigests::algorithms`]; an algorithm that it lacks is lost for the whole
    /// file.
    ///
    /// Costs O(log n) for n separate extents.
    pub fn insert(&mut self, mut extent: Extent) {
        if self.unknown.is_some() || extent.bytes == 0 {
            return;
        }
        if let Some(offset) = self.overlap(&extent) {
            return self.give_up(CombineError::Rewritten { offset });
        }
        if let Some(next) = self.extents.remove(&extent.end()) {
            extent = extent.join(&next);
        }
        if let Some((_, before)) = self.extents.range_mut(..extent.offset).next_back()
            && before.end() == extent.offset
        {
            *before = before.join(&extent);
            return;
        }
        self.extents.insert(extent.offset, extent);
        if self.extents.len() > self.limit {
            self.give_up(CombineError::TooFragmented { limit: self.limit });
        }
    }

    /// Makes the digest unknown after a change to the file that bypassed this collection, such as a truncation.
    pub fn give_up(&mut self, reason: CombineError) {
        self.extents = BTreeMap::new();
        self.unknown = Some(reason);
    }

    /// Returns the extents so far, by offset, with gaps between them. Empty once the digest is unknown.
    pub fn extents(&self) -> impl Iterator<Item = &Extent> {
        self.extents.values()
    }

    /// Returns the digests of the whole file, if the extents cover `0..size` exactly.
    pub fn finish(&self, size: u64, holes: Holes) -> Result<Digests, CombineError> {
        if let Some(reason) = self.unknown {
            return Err(reason);
        }
        let mut whole = Extent::of_zeros(self.algorithms, 0, 0);
        for extent in self.extents() {
            if extent.end() > size {
                return Err(CombineError::BeyondEnd { end: extent.end(), size });
            }
            whole = fill(&whole, extent.offset, holes)?.join(extent);
        }
        Ok(fill(&whole, size, holes)?.digests())
    }

    /// Returns the first offset that `extent` shares with an extent of this collection.
    fn overlap(&self, extent: &Extent) -> Option<u64> {
        let before = self.extents.range(..=extent.offset).next_back();
        if before.is_some_and(|(_, before)| before.end() > extent.offset) {
            return Some(extent.offset);
        }
        let after = self.extents.range(extent.offset..).next();
        after.map(|(offset, _)| *offset).filter(|offset| *offset < extent.end())
    }
}

/// Extends `whole` up to `end` with the missing bytes.
fn fill(whole: &Extent, end: u64, holes: Holes) -> Result<Extent, CombineError> {
    let (offset, bytes) = (whole.end(), end - whole.end());
    match holes {
        _ if bytes == 0 => Ok(*whole),
        Holes::Refuse => Err(CombineError::Hole { offset, bytes }),
        Holes::AreZeros => Ok(whole.join(&Extent::of_zeros(whole.algorithms, offset, bytes))),
    }
}
