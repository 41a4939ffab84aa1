//! Each fault of a storage, over either face of our own server: the client hears the same one, whatever the protocol
//! has words for.

use std::{sync::Arc, time::Duration};

use towpath_client::ClientOptions;
use towpath_proto::fault::TABLE;
use towpath_store::{Fault, OpenOptions, memory::MemoryStore};
use towpath_testkit::fault::{FaultStore, Faults};

use crate::{
    own::serve_store,
    peer::{caller, options, path, store_at},
};

/// More calls of one name than a client makes here with its repetitions.
const CALLS: u64 = 50;

#[tokio::test]
async fn each_fault_is_the_same_over_xroot_and_http() {
    for row in TABLE {
        for scheme in ["root", "http"] {
            let failing = FaultStore::new(Arc::new(MemoryStore::new(1 << 20)), Faults::default());
            (0..CALLS).for_each(|_| failing.fail("stat", 0, row.fault));
            (0..CALLS).for_each(|_| failing.fail("open", 0, row.fault));
            let port = serve_store(Arc::new(failing), |_| ());
            let impatient = ClientOptions { retries: 0, patience: Duration::from_secs(4), ..options() };
            let store = store_at(scheme, port, impatient);
            // Over HTTP the server then shows the directory, which is missing here; the conformance suite has real
            // ones.
            let is_shown = (scheme, row.fault) == ("http", Fault::IsDirectory);
            let stat = store.stat(&caller(), &path("/f")).await.map(drop).map_err(|error| error.fault());
            assert!(is_shown || stat == Err(row.fault), "stat over {scheme}: {stat:?}, not {:?}", row.fault);
            let file = store.open(&caller(), &path("/f"), OpenOptions::default()).await;
            let read = match file {
                Ok(file) => file.read(0, 10).await.unwrap_err(),
                Err(error) => error,
            };
            assert!(is_shown || read.fault() == row.fault, "read over {scheme}: {read:?}, not {:?}", row.fault);
        }
    }
}
