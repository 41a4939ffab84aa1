//! Where agents have their facts from: files, each kind with its reader.

use std::{
    collections::BTreeMap,
    fmt::Display,
    io::BufReader,
    path::{Path, PathBuf},
    sync::Arc,
    time::SystemTime,
};

use towpath_alto::{
    facts::{Facts, Prefix, Router},
    feed::Feed,
    looking_glass,
    measurements::Measurements,
    mrt,
    names::{ResourceId, RouterName},
    sites::{SiteOptions, Sites},
};
use towpath_store::sys::disk;

use super::settings::AgentConfig;

/// No file that is read whole is longer.
const FILE_BYTES: u64 = 256 << 20;

/// What tells whether files have changed.
pub(super) type Fingerprint = Vec<(u64, Option<SystemTime>)>;

impl AgentConfig {
    /// The files that it reads.
    fn files(&self) -> Vec<&PathBuf> {
        match self {
            AgentConfig::Static { file, .. }
            | AgentConfig::LookingGlass { file, .. }
            | AgentConfig::Sites { file, .. } => vec![file],
            AgentConfig::Mrt { files, .. } | AgentConfig::Measurements { files, .. } => files.iter().collect(),
        }
    }

    /// What its files are now.
    pub(super) fn fingerprint(&self) -> Result<Fingerprint, String> {
        let of = |file: &PathBuf| {
            let metadata = disk::open(file).and_then(|file| file.metadata()).map_err(|error| told(file, &error))?;
            Ok((metadata.len(), metadata.modified().ok()))
        };
        self.files().into_iter().map(of).collect()
    }

    /// Reads all that it knows.
    pub(super) fn facts(&self) -> Result<Facts, String> {
        match self {
            AgentConfig::Static { file, .. } => Facts::parse(&text(file)?).map_err(|error| told(file, &error)),
            AgentConfig::Mrt { files, .. } => routes_of_dumps(files),
            AgentConfig::LookingGlass { file, router, serves, .. } => routes_of_page(file, router, serves),
            AgentConfig::Sites { file, map, .. } => sites(file, map),
            AgentConfig::Measurements { files, here, .. } => measurements(files, here.as_deref()),
        }
    }
}

fn bytes(file: &Path) -> Result<Vec<u8>, String> {
    disk::read(file, FILE_BYTES).map_err(|error| told(file, &error))
}

fn text(file: &Path) -> Result<String, String> {
    String::from_utf8(bytes(file)?).map_err(|error| told(file, &error))
}

fn told(file: &Path, error: &dyn Display) -> String {
    format!("{}: {error}", file.display())
}

/// Dumps in the order in which they were made: a table, and what changed since.
fn routes_of_dumps(files: &[PathBuf]) -> Result<Facts, String> {
    let mut feed = Feed::default();
    for file in files {
        let source = disk::open(file).map_err(|error| told(file, &error))?;
        let summary =
            mrt::read(BufReader::new(source), |event| feed.take(event)).map_err(|error| told(file, &error))?;
        if let Some(reason) = &summary.first_skipped {
            tracing::warn!("{}: {} records were skipped, the first: {reason}", file.display(), summary.skipped);
        }
        if summary.is_truncated {
            tracing::warn!("{}: it is cut off; what comes before is taken", file.display());
        }
    }
    Ok(Facts { routers: feed.routers(), ..Facts::default() })
}

/// What a looking glass printed of one router: its text, or the page with it.
fn routes_of_page(file: &Path, router: &RouterName, serves: &[Prefix]) -> Result<Facts, String> {
    let page = text(file)?;
    let block = looking_glass::first_block(&page);
    let table = looking_glass::parse(block.as_deref().unwrap_or(&page)).map_err(|error| told(file, &error))?;
    if let Some(first) = table.skipped.first() {
        tracing::warn!("{}: {} lines were skipped, the first: {first}", file.display(), table.skipped.len());
    }
    let routes = table.routes.into_iter().collect::<towpath_alto::routes::Table>();
    let known = Router {
        serves: serves.iter().copied().collect(),
        default: serves.is_empty(),
        routes: Some(Arc::new(routes)),
        ..Router::default()
    };
    Ok(Facts { routers: BTreeMap::from([(router.clone(), known)]), ..Facts::default() })
}

/// What a registry of sites knows.
fn sites(file: &Path, map: &ResourceId) -> Result<Facts, String> {
    let sites = Sites::parse(&bytes(file)?).map_err(|error| told(file, &error))?;
    let (facts, doubts) = sites.facts(&SiteOptions { map: map.clone(), ..SiteOptions::default() });
    if let Some(first) = doubts.first() {
        tracing::warn!("{}: {} doubts, the first: {first}", file.display(), doubts.len());
    }
    Ok(facts)
}

/// Results of measurements, of one file after another: what a later one says of the same holds.
fn measurements(files: &[PathBuf], here: Option<&str>) -> Result<Facts, String> {
    let mut known = Facts::default();
    let map = ResourceId::new("default").expect("a valid name");
    for file in files {
        let results = Measurements::parse_at(&bytes(file)?, None, here).map_err(|error| told(file, &error))?;
        // Which sites there are is another agent's knowledge.
        let (facts, doubts) = results.facts_among(&map, |_| false);
        if let Some(first) = &doubts.first {
            tracing::warn!("{}: {} results were skipped, the first: {first}", file.display(), doubts.skipped);
        }
        known.costs.extend(facts.costs);
    }
    Ok(known)
}
