//! The command line of `towpath order`.

use std::{
    net::{IpAddr, SocketAddr},
    path::PathBuf,
};

use clap::Args;
use towpath_alto_client::DomainName;

/// Arguments of `order`.
#[derive(Debug, Args)]
pub(crate) struct Order {
    /// The list of replicas: a URL in each line, JSON as Rucio has it, or a Metalink [default: the standard input].
    #[arg(value_name = "FILE")]
    pub list: Option<PathBuf>,
    /// Keys to sort by, and the condition for the first ones: `BY as_hopcount, delay_ow WHERE continent = "EU"`.
    #[arg(long, value_name = "STATEMENT", default_value = "BY routingcost")]
    pub by: String,
    /// Metrics and server (TOML).
    #[arg(long, value_name = "FILE", env = "TOWPATH_ALTO_CONFIG")]
    pub config: Option<PathBuf>,
    /// Directory of the ALTO server [default: default-ird in the file of --config, else the one in the DNS for
    /// --client or for this machine].
    #[arg(long, value_name = "URL", env = "TOWPATH_ALTO_IRD")]
    pub ird: Option<String>,
    /// Use the ALTO server in the DNS for this domain (RFC 7286), regardless of other settings.
    #[arg(long, value_name = "NAME")]
    pub domain: Option<DomainName>,
    /// Address of the reader of the replicas [default: the one that the server sees].
    #[arg(long, value_name = "ADDRESS")]
    pub client: Option<IpAddr>,
    /// Name server for the discovery of ALTO servers [default: those of /etc/resolv.conf].
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub dns: Option<SocketAddr>,
    /// Omit replicas that do not meet the condition, instead of sorting them last.
    #[arg(long)]
    pub strict: bool,
    /// If the server does not answer, write the list as it is, and end well.
    #[arg(long, conflicts_with = "strict")]
    pub fallback: bool,
    /// Say on the standard error stream what put each replica into its place.
    #[arg(long)]
    pub explain: bool,
}
