//! Builds a server from its settings and its parts.

use std::{net::SocketAddr, sync::Arc};

use tokio::{net::TcpListener, sync::Semaphore};
use tokio_util::sync::CancellationToken;
use towpath_store::{
    Store,
    memory::MemoryStore,
    sys::{clock, net},
};

use super::{CONNECTIONS_ALPHA, MONITORING_CONNECTIONS, Server, descriptors};
use crate::{
    MemoryPool, ServeConfig, Service, StartError,
    access::DenialLog,
    access_log::AccessLog,
    application::{Application, HostedApplication},
    exports::Exports,
    fair_pool::FairPool,
    http,
    log_limit::LogLimit,
    metrics::{Collector, Metrics, SpaceCache},
    reload::{self, Reloadable},
    routes::Routes,
    third_party::{self, Transfers},
    xrootd,
};

/// The settings and parts of a server that is not listening yet.
#[derive(Debug)]
#[must_use]
pub struct ServerBuilder<'a> {
    config: &'a ServeConfig,
    store: Arc<dyn Store>,
    application: Option<HostedApplication>,
    transfers: Option<Arc<dyn Transfers>>,
    routes: Vec<Arc<dyn Routes>>,
    collectors: Vec<Arc<dyn Collector>>,
    is_cache: bool,
    only_user: Option<u32>,
}

impl Server {
    /// Begins a server that serves `store`.
    pub fn builder(store: Arc<dyn Store>, config: &ServeConfig) -> ServerBuilder<'_> {
        let (application, transfers, routes, collectors) = (None, None, Vec::new(), Vec::new());
        let (is_cache, only_user) = (false, None);
        ServerBuilder { config, store, application, transfers, routes, collectors, is_cache, only_user }
    }

    /// Begins a server that serves `application`, with its metrics. Pages from `origins` may read its responses (`*`:
    /// all). There are no files, so XRootD is disabled.
    pub fn application_builder(
        application: Arc<dyn Application>,
        origins: Vec<String>,
        config: &ServeConfig,
    ) -> ServerBuilder<'_> {
        let builder = Self::builder(Arc::new(MemoryStore::new(0)), config).collector(Arc::clone(&application) as _);
        ServerBuilder { application: Some(HostedApplication::new(application, origins)), ..builder }
    }
}

impl ServerBuilder<'_> {
    /// Makes third-party copies with `transfers`.
    pub fn transfers(self, transfers: Arc<dyn Transfers>) -> Self {
        Self { transfers: Some(transfers), ..self }
    }

    /// Serves additional HTTP routes, beside those of earlier calls. If several have a path, the first ones count.
    pub fn routes(mut self, routes: Arc<dyn Routes>) -> Self {
        self.routes.push(routes);
        self
    }

    /// Adds metrics.
    pub fn collector(mut self, collector: Arc<dyn Collector>) -> Self {
        self.collectors.push(collector);
        self
    }

    /// Sets whether XRootD clients see a cache of another server.
    pub fn is_cache(self, is_cache: bool) -> Self {
        Self { is_cache, ..self }
    }

    /// Serves only processes of the user with this number on this machine, and no web pages that their browser shows:
    /// for a server that acts with the credentials of its user. HTTP requests must name this machine (`localhost`, or
    /// an address of the loopback) and have no `Origin`.
    pub fn only_user(self, user: u32) -> Self {
        Self { only_user: Some(user), ..self }
    }

    /// Listens on the addresses in the settings. Connections queue in the kernel until [`Server::run`].
    ///
    /// # Errors
    /// [`StartError`] for an address in use, an unreadable certificate, or invalid access rules.
    pub fn bind(self) -> Result<Server, StartError> {
        let Self { config, store, application, transfers, routes, collectors, is_cache, only_user } = self;
        let (listeners, monitoring_listeners) = (listen(&config.listen)?, listen(&config.metrics.listen)?);
        let (access, tls) = reload::secure(config, None)?;
        let exports = Exports::new(config)?;
        let metrics = Metrics::default();
        let (connections, files) = descriptors(&config.limits);
        let service = Service {
            store,
            application,
            routes,
            collectors,
            is_cache,
            only_user,
            config: config.clone(),
            access: Reloadable::new(access),
            limits: config.limits.clone(),
            http: http::State::new(config.http.clone(), config.probe.clone()),
            third_party: third_party::State::new(config.third_party.clone(), transfers)?,
            memory: MemoryPool::new(config.limits.bytes.0),
            connections: FairPool::new(connections, 1, CONNECTIONS_ALPHA),
            monitoring_connections: FairPool::new(MONITORING_CONNECTIONS, 1, CONNECTIONS_ALPHA),
            files: FairPool::new(files, 1, 1),
            file_senders: Arc::new(Semaphore::new(config.limits.disk_threads.max(1))),
            denial_log: DenialLog::default(),
            tls_refusal_log: LogLimit::default(),
            access_log: Reloadable::new(AccessLog::start(&config.access_log, metrics.log_lines_lost.clone())?),
            metrics,
            space: exports.prefixes().cloned().map(SpaceCache::new).collect(),
            exports,
            started_s: clock::unix_s(),
            tls: Reloadable::new(tls.map(Arc::new)),
            sessions: xrootd::Sessions::default(),
            site: config.site.clone(),
            stopping: CancellationToken::new(),
        };
        Ok(Server { service: Arc::new(service), listeners, monitoring_listeners, drain: config.drain.0 })
    }
}

fn listen(addresses: &[SocketAddr]) -> Result<Vec<TcpListener>, StartError> {
    let listen =
        |&address| net::listen_beside(address, addresses).map_err(|source| StartError::Listen { address, source });
    addresses.iter().map(listen).collect()
}
