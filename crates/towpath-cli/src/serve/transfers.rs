//! Third-party copies of the server, made by the mover with the client of towpath.

use std::{path::PathBuf, sync::Arc};

use async_trait::async_trait;
use towpath_client::{Client, ClientOptions, PasswordSource, ProxySettings, TokenSource};
use towpath_mover::{Job, Mover, Observer, Options, RemoteStores, SkipPolicy, StoreLocation, ThirdParty};
use towpath_proto::destination_policy::DestinationPolicy;
use towpath_server::third_party::{Direction, Progress, ThirdPartyCopy, Transfers};
use towpath_store::{Caller, Result, Store};

/// Window of one copy in bytes: enough for 1.3 Gbit/s at a round-trip time of 100 ms; the maximum number of concurrent
/// copies uses less than 0.5 GiB.
const WINDOW_BYTES: usize = 16 << 20;

/// Permission bits that are always cleared, regardless of the source.
const UMASK: u32 = 0o022;

/// Copies files between the store of the server and other servers. Each copy has a separate client with separate
/// credentials and connections.
#[derive(Debug)]
pub(super) struct ThirdPartyCopier {
    /// PEM file with CA certificates to trust in addition to those of the system.
    pub(super) ca: Option<PathBuf>,
}

#[async_trait]
impl Transfers for ThirdPartyCopier {
    async fn copy(
        &self,
        store: &Arc<dyn Store>,
        copy: &ThirdPartyCopy,
        destinations: &Arc<DestinationPolicy>,
        progress: &Arc<Progress>,
    ) -> Result<()> {
        let client = Arc::new(Client::new(Arc::new(self.options(copy, destinations))));
        let caller = Caller { token: copy.token.clone(), ..Caller::local() };
        let there = RemoteStores::new(Arc::clone(&client)).locate(&copy.remote, caller)?;
        let here = StoreLocation::local(Arc::clone(store), copy.caller.clone(), copy.local.clone());
        let job = match copy.direction {
            Direction::Pull => Job::new(there, here),
            Direction::Push => Job::new(here, there),
        };
        let options = Options {
            overwrite: copy.overwrite,
            skip: SkipPolicy::Nothing,
            checksum: copy.checksum,
            umask: UMASK,
            third_party: ThirdParty::Never,
            max_files: 1,
            window_bytes: WINDOW_BYTES as u64,
            limit_bytes_per_s: None,
            nice: false,
            paths: None,
            client: (!copy.opens_once).then(|| Arc::clone(&client)),
        };
        let observer = Arc::new(ProgressForwarder(Arc::clone(progress)));
        Mover::new(options, observer).copy(&job).await.map(drop)
    }
}

impl ThirdPartyCopier {
    fn options(&self, copy: &ThirdPartyCopy, destinations: &Arc<DestinationPolicy>) -> ClientOptions {
        let usual = ClientOptions::default();
        ClientOptions {
            // Tokens and passwords of the server's user must not be used on behalf of its clients.
            token: TokenSource::Nothing,
            passwords: PasswordSource::Nothing,
            ca_file: self.ca.clone(),
            destinations: Arc::clone(destinations),
            // A proxy would connect to addresses that this server may have to refuse.
            proxies: ProxySettings::default(),
            headers: copy.headers.clone(),
            window_bytes: WINDOW_BYTES,
            connections: if copy.opens_once { 1 } else { usual.connections },
            retries: if copy.opens_once { 0 } else { usual.retries },
            ..usual
        }
    }
}

/// Reports the progress of a copy to the server.
#[derive(Debug)]
struct ProgressForwarder(Arc<Progress>);

impl Observer for ProgressForwarder {
    fn proves(&self) {
        self.0.proves();
    }

    fn expect(&self, bytes: u64) {
        self.0.expect(bytes);
    }

    fn transferred(&self, bytes: u64) {
        self.0.wrote(bytes);
    }
}

#[cfg(test)]
mod tests;
