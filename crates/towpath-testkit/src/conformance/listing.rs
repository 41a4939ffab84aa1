//! Listings.

use std::collections::BTreeSet;

use bytes::Bytes;
use futures::StreamExt as _;
use towpath_proto::checksum::Hasher;
use towpath_store::{Fault, FileKind, ListOptions};

use super::bench::{Bench, ok};

/// The most entries in one batch.
const BATCH_ENTRIES: usize = 1000;

pub(super) async fn missing_directories_are_not_found(bench: Bench) {
    bench.expect(Fault::NotFound, bench.list(&bench.at("missing"), ListOptions::default()).await);
}

pub(super) async fn all_entries_are_listed_in_bounded_batches(bench: Bench) {
    let mut expected = BTreeSet::new();
    for number in 0..2500 {
        let name = format!("{number:x}");
        ok(bench.store.make_directory(&bench.caller, &bench.at(&name), false, None).await);
        expected.insert(Bytes::from(name));
    }
    let mut found = Vec::new();
    let mut batches = bench.store.list(&bench.caller, &bench.directory, ListOptions::default());
    while let Some(batch) = batches.next().await {
        let batch = ok(batch);
        assert!((1..=BATCH_ENTRIES).contains(&batch.len()), "{} entries in a batch", batch.len());
        assert!(batch.iter().all(|entry| entry.metadata.kind == FileKind::Directory));
        found.extend(batch.into_iter().map(|entry| entry.name));
    }
    assert_eq!(found.len(), expected.len(), "each entry comes once");
    assert_eq!(found.into_iter().collect::<BTreeSet<_>>(), expected);
}

pub(super) async fn an_empty_directory_has_no_entries(bench: Bench) {
    assert!(bench.names().await.is_empty());
    let options = ListOptions { metadata: true, digests: true };
    assert!(ok(bench.list(&bench.directory, options).await).is_empty());
}

pub(super) async fn a_file_is_not_listed(bench: Bench) {
    let path = bench.put("file", "content").await;
    bench.expect(Fault::NotDirectory, bench.list(&path, ListOptions::default()).await);
}

pub(super) async fn entries_are_described(bench: Bench) {
    bench.put_pattern("file", 1234).await;
    bench.put("empty", "").await;
    ok(bench.store.make_directory(&bench.caller, &bench.at("directory"), false, None).await);
    for options in [false, true].map(|metadata| ListOptions { metadata, digests: false }) {
        let entries = ok(bench.list(&bench.directory, options).await);
        assert_eq!(entries.len(), 3);
        for entry in entries {
            let own = ok(bench.stat(&bench.directory.join(&entry.name).expect("a listed name")).await);
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

pub(super) async fn known_digests_are_listed(bench: Bench) {
    bench.put("file", "content").await;
    let entries = ok(bench.list(&bench.directory, ListOptions { metadata: true, digests: true }).await);
    let known = &entries[0].metadata.digests;
    assert_eq!(*known, Hasher::digest(known.algorithms(), b"content"));
}

pub(super) async fn a_listing_can_be_dropped(bench: Bench) {
    for number in 0..10 {
        bench.put(&number.to_string(), "content").await;
    }
    for _ in 0..10 {
        let mut batches = bench.store.list(&bench.caller, &bench.directory, ListOptions::default());
        // Polled once, so that it has begun.
        let _ = futures::poll!(batches.next());
    }
    assert_eq!(bench.names().await.len(), 10);
}
