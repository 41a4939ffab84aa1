//! User-defined metrics of an ALTO client.
//!
//! ```toml
//! default-ird = "https://alto.example.org/directory"
//! [metrics.as_hopcount]
//! resource-type = "path-vector"
//! prop-name = "as_path"
//! prop-transformer = "tolist | len"
//! aggr-transformer = "sum"
//! [metrics.delay_ow]
//! resource-type = "endpoint-cost"
//! ```
//!
//! Keys may use `_` in place of `-`. The notation of the talk is also accepted: a section `[client]` with
//! `default_ird = ADDRESS` and `metrics = JSON`.

mod printed;

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, de::Error as _};
use serde_json::{Map, Value as Json};

use towpath_alto::{
    cost::is_more_better,
    names::{CostMetric, PropertyName, ResourceId},
    order::{Aggregate, Direction, Pipeline},
};

/// Maximum size of a configuration in bytes.
pub const MAX_CONFIGURATION_BYTES: u64 = 1 << 20;

/// Configuration of a client.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Configuration {
    /// URI of the default directory.
    #[serde(alias = "default_ird")]
    pub default_ird: Option<String>,
    /// Metrics by their names in statements.
    #[serde(deserialize_with = "read_spelled")]
    pub metrics: BTreeMap<String, Metric>,
}

/// Defines how the value of a metric is obtained. `resource-id` is optional if the directory has only one resource of
/// the type.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(tag = "resource-type", rename_all = "kebab-case", rename_all_fields = "kebab-case", deny_unknown_fields)]
pub enum Metric {
    /// Computed from the elements on the path between endpoints (RFC 9275 §7.3).
    PathVector {
        /// The resource.
        resource_id: Option<ResourceId>,
        /// The element property to aggregate; without it, each element counts 1.
        prop_name: Option<PropertyName>,
        /// Counts only elements whose names start with this prefix: `as:`.
        element_prefix: Option<String>,
        /// Transformation applied to the property.
        prop_transformer: Option<Pipeline>,
        /// Aggregates the values of all elements; default `sum`.
        aggr_transformer: Option<Aggregate>,
        /// Which values are better; defaults to the usual direction of the metric.
        order: Option<Direction>,
        /// Whether data flow from the client to the replica.
        #[serde(default)]
        reverse: bool,
    },
    /// The cost between the PIDs of both ends (RFC 7285 §11.2.3, §11.3.2). Requires the client's address.
    CostMap {
        /// The resource.
        resource_id: Option<ResourceId>,
        /// Name of the cost metric at the server; defaults to the name in the statement, with `-` for `_`.
        cost_metric: Option<CostMetric>,
        /// The network map that defines the PIDs; defaults to the one used by the resource.
        dependent_network_map: Option<ResourceId>,
        /// Which values are better; defaults to the usual direction of the metric.
        order: Option<Direction>,
        /// Whether data flow from the client to the replica.
        #[serde(default)]
        reverse: bool,
    },
    /// The cost between endpoints (RFC 7285 §11.5.1).
    EndpointCost {
        /// The resource.
        resource_id: Option<ResourceId>,
        /// Name of the cost metric at the server; defaults to the name in the statement, with `-` for `_`.
        cost_metric: Option<CostMetric>,
        /// Which values are better; defaults to the usual direction of the metric.
        order: Option<Direction>,
        /// Whether data flow from the client to the replica.
        #[serde(default)]
        reverse: bool,
    },
    /// A property of the replica (RFC 9240 §8, or RFC 7285 §11.4.1).
    PropertyMap {
        /// The resource.
        resource_id: Option<ResourceId>,
        /// Name of the property at the server; defaults to the name in the statement, possibly with `priv:`.
        prop_name: Option<String>,
        /// Transformation applied to the property.
        prop_transformer: Option<Pipeline>,
        /// Which values are better; defaults to the usual direction of the metric.
        order: Option<Direction>,
    },
}

/// A metric whose keys may use `_` in place of `-`.
struct LenientMetric(Metric);

impl<'de> Deserialize<'de> for LenientMetric {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let keys = Map::<String, Json>::deserialize(deserializer)?;
        let keys = keys.into_iter().map(|(key, value)| (key.replace('_', "-"), value)).collect();
        serde_json::from_value(Json::Object(keys)).map(Self).map_err(D::Error::custom)
    }
}

fn read_spelled<'de, D: Deserializer<'de>>(deserializer: D) -> Result<BTreeMap<String, Metric>, D::Error> {
    let metrics = BTreeMap::<String, LenientMetric>::deserialize(deserializer)?;
    Ok(metrics.into_iter().map(|(name, LenientMetric(metric))| (name, metric)).collect())
}

/// A configuration error; the author of the configuration must fix it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConfigurationError {
    /// The text is not TOML, or has unknown keys or invalid values.
    #[error("{0}")]
    Toml(String),
    /// The text starts in the notation of the talk but is malformed.
    #[error("line {line}: {problem}")]
    Printed {
        /// Line number, from 1; for JSON, the line where it starts.
        line: usize,
        /// Description of the error.
        problem: String,
    },
}

impl Configuration {
    /// Parses a configuration. The caller limits its size to [`MAX_CONFIGURATION_BYTES`].
    ///
    /// # Errors
    /// [`ConfigurationError`].
    pub fn parse(text: &str) -> Result<Self, ConfigurationError> {
        match printed::is_printed(text) {
            true => printed::read(text),
            false => toml::from_str(text).map_err(|error| ConfigurationError::Toml(error.to_string())),
        }
    }

