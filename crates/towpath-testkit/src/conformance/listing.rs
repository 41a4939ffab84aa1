//! Listings.

use std::collections::BTreeSet;

use bytes::Bytes;
use futures::StreamExt as _;
use towpath_proto::checksum::Hasher;
use towpath_store::{Fault, FileKind, ListOptions};

use super::test_context::{TestContext, ok};

/// The most entries in one batch.
const BATCH_ENTRIES: usize = 1000;

pub(super) async fn missing_directories_are_not_found(context: TestContext) {
    context.expect(Fault::NotFound, context.list(&context.at("missing"), ListOptions::default()).await);
}

pub(super) async fn all_entries_are_listed_in_bounded_batches(context: TestContext) {
    let mut expected = BTreeSet::new();
    for number in 0..2500 {
        let name = format!("{number:x}");
        ok(context.store.make_directory(&context.caller, &context.at(&name), false, None).await);
        expected.insert(Bytes::from(name));
    }
    let mut found = Vec::new();
    let mut batches = context.store.list(&context.caller, &context.directory, ListOptions::default());
    while let Some(batch) = batches.next().await {
        let batch = ok(batch);
        assert!((1..=BATCH_ENTRIES).contains(&batch.len()), "{} entries in a batch", batch.len());
        assert!(batch.iter().all(|entry| entry.metadata.kind == FileKind::Directory));
        found.extend(batch.into_iter().map(|entry| entry.name));
    }
    assert_eq!(found.len(), expected.len(), "each entry comes once");
    assert_eq!(found.into_iter().collect::<BTreeSet<_>>(), expected);
}

pub(super) async fn an_empty_directory_has_no_entries(context: TestContext) {
    assert!(context.names().await.is_empty());
    let options = ListOptions { metadata: true, digests: true };
    assert!(ok(context.list(&context.directory, options).await).is_empty());
}

pub(super) async fn a_file_is_not_listed(context: TestContext) {
    let path = context.put("file", "content").await;
    context.expect(Fault::NotDirectory, context.list(&path, ListOptions::default()).await);
}

pub(super) async fn entries_are_described(context: TestContext) {
    context.put_pattern("file", 1234).await;
    context.put("empty", "").await;
    ok(context.store.make_directory(&context.caller, &context.at("directory"), false, None).await);
    for options in [false, true].map(|metadata| ListOptions { metadata, digests: false }) {
        let entries = ok(context.list(&context.directory, options).await);
        assert_eq!(entries.len(), 3);
        for entry in entries {
            let own = ok(context.stat(&context.directory.join(&entry.name).expect("a listed name")).await);
            assert_eq!(entry.metadata.kind, own.kind, "{:?}", entry.name);
            if options.metadata {
                assert_eq!(
                    (entry.metadata.size, entry.metadata.mtime_s()),
                    (own.size, own.mtime_s()),
                    "{:?}",
                    entry.name
                );
            }
        }
    }
}

pub(super) async fn known_digests_are_listed(context: TestContext) {
    context.put("file", "content").await;
    let entries = ok(context.list(&context.directory, ListOptions { metadata: true, digests: true }).await);
    let known = &entries[0].metadata.digests;
    assert_eq!(*known, Hasher::digest(known.algorithms(), b"content"));
}

pub(super) async fn a_listing_can_be_dropped(context: TestContext) {
    for number in 0..10 {
        context.put(&number.to_string(), "content").await;
    }
    for _ in 0..10 {
        let mut batches = context.store.list(&context.caller, &context.directory, ListOptions::default());
        // Polled once, so that it has begun.
        let _ = futures::poll!(batches.next());
    }
    assert_eq!(context.names().await.len(), 10);
}
