//! Readers that leave at any point of a read, while the origin fails.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use futures::StreamExt as _;
use towpath_store::{ByteRange, Fault};

use crate::origin::Origin;

const SIZE: usize = 3_000_000;
/// The ranges that are read.
const RANGES: [(u64, usize); 3] = [(5, 70_000), (1_500_000, 1000), (2_000_001, 300_000)];
/// More polls than any of the reads needs.
const MAX_POLLS: u32 = 200;

/// A future that is dropped when it is pending after `polls` polls.
struct Leaving<F> {
    future: F,
    polls: u32,
}

impl<F: Future + Unpin> Future for Leaving<F> {
    type Output = Option<F::Output>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if self.polls == 0 {
            return Poll::Ready(None);
        }
        self.polls -= 1;
        match Pin::new(&mut self.future).poll(context) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending if self.polls == 0 => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    }
}

#[derive(Debug, Clone, Copy)]
enum Way {
    Read,
    Vector,
    Announced,
}

/// Opens the file and reads the ranges; errors of the origin are expected.
async fn read(origin: &Origin, way: Way) {
    let file = loop {
        if let Ok(file) = origin.try_open().await {
            break file;
        }
    };
    let ranges = RANGES.map(|(offset, length)| ByteRange { offset, length });
    match way {
        Way::Read => {
            for (offset, length) in RANGES {
                if let Ok(data) = file.read(offset, length).await {
                    origin.pattern().check(offset, &data);
                }
            }
        }
        Way::Vector => {
            let mut results = file.read_vector(ranges.to_vec());
            while let Some((index, result)) = results.next().await {
                if let Ok(data) = result {
                    origin.pattern().check(ranges[index].offset, &data);
                }
            }
        }
        Way::Announced => {
            let Some(announced) = file.prepare(&ranges) else { return };
            for range in ranges {
                if announced.ready(range).await.is_ok()
                    && let Some(part) = file.local_part(range.offset, range.length as u64)
                {
                    drop(part);
                }
            }
        }
    }
}

/// Waits until nothing of the file is leased or in flight: then all of it can be evicted.
async fn wait_until_unused(origin: &Origin) {
    for _ in 0..2000 {
        if origin.evict().await == 0 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("a flight or a lease is left");
}

/// Lets a reader leave at each of its polls, with `failures` failed calls at the origin.
async fn leave_everywhere(way: Way, is_weak: bool, failures: u64) {
    for polls in 0..MAX_POLLS {
        let origin = if is_weak { Origin::with_weak_tags(SIZE).await } else { Origin::with_file(SIZE).await };
        // A fault that is not counted by the breaker.
        for call in ["open", "metadata", "read", "read_into", "read_vector"] {
            (0..failures).for_each(|after| origin.store.fail(call, after, Fault::Io));
        }
        let ended = Leaving { future: Box::pin(read(&origin, way)), polls }.await;
        wait_until_unused(&origin).await;
        // The remaining planned failures.
        for _ in 0..10 {
            read(&origin, way).await;
        }
        let file = origin.try_open().await.unwrap();
        for (offset, length) in RANGES {
            origin.check(&*file, offset, length).await;
        }
        drop(file);
        wait_until_unused(&origin).await;
        if ended.is_some() {
            assert!(polls > 1, "the reader left nowhere");
            return;
        }
    }
    panic!("the read did not end");
}

#[tokio::test]
async fn readers_leave_everywhere_while_the_origin_works() {
    for way in [Way::Read, Way::Vector, Way::Announced] {
        leave_everywhere(way, false, 0).await;
        leave_everywhere(way, true, 0).await;
    }
}

#[tokio::test]
async fn readers_leave_everywhere_while_the_origin_fails_now_and_then() {
    for way in [Way::Read, Way::Vector, Way::Announced] {
        leave_everywhere(way, false, 1).await;
        leave_everywhere(way, true, 2).await;
    }
}
