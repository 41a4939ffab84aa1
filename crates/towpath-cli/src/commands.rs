//! The commands for single paths, except `ls`: `stat`, `cat`, `sum`, `mkdir`, `rmdir`, `mv`, `df`, `ping`.

use std::{ffi::OsString, io::Write as _, sync::Arc, time::Duration};

use futures::{StreamExt as _, stream};
use serde_json::json;
use tokio::io::{AsyncWriteExt as _, Stdout};
use towpath_mover::{Mover, NoopObserver, SkipPolicy, StoreLocation};
use towpath_proto::{
    http::range::{RangeRequest, Resolution},
    units::size_text,
};
use towpath_store::{Error, Fault, OpenOptions, Overwrite, sys::clock};

use crate::{
    args::{Cat, CopyOptions, MakeDirectory, Move, Paths, Ping, RemoveDirectory, Space, Sum},
    failure::{Failure, Tally},
    location::{StoreResolver, shown},
    output::PathDescription,
    patterns::{Place, expanded, expanded_unless, literal},
};

/// Length of a read in bytes when a file is written to the standard output.
const PIECE_BYTES: usize = 4 << 20;
/// Number of reads in flight ahead of the piece being written.
const PIECES_AHEAD: usize = 4;
/// Maximum number of requests in flight: enough to hide a round trip of 100 ms.
const MAX_REQUESTS: usize = 64;

/// Calls `run` for each place; errors are printed, and the remaining places are still processed.
pub(crate) async fn for_each(
    places: Vec<Place>,
    resolver: &StoreResolver,
    mut run: impl AsyncFnMut(&OsString, StoreLocation) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let mut failed = Tally::default();
    let is_only = places.len() == 1;
    for place in places {
        let outcome = match place.and_then(|path| Ok((resolver.location(&path)?, path))) {
            Ok((location, path)) => run(&path, location.clone()).await.map_err(|failure| failure.at(&location)),
            Err(failure) => Err(failure),
        };
        count_failure(is_only, outcome, &mut failed)?;
    }
    failed.outcome()
}

/// Refuses a location with a trailing slash that is not a directory.
pub(crate) async fn refuse_slash_of_file(location: &StoreLocation) -> Result<(), Failure> {
    if location.is_directory
        && let Ok(found) = location.store.stat(&location.caller, &location.path).await
        && !found.is_directory()
    {
        let message = "it is not a directory, but its name ends in a slash";
        return Err(Error::new(Fault::NotDirectory, message).at(&location.path).into());
    }
    Ok(())
}

/// Refuses to remove the root of a storage.
pub(crate) fn refuse_root(location: &StoreLocation) -> Result<(), Failure> {
    match location.path.is_root() {
        true => Err(Failure::Usage(format!("{location}: the root of a storage cannot be removed"))),
        false => Ok(()),
    }
}

/// Like [`for_each`], with many requests in flight; results are printed in the order of the places.
async fn request_each<T>(
    places: Vec<Place>,
    resolver: &StoreResolver,
    request: impl AsyncFn(StoreLocation) -> Result<T, Failure>,
    mut print: impl FnMut(&OsString, T) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let request = &request;
    let mut failed = Tally::default();
    let is_only = places.len() == 1;
    let mut responses = stream::iter(places)
        .map(|place| async move {
            let path = place?;
            let location = resolver.location(&path)?;
            let response = request(location.clone()).await.map_err(|failure| failure.at(&location))?;
            Ok((path, response))
        })
        .buffered(MAX_REQUESTS);
    while let Some(response) = responses.next().await {
        let outcome = response.and_then(|(path, response)| print(&path, response));
        count_failure(is_only, outcome, &mut failed)?;
    }
    failed.outcome()
}

/// Prints and counts a failure, or returns it if it ends the command.
fn count_failure(is_only: bool, outcome: Result<(), Failure>, failed: &mut Tally) -> Result<(), Failure> {
    match outcome {
        Ok(()) => Ok(()),
        Err(failure) if is_only || failure.is_broken_pipe() => Err(failure),
        Err(failure) => {
            failure.print();
            failed.add(failure.exit_code());
            Ok(())
        }
    }
}

