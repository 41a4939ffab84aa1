//! Operations on directories and names.

use std::collections::BTreeSet;

use bytes::Bytes;
use towpath_store::{Expectation, Fault, Overwrite, Result, StorePath};

use super::bench::{Bench, ok};

async fn make(bench: &Bench, name: &str) -> StorePath {
    let path = bench.at(name);
    ok(bench.store.make_directory(&bench.caller, &path, false, None).await);
    path
}

async fn rename(bench: &Bench, from: &StorePath, to: &StorePath, overwrite: Overwrite) -> Result<()> {
    bench.store.rename(&bench.caller, from, to, overwrite).await
}

pub(super) async fn directories_are_made(bench: Bench) {
    let path = make(&bench, "directory").await;
    assert!(ok(bench.stat(&path).await).is_directory());
    let again = bench.store.make_directory(&bench.caller, &path, false, None).await;
    bench.expect(Fault::AlreadyExists, again);
    let orphan = bench.store.make_directory(&bench.caller, &bench.at("missing/child"), false, None).await;
    bench.expect(Fault::NotFound, orphan);
    let file = bench.put("file", "content").await;
    bench.expect(Fault::AlreadyExists, bench.store.make_directory(&bench.caller, &file, false, None).await);
    let below = bench.store.make_directory(&bench.caller, &bench.at("file/below"), false, None).await;
    bench.expect(Fault::NotDirectory, below);
}

pub(super) async fn directories_are_made_with_their_parents(bench: Bench) {
    let path = bench.at("a/b/c/d");
    for _ in 0..2 {
        ok(bench.store.make_directory(&bench.caller, &path, true, Some(0o750)).await);
    }
    let metadata = ok(bench.stat(&path).await);
    assert!(metadata.is_directory());
    assert!(metadata.mode.is_none_or(|mode| mode & 0o777 == 0o750), "{:?}", metadata.mode);
    ok(bench.store.make_directory(&bench.caller, &StorePath::root(), true, None).await);
    let file = bench.put("file", "content").await;
    let taken = [Fault::AlreadyExists, Fault::NotDirectory];
    bench.expect_one_of(&taken, bench.store.make_directory(&bench.caller, &file, true, None).await);
    let below = bench.store.make_directory(&bench.caller, &bench.at("file/below/x"), true, None).await;
    bench.expect_one_of(&taken, below);
}

pub(super) async fn files_are_removed(bench: Bench) {
    let path = bench.put("file", "content").await;
    ok(bench.store.remove_file(&bench.caller, &path).await);
    bench.expect_nothing(&path).await;
    bench.expect(Fault::NotFound, bench.store.remove_file(&bench.caller, &path).await);
    let directory = make(&bench, "directory").await;
    bench.expect(Fault::IsDirectory, bench.store.remove_file(&bench.caller, &directory).await);
    ok(bench.stat(&directory).await);
}

pub(super) async fn directories_are_removed(bench: Bench) {
    let path = make(&bench, "directory").await;
    let file = bench.put("directory/file", "content").await;
    bench.expect(Fault::NotEmpty, bench.store.remove_directory(&bench.caller, &path).await);
    bench.expect(Fault::NotDirectory, bench.store.remove_directory(&bench.caller, &file).await);
    ok(bench.store.remove_file(&bench.caller, &file).await);
    ok(bench.store.remove_directory(&bench.caller, &path).await);
    bench.expect(Fault::NotFound, bench.store.remove_directory(&bench.caller, &path).await);
    assert!(bench.store.remove_directory(&bench.caller, &StorePath::root()).await.is_err());
}

pub(super) async fn trees_are_removed(bench: Bench) {
    let path = make(&bench, "tree").await;
    make(&bench, "tree/empty").await;
    make(&bench, "tree/full").await;
    bench.put("tree/full/file", "content").await;
    let beside = bench.put("tree-beside", "content").await;
    ok(bench.store.remove_tree(&bench.caller, &path).await);
    bench.expect(Fault::NotFound, bench.stat(&path).await);
    bench.expect(Fault::NotFound, bench.store.remove_tree(&bench.caller, &path).await);
    bench.expect(Fault::NotDirectory, bench.store.remove_tree(&bench.caller, &beside).await);
    ok(bench.store.remove_file(&bench.caller, &beside).await);
    assert!(bench.store.remove_tree(&bench.caller, &StorePath::root()).await.is_err());
}

