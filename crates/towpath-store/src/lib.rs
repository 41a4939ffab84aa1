//! The interface of everything that stores files: [`Store`].
//!
//! A local directory, memory, a remote site and a cache are stores; servers, mounts and programs are faces of one.
//! RFC 0001 (`docs/rfcs/0001-store.md`) explains the design of the trait.
//!
//! A read: [`Store::open`] returns a [`ReadHandle`] that pins one version of the file and serves ranges, vectors and
//! non-blocking reads. A write: [`Store::create`] returns a [`WriteHandle`] that accepts pieces at any offset in any
//! order; [`WriteHandle::commit`] verifies size and digests and makes the file visible in one step.
//!
//! Not included: protocols (`towpath-proto`), remote stores (`towpath-client`), and authorization, which the servers
//! check before they call a store.

mod attribute;
mod caller;
mod combined;
pub mod disk_pool;
mod error;
mod freshness;
pub mod local;
pub mod memory;
mod metadata;
pub mod near_ranges;
mod path;
mod positional;
mod request_times;
mod resume;
mod retry;
mod store;
pub mod sys;

pub use attribute::{MAX_ATTRIBUTE_NAME_BYTES, MAX_ATTRIBUTE_VALUE_BYTES};
pub use caller::{Caller, Secret};
pub use combined::{CombinedStore, nested_pair};
pub use error::{Blame, Description, Error, Fault, Kind, Result, gone, os_message};
pub use freshness::{CacheDirectives, Freshness, Reuse};
pub use metadata::{DirectoryId, FileKind, Metadata, Residency, Space, VersionTag, is_settled};
pub use path::{MAX_NAME_BYTES, MAX_PATH_BYTES, PathError, Printable, StorePath, is_obeyed};
pub use request_times::{RequestTime, RequestTimes};
pub use resume::{InvalidResumeKey, MAX_PRESENT_EXTENTS, ResumeKey};
pub use retry::Backoff;
pub use store::{
    ByteRange, Capabilities, Changes, ContentStream, CreateOptions, Entry, Expectation, ListOptions, Listing,
    LocalPart, OpenOptions, Overwrite, PartLease, Preparation, READ_BYTES, ReadBuffer, ReadHandle, Store, VectorReads,
    WriteHandle,
};
