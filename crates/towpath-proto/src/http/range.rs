//! Byte ranges of requests, responses and partial uploads (RFC 9110 §14).
//!
//! A server parses `Range` with [`RangeRequest::parse`] and converts it to offsets with [`RangeRequest::resolve`]; a
//! client formats it with `Display`. [`ContentRange`] describes the body of a response or of a resumed upload.

use std::{fmt, ops::Range};

/// Maximum number of ranges of a request, the same as in a vector read of XRootD.
pub const MAX_RANGES: usize = 1024;

/// Maximum number of ranges of a request that start inside another one (RFC 9110 §14.2 advises against more than two).
const MAX_OVERLAPS: usize = 2;

/// One range of a `Range` field, relative to a file of unknown size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RangeSpec {
    /// `first-last`, both inclusive.
    Between(u64, u64),
    /// `first-`: from this offset to the end.
    From(u64),
    /// `-length`: this number of bytes at the end.
    Suffix(u64),
}

/// The value of a `Range` field in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RangeRequest(Vec<RangeSpec>);

/// Result of resolving a `Range` field for a file of known size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Resolution {
    /// Respond with 200 and the whole file.
    Whole,
    /// Respond with 206 and these ranges, in request order; at least one, none empty, all inside the file.
    Partial(Vec<Range<u64>>),
    /// Respond with 416 and [`ContentRange::Unsatisfied`].
    Unsatisfiable,
    /// Respond with 400: more than [`MAX_RANGES`], or many overlapping ranges, which only an attack uses.
    Abusive,
}

impl RangeRequest {
    /// Creates a request for ranges; `None` if there are none, or a range ends before its start.
    pub fn new(specs: Vec<RangeSpec>) -> Option<Self> {
        let valid = |spec: &RangeSpec| !matches!(spec, RangeSpec::Between(first, last) if first > last);
        (!specs.is_empty() && specs.iter().all(valid)).then_some(Self(specs))
    }

    /// Creates a request for `offset..offset + bytes`; `None` if that is empty or exceeds 2^64 - 1.
    pub fn of(offset: u64, bytes: u64) -> Option<Self> {
        Self::new(vec![RangeSpec::Between(offset, offset.checked_add(bytes.checked_sub(1)?)?)])
    }

    /// Parses the value of a `Range` field.
    ///
    /// `None` if the unit is not bytes or the grammar is violated: then the field must be ignored (§14.2). Memory is
    /// bounded by the length of the text; [`RangeRequest::resolve`] checks the number of ranges.
    pub fn parse(value: &str) -> Option<Self> {
        let (unit, set) = value.trim().split_once('=')?;
        if !unit.trim_end().eq_ignore_ascii_case("bytes") {
            return None;
        }
        let elements = set.split(',').map(str::trim).filter(|element| !element.is_empty());
        Self::new(elements.map(parse_spec).collect::<Option<_>>()?)
    }

    /// Returns the requested ranges.
    pub fn specs(&self) -> &[RangeSpec] {
        &self.0
    }

    /// Returns the offsets in a file of `size` bytes. Ranges beyond its end are omitted.
    pub fn resolve(&self, size: u64) -> Resolution {
        if self.0.len() > MAX_RANGES {
            return Resolution::Abusive;
        }
        let ranges: Vec<_> = self.0.iter().filter_map(|spec| spec.resolve(size)).collect();
        if ranges.is_empty() {
            let suffix = self.0.iter().any(|spec| matches!(spec, RangeSpec::Suffix(1..)));
            // The last bytes of an empty file are satisfiable, but `Content-Range` cannot express an empty range.
            return if size == 0 && suffix { Resolution::Whole } else { Resolution::Unsatisfiable };
        }
        if overlaps(&ranges) > MAX_OVERLAPS {
            return Resolution::Abusive;
        }
        Resolution::Partial(ranges)
    }
}

impl RangeSpec {
    /// Returns the offsets in a file of `size` bytes, if there are any.
    fn resolve(self, size: u64) -> Option<Range<u64>> {
        let range = match self {
            RangeSpec::Between(first, last) => first..last.saturating_add(1).min(size),
            RangeSpec::From(first) => first..size,
            RangeSpec::Suffix(length) => size.saturating_sub(length)..size,
        };
        (!range.is_empty()).then_some(range)
    }
}

