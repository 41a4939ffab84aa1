//! The result of a copy.

use std::time::Duration;

use crate::verified_digest::VerifiedDigest;

/// A file that arrived.
#[derive(Debug)]
pub struct CopiedFile {
    /// Its size in bytes.
    pub bytes: u64,
    /// Digests that both ends have, and their origins. Empty if the source knew no digest and none was requested: then
    /// only the size was compared.
    pub verified: Vec<VerifiedDigest>,
    /// The route of its bytes.
    pub route: Route,
    /// Time from its permit to its commit.
    pub took: Duration,
}

/// The route of the bytes of a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Route {
    /// Through this machine.
    Streamed,
    /// The destination fetched the file from the source.
    Pulled,
    /// The source sent the file to the destination.
    Pushed,
}

impl Route {
    /// Returns the name of the route in JSON output.
    pub fn name(self) -> &'static str {
        match self {
            Route::Streamed => "streamed",
            Route::Pulled => "pull",
            Route::Pushed => "push",
        }
    }
}