    /// Returns which values are better for a name in a statement, if the statement itself does not specify it: the
    /// configured order, else the greatest for throughput and bandwidth (`tput`, `bw-residual`, `bw-available`, also
    /// with a statistic other than a spread) and the least for everything else. This applies to numerical values; for
    /// ordinal ones use [`ReplicaValues::direction`](super::ReplicaValues::direction).
    pub fn direction(&self, name: &str) -> Direction {
        let name = name.strip_prefix("dst.").unwrap_or(name);
        let metric = self.metrics.get(name);
        let configured = metric.and_then(Metric::order);
        configured.unwrap_or_else(|| usual_direction(metric.and_then(Metric::cost_metric).unwrap_or(name)))
    }
}

/// Returns the default direction of a metric.
fn usual_direction(metric: &str) -> Direction {
    if is_more_better(&metric.replace('_', "-")) { Direction::Max } else { Direction::Min }
}

impl Metric {
    /// Returns the configured order, if any.
    fn order(&self) -> Option<Direction> {
        match self {
            Self::PathVector { order, .. }
            | Self::CostMap { order, .. }
            | Self::EndpointCost { order, .. }
            | Self::PropertyMap { order, .. } => *order,
        }
    }

    /// Returns the configured name of the cost metric at the server, if any.
    fn cost_metric(&self) -> Option<&str> {
        match self {
            Self::CostMap { cost_metric, .. } | Self::EndpointCost { cost_metric, .. } => {
                cost_metric.as_ref().map(CostMetric::as_str)
            }
            Self::PathVector { .. } | Self::PropertyMap { .. } => None,
        }
    }

    /// Returns whether data flow from the client to the replica.
    pub(super) fn is_reverse(&self) -> bool {
        match self {
            Self::PathVector { reverse, .. } | Self::CostMap { reverse, .. } | Self::EndpointCost { reverse, .. } => {
                *reverse
            }
            Self::PropertyMap { .. } => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOML: &str = r#"
        default-ird = "https://alto.example.org/directory"
        [metrics.as_hopcount]
        resource-type = "path-vector"
        prop-name = "as_path"
        prop-transformer = "tolist | len"
        aggr-transformer = "sum"
        [metrics.rate]
        resource-type = "endpoint-cost"
        cost-metric = "tput"
        order = "max"
        reverse = true
        [metrics.free]
        resource-type = "endpoint-cost"
        cost-metric = "bw-available:p5"
        [metrics.tput]
        resource-type = "path-vector"
        [metrics.bw_residual]
        resource-type = "endpoint-cost"
        order = "min"
    "#;

    #[test]
    fn metrics_are_defined() {
        let configuration = Configuration::parse(TOML).unwrap();
        assert_eq!(configuration.default_ird.as_deref(), Some("https://alto.example.org/directory"));
        let Metric::PathVector { resource_id: None, prop_name: Some(name), order: None, reverse: false, .. } =
            &configuration.metrics["as_hopcount"]
        else {
            panic!("{configuration:?}")
        };
        assert_eq!(name.as_str(), "as_path");
        let Metric::EndpointCost { cost_metric: Some(metric), order: Some(Direction::Max), reverse: true, .. } =
            &configuration.metrics["rate"]
        else {
            panic!("{configuration:?}")
        };
        assert_eq!(metric.as_str(), "tput");
        assert_eq!(Configuration::parse("").unwrap(), Configuration::default());
        let underscored: String = TOML
            .lines()
            .map(|line| match line.split_once(" = ") {
                Some((key, value)) => format!("{} = {value}\n", key.replace('-', "_")),
                None => format!("{line}\n"),
            })
            .collect();
        assert!(underscored.contains("resource_type") && underscored.contains("default_ird"));
        assert_eq!(Configuration::parse(&underscored).unwrap(), configuration);
    }

    #[test]
    fn what_cannot_be_is_refused() {
        for (text, expected) in [
            ("default-irdd = 'x'", "unknown field `default-irdd`"),
            ("[metrics.x]\nprop-name = 'y'", "resource-type"),
            ("[metrics.x]\nresource-type = 'map'", "unknown variant `map`"),
            ("[metrics.x]\nresource-type = 'endpoint-cost'\nprop-name = 'y'", "unknown field `prop-name`"),
            ("[metrics.x]\nresource-type = 'path-vector'\nprop-transformer = 'eval'", "column 1: expected tolist"),
            ("[metrics.x]\nresource-type = 'endpoint-cost'\norder = 'best'", "unknown variant `best`"),
        ] {
            let error = Configuration::parse(text).unwrap_err().to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }

    #[test]
    fn directions_are_those_of_the_configuration_and_then_of_the_metric() {
        let configuration = Configuration::parse(TOML).unwrap();
        for (name, direction) in [
            ("rate", Direction::Max),
            ("dst.rate", Direction::Max),
            ("as_hopcount", Direction::Min),
            ("free", Direction::Max),
            ("tput", Direction::Max),
            ("bw_residual", Direction::Min),
            ("bw-residual", Direction::Max),
            ("bw_available:mean", Direction::Max),
            ("tput:stddev", Direction::Min),
            ("delay_ow", Direction::Min),
        ] {
            assert_eq!(configuration.direction(name), direction, "{name}");
        }
    }
}
