//! Selection of the files of a tree: patterns for names, and bounds for sizes.
//!
//! The first pattern that matches a path, or one of its ancestors below the root of the copy, decides. A path that no
//! pattern matches gets the opposite of the last pattern: after an exclusion it is copied, after an inclusion it is
//! not.

use std::{ffi::OsStr, ops::RangeInclusive, os::unix::ffi::OsStrExt as _};

use globset::{GlobBuilder, GlobMatcher};
use towpath_store::StorePath;

/// Selects the files of a tree. The default selects all.
#[derive(Debug, Clone, Default)]
pub struct Filter {
    rules: Vec<Rule>,
    sizes: Option<RangeInclusive<u64>>,
}

/// A pattern and its effect.
#[derive(Debug, Clone)]
struct Rule {
    includes: bool,
    directories_only: bool,
    glob: GlobMatcher,
}

/// The effect of a filter on a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Selection {
    /// Whether it is copied.
    pub(crate) is_taken: bool,
    /// Whether something below it may be copied.
    pub(crate) may_hold: bool,
}

/// A malformed pattern, and the reason.
#[derive(Debug, thiserror::Error)]
#[error("invalid pattern {pattern:?}: {reason}")]
pub struct PatternError {
    pattern: String,
    reason: String,
}

impl Filter {
    /// Appends a pattern. `*`, `?`, `[a-z]` and `{a,b}` match within one name, `**` matches whole names, and `\`
    /// escapes the next character. A pattern with a leading slash is matched against the whole path below the root of
    /// the copy, any other against the last names of the path. A pattern with a trailing slash matches directories
    /// only.
    ///
    /// # Errors
    /// [`PatternError`] if the pattern is empty or malformed.
    pub fn add(&mut self, pattern: &str, includes: bool) -> Result<(), PatternError> {
        let wrong = |reason: String| PatternError { pattern: pattern.to_owned(), reason };
        let (rest, directories_only) = pattern.strip_suffix('/').map_or((pattern, false), |rest| (rest, true));
        let glob = match rest.strip_prefix('/') {
            Some(anchored) => anchored.to_owned(),
            None => format!("**/{rest}"),
        };
        if rest.trim_matches('/').is_empty() {
            return Err(wrong("it is empty".into()));
        }
        let glob = GlobBuilder::new(&glob).literal_separator(true).backslash_escape(true).build();
        let glob = glob.map_err(|error| wrong(error.kind().to_string()))?.compile_matcher();
        self.rules.push(Rule { includes, directories_only, glob });
        Ok(())
    }

    /// Selects only files whose size in bytes is within `sizes`.
    pub fn limit_sizes(&mut self, sizes: RangeInclusive<u64>) {
        self.sizes = Some(sizes);
    }

    /// Returns whether the filter selects everything.
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty() && self.sizes.is_none()
    }

    /// Applies the filter to `path`, which lies below `root`.
    pub(crate) fn apply(&self, path: &StorePath, root: &StorePath, is_directory: bool) -> Selection {
        let Some(last) = self.rules.last() else { return Selection { is_taken: true, may_hold: true } };
        let start = if root.is_root() { 1 } else { root.as_bytes().len() + 1 };
        let below = path.as_bytes().get(start..).unwrap_or_default();
        let found = self.rules.iter().position(|rule| rule.matches(below, is_directory));
        let is_taken = found.and_then(|at| self.rules.get(at)).map_or(!last.includes, |rule| rule.includes);
        let before = found.and_then(|at| self.rules.get(..at)).unwrap_or(&self.rules);
        Selection { is_taken, may_hold: is_taken || before.iter().any(|rule| rule.includes) }
    }

    /// Returns whether a file of `size` bytes passes the size bounds.
    pub(crate) fn takes(&self, size: u64) -> bool {
        self.sizes.as_ref().is_none_or(|sizes| sizes.contains(&size))
    }
}

impl Rule {
    /// Returns whether the pattern matches the path `below` the root of the copy or one of its ancestors.
    fn matches(&self, below: &[u8], is_directory: bool) -> bool {
        let is_match = |path: &[u8]| self.glob.is_match(OsStr::from_bytes(path));
        let slashes = below.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| at);
        slashes.into_iter().any(|at| is_match(below.get(..at).unwrap_or_default()))
            || ((is_directory || !self.directories_only) && is_match(below))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `+x` includes, `-x` excludes.
    fn filter(patterns: &[&str]) -> Filter {
        let mut filter = Filter::default();
        for pattern in patterns {
            let (sign, pattern) = pattern.split_at(1);
            filter.add(pattern, sign == "+").unwrap();
        }
        filter
    }

