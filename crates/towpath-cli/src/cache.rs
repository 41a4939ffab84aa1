//! `towpath cache`: serves a remote storage through a cache on a local disk.

pub(crate) mod args;
mod commands;
mod control;
mod metrics;
mod origins;
mod routes;
mod running;
mod settings;
mod simulate;

use std::{path::Path, sync::Arc};

use tokio_util::task::AbortOnDropHandle;
use toml::{Table, Value};
use towpath_cache::{AccessLine, Cache, CacheNamespace, CacheOptions};
use towpath_proto::url::Url;
use towpath_server::{ServeConfig, Server, ServerBuilder};
use towpath_store::sys::environment;

pub(crate) use self::{
    commands::print_stats,
    control::ControlKey,
    origins::{ListedStorages, permit},
    running::RunningCache,
    settings::{CacheConfig, CredentialConfig, ForwardConfig, SpaceConfig},
};
use self::{control::ControlFile, metrics::CacheMetrics, routes::CacheRoutes};
use crate::{
    access,
    cache::args::{CacheAction, CacheArguments},
    config::{self, Layered},
    descriptors,
    failure::{Failure, complain},
    serve::{self, ServerSignals},
};

/// Runs `towpath cache`.
pub(crate) async fn run(arguments: &CacheArguments) -> Result<(), Failure> {
    match &arguments.action {
        Some(CacheAction::Simulate(simulation)) => simulate::run(simulation),
        Some(action) => commands::run(action).await,
        None => serve(arguments).await,
    }
}

/// Runs a cache until SIGINT or SIGTERM.
async fn serve(arguments: &CacheArguments) -> Result<(), Failure> {
    let layered = load_for(arguments)?;
    let is_open = layered.origins.get("access.anonymous").is_some_and(|(_, origin)| origin == "default");
    let settings = layered.settings;
    let signals = ServerSignals::new()?;
    let cache = OpenCache::open(&settings, ListedStorages::new(&settings)?)?;
    let server = cache.server(&settings.server()).bind()?;
    let _maintaining = cache.attach(&server, &settings)?;
    let places = access::urls(&settings.server(), &server.addresses());
    complain(format_args!("caching {} in {} at {places}", described(&settings)?, settings.directory.display()));
    if is_open && settings.listen.iter().any(|address| !address.ip().is_loopback()) {
        complain(
            "warning: access.anonymous: every client may read through the cache, with the credential of the cache, because \
             this is the default: set `anonymous = []` in [access] to let only tokens in",
        );
    }
    access::metrics_places(&server.monitoring_addresses()).into_iter().for_each(complain);
    serve::run(server, signals, || {
        let changed = load_for(arguments)?.settings;
        if changed.differs_in_cache(&settings) {
            complain("the settings of the cache itself (origin, directory, rules, space, credential) need a restart");
        }
        Ok(changed.server())
    })
    .await
}

/// Loads the layered settings of the role.
pub(crate) fn load(file: Option<&Path>, flags: Table) -> Result<Layered<CacheConfig>, Failure> {
    Ok(config::load("cache", file, environment::variables(), flags)?)
}

/// Loads the settings, which must name an origin and a directory.
fn load_for(arguments: &CacheArguments) -> Result<Layered<CacheConfig>, Failure> {
    let layered = load(arguments.config.as_deref(), flags(arguments))?;
    let CacheConfig { origin, forward, directory, .. } = &layered.settings;
    let missing = [
        (
            origin.is_empty() && forward.hosts.is_empty(),
            "the origin is missing: the URL of the storage to cache; or --forward with the hosts that clients may name",
        ),
        (directory.as_os_str().is_empty(), "the directory of the cache is missing (--dir)"),
    ];
    match missing.iter().find(|(is_missing, _)| *is_missing) {
        Some((_, problem)) => Err(Failure::Usage((*problem).into())),
        None => layered.settings.check_space().map(|()| layered),
    }
}

/// Describes the cached storages.
fn described(settings: &CacheConfig) -> Result<String, Failure> {
    let mut parts: Vec<_> = origins::urls(settings)?.iter().map(Url::without_secrets).collect();
    if !settings.forward.hosts.is_empty() {
        parts.push(format!("storages in paths ({})", settings.forward.hosts.join(", ")));
    }
    Ok(parts.join(", "))
}

/// A cache whose directory is open.
#[derive(Debug)]
pub(crate) struct OpenCache {
    cache: Cache,
    namespace: Arc<CacheNamespace>,
    key: ControlKey,
}

impl OpenCache {
    /// Opens the directory, and connects the origins. Clients may name the storages of `forwarder`.
    ///
    /// # Errors
    /// The settings are invalid, another process uses the directory, or its disk fails.
    pub(crate) fn open(settings: &CacheConfig, forwarder: Option<ListedStorages>) -> Result<Self, Failure> {
        let tree = origins::connect(settings)?;
        let quotas = settings.quotas(tree.as_ref())?;
        let options = CacheOptions { quotas, ..settings.cache(descriptors::raise_limit()) };
        let cache = Cache::open(&settings.directory, options)?;
        let tree = tree.map(|tree| cache.around(tree)).transpose()?;
        let forwarder = forwarder.map(|listed| Arc::new(listed) as _);
        let namespace = Arc::new(CacheNamespace::new(cache.clone(), tree, forwarder));
        Ok(Self { cache, namespace, key: ControlKey::new() })
    }

    /// Returns the key in the file `control`.
    pub(crate) fn key(&self) -> ControlKey {
        self.key.clone()
    }

    /// Begins the server of the cache.
    pub(crate) fn server<'a>(&self, settings: &'a ServeConfig) -> ServerBuilder<'a> {
        let Self { cache, namespace, key } = self;
        Server::builder(Arc::clone(namespace) as _, settings)
            .is_cache(true)
            .routes(Arc::new(CacheRoutes::new(cache.clone(), Arc::clone(namespace), key.clone())))
            .collector(Arc::new(CacheMetrics { cache: cache.clone(), namespace: Arc::clone(namespace) }))
    }

    /// Writes the accesses to the log of the server, lets commands find it, and maintains the cache until the returned
    /// handle is dropped.
    ///
    /// # Errors
    /// The file `control` cannot be written.
    pub(crate) fn attach(&self, server: &Server, settings: &CacheConfig) -> Result<AbortOnDropHandle<()>, Failure> {
        let (cache, log) = (self.cache.clone(), server.access_lines());
        cache.observe_accesses(Box::new(move |record| log.write(|| AccessLine::from(record).to_json())));
        if let Some(address) = server.addresses().first() {
            ControlFile::write(&settings.directory, *address, settings.tls.certificate.is_some(), &self.key)
                .map_err(Failure::system("write the file `control` of the cache"))?;
        }
        Ok(AbortOnDropHandle::new(tokio::spawn(async move { cache.maintain().await })))
    }
}

/// Returns the options of the command line as a layer of settings.
fn flags(arguments: &CacheArguments) -> Table {
    let mut flags = Table::new();
    let texts = |texts: &[String]| Value::Array(texts.iter().cloned().map(Value::String).collect());
    if !arguments.origin.is_empty() {
        flags.insert("origin".into(), texts(&arguments.origin));
    }
    if !arguments.forward.is_empty() {
        let hosts = [("hosts".to_owned(), texts(&arguments.forward))];
        flags.insert("forward".into(), Value::Table(hosts.into_iter().collect()));
    }
    if let Some(directory) = &arguments.dir {
        flags.insert("directory".into(), Value::String(directory.to_string_lossy().into_owned()));
    }
    config::insert_listen(&mut flags, &arguments.listen);
    flags
}
