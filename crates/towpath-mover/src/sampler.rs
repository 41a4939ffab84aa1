//! Samples a running copy several times a second and keeps its account.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::time::{Interval, MissedTickBehavior, interval};
use tokio_util::task::AbortOnDropHandle;
use towpath_client::Client;

use crate::{Account, Mover, account_builder::AccountBuilder};

/// Interval between samples: short enough to see windows open on a path of 100 ms, long enough for negligible cost of
/// the requests.
pub(crate) const EVERY: Duration = Duration::from_millis(250);

/// A mover with periodic sampling.
#[derive(Debug)]
pub struct Sampler {
    mover: Arc<Mover>,
    account_builder: Arc<Mutex<AccountBuilder>>,
    _looking: AbortOnDropHandle<()>,
}

impl Sampler {
    /// Starts watching `mover`. Its client requests statistics from towpath servers, four times a second per
    /// connection.
    pub fn begin(mover: &Arc<Mover>) -> Self {
        let account_builder = Arc::new(Mutex::new(AccountBuilder::new(mover.sample())));
        let looking = tokio::spawn(keep_looking(Arc::clone(mover), Arc::clone(&account_builder)));
        Self { mover: Arc::clone(mover), account_builder, _looking: AbortOnDropHandle::new(looking) }
    }

    /// Returns the account up to now.
    pub fn account(&self) -> Account {
        let mut account_builder = self.account_builder.lock().unwrap_or_else(PoisonError::into_inner);
        account_builder.add(self.mover.sample());
        account_builder.account().clone()
    }
}

/// Returns the ticks of samples: now, and then every `period`. After a delay the interval restarts.
pub(crate) fn ticks(period: Duration) -> Interval {
    let mut ticks = interval(period);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks
}

async fn keep_looking(mover: Arc<Mover>, account_builder: Arc<Mutex<AccountBuilder>>) {
    let mut ticks = ticks(EVERY);
    let client = mover.context.options.client.clone();
    // A slow response is not requested again before it arrives.
    let mut query: Option<AbortOnDropHandle<()>> = None;
    loop {
        ticks.tick().await;
        if query.as_ref().is_none_or(|query| query.is_finished()) {
            query = client.clone().map(|client| AbortOnDropHandle::new(tokio::spawn(query_far_ends(client))));
        }
        account_builder.lock().unwrap_or_else(PoisonError::into_inner).add(mover.sample());
    }
}

async fn query_far_ends(client: Arc<Client>) {
    client.ask_far_ends().await;
}
