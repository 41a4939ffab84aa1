//! Conditions on a candidate, in the three-valued logic of SQL: true, false, or unknown (`None`).

use std::{cmp::Ordering, fmt};

use super::value::{CandidateValues, Value, look_up};

/// A condition. The parser limits its depth, so that recursion over it is safe.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Condition {
    /// At least two terms; never nested `All`s.
    All(Vec<Condition>),
    /// At least two terms; never nested `Any`s.
    Any(Vec<Condition>),
    Not(Box<Condition>),
    Compare {
        left: Operand,
        comparison: Comparison,
        right: Operand,
    },
    In {
        name: String,
        values: Vec<Value>,
    },
    IsNull(String),
    /// The value itself is true, or not 0.
    Bare(String),
}

/// One side of a comparison.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Operand {
    Name(String),
    Value(Value),
}

/// Comparison operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Comparison {
    Equal,
    Unequal,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

impl Condition {
    /// Returns the conjunction. Nested conjunctions are flattened, so that equal conditions have one form.
    pub(super) fn and(self, other: Self) -> Self {
        let open = |condition| match condition {
            Self::All(terms) => terms,
            term => vec![term],
        };
        let mut terms = open(self);
        terms.extend(open(other));
        Self::All(terms)
    }

    /// Returns the disjunction, flattened likewise.
    pub(super) fn or(self, other: Self) -> Self {
        let open = |condition| match condition {
            Self::Any(terms) => terms,
            term => vec![term],
        };
        let mut terms = open(self);
        terms.extend(open(other));
        Self::Any(terms)
    }

    /// Evaluates the condition for `candidate`.
    pub(super) fn holds<L: CandidateValues>(&self, candidate: &L) -> Option<bool> {
        match self {
            Self::All(terms) => all(terms.iter().map(|term| term.holds(candidate))),
            Self::Any(terms) => any(terms.iter().map(|term| term.holds(candidate))),
            Self::Not(condition) => condition.holds(candidate).map(|holds| !holds),
            Self::Compare { left, comparison, right } => {
                let ordering = left.value(candidate)?.compare(&right.value(candidate)?)?;
                Some(comparison.holds(ordering))
            }
            Self::In { name, values } => {
                let value = look_up(candidate, name)?;
                any(values.iter().map(|member| value.compare(member).map(Ordering::is_eq)))
            }
            Self::IsNull(name) => Some(look_up(candidate, name).is_none()),
            Self::Bare(name) => Some(look_up(candidate, name)?.number()? != 0.0),
        }
    }

    /// Appends the names in the condition, in order.
    pub(super) fn add_names<'a>(&'a self, names: &mut Vec<&'a str>) {
        match self {
            Self::All(terms) | Self::Any(terms) => terms.iter().for_each(|term| term.add_names(names)),
            Self::Not(condition) => condition.add_names(names),
            Self::Compare { left, right, .. } => names.extend(left.name().into_iter().chain(right.name())),
            Self::In { name, .. } | Self::IsNull(name) | Self::Bare(name) => names.push(name),
        }
    }
}

impl Operand {
    fn name(&self) -> Option<&str> {
        match self {
            Self::Name(name) => Some(name),
            Self::Value(_) => None,
        }
    }

    fn value<L: CandidateValues>(&self, candidate: &L) -> Option<Value> {
        match self {
            Self::Name(name) => look_up(candidate, name),
            Self::Value(value) => Some(value.clone()),
        }
    }
}

impl Comparison {
    fn holds(self, ordering: Ordering) -> bool {
        match self {
            Self::Equal => ordering.is_eq(),
            Self::Unequal => ordering.is_ne(),
            Self::Less => ordering.is_lt(),
            Self::LessOrEqual => ordering.is_le(),
            Self::Greater => ordering.is_gt(),
            Self::GreaterOrEqual => ordering.is_ge(),
        }
    }

    fn symbol(self) -> &'static str {
        match self {
            Self::Equal => "=",
            Self::Unequal => "!=",
            Self::Less => "<",
            Self::LessOrEqual => "<=",
            Self::Greater => ">",
            Self::GreaterOrEqual => ">=",
        }
    }
}

/// Three-valued AND: false if any operand is false, else unknown if any is unknown, else true.
fn all(truths: impl Iterator<Item = Option<bool>>) -> Option<bool> {
    let mut result = Some(true);
    for truth in truths {
        match truth {
            Some(true) => {}
            Some(false) => return Some(false),
            None => result = None,
        }
    }
    result
}

/// Three-valued OR: true if any operand is true, else unknown if any is unknown, else false.
fn any(truths: impl Iterator<Item = Option<bool>>) -> Option<bool> {
    all(truths.map(|truth| truth.map(|holds| !holds))).map(|none_holds| !none_holds)
}

/// Writes as few parentheses as possible, never more than were parsed.
impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All(terms) => write_terms(f, terms, " AND "),
            Self::Any(terms) => write_terms(f, terms, " OR "),
            Self::Not(condition) => write_negated(f, condition),
            Self::Compare { left, comparison, right } => write!(f, "{left} {} {right}", comparison.symbol()),
            Self::In { name, values } => write!(f, "{name} IN {}", Members(values)),
            Self::IsNull(name) => write!(f, "{name} IS NULL"),
            Self::Bare(name) => f.write_str(name),
        }
    }
}

fn write_terms(f: &mut fmt::Formatter<'_>, terms: &[Condition], between: &str) -> fmt::Result {
    for (position, term) in terms.iter().enumerate() {
        let before = if position == 0 { "" } else { between };
        match term {
            // Only needed within a conjunction: a disjunction never contains another one.
            Condition::Any(_) => write!(f, "{before}({term})")?,
            _ => write!(f, "{before}{term}")?,
        }
    }
    Ok(())
}

fn write_negated(f: &mut fmt::Formatter<'_>, condition: &Condition) -> fmt::Result {
    match condition {
        Condition::All(_) | Condition::Any(_) => write!(f, "NOT ({condition})"),
        Condition::In { name, values } => write!(f, "{name} NOT IN {}", Members(values)),
        Condition::IsNull(name) => write!(f, "{name} IS NOT NULL"),
        _ => write!(f, "NOT {condition}"),
    }
}

impl fmt::Display for Operand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => f.write_str(name),
            Self::Value(value) => write!(f, "{}", Literal(value)),
        }
    }
}

/// A value in statement syntax.
struct Literal<'a>(&'a Value);

impl fmt::Display for Literal<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Value::Text(text) => write!(f, "'{}'", text.replace('\'', "''")),
            Value::Bool(truth) => f.write_str(if *truth { "TRUE" } else { "FALSE" }),
            value => write!(f, "{value}"),
        }
    }
}

/// The values after `IN`.
struct Members<'a>(&'a [Value]);

impl fmt::Display for Members<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, value) in self.0.iter().enumerate() {
            let before = if position == 0 { "(" } else { ", " };
            write!(f, "{before}{}", Literal(value))?;
        }
        f.write_str(")")
    }
}
