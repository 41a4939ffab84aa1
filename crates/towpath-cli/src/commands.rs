//! The commands for single paths, except `ls`: `stat`, `cat`, `sum`, `mkdir`, `mv`, `df`, `ping`.

use std::{ffi::OsString, io::Write as _, sync::Arc, time::Duration};

use futures::{StreamExt as _, stream};
use serde_json::json;
use tokio::io::{AsyncWriteExt as _, Stdout};
use towpath_mover::{Mover, Nobody, StoreLocation};
use towpath_proto::{
    http::range::{RangeRequest, Resolution},
    units::size_text,
};
use towpath_store::{Error, Fault, OpenOptions, Overwrite, sys::clock};

use crate::{
    args::{Cat, CopyOptions, MakeDirectory, Move, Paths, Ping, Sum},
    failure::{Failure, Tally},
    location::{StoreResolver, shown},
    output::Described,
};

/// Length of a read in bytes when a file is written to the standard output.
const PIECE_BYTES: usize = 4 << 20;
/// Number of reads in flight ahead of the piece being written.
const PIECES_AHEAD: usize = 4;
/// Questions underway at once: enough to hide a round trip of 100 ms behind others.
const QUESTIONS: usize = 64;

/// Does `one` for each path; an error is printed, and the others are still done.
pub(crate) async fn for_each<'a>(
    paths: &'a [OsString],
    resolver: &'a StoreResolver,
    mut one: impl AsyncFnMut(&'a OsString, StoreLocation) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let mut failed = Tally::default();
    for path in paths {
        let outcome = match resolver.location(path) {
            Ok(location) => one(path, location.clone()).await.map_err(|failure| failure.at(&location)),
            Err(failure) => Err(failure),
        };
        go_on(paths, outcome, &mut failed)?;
    }
    failed.outcome()
}

/// Refuses a location with a trailing slash that is not a directory.
pub(crate) async fn refuse_slash_of_file(location: &StoreLocation) -> Result<(), Failure> {
    if location.is_directory
        && let Ok(found) = location.store.stat(&location.caller, &location.path).await
        && !found.is_directory()
    {
        let message = "it is not a directory, and its name ends in a slash";
        return Err(Error::new(Fault::NotDirectory, message).at(&location.path).into());
    }
    Ok(())
}

/// As [`for_each`], with many requests in flight; the results are shown in the order of the paths.
async fn ask_each<T>(
    paths: &[OsString],
    resolver: &StoreResolver,
    ask: impl AsyncFn(StoreLocation) -> Result<T, Failure>,
    mut show: impl FnMut(&OsString, T) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let ask = &ask;
    let mut failed = Tally::default();
    let mut answers = stream::iter(paths)
        .map(|path| async move {
            (
                path,
                async {
                    let location = resolver.location(path)?;
                    ask(location.clone()).await.map_err(|failure| failure.at(&location))
                }
                .await,
            )
        })
        .buffered(QUESTIONS);
    while let Some((path, answer)) = answers.next().await {
        go_on(paths, answer.and_then(|answer| show(path, answer)), &mut failed)?;
    }
    failed.outcome()
}

/// Counts a failure and prints it, unless it ends the command.
fn go_on(paths: &[OsString], outcome: Result<(), Failure>, failed: &mut Tally) -> Result<(), Failure> {
    match outcome {
        Ok(()) => Ok(()),
        Err(failure) if paths.len() == 1 || failure.is_broken_pipe() => Err(failure),
        Err(failure) => {
            failure.print();
            failed.add(failure.exit_code());
            Ok(())
        }
    }
}

/// `towpath stat`.
pub(crate) async fn stat(arguments: &Paths, resolver: &StoreResolver) -> Result<(), Failure> {
    let ask = async |location: StoreLocation| {
        refuse_slash_of_file(&location).await?;
        Ok(location.store.stat(&location.caller, &location.path).await?)
    };
    ask_each(&arguments.paths, resolver, ask, |typed, metadata| {
        let described = Described::new(shown(typed), &metadata);
        let text = if arguments.json { format!("{}\n", json!(described)) } else { paragraph(described) };
        Ok(std::io::stdout().lock().write_all(text.as_bytes())?)
    })
    .await
}

/// What `towpath stat` prints of one path.
fn paragraph(described: Described) -> String {
    let unknown = || "unknown".to_string();
    let digests = if described.digests.is_empty() { unknown() } else { described.digests.join(" ") };
    let lines = [
        ("path:     ", described.path),
        ("kind:     ", described.kind.to_string()),
        ("size:     ", format!("{} ({})", described.size, size_text(described.size))),
        ("modified: ", described.mtime.unwrap_or_else(unknown)),
        ("mode:     ", described.mode.unwrap_or_else(unknown)),
        ("version:  ", described.version.unwrap_or_else(unknown)),
        ("digests:  ", digests),
    ];
    lines.iter().flat_map(|(label, value)| [label, value.as_str(), "\n"]).collect()
}

/// `towpath cat`. A whole file is compared with the digests that its storage knows.
pub(crate) async fn cat(arguments: &Cat, resolver: &StoreResolver) -> Result<(), Failure> {
    let range = arguments.range.as_deref().map(parse_range).transpose()?;
    let mover = Mover::new(CopyOptions::default().mover_options(Overwrite::Refuse, false, resolver), Arc::new(Nobody));
    for_each(&arguments.paths, resolver, async |_, location| {
        refuse_slash_of_file(&location).await?;
        // Not the blocking one: signals must be handled even if the pipe is not read.
        let mut out = tokio::io::stdout();
        match &range {
            None => drop(mover.drain(&location, async |piece| Ok::<_, Failure>(out.write_all(&piece).await?)).await?),
            Some(range) => write_range(&location, range, &mut out).await?,
        }
        Ok(out.flush().await?)
    })
    .await
}

