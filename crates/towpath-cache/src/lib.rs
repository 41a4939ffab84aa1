//! The site cache: a store around a remote store, which keeps the bytes that were read on a local disk.
//!
//! [`Cache`] is a directory; [`CacheStore`] is an origin as seen through it, or several with the same tree. An entry is
//! one version of a file, with a sparse data file and an index of the present bytes. RFC 0008 (`docs/rfcs/0008-site-cache.md`) explains the design.
//!
//! A read: `store` opens the file at the origin and the entry of its version; `file` requests the absent bytes;
//! `flights` has one request for all readers of the same bytes; `origin` fetches them; `entry` writes them to the disk
//! and verifies data read from it; `extents` lists the present bytes, `index` is its form on the disk. `freshness`
//! decides whether the versions of `names` and the paths of `missing` serve a request without the origin; `writes` keeps
//! versions from before a write through the cache out of them. `read_ahead` and `columns` decide what to fetch in addition,
//! `opened_ahead` what to open.
//!
//! [`CacheNamespace`] is what a server shows: such a store, and storages that clients name in the path.
//!
//! Not included: servers (`towpath-server`), the clients of the origins (`towpath-client`), and access rights, which
//! the servers check before they call a store.

mod access_line;
mod accounts;
mod breaker;
mod cache;
mod columns;
mod disk;
mod entry;
mod extents;
mod file;
mod flights;
mod freshness;
mod index;
mod inventory;
mod joined_opens;
mod known_versions;
mod missing;
mod names;
mod namespace;
mod opened_ahead;
mod opens;
mod origin;
mod origins;
mod pins;
mod quotas;
mod read_ahead;
mod results;
mod rules;
mod runs;
mod segments;
pub mod simulation;
mod source;
mod store;
mod sync;
mod target;
mod version;
mod writes;
mod written_file;

pub use access_line::{ACCESS_KIND, AccessLine, SegmentItem};
pub use accounts::{AccessObserver, AccessRecord};
pub use cache::{
    Cache, CacheOptions, CacheStatistics,
    administration::{EntryDescription, EntryList, Eviction, ScrubOutcome, Spoiling},
};
pub use namespace::{CacheNamespace, Forwarder, Selection};
pub use origin::{Credential, OriginOptions};
pub use origins::TreeOptions;
pub use pins::Pin;
pub use quotas::{Quota, QuotaStatistics};
pub use rules::{Recheck, Rule, Rules};
pub use segments::SegmentUse;
pub use store::{CacheStore, OriginStatistics, entry_files};
pub use target::Target;
