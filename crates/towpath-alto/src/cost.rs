//! Cost types and constraints on costs (RFC 7285 §6.1, §11.3.2.3; RFC 8189 §4).

use std::{collections::BTreeSet, fmt};

use serde::{Deserialize, Serialize, Serializer};
use serde_json::{Map, Value};

use crate::{
    fields::Fields,
    names::{CostMetric, ParseError},
    problem::Problem,
};

/// How cost values are interpreted (RFC 7285 §10.5, RFC 9274).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum CostMode {
    /// Numbers in the unit of the metric.
    Numerical,
    /// Ranks: lower is better for every metric, and the values carry no other meaning (RFC 7285 §6.1.2.2).
    Ordinal,
    /// Lists of the elements on the path (RFC 9275).
    Array,
}

impl CostMode {
    /// Returns the name used in messages.
    pub fn name(self) -> &'static str {
        match self {
            CostMode::Numerical => "numerical",
            CostMode::Ordinal => "ordinal",
            CostMode::Array => "array",
        }
    }
}

/// A cost type (RFC 7285 §10.7).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct CostType {
    /// How the values are interpreted.
    pub cost_mode: CostMode,
    /// The metric.
    pub cost_metric: CostMetric,
}

/// Metrics for which higher is better: throughput and available bandwidth (RFC 9439 §5).
const MORE_IS_BETTER: [&str; 3] = ["tput", "bw-residual", "bw-available"];

/// Statistics that measure spread, for which lower is better regardless of the metric (RFC 9439 §3.3).
const SPREADS: [&str; 2] = ["stddev", "stdvar"];

/// Returns whether higher is better for a metric, which may have a statistic suffix: `tput:p95`.
pub fn is_more_better(metric: &str) -> bool {
    let (base, statistic) = metric.split_once(':').unwrap_or((metric, ""));
    MORE_IS_BETTER.contains(&base) && !SPREADS.contains(&statistic)
}

/// The registered metrics (RFC 7285 §14.3, RFC 9439 §6).
const REGISTERED: [&str; 9] = [
    "routingcost",
    "hopcount",
    "delay-ow",
    "delay-rt",
    "delay-variation",
    "lossrate",
    "tput",
    "bw-residual",
    "bw-available",
];

/// Statistics with a name (RFC 9439 §3.2).
const STATISTICS: [&str; 7] = ["cur", "min", "max", "median", "mean", "stddev", "stdvar"];

/// Returns whether a metric is registered or private, that is, starts with `priv:` (RFC 7285 §10.6), with an optional
/// statistic.
pub(crate) fn is_registered(metric: &str) -> bool {
    let base =
        metric.rsplit_once(':').filter(|(_, statistic)| is_statistic(statistic)).map_or(metric, |(base, _)| base);
    REGISTERED.contains(&base) || base.starts_with("priv:") && !base.contains('.')
}

/// Returns whether the text is a statistic: a name, or a percentile such as `p99.9`.
fn is_statistic(text: &str) -> bool {
    let is_share = |share: &str| {
        share.starts_with(|first: char| first.is_ascii_digit()) && share.parse().is_ok_and(|share: f64| share <= 100.0)
    };
    STATISTICS.contains(&text) || text.strip_prefix('p').is_some_and(is_share)
}

/// Returns whether the values of a metric, with an optional statistic, are integers (RFC 9439 §4.5.2).
pub fn is_whole(metric: &str) -> bool {
    metric.split(':').next() == Some("hopcount")
}

/// The origin of a metric's values (RFC 9439 §3.1). Without a context, values are estimations.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct CostContext {
    /// The kind of source.
    pub cost_source: CostSource,
    /// Details of the measurement or agreement.
    #[serde(default, deserialize_with = "crate::nested::values", skip_serializing_if = "Map::is_empty")]
    pub parameters: Map<String, Value>,
}

