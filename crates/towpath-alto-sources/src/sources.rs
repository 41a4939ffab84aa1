//! Parses the documents of agents into facts, with one reader per kind of agent.

#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Display,
    io::BufReader,
    path::{Path, PathBuf},
    sync::Arc,
};

use crate::{
    looking_glass::{self, Dialect, LookingGlassError},
    measurements::{MeasurementContext, Measurements, SkippedSamples},
    mrt,
    rib::RouteTables,
    sites::{SiteOptions, Sites},
};
use towpath_alto::{
    agent_state::{AgentState, PidCosts, Prefix, Router},
    geo::Locations,
    names::{CostMetric, NodeName, PidName, ResourceId, RouterName, TopologyName},
    routes::RouteTable,
};
use towpath_store::sys::{clock, disk};

use super::settings::agent::AgentConfig;

/// Maximum size of a file that is read whole, in bytes.
const FILE_BYTES: u64 = 256 << 20;

/// The known PIDs by network map.
pub(super) type Pids = BTreeMap<ResourceId, BTreeSet<PidName>>;

/// Response to one request of an agent.
#[derive(Debug)]
pub(super) struct SourceResponse {
    /// Where it comes from, for messages.
    pub source: String,
    /// The content.
    pub content: Content,
}

/// Content of a response.
#[derive(Debug)]
pub(super) enum Content {
    /// A file, not read yet.
    File(PathBuf),
    /// The body of a server's response.
    Bytes(Vec<u8>),
    /// Nothing, and the reason.
    Missing(String),
}

/// What an agent knows.
#[derive(Debug)]
pub(super) enum AgentData {
    /// Facts.
    AgentState(Box<AgentState>),
    /// Measurements, which become facts once the PIDs are known.
    Results(Results),
}

impl AgentData {
    /// Wraps facts.
    pub(super) fn of(facts: AgentState) -> Self {
        Self::AgentState(Box::new(facts))
    }
}

/// Measurement results.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Results {
    /// The network map that PIDs refer to.
    map: ResourceId,
    /// Documents in order, each with its source.
    documents: Vec<(String, Arc<Measurements>)>,
}

/// What an agent knew before a reading.
#[derive(Debug)]
pub(super) enum PreviousData {
    /// Nothing.
    Nothing,
    /// Something.
    Something,
    /// Results of these documents, used in place of new versions that are unavailable.
    Results(Results),
}

/// Outcome of reading an agent's documents.
#[derive(Debug)]
pub(super) struct ReadOutcome {
    /// The agent's current knowledge.
    pub agent_data: AgentData,
    /// Problem of the first document replaced by its previous version.
    pub trouble: Option<String>,
}

impl AgentConfig {
    /// Reads the `responses` of an agent, one per request. Reads files and parses text, so that it may block.
    pub(super) fn read(&self, responses: Vec<SourceResponse>, before: &PreviousData) -> Result<ReadOutcome, String> {
        let is_first = matches!(before, PreviousData::Nothing);
        let agent_data = match self {
            AgentConfig::Static { .. } => read_single(responses, facts),
            AgentConfig::Mrt { files, .. } => routes_of_dumps(files, is_first),
            AgentConfig::LookingGlass { router, serves, .. } => routes_of_pages(responses, router, serves, is_first),
            AgentConfig::Sites { map, .. } => read_single(responses, |response| sites(response, map)),
            AgentConfig::Topology { name, attach, .. } => {
                read_single(responses, |response| links(response, name, attach))
            }
            AgentConfig::GeoIp { .. } => read_single(responses, locations),
            AgentConfig::Measurements { here, source, destination, event, map, .. } => {
                let [here, source, destination, event] = [here, source, destination, event].map(Option::as_deref);
                return measurements(responses, MeasurementContext { here, source, destination, event }, map, before);
            }
            AgentConfig::Program { .. } | AgentConfig::Bmp { .. } | AgentConfig::Delegate(_) => {
                Err("internal error: this kind of agent is not polled".into())
            }
        };
        agent_data.map(|agent_data| ReadOutcome { agent_data, trouble: None })
    }
}

impl SourceResponse {
    /// Returns the complete content.
    fn into_bytes(self) -> Result<(String, Vec<u8>), String> {
        let bytes = match self.content {
            Content::Bytes(bytes) => bytes,
            Content::Missing(trouble) => return Err(trouble),
            Content::File(path) => disk::read(&path, FILE_BYTES).map_err(|error| source_error(&self.source, &error))?,
        };
        Ok((self.source, bytes))
    }

