//! `towpath order`: puts replicas into the order in which they are to be tried, by what an ALTO server knows of the ways to them.
//!
//! [`run`] reads the list, [`hosts`] finds out where the replicas are, [`server`] asks, and the same list is written with its replicas in another
//! order; [`explain`] says why they are in it. Without an answer nothing is written: a list in its old order would look as if it had been judged.
//! `--fallback` has it written all the same. Beside `--strict` that is refused, because replicas would come through that nobody has judged.

pub(crate) mod args;
mod explain;
mod hosts;
mod server;

use std::{collections::BTreeSet, io::Write as _, path::Path};

use tokio::io::AsyncReadExt as _;
use towpath_alto::{
    client::{Candidate, Configuration, Ends, Known, MAX_CONFIGURATION_BYTES},
    order::{Look as _, Ranked, Statement, Where},
    replicas::{MAX_BYTES, Replicas, ReplicatedFile},
};
use towpath_proto::url::{Family, Url};
use towpath_store::{Error, sys::disk};

use self::{args::Order, hosts::Hosts, server::Trouble};
use crate::{
    config,
    failure::{Failure, complain},
    location::Places,
};

/// The most hosts without an address that are named.
const MAX_NAMED: usize = 5;

/// Runs `towpath order`.
pub(crate) async fn run(arguments: &Order, places: &Places) -> Result<(), Failure> {
    let statement = arguments.by.parse::<Statement>().map_err(|error| Failure::Usage(format!("--by: {error}")))?;
    let configuration = arguments.config.as_deref().map(configuration).transpose()?.unwrap_or_default();
    let directory = directory(arguments, &configuration)?;
    let list = list(arguments.list.as_deref()).await?;
    let replicas = Replicas::read(list).map_err(|error| Failure::Facts(error.to_string()))?;
    let hosts = Hosts::find(&replicas, arguments.client).await?;
    tell_unknown(&hosts);
    let ends = Ends { client: arguments.client, replicas: hosts.addresses() };
    let survey = match hosts.are_all_unknown() {
        true => Err(Trouble::no_addresses()),
        false => server::survey(&places.client(), &directory, &configuration, &statement, ends).await,
    };
    let output = match survey {
        Ok(survey) => {
            let where_ = if arguments.strict { Where::Drop } else { Where::Demote };
            let known = survey.known();
            let judge = Judge { statement: &statement, configuration: &configuration, known, hosts: &hosts, where_ };
            judge.output(&replicas, arguments.explain)
        }
        Err(trouble) if arguments.fallback && trouble.is_servers() => {
            Failure::from(trouble).print();
            complain("the list is written in its old order");
            replicas.write(&[])
        }
        Err(trouble) => return Err(trouble.into()),
    };
    let mut stdout = std::io::stdout().lock();
    stdout.write_all(&output)?;
    Ok(stdout.flush()?)
}

/// The configuration in a file.
fn configuration(path: &Path) -> Result<Configuration, Failure> {
    let bytes = disk::read(path, MAX_CONFIGURATION_BYTES).map_err(|error| unreadable(path, &error))?;
    let wrong = |problem: &str| config::wrong(&path.display().to_string(), problem.trim_end());
    let text = String::from_utf8(bytes).map_err(|_| wrong("it is not UTF-8"))?;
    Ok(Configuration::parse(&text).map_err(|error| wrong(&error.to_string()))?)
}

/// The address of the directory to ask.
fn directory(arguments: &Order, configuration: &Configuration) -> Result<String, Failure> {
    let none = "name the directory of an ALTO server: --ird URL, or default-ird in the file of --config";
    let named = arguments.ird.as_ref().or(configuration.default_ird.as_ref());
    let address = named.ok_or_else(|| Failure::Usage(none.into()))?;
    match address.parse::<Url>() {
        Ok(url) if url.scheme().family() == Family::Http => Ok(address.clone()),
        Ok(url) => {
            let scheme = url.scheme().name();
            Err(Failure::Usage(format!("the ALTO server: {scheme}:// is neither http nor https")))
        }
        Err(error) => Err(Failure::Usage(format!("the ALTO server: {error}"))),
    }
}

