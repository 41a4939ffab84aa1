//! The bytes fetched from the origin, and the number of requests.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use futures::{StreamExt as _, future::join_all};
use towpath_store::{ByteRange, Fault, Preparation, ReadBuffer, ReadHandle};

use crate::origin::Origin;

fn range(offset: u64, length: usize) -> ByteRange {
    ByteRange { offset, length }
}

#[tokio::test]
async fn exactly_the_bytes_that_are_read_are_fetched_once() {
    let origin = Origin::with_file(5_000_000).await;
    let file = origin.open().await;
    for (offset, length) in [(1_000_003, 1367), (17, 1), (4_999_999, 1), (2_000_000, 100_000)] {
        origin.check(&*file, offset, length).await;
        origin.check(&*file, offset, length).await;
    }
    let statistics = origin.statistics();
    assert_eq!(statistics.fetched_bytes, 1367 + 1 + 1 + 100_000);
    assert_eq!((statistics.requests, statistics.missed_bytes), (4, 101_369));
    assert_eq!(statistics.served_bytes, 2 * 101_369);
    // A range that is present in part.
    origin.check(&*file, 1_000_000, 2000).await;
    assert_eq!(origin.statistics().fetched_bytes, statistics.fetched_bytes + 2000 - 1367);
}

#[tokio::test]
async fn a_vector_costs_one_request() {
    let origin = Origin::with_file(50_000_000).await;
    let file = origin.open().await;
    let ranges: Vec<_> = (0..600).map(|index| range((index * 7919 + index * 71_000) % 49_000_000, 1400)).collect();
    for _ in 0..2 {
        let mut results: Vec<_> = file.read_vector(ranges.clone()).collect().await;
        results.sort_unstable_by_key(|(index, _)| *index);
        for ((index, result), range) in results.into_iter().zip(&ranges) {
            let data = result.unwrap();
            assert_eq!(data.len(), ranges[index].length);
            origin.pattern().check(range.offset, &data);
        }
    }
    let statistics = origin.statistics();
    assert_eq!((statistics.requests, statistics.fetched_bytes), (1, 600 * 1400));
    let mut data = vec![[0; 1400]; 10];
    let mut buffers: Vec<_> =
        data.iter_mut().zip(&ranges).map(|(buffer, range)| ReadBuffer { offset: range.offset, buffer }).collect();
    file.read_vector_now(&mut buffers).expect("the data are in the page cache").unwrap();
    data.iter().zip(&ranges).for_each(|(data, range)| origin.pattern().check(range.offset, data));
}

#[tokio::test]
async fn announced_ranges_are_fetched_at_once_and_nothing_else() {
    let origin = Origin::with_file(50_000_000).await;
    let file = origin.open().await;
    // Equal distances are no reason for read-ahead here.
    let ranges: Vec<_> = (0..100).map(|index| range(index * 400_000, 5000)).collect();
    let held = origin.store.hold("read_vector");
    let preparation = file.prepare(&ranges).unwrap();
    let mut last = Box::pin(preparation.ready(ranges[99]));
    assert!(futures::poll!(&mut last).is_pending());
    drop(held);
    last.await.unwrap();
    for range in &ranges {
        preparation.ready(*range).await.unwrap();
        let mut buffer = Vec::new();
        file.read_now(range.offset, range.length, &mut buffer).expect("it is near").unwrap();
        origin.pattern().check(range.offset, &buffer);
        assert!(file.local_part(range.offset, range.length as u64).is_some());
    }
    assert_eq!((origin.statistics().requests, origin.statistics().fetched_bytes), (1, 500_000));
    assert!(file.prepare(&ranges).is_none(), "all is near");
    assert!(file.local_part(0, 5001).is_none(), "a hole is not sent as zeros");
}

/// Reads and compares the first `bytes` of an announced file in parts of `step` bytes, each when it is ready.
async fn read_announced(
    origin: &Origin,
    file: &dyn ReadHandle,
    preparation: &dyn Preparation,
    bytes: u64,
    step: usize,
) {
    for offset in (0..bytes).step_by(step) {
        preparation.ready(range(offset, step)).await.unwrap();
        origin.check(file, offset, step).await;
    }
}

#[tokio::test]
async fn a_long_announced_range_is_fetched_in_large_requests_ahead_of_its_reader() {
    let origin = Origin::with_file(80 << 20).await;
    let file = origin.open().await;
    let preparation = file.prepare(&[range(0, 80 << 20)]).unwrap();
    preparation.ready(range(0, 1000)).await.unwrap();
    assert!(origin.statistics().fetched_bytes <= 65 << 20, "{:?}", origin.statistics());
    read_announced(&origin, &*file, &*preparation, 80 << 20, 256 << 10).await;
    assert_eq!((origin.statistics().requests, origin.statistics().fetched_bytes), (80, 80 << 20));
}

