//! Network facts printed by a program as lines of JSON.
//!
//! ```json
//! {"route": {"router": "ex2j.cern.ch", "prefix": "134.158.84.0/24", "next-hop": "192.65.184.145", "as-path": "20965
//! 2091 789"}} {"property": {"entity": "ipv4:134.158.84.0/24", "name": "priv:country", "value": "FR"}} {"metric":
//! {"src": "137.138.0.0/16", "dst": "134.158.84.23", "metric": "delay-ow", "value": 5300}} {"metric": {"map":
//! "default", "src": "CERN", "dst": "IN2P3", "metric": "routingcost", "value": 2}} {"link": {"topology": "site",
//! "from": "edge", "to": "storage", "capacity": 100e9, "attach": {"storage": ["192.0.2.0/28"]}}} {"withdraw": {"route":
//! {"router": "ex2j.cern.ch", "prefix": "134.158.84.0/24"}}} {"commit": {}}
//! ```
//!
//! A line sets a fact, or withdraws it by its key; the last line for a key wins. [`ProgramFacts`] keeps the facts and
//! applies changes only at a commit, all since the last one together. [`LineSplitter`] splits the output of a program
//! into lines.
//!
//! Units are those of [`towpath_alto::agent_state`]. With a `map`, both ends of a metric are PIDs, otherwise addresses
//! or prefixes; between prefixes no metric can be named `src` or `dst`. `next-hop` and `as-path` are optional, as for a
//! route within the router's own AS. The prefixes served by a router cannot be set here, but by another agent.
//!
//! A program queried on demand ([`towpath_alto::delegation`]) prints the same format: metrics between addresses,
//! properties of addresses, and a commit at the end of each response ([`Reply`]).
//!
//! A link has the fields of a link in a fact file, and `attach`: the prefixes attached to its ends. It is withdrawn,
//! with its attachments, by its topology and its ends in the same order. A topology consists of its links.

mod fact_table;
mod line_splitter;
mod networks;
mod reply;
#[cfg(test)]
mod tests;
mod wire;

use self::{
    fact_table::FactTable,
    wire::{FactChange, ProgramLine},
};
pub use self::{line_splitter::LineSplitter, reply::Reply};
use towpath_alto::{
    agent_state::AgentState,
    names::{CostMetric, NodeName, ParseError, TopologyName},
    network_state::NetworkStateFault,
    topology::TopologyError,
};

/// Maximum length of a line in bytes, without its line ending.
pub const MAX_LINE_BYTES: usize = 1 << 20;

/// Maximum size of a property value, in bytes of JSON.
pub const MAX_VALUE_BYTES: usize = 4 << 10;

/// Maximum number of facts per program, including lines since the last commit: about three times the routes of the
/// whole Internet. Each attached prefix counts as one.
pub(crate) const MAX_FACTS: usize = 4_000_000;

/// Maximum number of hops in an AS path, as for all router output.
pub const MAX_HOPS: usize = 255;

/// An invalid line: its number and the error. The program that printed it is at fault.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {fault}")]
pub struct LineError {
    /// The line number, from 1.
    pub line: u64,
    /// The error.
    pub fault: LineFault,
}

