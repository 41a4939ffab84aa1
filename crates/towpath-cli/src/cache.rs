//! `towpath cache`: serves a remote storage through a cache on a local disk.

pub(crate) mod args;
mod commands;
mod control;
mod metrics;
mod routes;
mod settings;

use std::{path::Path, sync::Arc, time::Duration};

use tokio_util::task::AbortOnDropHandle;
use toml::{Table, Value};
use towpath_cache::{Cache, CacheStore, OriginOptions};
use towpath_client::{Client, ClientOptions, TokenSource};
use towpath_proto::url::{Family, Url};
use towpath_server::Server;
use towpath_store::sys::environment;

pub(crate) use self::settings::CacheConfig;
use self::settings::CredentialConfig;
use self::{
    control::{ControlFile, ControlKey},
    metrics::CacheMetrics,
    routes::CacheRoutes,
};
use crate::{
    access,
    cache::args::CacheArguments,
    config::{self, Layered},
    descriptors,
    failure::{Failure, complain},
    serve::{self, ServerSignals},
};

/// Maximum silence of a connection to an origin with requests in flight. Readers wait meanwhile, and have other
/// sources.
const STALL: Duration = Duration::from_secs(10);
/// Time during which a request to an origin is retried.
const RETRY_TIME: Duration = Duration::from_secs(30);

/// Runs `towpath cache`.
pub(crate) async fn run(arguments: &CacheArguments) -> Result<(), Failure> {
    match &arguments.action {
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
    let (cache, store) = open(&settings, descriptors::raise_limit())?;
    let store = Arc::new(store);
    let key = ControlKey::new();
    let server = Server::builder(Arc::clone(&store) as _, &settings.server())
        .is_cache(true)
        .routes(Arc::new(CacheRoutes::new(cache.clone(), Arc::clone(&store), key.clone())))
        .collector(Arc::new(CacheMetrics { cache: cache.clone(), store }))
        .bind()?;
    if let Some(address) = server.addresses().first() {
        ControlFile::write(&settings.directory, *address, &key)
            .map_err(Failure::system("write the file `control` of the cache"))?;
    }
    let _maintaining = AbortOnDropHandle::new(tokio::spawn(async move { cache.maintain().await }));
    let places = access::urls(&settings.server(), &server.addresses());
    let origin = url(&settings)?.without_secrets();
    complain(format_args!("caching {origin} in {} at {places}", settings.directory.display()));
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
    let CacheConfig { origin, directory, .. } = &layered.settings;
    let missing = [
        (origin.is_empty(), "the origin is missing: the URL of the storage to cache"),
        (directory.as_os_str().is_empty(), "the directory of the cache is missing (--dir)"),
    ];
    match missing.iter().find(|(is_missing, _)| *is_missing) {
        Some((_, problem)) => Err(Failure::Usage((*problem).into())),
        None => layered.settings.check_space().map(|()| layered),
    }
}

/// Returns the URL of the origin. An error does not repeat it: it may have a password.
fn url(settings: &CacheConfig) -> Result<Url, Failure> {
    settings.origin.parse().map_err(|error| Failure::Usage(format!("the URL of the origin is invalid: {error}")))
}

/// Opens the cache and connects its origin.
fn open(settings: &CacheConfig, descriptors: u64) -> Result<(Cache, CacheStore), Failure> {
    let url = url(settings)?;
    if url.scheme().family() == Family::S3 && settings.credential == CredentialConfig::Caller {
        let message =
            "credential = \"caller\" needs an origin that accepts tokens: a bucket accepts the keys of the cache";
        return Err(Failure::Usage(message.into()));
    }
    let options = ClientOptions {
        token: settings.token.clone().map_or(TokenSource::Discover, TokenSource::File),
        ca_file: settings.ca.clone(),
        stall: STALL,
        patience: RETRY_TIME,
        retry_time: RETRY_TIME,
        window_bytes: settings.bytes_in_flight.0 as usize,
        ..ClientOptions::default()
    };
    let (store, root) = Client::new(Arc::new(options)).connect(&url)?;
    let cache = Cache::open(&settings.directory, settings.cache(descriptors))?;
    let store = cache.around(OriginOptions {
        name: format!("{}://{}", url.scheme().name(), url.endpoint()).into(),
        store,
        root,
        credential: settings.credential.into(),
        rules: settings.rules()?,
        bytes_in_flight: settings.bytes_in_flight.0 as usize,
    });
    Ok((cache, store))
}

/// Returns the options of the command line as a layer of settings.
fn flags(arguments: &CacheArguments) -> Table {
    let mut flags = Table::new();
    if let Some(origin) = &arguments.origin {
        flags.insert("origin".into(), Value::String(origin.clone()));
    }
    if let Some(directory) = &arguments.dir {
        flags.insert("directory".into(), Value::String(directory.to_string_lossy().into_owned()));
    }
    config::insert_listen(&mut flags, &arguments.listen);
    flags
}
