//! `towpath ls`: lists one directory, or a tree in the order of its listings, by name, size or time.
//!
//! Each entry is formatted as it arrives, so that a large directory needs little more memory than its output.

use std::{
    cmp::Reverse,
    ffi::OsString,
    fmt,
    io::{self, BufWriter, Write},
    ops::Range,
};

use bytes::Bytes;
use futures::StreamExt as _;
use towpath_mover::{ListingFailure, StoreLocation, Walk};
use towpath_store::{Entry, Error, Fault, ListOptions, Metadata, Printable, StorePath};

use crate::{
    args::List,
    commands::for_each,
    failure::{Failure, Tally},
    location::{StoreResolver, shown},
    output::{self, PathDescription},
    patterns::expanded,
};

/// Size of the output buffer in bytes.
const PRINT_BYTES: usize = 64 << 10;

/// Maximum size in bytes of the output of one directory to sort. A larger one, or an endless listing, is printed in
/// parts by name, and refused by size or time.
const MAX_SORTED_BYTES: usize = 64 << 20;

impl List {
    /// Returns the sort key of an entry besides its name: larger ones are first.
    fn key(&self, metadata: &Metadata) -> i64 {
        match (self.by_size, self.by_time) {
            (true, _) => i64::try_from(metadata.size).unwrap_or(i64::MAX),
            (_, true) => metadata.mtime_ns.unwrap_or(i64::MIN),
            _ => 0,
        }
    }

    fn has_key(&self) -> bool {
        self.by_size || self.by_time
    }
}

/// Runs `towpath ls`.
pub(crate) async fn list(arguments: &List, resolver: &StoreResolver) -> Result<(), Failure> {
    for_each(expanded(&arguments.paths, resolver).await, resolver, async |typed, location| {
        let mut out = BufWriter::with_capacity(PRINT_BYTES, io::stdout().lock());
        let metadata = arguments.long || arguments.json || arguments.has_key();
        let options = ListOptions { metadata, digests: false };
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
                    lines.refuse_keys(arguments, &location.path)?;
                    lines.print(arguments, out)?;
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
    Ok(lines.print(arguments, out)?)
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
                if !arguments.has_key() {
                    lines.print(arguments, out)?;
                } else if lines.text.len() > MAX_SORTED_BYTES {
                    lines.refuse_keys(arguments, &location.path)?;
                }
            }
            Err(ListingFailure { directory, error }) if directory == location.path => return Err(error.into()),
            Err(ListingFailure { error, .. }) => failed.print(&error),
        }
    }
    lines.print(arguments, out)?;
    failed.outcome()
}

/// Buffered lines, which are printed in the order of the entries.
#[derive(Debug, Default)]
struct Lines {
    text: Vec<u8>,
    entries: Vec<Line>,
}

/// The line of one entry.
#[derive(Debug)]
struct Line {
    /// See [`List::key`].
    key: Reverse<i64>,
    name: Bytes,
    /// Its range in the text.
    range: Range<usize>,
}

impl Lines {
    /// Adds entries of the directory that is shown as `directory`; empty for the listed directory itself.
    fn add(&mut self, arguments: &List, directory: &str, entries: Vec<Entry>) -> io::Result<()> {
        for entry in entries {
            let start = self.text.len();
            let path = DisplayPath { directory, name: Printable(&entry.name) };
            print_entry(arguments, path, &entry.metadata, &mut self.text)?;
            let key = Reverse(arguments.key(&entry.metadata));
            self.entries.push(Line { key, name: entry.name, range: start..self.text.len() });
        }
        Ok(())
    }

    /// Fails if the lines have to be sorted by size or time, because not all of them fit into memory.
    fn refuse_keys(&self, arguments: &List, path: &StorePath) -> Result<(), Failure> {
        if !arguments.has_key() {
            return Ok(());
        }
        let message = format!("more than {} entries cannot be sorted: list it without -S and -t", self.entries.len());
        Err(Error::new(Fault::TooLarge, message).at(path).into())
    }

    /// Prints and clears the lines.
    fn print(&mut self, arguments: &List, out: &mut impl Write) -> io::Result<()> {
        self.entries.sort_unstable_by(|a, b| (a.key, &a.name).cmp(&(b.key, &b.name)));
        if arguments.reverse {
            self.entries.reverse();
        }
        for line in self.entries.drain(..) {
            out.write_all(self.text.get(line.range).unwrap_or_default())?;
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
        output::line(path, metadata, arguments.sizes.are_human(), out)
    } else {
        writeln!(out, "{path}")
    }
}
