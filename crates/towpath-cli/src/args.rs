//! The clap definition of the command line.

mod checksum;
mod copy_options;
mod definition;
mod filters;
mod find;
mod foreign;
mod limit;
mod listing;
mod plan;
mod probe;

use std::{
    ffi::{OsStr, OsString},
    ops::RangeInclusive,
    path::PathBuf,
    time::Duration,
};

use clap::{Args, Parser, Subcommand, ValueEnum};
use towpath_mover::{Compare, ThirdParty};
use towpath_proto::{
    checksum::Algorithm,
    units::{HumanDuration, UnitError},
};
use towpath_store::sys::environment;

pub(crate) use checksum::ChecksumRequest;
pub(crate) use copy_options::{CopyOptions, paths_file};
pub(crate) use definition::definition;
pub(crate) use filters::Filters;
pub(crate) use find::{EntryKind, Find, with_two_dashes};
pub(crate) use foreign::{explain_foreign, without_misleading_tip};
pub(crate) use limit::Limit;
pub(crate) use listing::{List, Space, Usage};
pub(crate) use plan::Plan;
pub(crate) use probe::Probe;

use crate::output::quoted;

/// Copy, serve and read scientific data over long distances, and explain slow transfers.
#[derive(Debug, Parser)]
#[command(name = "towpath", version, max_term_width = 110, propagate_version = true)]
pub(crate) struct Cli {
    /// The subcommand.
    #[command(subcommand)]
    pub command: Command,
    /// Access to remote storages.
    #[command(flatten)]
    pub remote: Remote,
}

/// Removes the environment variables that are empty from the options of `command` and its subcommands: clap would take
/// an empty one for a value, and an empty variable counts as unset.
pub(crate) fn without_empty_variables(command: clap::Command) -> clap::Command {
    let is_empty = |argument: &clap::Arg| {
        let name = argument.get_env().map(OsStr::to_string_lossy);
        name.is_some_and(|name| environment::variable(&name).is_none())
    };
    let without = |argument: clap::Arg| if is_empty(&argument) { argument.env(None::<&str>) } else { argument };
    command.mut_args(without).mut_subcommands(without_empty_variables)
}

/// Options for access to remote storages.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct Remote {
    /// PEM file, or directory of such files, with CA certificates to trust in addition to those of the system and the
    /// grid.
    #[arg(long, global = true, value_name = "PATH", env = "TOWPATH_CA_FILE", help_heading = definition::REMOTE)]
    pub ca_file: Option<PathBuf>,
    /// Accept any certificate, to try a server. Tokens and passwords are withheld.
    #[arg(long, global = true, help_heading = definition::REMOTE)]
    pub insecure: bool,
    /// Maximum wait for a storage that is busy or silent, as in 90s or 10m [default: 30s on a terminal, else 30m].
    #[arg(long, global = true, value_name = "TIME", env = "TOWPATH_WAIT", help_heading = definition::REMOTE,
        value_parser = wait_time)]
    pub wait: Option<HumanDuration>,
    /// Endpoint URL for `s3://` buckets [default: AWS_ENDPOINT_URL, else the profile in ~/.aws, else Amazon].
    #[arg(long, global = true, value_name = "URL", env = "TOWPATH_S3_ENDPOINT", help_heading = definition::REMOTE)]
    pub s3_endpoint: Option<String>,
    /// Region of `s3://` buckets [default: AWS_REGION, else the profile in ~/.aws, else us-east-1].
    #[arg(long, global = true, value_name = "NAME", env = "TOWPATH_S3_REGION", help_heading = definition::REMOTE)]
    pub s3_region: Option<String>,
    /// Position of the bucket name in requests [default: path with a custom endpoint, host for Amazon].
    #[arg(long, global = true, value_name = "WHERE", env = "TOWPATH_S3_ADDRESSING", help_heading = definition::REMOTE)]
    pub s3_addressing: Option<Addressing>,
    /// Print more log messages on the standard error stream: -v for info, -vv for debug, -vvv for trace.
    #[arg(long, short = 'v', global = true, action = clap::ArgAction::Count)]
    pub verbose: u8,
}

