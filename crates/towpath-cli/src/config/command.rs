//! `towpath config`: the settings of a role as they are, as an example file, and as a page of the documentation.

use std::{collections::BTreeMap, io::Write as _};

use serde::Serialize;
use toml::{Table, Value};
use towpath_alto_server::settings::AltoConfig;
use towpath_proto::url;
use towpath_server::ServeConfig;

use super::{
    Layered,
    description::{self, Section, SectionForm, Setting},
    pages,
};
use crate::{
    agent::{self, AgentConfig},
    alto,
    args::{Config, ConfigAction, ConfigShow},
    cache::{self, CacheConfig},
    failure::Failure,
    serve,
};

/// Role of the ALTO server.
const ALTO: &str = "alto";
/// Role of the agent.
const AGENT: &str = "agent";
/// Role of the cache.
const CACHE: &str = "cache";

/// The value and origin of each set setting, by the path of its key.
type Origins = BTreeMap<String, (Value, String)>;

/// Runs `towpath config`.
pub(crate) fn run(arguments: &Config) -> Result<(), Failure> {
    let text = match &arguments.action {
        ConfigAction::Show(show) => settings_text(show)?,
        ConfigAction::Example(example) => pages::example(&example.role, &sections(&example.role)),
        ConfigAction::Reference => reference(),
    };
    Ok(std::io::stdout().write_all(text.as_bytes())?)
}

/// Returns the sections of a role.
fn sections(role: &str) -> Vec<Section> {
    match role {
        ALTO => description::sections::<AltoConfig>(),
        CACHE => description::sections::<CacheConfig>(),
        AGENT => description::sections::<AgentConfig>(),
        _ => description::sections::<ServeConfig>(),
    }
}

/// Returns the reference page of all roles.
pub(super) fn reference() -> String {
    pages::reference(&["serve", CACHE, AGENT, ALTO].map(|role| (role, sections(role))))
}

/// Returns a line for each setting with its value and origin; unset ones are comments.
fn settings_text(show: &ConfigShow) -> Result<String, Failure> {
    let file = show.config.as_deref();
    Ok(match &*show.role {
        ALTO => lines(&alto::load(file, Table::new())?, &sections(ALTO)),
        CACHE => lines(&cache::load(file, Table::new())?, &sections(CACHE)),
        AGENT => lines(&agent::load(file)?, &sections(AGENT)),
        role => lines(&serve::load(file, Table::new())?, &sections(role)),
    })
}

/// Returns the lines of settings with these sections, sorted by key.
pub(super) fn lines<T: Serialize>(layered: &Layered<T>, sections: &[Section]) -> String {
    let Layered { settings, origins } = layered;
    let settings = Value::try_from(settings).unwrap_or(Value::Table(Table::new()));
    let set = origins.iter().map(|(key, (value, origin))| {
        let value = without_secrets(value);
        (key.clone(), format!("{key} = {value}  # {origin}\n"))
    });
    let mut lines: BTreeMap<_, _> = set.collect();
    for section in sections {
        for path in tables(section, &settings) {
            let missing = section.settings.iter().filter_map(|setting| missing_line(&path, setting, origins));
            lines.extend(missing);
        }
    }
    lines.into_values().collect()
}

/// Returns a value with passwords and tokens in its URLs masked.
fn without_secrets(value: &Value) -> Value {
    match value {
        Value::String(text) => Value::String(url::mask_secrets(text)),
        Value::Array(values) => Value::Array(values.iter().map(without_secrets).collect()),
        Value::Table(table) => {
            Value::Table(table.iter().map(|(key, value)| (key.clone(), without_secrets(value))).collect())
        }
        other => other.clone(),
    }
}

/// Returns the paths of the tables of a section. The elements of an array have none: they are the value of the array.
fn tables(section: &Section, settings: &Value) -> Vec<Vec<String>> {
    let above = section.path.split_last().map_or(&[][..], |(_, above)| above);
    let entries = above.iter().try_fold(settings, |table, name| table.get(name));
    let entries = entries.and_then(Value::as_table).into_iter().flatten();
    let is_of_kind = |entry: &Value| match &section.form {
        SectionForm::Kind { tag, value } => entry.get(tag).and_then(Value::as_str) == Some(value),
        _ => true,
    };
    match section.form {
        SectionForm::Table => vec![section.path.clone()],
        SectionForm::Array => Vec::new(),
        SectionForm::Entries | SectionForm::Kind { .. } => entries
            .filter(|(_, entry)| is_of_kind(entry))
            .map(|(name, _)| above.iter().chain([name]).cloned().collect())
            .collect(),
    }
}

/// Returns key and line of a setting of the table `path` that no layer sets. Required ones are always set, perhaps under
/// another name.
fn missing_line(path: &[String], setting: &Setting, origins: &Origins) -> Option<(String, String)> {
    let names = path.iter().chain([&setting.name]);
    let key = names.map(String::as_str).collect::<Vec<_>>().join(".");
    let below = format!("{key}.");
    let is_set = origins.contains_key(&key) || origins.keys().any(|set| set.starts_with(&below));
    let line = match &setting.default {
        Some(default) => format!("{key} = {}  # default\n", pages::toml_of(default)),
        None => format!("# {key} is unset\n"),
    };
    (!is_set && !setting.is_required).then_some((key, line))
}
