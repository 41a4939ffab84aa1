//! Everything that holds bytes is a [`Store`].
//!
//! A local directory, memory, a remote site and a cache are stores; servers, mounts and programs are faces of one.
//! RFC 0001 (`docs/rfcs/0001-store.md`) says why the trait is cut as it is.
//!
//! The life of a read: [`Store::open`] gives a [`ReadHandle`] that pins one version of the file; ranges, vectors and
//! non-waiting reads are asked of the handle. The life of a write: [`Store::create`] gives a [`WriteHandle`]; pieces
//! go in at any offset and in any order; [`WriteHandle::commit`] checks what was promised and makes the file visible in one step.
//!
//! What is not here: protocols (`towpath-proto`), remote stores (`towpath-client`), policy on who may do what (the faces decide
//! before they ask a store).

mod attribute;
mod caller;
mod error;
pub mod local;
pub mod memory;
mod metadata;
mod path;
mod resume;
mod retry;
mod store;
pub mod sys;

pub use attribute::{MAX_ATTRIBUTE_NAME_BYTES, MAX_ATTRIBUTE_VALUE_BYTES};
pub use caller::{Caller, Secret};
pub use error::{Blame, Error, Fault, Kind, Result, gone, os_message};
pub use metadata::{DirectoryId, FileKind, Metadata, Residency, Space, VersionTag};
pub use path::{MAX_NAME_BYTES, MAX_PATH_BYTES, PathError, Printable, StorePath, is_obeyed};
pub use resume::{InvalidResumeKey, MAX_PRESENT_EXTENTS, ResumeKey};
pub use retry::{Backoff, RetryBudget};
pub use store::{
    ByteRange, Capabilities, Changes, ContentStream, CreateOptions, Entry, Expectation, ListOptions, Listing,
    OpenOptions, Overwrite, Place, READ_BYTES, ReadHandle, Store, VectorReads, WriteHandle,
};
