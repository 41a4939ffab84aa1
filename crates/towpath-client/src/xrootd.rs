//! The xroot protocol, the client's side: `root://` and `roots://` sites as stores.
//!
//! | layer | module |
//! | --- | --- |
//! | a site as a [`Store`](towpath_store::Store) | [`store`](self), `read`, `write`, `listing` |
//! | copies between this site and another | `third_party` |
//! | one request over all its attempts: again, elsewhere, later | `recovery`, `ask` |
//! | the sessions of one user at one server, and which of them carries what | `site`, `spread` |
//! | one session and the files open in it | `session` |
//! | one connection, requests multiplexed on it | `connection`, `sink` |
//! | TCP, TLS, `protocol`, `login`, `auth` in the fewest flights | `flight`, `auth` |
//!
//! The life of a first read: [`XrootdStore`] makes a handle without asking anybody. The read takes the site's session, which
//! starts to connect; open and pgread are submitted behind each other, the pgread with the handle that the server will
//! probably give; when TCP is up, handshake, `protocol`, `login`, `open` and `pgread` leave in one segment. The answers
//! come in one flight too: two round trips after the name is resolved, one on a warm session. The data are received
//! into the caller's buffer and their checksums verified there.
//!
//! What is not here: caching, splitting of large transfers, choice of replicas.

mod ask;
mod attributes;
mod auth;
mod connection;
mod flight;
mod listing;
mod metadata;
mod read;
mod recovery;
mod session;
mod sink;
mod site;
mod sites;
mod spread;
mod store;
mod third_party;
mod vector;
mod write;

pub use sites::Sites;
pub use store::XrootdStore;
pub(crate) use third_party::copy_between;
