//! Where calls from Python wait.
//!
//! [`runtime`] gives the one of this process, which is made when it is first needed. A call lets other threads of Python run while it waits
//! ([`Runtime::wait`]), and looks at signals meanwhile, so that Ctrl-C ends it: what it waited for is dropped.

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
    time::timeout,
};
use towpath_client::{Client, ClientOptions};
use towpath_store::Kind;

use crate::error;

/// How long Ctrl-C may go unnoticed.
const BETWEEN_SIGNALS: Duration = Duration::from_millis(100);

/// Threads for connections: what is asked here is little, and answers are read by the threads that wait for them.
const THREADS: usize = 2;

static RUNTIME: Mutex<Option<Arc<Runtime>>> = Mutex::new(None);

/// The threads of one process, and the connections that its calls share.
#[derive(Debug)]
pub(crate) struct Runtime {
    process: u32,
    tokio: tokio::runtime::Runtime,
    client: OnceLock<Arc<Client>>,
}

/// The runtime of this process. A child that was forked has none of its parent's threads, and gets its own.
///
/// # Errors
/// If the system has no more threads.
pub(crate) fn runtime(py: Python<'_>) -> PyResult<Arc<Runtime>> {
    // Nobody waits while it is held, and only those that hold the interpreter's lock take it, as whoever forks does: no child finds it held.
    let mut kept = RUNTIME.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(runtime) = kept.as_ref().filter(|runtime| runtime.is_of_this_process()) {
        return Ok(Arc::clone(runtime));
    }
    let tokio = Builder::new_multi_thread().worker_threads(THREADS).thread_name("towpath").enable_all().build();
    let tokio = match tokio {
        Ok(tokio) => tokio,
        Err(error) => {
            // Making an exception may let other threads run, which must not find it held.
            drop(kept);
            return Err(error::exception(py, Kind::Unavailable, format!("cannot start threads: {error}")));
        }
    };
    let runtime = Arc::new(Runtime { process: process::id(), tokio, client: OnceLock::new() });
    // The parent's would wait for threads that are not here.
    mem::forget(kept.replace(Arc::clone(&runtime)));
    Ok(runtime)
}

impl Runtime {
    pub(crate) fn is_of_this_process(&self) -> bool {
        self.process == process::id()
    }

    /// Waits for `future`. Python's other threads run meanwhile.
    ///
    /// # Errors
    /// What a handler of a signal raises, as `KeyboardInterrupt` after Ctrl-C; then `future` is dropped. `towpath.Invalid` in a child of the process that
    /// this belongs to.
    pub(crate) fn wait<F>(&self, py: Python<'_>, future: F) -> PyResult<F::Output>
    where
        F: Future + Send,
        F::Output: Send,
    {
        if !self.is_of_this_process() {
            let message = "it was made before this process was forked: make another one here";
            return Err(error::exception(py, Kind::Invalid, message.into()));
        }
        // What is dropped with the future may need it.
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

    /// For what is made or dropped outside of [`Self::wait`].
    pub(crate) fn enter(&self) -> EnterGuard<'_> {
        self.tokio.enter()
    }

    /// The client of all who choose nothing: they share its connections.
    pub(crate) fn client(&self) -> Arc<Client> {
        Arc::clone(self.client.get_or_init(|| self.client_with(ClientOptions::default())))
    }

    /// Another client.
    pub(crate) fn client_with(&self, options: ClientOptions) -> Arc<Client> {
        let _inside = self.enter();
        Arc::new(Client::new(Arc::new(options)))
    }
}
