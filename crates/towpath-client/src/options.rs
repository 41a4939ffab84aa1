//! What a user of remote stores may choose. The defaults suit both a laptop far away and a node next to the storage.

use std::{path::PathBuf, sync::Arc, time::Duration};

use http::HeaderMap;
use towpath_proto::reach::Reach;
use towpath_store::sys::processor;

use crate::{TokenSource, Waits, s3::S3Options};

/// Client options.
#[derive(Debug, Clone)]
pub struct ClientOptions {
    /// Where the bearer token comes from, for calls that bring none themselves.
    pub token: TokenSource,
    /// Certificates (PEM) of authorities to trust besides the system's own.
    pub ca_file: Option<PathBuf>,
    /// Where buckets of `s3://` are.
    pub s3: S3Options,
    /// Permitted addresses. Checked for each connection, whether the user or a redirect named the host.
    pub reach: Arc<Reach>,
    /// Header fields for each HTTP request to the site of a URL, but not to redirect targets. The client's own fields
    /// take precedence. `Authorization` replaces a token, and is sent like one.
    pub headers: HeaderMap,
    /// How long to wait for a connection: TCP, and TLS where it is spoken, for each address of the host.
    pub connect_timeout: Duration,
    /// Maximum time without data on a connection with requests in flight, or with next to nothing of a response: over
    /// HTTP once, over xroot, where the server is pinged meanwhile (`ping`), twice as long. The connection then counts
    /// as lost. One whose bytes are not acknowledged is abandoned much sooner, if another one can be established.
    pub stall: Duration,
    /// Maximum duration of slow operations (recall from tape, checksums), and of the total of waits that a storage
    /// requests.
    pub patience: Duration,
    /// Listener for waits that take longer than two seconds.
    pub waits: Waits,
    /// How often one request is sent again after the connection was lost.
    pub retries: u32,
    /// How long one request is tried again, counted from its start.
    pub retry_time: Duration,
    /// Bytes of file data that may be underway at one site in each direction. It bounds memory, and throughput to this
    /// many bytes for each round trip: 64 MiB fill 5 Gbit/s over 100 ms.
    pub window_bytes: usize,
    /// Connections to one site for bulk data to begin with ([`crate::Client::set_connection_limit`]), each received on
    /// a core of its own. By default half the cores, at most four: the others write and verify meanwhile.
    pub connections: usize,
}

/// What must come of an answer within the time of a stall, in bytes: a server that sends less only keeps us waiting.
pub(crate) const MIN_PROGRESS_BYTES: usize = 4 << 10;

impl Default for ClientOptions {
    fn default() -> Self {
        Self {
            token: TokenSource::Discover,
            ca_file: None,
            s3: S3Options::default(),
            reach: Arc::new(Reach::everywhere()),
            headers: HeaderMap::new(),
            connect_timeout: Duration::from_secs(10),
            stall: Duration::from_secs(30),
            patience: Duration::from_secs(30 * 60),
            waits: Waits::default(),
            retries: 5,
            retry_time: Duration::from_secs(5 * 60),
            window_bytes: 64 << 20,
            connections: (processor::processors() / 2).clamp(1, 4),
        }
    }
}
