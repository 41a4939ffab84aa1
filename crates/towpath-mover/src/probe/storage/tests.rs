use std::sync::Arc;

use futures::future;
use tokio_util::task::TaskTracker;
use towpath_client::ClientOptions;
use towpath_store::{Caller, StorePath, memory::MemoryStore};
use towpath_testkit::fault::{FaultStore, Faults};

use super::*;

const EFFORT: MeasurementOptions = MeasurementOptions { duration: Duration::from_secs(1), window: 16 << 20 };

/// A store with 32 MiB of space, and its root.
fn site() -> (FaultStore, StoreLocation) {
    let store = FaultStore::new(Arc::new(MemoryStore::new(32 << 20)), Faults::default());
    let root = StoreLocation::local(Arc::new(store.clone()), Caller::local(), StorePath::parse(b"/").unwrap());
    (store, root)
}

fn client() -> Client {
    Client::new(Arc::new(ClientOptions::default()))
}

/// Creates a file of `bytes`.
async fn file(root: &StoreLocation, bytes: usize) -> StoreLocation {
    let file = root.join(b"file").unwrap();
    let handle = file.store.create(&file.caller, &file.path, CreateOptions::default()).await.unwrap();
    handle.write(0, noise(bytes).into()).await.unwrap();
    handle.commit(Expectation::default()).await.unwrap();
    file
}

#[tokio::test(start_paused = true)]
async fn a_file_that_ends_at_once_tells_nothing() {
    let (_, root) = site();
    let error = read(&client(), &file(&root, 1 << 20).await, EFFORT).await.unwrap_err();
    assert!(error.fault() == Fault::InvalidArgument && error.message().contains("1048576 bytes in 0.00 s"), "{error}");
}

/// Writes a file whose commit takes `commit`.
async fn written(commit: Duration) -> Result<StorageMeasurement> {
    let (store, root) = site();
    let background = TaskTracker::new();
    let scratch = Scratch::new(&root, &background).await?;
    let held = store.hold("commit");
    let ending = async {
        held.reached().await;
        sleep(commit).await;
        drop(held);
    };
    let (written, ()) = future::join(write(&client(), &scratch, EFFORT), ending).await;
    let (line, file) = written?;
    assert_eq!(file.store.stat(&file.caller, &file.path).await?.size, line.bytes);
    Ok(line)
}

#[tokio::test(start_paused = true)]
async fn what_is_written_counts_once_it_is_safe() {
    let line = written(Duration::from_millis(1500)).await.unwrap();
    assert!((1.5..1.6).contains(&line.seconds), "{line:?}");
    assert!((3 << 20..=4 << 20).contains(&line.bytes), "a tenth of the free space: {line:?}");
    let error = written(EFFORT.duration * 3).await.unwrap_err();
    assert!(error.fault() == Fault::TimedOut && error.message().contains("not durable within 2 s"), "{error}");
    let error = written(Duration::from_millis(1)).await.unwrap_err();
    assert_eq!(error.fault(), Fault::NoSpace, "{error}");
}
