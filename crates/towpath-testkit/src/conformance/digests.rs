//! Digests: known ones and computed ones.

use std::sync::Mutex;

use towpath_proto::checksum::{Algorithm, Hasher};
use towpath_store::Fault;

use super::bench::{Bench, ok};

const SIZE: usize = 1_000_003;

pub(super) async fn every_algorithm_is_computed(bench: Bench) {
    let (path, pattern) = bench.put_pattern("file", SIZE).await;
    let content = pattern.bytes(0, SIZE);
    for algorithm in bench.can.digests.iter() {
        // The second one may come from the cache.
        for _ in 0..2 {
            let digest = ok(bench.store.digest(&bench.caller, &path, algorithm, &|_| {}).await);
            assert_eq!(digest, Hasher::digest_of(algorithm, &content));
        }
    }
}

pub(super) async fn known_digests_are_right(bench: Bench) {
    let (path, pattern) = bench.put_pattern("file", SIZE).await;
    for algorithm in bench.can.digests.iter() {
        ok(bench.store.digest(&bench.caller, &path, algorithm, &|_| {}).await);
    }
    let known = ok(bench.stat(&path).await).digests;
    assert_eq!(known, Hasher::digest(known.algorithms(), &pattern.bytes(0, SIZE)));
    bench.overwrite(&path, "other").await;
    let known = ok(bench.stat(&path).await).digests;
    assert_eq!(known, Hasher::digest(known.algorithms(), b"other"));
}

pub(super) async fn progress_is_reported(bench: Bench) {
    let (path, _) = bench.put_pattern("file", SIZE).await;
    for algorithm in bench.can.digests.iter() {
        let reports = Mutex::new(Vec::new());
        let progress = |bytes| reports.lock().expect("no panic while it is held").push(bytes);
        ok(bench.store.digest(&bench.caller, &path, algorithm, &progress).await);
        let reports = reports.into_inner().expect("no panic while it was held");
        assert!(reports.is_sorted(), "{reports:?}");
        assert!(reports.last().is_none_or(|last| *last <= SIZE as u64), "{reports:?}");
    }
}

pub(super) async fn there_is_no_digest_of_what_is_no_file(bench: Bench) {
    let Some(algorithm) = bench.can.digests.iter().next() else { return };
    let missing = bench.store.digest(&bench.caller, &bench.at("missing"), algorithm, &|_| {}).await;
    bench.expect(Fault::NotFound, missing);
    let directory = bench.store.digest(&bench.caller, &bench.directory, algorithm, &|_| {}).await;
    bench.expect(Fault::IsDirectory, directory);
}

pub(super) async fn a_digest_can_be_cancelled(bench: Bench) {
    let (path, pattern) = bench.put_pattern("file", SIZE).await;
    let algorithm = bench.can.digests.iter().last().unwrap_or(Algorithm::Adler32);
    for _ in 0..10 {
        let digest = bench.store.digest(&bench.caller, &path, algorithm, &|_| {});
        let _ = futures::poll!(digest);
    }
    pattern.check(0, &bench.get(&path).await);
    let known = ok(bench.stat(&path).await).digests;
    assert_eq!(known, Hasher::digest(known.algorithms(), &pattern.bytes(0, SIZE)));
}
