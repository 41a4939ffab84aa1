//! Agents that listen: routers connect and tell their routes by BMP (RFC 7854).
//!
//! Each connection has its own [`Stream`]; what it tells is kept by [`Sessions`], and told to the server when it changed, all connections at once.

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
    facts::{Facts, Prefix, Router},
    names::RouterName,
};
use towpath_store::sys::{clock, net};

use self::sessions::Sessions;
use super::Teller;
use crate::sources::Knowledge;

/// What is read at once of a connection.
const READ_BYTES: usize = 64 << 10;

/// How long to wait when the system has no room for another connection.
const NO_ROOM: Duration = Duration::from_secs(1);

/// Where routers connect to.
#[derive(Debug)]
pub(super) struct Collector {
    listener: TcpListener,
    from: Vec<Prefix>,
    settle: Duration,
    hold: Duration,
    heard: Arc<Heard>,
}

/// What connections share.
#[derive(Debug)]
struct Heard {
    name: Arc<str>,
    sessions: Mutex<Sessions>,
    changed: Notify,
}

impl Collector {
    /// Listens. Routers outside of `from` are turned away; changes are told `settle` after the first of them, and routes go `hold` after their connection if they are not told
    /// again. What `earlier` routers told before the process began holds as if their connections had ended now.
    ///
    /// # Errors
    /// The system's: the address is in use, or not ours.
    pub(super) fn bind(
        name: &Arc<str>,
        listen: SocketAddr,
        from: &[Prefix],
        [settle, hold]: [Duration; 2],
        earlier: BTreeMap<RouterName, Router>,
    ) -> io::Result<Self> {
        let listener = net::listen(listen)?;
        tracing::info!("agent {name}: routers connect to {}", listener.local_addr()?);
        let sessions = Mutex::new(Sessions::after(earlier, clock::now()));
        let heard = Heard { name: Arc::clone(name), sessions, changed: Notify::new() };
        Ok(Self { listener, from: from.to_vec(), settle, hold, heard: Arc::new(heard) })
    }

    /// Listens for ever. Who is missed and has no route any more is forgotten when `anew` changes. Dropping the future closes all connections.
    pub(super) async fn run(self, teller: Teller, anew: watch::Receiver<()>) {
        tokio::join!(self.accept(), self.tell(&teller, anew));
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
                tracing::warn!("agent {}: {address} may not connect; `from` says who may", self.heard.name);
                continue;
            }
            match self.heard.sessions().begin(address) {
                Some(number) => {
                    // It may have been missed.
                    self.heard.changed.notify_one();
                    connections.spawn(listen(stream, address, number, Arc::clone(&self.heard)));
                }
                None => tracing::warn!("agent {}: {address} is one router too many", self.heard.name),
            }
        }
    }

    /// Tells what changed.
    async fn tell(&self, teller: &Teller, mut anew: watch::Receiver<()>) {
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
                told = anew.changed() => match told {
                    Ok(()) => self.heard.sessions().forget_missed(),
                    Err(_) => return,
                }
            }
            let (facts, trouble) = block_in_place(|| self.gather());
            teller.tell(Some(Knowledge::of(facts)), trouble).await;
        }
    }

    /// What is known now, and what is wrong with it.
    fn gather(&self) -> (Facts, Option<String>) {
        let mut sessions = self.heard.sessions();
        sessions.expire(clock::now(), self.hold);
        let facts = Facts { routers: sessions.routers(), ..Facts::default() };
        let trouble = sessions.gone().map(|address| format!("the connection of {address} ended"));
        let is_partial = sessions.awaits_earlier();
        (facts, trouble.or_else(|| is_partial.then(|| "routers have not told all their routes since the start".into())))
    }
}

impl Heard {
    fn sessions(&self) -> MutexGuard<'_, Sessions> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes what came on a connection. Why it is to end, if it is.
    fn take(&self, number: u64, stream: &mut Stream) -> Option<String> {
        let mut sessions = self.sessions();
        let mut has_changed = false;
        let end = loop {
            match stream.next() {
                Ok(Some(BmpEvent::Change(event))) => {
                    has_changed = true;
                    if !sessions.take(number, event) {
                        break Some("it has more routes or peers than are kept of one router".into());
                    }
                }
                Ok(Some(BmpEvent::Up { router })) => {
                    // Nothing goes yet, but it is known now when it will.
                    has_changed = true;
                    sessions.renew(number, router, clock::now());
                }
                Ok(Some(BmpEvent::Session { name, .. })) => {
                    tracing::info!("agent {}: the router calls itself {:?}", self.name, name.unwrap_or_default());
                }
                Ok(Some(BmpEvent::End { reason })) => break Some(format!("it says: {reason:?}")),
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

/// Follows one connection to its end.
async fn listen(mut connection: TcpStream, address: IpAddr, number: u64, heard: Arc<Heard>) {
    let name = &heard.name;
    tracing::info!("agent {name}: {address} is connected");
    let mut stream = Stream::default();
    let mut buffer = vec![0; READ_BYTES];
    let end = loop {
        match connection.read(&mut buffer).await {
            Ok(0) => break "it closed the connection".to_owned(),
            Ok(length) => stream.feed(&buffer[..length]),
            Err(error) => break error.to_string(),
        }
        // Large tables are copied when they are still answered from, which takes its time.
        if let Some(end) = block_in_place(|| heard.take(number, &mut stream)) {
            break end;
        }
    };
    if let Some(first) = stream.first_skipped() {
        tracing::warn!("agent {name}: {address}: {} messages were skipped, the first: {first}", stream.skipped());
    }
    tracing::warn!("agent {name}: {address} is gone: {end}");
    heard.sessions().end(number, clock::now());
    heard.changed.notify_one();
}