/// The error in a line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LineFault {
    /// The line is longer than [`MAX_LINE_BYTES`].
    #[error("it has more than {MAX_LINE_BYTES} bytes: print one fact per line")]
    TooLong,
    /// The line is not JSON or has the wrong fields.
    #[error("{reason} (column {column})")]
    Invalid {
        /// The error, cut to 200 characters.
        reason: String,
        /// The position in bytes, from 1.
        column: usize,
    },
    /// A field is malformed.
    #[error("{0}")]
    Field(#[from] ParseError),
    /// The fact is not valid in any resource.
    #[error(transparent)]
    NetworkState(#[from] NetworkStateFault),
    /// The path of a route has more than [`MAX_HOPS`].
    #[error("the AS path has more than {MAX_HOPS} hops")]
    PathTooLong,
    /// The value of a property is longer than [`MAX_VALUE_BYTES`].
    #[error("the value has more than {MAX_VALUE_BYTES} bytes: use a smaller one")]
    ValueTooLong,
    /// A metric between prefixes has the name of one of its ends in facts.
    #[error("'{0}' is a reserved field name and cannot be a metric between prefixes: rename it to 'priv:{0}'")]
    MetricName(CostMetric),
    /// A prefix is attached to a node that is not an end of the link.
    #[error("'{0}' is not an end of the link: attach the prefix in a link of that node")]
    NoEnd(NodeName),
    /// A queried program printed a fact of a kind that cannot be requested.
    #[error("only metrics between addresses, properties of addresses and commits are valid in a response")]
    NoAnswer,
    /// The commit would create an invalid topology. Nothing is committed; pending changes remain for the next commit.
    #[error("cannot commit topology '{topology}': {error}; withdraw links and commit again")]
    Topology {
        /// The topology.
        topology: TopologyName,
        /// The reason.
        error: TopologyError,
    },
    /// The limit on facts and pending lines is reached.
    #[error("more than {MAX_FACTS} facts and lines since the last commit: commit earlier, or withdraw facts")]
    Full,
}

/// The facts set by one program. Memory grows with facts and pending lines, together at most [`MAX_FACTS`].
#[derive(Debug)]
pub struct ProgramFacts {
    known: FactTable,
    /// Changes since the last commit.
    pending: Vec<FactChange>,
    /// Number of facts in the pending changes.
    pending_facts: usize,
    /// Number of lines read.
    count: u64,
    /// Maximum number of facts and pending changes.
    room: usize,
}

impl Default for ProgramFacts {
    /// Returns an empty set.
    fn default() -> Self {
        Self::with_room(MAX_FACTS)
    }
}

impl ProgramFacts {
    /// Creates it with the given capacity.
    fn with_room(room: usize) -> Self {
        Self { known: FactTable::default(), pending: Vec::new(), pending_facts: 0, count: 0, room }
    }

    /// Processes the next line, without its line ending. Returns whether it was a commit, which changes
    /// [`Self::facts`]. Blank lines are ignored.
    ///
    /// # Errors
    /// [`LineError`]. The line counts but has no effect.
    pub fn take(&mut self, line: &[u8]) -> Result<bool, LineError> {
        self.count += 1;
        self.read(line).map_err(|fault| LineError { line: self.count, fault })
    }

    /// Returns the facts as of the last commit.
    pub fn facts(&self) -> AgentState {
        self.known.facts()
    }

    fn read(&mut self, line: &[u8]) -> Result<bool, LineFault> {
        let Some(line) = parse(line)? else { return Ok(false) };
        let Some(change) = line.into_change()? else {
            self.known.take(&mut self.pending)?;
            self.pending_facts = 0;
            return Ok(true);
        };
        let known = if change.is_withdrawal() { 0 } else { self.known.len() };
        let pending_facts = self.pending_facts + change.facts();
        if known + pending_facts > self.room {
            return Err(LineFault::Full);
        }
        self.pending_facts = pending_facts;
        self.pending.push(change);
        Ok(false)
    }
}

/// Parses a line; `None` if it is blank.
fn parse(line: &[u8]) -> Result<Option<ProgramLine>, LineFault> {
    if line.len() > MAX_LINE_BYTES {
        return Err(LineFault::TooLong);
    }
    if line.trim_ascii().is_empty() {
        return Ok(None);
    }
    serde_json::from_slice(line).map(Some).map_err(|error| invalid(&error))
}

/// Converts a JSON error.
fn invalid(error: &serde_json::Error) -> LineFault {
    let text = error.to_string();
    // The message ends with 'at line 1' regardless of the actual line.
    let reason = text.rsplit_once(" at line ").map_or(&*text, |(reason, _)| reason);
    LineFault::Invalid { reason: reason.chars().take(200).collect(), column: error.column() }
}
