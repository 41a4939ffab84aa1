use std::{io, sync::Arc, time::Duration};

use towpath_store::{Blame, Fault, Overwrite, Store, sys::clock};
use towpath_testkit::{
    fault::{FaultStore, Faults},
    misbehaving_server::{MisbehavingServer, Misbehavior},
    pattern::Pattern,
};

use super::*;
use crate::{
    NoopObserver, Options,
    mover::tests::{get, location, memory, options, put, served_by},
};

const SIZES: [usize; 6] = [0, 1, FIRST_BYTES as usize, PIECE_BYTES as usize, PIECE_BYTES as usize + 1, 11 << 20];

fn mover() -> Arc<Mover> {
    Mover::new(options(), Arc::new(NoopObserver))
}

/// Returns the data written to the pipe.
async fn drained(mover: &Mover, from: &StoreLocation) -> (Result<CopiedFile>, Vec<u8>) {
    let mut given = Vec::new();
    let copied = mover
        .drain(from, async |piece: Bytes| {
            given.extend_from_slice(&piece);
            Ok::<_, Error>(())
        })
        .await;
    (copied, given)
}

#[tokio::test]
async fn what_goes_through_a_pipe_is_what_comes_out_and_is_compared() {
    let store = memory();
    for size in SIZES {
        let content = Pattern::new(7).bytes(0, size);
        let to = location(&store, &format!("/d/{size}"));
        let mover = mover();
        let copied = mover.fill(&content[..], &to).await.unwrap();
        assert_eq!(
            (copied.bytes, copied.verified.iter().any(|by| by.digest.algorithm() == COMPUTED)),
            (size as u64, true),
            "{size}"
        );
        assert_eq!(get(&store, &format!("/d/{size}")).await.unwrap(), content);
        let (copied, given) = drained(&mover, &to).await;
        let copied = copied.unwrap();
        assert_eq!((copied.bytes, given.len(), copied.verified.is_empty()), (size as u64, size, false));
        Pattern::new(7).check(0, &given);
        let advance = mover.progress().now();
        assert_eq!(
            (advance.moved_bytes, advance.verified_bytes, advance.ahead_bytes),
            (2 * size as u64, 2 * size as u64, 0)
        );
    }
}

/// A remote destination responds to each write after a round trip.
#[tokio::test]
async fn pieces_of_a_pipe_are_written_side_by_side() {
    let slow = FaultStore::new(memory(), Faults::default());
    let held = slow.hold("write");
    let to: Arc<dyn Store> = Arc::new(slow);
    let destination = location(&to, "/copy");
    let filling =
        tokio::spawn(async move { mover().fill(&Pattern::new(1).bytes(0, 10 << 20)[..], &destination).await });
    for _ in 0..5 {
        held.reached().await;
    }
    drop(held);
    assert_eq!(filling.await.unwrap().unwrap().bytes, 10 << 20);
    Pattern::new(1).check(0, &get(&to, "/copy").await.unwrap());
}

/// The reader of the pipe takes one piece at a time.
#[tokio::test]
async fn the_next_pieces_come_while_one_waits_for_the_pipe() {
    let store = Arc::new(FaultStore::new(memory(), Faults::default()));
    let from: Arc<dyn Store> = Arc::clone(&store) as _;
    put(&from, "/large", Pattern::new(1).bytes(0, 12 << 20)).await;
    let before = store.calls();
    let mut given = 0;
    let copied: Result<CopiedFile> = mover()
        .drain(&location(&from, "/large"), async |piece: Bytes| {
            // One open, one stat, and seven reads.
            while store.calls() < before + 9 {
                tokio::task::yield_now().await;
            }
            given += piece.len();
            Ok(())
        })
        .await;
    assert_eq!((copied.unwrap().bytes, given), (12 << 20, 12 << 20));
}

#[tokio::test]
async fn what_cannot_be_written_leaves_nothing() {
    let store = memory();
    put(&store, "/there", Bytes::from_static(b"old")).await;
    let error = mover().fill(&b"new"[..], &location(&store, "/there")).await.unwrap_err();
    assert_eq!((error.fault(), error.path().is_some()), (Fault::AlreadyExists, true));
    let replacing = Mover::new(Options { overwrite: Overwrite::Replace, ..options() }, Arc::new(NoopObserver));
    replacing.fill(&b"new"[..], &location(&store, "/there")).await.unwrap();
    assert_eq!(get(&store, "/there").await.unwrap(), "new");
    let broken = tokio_util::io::StreamReader::new(stream::iter([
        Ok(Bytes::from(vec![0; 5 << 20])),
        Err(io::Error::other("gone")),
    ]));
    let error = mover().fill(broken, &location(&store, "/new")).await.unwrap_err();
    assert_eq!(error.fault(), Fault::Io);
    assert!(error.to_string().contains("gone"), "{error}");
    assert_eq!(get(&store, "/new").await.unwrap_err().fault(), Fault::NotFound);
}

#[tokio::test]
async fn who_reads_no_more_ends_it() {
    let store = memory();
    put(&store, "/large", Pattern::new(1).bytes(0, 40 << 20)).await;
    let mut left = 3;
    let outcome: Result<CopiedFile> = mover()
        .drain(&location(&store, "/large"), async |_| {
            left -= 1;
            if left == 0 { Err(Error::new(Fault::Io, "nobody reads")) } else { Ok(()) }
        })
        .await;
    assert_eq!((outcome.unwrap_err().message(), left), ("nobody reads", 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pipe_learns_that_it_was_given_something_else() {
    let content = Pattern::new(3).bytes(0, 3 << 20);
    let honest = MisbehavingServer::start(None, content.clone());
    let (copied, given) = drained(&mover(), &served_by(&honest)).await;
    assert_eq!((copied.unwrap().verified.is_empty(), given.len()), (false, content.len()));
    for misbehavior in [Misbehavior::OtherDigest, Misbehavior::OtherByte] {
        let (outcome, _) =
            drained(&mover(), &served_by(&MisbehavingServer::start(Some(misbehavior), content.clone()))).await;
        let error = outcome.unwrap_err();
        assert_eq!(
            (error.fault(), error.blame()),
            (Fault::ChecksumMismatch, Blame::Network),
            "{misbehavior:?}: {error}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn pipes_keep_below_a_limit() {
    let store = memory();
    let options = Options { limit_bytes_per_s: Some(1 << 20), ..options() };
    let mover = Mover::new(options, Arc::new(NoopObserver));
    let start = clock::now();
    mover.fill(&Pattern::new(1).bytes(0, 10 << 20)[..], &location(&store, "/file")).await.unwrap();
    // The last piece of 2 MiB starts when the time of the previous ones is over.
    let filled = clock::now();
    assert!((7.0..11.0).contains(&(filled - start).as_secs_f64()), "{:?}", filled - start);
    drained(&mover, &location(&store, "/file")).await.0.unwrap();
    assert!(filled.elapsed() > Duration::from_secs(7), "{:?}", filled.elapsed());
}
