//! `towpath find`: prints the paths below places that fulfill predicates, as arguments for other commands.

use std::{
    ffi::{OsStr, OsString},
    io::{self, BufWriter, IsTerminal as _, Write},
    os::unix::ffi::OsStrExt as _,
    time::Duration,
};

use serde_json::json;
use towpath_mover::{ListingFailure, StoreLocation, Walk};
use towpath_store::{Error, Fault, FileKind, ListOptions, Metadata, Printable, StorePath, sys::clock};

use crate::{
    args::{EntryKind, Find},
    commands::{for_each, refuse_slash_of_file},
    failure::{Failure, Tally, complain},
    location::{StoreResolver, argument_of, shown},
    output::{PathDescription, count_text},
    patterns::expanded,
};

/// The search below one place.
struct Search<'a, W> {
    arguments: &'a Find,
    typed: &'a OsStr,
    root: &'a StoreLocation,
    now_ns: i64,
    is_terminal: bool,
    out: W,
    failed: Tally,
    /// Number of entries whose time had to be compared, but is unknown.
    untimed: u64,
}

/// Runs `towpath find`.
pub(crate) async fn run(arguments: &Find, resolver: &StoreResolver) -> Result<(), Failure> {
    let now_ns = clock::unix_ns();
    let places = expanded(&arguments.paths, resolver).await;
    for_each(places, resolver, async |typed: &OsString, location| {
        refuse_slash_of_file(&location).await?;
        let metadata = location.store.stat(&location.caller, &location.path).await?;
        let mut search = Search {
            arguments,
            typed,
            root: &location,
            now_ns,
            is_terminal: io::stdout().is_terminal(),
            out: BufWriter::new(io::stdout().lock()),
            failed: Tally::default(),
            untimed: 0,
        };
        search.examine(&location.path, &metadata)?;
        if metadata.is_directory() && arguments.max_depth != Some(0) {
            search.descend().await?;
        }
        search.end()
    })
    .await
}

impl<W: Write> Search<'_, W> {
    async fn descend(&mut self) -> Result<(), Failure> {
        let depth = self.root.path.components().count();
        let mut walk = Walk::new(self.root, ListOptions { metadata: true, digests: false });
        while let Some(batch) = walk.next().await {
            let batch = match batch {
                Ok(batch) => batch,
                Err(ListingFailure { error, .. }) => {
                    self.failed.print(&self.root.locate(error));
                    continue;
                }
            };
            let entry_depth = batch.directory.components().count() - depth + 1;
            for entry in &batch.entries {
                let path = match batch.path_of(entry) {
                    Ok(path) => path,
                    Err(error) => {
                        self.failed.print(&self.root.locate(error));
                        continue;
                    }
                };
                self.examine(&path, &entry.metadata)?;
                let is_entered = self.arguments.max_depth.is_none_or(|max_depth| entry_depth < max_depth);
                if entry.metadata.is_directory() && !entry.metadata.is_link && is_entered {
                    walk.enter(&batch, path, &entry.metadata);
                }
            }
            self.out.flush()?;
        }
        Ok(())
    }

    /// Prints an entry that fulfills all predicates.
    fn examine(&mut self, path: &StorePath, metadata: &Metadata) -> Result<(), Failure> {
        let arguments = self.arguments;
        let name = OsStr::from_bytes(path.name().unwrap_or(b"/"));
        let is_named = [&arguments.name, &arguments.iname].into_iter().flatten().all(|glob| glob.is_match(name));
        let is_of_kind = match arguments.kind {
            Some(EntryKind::File) => metadata.kind == FileKind::File,
            Some(EntryKind::Directory) => metadata.kind == FileKind::Directory,
            None => true,
        };
        let has_size = arguments.size.is_none_or(|size| !metadata.is_directory() && size.holds_for(metadata.size));
        if is_named && is_of_kind && has_size && self.is_timely(metadata) { self.print(path, metadata) } else { Ok(()) }
    }

    fn is_timely(&mut self, metadata: &Metadata) -> bool {
        let Find { newer_than, older_than, .. } = self.arguments;
        if newer_than.is_none() && older_than.is_none() {
            return true;
        }
        let Some(mtime_ns) = metadata.mtime_ns else {
            self.untimed += 1;
            return false;
        };
        let age = Duration::from_nanos(u64::try_from(self.now_ns.saturating_sub(mtime_ns)).unwrap_or(0));
        newer_than.is_none_or(|newest| age <= newest) && older_than.is_none_or(|oldest| age > oldest)
    }

    fn print(&mut self, path: &StorePath, metadata: &Metadata) -> Result<(), Failure> {
        let Some(argument) = argument_of(self.typed, &self.root.path, path) else {
            let error = Error::new(Fault::InvalidArgument, "its name cannot be written in a URL");
            self.failed.print(&self.root.locate(error.at(path)));
            return Ok(());
        };
        // Other commands need the user of a URL; on a screen it may be a secret.
        let is_on_screen = self.root.is_remote() && self.is_terminal;
        let argument = if is_on_screen { OsString::from(shown(&argument)) } else { argument };
        let out = &mut self.out;
        if self.arguments.json {
            let described = PathDescription::new(argument.to_string_lossy().into_owned(), metadata);
            writeln!(out, "{}", json!(described))?;
        } else if self.is_terminal && !self.arguments.print0 {
            writeln!(out, "{}", Printable(argument.as_bytes()))?;
        } else {
            out.write_all(argument.as_bytes())?;
            out.write_all(if self.arguments.print0 { b"\0" } else { b"\n" })?;
        }
        Ok(())
    }

    /// Returns the result. Entries that could not be examined change the exit code.
    fn end(mut self) -> Result<(), Failure> {
        self.out.flush()?;
        if self.untimed > 0 {
            let count = count_text(self.untimed, "entry has", "entries have");
            complain(format_args!("{}: {count} no modification time: not compared", self.root));
            self.failed.add(Fault::Unsupported.exit_code());
        }
        self.failed.outcome()
    }
}
