//! Conditional requests (RFC 9110 §13): evaluates a request's conditions against the current version of its target.
//!
//! The server collects the request's fields in [`Conditions`], describes the target with [`Validators`], and calls
//! [`Conditions::evaluate`], which follows the order of RFC 9110 §13.2.2. `If-Range` is evaluated after that and only
//! decides whether the `Range` field applies: [`IfRange::holds`].

use std::fmt;

use super::date;

/// Request field of towpath's client that pins the version of a file without identifying it: a server that supports the
/// field treats the request like one with a true condition, and aborts it if the file changes during the response.
pub const PIN_FIELD: &str = "towpath-pin";

/// Maximum number of entity tags in a list; longer lists are rejected.
const MAX_TAGS: usize = 256;

/// An entity tag (RFC 9110 §8.8.3): identifies a version of a file.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct EntityTag {
    weak: bool,
    opaque: String,
}

/// Error for a field that violates its grammar; the request must be rejected with 400.
///
/// Such a field is never ignored: without its `If-Match` an upload would overwrite another client's file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the value of the field {0} is not a list of entity tags")]
pub struct InvalidCondition(&'static str);

impl EntityTag {
    /// Creates a tag that changes with every change of the bytes; `None` if the text contains characters that are not
    /// allowed in a tag.
    pub fn strong(opaque: impl Into<String>) -> Option<Self> {
        Self::checked(false, opaque.into())
    }

    /// Creates a tag that may be equal for semantically equivalent versions.
    pub fn weak(opaque: impl Into<String>) -> Option<Self> {
        Self::checked(true, opaque.into())
    }

    fn checked(weak: bool, opaque: String) -> Option<Self> {
        // etagc of RFC 9110 §8.8.3; bytes from 0x80 are obs-text.
        let valid = opaque.bytes().all(|byte| matches!(byte, 0x21 | 0x23..=0x7e | 0x80..));
        valid.then_some(Self { weak, opaque })
    }

    /// Parses a single tag: `"..."` or `W/"..."`.
    pub fn parse(text: &str) -> Option<Self> {
        let (tag, rest) = Self::parse_first(text.trim())?;
        rest.is_empty().then_some(tag)
    }

    /// Parses the tag at the start of the text; returns it and the remaining text.
    fn parse_first(text: &str) -> Option<(Self, &str)> {
        let (weak, quoted) = match text.strip_prefix("W/") {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        let (opaque, rest) = quoted.strip_prefix('"')?.split_once('"')?;
        Some((Self::checked(weak, opaque.to_owned())?, rest))
    }

    /// Returns whether the tag is weak.
    pub fn is_weak(&self) -> bool {
        self.weak
    }

    /// Returns the text between the quotes.
    pub fn opaque(&self) -> &str {
        &self.opaque
    }

    /// Returns whether both tags are strong and equal, so that the bytes are the same (RFC 9110 §8.8.3.2).
    pub fn matches_strongly(&self, other: &EntityTag) -> bool {
        !self.weak && !other.weak && self.opaque == other.opaque
    }

    /// Returns whether the tags are equal apart from weakness, so that the versions are equivalent.
    pub(crate) fn matches_weakly(&self, other: &EntityTag) -> bool {
        self.opaque == other.opaque
    }
}

impl fmt::Display for EntityTag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}\"{}\"", if self.weak { "W/" } else { "" }, self.opaque)
    }
}

/// The value of `If-Match` or `If-None-Match`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tags {
    /// `*`: any version.
    Any,
    /// One of these versions.
    These(Vec<EntityTag>),
}

impl Tags {
    fn parse(value: &str) -> Option<Self> {
        let mut rest = value.trim();
        if rest == "*" {
            return Some(Tags::Any);
        }
        let mut tags = Vec::new();
        loop {
            // Empty list elements are allowed (RFC 9110 §5.6.1.2).
            rest = rest.trim_start_matches([',', ' ', '\t']);
            if rest.is_empty() {
                break;
            }
            let (tag, after) = EntityTag::parse_first(rest)?;
            rest = after.trim_start();
            if tags.len() == MAX_TAGS || !(rest.is_empty() || rest.starts_with(',')) {
                return None;
            }
            tags.push(tag);
        }
        (!tags.is_empty()).then_some(Tags::These(tags))
    }
}

/// Existence, version and modification time of the target of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Validators {
    /// Whether the file exists.
    pub exists: bool,
    /// Its current version.
    pub etag: Option<EntityTag>,
    /// Time of the last change in Unix seconds.
    pub modified_s: Option<i64>,
}

/// The conditions of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Conditions {
    if_match: Option<Tags>,
    if_none_match: Option<Tags>,
    if_modified_since_s: Option<i64>,
    if_unmodified_since_s: Option<i64>,
}

/// Result of evaluating a conditional request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Process the request.
    Proceed,
    /// Respond with 304, without a body.
    NotModified,
    /// Respond with 412.
    PreconditionFailed,
}

