//! Options for users of remote stores. The defaults suit both a remote laptop and a node next to the storage.

use std::{path::PathBuf, sync::Arc, time::Duration};

use http::HeaderMap;
use towpath_proto::{destination_policy::DestinationPolicy, units::HumanDuration};
use towpath_store::{Error, sys::processor};

use crate::{AuthoritySettings, PasswordSource, ProxySettings, TokenSource, WaitReporter, s3::S3Options};

/// Client options.
#[derive(Debug, Clone)]
pub struct ClientOptions {
    /// Source of the bearer token, for calls without a token of their own.
    pub token: TokenSource,
    /// Source of passwords for HTTP servers, for calls without a token.
    pub passwords: PasswordSource,
    /// File or directory with certificates (PEM) of trusted authorities, in addition to `authorities`.
    pub ca_file: Option<PathBuf>,
    /// Trusted authorities of the system and the grid.
    pub authorities: AuthoritySettings,
    /// Accept any certificate. Tokens and passwords are then sent only within this machine.
    pub insecure: bool,
    /// Log one warning per host with `insecure`. Unset for a server that is known to be on this machine.
    pub warn_insecure: bool,
    /// The location of `s3://` buckets.
    pub s3: S3Options,
    /// Permitted addresses. Checked for each connection, whether the user or a redirect named the host.
    pub destinations: Arc<DestinationPolicy>,
    /// Proxies for HTTP, WebDAV and S3; those of the environment by default. They are not used if `destinations` is
    /// restricted, because the address is then known only to the proxy.
    pub proxies: ProxySettings,
    /// Header fields for each HTTP request to the site of a URL, but not to redirect targets. The client's own fields
    /// take precedence. `Authorization` replaces a token, and is sent like one.
    pub headers: HeaderMap,
    /// Timeout for a connection (TCP, and TLS if it is used), for each address of the host.
    pub connect_timeout: Duration,
    /// Maximum time without data on a connection with requests in flight, or with too little data of a response: once
    /// this time over HTTP, twice this time over xroot, where the server is pinged meanwhile (`ping`). The connection
    /// then counts as lost. A connection whose bytes are not acknowledged is abandoned much sooner, if another one can
    /// be established.
    pub stall: Duration,
    /// Maximum duration of slow operations (recall from tape, checksums).
    pub patience: Duration,
    /// Maximum total of the waits that a storage requests for one request before it responds; `patience` by default.
    pub max_wait: Option<Duration>,
    /// Listener for waits that take longer than two seconds.
    pub waits: WaitReporter,
    /// Maximum number of retries of one request after lost connections.
    pub retries: u32,
    /// Time during which one request is retried, counted from its start.
    pub retry_time: Duration,
    /// Maximum number of bytes of file data in flight at one site in each direction. It bounds memory, and limits
    /// throughput to this many bytes per round trip: 64 MiB fill 5 Gbit/s over 100 ms.
    pub window_bytes: usize,
    /// Initial maximum number of connections to one site for bulk data ([`crate::Client::set_connection_limit`]); each
    /// is received on a core of its own. Default: half the cores, at most four; the other cores write and verify
    /// meanwhile.
    pub connections: usize,
}

/// The limit of the waits that a storage requests for one request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WaitLimit {
    longest: Duration,
    /// Whether it is [`ClientOptions::max_wait`].
    is_chosen: bool,
}

impl ClientOptions {
    /// Returns the limit of the waits that a storage requests for one request; `is_slow` is whether the request is a
    /// slow operation.
    pub(crate) fn wait_limit(&self, is_slow: bool) -> WaitLimit {
        let chosen = self.max_wait.filter(|_| !is_slow);
        WaitLimit { longest: chosen.unwrap_or(self.patience), is_chosen: chosen.is_some() }
    }

    /// Returns the time limit of retries.
    pub(crate) fn retry_time(&self) -> RetryTime {
        RetryTime { longest: self.retry_time, unknown: self.max_wait }
    }

    /// Returns `silence`, the time without data after which a connection counts as lost, limited by the maximum wait for
    /// a server that has never responded.
    pub(crate) fn silence_permitted(&self, silence: Duration, known_good: bool) -> Duration {
        self.max_wait.filter(|_| !known_good).map_or(silence, |wait| wait.min(silence))
    }
}

/// The time limit of the retries of a request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RetryTime {
    longest: Duration,
    /// With a server that has never responded: [`ClientOptions::max_wait`], because its address may be wrong.
    unknown: Option<Duration>,
}

impl RetryTime {
    /// Returns whether a request that started `elapsed` ago may be sent again. `known_good` is whether its server has
    /// responded before.
    pub(crate) fn permits(self, elapsed: Duration, known_good: bool) -> bool {
        elapsed <= self.longest && self.unknown.is_none_or(|unknown| known_good || elapsed < unknown)
    }

    /// Returns whether to give up a server that has never responded, and was silent for the whole time of an attempt.
    pub(crate) fn ends_with_silence(self, known_good: bool) -> bool {
        !known_good && self.unknown.is_some()
    }
}

impl WaitLimit {
    /// Limits the waits to `longest`, if that is less.
    pub(crate) fn at_most(self, longest: Duration) -> Self {
        if longest < self.longest { Self { longest, is_chosen: false } } else { self }
    }

    /// Returns whether a request may wait for `total`.
    pub(crate) fn permits(&self, total: Duration) -> bool {
        total <= self.longest
    }

    /// Adds to the error of a request that would have to wait longer how to permit it.
    pub(crate) fn explain(&self, error: Error) -> Error {
        if !self.is_chosen {
            return error;
        }
        let message = format!("{}; use --wait to wait longer than {}", error.message(), HumanDuration(self.longest));
        error.with_message(message)
    }
}

/// Minimum number of response bytes within the stall time; a server that sends less does not make progress.
pub(crate) const MIN_PROGRESS_BYTES: usize = 4 << 10;

impl Default for ClientOptions {
    fn default() -> Self {
        Self {
            token: TokenSource::Discover,
            passwords: PasswordSource::Discover,
            ca_file: None,
            authorities: AuthoritySettings::from_environment(),
            insecure: false,
            warn_insecure: true,
            s3: S3Options::default(),
            destinations: Arc::new(DestinationPolicy::everywhere()),
            proxies: ProxySettings::from_environment(),
            headers: HeaderMap::new(),
            connect_timeout: Duration::from_secs(10),
            stall: Duration::from_secs(30),
            patience: Duration::from_secs(30 * 60),
            max_wait: None,
            waits: WaitReporter::default(),
            retries: 5,
            retry_time: Duration::from_secs(5 * 60),
            window_bytes: 64 << 20,
            connections: (processor::processors() / 2).clamp(1, 4),
        }
    }
}
