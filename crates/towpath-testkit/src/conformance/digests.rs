//! Digests: known ones and computed ones.

use std::sync::Mutex;

use towpath_proto::checksum::{Algorithm, Hasher};
use towpath_store::Fault;

use super::test_context::{TestContext, ok};

const SIZE: usize = 1_000_003;

pub(super) async fn every_algorithm_is_computed(context: TestContext) {
    let (path, pattern) = context.put_pattern("file", SIZE).await;
    let content = pattern.bytes(0, SIZE);
    for algorithm in context.can.digests.iter() {
        // The second one may come from the cache.
        for _ in 0..2 {
            let digest = ok(context.store.digest(&context.caller, &path, algorithm, &|_| {}).await);
            assert_eq!(digest, Hasher::digest_of(algorithm, &content));
        }
    }
}

pub(super) async fn known_digests_are_right(context: TestContext) {
    let (path, pattern) = context.put_pattern("file", SIZE).await;
    for algorithm in context.can.digests.iter() {
        ok(context.store.digest(&context.caller, &path, algorithm, &|_| {}).await);
    }
    let known = ok(context.stat(&path).await).digests;
    assert_eq!(known, Hasher::digest(known.algorithms(), &pattern.bytes(0, SIZE)));
}

pub(super) async fn known_digests_follow_the_content(context: TestContext) {
    let (path, _) = context.put_pattern("file", SIZE).await;
    for algorithm in context.can.digests.iter() {
        ok(context.store.digest(&context.caller, &path, algorithm, &|_| {}).await);
    }
    context.overwrite(&path, "other").await;
    let known = ok(context.stat(&path).await).digests;
    assert_eq!(known, Hasher::digest(known.algorithms(), b"other"));
}

pub(super) async fn progress_is_reported(context: TestContext) {
    let (path, _) = context.put_pattern("file", SIZE).await;
    for algorithm in context.can.digests.iter() {
        let reports = Mutex::new(Vec::new());
        let progress = |bytes| reports.lock().expect("no panic while it is held").push(bytes);
        ok(context.store.digest(&context.caller, &path, algorithm, &progress).await);
        let reports = reports.into_inner().expect("no panic while it was held");
        assert!(reports.is_sorted(), "{reports:?}");
        assert!(reports.last().is_none_or(|last| *last <= SIZE as u64), "{reports:?}");
    }
}

pub(super) async fn there_is_no_digest_of_what_is_no_file(context: TestContext) {
    let Some(algorithm) = context.can.digests.iter().next() else { return };
    let missing = context.store.digest(&context.caller, &context.at("missing"), algorithm, &|_| {}).await;
    context.expect(Fault::NotFound, missing);
    let directory = context.store.digest(&context.caller, &context.directory, algorithm, &|_| {}).await;
    context.expect(Fault::IsDirectory, directory);
}

pub(super) async fn a_digest_can_be_cancelled(context: TestContext) {
    let (path, pattern) = context.put_pattern("file", SIZE).await;
    let algorithm = context.can.digests.iter().last().unwrap_or(Algorithm::Adler32);
    for _ in 0..10 {
        let digest = context.store.digest(&context.caller, &path, algorithm, &|_| {});
        let _ = futures::poll!(digest);
    }
    pattern.check(0, &context.get(&path).await);
    let known = ok(context.stat(&path).await).digests;
    assert_eq!(known, Hasher::digest(known.algorithms(), &pattern.bytes(0, SIZE)));
}
