//! Metrics as somebody defines them for an ALTO client.
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
//! Keys may have `_` for `-`. Known is also the form that the talk shows: a section `[client]` with `default_ird = ADDRESS` and `metrics = JSON`.

mod printed;

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, de::Error as _};
use serde_json::{Map, Value as Json};

use towpath_alto::{
    cost::is_more_better,
    names::{CostMetric, PropertyName, ResourceId},
    order::{Aggregate, Direction, Pipeline},
};

/// The longest configuration that is read, in bytes.
pub const MAX_CONFIGURATION_BYTES: u64 = 1 << 20;

/// What a client is told beforehand.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Configuration {
    /// The address of the directory that is asked if no other is named.
    #[serde(alias = "default_ird")]
    pub default_ird: Option<String>,
    /// Metrics by their names in statements.
    #[serde(deserialize_with = "spelled")]
    pub metrics: BTreeMap<String, Metric>,
}

/// How the value of a metric comes about. A `resource-id` may be left out where the directory has one resource of that type.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(tag = "resource-type", rename_all = "kebab-case", rename_all_fields = "kebab-case", deny_unknown_fields)]
pub enum Metric {
    /// It follows from the elements on the path between endpoints (RFC 9275 §7.3).
    PathVector {
        /// The resource.
        resource_id: Option<ResourceId>,
        /// The property of each element that counts; without it, each element counts 1.
        prop_name: Option<PropertyName>,
        /// Only elements whose names begin so count: `as:`.
        element_prefix: Option<String>,
        /// What becomes of the property.
        prop_transformer: Option<Pipeline>,
        /// How one value comes of those of all elements; `sum` if it is left out.
        aggr_transformer: Option<Aggregate>,
        /// Which values are the better ones; if it is left out, those that usually are.
        order: Option<Direction>,
        /// Whether data go from the client to the replica.
        #[serde(default)]
        reverse: bool,
    },
    /// It is the cost between the PIDs of both ends (RFC 7285 §11.2.3, §11.3.2). The client's address has to be known.
    CostMap {
        /// The resource.
        resource_id: Option<ResourceId>,
        /// What it is called there; if it is left out, as in the statement, with `-` for `_`.
        cost_metric: Option<CostMetric>,
        /// The network map that the PIDs are of; if it is left out, the one that the resource uses.
        dependent_network_map: Option<ResourceId>,
        /// Which values are the better ones; if it is left out, those that usually are.
        order: Option<Direction>,
        /// Whether data go from the client to the replica.
        #[serde(default)]
        reverse: bool,
    },
    /// It is the cost between endpoints (RFC 7285 §11.5.1).
    EndpointCost {
        /// The resource.
        resource_id: Option<ResourceId>,
        /// What it is called there; if it is left out, as in the statement, with `-` for `_`.
        cost_metric: Option<CostMetric>,
        /// Which values are the better ones; if it is left out, those that usually are.
        order: Option<Direction>,
        /// Whether data go from the client to the replica.
        #[serde(default)]
        reverse: bool,
    },
    /// It is a property of the replica's end (RFC 9240 §8, or RFC 7285 §11.4.1).
    PropertyMap {
        /// The resource.
        resource_id: Option<ResourceId>,
        /// What it is called there; if it is left out, as in the statement, perhaps with `priv:`.
        prop_name: Option<String>,
        /// What becomes of it.
        prop_transformer: Option<Pipeline>,
        /// Which values are the better ones; if it is left out, those that usually are.
        order: Option<Direction>,
    },
}

/// A metric in whose keys `_` may stand for `-`.
struct Spelled(Metric);

impl<'de> Deserialize<'de> for Spelled {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let keys = Map::<String, Json>::deserialize(deserializer)?;
        let keys = keys.into_iter().map(|(key, value)| (key.replace('_', "-"), value)).collect();
        serde_json::from_value(Json::Object(keys)).map(Self).map_err(D::Error::custom)
    }
}

fn spelled<'de, D: Deserializer<'de>>(deserializer: D) -> Result<BTreeMap<String, Metric>, D::Error> {
    let metrics = BTreeMap::<String, Spelled>::deserialize(deserializer)?;
    Ok(metrics.into_iter().map(|(name, Spelled(metric))| (name, metric)).collect())
}

/// A configuration that cannot be read; the fault of who wrote it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConfigurationError {
    /// It is no TOML, or has keys or values that there are not.
    #[error("{0}")]
    Toml(String),
    /// It begins as the talk's form does, and goes on otherwise.
    #[error("line {line}: {problem}")]
    Printed {
        /// Where, from 1; of JSON, where it begins.
        line: usize,
        /// What is wrong.
        problem: String,
    },
}

impl Configuration {
    /// Reads a configuration. The caller bounds its length to [`MAX_CONFIGURATION_BYTES`].
    ///
    /// # Errors
    /// [`ConfigurationError`].
    pub fn parse(text: &str) -> Result<Self, ConfigurationError> {
        match printed::is_printed(text) {
            true => printed::read(text),
            false => toml::from_str(text).map_err(|error| ConfigurationError::Toml(error.to_string())),
        }
    }

    /// Which values of a name in a statement are the better ones, if the statement does not say: what the configuration says; if it says nothing, of
    /// throughput and bandwidth (`tput`, `bw-residual`, `bw-available`, also with a statistic that is no spread) the greatest, of all others the least. It holds for
    /// numbers; of a server that tells ranks [`Known::direction`](super::Known::direction) knows better.
    pub fn direction(&self, name: &str) -> Direction {
        let name = name.strip_prefix("dst.").unwrap_or(name);
        let metric = self.metrics.get(name);
        let told = metric.and_then(Metric::order);
        told.unwrap_or_else(|| usual_direction(metric.and_then(Metric::cost_metric).unwrap_or(name)))
    }
}

/// Which values of a metric are the better ones if nobody says it.
fn usual_direction(metric: &str) -> Direction {
    if is_more_better(&metric.replace('_', "-")) { Direction::Max } else { Direction::Min }
}

impl Metric {
    /// Which values are the better ones, if that is told.
    fn order(&self) -> Option<Direction> {
        match self {
            Self::PathVector { order, .. }
            | Self::CostMap { order, .. }
            | Self::EndpointCost { order, .. }
            | Self::PropertyMap { order, .. } => *order,
        }
    }

    /// What the cost is called at the server, if that is told.
    fn cost_metric(&self) -> Option<&str> {
        match self {
            Self::CostMap { cost_metric, .. } | Self::EndpointCost { cost_metric, .. } => {
                cost_metric.as_ref().map(CostMetric::as_str)
            }
            Self::PathVector { .. } | Self::PropertyMap { .. } => None,
        }
    }

    /// Whether data go from the client to the replica.
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
        for (text, told) in [
            ("default-irdd = 'x'", "unknown field `default-irdd`"),
            ("[metrics.x]\nprop-name = 'y'", "resource-type"),
            ("[metrics.x]\nresource-type = 'map'", "unknown variant `map`"),
            ("[metrics.x]\nresource-type = 'endpoint-cost'\nprop-name = 'y'", "unknown field `prop-name`"),
            ("[metrics.x]\nresource-type = 'path-vector'\nprop-transformer = 'eval'", "column 1: expected tolist"),
            ("[metrics.x]\nresource-type = 'endpoint-cost'\norder = 'best'", "unknown variant `best`"),
        ] {
            let error = Configuration::parse(text).unwrap_err().to_string();
            assert!(error.contains(told), "{text}: {error}");
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