/// The kind of source of a metric's values (RFC 9439 §3.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CostSource {
    /// Static, by design.
    Nominal,
    /// Guaranteed by a service level agreement.
    Sla,
    /// Measured or computed.
    Estimation,
}

/// `metric-mode`: the name of the type in a directory (RFC 7285 §9.2.2).
impl fmt::Display for CostType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.cost_metric, self.cost_mode.name())
    }
}

impl CostType {
    /// Returns the cost type of path vectors (RFC 9275 §6.5).
    pub fn path_vector() -> Self {
        Self { cost_mode: CostMode::Array, cost_metric: CostMetric::new("ane-path").expect("a valid name") }
    }

    /// Reads a cost type, which must be one of `offered`.
    fn read(fields: Fields<'_>, offered: &[CostType]) -> Result<Self, Problem> {
        let text = |field| fields.text(field)?.ok_or_else(|| fields.missing(field));
        let (metric, mode) = (text("cost-metric")?, text("cost-mode")?);
        let of_metric = || offered.iter().filter(|offer| offer.cost_metric.as_str() == metric);
        if of_metric().next().is_none() {
            return Err(fields.refuse("cost-metric", metric, "this resource has no such metric"));
        }
        let found = of_metric().find(|offer| offer.cost_mode.name() == mode);
        found
            .cloned()
            .ok_or_else(|| fields.refuse("cost-mode", mode, "this resource does not have the metric in this mode"))
    }
}

/// Maximum number of cost types per request, requested or tested: each is looked up for all pairs.
pub(crate) const MAX_TYPES: usize = 16;

/// Maximum number of costs per request, requested or tested: ten types for the maximum number of pairs.
const MAX_COSTS: usize = 5_000_000;

/// A comparison operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Comparison {
    Greater,
    Less,
    GreaterOrEqual,
    LessOrEqual,
    Equal,
}

const COMPARISONS: [(&str, Comparison); 5] = [
    ("gt", Comparison::Greater),
    ("lt", Comparison::Less),
    ("ge", Comparison::GreaterOrEqual),
    ("le", Comparison::LessOrEqual),
    ("eq", Comparison::Equal),
];

/// A constraint on one cost: `le 10`, `[1] gt 0.5`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Constraint {
    /// Index of the testable type, from 0.
    index: usize,
    comparison: Comparison,
    value: f64,
}

impl Constraint {
    /// Parses a constraint on one of `types` testable types. An index is allowed if the request may have several
    /// types.
    ///
    /// # Errors
    /// If the constraint is malformed, or the index is out of range.
    pub fn parse(text: &str, types: usize, may_index: bool) -> Result<Self, ParseError> {
        let malformed = || {
            ParseError::new(
                "constraint",
                text,
                "gt, lt, ge, le or eq, a space, and a number; for several types with [index] before it",
            )
        };
        let (index, rest) = match text.trim().strip_prefix('[') {
            Some(indexed) if may_index => {
                let (index, rest) = indexed.split_once(']').ok_or_else(malformed)?;
                (index.trim().parse().map_err(|_| malformed())?, rest)
            }
            _ => (0, text),
        };
        let (name, value) = rest.trim().split_once(char::is_whitespace).ok_or_else(malformed)?;
        let comparison = COMPARISONS.iter().find(|(known, _)| *known == name).ok_or_else(malformed)?.1;
        let value: f64 = value.trim().parse().map_err(|_| malformed())?;
        if index >= types || !value.is_finite() {
            return Err(malformed());
        }
        Ok(Self { index, comparison, value })
    }

    /// Returns whether the costs of a pair, looked up by index of the testable type, satisfy the constraint. An
    /// unknown cost satisfies none.
    pub fn holds(&self, cost: &dyn Fn(usize) -> Option<f64>) -> bool {
        let Some(cost) = cost(self.index) else { return false };
        match self.comparison {
            Comparison::Greater => cost > self.value,
            Comparison::Less => cost < self.value,
            Comparison::GreaterOrEqual => cost >= self.value,
            Comparison::LessOrEqual => cost <= self.value,
            #[expect(clippy::float_cmp, reason = "RFC 7285 §11.3.2.3 compares with the number itself")]
            Comparison::Equal => cost == self.value,
        }
    }
}

