//! Any store over the xroot protocol and HTTP/WebDAV, with or without TLS, on one port.
//!
//! The life of a connection: [`Server::run`] accepts it once a place is free, tells its protocol by its first bytes
//! ([`listener`]), and hands it to a face ([`xrootd`], [`http`]). A face turns each request into calls of the
//! [`towpath_store::Store`], after [`access`] has said that the one who asks may do it there.
//! Everything that the faces share is in [`Service`].
//!
//! What is not here: how bytes are stored (`towpath-store`), how protocols are spelled (`towpath-proto`), where settings come from (the command line).

pub mod access;
pub mod access_log;
pub mod application;
mod buffers;
pub mod config;
pub mod http;
mod listener;
pub mod metrics;
mod passwords;
pub mod shares;
mod socket;
pub mod third_party;
mod tls;
pub mod xrootd;

use std::{fmt, net::SocketAddr, sync::Arc};

use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use towpath_store::{Fault, Store};

use buffers::Buffers;
pub use buffers::Memory;
pub use config::ServeConfig;
pub use listener::Server;
use shares::Shares;
pub use socket::Socket;
pub use towpath_proto::units;

/// What went wrong before the server could serve.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// An address cannot be listened on.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// The address asked for.
        address: std::net::SocketAddr,
        /// The system's reason.
        source: std::io::Error,
    },
    /// The certificate or key cannot be used.
    #[error("TLS: {0}")]
    Tls(String),
    /// The access rules are invalid.
    #[error("access: {0}")]
    Access(String),
    /// The rules of third-party copies are invalid.
    #[error("third_party: {0}")]
    ThirdParty(String),
    /// The access log cannot be written.
    #[error("access log {path}: {source}")]
    AccessLog {
        /// Where it should go.
        path: String,
        /// The system's reason.
        source: std::io::Error,
    },
}

/// What all connections share.
#[derive(Debug)]
pub struct Service {
    /// What is served.
    pub store: Arc<dyn Store>,
    /// What answers HTTP in its place.
    application: Option<application::Hosted>,
    /// Who may do what.
    pub access: access::Access,
    /// Bounds of one connection and of all.
    pub limits: config::Limits,
    /// What HTTP connections share beyond that: locks, uploads in pieces.
    pub http: http::State,
    /// Copies between this server and others.
    pub third_party: third_party::State,
    /// The memory that answers in the making, and requests that arrive, may take: in bytes.
    pub memory: Memory,
    /// Connections.
    pub connections: Shares,
    /// Open files, directories that are listed, and uploads, of all connections.
    pub files: Shares,
    /// Threads that may send files at once: they wait for the disk and a little for clients, beside the store's own.
    pub file_senders: Arc<Semaphore>,
    /// Counters.
    pub metrics: metrics::Metrics,
    /// One line for each request.
    pub access_log: access_log::AccessLog,
    /// How TLS is spoken, where it is.
    pub tls: Option<tls::Tls>,
    /// The sessions of the xroot protocol.
    pub sessions: xrootd::Sessions,
    /// The name of the site, as `query config sitename` and the listing page tell it.
    pub site: String,
    /// Cancelled when the server stops: connections finish the requests they have and take no new ones.
    pub stopping: CancellationToken,
}

impl Service {
    /// Counts and logs a request that has been answered.
    fn answered(&self, record: &access_log::Record<'_>) {
        self.metrics.answered(record.face, record.verb, record.fault, record.took.as_secs_f64());
        self.access_log.record(record);
    }
}

/// Tells the operator of a request that failed through no fault of its client's: nobody else can mend that.
fn tell_operator(peer: SocketAddr, fault: Fault, message: impl fmt::Display) {
    if matches!(fault, Fault::Io | Fault::Internal) {
        tracing::error!(%peer, "{message}");
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Mutex, PoisonError};

    use tracing::{Event, Level, Metadata, Subscriber, span};

    use super::*;

    /// The levels of what was logged.
    #[derive(Default)]
    struct Log(Mutex<Vec<Level>>);

    impl Subscriber for Log {
        fn enabled(&self, _: &Metadata<'_>) -> bool {
            true
        }
        fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
            span::Id::from_u64(1)
        }
        fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
        fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
        fn event(&self, event: &Event<'_>) {
            self.0.lock().unwrap_or_else(PoisonError::into_inner).push(*event.metadata().level());
        }
        fn enter(&self, _: &span::Id) {}
        fn exit(&self, _: &span::Id) {}
    }

    #[test]
    fn the_operator_is_told_what_only_the_operator_can_mend() {
        let log = Arc::new(Log::default());
        tracing::subscriber::with_default(Arc::clone(&log), || {
            for fault in [Fault::NotFound, Fault::Io, Fault::Cancelled, Fault::Internal, Fault::PermissionDenied] {
                tell_operator(([127, 0, 0, 1], 1).into(), fault, "/f: reading");
            }
        });
        assert_eq!(*log.0.lock().unwrap(), [Level::ERROR; 2]);
    }
}
