//! Ordering expression for replicas: `BY as_hopcount, delay_ow WHERE continent = "EU"`.
//!
//! A [`Statement`] is parsed once, lists the names that it needs ([`Statement::names`]), and orders candidates
//! ([`Statement::order`]), whose values it looks up through [`CandidateValues`]. [`Pipeline`] and [`Aggregate`] reduce
//! the properties along a path to one [`Value`].
//!
//! ```text
//! statement := BY key {"," key} [WHERE condition]                      also BY=
//! key       := name [ASC|DESC]
//! condition := NOT before AND before OR; parentheses; comparison; name [NOT] IN (value, ..); name IS [NOT] NULL; name
//! comparison:= operand (= == != <> < <= > >=) operand; operand := name | value
//! value     := number | 'text' | "text" | TRUE | FALSE                 a quote inside is doubled
//! name      := letters, digits, _ - . : with a letter or _ first; optionally prefixed by src. or dst.
//! ```
//!
//! Keywords are case-insensitive; `&` `&&` `|` `||` `!` stand for AND, OR, NOT. A name that is a keyword can be written
//! with its prefix: `dst.in`. Prefixes are part of the name that is looked up.
//!
//! Keys: smaller is better, unless the metric's definition or the statement says otherwise. A missing value sorts last
//! in either direction. Numeric texts are ordered as numbers; other texts by bytes, after all numbers. Ties keep their
//! input order.
//!
//! Conditions are three-valued, as in SQL. A comparison is unknown if a value is missing, or if a number is compared
//! with a non-numeric text. Two texts are compared by bytes, everything else as numbers (true is 1). A bare name is
//! true if it is not
//! 0. Lists are neither ordered nor compared; they only are, or are not, NULL. NaN is a missing value.
//!
//! Evaluation does no I/O, keeps no state, and is bounded: 4096 bytes, 32 levels, 16 keys, 256 values in a list. The
//! caller supplies the values.

mod condition;
mod error;
mod lexer;
mod parser;
mod pipeline;
mod rank;
mod value;

use std::{collections::BTreeSet, fmt, str::FromStr};

use condition::Condition;

pub use error::SyntaxError;
pub use pipeline::{Aggregate, Pipeline};
pub use rank::{Direction, FilterMode, RankedCandidate};
pub use value::{CandidateValues, Value};

/// The order for trying replicas. Its `Display` output is the canonical form, which parses to the same statement if it
/// has at most 4096 bytes.
#[derive(Debug, Clone, PartialEq)]
pub struct Statement {
    keys: Vec<Key>,
    condition: Option<Condition>,
    /// Name that orders candidates without any known key.
    backup: Option<String>,
}

/// A sort key of replicas.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Key {
    /// The metric or property, with its prefix if any.
    pub name: String,
    /// Explicit direction. If `None`, the metric's definition decides.
    pub direction: Option<Direction>,
}

impl Statement {
    /// Returns the keys, most important first: 1 to 16.
    pub fn keys(&self) -> &[Key] {
        &self.keys
    }

    /// Orders candidates without any known key by `name`. They stay behind all others. The text form does not include
    /// it.
    #[must_use]
    pub fn with_backup(self, name: &str) -> Self {
        Self { backup: Some(name.to_owned()), ..self }
    }

    /// Returns the name that orders candidates without any known key.
    pub fn backup(&self) -> Option<&str> {
        self.backup.as_deref()
    }

    /// Returns each name that [`Self::order`] looks up, without duplicates, in statement order; the backup is last.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        let mut names = self.collect_names();
        names.extend(self.backup());
        let mut seen = BTreeSet::new();
        names.into_iter().filter(move |name| seen.insert(*name))
    }

    /// Returns whether the keys or the condition look up `name`.
    pub fn has(&self, name: &str) -> bool {
        self.collect_names().contains(&name)
    }

    /// Returns the names in the keys and the condition.
    fn collect_names(&self) -> Vec<&str> {
        let mut names: Vec<&str> = self.keys.iter().map(|key| key.name.as_str()).collect();
        if let Some(condition) = &self.condition {
            condition.add_names(&mut names);
        }
        names
    }

    /// Sorts `candidates`, best first. `directions` supplies the direction of keys for which the statement has none;
    /// `filter_mode` selects the handling of candidates that do not satisfy the condition. Allocates memory per
    /// candidate and key.
    pub fn order<L: CandidateValues>(
        &self,
        candidates: &[L],
        directions: &dyn Fn(&str) -> Direction,
        filter_mode: FilterMode,
    ) -> Vec<RankedCandidate> {
        let direction = |key: &Key| key.direction.unwrap_or_else(|| directions(&key.name));
        let of_backup = self.backup().map(directions);
        let directions: Vec<Direction> = self.keys.iter().map(direction).chain(of_backup).collect();
        let ranked = candidates.iter().enumerate().map(|(index, candidate)| self.rank(index, candidate));
        let mut ranked: Vec<RankedCandidate> =
            ranked.filter(|ranked| filter_mode == FilterMode::Demote || ranked.is_wanted()).collect();
        ranked.sort_by(|one, other| one.compare(other, &directions));
        ranked
    }

    fn rank<L: CandidateValues>(&self, index: usize, candidate: &L) -> RankedCandidate {
        let mut keys: Vec<_> = self.keys.iter().map(|key| value::look_up(candidate, &key.name)).collect();
        if let Some(backup) = &self.backup {
            let is_unknown = keys.iter().all(Option::is_none);
            keys.push(value::look_up(candidate, backup).filter(|_| is_unknown));
        }
        let holds = self.condition.as_ref().map_or(Some(true), |condition| condition.holds(candidate));
        RankedCandidate { index, keys, holds }
    }
}

impl FromStr for Statement {
    type Err = SyntaxError;

    fn from_str(text: &str) -> Result<Self, SyntaxError> {
        parser::statement(text)
    }
}

impl fmt::Display for Statement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, key) in self.keys.iter().enumerate() {
            let before = if position == 0 { "BY " } else { ", " };
            write!(f, "{before}{key}")?;
        }
        match &self.condition {
            Some(condition) => write!(f, " WHERE {condition}"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let direction = match self.direction {
            Some(Direction::Min) => " ASC",
            Some(Direction::Max) => " DESC",
            None => "",
        };
        write!(f, "{}{direction}", self.name)
    }
}

#[cfg(test)]
mod tests;
