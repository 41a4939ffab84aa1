//! Opening and reading.

use std::{os::unix::fs::FileExt as _, sync::Arc};

use futures::future::join_all;
use towpath_store::{ByteRange, Fault, ListOptions, OpenOptions, ReadBuffer, ReadHandle, Result};

use super::test_context::{TestContext, ok};
use crate::{pattern::Pattern, random::Random};

/// Larger than what a store reads without waiting, and no multiple of anything.
const SIZE: usize = 300_007;

pub(super) async fn missing_files_are_not_found(context: TestContext) {
    let path = context.at("missing");
    context.expect(Fault::NotFound, context.stat(&path).await);
    context.expect(Fault::NotFound, context.open(&path).await);
    context.expect(Fault::NotFound, context.open(&context.at("missing/deeper")).await);
}

pub(super) async fn every_range_is_what_was_written_there(context: TestContext) {
    let (path, pattern) = context.put_pattern("file", SIZE).await;
    let file = ok(context.open(&path).await);
    let mut random = Random::new(1);
    for _ in 0..50 {
        let offset = random.below(SIZE as u64);
        let length = random.below(SIZE as u64 - offset) as usize;
        let data = ok(file.read(offset, length).await);
        assert_eq!(data.len(), length);
        pattern.check(offset, &data);
    }
}

pub(super) async fn reads_are_short_only_at_the_end(context: TestContext) {
    let (path, pattern) = context.put_pattern("file", SIZE).await;
    let file = ok(context.open(&path).await);
    let size = SIZE as u64;
    for (offset, length, expected) in [
        (0, SIZE, SIZE),
        (0, SIZE + 1, SIZE),
        (size - 1, 100, 1),
        (size - 100_000, 200_000, 100_000),
        (size, 1, 0),
        (size + 1, 1, 0),
        (0, 0, 0),
        (1 << 62, 10, 0),
    ] {
        let data = ok(file.read(offset, length).await);
        assert_eq!(data.len(), expected, "{length} bytes at {offset}");
        pattern.check(offset, &data);
    }
}

pub(super) async fn an_empty_file_is_read(context: TestContext) {
    let path = context.put("empty", "").await;
    let file = ok(context.open(&path).await);
    assert_eq!(ok(file.metadata().await).size, 0);
    assert_eq!(ok(file.read(0, 10).await).len(), 0);
}

pub(super) async fn read_into_appends(context: TestContext) {
    let (path, pattern) = context.put_pattern("file", SIZE).await;
    let file = ok(context.open(&path).await);
    for capacity in [0, 10, SIZE + 5, 2 * SIZE] {
        let mut buffer = Vec::with_capacity(capacity);
        buffer.extend_from_slice(b"before");
        let buffer = ok(file.read_into(7, SIZE, buffer).await);
        assert_eq!(&buffer[..6], b"before");
        assert_eq!(buffer.len(), 6 + SIZE - 7);
        pattern.check(7, &buffer[6..]);
    }
}

pub(super) async fn read_now_appends_or_leaves_the_buffer(context: TestContext) {
    let (path, pattern) = context.put_pattern("file", SIZE).await;
    let file = ok(context.open(&path).await);
    for (offset, length) in [(0, 100), (SIZE as u64 - 50, 100), (SIZE as u64, 1), (1 << 62, 1), (0, SIZE)] {
        let mut buffer = b"before".to_vec();
        match file.read_now(offset, length, &mut buffer) {
            None => assert_eq!(buffer, b"before"),
            Some(outcome) => {
                let expected = length.min((SIZE as u64).saturating_sub(offset) as usize);
                assert_eq!((ok(outcome), buffer.len() - 6), (expected, expected));
                pattern.check(offset, &buffer[6..]);
            }
        }
    }
}

pub(super) async fn many_tasks_read_at_once(context: TestContext) {
    let (path, pattern) = context.put_pattern("file", SIZE).await;
    let file = ok(context.open(&path).await);
    let read = |task: u64| {
        let file = Arc::clone(&file);
        async move {
            let offset = task * 997;
            pattern.check(offset, &ok(file.read(offset, 100_000).await));
        }
    };
    join_all((0..100).map(read)).await;
}

pub(super) async fn a_dropped_read_leaves_the_handle_usable(context: TestContext) {
    let (path, pattern) = context.put_pattern("file", SIZE).await;
    let file = ok(context.open(&path).await);
    for _ in 0..10 {
        // Polled once, so that it has begun, and dropped.
        let read = file.read(0, SIZE);
        assert!(futures::poll!(Box::pin(read)).map(ok).map(|data| data.len() == SIZE) != std::task::Poll::Ready(false));
    }
    pattern.check(0, &ok(file.read(0, SIZE).await));
}

