//! Looks at a copy while it runs, several times a second, and keeps its account.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::time::{Interval, MissedTickBehavior, interval};
use tokio_util::task::AbortOnDropHandle;
use towpath_client::Client;

use crate::{Account, Mover, ledger::Ledger};

/// How often to look: often enough to see windows open on a path of 100 ms, seldom enough that asking servers costs nothing.
pub(crate) const EVERY: Duration = Duration::from_millis(250);

/// A mover that is watched.
#[derive(Debug)]
pub struct Watch {
    mover: Arc<Mover>,
    ledger: Arc<Mutex<Ledger>>,
    _looking: AbortOnDropHandle<()>,
}

impl Watch {
    /// Watches `mover` from now on. Its client asks our servers, four times a second and connection, what holds their end up.
    pub fn begin(mover: &Arc<Mover>) -> Self {
        let ledger = Arc::new(Mutex::new(Ledger::new(mover.look())));
        let looking = tokio::spawn(keep_looking(Arc::clone(mover), Arc::clone(&ledger)));
        Self { mover: Arc::clone(mover), ledger, _looking: AbortOnDropHandle::new(looking) }
    }

    /// What the time was spent on until now.
    pub fn account(&self) -> Account {
        let mut ledger = self.ledger.lock().unwrap_or_else(PoisonError::into_inner);
        ledger.add(self.mover.look());
        ledger.account().clone()
    }
}

/// The times to look: now, and then again and again. After a delay the next one is as far away as ever.
pub(crate) fn ticks() -> Interval {
    let mut ticks = interval(EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks
}

async fn keep_looking(mover: Arc<Mover>, ledger: Arc<Mutex<Ledger>>) {
    let mut ticks = ticks();
    let client = mover.context.options.client.clone();
    // An answer that takes longer than a tick is not asked for again meanwhile.
    let mut asking: Option<AbortOnDropHandle<()>> = None;
    loop {
        ticks.tick().await;
        if asking.as_ref().is_none_or(|asking| asking.is_finished()) {
            asking = client.clone().map(|client| AbortOnDropHandle::new(tokio::spawn(ask(client))));
        }
        ledger.lock().unwrap_or_else(PoisonError::into_inner).add(mover.look());
    }
}

async fn ask(client: Arc<Client>) {
    client.ask_far_ends().await;
}