impl Remote {
    /// Returns these options as words for a shell.
    pub(crate) fn flags(&self) -> Vec<String> {
        let word = |flag: &str, word: &OsStr| format!("{flag} {}", quoted(word));
        let addressing = self.s3_addressing.and_then(|addressing| addressing.to_possible_value());
        let flags = [
            self.ca_file.as_ref().map(|file| word("--ca-file", file.as_os_str())),
            self.insecure.then(|| "--insecure".to_owned()),
            self.wait.map(|wait| format!("--wait {wait}")),
            self.s3_endpoint.as_ref().map(|endpoint| word("--s3-endpoint", OsStr::new(endpoint))),
            self.s3_region.as_ref().map(|region| word("--s3-region", OsStr::new(region))),
            addressing.map(|addressing| word("--s3-addressing", OsStr::new(addressing.get_name()))),
        ];
        flags.into_iter().flatten().collect()
    }
}

/// Parses the value of `--wait`.
fn wait_time(text: &str) -> Result<HumanDuration, String> {
    let wait: HumanDuration = text.parse().map_err(|error: UnitError| error.to_string())?;
    match WAITS.contains(&wait.0) {
        true => Ok(wait),
        false => Err(format!(
            "a wait is at least {} and at most {}",
            HumanDuration(*WAITS.start()),
            HumanDuration(*WAITS.end())
        )),
    }
}

/// Valid values of `--wait`: a response over a long path may take a second.
const WAITS: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(7 * 24 * 3600);

/// Position of the bucket name in requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Addressing {
    /// Bucket name in the path.
    Path,
    /// Bucket name as a prefix of the host name.
    Host,
}

/// The subcommands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Serve a directory over XRootD, HTTP and WebDAV on one port.
    Serve(Serve),
    /// Serve a remote storage through a cache on a local disk.
    Cache(crate::cache::args::CacheArguments),
    /// Read remote files through a cache of your own, which starts when it is needed and ends by itself.
    Agent(crate::agent::args::AgentArguments),
    /// Explain the access rules of a server.
    Access(Access),
    /// Run an ALTO server (RFC 7285) for network maps, cost maps and endpoint properties.
    Alto(crate::alto::args::Alto),
    /// Sort a list of replicas by the path costs that an ALTO server reports.
    Order(crate::order::args::Order),
    /// Copy files and directory trees between storages, and verify them.
    Cp(Copy),
    /// Make a destination identical to a source, copying only differences.
    Sync(Sync),
    /// List directories.
    Ls(List),
    /// Print the paths in directory trees that fulfill conditions.
    Find(Find),
    /// Print the sum of the sizes of the files in directories.
    Du(Usage),
    /// Print the metadata of files and directories.
    Stat(Paths),
    /// Write files, or a byte range of them, to the standard output.
    Cat(Cat),
    /// Print digests (checksums) of files.
    Sum(Sum),
    /// Create directories.
    Mkdir(MakeDirectory),
    /// Remove empty directories.
    Rmdir(RemoveDirectory),
    /// Rename a file or directory within one storage.
    Mv(Move),
    /// Remove files and directory trees.
    Rm(Remove),
    /// Print the total and free space of a storage.
    Df(Space),
    /// Measure the round-trip time to a storage.
    Ping(Ping),
    /// Measure a network path and the storage at both ends, report the bottleneck, and predict the duration of a copy.
    Probe(Probe),
    /// Print the byte ranges of a ROOT file with the values of some columns and entries.
    Plan(Plan),
    /// Print settings and their origins.
    Config(Config),
    /// Print the completion script of a shell.
    Completions(Completions),
    /// Write the manual pages of all commands.
    Man(Man),
    /// Simulate how a scheduler divides a network among transfers.
    Sched(crate::sched::args::Scheduler),
    /// Measure, model and predict the throughput of long paths (needs the Python package).
    Lab(crate::lab::Lab),
    /// Emulate a wide-area network on this machine: hosts that use the kernel's TCP, and links with configured rate,
    /// delay and loss.
    Wan(crate::wan::args::Wan),
}

