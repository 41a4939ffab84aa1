//! Parses routes from the human-readable output of routers and looking glasses.
//!
//! [`parse`] detects the router's dialect and parses the text into a [`ParsedTable`]; [`Dialect::parse`] uses a given
//! dialect. [`first_block`] extracts the text from an HTML page. Lines are passed to the reader of the dialect, which
//! keeps the current prefix and route and adds completed routes to the table. Lines that cannot be parsed are
//! reported in [`ParsedTable::skipped`] with their line numbers, and never guessed. An unrecognized line ends the
//! current entry, so that no route is assigned to another prefix.
//!
//! Rules common to all dialects:
//! - One route per prefix, the active one. Of several next hops with equal cost, the one that the router marks as
//!   chosen; if it marks none, the first.
//! - Origin codes (`I`, `E`, `?`, also in lower case) end the path; text after them is ignored. In dialects that
//!   print the origin, a path without it was truncated and is rejected.
//! - Braces are AS sets. Brackets before the path contain the router's own AS or a hop count and are dropped.
//!   Parentheses are confederation segments and are dropped, since they are inside one AS.
//! - Routes of other protocols than BGP have an empty path.
//! - Tables of several routing instances are merged: the first route to a prefix is kept, the others are reported as
//!   [`SkipReason::Repeated`]. To get one instance, query the router for its table alone.
//!
//! This module does not query routers, keeps no state between texts, and does not verify routes. Time grows with the
//! length of the text, memory with its routes and skipped lines. No input panics.

mod bird;
mod entry;
mod frr;
mod junos;
mod page;
mod path;
mod table_builder;
#[cfg(test)]
mod tests;
mod words;

use std::fmt;

pub use self::page::first_block;
use self::table_builder::TableBuilder;
use towpath_alto::route::Route;

/// Maximum length of a line in bytes. A path of 255 ten-digit numbers needs 2805.
const MAX_LINE_BYTES: usize = 4096;

/// Maximum number of routes per text: about three times the routes of the whole Internet in both families.
const MAX_ROUTES: usize = 4_000_000;

/// An output format of routers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Dialect {
    /// Junos, `show route`.
    JunosTable,
    /// Junos, `show route detail`.
    JunosDetail,
    /// FRR, Quagga and Cisco IOS, `show ip bgp` and `show bgp ipv6`.
    Frr,
    /// FRR, Quagga, Cisco IOS and Arista EOS for one prefix: `show ip bgp PREFIX`.
    FrrEntry,
    /// BIRD 1 to 3, `show route all`. The short form, `show route`, is also parsed, but has no AS paths for BGP
    /// routes.
    Bird,
}

impl Dialect {
    /// All dialects, in the order of detection.
    pub const ALL: [Self; 5] = [Self::JunosTable, Self::JunosDetail, Self::Frr, Self::FrrEntry, Self::Bird];

    /// Returns the dialect of the first line in `text` that identifies one.
    pub(crate) fn detect(text: &str) -> Option<Self> {
        let mut lines = text.lines().filter(|line| line.len() <= MAX_LINE_BYTES);
        lines.find_map(|line| Self::ALL.into_iter().find(|dialect| dialect.has(line)))
    }

    /// Returns whether routers of this dialect print nothing if they have no route.
    pub fn is_silent(self) -> bool {
        matches!(self, Self::JunosTable | Self::JunosDetail)
    }

    /// Returns whether `line` identifies this dialect.
    fn has(self, line: &str) -> bool {
        match self {
            Self::JunosTable => junos::is_table_line(line),
            Self::JunosDetail => junos::is_detail_line(line),
            Self::Frr => frr::is_header(line),
            Self::FrrEntry => entry::is_heading(line),
            Self::Bird => bird::is_route(line),
        }
    }

    /// Parses the routes in `text` as this dialect, at most 4,000,000. Lines longer than 4 KiB are skipped.
    ///
    /// # Errors
    /// If the text has no active route that can be parsed. This includes an empty table, which cannot be
    /// distinguished from truncated output.
    pub fn parse(self, text: &str) -> Result<ParsedTable, LookingGlassError> {
        let builder = match self {
            Self::JunosTable => gather(text, junos::TableReader::default()),
            Self::JunosDetail => gather(text, junos::DetailReader::default()),
            Self::Frr => gather(text, frr::RowReader::default()),
            Self::FrrEntry => gather(text, entry::EntryReader::default()),
            Self::Bird => gather(text, bird::RouteReader::default()),
        };
        let table = builder.into_table();
        if !table.routes.is_empty() {
            return Ok(table);
        }
        Err(match table.skipped.first() {
            Some(first) => LookingGlassError::Refused { dialect: self, first: *first },
            None => LookingGlassError::NoRoute { dialect: self },
        })
    }
}

impl fmt::Display for Dialect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::JunosTable => "Junos `show route`",
            Self::JunosDetail => "Junos `show route detail`",
            Self::Frr => "FRR or IOS `show ip bgp`",
            Self::FrrEntry => "FRR or IOS `show ip bgp PREFIX`",
            Self::Bird => "BIRD `show route all`",
        })
    }
}

