//! Changes in place.

use std::sync::Arc;

use bytes::Bytes;
use towpath_proto::checksum::{Algorithm, Hasher};
use towpath_store::{ByteRange, Expectation, Fault, ReadBuffer, Result, StorePath, WriteHandle};

use super::test_context::{TestContext, ok};

async fn update(context: &TestContext, path: &StorePath) -> Arc<dyn WriteHandle> {
    ok(context.store.update(&context.caller, path).await)
}

pub(super) async fn changes_are_visible_at_once(context: TestContext) {
    let path = context.put("file", "hello world").await;
    let file = update(&context, &path).await;
    assert_eq!(ok(file.read(6, 5).await), "world");
    ok(file.write(6, "there".into()).await);
    assert_eq!(context.get(&path).await, "hello there");
    ok(file.write(11, ", you".into()).await);
    assert_eq!(context.get(&path).await, "hello there, you");
    ok(file.sync().await);
    assert_eq!(ok(file.metadata().await).size, 16);
    assert_eq!(ok(file.commit(Expectation::default()).await).size, 16);
    context.expect(Fault::HandleNotOpen, file.write(0, "x".into()).await);
}

pub(super) async fn changes_stay_when_the_handle_is_dropped(context: TestContext) {
    let path = context.put("file", "hello world").await;
    let file = update(&context, &path).await;
    ok(file.write(0, "HELLO".into()).await);
    drop(file);
    assert_eq!(context.get(&path).await, "HELLO world");
    let file = update(&context, &path).await;
    ok(file.write(6, "WORLD".into()).await);
    ok(file.abort().await);
    assert_eq!(context.get(&path).await, "HELLO WORLD");
}

pub(super) async fn known_digests_are_forgotten_at_the_first_change(context: TestContext) {
    let path = context.put("file", "hello world").await;
    let before = ok(context.store.digest(&context.caller, &path, Algorithm::Adler32, &|_| {}).await);
    let file = update(&context, &path).await;
    ok(file.write(0, "J".into()).await);
    drop(file);
    let known = ok(context.stat(&path).await).digests;
    assert_eq!(known, Hasher::digest(known.algorithms(), b"Jello world"));
    let after = ok(context.store.digest(&context.caller, &path, Algorithm::Adler32, &|_| {}).await);
    assert_ne!(before, after);
    assert_eq!(after, Hasher::digest_of(Algorithm::Adler32, b"Jello world"));
}

pub(super) async fn an_update_can_cut_and_extend(context: TestContext) {
    let path = context.put("file", "hello world").await;
    let file = update(&context, &path).await;
    ok(file.set_size(5).await);
    assert_eq!(context.get(&path).await, "hello");
    ok(file.set_size(7).await);
    assert_eq!(context.get(&path).await, "hello\0\0");
    assert!(ok(context.stat(&path).await).digests.is_empty());
}

pub(super) async fn an_update_can_be_verified(context: TestContext) {
    let path = context.put("file", "hello world").await;
    let file = update(&context, &path).await;
    ok(file.write(0, "J".into()).await);
    let digests = Hasher::digest(context.can.digests, b"Jello world");
    ok(file.commit(Expectation { size: Some(11), digests, mtime_ns: None }).await);
    let file = update(&context, &path).await;
    context.expect(Fault::Truncated, file.commit(Expectation { size: Some(10), ..Expectation::default() }).await);
    let file = update(&context, &path).await;
    let digests = Hasher::digest(context.can.digests, b"hello world");
    context.expect(Fault::ChecksumMismatch, file.commit(Expectation { digests, ..Expectation::default() }).await);
}

pub(super) async fn only_existing_files_are_updated(context: TestContext) {
    context.expect(Fault::NotFound, context.store.update(&context.caller, &context.at("missing")).await);
    context.expect(Fault::IsDirectory, context.store.update(&context.caller, &context.directory).await);
}

pub(super) async fn a_file_changed_in_place_is_noticed(context: TestContext) {
    let path = context.put("file", "hello world").await;
    let reader = ok(context.open(&path).await);
    assert_eq!(ok(reader.read(0, 5).await), "hello");
    let file = update(&context, &path).await;
    // Another size: the clocks of some file systems are too coarse to see two changes in a row.
    ok(file.write(0, "other content".into()).await);
    // A cache may have kept the version that was opened.
    let expect_old = |outcome: Result<Bytes>| match outcome {
        Ok(data) => assert_eq!(data, "hello", "mixed versions"),
        changed => context.expect(Fault::Changed, changed),
    };
    expect_old(reader.read(0, 5).await);
    expect_old(reader.read_into(0, 5, Vec::new()).await.map(Bytes::from));
    let mut buffer = b"before".to_vec();
    let now = reader.read_now(0, 5, &mut buffer);
    let rest = Bytes::from(buffer.split_off(6));
    assert_eq!(buffer, b"before");
    match now {
        Some(outcome) => expect_old(outcome.map(|_| rest)),
        None => assert_eq!(rest, ""),
    }
    let mut place = [0; 5];
    if let Some(outcome) = reader.read_vector_now(&mut [ReadBuffer { offset: 0, buffer: &mut place }]) {
        expect_old(outcome.map(|()| Bytes::copy_from_slice(&place)));
    }
    let range = ByteRange { offset: 0, length: 5 };
    context.vector(&reader, &[range, range]).await.into_iter().for_each(expect_old);
    match reader.read(6, 5).await {
        Ok(data) => assert_eq!(data, "world", "mixed versions"),
        changed => context.expect(Fault::Changed, changed),
    }
    assert_eq!(ok(ok(context.open(&path).await).read(0, 5).await), "other");
}
