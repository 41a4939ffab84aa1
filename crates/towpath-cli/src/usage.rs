//! `towpath du`: the sums of the sizes of files, by directory.

use std::{
    cmp::Ordering,
    collections::HashMap,
    ffi::OsString,
    io::{self, Write as _},
};

use serde_json::json;
use towpath_mover::{ListingFailure, StoreLocation, Walk};
use towpath_store::{Error, Fault, FileKind, ListOptions, Metadata, Printable, StorePath};

use crate::{
    args::Usage,
    commands::{for_each, refuse_slash_of_file},
    failure::{Failure, Tally},
    location::{StoreResolver, shown},
    patterns::expanded,
};

/// Maximum number of directories whose sums are kept: about 200 MB with paths of typical length.
const MAX_SUMS: usize = 1 << 20;

/// The contents of one directory.
#[derive(Debug, Default, Clone, Copy)]
struct Sum {
    bytes: u64,
    files: u64,
    directories: u64,
}

impl Sum {
    fn add(&mut self, other: Sum) {
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.files += other.files;
        self.directories += other.directories;
    }

    fn add_entry(&mut self, metadata: &Metadata) {
        match metadata.kind {
            FileKind::Directory => self.directories += 1,
            FileKind::File | FileKind::Other => {
                self.files += 1;
                self.bytes = self.bytes.saturating_add(metadata.size);
            }
        }
    }
}

/// Runs `towpath du`.
pub(crate) async fn run(arguments: &Usage, resolver: &StoreResolver) -> Result<(), Failure> {
    for_each(expanded(&arguments.paths, resolver).await, resolver, async |typed, location| {
        refuse_slash_of_file(&location).await?;
        let metadata = location.store.stat(&location.caller, &location.path).await?;
        if !metadata.is_directory() {
            let mut sum = Sum::default();
            sum.add_entry(&metadata);
            return Ok(print(arguments, &shown(typed), sum, 0)?);
        }
        of_tree(arguments, typed, &location).await
    })
    .await
}

/// Prints the sums of a tree. Directories that could not be listed are reported, counted, and change the exit code.
async fn of_tree(arguments: &Usage, typed: &OsString, root: &StoreLocation) -> Result<(), Failure> {
    let max_depth = if arguments.summarize { 0 } else { arguments.max_depth.unwrap_or(usize::MAX) };
    let mut failed = Tally::default();
    let sums = sum(root, max_depth, &mut failed).await?;
    let top = shown(typed);
    for (path, sum) in sums {
        let name = path.iter().fold(top.strip_suffix('/').unwrap_or(&top).to_owned(), |parent, name| {
            format!("{parent}/{}", Printable(name))
        });
        let name = if path.is_empty() { top.clone() } else { name };
        print(arguments, &name, sum, if path.is_empty() { failed.count } else { 0 })?;
    }
    failed.outcome()
}

/// Path below the root, as names.
type Names = Vec<Vec<u8>>;

/// Returns the sum of each directory down to `max_depth`, the contents of a directory before itself.
async fn sum(root: &StoreLocation, max_depth: usize, failed: &mut Tally) -> Result<Vec<(Names, Sum)>, Failure> {
    let depth = root.path.components().count();
    let key = |path: &StorePath| path.components().skip(depth).take(max_depth).map(<[u8]>::to_vec).collect::<Names>();
    let mut sums = HashMap::from([(Names::new(), Sum::default())]);
    let mut walk = Walk::new(root, ListOptions { metadata: true, digests: false });
    while let Some(batch) = walk.next().await {
        let batch = match batch {
            Ok(batch) => batch,
            Err(ListingFailure { directory, error }) if directory == root.path => return Err(error.into()),
            Err(ListingFailure { error, .. }) => {
                failed.print(&root.locate(error));
                continue;
            }
        };
        let mut listed = Sum::default();
        for entry in &batch.entries {
            listed.add_entry(&entry.metadata);
            if entry.metadata.is_directory() && !entry.metadata.is_link {
                match batch.path_of(entry) {
                    Ok(path) => {
                        sums.entry(key(&path)).or_default();
                        walk.enter(&batch, path, &entry.metadata);
                    }
                    Err(error) => failed.print(&root.locate(error)),
                }
            }
        }
        sums.entry(key(&batch.directory)).or_default().add(listed);
        if sums.len() > MAX_SUMS {
            let message = format!("more than {MAX_SUMS} directories: use -s or --max-depth");
            return Err(Error::new(Fault::TooLarge, message).at(&root.path).into());
        }
    }
    Ok(totals(sums))
}

/// Adds the sum of each directory to its parent.
fn totals(sums: HashMap<Names, Sum>) -> Vec<(Names, Sum)> {
    let mut ordered: Vec<_> = sums.into_iter().collect();
    ordered.sort_unstable_by(|(a, _), (b, _)| contents_first(a, b));
    // Sums of the directories above the current one whose contents are not complete.
    let mut open: Vec<(usize, Sum)> = Vec::new();
    for (names, sum) in &mut ordered {
        while let Some((_, below)) = open.pop_if(|(depth, _)| *depth > names.len()) {
            sum.add(below);
        }
        open.push((names.len(), *sum));
    }
    ordered
}

/// Orders by name, with the contents of a directory before itself.
fn contents_first(a: &Names, b: &Names) -> Ordering {
    let different = a.iter().zip(b).map(|(a, b)| a.cmp(b)).find(|order| order.is_ne());
    different.unwrap_or_else(|| b.len().cmp(&a.len()))
}

fn print(arguments: &Usage, path: &str, sum: Sum, failed: usize) -> io::Result<()> {
    let mut out = io::stdout().lock();
    let Sum { bytes, files, directories } = sum;
    if !arguments.json {
        return writeln!(out, "{}\t{path}", arguments.sizes.text(bytes));
    }
    let mut line = json!({"path": path, "bytes": bytes, "files": files, "directories": directories});
    if failed > 0 {
        line["failed"] = failed.into();
    }
    writeln!(out, "{line}")
}