    fn apply(filter: &Filter, below: &str) -> Selection {
        let root = StorePath::parse(b"/the/root").unwrap();
        let path = StorePath::parse(format!("/the/root/{below}").as_bytes()).unwrap();
        filter.apply(&path, &root, below.ends_with('/'))
    }

    #[test]
    fn the_first_match_decides_and_the_rest_is_the_opposite_of_the_last() {
        for (patterns, taken, left) in [
            (vec![], vec!["a", "d/a", "d/"], vec![]),
            (vec!["+*.root"], vec!["a.root", "d/e/a.root"], vec!["a", "d/", "a.root.tmp"]),
            (vec!["-*.tmp"], vec!["a", "d/a", "d/"], vec!["a.tmp", "d/e/a.tmp"]),
            (vec!["+keep.tmp", "-*.tmp"], vec!["keep.tmp", "d/keep.tmp", "other"], vec!["a.tmp"]),
            (vec!["-tmp/", "+*.root"], vec!["a.root", "tmp.root"], vec!["tmp/a.root", "d/tmp/e/a.root", "a"]),
            // A pattern for directories does not match a file.
            (vec!["-tmp/"], vec!["tmp", "d/tmp"], vec!["tmp/", "tmp/a", "d/tmp/a"]),
            (vec!["-/tmp"], vec!["d/tmp", "d/tmp/a"], vec!["tmp", "tmp/a"]),
            (vec!["+data/keep/", "-data/"], vec!["data/keep/a", "a"], vec!["data/a", "data/keepsake/a"]),
            (vec!["+*.root", "-*"], vec!["a.root", "d/a.root"], vec!["a", "d/a"]),
            (vec!["-/a*c"], vec!["a/c", "xabc"], vec!["ac", "abc"]),
            (vec!["-/a/**/c"], vec!["b/c"], vec!["a/c", "a/b/c", "a/b/b/c"]),
            (vec!["-b/c"], vec!["b", "c", "ab/c"], vec!["b/c", "a/b/c/d"]),
            (vec!["-run[0-4].{root,txt}"], vec!["run5.root", "run1.dat"], vec!["run1.root", "d/run4.txt"]),
            (vec!["-a\\*"], vec!["ab"], vec!["a*"]),
        ] {
            let filter = filter(&patterns);
            for path in taken {
                assert!(apply(&filter, path).is_taken, "{patterns:?} does not take {path}");
            }
            for path in left {
                assert!(!apply(&filter, path).is_taken, "{patterns:?} takes {path}");
            }
        }
    }

    #[test]
    fn directories_are_entered_unless_all_in_them_is_excluded() {
        assert!(!apply(&filter(&["-tmp/"]), "tmp/").may_hold);
        assert!(apply(&filter(&["+keep", "-tmp/"]), "tmp/").may_hold);
        assert!(apply(&filter(&["+*.root"]), "d/").may_hold);
        assert!(!apply(&filter(&["-tmp/", "+*.root"]), "tmp/").may_hold);
    }

    #[test]
    fn names_need_not_be_text() {
        let root = StorePath::root();
        let path = StorePath::parse(b"/d\xff/a\xfe.tmp").unwrap();
        assert!(!filter(&["-*.tmp"]).apply(&path, &root, false).is_taken);
        assert!(filter(&["-?.tmp"]).apply(&StorePath::parse(b"/ab.tmp").unwrap(), &root, false).is_taken);
    }

    #[test]
    fn a_pattern_must_make_sense() {
        for pattern in ["", "/", "//", "a[", "{a"] {
            assert!(Filter::default().add(pattern, true).is_err(), "{pattern:?}");
        }
    }

    #[test]
    fn sizes_have_bounds() {
        let mut filter = Filter::default();
        filter.limit_sizes(1..=10);
        assert_eq!([0, 1, 10, 11].map(|size| filter.takes(size)), [false, true, true, false]);
    }
}
