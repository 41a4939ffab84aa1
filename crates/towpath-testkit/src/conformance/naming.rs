//! Operations on directories and names.

use std::collections::BTreeSet;

use bytes::Bytes;
use towpath_store::{Expectation, Fault, Overwrite, Result, StorePath};

use super::test_context::{TestContext, ok};

async fn make(context: &TestContext, name: &str) -> StorePath {
    let path = context.at(name);
    ok(context.store.make_directory(&context.caller, &path, false, None).await);
    path
}

async fn rename(context: &TestContext, from: &StorePath, to: &StorePath, overwrite: Overwrite) -> Result<()> {
    context.store.rename(&context.caller, from, to, overwrite).await
}

pub(super) async fn directories_are_made(context: TestContext) {
    let path = make(&context, "directory").await;
    assert!(ok(context.stat(&path).await).is_directory());
    let again = context.store.make_directory(&context.caller, &path, false, None).await;
    context.expect(Fault::AlreadyExists, again);
    let orphan = context.store.make_directory(&context.caller, &context.at("missing/child"), false, None).await;
    context.expect(Fault::NotFound, orphan);
    let file = context.put("file", "content").await;
    context.expect(Fault::AlreadyExists, context.store.make_directory(&context.caller, &file, false, None).await);
    let below = context.store.make_directory(&context.caller, &context.at("file/below"), false, None).await;
    context.expect(Fault::NotDirectory, below);
}

pub(super) async fn directories_are_made_with_their_parents(context: TestContext) {
    let path = context.at("a/b/c/d");
    for _ in 0..2 {
        ok(context.store.make_directory(&context.caller, &path, true, Some(0o750)).await);
    }
    let metadata = ok(context.stat(&path).await);
    assert!(metadata.is_directory());
    assert!(metadata.mode.is_none_or(|mode| mode & 0o777 == 0o750), "{:?}", metadata.mode);
    ok(context.store.make_directory(&context.caller, &StorePath::root(), true, None).await);
    let file = context.put("file", "content").await;
    let taken = [Fault::AlreadyExists, Fault::NotDirectory];
    context.expect_one_of(&taken, context.store.make_directory(&context.caller, &file, true, None).await);
    let below = context.store.make_directory(&context.caller, &context.at("file/below/x"), true, None).await;
    context.expect_one_of(&taken, below);
}

pub(super) async fn files_are_removed(context: TestContext) {
    let path = context.put("file", "content").await;
    ok(context.store.remove_file(&context.caller, &path).await);
    context.expect_nothing(&path).await;
    context.expect(Fault::NotFound, context.store.remove_file(&context.caller, &path).await);
    let directory = make(&context, "directory").await;
    context.expect(Fault::IsDirectory, context.store.remove_file(&context.caller, &directory).await);
    ok(context.stat(&directory).await);
}

pub(super) async fn directories_are_removed(context: TestContext) {
    let path = make(&context, "directory").await;
    let file = context.put("directory/file", "content").await;
    context.expect(Fault::NotEmpty, context.store.remove_directory(&context.caller, &path).await);
    context.expect(Fault::NotDirectory, context.store.remove_directory(&context.caller, &file).await);
    ok(context.store.remove_file(&context.caller, &file).await);
    ok(context.store.remove_directory(&context.caller, &path).await);
    context.expect(Fault::NotFound, context.store.remove_directory(&context.caller, &path).await);
    assert!(context.store.remove_directory(&context.caller, &StorePath::root()).await.is_err());
}

pub(super) async fn without_removal_all_entries_stay(context: TestContext) {
    let directory = make(&context, "directory").await;
    let file = context.put("file", "content").await;
    context.expect(Fault::Unsupported, context.store.remove_file(&context.caller, &file).await);
    context.expect(Fault::Unsupported, context.store.remove_directory(&context.caller, &directory).await);
    context.expect(Fault::Unsupported, context.store.remove_tree(&context.caller, &directory).await);
    assert_eq!(context.get(&file).await, "content");
    assert!(ok(context.stat(&directory).await).is_directory());
}

pub(super) async fn without_renames_names_stay(context: TestContext) {
    let (from, to) = (context.put("from", "content").await, context.at("to"));
    for overwrite in [Overwrite::Refuse, Overwrite::Replace] {
        context.expect(Fault::Unsupported, rename(&context, &from, &to, overwrite).await);
    }
    assert_eq!(context.get(&from).await, "content");
    context.expect(Fault::NotFound, context.stat(&to).await);
}

