//! Counters, exported to Prometheus at `/metrics`.

use prometheus_client::{
    encoding::{EncodeLabelSet, text::encode},
    metrics::{
        counter::Counter,
        family::Family,
        gauge::Gauge,
        histogram::{Histogram, exponential_buckets},
    },
    registry::{Registry, Unit},
};
use towpath_store::Fault;

use crate::third_party::Direction;

/// The protocol of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Face {
    /// The xroot protocol.
    Xrootd,
    /// HTTP and WebDAV.
    Http,
}

impl Face {
    /// Returns the name in labels and logs.
    pub fn name(self) -> &'static str {
        match self {
            Face::Xrootd => "xrootd",
            Face::Http => "http",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    face: &'static str,
    verb: &'static str,
    outcome: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct DenialLabels {
    face: &'static str,
    reason: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct FaceLabels {
    face: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct DirectionLabels {
    direction: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CopyLabels {
    direction: &'static str,
    outcome: &'static str,
}

/// All counters of a server.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    /// Open connections.
    pub connections: Gauge,
    /// Accepted connections.
    pub accepted: Counter,
    /// Clients disconnected because they were idle or slow, or violated the protocol.
    pub disconnected: Counter,
    /// Access log lines lost because the writer was too slow or failed.
    pub log_lines_lost: Counter,
    requests: Family<RequestLabels, Counter>,
    denials: Family<DenialLabels, Counter>,
    seconds: Family<FaceLabels, Histogram>,
    sent: Family<FaceLabels, Counter>,
    received: Family<FaceLabels, Counter>,
    copies: Family<CopyLabels, Counter>,
    copied: Family<DirectionLabels, Counter>,
}

impl Default for Metrics {
    fn default() -> Self {
        let mut registry = Registry::with_prefix("towpath");
        let metrics = Self {
            connections: Gauge::default(),
            accepted: Counter::default(),
            disconnected: Counter::default(),
            log_lines_lost: Counter::default(),
            requests: Family::default(),
            denials: Family::default(),
            seconds: Family::new_with_constructor(|| Histogram::new(exponential_buckets(0.000_05, 4.0, 12))),
            sent: Family::default(),
            received: Family::default(),
            copies: Family::default(),
            copied: Family::default(),
            registry: Registry::default(),
        };
        registry.register("connections", "Connections open now", metrics.connections.clone());
        registry.register("connections_accepted", "Connections accepted", metrics.accepted.clone());
        registry.register(
            "connections_dropped",
            "Connections ended because the client was idle, slow or violated the protocol",
            metrics.disconnected.clone(),
        );
        registry.register("access_log_lines_lost", "Access log lines lost", metrics.log_lines_lost.clone());
        registry.register("requests", "Requests answered, by outcome", metrics.requests.clone());
        registry.register("denials", "Requests denied for lack of rights, by reason", metrics.denials.clone());
        registry.register_with_unit("request", "Time to answer a request", Unit::Seconds, metrics.seconds.clone());
        registry.register_with_unit("sent", "File data sent", Unit::Bytes, metrics.sent.clone());
        registry.register_with_unit("received", "File data received", Unit::Bytes, metrics.received.clone());
        registry.register("third_party_copies", "Third-party copies ended, by outcome", metrics.copies.clone());
        let help = "File data that third-party copies have written";
        registry.register_with_unit("third_party_copied", help, Unit::Bytes, metrics.copied.clone());
        Self { registry, ..metrics }
    }
}

impl Metrics {
    /// Counts one completed request with its `fault`, if any. `verb` must come from a fixed set.
    pub(crate) fn record_request(&self, face: Face, verb: &'static str, fault: Option<Fault>, seconds: f64) {
        let outcome = fault.map_or("ok", Fault::name);
        self.requests.get_or_create(&RequestLabels { face: face.name(), verb, outcome }).inc();
        self.seconds.get_or_create(&FaceLabels { face: face.name() }).observe(seconds);
    }

    /// Counts one denied request. `reason` must come from a fixed set.
    pub(crate) fn record_denial(&self, face: Face, reason: &'static str) {
        self.denials.get_or_create(&DenialLabels { face: face.name(), reason }).inc();
    }

    /// Counts bytes of file data sent.
    pub(crate) fn record_sent(&self, face: Face, bytes: u64) {
        self.sent.get_or_create(&FaceLabels { face: face.name() }).inc_by(bytes);
    }

    /// Counts bytes of file data received.
    pub(crate) fn record_received(&self, face: Face, bytes: u64) {
        self.received.get_or_create(&FaceLabels { face: face.name() }).inc_by(bytes);
    }

    /// Counts one finished third-party copy that wrote `bytes`, with its `fault`, if any.
    pub(crate) fn record_copy(&self, direction: Direction, fault: Option<Fault>, bytes: u64) {
        let (direction, outcome) = (direction.name(), fault.map_or("ok", Fault::name));
        self.copies.get_or_create(&CopyLabels { direction, outcome }).inc();
        self.copied.get_or_create(&DirectionLabels { direction }).inc_by(bytes);
    }

    /// Renders all counters in the OpenMetrics text format.
    pub fn render(&self) -> String {
        let mut text = String::new();
        encode(&mut text, &self.registry).expect("writing to a string does not fail");
        text
    }
}
