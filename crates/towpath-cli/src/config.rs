//! Layered settings: flag over environment over file over default. The origin of each value is recorded.
//!
//! A layer is a TOML table. Layers are merged key by key, arrays whole. The environment names a key by its path:
//! `limits.idle` of `serve` is `TOWPATH_SERVE_LIMITS_IDLE`; its value is TOML, or else plain text.

pub(crate) mod command;
mod description;
mod pages;
mod place;

use std::{collections::BTreeMap, path::Path};

use serde::{Serialize, de::DeserializeOwned};
use toml::{Table, Value};
use towpath_store::sys::disk;

use self::place::PlacedError;

/// Maximum size of a settings file in bytes.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// Invalid settings.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConfigError {
    /// The file cannot be read.
    #[error("{path}: {source}")]
    Unreadable {
        /// The file.
        path: String,
        /// The error of the system.
        source: std::io::Error,
    },
    /// A layer is not valid TOML, or has an unknown key or a value of the wrong type.
    #[error("{origin}: {message}")]
    Wrong {
        /// The layer.
        origin: String,
        /// The error, with the most similar known key if a key is unknown.
        message: String,
    },
}

/// Merged settings, and the origin of each.
#[derive(Debug)]
pub(crate) struct Layered<T> {
    /// The settings.
    pub settings: T,
    /// Value and origin by the path of the key.
    pub origins: BTreeMap<String, (Value, String)>,
}

/// Merges the layers of `role`: the defaults of `T`, the file, the environment, the flags.
///
/// # Errors
/// [`ConfigError`] names the layer and the key.
pub(crate) fn load<T: Default + Serialize + DeserializeOwned>(
    role: &str,
    file: Option<&Path>,
    environment: impl Iterator<Item = (String, String)>,
    flags: Table,
) -> Result<Layered<T>, ConfigError> {
    let defaults = Table::try_from(T::default()).map_err(|error| wrong("defaults", &error.to_string()))?;
    let from_environment = environment_layer(role, &defaults, environment);
    let mut layers = vec![("default".to_string(), defaults)];
    let mut text = String::new();
    if let Some(path) = file {
        text = read(path)?;
        let origin = path.display().to_string();
        layers.push((origin.clone(), text.parse().map_err(|error| wrong_file::<Table>(&origin, &text, &error))?));
    }
    layers.extend(from_environment);
    layers.push(("flag".into(), flags));

    let mut merged = Table::new();
    let mut origins = BTreeMap::new();
    for (origin, layer) in layers {
        merge(&mut merged, layer, &origin, "", &mut origins);
        // Each layer is checked separately, so that an error names its layer.
        if let Err(error) = merged.clone().try_into::<T>() {
            let is_file = file.is_some_and(|path| origin == path.display().to_string());
            return Err(if is_file {
                wrong_file::<T>(&origin, &text, &error)
            } else {
                wrong(&origin, error.message())
            });
        }
    }
    let settings = merged.try_into().map_err(|error| wrong("settings", error.message()))?;
    Ok(Layered { settings, origins })
}

/// Inserts the addresses of the option `--listen` into the layer of flags, if there are any.
pub(crate) fn insert_listen(flags: &mut Table, addresses: &[String]) {
    if !addresses.is_empty() {
        let addresses = addresses.iter().cloned().map(Value::String);
        flags.insert("listen".into(), Value::Array(addresses.collect()));
    }
}

fn read(path: &Path) -> Result<String, ConfigError> {
    let origin = path.display().to_string();
    let bytes =
        disk::read(path, MAX_FILE_BYTES).map_err(|source| ConfigError::Unreadable { path: origin.clone(), source })?;
    String::from_utf8(bytes).map_err(|_| wrong(&origin, "it is not UTF-8"))
}

/// Creates the error of the file `origin` with the contents `text`, with line and key if the file alone has it.
fn wrong_file<T: DeserializeOwned>(origin: &str, text: &str, error: &toml::de::Error) -> ConfigError {
    match place::find::<T>(text) {
        None => wrong(origin, error.message()),
        Some(PlacedError { line, key: None, message }) => wrong(&format!("{origin}:{line}"), &message),
        Some(PlacedError { line, key: Some(key), message }) => {
            wrong(&format!("{origin}:{line}"), &format!("{key}: {message}"))
        }
    }
}

/// Returns one layer for each environment variable of the role.
fn environment_layer(
    role: &str,
    defaults: &Table,
    environment: impl Iterator<Item = (String, String)>,
) -> Vec<(String, Table)> {
    let prefix = format!("TOWPATH_{}_", role.to_uppercase());
    let mut layers = Vec::new();
    for (name, text) in environment {
        let Some(key) = name.strip_prefix(&prefix) else { continue };
        let value = format!("v = {text}").parse::<Table>().ok().and_then(|mut table| table.remove("v"));
        let value = value.unwrap_or(Value::String(text));
        layers.push((format!("environment {name}"), nest(&key.to_lowercase(), defaults, value)));
    }
    layers
}

/// Returns a nested table with `value` at `key`, whose words are joined by `_`. `known` has the names of the tables.
fn nest(key: &str, known: &Table, value: Value) -> Table {
    // The longest name first: `access_log` before `access`.
    let mut tables: Vec<_> = known.iter().collect();
    tables.sort_unstable_by_key(|(name, _)| std::cmp::Reverse(name.len()));
    for (name, inner) in tables {
        let rest = key.strip_prefix(name.as_str()).and_then(|rest| rest.strip_prefix('_'));
        if let (Some(rest), Value::Table(inner)) = (rest, inner) {
            return Table::from_iter([(name.clone(), Value::Table(nest(rest, inner, value)))]);
        }
    }
    Table::from_iter([(key.to_string(), value)])
}

fn merge(into: &mut Table, layer: Table, origin: &str, prefix: &str, origins: &mut BTreeMap<String, (Value, String)>) {
    for (key, value) in layer {
        let path = if prefix.is_empty() { key.clone() } else { format!("{prefix}.{key}") };
        match (into.get_mut(&key), value) {
            (Some(Value::Table(below)), Value::Table(inner)) => merge(below, inner, origin, &path, origins),
            (_, Value::Table(inner)) => {
                let mut below = Table::new();
                merge(&mut below, inner, origin, &path, origins);
                into.insert(key, Value::Table(below));
            }
            (_, value) => {
                origins.insert(path, (value.clone(), origin.to_string()));
                into.insert(key, value);
            }
        }
    }
}

/// Creates the error of a layer, with the most similar known key if `message`, by serde, is about an unknown key.
pub(crate) fn wrong(origin: &str, message: &str) -> ConfigError {
    let hint = nearest_key(message).map(|key| format!("; did you mean `{key}`?")).unwrap_or_default();
    ConfigError::Wrong { origin: origin.to_string(), message: format!("{message}{hint}") }
}

/// Returns the known key that is most similar to the unknown key in a message of serde: ``unknown field `a`, expected
/// one of `b`, `c` ``.
fn nearest_key(message: &str) -> Option<&str> {
    let (_, rest) = message.split_once("unknown field `")?;
    let mut quoted = rest.split('`');
    let unknown = quoted.next()?;
    let known = quoted.skip(1).step_by(2);
    known.map(|key| (distance(unknown, key), key)).min().filter(|(far, key)| *far * 2 <= key.len()).map(|(_, key)| key)
}

/// Returns the Levenshtein distance in bytes.
fn distance(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.bytes().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.bytes().enumerate() {
            let replaced = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests;
