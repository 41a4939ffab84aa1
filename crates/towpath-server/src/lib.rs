//! Serves any store over the xroot protocol and HTTP/WebDAV, with or without TLS, on one port.
//!
//! The life of a connection: [`Server::run`] accepts it once a connection slot is free, detects the protocol from its
//! first bytes ([`listener`]), and passes it to a face ([`xrootd`], [`http`]). A face translates each request into
//! calls of the [`towpath_store::Store`] after [`access`] has authorized the caller. State shared by the faces is in
//! [`Service`].
//!
//! Not here: storage of bytes (`towpath-store`), wire formats (`towpath-proto`), and the sources of settings (the
//! command line).

pub mod access;
pub mod access_log;
pub mod application;
mod buffers;
mod certificate;
pub mod check;
pub mod config;
pub mod exports;
pub mod fair_pool;
mod file_stamp;
pub mod http;
mod listener;
mod log_limit;
pub mod metrics;
mod passwords;
mod reload;
pub mod routes;
mod socket;
pub mod third_party;
mod tls;
pub mod web_page;
pub mod xrootd;

use std::{fmt, net::SocketAddr, sync::Arc};

use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use towpath_store::{Fault, Store};

use buffers::Buffers;
pub use buffers::MemoryPool;
pub use config::ServeConfig;
use fair_pool::FairPool;
pub use listener::{Port, Server, ServerBuilder};
use reload::Reloadable;
pub use socket::Socket;
pub use towpath_proto::units;

/// An error that prevents the server from starting.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The server cannot listen on an address.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// The configured address.
        address: std::net::SocketAddr,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// The certificate or key cannot be used.
    #[error("TLS: {0}")]
    Tls(String),
    /// The access rules are invalid.
    #[error("access: {0}")]
    Access(String),
    /// The exports are invalid.
    #[error("export: {0}")]
    Export(String),
    /// The rules of third-party copies are invalid.
    #[error("third_party: {0}")]
    ThirdParty(String),
    /// The access log cannot be written.
    #[error("access log {path}: {source}")]
    AccessLog {
        /// Path of the log file.
        path: String,
        /// The error of the operating system.
        source: std::io::Error,
    },
}

/// State shared by all connections.
#[derive(Debug)]
pub struct Service {
    /// The exported store.
    pub store: Arc<dyn Store>,
    /// The application that answers HTTP requests instead of the store, if any.
    application: Option<application::HostedApplication>,
    /// The additional HTTP routes.
    routes: Vec<Arc<dyn routes::Routes>>,
    /// Sources of additional metrics.
    collectors: Vec<Arc<dyn metrics::Collector>>,
    /// Whether XRootD clients see a cache of another server.
    is_cache: bool,
    /// The user whose processes alone are served, if not all are.
    only_user: Option<u32>,
    /// The settings at the start of the server.
    config: ServeConfig,
    /// The exports in the store.
    exports: exports::Exports,
    /// The access policy.
    access: Reloadable<access::Access>,
    /// Limits of one connection and of all connections.
    pub limits: config::Limits,
    /// State shared by HTTP connections: locks and multipart uploads.
    pub http: http::State,
    /// Third-party copies.
    pub third_party: third_party::State,
    /// Memory pool for responses in flight and incoming requests, in bytes.
    pub memory: MemoryPool,
    /// Pool of connections.
    pub connections: FairPool,
    /// Pool of connections to the ports for monitoring.
    monitoring_connections: FairPool,
    /// Pool of open files, listings in progress and uploads of all connections.
    pub files: FairPool,
    /// Limits the number of threads that send files; they block on the disk and briefly on clients, in addition to
    /// the store's threads.
    pub file_senders: Arc<Semaphore>,
    /// Counters.
    pub metrics: metrics::Metrics,
    /// The space of each export.
    space: Vec<metrics::SpaceCache>,
    /// Start of the server, in seconds since the Unix epoch.
    started_s: i64,
    /// The log of denied requests.
    denial_log: access::DenialLog,
    tls_refusal_log: log_limit::LogLimit,
    /// The access log: one line per request.
    access_log: Reloadable<access_log::AccessLog>,
    /// TLS settings, if TLS is enabled.
    tls: Reloadable<Option<Arc<tls::Tls>>>,
    /// Sessions of the xroot protocol.
    pub sessions: xrootd::Sessions,
    /// Configured name of the site; may be empty.
    pub site: String,
    /// Cancelled when the server stops: connections finish the requests in flight and accept no new ones.
    pub stopping: CancellationToken,
}

impl Service {
    /// Returns the current access policy.
    pub fn access(&self) -> Arc<access::Access> {
        self.access.get()
    }

    /// Returns the current TLS settings; `None` if TLS is disabled.
    pub(crate) fn tls(&self) -> Option<Arc<tls::Tls>> {
        self.tls.get().as_ref().clone()
    }

    /// Returns the name of the site, as reported by `query config sitename` and in challenges.
    fn site_name(&self) -> &str {
        if self.site.is_empty() { config::DEFAULT_SITE } else { &self.site }
    }

    /// Counts and logs a completed request.
    fn record_request(&self, record: &access_log::Record<'_>) {
        self.metrics.record_request(record.face, record.verb, record.fault, record.took.as_secs_f64());
        self.access_log.get().record(record);
        if let Some(denial) = record.denial {
            self.metrics.record_denial(record.face, denial.reason);
            self.denial_log.record(record, denial);
        }
    }

    /// Counts and logs that a slow client was disconnected, or one that was idle or violated the protocol; `why`
    /// follows "it". The places that detect slow clients:
    ///
    /// - a response without progress for `limits.stall`: `http/watchdog.rs`, `xrootd/response_writer.rs`;
    /// - a request without progress: `http/watchdog.rs` (header), `http/upload.rs` (body, answered by 408),
    ///   `xrootd/connection.rs`, `xrootd/bound.rs`;
    /// - slow progress while other clients wait for memory, files or a connection: [`fair_pool`].
    fn record_disconnect(&self, peer: SocketAddr, why: &str) {
        self.metrics.disconnected.inc();
        tracing::info!(%peer, "disconnected the client: it {why}");
    }
}

/// Logs a request that failed through no fault of its client, so that the operator can act on it.
fn log_server_fault(peer: SocketAddr, fault: Fault, message: impl fmt::Display) {
    if matches!(fault, Fault::Io | Fault::Internal) {
        tracing::error!(%peer, "{message}");
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Mutex, PoisonError};

    use tracing::{Event, Level, Metadata, Subscriber, span};

    use super::*;

    /// Records the levels of log events.
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
                log_server_fault(([127, 0, 0, 1], 1).into(), fault, "/f: reading");
            }
        });
        assert_eq!(*log.0.lock().unwrap(), [Level::ERROR; 2]);
    }
}
