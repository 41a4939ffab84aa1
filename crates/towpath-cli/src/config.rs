//! Layered settings: flag over environment over file over default. The origin of each value is recorded.
//!
//! A layer is a TOML table. Layers are merged key by key, arrays whole. The environment names a key by its path:
//! `limits.idle` of `serve` is `TOWPATH_SERVE_LIMITS_IDLE`; its value is TOML, or else plain text.

pub(crate) mod description;
pub(crate) mod pages;
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
mod tests {
    use super::*;
    use towpath_server::ServeConfig;

    fn load_with(environment: &[(&str, &str)], flags: &str) -> Result<Layered<ServeConfig>, ConfigError> {
        let environment = environment.iter().map(|(name, value)| (name.to_string(), value.to_string()));
        load("serve", None, environment, flags.parse().unwrap())
    }

    #[test]
    fn flags_win_over_the_environment_which_wins_over_defaults() {
        let layered = load_with(&[("TOWPATH_SERVE_SITE", "env"), ("TOWPATH_SERVE_LIMITS_IDLE", "5s")], "site = 'flag'");
        let Layered { settings, origins } = layered.unwrap();
        assert_eq!(settings.site, "flag");
        assert_eq!(settings.limits.idle.to_string(), "5s");
        assert_eq!(origins["site"].1, "flag");
        assert_eq!(origins["limits.idle"].1, "environment TOWPATH_SERVE_LIMITS_IDLE");
        assert_eq!(origins["limits.stall"].1, "default");
    }

    #[test]
    fn every_setting_can_be_made_in_the_environment() {
        for (key, (value, _)) in load_with(&[], "").unwrap().origins {
            let name = format!("TOWPATH_SERVE_{}", key.replace('.', "_").to_uppercase());
            let origins = load_with(&[(&name, &value.to_string())], "").unwrap().origins;
            assert_eq!(origins[&key].1, format!("environment {name}"));
        }
    }

    #[test]
    fn an_unknown_key_is_refused_with_the_nearest_known_one() {
        let error = load_with(&[], "lisen = []").unwrap_err().to_string();
        assert!(error.starts_with("flag: unknown field `lisen`"), "{error}");
        assert!(error.ends_with("did you mean `listen`?"), "{error}");
    }

    #[test]
    fn an_error_of_a_file_has_its_line_and_key() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("serve.toml");
        let name = path.display();
        for (text, expected) in [
            ("root = '/'\n[limits]\nidle = 'soon'\n", ":3: limits.idle: `soon` is not a duration"),
            ("[limits]\nidle = '1h'\nidel = '2h'\n", ":3: limits.idel: unknown field `idel`"),
            (
                "\n[[access.anonymous]]\npath = '/'\nallow = ['red']\n",
                ":4: access.anonymous.allow: unknown variant `red`",
            ),
            ("\n[[access.issuers]]\nbase_path = '/'\n", ": missing field `issuer`"),
            ("root = '/'\n\nlisten = [\n", ":"),
            ("listen = ['host:x']\n", ":1: listen: `host:x` has no valid port"),
        ] {
            disk::write(&path, text.as_bytes()).unwrap();
            let error = load::<ServeConfig>("serve", Some(&path), std::iter::empty(), Table::new()).unwrap_err();
            let error = error.to_string();
            let place = error.strip_prefix(&name.to_string()).unwrap_or_else(|| panic!("{error}"));
            assert!(place.contains(expected) && place.starts_with(':'), "{text}: {error}");
            assert_eq!(error.lines().count(), 1, "{error}");
        }
    }

    #[test]
    fn the_example_is_a_valid_file_with_every_setting() {
        let sections = description::sections::<ServeConfig>();
        let example = pages::example("serve", &sections);
        let defaults: ServeConfig = toml::from_str(&example).unwrap();
        assert_eq!(Table::try_from(defaults).unwrap(), Table::try_from(ServeConfig::default()).unwrap());
        // Without the comment marks of settings and headers.
        let is_setting = |line: &&str| line.starts_with('[') || (line.starts_with('#') && !line.starts_with("# "));
        let lines = example.lines().filter(is_setting).map(|line| line.trim_start_matches('#'));
        let all: Table = lines.collect::<Vec<_>>().join("\n").parse().unwrap();
        for section in sections.iter().filter(|section| !section.is_array) {
            let at = |table: &Value, name: &String| table.get(name).cloned();
            let table =
                section.path.iter().try_fold(Value::Table(all.clone()), |table, name| at(&table, name)).unwrap();
            section.settings.iter().for_each(|setting| assert!(table.get(&setting.name).is_some(), "{setting:?}"));
        }
        all.try_into::<ServeConfig>().expect("the examples are values of the right types");
    }

    #[test]
    fn the_page_of_the_documentation_is_current() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/settings.md");
        let page = disk::read(&path, MAX_FILE_BYTES).unwrap();
        let sections = description::sections::<ServeConfig>();
        let is_current = pages::reference(&[("serve", sections)]).as_bytes() == page;
        assert!(is_current, "run `towpath config reference > docs/reference/settings.md`");
    }

    #[test]
    fn a_wrong_value_names_its_layer() {
        let error = load_with(&[("TOWPATH_SERVE_LIMITS_IDLE", "soon")], "").unwrap_err().to_string();
        assert!(error.starts_with("environment TOWPATH_SERVE_LIMITS_IDLE: `soon` is not a duration"), "{error}");
    }
}
