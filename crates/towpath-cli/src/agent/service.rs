//! A running agent: the server of its cache, until it is idle or stopped.

use std::{sync::Arc, time::Duration};

use tokio::time::{Instant, interval};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};
use towpath_server::{Server, StartError};

use super::{AgentConfig, AgentDirectory, routes::AgentRoutes, start};
use crate::{
    args::Remote,
    cache::{ListedStorages, OpenCache},
    failure::{Failure, complain},
    serve::{self, ServerSignals},
};

/// Maximum time between two counts of the connections.
const MAX_COUNT_INTERVAL: Duration = Duration::from_secs(10);

/// Runs the agent until SIGINT or SIGTERM, `towpath agent stop`, or the end of the idle time. It listens at the port of
/// its predecessor, if that is free: the URLs of running programs stay valid.
pub(super) async fn run(
    settings: &AgentConfig,
    directory: &AgentDirectory,
    is_detached: bool,
    remote: &Remote,
) -> Result<(), Failure> {
    if is_detached {
        rustix::process::setsid().map_err(|error| Failure::system("leave the session")(error.into()))?;
    }
    let signals = ServerSignals::new()?;
    let last_port = start::last_port(directory);
    let config = |port| settings.cache(directory, port, remote.ca_file.clone());
    let open = config(0);
    let cache = OpenCache::open(&open, Some(ListedStorages::of_user(&open, directory.hosts())?))?;
    let stopping = CancellationToken::new();
    let bind = |port| {
        let routes = Arc::new(AgentRoutes { key: cache.key(), stopping: stopping.clone() });
        let user = rustix::process::geteuid().as_raw();
        cache.server(&config(port).server()).routes(routes).only_user(user).bind()
    };
    let server = match bind(last_port.unwrap_or(0)) {
        Err(StartError::Listen { .. }) if last_port.is_some() => bind(0)?,
        bound => bound?,
    };
    let _maintaining = cache.attach(&server, &open)?;
    let _ending =
        AbortOnDropHandle::new(tokio::spawn(end(server.stopping(), stopping, idle(&server, settings.idle.0))));
    complain(format_args!("the agent keeps its data in {}", directory.path().display()));
    let outcome = serve::run(server, signals, || Ok(open.server())).await;
    start::forget(directory);
    outcome
}

/// Stops the server when it is idle, or its user wants it.
async fn end(server: CancellationToken, stopping: CancellationToken, idle: impl Future<Output = ()>) {
    tokio::select! {
        () = stopping.cancelled() => {}
        () = idle => {}
    }
    server.cancel();
}

/// Waits until the server had no connection for the time `limit`.
fn idle(server: &Server, limit: Duration) -> impl Future<Output = ()> + use<> {
    let service = server.service();
    async move {
        let mut counts = interval((limit / 4).clamp(Duration::from_millis(10), MAX_COUNT_INTERVAL));
        let mut used = Instant::now();
        let mut accepted = 0;
        while used.elapsed() < limit {
            counts.tick().await;
            let metrics = &service.metrics;
            if metrics.connections.get() > 0 || metrics.accepted.get() != accepted {
                accepted = metrics.accepted.get();
                used = Instant::now();
            }
        }
    }
}
