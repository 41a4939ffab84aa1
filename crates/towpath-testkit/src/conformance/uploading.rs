//! New files: invisible until they are complete and match their promise.

use std::sync::Arc;

use bytes::Bytes;
use futures::future::join_all;
use towpath_proto::checksum::{Algorithm, Algorithms, Digest, Digests, Hasher};
use towpath_store::{CreateOptions, Expectation, Fault, FileKind, Overwrite, StorePath, WriteHandle};

use super::test_context::{TestContext, ok};
use crate::{pattern::Pattern, random::Random};

const SIZE: usize = 200_003;

pub(super) async fn an_upload_is_invisible_until_it_is_committed(context: TestContext) {
    let (path, pattern) = (context.at("file"), Pattern::new(1));
    let file = context.create(&path).await;
    context.expect_nothing(&path).await;
    ok(file.write(0, pattern.bytes(0, 1000)).await);
    ok(file.write(1000, pattern.bytes(1000, SIZE - 1000)).await);
    ok(file.sync().await);
    context.expect_nothing(&path).await;
    ok(file.commit(Expectation::default()).await);
    pattern.check(0, &context.get(&path).await);
    assert_eq!(context.names().await.len(), 1);
}

pub(super) async fn an_empty_file_can_be_uploaded(context: TestContext) {
    let path = context.at("empty");
    let file = context.create(&path).await;
    ok(file.commit(Expectation { size: Some(0), ..Expectation::default() }).await);
    assert_eq!(ok(context.stat(&path).await).size, 0);
}

pub(super) async fn dropping_an_upload_leaves_nothing(context: TestContext) {
    let path = context.at("file");
    let file = context.create(&path).await;
    ok(file.write(0, Pattern::new(1).bytes(0, SIZE)).await);
    drop(file);
    context.expect_nothing(&path).await;
}

pub(super) async fn aborting_leaves_nothing(context: TestContext) {
    let path = context.at("file");
    let file = context.create(&path).await;
    ok(file.write(0, Pattern::new(1).bytes(0, SIZE)).await);
    ok(file.abort().await);
    ok(file.abort().await);
    context.expect_nothing(&path).await;
    context.expect(Fault::HandleNotOpen, file.commit(Expectation::default()).await);
    context.expect_nothing(&path).await;
}

pub(super) async fn a_finished_handle_says_so(context: TestContext) {
    let path = context.at("file");
    let file = context.create(&path).await;
    ok(file.write(0, "content".into()).await);
    ok(file.commit(Expectation::default()).await);
    context.expect(Fault::HandleNotOpen, file.write(0, "other".into()).await);
    context.expect(Fault::HandleNotOpen, file.commit(Expectation::default()).await);
    ok(file.abort().await);
    assert_eq!(context.get(&path).await, "content");
}

pub(super) async fn the_size_must_be_the_one_promised(context: TestContext) {
    let path = context.at("file");
    for promised in [0, 99, 101] {
        let file = context.create(&path).await;
        ok(file.write(0, Pattern::new(1).bytes(0, 100)).await);
        let expected = Expectation { size: Some(promised), ..Expectation::default() };
        context.expect(Fault::Truncated, file.commit(expected).await);
        context.expect_nothing(&path).await;
        context.expect(Fault::HandleNotOpen, file.commit(Expectation::default()).await);
    }
}

pub(super) async fn a_small_file_may_be_larger_than_was_announced(context: TestContext) {
    let content = Pattern::new(1).bytes(0, 100);
    for announced in [0, 40, 100] {
        for first in [100, 40] {
            let path = context.at(&format!("{announced}-{first}"));
            let options = CreateOptions { size_hint: Some(announced), ..CreateOptions::default() };
            let file = ok(context.store.create(&context.caller, &path, options).await);
            for piece in [0..first, first..100] {
                ok(file.write(piece.start as u64, content.slice(piece)).await);
            }
            let committed = ok(file.commit(Expectation { size: Some(100), ..Expectation::default() }).await);
            assert_eq!(committed.size, 100);
            assert_eq!(context.get(&path).await, content);
        }
    }
}

pub(super) async fn the_digests_must_be_those_promised(context: TestContext) {
    let content = Pattern::new(1).bytes(0, SIZE);
    for algorithm in context.can.digests.iter() {
        let right = Hasher::digest_of(algorithm, &content);
        let path = context.put_promising(algorithm.name(), &content, right).await;
        assert_eq!(context.get(&path).await, content);
        let path = context.at(&format!("bad-{algorithm}"));
        let file = context.create(&path).await;
        ok(file.write(0, content.clone()).await);
        let wrong = Hasher::digest_of(algorithm, b"something else");
        let expected = Expectation { digests: wrong.into(), ..Expectation::default() };
        context.expect(Fault::ChecksumMismatch, file.commit(expected).await);
        context.expect(Fault::NotFound, context.stat(&path).await);
    }
}