#[tokio::test]
async fn adjoining_bytes_are_requested_together_over_separate_connections() {
    const MIB: usize = 1 << 20;
    let origin = Origin::with_separate_connections(80 * MIB).await;
    let file = origin.open().await;
    let preparation = file.prepare(&[range(0, 80 * MIB)]).unwrap();
    read_announced(&origin, &*file, &*preparation, 80 << 20, MIB).await;
    assert_eq!((origin.statistics().requests, origin.statistics().fetched_bytes), (1, 80 << 20));
}

#[tokio::test]
async fn a_request_for_a_whole_file_ends_when_its_only_reader_leaves() {
    const MIB: usize = 1 << 20;
    let origin = Origin::with_separate_connections(80 * MIB).await;
    let file = origin.open().await;
    let preparation = file.prepare(&[range(0, 80 * MIB)]).unwrap();
    preparation.ready(range(0, MIB)).await.unwrap();
    drop((preparation, file));
    let mut before = 0;
    while before != origin.statistics().fetched_bytes {
        before = origin.statistics().fetched_bytes;
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert!(before < 40 << 20, "{before}");
    let file = origin.open().await;
    for offset in (0..80 * MIB as u64).step_by(MIB) {
        origin.check(&*file, offset, MIB).await;
    }
    assert_eq!(origin.statistics().fetched_bytes, 80 << 20);
}

#[tokio::test]
async fn what_a_reader_waits_for_far_behind_has_a_request_of_its_own() {
    const MIB: usize = 1 << 20;
    let origin = Origin::with_separate_connections(200 * MIB).await;
    let (first, second) = (origin.open().await, origin.open().await);
    let preparation = first.prepare(&[range(0, 200 * MIB)]).unwrap();
    preparation.ready(range(0, MIB)).await.unwrap();
    origin.check(&*second, 190 * MIB as u64, MIB).await;
    assert!(origin.statistics().fetched_bytes < 100 << 20, "{:?}", origin.statistics());
    preparation.ready(range(180 * MIB as u64, MIB)).await.unwrap();
}

#[tokio::test]
async fn a_reader_goes_on_with_long_requests_when_that_of_another_has_ended() {
    const MIB: usize = 1 << 20;
    let origin = Origin::with_separate_connections(80 * MIB).await;
    let (first, second) = (origin.open().await, origin.open().await);
    let preparations = [&first, &second].map(|file| file.prepare(&[range(0, 80 * MIB)]).unwrap());
    preparations[0].ready(range(0, MIB)).await.unwrap();
    let [one, other] = preparations;
    drop((one, first));
    read_announced(&origin, &*second, &*other, 80 << 20, MIB).await;
    assert!(origin.statistics().requests <= 2, "{:?}", origin.statistics());
}

#[tokio::test]
async fn long_requests_give_way_to_others() {
    const PART: usize = 40 << 20;
    let origin = Origin::with_separate_connections(5 * PART).await;
    let files = join_all((0..5).map(|_| origin.open())).await;
    let parts = (0..5).map(|index| range((index * PART) as u64, PART));
    let preparations: Vec<_> = files.iter().zip(parts).filter_map(|(file, part)| file.prepare(&[part])).collect();
    for (index, preparation) in preparations.iter().enumerate().rev() {
        preparation.ready(range(((index + 1) * PART) as u64 - 1, 1)).await.unwrap();
    }
    let statistics = origin.statistics();
    assert_eq!(statistics.fetched_bytes, 5 * PART as u64);
    assert!(statistics.requests > 5, "{statistics:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_readers_of_a_cold_range_cause_one_request() {
    let origin = Arc::new(Origin::with_file(3_000_000).await);
    let held = origin.store.hold("read_into");
    let readers = (0..1000).map(|_| {
        let origin = Arc::clone(&origin);
        tokio::spawn(async move {
            let file = origin.open().await;
            origin.check(&*file, 1_100_000, 300_000).await;
        })
    });
    let readers: Vec<_> = readers.collect();
    while origin.statistics().missed_bytes < 1000 * 300_000 {
        tokio::task::yield_now().await;
    }
    drop(held);
    join_all(readers).await.into_iter().for_each(|reader| reader.unwrap());
    assert_eq!((origin.statistics().requests, origin.statistics().fetched_bytes), (1, 300_000));
}

#[tokio::test]
async fn a_reader_that_leaves_cancels_nothing_for_the_others() {
    let origin = Origin::with_file(3_000_000).await;
    let (first, second) = (origin.open().await, origin.open().await);
    let held = origin.store.hold("read_into");
    let mut leaving = Box::pin(first.read(0, 300_000));
    assert!(futures::poll!(&mut leaving).is_pending());
    let mut staying = Box::pin(origin.check(&*second, 0, 300_000));
    assert!(futures::poll!(&mut staying).is_pending());
    drop(leaving);
    drop(first);
    drop(held);
    staying.await;
    assert_eq!(origin.statistics().requests, 1);
}

#[tokio::test]
async fn a_failed_request_is_an_error_for_its_readers_only() {
    let origin = Origin::with_file(3_000_000).await;
    let file = origin.open().await;
    for after in 0..3 {
        origin.store.fail("read_into", after, Fault::TimedOut);
    }
    let error = file.read(0, 1000).await.unwrap_err();
    assert_eq!(error.fault(), Fault::TimedOut);
    origin.check(&*file, 0, 1000).await;
    // A single failure may be that of another reader: it is retried.
    origin.store.fail("read_into", 0, Fault::Unavailable);
    origin.check(&*file, 500_000, 1000).await;
}

#[tokio::test]
async fn a_sequential_reader_gets_read_ahead() {
    let origin = Origin::with_file(20 << 20).await;
    let file = origin.open().await;
    for offset in (0..20 << 20).step_by(128 << 10) {
        origin.check(&*file, offset, 128 << 10).await;
    }
    let statistics = origin.statistics();
    assert_eq!(statistics.fetched_bytes, 20 << 20);
    assert!(statistics.requests < 40, "{statistics:?}");
}

#[tokio::test]
async fn a_strided_reader_gets_read_ahead() {
    let origin = Origin::with_file(20 << 20).await;
    let file = origin.open().await;
    for offset in (0..200).map(|index| 1003 + index * 50_000) {
        // As a server does.
        if let Some(preparation) = file.prepare(&[range(offset, 2000)]) {
            preparation.ready(range(offset, 2000)).await.unwrap();
        }
        origin.check(&*file, offset, 2000).await;
    }
    let statistics = origin.statistics();
    assert!(statistics.requests < 40, "{statistics:?}");
    assert!((400_000..=400_000 + 64 * 2000).contains(&statistics.fetched_bytes), "{statistics:?}");
    assert_eq!((statistics.served_bytes, statistics.missed_bytes), (400_000, 400_000));
}

/// The short ranges of a vector; those of other numbers are others.
fn vector(number: u64) -> Vec<ByteRange> {
    (0..1000).map(|index| range(number * 100 + index * 40_000, 60)).collect()
}

/// Announces and reads a vector, and compares it. `announced` counts the announcements.
async fn read_vector_announced(origin: &Origin, number: u64, announced: &AtomicUsize) {
    let (file, ranges) = (origin.open().await, vector(number));
    let preparation = file.prepare(&ranges);
    announced.fetch_add(1, Relaxed);
    for range in ranges {
        if let Some(preparation) = &preparation {
            preparation.ready(range).await.unwrap();
        }
        origin.check(&*file, range.offset, range.length).await;
    }
}

#[tokio::test]
async fn vectors_wait_if_too_many_ranges_are_in_flight() {
    let mut origin = Origin::with_file(41_000_000).await;
    read_vector_announced(&origin, 0, &AtomicUsize::new(0)).await;
    // Its bytes have to be compared again.
    origin.reopen().await;
    let (held, announced) = (origin.store.hold("read_vector"), AtomicUsize::new(0));
    let readers = join_all((1..=100).map(|number| read_vector_announced(&origin, number, &announced)));
    let others = async {
        while announced.load(Relaxed) < 100 || origin.statistics().requests < 32 {
            tokio::task::yield_now().await;
        }
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        assert_eq!(origin.statistics().requests, 32, "32,768 ranges may be in flight");
        // What is present, and short requests, need no permit.
        read_vector_announced(&origin, 0, &announced).await;
        origin.check(&*origin.open().await, 40_999_000, 1000).await;
        drop(held);
    };
    let both = futures::future::join(readers, others);
    tokio::time::timeout(Duration::from_secs(60), both).await.expect("no reader waits for ever");
    assert_eq!(origin.statistics().fetched_bytes, 100 * 1000 * 60 + 1000);
}

#[tokio::test]
async fn an_open_that_hangs_is_sent_again() {
    let origin = Origin::with_file(1000).await;
    let held = origin.store.hold("open");
    let later = async {
        held.reached().await;
        held.let_later_pass();
    };
    let opened = async { tokio::join!(origin.open(), later).0 };
    let file = tokio::time::timeout(Duration::from_secs(60), opened).await.expect("the second open passes");
    origin.check(&*file, 0, 1000).await;
}
