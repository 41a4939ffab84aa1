//! Metadata of a path, and their changes.

use towpath_store::{Changes, Fault, FileKind};

use super::bench::{Bench, ok};

pub(super) async fn space_is_told(bench: Bench) {
    let space = ok(bench.store.space(&bench.caller, &bench.directory).await);
    assert!(space.free <= space.total, "{space:?}");
}

pub(super) async fn a_file_is_described(bench: Bench) {
    let (path, _) = bench.put_pattern("file", 1234).await;
    let metadata = ok(bench.stat(&path).await);
    assert_eq!((metadata.kind, metadata.size), (FileKind::File, 1234));
    let file = ok(bench.open(&path).await);
    let opened = ok(file.metadata().await);
    assert_eq!((opened.kind, opened.size, opened.mtime_s()), (FileKind::File, 1234, metadata.mtime_s()));
    assert_eq!(opened.version.is_some() && metadata.version.is_some(), opened.version == metadata.version);
}

pub(super) async fn a_directory_is_described(bench: Bench) {
    let metadata = ok(bench.stat(&bench.directory).await);
    assert_eq!((metadata.kind, metadata.size), (FileKind::Directory, 0));
    assert_eq!(metadata.version, None, "only content has versions");
}

pub(super) async fn errors_name_their_path(bench: Bench) {
    let path = bench.at("missing");
    let error = bench.stat(&path).await.expect_err("nothing is there");
    assert_eq!(error.path(), Some(&path));
    assert!(!error.message().is_empty());
}

pub(super) async fn the_version_changes_with_the_content(bench: Bench) {
    let path = bench.put("file", "one").await;
    let first = ok(bench.stat(&path).await).version;
    assert_eq!(ok(bench.stat(&path).await).version, first, "nothing happened in between");
    bench.overwrite(&path, "another").await;
    let second = ok(bench.stat(&path).await).version;
    assert!(first.is_none() || first != second, "{first:?}");
}

pub(super) async fn size_can_be_changed(bench: Bench) {
    if !bench.can.update {
        return;
    }
    let (path, pattern) = bench.put_pattern("file", 1000).await;
    let resize = |size| Changes { size: Some(size), ..Changes::default() };
    ok(bench.store.change(&bench.caller, &path, resize(600)).await);
    ok(bench.store.change(&bench.caller, &path, resize(700)).await);
    let content = bench.get(&path).await;
    assert_eq!(content.len(), 700);
    pattern.check(0, &content[..600]);
    assert_eq!(content[600..], [0; 100]);
    let known = ok(bench.stat(&path).await).digests;
    assert!(known.is_empty(), "digests of the old content are still told: {known:?}");
    bench.expect(Fault::IsDirectory, bench.store.change(&bench.caller, &bench.directory, resize(0)).await);
    bench.expect(Fault::NotFound, bench.store.change(&bench.caller, &bench.at("missing"), resize(0)).await);
}

pub(super) async fn mode_can_be_changed(bench: Bench) {
    let path = bench.put("file", "content").await;
    if ok(bench.stat(&path).await).mode.is_none() {
        return;
    }
    let changes = Changes { mode: Some(0o640), ..Changes::default() };
    for path in [path, bench.directory.clone()] {
        ok(bench.store.change(&bench.caller, &path, changes).await);
        assert_eq!(ok(bench.stat(&path).await).mode.map(|mode| mode & 0o777), Some(0o640));
    }
}

pub(super) async fn times_can_be_changed(bench: Bench) {
    let (path, pattern) = bench.put_pattern("file", 5000).await;
    let known = ok(bench.stat(&path).await).digests;
    // Last a time that may be to come: with that a store may forget the digests.
    for (seconds, keeps_digests) in [(1_000_000_000_i64, true), (0, true), (2_000_000_000, false)] {
        let changes = Changes { mtime_ns: Some(seconds * 1_000_000_000), ..Changes::default() };
        ok(bench.store.change(&bench.caller, &path, changes).await);
        let metadata = ok(bench.stat(&path).await);
        assert_eq!(metadata.mtime_s(), seconds);
        let has_none = metadata.digests.is_empty() && !keeps_digests;
        assert!(metadata.digests == known || has_none, "the content is the same");
    }
    pattern.check(0, &bench.get(&path).await);
}
