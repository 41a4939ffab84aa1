//! Routes out of the text that a router, or its looking glass, prints for people.
//!
//! [`parse`] finds out which router wrote a text and reads it into a [`Table`]; [`Dialect::parse`] reads it as one
//! dialect. [`first_block`] takes the text out of a page of HTML. A line goes to the reader of its dialect, which keeps
//! the prefix and the route that are open; when the route ends it goes into the table. What was not understood
//! is told in [`Table::skipped`], with its line, and never guessed: a line that says nothing of use only ends what
//! stood before it, so that no route lands at the prefix of another.
//!
//! Choices that all dialects share:
//! - One route a prefix, the active one. Of several next hops with equal cost, the one that the router marks as chosen;
//!   if it marks none, the first.
//! - The code of a path's origin (`I`, `E`, `?`, also in lower case) is known by what it is, and what stands behind it
//!   is no part of the path. Where routers print one, a path without it was cut off and is refused.
//! - Braces are AS sets. Brackets before the path are the router's own AS or a count of hops and are dropped.
//!   Parentheses are confederation segments and are dropped, since they are inside one AS.
//! - A route that is not of BGP has an empty path.
//! - Tables of several routing instances are read as one: of two routes to a prefix the first one stays, the other is
//!   told as [`Why::Repeated`]. Who wants one instance asks the router for its table alone.
//!
//! Nothing here asks a router, keeps state between texts, or checks that a route is true. Time grows with the length of
//! the text, memory with its routes and with the lines that were skipped; no text panics.

mod bird;
mod entry;
mod frr;
mod harvest;
mod junos;
mod page;
mod path;
#[cfg(test)]
mod tests;
mod words;

use std::fmt;

use self::harvest::Harvest;
pub use self::page::first_block;
use towpath_alto::route::Route;

/// The longest line that is read, in bytes. A path of 255 numbers with ten digits needs 2805.
const MAX_LINE_BYTES: usize = 4096;

/// The most routes that are taken from one text: about three times what the whole Internet has in both families.
const MAX_ROUTES: usize = 4_000_000;

/// A form in which routers print routes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Dialect {
    /// Junos, `show route`.
    JunosTable,
    /// Junos, `show route detail`.
    JunosDetail,
    /// FRR, Quagga and Cisco IOS, `show ip bgp` and `show bgp ipv6`.
    Frr,
    /// The same, and Arista's EOS, for one prefix: `show ip bgp PREFIX`.
    FrrEntry,
    /// BIRD 1 to 3, `show route all`. The short form, `show route`, is read too, but has no paths for routes of BGP.
    Bird,
}

impl Dialect {
    /// All dialects, in the order in which they are tried.
    pub const ALL: [Self; 5] = [Self::JunosTable, Self::JunosDetail, Self::Frr, Self::FrrEntry, Self::Bird];

    /// The dialect of the first line in `text` that only one dialect has.
    pub fn detect(text: &str) -> Option<Self> {
        let mut lines = text.lines().filter(|line| line.len() <= MAX_LINE_BYTES);
        lines.find_map(|line| Self::ALL.into_iter().find(|dialect| dialect.has(line)))
    }

    /// Whether routers of this dialect print nothing when they have no route.
    pub fn is_silent(self) -> bool {
        matches!(self, Self::JunosTable | Self::JunosDetail)
    }

    /// Whether `line` tells this dialect from the others.
    fn has(self, line: &str) -> bool {
        match self {
            Self::JunosTable => junos::is_table_line(line),
            Self::JunosDetail => junos::is_detail_line(line),
            Self::Frr => frr::is_header(line),
            Self::FrrEntry => entry::is_heading(line),
            Self::Bird => bird::is_route(line),
        }
    }

    /// The routes in `text`, read as this dialect. At most 4,000,000; lines of more than 4 KiB are skipped.
    ///
    /// # Errors
    /// If there is no active route in it that could be understood. An empty table is such a text: it looks the same as
    /// an answer that was cut off.
    pub fn parse(self, text: &str) -> Result<Table, Unreadable> {
        let harvest = match self {
            Self::JunosTable => gather(text, junos::TableReader::default()),
            Self::JunosDetail => gather(text, junos::DetailReader::default()),
            Self::Frr => gather(text, frr::RowReader::default()),
            Self::FrrEntry => gather(text, entry::EntryReader::default()),
            Self::Bird => gather(text, bird::RouteReader::default()),
        };
        let table = harvest.into_table();
        if !table.routes.is_empty() {
            return Ok(table);
        }
        Err(match table.skipped.first() {
            Some(first) => Unreadable::Refused { dialect: self, first: *first },
            None => Unreadable::NoRoute { dialect: self },
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

/// The routes in `text`, in the dialect that [`Dialect::detect`] finds.
///
/// # Errors
/// If no dialect fits, and as [`Dialect::parse`].
pub fn parse(text: &str) -> Result<Table, Unreadable> {
    match Dialect::detect(text) {
        Some(dialect) => dialect.parse(text),
        None if text.trim().is_empty() => Err(Unreadable::Nothing),
        None if is_absence(text) => Err(Unreadable::Absent),
        None => Err(Unreadable::Unknown),
    }
}

/// What was read from one text.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Table {
    /// The active routes, one a prefix, in the order of the text.
    pub routes: Vec<Route>,
    /// What could not be understood, in the order of the text; at most a few for a line.
    pub skipped: Vec<Skipped>,
}

/// A line, or the route that begins there, that is not in the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Skipped {
    /// The line, the first one is 1.
    pub line: usize,
    /// Why it is not.
    pub why: Why,
}

impl fmt::Display for Skipped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.why)
    }
}

