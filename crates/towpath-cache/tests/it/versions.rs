//! Files that change at the origin.

use towpath_store::Fault;
use towpath_testkit::pattern::Pattern;

use crate::origin::Origin;

#[tokio::test]
async fn an_open_reader_gets_the_old_version_or_changed_and_a_new_one_the_new_version() {
    let origin = Origin::with_file(1_000_000).await;
    let old = origin.open().await;
    origin.check(&*old, 0, 300_000).await;
    let new_pattern = Pattern::new(1);
    origin.put(new_pattern).await;
    origin.check(&*old, 0, 300_000).await;
    match old.read(200_000, 300_000).await {
        Ok(data) => origin.pattern().check(200_000, &data),
        Err(error) => assert_eq!(error.fault(), Fault::Changed),
    }
    let new = origin.open().await;
    new_pattern.check(0, &new.read(0, 1_000_000).await.unwrap());
    origin.check(&*old, 0, 300_000).await;
}

#[tokio::test]
async fn what_was_fetched_survives_a_restart() {
    let mut origin = Origin::with_file(3_000_000).await;
    let file = origin.open().await;
    for offset in [0, 5_000, 2_900_000, 1_000_000] {
        origin.check(&*file, offset, 70_000).await;
    }
    drop(file);
    origin.reopen().await;
    let file = origin.open().await;
    for offset in [0, 5_000, 2_900_000, 1_000_000] {
        origin.check(&*file, offset, 70_000).await;
    }
    let statistics = origin.statistics();
    assert_eq!((statistics.requests, statistics.missed_bytes, statistics.damaged_bytes), (0, 0, 0));
    assert!(file.read_now(0, 1000, &mut Vec::new()).is_some(), "it is verified now");
}

#[tokio::test]
async fn bytes_that_a_weak_origin_sent_after_a_change_are_not_kept() {
    let origin = Origin::with_weak_tags(1_000_000).await;
    let file = origin.open().await;
    origin.check(&*file, 0, 10_000).await;
    // The check after the data finds the change.
    origin.store.fail("read", 0, Fault::Changed);
    let refused = file.read(500_000, 10_000).await;
    assert_eq!(refused.unwrap_err().fault(), Fault::Changed);
    let present = origin.statistics();
    origin.check(&*file, 500_000, 10_000).await;
    assert_eq!(origin.statistics().fetched_bytes, present.fetched_bytes + 10_000, "they were not stored");
}

#[tokio::test]
async fn a_version_is_checked_after_the_data_only_if_its_tags_are_weak() {
    for (is_weak, calls) in [(false, 1), (true, 2)] {
        let origin = if is_weak { Origin::with_weak_tags(1_000_000).await } else { Origin::with_file(1_000_000).await };
        let file = origin.open().await;
        let before = origin.store.calls();
        origin.check(&*file, 0, 10_000).await;
        assert_eq!(origin.store.calls() - before, calls, "weak: {is_weak}");
    }
}
