//! The arguments of `cp`, with the semantics of the Unix `cp`: into an existing directory, or under the given name.

use std::ffi::{OsStr, OsString};

use towpath_mover::{FileProperties, Job, Jobs, Replicas, StoreLocation};
use towpath_proto::{
    checksum::{Digest, Digests},
    metalink,
};
use towpath_store::{Error, Fault, OpenOptions};

use crate::{
    args::{ChecksumRequest, Copy, CopyOptions, WhenThirdParty},
    commands::refuse_slash_of_file,
    failure::Failure,
    failures,
    location::{CopyEndpoint, StoreResolver},
    patterns::expanded,
};

/// The request of a `cp` command.
pub(super) enum Request {
    /// Copies a file to a stream.
    ToStream(StoreLocation, Stream),
    /// Copies a stream to a file.
    FromStream(Stream, StoreLocation),
    /// Copies files or trees; whether the destination is the name of the copy itself.
    Files(Source, bool),
}

/// A stream to read or write from start to end.
pub(super) enum Stream {
    /// The standard input or output.
    Standard,
    /// A device or pipe of this machine.
    Special(StoreLocation),
}

/// The origin of the list of files.
pub(super) enum Source {
    /// On the command line.
    Named(Vec<Job>),
    /// A list of earlier failures.
    Listed(Jobs),
}

/// Parses the arguments. Queries stores only to determine the names at the destination; sources are opened later.
pub(super) async fn read(arguments: &Copy, resolver: &StoreResolver) -> Result<Request, Failure> {
    let resolver = &resolver.trusting_metalinks(arguments.trust_metalink);
    if let Some(list) = &arguments.retry_from {
        return Ok(Request::Files(Source::Listed(failures::read(list, resolver).await?), false));
    }
    let Some((destination, sources)) = arguments.paths.split_last() else {
        return Err(Failure::Usage("a source and a destination are required".into()));
    };
    let sources = &expanded(sources, resolver).await.into_iter().collect::<Result<Vec<_>, _>>()?;
    if !arguments.filters.filter.is_empty() && !arguments.recursive {
        return Err(Failure::Usage("--include, --exclude, --min-size and --max-size require -r".into()));
    }
    check_several(arguments, sources)?;
    let to = end(arguments, resolver, destination).await?;
    let mut from = Vec::new();
    for source in sources {
        from.push(end(arguments, resolver, source).await?);
    }
    let to = match (to, from.as_slice()) {
        (CopyEndpoint::Location(to), sources)
            if sources.iter().all(|source| matches!(source, CopyEndpoint::Location(_))) =>
        {
            to
        }
        (CopyEndpoint::Standard, _) if arguments.options.json => {
            return Err(Failure::Usage(
                "--json conflicts with the destination `-`: both write to the standard output".into(),
            ));
        }
        (CopyEndpoint::Standard, _) if arguments.options.prints_events() => {
            return Err(Failure::Usage("--events - conflicts with the destination `-`: use --events FILE".into()));
        }
        _ if needs_two_files(arguments) => {
            return Err(Failure::Usage(
                "--checksum, --skip-existing, --update, --dry-run, --failed-to, --third-party and -r do not support \
                 streams (`-`, a device or a pipe)"
                    .into(),
            ));
        }
        (CopyEndpoint::Standard, [CopyEndpoint::Location(from)]) => {
            return Ok(Request::ToStream(from.clone(), Stream::Standard));
        }
        (CopyEndpoint::Stream(to), [CopyEndpoint::Location(from)]) => {
            return Ok(Request::ToStream(from.clone(), Stream::Special(to)));
        }
        (CopyEndpoint::Location(to), [CopyEndpoint::Standard]) if to.is_directory => {
            return Err(Error::new(
                Fault::IsDirectory,
                "its name ends in a slash: a copy of the standard input needs the name of a file",
            )
            .at(&to.path)
            .into());
        }
        (CopyEndpoint::Location(to), [CopyEndpoint::Standard]) => return Ok(Request::FromStream(Stream::Standard, to)),
        (CopyEndpoint::Location(to), [CopyEndpoint::Stream(from)]) => {
            let to = target(from, &to, is_directory(&to, true).await?)?;
            return Ok(Request::FromStream(Stream::Special(from.clone()), to));
        }
        (CopyEndpoint::Standard | CopyEndpoint::Stream(_), [CopyEndpoint::Standard | CopyEndpoint::Stream(_)]) => {
            return Err(Failure::Usage("one of source and destination must be a file or URL".into()));
        }
        _ => {
            let message = "a stream (`-`, a device or a pipe) requires exactly one source and one destination";
            return Err(Failure::Usage(message.into()));
        }
    };
    let from = from.into_iter().filter_map(|end| match end {
        CopyEndpoint::Location(location) => Some(location),
        CopyEndpoint::Standard | CopyEndpoint::Stream(_) => None,
    });
    files(arguments, resolver, from.collect(), &to).await
}

