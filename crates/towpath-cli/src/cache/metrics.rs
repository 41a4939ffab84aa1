//! Metrics of a cache.

use std::sync::Arc;

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge},
    registry::{Registry, Unit},
};
use towpath_cache::{Cache, CacheNamespace, QuotaStatistics};
use towpath_server::metrics::Collector;
use towpath_store::RequestTime;

/// The counters of a cache and its origins.
#[derive(Debug)]
pub(super) struct CacheMetrics {
    pub(super) cache: Cache,
    pub(super) namespace: Arc<CacheNamespace>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OriginLabel {
    origin: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct BytesLabels {
    origin: String,
    kind: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PartLabels {
    origin: String,
    part: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct QuotaLabels {
    path: String,
}

impl Collector for CacheMetrics {
    fn register_metrics(&self, registry: &mut Registry) {
        let (cache, origins) = (self.cache.statistics(), self.namespace.statistics());
        let entries = Gauge::<i64>::default();
        entries.set(i64::try_from(cache.entries).unwrap_or(i64::MAX));
        registry.register("cache_entries", "Entries found in the cache", entries);
        let space = Gauge::<i64>::default();
        space.set(i64::try_from(cache.bytes).unwrap_or(i64::MAX));
        registry.register_with_unit("cache_space", "Space of the entries", Unit::Bytes, space);
        register_quotas(&self.cache, registry);
        let failures = Counter::<u64>::default();
        failures.inc_by(cache.disk_failures);
        registry.register("cache_disk_failures", "Failed calls on the disk of the cache", failures);
        let bytes = Family::<BytesLabels, Counter>::default();
        let [requests, origin_failures, stale, missing] = [(); 4].map(|()| Family::<OriginLabel, Counter>::default());
        let times = Family::<PartLabels, Counter<f64>>::default();
        for (name, statistics) in origins {
            for (kind, count) in [
                ("served", statistics.served_bytes),
                ("missed", statistics.missed_bytes),
                ("bypassed", statistics.bypass_bytes),
                ("fetched", statistics.fetched_bytes),
                ("damaged", statistics.damaged_bytes),
            ] {
                bytes.get_or_create(&BytesLabels { origin: name.to_string(), kind }).inc_by(count);
            }
            let label = OriginLabel { origin: name.to_string() };
            requests.get_or_create(&label).inc_by(statistics.requests);
            origin_failures.get_or_create(&label).inc_by(statistics.failures);
            stale.get_or_create(&label).inc_by(statistics.stale);
            missing.get_or_create(&label).inc_by(statistics.missing);
            let RequestTime { total, server } = statistics.request_time;
            for (part, time) in [("storage", server), ("network", total.saturating_sub(server))] {
                let labels = PartLabels { origin: name.to_string(), part };
                times.get_or_create(&labels).inc_by(time.as_secs_f64());
            }
        }
        registry.register_with_unit(
            "cache_content",
            "Bytes of files: served through the cache, missed, bypassed, fetched from the origin, damaged on the disk",
            Unit::Bytes,
            bytes,
        );
        registry.register_with_unit(
            "cache_origin_request",
            "Time of requests to the origin: its storage, before a response begins, and the network",
            Unit::Seconds,
            times,
        );
        registry.register("cache_origin_requests", "Requests to the origin for data", requests);
        registry.register("cache_origin_failures", "Failed requests to the origin for data", origin_failures);
        registry.register(
            "cache_stale",
            "Opens and queries answered with a stale version, as the origin failed",
            stale,
        );
        registry.register("cache_missing", "Opens and queries of files known to be missing", missing);
    }
}

/// Registers the space of each quota, and its limit, by path of the cache.
fn register_quotas(cache: &Cache, registry: &mut Registry) {
    let (space, limits) = (Family::<QuotaLabels, Gauge>::default(), Family::<QuotaLabels, Gauge>::default());
    for QuotaStatistics { quota, bytes, .. } in cache.quotas() {
        let labels = QuotaLabels { path: quota.path.to_string() };
        space.get_or_create(&labels).set(i64::try_from(bytes).unwrap_or(i64::MAX));
        limits.get_or_create(&labels).set(i64::try_from(quota.max_bytes).unwrap_or(i64::MAX));
    }
    registry.register_with_unit("cache_quota_space", "Space of the entries of a quota", Unit::Bytes, space);
    registry.register_with_unit("cache_quota_max", "Maximum space of the entries of a quota", Unit::Bytes, limits);
}
