//! `towpath plan`: the byte ranges of a ROOT file with the values of some columns and entries.

use std::{ffi::OsStr, io::Write as _, ops::Range, sync::Arc};

use bytes::Bytes;
use futures::{StreamExt as _, stream};
use serde_json::{Value, json};
use towpath_mover::StoreLocation;
use towpath_proto::units::size_text;
use towpath_rootfile::{
    Block, Column, Error as RootError, Plan as Ranges, PlannedColumn, ReadAt, RootFile, TreeIndex, TreeKey, TreeKind,
};
use towpath_store::{Error, Fault, OpenOptions, Printable, ReadHandle};

use crate::{
    args::Plan,
    failure::{Failure, complain},
    location::{StoreResolver, shown},
    output::count_text,
};

/// Maximum size of the metadata of a tree in bytes. The largest ones seen, of files with 2,000 branches and 50,000 baskets,
/// have some MB.
const MAX_METADATA_BYTES: u64 = 256 << 20;
/// Number of ranges of metadata that are read at the same time.
const READS_IN_FLIGHT: usize = 64;

/// Runs `towpath plan`.
pub(crate) async fn run(arguments: &Plan, resolver: &StoreResolver) -> Result<(), Failure> {
    let location = resolver.location(&arguments.path)?;
    let planned = async {
        let trees = read_trees(arguments, &location).await?;
        match arguments.columns.is_empty() {
            true => Ok((listing(&trees, arguments.json), Vec::new())),
            false => plan(arguments, &trees),
        }
    };
    let (output, unmatched) = planned.await.map_err(|failure: Failure| failure.at(&location))?;
    let mut out = std::io::stdout().lock();
    out.write_all(output.as_bytes())?;
    out.flush()?;
    unmatched.iter().for_each(|pattern| complain(format!("no column matches `{pattern}`")));
    match unmatched.is_empty() {
        true => Ok(()),
        false => Err(Failure::Printed { exit: Error::new(Fault::NotFound, "").exit_code() }),
    }
}

/// Returns the trees of a file: the one that was requested, or without a selection all.
async fn read_trees(arguments: &Plan, location: &StoreLocation) -> Result<Vec<TreeIndex>, Failure> {
    let handle = location.store.open(&location.caller, &location.path, OpenOptions::default()).await?;
    let source = HandleSource(Arc::clone(&handle));
    let size = handle.metadata().await?.size;
    let failure = |error| failure(&arguments.path, error);
    let file = RootFile::open(&source, size, MAX_METADATA_BYTES).await.map_err(failure)?;
    let mut trees = Vec::new();
    for key in chosen(arguments, file.trees())? {
        trees.push(file.read(&source, key).await.map_err(failure)?);
    }
    Ok(trees)
}

/// Returns the trees to read.
fn chosen<'a>(arguments: &Plan, trees: &'a [TreeKey]) -> Result<Vec<&'a TreeKey>, Failure> {
    let wanted = |tree: &&TreeKey| arguments.tree.as_deref().is_none_or(|name| name.trim_matches('/') == tree.path);
    let chosen: Vec<_> = trees.iter().filter(wanted).collect();
    let names = || trees.iter().map(|tree| name(&tree.path).to_string()).collect::<Vec<_>>().join(", ");
    match (&arguments.tree, &*chosen) {
        (_, [_, _, ..]) if !arguments.columns.is_empty() => {
            Err(Failure::Usage(format!("the file has several trees: choose one with --tree ({})", names())))
        }
        (_, [_, ..]) => Ok(chosen),
        (Some(tree), []) if !trees.is_empty() => {
            Err(Error::new(Fault::NotFound, format!("no tree `{tree}` in the file, which has {}", names())).into())
        }
        (_, []) => Err(Error::new(Fault::NotFound, "no TTree or RNTuple in the file").into()),
    }
}

/// Displays a name in the file, which may have characters that a terminal would interpret.
fn name(name: &str) -> Printable<'_> {
    Printable(name.as_bytes())
}

