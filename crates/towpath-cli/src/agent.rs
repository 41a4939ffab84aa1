//! `towpath agent`: a cache of one user, which starts when it is needed and ends by itself.
//!
//! Its directory is private to the user:
//!
//! | name | contents |
//! | --- | --- |
//! | `data` | the cache, with its file `control` |
//! | `hosts` | the storages that it may contact, a line each |
//! | `log` | its messages |
//! | `port` | the port of the last one |

pub(crate) mod args;
mod directory;
mod routes;
mod service;
mod settings;
mod start;

use std::{
    ffi::OsString,
    io::{self, Write as _},
    path::{Path, PathBuf},
};

use toml::Table;
use towpath_proto::url::{Family, Location, Url, shown};
use towpath_store::sys::{disk, environment};

pub(crate) use self::settings::AgentConfig;
use self::{
    args::{AgentAction, AgentArguments, AgentStorages},
    directory::AgentDirectory,
};
use crate::{
    args::Remote,
    cache::{self, RunningCache},
    config::{self, Layered},
    failure::{Failure, complain},
};

/// Runs `towpath agent`.
pub(crate) async fn run(arguments: &AgentArguments, remote: &Remote) -> Result<(), Failure> {
    let settings = load(None)?.settings;
    let directory = AgentDirectory::open(&settings)?;
    match &arguments.action {
        AgentAction::Run(run) => service::run(&settings, &directory, run.detached, remote).await,
        AgentAction::Url(named) => {
            let urls = permit(&directory, named)?;
            let agent = start::running(&directory, remote).await?;
            let mut out = std::io::stdout().lock();
            urls.iter().try_for_each(|url| writeln!(out, "{}", forwarded(&agent, url)))?;
            Ok(())
        }
        AgentAction::Env(named) => {
            permit(&directory, named)?;
            let agent = start::running(&directory, remote).await?;
            Ok(writeln!(std::io::stdout(), "export TOWPATH_AGENT={}//", root_url(&agent))?)
        }
        AgentAction::Status => status(&directory).await,
        AgentAction::Stop => stop(&directory).await,
    }
}

/// Loads the settings: those of `file`, by default of `towpath/agent.toml` in the user's directory for configuration, and
/// of the environment.
pub(crate) fn load(file: Option<&Path>) -> Result<Layered<AgentConfig>, Failure> {
    // One that cannot be read is an error below.
    let is_missing = |path: &PathBuf| disk::open(path).is_err_and(|error| error.kind() == io::ErrorKind::NotFound);
    let default = directory::configuration().filter(|path| !is_missing(path));
    let file = file.or(default.as_deref());
    Ok(config::load("agent", file, environment::variables(), Table::new())?)
}

/// Permits the agent to contact the storages of URLs, and returns the URLs.
fn permit(directory: &AgentDirectory, named: &AgentStorages) -> Result<Vec<Url>, Failure> {
    let parse = |argument: &OsString| match Location::from_argument(argument) {
        Ok(Location::Remote(url)) if url.scheme().family() == Family::S3 => {
            Err(Failure::Usage(format!("{}: the agent does not read buckets yet", shown(argument))))
        }
        Ok(Location::Remote(url)) if url.password().is_some() => {
            Err(Failure::Usage(format!("{}: put the password into ~/.netrc instead of the URL", shown(argument))))
        }
        Ok(Location::Remote(url)) => Ok(url),
        _ => Err(Failure::Usage(format!("{}: expected the URL of a file", shown(argument)))),
    };
    let urls: Vec<Url> = named.urls.iter().map(parse).collect::<Result<_, _>>()?;
    for url in &urls {
        cache::permit(&directory.hosts(), url)?;
    }
    Ok(urls)
}

/// Returns the URL of a file through the agent.
fn forwarded(agent: &RunningCache, url: &Url) -> String {
    match url.scheme().family() {
        Family::Xrootd => format!("{}//{}", root_url(agent), url.expose()),
        _ => format!("{}/{}", agent.url(), url.expose()),
    }
}

/// Returns the `root://` URL of the agent, without a path.
fn root_url(agent: &RunningCache) -> String {
    agent.url().replacen("http://", "root://", 1)
}

async fn status(directory: &AgentDirectory) -> Result<(), Failure> {
    let Some(agent) = start::find(directory).await else {
        complain("no agent runs; `towpath agent url` starts one");
        return Err(Failure::Printed { exit: 1 });
    };
    let statistics = agent.request("cache/stats").await?;
    let mut out = std::io::stdout().lock();
    writeln!(out, "{} in {}", root_url(&agent), directory.path().display())?;
    cache::print_stats(&mut out, &statistics)
}

async fn stop(directory: &AgentDirectory) -> Result<(), Failure> {
    match start::find(directory).await {
        Some(agent) => agent.request(routes::STOP).await.map(drop),
        None => {
            complain("no agent runs");
            Ok(())
        }
    }
}
