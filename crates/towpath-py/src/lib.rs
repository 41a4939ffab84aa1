//! `towpath._towpath`: bindings of the crates for the Python package, without logic of their own.
//!
//! | content | module |
//! | --- | --- |
//! | blocking calls: they release the interpreter's lock and return early on a signal | `runtime` |
//! | calls that complete a future of an event loop | `calls` |
//! | files at storages | `files` |
//! | the ALTO client and its subscriptions | `client` |
//! | the ordering expression | `statement` |
//! | the simulator of the scheduler, and fair shares | `sched` |
//! | errors as exceptions of the package | `error` |
//!
//! Documents are passed as JSON text: Python parses it faster than the bindings could create objects one by one. The
//! private signatures are in `python/towpath/_towpath.pyi`.

mod calls;
mod client;
mod error;
mod files;
mod runtime;
mod sched;
mod statement;

/// Private bindings of the package `towpath`; use `towpath.fs`, `towpath.alto` and `towpath.sched` instead.
#[pyo3::pymodule]
mod _towpath {
    use pyo3::{prelude::*, types::PyTuple};
    use towpath_sched::optimiser::{MAX_FIXED_CONNECTIONS, OptimiserName};

    #[pymodule_export]
    use super::{
        calls::Call,
        client::{ChangeStream, Client},
        files::{ReadFile, Storages, WriteFile},
        sched::{Scenario, World, max_min},
        statement::Statement,
    };

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("OPTIMISERS", PyTuple::new(module.py(), OptimiserName::ALL.map(OptimiserName::name))?)?;
        module.add("MAX_FIXED_CONNECTIONS", MAX_FIXED_CONNECTIONS)?;
        module.add("MAX_TOPOLOGY_BYTES", towpath_alto::topology::MAX_BYTES)
    }
}
