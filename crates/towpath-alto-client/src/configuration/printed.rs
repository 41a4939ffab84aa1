//! The configuration notation of the talk: a section, assignments, and a JSON value.
//!
//! ```ini
//! [client]
//! # ALTO server
//! default_ird = https://alto.example.org/directory
//! metrics = {
//!     "delay_ow": { "resource_type": "cost-map", "resource_id": "delay-ow" }
//! }
//! ```
//!
//! One line on the slide has an explanatory note beside it. Such notes, after a comma and at least two spaces, are
//! ignored. They cannot occur in JSON, so no content is lost.

use serde_json::{Deserializer, Map, Value as Json};

use super::{Configuration, ConfigurationError, LenientMetric};

const SECTION: &str = "[client]";

/// Returns whether the first significant line is this section header, which is not valid in the TOML notation.
pub(super) fn is_printed(text: &str) -> bool {
    text.lines().map(str::trim).find(|line| !is_silent(line)).is_some_and(|line| line == SECTION)
}

fn is_silent(line: &str) -> bool {
    line.is_empty() || line.starts_with(['#', ';'])
}

/// Parses this notation.
///
/// # Errors
/// With the line number.
pub(super) fn read(text: &str) -> Result<Configuration, ConfigurationError> {
    let text: String = text.lines().flat_map(|line| [without_note(line), "\n"]).collect();
    let mut configuration = Configuration::default();
    let mut rest = text.as_str();
    while let Some(line) = rest.split_inclusive('\n').next() {
        let invalid = |problem: String| {
            let before = &text[..text.len() - rest.len()];
            ConfigurationError::Printed { line: 1 + before.matches('\n').count(), problem }
        };
        let trimmed = line.trim();
        if is_silent(trimmed) || trimmed == SECTION {
            rest = &rest[line.len()..];
            continue;
        }
        let (key, value) = line.split_once('=').ok_or_else(|| invalid("expected `key = value`".into()))?;
        match key.trim() {
            "default_ird" => {
                configuration.default_ird = Some(value.trim().trim_matches('"').to_owned());
                rest = &rest[line.len()..];
            }
            "metrics" => {
                let value = &rest[key.len() + "=".len()..];
                let (metrics, length) = json_object(value).map_err(&invalid)?;
                for (name, metric) in metrics {
                    let read = serde_json::from_value(metric);
                    let LenientMetric(metric) = read.map_err(|error| invalid(format!("metric {name}: {error}")))?;
                    configuration.metrics.insert(name, metric);
                }
                rest = &value[length..];
            }
            other => return Err(invalid(format!("unknown key `{other}`: expected default_ird or metrics"))),
        }
    }
    Ok(configuration)
}

/// Strips the note from a line.
fn without_note(line: &str) -> &str {
    let Some(comma) = line.rfind(',') else { return line };
    let (code, note) = line.split_at(comma + 1);
    let is_note = note.starts_with("  ") && note.chars().all(|character| character.is_alphabetic() || character == ' ');
    if is_note { code } else { line }
}

/// Parses the JSON object at the start of `text`, and returns it with its length in bytes.
fn json_object(text: &str) -> Result<(Map<String, Json>, usize), String> {
    let mut values = Deserializer::from_str(text).into_iter::<Map<String, Json>>();
    match values.next() {
        Some(Ok(object)) => Ok((object, values.byte_offset())),
        Some(Err(error)) => Err(format!("`metrics` is not a JSON object: {error}")),
        None => Err("`metrics` has no value".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The configuration from the slide, with an example address.
    const SLIDE: &str = r#"
[client]
# ALTO server
default_ird = https://alto.example.org/directory/default
metrics = {
    "as_hopcount": {
        "resource_type": "path-vector",
        "resource_id": "cern-pv",           Map properties of ANEs
        "prop_name": "as_path",
        "prop_transformer": "tolist | len",
        "aggr_transformer": "sum"
    },
    "delay_ow": {
        "resource_type": "cost-map",
        "resource_id": "delay-ow",
        "dependent_network_map": "default-networkmap"
    }
}
"#;

    #[test]
    fn the_talks_configuration_is_that_in_toml() {
        let toml = r#"
            default-ird = "https://alto.example.org/directory/default"
            [metrics.as_hopcount]
            resource-type = "path-vector"
            resource-id = "cern-pv"
            prop-name = "as_path"
            prop-transformer = "tolist | len"
            aggr-transformer = "sum"
            [metrics.delay_ow]
            resource-type = "cost-map"
            resource-id = "delay-ow"
            dependent-network-map = "default-networkmap"
        "#;
        assert_eq!(Configuration::parse(SLIDE).unwrap(), Configuration::parse(toml).unwrap());
    }

    #[test]
    fn words_beside_lines_are_passed_over_only_where_no_json_could_stand() {
        for line in ["\"a\": 1,  \"b\": 2", "\"a\": 1, true", "x = a", "\"a\": \"b,  c\""] {
            assert_eq!(without_note(line), line);
        }
        assert_eq!(without_note("\"a\": 1,  Some words"), "\"a\": 1,");
    }

    #[test]
    fn what_cannot_be_is_told_with_its_line() {
        for (text, expected) in [
            ("[client]\nird = x", "line 2: unknown key `ird`"),
            ("[client]\n\nmetrics", "line 3: expected `key = value`"),
            ("[client]\nmetrics = []", "line 2: `metrics` is not a JSON object"),
            ("[client]\nmetrics = {\"x\": {\"resource_type\": \"map\"}}", "line 2: metric x: unknown variant `map`"),
            ("[client]\nmetrics = {\"x\": 1}", "line 2: metric x: "),
        ] {
            let error = Configuration::parse(text).unwrap_err().to_string();
            assert!(error.starts_with(expected), "{text}: {error}");
        }
    }
}
