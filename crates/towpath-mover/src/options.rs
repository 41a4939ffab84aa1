//! Options of a mover.

use std::{path::PathBuf, sync::Arc};

use towpath_client::Client;
use towpath_proto::checksum::Algorithm;
use towpath_store::Overwrite;

use crate::third_party::ThirdParty;

/// Options for all files of one mover.
#[derive(Debug, Clone)]
pub struct Options {
    /// How to treat existing files.
    pub overwrite: Overwrite,
    /// Skips files that were copied before, according to both ends.
    pub skip_existing: bool,
    /// Digest to compare at both ends, even if one of them must read the file for it.
    pub checksum: Option<Algorithm>,
    /// Permission bits that no copy gets, whatever the mode of its source.
    pub umask: u32,
    /// Whether to request third-party copies from sites that support them.
    pub third_party: ThirdParty,
    /// Maximum number of open files, at least one. It protects the descriptors of the process; the window limits the bytes in flight.
    pub max_files: usize,
    /// Maximum number of bytes in flight: [`crate::MAX_BYTES`], or less in a process with several independent movers.
    pub window_bytes: u64,
    /// Rate limit in bytes per second, if any.
    pub limit_bytes_per_s: Option<u64>,
    /// Whether to leave capacity to others: another connection is added only for a large gain.
    pub nice: bool,
    /// File for the stored properties of paths ([`crate::Mover::remember`]), if any.
    pub paths: Option<PathBuf>,
    /// Client whose connections the remote ends use; it measures round trips and adds connections while they increase the rate. Without
    /// one, ends count as local.
    pub client: Option<Arc<Client>>,
}
