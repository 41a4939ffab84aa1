//! Metrics of the ALTO server, beside those that all servers have ([`towpath_server::metrics`]). All values are read when
//! they are requested. docs/guides/monitoring.md lists them.

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{
        counter::Counter,
        family::Family,
        gauge::{ConstGauge, Gauge},
    },
    registry::{Registry, Unit},
};
use towpath_alto_sources::AgentStatistics;

use super::service::Snapshot;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResourceLabels {
    media_type: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct AgentLabels {
    agent: String,
}

impl AgentLabels {
    fn of(statistics: &AgentStatistics) -> Self {
        Self { agent: statistics.name().to_owned() }
    }
}

/// Adds the resources of the directory, by media type.
pub(super) fn register_resources(registry: &mut Registry, snapshot: &Snapshot) {
    let resources: Family<ResourceLabels, Gauge> = Family::default();
    for resource in snapshot.directory.resources() {
        resources.get_or_create(&ResourceLabels { media_type: resource.media_type() }).inc();
    }
    registry.register("alto_resources", "Resources of the directory, by media type", resources);
}

/// Adds the numbers of clients that follow resources.
pub(super) fn register_followers(registry: &mut Registry, streams: usize, views: usize) {
    let gauge = |count: usize| ConstGauge::new(i64::try_from(count).unwrap_or(i64::MAX));
    registry.register("alto_update_streams", "Update streams open now", gauge(streams));
    registry.register("alto_tips_views", "TIPS views open now", gauge(views));
}

/// Adds the state of the agents. `is_stale` returns whether the facts of the agent with a name may be out of date.
pub(super) fn register_agents<'a>(
    registry: &mut Registry,
    agents: impl Iterator<Item = &'a AgentStatistics>,
    is_stale: impl Fn(&str) -> bool,
) {
    let stale: Family<AgentLabels, Gauge> = Family::default();
    let successes: Family<AgentLabels, Gauge> = Family::default();
    let failures: Family<AgentLabels, Counter> = Family::default();
    for agent in agents {
        let labels = AgentLabels::of(agent);
        stale.get_or_create(&labels).set(is_stale(agent.name()).into());
        failures.get_or_create(&labels).inc_by(agent.failures());
        if let Some(at_s) = agent.last_success_s() {
            successes.get_or_create(&labels).set(at_s);
        }
    }
    registry.register("alto_agent_stale", "Whether the facts of the agent may be out of date", stale);
    registry.register("alto_agent_failures", "Reports of the agent with a problem", failures);
    let (name, help) = ("alto_agent_last_success_timestamp", "Last report of the agent without a problem");
    registry.register_with_unit(name, help, Unit::Seconds, successes);
}
