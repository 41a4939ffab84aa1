//! Parses AS paths as printed by routers; the parent module explains which parts are dropped and why.

use std::str::FromStr;

use super::SkipReason;
use towpath_alto::route::{AsPath, Hop};

/// Maximum number of hops, counting repetitions: the capacity of one path segment (RFC 4271 §4.3).
const MAX_HOPS: usize = 255;

/// How a path ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PathTerminator {
    /// With its origin code.
    Origin,
    /// With its line.
    Line,
}

/// A part of a path.
enum PathSegment<'a> {
    Number(&'a str),
    Set(&'a str),
    Brackets,
    Confederation,
    Origin,
}

/// Parses the path at the start of `text`. Numbers are decimal, or two halves with a dot (RFC 5396).
///
/// # Errors
/// [`SkipReason::PathMalformed`] if the path has invalid parts or lacks its `end`; [`SkipReason::PathTooLong`] for more
/// than 255 hops.
pub(super) fn as_path(text: &str, end: PathTerminator) -> Result<AsPath, SkipReason> {
    let mut hops = Vec::new();
    let mut rest = text.trim_start();
    while !rest.is_empty() {
        let (part, after) = split_part(rest).ok_or(SkipReason::PathMalformed)?;
        match part {
            PathSegment::Origin => return Ok(AsPath::new(hops)),
            PathSegment::Number(word) => hops.push(Hop::As(number(word)?)),
            PathSegment::Set(members) => hops.push(set(members)?),
            PathSegment::Brackets if hops.is_empty() => {}
            PathSegment::Brackets => return Err(SkipReason::PathMalformed),
            PathSegment::Confederation => {}
        }
        if hops.len() > MAX_HOPS {
            return Err(SkipReason::PathTooLong);
        }
        rest = after.trim_start();
    }
    match end {
        PathTerminator::Origin => Err(SkipReason::PathMalformed),
        PathTerminator::Line => Ok(AsPath::new(hops)),
    }
}

/// Splits the first part from `rest`, which must not start with a space. Returns `None` if the part is not closed.
fn split_part(rest: &str) -> Option<(PathSegment<'_>, &str)> {
    if let Some(inside) = rest.strip_prefix('{') {
        return inside.split_once('}').map(|(members, after)| (PathSegment::Set(members), after));
    }
    if let Some(inside) = rest.strip_prefix('[') {
        return inside.split_once(']').map(|(_, after)| (PathSegment::Brackets, after));
    }
    // A confederation set, `([1 2])` or `({1 2})`, also ends with the parenthesis.
    if let Some(inside) = rest.strip_prefix('(') {
        return inside.split_once(')').map(|(_, after)| (PathSegment::Confederation, after));
    }
    let end = rest.find(|c: char| c.is_whitespace() || "{[(,".contains(c)).unwrap_or(rest.len());
    let (word, after) = rest.split_at(end);
    let is_origin = matches!(word, "I" | "E" | "?" | "i" | "e");
    Some((if is_origin { PathSegment::Origin } else { PathSegment::Number(word) }, after))
}

/// Parses an AS set.
fn set(members: &str) -> Result<Hop, SkipReason> {
    let words = members.split(|c: char| c == ',' || c.is_whitespace()).filter(|word| !word.is_empty());
    let numbers: Box<[u32]> = words.map(number).collect::<Result<_, _>>()?;
    if numbers.is_empty() { Err(SkipReason::PathMalformed) } else { Ok(Hop::Set(numbers)) }
}

/// Parses an AS number. 0 is invalid (RFC 7607): it is a weight from a row with shifted columns.
fn number(word: &str) -> Result<u32, SkipReason> {
    let number = match word.split_once('.') {
        Some((high, low)) => digits::<u16>(high).zip(digits::<u16>(low)).map(|(high, low)| asdot(high, low)),
        None => digits(word),
    };
    number.filter(|number| *number != 0).ok_or(SkipReason::PathMalformed)
}

fn asdot(high: u16, low: u16) -> u32 {
    (u32::from(high) << 16) | u32::from(low)
}

/// Parses a number without a sign.
fn digits<N: FromStr>(word: &str) -> Option<N> {
    if word.bytes().all(|byte| byte.is_ascii_digit()) { word.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> String {
        as_path(text, PathTerminator::Origin).unwrap().to_string()
    }

    #[test]
    fn origin_codes_are_known_by_what_they_are() {
        for code in ["I", "E", "?", "i", "e"] {
            assert_eq!(read(&format!(" 20965 2091 789 {code}")), "20965 2091 789");
            assert_eq!(read(&format!("20965 {code}, validation-state: unverified 7")), "20965");
            assert_eq!(read(&format!("20965 {code} Aggregator: 64500 192.0.2.1")), "20965");
            assert_eq!(read(code), "");
        }
        assert_eq!(as_path("20965 2091", PathTerminator::Line).unwrap().to_string(), "20965 2091");
        assert_eq!(as_path(" ", PathTerminator::Line).unwrap().to_string(), "");
    }

    #[test]
    fn sets_stay_and_what_is_inside_one_as_goes() {
        assert_eq!(read("1 {789 788} I"), "1 {788,789}");
        assert_eq!(read("1 {788,789} 2 i"), "1 {788,789} 2");
        assert_eq!(read("[64496] 1 2 I"), "1 2");
        assert_eq!(read("[64496] [3] 1 2 I"), "1 2");
        assert_eq!(read("(65001 65002) 1 ([65003 65004]) 2 ({5 6}) ?"), "1 2");
        assert_eq!(read("(65001) I"), "");
        assert_eq!(read("1.10 0.7 I"), "65546 7");
    }

    #[test]
    fn what_is_no_path_is_refused() {
        for text in [
            "",
            "1 2",
            "1 {2",
            "1 {} I",
            "1 [2] I",
            "(1 I",
            "[1 I",
            "1 x I",
            "Recorded",
            "-1 I",
            "+1 I",
            "0 1 I",
            ", I",
            "1,2 I",
            "4294967296 I",
            "65536.1 I",
            "1.2.3 I",
            "1 ... I",
            "é I",
        ] {
            assert_eq!(as_path(text, PathTerminator::Origin), Err(SkipReason::PathMalformed), "{text}");
        }
    }

    #[test]
    fn a_path_has_at_most_255_hops() {
        let path = |hops: usize| format!("{}I", "7 ".repeat(hops));
        assert_eq!(read(&path(255)), "7");
        assert_eq!(as_path(&path(256), PathTerminator::Origin), Err(SkipReason::PathTooLong));
    }
}
