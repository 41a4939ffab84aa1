//! Uploads with a key: what one leaves, another goes on from.

use std::{ops::Range, sync::Arc};

use towpath_proto::checksum::{Algorithms, Extent, ExtentDigests, Hasher, Holes};
use towpath_store::{CreateOptions, Expectation, Fault, MAX_PRESENT_EXTENTS, ResumeKey, StorePath, WriteHandle};

use super::test_context::{TestContext, ok};
use crate::{pattern::Pattern, random::Random};

/// Several blocks, however long these are in a store.
const SIZE: u64 = 5_000_003;

const PATTERN: u64 = 11;

fn options(context: &TestContext) -> CreateOptions {
    // Each check has its own file, and so its own key.
    let resume = Some(ResumeKey::of(&[b"source", context.directory.as_bytes()]));
    CreateOptions { resume, size_hint: Some(SIZE), ..CreateOptions::default() }
}

async fn create(context: &TestContext, path: &StorePath) -> Arc<dyn WriteHandle> {
    ok(context.store.create(&context.caller, path, options(context)).await)
}

async fn write(file: &dyn WriteHandle, range: Range<u64>) {
    let length = usize::try_from(range.end - range.start).expect("the files of the checks are small");
    ok(file.write(range.start, Pattern::new(PATTERN).bytes(range.start, length)).await);
}

/// Returns the stored extents, after checking them against the promises.
async fn present(file: &dyn WriteHandle) -> Vec<Extent> {
    let present = ok(file.present().await);
    assert!(present.len() <= MAX_PRESENT_EXTENTS);
    assert!(present.is_sorted_by(|one, next| one.end() < next.offset()), "{present:?}");
    for extent in &present {
        let content = Pattern::new(PATTERN).bytes(extent.offset(), extent.bytes() as usize);
        let right = Hasher::digest(extent.digests().algorithms(), &content);
        assert_eq!(extent.digests(), right, "at {}", extent.offset());
        assert_eq!(right.algorithms().intersection(Algorithms::DEFAULT), Algorithms::DEFAULT);
    }
    present
}

/// Returns the missing ranges.
fn missing(present: &[Extent]) -> Vec<(u64, u64)> {
    let starts = std::iter::once(0).chain(present.iter().map(Extent::end));
    let ends = present.iter().map(Extent::offset).chain([SIZE]);
    starts.zip(ends).filter(|(start, end)| start < end).collect()
}

/// Writes the missing ranges and commits with digests combined from the stored and the written extents.
async fn finish(context: &TestContext, file: &dyn WriteHandle, path: &StorePath) {
    let present = present(file).await;
    let mut digests = ExtentDigests::new(Algorithms::DEFAULT);
    present.iter().for_each(|extent| digests.insert(*extent));
    for (start, end) in missing(&present) {
        digests.add(start, &Pattern::new(PATTERN).bytes(start, (end - start) as usize));
        write(file, start..end).await;
    }
    let digests = digests.finish(SIZE, Holes::Refuse).expect("every byte was there once");
    let content = Pattern::new(PATTERN).bytes(0, SIZE as usize);
    assert_eq!(digests, Hasher::digest(Algorithms::DEFAULT, &content));
    let committed = ok(file.commit(Expectation { size: Some(SIZE), digests, mtime_ns: None }).await);
    let known = committed.digests;
    assert_eq!(known, Hasher::digest(known.algorithms(), &content));
    assert!(context.get(path).await == content);
    assert_eq!(context.names().await.len(), 1);
}

pub(super) async fn a_new_upload_with_a_key_is_as_any_other(context: TestContext) {
    let path = context.at("file");
    let file = create(&context, &path).await;
    assert_eq!(ok(file.present().await), []);
    finish(&context, &*file, &path).await;
}

pub(super) async fn a_key_keeps_nothing_where_nothing_can_be_kept(context: TestContext) {
    let path = context.at("file");
    for _ in 0..2 {
        let file = create(&context, &path).await;
        assert_eq!(ok(file.present().await), []);
        write(&*file, 0..SIZE).await;
        drop(file);
        context.expect_nothing(&path).await;
    }
}

pub(super) async fn an_upload_goes_on_where_it_broke_off(context: TestContext) {
    let path = context.at("file");
    let file = create(&context, &path).await;
    write(&*file, 0..3_000_000).await;
    write(&*file, 4_000_000..4_000_005).await;
    assert_eq!(ok(file.present().await), [], "what it wrote itself it does not tell");
    drop(file);
    context.expect_nothing(&path).await;
    let file = create(&context, &path).await;
    assert_eq!(missing(&present(&*file).await), [(3_000_000, 4_000_000), (4_000_005, SIZE)]);
    assert_eq!(ok(file.metadata().await).size, 4_000_005);
    if context.store.capabilities().write_any_order {
        Pattern::new(PATTERN).check(2_999_990, &ok(file.read(2_999_990, 10).await));
        assert_eq!(ok(file.read(3_000_000, 10).await), [0; 10].as_slice(), "a gap reads as zeros");
    }
    finish(&context, &*file, &path).await;
}