pub(super) async fn a_failed_commit_leaves_the_old_file(context: TestContext) {
    let path = context.put("file", "old").await;
    let file = context.replace(&path).await;
    ok(file.write(0, "new content".into()).await);
    let expected = Expectation { size: Some(1), ..Expectation::default() };
    context.expect(Fault::Truncated, file.commit(expected).await);
    assert_eq!(context.get(&path).await, "old");
    assert_eq!(context.names().await.len(), 1);
}

pub(super) async fn commit_tells_the_metadata(context: TestContext) {
    let path = context.at("file");
    let file = context.create(&path).await;
    let content = Pattern::new(1).bytes(0, SIZE);
    ok(file.write(0, content.clone()).await);
    let metadata = ok(file.commit(Expectation::default()).await);
    assert_eq!((metadata.kind, metadata.size), (FileKind::File, SIZE as u64));
    assert_right(&metadata.digests, &content);
    let later = ok(context.stat(&path).await);
    assert_eq!((metadata.version.clone(), metadata.mtime_s()), (later.version.clone(), later.mtime_s()));
    assert_right(&later.digests, &content);
}

pub(super) async fn the_time_is_the_one_promised(context: TestContext) {
    let path = context.at("file");
    let file = context.create(&path).await;
    let content = Pattern::new(1).bytes(0, SIZE);
    ok(file.write(0, content.clone()).await);
    let expected = Expectation { mtime_ns: Some(1_234_567_890_000_000_000), ..Expectation::default() };
    assert_eq!(ok(file.commit(expected).await).mtime_s(), 1_234_567_890);
    let metadata = ok(context.stat(&path).await);
    assert_eq!(metadata.mtime_s(), 1_234_567_890);
    assert_right(&metadata.digests, &content);
}

pub(super) async fn an_existing_file_is_not_replaced_unasked(context: TestContext) {
    let path = context.put("file", "first").await;
    context.expect(Fault::AlreadyExists, upload(&context, &path, Overwrite::Refuse, "second").await);
    assert_eq!(context.get(&path).await, "first");
}

pub(super) async fn without_removal_existing_files_are_not_replaced(context: TestContext) {
    let path = context.put("file", "first").await;
    context.expect(Fault::AlreadyExists, upload(&context, &path, Overwrite::Replace, "second").await);
    let new = context.at("new");
    let (first, second) = (context.replace(&new).await, context.replace(&new).await);
    ok(first.write(0, "first".into()).await);
    ok(second.write(0, "second".into()).await);
    ok(second.commit(Expectation::default()).await);
    context.expect(Fault::AlreadyExists, first.commit(Expectation::default()).await);
    assert_eq!((context.get(&path).await, context.get(&new).await), ("first".into(), "second".into()));
}

pub(super) async fn of_two_commits_only_one_is_first(context: TestContext) {
    let path = context.at("file");
    let (first, second) = (context.create(&path).await, context.create(&path).await);
    ok(first.write(0, "first".into()).await);
    ok(second.write(0, "second".into()).await);
    ok(second.commit(Expectation::default()).await);
    context.expect(Fault::AlreadyExists, first.commit(Expectation::default()).await);
    assert_eq!(context.get(&path).await, "second");
    assert_eq!(context.names().await.len(), 1);
}

pub(super) async fn of_two_commits_the_later_wins(context: TestContext) {
    let path = context.put("file", "old").await;
    let (first, second) = (context.replace(&path).await, context.replace(&path).await);
    ok(first.write(0, "first".into()).await);
    ok(second.write(0, "second".into()).await);
    ok(second.commit(Expectation::default()).await);
    ok(first.commit(Expectation::default()).await);
    assert_eq!(context.get(&path).await, "first");
    assert_eq!(context.names().await.len(), 1);
}

pub(super) async fn a_missing_file_can_be_replaced(context: TestContext) {
    let path = context.at("file");
    ok(upload(&context, &path, Overwrite::Replace, "content").await);
    assert_eq!(context.get(&path).await, "content");
}

