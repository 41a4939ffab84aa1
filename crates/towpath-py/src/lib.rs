//! `towpath._towpath`: bindings of the crates for the Python package, without logic of their own.
//!
//! | content | module |
//! | --- | --- |
//! | blocking calls: they release the interpreter's lock and return early on a signal | `runtime` |
//! | the ALTO client and its subscriptions | `client` |
//! | the ordering expression | `statement` |
//! | errors as exceptions of the package | `error` |
//!
//! Documents are passed as JSON text: Python parses it faster than the bindings could create objects one by one. The
//! private signatures are in `python/towpath/_towpath.pyi`.

mod client;
mod error;
mod runtime;
mod statement;

/// Private bindings of the package `towpath`; use `towpath.alto` instead.
#[pyo3::pymodule]
mod _towpath {
    #[pymodule_export]
    use super::{
        client::{ChangeStream, Client},
        statement::Statement,
    };
}