impl Conditions {
    /// Creates the conditions from the fields of a request, if present; the lines of each field are joined by commas.
    ///
    /// Invalid dates are ignored (RFC 9110 §13.1.3, §13.1.4), invalid lists of tags are errors.
    pub fn new(
        if_match: Option<&str>,
        if_none_match: Option<&str>,
        if_modified_since: Option<&str>,
        if_unmodified_since: Option<&str>,
    ) -> Result<Self, InvalidCondition> {
        let tags = |name, value: Option<&str>| match value {
            Some(value) => Tags::parse(value).map(Some).ok_or(InvalidCondition(name)),
            None => Ok(None),
        };
        Ok(Self {
            if_match: tags("If-Match", if_match)?,
            if_none_match: tags("If-None-Match", if_none_match)?,
            if_modified_since_s: if_modified_since.and_then(date::parse),
            if_unmodified_since_s: if_unmodified_since.and_then(date::parse),
        })
    }

    /// Returns whether there are no conditions.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Evaluates the conditions in the order of RFC 9110 §13.2.2; `is_read` is true for GET and HEAD.
    pub fn evaluate(&self, is_read: bool, target: &Validators) -> Decision {
        let unchanged_since = |since: i64| target.modified_s.is_some_and(|modified| modified <= since);
        let may_proceed = match (&self.if_match, self.if_unmodified_since_s) {
            (Some(tags), _) => target.is_one_of(tags, EntityTag::matches_strongly),
            // Without a modification date the field is ignored (§13.1.4).
            (None, Some(since)) => target.modified_s.is_none() || unchanged_since(since),
            (None, None) => true,
        };
        if !may_proceed {
            return Decision::PreconditionFailed;
        }
        let client_has_it = match (&self.if_none_match, self.if_modified_since_s) {
            (Some(tags), _) => target.is_one_of(tags, EntityTag::matches_weakly),
            (None, Some(since)) => is_read && unchanged_since(since),
            (None, None) => false,
        };
        match (client_has_it, is_read) {
            (false, _) => Decision::Proceed,
            (true, true) => Decision::NotModified,
            (true, false) => Decision::PreconditionFailed,
        }
    }
}

impl Validators {
    fn is_one_of(&self, tags: &Tags, same: fn(&EntityTag, &EntityTag) -> bool) -> bool {
        match tags {
            Tags::Any => self.exists,
            Tags::These(tags) => self.etag.as_ref().is_some_and(|current| tags.iter().any(|tag| same(tag, current))),
        }
    }
}

/// The value of `If-Range` (RFC 9110 §13.1.5): send the range if the version is unchanged, otherwise the whole file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IfRange {
    /// The version must have this tag.
    Tag(EntityTag),
    /// The version must have exactly this modification time (Unix seconds).
    Date(i64),
}

impl IfRange {
    /// Parses a tag or a date. Any other value never holds: `None` means that the `Range` field must be ignored.
    pub fn parse(value: &str) -> Option<Self> {
        EntityTag::parse(value).map(IfRange::Tag).or_else(|| date::parse(value).map(IfRange::Date))
    }