pub(super) async fn an_upload_may_break_off_again_and_again(context: TestContext) {
    let (path, mut random) = (context.at("file"), Random::new(7));
    let mut there = 0;
    for _ in 0..10 {
        let file = create(&context, &path).await;
        let present = present(&*file).await;
        let now = present.iter().map(Extent::bytes).sum();
        assert!(now >= there, "{now} bytes are there, {there} were before");
        there = now;
        for (gap_start, gap_end) in missing(&present) {
            let start = gap_start + random.below(gap_end - gap_start);
            let end = gap_end.min(start + 1 + random.below(600_000));
            write(&*file, start..end).await;
            there += end - start;
        }
    }
    finish(&context, &*create(&context, &path).await, &path).await;
}

pub(super) async fn another_key_or_size_finds_nothing(context: TestContext) {
    let path = context.at("file");
    let file = create(&context, &path).await;
    write(&*file, 0..1_500_000).await;
    drop(file);
    let other_key = CreateOptions { resume: Some(ResumeKey::of(&[b"another source"])), ..options(&context) };
    let file = ok(context.store.create(&context.caller, &path, other_key).await);
    assert_eq!(ok(file.present().await), []);
    ok(file.abort().await);
    let without = CreateOptions { resume: None, ..options(&context) };
    assert_eq!(ok(ok(context.store.create(&context.caller, &path, without).await).present().await), []);
    let file = create(&context, &path).await;
    assert_eq!(missing(&present(&*file).await), [(1_500_000, SIZE)], "the others did no harm");
    drop(file);
    let other_size = CreateOptions { size_hint: Some(SIZE + 1), ..options(&context) };
    let file = ok(context.store.create(&context.caller, &path, other_size).await);
    assert_eq!(ok(file.present().await), []);
    assert_eq!(ok(file.metadata().await).size, 0);
}

pub(super) async fn one_upload_at_a_time_has_the_key(context: TestContext) {
    let path = context.at("file");
    let file = create(&context, &path).await;
    write(&*file, 0..1_000_000).await;
    context.expect(Fault::Overloaded, context.store.create(&context.caller, &path, options(&context)).await);
    write(&*file, 1_000_000..2_000_000).await;
    drop(file);
    finish(&context, &*create(&context, &path).await, &path).await;
}

pub(super) async fn what_is_aborted_or_committed_is_not_taken_up_again(context: TestContext) {
    let path = context.at("file");
    let file = create(&context, &path).await;
    write(&*file, 0..3_000_000).await;
    ok(file.abort().await);
    let file = create(&context, &path).await;
    assert_eq!(ok(file.present().await), []);
    finish(&context, &*file, &path).await;
    ok(context.store.remove_file(&context.caller, &path).await);
    assert_eq!(ok(create(&context, &path).await.present().await), []);
}

pub(super) async fn a_commit_that_comes_too_early_costs_nothing(context: TestContext) {
    let path = context.at("file");
    let file = create(&context, &path).await;
    write(&*file, 0..3_000_000).await;
    let expected = Expectation { size: Some(SIZE), ..Expectation::default() };
    context.expect(Fault::Truncated, file.commit(expected).await);
    drop(file);
    let file = create(&context, &path).await;
    assert_eq!(missing(&present(&*file).await), [(3_000_000, SIZE)]);
    finish(&context, &*file, &path).await;
}

pub(super) async fn a_commit_that_is_refused_costs_nothing(context: TestContext) {
    let path = context.at("file");
    let file = create(&context, &path).await;
    write(&*file, 0..SIZE).await;
    context.put("file", "came meanwhile").await;
    let expected = Expectation { size: Some(SIZE), ..Expectation::default() };
    context.expect(Fault::AlreadyExists, file.commit(expected).await);
    drop(file);
    ok(context.store.remove_file(&context.caller, &path).await);
    let file = create(&context, &path).await;
    assert_eq!(missing(&present(&*file).await), []);
    finish(&context, &*file, &path).await;
}

pub(super) async fn nobody_goes_on_from_wrong_data(context: TestContext) {
    let path = context.at("file");
    let file = create(&context, &path).await;
    write(&*file, 0..SIZE).await;
    let digests = Hasher::digest(Algorithms::DEFAULT, b"something else");
    context.expect(Fault::ChecksumMismatch, file.commit(Expectation { digests, ..Expectation::default() }).await);
    context.expect_nothing(&path).await;
    assert_eq!(ok(create(&context, &path).await.present().await), []);
}

pub(super) async fn an_upload_with_a_key_must_tell_its_size(context: TestContext) {
    let path = context.at("file");
    let without = CreateOptions { size_hint: None, ..options(&context) };
    context.expect(Fault::InvalidArgument, context.store.create(&context.caller, &path, without).await);
}
