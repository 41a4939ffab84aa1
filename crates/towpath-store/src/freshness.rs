//! The time for which a cache may use the response of an origin without another request.

use std::sync::Arc;

use towpath_proto::http::cache_control::CacheControl;

/// The statement of an origin about the use of its response by caches, and the age of the response.
///
/// Of HTTP it has the field `Cache-Control`, with the precedence of RFC 9111 §4.2; other protocols state nothing. Times
/// are whole seconds; dates are seconds since the Unix epoch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Freshness {
    control: CacheControl,
    text: Arc<str>,
    /// When the origin generated the response, or last vouched for it.
    pub generated_s: i64,
    /// Who used the response.
    pub reuse: Reuse,
}

/// Whether a cache used a remembered version, in place of a request to the origin.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Reuse {
    /// The origin reported it now.
    #[default]
    None,
    /// A cache did.
    Cache,
    /// A cache did because the origin failed.
    Error,
}

impl Freshness {
    /// Maximum length in bytes of a statement; longer ones count as `no-cache`, because half a statement may say the
    /// opposite.
    pub const MAX_BYTES: usize = 512;

    /// Creates the statement of a `Cache-Control` in a response that is as old as `generated_s` says. An empty one
    /// states nothing.
    pub fn new(cache_control: &str, generated_s: i64) -> Self {
        let is_valid = cache_control.len() <= Self::MAX_BYTES
            && cache_control.bytes().all(|byte| matches!(byte, b'\t' | 0x20..=0x7e));
        let text = if is_valid { cache_control.trim() } else { "no-cache" };
        Self { control: CacheControl::parse(text), text: text.into(), generated_s, reuse: Reuse::None }
    }

    /// Returns the statement as a cache uses it.
    #[must_use]
    pub fn reused(self, reuse: Reuse) -> Self {
        Self { reuse, ..self }
    }

    /// Returns the statement as `Cache-Control`; empty if there is none.
    pub fn cache_control(&self) -> &str {
        &self.text
    }

    /// Returns the directives.
    pub fn control(&self) -> &CacheControl {
        &self.control
    }

    /// Returns the age at `now_s` in seconds; 0 for a date in the future.
    pub fn age_s(&self, now_s: i64) -> u64 {
        u64::try_from(now_s.saturating_sub(self.generated_s)).unwrap_or(0)
    }

    /// Returns how long it stays fresh from `now_s` on, in seconds: negative if it is stale, `None` if the origin did
    /// not say.
    pub fn remaining_s(&self, now_s: i64) -> Option<i64> {
        let age_s = i64::try_from(self.age_s(now_s)).unwrap_or(i64::MAX);
        Some(i64::from(self.control.lifetime_s()?).saturating_sub(age_s))
    }

    /// Returns whether the origin permits using it at `now_s` without a request. A date in the future, left by a clock
    /// that was set back, makes nothing fresh.
    pub fn is_fresh(&self, now_s: i64) -> bool {
        now_s >= self.generated_s && self.remaining_s(now_s).is_some_and(|remaining_s| remaining_s > 0)
    }
}

/// Directives of a request to caches (RFC 9111 §5.2.1). Stores without a cache ignore them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CacheDirectives {
    /// Fail with `TimedOut` instead of contacting an origin. Stale versions are not used either.
    pub only_if_cached: bool,
    /// Contact the origin.
    pub no_cache: bool,
    /// Contact the origin if it vouched for the version more than this number of seconds ago; with 0 always.
    pub max_age_s: Option<u32>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_statement_is_fresh_until_its_lifetime_ends() {
        for (text, age_s, is_fresh, remaining_s) in [
            ("max-age=10", 9, true, Some(1)),
            ("max-age=10", 10, false, Some(0)),
            ("max-age=10", 25, false, Some(-15)),
            ("max-age=10", -1, false, Some(10)),
            ("s-maxage=20, max-age=10", 15, true, Some(5)),
            ("no-cache, max-age=10", 0, false, Some(0)),
            ("public", 0, false, None),
            ("", 0, false, None),
        ] {
            let freshness = Freshness::new(text, 1_000_000 - age_s);
            assert_eq!(freshness.is_fresh(1_000_000), is_fresh, "{text} {age_s}");
            assert_eq!(freshness.remaining_s(1_000_000), remaining_s, "{text} {age_s}");
        }
        assert!(!Freshness::new("max-age=10", i64::MIN).is_fresh(i64::MAX));
    }

    #[test]
    fn a_statement_that_cannot_be_kept_forbids_reuse() {
        let long = format!("max-age=10, x={}", "y".repeat(Freshness::MAX_BYTES));
        for text in [long.as_str(), "max-age=10\r\nx: y", "max-age=10, \u{e4}"] {
            assert_eq!(Freshness::new(text, 0).cache_control(), "no-cache");
        }
    }
}
