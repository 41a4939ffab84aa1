//! The ordering expression of replicas: `BY as_hopcount, delay_ow WHERE continent = "EU"`.
//!
//! A [`Statement`] is read once, asks for the values that it names ([`Statement::names`]), and puts candidates into an order
//! ([`Statement::order`]). What is known of a candidate it learns through [`Look`]. [`Pipeline`] and [`Aggregate`] make one [`Value`] of the
//! properties along a path.
//!
//! ```text
//! statement := BY key {"," key} [WHERE condition]                      also BY=
//! key       := name [ASC|DESC]
//! condition := NOT before AND before OR; parentheses; comparison; name [NOT] IN (value, ..); name IS [NOT] NULL; name
//! comparison:= operand (= == != <> < <= > >=) operand; operand := name | value
//! value     := number | 'text' | "text" | TRUE | FALSE                 a quote inside is doubled
//! name      := letters, digits, _ - . : with a letter or _ first; src. or dst. may stand before it
//! ```
//!
//! Keywords have no case; `&` `&&` `|` `||` `!` stand for AND, OR, NOT. A name that is a keyword can be written with its prefix: `dst.in`.
//! Prefixes are part of the name that is looked up.
//!
//! Keys: less is better, unless the metric's definition or the statement says otherwise. A missing value comes last whatever the direction.
//! Texts that are numbers are ordered as numbers, other texts by bytes behind all numbers. Ties stay as they were given.
//!
//! Conditions have three values, as in SQL. A comparison is unknown if a value is missing, or if a number meets a text that is none. Two texts
//! are compared by bytes, all else as numbers (true is 1). A name alone is true if it is not 0. Lists are not ordered and not compared: they
//! only are, or are not, NULL. NaN is a missing value.
//!
//! This does no I/O, keeps nothing, and is bounded: 4096 bytes, 32 levels, 16 keys, 256 values in a list. Where the values come from is
//! not its affair.

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
pub use rank::{Direction, Ranked, Where};
pub use value::{Look, Value};

/// In which order replicas are to be tried. Its text is the canonical form, which reads back as the same statement as long as it has at most
/// 4096 bytes.
#[derive(Debug, Clone, PartialEq)]
pub struct Statement {
    keys: Vec<Key>,
    condition: Option<Condition>,
    /// What orders those of which no key is known.
    backup: Option<String>,
}

/// One thing that replicas are ordered by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Key {
    /// The metric or property, with its prefix if it has one.
    pub name: String,
    /// What the statement says of its direction. If nothing, the metric's definition decides.
    pub direction: Option<Direction>,
}

impl Statement {
    /// The keys, the most important first: 1 to 16.
    pub fn keys(&self) -> &[Key] {
        &self.keys
    }

    /// The same statement, in which candidates of which no key is known are ordered by `name`, which stay behind all others. Its text does not say so.
    #[must_use]
    pub fn with_backup(self, name: &str) -> Self {
        Self { backup: Some(name.to_owned()), ..self }
    }

    /// What orders candidates of which no key is known.
    pub fn backup(&self) -> Option<&str> {
        self.backup.as_deref()
    }

    /// Each name that [`Self::order`] looks up, once, as they come in the statement; the backup last.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        let mut names = self.named();
        names.extend(self.backup());
        let mut seen = BTreeSet::new();
        names.into_iter().filter(move |name| seen.insert(*name))
    }

    /// Whether its keys or its condition look `name` up.
    pub fn has(&self, name: &str) -> bool {
        self.named().contains(&name)
    }

    /// The names in its keys and its condition.
    fn named(&self) -> Vec<&str> {
        let mut names: Vec<&str> = self.keys.iter().map(|key| key.name.as_str()).collect();
        if let Some(condition) = &self.condition {
            condition.add_names(&mut names);
        }
        names
    }

    /// The `candidates` in their order, the best first. `directions` is asked for the keys of which the statement does not say it; `where_`
    /// says what becomes of candidates for which the condition is not true. Takes memory for each candidate and key.
    pub fn order<L: Look>(
        &self,
        candidates: &[L],
        directions: &dyn Fn(&str) -> Direction,
        where_: Where,
    ) -> Vec<Ranked> {
        let direction = |key: &Key| key.direction.unwrap_or_else(|| directions(&key.name));
        let of_backup = self.backup().map(directions);
        let directions: Vec<Direction> = self.keys.iter().map(direction).chain(of_backup).collect();
        let ranked = candidates.iter().enumerate().map(|(index, candidate)| self.rank(index, candidate));
        let mut ranked: Vec<Ranked> = ranked.filter(|ranked| where_ == Where::Demote || ranked.is_wanted()).collect();
        ranked.sort_by(|one, other| one.compare(other, &directions));
        ranked
    }

    fn rank<L: Look>(&self, index: usize, candidate: &L) -> Ranked {
        let mut keys: Vec<_> = self.keys.iter().map(|key| value::look_up(candidate, &key.name)).collect();
        if let Some(backup) = &self.backup {
            let is_unknown = keys.iter().all(Option::is_none);
            keys.push(value::look_up(candidate, backup).filter(|_| is_unknown));
        }
        let holds = self.condition.as_ref().map_or(Some(true), |condition| condition.holds(candidate));
        Ranked { index, keys, holds }
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
