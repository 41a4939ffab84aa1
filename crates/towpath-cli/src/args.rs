//! The command line, as clap reads it.

mod copy_options;
mod filters;
mod probe;

use std::{
    ffi::{OsStr, OsString},
    net::SocketAddr,
    path::PathBuf,
};

use clap::{Args, Parser, Subcommand, ValueEnum};
use towpath_mover::{Compare, ThirdParty};
use towpath_proto::checksum::Algorithm;

pub(crate) use copy_options::{CopyOptions, paths_file};
pub(crate) use filters::Filters;
pub(crate) use probe::Probe;

use crate::output::quoted;

/// Moves, serves and reads scientific data over long distances, and says why when it is slow.
#[derive(Debug, Parser)]
#[command(name = "towpath", version, max_term_width = 110, propagate_version = true)]
pub(crate) struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
    /// How to reach remote storages.
    #[command(flatten)]
    pub remote: Remote,
}

/// How to reach remote storages.
#[derive(Debug, Clone, Args)]
pub(crate) struct Remote {
    /// PEM file with certificates to trust beside the system's.
    #[arg(long, global = true, value_name = "FILE", env = "TOWPATH_CA_FILE", help_heading = "Remote storages")]
    pub ca_file: Option<PathBuf>,
    /// The server of `s3://` buckets [default: AWS_ENDPOINT_URL, the profile in ~/.aws, Amazon].
    #[arg(long, global = true, value_name = "URL", env = "TOWPATH_S3_ENDPOINT", help_heading = "Remote storages")]
    pub s3_endpoint: Option<String>,
    /// The region of `s3://` buckets [default: AWS_REGION, the profile in ~/.aws, us-east-1].
    #[arg(long, global = true, value_name = "NAME", env = "TOWPATH_S3_REGION", help_heading = "Remote storages")]
    pub s3_region: Option<String>,
    /// Where the name of a bucket stands in a request [default: in the path where a server is named, in the host's name
    /// at Amazon].
    #[arg(long, global = true, value_name = "WHERE", env = "TOWPATH_S3_ADDRESSING", help_heading = "Remote storages")]
    pub s3_addressing: Option<Addressing>,
    /// Say more on the standard error stream (repeat for still more).
    #[arg(long, short = 'v', global = true, action = clap::ArgAction::Count)]
    pub verbose: u8,
}

impl Remote {
    /// The flags that say so, as a shell reads them.
    pub(crate) fn flags(&self) -> Vec<String> {
        let word = |flag: &str, word: &OsStr| format!("{flag} {}", quoted(word));
        let addressing = self.s3_addressing.and_then(|addressing| addressing.to_possible_value());
        let flags = [
            self.ca_file.as_ref().map(|file| word("--ca-file", file.as_os_str())),
            self.s3_endpoint.as_ref().map(|endpoint| word("--s3-endpoint", OsStr::new(endpoint))),
            self.s3_region.as_ref().map(|region| word("--s3-region", OsStr::new(region))),
            addressing.map(|addressing| word("--s3-addressing", OsStr::new(addressing.get_name()))),
        ];
        flags.into_iter().flatten().collect()
    }
}

/// Where the name of a bucket stands in a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Addressing {
    /// In the path.
    Path,
    /// In front of the host's name.
    Host,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Serve a directory over XRootD, HTTP and WebDAV on one port.
    Serve(Serve),
    /// Say what paths cost, by ALTO (RFC 7285): network and cost maps, and properties of endpoints.
    Alto(crate::alto::args::Alto),
    /// Sort the replicas in a list by preference, as an ALTO server knows the paths to them.
    Order(crate::order::args::Order),
    /// Copy files and trees between storages, verified.
    Cp(Copy),
    /// Make a destination hold what a source holds, copying only what differs.
    Sync(Sync),
    /// List directories.
    Ls(List),
    /// Show what a storage knows of a path.
    Stat(Paths),
    /// Write files, or a range of one, to the standard output.
    Cat(Cat),
    /// Print digests of files.
    Sum(Sum),
    /// Make directories.
    Mkdir(MakeDirectory),
    /// Rename inside one storage.
    Mv(Move),
    /// Remove files and trees.
    Rm(Remove),
    /// Show the total and free space of a storage.
    Df(Paths),
    /// Measure the round trip to a storage.
    Ping(Ping),
    /// Measure a path to a server and its ends, name the bottleneck, and predict the duration of a copy.
    Probe(Probe),
    /// Show settings and where each comes from.
    Config(Config),
    /// Emulate a wide-area network on this machine: hosts with the kernel's TCP, links of known rate, delay and loss.
    Wan(crate::wan::args::Wan),
}

