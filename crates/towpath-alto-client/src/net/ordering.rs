//! Orders replicas, with the values that determined their ranks.

use std::net::IpAddr;

use serde_json::json;
use towpath_alto::{
    order::{CandidateValues as _, FilterMode, RankedCandidate, Statement, Value},
    replicas::{Replicas, ReplicatedFile},
};

use super::{AltoClient, AltoError, hosts::Hosts};
use crate::{Candidate, Configuration, ReplicaValues, TransferEndpoints};

/// Fraction of a call's time limit for resolving hosts, so that an unresponsive name server cannot use it up.
const SHARE_OF_HOSTS: u32 = 3;

/// A list of replicas in its new order.
#[derive(Debug, Clone, PartialEq)]
pub struct OrderedList {
    /// The list, unchanged except for the order.
    pub bytes: Vec<u8>,
    /// Its files, in list order.
    pub files: Vec<OrderedFile>,
}

/// A file of a list.
#[derive(Debug, Clone, PartialEq)]
pub struct OrderedFile {
    /// Name in the list, with its scope if known; `None` in lines and arrays of URLs.
    pub name: Option<String>,
    /// Its replicas, best first, with dropped ones last.
    pub places: Vec<RankedReplica>,
}

/// A replica with its known values.
#[derive(Debug, Clone, PartialEq)]
pub struct RankedReplica {
    /// URL as listed.
    pub url: String,
    /// Value of each name in the statement, in statement order; `None` where unknown.
    pub values: Vec<(String, Option<Value>)>,
    /// Result of the condition; `None` if unknown, true if there is no condition.
    pub holds: Option<bool>,
    /// Whether it was dropped from the list, because it does not satisfy the condition.
    pub is_left_out: bool,
}

/// Orders a list of replicas (URLs in lines, Rucio's JSON, a Metalink) like `towpath order`. `from` is the address that
/// replicas are read from; by default the one that the server sees. With `strict`, replicas that do not satisfy the
/// condition are dropped, otherwise they come last.
///
/// # Errors
/// Returns an error if the list cannot be read or none of its hosts has an address, or as [`AltoClient::query_plan`].
pub async fn order(
    client: &AltoClient,
    list: Vec<u8>,
    statement: &Statement,
    configuration: &Configuration,
    from: Option<IpAddr>,
    strict: bool,
) -> Result<OrderedList, AltoError> {
    let (replicas, hosts) = read(client, list, from).await?;
    if hosts.are_all_unknown() {
        return Err(AltoError::no_addresses());
    }
    rank_replicas(client, &replicas, &hosts, statement, configuration, from, strict).await
}

/// Ranks the replicas at these URLs, best first. If no host has an address, all values are unknown.
///
/// # Errors
/// Returns an error if there are too many hosts, or as [`AltoClient::query_plan`].
pub async fn rank(
    client: &AltoClient,
    urls: &[String],
    statement: &Statement,
    configuration: &Configuration,
    from: Option<IpAddr>,
) -> Result<Vec<RankedReplica>, AltoError> {
    if urls.is_empty() {
        return Ok(Vec::new());
    }
    let (replicas, hosts) = read(client, json!(urls).to_string().into_bytes(), from).await?;
    let ordered = rank_replicas(client, &replicas, &hosts, statement, configuration, from, false).await?;
    Ok(ordered.files.into_iter().flat_map(|file| file.places).collect())
}

/// Parses a list and resolves its hosts.
async fn read(client: &AltoClient, list: Vec<u8>, from: Option<IpAddr>) -> Result<(Replicas, Hosts), AltoError> {
    let replicas = Replicas::read(list).map_err(|error| AltoError::Unusable(error.to_string()))?;
    let limit = client.0.limit / SHARE_OF_HOSTS;
    let hosts = Hosts::find(&replicas, from, limit).await.map_err(AltoError::Unusable)?;
    Ok((replicas, hosts))
}

