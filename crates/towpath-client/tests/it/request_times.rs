//! Which part of the time of requests is that of the server.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use towpath_client::Client;
use towpath_proto::url::Url;
use towpath_store::{CreateOptions, Expectation, OpenOptions, Store, memory::MemoryStore};
use towpath_testkit::fault::{FaultStore, Faults};

use crate::{
    own::serve_store,
    peer::{caller, options, path},
};

const SIZE: usize = 300_000;
const DELAY: Duration = Duration::from_millis(300);

#[tokio::test(flavor = "multi_thread")]
async fn the_wait_for_a_storage_is_that_of_the_server() {
    let memory: Arc<dyn Store> = Arc::new(MemoryStore::new(1 << 20));
    let file = memory.create(&caller(), &path("/f"), CreateOptions::default()).await.unwrap();
    file.write(0, Bytes::from(vec![1; SIZE])).await.unwrap();
    file.commit(Expectation::default()).await.unwrap();
    let slow = FaultStore::new(memory, Faults::default());
    let port = serve_store(Arc::new(slow.clone()), |_| ());
    for scheme in ["root", "http"] {
        let client = Client::new(Arc::new(options()));
        let (store, path) = client.connect(&format!("{scheme}://127.0.0.1:{port}//f").parse::<Url>().unwrap()).unwrap();
        let file = store.open(&caller(), &path, OpenOptions::default()).await.unwrap();
        file.metadata().await.unwrap();
        let before = client.request_times().sums();
        let held = ["read", "read_into", "read_vector"].map(|name| slow.hold(name));
        let opened = async {
            tokio::time::sleep(DELAY).await;
            drop(held);
        };
        let (data, ()) = tokio::join!(file.read(0, SIZE), opened);
        assert_eq!(data.unwrap().len(), SIZE);
        // The time of an HTTP response is recorded when its connection is free again.
        let is_recorded = async {
            while client.request_times().sums().total < before.total + DELAY * 9 / 10 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(10), is_recorded).await.unwrap();
        let after = client.request_times().sums();
        assert!(after.server - before.server >= DELAY * 8 / 10, "{scheme}: {before:?} {after:?}");
        assert!(after.server <= after.total, "{scheme}: {after:?}");
    }
}
