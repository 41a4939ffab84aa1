//! `towpath cache simulate`: replays access logs of a cache for other sizes.

use std::{
    io::{BufRead, BufReader, Read as _, Write as _},
    path::Path,
};

use serde_json::{Value, json};
use towpath_cache::simulation::{LogContent, SimulationOptions, Simulator, SizeOutcome};
use towpath_proto::{fault::Exit, units::size_text as size};
use towpath_store::sys::disk;

use super::args::CacheSimulation;
use crate::{
    failure::{Failure, complain},
    output::count_text,
};

/// Maximum number of sizes: each has its own memory and thread.
const MAX_SIZES: usize = 16;
/// Maximum length of a line in bytes: those of a cache have at most 24 KiB and a path.
const MAX_LINE_BYTES: u64 = 64 << 10;

/// Runs the command. Lines that are none of a log are a failure, after the result is printed.
pub(super) fn run(arguments: &CacheSimulation) -> Result<(), Failure> {
    let mut sizes: Vec<u64> = arguments.sizes.iter().map(|size| size.0).collect();
    sizes.sort_unstable();
    sizes.dedup();
    if sizes.len() > MAX_SIZES || sizes.first() == Some(&0) {
        return Err(Failure::Usage(format!("--sizes: name at most {MAX_SIZES} sizes, all greater than 0")));
    }
    let mut simulator = Simulator::new(&sizes, &SimulationOptions::default());
    for log in &arguments.logs {
        let unreadable =
            |error: std::io::Error| Failure::Usage(format!("{}: the log cannot be read: {error}", log.display()));
        match log == Path::new("-") {
            true => read(std::io::stdin().lock(), &mut simulator),
            false => disk::open(log).and_then(|file| read(BufReader::new(file), &mut simulator)),
        }
        .map_err(unreadable)?;
    }
    let (sizes, unlimited, content) = simulator.finish();
    match arguments.json {
        true => writeln!(std::io::stdout(), "{}", document(&sizes, &unlimited, &content))?,
        false => print(&sizes, &unlimited, &content)?,
    }
    judge(&unlimited, &content)
}

fn read(mut log: impl BufRead, simulator: &mut Simulator) -> std::io::Result<()> {
    let mut line = Vec::new();
    loop {
        line.clear();
        let length = log.by_ref().take(MAX_LINE_BYTES).read_until(b'\n', &mut line)?;
        if length == 0 {
            return Ok(());
        }
        match length as u64 == MAX_LINE_BYTES && !line.ends_with(b"\n") {
            true => {
                simulator.skip_line();
                log.skip_until(b'\n')?;
            }
            false => simulator.read_line(&line),
        }
    }
}

/// Reports invalid lines of the log.
fn judge(unlimited: &SizeOutcome, content: &LogContent) -> Result<(), Failure> {
    if unlimited.omitted_accesses > 0 {
        let omitted = count_text(unlimited.omitted_accesses, "access", "accesses");
        complain(format_args!("{omitted} to files beyond the memory of the simulation count as misses"));
    }
    if content.invalid_lines > 0 {
        let skipped = count_text(content.invalid_lines, "line", "lines");
        complain(format_args!("skipped {skipped} that no access log of a cache has"));
        return Err(Failure::Printed { exit: Exit::Invalid as u8 });
    }
    if content.accesses == 0 {
        complain("the log has no accesses of a cache: set `access_log.path` of `towpath cache`");
        return Err(Failure::Printed { exit: Exit::NotFound as u8 });
    }
    Ok(())
}

fn share(part: u64, whole: u64) -> f64 {
    part as f64 / whole.max(1) as f64
}

fn row(outcome: &SizeOutcome, content: &LogContent) -> Value {
    json!({
        "bytes": outcome.max_bytes.unwrap_or(outcome.bytes),
        "hit_bytes": outcome.hit_bytes,
        "origin_bytes": outcome.origin_bytes,
        "hit_accesses": outcome.hit_accesses,
        "byte_hit_rate": share(outcome.hit_bytes, content.requested_bytes),
        "access_hit_rate": share(outcome.hit_accesses, content.accesses),
        "omitted_accesses": outcome.omitted_accesses,
    })
}

fn document(sizes: &[SizeOutcome], unlimited: &SizeOutcome, content: &LogContent) -> Value {
    json!({
        "simulated": true,
        "accesses": content.accesses,
        "requested_bytes": content.requested_bytes,
        "recorded_hit_bytes": content.recorded_hit_bytes,
        "first_ms": content.first_ms,
        "last_ms": content.last_ms,
        "other_lines": content.other_lines,
        "invalid_lines": content.invalid_lines,
        "sizes": sizes.iter().map(|outcome| row(outcome, content)).collect::<Vec<_>>(),
        "everything": row(unlimited, content),
    })
}

fn print(sizes: &[SizeOutcome], unlimited: &SizeOutcome, content: &LogContent) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    let days = content.last_ms.zip(content.first_ms).map_or(0, |(last, first)| last.saturating_sub(first)) as f64
        / 86_400_000.0;
    writeln!(
        out,
        "simulated: {} accesses in {days:.1} days read {}; the cache of the log had {:.1} % of the bytes",
        content.accesses,
        size(content.requested_bytes),
        share(content.recorded_hit_bytes, content.requested_bytes) * 100.0
    )?;
    writeln!(out, "{:>12}  {:>12}  {:>15}  {:>16}", "size", "hits (bytes)", "hits (accesses)", "from the origin")?;
    for outcome in sizes.iter().chain([unlimited]) {
        writeln!(
            out,
            "{:>12}  {:>10.1} %  {:>13.1} %  {:>16}{}",
            size(outcome.max_bytes.unwrap_or(outcome.bytes)),
            share(outcome.hit_bytes, content.requested_bytes) * 100.0,
            share(outcome.hit_accesses, content.accesses) * 100.0,
            size(outcome.origin_bytes),
            if outcome.max_bytes.is_none() { "  holds everything" } else { "" }
        )?;
    }
    Ok(())
}
