//! Copies from and to streams: standard streams, and devices and pipes of this machine.

use std::{
    ffi::OsStr,
    fs::File,
    io,
    os::unix::{ffi::OsStrExt as _, fs::FileTypeExt as _},
    path::{Path, PathBuf},
};

use tokio::{
    io::{AsyncRead, AsyncWrite, AsyncWriteExt as _},
    task::spawn_blocking,
};
use towpath_mover::{CopiedFile, Mover, StoreLocation};
use towpath_store::{Error, Fault, sys::disk};

use super::arguments::Stream;
use crate::failure::Failure;

/// Writes a file to a stream. Block devices are overwritten only if `may_replace`.
pub(super) async fn to_stream(
    mover: &Mover,
    from: &StoreLocation,
    stream: &Stream,
    may_replace: bool,
) -> Result<CopiedFile, Failure> {
    let mut out: Box<dyn AsyncWrite + Send + Unpin> = match stream {
        // Asynchronous, so that signals are handled even if the pipe is not read.
        Stream::Standard => Box::new(tokio::io::stdout()),
        Stream::Special(location) => Box::new(opened(location, move |path| to_write(&path, may_replace)).await?),
    };
    let copied = mover.drain(from, async |piece| Ok::<_, Failure>(out.write_all(&piece).await?)).await;
    let copied = copied.map_err(|failure| failure.at(from))?;
    out.flush().await?;
    Ok(copied)
}

/// Writes a stream to a file.
pub(super) async fn from_stream(mover: &Mover, stream: &Stream, to: &StoreLocation) -> Result<CopiedFile, Failure> {
    let input: Box<dyn AsyncRead + Send + Unpin> = match stream {
        Stream::Standard => Box::new(tokio::io::stdin()),
        Stream::Special(location) => Box::new(opened(location, |path| disk::open(&path)).await?),
    };
    let copied = mover.fill(input, to).await;
    // An error without a path is that of the input.
    Ok(copied.map_err(|error| if error.path().is_some() { to.locate(error) } else { error })?)
}

/// Calls `open` for a local path on a separate thread, because opening a pipe waits for its other end.
async fn opened(
    location: &StoreLocation,
    open: impl FnOnce(PathBuf) -> io::Result<File> + Send + 'static,
) -> Result<tokio::fs::File, Failure> {
    let path = PathBuf::from(OsStr::from_bytes(location.path.as_bytes()));
    let outcome = spawn_blocking(move || open(path)).await.expect("opening does not panic");
    let file = outcome.map_err(|error| {
        let fault = error.raw_os_error().map_or(Fault::AlreadyExists, Fault::from_errno);
        Error::new(fault, format!("opening: {error}")).at(&location.path)
    })?;
    Ok(tokio::fs::File::from_std(file))
}

fn to_write(path: &Path, may_replace: bool) -> io::Result<File> {
    let file = disk::open_to_write(path)?;
    if file.metadata()?.file_type().is_block_device() && !may_replace {
        return Err(io::Error::other("it is a block device, and its content would be lost: use -f to overwrite it"));
    }
    Ok(file)
}
