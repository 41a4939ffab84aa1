//! Commands for a running cache: `towpath cache stats`, `ls`, `explain`, `pins`, `pin`, `evict`, `scrub`, `chaos`.

use std::{
    collections::{BTreeSet, HashSet},
    io::Write as _,
    time::Duration,
};

use percent_encoding::{NON_ALPHANUMERIC, percent_encode};
use serde_json::Value;
use towpath_proto::{fault::Exit, units::size_text as size};

use super::{
    args::{CacheAction, CacheChaos, ChaosKind},
    running::RunningCache,
};
use crate::{
    failure::{Failure, complain},
    output::count_text,
};

/// Time between two queries of the state of a scrub.
const SCRUB_INTERVAL: Duration = Duration::from_secs(1);

/// Runs a command.
pub(super) async fn run(action: &CacheAction) -> Result<(), Failure> {
    let Some(target) = action.target() else { return Ok(()) };
    let cache = RunningCache::find(&target.dir)?;
    let (route, path) = match action {
        CacheAction::Simulate(_) => return Ok(()),
        CacheAction::Scrub(target) => return scrub(&cache, target.json).await,
        CacheAction::Chaos(CacheChaos { kind: ChaosKind::Corrupt, path, .. }) => ("corrupt", Some(path)),
        CacheAction::Chaos(CacheChaos { kind: ChaosKind::Truncate, path, .. }) => ("truncate", Some(path)),
        CacheAction::Stats(_) => ("stats", None),
        CacheAction::Pins(_) => ("pins", None),
        CacheAction::Ls(query) => ("ls", query.path.as_ref()),
        CacheAction::Explain(query) => ("explain", query.path.as_ref()),
        CacheAction::Pin(change) => ("pin", Some(&change.path)),
        CacheAction::Unpin(change) => ("unpin", Some(&change.path)),
        CacheAction::Evict(change) => ("evict", Some(&change.path)),
    };
    let path = path.map(|path| percent_encode(path.as_bytes(), NON_ALPHANUMERIC).to_string());
    let query = path.map(|path| format!("?path={path}")).unwrap_or_default();
    let answer = cache.request(&format!("cache/{route}{query}")).await?;
    if target.json {
        return Ok(writeln!(std::io::stdout(), "{answer}")?);
    }
    print(action, &answer)
}

/// Waits for a scrub to end, and prints its outcome. Damage is a failure, although it is repaired when it is read.
async fn scrub(cache: &RunningCache, is_json: bool) -> Result<(), Failure> {
    let mut state = cache.request("cache/scrub").await?;
    let route = format!("cache/scrub?id={}", state["id"].as_u64().unwrap_or(0));
    while state["running"] == true {
        tokio::time::sleep(SCRUB_INTERVAL).await;
        state = cache.request(&route).await?;
    }
    print_scrub(&state, is_json)
}

/// Prints the outcome of a scrub.
fn print_scrub(state: &Value, is_json: bool) -> Result<(), Failure> {
    let [entries, compared, damaged, failures] =
        ["entries", "compared_bytes", "damaged_bytes", "failures"].map(|key| state[key].as_u64().unwrap_or(0));
    match is_json {
        true => writeln!(std::io::stdout(), "{state}")?,
        false => writeln!(std::io::stdout(), "compared {} in {}", size(compared), entries_text(entries))?,
    }
    if damaged == 0 && failures == 0 {
        return Ok(());
    }
    complain(format_args!(
        "{} were damaged, and are fetched again when they are read; {} could not be read",
        size(damaged),
        entries_text(failures)
    ));
    Err(Failure::Printed { exit: Exit::Corrupt as u8 })
}

fn entries_text(count: u64) -> String {
    count_text(count, "entry", "entries")
}

fn print(action: &CacheAction, answer: &Value) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    let number = |value: &Value, key: &str| value[key].as_u64().unwrap_or(0);
    let bytes = |value: &Value, key: &str| size(number(value, key));
    match action {
        CacheAction::Stats(_) => print_stats(&mut out, answer)?,
        CacheAction::Ls(_) => {
            for row in answer["rows"].as_array().into_iter().flatten() {
                let pinned = if row["pinned"] == true { " pinned" } else { "" };
                writeln!(
                    out,
                    "{:>12} of {:>12}{pinned}  {}",
                    bytes(row, "present_bytes"),
                    bytes(row, "size"),
                    row["path"].as_str().unwrap_or_default()
                )?;
            }
            complain_omitted(answer, ": name a path");
        }
        CacheAction::Pins(_) => {
            // A path of a tree with several origins is pinned at each.
            let rows = answer["rows"].as_array().into_iter().flatten();
            for path in rows.filter_map(|row| row["path"].as_str()).collect::<BTreeSet<_>>() {
                writeln!(out, "{path}")?;
            }
            complain_omitted(answer, "");
        }
        CacheAction::Explain(_) => explain(&mut out, answer)?,
        CacheAction::Evict(_) => {
            writeln!(
                out,
                "evicted {} of {}; {} in use and {} pinned stay",
                bytes(answer, "freed_bytes"),
                entries_text(number(answer, "entries")),
                number(answer, "in_use"),
                number(answer, "pinned")
            )?;
        }
        _ => writeln!(out, "{}", entries_text(number(answer, "entries")))?,
    }
    Ok(())
}

