//! `towpath alto`: an ALTO server, and `towpath alto check`, which validates its configuration.
//!
//! [`Agents`] collect facts; [`AltoService`] builds the network state from them, answers requests, and replaces the
//! state when facts change.

pub(crate) mod args;

use std::{io::Write as _, path::Path, sync::Arc};

use tokio::signal::unix::{SignalKind, signal};
use tokio_util::task::AbortOnDropHandle;
use toml::Table;
use towpath_alto_server::{
    AltoService, Delegates, Rucio,
    settings::{AltoConfig, rucio::RucioConfig},
};
use towpath_alto_sources::{Agents, AgentsError, Purpose};
use towpath_server::Server;
use towpath_store::sys::environment;

use self::args::{Alto, AltoAction};
use crate::{
    access,
    config::{self, Layered},
    descriptors,
    failure::{Failure, complain},
    interrupt::Interrupts,
    order,
    serve::{self, ServerSignals},
};

/// Runs `towpath alto`.
pub(crate) async fn run(arguments: &Alto) -> Result<(), Failure> {
    match &arguments.action {
        Some(AltoAction::Check) => check(arguments).await,
        None => serve(arguments).await,
    }
}

/// Loads the layered settings of the role.
pub(crate) fn load(file: Option<&Path>, flags: Table) -> Result<Layered<AltoConfig>, Failure> {
    Ok(config::load("alto", file, environment::variables(), flags)?)
}

fn settings(arguments: &Alto) -> Result<AltoConfig, Failure> {
    let mut flags = Table::new();
    config::insert_listen(&mut flags, &arguments.listen);
    let settings = load(arguments.config.as_deref(), flags)?.settings;
    if settings.agents.is_empty() {
        return Err(Failure::Usage(
            "no agents are configured: add an [agents.NAME] section to the file of --config".into(),
        ));
    }
    Ok(settings)
}

/// Returns Rucio's table of distances, with the metrics in its file; `None` if the settings have no storage elements.
fn rucio(config: &RucioConfig) -> Result<Option<Rucio>, Failure> {
    let path = config.config.as_deref().filter(|_| !config.rses.is_empty());
    let configuration = path.map(order::configuration).transpose()?.unwrap_or_default();
    Rucio::of(config, configuration).map_err(Failure::Usage)
}

/// Serves until interrupted, and processes agent reports meanwhile.
async fn serve(arguments: &Alto) -> Result<(), Failure> {
    let settings = settings(arguments)?;
    descriptors::raise_limit();
    // Install the handlers before starting programs and announcing the server: an unhandled signal would end the
    // server but not the programs.
    let hangups = signal(SignalKind::hangup()).map_err(Failure::system("wait for SIGHUP"))?;
    let mut signals = ServerSignals::new()?;
    let rucio = rucio(&settings.rucio)?;
    let mut agents = Agents::start(&settings.agents, Purpose::Serve, settings.snapshot.as_deref())?;
    let started = tokio::select! {
        started = start(&mut agents, &settings, rucio) => started,
        signal = signals.interrupts.next() => Err(Failure::Interrupted { signal, consequence: String::new() }),
    };
    let (server, service) = match started {
        Ok(started) => started,
        Err(failure) => {
            agents.end().await;
            return Err(failure);
        }
    };
    let stopping = server.stopping();
    let looking_up = AbortOnDropHandle::new(tokio::spawn(Arc::clone(&service).look_up_again_and_again()));
    let running_agents = tokio::spawn(towpath_alto_sources::run_agents(agents, service, hangups, stopping.clone()));
    let outcome = serve::run(server, signals, || Ok(self::settings(arguments)?.server())).await;
    stopping.cancel();
    // Otherwise programs would outlive the server.
    let _ = running_agents.await;
    drop(looking_up);
    outcome
}

/// Waits for the first facts of the agents, and returns the server and its service.
async fn start(
    agents: &mut Agents,
    settings: &AltoConfig,
    rucio: Option<Rucio>,
) -> Result<(Server, Arc<AltoService>), Failure> {
    let service = loop {
        agents.gather(Purpose::Serve).await;
        let (fatal, others) = agents.troubles();
        if !fatal.is_empty() {
            return Err(Failure::InvalidFacts(fatal.join("\n")));
        }
        others.iter().for_each(|trouble| tracing::warn!("{trouble}; starting without the facts of this agent"));
        match AltoService::of(agents.facts(), agents.stale(), settings.directory_options()) {
            Ok(made) => break made,
            // The facts of the snapshot may contradict the facts that agents report now.
            Err(fault) if agents.forget_snapshot_facts() => tracing::warn!("{fault}; ignoring the snapshot"),
            Err(fault) => return Err(Failure::InvalidFacts(fault.to_string())),
        }
    };
    let delegates = Delegates::new(agents.query_batchers());
    let service = service.with_rucio(rucio).with_delegates(delegates).with_agents(agents.statistics());
    service.violations().iter().for_each(|lack| tracing::warn!("{lack}"));
    service.look_up().await;
    service.table_problems().iter().for_each(|lost| tracing::warn!("{lost}"));
    let service = Arc::new(service);
    let server =
        Server::application_builder(Arc::clone(&service) as _, settings.origins.clone(), &settings.server()).bind()?;
    access::metrics_places(&server.monitoring_addresses()).into_iter().for_each(complain);
    Ok((server, service))
}

/// Reports problems with the facts, and resources missing from the directory.
async fn check(arguments: &Alto) -> Result<(), Failure> {
    let settings = settings(arguments)?;
    let mut interrupts = Interrupts::new()?;
    let rucio = rucio(&settings.rucio)?;
    let mut agents = Agents::start(&settings.agents, Purpose::Check, None)?;
    let outcome = tokio::select! {
        outcome = validate(&mut agents, &settings, rucio) => outcome,
        signal = interrupts.next() => Err(Failure::Interrupted { signal, consequence: String::new() }),
    };
    agents.end().await;
    outcome
}

async fn validate(agents: &mut Agents, settings: &AltoConfig, rucio: Option<Rucio>) -> Result<(), Failure> {
    agents.gather(Purpose::Check).await;
    let (mut faults, others) = agents.troubles();
    faults.extend(others);
    match AltoService::of(agents.facts(), agents.stale(), settings.directory_options()) {
        Ok(service) => {
            let service = service.with_rucio(rucio);
            faults.extend(service.violations().iter().map(ToString::to_string));
            service.look_up().await;
            faults.extend(service.table_problems());
            let mut stdout = std::io::stdout().lock();
            service.summary().into_iter().try_for_each(|line| writeln!(stdout, "{line}"))?;
        }
        Err(fault) => faults.push(fault.to_string()),
    }
    match faults.is_empty() {
        true => Ok(()),
        false => Err(Failure::InvalidFacts(faults.join("\n"))),
    }
}

impl From<AgentsError> for Failure {
    fn from(error: AgentsError) -> Self {
        match error {
            AgentsError::Settings(problem) => Failure::Usage(problem),
            AgentsError::Unavailable(problem) => Failure::InvalidFacts(problem),
        }
    }
}
