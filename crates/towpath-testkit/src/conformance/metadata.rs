//! Metadata of a path, and their changes.

use towpath_store::{Changes, Fault, FileKind};

use super::test_context::{TestContext, ok};

pub(super) async fn space_is_told(context: TestContext) {
    let space = ok(context.store.space(&context.caller, &context.directory).await);
    assert!(space.free <= space.total, "{space:?}");
}

pub(super) async fn a_file_is_described(context: TestContext) {
    let (path, _) = context.put_pattern("file", 1234).await;
    let metadata = ok(context.stat(&path).await);
    assert_eq!((metadata.kind, metadata.size), (FileKind::File, 1234));
    let file = ok(context.open(&path).await);
    let opened = ok(file.metadata().await);
    assert_eq!((opened.kind, opened.size, opened.mtime_s()), (FileKind::File, 1234, metadata.mtime_s()));
    assert_eq!(opened.version.is_some() && metadata.version.is_some(), opened.version == metadata.version);
}

pub(super) async fn a_directory_is_described(context: TestContext) {
    let metadata = ok(context.stat(&context.directory).await);
    assert_eq!((metadata.kind, metadata.size), (FileKind::Directory, 0));
    assert_eq!(metadata.version, None, "only content has versions");
}

pub(super) async fn errors_name_their_path(context: TestContext) {
    let path = context.at("missing");
    let error = context.stat(&path).await.expect_err("nothing is there");
    assert_eq!(error.path(), Some(&path));
    assert!(!error.message().is_empty());
}

pub(super) async fn the_version_changes_with_the_content(context: TestContext) {
    let path = context.put("file", "one").await;
    let first = ok(context.stat(&path).await).version;
    assert_eq!(ok(context.stat(&path).await).version, first, "nothing happened in between");
    context.overwrite(&path, "another").await;
    let second = ok(context.stat(&path).await).version;
    assert!(first.is_none() || first != second, "{first:?}");
}

pub(super) async fn size_can_be_changed(context: TestContext) {
    let (path, pattern) = context.put_pattern("file", 1000).await;
    let resize = |size| Changes { size: Some(size), ..Changes::default() };
    ok(context.store.change(&context.caller, &path, resize(600)).await);
    ok(context.store.change(&context.caller, &path, resize(700)).await);
    let content = context.get(&path).await;
    assert_eq!(content.len(), 700);
    pattern.check(0, &content[..600]);
    assert_eq!(content[600..], [0; 100]);
    let known = ok(context.stat(&path).await).digests;
    assert!(known.is_empty(), "digests of the old content are still told: {known:?}");
    context.expect(Fault::IsDirectory, context.store.change(&context.caller, &context.directory, resize(0)).await);
    context.expect(Fault::NotFound, context.store.change(&context.caller, &context.at("missing"), resize(0)).await);
}

pub(super) async fn mode_can_be_changed(context: TestContext) {
    let path = context.put("file", "content").await;
    if ok(context.stat(&path).await).mode.is_none() {
        return;
    }
    let changes = Changes { mode: Some(0o640), ..Changes::default() };
    for path in [path, context.directory.clone()] {
        ok(context.store.change(&context.caller, &path, changes).await);
        assert_eq!(ok(context.stat(&path).await).mode.map(|mode| mode & 0o777), Some(0o640));
    }
}

pub(super) async fn times_can_be_changed(context: TestContext) {
    let (path, pattern) = context.put_pattern("file", 5000).await;
    let known = ok(context.stat(&path).await).digests;
    // Last a time that may be to come: with that a store may forget the digests.
    for (seconds, keeps_digests) in [(1_000_000_000_i64, true), (0, true), (2_000_000_000, false)] {
        let changes = Changes { mtime_ns: Some(seconds * 1_000_000_000), ..Changes::default() };
        ok(context.store.change(&context.caller, &path, changes).await);
        let metadata = ok(context.stat(&path).await);
        assert_eq!(metadata.mtime_s(), seconds);
        let has_none = metadata.digests.is_empty() && !keeps_digests;
        assert!(metadata.digests == known || has_none, "the content is the same");
    }
    pattern.check(0, &context.get(&path).await);
}
