//! The conformance suite, run by each store of this crate.

use std::{path::Path, sync::Arc};

use towpath_store::{
    Capabilities, Store as _,
    local::{Durability, LocalOptions, LocalStore},
    memory::MemoryStore,
};
use towpath_testkit::{
    conformance::{self, Fixture},
    fault::{FaultStore, Faults},
    limited_store::LimitedStore,
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
async fn a_store_that_only_accepts_new_files_keeps_the_promises() {
    let store = LimitedStore::create_only(Arc::new(MemoryStore::new(64 << 20)));
    let can = store.capabilities();
    assert!(can.create && !(can.rename || can.remove || can.update));
    conformance::check(&Fixture::new(Arc::new(store))).await;
}

/// Each capability alone decides on its checks.
#[tokio::test]
async fn a_store_without_one_capability_keeps_the_other_promises() {
    let limits: [fn(&mut Capabilities); 4] =
        [|can| can.rename = false, |can| can.remove = false, |can| can.update = false, |can| can.copy = false];
    for limit in limits {
        conformance::check(&Fixture::new(Arc::new(LimitedStore::new(Arc::new(MemoryStore::new(64 << 20)), limit))))
            .await;
    }
}

/// The suite notices a store that replaces files, although it reports that it cannot.
#[tokio::test]
async fn a_store_with_an_unreported_capability_is_found() {
    let limit = |can: &mut Capabilities| (can.rename, can.remove) = (false, false);
    let store = LimitedStore::reporting_only(Arc::new(MemoryStore::new(64 << 20)), limit);
    let failure = tokio::spawn(async move { conformance::check(&Fixture::new(Arc::new(store))).await });
    let message = *failure.await.unwrap_err().into_panic().downcast::<String>().unwrap();
    for promise in [
        "uploading::without_removal_existing_files_are_not_replaced",
        "naming::without_removal_all_entries_stay",
        "naming::without_renames_names_stay",
    ] {
        assert!(message.contains(promise), "{message}");
    }
}

#[tokio::test]
async fn a_fault_store_without_faults_keeps_the_promises() {
    let store = FaultStore::new(Arc::new(MemoryStore::new(64 << 20)), Faults::default());
    conformance::check(&Fixture::new(Arc::new(store.clone()))).await;
    assert_eq!(store.record(), []);
    assert!(store.calls() > 1000);
}
