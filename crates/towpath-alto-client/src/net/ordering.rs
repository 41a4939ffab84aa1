//! Replicas in the order in which they are to be tried, with what put them there.

use std::net::IpAddr;

use serde_json::json;
use towpath_alto::{
    order::{Look as _, Ranked, Statement, Value, Where},
    replicas::{Replicas, ReplicatedFile},
};

use super::{AltoClient, AltoTrouble, hosts::Hosts};
use crate::{Candidate, Configuration, Ends, Known};

/// Hosts are looked up in this part of the time that a call may take: one that a name server is silent about should not use it up.
const SHARE_OF_HOSTS: u32 = 3;

/// A list of replicas in its new order.
#[derive(Debug, Clone, PartialEq)]
pub struct Ordered {
    /// The list, byte for byte as it was but for the order.
    pub bytes: Vec<u8>,
    /// Its files, in the order of the list.
    pub files: Vec<OrderedFile>,
}

/// A file of a list.
#[derive(Debug, Clone, PartialEq)]
pub struct OrderedFile {
    /// What the list calls it, with its scope if that is told; lines and arrays of URLs call it nothing.
    pub name: Option<String>,
    /// Its replicas, the best first, those that were left out last.
    pub places: Vec<Place>,
}

/// A replica with what is known of it.
#[derive(Debug, Clone, PartialEq)]
pub struct Place {
    /// Where it is, as the list says it.
    pub url: String,
    /// The value of each name in the statement, in the order of these; none where it is not known.
    pub values: Vec<(String, Option<Value>)>,
    /// Whether the condition is true of it; none if that is unknown. True if there is no condition.
    pub holds: Option<bool>,
    /// Whether it is no longer in the list, because the condition is not true of it.
    pub is_left_out: bool,
}

/// Puts a list of replicas (URLs in lines, Rucio's JSON, a Metalink) into order, as `towpath order` does. `from` is the address that replicas are read from; if there is none, the
/// one that the server sees. If it is `strict`, replicas of which the condition is not true are left out, else they come last.
///
/// # Errors
/// If the list cannot be read, none of its hosts has an address, or as [`AltoClient::survey`].
pub async fn order(
    client: &AltoClient,
    list: Vec<u8>,
    statement: &Statement,
    configuration: &Configuration,
    from: Option<IpAddr>,
    strict: bool,
) -> Result<Ordered, AltoTrouble> {
    let (replicas, hosts) = read(client, list, from).await?;
    if hosts.are_all_unknown() {
        return Err(AltoTrouble::no_addresses());
    }
    judged(client, &replicas, &hosts, statement, configuration, from, strict).await
}

/// Ranks the replicas at these URLs: all of them, the best first. Where no host has an address, nothing is known of any.
///
/// # Errors
/// If there are too many hosts, or as [`AltoClient::survey`].
pub async fn rank(
    client: &AltoClient,
    urls: &[String],
    statement: &Statement,
    configuration: &Configuration,
    from: Option<IpAddr>,
) -> Result<Vec<Place>, AltoTrouble> {
    if urls.is_empty() {
        return Ok(Vec::new());
    }
    let (replicas, hosts) = read(client, json!(urls).to_string().into_bytes(), from).await?;
    let ordered = judged(client, &replicas, &hosts, statement, configuration, from, false).await?;
    Ok(ordered.files.into_iter().flat_map(|file| file.places).collect())
}

/// A list, and where its hosts are.
async fn read(client: &AltoClient, list: Vec<u8>, from: Option<IpAddr>) -> Result<(Replicas, Hosts), AltoTrouble> {
    let replicas = Replicas::read(list).map_err(|error| AltoTrouble::Unusable(error.to_string()))?;
    let limit = client.0.limit / SHARE_OF_HOSTS;
    let hosts = Hosts::find(&replicas, from, limit).await.map_err(AltoTrouble::Unusable)?;
    Ok((replicas, hosts))
}

