//! The mover: copies from any store to any store, verified in one pass.
//!
//! [`jobs`] turns pairs of places into [`Job`]s (one file each) as trees are listed. A [`Mover`] copies them side by side, bounded by nothing but
//! the bytes in flight ([`window`]), each by [`file::copy`]: read and written in pieces, compared at the end with what the source knows of itself.
//! Errors of single files come with their job; the others go on.

mod ahead;
mod clash;
mod existing;
mod extents;
mod file;
mod mover;
mod pace;
mod place;
mod third_party;
mod tree;
mod tuner;
mod walk;
mod window;

pub use file::{Copied, Route};
pub use mover::{Mover, Observer, Options, Outcome};
pub use pace::MOST_BYTES;
pub use place::{Place, Server};
pub use third_party::ThirdParty;
pub use tree::{Jobs, jobs};
pub use walk::{Batch, Walk};

/// One file to copy, or a tree.
#[derive(Debug, Clone)]
pub struct Job {
    /// Where it is.
    pub from: Place,
    /// Where it goes: its new name, not the directory above.
    pub to: Place,
    /// Its size in bytes as a listing told it; none if nobody has asked yet. Only what is reserved for it depends on it.
    pub size: Option<u64>,
}

impl Job {
    /// A job of which nothing is known yet.
    pub fn new(from: Place, to: Place) -> Self {
        Self { from, to, size: None }
    }
}