pub(super) async fn parents_are_made_only_when_asked(context: TestContext) {
    let path = context.at("a/b/file");
    context.expect(Fault::NotFound, upload(&context, &path, Overwrite::Refuse, "content").await);
    assert!(context.names().await.is_empty());
    let options = CreateOptions { parents: true, ..CreateOptions::default() };
    for name in ["a/b/file", "a/b/second", "a/third"] {
        let file = ok(context.store.create(&context.caller, &context.at(name), options.clone()).await);
        ok(file.write(0, "content".into()).await);
        ok(file.commit(Expectation::default()).await);
        assert_eq!(context.get(&context.at(name)).await, "content");
    }
}

pub(super) async fn a_directory_is_not_replaced(context: TestContext) {
    let path = context.at("directory");
    ok(context.store.make_directory(&context.caller, &path, false, None).await);
    context.expect(Fault::IsDirectory, upload(&context, &path, Overwrite::Replace, "content").await);
    let refused = [Fault::IsDirectory, Fault::AlreadyExists];
    context.expect_one_of(&refused, upload(&context, &path, Overwrite::Refuse, "content").await);
    assert!(ok(context.stat(&path).await).is_directory());
}

pub(super) async fn a_file_is_no_parent(context: TestContext) {
    context.put("file", "content").await;
    let path = context.at("file/below");
    context.expect(Fault::NotDirectory, upload(&context, &path, Overwrite::Refuse, "content").await);
}

pub(super) async fn a_file_that_cannot_fit_is_refused_at_once(context: TestContext) {
    let path = context.at("file");
    let options = CreateOptions { size_hint: Some(1 << 62), ..CreateOptions::default() };
    context.expect(Fault::NoSpace, context.store.create(&context.caller, &path, options).await);
    context.expect_nothing(&path).await;
}

pub(super) async fn the_mode_is_as_asked(context: TestContext) {
    let path = context.at("file");
    let options = CreateOptions { mode: Some(0o604), ..CreateOptions::default() };
    let file = ok(context.store.create(&context.caller, &path, options).await);
    ok(file.commit(Expectation::default()).await);
    if let Some(mode) = ok(context.stat(&path).await).mode {
        assert_eq!(mode & 0o777, 0o604);
    }
}

pub(super) async fn digests_in_order_are_computed(context: TestContext) {
    let wanted = Algorithms::of(&[Algorithm::Md5, Algorithm::Sha256, Algorithm::Crc32]);
    let content = Pattern::new(5).bytes(0, SIZE);
    let path = context.at("file");
    let options = CreateOptions { digests: wanted, ..CreateOptions::default() };
    let file = ok(context.store.create(&context.caller, &path, options).await);
    for offset in (0..SIZE).step_by(10_000) {
        ok(file.write(offset as u64, content.slice(offset..SIZE.min(offset + 10_000))).await);
    }
    let promised = wanted.iter().filter(|wanted| context.can.digests.contains(*wanted));
    let digests: Digests = promised.map(|algorithm| Hasher::digest_of(algorithm, &content)).collect();
    let metadata = ok(file.commit(Expectation { digests, ..Expectation::default() }).await);
    assert_right(&metadata.digests, &content);
}

pub(super) async fn pieces_come_in_any_order(context: TestContext) {
    let (path, pattern) = (context.at("file"), Pattern::new(3));
    let wanted = context.can.digests;
    let options = CreateOptions { digests: wanted, ..CreateOptions::default() };
    let file = ok(context.store.create(&context.caller, &path, options).await);
    let mut offsets: Vec<usize> = (0..SIZE).step_by(7001).collect();
    let mut random = Random::new(3);
    for last in (1..offsets.len()).rev() {
        offsets.swap(last, random.below(last as u64 + 1) as usize);
    }
    for offset in offsets {
        ok(file.write(offset as u64, pattern.bytes(offset as u64, 7001.min(SIZE - offset))).await);
    }
    let content = pattern.bytes(0, SIZE);
    let digests = Hasher::digest(wanted, &content);
    ok(file.commit(Expectation { size: Some(SIZE as u64), digests, mtime_ns: None }).await);
    assert_eq!(context.get(&path).await, content);
    assert_right(&ok(context.stat(&path).await).digests, &content);
}

pub(super) async fn gaps_read_as_zeros(context: TestContext) {
    let path = context.at("file");
    let file = context.create(&path).await;
    ok(file.write(100_000, "end".into()).await);
    ok(file.write(10, "start".into()).await);
    let metadata = ok(file.commit(Expectation::default()).await);
    let content = context.get(&path).await;
    let mut expected = vec![0; 100_003];
    expected[10..15].copy_from_slice(b"start");
    expected[100_000..].copy_from_slice(b"end");
    assert_eq!(content, expected);
    assert_right(&metadata.digests, &content);
}