async fn judged(
    client: &AltoClient,
    replicas: &Replicas,
    hosts: &Hosts,
    statement: &Statement,
    configuration: &Configuration,
    from: Option<IpAddr>,
    strict: bool,
) -> Result<Ordered, AltoTrouble> {
    let ends = Ends { client: from, replicas: hosts.addresses() };
    let statement = &client.directory().completed(statement);
    let survey = client.survey(configuration, statement, ends).await?;
    let judge = Judge { statement, configuration, known: survey.known(), hosts, strict };
    let ranks = judge.ranks(replicas);
    let files = replicas.files().iter().zip(&ranks);
    let files = files.map(|(file, ranks)| OrderedFile { name: file.name.clone(), places: judge.places(file, ranks) });
    Ok(Ordered { files: files.collect(), bytes: judge.write(replicas, &ranks) })
}

/// Judges the replicas of one file after the other.
pub struct Judge<'a> {
    /// Ordering statement that ranks the replicas.
    pub statement: &'a Statement,
    /// Metrics that the statement may name.
    pub configuration: &'a Configuration,
    /// Values that the server returned.
    pub known: &'a Known,
    /// Addresses of the replicas' hosts.
    pub hosts: &'a Hosts,
    /// Whether replicas are left out of which the condition is not true.
    pub strict: bool,
}

impl Judge<'_> {
    /// The replicas of each file in their order, those that are left out last.
    pub fn ranks(&self, replicas: &Replicas) -> Vec<Vec<Ranked>> {
        replicas.files().iter().map(|file| self.ranks_of(file)).collect()
    }

    /// The list in that order.
    pub fn write(&self, replicas: &Replicas, ranks: &[Vec<Ranked>]) -> Vec<u8> {
        let kept = ranks.iter().map(|ranks| self.kept(ranks).0.iter().map(|ranked| ranked.index).collect());
        replicas.write(&kept.collect::<Vec<Vec<usize>>>())
    }

    /// The replicas of a file with their values, those that are left out as they come in the list.
    pub fn places(&self, file: &ReplicatedFile, ranks: &[Ranked]) -> Vec<Place> {
        let (kept, left_out) = self.kept(ranks);
        let mut left_out: Vec<&Ranked> = left_out.iter().collect();
        left_out.sort_by_key(|ranked| ranked.index);
        let kept = kept.iter().map(|ranked| (ranked, false));
        let all = kept.chain(left_out.into_iter().map(|ranked| (ranked, true)));
        let place = |(ranked, is_left_out): (&Ranked, bool)| {
            let candidate = self.candidate(file, ranked.index);
            let values = self.statement.names().map(|name| (name.to_owned(), candidate.look(name))).collect();
            Place { url: file.replicas[ranked.index].url.clone(), values, holds: ranked.holds, is_left_out }
        };
        all.map(place).collect()
    }

    /// Those that stay in the list, and the others.
    fn kept<'r>(&self, ranks: &'r [Ranked]) -> (&'r [Ranked], &'r [Ranked]) {
        // Those of which it is true come first.
        let wanted = ranks.partition_point(|ranked| ranked.holds == Some(true));
        ranks.split_at(if self.strict { wanted } else { ranks.len() })
    }

    /// The replicas of a file in their order. Those that are as good as each other keep that of their priorities, and of the list.
    fn ranks_of(&self, file: &ReplicatedFile) -> Vec<Ranked> {
        let mut given: Vec<usize> = (0..file.replicas.len()).collect();
        given.sort_by_key(|index| file.replicas[*index].priority.unwrap_or(u32::MAX));
        let candidates: Vec<_> = given.iter().map(|index| self.candidate(file, *index)).collect();
        let direction = |name: &str| self.known.direction(name, self.configuration);
        let mut ranks = self.statement.order(&candidates, &direction, Where::Demote);
        for ranked in &mut ranks {
            ranked.index = given[ranked.index];
        }
        ranks
    }

    fn candidate(&self, file: &ReplicatedFile, index: usize) -> Candidate<'_> {
        self.known.at(self.hosts.of(&file.replicas[index].url))
    }
}
