//! Options of a mover.

use std::{path::PathBuf, sync::Arc};

use towpath_client::Client;
use towpath_proto::checksum::Algorithm;
use towpath_store::Overwrite;

use crate::third_party::ThirdParty;

/// Options for all files of one mover.
#[derive(Debug, Clone)]
pub struct Options {
    /// The treatment of existing files.
    pub overwrite: Overwrite,
    /// Skips files whose metadata at both ends show that they were copied before.
    pub skip_existing: bool,
    /// Digest to compare at both ends, even if an end must read the file to compute it.
    pub checksum: Option<Algorithm>,
    /// Permission bits cleared on every copy, independent of the source's mode.
    pub umask: u32,
    /// Whether to request third-party copies from sites that support them.
    pub third_party: ThirdParty,
    /// Maximum number of open files, at least one. Protects the file descriptors of the process; the window limits the
    /// bytes in flight.
    pub max_files: usize,
    /// Maximum number of bytes in flight: [`crate::MOST_BYTES`], or less if a process has several independent movers.
    pub window_bytes: u64,
    /// Rate limit in bytes per second, if any.
    pub limit_bytes_per_s: Option<u64>,
    /// Whether to leave capacity to others: a connection is added only for a large gain.
    pub nice: bool,
    /// File for the stored properties of paths ([`crate::Mover::remember`]), if any.
    pub paths: Option<PathBuf>,
    /// Client whose connections the remote ends use. It measures round trips and adds connections while they increase
    /// the rate. Without a client, both ends count as local.
    pub client: Option<Arc<Client>>,
}
