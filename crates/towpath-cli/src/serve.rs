//! `towpath serve`.

mod transfers;

use std::{io::Write as _, path::Path, sync::Arc};

use rustix::{
    process::Signal,
    time::{ClockId, clock_gettime},
};
use toml::{Table, Value};
use towpath_server::{ServeConfig, Server, Service, config::Durability as Configured, exports::Exports};
use towpath_store::{
    CombinedStore, Store, StorePath,
    local::{Durability, LocalOptions, LocalStore, Scope},
    sys::environment,
};

use self::transfers::ThirdPartyCopier;
use crate::{
    access,
    args::Serve,
    config::{self, Layered},
    descriptors,
    failure::{Failure, complain},
    interrupt::{self, Hangups, Interrupts},
    notify::notify_systemd,
};

/// The signals that a server handles.
#[derive(Debug)]
pub(crate) struct ServerSignals {
    /// Stop the server.
    pub interrupts: Interrupts,
    /// Reload its settings.
    pub hangups: Hangups,
}

impl ServerSignals {
    /// Installs the handlers.
    ///
    /// # Errors
    /// The system refuses a handler.
    pub(crate) fn new() -> Result<Self, Failure> {
        Ok(Self { interrupts: Interrupts::of(&[Signal::INT, Signal::TERM])?, hangups: Hangups::new()? })
    }
}

/// Serves a directory until SIGINT or SIGTERM.
pub(crate) async fn serve(arguments: &Serve) -> Result<(), Failure> {
    let layered = load_for(arguments)?;
    let settings = &layered.settings;
    // Before the readiness notification: a signal from now on reloads the settings or stops the server gracefully.
    let signals = ServerSignals::new()?;
    descriptors::raise_limit();
    let options = LocalOptions {
        scope: Scope::Export,
        durability: match settings.durability {
            Configured::None => Durability::None,
            Configured::File => Durability::File,
            Configured::FileAndDirectory => Durability::FileAndDirectory,
        },
        disk_jobs: settings.limits.disk_threads,
    };
    if arguments.check {
        let is_usable = |root: &Path| LocalStore::open(root, options.clone()).map(drop);
        return access::check(&layered, is_usable).await;
    }
    let store = open_store(settings, &options)?;
    let transfers = ThirdPartyCopier { ca: settings.third_party.ca.clone() };
    let server = Server::builder(store, settings).transfers(Arc::new(transfers)).bind()?;
    access::announce(&layered, &server)?;
    run(server, signals, || Ok(load_for(arguments)?.settings)).await
}

/// Loads the settings, which must name the directories to serve in one way.
fn load_for(arguments: &Serve) -> Result<Layered<ServeConfig>, Failure> {
    let layered = load(arguments.config.as_deref(), flags(arguments))?;
    let has_root = layered.origins.get("root").is_some_and(|(_, origin)| origin != "default");
    let problem = match (has_root, layered.settings.export.is_empty()) {
        (false, true) => "the directory to serve is missing (`.` for the current directory)",
        (true, false) => "the settings have both `root` and [[export]]: remove one, or give no directory",
        _ => return Ok(layered),
    };
    Err(Failure::Usage(problem.into()))
}

/// Opens the exported directories.
fn open_store(settings: &ServeConfig, options: &LocalOptions) -> Result<Arc<dyn Store>, Failure> {
    let open =
        |root: &Path| -> Result<Arc<dyn Store>, Failure> { Ok(Arc::new(LocalStore::open(root, options.clone())?)) };
    if settings.export.is_empty() {
        return open(&settings.root);
    }
    let roots = settings.export.iter().map(|export| open(&export.root));
    let exports = Exports::new(settings)?;
    let read_only: Vec<_> = exports.read_only().cloned().collect();
    let members = exports.prefixes().cloned().zip(roots).map(|(prefix, store)| Ok((prefix, store?)));
    let members = members.collect::<Result<Vec<_>, Failure>>()?;
    if members.iter().any(|(_, store)| store.capabilities().attributes) {
        let lacks_attributes = |(prefix, store): &&(StorePath, Arc<dyn Store>)| {
            let capabilities = store.capabilities();
            !capabilities.is_read_only() && !capabilities.attributes && !read_only.contains(prefix)
        };
        for (prefix, _) in members.iter().filter(lacks_attributes) {
            complain(format_args!(
                "warning: the file system of the export {prefix} has no extended attributes: no export offers them"
            ));
        }
    }
    Ok(Arc::new(CombinedStore::with_read_only(members, &read_only)?))
}

