//! Counters, and values that are read when they are requested, exported to Prometheus at `/metrics`.
//!
//! docs/guides/monitoring.md lists all of them.

mod exposition;
mod process;
mod space;

use std::{fmt, sync::Arc};

use futures::future::join_all;
use prometheus_client::{
    encoding::{
        EncodeLabelSet, EncodeLabelValue, LabelValueEncoder,
        text::{encode_eof, encode_registry},
    },
    metrics::{
        counter::Counter,
        family::Family,
        gauge::{ConstGauge, Gauge},
        histogram::{Histogram, exponential_buckets},
    },
    registry::{Registry, Unit},
};
use towpath_store::{Caller, Fault};

pub use self::exposition::Exposition;
pub(crate) use self::space::SpaceCache;
use crate::{Service, third_party::Direction};

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
struct TransferLabels {
    face: &'static str,
    issuer: Issuer,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct IssuerLabels {
    issuer: Issuer,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct BuildLabels {
    version: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ExportLabels {
    /// The path of the export.
    export: String,
}

/// The issuer of a caller's credentials, as a label: a configured token issuer, `password`, or `anonymous`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Issuer(Option<Arc<str>>, &'static str);

impl Issuer {
    /// The label of callers without credentials.
    pub(crate) const ANONYMOUS: Self = Self(None, "anonymous");

    /// Returns the label of a caller.
    pub(crate) fn of(caller: &Caller) -> Self {
        match (&caller.issuer, &caller.token) {
            (None, _) => Self::ANONYMOUS,
            (Some(_), None) => Self(None, "password"),
            (Some(issuer), Some(_)) => Self(Some(Arc::clone(issuer)), ""),
        }
    }
}

impl EncodeLabelValue for Issuer {
    fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> Result<(), fmt::Error> {
        EncodeLabelValue::encode(&self.0.as_deref().unwrap_or(self.1), encoder)
    }
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

/// A source of metrics in addition to those of every server.
pub trait Collector: Send + Sync + fmt::Debug {
    /// Adds the current values. Their names get the prefix `towpath_`. Called for each request of the metrics, on a
    /// thread shared with connections, so it must not block.
    fn register_metrics(&self, registry: &mut Registry);
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
    sent: Family<TransferLabels, Counter>,
    received: Family<TransferLabels, Counter>,
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
    pub(crate) fn record_sent(&self, face: Face, issuer: &Issuer, bytes: u64) {
        self.sent.get_or_create(&TransferLabels { face: face.name(), issuer: issuer.clone() }).inc_by(bytes);
    }

    /// Counts bytes of file data received.
    pub(crate) fn record_received(&self, face: Face, issuer: &Issuer, bytes: u64) {
        self.received.get_or_create(&TransferLabels { face: face.name(), issuer: issuer.clone() }).inc_by(bytes);
    }

    /// Counts one finished third-party copy that wrote `bytes`, with its `fault`, if any.
    pub(crate) fn record_copy(&self, direction: Direction, fault: Option<Fault>, bytes: u64) {
        let (direction, outcome) = (direction.name(), fault.map_or("ok", Fault::name));
        self.copies.get_or_create(&CopyLabels { direction, outcome }).inc();
        self.copied.get_or_create(&DirectionLabels { direction }).inc_by(bytes);
    }
}

impl Service {
    /// Renders all metrics.
    pub async fn render_metrics(&self, format: Exposition) -> String {
        let mut text = String::new();
        for registry in [&self.metrics.registry, &self.sample().await] {
            encode_registry(&mut text, registry).expect("writing to a string does not fail");
        }
        encode_eof(&mut text).expect("writing to a string does not fail");
        format.convert(text)
    }

    /// Reads the values that are not counted. Those that are not known are left out.
    async fn sample(&self) -> Registry {
        let mut root = Registry::default();
        process::register(&mut root, self.started_s);
        let registry = root.sub_registry_with_prefix("towpath");
        let build: Family<BuildLabels, Gauge> = Family::default();
        build.get_or_create(&BuildLabels { version: env!("CARGO_PKG_VERSION") }).set(1);
        registry.register("build_info", "Version of the server", build);
        if let Some(expires_s) = self.tls().and_then(|tls| tls.expires_s) {
            let (name, help) = ("certificate_expiry_timestamp", "Expiry of the certificate since the Unix epoch");
            registry.register_with_unit(name, help, Unit::Seconds, ConstGauge::new(expires_s));
        }
        let issuers: Family<IssuerLabels, Gauge> = Family::default();
        for (issuer, is_reachable) in self.access().issuers() {
            let issuer = Issuer(Some(issuer), "");
            issuers.get_or_create(&IssuerLabels { issuer }).set(is_reachable.into());
        }
        registry.register("issuer_reachable", "Whether the last fetch of the token issuer's keys succeeded", issuers);
        if self.application.is_none() {
            self.register_space(registry).await;
        }
        self.collectors.iter().for_each(|collector| collector.register_metrics(registry));
        root
    }

    /// Registers the space of each export, if its file system responds.
    async fn register_space(&self, registry: &mut Registry) {
        let [responsive, sizes, free]: [Family<ExportLabels, Gauge>; 3] = Default::default();
        let queries = self.space.iter().map(|cache| async { (&cache.prefix, cache.get(&self.store).await) });
        for (prefix, space) in join_all(queries).await {
            let labels = ExportLabels { export: prefix.to_string() };
            responsive.get_or_create(&labels).set(space.is_some().into());
            let Some(space) = space else { continue };
            sizes.get_or_create(&labels).set(process::saturate(space.total));
            free.get_or_create(&labels).set(process::saturate(space.free));
        }
        registry.register("export_responsive", "Whether the file system of an export responds", responsive);
        registry.register_with_unit("export_size", "Size of the file system of an export", Unit::Bytes, sizes);
        registry.register_with_unit("export_free", "Free space of an export", Unit::Bytes, free);
    }
}
