//! `towpath serve` and `towpath config show serve`.

mod transfers;

use std::{io::Write as _, sync::Arc};

use toml::{Table, Value};
use towpath_server::{ServeConfig, Server, config::Durability as Configured};
use towpath_store::{
    Store,
    local::{Durability, LocalOptions, LocalStore, Scope},
};

use self::transfers::ThirdPartyCopier;
use crate::{
    alto,
    args::{Config, ConfigAction, Serve},
    config::{self, Layered},
    descriptors,
    failure::Failure,
    interrupt::{self, Interrupts},
    notify::notify_systemd,
};

/// Serves a directory until SIGINT or SIGTERM.
pub(crate) async fn serve(arguments: &Serve) -> Result<(), Failure> {
    let Layered { settings, origins } = load(arguments.config.as_deref(), flags(arguments))?;
    if origins.get("root").is_none_or(|(_, origin)| origin == "default") {
        return Err(Failure::Usage("the directory to serve is missing (`.` for the current directory)".into()));
    }
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
    let store: Arc<dyn Store> = Arc::new(LocalStore::open(&settings.root, options)?);
    let transfers = ThirdPartyCopier { ca: settings.third_party.ca.clone() };
    let server = Server::bind_with(store, Some(Arc::new(transfers)), &settings)?;
    // Before the readiness notification: a signal from now on stops the server gracefully.
    run(server, Interrupts::new()?).await
}

/// Prints the listening addresses, and serves until interrupted.
pub(crate) async fn run(server: Server, mut interrupts: Interrupts) -> Result<(), Failure> {
    let mut stdout = std::io::stdout();
    for address in server.addresses() {
        writeln!(stdout, "listening on {address}")?;
    }
    stdout.flush()?;
    notify_systemd("READY=1");

    let stopping = server.stopping();
    let mut running = tokio::spawn(server.run());
    tokio::select! {
        ended = &mut running => return Err(Failure::internal(format!("the server stopped unexpectedly: {ended:?}"))),
        _ = interrupts.next() => {}
    }
    notify_systemd("STOPPING=1");
    tracing::info!("stopping: waiting for requests in flight");
    stopping.cancel();
    tokio::select! {
        ended = running => ended.map_err(|error| Failure::internal(format!("the server failed: {error}"))),
        signal = interrupts.next() => std::process::exit(i32::from(interrupt::exit_code(signal))),
    }
}

/// Prints each setting with its value and origin.
pub(crate) fn show_config(arguments: &Config) -> Result<(), Failure> {
    let ConfigAction::Show(show) = &arguments.action;
    let file = show.config.as_deref();
    let origins = match &*show.role {
        "alto" => alto::load(file, Table::new())?.origins,
        _ => load(file, Table::new())?.origins,
    };
    let mut stdout = std::io::stdout().lock();
    for (key, (value, origin)) in origins {
        writeln!(stdout, "{key} = {value}  # {origin}")?;
    }
    Ok(())
}

fn load(file: Option<&std::path::Path>, flags: Table) -> Result<Layered<ServeConfig>, Failure> {
    Ok(config::load("serve", file, config::environment(), flags)?)
}

/// Returns the options of the command line as a layer of settings.
fn flags(arguments: &Serve) -> Table {
    let text = |text: &std::path::Path| Value::String(text.to_string_lossy().into_owned());
    let mut flags = Table::new();
    if let Some(directory) = &arguments.directory {
        flags.insert("root".into(), text(directory));
    }
    if !arguments.listen.is_empty() {
        let addresses = arguments.listen.iter().map(|address| Value::String(address.to_string()));
        flags.insert("listen".into(), Value::Array(addresses.collect()));
    }
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
