//! Listening agents: routers connect and send their routes over BMP (RFC 7854).
//!
//! Each connection has its own [`Stream`]; [`Sessions`] keeps the routes of all connections, which are reported
//! together when they change.

mod sessions;

use std::{
    collections::BTreeMap,
    io,
    net::{IpAddr, SocketAddr},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use crate::bmp::{BmpEvent, Stream};
use tokio::{
    io::AsyncReadExt as _,
    net::{TcpListener, TcpStream},
    sync::{Notify, watch},
    task::{JoinSet, block_in_place},
    time::{sleep, sleep_until},
};
use towpath_alto::{
    agent_state::{AgentState, Prefix, Router},
    names::RouterName,
};
use towpath_store::sys::{clock, net};

use self::sessions::Sessions;
use super::AgentHandle;
use crate::sources::AgentData;

/// Size of the read buffer of a connection.
const READ_BYTES: usize = 64 << 10;

/// Delay after the system refuses another connection.
const NO_ROOM: Duration = Duration::from_secs(1);

/// Accepts connections of routers.
#[derive(Debug)]
pub(super) struct Collector {
    listener: TcpListener,
    from: Vec<Prefix>,
    settle: Duration,
    hold: Duration,
    heard: Arc<CollectorState>,
}

/// State shared by all connections.
#[derive(Debug)]
struct CollectorState {
    name: Arc<str>,
    sessions: Mutex<Sessions>,
    changed: Notify,
}

impl Collector {
    /// Binds the listener. Routers outside of `from` are rejected. Changes are reported `settle` after the first of
    /// them, and routes that are not sent again expire `hold` after their connection. Routes from `earlier` runs are
    /// kept as if their connections had just ended.
    ///
    /// # Errors
    /// Returns the system's error if the address is in use or not local.
    pub(super) fn bind(
        name: &Arc<str>,
        listen: SocketAddr,
        from: &[Prefix],
        [settle, hold]: [Duration; 2],
        earlier: BTreeMap<RouterName, Router>,
    ) -> io::Result<Self> {
        let listener = net::listen(listen)?;
        tracing::info!("agent {name}: routers connect to {}", listener.local_addr()?);
        let sessions = Mutex::new(Sessions::with_earlier(earlier, clock::now()));
        let heard = CollectorState { name: Arc::clone(name), sessions, changed: Notify::new() };
        Ok(Self { listener, from: from.to_vec(), settle, hold, heard: Arc::new(heard) })
    }

    /// Accepts connections indefinitely. A reload signal forgets missing routers without routes. Dropping the future
    /// closes all connections.
    pub(super) async fn run(self, handle: AgentHandle, anew: watch::Receiver<()>) {
        tokio::join!(self.accept(), self.report_changes(&handle, anew));
    }

    async fn accept(&self) {
        let mut connections = JoinSet::new();
        loop {
            let Ok((stream, peer)) = self.listener.accept().await else {
                sleep(NO_ROOM).await;
                continue;
            };
            while connections.try_join_next().is_some() {}
            let address = peer.ip().to_canonical();
            if !self.from.iter().any(|prefix| prefix.0.contains(&address)) {
                tracing::warn!(
                    "agent {}: rejecting connection from {address}: `from` lists the allowed addresses",
                    self.heard.name
                );
                continue;
            }
            match self.heard.sessions().begin(address) {
                Some(number) => {
                    // The router may have been missing.
                    self.heard.changed.notify_one();
                    connections.spawn(listen(stream, address, number, Arc::clone(&self.heard)));
                }
                None => tracing::warn!(
                    "agent {}: rejecting connection from {address}: router limit reached",
                    self.heard.name
                ),
            }
        }
    }

    /// Reports changes.
    async fn report_changes(&self, handle: &AgentHandle, mut anew: watch::Receiver<()>) {
        loop {
            let expiry = self.heard.sessions().next_expiry(self.hold);
            let expired = async {
                match expiry {
                    Some(expiry) => sleep_until(expiry).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = self.heard.changed.notified() => sleep(self.settle).await,
                () = expired => {}
                signal = anew.changed() => match signal {
                    Ok(()) => self.heard.sessions().forget_missed(),
                    Err(_) => return,
                }
            }
            let (facts, trouble) = block_in_place(|| self.gather());
            handle.report(Some(AgentData::of(facts)), trouble).await;
        }
    }

    /// Returns the current facts and their problem.
    fn gather(&self) -> (AgentState, Option<String>) {
        let mut sessions = self.heard.sessions();
        sessions.expire(clock::now(), self.hold);
        let facts = AgentState { routers: sessions.routers(), ..AgentState::default() };
        let trouble = sessions.gone().map(|address| format!("the connection of {address} ended"));
        let is_partial = sessions.awaits_earlier();
        (facts, trouble.or_else(|| is_partial.then(|| "routers have not sent all their routes since the start".into())))
    }
}

impl CollectorState {
    fn sessions(&self) -> MutexGuard<'_, Sessions> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Processes received data. Returns the reason if the connection must be closed.
    fn take(&self, number: u64, stream: &mut Stream) -> Option<String> {
        let mut sessions = self.sessions();
        let mut has_changed = false;
        let end = loop {
            match stream.next() {
                Ok(Some(BmpEvent::Change(event))) => {
                    has_changed = true;
                    if !sessions.take(number, event) {
                        break Some("more routes or peers than the limit for one router".into());
                    }
                }
                Ok(Some(BmpEvent::Up { router })) => {
                    // Nothing expires yet, but the expiry time is now known.
                    has_changed = true;
                    sessions.renew(number, router, clock::now());
                }
                Ok(Some(BmpEvent::Session { name, .. })) => {
                    tracing::info!("agent {}: router name {:?}", self.name, name.unwrap_or_default());
                }
                Ok(Some(BmpEvent::End { reason })) => break Some(format!("terminated by the router: {reason:?}")),
                Ok(None) => break None,
                Err(error) => break Some(error.to_string()),
            }
        };
        drop(sessions);
        if has_changed {
            self.changed.notify_one();
        }
        end
    }
}

/// Reads one connection to its end.
async fn listen(mut connection: TcpStream, address: IpAddr, number: u64, heard: Arc<CollectorState>) {
    let name = &heard.name;
    tracing::info!("agent {name}: connection from {address}");
    let mut stream = Stream::default();
    let mut buffer = vec![0; READ_BYTES];
    let end = loop {
        match connection.read(&mut buffer).await {
            Ok(0) => break "it closed the connection".to_owned(),
            Ok(length) => stream.feed(&buffer[..length]),
            Err(error) => break error.to_string(),
        }
        // Changing a large table copies it if it is in use, which may block.
        if let Some(end) = block_in_place(|| heard.take(number, &mut stream)) {
            break end;
        }
    };
    if let Some(first) = stream.first_skipped() {
        tracing::warn!("agent {name}: {address}: {} messages were skipped, the first: {first}", stream.skipped());
    }
    tracing::warn!("agent {name}: connection from {address} closed: {end}");
    heard.sessions().end(number, clock::now());
    heard.changed.notify_one();
}
