//! `towpath._towpath`: what the Python package asks of the crates. It has no logic of its own.
//!
//! | what | module |
//! | --- | --- |
//! | where calls wait: without the interpreter's lock, until they end or a signal comes | `runtime` |
//! | an ALTO server and what is followed of it | `client` |
//! | the ordering expression | `statement` |
//! | errors as exceptions of the package | `error` |
//!
//! Documents cross as JSON texts: Python reads them faster than objects could be made here one by one. Signatures are in
//! `python/towpath/_towpath.pyi`, and nobody but the package uses them.

mod client;
mod error;
mod runtime;
mod statement;

/// What the package `towpath` asks of its crates. Use `towpath.alto` in its place.
#[pyo3::pymodule]
mod _towpath {
    #[pymodule_export]
    use super::{
        client::{Client, Followed},
        statement::Statement,
    };
}
