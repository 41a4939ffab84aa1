//! Limits of the space below single paths.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use towpath_store::StorePath;

use crate::version::Version;

/// The maximum space of the entries at or below a path. An entry counts for the quota of the longest path only.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Quota {
    /// The path, as clients see it.
    pub path: StorePath,
    /// The path at each origin that may have its entries, with the URL of the origin without credentials. The entries
    /// of all count together.
    pub places: Vec<(Arc<str>, StorePath)>,
    /// Maximum space in bytes. Eviction begins above it, and ends as for the limit of the whole cache.
    pub max_bytes: u64,
}

/// State of a quota.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QuotaStatistics {
    /// The quota.
    pub quota: Quota,
    /// Space of its entries on the disk in bytes, approximately.
    pub bytes: u64,
    /// Number of its entries found so far.
    pub entries: u64,
}

/// The quotas of a cache, and the space that each has in use.
#[derive(Debug, Default)]
pub(crate) struct Quotas(Box<[(Quota, AtomicU64)]>);

impl Quotas {
    /// Creates the state of quotas without entries.
    pub(crate) fn new(quotas: Vec<Quota>) -> Self {
        Self(quotas.into_iter().map(|quota| (quota, AtomicU64::new(0))).collect())
    }

    /// Returns the number of the quota that an entry counts for.
    pub(crate) fn of(&self, version: &Version) -> Option<usize> {
        let quotas = self.0.iter().enumerate();
        let places = quotas.flat_map(|(number, (quota, _))| quota.places.iter().map(move |place| (number, place)));
        let places = places.filter(|(_, (origin, path))| **origin == *version.origin && version.target.is_within(path));
        places.max_by_key(|(_, (_, path))| path.as_bytes().len()).map(|(number, _)| number)
    }

    /// Returns the number of quotas.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns a quota, and its space in use in bytes.
    pub(crate) fn get(&self, number: usize) -> Option<(&Quota, u64)> {
        self.0.get(number).map(|(quota, bytes)| (quota, bytes.load(Relaxed)))
    }

    /// Adds to the space in use; the sum wraps, so that a difference can be added.
    pub(crate) fn add(&self, number: Option<usize>, bytes: u64) {
        if let Some((_, used)) = number.and_then(|number| self.0.get(number)) {
            used.fetch_add(bytes, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_counts_for_the_quota_of_the_longest_path_of_its_origin() {
        let path = |text: &str| StorePath::parse(text.as_bytes()).unwrap();
        let quota = |text, places: &[(&str, &str)]| Quota {
            path: path(text),
            places: places.iter().map(|(origin, at)| ((*origin).into(), path(at))).collect(),
            max_bytes: 1,
        };
        let quotas = Quotas::new(vec![quota("/x", &[("a", "/x"), ("b", "/")]), quota("/x/y", &[("a", "/x/y")])]);
        let of = |origin: &str, text| {
            let version =
                Version { origin: origin.into(), target: path(text).into(), size: 1, mtime_ns: None, tag: None };
            quotas.of(&version)
        };
        assert_eq!((of("a", "/x/f"), of("a", "/x/y/f"), of("a", "/x/yz")), (Some(0), Some(1), Some(0)));
        assert_eq!((of("a", "/xy"), of("b", "/x/y"), of("c", "/x")), (None, Some(0), None));
    }
}
