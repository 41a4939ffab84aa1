//! Options of a mover.

use std::{path::PathBuf, sync::Arc};

use towpath_client::Client;
use towpath_proto::checksum::Algorithm;
use towpath_store::Overwrite;

use crate::third_party::ThirdParty;

/// The files at the destination that are skipped, according to the metadata of both ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SkipPolicy {
    /// None.
    #[default]
    Nothing,
    /// Files that may not be replaced, and that a digest or a preserved time shows to be the same. They are compared
    /// after the destination refused the copy, so that other files cost no request.
    SameIfRefused,
    /// Files that were copied before: same size, and same digest or time as far as both ends know it.
    Same,
    /// Files that are not older than their source, whatever their size.
    NotOlder,
}

/// Options for all files of one mover.
#[derive(Debug, Clone)]
pub struct Options {
    /// The treatment of existing files.
    pub overwrite: Overwrite,
    /// The existing files that are skipped.
    pub skip: SkipPolicy,
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
