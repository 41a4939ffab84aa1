//! Changes in place.

use std::sync::Arc;

use towpath_proto::checksum::{Algorithm, Hasher};
use towpath_store::{Expectation, Fault, ReadBuffer, StorePath, WriteHandle};

use super::bench::{Bench, ok};

async fn update(bench: &Bench, path: &StorePath) -> Arc<dyn WriteHandle> {
    ok(bench.store.update(&bench.caller, path).await)
}

pub(super) async fn changes_are_visible_at_once(bench: Bench) {
    let path = bench.put("file", "hello world").await;
    let file = update(&bench, &path).await;
    assert_eq!(ok(file.read(6, 5).await), "world");
    ok(file.write(6, "there".into()).await);
    assert_eq!(bench.get(&path).await, "hello there");
    ok(file.write(11, ", you".into()).await);
    assert_eq!(bench.get(&path).await, "hello there, you");
    ok(file.sync().await);
    assert_eq!(ok(file.metadata().await).size, 16);
    assert_eq!(ok(file.commit(Expectation::default()).await).size, 16);
    bench.expect(Fault::HandleNotOpen, file.write(0, "x".into()).await);
}

pub(super) async fn changes_stay_when_the_handle_is_dropped(bench: Bench) {
    let path = bench.put("file", "hello world").await;
    let file = update(&bench, &path).await;
    ok(file.write(0, "HELLO".into()).await);
    drop(file);
    assert_eq!(bench.get(&path).await, "HELLO world");
    let file = update(&bench, &path).await;
    ok(file.write(6, "WORLD".into()).await);
    ok(file.abort().await);
    assert_eq!(bench.get(&path).await, "HELLO WORLD");
}

pub(super) async fn known_digests_are_forgotten_at_the_first_change(bench: Bench) {
    let path = bench.put("file", "hello world").await;
    let before = ok(bench.store.digest(&bench.caller, &path, Algorithm::Adler32, &|_| {}).await);
    let file = update(&bench, &path).await;
    ok(file.write(0, "J".into()).await);
    drop(file);
    let known = ok(bench.stat(&path).await).digests;
    assert_eq!(known, Hasher::digest(known.algorithms(), b"Jello world"));
    let after = ok(bench.store.digest(&bench.caller, &path, Algorithm::Adler32, &|_| {}).await);
    assert_ne!(before, after);
    assert_eq!(after, Hasher::digest_of(Algorithm::Adler32, b"Jello world"));
}

pub(super) async fn an_update_can_cut_and_extend(bench: Bench) {
    let path = bench.put("file", "hello world").await;
    let file = update(&bench, &path).await;
    ok(file.set_size(5).await);
    assert_eq!(bench.get(&path).await, "hello");
    ok(file.set_size(7).await);
    assert_eq!(bench.get(&path).await, "hello\0\0");
    assert!(ok(bench.stat(&path).await).digests.is_empty());
}

pub(super) async fn an_update_can_be_verified(bench: Bench) {
    let path = bench.put("file", "hello world").await;
    let file = update(&bench, &path).await;
    ok(file.write(0, "J".into()).await);
    let digests = Hasher::digest(bench.can.digests, b"Jello world");
    ok(file.commit(Expectation { size: Some(11), digests, mtime_ns: None }).await);
    let file = update(&bench, &path).await;
    bench.expect(Fault::Truncated, file.commit(Expectation { size: Some(10), ..Expectation::default() }).await);
    let file = update(&bench, &path).await;
    let digests = Hasher::digest(bench.can.digests, b"hello world");
    bench.expect(Fault::ChecksumMismatch, file.commit(Expectation { digests, ..Expectation::default() }).await);
}

pub(super) async fn only_existing_files_are_updated(bench: Bench) {
    bench.expect(Fault::NotFound, bench.store.update(&bench.caller, &bench.at("missing")).await);
    bench.expect(Fault::IsDirectory, bench.store.update(&bench.caller, &bench.directory).await);
}

pub(super) async fn a_file_changed_in_place_is_noticed(bench: Bench) {
    let path = bench.put("file", "hello world").await;
    let reader = ok(bench.open(&path).await);
    assert_eq!(ok(reader.read(0, 5).await), "hello");
    let file = update(&bench, &path).await;
    // Another size: the clocks of some file systems are too coarse to see two changes in a row.
    ok(file.write(0, "other content".into()).await);
    bench.expect(Fault::Changed, reader.read(0, 5).await);
    bench.expect(Fault::Changed, reader.read_into(0, 5, Vec::new()).await);
    let mut buffer = b"before".to_vec();
    if let Some(outcome) = reader.read_now(0, 5, &mut buffer) {
        bench.expect(Fault::Changed, outcome);
    }
    assert_eq!(buffer, b"before");
    if let Some(outcome) = reader.read_vector_now(&mut [ReadBuffer { offset: 0, buffer: &mut [0; 5] }]) {
        bench.expect(Fault::Changed, outcome);
    }
    let range = towpath_store::ByteRange { offset: 0, length: 5 };
    for result in bench.vector(&reader, &[range, range]).await {
        bench.expect(Fault::Changed, result);
    }
    assert_eq!(ok(ok(bench.open(&path).await).read(0, 5).await), "other");
}
