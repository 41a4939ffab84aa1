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
    looking_glass::{self, Dialect, Unreadable},
    measurements::{Beside, Doubts, Measurements},
    mrt,
    rib::RouteTables,
    sites::{SiteOptions, Sites},
};
use towpath_alto::{
    agent_state::{AgentState, PidCosts, Prefix, Router},
    geo::Locations,
    names::{CostMetric, NodeName, PidName, ResourceId, RouterName, TopologyName},
    routes::Table,
};
use towpath_store::sys::{clock, disk};

use super::settings::agent::AgentConfig;

/// Maximum size of a file that is read whole, in bytes.
const FILE_BYTES: u64 = 256 << 20;

/// The known PIDs by network map.
pub(super) type Pids = BTreeMap<ResourceId, BTreeSet<PidName>>;

/// Response to one request of an agent.
#[derive(Debug)]
pub(super) struct Material {
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
pub(super) enum Knowledge {
    /// Facts.
    AgentState(Box<AgentState>),
    /// Measurements, which become facts once the PIDs are known.
    Results(Results),
}

impl Knowledge {
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
pub(super) enum Before {
    /// Nothing.
    Nothing,
    /// Something.
    Something,
    /// Results of these documents, used in place of new versions that are unavailable.
    Results(Results),
}

/// Outcome of reading an agent's documents.
#[derive(Debug)]
pub(super) struct Reading {
    /// The agent's current knowledge.
    pub knowledge: Knowledge,
    /// Problem of the first document replaced by its previous version.
    pub trouble: Option<String>,
}

impl AgentConfig {
    /// Reads the `materials` of an agent, one per request. Reads files and parses text, so that it may block.
    pub(super) fn read(&self, materials: Vec<Material>, before: &Before) -> Result<Reading, String> {
        let is_first = matches!(before, Before::Nothing);
        let knowledge = match self {
            AgentConfig::Static { .. } => read_single(materials, facts),
            AgentConfig::Mrt { files, .. } => routes_of_dumps(files, is_first),
            AgentConfig::LookingGlass { router, serves, .. } => routes_of_pages(materials, router, serves, is_first),
            AgentConfig::Sites { map, .. } => read_single(materials, |material| sites(material, map)),
            AgentConfig::Topology { name, attach, .. } => {
                read_single(materials, |material| links(material, name, attach))
            }
            AgentConfig::GeoIp { .. } => read_single(materials, locations),
            AgentConfig::Measurements { here, source, destination, event, map, .. } => {
                let [here, source, destination, event] = [here, source, destination, event].map(Option::as_deref);
                return measurements(materials, Beside { here, source, destination, event }, map, before);
            }
            AgentConfig::Program { .. } | AgentConfig::Bmp { .. } | AgentConfig::Delegate(_) => {
                Err("internal error: this kind of agent is not polled".into())
            }
        };
        knowledge.map(|knowledge| Reading { knowledge, trouble: None })
    }
}

impl Material {
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
    materials: Vec<Material>,
    read: impl Fn(Material) -> Result<AgentState, String>,
) -> Result<Knowledge, String> {
    let material = materials.into_iter().next().ok_or("internal error: the agent has no request")?;
    read(material).map(Knowledge::of)
}

fn facts(material: Material) -> Result<AgentState, String> {
    let (source, text) = material.into_text()?;
    AgentState::parse(&text).map_err(|error| source_error(&source, &error))
}

/// Reads a topology with its attached prefixes.
fn links(
    material: Material,
    name: &TopologyName,
    attach: &BTreeMap<NodeName, BTreeSet<Prefix>>,
) -> Result<AgentState, String> {
    let (source, text) = material.into_text()?;
    AgentState::of_topology(&text, name.clone(), attach.clone()).map_err(|error| source_error(&source, &error))
}

/// Reads a geolocation database.
fn locations(material: Material) -> Result<AgentState, String> {
    let (source, bytes) = material.into_bytes()?;
    let locations = Locations::read(bytes).map_err(|error| source_error(&source, &error))?;
    Ok(AgentState { locations: Some(Arc::new(locations)), ..AgentState::default() })
}

/// Reads dumps in chronological order: a table and subsequent updates. A truncated table is accepted only if nothing is
/// known yet.
fn routes_of_dumps(files: &[PathBuf], may_be_partial: bool) -> Result<Knowledge, String> {
    let mut feed = RouteTables::default();
    for file in files {
        read_dump(file, may_be_partial, &mut feed).map_err(|error| format!("{}: {error}", file.display()))?;
    }
    Ok(Knowledge::of(AgentState { routers: feed.routers(), ..AgentState::default() }))
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
        return Err("it is cut off within a table, perhaps because it is still being written".into());
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
    materials: Vec<Material>,
    router: &RouterName,
    serves: &[Prefix],
    may_be_partial: bool,
) -> Result<Knowledge, String> {
    let (mut routes, mut failures) = (Table::default(), Vec::new());
    let (mut is_silent, mut first_empty) = (false, None);
    for material in materials {
        let (source, bytes) = material.into_bytes()?;
        match read_page(&source, &bytes, &mut routes) {
            Ok(dialect) => is_silent |= dialect.is_some_and(Dialect::is_silent),
            Err(error) if may_be_partial || error.is_answer() => failures.push(source_error(&source, &error)),
            Err(Unreadable::Nothing) => {
                let empty = source_error(&source, &Unreadable::Nothing);
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
        return Err(failures.into_iter().next().unwrap_or("there is no route".into()));
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
    Ok(Knowledge::of(AgentState { routers: BTreeMap::from([(router.clone(), reported)]), ..AgentState::default() }))
}

/// Adds the routes of one page and returns its dialect.
fn read_page(source: &str, bytes: &[u8], routes: &mut Table) -> Result<Option<Dialect>, Unreadable> {
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
fn sites(material: Material, map: &ResourceId) -> Result<AgentState, String> {
    let (source, bytes) = material.into_bytes()?;
    let sites = Sites::parse(&bytes).map_err(|error| source_error(&source, &error))?;
    let (facts, doubts) = sites.facts(&SiteOptions { map: map.clone(), ..SiteOptions::default() });
    if let Some(first) = doubts.first() {
        tracing::warn!("{source}: {} doubts, the first: {first}", doubts.len());
    }
    Ok(facts)
}

/// Reads measurements, one document after another. A document that cannot be read is replaced by its previous version
/// if there is one and others can be read.
fn measurements(
    materials: Vec<Material>,
    beside: Beside<'_>,
    map: &ResourceId,
    before: &Before,
) -> Result<Reading, String> {
    let may_be_empty = matches!(before, Before::Nothing);
    let (mut documents, mut troubles) = (Vec::new(), Vec::new());
    for (number, material) in materials.into_iter().enumerate() {
        match (results(material, beside, may_be_empty), before) {
            (Ok(document), _) => documents.push(document),
            (Err(trouble), Before::Results(earlier)) => {
                documents.extend(earlier.documents.get(number).cloned());
                troubles.push(trouble);
            }
            (Err(trouble), _) => return Err(trouble),
        }
    }
    let is_all = troubles.len() == documents.len();
    match troubles.into_iter().next() {
        Some(first) if is_all => Err(first),
        trouble => Ok(Reading { knowledge: Knowledge::Results(Results { map: map.clone(), documents }), trouble }),
    }
}

/// Reads the measurements of one document. A document with only invalid samples does not replace a previous one,
/// because its producer may have failed.
fn results(material: Material, beside: Beside<'_>, may_be_empty: bool) -> Result<(String, Arc<Measurements>), String> {
    let (source, bytes) = material.into_bytes()?;
    let results = Measurements::parse_beside(&bytes, None, beside).map_err(|error| source_error(&source, &error))?;
    match &results.doubts().first {
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
            let (facts, doubts) = results.facts_among(&self.map, |pid| names.is_some_and(|names| names.contains(pid)));
            if let Doubts { skipped, first: Some(first) } = doubts {
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