/// Writes a part of a file to the standard output.
async fn write_range(location: &StoreLocation, range: &RangeRequest, out: &mut Stdout) -> Result<(), Failure> {
    let handle = location.store.open(&location.caller, &location.path, OpenOptions::default()).await?;
    let size = handle.metadata().await?.size;
    let range = match range.resolve(size) {
        Resolution::Partial(parts) => parts.first().cloned().unwrap_or(0..size),
        Resolution::Whole => 0..size,
        Resolution::Unsatisfiable | Resolution::Abusive => {
            let message = format!("the range lies beyond the file's {size} bytes");
            return Err(Error::new(Fault::InvalidArgument, message).at(&location.path).into());
        }
    };
    let (handle, end) = (&handle, range.end);
    let mut pieces = stream::iter(range.step_by(PIECE_BYTES))
        .map(|offset| {
            let length = usize::try_from(end - offset).unwrap_or(PIECE_BYTES).min(PIECE_BYTES);
            async move { (length, handle.read(offset, length).await) }
        })
        .buffered(PIECES_AHEAD);
    while let Some((length, piece)) = pieces.next().await {
        let piece = piece?;
        out.write_all(&piece).await?;
        if piece.len() < length {
            return Err(Error::new(Fault::Truncated, "the file ended before its size").at(&location.path).into());
        }
    }
    Ok(())
}

fn parse_range(text: &str) -> Result<RangeRequest, Failure> {
    let wrong = || Failure::Usage(format!("`{text}` is no range: write `0-99`, `100-` or `-100`"));
    RangeRequest::parse(&format!("bytes={text}")).filter(|range| range.specs().len() == 1).ok_or_else(wrong)
}

/// `towpath sum`.
pub(crate) async fn sum(arguments: &Sum, resolver: &StoreResolver) -> Result<(), Failure> {
    let ask = async |location: StoreLocation| {
        refuse_slash_of_file(&location).await?;
        Ok(location.store.digest(&location.caller, &location.path, arguments.algorithm, &|_| {}).await?)
    };
    ask_each(&arguments.paths, resolver, ask, |typed, digest| {
        let mut out = std::io::stdout().lock();
        let path = shown(typed);
        if arguments.json {
            let line =
                json!({"path": path, "algorithm": arguments.algorithm.to_string(), "digest": digest.to_string()});
            Ok(writeln!(out, "{line}")?)
        } else {
            Ok(writeln!(out, "{digest}  {path}")?)
        }
    })
    .await
}

/// `towpath mkdir`.
pub(crate) async fn make_directories(arguments: &MakeDirectory, resolver: &StoreResolver) -> Result<(), Failure> {
    for_each(&arguments.paths, resolver, async |_, location| {
        Ok(location.store.make_directory(&location.caller, &location.path, arguments.parents, None).await?)
    })
    .await
}

/// `towpath mv`.
pub(crate) async fn rename(arguments: &Move, resolver: &StoreResolver) -> Result<(), Failure> {
    let (from, to) = (resolver.location(&arguments.from)?, resolver.location(&arguments.to)?);
    if !std::sync::Arc::ptr_eq(&from.store, &to.store) {
        return Err(Failure::Usage("mv renames inside one storage; to move to another one, use cp and then rm".into()));
    }
    refuse_slash_of_file(&from).await?;
    if to.is_directory && !from.store.stat(&from.caller, &from.path).await?.is_directory() {
        let message = "its name ends in a slash, and what is renamed is no directory";
        return Err(Error::new(Fault::NotDirectory, message).at(&to.path).into());
    }
    let overwrite = if arguments.force { Overwrite::Replace } else { Overwrite::Refuse };
    let renamed = from.store.rename(&from.caller, &from.path, &to.path, overwrite).await;
    Ok(renamed.map_err(|error| from.locate(error))?)
}

/// `towpath df`.
pub(crate) async fn space(arguments: &Paths, resolver: &StoreResolver) -> Result<(), Failure> {
    for_each(&arguments.paths, resolver, async |typed, location| {
        let space = location.store.space(&location.caller, &location.path).await?;
        let path = shown(typed);
        let mut out = std::io::stdout().lock();
        if arguments.json {
            return Ok(writeln!(out, "{}", json!({"path": path, "total": space.total, "free": space.free}))?);
        }
        let (total, free) = (size_text(space.total), size_text(space.free));
        Ok(writeln!(out, "{path}: {free} free of {total}")?)
    })
    .await
}

/// `towpath ping`: the time of the smallest question that a storage answers, after a first one that sets up the
/// connection.
pub(crate) async fn ping(arguments: &Ping, resolver: &StoreResolver) -> Result<(), Failure> {
    let location = resolver.location(&arguments.url)?;
    let mut times = Vec::new();
    for _ in 0..=arguments.count.max(1) {
        let start = clock::now();
        location.store.stat(&location.caller, &location.path).await?;
        times.push(start.elapsed());
    }
    let first = times.remove(0);
    times.sort_unstable();
    let (least, median, most) = (times[0], times[times.len() / 2], times[times.len() - 1]);
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    let mut out = std::io::stdout().lock();
    let url = shown(&arguments.url);
    if arguments.json {
        let line = json!({"url": url, "count": times.len(), "connect_ms": ms(first), "min_ms": ms(least), "median_ms": ms(median), "max_ms": ms(most)});
        return Ok(writeln!(out, "{line}")?);
    }
    let (least, median, most, first) = (ms(least), ms(median), ms(most), ms(first));
    Ok(writeln!(
        out,
        "{url}: min {least:.2} ms, median {median:.2} ms, max {most:.2} ms of {}; first, with connecting, {first:.2} ms",
        times.len()
    )?)
}
