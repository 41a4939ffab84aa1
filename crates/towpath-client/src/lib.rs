//! Remote stores: access to a site over the xroot protocol, HTTP/WebDAV or S3 as a [`towpath_store::Store`].
//!
//! [`connect`] returns the store of a URL and the path inside it; a [`Client`] does the same for many URLs and shares
//! the connections of each site. No request is sent before the store is used.
//!
//! | module | content |
//! | --- | --- |
//! | [`options`] | client options: tokens, certificates, timeouts, bytes in flight |
//! | `passwords` | passwords of HTTP servers |
//! | `proxy` | proxies for HTTP, WebDAV and S3 |
//! | [`token`] | bearer token discovery |
//! | [`xrootd`] | `root://` and `roots://` |
//! | [`http`] | `http(s)://` and `dav(s)://` |
//! | [`s3`] | `s3://` |
//! | [`third_party`] | third-party copies between two sites |
//! | `zip` | members of ZIP archives, named by `?xrdcl.unzip=` |
//!
//! The errors of all stores name the host, and whether the storage, the network or the request is to blame.

mod dial;
mod digest;
pub mod http;
pub mod options;
mod passwords;
mod proxy;
pub mod third_party;
mod tls;
pub mod token;
mod waits;
mod words;
pub mod xrootd;
mod zip;

use std::{sync::Arc, time::Duration};

use tokio_util::task::TaskTracker;
use towpath_proto::url::{Family, Url};
use towpath_store::{Backoff, Caller, Error, Fault, RequestTimes, Result, Store, StorePath};

use dial::Dialer;
pub use dial::{Connection, MAX_CONNECTIONS};
pub use http::s3;
pub use http::{
    DocumentRequest, DocumentResponse, DocumentStatus, Probe, ProbeResult, Side, Subscription, Trace, form,
};
pub use options::ClientOptions;
pub use passwords::PasswordSource;
pub use proxy::{ProxySettings, ProxyUrl};
pub use tls::{AuthorityPath, AuthoritySettings};
pub use token::TokenSource;
use token::Tokens;
pub use waits::WaitReporter;

/// A client for remote sites. All stores of one client share its connections.
#[derive(Debug)]
pub struct Client {
    xrootd: Arc<xrootd::Sites>,
    http: Arc<http::Sites>,
    s3: Arc<s3::Sites>,
    dialer: Arc<Dialer>,
    background: TaskTracker,
}

impl Client {
    /// Creates a client without connections.
    pub fn new(options: Arc<ClientOptions>) -> Self {
        let tokens = Arc::new(Tokens::new(options.token.clone()));
        let background = TaskTracker::new();
        let dialer = Arc::new(Dialer::new(Arc::clone(&options)));
        let xrootd =
            xrootd::Sites::new(Arc::clone(&options), Arc::clone(&tokens), background.clone(), Arc::clone(&dialer));
        let http = http::Sites::new(Arc::clone(&options), tokens, background.clone(), Arc::clone(&dialer));
        let s3 = s3::Sites::new(options, Arc::clone(&http));
        Self { xrootd, http, s3, dialer, background }
    }

    /// Waits until the cleanup after dropped uploads has succeeded or failed at every site. A program that ends earlier
    /// may leave partial files.
    pub async fn cleaned_up(&self) {
        self.background.close();
        self.background.wait().await;
    }

    /// Returns the live connections to all servers, with their kernel statistics.
    pub fn connections(&self) -> Vec<Connection> {
        self.dialer.connections()
    }

    /// Returns the live times of the requests to all servers. A missing response and a requested retry add nothing.
    pub fn request_times(&self) -> Arc<RequestTimes> {
        self.dialer.request_times()
    }

    /// Requests the kernel statistics of the live connections from each xroot server; [`Self::connections`] returns
    /// them. Over HTTP, towpath servers include them in every response from the first call on. Returns when all servers
    /// have responded, which takes one round trip, or are lost.
    pub async fn ask_far_ends(&self) {
        self.dialer.ask_for_far_ends();
        self.xrootd.ask_far_ends().await;
    }

    /// Returns the maximum number of connections per xroot site that carry bulk data. They are opened on demand.
    pub fn connection_limit(&self) -> usize {
        self.dialer.connection_limit()
    }

    /// Sets the maximum number of connections per xroot site; values are clamped to 1 to 64.
    pub fn set_connection_limit(&self, connections: usize) {
        self.dialer.set_connection_limit(connections);
    }

    /// Returns whether the connection limit matters, that is, whether an xroot site has been used. Over HTTP and S3
    /// each request has its own connection.
    pub fn uses_connection_limit(&self) -> bool {
        self.xrootd.are_used()
    }

    /// Limits each HTTP and S3 site to at most 8 concurrent requests from now on. Listings and streamed uploads have
    /// additional connections.
    pub fn be_nice(&self) {
        self.http.be_nice();
    }