/// Arguments of `serve`.
#[derive(Debug, Args)]
pub(crate) struct Serve {
    /// The directory to export.
    pub directory: Option<PathBuf>,
    /// Address to listen on (repeat for more) [default: 127.0.0.1:1094].
    #[arg(long, value_name = "ADDR:PORT")]
    pub listen: Vec<SocketAddr>,
    /// Settings (TOML).
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Let callers without a token write. For tests and trusted networks.
    #[arg(long)]
    pub writable: bool,
    /// PEM file with the server's certificate chain: turns TLS on.
    #[arg(long, value_name = "FILE", requires = "key")]
    pub certificate: Option<PathBuf>,
    /// PEM file with the certificate's key.
    #[arg(long, value_name = "FILE", requires = "certificate")]
    pub key: Option<PathBuf>,
}

/// Arguments of `cp`.
#[derive(Debug, Args)]
pub(crate) struct Copy {
    /// Sources, then the destination. Each is a path, a URL (root, roots, http, https, dav, davs, s3), or `-`.
    #[arg(required_unless_present = "retry_from", num_args = 2.., value_name = "SOURCE... DESTINATION")]
    pub paths: Vec<OsString>,
    /// Copy directories with everything below them.
    #[arg(long, short = 'r')]
    pub recursive: bool,
    /// Replace existing files.
    #[arg(long, short = 'f')]
    pub force: bool,
    /// Skip files that exist already with the same size and, as far as both ends know, the same digest or modification
    /// time. Interrupted copies are resumed.
    #[arg(long)]
    pub skip_existing: bool,
    /// Take the destination for the name of the copy itself, though a directory may be there; nothing is put into it
    /// under the source's name.
    #[arg(long, short = 'T')]
    pub no_target_directory: bool,
    /// Another place where the one source is too (repeat for more): its pieces come from all of them at once.
    #[arg(long = "source", value_name = "PLACE")]
    pub sources: Vec<OsString>,
    /// Copy a `.meta4` file itself, rather than the files that this Metalink describes.
    #[arg(long)]
    pub as_is: bool,
    /// Show the token, and keys for `s3://`, to every server that a Metalink names. Without this flag only the server
    /// that it came from sees them.
    #[arg(long)]
    pub trust_metalink: bool,
    /// How files are copied.
    #[command(flatten)]
    pub options: CopyOptions,
    /// Copy what a file lists that `--failed-to` wrote, in place of sources and a destination.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["paths", "no_target_directory"])]
    pub retry_from: Option<PathBuf>,
    /// What of a directory is copied.
    #[command(flatten)]
    pub filters: Filters,
}

/// Arguments of `sync`.
#[derive(Debug, Args)]
pub(crate) struct Sync {
    /// What the destination shall hold: a directory, or a file. A path or a URL.
    pub source: OsString,
    /// Destination: the counterpart itself, not its parent directory
    pub destination: OsString,
    /// Comparison of files of the same size: `auto` by time where the destination keeps times, else by age and known
    /// digests; `digest` reads files if necessary.
    #[arg(long, value_name = "BY", value_enum, default_value_t = CompareBy::Auto)]
    pub compare: CompareBy,
    /// Delete entries that the source does not have, after everything else succeeded.
    #[arg(long)]
    pub delete: bool,
    /// Delete nothing if it would be more than this number of files and directories.
    #[arg(long, value_name = "N", requires = "delete")]
    pub max_delete: Option<u64>,
    /// Let --delete empty the destination if the source is empty.
    #[arg(long, requires = "delete")]
    pub allow_empty_source: bool,
    /// Change nothing, and print what would be done.
    #[arg(long, short = 'n')]
    pub dry_run: bool,
    /// How files are copied.
    #[command(flatten)]
    pub options: CopyOptions,
    /// What of the trees is looked at.
    #[command(flatten)]
    pub filters: Filters,
}

