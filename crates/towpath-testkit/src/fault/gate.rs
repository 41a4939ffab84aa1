//! Calls that wait for a signal of the test.

use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicBool, Ordering::Relaxed},
};

use tokio::sync::Semaphore;

/// The gates that are closed.
#[derive(Debug, Default)]
pub(super) struct Gates(Mutex<Vec<Arc<Gate>>>);

#[derive(Debug)]
struct Gate {
    name: &'static str,
    /// A permit for each call that came to it.
    arrived: Semaphore,
    /// Closed when the gate is opened.
    opened: Semaphore,
    /// Whether later calls pass.
    is_passed: AtomicBool,
}

/// Calls of one name are held while this lives.
#[derive(Debug)]
pub struct GateGuard(Arc<Gate>);

impl GateGuard {
    /// Waits until one more call is held.
    pub async fn reached(&self) {
        self.0.arrived.acquire().await.expect("it is never closed").forget();
    }

    /// Lets later calls pass. Those that are held stay.
    pub fn let_later_pass(&self) {
        self.0.is_passed.store(true, Relaxed);
    }
}

impl Drop for GateGuard {
    fn drop(&mut self) {
        self.0.opened.close();
    }
}

impl Gates {
    pub(super) fn close(&self, name: &'static str) -> GateGuard {
        let (arrived, opened) = (Semaphore::new(0), Semaphore::new(0));
        let gate = Arc::new(Gate { name, arrived, opened, is_passed: AtomicBool::new(false) });
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(&gate));
        GateGuard(gate)
    }

    fn find(&self, name: &str) -> Option<Arc<Gate>> {
        let mut gates = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        gates.retain(|gate| !gate.opened.is_closed());
        gates.iter().find(|gate| gate.name == name && !gate.is_passed.load(Relaxed)).cloned()
    }

    pub(super) fn is_closed(&self, name: &str) -> bool {
        self.find(name).is_some()
    }

    /// Waits at the gate for calls of this name, if there is one.
    pub(super) async fn pass(&self, name: &str) {
        while let Some(gate) = self.find(name) {
            gate.arrived.add_permits(1);
            // An error means that the gate was closed, which ends the wait.
            let _ = gate.opened.acquire().await;
        }
    }
}
