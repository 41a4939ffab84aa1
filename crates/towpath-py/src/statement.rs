//! The ordering expression by itself: of values that Python has.

use std::collections::BTreeMap;

use pyo3::{
    exceptions::{PyTypeError, PyValueError},
    prelude::*,
    types::{PyBool, PyList, PyTuple},
};
use towpath_alto::order::{self, CandidateValues, FilterMode, Value};
use towpath_alto_client::Configuration;

/// How deep lists in lists are read: as deep as `serde_json` reads them.
const MAX_DEPTH: usize = 128;

/// A statement that has been read.
#[pyclass(frozen, module = "towpath._towpath")]
pub(crate) struct Statement(order::Statement);

/// Reads a statement.
///
/// # Errors
/// `ValueError`, with the column.
pub(crate) fn statement(text: &str) -> PyResult<order::Statement> {
    text.parse().map_err(|error: order::SyntaxError| PyValueError::new_err(error.to_string()))
}

#[pymethods]
impl Statement {
    #[new]
    fn new(text: &str) -> PyResult<Self> {
        Ok(Self(statement(text)?))
    }

    /// Names of the properties that the statement uses.
    #[getter]
    fn names(&self) -> Vec<&str> {
        self.0.names().collect()
    }

    /// The canonical form.
    fn __str__(&self) -> String {
        self.0.to_string()
    }

    /// The places of `candidates`, which are mappings, in their order, the best first.
    fn order(&self, candidates: Vec<Bound<'_, PyAny>>, strict: bool) -> PyResult<Vec<usize>> {
        let candidates = candidates.into_iter().map(|candidate| self.candidate(&candidate));
        let candidates = candidates.collect::<PyResult<Vec<_>>>()?;
        let usual = Configuration::default();
        let direction = |name: &str| usual.direction(name);
        let where_ = if strict { FilterMode::Drop } else { FilterMode::Demote };
        let ranked = self.0.order(&candidates, &direction, where_);
        Ok(ranked.into_iter().map(|ranked| ranked.index).collect())
    }
}

impl Statement {
    fn candidate(&self, mapping: &Bound<'_, PyAny>) -> PyResult<Candidate> {
        let mut values = BTreeMap::new();
        for name in self.0.names() {
            let told = mapping.call_method1("get", (name,))?;
            if let Some(value) = value(&told, name, MAX_DEPTH)? {
                values.insert(name.to_owned(), value);
            }
        }
        Ok(Candidate(values))
    }
}

/// What Python says of something, as far as the statement looks at it.
struct Candidate(BTreeMap<String, Value>);

impl CandidateValues for Candidate {
    fn value(&self, name: &str) -> Option<Value> {
        self.0.get(name).cloned()
    }
}

/// The value that an object of Python is; none of `None`.
fn value(told: &Bound<'_, PyAny>, name: &str, depth: usize) -> PyResult<Option<Value>> {
    if told.is_none() {
        return Ok(None);
    }
    // Before numbers: to Python truths are some.
    if told.is_instance_of::<PyBool>() {
        return Ok(Some(Value::Bool(told.is_truthy()?)));
    }
    if let Ok(text) = told.extract::<String>() {
        return Ok(Some(Value::Text(text.into())));
    }
    if told.is_instance_of::<PyList>() || told.is_instance_of::<PyTuple>() {
        let depth = depth
            .checked_sub(1)
            .ok_or_else(|| PyValueError::new_err(format!("`{name}`: lists are nested too deeply")))?;
        let elements = told.try_iter()?.map(|element| value(&element?, name, depth));
        return Ok(elements.collect::<PyResult<Option<Vec<_>>>>()?.map(Value::List));
    }
    match told.extract::<f64>() {
        Ok(number) => Ok(Some(Value::Number(number))),
        Err(_) => {
            let kind = told.get_type().name()?;
            Err(PyTypeError::new_err(format!(
                "`{name}`: expected a number, a string, a boolean or a list of these, not {kind}"
            )))
        }
    }
}