/// Comparison of files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum CompareBy {
    /// By the properties that both ends keep.
    Auto,
    /// By size alone.
    Size,
    /// By size and time.
    Time,
    /// By size and digest.
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

/// Whether to use third-party copies.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum WhenThirdParty {
    /// If they can.
    Auto,
    /// Or not at all.
    Only,
    /// No.
    #[default]
    Never,
}

impl WhenThirdParty {
    /// The flag that says so, unless nothing needs to be said.
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

/// Arguments of `ls`.
#[derive(Debug, Args)]
pub(crate) struct List {
    /// Paths or URLs.
    #[arg(required = true)]
    pub paths: Vec<OsString>,
    /// Sizes, times and modes too.
    #[arg(long, short = 'l')]
    pub long: bool,
    /// List recursively.
    #[arg(long, short = 'R')]
    pub recursive: bool,
    /// One JSON object an entry.
    #[arg(long)]
    pub json: bool,
}

/// Arguments of commands that take paths.
#[derive(Debug, Args)]
pub(crate) struct Paths {
    /// Paths or URLs.
    #[arg(required = true)]
    pub paths: Vec<OsString>,
    /// One JSON object a path.
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `cat`.
#[derive(Debug, Args)]
pub(crate) struct Cat {
    /// Paths or URLs.
    #[arg(required = true)]
    pub paths: Vec<OsString>,
    /// Only these bytes, as HTTP counts them: `0-99` (the first 100), `100-` (from there on), `-100` (the last 100).
    #[arg(long, value_name = "RANGE", allow_hyphen_values = true)]
    pub range: Option<String>,
}

/// Arguments of `sum`.
#[derive(Debug, Args)]
pub(crate) struct Sum {
    /// Paths or URLs.
    #[arg(required = true)]
    pub paths: Vec<OsString>,
    /// Which digest: adler32, crc32c, crc32, zcrc32, crc64, md5 or sha256.
    #[arg(long, short = 'a', default_value = "adler32")]
    pub algorithm: Algorithm,
    /// One JSON object a file.
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `mkdir`.
#[derive(Debug, Args)]
pub(crate) struct MakeDirectory {
    /// Paths or URLs.
    #[arg(required = true)]
    pub paths: Vec<OsString>,
    /// Make missing parents too, and do not mind a directory that exists.
    #[arg(long, short = 'p')]
    pub parents: bool,
}

/// Arguments of `mv`.
#[derive(Debug, Args)]
pub(crate) struct Move {
    /// What to rename.
    pub from: OsString,
    /// Its new name, in the same storage.
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
    /// Remove directories with everything below them.
    #[arg(long, short = 'r')]
    pub recursive: bool,
}

/// Arguments of `ping`.
#[derive(Debug, Args)]
pub(crate) struct Ping {
    /// URL of a storage.
    pub url: OsString,
    /// How many times.
    #[arg(long, short = 'c', default_value_t = 5)]
    pub count: u32,
    /// One JSON object.
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `config`.
#[derive(Debug, Args)]
pub(crate) struct Config {
    /// What about them.
    #[command(subcommand)]
    pub action: ConfigAction,
}

/// What to do with settings.
#[derive(Debug, Subcommand)]
pub(crate) enum ConfigAction {
    /// Print every setting of a role and where it comes from.
    Show(ConfigShow),
}

/// Arguments of `config show`.
#[derive(Debug, Args)]
pub(crate) struct ConfigShow {
    /// The role.
    #[arg(value_parser = ["serve", "alto"])]
    pub role: String,
    /// Settings (TOML).
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
}
