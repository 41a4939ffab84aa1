//! All sites that a client communicates with.

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

use futures::future;
use tokio_util::task::TaskTracker;
use towpath_store::Secret;

use super::{
    server::Server,
    site::{Identity, Site},
};
use crate::{ClientOptions, dial::Dialer, token::Tokens};

/// Maximum number of sites; beyond that, unused ones are dropped with their connections.
const MAX_SITES: usize = 256;

/// The sites in use, shared by the stores of one client.
pub struct Sites {
    pub(super) options: Arc<ClientOptions>,
    pub(super) tokens: Arc<Tokens>,
    /// Tasks that clean up after dropped uploads.
    pub(super) background: TaskTracker,
    pub(super) dialer: Arc<Dialer>,
    sites: Mutex<HashMap<Key, Arc<Site>>>,
}

/// The properties that make connections interchangeable.
#[derive(PartialEq, Eq, Hash)]
struct Key {
    host: String,
    port: u16,
    tls: bool,
    login_cgi: bytes::Bytes,
    trusted: bool,
    user: String,
    token: Option<String>,
    is_nobody: bool,
    careful: bool,
}

impl Sites {
    /// Creates a collection without sites.
    pub(crate) fn new(
        options: Arc<ClientOptions>,
        tokens: Arc<Tokens>,
        background: TaskTracker,
        dialer: Arc<Dialer>,
    ) -> Arc<Self> {
        Arc::new(Self { options, tokens, background, dialer, sites: Mutex::default() })
    }

    /// Returns the site of `identity` at `server`.
    pub(super) fn at(&self, server: &Server, identity: &Identity) -> Arc<Site> {
        let key = Key {
            host: server.host.clone(),
            port: server.port,
            tls: server.tls,
            login_cgi: server.login_cgi.clone(),
            trusted: server.trusted,
            user: identity.user.clone(),
            token: identity.token.as_ref().map(Secret::expose).map(str::to_owned),
            is_nobody: identity.is_nobody,
            careful: identity.careful,
        };
        let mut sites = self.sites.lock().unwrap_or_else(PoisonError::into_inner);
        if sites.len() >= MAX_SITES && !sites.contains_key(&key) {
            sites.retain(|_, site| Arc::strong_count(site) > 1);
        }
        let site = sites.entry(key).or_insert_with(|| Arc::new(Site::new(server.clone(), identity.clone(), self)));
        Arc::clone(site)
    }

    /// Returns whether any site has been used.
    pub(crate) fn are_used(&self) -> bool {
        !self.sites.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    /// Requests the statistics of the connections from all servers.
    pub(crate) async fn ask_far_ends(&self) {
        let sites: Vec<_> = self.sites.lock().unwrap_or_else(PoisonError::into_inner).values().cloned().collect();
        future::join_all(sites.iter().map(|site| site.ask_far_ends())).await;
    }

    /// Returns whether uploads to `server` can be resumed, as reported to any user; `None` if unknown.
    pub(super) fn resumes(&self, server: &Server) -> Option<bool> {
        self.any_at(server, Site::resumes)
    }

    /// Returns whether `server` has identified itself as towpath to any user.
    pub(super) fn is_known_to_be_ours(&self, server: &Server) -> bool {
        self.any_at(server, |site| site.is_known_to_be_ours().then_some(())).is_some()
    }

    /// Returns the first known value among the sites of `server`.
    fn any_at<T>(&self, server: &Server, known: impl Fn(&Site) -> Option<T>) -> Option<T> {
        let sites = self.sites.lock().unwrap_or_else(PoisonError::into_inner);
        let mut here =
            sites.values().filter(|site| (&site.server.host, site.server.port) == (&server.host, server.port));
        here.find_map(|site| known(site))
    }
}

impl fmt::Debug for Sites {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sites = self.sites.lock().unwrap_or_else(PoisonError::into_inner);
        f.debug_list().entries(sites.values().map(|site| site.server.name())).finish()
    }
}