/// Arguments of `serve`.
#[derive(Debug, Args)]
pub(crate) struct Serve {
    /// Directory to export.
    pub directory: Option<PathBuf>,
    /// Address to listen on, or a port for all addresses; may be repeated [default: 127.0.0.1:1094].
    #[arg(long, value_name = "ADDR:PORT")]
    pub listen: Vec<String>,
    /// Configuration file (TOML).
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Check the settings, the certificate and the token issuers, print who may do what, and exit.
    #[arg(long)]
    pub check: bool,
    /// Allow clients without a token to write. For tests and trusted networks only.
    #[arg(long)]
    pub writable: bool,
    /// PEM file with the certificate chain of the server; enables TLS.
    #[arg(long, value_name = "FILE", requires = "key")]
    pub certificate: Option<PathBuf>,
    /// PEM file with the private key of the certificate.
    #[arg(long, value_name = "FILE", requires = "certificate")]
    pub key: Option<PathBuf>,
}

/// Arguments of `access`.
#[derive(Debug, Args)]
pub(crate) struct Access {
    /// The subcommand.
    #[command(subcommand)]
    pub action: AccessAction,
}

/// Subcommands of `access`.
#[derive(Debug, Subcommand)]
pub(crate) enum AccessAction {
    /// Print what a caller may do at a path of a server, and why.
    Explain(AccessExplain),
}

/// Arguments of `access explain`.
#[derive(Debug, Args)]
pub(crate) struct AccessExplain {
    /// Path in the export of the server.
    pub path: String,
    /// Configuration file of the server (TOML).
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// File with the bearer token of the caller; `-` for the standard input [default: an anonymous caller].
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// Name of a user with a password.
    #[arg(long, value_name = "NAME", conflicts_with = "token_file")]
    pub user: Option<String>,
}

/// Arguments of `cp`.
#[derive(Debug, Args)]
#[command(override_usage = "towpath cp [OPTIONS] SOURCE... DESTINATION\n       \
                            towpath cp [OPTIONS] --retry-from FILE")]
pub(crate) struct Copy {
    /// Sources, then the destination: paths, URLs (root, roots, http, https, dav, davs, s3), or `-` for a standard
    /// stream.
    #[arg(required_unless_present = "retry_from", num_args = 2.., value_names = ["SOURCE", "DESTINATION"])]
    pub paths: Vec<OsString>,
    /// Copy directories recursively.
    #[arg(long, short = 'r', visible_short_alias = 'R')]
    pub recursive: bool,
    /// Replace existing files.
    #[arg(long, short = 'f')]
    pub force: bool,
    /// Replace existing files that are older than their source; skip the others, whatever their size. To resume a copy,
    /// use --skip-existing.
    #[arg(long, short = 'u', conflicts_with = "skip_existing")]
    pub update: bool,
    /// Print the actions without performing them.
    #[arg(long, short = 'n')]
    pub dry_run: bool,
    /// Ignored, for compatibility with `cp`: times and modes are always kept where both ends support it.
    #[arg(long, short = 'p')]
    pub preserve: bool,
    /// Skip files that exist with the same size and, if both ends know it, the same digest or modification time. Resume
    /// interrupted copies.
    #[arg(long)]
    pub skip_existing: bool,
    /// Use the destination as the name of the copy, even if a directory of this name exists.
    #[arg(long, short = 'T')]
    pub no_target_directory: bool,
    /// Additional location of the same file, read concurrently with SOURCE; may be repeated.
    #[arg(long = "source", value_name = "PLACE")]
    pub sources: Vec<OsString>,
    /// Copy a Metalink (`.meta4` file) itself instead of the files that it describes.
    #[arg(long)]
    pub as_is: bool,
    /// Send the token, and keys for `s3://`, to all servers listed in a Metalink [default: only to the server of the
    /// Metalink itself].
    #[arg(long)]
    pub trust_metalink: bool,
    /// Options of the copies.
    #[command(flatten)]
    pub options: CopyOptions,
    /// Retry the failures listed in FILE, written by `cp --failed-to`, instead of SOURCE and DESTINATION.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["paths", "no_target_directory", "dry_run"])]
    pub retry_from: Option<PathBuf>,
    /// Filters for the files of a tree.
    #[command(flatten)]
    pub filters: Filters,
}

