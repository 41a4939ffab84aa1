//! Client side of the xroot protocol: `root://` and `roots://` sites as stores.
//!
//! | layer | module |
//! | --- | --- |
//! | a site as a [`Store`](towpath_store::Store) | [`store`](self), `read`, `write`, `listing` |
//! | copies between this site and another | `third_party` |
//! | one request over all its attempts: retry, redirect, backoff | `retry_state`, `origin` |
//! | the sessions of one user at one server, and the choice of a session for a request | `site`, `spread` |
//! | one session, the files open in it, and the software of its server | `session`, `software` |
//! | one connection, requests multiplexed on it | `connection`, `sink` |
//! | TCP, TLS, `protocol`, `login`, `auth` in the fewest flights | `session_setup`, `auth` |
//!
//! A first read: [`XrootdStore`] creates a handle without a request. The read uses the site's session, which starts to
//! connect. Open and pgread are submitted together, the pgread with the predicted handle; once TCP is connected,
//! handshake, `protocol`, `login`, `open` and `pgread` are sent in one segment. The responses arrive in one flight too:
//! two round trips after name resolution, one on a warm session. Data are received into the caller's buffer, where
//! their checksums are verified.
//!
//! Not here: caching, splitting of large transfers, selection of replicas.

mod attributes;
mod auth;
mod connection;
mod listing;
mod metadata;
mod origin;
mod read;
mod retry_state;
mod server;
mod session;
mod session_setup;
mod sink;
mod site;
mod sites;
mod software;
mod spread;
mod store;
mod third_party;
mod vector;
mod write;

pub use sites::Sites;
pub use store::XrootdStore;
pub(crate) use third_party::copy_between;
