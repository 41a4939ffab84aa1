//! Cost types, and the tests that costs are put to (RFC 7285 §6.1, §11.3.2.3; RFC 8189 §4).

use std::{collections::BTreeSet, fmt};

use serde::{Deserialize, Serialize, Serializer};
use serde_json::{Map, Value};

use crate::{
    fields::Fields,
    names::{CostMetric, Malformed},
    problem::Problem,
};

/// How the values of a cost are to be read (RFC 7285 §10.5, RFC 9274).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum CostMode {
    /// As numbers of the metric's unit.
    Numerical,
    /// As ranks: lower is better whatever the metric, and nothing else is told (RFC 7285 §6.1.2.2).
    Ordinal,
    /// As lists (RFC 9275): of what is on the path.
    Array,
}

impl CostMode {
    /// Its name in messages.
    pub fn name(self) -> &'static str {
        match self {
            CostMode::Numerical => "numerical",
            CostMode::Ordinal => "ordinal",
            CostMode::Array => "array",
        }
    }
}

/// What a cost is (RFC 7285 §10.7).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct CostType {
    /// How its values are to be read.
    pub cost_mode: CostMode,
    /// What it measures.
    pub cost_metric: CostMetric,
}

/// Metrics of which more is better: throughput and free bandwidth (RFC 9439 §5).
const MORE_IS_BETTER: [&str; 3] = ["tput", "bw-residual", "bw-available"];

/// Statistics that say how far values are apart, of which less is better whatever is measured (RFC 9439 §3.3).
const SPREADS: [&str; 2] = ["stddev", "stdvar"];

/// Whether more is better of a metric with that name, which may have a statistic behind it: `tput:p95`.
pub fn is_more_better(metric: &str) -> bool {
    let (base, statistic) = metric.split_once(':').unwrap_or((metric, ""));
    MORE_IS_BETTER.contains(&base) && !SPREADS.contains(&statistic)
}

/// Metrics that are registered (RFC 7285 §14.3, RFC 9439 §6).
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

/// Statistics that have a word (RFC 9439 §3.2).
const STATISTICS: [&str; 7] = ["cur", "min", "max", "median", "mean", "stddev", "stdvar"];

/// Whether clients may know a metric with that name, or know that it is private: it is registered, or begins with `priv:` (RFC 7285 §10.6), perhaps with a statistic behind it.
pub(crate) fn is_registered(metric: &str) -> bool {
    let base =
        metric.rsplit_once(':').filter(|(_, statistic)| is_statistic(statistic)).map_or(metric, |(base, _)| base);
    REGISTERED.contains(&base) || base.starts_with("priv:") && !base.contains('.')
}

/// Whether that is a statistic: a word, or a percentile such as `p99.9`.
fn is_statistic(text: &str) -> bool {
    let is_share = |share: &str| {
        share.starts_with(|first: char| first.is_ascii_digit()) && share.parse().is_ok_and(|share: f64| share <= 100.0)
    };
    STATISTICS.contains(&text) || text.strip_prefix('p').is_some_and(is_share)
}

/// Whether the values of a metric with that name, which may have a statistic behind it, are whole numbers (RFC 9439 §4.5.2).
pub fn is_whole(metric: &str) -> bool {
    metric.split(':').next() == Some("hopcount")
}

/// Where the values of a metric come from (RFC 9439 §3.1). What says nothing is an estimation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct CostContext {
    /// From whom.
    pub cost_source: CostSource,
    /// How: which measurement, or which agreement.
    #[serde(default, deserialize_with = "crate::nested::values", skip_serializing_if = "Map::is_empty")]
    pub parameters: Map<String, Value>,
}

/// From whom values are (RFC 9439 §3.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CostSource {
    /// Static, by design.
    Nominal,
    /// What a service level agreement promises.
    Sla,
    /// Measured, or worked out.
    Estimation,
}

/// `metric-mode`: how a directory calls the type (RFC 7285 §9.2.2).
impl fmt::Display for CostType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.cost_metric, self.cost_mode.name())
    }
}

impl CostType {
    /// The one whose values are paths (RFC 9275 §6.5).
    pub fn path_vector() -> Self {
        Self { cost_mode: CostMode::Array, cost_metric: CostMetric::new("ane-path").expect("a valid name") }
    }

