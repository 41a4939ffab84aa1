//! Options of copies and their reports, shared by `cp` and `sync`.

use std::path::PathBuf;

use clap::Args;
use towpath_mover::{MAX_BYTES, Options, SkipPolicy};
use towpath_proto::checksum::Algorithm;
use towpath_store::{Overwrite, sys::environment};

use super::{ChecksumRequest, Limit, WhenThirdParty};
use crate::{descriptors, location::StoreResolver, umask};

/// Default maximum number of files copied concurrently. Bytes in flight have their own limit; this limit leaves file
/// descriptors to the user's other programs.
const MAX_FILES: usize = 4096;

/// Maximum number of descriptors per file in flight: source, destination, and auxiliary files of a store.
const DESCRIPTORS_PER_FILE: u64 = 4;

/// Options of `cp` and `sync`.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct CopyOptions {
    /// Compare this digest at both ends, even if that requires reading the file again. `adler32:print` also prints it,
    /// `adler32:0a0b0c0d` compares both ends with this value.
    #[arg(long, visible_alias = "cksum", value_name = "ALGORITHM[:WHAT]")]
    pub checksum: Option<ChecksumRequest>,
    /// Use third-party copies between remote storages: `auto` tries them (the destination pulls, or the source pushes)
    /// before copying through this machine, `only` fails instead. The storage that does the transfer gets the token.
    #[arg(long, visible_alias = "tpc", value_name = "WHEN", value_enum, default_value_t = WhenThirdParty::Never)]
    pub third_party: WhenThirdParty,
    /// Maximum number of files copied concurrently [default: as many as fill the path, up to 4096].
    #[arg(long, value_name = "N")]
    pub files: Option<usize>,
    /// Maximum rate of data through this machine: bits per second as in `200Mbit`, or bytes per second as in `25MB/s` or
    /// `24MiB/s` [default: unlimited].
    #[arg(long, value_name = "RATE")]
    pub limit: Option<Limit>,
    /// Yield to other traffic on the path: open more than one connection only for a large gain in rate.
    #[arg(long)]
    pub nice: bool,
    /// Report how the time was spent and what to do about it. Copies of 10 s or more always print the verdict.
    #[arg(long)]
    pub explain: bool,
    /// Do not show progress or the summary.
    #[arg(long, short = 'q')]
    pub quiet: bool,
    /// Print JSON: one object per file or action, and one summary.
    #[arg(long)]
    pub json: bool,
    /// Write events to FILE as they occur, one JSON object per line; `-` is the standard output, `/dev/fd/3` an open
    /// descriptor.
    #[arg(long, value_name = "FILE")]
    pub events: Option<PathBuf>,
    /// Write failures to FILE, one JSON object per line. `cp --retry-from` retries the list of a `cp`.
    #[arg(long, value_name = "FILE")]
    pub failed_to: Option<PathBuf>,
}

impl CopyOptions {
    /// Returns the options of the mover.
    pub(crate) fn mover_options(&self, overwrite: Overwrite, skip: SkipPolicy, resolver: &StoreResolver) -> Options {
        let permitted = usize::try_from(descriptors::raise_limit() / DESCRIPTORS_PER_FILE).unwrap_or(usize::MAX);
        Options {
            overwrite,
            skip,
            checksum: self.algorithm(),
            umask: umask(),
            third_party: self.third_party.into(),
            max_files: self.files.unwrap_or(MAX_FILES).min(permitted),
            window_bytes: MAX_BYTES,
            limit_bytes_per_s: self.limit.as_ref().map(|limit| limit.bytes_per_s),
            nice: self.nice,
            paths: paths_file(),
            client: Some(resolver.client()),
        }
    }

    /// Returns the algorithm of `--checksum`.
    pub(crate) fn algorithm(&self) -> Option<Algorithm> {
        self.checksum.map(|request| request.algorithm)
    }

    /// Returns whether events go to the standard output, which excludes all other output there.
    pub(crate) fn prints_events(&self) -> bool {
        self.events.as_deref().is_some_and(|path| path.as_os_str() == "-")
    }

    /// Returns the options for a command that retries failures, as words for a shell.
    pub(crate) fn flags(&self) -> Vec<String> {
        let words = [
            self.quiet.then(|| "-q".to_owned()),
            self.json.then(|| "--json".to_owned()),
            self.checksum.map(|request| format!("--checksum {request}")),
            self.files.map(|files| format!("--files {files}")),
            self.limit.as_ref().map(|limit| format!("--limit {limit}")),
            self.nice.then(|| "--nice".to_owned()),
            self.third_party.flag(),
        ];
        words.into_iter().flatten().collect()
    }
}

/// Returns the file with the measured properties of network paths; `None` without a home directory.
pub(crate) fn paths_file() -> Option<PathBuf> {
    let directory = |name: &str| environment::variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let cache = directory("XDG_CACHE_HOME").or_else(|| directory("HOME").map(|home| home.join(".cache")));
    cache.map(|cache| cache.join("towpath/paths"))
}
