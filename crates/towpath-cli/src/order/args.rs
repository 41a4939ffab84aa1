//! Arguments of `towpath order`.

use std::{
    net::{IpAddr, SocketAddr},
    path::PathBuf,
};

use clap::Args;
use towpath_alto_client::DomainName;

/// Arguments of `order`.
#[derive(Debug, Args)]
pub(crate) struct Order {
    /// List of replicas: one URL per line, JSON in Rucio's format, or a Metalink [default: the standard input].
    #[arg(value_name = "FILE")]
    pub list: Option<PathBuf>,
    /// Sort keys and an optional condition; replicas that meet it come first: `BY as_hopcount, delay_ow WHERE continent
    /// = "EU"`.
    #[arg(long, value_name = "STATEMENT", default_value = "BY routingcost")]
    pub by: String,
    /// Configuration file (TOML) with metrics and the ALTO server.
    #[arg(long, value_name = "FILE", env = "TOWPATH_ALTO_CONFIG")]
    pub config: Option<PathBuf>,
    /// URL of the directory (IRD) of the ALTO server [default: default-ird in the file of --config, else discovered in
    /// the DNS for --client or this machine].
    #[arg(long, value_name = "URL", env = "TOWPATH_ALTO_IRD")]
    pub ird: Option<String>,
    /// Discover the ALTO server in the DNS of this domain (RFC 7286), regardless of other settings.
    #[arg(long, value_name = "NAME")]
    pub domain: Option<DomainName>,
    /// Address of the client that will read the replicas [default: the address that the server sees].
    #[arg(long, value_name = "ADDRESS")]
    pub client: Option<IpAddr>,
    /// Name server for the discovery of ALTO servers [default: those in /etc/resolv.conf].
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub dns: Option<SocketAddr>,
    /// Omit replicas that do not meet the condition, instead of sorting them last.
    #[arg(long)]
    pub strict: bool,
    /// If the server does not respond, write the list in its old order and exit with code 0.
    #[arg(long, conflicts_with = "strict")]
    pub fallback: bool,
    /// Print the values that determined the rank of each replica on the standard error stream.
    #[arg(long)]
    pub explain: bool,
}