    /// Measures the network to the towpath server at `url`, from memory to memory. Permission to read the path allows
    /// downloads, permission to write it allows uploads. Dropping the future ends the probe.
    ///
    /// # Errors
    /// `Unsupported` if the server is not towpath, or too old; errors of the server; `Unavailable` if it is
    /// unreachable.
    pub async fn probe(&self, url: &Url, probe: &Probe) -> Result<ProbeResult> {
        self.http.probe(url, probe).await
    }

    /// Sends a request to a service that is not a storage, at an http or https `url`. The credentials of `caller` are
    /// sent to that server only, over TLS or within this machine. Lost connections, and responses that ask for a later
    /// attempt, are retried until the timeout.
    ///
    /// # Errors
    /// `InvalidArgument` for an invalid URL; `Unavailable` and `TimedOut` without a response; `TooLarge` for a
    /// response that is too long; the fault of a status other than 200, unless the caller accepts the media type of
    /// its document.
    pub async fn request_document(
        &self,
        url: &str,
        caller: &Caller,
        document_request: DocumentRequest<'_>,
    ) -> Result<DocumentResponse> {
        self.http.request_document(url, caller, document_request).await
    }

    /// Like [`Self::request_document`], but the response is read as it arrives, for as long as the service sends; only
    /// its beginning is retried.
    ///
    /// # Errors
    /// As [`Self::request_document`].
    pub async fn subscribe(
        &self,
        url: &str,
        caller: &Caller,
        document_request: DocumentRequest<'_>,
    ) -> Result<Subscription> {
        self.http.subscribe(url, caller, document_request).await
    }

    /// Sends a DELETE for an http or https `url` of a service that is not a storage, with a timeout.
    ///
    /// # Errors
    /// As [`Self::request_document`]; the fault of an unsuccessful status.
    pub async fn withdraw(&self, url: &str, caller: &Caller, patience: Duration) -> Result<()> {
        self.http.withdraw(url, caller, patience).await
    }

    /// Returns the store of `url`, and the path in it. The opaque information, or the query, of the URL is sent with
    /// every request of that store, except `xrdcl.unzip=NAME`, which names a member of the ZIP archive: the returned
    /// path then is the path of the archive followed by the name.
    ///
    /// # Errors
    /// `InvalidArgument` for a path that no store can have, and for other keys with the prefix `xrdcl.`, which only
    /// XRootD's own client supports. An unreachable site is detected only when the store is used.
    pub fn connect(&self, url: &Url) -> Result<(Arc<dyn Store>, StorePath)> {
        let (url, member) = split_member(url)?;
        let path = StorePath::parse(url.path())
            .map_err(|error| Error::new(Fault::InvalidArgument, format!("{}: {error}", url.endpoint())))?;
        let store = self.store(&url)?;
        let Some(name) = member else { return Ok((store, path)) };
        let (store, member) = zip::ZipStore::new(store, path, &name)?;
        Ok((Arc::new(store), member))
    }

    fn store(&self, url: &Url) -> Result<Arc<dyn Store>> {
        Ok(match url.scheme().family() {
            Family::Xrootd => Arc::new(xrootd::XrootdStore::new(&self.xrootd, url)),
            Family::Http => Arc::new(http::HttpStore::new(&self.http, url)),
            Family::S3 => Arc::new(s3::S3Store::new(&self.s3, url)?),
        })
    }
}

/// Prefix of query keys for clients; servers ignore these keys.
const CLIENT_KEYS: &str = "xrdcl.";

/// First backoff before a retry, and minimum wait that a server can request.
pub(crate) const FIRST_BACKOFF: Duration = Duration::from_millis(250);

/// Backoff of a request before its first failure.
pub(crate) const BACKOFF: Backoff = Backoff::new(FIRST_BACKOFF, Duration::from_secs(30));

/// Returns the URL without client keys, and the member of the archive that it names, if any.
///
/// # Errors
/// `InvalidArgument` for an unknown client key, which must not be ignored.
fn split_member(url: &Url) -> Result<(Url, Option<Vec<u8>>)> {
    let (url, pairs) = url.split_query(CLIENT_KEYS);
    let mut member = None;
    for (key, value) in pairs {
        if key != "xrdcl.unzip" || value.is_empty() || member.is_some() {
            let message =
                format!("{}: `{key}` in the URL is not supported; only one xrdcl.unzip=NAME is", url.endpoint());
            return Err(Error::new(Fault::InvalidArgument, message));
        }
        member = Some(value);
    }
    Ok((url, member))
}

/// Returns the store of a URL, and the path in it; see [`Client::connect`].
///
/// # Errors
/// As [`Client::connect`].
pub fn connect(url: &Url, options: &Arc<ClientOptions>) -> Result<(Arc<dyn Store>, StorePath)> {
    Client::new(Arc::clone(options)).connect(url)
}