/// Prints the listening addresses, and serves until it is interrupted or its token for stopping is cancelled. `settings`
/// loads the settings again for a reload.
pub(crate) async fn run(
    server: Server,
    signals: ServerSignals,
    settings: impl Fn() -> Result<ServeConfig, Failure>,
) -> Result<(), Failure> {
    let ServerSignals { mut interrupts, mut hangups } = signals;
    let mut stdout = std::io::stdout();
    for address in server.addresses() {
        writeln!(stdout, "listening on {address}")?;
    }
    stdout.flush()?;
    notify_systemd("READY=1");

    let (service, stopping) = (server.service(), server.stopping());
    let mut running = tokio::spawn(server.run());
    loop {
        tokio::select! {
            ended = &mut running => return match stopping.is_cancelled() {
                true => ended.map_err(|error| Failure::internal(format!("the server failed: {error}"))),
                false => Err(Failure::internal(format!("the server stopped unexpectedly: {ended:?}"))),
            },
            _ = interrupts.next() => break,
            hangup = hangups.next() => match hangup {
                Some(()) => reload(&service, &settings),
                None => break,
            },
        }
    }
    notify_systemd("STOPPING=1");
    tracing::info!("stopping: waiting for requests in flight");
    stopping.cancel();
    tokio::select! {
        ended = running => ended.map_err(|error| Failure::internal(format!("the server failed: {error}"))),
        signal = interrupts.next() => std::process::exit(i32::from(interrupt::exit_code(signal))),
    }
}

/// Applies changed settings. Invalid ones are reported, and change nothing.
fn reload(service: &Service, settings: impl Fn() -> Result<ServeConfig, Failure>) {
    notify_systemd(&format!("RELOADING=1\nMONOTONIC_USEC={}", monotonic_us()));
    match settings().and_then(|settings| Ok(service.reload(&settings)?)) {
        Ok(changed) if changed.is_empty() => complain("reloaded the settings"),
        Ok(changed) => {
            complain(format_args!("reloaded the settings, except these, which need a restart: {}", changed.join(", ")));
        }
        Err(failure) => {
            failure.print();
            complain("nothing was reloaded");
        }
    }
    notify_systemd("READY=1");
}

/// Returns the time of `CLOCK_MONOTONIC` in microseconds.
fn monotonic_us() -> i64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec * 1_000_000 + now.tv_nsec / 1_000
}

/// Loads the layered settings of the role.
pub(crate) fn load(file: Option<&Path>, flags: Table) -> Result<Layered<ServeConfig>, Failure> {
    Ok(config::load("serve", file, environment::variables(), flags)?)
}

/// Returns the options of the command line as a layer of settings.
fn flags(arguments: &Serve) -> Table {
    let text = |text: &Path| Value::String(text.to_string_lossy().into_owned());
    let mut flags = Table::new();
    if let Some(directory) = &arguments.directory {
        flags.insert("root".into(), text(directory));
    }
    config::insert_listen(&mut flags, &arguments.listen);
    if let (Some(certificate), Some(key)) = (&arguments.certificate, &arguments.key) {
        let tls = Table::from_iter([("certificate".into(), text(certificate)), ("key".into(), text(key))]);
        flags.insert("tls".into(), Value::Table(tls));
    }
    if arguments.writable {
        let rights = ["read", "modify"].map(|right| Value::String(right.into()));
        let everywhere = Table::from_iter([
            ("path".into(), Value::String("/".into())),
            ("allow".into(), Value::Array(rights.into())),
        ]);
        let access = Table::from_iter([("anonymous".into(), Value::Array(vec![Value::Table(everywhere)]))]);
        flags.insert("access".into(), Value::Table(access));
    }
    flags
}
