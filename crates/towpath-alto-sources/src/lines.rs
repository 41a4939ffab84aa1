//! What a program tells of the network, in lines of JSON.
//!
//! ```json
//! {"route": {"router": "ex2j.cern.ch", "prefix": "134.158.84.0/24", "next-hop": "192.65.184.145", "as-path": "20965 2091 789"}}
//! {"property": {"entity": "ipv4:134.158.84.0/24", "name": "priv:country", "value": "FR"}}
//! {"metric": {"src": "137.138.0.0/16", "dst": "134.158.84.23", "metric": "delay-ow", "value": 5300}}
//! {"metric": {"map": "default", "src": "CERN", "dst": "IN2P3", "metric": "routingcost", "value": 2}}
//! {"link": {"topology": "site", "from": "edge", "to": "storage", "capacity": 100e9, "attach": {"storage": ["192.0.2.0/28"]}}}
//! {"withdraw": {"route": {"router": "ex2j.cern.ch", "prefix": "134.158.84.0/24"}}}
//! {"commit": {}}
//! ```
//!
//! A line tells something, or takes it back by its key; the last one of a key holds. [`Lines`] keeps what was told, and changes nothing of it
//! before a line commits: then all since the last commit holds at once. [`Cutter`] cuts what a program prints into lines.
//!
//! Units are those of [`towpath_alto::facts`]. Between PIDs of a `map`, both ends of a metric are names, else addresses or prefixes, where no metric
//! can be called `src` or `dst`. `next-hop` and `as-path` may be absent, as for a route within the router's own AS. Which prefixes a router serves is not told here; another agent can.
//!
//! A program that is asked when a request comes ([`towpath_alto::delegation`]) prints the same: metrics between addresses and properties of addresses, and a commit at the end of
//! each answer ([`Reply`]).
//!
//! A link has the fields of one in a file of facts, and `attach`: what is behind its ends. It is taken back, with that, by its topology and its ends as they were told.
//! A topology is what its links are together.

mod asked;
mod cutter;
mod known;
mod networks;
#[cfg(test)]
mod tests;
mod wire;

pub use self::{asked::Reply, cutter::Cutter};
use self::{
    known::Known,
    wire::{Change, Line},
};
use towpath_alto::{
    facts::Facts,
    names::{CostMetric, Malformed, NodeName, TopologyName},
    topology::TopologyError,
    world::WorldFault,
};

/// The longest line, in bytes, without its end.
pub const MAX_LINE_BYTES: usize = 1 << 20;

/// The longest value of a property, in bytes of JSON.
pub const MAX_VALUE_BYTES: usize = 4 << 10;

/// The most facts that one program may tell, with the lines since the last commit: about three times the routes of the whole Internet. Each prefix that
/// is attached to a node is one.
pub const MAX_FACTS: usize = 4_000_000;

/// The most hops of an AS path, as of all that routers print.
pub const MAX_HOPS: usize = 255;

/// What is wrong with a line, and which: the fault of the program that printed it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {fault}")]
pub struct LineError {
    /// Its number; the first line is 1.
    pub line: u64,
    /// What is wrong.
    pub fault: LineFault,
}

/// What is wrong with a line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LineFault {
    /// It is longer than [`MAX_LINE_BYTES`].
    #[error("it has more than {MAX_LINE_BYTES} bytes: tell one fact a line")]
    TooLong,
    /// It is no JSON, or has not the fields of what it tells.
    #[error("{reason} (column {column})")]
    Invalid {
        /// What is wrong, cut to 200 characters.
        reason: String,
        /// Where, in bytes; the first one is 1.
        column: usize,
    },
    /// A field has not the form that it must have.
    #[error("{0}")]
    Field(#[from] Malformed),
    /// It says what no resource may tell.
    #[error(transparent)]
    World(#[from] WorldFault),
    /// The path of a route has more than [`MAX_HOPS`].
    #[error("the AS path has more than {MAX_HOPS} hops")]
    PathTooLong,
    /// The value of a property is longer than [`MAX_VALUE_BYTES`].
    #[error("the value has more than {MAX_VALUE_BYTES} bytes: tell less of one entity")]
    ValueTooLong,
    /// A metric between prefixes is called as facts call its ends.
    #[error("between prefixes no metric can be called '{0}', which facts call an end: call it 'priv:{0}'")]
    MetricName(CostMetric),
    /// Something is attached to a node that the link has not.
    #[error("'{0}' is no end of the link: attach to it with a link that it has")]
    NoEnd(NodeName),
    /// A program that is asked tells something else than it can be asked for.
    #[error("only metrics between addresses, properties of addresses and commits answer what was asked")]
    NoAnswer,
    /// What is to be committed makes a topology of it that cannot be. Nothing is committed, and what was told since the last commit waits for the next one.
    #[error("nothing is committed, because of '{topology}': {error}; withdraw links, and commit again")]
    Topology {
        /// Which.
        topology: TopologyName,
        /// Why.
        error: TopologyError,
    },
    /// There are as many facts and lines since the last commit as there may be.
    #[error("there is room for {MAX_FACTS} facts and lines since the last commit: commit earlier, or withdraw")]
    Full,
}

/// What one program has told. Memory grows with facts and with lines since the last commit, [`MAX_FACTS`] together.
#[derive(Debug)]
pub struct Lines {
    known: Known,
    /// Since the last commit.
    pending: Vec<Change>,
    /// How many facts they take room for.
    pending_facts: usize,
    /// How many lines there were.
    count: u64,
    /// How many facts, and changes, there may be.
    room: usize,
}

impl Default for Lines {
    /// Nothing is told yet.
    fn default() -> Self {
        Self::with_room(MAX_FACTS)
    }
}

impl Lines {
    /// For so many facts.
    fn with_room(room: usize) -> Self {
        Self { known: Known::default(), pending: Vec::new(), pending_facts: 0, count: 0, room }
    }

    /// Takes the next line, without its end. Whether it was a commit, after which [`Self::facts`] are others. A blank line says nothing.
    ///
    /// # Errors
    /// [`LineError`]. The line counts, and says nothing else.
    pub fn take(&mut self, line: &[u8]) -> Result<bool, LineError> {
        self.count += 1;
        self.read(line).map_err(|fault| LineError { line: self.count, fault })
    }

    /// All that is told, as of the last commit.
    pub fn facts(&self) -> Facts {
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

/// A line, if it says something.
fn parse(line: &[u8]) -> Result<Option<Line>, LineFault> {
    if line.len() > MAX_LINE_BYTES {
        return Err(LineFault::TooLong);
    }
    if line.trim_ascii().is_empty() {
        return Ok(None);
    }
    serde_json::from_slice(line).map(Some).map_err(|error| invalid(&error))
}

/// What is wrong with the JSON of a line.
fn invalid(error: &serde_json::Error) -> LineFault {
    let text = error.to_string();
    // It says 'at line 1', whichever line of the program it is.
    let reason = text.rsplit_once(" at line ").map_or(&*text, |(reason, _)| reason);
    LineFault::Invalid { reason: reason.chars().take(200).collect(), column: error.column() }
}