/// Capabilities of a resource with costs (RFC 7285 §11.3.2.4, RFC 8189 §4.1.1).
#[derive(Debug, Clone)]
pub struct CostCapabilities {
    /// The available types.
    pub cost_types: Vec<CostType>,
    /// Maximum number of types per request.
    pub max_cost_types: usize,
    /// The types allowed in constraints; if empty, constraints are not accepted.
    pub testable: Vec<CostType>,
}

/// The cost part of a request (RFC 8189 §4.1.2).
#[derive(Debug, Clone)]
pub struct CostQuery {
    /// The requested types, in response order.
    pub types: Vec<CostType>,
    /// Whether `multi-cost-types` was used, so that values are lists even for one type.
    pub is_multi: bool,
    /// The types that constraint indices refer to.
    pub testable: Vec<CostType>,
    /// Alternatives: a pair passes if all constraints of one of them hold. If empty, all pairs pass.
    pub tests: Vec<Vec<Constraint>>,
}

impl CostQuery {
    /// Reads `cost-type` or `multi-cost-types`, `testable-cost-types`, `constraints` or `or-constraints`.
    ///
    /// # Errors
    /// [`Problem`] if they are malformed or exceed the capabilities.
    pub fn read(fields: Fields<'_>, can: &CostCapabilities) -> Result<Self, Problem> {
        let (types, is_multi) = requested_types(fields, can)?;
        let testable = match type_list(fields, "testable-cost-types", &can.testable)? {
            Some(testable) if testable.is_empty() || testable.len() > can.testable.len().min(MAX_TYPES) => {
                let allowed = format!("this may name 1 to {} types", can.testable.len().min(MAX_TYPES));
                return Err(fields.refuse_present("testable-cost-types", &allowed));
            }
            Some(testable) => testable,
            None => types.clone(),
        };
        let tests = ConstraintReader { fields, can, testable: &testable }.read()?;
        Ok(Self { types, is_multi, testable, tests })
    }

    /// Checks that the number of costs for `pairs` pairs does not exceed [`MAX_COSTS`]. `fields` is the request that
    /// this query was read from.
    ///
    /// # Errors
    /// [`Problem`] for the field that lists the types.
    pub(crate) fn check_limit(&self, fields: Fields<'_>, pairs: usize) -> Result<(), Problem> {
        let tested: BTreeSet<usize> = self.tested_types().collect();
        if pairs.saturating_mul(self.types.len() + tested.len()) <= MAX_COSTS {
            return Ok(());
        }
        let field = if self.is_multi { "multi-cost-types" } else { "testable-cost-types" };
        let most =
            format!("at most {MAX_COSTS} costs can be requested or tested at once: request fewer types or pairs");
        Err(fields.refuse_present(field, &most))
    }

    /// Returns whether a pair passes, given its costs by index of the testable type.
    pub fn passes(&self, cost: &dyn Fn(usize) -> Option<f64>) -> bool {
        self.tests.is_empty() || self.tests.iter().any(|all| all.iter().all(|test| test.holds(cost)))
    }

    /// Returns the indices of the testable types used in constraints.
    pub(crate) fn tested_types(&self) -> impl Iterator<Item = usize> {
        self.tests.iter().flatten().map(|test| test.index)
    }
}

