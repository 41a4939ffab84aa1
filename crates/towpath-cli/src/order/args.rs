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
    /// By what they are ordered, and what has to be true of those that come first: `BY as_hopcount, delay_ow WHERE continent = "EU"`.
    #[arg(long, value_name = "STATEMENT", default_value = "BY routingcost")]
    pub by: String,
    /// Metrics, and the server to ask (TOML).
    #[arg(long, value_name = "FILE", env = "TOWPATH_ALTO_CONFIG")]
    pub config: Option<PathBuf>,
    /// The directory of the ALTO server to ask [default: default-ird in the file of --config, else the one that the DNS has for --client or for this machine].
    #[arg(long, value_name = "URL", env = "TOWPATH_ALTO_IRD")]
    pub ird: Option<String>,
    /// Ask the ALTO server that the DNS has for this domain (RFC 7286), whatever else is configured.
    #[arg(long, value_name = "NAME")]
    pub domain: Option<DomainName>,
    /// The address from which replicas are read [default: the one that the server sees].
    #[arg(long, value_name = "ADDRESS")]
    pub client: Option<IpAddr>,
    /// The name server that is asked for ALTO servers [default: those of /etc/resolv.conf].
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub dns: Option<SocketAddr>,
    /// Leave out replicas of which the condition is not true, rather than putting them at the end.
    #[arg(long)]
    pub strict: bool,
    /// If the server does not answer, write the list as it is, and end well.
    #[arg(long, conflicts_with = "strict")]
    pub fallback: bool,
    /// Say on the standard error stream what put each replica into its place.
    #[arg(long)]
    pub explain: bool,
}