/// The list of replicas; nothing, or `-`: the standard input.
async fn list(path: Option<&Path>) -> Result<Vec<u8>, Failure> {
    if let Some(path) = path.filter(|path| *path != Path::new("-")) {
        return disk::read(path, MAX_BYTES as u64).map_err(|error| unreadable(path, &error));
    }
    let mut bytes = Vec::new();
    // One byte too many tells a list that is too long from one that is as long as may be.
    let reading = tokio::io::stdin().take(MAX_BYTES as u64 + 1).read_to_end(&mut bytes).await;
    reading.map_err(Failure::system("read the standard input"))?;
    Ok(bytes)
}

fn unreadable(path: &Path, error: &std::io::Error) -> Failure {
    let doing = format!("reading {}", path.display());
    match error.raw_os_error() {
        Some(errno) => Error::from_errno(errno, &doing).into(),
        None => Failure::Usage(format!("{doing}: {error}")),
    }
}

/// Names hosts without an address: nothing can be known of the ways to them.
fn tell_unknown(hosts: &Hosts) {
    let unknown = hosts.unknown();
    if !unknown.is_empty() {
        let named = unknown.iter().take(MAX_NAMED).copied().collect::<Vec<_>>().join(", ");
        let more = if unknown.len() > MAX_NAMED { ", .." } else { "" };
        complain(format_args!("nothing is known of hosts without an address, {} in all: {named}{more}", unknown.len()));
    }
}

/// Judges the replicas of one file after the other.
struct Judge<'a> {
    statement: &'a Statement,
    configuration: &'a Configuration,
    known: &'a Known,
    hosts: &'a Hosts,
    where_: Where,
}

impl Judge<'_> {
    /// The list in its new order.
    fn output(&self, replicas: &Replicas, explains: bool) -> Vec<u8> {
        let ranks: Vec<Vec<Ranked>> = replicas.files().iter().map(|file| self.ranks(file)).collect();
        if explains {
            for (file, ranks) in replicas.files().iter().zip(&ranks) {
                explain::tell(file, &self.places(file, ranks), &self.names());
            }
        }
        let orders = ranks.iter().map(|ranks| ranks.iter().map(|ranked| ranked.index).collect());
        replicas.write(&orders.collect::<Vec<Vec<usize>>>())
    }

    /// The replicas of a file in their order. Those that are as good as each other keep that of their priorities, and of the list.
    fn ranks(&self, file: &ReplicatedFile) -> Vec<Ranked> {
        let mut given: Vec<usize> = (0..file.replicas.len()).collect();
        given.sort_by_key(|index| file.replicas[*index].priority.unwrap_or(u32::MAX));
        let candidates: Vec<_> = given.iter().map(|index| self.candidate(file, *index)).collect();
        let direction = |name: &str| self.configuration.direction(name);
        let mut ranks = self.statement.order(&candidates, &direction, self.where_);
        for ranked in &mut ranks {
            ranked.index = given[ranked.index];
        }
        ranks
    }

    fn candidate(&self, file: &ReplicatedFile, index: usize) -> Candidate<'_> {
        self.known.at(self.hosts.of(&file.replicas[index].url))
    }

    /// What the statement looks at.
    fn names(&self) -> Vec<&str> {
        self.statement.names().collect()
    }

    /// Each replica with its values, those that were left out at the end.
    fn places(&self, file: &ReplicatedFile, ranks: &[Ranked]) -> Vec<explain::Place> {
        let kept: BTreeSet<usize> = ranks.iter().map(|ranked| ranked.index).collect();
        let dropped = (0..file.replicas.len()).filter(|index| !kept.contains(index)).map(|index| (index, None));
        let ranked = ranks.iter().map(|ranked| (ranked.index, Some(ranked.holds)));
        let place = |(index, holds)| {
            let candidate = self.candidate(file, index);
            let values = self.names().into_iter().map(|name| candidate.look(name)).collect();
            explain::Place { url: file.replicas[index].url.clone(), values, holds }
        };
        ranked.chain(dropped).map(place).collect()
    }
}