/// Reads the requested types, and whether they form a list.
fn requested_types(fields: Fields<'_>, can: &CostCapabilities) -> Result<(Vec<CostType>, bool), Problem> {
    let several = type_list(fields, "multi-cost-types", &can.cost_types)?;
    // An empty `cost-type` beside `multi-cost-types` is ignored, as in an example of RFC 8896 §5.2.
    let single = fields.object("cost-type")?.filter(|object| several.is_none() || !is_blank(*object));
    let single = single.map(|object| CostType::read(object, &can.cost_types)).transpose()?;
    match (single, several) {
        (Some(single), None) => Ok((vec![single], false)),
        (None, Some(several)) if several.is_empty() || several.len() > can.max_cost_types => {
            let allowed = format!("this may name 1 to {} types", can.max_cost_types);
            Err(fields.refuse_present("multi-cost-types", &allowed))
        }
        (None, Some(several)) => Ok((several, true)),
        (Some(_), Some(_)) => {
            Err(fields.refuse_present("multi-cost-types", "this and cost-type are mutually exclusive"))
        }
        (None, None) => Err(fields.missing("cost-type")),
    }
}

/// Returns whether an object specifies no cost type.
fn is_blank(object: Fields<'_>) -> bool {
    ["cost-metric", "cost-mode"].into_iter().all(|field| matches!(object.text(field), Ok(None)))
}

/// Reads a list of types, all from `offered`.
fn type_list(fields: Fields<'_>, field: &str, offered: &[CostType]) -> Result<Option<Vec<CostType>>, Problem> {
    fields.list(field, |element| {
        let object = Fields::of(element).map_err(|_| "this must be a cost type".to_owned())?;
        CostType::read(object, offered).map_err(|problem| problem.to_string())
    })
}

/// Maximum number of constraints per request: each is evaluated for each pair.
const MAX_TESTS: usize = 64;

/// Reads the constraints of a request.
struct ConstraintReader<'a> {
    fields: Fields<'a>,
    can: &'a CostCapabilities,
    testable: &'a [CostType],
}

impl ConstraintReader<'_> {
    fn read(&self) -> Result<Vec<Vec<Constraint>>, Problem> {
        let all = self.fields.texts("constraints", |text| self.parse(text))?;
        let alternatives = self.fields.list("or-constraints", |element| self.parse_all(element))?;
        let (field, tests) = match (all, alternatives) {
            (Some(_), Some(_)) => {
                return Err(self
                    .fields
                    .refuse_present("or-constraints", "this and constraints are mutually exclusive"));
            }
            (Some(all), None) if all.is_empty() => return Ok(Vec::new()),
            (Some(all), None) => ("constraints", vec![all]),
            (None, Some(alternatives)) if alternatives.is_empty() || alternatives.iter().any(Vec::is_empty) => {
                let reason = "neither the list nor its elements may be empty";
                return Err(self.fields.refuse("or-constraints", "[]", reason));
            }
            (None, Some(alternatives)) => ("or-constraints", alternatives),
            (None, None) => return Ok(Vec::new()),
        };
        let count = tests.iter().map(Vec::len).sum::<usize>();
        if count > MAX_TESTS {
            let most = format!("at most {MAX_TESTS} constraints are allowed");
            return Err(self.fields.refuse_present(field, &most));
        }
        let mut tested = tests.iter().flatten().map(|test| &self.testable[test.index]);
        match tested.find(|tested| !self.can.testable.contains(tested)) {
            Some(tested) => Err(self.fields.refuse(
                field,
                &tested.to_string(),
                "constraints on this cost type are not supported here",
            )),
            None => Ok(tests),
        }
    }

    fn parse(&self, text: &str) -> Result<Constraint, ParseError> {
        Constraint::parse(text, self.testable.len(), self.can.max_cost_types > 1)
    }

    fn parse_all(&self, element: &Value) -> Result<Vec<Constraint>, String> {
        let tests = element.as_array().ok_or("this must be a list of lists of constraints")?;
        let parse = |test: &Value| self.parse(test.as_str().unwrap_or_default()).map_err(|error| error.to_string());
        tests.iter().map(parse).collect()
    }
}