/// Runs `towpath stat`.
pub(crate) async fn stat(arguments: &Paths, resolver: &StoreResolver) -> Result<(), Failure> {
    let request = async |location: StoreLocation| {
        refuse_slash_of_file(&location).await?;
        Ok(location.store.stat(&location.caller, &location.path).await?)
    };
    request_each(expanded(&arguments.paths, resolver).await, resolver, request, |typed, metadata| {
        let described = PathDescription::new(shown(typed), &metadata);
        let text = if arguments.json { format!("{}\n", json!(described)) } else { paragraph(described) };
        Ok(std::io::stdout().lock().write_all(text.as_bytes())?)
    })
    .await
}

/// Returns the output of `towpath stat` for one path.
fn paragraph(described: PathDescription) -> String {
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

/// Runs `towpath cat`. A whole file is verified against the digests that its storage knows.
pub(crate) async fn cat(arguments: &Cat, resolver: &StoreResolver) -> Result<(), Failure> {
    let range = arguments.range.as_deref().map(parse_range).transpose()?;
    let options = CopyOptions::default().mover_options(Overwrite::Refuse, SkipPolicy::Nothing, resolver);
    let mover = Mover::new(options, Arc::new(NoopObserver));
    for_each(expanded(&arguments.paths, resolver).await, resolver, async |_, location| {
        refuse_slash_of_file(&location).await?;
        // Asynchronous, so that signals are handled even if the pipe is not read.
        let mut out = tokio::io::stdout();
        match &range {
            None => drop(mover.drain(&location, async |piece| Ok::<_, Failure>(out.write_all(&piece).await?)).await?),
            Some(range) => write_range(&location, range, &mut out).await?,
        }
        Ok(out.flush().await?)
    })
    .await
}

/// Writes a range of a file to the standard output.
async fn write_range(location: &StoreLocation, range: &RangeRequest, out: &mut Stdout) -> Result<(), Failure> {
    let handle = location.store.open(&location.caller, &location.path, OpenOptions::default()).await?;
    let size = handle.metadata().await?.size;
    let range = match range.resolve(size) {
        Resolution::Partial(parts) => parts.first().cloned().unwrap_or(0..size),
        Resolution::Whole => 0..size,
        Resolution::Unsatisfiable | Resolution::Abusive => {
            let message = format!("the range is beyond the end of the file ({size} bytes)");
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
            return Err(Error::new(Fault::Truncated, "the file is shorter than its reported size")
                .at(&location.path)
                .into());
        }
    }
    Ok(())
}

fn parse_range(text: &str) -> Result<RangeRequest, Failure> {
    let wrong = || Failure::Usage(format!("invalid range `{text}`: use `0-99`, `100-` or `-100`"));
    RangeRequest::parse(&format!("bytes={text}")).filter(|range| range.specs().len() == 1).ok_or_else(wrong)
}

/// Runs `towpath sum`.
pub(crate) async fn sum(arguments: &Sum, resolver: &StoreResolver) -> Result<(), Failure> {
    let request = async |location: StoreLocation| {
        refuse_slash_of_file(&location).await?;
        Ok(location.store.digest(&location.caller, &location.path, arguments.algorithm, &|_| {}).await?)
    };
    request_each(expanded(&arguments.paths, resolver).await, resolver, request, |typed, digest| {
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

/// Runs `towpath mkdir`.
pub(crate) async fn make_directories(arguments: &MakeDirectory, resolver: &StoreResolver) -> Result<(), Failure> {
    for_each(literal(&arguments.paths), resolver, async |_, location| {
        let made = location.store.make_directory(&location.caller, &location.path, arguments.parents, None).await;
        Ok(made.map_err(|error| match error.fault() {
            Fault::NotFound if !arguments.parents => {
                error.with_message("its parent directory does not exist: use -p to create it")
            }
            _ => error,
        })?)
    })
    .await
}

/// Runs `towpath rmdir`.
pub(crate) async fn remove_directories(arguments: &RemoveDirectory, resolver: &StoreResolver) -> Result<(), Failure> {
    let places = expanded_unless(arguments.no_glob, &arguments.paths, resolver).await;
    for_each(places, resolver, async |_, location| {
        refuse_root(&location)?;
        Ok(location.store.remove_directory(&location.caller, &location.path).await?)
    })
    .await
}

/// Runs `towpath mv`.
pub(crate) async fn rename(arguments: &Move, resolver: &StoreResolver) -> Result<(), Failure> {
    let (from, to) = (resolver.location(&arguments.from)?, resolver.location(&arguments.to)?);
    if !std::sync::Arc::ptr_eq(&from.store, &to.store) {
        return Err(Failure::Usage("mv renames inside one storage; to move to another one, use cp and then rm".into()));
    }
    refuse_slash_of_file(&from).await?;
    if to.is_directory && !from.store.stat(&from.caller, &from.path).await?.is_directory() {
        let message = "its name ends in a slash, but the source is not a directory";
        return Err(Error::new(Fault::NotDirectory, message).at(&to.path).into());
    }
    let overwrite = if arguments.force { Overwrite::Replace } else { Overwrite::Refuse };
    match from.store.rename(&from.caller, &from.path, &to.path, overwrite).await {
        Ok(()) => Ok(()),
        Err(error) => Err(explain_rename(error, &from, &to).await.into()),
    }
}

/// Returns the error of `mv` with the end that caused it: stores may report a directory in the way of the new name, or
/// its missing parent, as an error of the old one.
async fn explain_rename(error: Error, from: &StoreLocation, to: &StoreLocation) -> Error {
    let kind = async |location: &StoreLocation| {
        let found = location.store.stat(&location.caller, &location.path).await;
        found.ok().map(|metadata| metadata.is_directory())
    };
    let fault = error.fault();
    let source_is_directory = kind(from).await;
    let (is_of_destination, message) = match (fault, kind(to).await) {
        (Fault::AlreadyExists | Fault::IsDirectory | Fault::NotEmpty, Some(true)) => {
            let name = from.path.name().unwrap_or_default();
            let inside = to.join(name).map(|inside| format!(", as in {inside}")).unwrap_or_default();
            (true, Some(format!("{}: mv needs the whole new name{inside}", fault.phrase())))
        }
        (Fault::AlreadyExists | Fault::NotDirectory, Some(false)) => (source_is_directory.is_some(), None),
        (Fault::NotFound, None) => {
            (source_is_directory.is_some(), Some("its parent directory does not exist".to_owned()))
        }
        (Fault::NotDirectory, None) => (source_is_directory.is_some(), Some("a parent is a file".to_owned())),
        (Fault::InvalidArgument, _) if source_is_directory == Some(true) && to.path.is_within(&from.path) => {
            return from.locate(error.with_message("a directory cannot be moved into itself"));
        }
        _ => (false, None),
    };
    if !is_of_destination {
        return if error.path() == Some(&to.path) { to.locate(error) } else { from.locate(error) };
    }
    let error = match message {
        Some(message) => error.with_message(message),
        None => error,
    };
    to.locate(error.moved_to(to.path.clone()))
}

/// Runs `towpath df`.
pub(crate) async fn space(arguments: &Space, resolver: &StoreResolver) -> Result<(), Failure> {
    for_each(literal(&arguments.paths), resolver, async |typed, location| {
        let space = location.store.space(&location.caller, &location.path).await?;
        let path = shown(typed);
        let mut out = std::io::stdout().lock();
        if arguments.json {
            return Ok(writeln!(out, "{}", json!({"path": path, "total": space.total, "free": space.free}))?);
        }
        let [free, total] = [space.free, space.total].map(|bytes| arguments.sizes.text(bytes));
        let unit = if arguments.sizes.are_human() { "" } else { " bytes" };
        Ok(writeln!(out, "{path}: {free} free of {total}{unit}")?)
    })
    .await
}

/// Runs `towpath ping`: measures the time of the smallest request, after a first one that sets up the connection.
pub(crate) async fn ping(arguments: &Ping, resolver: &StoreResolver) -> Result<(), Failure> {
    let location = resolver.location(&arguments.url)?;
    let mut times = Vec::new();
    for _ in 0..=arguments.count.max(1) {
        let start = clock::now();
        let responded = location.store.stat(&location.caller, &location.path).await;
        responded.map_err(|error| location.locate(error))?;
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
        "{url}: min {least:.2} ms, median {median:.2} ms, max {most:.2} ms of {}; first, with connection setup, \
         {first:.2} ms",
        times.len()
    )?)
}