    /// Returns the content as text.
    fn into_text(self) -> Result<(String, String), String> {
        let (source, bytes) = self.into_bytes()?;
        let text = String::from_utf8(bytes).map_err(|error| source_error(&source, &error))?;
        Ok((source, text))
    }
}

fn source_error(source: &str, error: &dyn Display) -> String {
    format!("{source}: {error}")
}

/// Returns the facts of an agent with a single document.
fn read_single(
    responses: Vec<SourceResponse>,
    read: impl Fn(SourceResponse) -> Result<AgentState, String>,
) -> Result<AgentData, String> {
    let response = responses.into_iter().next().ok_or("internal error: the agent has no request")?;
    read(response).map(AgentData::of)
}

fn facts(response: SourceResponse) -> Result<AgentState, String> {
    let (source, text) = response.into_text()?;
    AgentState::parse(&text).map_err(|error| source_error(&source, &error))
}

/// Reads a topology with its attached prefixes.
fn links(
    response: SourceResponse,
    name: &TopologyName,
    attach: &BTreeMap<NodeName, BTreeSet<Prefix>>,
) -> Result<AgentState, String> {
    let (source, text) = response.into_text()?;
    AgentState::of_topology(&text, name.clone(), attach.clone()).map_err(|error| source_error(&source, &error))
}

/// Reads a geolocation database.
fn locations(response: SourceResponse) -> Result<AgentState, String> {
    let (source, bytes) = response.into_bytes()?;
    let locations = Locations::read(bytes).map_err(|error| source_error(&source, &error))?;
    Ok(AgentState { locations: Some(Arc::new(locations)), ..AgentState::default() })
}

/// Reads dumps in chronological order: a table and subsequent updates. A truncated table is accepted only if nothing is
/// known yet.
fn routes_of_dumps(files: &[PathBuf], may_be_partial: bool) -> Result<AgentData, String> {
    let mut feed = RouteTables::default();
    for file in files {
        read_dump(file, may_be_partial, &mut feed).map_err(|error| format!("{}: {error}", file.display()))?;
    }
    Ok(AgentData::of(AgentState { routers: feed.routers(), ..AgentState::default() }))
}

fn read_dump(file: &Path, may_be_partial: bool, feed: &mut RouteTables) -> Result<(), String> {
    let source = disk::open(file).map_err(|error| error.to_string())?;
    let now = clock::now().into_std();
    let take = |event| feed.take_dumped(event, now);
    let summary = mrt::read(BufReader::new(source), take).map_err(|error| error.to_string())?;
    if let Some(reason) = &summary.first_skipped {
        tracing::warn!("{}: {} records were skipped, the first: {reason}", file.display(), summary.skipped);
    }
    if summary.is_table_truncated && !may_be_partial {
        return Err("it is truncated within a table, perhaps because it is still being written".into());
    }
    if summary.is_truncated {
        tracing::warn!("{}: truncated; using the records before", file.display());
    }
    Ok(())
}

/// Reads the output of a looking glass for one router, as one or several texts or pages. At least one must have a
/// route; each other must state that there is none, unless nothing was known before. Otherwise routes would vanish
/// while the looking glass is busy. An empty page counts as no routes only if another page shows that the router prints
/// nothing in that case.
fn routes_of_pages(
    responses: Vec<SourceResponse>,
    router: &RouterName,
    serves: &[Prefix],
    may_be_partial: bool,
) -> Result<AgentData, String> {
    let (mut routes, mut failures) = (RouteTable::default(), Vec::new());
    let (mut is_silent, mut first_empty) = (false, None);
    for response in responses {
        let (source, bytes) = response.into_bytes()?;
        match read_page(&source, &bytes, &mut routes) {
            Ok(dialect) => is_silent |= dialect.is_some_and(Dialect::is_silent),
            Err(error) if may_be_partial || error.is_answer() => failures.push(source_error(&source, &error)),
            Err(LookingGlassError::Nothing) => {
                let empty = source_error(&source, &LookingGlassError::Nothing);
                first_empty.get_or_insert_with(|| empty.clone());
                failures.push(empty);
            }
            Err(error) => return Err(source_error(&source, &error)),
        }
    }
    if let Some(first) = first_empty.filter(|_| !is_silent) {
        return Err(first);
    }
    if routes.is_empty() {
        return Err(failures.into_iter().next().unwrap_or("no route".into()));
    }
    if let Some(first) = failures.first() {
        tracing::warn!("{} queries returned no route, the first: {first}", failures.len());
    }
    let reported = Router {
        serves: serves.iter().copied().collect(),
        default: serves.is_empty(),
        routes: Some(Arc::new(routes)),
        ..Router::default()
    };
    Ok(AgentData::of(AgentState { routers: BTreeMap::from([(router.clone(), reported)]), ..AgentState::default() }))
}