/// Returns the distinct costs in ascending order.
pub(crate) fn sort_distinct(costs: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut costs: Vec<f64> = costs.collect();
    costs.sort_unstable_by(f64::total_cmp);
    costs.dedup();
    costs
}

/// A number serialized without a fraction if it has none.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Number(pub(crate) f64);

impl Serialize for Number {
    #[expect(clippy::cast_possible_truncation, reason = "it was compared before")]
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        /// 2^53: from here on not every integer has an exact `f64`.
        const WHOLE: f64 = 9_007_199_254_740_992.0;
        if self.0.fract() == 0.0 && self.0.abs() < WHOLE {
            serializer.serialize_i64(self.0 as i64)
        } else {
            serializer.serialize_f64(self.0)
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::problem::Code;

    fn kind(metric: &str, cost_mode: CostMode) -> CostType {
        CostType { cost_mode, cost_metric: CostMetric::new(metric).unwrap() }
    }

    fn can() -> CostCapabilities {
        let cost_types = vec![kind("routingcost", CostMode::Numerical), kind("hopcount", CostMode::Numerical)];
        CostCapabilities { testable: cost_types.clone(), cost_types, max_cost_types: 2 }
    }

    fn read(request: &Value) -> Result<CostQuery, Problem> {
        CostQuery::read(Fields::of(request).unwrap(), &can())
    }

    fn routing() -> Value {
        json!({ "cost-mode": "numerical", "cost-metric": "routingcost" })
    }

    fn hops() -> Value {
        json!({ "cost-mode": "numerical", "cost-metric": "hopcount" })
    }

    #[test]
    fn more_is_better_of_throughput_and_free_bandwidth() {
        for (metric, expected) in [
            ("tput", true),
            ("bw-residual:p5", true),
            ("bw-available:mean", true),
            ("tput:stddev", false),
            ("tput:stdvar", false),
            ("delay-ow", false),
            ("routingcost", false),
            ("priv:tput", false),
        ] {
            assert_eq!(is_more_better(metric), expected, "{metric}");
        }
    }

    #[test]
    fn q2_metrics_are_registered_or_private() {
        for metric in ["routingcost", "tput:p95", "delay-ow:p99.9", "hopcount:cur", "priv:x", "priv:x:y", "priv:x:p0.5"]
        {
            assert!(is_registered(metric), "{metric}");
        }
        for metric in
            ["shoesize", "delay-ow:foo", "delay-ow:p101", "tput:p", "tput:p-1", "priv:a.b", "priv:a.b:mean", "priv"]
        {
            assert!(!is_registered(metric), "{metric}");
        }
    }

    #[test]
    fn a_constraint_compares_one_cost() {
        let holds =
            |text: &str, costs: &[Option<f64>]| Constraint::parse(text, 2, true).unwrap().holds(&|index| costs[index]);
        for (text, cost, expected) in [
            ("le 5", 5.0, true),
            ("lt 5", 5.0, false),
            ("ge 5.5", 5.0, false),
            ("gt 4", 5.0, true),
            ("eq 5", 5.0, true),
        ] {
            assert_eq!(holds(text, &[Some(cost), None]), expected, "{text}");
        }
        assert!(holds("[1] le 3", &[Some(9.0), Some(3.0)]));
        assert!(!holds("[1] le 3", &[Some(1.0), None]));
        for text in ["le", "le x", "<= 5", "[2] le 1", "[x] le 1", "[0 le 1", "le inf", ""] {
            assert!(Constraint::parse(text, 2, true).is_err(), "{text}");
        }
        assert!(Constraint::parse("[0] le 1", 1, false).is_err(), "an index is of RFC 8189");
    }

    #[test]
    fn x1_one_of_one_type_and_several() {
        let one = read(&json!({ "cost-type": routing() })).unwrap();
        assert!(!one.is_multi && one.types.len() == 1);
        let list = read(&json!({ "multi-cost-types": [routing()] })).unwrap();
        assert!(list.is_multi && list.types.len() == 1);
        let refused = |request| read(&request).unwrap_err();
        let both = refused(json!({ "cost-type": routing(), "multi-cost-types": [hops()] }));
        assert_eq!(both.code, Code::InvalidFieldValue);
        assert!(read(&json!({ "cost-type": {}, "multi-cost-types": [hops()] })).is_ok_and(|query| query.is_multi));
        let three = refused(json!({ "multi-cost-types": [hops(), routing(), hops()] }));
        assert_eq!((three.code, three.field.as_deref()), (Code::InvalidFieldValue, Some("multi-cost-types")));
        let none = refused(json!({}));
        assert_eq!((none.code, none.field.as_deref()), (Code::MissingField, Some("cost-type")));
    }

    #[test]
    fn m2_a_type_must_be_there() {
        let refused = |kind: Value| {
            let problem = read(&json!({ "cost-type": kind })).unwrap_err();
            (problem.code, problem.field.unwrap_or_default())
        };
        let metric = refused(json!({ "cost-mode": "numerical", "cost-metric": "x" }));
        assert_eq!(metric, (Code::InvalidFieldValue, "cost-type/cost-metric".into()));
        let mode = refused(json!({ "cost-mode": "ordinal", "cost-metric": "hopcount" }));
        assert_eq!(mode, (Code::InvalidFieldValue, "cost-type/cost-mode".into()));
        assert_eq!(refused(json!({ "cost-mode": "ordinal" })), (Code::MissingField, "cost-type/cost-metric".into()));
        assert_eq!(refused(json!("routingcost")), (Code::InvalidFieldType, "cost-type".into()));
    }

    #[test]
    fn x2_alternatives_of_tests() {
        let query = read(&json!({
            "multi-cost-types": [routing()],
            "testable-cost-types": [hops(), routing()],
            "or-constraints": [["le 2"], ["[0] le 4", "[1] lt 10"]],
        }));
        let query = query.unwrap();
        let passes = |costs: [f64; 2]| query.passes(&|index| Some(costs[index]));
        assert!(passes([2.0, 99.0]) && passes([4.0, 9.0]) && !passes([4.0, 10.0]));
        for field in ["constraints", "or-constraints"] {
            let problem = read(&json!({ "cost-type": routing(), field: ["le"] })).unwrap_err();
            assert_eq!((problem.code, problem.field.as_deref()), (Code::InvalidFieldValue, Some(field)));
        }
        for empty in [json!([[]]), json!([]), json!([["le 2"], []])] {
            let problem = read(&json!({ "cost-type": routing(), "or-constraints": empty })).unwrap_err();
            assert_eq!((problem.code, problem.field.as_deref()), (Code::InvalidFieldValue, Some("or-constraints")));
        }
        assert!(read(&json!({ "cost-type": routing(), "constraints": [], "or-constraints": [] })).is_err());
    }

    #[test]
    fn what_would_take_too_long_is_refused() {
        let many = json!({ "cost-type": routing(), "or-constraints": vec![vec!["le 0"]; MAX_TESTS + 1] });
        assert_eq!(read(&many).unwrap_err().field.as_deref(), Some("or-constraints"));
        let many =
            json!({ "cost-type": routing(), "testable-cost-types": vec![routing(); 3], "constraints": ["le 0"] });
        assert_eq!(read(&many).unwrap_err().field.as_deref(), Some("testable-cost-types"));
    }

    #[test]
    fn what_cannot_be_tested_is_refused() {
        let request = json!({ "cost-type": routing(), "constraints": ["le 5"] });
        let can = CostCapabilities { testable: Vec::new(), ..can() };
        let problem = CostQuery::read(Fields::of(&request).unwrap(), &can).unwrap_err();
        assert_eq!((problem.code, problem.field.as_deref()), (Code::InvalidFieldValue, Some("constraints")));
    }
}
