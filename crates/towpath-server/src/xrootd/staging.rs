//! `prepare`: bringing files on line. Stores here have them on line, or bring them by themselves when they are read; so what can be
//! said is whether each is there.

use std::fmt::Write as _;

use bytes::Bytes;
use towpath_proto::xrootd::{PrepareOptions, PrepareOptionsX, request::Prepare};
use towpath_store::{Fault, sys::random};

use super::exchange::{Exchange, Refusal, Served};
use crate::access::Activity;

/// The most files in one request: each costs a call of the store.
const MAX_FILES: usize = 1024;

/// Answers `prepare`: the id of the request, if all files are there. Cancelling, and letting files go, always succeed: there is
/// nothing to do.
pub(super) async fn prepare(exchange: &Exchange, request: &Prepare) -> Served {
    if request.options.contains(PrepareOptions::cancel) || request.options_x.contains(PrepareOptionsX::evict) {
        return exchange.done();
    }
    for (number, path) in request.paths().enumerate() {
        if number >= MAX_FILES {
            return Err(Refusal::new(Fault::NameTooLong, format!("more than {MAX_FILES} files in one request")).into());
        }
        let (identity, path) = exchange.subject(&path).await?;
        identity.check(Activity::Stage, &path)?;
        exchange.session.service.store.stat(&identity.caller, &path).await?;
    }
    let mut id = String::new();
    write!(id, "{:016x}", random::number()).expect("writing to a string does not fail");
    exchange.ok(&Bytes::from(id))
}

/// Answers `query prepare`: requests are done when they are answered, and then forgotten.
pub(super) fn status() -> Refusal {
    Refusal::new(Fault::Unsupported, "staging requests complete at once and are not tracked: use `stat`")
}