/// Returns the output for the trees without a selection.
fn listing(trees: &[TreeIndex], is_json: bool) -> String {
    if is_json {
        let trees: Vec<_> = trees.iter().map(|tree| tree_json(tree, true)).collect();
        return format!("{}\n", json!({ "trees": trees }));
    }
    let line = |tree: &TreeIndex| {
        let bytes = tree.columns().iter().map(Column::bytes).sum();
        let counts = [
            count_text(tree.entries(), "entry", "entries"),
            count_text(tree.columns().len() as u64, "column", "columns"),
        ];
        format!("{}: {}, {}, {}\n", name(&tree.path), kind_name(tree.kind), counts.join(", "), size_text(bytes))
    };
    trees.iter().map(line).collect()
}

fn tree_json(tree: &TreeIndex, has_columns: bool) -> Value {
    let mut object = json!({ "tree": tree.path, "kind": kind_name(tree.kind), "entries": tree.entries() });
    if has_columns {
        let column =
            |column: &Column| json!({ "name": column.name, "blocks": column.blocks.len(), "bytes": column.bytes() });
        object["columns"] = tree.columns().iter().map(column).collect();
    }
    object
}

fn kind_name(kind: TreeKind) -> &'static str {
    match kind {
        TreeKind::Tree => "TTree",
        TreeKind::Ntuple => "RNTuple",
    }
}

/// Returns the output for the selected columns, and the patterns that match none.
fn plan(arguments: &Plan, trees: &[TreeIndex]) -> Result<(String, Vec<String>), Failure> {
    let [tree] = trees else { return Err(Failure::internal("several trees to plan for")) };
    let entries = arguments.entries.0.start..arguments.entries.0.end.min(tree.entries());
    let plan = Ranges::new(tree, &arguments.columns, &entries, arguments.gap.0)
        .map_err(|error| Failure::Usage(format!("--columns: {error}")))?;
    let output = if arguments.json { plan_json(tree, &entries, &plan) } else { plan_text(&plan) };
    Ok((output, plan.unmatched))
}

fn plan_json(tree: &TreeIndex, entries: &Range<u64>, plan: &Ranges) -> String {
    let mut object = tree_json(tree, false);
    object["selected_entries"] = json!([entries.start, entries.end.max(entries.start)]);
    let block = |block: &Block| json!([block.first_entry, block.offset, block.length]);
    let column = |column: &PlannedColumn| json!({ "name": column.name, "bytes": column.bytes(), "blocks": column.blocks.iter().map(block).collect::<Vec<_>>() });
    object["columns"] = plan.columns.iter().map(column).collect();
    object["ranges"] = plan.ranges.iter().map(|range| json!([range.start, range.end - range.start])).collect();
    object["bytes"] = json!(plan.bytes());
    format!("{object}\n")
}

fn plan_text(plan: &Ranges) -> String {
    let line = |column: &PlannedColumn| {
        format!("{:>10}  {:>7} blocks  {}\n", size_text(column.bytes()), column.blocks.len(), name(&column.name))
    };
    let lines: String = plan.columns.iter().map(line).collect();
    format!("{lines}{:>10}  {:>7} ranges  in all\n", size_text(plan.bytes()), plan.ranges.len())
}

/// Returns the failure of a file at `path` whose metadata cannot be read.
fn failure(path: &OsStr, error: RootError) -> Failure {
    match error {
        RootError::Read(source) => match source.downcast::<Error>() {
            Ok(error) => (*error).into(),
            Err(source) => Failure::internal(source.to_string()),
        },
        error => Failure::InvalidFacts(format!("{}: {error}", shown(path))),
    }
}

/// Reads the metadata of an open file.
struct HandleSource(Arc<dyn ReadHandle>);

impl ReadAt for HandleSource {
    async fn read(&self, ranges: Vec<Range<u64>>) -> Result<Vec<Bytes>, Box<dyn std::error::Error + Send + Sync>> {
        let reads = ranges.into_iter().map(|range| async move {
            // The library limits it.
            let length = usize::try_from(range.end - range.start).unwrap_or(usize::MAX);
            self.0.read(range.start, length).await
        });
        let read: Vec<Result<Bytes, Error>> = stream::iter(reads).buffered(READS_IN_FLIGHT).collect().await;
        Ok(read.into_iter().collect::<Result<_, _>>()?)
    }

    async fn run<T: Send + 'static>(
        &self,
        job: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Box<dyn std::error::Error + Send + Sync>> {
        Ok(job())
    }
}