pub(super) async fn a_replaced_file_is_never_mixed(context: TestContext) {
    let (path, old) = context.put_pattern("file", SIZE).await;
    let file = ok(context.open(&path).await);
    old.check(0, &ok(file.read(0, 1000).await));
    context.overwrite(&path, Pattern::new(99).bytes(0, SIZE)).await;
    match file.read(100_000, 100_000).await {
        Ok(data) => old.check(100_000, &data),
        error => context.expect(Fault::Changed, error),
    }
    Pattern::new(99).check(0, &context.get(&path).await);
}

pub(super) async fn only_the_version_asked_for_is_opened(context: TestContext) {
    let path = context.put("file", "one").await;
    let Some(version) = ok(context.stat(&path).await).version else { return };
    let options = OpenOptions { version: Some(version), ..OpenOptions::default() };
    ok(context.open_version(&path, options.clone()).await);
    context.overwrite(&path, "another").await;
    context.expect(Fault::Changed, context.open_version(&path, options).await);
}

pub(super) async fn a_file_is_read_with_known_metadata(context: TestContext) {
    let (path, pattern) = context.put_pattern("file", SIZE).await;
    let listed = ok(context.list(&context.directory, ListOptions { metadata: true, digests: true }).await);
    for known in [ok(context.stat(&path).await), listed[0].metadata.clone()] {
        let options = OpenOptions { known: Some(known.clone()), ..OpenOptions::default() };
        let file = ok(context.store.open(&context.caller, &path, options.clone()).await);
        check_vector(&context, &file, pattern, &[(0, 10), (SIZE as u64 - 5, 5), (1000, 2000)].map(range)).await;
        let file = ok(context.store.open(&context.caller, &path, options).await);
        let metadata = ok(file.metadata().await);
        assert_eq!((metadata.kind, metadata.size, metadata.mtime_s()), (known.kind, known.size, known.mtime_s()));
        let last = ok(file.read(SIZE as u64 - 100, 1000).await);
        assert_eq!(last.len(), 100);
        pattern.check(SIZE as u64 - 100, &last);
    }
    let empty = context.put("empty", "").await;
    let options = OpenOptions { known: Some(ok(context.stat(&empty).await)), ..OpenOptions::default() };
    let file = ok(context.store.open(&context.caller, &empty, options).await);
    assert_eq!(ok(file.read(0, 10).await).len(), 0);
}

pub(super) async fn a_file_is_not_read_with_outdated_metadata(context: TestContext) {
    let path = context.put("file", "one").await;
    let known = ok(context.stat(&path).await);
    context.overwrite(&path, "another").await;
    let options = OpenOptions { known: Some(known), ..OpenOptions::default() };
    match context.store.open(&context.caller, &path, options).await {
        Ok(file) => {
            context.expect(Fault::Changed, file.read(0, 3).await);
            for result in context.vector(&file, &[range((0, 1)), range((2, 1))]).await {
                context.expect(Fault::Changed, result);
            }
        }
        Err(error) => context.expect::<()>(Fault::Changed, Err(error)),
    }
}

pub(super) async fn a_directory_is_not_opened(context: TestContext) {
    context.expect(Fault::IsDirectory, context.open(&context.directory).await);
    let file = context.put("file", "content").await;
    let below = file.join(b"below").expect("a short name");
    context.expect_one_of(&[Fault::NotDirectory, Fault::NotFound], context.open(&below).await);
    context.expect_one_of(&[Fault::NotDirectory, Fault::NotFound], context.stat(&below).await);
}

pub(super) async fn the_local_file_has_the_content(context: TestContext) {
    let (path, pattern) = context.put_pattern("file", SIZE).await;
    let file = ok(context.open(&path).await);
    ok(file.check_version());
    for (offset, length) in [(0, SIZE), (1000, 5000), (SIZE as u64 - 1, 1)] {
        let Some(local) = file.local_part(offset, length as u64) else { continue };
        let mut content = vec![0; length];
        local.file.read_exact_at(&mut content, offset).expect("a local file is readable");
        pattern.check(offset, &content);
    }
}

pub(super) async fn the_local_file_is_the_version_that_was_opened(context: TestContext) {
    let (path, old) = context.put_pattern("file", SIZE).await;
    let file = ok(context.open(&path).await);
    ok(file.check_version());
    let Some(local) = file.local_part(1000, SIZE as u64 - 1000) else { return };
    context.overwrite(&path, "another").await;
    let mut content = vec![0; SIZE - 1000];
    local.file.read_exact_at(&mut content, 1000).expect("a local file is readable");
    old.check(1000, &content);
}

