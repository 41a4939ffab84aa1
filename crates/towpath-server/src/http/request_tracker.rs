//! The tracker of one request: one line in the access log and one count in the metrics when its response has ended.

use std::sync::Arc;

use towpath_store::{
    Caller, Fault,
    sys::clock::{self, Instant},
};

use super::{connection_state::ConnectionState, refusal::Refusal, watchdog::RequestGuard};
use crate::{
    Service,
    access::Denial,
    access_log::Record,
    metrics::{Face, Issuer},
};

/// Kept from a request's arrival to the last byte of its response. If dropped earlier, it counts as cancelled by the
/// client unless reading a file failed.
#[derive(Debug)]
pub(super) struct RequestTracker {
    service: Arc<Service>,
    connection: Arc<ConnectionState>,
    verb: &'static str,
    path: String,
    subject: Option<Arc<str>>,
    issuer: Option<Arc<str>>,
    /// The label of the issuer in the metrics.
    issuer_label: Issuer,
    began: Instant,
    sent: u64,
    received: u64,
    refused: Option<Fault>,
    denial: Option<Denial>,
    finished: bool,
    _guard: RequestGuard,
}

impl RequestTracker {
    /// Opens the tracker of a request for `path`, which must not contain the query.
    pub(super) fn open(
        service: &Arc<Service>,
        connection: &Arc<ConnectionState>,
        verb: &'static str,
        path: String,
        multiplexed: bool,
    ) -> Self {
        Self {
            service: Arc::clone(service),
            connection: Arc::clone(connection),
            verb,
            path,
            subject: None,
            issuer: None,
            issuer_label: Issuer::ANONYMOUS,
            began: clock::now(),
            sent: 0,
            received: 0,
            refused: None,
            denial: None,
            finished: false,
            _guard: connection.watchdog.begin_request(multiplexed),
        }
    }

    /// Records the caller once it is authenticated.
    pub(super) fn set_caller(&mut self, caller: &Caller) {
        self.subject.clone_from(&caller.subject);
        self.issuer.clone_from(&caller.issuer);
        self.issuer_label = Issuer::of(caller);
    }

    /// Counts bytes of the response written to the connection.
    pub(super) fn sent(&mut self, bytes: u64) {
        self.sent += bytes;
        self.service.metrics.record_sent(Face::Http, &self.issuer_label, bytes);
    }

    /// Counts received bytes of an upload.
    pub(super) fn received(&mut self, bytes: u64) {
        self.received += bytes;
        self.service.metrics.record_received(Face::Http, &self.issuer_label, bytes);
    }

    /// Records that the operation failed although its response is not a refusal.
    pub(super) fn set_fault(&mut self, fault: Fault) {
        self.refused = Some(fault);
    }

    /// Records that the request is rejected; its response is still to be sent.
    pub(super) fn set_refusal(&mut self, refusal: &Refusal) {
        self.refused = Some(refusal.fault());
        self.denial = refusal.denial();
    }

    /// Closes the tracker of a complete response.
    pub(super) fn finish(mut self) {
        self.finished = true;
    }

    /// Closes the tracker of a response that was cut short by `fault`.
    pub(super) fn fail(mut self, fault: Fault) {
        self.refused = Some(fault);
    }
}

impl Drop for RequestTracker {
    fn drop(&mut self) {
        let cut_short = || self.connection.span_queue.failure().unwrap_or(Fault::Cancelled);
        self.service.record_request(&Record {
            face: Face::Http,
            peer: self.connection.peer,
            subject: self.subject.as_deref(),
            issuer: self.issuer.as_deref(),
            verb: self.verb,
            path: format_args!("{}", self.path),
            fault: self.refused.or_else(|| (!self.finished).then(cut_short)),
            denial: self.denial.as_ref(),
            bytes: self.sent + self.received,
            took: clock::now() - self.began,
        });
    }
}