pub(super) async fn a_piece_may_be_written_twice(context: TestContext) {
    let (path, pattern) = (context.at("file"), Pattern::new(4));
    let content = pattern.bytes(0, SIZE);
    let file = context.create(&path).await;
    ok(file.write(0, Pattern::new(77).bytes(0, 60_000)).await);
    for (start, end) in [(0, 50_000), (0, 50_000), (40_000, 120_000), (120_000, SIZE), (5, 6)] {
        ok(file.write(start as u64, content.slice(start..end)).await);
    }
    let digests = Hasher::digest(context.can.digests, &content);
    let metadata = ok(file.commit(Expectation { digests, ..Expectation::default() }).await);
    assert_right(&metadata.digests, &content);
    assert_eq!(context.get(&path).await, content);
}

pub(super) async fn many_tasks_write_at_once(context: TestContext) {
    let (path, pattern) = (context.at("file"), Pattern::new(6));
    let file = context.create(&path).await;
    let write = |piece: u64| {
        let file = Arc::clone(&file);
        let write = async move { file.write(piece * 10_007, pattern.bytes(piece * 10_007, 10_007)).await };
        tokio::spawn(write)
    };
    join_all((0..100).rev().map(write)).await.into_iter().for_each(|task| ok(task.expect("no write panics")));
    let content = pattern.bytes(0, 1_000_700);
    let digests = Hasher::digest(context.can.digests, &content);
    let metadata = ok(file.commit(Expectation { size: Some(1_000_700), digests, mtime_ns: None }).await);
    assert_right(&metadata.digests, &content);
    assert_eq!(context.get(&path).await, content);
}

pub(super) async fn what_is_written_can_be_read_back(context: TestContext) {
    let path = context.at("file");
    let file = context.create(&path).await;
    ok(file.write(5, "world".into()).await);
    ok(file.write(0, "hello".into()).await);
    assert_eq!(ok(file.read(3, 4).await), "lowo");
    assert_eq!(ok(file.read(8, 100).await), "ld");
    assert_eq!(ok(file.read(10, 100).await), "");
    assert_eq!(ok(file.metadata().await).size, 10);
}

pub(super) async fn an_upload_can_be_cut_and_extended(context: TestContext) {
    let path = context.at("file");
    let file = context.create(&path).await;
    ok(file.set_size(3).await);
    ok(file.write(0, "hello world".into()).await);
    ok(file.set_size(5).await);
    ok(file.set_size(5).await);
    ok(file.set_size(8).await);
    let metadata = ok(file.commit(Expectation { size: Some(8), ..Expectation::default() }).await);
    assert_eq!(context.get(&path).await, "hello\0\0\0");
    assert_right(&metadata.digests, b"hello\0\0\0");
}

pub(super) async fn a_piece_beyond_all_sizes_is_refused(context: TestContext) {
    let path = context.at("file");
    let file = context.create(&path).await;
    let refused = [Fault::TooLarge, Fault::NoSpace, Fault::InvalidArgument];
    for offset in [u64::MAX, u64::MAX - 3, i64::MAX as u64] {
        context.expect_one_of(&refused, file.write(offset, "piece".into()).await);
    }
    context.expect_one_of(&refused, file.set_size(u64::MAX).await);
    ok(file.write(0, "content".into()).await);
    ok(file.commit(Expectation::default()).await);
    assert_eq!(context.get(&path).await, "content");
}

/// Uploads `content`; the error may come at the beginning or at the end.
async fn upload(
    context: &TestContext,
    path: &StorePath,
    overwrite: Overwrite,
    content: &'static str,
) -> towpath_store::Result<()> {
    let options = CreateOptions { overwrite, ..CreateOptions::default() };
    let file: Arc<dyn WriteHandle> = context.store.create(&context.caller, path, options).await?;
    file.write(0, content.into()).await?;
    file.commit(Expectation::default()).await.map(drop)
}

/// Panics unless every digest is that of `content`.
fn assert_right(digests: &Digests, content: &[u8]) {
    assert_eq!(*digests, Hasher::digest(digests.algorithms(), content));
}

impl TestContext {
    async fn put_promising(&self, name: &str, content: &Bytes, digest: Digest) -> StorePath {
        let path = self.at(name);
        let file = self.create(&path).await;
        ok(file.write(0, content.clone()).await);
        ok(file.commit(Expectation { digests: digest.into(), ..Expectation::default() }).await);
        path
    }
}