/// Detects the dialect of `text` and parses its routes.
///
/// # Errors
/// If no dialect is detected, and as for [`Dialect::parse`].
pub fn parse(text: &str) -> Result<ParsedTable, LookingGlassError> {
    match Dialect::detect(text) {
        Some(dialect) => dialect.parse(text),
        None if text.trim().is_empty() => Err(LookingGlassError::Nothing),
        None if is_absence(text) => Err(LookingGlassError::Absent),
        None => Err(LookingGlassError::Unknown),
    }
}

/// The result of parsing one text.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ParsedTable {
    /// The active routes, one per prefix, in text order.
    pub routes: Vec<Route>,
    /// Skipped lines and routes, in text order; at most a few per line.
    pub skipped: Vec<SkippedLine>,
}

/// A line that was skipped, or the first line of a skipped route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SkippedLine {
    /// The line number, from 1.
    pub line: usize,
    /// The reason.
    pub reason: SkipReason,
}

impl fmt::Display for SkippedLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.reason)
    }
}

/// Reason why a line or a route was skipped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum SkipReason {
    /// The line is longer than 4 KiB.
    #[error("the line is longer than 4 KiB")]
    LineTooLong,
    /// The text in place of a prefix is not a prefix.
    #[error("this is not an IPv4 or IPv6 prefix")]
    Prefix,
    /// The line with the route's prefix is missing or was skipped.
    #[error("the prefix of this route is unknown")]
    NoPrefix,
    /// A BGP route without a line for its AS path.
    #[error("this BGP route has no AS path")]
    PathMissing,
    /// The AS path is truncated or contains an invalid AS.
    #[error("the AS path is truncated or malformed")]
    PathMalformed,
    /// The AS path has more than 255 hops.
    #[error("the AS path has more than 255 hops")]
    PathTooLong,
    /// BIRD's short form omits AS paths.
    #[error("the short form of BIRD has no AS paths: use `show route all`")]
    PathNotShown,
    /// The row does not match the columns of the header, or was truncated.
    #[error("the row does not match the columns of the header")]
    Columns,
    /// The best BGP route is not installed (`r>`, RIB-failure).
    #[error("the installed route is of another protocol and not in this table")]
    NotInstalled,
    /// The prefix already has a route from another table.
    #[error("there is an earlier route to this prefix")]
    Repeated,
    /// The table is not used for forwarding by destination address and is skipped.
    #[error("this table is not used to forward IPv4 or IPv6 packets")]
    OtherTable,
    /// The text has more than 4,000,000 routes; the rest is not read.
    #[error("more than 4,000,000 routes: the rest is not read")]
    TooManyRoutes,
}

/// A text without any valid route. The looking glass or the query is at fault.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LookingGlassError {
    /// No dialect was detected.
    #[error(
        "unknown router output; tried Junos `show route`, Junos `show route detail`, \
         FRR or IOS `show ip bgp`, FRR or IOS `show ip bgp PREFIX`, BIRD `show route all`"
    )]
    Unknown,
    /// The text is empty. Some routers print nothing if they have no route ([`Dialect::is_silent`]), and some looking
    /// glasses if they cannot reach their router.
    #[error("the looking glass printed nothing; it may not have reached its router")]
    Nothing,
    /// The router reports that it has no matching route.
    #[error("the router has no matching route")]
    Absent,
    /// The text has no active route.
    #[error("no active route in this text, parsed as {dialect}")]
    NoRoute {
        /// The dialect used.
        dialect: Dialect,
    },
    /// All possible routes were skipped.
    #[error("no valid route in this text, parsed as {dialect}; {first}")]
    Refused {
        /// The dialect used.
        dialect: Dialect,
        /// The first skipped line.
        first: SkippedLine,
    },
}

impl LookingGlassError {
    /// Returns whether the router answered that it has no route.
    pub(crate) fn is_answer(&self) -> bool {
        matches!(self, Self::Absent | Self::NoRoute { .. })
    }
}

/// Returns whether `text` is a message that there is no such route: FRR, IOS and BIRD 1 print that the network is not
/// in the table, later BIRD versions that it is not found.
fn is_absence(text: &str) -> bool {
    let text = text.to_ascii_lowercase();
    let texts = ["network not in table", "network not found"];
    text.lines().any(|line| texts.iter().any(|absence| line.contains(absence)))
}

/// Parses the lines of one dialect in order.
trait Reader {
    /// Parses the next line, without its line ending.
    fn read(&mut self, line: &str, builder: &mut TableBuilder);

    /// Ends the current entry, at the end of the text or after a lost line.
    fn finish(&mut self, builder: &mut TableBuilder);
}

/// Runs `reader` over `text`.
fn gather(text: &str, mut reader: impl Reader) -> TableBuilder {
    let mut builder = TableBuilder::with_room(MAX_ROUTES);
    for line in text.lines() {
        builder.next_line();
        if line.len() > MAX_LINE_BYTES {
            // It may have been a prefix line: later routes must not be assigned to the previous prefix.
            reader.finish(&mut builder);
            builder.skip(SkipReason::LineTooLong);
        } else {
            reader.read(line, &mut builder);
        }
        if builder.is_full() {
            break;
        }
    }
    reader.finish(&mut builder);
    builder
}