/// Adds the routes of one page and returns its dialect.
fn read_page(source: &str, bytes: &[u8], routes: &mut RouteTable) -> Result<Option<Dialect>, LookingGlassError> {
    // Router output is ASCII; the surrounding page may have any encoding.
    let page = String::from_utf8_lossy(bytes);
    let block = looking_glass::first_block(&page);
    let text = block.as_deref().unwrap_or(&page);
    let table = looking_glass::parse(text)?;
    if let Some(first) = table.skipped.first() {
        tracing::warn!("{source}: {} lines were skipped, the first: {first}", table.skipped.len());
    }
    table.routes.into_iter().for_each(|route| routes.insert(route));
    Ok(Dialect::detect(text))
}

/// Reads a registry of sites.
fn sites(response: SourceResponse, map: &ResourceId) -> Result<AgentState, String> {
    let (source, bytes) = response.into_bytes()?;
    let sites = Sites::parse(&bytes).map_err(|error| source_error(&source, &error))?;
    let (facts, warnings) = sites.facts(&SiteOptions { map: map.clone(), ..SiteOptions::default() });
    if let Some(first) = warnings.first() {
        tracing::warn!("{source}: {} warnings, the first: {first}", warnings.len());
    }
    Ok(facts)
}

/// Reads measurements, one document after another. A document that cannot be read is replaced by its previous version
/// if there is one and others can be read.
fn measurements(
    responses: Vec<SourceResponse>,
    context: MeasurementContext<'_>,
    map: &ResourceId,
    before: &PreviousData,
) -> Result<ReadOutcome, String> {
    let may_be_empty = matches!(before, PreviousData::Nothing);
    let (mut documents, mut troubles) = (Vec::new(), Vec::new());
    for (number, response) in responses.into_iter().enumerate() {
        match (results(response, context, may_be_empty), before) {
            (Ok(document), _) => documents.push(document),
            (Err(trouble), PreviousData::Results(earlier)) => {
                documents.extend(earlier.documents.get(number).cloned());
                troubles.push(trouble);
            }
            (Err(trouble), _) => return Err(trouble),
        }
    }
    let is_all = troubles.len() == documents.len();
    match troubles.into_iter().next() {
        Some(first) if is_all => Err(first),
        trouble => Ok(ReadOutcome { agent_data: AgentData::Results(Results { map: map.clone(), documents }), trouble }),
    }
}

/// Reads the measurements of one document. A document with only invalid samples does not replace a previous one,
/// because its producer may have failed.
fn results(
    response: SourceResponse,
    context: MeasurementContext<'_>,
    may_be_empty: bool,
) -> Result<(String, Arc<Measurements>), String> {
    let (source, bytes) = response.into_bytes()?;
    let results =
        Measurements::parse_in_context(&bytes, None, context).map_err(|error| source_error(&source, &error))?;
    match &results.skipped_samples().first {
        Some(first) if results.is_empty() && !may_be_empty => Err(source_error(&source, first)),
        _ => Ok((source, Arc::new(results))),
    }
}

impl Results {
    /// Returns the facts for the known PIDs. Later documents take precedence; skipped samples are logged.
    pub(super) fn facts(&self, pids: &Pids) -> AgentState {
        let names = pids.get(&self.map);
        let mut all = AgentState::default();
        for (source, results) in &self.documents {
            let (facts, skipped_samples) =
                results.facts_among(&self.map, |pid| names.is_some_and(|names| names.contains(pid)));
            if let SkippedSamples { skipped, first: Some(first) } = skipped_samples {
                tracing::warn!("{source}: {skipped} results were skipped, the first: {first}");
            }
            all.costs.extend(facts.costs);
            for (map, metrics) in facts.cost_map {
                add_costs(all.cost_map.entry(map).or_default(), metrics);
            }
        }
        all
    }
}

/// Merges costs between PIDs, replacing earlier ones.
fn add_costs(all: &mut BTreeMap<CostMetric, PidCosts>, metrics: BTreeMap<CostMetric, PidCosts>) {
    for (metric, rows) in metrics {
        let merged = all.entry(metric).or_default();
        for (src, row) in rows {
            merged.entry(src).or_default().extend(row);
        }
    }
}