pub(super) async fn trees_are_removed(context: TestContext) {
    let path = make(&context, "tree").await;
    make(&context, "tree/empty").await;
    make(&context, "tree/full").await;
    context.put("tree/full/file", "content").await;
    let beside = context.put("tree-beside", "content").await;
    ok(context.store.remove_tree(&context.caller, &path).await);
    context.expect(Fault::NotFound, context.stat(&path).await);
    context.expect(Fault::NotFound, context.store.remove_tree(&context.caller, &path).await);
    context.expect(Fault::NotDirectory, context.store.remove_tree(&context.caller, &beside).await);
    ok(context.store.remove_file(&context.caller, &beside).await);
    assert!(context.store.remove_tree(&context.caller, &StorePath::root()).await.is_err());
}

pub(super) async fn files_are_renamed(context: TestContext) {
    let from = context.put("from", "content").await;
    let to = context.at("to");
    ok(rename(&context, &from, &to, Overwrite::Refuse).await);
    assert_eq!(context.get(&to).await, "content");
    context.expect(Fault::NotFound, context.stat(&from).await);
    context.expect(Fault::NotFound, rename(&context, &from, &context.at("other"), Overwrite::Refuse).await);
    make(&context, "directory").await;
    let deeper = context.at("directory/deeper");
    ok(rename(&context, &to, &deeper, Overwrite::Refuse).await);
    assert_eq!(context.get(&deeper).await, "content");
}

pub(super) async fn directories_are_renamed_with_what_they_hold(context: TestContext) {
    let from = make(&context, "from").await;
    make(&context, "from/sub").await;
    context.put("from/sub/file", "content").await;
    context.put("from.file", "beside").await;
    let to = context.at("to");
    ok(rename(&context, &from, &to, Overwrite::Refuse).await);
    assert_eq!(context.get(&context.at("to/sub/file")).await, "content");
    assert_eq!(context.get(&context.at("from.file")).await, "beside");
    context.expect(Fault::NotFound, context.stat(&from).await);
}

pub(super) async fn existing_names_are_not_taken_unasked(context: TestContext) {
    let from = context.put("from", "new").await;
    let to = context.put("to", "old").await;
    context.expect(Fault::AlreadyExists, rename(&context, &from, &to, Overwrite::Refuse).await);
    assert_eq!((context.get(&from).await, context.get(&to).await), ("new".into(), "old".into()));
}

pub(super) async fn a_rename_can_replace(context: TestContext) {
    let from = context.put("from", "new").await;
    let to = context.put("to", "old").await;
    ok(rename(&context, &from, &to, Overwrite::Replace).await);
    assert_eq!(context.get(&to).await, "new");
    context.expect(Fault::NotFound, context.stat(&from).await);
    context.expect(Fault::NotFound, rename(&context, &from, &to, Overwrite::Replace).await);
    let full = make(&context, "full").await;
    context.put("full/file", "content").await;
    let empty = make(&context, "empty").await;
    ok(rename(&context, &full, &empty, Overwrite::Replace).await);
    assert_eq!(context.get(&context.at("empty/file")).await, "content");
    let (file, full) = (to, empty);
    let other = make(&context, "other").await;
    context.expect(Fault::IsDirectory, rename(&context, &file, &other, Overwrite::Replace).await);
    context.expect(Fault::NotDirectory, rename(&context, &other, &file, Overwrite::Replace).await);
    context.expect(Fault::NotEmpty, rename(&context, &other, &full, Overwrite::Replace).await);
    assert_eq!(context.get(&file).await, "new");
    assert_eq!(context.get(&context.at("empty/file")).await, "content");
    assert!(ok(context.stat(&other).await).is_directory());
}

pub(super) async fn impossible_renames_are_refused(context: TestContext) {
    context.put("file", "content").await;
    let full = make(&context, "full").await;
    let file = context.put("full/file", "content").await;
    let other = make(&context, "other").await;
    let within = context.at("full/within");
    context.expect(Fault::InvalidArgument, rename(&context, &full, &within, Overwrite::Refuse).await);
    context.expect(Fault::NotFound, rename(&context, &file, &context.at("missing/file"), Overwrite::Refuse).await);
    context.expect(Fault::NotDirectory, rename(&context, &other, &context.at("file/below"), Overwrite::Refuse).await);
    assert_eq!(context.names().await.len(), 3);
}

pub(super) async fn names_are_kept_byte_for_byte(context: TestContext) {
    let names = if context.any_name { odd_names() } else { plain_names() };
    for name in &names {
        let path = context.directory.join(name).expect("a name");
        let file = context.create(&path).await;
        ok(file.write(0, name.clone()).await);
        ok(file.commit(Expectation::default()).await);
    }
    assert_eq!(context.names().await, names);
    for name in &names {
        let path = context.directory.join(name).expect("a name");
        assert_eq!(context.get(&path).await, name);
        if context.can.remove {
            ok(context.store.remove_file(&context.caller, &path).await);
        }
    }
    assert!(!context.can.remove || context.names().await.is_empty());
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