/// Prints the counters of a cache.
pub(crate) fn print_stats(out: &mut impl std::io::Write, answer: &Value) -> Result<(), Failure> {
    let number = |value: &Value, key: &str| value[key].as_u64().unwrap_or(0);
    let bytes = |value: &Value, key: &str| size(number(value, key));
    writeln!(out, "{}, {}", entries_text(number(answer, "entries")), bytes(answer, "bytes"))?;
    for origin in answer["origins"].as_array().into_iter().flatten() {
        let (served, missed) = (number(origin, "served_bytes"), number(origin, "missed_bytes"));
        let hit = served.saturating_sub(missed) as f64 / served.max(1) as f64 * 100.0;
        writeln!(out, "{}", origin["origin"].as_str().unwrap_or_default())?;
        writeln!(out, "  served   {} ({hit:.1} % from the cache)", size(served))?;
        writeln!(
            out,
            "  fetched  {} in {}, {} failed",
            bytes(origin, "fetched_bytes"),
            count_text(number(origin, "requests"), "request", "requests"),
            number(origin, "failures")
        )?;
        let [total, storage] =
            ["request_seconds", "request_storage_seconds"].map(|key| origin[key].as_f64().unwrap_or_default());
        writeln!(out, "  requests {total:.1} s, of which the storage took {storage:.1} s to respond")?;
        writeln!(out, "  bypassed {}", bytes(origin, "bypass_bytes"))?;
        writeln!(out, "  damaged  {}", bytes(origin, "damaged_bytes"))?;
        let (stale, missing) = (number(origin, "stale"), number(origin, "missing"));
        writeln!(out, "  without the origin: {stale} opens of stale and {missing} of missing files")?;
    }
    for quota in answer["quotas"].as_array().into_iter().flatten() {
        let (used, max) = (bytes(quota, "bytes"), bytes(quota, "max_bytes"));
        let path = quota["path"].as_str().unwrap_or_default();
        writeln!(out, "quota of {path}: {used} of {max}, {}", entries_text(number(quota, "entries")))?;
    }
    let failures = count_text(number(answer, "disk_failures"), "failure", "failures");
    writeln!(out, "{failures} of the disk")?;
    Ok(())
}

/// Reports the number of rows that the response omits, with a hint.
fn complain_omitted(answer: &Value, hint: &str) {
    let shown = answer["rows"].as_array().map_or(0, Vec::len) as u64;
    let total = answer["total"].as_u64().unwrap_or(shown);
    if total > shown {
        let omitted = count_text(total - shown, "more row is", "more rows are");
        complain(format_args!("{omitted} not shown{hint}"));
    }
}

/// Prints the recent accesses, and which part was slow.
fn explain(out: &mut impl std::io::Write, answer: &Value) -> Result<(), Failure> {
    let seconds = |row: &Value, key: &str| row[key].as_f64().unwrap_or(0.0);
    let bytes = |row: &Value, key: &str| row[key].as_u64().unwrap_or(0);
    let rows: Vec<&Value> = answer["rows"].as_array().into_iter().flatten().collect();
    if rows.is_empty() {
        return Ok(writeln!(out, "no recent access")?);
    }
    let mut sums = [0.0; 4];
    for row in &rows {
        let (served, missed) = (bytes(row, "served_bytes"), bytes(row, "missed_bytes"));
        let parts = ["origin_seconds", "origin_storage_seconds", "disk_seconds", "seconds"];
        let parts = parts.map(|key| seconds(row, key));
        sums.iter_mut().zip(parts).for_each(|(sum, part)| *sum += part);
        writeln!(
            out,
            "{:>12} hit {:>12} missed {:>12} bypassed  {:8.3} s, origin {:.3} (storage {:.3}), disk {:.3}  {}",
            size(served.saturating_sub(missed)),
            size(missed),
            size(bytes(row, "bypass_bytes")),
            parts[3],
            parts[0],
            parts[1],
            parts[2],
            row["path"].as_str().unwrap_or_default()
        )?;
    }
    let files: HashSet<_> = rows.iter().filter_map(|row| row["path"].as_str()).collect();
    let [origin, storage, disk, total] = sums;
    let parts = [
        ("the clients and their network", total - origin - disk),
        ("the disk of the cache", disk),
        ("the network to the origin", origin - storage),
        ("the storage of the origin", storage),
    ];
    let (slowest, _) = parts.into_iter().fold(parts[0], |most, part| if part.1 > most.1 { part } else { most });
    let accesses = count_text(rows.len() as u64, "access", "accesses");
    writeln!(out, "{accesses} to {}; most time went to {slowest}", count_text(files.len() as u64, "file", "files"))?;
    complain_omitted(answer, ": name a path");
    Ok(())
}