    /// The type that an object tells, which must be one of `offered`.
    fn read(fields: Fields<'_>, offered: &[CostType]) -> Result<Self, Problem> {
        let text = |field| fields.text(field)?.ok_or_else(|| fields.missing(field));
        let (metric, mode) = (text("cost-metric")?, text("cost-mode")?);
        let of_metric = || offered.iter().filter(|offer| offer.cost_metric.as_str() == metric);
        if of_metric().next().is_none() {
            return Err(fields.refuse("cost-metric", metric, "this resource has no such metric"));
        }
        let found = of_metric().find(|offer| offer.cost_mode.name() == mode);
        found.cloned().ok_or_else(|| fields.refuse("cost-mode", mode, "this resource has that metric in no such mode"))
    }
}

/// How many types of costs may be asked for, or tested, at once: each is looked up for all pairs.
pub(crate) const MOST_TYPES: usize = 16;

/// How many costs may be asked for, or tested, at once: those of ten types of the most pairs.
const MOST_COSTS: usize = 5_000_000;

/// How a cost is compared.
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

/// One test of one cost: `le 10`, `[1] gt 0.5`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Constraint {
    /// Which of the testable types, from 0.
    index: usize,
    comparison: Comparison,
    value: f64,
}

impl Constraint {
    /// Reads a constraint on one of `types` testable types. An index is allowed if the request may ask for several types.
    ///
    /// # Errors
    /// If it has another form, or there is no such type.
    pub fn parse(text: &str, types: usize, may_index: bool) -> Result<Self, Malformed> {
        let malformed = || {
            Malformed::new(
                "constraint",
                text,
                "gt, lt, ge, le or eq, a blank, and a number; of several types with [index] before it",
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

    /// Whether a pair with these costs, by the positions of testable types, passes. A cost that is not known passes no test.
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

/// What a resource with costs can be asked for (RFC 7285 §11.3.2.4, RFC 8189 §4.1.1).
#[derive(Debug, Clone)]
pub struct CostCapabilities {
    /// The types that it has.
    pub cost_types: Vec<CostType>,
    /// How many may be asked for at once.
    pub max_cost_types: usize,
    /// Those that may be tested; none means that no constraint is taken.
    pub testable: Vec<CostType>,
}

/// What a request says of costs (RFC 8189 §4.1.2).
#[derive(Debug, Clone)]
pub struct CostQuery {
    /// The types asked for, in the order in which they are answered.
    pub types: Vec<CostType>,
    /// Whether several were asked for, so that values are lists, even of one.
    pub is_multi: bool,
    /// The types that constraints count.
    pub testable: Vec<CostType>,
    /// A pair passes if all tests of one of these hold. Empty: all pairs pass.
    pub tests: Vec<Vec<Constraint>>,
}

impl CostQuery {
    /// Reads `cost-type` or `multi-cost-types`, `testable-cost-types`, `constraints` or `or-constraints`.
    ///
    /// # Errors
    /// [`Problem`] if they are malformed, or ask for what the resource cannot.
    pub fn read(fields: Fields<'_>, can: &CostCapabilities) -> Result<Self, Problem> {
        let (types, is_multi) = wanted(fields, can)?;
        let testable = match type_list(fields, "testable-cost-types", &can.testable)? {
            Some(testable) if testable.is_empty() || testable.len() > can.testable.len().min(MOST_TYPES) => {
                let allowed = format!("this may name 1 to {} types", can.testable.len().min(MOST_TYPES));
                return Err(fields.refuse_present("testable-cost-types", &allowed));
            }
            Some(testable) => testable,
            None => types.clone(),
        };
        let tests = Tests { fields, can, testable: &testable }.read()?;
        Ok(Self { types, is_multi, testable, tests })
    }

    /// Refuses to look up more costs of so many pairs than [`MOST_COSTS`]. `fields` are those that it was read from.
    ///
    /// # Errors
    /// [`Problem`] of the field that names the types.
    pub fn bound(&self, fields: Fields<'_>, pairs: usize) -> Result<(), Problem> {
        let tested: BTreeSet<usize> = self.tested().collect();
        if pairs.saturating_mul(self.types.len() + tested.len()) <= MOST_COSTS {
            return Ok(());
        }
        let field = if self.is_multi { "multi-cost-types" } else { "testable-cost-types" };
        let most =
            format!("at most {MOST_COSTS} costs can be asked for, or tested, at once: name fewer types or pairs");
        Err(fields.refuse_present(field, &most))
    }

    /// Whether a pair with these costs, by the positions of testable types, passes.
    pub fn passes(&self, cost: &dyn Fn(usize) -> Option<f64>) -> bool {
        self.tests.is_empty() || self.tests.iter().any(|all| all.iter().all(|test| test.holds(cost)))
    }

    /// The positions of the testable types that are tested.
    pub fn tested(&self) -> impl Iterator<Item = usize> {
        self.tests.iter().flatten().map(|test| test.index)
    }
}

/// The types that are asked for, and whether as a list.
fn wanted(fields: Fields<'_>, can: &CostCapabilities) -> Result<(Vec<CostType>, bool), Problem> {
    let several = type_list(fields, "multi-cost-types", &can.cost_types)?;
    // Beside several types an empty one asks for none: an example of RFC 8896 §5.2 does so.
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
            Err(fields.refuse_present("multi-cost-types", "only one of this and cost-type can be asked for"))
        }
        (None, None) => Err(fields.missing("cost-type")),
    }
}

/// Whether an object says nothing of a type.
fn is_blank(object: Fields<'_>) -> bool {
    ["cost-metric", "cost-mode"].into_iter().all(|field| matches!(object.text(field), Ok(None)))
}

/// A list of types, each of which is offered.
fn type_list(fields: Fields<'_>, field: &str, offered: &[CostType]) -> Result<Option<Vec<CostType>>, Problem> {
    fields.list(field, |element| {
        let object = Fields::of(element).map_err(|_| "this must be a cost type".to_owned())?;
        CostType::read(object, offered).map_err(|problem| problem.to_string())
    })
}

/// How many constraints may be asked for at once: each is tried on each pair.
const MOST_TESTS: usize = 64;

/// The constraints of a request.
struct Tests<'a> {
    fields: Fields<'a>,
    can: &'a CostCapabilities,
    testable: &'a [CostType],
}

impl Tests<'_> {
    fn read(&self) -> Result<Vec<Vec<Constraint>>, Problem> {
        let all = self.fields.texts("constraints", |text| self.parse(text))?;
        let alternatives = self.fields.list("or-constraints", |element| self.parse_all(element))?;
        let (field, tests) = match (all, alternatives) {
            (Some(_), Some(_)) => {
                return Err(self
                    .fields
                    .refuse_present("or-constraints", "only one of this and constraints can be there"));
            }
            (Some(all), None) if all.is_empty() => return Ok(Vec::new()),
            (Some(all), None) => ("constraints", vec![all]),
            (None, Some(alternatives)) if alternatives.is_empty() || alternatives.iter().any(Vec::is_empty) => {
                let reason = "it, and each list in it, must have something in it";
                return Err(self.fields.refuse("or-constraints", "[]", reason));
            }
            (None, Some(alternatives)) => ("or-constraints", alternatives),
            (None, None) => return Ok(Vec::new()),
        };
        let count = tests.iter().map(Vec::len).sum::<usize>();
        if count > MOST_TESTS {
            let most = format!("at most {MOST_TESTS} constraints can be asked for at once");
            return Err(self.fields.refuse_present(field, &most));
        }
        let mut tested = tests.iter().flatten().map(|test| &self.testable[test.index]);
        match tested.find(|tested| !self.can.testable.contains(tested)) {
            Some(tested) => Err(self.fields.refuse(field, &tested.to_string(), "this cost cannot be tested here")),
            None => Ok(tests),
        }
    }

    fn parse(&self, text: &str) -> Result<Constraint, Malformed> {
        Constraint::parse(text, self.testable.len(), self.can.max_cost_types > 1)
    }

    fn parse_all(&self, element: &Value) -> Result<Vec<Constraint>, String> {
        let tests = element.as_array().ok_or("this must be a list of lists of constraints")?;
        let parse = |test: &Value| self.parse(test.as_str().unwrap_or_default()).map_err(|error| error.to_string());
        tests.iter().map(parse).collect()
    }
}

/// Each of these costs once, the least first.
pub(crate) fn ascending(costs: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut costs: Vec<f64> = costs.collect();
    costs.sort_unstable_by(f64::total_cmp);
    costs.dedup();
    costs
}

/// A number that is written without a fraction where it has none.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Number(pub(crate) f64);

impl Serialize for Number {
    #[expect(clippy::cast_possible_truncation, reason = "it was compared before")]
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        /// From here on floats are further apart than whole numbers.
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
        let many = json!({ "cost-type": routing(), "or-constraints": vec![vec!["le 0"]; MOST_TESTS + 1] });
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
