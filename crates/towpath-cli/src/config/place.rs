//! The place of an error in a settings file.
//!
//! The parser places most errors. It has no place within a table whose settings depend on its `kind`, which is read as
//! a whole: there, the place is that of the innermost value without which the error would be another.

use std::{marker::PhantomData, ops::Range};

use serde::de::DeserializeOwned;
use toml::{
    Spanned, Table, Value,
    de::{DeTable, DeValue},
};

/// The key that selects the settings of a table. Without it, every error in the table is another.
const KIND: &str = "kind";

/// Begin of the message of serde about a missing key. No value that has no keys is its cause.
const MISSING: &str = "missing field";

/// An error of a settings file.
#[derive(Debug)]
pub(crate) struct PlacedError {
    /// The line, from 1.
    pub(crate) line: usize,
    /// The path of the key; `None` if the line has none.
    pub(crate) key: Option<String>,
    pub(crate) message: String,
}

/// Returns the error of the file `text` with settings `T`; `None` if the file alone has none.
pub(crate) fn find<T: DeserializeOwned>(text: &str) -> Option<PlacedError> {
    let error = toml::from_str::<T>(text).err()?;
    let message = error.message().to_owned();
    let mut at = error.span().map_or(0, |span| span.start);
    let table = DeTable::parse(text).ok();
    let mut key = table.as_ref().and_then(|table| key_at(table.get_ref(), at));
    if let (None, Some(table)) = (&key, &table)
        && let Some((cause, start)) = Search::<T>::of(text, &message).and_then(|search| search.cause(table.get_ref()))
    {
        (key, at) = (Some(cause), start);
    }
    let line = text.as_bytes()[..at.min(text.len())].iter().filter(|byte| **byte == b'\n').count() + 1;
    Some(PlacedError { line, key: key.map(|names| names.join(".")), message })
}

/// Returns the path of the innermost key at an offset of the file.
fn key_at(table: &DeTable<'_>, at: usize) -> Option<Vec<String>> {
    table.iter().find_map(|(key, value)| {
        let below = match value.get_ref() {
            DeValue::Table(below) => key_at(below, at),
            DeValue::Array(items) => items.iter().filter_map(table_of).find_map(|below| key_at(below, at)),
            _ => None,
        };
        let is_here = below.is_some() || key.span().contains(&at) || is_value_at(value, at);
        is_here.then(|| [key.get_ref().to_string()].into_iter().chain(below.unwrap_or_default()).collect())
    })
}

fn table_of<'a, 'b>(item: &'a Spanned<DeValue<'b>>) -> Option<&'a DeTable<'b>> {
    match item.get_ref() {
        DeValue::Table(table) => Some(table),
        _ => None,
    }
}

/// Returns whether a value that is no table is at an offset: tables contain other keys.
fn is_value_at(value: &Spanned<DeValue<'_>>, at: usize) -> bool {
    let span: Range<usize> = value.span();
    !matches!(value.get_ref(), DeValue::Table(_)) && span.contains(&at)
}

/// A step from a value to one in it.
#[derive(Debug, Clone)]
enum Step {
    Key(String),
    Index(usize),
}

impl Step {
    fn follow<'a>(&self, value: &'a Value) -> Option<&'a Value> {
        match self {
            Step::Key(name) => value.get(name),
            Step::Index(index) => value.get(index),
        }
    }

    fn follow_mut<'a>(&self, value: &'a mut Value) -> Option<&'a mut Value> {
        match self {
            Step::Key(name) => value.get_mut(name),
            Step::Index(index) => value.get_mut(index),
        }
    }
}

/// Searches the cause of an error of settings `T`.
struct Search<'a, T> {
    settings: Value,
    message: &'a str,
    of: PhantomData<T>,
}

impl<'a, T: DeserializeOwned> Search<'a, T> {
    /// Creates the search in the file `text`, if its settings have the error `message`.
    fn of(text: &str, message: &'a str) -> Option<Self> {
        let settings = Value::Table(text.parse::<Table>().ok()?);
        let search = Self { settings, message, of: PhantomData };
        (!search.is_another_error(search.settings.clone())).then_some(search)
    }

    /// Returns the key and the offset of the innermost value without which there is another error or none.
    fn cause(&self, table: &DeTable<'_>) -> Option<(Vec<String>, usize)> {
        let mut path = Vec::new();
        while let Some(step) = self.step_to_cause(&path) {
            path.push(step);
        }
        let start = start(table, &path)?;
        let keys = path.into_iter().filter_map(|step| match step {
            Step::Key(name) => Some(name),
            Step::Index(_) => None,
        });
        Some((keys.collect(), start))
    }

    /// Returns the step from the value at `path` to the cause; `None` if the value itself is the cause. Bisects, because
    /// each test reads all settings.
    fn step_to_cause(&self, path: &[Step]) -> Option<Step> {
        let mut steps = self.steps(path.iter().try_fold(&self.settings, |value, step| step.follow(value))?);
        while steps.len() > 1 {
            let others = steps.split_off(steps.len() / 2);
            if !self.has_cause(path, &steps) {
                steps = others;
            }
        }
        steps.pop().filter(|step| self.has_cause(path, std::slice::from_ref(step)))
    }

    /// Returns the steps to the values in `outer` that may be the cause.
    fn steps(&self, outer: &Value) -> Vec<Step> {
        let may_be = |value: &Value| value.is_table() || value.is_array() || !self.message.starts_with(MISSING);
        match outer {
            Value::Table(table) => {
                let inner = table.iter().filter(|(name, value)| *name != KIND && may_be(value));
                inner.map(|(name, _)| Step::Key(name.clone())).collect()
            }
            Value::Array(items) => (0..items.len()).filter(|index| may_be(&items[*index])).map(Step::Index).collect(),
            _ => Vec::new(),
        }
    }

    /// Returns whether there is another error or none without the values that are one of `steps` from `path`.
    fn has_cause(&self, path: &[Step], steps: &[Step]) -> bool {
        let mut settings = self.settings.clone();
        let outer = path.iter().try_fold(&mut settings, |value, step| step.follow_mut(value));
        // The last first: an index is that before any removal.
        if let Some(outer) = outer {
            steps.iter().rev().for_each(|step| match (&mut *outer, step) {
                (Value::Table(table), Step::Key(name)) => drop(table.remove(name)),
                (Value::Array(items), Step::Index(index)) => drop(items.remove(*index)),
                _ => {}
            });
        }
        self.is_another_error(settings)
    }

    fn is_another_error(&self, settings: Value) -> bool {
        settings.try_into::<T>().err().is_none_or(|error| error.message() != self.message)
    }
}

/// Returns the offset of the key or element at `path`; `None` for the whole file.
fn start(table: &DeTable<'_>, path: &[Step]) -> Option<usize> {
    let (first, rest) = path.split_first()?;
    let Step::Key(name) = first else { return None };
    let (key, mut value) = table.iter().find(|(key, _)| key.get_ref() == name)?;
    let mut start = key.span().start;
    let mut rest = rest;
    loop {
        match (value.get_ref(), rest) {
            (DeValue::Table(table), [_, ..]) => return self::start(table, rest),
            (DeValue::Array(items), [Step::Index(index), after @ ..]) => {
                value = items.get(*index)?;
                start = value.span().start;
                rest = after;
            }
            _ => return Some(start),
        }
    }
}