/// Arguments of `sync`.
#[derive(Debug, Args)]
pub(crate) struct Sync {
    /// Source directory or file: a path or a URL.
    pub source: OsString,
    /// Destination: the directory or file that is made identical to SOURCE, not its parent directory.
    pub destination: OsString,
    /// Method to compare files of the same size. `auto` compares times if the destination keeps them, else age and
    /// known digests; `digest` reads files if necessary.
    #[arg(long, value_name = "BY", value_enum, default_value_t = CompareBy::Auto)]
    pub compare: CompareBy,
    /// Delete destination entries that do not exist in the source, if everything else succeeded.
    #[arg(long)]
    pub delete: bool,
    /// Delete nothing if more than N files and directories would be deleted.
    #[arg(long, value_name = "N", requires = "delete")]
    pub max_delete: Option<u64>,
    /// Allow --delete to empty the destination if the source is empty.
    #[arg(long, requires = "delete")]
    pub allow_empty_source: bool,
    /// Print the actions without performing them.
    #[arg(long, short = 'n')]
    pub dry_run: bool,
    /// Options of the copies.
    #[command(flatten)]
    pub options: CopyOptions,
    /// Filters for the files of both trees.
    #[command(flatten)]
    pub filters: Filters,
}

/// Methods to compare files of the same size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum CompareBy {
    /// Compare the properties that both ends keep.
    Auto,
    /// Compare sizes only.
    Size,
    /// Compare sizes and modification times.
    Time,
    /// Compare sizes and digests.
    Digest,
}

impl From<CompareBy> for Compare {
    fn from(by: CompareBy) -> Self {
        match by {
            CompareBy::Auto => Self::Auto,
            CompareBy::Size => Self::Size,
            CompareBy::Time => Self::Time,
            CompareBy::Digest => Self::Digest,
        }
    }
}

/// Use of third-party copies.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum WhenThirdParty {
    /// Try a third-party copy, then copy through this machine.
    #[value(alias = "first")]
    Auto,
    /// Use third-party copies only; fail if they are not possible.
    Only,
    /// Copy through this machine.
    #[default]
    Never,
}

impl WhenThirdParty {
    /// Returns the option as words for a shell; `None` for the default.
    pub(crate) fn flag(self) -> Option<String> {
        let name = self.to_possible_value().filter(|_| self != Self::Never)?;
        Some(format!("--third-party {}", name.get_name()))
    }
}

impl From<WhenThirdParty> for ThirdParty {
    fn from(when: WhenThirdParty) -> Self {
        match when {
            WhenThirdParty::Auto => Self::Auto,
            WhenThirdParty::Only => Self::Only,
            WhenThirdParty::Never => Self::Never,
        }
    }
}

