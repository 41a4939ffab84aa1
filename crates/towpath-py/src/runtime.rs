//! The tokio runtime on which calls from Python wait.
//!
//! [`runtime`] returns the runtime of this process and creates it on first use. [`Runtime::wait`] releases the
//! interpreter's lock while it waits and checks for signals, so that Ctrl-C interrupts the call and drops its future.

use std::{
    mem,
    pin::pin,
    process,
    sync::{Arc, Mutex, OnceLock, PoisonError},
    time::Duration,
};

use pyo3::prelude::*;
use tokio::{
    runtime::{Builder, EnterGuard},
    task::JoinHandle,
    time::timeout,
};
use towpath_client::{Client, ClientOptions};
use towpath_store::Kind;

use crate::error;

/// Interval between checks for signals.
pub(crate) const BETWEEN_SIGNALS: Duration = Duration::from_millis(100);

/// Threads for connections: requests are small, and responses are parsed on the calling threads.
const THREADS: usize = 2;

static RUNTIME: Mutex<Option<Arc<Runtime>>> = Mutex::new(None);

/// The threads of one process, and the connections that its calls share.
#[derive(Debug)]
pub(crate) struct Runtime {
    process: u32,
    tokio: tokio::runtime::Runtime,
    client: OnceLock<Arc<Client>>,
}

/// Returns the runtime of this process. A forked child has none of its parent's threads and gets a runtime of its own.
///
/// # Errors
/// If the system has no more threads.
pub(crate) fn runtime(py: Python<'_>) -> PyResult<Arc<Runtime>> {
    // Never locked across a wait, and only with the interpreter's lock, which a forking thread holds too: no child
    // finds it locked.
    let mut kept = RUNTIME.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(runtime) = kept.as_ref().filter(|runtime| runtime.is_of_this_process()) {
        return Ok(Arc::clone(runtime));
    }
    let tokio = Builder::new_multi_thread().worker_threads(THREADS).thread_name("towpath").enable_all().build();
    let tokio = match tokio {
        Ok(tokio) => tokio,
        Err(error) => {
            // Creating an exception may run other threads, which must not find it locked.
            drop(kept);
            return Err(error::exception(py, Kind::Unavailable, format!("cannot start threads: {error}")));
        }
    };
    let runtime = Arc::new(Runtime { process: process::id(), tokio, client: OnceLock::new() });
    // Dropping the parent's runtime would wait for threads that do not exist in this process.
    mem::forget(kept.replace(Arc::clone(&runtime)));
    Ok(runtime)
}

impl Runtime {
    pub(crate) fn is_of_this_process(&self) -> bool {
        self.process == process::id()
    }

    /// Returns an error in a forked child of the process that this runtime belongs to.
    ///
    /// # Errors
    /// `towpath.Invalid`.
    pub(crate) fn check_process(&self, py: Python<'_>) -> PyResult<()> {
        match self.is_of_this_process() {
            true => Ok(()),
            false => {
                let message = "it was created before this process was forked: create a new one";
                Err(error::exception(py, Kind::Invalid, message.into()))
            }
        }
    }

    /// Runs `future` on the threads of the runtime.
    pub(crate) fn spawn<F: Future<Output: Send> + Send + 'static>(&self, future: F) -> JoinHandle<F::Output> {
        self.tokio.spawn(future)
    }

    /// Waits for `future`. Python's other threads run meanwhile.
    ///
    /// # Errors
    /// The exception of a signal handler, such as `KeyboardInterrupt` after Ctrl-C; `future` is then dropped.
    /// `towpath.Invalid` in a forked child of the process that this runtime belongs to.
    pub(crate) fn wait<F>(&self, py: Python<'_>, future: F) -> PyResult<F::Output>
    where
        F: Future + Send,
        F::Output: Send,
    {
        self.check_process(py)?;
        // Values dropped with the future may need the runtime.
        let _inside = self.enter();
        let mut future = pin!(future);
        loop {
            let waiting = || self.tokio.block_on(async { timeout(BETWEEN_SIGNALS, future.as_mut()).await });
            match py.detach(waiting) {
                Ok(output) => return Ok(output),
                Err(_) => py.check_signals()?,
            }
        }
    }

    /// Enters the runtime, to create or drop values outside of [`Self::wait`].
    pub(crate) fn enter(&self) -> EnterGuard<'_> {
        self.tokio.enter()
    }

    /// Returns the client with default options, whose connections are shared.
    pub(crate) fn client(&self) -> Arc<Client> {
        Arc::clone(self.client.get_or_init(|| self.client_with(ClientOptions::default())))
    }

    /// Creates a client with `options`.
    pub(crate) fn client_with(&self, options: ClientOptions) -> Arc<Client> {
        let _inside = self.enter();
        Arc::new(Client::new(Arc::new(options)))
    }
}