/// Returns the number of ranges that start before the end of an earlier one.
fn overlaps(ranges: &[Range<u64>]) -> usize {
    let mut sorted = ranges.to_vec();
    sorted.sort_unstable_by_key(|range| range.start);
    let mut end = 0;
    let mut count = 0;
    for range in sorted {
        count += usize::from(range.start < end);
        end = end.max(range.end);
    }
    count
}

fn parse_spec(element: &str) -> Option<RangeSpec> {
    let (first, last) = element.split_once('-')?;
    match (first.trim_end(), last.trim_start()) {
        ("", "") => None,
        ("", length) => parse_number(length).map(RangeSpec::Suffix),
        (first, "") => parse_number(first).map(RangeSpec::From),
        (first, last) => Some(RangeSpec::Between(parse_number(first)?, parse_number(last)?)),
    }
}

/// Parses digits only: `u64::from_str` would also accept a plus sign.
fn parse_number(digits: &str) -> Option<u64> {
    let only_digits = !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_digit());
    only_digits.then(|| digits.parse().ok())?
}

impl fmt::Display for RangeRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("bytes=")?;
        for (index, spec) in self.0.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            match spec {
                RangeSpec::Between(first, last) => write!(f, "{comma}{first}-{last}")?,
                RangeSpec::From(first) => write!(f, "{comma}{first}-")?,
                RangeSpec::Suffix(length) => write!(f, "{comma}-{length}")?,
            }
        }
        Ok(())
    }
}

/// The value of a `Content-Range` field (RFC 9110 §14.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContentRange {
    /// `bytes first-last/size`: the body is this part.
    Part {
        /// The first offset.
        first: u64,
        /// The last offset, inclusive, not before `first`.
        last: u64,
        /// Size of the whole file, greater than `last`; `None` for `*`, unknown.
        size: Option<u64>,
    },
    /// `bytes */size`: in a 416 response, or in an upload that queries its offset.
    Unsatisfied {
        /// Size of the whole file.
        size: u64,
    },
}

impl ContentRange {
    /// Creates the part `range`, which must not be empty, of a file of `size` bytes; `None` if it is not inside the
    /// file.
    pub fn part(range: &Range<u64>, size: Option<u64>) -> Option<Self> {
        let inside = !range.is_empty() && size.is_none_or(|size| range.end <= size);
        inside.then(|| Self::Part { first: range.start, last: range.end - 1, size })
    }

    /// Parses the value of a field; `None` if its unit is not bytes, it violates the grammar, or it contradicts itself.
    pub fn parse(value: &str) -> Option<Self> {
        let (unit, rest) = value.trim().split_once([' ', '='])?;
        if !unit.eq_ignore_ascii_case("bytes") {
            return None;
        }
        let (range, size) = rest.trim().split_once('/')?;
        let size = match size.trim() {
            "*" => None,
            digits => Some(parse_number(digits)?),
        };
        if range.trim() == "*" {
            return Some(Self::Unsatisfied { size: size? });
        }
        let (first, last) = range.split_once('-')?;
        let (first, last) = (parse_number(first.trim())?, parse_number(last.trim())?);
        let consistent = first <= last && last < u64::MAX && size.is_none_or(|size| last < size);
        consistent.then_some(Self::Part { first, last, size })
    }

    /// Returns the offsets that the body covers, if any.
    pub fn offsets(&self) -> Option<Range<u64>> {
        match self {
            Self::Part { first, last, .. } => Some(*first..last.saturating_add(1)),
            Self::Unsatisfied { .. } => None,
        }
    }

    /// Returns the size of the whole file, if it is known.
    pub fn size(&self) -> Option<u64> {
        match self {
            Self::Part { size, .. } => *size,
            Self::Unsatisfied { size } => Some(*size),
        }
    }
}

/// Returns the size of the file in a `Content-Range` field, even if the field contradicts itself: XRootD (seen with
/// 5.5.3) announces bytes beyond the end of a file, but a correct size.
pub fn complete_length(value: &str) -> Option<u64> {
    parse_number(value.rsplit_once('/')?.1.trim())
}

impl fmt::Display for ContentRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Part { first, last, size: Some(size) } => write!(f, "bytes {first}-{last}/{size}"),
            Self::Part { first, last, size: None } => write!(f, "bytes {first}-{last}/*"),
            Self::Unsatisfied { size } => write!(f, "bytes */{size}"),
        }
    }
}

#[cfg(test)]
mod tests;
