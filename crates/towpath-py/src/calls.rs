//! Operations that complete a future of the caller's event loop: [`submit`] returns at once, and calls a function of
//! Python when the operation has ended.

use std::{panic::AssertUnwindSafe, sync::Arc};

use futures::FutureExt as _;
use pyo3::prelude::*;
use tokio::task::{AbortHandle, spawn_blocking};
use towpath_store::{Error, Fault, Result};

use crate::runtime::Runtime;

/// An operation that runs.
#[pyclass(frozen, module = "towpath._towpath")]
pub(crate) struct Call {
    task: AbortHandle,
}

#[pymethods]
impl Call {
    /// Aborts the operation. Its function is then not called, unless it is about to be.
    fn cancel(&self) {
        self.task.abort();
    }
}

/// Number and message of an `OSError`.
pub(crate) type Failure = (i32, String);

/// Returns an error as Python raises it.
pub(crate) fn failure(error: &Error) -> Failure {
    (error.fault().errno(), error.describe().to_string())
}

/// Starts `operation`. When it has ended, `done` is called on a thread of the runtime with its result and `None`, or with
/// `None` and its [`Failure`].
///
/// # Errors
/// `towpath.Invalid` in a forked child of the process that the runtime belongs to.
pub(crate) fn submit<T: Send + 'static>(
    py: Python<'_>,
    runtime: &Arc<Runtime>,
    done: Py<PyAny>,
    operation: impl Future<Output = Result<T>> + Send + 'static,
    convert: impl FnOnce(Python<'_>, T) -> PyResult<Py<PyAny>> + Send + 'static,
) -> PyResult<Call> {
    runtime.check_process(py)?;
    let task = runtime.spawn(async move {
        let ended = AssertUnwindSafe(operation).catch_unwind().await;
        let outcome = ended.unwrap_or_else(|_| Err(Error::new(Fault::Internal, "the operation panicked")));
        // A thread that waits for the interpreter's lock serves no connections.
        let _ = spawn_blocking(move || deliver(&done, outcome, convert)).await;
    });
    Ok(Call { task: task.abort_handle() })
}

/// A handle of a store. It is dropped inside of the runtime, which its end may need.
pub(crate) struct Held<T: ?Sized> {
    /// `None` once dropped.
    handle: Option<Arc<T>>,
    pub(crate) runtime: Arc<Runtime>,
}

impl<T: ?Sized> Held<T> {
    pub(crate) fn new(handle: Arc<T>, runtime: Arc<Runtime>) -> Self {
        Self { handle: Some(handle), runtime }
    }

    /// Returns the handle.
    pub(crate) fn get(&self) -> Arc<T> {
        Arc::clone(self.handle.as_ref().expect("it is there until it is dropped"))
    }
}

impl<T: ?Sized> Drop for Held<T> {
    fn drop(&mut self) {
        let handle = self.handle.take();
        if !self.runtime.is_of_this_process() {
            // Its tasks belong to the parent of this fork, and one of its threads may have held a lock.
            return std::mem::forget(handle);
        }
        let _inside = self.runtime.enter();
        drop(handle);
    }
}

fn deliver<T>(done: &Py<PyAny>, outcome: Result<T>, convert: impl FnOnce(Python<'_>, T) -> PyResult<Py<PyAny>>) {
    // Fails while the interpreter ends; then no task waits for the result.
    let _ = Python::try_attach(|py| {
        // A result that cannot be converted, for lack of memory, is a failure too.
        let converted = outcome
            .map_err(|error| failure(&error))
            .and_then(|value| convert(py, value).map_err(|error| (Fault::Internal.errno(), error.to_string())));
        let called = match converted {
            Ok(value) => done.call1(py, (value, py.None())),
            Err(failure) => done.call1(py, (py.None(), failure)),
        };
        if let Err(error) = called {
            error.write_unraisable(py, Some(done.bind(py)));
        }
    });
}
