//! The field `Cache-Control` of responses and requests (RFC 9111 §5.2, RFC 5861, RFC 8246).

/// Longest time that a directive expresses, in seconds: 2³¹, about 68 years (RFC 9111 §1.2.2).
pub const MAX_SECONDS: u32 = 1 << 31;

/// The directives of a message that a shared cache acts on; others are ignored.
///
/// Times are in seconds, at most [`MAX_SECONDS`]. Of a directive that occurs twice the first one counts. A response
/// whose time is not a number is stale at once (RFC 9111 §4.2.1), so that such a time is 0; but no stale response may be
/// used because of such a time, so an invalid `stale-if-error` is 0 too.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CacheControl {
    /// `max-age`: maximum age of a response, as stated by the origin, or as accepted by a client.
    pub max_age_s: Option<u32>,
    /// `s-maxage`: the same for shared caches. Like `proxy-revalidate`, it forbids stale responses.
    pub s_maxage_s: Option<u32>,
    /// `stale-if-error`: time after the end of the freshness during which a response may replace an error.
    pub stale_if_error_s: Option<u32>,
    /// `no-store`.
    pub no_store: bool,
    /// `no-cache`; also for single fields, which would need a response without them.
    pub no_cache: bool,
    /// `private`; also for single fields.
    pub private: bool,
    /// `must-revalidate`.
    pub must_revalidate: bool,
    /// `proxy-revalidate`.
    pub proxy_revalidate: bool,
    /// `immutable`.
    pub immutable: bool,
    /// `only-if-cached`, of a request.
    pub only_if_cached: bool,
}

impl CacheControl {
    /// Parses the value of a field. Lines of several fields are to be joined by commas.
    pub fn parse(text: &str) -> Self {
        let mut all = Self::default();
        for directive in directives(text) {
            let (name, value) = directive.split_once('=').unwrap_or((directive, ""));
            let set = |time: &mut Option<u32>| *time = time.or_else(|| Some(seconds(value.trim())));
            match name.trim().to_ascii_lowercase().as_str() {
                "max-age" => set(&mut all.max_age_s),
                "s-maxage" => set(&mut all.s_maxage_s),
                "stale-if-error" => set(&mut all.stale_if_error_s),
                "no-store" => all.no_store = true,
                "no-cache" => all.no_cache = true,
                "private" => all.private = true,
                "must-revalidate" => all.must_revalidate = true,
                "proxy-revalidate" => all.proxy_revalidate = true,
                "immutable" => all.immutable = true,
                "only-if-cached" => all.only_if_cached = true,
                _ => {}
            }
        }
        all
    }

    /// Returns whether a shared cache may store the response: neither `no-store` nor `private` forbids it.
    pub fn may_store(&self) -> bool {
        !self.no_store && !self.private
    }

    /// Returns how long a shared cache may use the response without asking the origin, in seconds; `None` if no
    /// directive says it (RFC 9111 §4.2.1).
    pub fn lifetime_s(&self) -> Option<u32> {
        if self.no_cache { Some(0) } else { self.s_maxage_s.or(self.max_age_s) }
    }

    /// Returns whether a shared cache must not use the response after its lifetime, even if the origin is out of reach
    /// (RFC 9111 §4.2.4, §5.2.2.10).
    pub fn forbids_stale(&self) -> bool {
        self.must_revalidate || self.proxy_revalidate || self.no_cache || self.s_maxage_s.is_some()
    }
}

/// Returns the time of a directive, with or without quotes; 0 if it is invalid.
fn seconds(value: &str) -> u32 {
    let digits = value.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap_or(value);
    match digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        true => 0,
        // A number that does not fit is larger than the maximum.
        false => digits.parse().unwrap_or(MAX_SECONDS).min(MAX_SECONDS),
    }
}

/// Splits at the commas that are not part of a quoted string (RFC 9110 §5.6.4).
fn directives(text: &str) -> impl Iterator<Item = &str> {
    let (mut is_quoted, mut is_escaped) = (false, false);
    text.split(move |character| {
        let was_escaped = std::mem::take(&mut is_escaped);
        match character {
            '\\' if is_quoted && !was_escaped => is_escaped = true,
            '"' if !was_escaped => is_quoted = !is_quoted,
            _ => {}
        }
        character == ',' && !is_quoted
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn directives_are_read_in_any_spelling() {
        let none = CacheControl::default();
        for (text, expected) in [
            ("", none),
            (" , ,", none),
            ("max-age=60", CacheControl { max_age_s: Some(60), ..none }),
            ("Max-Age=\"60\" , PUBLIC", CacheControl { max_age_s: Some(60), ..none }),
            ("max-age=60, max-age=1", CacheControl { max_age_s: Some(60), ..none }),
            ("max-age=99999999999999999999", CacheControl { max_age_s: Some(MAX_SECONDS), ..none }),
            ("max-age=4294967295", CacheControl { max_age_s: Some(MAX_SECONDS), ..none }),
            ("max-age=-1", CacheControl { max_age_s: Some(0), ..none }),
            ("max-age=+1", CacheControl { max_age_s: Some(0), ..none }),
            ("max-age=1.5", CacheControl { max_age_s: Some(0), ..none }),
            ("max-age", CacheControl { max_age_s: Some(0), ..none }),
            ("xmax-age=5, max-agex=5", none),
            ("s-maxage=10,max-age=5", CacheControl { s_maxage_s: Some(10), max_age_s: Some(5), ..none }),
            ("no-store", CacheControl { no_store: true, ..none }),
            ("private=\"set-cookie, max-age=7\"", CacheControl { private: true, ..none }),
            ("x=\"a\\\", no-store\", no-cache", CacheControl { no_cache: true, ..none }),
            ("x=\"open, no-store", none),
            ("must-revalidate, proxy-revalidate", {
                CacheControl { must_revalidate: true, proxy_revalidate: true, ..none }
            }),
            ("stale-if-error=600, immutable", {
                CacheControl { stale_if_error_s: Some(600), immutable: true, ..none }
            }),
            ("only-if-cached", CacheControl { only_if_cached: true, ..none }),
        ] {
            assert_eq!(CacheControl::parse(text), expected, "{text}");
        }
    }

    #[test]
    fn the_most_specific_directive_counts() {
        // RFC 9111 §4.2.1, §5.2.2: whether it is stored, for how long, and whether it may be stale.
        for (text, may_store, lifetime_s, forbids_stale) in [
            ("public", true, None, false),
            ("max-age=5", true, Some(5), false),
            ("max-age=5, s-maxage=10", true, Some(10), true),
            ("s-maxage=0, max-age=5", true, Some(0), true),
            ("no-cache, max-age=5", true, Some(0), true),
            ("no-cache=\"x\"", true, Some(0), true),
            ("private, max-age=5", false, Some(5), false),
            ("no-store", false, None, false),
            ("max-age=5, must-revalidate", true, Some(5), true),
            ("max-age=5, proxy-revalidate", true, Some(5), true),
        ] {
            let control = CacheControl::parse(text);
            let found = (control.may_store(), control.lifetime_s(), control.forbids_stale());
            assert_eq!(found, (may_store, lifetime_s, forbids_stale), "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_parsed(text in ".{0,200}") {
            let control = CacheControl::parse(&text);
            prop_assert!(control.lifetime_s().is_none_or(|lifetime_s| lifetime_s <= MAX_SECONDS));
        }
    }
}