/// Arguments of the commands that only need paths.
#[derive(Debug, Args)]
pub(crate) struct Paths {
    /// Paths or URLs.
    #[arg(required = true)]
    pub paths: Vec<OsString>,
    /// Print one JSON object per path.
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `cat`.
#[derive(Debug, Args)]
pub(crate) struct Cat {
    /// Paths or URLs.
    #[arg(required = true)]
    pub paths: Vec<OsString>,
    /// Byte range: `0-99` (the first 100 bytes), `100-` (all from offset 100 on), `-100` (the last 100 bytes).
    #[arg(long, value_name = "RANGE", allow_hyphen_values = true)]
    pub range: Option<String>,
}

/// Arguments of `sum`.
#[derive(Debug, Args)]
pub(crate) struct Sum {
    /// Paths or URLs.
    #[arg(required = true)]
    pub paths: Vec<OsString>,
    /// Digest algorithm: adler32, crc32c, crc32, zcrc32, crc64, md5, sha1 or sha256.
    #[arg(long, short = 'a', default_value = "adler32")]
    pub algorithm: Algorithm,
    /// Print one JSON object per file.
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `mkdir`.
#[derive(Debug, Args)]
pub(crate) struct MakeDirectory {
    /// Paths or URLs.
    #[arg(required = true)]
    pub paths: Vec<OsString>,
    /// Create missing parent directories, and accept existing directories.
    #[arg(long, short = 'p')]
    pub parents: bool,
}

/// Arguments of `rmdir`.
#[derive(Debug, Args)]
pub(crate) struct RemoveDirectory {
    /// Paths or URLs. A `*` in a quoted URL matches any part of a name.
    #[arg(required = true)]
    pub paths: Vec<OsString>,
    /// Take the characters of patterns in URLs literally.
    #[arg(long)]
    pub no_glob: bool,
}

/// Arguments of `mv`.
#[derive(Debug, Args)]
pub(crate) struct Move {
    /// Path or URL to rename.
    pub from: OsString,
    /// New path or URL in the same storage.
    pub to: OsString,
    /// Replace an existing file.
    #[arg(long, short = 'f')]
    pub force: bool,
}

/// Arguments of `rm`.
#[derive(Debug, Args)]
pub(crate) struct Remove {
    /// Paths or URLs.
    #[arg(required = true)]
    pub paths: Vec<OsString>,
    /// Remove directories recursively.
    #[arg(long, short = 'r', visible_short_alias = 'R')]
    pub recursive: bool,
    /// Ignore paths that do not exist.
    #[arg(long, short = 'f')]
    pub force: bool,
    /// Take the characters of patterns in URLs literally.
    #[arg(long)]
    pub no_glob: bool,
}

/// Arguments of `ping`.
#[derive(Debug, Args)]
pub(crate) struct Ping {
    /// URL of a storage.
    pub url: OsString,
    /// Number of measurements.
    #[arg(long, short = 'c', default_value_t = 5)]
    pub count: u32,
    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `completions`.
#[derive(Debug, Args)]
pub(crate) struct Completions {
    /// Shell that reads the script.
    pub shell: clap_complete::Shell,
}

/// Arguments of `man`.
#[derive(Debug, Args)]
pub(crate) struct Man {
    /// Directory for the pages, such as `~/.local/share/man/man1`; created if it does not exist.
    pub directory: PathBuf,
}

/// Arguments of `config`.
#[derive(Debug, Args)]
pub(crate) struct Config {
    /// The subcommand.
    #[command(subcommand)]
    pub action: ConfigAction,
}

/// Subcommands of `config`.
#[derive(Debug, Subcommand)]
pub(crate) enum ConfigAction {
    /// Print every setting of a role with its value and origin.
    Show(ConfigShow),
    /// Print a settings file with every setting of a role, its default and its meaning, as comments.
    Example(ConfigExample),
    /// Print the reference page of the documentation.
    #[command(hide = true)]
    Reference,
}

/// Arguments of `config example`.
#[derive(Debug, Args)]
pub(crate) struct ConfigExample {
    /// Role: `serve`, `cache`, `agent` or `alto`.
    #[arg(value_parser = ["serve", "cache", "agent", "alto"])]
    pub role: String,
}

/// Arguments of `config show`.
#[derive(Debug, Args)]
pub(crate) struct ConfigShow {
    /// Role: `serve`, `cache`, `agent` or `alto`.
    #[arg(value_parser = ["serve", "cache", "agent", "alto"])]
    pub role: String,
    /// Configuration file (TOML).
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
}