async fn rank_replicas(
    client: &AltoClient,
    replicas: &Replicas,
    hosts: &Hosts,
    statement: &Statement,
    configuration: &Configuration,
    from: Option<IpAddr>,
    strict: bool,
) -> Result<OrderedList, AltoError> {
    let ends = TransferEndpoints { client: from, replicas: hosts.addresses() };
    let statement = &client.directory().complete(statement);
    let query_plan = client.query_plan(configuration, statement, ends).await?;
    let ranker = ReplicaRanker { statement, configuration, replica_values: query_plan.replica_values(), hosts, strict };
    let ranks = ranker.ranks(replicas);
    let files = replicas.files().iter().zip(&ranks);
    let files = files.map(|(file, ranks)| OrderedFile { name: file.name.clone(), places: ranker.places(file, ranks) });
    Ok(OrderedList { files: files.collect(), bytes: ranker.write(replicas, &ranks) })
}

/// Ranks the replicas of one file after another.
pub struct ReplicaRanker<'a> {
    /// Ordering statement that ranks the replicas.
    pub statement: &'a Statement,
    /// Metrics that the statement may name.
    pub configuration: &'a Configuration,
    /// Values that the server returned.
    pub replica_values: &'a ReplicaValues,
    /// Addresses of the replicas' hosts.
    pub hosts: &'a Hosts,
    /// Whether to drop replicas that do not satisfy the condition.
    pub strict: bool,
}

impl ReplicaRanker<'_> {
    /// Returns the ranked replicas of each file, with dropped ones last.
    pub fn ranks(&self, replicas: &Replicas) -> Vec<Vec<RankedCandidate>> {
        replicas.files().iter().map(|file| self.ranks_of(file)).collect()
    }

    /// Writes the list in that order.
    pub fn write(&self, replicas: &Replicas, ranks: &[Vec<RankedCandidate>]) -> Vec<u8> {
        let indices = ranks.iter().map(|ranks| self.split_dropped(ranks).0.iter().map(|ranked| ranked.index).collect());
        replicas.write(&indices.collect::<Vec<Vec<usize>>>())
    }

    /// Returns the replicas of a file with their values; dropped ones in list order.
    pub fn places(&self, file: &ReplicatedFile, ranks: &[RankedCandidate]) -> Vec<RankedReplica> {
        let (kept, left_out) = self.split_dropped(ranks);
        let mut left_out: Vec<&RankedCandidate> = left_out.iter().collect();
        left_out.sort_by_key(|ranked| ranked.index);
        let kept = kept.iter().map(|ranked| (ranked, false));
        let all = kept.chain(left_out.into_iter().map(|ranked| (ranked, true)));
        let place = |(ranked, is_left_out): (&RankedCandidate, bool)| {
            let candidate = self.candidate(file, ranked.index);
            let values = self.statement.names().map(|name| (name.to_owned(), candidate.value(name))).collect();
            RankedReplica { url: file.replicas[ranked.index].url.clone(), values, holds: ranked.holds, is_left_out }
        };
        all.map(place).collect()
    }

    /// Splits the ranks into kept and dropped replicas.
    fn split_dropped<'r>(&self, ranks: &'r [RankedCandidate]) -> (&'r [RankedCandidate], &'r [RankedCandidate]) {
        // Those that satisfy the condition come first.
        let satisfying = ranks.partition_point(|ranked| ranked.holds == Some(true));
        ranks.split_at(if self.strict { satisfying } else { ranks.len() })
    }

    /// Ranks the replicas of a file. Ties keep the order of their priorities, then that of the list.
    fn ranks_of(&self, file: &ReplicatedFile) -> Vec<RankedCandidate> {
        let mut given: Vec<usize> = (0..file.replicas.len()).collect();
        given.sort_by_key(|index| file.replicas[*index].priority.unwrap_or(u32::MAX));
        let candidates: Vec<_> = given.iter().map(|index| self.candidate(file, *index)).collect();
        let direction = |name: &str| self.replica_values.direction(name, self.configuration);
        let mut ranks = self.statement.order(&candidates, &direction, FilterMode::Demote);
        for ranked in &mut ranks {
            ranked.index = given[ranked.index];
        }
        ranks
    }

    fn candidate(&self, file: &ReplicatedFile, index: usize) -> Candidate<'_> {
        self.replica_values.at(self.hosts.of(&file.replicas[index].url))
    }
}
