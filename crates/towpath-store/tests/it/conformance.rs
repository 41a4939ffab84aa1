//! The conformance suite, run by each store of this crate.

use std::{path::Path, sync::Arc};

use towpath_store::{
    local::{Durability, LocalOptions, LocalStore},
    memory::MemoryStore,
};
use towpath_testkit::{
    conformance::{self, Fixture},
    fault::{FaultStore, Faults},
};

async fn check_local(base: &Path, options: LocalOptions) {
    let directory = tempfile::tempdir_in(base).unwrap();
    let store = LocalStore::open(directory.path(), options).unwrap();
    conformance::check(&Fixture::new(Arc::new(store))).await;
}

#[tokio::test]
async fn a_directory_on_disk_keeps_the_promises() {
    check_local(&std::env::temp_dir(), LocalOptions { durability: Durability::None, ..LocalOptions::default() }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_directory_in_memory_keeps_the_promises() {
    check_local(
        Path::new("/dev/shm"),
        LocalOptions { durability: Durability::FileAndDirectory, disk_jobs: 1, ..LocalOptions::default() },
    )
    .await;
}

#[tokio::test]
async fn memory_keeps_the_promises() {
    conformance::check(&Fixture::new(Arc::new(MemoryStore::new(64 << 20)))).await;
}

#[tokio::test]
async fn a_fault_store_without_faults_keeps_the_promises() {
    let store = FaultStore::new(Arc::new(MemoryStore::new(64 << 20)), Faults::default());
    conformance::check(&Fixture::new(Arc::new(store.clone()))).await;
    assert_eq!(store.record(), []);
    assert!(store.calls() > 1000);
}
