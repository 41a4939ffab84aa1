//! `towpath ls`: lists one directory in name order, or a tree in the order of its listings.
//!
//! Each entry is formatted as it arrives, so that a large directory needs little more memory than its output.

use std::{
    ffi::OsString,
    fmt,
    io::{self, BufWriter, Write},
    ops::Range,
};

use bytes::Bytes;
use futures::StreamExt as _;
use towpath_mover::{ListingFailure, StoreLocation, Walk};
use towpath_store::{Entry, Fault, ListOptions, Metadata, Printable};

use crate::{
    args::List,
    commands::for_each,
    failure::{Failure, Tally},
    location::{StoreResolver, shown},
    output::{self, PathDescription},
};

/// Size of the output buffer in bytes.
const PRINT_BYTES: usize = 64 << 10;

/// Maximum size in bytes of the output of one directory to sort. A larger one, or an endless listing, is printed in
/// parts.
const MAX_SORTED_BYTES: usize = 64 << 20;

/// Runs `towpath ls`.
pub(crate) async fn list(arguments: &List, resolver: &StoreResolver) -> Result<(), Failure> {
    for_each(&arguments.paths, resolver, async |typed, location| {
        let mut out = BufWriter::with_capacity(PRINT_BYTES, io::stdout().lock());
        let options = ListOptions { metadata: arguments.long || arguments.json, digests: false };
        if arguments.recursive {
            list_tree(arguments, &location, options, &mut out).await?;
        } else {
            list_directory(arguments, typed, &location, options, &mut out).await?;
        }
        Ok(out.flush()?)
    })
    .await
}

async fn list_directory(
    arguments: &List,
    typed: &OsString,
    location: &StoreLocation,
    options: ListOptions,
    out: &mut impl Write,
) -> Result<(), Failure> {
    let mut lines = Lines::default();
    let mut listing = location.store.list(&location.caller, &location.path, options);
    while let Some(batch) = listing.next().await {
        match batch {
            Ok(batch) => {
                lines.add(arguments, "", batch)?;
                if lines.text.len() > MAX_SORTED_BYTES {
                    lines.print(out)?;
                }
            }
            // Like `ls`, prints the file itself. The XRootD protocol does not report that it is a file.
            Err(error) if matches!(error.fault(), Fault::NotDirectory | Fault::Io) => {
                return match location.store.stat(&location.caller, &location.path).await {
                    Ok(metadata) if !metadata.is_directory() && !location.is_directory => {
                        Ok(print_entry(arguments, shown(typed), &metadata, out)?)
                    }
                    _ => Err(error.at(&location.path).into()),
                };
            }
            Err(error) => return Err(error.at(&location.path).into()),
        }
    }
    Ok(lines.print(out)?)
}

async fn list_tree(
    arguments: &List,
    location: &StoreLocation,
    options: ListOptions,
    out: &mut impl Write,
) -> Result<(), Failure> {
    let mut walk = Walk::new(location, options);
    let mut failed = Tally::default();
    let mut lines = Lines::default();
    while let Some(batch) = walk.next().await {
        match batch {
            Ok(batch) => {
                for entry in
                    batch.entries.iter().filter(|entry| entry.metadata.is_directory() && !entry.metadata.is_link)
                {
                    // A directory whose name is invalid in a path cannot be entered.
                    let _ = batch.path_of(entry).map(|path| walk.enter(&batch, path, &entry.metadata));
                }
                lines.add(arguments, &output::relative(&batch.directory, &location.path), batch.entries)?;
                lines.print(out)?;
            }
            Err(ListingFailure { directory, error }) if directory == location.path => return Err(error.into()),
            Err(ListingFailure { error, .. }) => failed.print(&error),
        }
    }
    failed.outcome()
}

/// Buffered lines, which are printed in the order of the names.
#[derive(Debug, Default)]
struct Lines {
    text: Vec<u8>,
    /// The names, with the ranges of their lines in the text.
    names: Vec<(Bytes, Range<usize>)>,
}

impl Lines {
    /// Adds entries of the directory that is shown as `directory`; empty for the listed directory itself.
    fn add(&mut self, arguments: &List, directory: &str, entries: Vec<Entry>) -> io::Result<()> {
        for entry in entries {
            let start = self.text.len();
            let path = DisplayPath { directory, name: Printable(&entry.name) };
            print_entry(arguments, path, &entry.metadata, &mut self.text)?;
            self.names.push((entry.name, start..self.text.len()));
        }
        Ok(())
    }

    /// Prints and clears the lines.
    fn print(&mut self, out: &mut impl Write) -> io::Result<()> {
        self.names.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
        for (_, line) in self.names.drain(..) {
            out.write_all(self.text.get(line).unwrap_or_default())?;
        }
        self.text.clear();
        Ok(())
    }
}

/// The displayed path of an entry.
struct DisplayPath<'a> {
    directory: &'a str,
    name: Printable<'a>,
}

impl fmt::Display for DisplayPath<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.directory.is_empty() {
            write!(f, "{}/", self.directory)?;
        }
        self.name.fmt(f)
    }
}

fn print_entry(arguments: &List, path: impl fmt::Display, metadata: &Metadata, out: &mut impl Write) -> io::Result<()> {
    if arguments.json {
        serde_json::to_writer(&mut *out, &PathDescription::new(path.to_string(), metadata))?;
        writeln!(out)
    } else if arguments.long {
        output::line(path, metadata, out)
    } else {
        writeln!(out, "{path}")
    }
}
