//! Derives a metric from the properties of the elements on a path: a [`Pipeline`] maps each property to a value, and an
//! [`Aggregate`] reduces these values to one. The AS path length is `tolist | len`, then `sum`.
//!
//! Both are total functions. A value that a function does not accept yields `None`, and no text is ever executed.

use std::{collections::BTreeSet, fmt, str::FromStr, sync::Arc};

use serde::Deserialize;

use super::{
    SyntaxError,
    lexer::{Lexer, Token},
    value::Value,
};

/// Maximum number of functions in a pipeline.
const MAX_FUNCTIONS: usize = 16;

/// Functions without arguments; `scale` has a factor.
const FUNCTIONS: [(&str, Function); 10] = [
    ("tolist", Function::ToList),
    ("len", Function::Len),
    ("int", Function::Int),
    ("float", Function::Float),
    ("unique", Function::Unique),
    ("first", Function::First),
    ("last", Function::Last),
    ("min", Function::Fold(Aggregate::Min)),
    ("max", Function::Fold(Aggregate::Max)),
    ("sum", Function::Fold(Aggregate::Sum)),
];

const AGGREGATES: [(&str, Aggregate); 6] = [
    ("sum", Aggregate::Sum),
    ("min", Aggregate::Min),
    ("max", Aggregate::Max),
    ("mean", Aggregate::Mean),
    ("count", Aggregate::Count),
    ("list", Aggregate::List),
];

/// Functions applied to a value in sequence: `tolist | len`. 1 to 16 functions.
///
/// | function | input | output |
/// | --- | --- | --- |
/// | `tolist` | a text | the list of its words, separated by blanks or commas |
/// | | a list | the same list |
/// | | anything else | a list with this one element |
/// | `len` | a list | its number of elements |
/// | `int` | a number, or a list of numbers | each number without its fraction |
/// | `float` | a number, or a list of numbers | each number |
/// | `scale(k)` | a number, or a list of numbers | each number multiplied by `k` |
/// | `unique` | a list without nested lists | the list with only the first of equal elements |
/// | `first`, `last` | a non-empty list | the element |
/// | `min`, `max` | a non-empty list of numbers | the smallest or largest number |
/// | `sum` | a list of numbers | their sum |
///
/// Numeric text is accepted as a number, and a boolean as 1 or 0. Any input not in the table yields `None`; this
/// includes `len` of a text, because a number of characters is not a useful metric.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(try_from = "String")]
pub struct Pipeline(Vec<Function>);

#[derive(Debug, Clone, Copy, PartialEq)]
enum Function {
    ToList,
    Len,
    Int,
    Float,
    Unique,
    First,
    Last,
    Fold(Aggregate),
    Scale(f64),
}

impl Pipeline {
    /// Applies the functions to `value`. Returns `None` if a function does not accept its input. Time and memory are
    /// proportional to the size of `value`.
    pub fn apply(&self, value: Value) -> Option<Value> {
        self.0.iter().try_fold(value, |value, function| function.apply(value)).filter(|value| !value.is_missing())
    }
}

impl Function {
    fn apply(self, value: Value) -> Option<Value> {
        match (self, value) {
            (Self::ToList, value) => Some(Value::List(to_list(value))),
            (Self::Int, value) => map_numbers(&value, f64::trunc),
            (Self::Float, value) => map_numbers(&value, |number| number),
            (Self::Scale(factor), value) => map_numbers(&value, |number| number * factor),
            (Self::Len, Value::List(elements)) => Some(Value::Number(elements.len() as f64)),
            (Self::Unique, Value::List(elements)) => unique(elements).map(Value::List),
            (Self::First, Value::List(elements)) => elements.into_iter().next(),
            (Self::Last, Value::List(elements)) => elements.into_iter().next_back(),
            (Self::Fold(aggregate), Value::List(elements)) => aggregate.fold(elements.into_iter().map(Some)),
            _ => None,
        }
    }
}

fn to_list(value: Value) -> Vec<Value> {
    match value {
        Value::List(elements) => elements,
        Value::Text(text) => {
            let words = text.split(|character: char| character == ',' || character.is_whitespace());
            words.filter(|word| !word.is_empty()).map(|word| Value::Text(word.into())).collect()
        }
        scalar => vec![scalar],
    }
}

fn map_numbers(value: &Value, function: impl Fn(f64) -> f64) -> Option<Value> {
    let one = |value: &Value| value.number().map(|number| Value::Number(function(number)));
    match value {
        Value::List(elements) => elements.iter().map(one).collect::<Option<_>>().map(Value::List),
        scalar => one(scalar),
    }
}

fn unique(elements: Vec<Value>) -> Option<Vec<Value>> {
    let mut seen = BTreeSet::new();
    let mut kept = Vec::new();
    for element in elements {
        if seen.insert(identity(&element)?) {
            kept.push(element);
        }
    }
    Some(kept)
}

/// Hashable identity of a value.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Identity {
    Number(u64),
    Text(Arc<str>),
    Bool(bool),
}

fn identity(value: &Value) -> Option<Identity> {
    match value {
        // 0 and -0 are equal but differ in their bits.
        Value::Number(number) => Some(Identity::Number((number + 0.0).to_bits())),
        Value::Text(text) => Some(Identity::Text(Arc::clone(text))),
        Value::Bool(truth) => Some(Identity::Bool(*truth)),
        Value::List(_) => None,
    }
}

