//! `prepare`: bringing files online. Stores keep files online, or stage them themselves when they are read, so the
//! response only reports whether each file exists.

use std::fmt::Write as _;

use bytes::Bytes;
use towpath_proto::xrootd::{PrepareOptions, PrepareOptionsX, request::Prepare};
use towpath_store::{Fault, sys::random};

use super::active_request::{ActiveRequest, ErrorResponse, ServeResult};
use crate::access::Activity;

/// Maximum number of files in one request; each costs a store call.
const MAX_FILES: usize = 1024;

/// Handles `prepare`: returns the id of the request if all files exist. Cancelling and evicting always succeed
/// without effect.
pub(super) async fn prepare(active_request: &ActiveRequest, request: &Prepare) -> ServeResult {
    if request.options.contains(PrepareOptions::cancel) || request.options_x.contains(PrepareOptionsX::evict) {
        return active_request.done();
    }
    for (number, path) in request.paths().enumerate() {
        if number >= MAX_FILES {
            return Err(
                ErrorResponse::new(Fault::NameTooLong, format!("more than {MAX_FILES} files in one request")).into()
            );
        }
        let (identity, path) = active_request.subject(&path).await?;
        identity.check(Activity::Stage, &path)?;
        active_request.session.service.store.stat(&identity.caller, &path).await?;
    }
    let mut id = String::new();
    write!(id, "{:016x}", random::number()).expect("writing to a string does not fail");
    active_request.ok(&Bytes::from(id))
}

/// Handles `query prepare`: requests complete immediately and are not tracked.
pub(super) fn status() -> ErrorResponse {
    ErrorResponse::new(Fault::Unsupported, "staging requests complete at once and are not tracked: use `stat`")
}
