//! The directory of an agent.

use std::path::{Path, PathBuf};

use towpath_store::sys::{disk, environment};

use super::settings::AgentConfig;
use crate::failure::Failure;

/// The directory of an agent, private to its user.
#[derive(Debug)]
pub(super) struct AgentDirectory(PathBuf);

impl AgentDirectory {
    /// Opens the directory of the settings; creates it if it is missing.
    ///
    /// # Errors
    /// It cannot be created, or others have access to it.
    pub(super) fn open(settings: &AgentConfig) -> Result<Self, Failure> {
        let user = rustix::process::geteuid().as_raw();
        let path = settings.directory.clone().unwrap_or_else(|| format!("/var/tmp/towpath-agent-{user}").into());
        // The agent itself runs in another directory.
        let absolute = std::path::absolute(&path).and_then(|path| disk::private_directory(&path).map(|()| path));
        match absolute {
            Ok(path) => Ok(Self(path)),
            Err(error) => Err(Failure::Usage(format!(
                "the directory of the agent {}: {error}; choose another one with TOWPATH_AGENT_DIRECTORY",
                path.display()
            ))),
        }
    }

    /// Returns its path.
    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    /// Returns the directory of the cache.
    pub(super) fn data(&self) -> PathBuf {
        self.0.join("data")
    }

    /// Returns the file with the storages that the agent may contact.
    pub(super) fn hosts(&self) -> PathBuf {
        self.0.join("hosts")
    }

    /// Returns the file with the port of the last agent.
    pub(super) fn port(&self) -> PathBuf {
        self.0.join("port")
    }

    /// Returns the file with the messages of the agent.
    pub(super) fn log(&self) -> PathBuf {
        self.0.join("log")
    }
}

/// Returns the file of the user's settings, which may be missing: `towpath/agent.toml` in `XDG_CONFIG_HOME`, by default in
/// `~/.config`.
pub(super) fn configuration() -> Option<PathBuf> {
    let directory = |name: &str| environment::variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let home = directory("XDG_CONFIG_HOME").or_else(|| directory("HOME").map(|home| home.join(".config")));
    home.map(|home| home.join("towpath/agent.toml"))
}
