//! Errors as exceptions: one class of the package for each kind.

use pyo3::{prelude::*, types::PyType};
use towpath_alto_client::{ClientError, net::AltoError};
use towpath_store::Kind;

/// What the class of a kind is called in the package.
fn class(kind: Kind) -> &'static str {
    match kind {
        Kind::NotFound => "NotFound",
        Kind::Denied => "Denied",
        Kind::Invalid => "Invalid",
        Kind::Conflict => "Conflict",
        Kind::Corrupt => "Corrupt",
        Kind::Unavailable => "Unavailable",
        Kind::Internal => "Internal",
    }
}

/// The exception of that kind: `towpath.NotFound` and the like.
pub(crate) fn exception(py: Python<'_>, kind: Kind, message: String) -> PyErr {
    let found = py.import("towpath").and_then(|package| package.getattr(class(kind)));
    match found.and_then(|found| found.cast_into::<PyType>().map_err(PyErr::from)) {
        Ok(class) => PyErr::from_type(class, (message,)),
        Err(error) => error,
    }
}

/// Why there is no answer, with whose fault that is.
pub(crate) fn trouble(py: Python<'_>, trouble: &AltoError) -> PyErr {
    let message = match trouble {
        AltoError::Unanswered(error) => error.describe().to_string(),
        AltoError::Useless(error @ ClientError::NeedsClient { .. }) => format!("{error}: client=ADDRESS"),
        other => other.to_string(),
    };
    exception(py, trouble.kind(), message)
}