/// Returns the request for copies of files and trees to `to`.
async fn files(
    arguments: &Copy,
    resolver: &StoreResolver,
    from: Vec<StoreLocation>,
    to: &StoreLocation,
) -> Result<Request, Failure> {
    for location in &from {
        refuse_slash_of_file(location).await.map_err(|failure| failure.at(location))?;
    }
    let is_single_file = from.len() == 1 && !arguments.recursive;
    let into = !arguments.no_target_directory && is_directory(to, is_single_file).await?;
    if from.len() > 1 && arguments.no_target_directory {
        return Err(Failure::Usage("-T requires exactly one source".into()));
    }
    if from.len() > 1 && !into {
        return Err(Error::new(Fault::NotDirectory, "several sources require a directory as the destination")
            .at(&to.path)
            .into());
    }
    if let [first] = from.as_slice()
        && !arguments.sources.is_empty()
    {
        let job = of_several(arguments, resolver, first, to, into)?;
        return Ok(Request::Files(Source::Named(vec![job]), !into));
    }
    if let Some(expected) = arguments.options.checksum.and_then(ChecksumRequest::expected) {
        return Ok(Request::Files(Source::Named(vec![with_digest(arguments, from, to, into, expected)?]), !into));
    }
    let mut jobs = Vec::new();
    for from in &from {
        match is_metalink(from) && !arguments.recursive && !arguments.as_is {
            true => jobs.extend(of_metalink(from, to, into, resolver).await?),
            false => jobs.push(Job::new(from.clone(), target(from, to, into)?)),
        }
    }
    Ok(Request::Files(Source::Named(jobs), !into))
}

/// Resolves the end `typed`. A device or pipe is a stream, except in copies of trees and of several sources, which
/// refuse special files.
async fn end(arguments: &Copy, resolver: &StoreResolver, typed: &OsStr) -> Result<CopyEndpoint, Failure> {
    match arguments.recursive || !arguments.sources.is_empty() {
        true => resolver.endpoint(typed),
        false => resolver.copy_endpoint(typed).await,
    }
}

/// Returns whether an option is incompatible with a pipe.
fn needs_two_files(arguments: &Copy) -> bool {
    let CopyOptions { checksum, failed_to, third_party, .. } = &arguments.options;
    let goes_elsewhere = *third_party != WhenThirdParty::Never;
    let Copy { skip_existing, update, dry_run, recursive, .. } = *arguments;
    let examines_files = skip_existing || update || dry_run || recursive;
    checksum.is_some() || failed_to.is_some() || goes_elsewhere || examines_files
}

/// Refuses further sources where only one source can be read.
fn check_several(arguments: &Copy, sources: &[OsString]) -> Result<(), Failure> {
    let is_one = sources.len() == 1 && !arguments.paths.iter().any(|path| path == "-");
    let message = match () {
        () if arguments.sources.is_empty() => return Ok(()),
        () if !is_one => "--source requires exactly one source file, and does not support `-`",
        () if arguments.recursive => "--source does not support -r",
        () if arguments.options.third_party != WhenThirdParty::Never => {
            "--source does not support --third-party: the bytes pass through this machine"
        }
        () => return Ok(()),
    };
    Err(Failure::Usage(message.into()))
}

/// Returns the job for one file with several sources.
fn of_several(
    arguments: &Copy,
    resolver: &StoreResolver,
    first: &StoreLocation,
    to: &StoreLocation,
    into: bool,
) -> Result<Job, Failure> {
    let mut sources = vec![first.clone()];
    for source in &arguments.sources {
        sources.push(resolver.location(source)?);
    }
    let digests = arguments.options.checksum.and_then(ChecksumRequest::expected).into_iter().collect();
    Ok(Job::new(together(sources, FileProperties { size: None, digests })?, target(first, to, into)?))
}