pub(super) async fn announced_ranges_can_be_read_when_they_are_ready(context: TestContext) {
    let (path, pattern) = context.put_pattern("file", SIZE).await;
    let file = ok(context.open(&path).await);
    let ranges = [(299_000, 1007), (0, 10), (5, 10), (5000, 0), (100_000, 90_000), (SIZE as u64 - 5, 100)].map(range);
    let preparation = file.prepare(&ranges);
    for range in ranges.iter().rev() {
        if let Some(preparation) = &preparation {
            ok(preparation.ready(*range).await);
            let half = ByteRange { length: range.length / 2, ..*range };
            ok(preparation.ready(half).await);
        }
        pattern.check(range.offset, &ok(file.read(range.offset, range.length).await));
    }
    check_vector(&context, &file, pattern, &ranges[..5]).await;
}

pub(super) async fn a_withdrawn_announcement_leaves_the_handle_usable(context: TestContext) {
    let (path, pattern) = context.put_pattern("file", SIZE).await;
    let file = ok(context.open(&path).await);
    for start in [0, 1000, 200_000] {
        let all = range((start, SIZE));
        if let Some(preparation) = file.prepare(&[all]) {
            assert!(!matches!(futures::poll!(Box::pin(preparation.ready(all))), std::task::Poll::Ready(Err(_))));
        }
    }
    assert!(file.prepare(&[]).is_none());
    pattern.check(0, &ok(file.read(0, SIZE).await));
}

pub(super) async fn a_vector_read_answers_each_range_once(context: TestContext) {
    let (path, pattern) = context.put_pattern("file", SIZE).await;
    let file = ok(context.open(&path).await);
    check_vector(&context, &file, pattern, &[]).await;
    let ranges = [(299_000, 1007), (0, 10), (10, 10), (5000, 0), (200_000, 90_000), (30, 5), (SIZE as u64, 0)];
    check_vector(&context, &file, pattern, &ranges.map(range)).await;
}

pub(super) async fn ranges_of_a_vector_may_overlap(context: TestContext) {
    let (path, pattern) = context.put_pattern("file", SIZE).await;
    let file = ok(context.open(&path).await);
    let ranges = [(100, 1000), (100, 1000), (0, SIZE), (500, 100), (1050, 200), (0, 1)];
    check_vector(&context, &file, pattern, &ranges.map(range)).await;
}

pub(super) async fn a_vector_of_thousands_is_read(context: TestContext) {
    let (path, pattern) = context.put_pattern("file", SIZE).await;
    let file = ok(context.open(&path).await);
    let mut random = Random::new(2);
    let ranges: Vec<_> =
        (0..5000).map(|_| range((random.below(SIZE as u64 - 2000), random.below(2000) as usize))).collect();
    check_vector(&context, &file, pattern, &ranges).await;
}

pub(super) async fn a_range_past_the_end_fails_alone(context: TestContext) {
    let (path, pattern) = context.put_pattern("file", SIZE).await;
    let file = ok(context.open(&path).await);
    let ranges = [(0, 10), (SIZE as u64 - 5, 6), (100, 10), (SIZE as u64 + 1, 1)].map(range);
    let results = context.vector(&file, &ranges).await;
    for (range, result) in ranges.iter().zip(results) {
        if range.end() <= SIZE as u64 {
            pattern.check(range.offset, &ok(result));
        } else {
            context.expect(Fault::InvalidArgument, result);
        }
    }
    if let Some(outcome) = read_vector_now(&file, &ranges, &mut [0; 27]) {
        context.expect(Fault::InvalidArgument, outcome);
    }
}

fn range((offset, length): (u64, usize)) -> ByteRange {
    ByteRange { offset, length }
}

async fn check_vector(context: &TestContext, file: &Arc<dyn ReadHandle>, pattern: Pattern, ranges: &[ByteRange]) {
    for (range, result) in ranges.iter().zip(context.vector(file, ranges).await) {
        let data = ok(result);
        assert_eq!(data.len(), range.length, "{range:?}");
        pattern.check(range.offset, &data);
    }
    for ranges in ranges.chunks(32) {
        check_vector_now(file, pattern, ranges);
    }
}

/// The same for reads that complete without waiting.
fn check_vector_now(file: &Arc<dyn ReadHandle>, pattern: Pattern, ranges: &[ByteRange]) {
    let mut memory = vec![0; ranges.iter().map(|range| range.length).sum()];
    let Some(outcome) = read_vector_now(file, ranges, &mut memory) else { return };
    ok(outcome);
    let mut rest = &memory[..];
    for range in ranges {
        pattern.check(range.offset, rest.split_off(..range.length).expect("the memory is as long as all ranges"));
    }
}

/// Reads `ranges` one after the other into `memory`, which is as long as all of them.
fn read_vector_now(file: &Arc<dyn ReadHandle>, ranges: &[ByteRange], mut memory: &mut [u8]) -> Option<Result<()>> {
    let places = ranges.iter().map(|range| {
        let buffer = memory.split_off_mut(..range.length).expect("the memory is as long as all ranges");
        ReadBuffer { offset: range.offset, buffer }
    });
    file.read_vector_now(&mut places.collect::<Vec<_>>())
}
