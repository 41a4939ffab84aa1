//! Options of copies and their reports, shared by `cp` and `sync`.

use std::{env, path::PathBuf};

use clap::Args;
use towpath_mover::{MAX_BYTES, Options};
use towpath_proto::checksum::Algorithm;
use towpath_store::Overwrite;
use towpath_wan::Rate;

use super::WhenThirdParty;
use crate::{descriptors, location::StoreResolver, umask};

/// Default maximum number of open files. Bytes in flight have their own limit; this one protects the user's other
/// programs.
const MAX_FILES: usize = 4096;

/// Descriptors that a file under way may need: its source, its destination, and what a store opens beside them.
const DESCRIPTORS_A_FILE: u64 = 4;

/// Options of the commands that copy.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct CopyOptions {
    /// Compare this digest at both ends too, even if one of them must read the file for it.
    #[arg(long, value_name = "ALGORITHM")]
    pub checksum: Option<Algorithm>,
    /// Whether to use third-party copies between remote storages: `auto` tries them (the destination pulls, or the
    /// source pushes) before the bytes pass through this machine, `only` does nothing else. The token is passed to the
    /// storage that does the transfer.
    #[arg(long, value_name = "WHEN", value_enum, default_value_t = WhenThirdParty::Never)]
    pub third_party: WhenThirdParty,
    /// Files copied at once, at most [default: as many as fill the path, up to 4096].
    #[arg(long, value_name = "N")]
    pub files: Option<usize>,
    /// Copy no faster than that: `200Mbit`, `1Gbit`.
    #[arg(long, value_name = "RATE")]
    pub limit: Option<Rate>,
    /// Make room for others on the path: only connections that bring much are opened beside the first.
    #[arg(long)]
    pub nice: bool,
    /// Report how the time was spent and what to do about it. After ten seconds the verdict is printed anyway.
    #[arg(long)]
    pub explain: bool,
    /// No progress.
    #[arg(long, short = 'q')]
    pub quiet: bool,
    /// Print JSON: one object per file or action, and one summary.
    #[arg(long)]
    pub json: bool,
    /// Write what happens while it happens to this file, one JSON object a line; `-` is the standard output,
    /// `/dev/fd/3` a descriptor that is open.
    #[arg(long, value_name = "FILE")]
    pub events: Option<PathBuf>,
    /// Write what could not be copied to this file, one JSON object a line; `cp --retry-from` takes that of a `cp`.
    #[arg(long, value_name = "FILE")]
    pub failed_to: Option<PathBuf>,
}

impl CopyOptions {
    /// Returns the options of the mover.
    pub(crate) fn mover_options(&self, overwrite: Overwrite, skip_existing: bool, resolver: &StoreResolver) -> Options {
        let permitted = usize::try_from(descriptors::raise_limit() / DESCRIPTORS_A_FILE).unwrap_or(usize::MAX);
        Options {
            overwrite,
            skip_existing,
            checksum: self.checksum,
            umask: umask(),
            third_party: self.third_party.into(),
            max_files: self.files.unwrap_or(MAX_FILES).min(permitted),
            window_bytes: MAX_BYTES,
            limit_bytes_per_s: self.limit.map(|rate| rate.bits_per_s() / 8),
            nice: self.nice,
            paths: paths_file(),
            client: Some(resolver.client()),
        }
    }

    /// Whether events go to the standard output, where nothing else belongs then.
    pub(crate) fn prints_events(&self) -> bool {
        self.events.as_deref().is_some_and(|path| path.as_os_str() == "-")
    }

    /// The flags that say the same to a command that tries again, as a shell reads them.
    pub(crate) fn flags(&self) -> Vec<String> {
        let words = [
            self.quiet.then(|| "-q".to_owned()),
            self.json.then(|| "--json".to_owned()),
            self.checksum.map(|algorithm| format!("--checksum {algorithm}")),
            self.files.map(|files| format!("--files {files}")),
            self.limit.map(|limit| format!("--limit {limit}")),
            self.nice.then(|| "--nice".to_owned()),
            self.third_party.flag(),
        ];
        words.into_iter().flatten().collect()
    }
}

/// Where it is remembered what paths taught; nowhere if there is no home directory.
pub(crate) fn paths_file() -> Option<PathBuf> {
    let directory = |name: &str| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let cache = directory("XDG_CACHE_HOME").or_else(|| directory("HOME").map(|home| home.join(".cache")));
    cache.map(|cache| cache.join("towpath/paths"))
}