/// Returns the job for one file with a digest from the command line.
fn with_digest(
    arguments: &Copy,
    from: Vec<StoreLocation>,
    to: &StoreLocation,
    into: bool,
    digest: Digest,
) -> Result<Job, Failure> {
    let [first] = from.as_slice() else {
        return Err(Failure::Usage("--checksum with a digest requires exactly one source".into()));
    };
    if arguments.recursive {
        return Err(Failure::Usage("--checksum with a digest does not support -r".into()));
    }
    let to = target(first, to, into)?;
    let known = FileProperties { size: None, digests: Digests::from_iter([digest]) };
    Ok(Job::new(together(from, known)?, to))
}

/// Combines `sources` into one location.
fn together(sources: Vec<StoreLocation>, known: FileProperties) -> Result<StoreLocation, Failure> {
    let location = Replicas::new(sources, known).location();
    location.ok_or_else(|| Failure::Usage("the file has no source".into()))
}

/// Returns whether a source is a Metalink.
fn is_metalink(location: &StoreLocation) -> bool {
    location.path.name().is_some_and(|name| name.ends_with(b".meta4"))
}

/// Returns the jobs for the files that a Metalink describes. In a directory they have the names in the Metalink;
/// otherwise a single file has the given name.
async fn of_metalink(
    from: &StoreLocation,
    to: &StoreLocation,
    into: bool,
    resolver: &StoreResolver,
) -> Result<Vec<Job>, Failure> {
    let opened = from.store.open(&from.caller, &from.path, OpenOptions::default()).await;
    let file = opened.map_err(|error| from.locate(error))?;
    let size = file.metadata().await.map_err(|error| from.locate(error))?.size;
    if size > metalink::LIMITS.bytes as u64 {
        let message = format!("the Metalink is larger than {} bytes", metalink::LIMITS.bytes);
        return Err(Error::new(Fault::TooLarge, message).at(&from.path).into());
    }
    let document = file.read(0, usize::try_from(size).unwrap_or(usize::MAX)).await?;
    let invalid = |error: metalink::InvalidMetalink| {
        Error::new(Fault::InvalidArgument, format!("{error} (--as-is copies the file itself)")).at(&from.path)
    };
    let described = metalink::parse(&document).map_err(invalid)?;
    if described.len() > 1 && !into {
        let message = "a Metalink of several files requires a directory as the destination";
        return Err(Error::new(Fault::NotDirectory, message).at(&to.path).into());
    }
    let jobs = described.into_iter().map(|file| {
        let sources = file.sources.iter().map(|url| resolver.source_in(from, url)).collect::<Result<Vec<_>, _>>()?;
        let from = together(sources, FileProperties { size: file.size, digests: file.digests })?;
        let to = match into {
            true => file.name.split('/').try_fold(to.clone(), |to, name| to.join(name.as_bytes()))?,
            false => to.clone(),
        };
        let mut job = Job::new(from, to);
        job.size = file.size;
        Ok(job)
    });
    jobs.collect()
}

/// Returns whether a destination is a directory. A caller without the right to find out may still write a single file
/// with that name; else the copy reports the missing right to write.
async fn is_directory(location: &StoreLocation, is_single_file: bool) -> Result<bool, Failure> {
    if location.path.is_root() {
        return Ok(true);
    }
    let found = location.store.stat(&location.caller, &location.path).await;
    let is_denied = |error: &Error| matches!(error.fault(), Fault::AuthenticationFailed | Fault::PermissionDenied);
    match found.map_err(|error| location.locate(error)) {
        Ok(metadata) if location.is_directory && !metadata.is_directory() => {
            let message = "it is a file, but its name ends in a slash";
            Err(Error::new(Fault::NotDirectory, message).at(&location.path).into())
        }
        Ok(metadata) => Ok(metadata.is_directory()),
        Err(error) if error.fault() == Fault::NotFound => Ok(location.is_directory),
        Err(error) if is_denied(&error) && is_single_file => Ok(location.is_directory),
        Err(error) if is_denied(&error) => {
            let message = format!("cannot check whether it is a directory: {}", error.message());
            Err(error.with_message(message).into())
        }
        Err(error) => Err(error.into()),
    }
}

fn target(from: &StoreLocation, to: &StoreLocation, into: bool) -> Result<StoreLocation, Failure> {
    match from.path.name() {
        Some(name) if into => Ok(to.join(name)?),
        _ => Ok(to.clone()),
    }
}