/// Why a line or a route was skipped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Why {
    /// The line has more than 4 KiB.
    #[error("the line is longer than 4 KiB")]
    LineTooLong,
    /// Where a prefix should be is something else.
    #[error("this is no IPv4 or IPv6 prefix")]
    Prefix,
    /// The line with the route's prefix is missing, or was skipped.
    #[error("the prefix of this route is not known")]
    NoPrefix,
    /// The route is of BGP, but no line with its path follows.
    #[error("this route of BGP has no AS path")]
    PathMissing,
    /// The path has no end, or something in it that is no AS.
    #[error("the AS path is cut off or malformed")]
    PathMalformed,
    /// The path has more than 255 hops.
    #[error("the AS path has more than 255 hops")]
    PathTooLong,
    /// BIRD's short form has no paths.
    #[error("the short form of BIRD has no AS paths: ask for `show route all`")]
    PathNotShown,
    /// The row does not stand below the columns of the table's header, or was cut off.
    #[error("the row does not fit the columns of the header")]
    Columns,
    /// The best route of BGP is not what the router follows (`r>`, RIB-failure).
    #[error("the router follows a route of another protocol, which this table does not have")]
    NotInstalled,
    /// The prefix already has a route, of another table.
    #[error("a route to this prefix stands further up and stays")]
    Repeated,
    /// The table does not say where packets go by their address; it is passed over.
    #[error("this is not a table of IPv4 or IPv6 routes that packets follow")]
    OtherTable,
    /// The text has more than 4,000,000 routes; the rest is not read.
    #[error("more than 4,000,000 routes: the rest is not read")]
    TooManyRoutes,
}

/// A text without any route that could be understood. It is the looking glass that is at fault, or who chose the query.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unreadable {
    /// No dialect fits.
    #[error(
        "this is not the output of a router that is known here; tried Junos `show route`, Junos `show route detail`, \
         FRR or IOS `show ip bgp`, FRR or IOS `show ip bgp PREFIX`, BIRD `show route all`"
    )]
    Unknown,
    /// Nothing is in it: some routers say so that they have no route ([`Dialect::is_silent`]), and some looking glasses that they did not reach their router.
    #[error("the looking glass printed nothing; it may not have reached its router")]
    Nothing,
    /// The router says that it has no route to what it was asked for.
    #[error("the router has no route to that")]
    Absent,
    /// Nothing in it is an active route.
    #[error("no active route in this text, which was read as {dialect}")]
    NoRoute {
        /// How it was read.
        dialect: Dialect,
    },
    /// All that might be routes was skipped.
    #[error("no route could be understood in this text, which was read as {dialect}; {first}")]
    Refused {
        /// How it was read.
        dialect: Dialect,
        /// The first thing that was skipped.
        first: Skipped,
    },
}

impl Unreadable {
    /// Whether it is an answer of the router: that it has no route.
    pub fn is_answer(&self) -> bool {
        matches!(self, Self::Absent | Self::NoRoute { .. })
    }
}

/// Whether `text` is what routers say that have no such route: FRR, IOS and BIRD 1 that the network is not in the table, later BIRD that it is not found.
fn is_absence(text: &str) -> bool {
    let text = text.to_ascii_lowercase();
    let texts = ["network not in table", "network not found"];
    text.lines().any(|line| texts.iter().any(|absence| line.contains(absence)))
}

/// What reads the lines of one dialect, one after the other.
trait Reader {
    /// Takes the next line, without its end.
    fn read(&mut self, line: &str, harvest: &mut Harvest);

    /// Ends what is open: the text ends here, or a line was lost.
    fn finish(&mut self, harvest: &mut Harvest);
}

/// What `reader` finds in `text`.
fn gather(text: &str, mut reader: impl Reader) -> Harvest {
    let mut harvest = Harvest::with_room(MAX_ROUTES);
    for line in text.lines() {
        harvest.next_line();
        if line.len() > MAX_LINE_BYTES {
            // It may have been a prefix: what follows must not land at the one before it.
            reader.finish(&mut harvest);
            harvest.skip(Why::LineTooLong);
        } else {
            reader.read(line, &mut harvest);
        }
        if harvest.is_full() {
            break;
        }
    }
    reader.finish(&mut harvest);
    harvest
}