/// Reduces the values of the elements on a path to one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub enum Aggregate {
    /// Sum; 0 without values.
    Sum,
    /// Minimum.
    Min,
    /// Maximum.
    Max,
    /// Mean.
    Mean,
    /// Number of elements with a value.
    Count,
    /// List of all values in path order.
    List,
}

impl Aggregate {
    /// Folds the values of `elements`, skipping those without one. Without any value, `sum` and `count` return 0 and
    /// the others `None`. A non-numeric value makes all but `count` and `list` return `None`, because a partial result
    /// would pass for the whole path.
    pub fn fold(self, elements: impl Iterator<Item = Option<Value>>) -> Option<Value> {
        let values = elements.flatten().filter(|value| !value.is_missing());
        match self {
            Self::Count => Some(Value::Number(values.count() as f64)),
            Self::List => Some(values.collect::<Vec<_>>()).filter(|list| !list.is_empty()).map(Value::List),
            Self::Sum | Self::Min | Self::Max | Self::Mean => {
                let numbers: Vec<f64> = values.map(|value| value.number()).collect::<Option<_>>()?;
                self.of_numbers(&numbers).map(Value::Number).filter(|value| !value.is_missing())
            }
        }
    }

    fn of_numbers(self, numbers: &[f64]) -> Option<f64> {
        // `Iterator::sum` returns -0 for an empty iterator.
        let sum = || numbers.iter().fold(0.0_f64, |sum, number| sum + number);
        match self {
            Self::Sum => Some(sum()),
            Self::Min => numbers.iter().copied().reduce(f64::min),
            Self::Max => numbers.iter().copied().reduce(f64::max),
            Self::Mean => (!numbers.is_empty()).then(|| sum() / numbers.len() as f64),
            Self::Count | Self::List => None,
        }
    }
}

impl FromStr for Pipeline {
    type Err = SyntaxError;

    fn from_str(text: &str) -> Result<Self, SyntaxError> {
        let mut lexer = Lexer::new(text)?;
        let mut functions = vec![function(&mut lexer)?];
        // The lexer accepts other spellings of OR, which are not pipes.
        while lexer.text() == "|" {
            lexer.advance();
            if functions.len() == MAX_FUNCTIONS {
                return Err(lexer.failure(format!("at most {MAX_FUNCTIONS} functions")));
            }
            functions.push(function(&mut lexer)?);
        }
        lexer.expect(Token::End, "'|' or the end")?;
        Ok(Self(functions))
    }
}

fn function(lexer: &mut Lexer<'_>) -> Result<Function, SyntaxError> {
    if lexer.text() == "scale" {
        lexer.advance();
        return scale(lexer);
    }
    let named = FUNCTIONS.into_iter().find(|(name, _)| *name == lexer.text());
    let (_, function) = named.ok_or_else(|| lexer.failure(one_of(FUNCTIONS.map(|(name, _)| name), "scale(k)")))?;
    lexer.advance();
    Ok(function)
}

/// Parses the argument of `scale`.
fn scale(lexer: &mut Lexer<'_>) -> Result<Function, SyntaxError> {
    lexer.expect(Token::Open, "'(' after scale")?;
    let Token::Number(factor) = lexer.token() else { return Err(lexer.failure("a number")) };
    lexer.advance();
    lexer.expect(Token::Close, "')'")?;
    Ok(Function::Scale(factor))
}

impl FromStr for Aggregate {
    type Err = SyntaxError;

    fn from_str(text: &str) -> Result<Self, SyntaxError> {
        let mut lexer = Lexer::new(text)?;
        let named = AGGREGATES.into_iter().find(|(name, _)| *name == lexer.text());
        let [names @ .., last] = AGGREGATES.map(|(name, _)| name);
        let (_, aggregate) = named.ok_or_else(|| lexer.failure(one_of(names, last)))?;
        lexer.advance();
        lexer.expect(Token::End, "the end")?;
        Ok(aggregate)
    }
}

fn one_of<const N: usize>(names: [&str; N], last: &str) -> String {
    format!("{} or {last}", names.join(", "))
}

impl TryFrom<String> for Pipeline {
    type Error = SyntaxError;

    fn try_from(text: String) -> Result<Self, SyntaxError> {
        text.parse()
    }
}

impl TryFrom<String> for Aggregate {
    type Error = SyntaxError;

    fn try_from(text: String) -> Result<Self, SyntaxError> {
        text.parse()
    }
}

impl fmt::Display for Pipeline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, function) in self.0.iter().enumerate() {
            let before = if position == 0 { "" } else { " | " };
            write!(f, "{before}{function}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Function {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Scale(factor) => write!(f, "scale({})", Value::Number(*factor)),
            known => f.write_str(name_of(&FUNCTIONS, known)),
        }
    }
}

impl fmt::Display for Aggregate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(name_of(&AGGREGATES, self))
    }
}

/// Returns the name of `entry` in `table`. Each value that can be parsed has one.
fn name_of<T: PartialEq>(table: &[(&'static str, T)], entry: &T) -> &'static str {
    table.iter().find(|(_, other)| other == entry).map_or("", |(name, _)| *name)
}

#[cfg(test)]
mod tests;
