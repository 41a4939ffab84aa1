//! The place of an error in a settings file.

use std::ops::Range;

use serde::de::DeserializeOwned;
use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

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
    let at = error.span().map_or(0, |span| span.start).min(text.len());
    let line = text.as_bytes()[..at].iter().filter(|byte| **byte == b'\n').count() + 1;
    let key = DeTable::parse(text).ok().and_then(|table| key_at(table.get_ref(), at));
    Some(PlacedError { line, key: key.map(|names| names.join(".")), message: error.message().to_owned() })
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
