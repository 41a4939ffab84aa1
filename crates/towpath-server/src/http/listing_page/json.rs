//! The listing as JSON, for scripts.

use serde::Serialize;
use towpath_store::{FileKind, StorePath};

use super::{ListingHead, entry_list::EntryView};
use crate::http::target;

/// An entry in JSON.
#[derive(Serialize)]
struct JsonEntry<'a> {
    /// With replacement characters if it is not UTF-8; `href` is exact.
    name: &'a str,
    href: &'a str,
    kind: &'static str,
    size: Option<u64>,
    mtime: Option<i64>,
}

pub(super) fn head(head: &ListingHead) -> String {
    let path = serde_json::to_string(&head.directory.to_string()).unwrap_or_default();
    format!("{{\"path\":{path},\"entries\":[")
}

pub(super) fn write_entry(text: &mut String, directory: &StorePath, entry: EntryView<'_>, is_first: bool) {
    let kind = match entry.kind {
        FileKind::Directory => "directory",
        FileKind::File => "file",
        FileKind::Other => "other",
    };
    let mut href = target::encode_name(directory, entry.name);
    if entry.kind == FileKind::Directory {
        href.push('/');
    }
    let line = JsonEntry {
        name: &String::from_utf8_lossy(entry.name),
        href: &href,
        kind,
        size: (entry.kind == FileKind::File).then_some(entry.size),
        mtime: entry.modified_s,
    };
    text.push_str(if is_first { "\n" } else { ",\n" });
    text.push_str(&serde_json::to_string(&line).unwrap_or_default());
}

pub(super) fn write_end(text: &mut String) {
    text.push_str("\n]}\n");
}
