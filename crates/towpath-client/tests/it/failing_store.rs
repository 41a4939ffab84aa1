//! The client and the server of towpath over a storage that fails at random, by seed: visible files are complete, and
//! data are correct, or there is an error.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use towpath_client::ClientOptions;
use towpath_store::{
    Caller, CreateOptions, Expectation, OpenOptions, Overwrite, Result, Store,
    local::{LocalOptions, LocalStore},
};
use towpath_testkit::{
    fault::{FaultStore, Faults},
    pattern::Pattern,
};

use crate::{
    own::serve_store,
    peer::{caller, options, path, store_at},
};

const SIZE: usize = 300_007;
const PIECE_BYTES: usize = 100_000;
const SEEDS: u64 = 40;

async fn upload(store: &dyn Store, caller: &Caller, content: &Bytes) -> Result<()> {
    let replace = CreateOptions { overwrite: Overwrite::Replace, ..CreateOptions::default() };
    let file = store.create(caller, &path("/f"), replace).await?;
    for offset in (0..SIZE).step_by(PIECE_BYTES) {
        file.write(offset as u64, content.slice(offset..SIZE.min(offset + PIECE_BYTES))).await?;
    }
    let size = Some(SIZE as u64);
    file.commit(Expectation { size, ..Expectation::default() }).await.map(drop)
}

async fn download(store: &dyn Store, caller: &Caller) -> Result<Bytes> {
    let file = store.open(caller, &path("/f"), OpenOptions::default()).await?;
    let size = file.metadata().await?.size;
    assert_eq!(size, SIZE as u64, "both versions have the same size");
    file.read(0, SIZE).await
}

/// What became of the uploads and downloads of one seed: how many went well.
async fn session(scheme: &str, seed: u64) -> [usize; 2] {
    let directory = tempfile::tempdir().unwrap();
    let inner = LocalStore::open(directory.path(), LocalOptions::default()).unwrap();
    let versions = [Pattern::new(1), Pattern::new(2)].map(|pattern| pattern.bytes(0, SIZE));
    upload(&inner, &Caller::local(), &versions[0]).await.unwrap();
    let faults = Faults {
        seed,
        errors_per_mille: 60,
        short_reads_per_mille: 30,
        torn_writes_per_mille: 60,
        ..Faults::default()
    };
    let failing = FaultStore::new(Arc::new(inner.clone()), faults);
    let port = serve_store(Arc::new(failing.clone()), |_| ());
    // Less than the five seconds that the server requests, to keep the test short.
    let impatient = ClientOptions { retries: 0, patience: Duration::from_secs(4), ..options() };
    let store = store_at(scheme, port, impatient);
    let mut went_well = [0; 2];
    for attempt in 1..=4 {
        let version = attempt % 2;
        let uploaded = upload(&*store, &caller(), &versions[version]).await;
        let now = download(&inner, &Caller::local()).await.unwrap();
        let context = || format!("{scheme}, seed {seed}, attempt {attempt}, {uploaded:?}: {:?}", failing.record());
        let shown = versions.iter().position(|content| *content == now);
        let shown = shown.unwrap_or_else(|| panic!("a torso is visible: {}", context()));
        assert!(uploaded.is_err() || shown == version, "what was said to be stored is not: {}", context());
        went_well[0] += usize::from(uploaded.is_ok());
        if let Ok(data) = download(&*store, &caller()).await {
            assert!(versions.contains(&data), "{} wrong bytes were read: {}", data.len(), context());
            went_well[1] += 1;
        }
    }
    went_well
}

async fn check(scheme: &str) {
    let mut went_well = [0; 2];
    for seed in 0..SEEDS {
        let more = session(scheme, seed).await;
        went_well = std::array::from_fn(|kind| went_well[kind] + more[kind]);
    }
    let all = 4 * SEEDS as usize;
    assert!(
        went_well.iter().all(|some| (1..all).contains(some)),
        "{scheme}: {went_well:?} of {all}: no test of faults"
    );
}

#[tokio::test]
async fn what_is_visible_is_whole_and_what_is_read_is_right_over_xroot() {
    check("root").await;
}

#[tokio::test]
async fn what_is_visible_is_whole_and_what_is_read_is_right_over_http() {
    check("http").await;
}
