//! Routes of a router to prefixes, as learned from routing protocols.

use std::{fmt, net::IpAddr, str::FromStr, sync::Arc};

use ipnet::IpNet;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::names::ParseError;

/// One element of an AS path.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Hop {
    /// An autonomous system.
    As(u32),
    /// An unordered set of autonomous systems (`AS_SET`), sorted ascending.
    Set(Box<[u32]>),
}

/// The autonomous systems on the path to a prefix, nearest first, without consecutive repetitions (prepending), which
/// say nothing about the path.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct AsPath(Arc<[Hop]>);

impl AsPath {
    /// Creates the path through `hops`. Prepending is removed, and sets are sorted.
    pub fn new(hops: impl IntoIterator<Item = Hop>) -> Self {
        let mut path: Vec<Hop> = hops.into_iter().map(Hop::into_sorted).collect();
        path.dedup();
        Self(path.into())
    }

    /// Returns the hops.
    pub fn hops(&self) -> &[Hop] {
        &self.0
    }
}

impl Hop {
    fn into_sorted(self) -> Self {
        match self {
            Hop::Set(mut members) => {
                members.sort_unstable();
                Hop::Set(members)
            }
            hop => hop,
        }
    }
}

impl FromIterator<u32> for AsPath {
    fn from_iter<I: IntoIterator<Item = u32>>(numbers: I) -> Self {
        Self::new(numbers.into_iter().map(Hop::As))
    }
}

/// Writes the format printed by routers: numbers, sets in braces.
impl fmt::Display for AsPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, hop) in self.0.iter().enumerate() {
            let blank = if position == 0 { "" } else { " " };
            match hop {
                Hop::As(number) => write!(f, "{blank}{number}")?,
                Hop::Set(members) => {
                    let members: Vec<_> = members.iter().map(u32::to_string).collect();
                    write!(f, "{blank}{{{}}}", members.join(","))?;
                }
            }
        }
        Ok(())
    }
}

/// Parses numbers, and sets in braces whose members are separated by commas or blanks: `20965 2091 {789,790}`.
impl FromStr for AsPath {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let malformed = || ParseError::new("AS path", text, "numbers, sets of them in braces");
        let mut hops = Vec::new();
        let mut rest = text.trim_start();
        while !rest.is_empty() {
            let (inside, after) = match rest.strip_prefix('{') {
                Some(set) => set.split_once('}').ok_or_else(malformed)?,
                None => rest.split_at(rest.find([' ', '{']).unwrap_or(rest.len())),
            };
            let numbers = inside.split([',', ' ']).filter(|number| !number.is_empty());
            let numbers: Vec<u32> = numbers.map(str::parse).collect::<Result<_, _>>().map_err(|_| malformed())?;
            hops.push(match (rest.starts_with('{'), &*numbers) {
                (true, [_, ..]) => Hop::Set(numbers.into()),
                (false, [number]) => Hop::As(*number),
                _ => return Err(malformed()),
            });
            rest = after.trim_start();
        }
        Ok(Self::new(hops))
    }
}

impl Serialize for AsPath {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for AsPath {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

/// The best route of one router to one prefix.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Route {
    /// Destination.
    pub prefix: IpNet,
    /// Next router, if known.
    pub next_hop: Option<IpAddr>,
    /// Path after the next hop; empty within the router's own AS.
    pub as_path: AsPath,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_printed_as_they_are_read() {
        for text in ["", "20965 2091 789", "20965 {789,790}", "{1} 2"] {
            assert_eq!(text.parse::<AsPath>().unwrap().to_string(), text);
        }
        assert_eq!(" 7  7 8{3 1}".parse::<AsPath>().unwrap().to_string(), "7 8 {1,3}");
        for text in ["1 x", "{", "{}", "{1", "-1", "4294967296", "1}"] {
            assert!(text.parse::<AsPath>().is_err(), "{text}");
        }
    }
}