pub(super) async fn files_are_renamed(bench: Bench) {
    let from = bench.put("from", "content").await;
    let to = bench.at("to");
    ok(rename(&bench, &from, &to, Overwrite::Refuse).await);
    assert_eq!(bench.get(&to).await, "content");
    bench.expect(Fault::NotFound, bench.stat(&from).await);
    bench.expect(Fault::NotFound, rename(&bench, &from, &to, Overwrite::Replace).await);
    make(&bench, "directory").await;
    let deeper = bench.at("directory/deeper");
    ok(rename(&bench, &to, &deeper, Overwrite::Refuse).await);
    assert_eq!(bench.get(&deeper).await, "content");
}

pub(super) async fn directories_are_renamed_with_what_they_hold(bench: Bench) {
    let from = make(&bench, "from").await;
    make(&bench, "from/sub").await;
    bench.put("from/sub/file", "content").await;
    bench.put("from.file", "beside").await;
    let to = bench.at("to");
    ok(rename(&bench, &from, &to, Overwrite::Refuse).await);
    assert_eq!(bench.get(&bench.at("to/sub/file")).await, "content");
    assert_eq!(bench.get(&bench.at("from.file")).await, "beside");
    bench.expect(Fault::NotFound, bench.stat(&from).await);
    let empty = make(&bench, "empty").await;
    ok(rename(&bench, &to, &empty, Overwrite::Replace).await);
    assert_eq!(bench.get(&bench.at("empty/sub/file")).await, "content");
}

pub(super) async fn existing_names_are_not_taken_unasked(bench: Bench) {
    let from = bench.put("from", "new").await;
    let to = bench.put("to", "old").await;
    bench.expect(Fault::AlreadyExists, rename(&bench, &from, &to, Overwrite::Refuse).await);
    assert_eq!((bench.get(&from).await, bench.get(&to).await), ("new".into(), "old".into()));
    ok(rename(&bench, &from, &to, Overwrite::Replace).await);
    assert_eq!(bench.get(&to).await, "new");
    bench.expect(Fault::NotFound, bench.stat(&from).await);
}

pub(super) async fn impossible_renames_are_refused(bench: Bench) {
    let file = bench.put("file", "content").await;
    let full = make(&bench, "full").await;
    bench.put("full/file", "content").await;
    let other = make(&bench, "other").await;
    let within = bench.at("full/within");
    bench.expect(Fault::IsDirectory, rename(&bench, &file, &other, Overwrite::Replace).await);
    bench.expect(Fault::NotDirectory, rename(&bench, &other, &file, Overwrite::Replace).await);
    bench.expect(Fault::NotEmpty, rename(&bench, &other, &full, Overwrite::Replace).await);
    bench.expect(Fault::InvalidArgument, rename(&bench, &full, &within, Overwrite::Refuse).await);
    bench.expect(Fault::NotFound, rename(&bench, &file, &bench.at("missing/file"), Overwrite::Refuse).await);
    bench.expect(Fault::NotDirectory, rename(&bench, &other, &bench.at("file/below"), Overwrite::Refuse).await);
    assert_eq!(bench.names().await.len(), 3);
}

pub(super) async fn names_are_kept_byte_for_byte(bench: Bench) {
    let names = if bench.any_name { odd_names() } else { plain_names() };
    for name in &names {
        let path = bench.directory.join(name).expect("a name");
        let file = bench.create(&path).await;
        ok(file.write(0, name.clone()).await);
        ok(file.commit(Expectation::default()).await);
    }
    assert_eq!(bench.names().await, names);
    for name in &names {
        let path = bench.directory.join(name).expect("a name");
        assert_eq!(bench.get(&path).await, name);
        ok(bench.store.remove_file(&bench.caller, &path).await);
    }
    assert!(bench.names().await.is_empty());
}

fn plain_names() -> BTreeSet<Bytes> {
    let long = "x".repeat(255);
    ["a", "A", "a.b-c_d", ".hidden", "...", "größe", "日本", &long].map(|name| Bytes::from(name.to_owned())).into()
}

/// Each byte that a name may have, at its start, middle and end; and what shells and protocols stumble over.
fn odd_names() -> BTreeSet<Bytes> {
    let bytes = (1..=255_u8).filter(|byte| *byte != b'/');
    let mut names: BTreeSet<_> = bytes.map(|byte| Bytes::from(vec![byte, b'm', byte, b'm', byte])).collect();
    names.extend([" ", "%2F", "a?b=c&d", "#", "*", "-rf", "a:b", "\\", "\"'`", "~", "nul\u{2028}"].map(Bytes::from));
    names.extend(plain_names());
    names
}