    /// Returns whether the `Range` field applies.
    ///
    /// `now_s` (Unix seconds) is the time of the response: a date less than a second old cannot distinguish two
    /// versions, because the file may change again within that second (RFC 9110 §8.8.2.2).
    pub fn holds(&self, target: &Validators, now_s: i64) -> bool {
        match self {
            IfRange::Tag(tag) => target.etag.as_ref().is_some_and(|current| current.matches_strongly(tag)),
            IfRange::Date(date) => target.modified_s == Some(*date) && *date < now_s,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn tag(text: &str) -> EntityTag {
        EntityTag::parse(text).unwrap()
    }

    fn target(etag: &str, modified_s: i64) -> Validators {
        Validators { exists: true, etag: Some(tag(etag)), modified_s: Some(modified_s) }
    }

    #[test]
    fn tags_are_read_exactly() {
        assert_eq!(tag("\"a,b\""), EntityTag::strong("a,b").unwrap());
        assert_eq!(tag(" W/\"\" "), EntityTag::weak("").unwrap());
        for text in ["", "a", "\"", "\"a", "w/\"a\"", "\"a\"b", "\"a b\"", "\"a\u{1}\"", "*"] {
            assert_eq!(EntityTag::parse(text), None, "{text:?}");
        }
        assert!(EntityTag::strong("a\"b").is_none());
    }

    #[test]
    fn lists_of_tags_are_read_with_their_commas() {
        let these = |list: &[&str]| Some(Tags::These(list.iter().map(|text| tag(text)).collect()));
        assert_eq!(Tags::parse("\"a,b\" , ,W/\"c\""), these(&["\"a,b\"", "W/\"c\""]));
        assert_eq!(Tags::parse(" * "), Some(Tags::Any));
        for text in ["", ",", "*, \"a\"", "\"a\" \"b\"", "a", "\"a\",b"] {
            assert_eq!(Tags::parse(text), None, "{text:?}");
        }
        assert!(Tags::parse(&"\"a\",".repeat(MAX_TAGS)).is_some());
        assert!(Tags::parse(&"\"a\",".repeat(MAX_TAGS + 1)).is_none());
        assert_eq!(Conditions::new(Some("x"), None, None, None), Err(InvalidCondition("If-Match")));
    }

    /// RFC 9110 §13.1 and §13.2.2, row by row. Time 100 is `Thu, 01 Jan 1970 00:01:40 GMT`.
    #[test]
    fn conditions_are_evaluated_in_their_order() {
        use Decision::*;
        const AT_100: &str = "Thu, 01 Jan 1970 00:01:40 GMT";
        let (strong, weak) = (target("\"v1\"", 100), target("W/\"v1\"", 101));
        let nothing = Validators { exists: false, etag: None, modified_s: None };
        // If-Match, If-None-Match, If-Modified-Since, If-Unmodified-Since; target; decision for GET, for PUT.
        type Row<'a> = ([Option<&'a str>; 4], &'a Validators, Decision, Decision);
        let rows: [Row<'_>; 18] = [
            ([None, None, None, None], &strong, Proceed, Proceed),
            ([Some("\"v0\", \"v1\""), None, None, None], &strong, Proceed, Proceed),
            ([Some("\"v0\""), None, None, None], &strong, PreconditionFailed, PreconditionFailed),
            ([Some("W/\"v1\""), None, None, None], &weak, PreconditionFailed, PreconditionFailed),
            ([Some("*"), None, None, None], &strong, Proceed, Proceed),
            ([Some("*"), None, None, None], &nothing, PreconditionFailed, PreconditionFailed),
            ([Some("\"v1\""), None, None, Some("Thu, 01 Jan 1970 00:00:00 GMT")], &strong, Proceed, Proceed),
            ([None, None, None, Some(AT_100)], &strong, Proceed, Proceed),
            ([None, None, None, Some(AT_100)], &weak, PreconditionFailed, PreconditionFailed),
            ([None, None, None, Some("yesterday")], &weak, Proceed, Proceed),
            ([None, Some("\"v1\""), None, None], &strong, NotModified, PreconditionFailed),
            ([None, Some("\"v1\""), None, None], &weak, NotModified, PreconditionFailed),
            ([None, Some("\"v0\""), Some(AT_100), None], &strong, Proceed, Proceed),
            ([None, Some("*"), None, None], &strong, NotModified, PreconditionFailed),
            ([None, Some("*"), None, None], &nothing, Proceed, Proceed),
            ([None, None, Some(AT_100), None], &strong, NotModified, Proceed),
            ([None, None, Some(AT_100), None], &weak, Proceed, Proceed),
            ([Some("\"v1\""), Some("\"v1\""), None, None], &strong, NotModified, PreconditionFailed),
        ];
        for ([matches, none_matches, modified, unmodified], target, get, put) in rows {
            let conditions = Conditions::new(matches, none_matches, modified, unmodified).unwrap();
            assert_eq!(conditions.evaluate(true, target), get, "GET {conditions:?} {target:?}");
            assert_eq!(conditions.evaluate(false, target), put, "PUT {conditions:?} {target:?}");
        }
        assert!(Conditions::new(None, None, Some("x"), None).unwrap().is_empty());
    }

    #[test]
    fn a_range_counts_only_for_the_very_same_version() {
        let holds = |value: &str, target: &Validators| IfRange::parse(value).unwrap().holds(target, 101);
        assert!(holds("\"v1\"", &target("\"v1\"", 0)));
        assert!(!holds("\"v2\"", &target("\"v1\"", 0)));
        assert!(!holds("W/\"v1\"", &target("W/\"v1\"", 0)));
        assert!(holds("Thu, 01 Jan 1970 00:01:40 GMT", &target("\"v\"", 100)));
        assert!(!holds("Thu, 01 Jan 1970 00:01:41 GMT", &target("\"v\"", 100)));
        assert!(!holds("Thu, 01 Jan 1970 00:01:41 GMT", &target("\"v\"", 101)), "changed within this second");
        assert_eq!(IfRange::parse("v1"), None);
    }

    proptest! {
        #[test]
        fn tags_round_trip(weak: bool, opaque in "[!#-~é]{0,12}") {
            let tag = EntityTag::checked(weak, opaque).unwrap();
            prop_assert_eq!(EntityTag::parse(&tag.to_string()), Some(tag.clone()));
            prop_assert_eq!(Tags::parse(&format!("{tag},{tag}")), Some(Tags::These(vec![tag.clone(), tag])));
        }

        #[test]
        fn no_text_panics(text in "[W/\",* a\\\\\\PC]{0,24}") {
            let _ = Conditions::new(Some(&text), Some(&text), Some(&text), Some(&text));
            let _ = IfRange::parse(&text);
        }
    }
}
