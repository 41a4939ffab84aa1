//! Rules that permit opening files without a request to the origin.

use std::{sync::Arc, time::Duration};

use towpath_cache::{Cache, CacheOptions, CacheStore, Credential, Recheck, Rules, Selection, TreeOptions};
use towpath_proto::checksum::{Algorithm, Hasher};
use towpath_store::{
    Caller, CreateOptions, Expectation, Fault, OpenOptions, Overwrite, Result, Secret, Store, StorePath,
    memory::MemoryStore, sys::disk,
};
use towpath_testkit::fault::{FaultStore, Faults};

use crate::origin::{open_cache, tree};

struct Setup {
    origin: FaultStore,
    directory: tempfile::TempDir,
    recheck: Recheck,
    credential: Credential,
}

fn path() -> StorePath {
    StorePath::parse(b"/file").unwrap()
}

impl Setup {
    async fn new(recheck: Recheck, credential: Credential) -> Self {
        let origin = FaultStore::new(Arc::new(MemoryStore::new(1 << 20)), Faults::default());
        let setup = Self { origin, directory: tempfile::tempdir().unwrap(), recheck, credential };
        setup.put("old content").await;
        setup
    }

    async fn put(&self, content: &'static str) {
        let options = CreateOptions { overwrite: Overwrite::Replace, ..CreateOptions::default() };
        let file = self.origin.create(&Caller::local(), &path(), options).await.unwrap();
        file.write(0, content.into()).await.unwrap();
        file.commit(Expectation::default()).await.unwrap();
    }

    /// The cache after a restart.
    async fn start(&self) -> CacheStore {
        self.start_cache().await.1
    }

    async fn start_cache(&self) -> (Cache, CacheStore) {
        let cache = open_cache(self.directory.path(), &CacheOptions::default()).await;
        let rules = Rules::new(vec![(StorePath::root(), self.recheck)]);
        let mut tree = TreeOptions { rules, ..tree("memory", Arc::new(self.origin.clone())) };
        tree.origins[0].credential = self.credential;
        let store = cache.around(tree).unwrap();
        (cache, store)
    }

    async fn read(&self, store: &CacheStore) -> Result<String> {
        let file = store.open(&Caller::local(), &path(), OpenOptions::default()).await?;
        let data = file.read(0, 100).await?;
        Ok(String::from_utf8(data.to_vec()).unwrap())
    }
}

#[tokio::test]
async fn a_file_that_never_changes_is_read_without_its_origin_also_after_a_restart() {
    let setup = Setup::new(Recheck::Never, Credential::Own).await;
    assert_eq!(setup.read(&setup.start().await).await.unwrap(), "old content");
    let calls = setup.origin.calls();
    for _ in 0..2 {
        let store = setup.start().await;
        assert_eq!(setup.read(&store).await.unwrap(), "old content");
        assert_eq!(setup.read(&store).await.unwrap(), "old content");
    }
    assert_eq!(setup.origin.calls(), calls, "the origin was not asked");
}

#[tokio::test]
async fn a_changed_file_is_noticed_at_each_open_or_after_the_time_of_its_rule() {
    for (recheck, expected) in [
        (Recheck::Always, "new content"),
        (Recheck::After(Duration::ZERO), "new content"),
        (Recheck::After(Duration::from_secs(3600)), "old content"),
        (Recheck::Never, "old content"),
    ] {
        let setup = Setup::new(recheck, Credential::Own).await;
        let store = setup.start().await;
        assert_eq!(setup.read(&store).await.unwrap(), "old content");
        setup.put("new content").await;
        assert_eq!(setup.read(&store).await.unwrap(), expected, "{recheck}");
    }
}

#[tokio::test]
async fn a_rule_that_is_wrong_never_mixes_versions_and_is_corrected() {
    let setup = Setup::new(Recheck::Never, Credential::Own).await;
    let store = setup.start().await;
    let file = store.open(&Caller::local(), &path(), OpenOptions::default()).await.unwrap();
    assert_eq!(file.read(0, 4).await.unwrap(), "old ");
    setup.put("new content").await;
    let file = store.open(&Caller::local(), &path(), OpenOptions::default()).await.unwrap();
    assert_eq!(file.read(0, 4).await.unwrap(), "old ");
    assert_eq!(file.read(0, 11).await.unwrap_err().fault(), Fault::Changed);
    assert_eq!(setup.read(&store).await.unwrap(), "new content");
}

#[tokio::test]
async fn with_the_credential_of_the_caller_the_origin_is_asked_at_each_open() {
    let setup = Setup::new(Recheck::Never, Credential::Caller).await;
    let store = setup.start().await;
    assert_eq!(setup.read(&store).await.unwrap(), "old content");
    setup.origin.fail("open", 0, Fault::PermissionDenied);
    let caller = Caller { token: Some(Secret::new("of another user")), ..Caller::default() };
    let opened = store.open(&caller, &path(), OpenOptions::default()).await;
    assert_eq!(opened.unwrap_err().fault(), Fault::PermissionDenied);
}

#[tokio::test]
async fn a_known_version_is_used_from_memory() {
    let setup = Setup::new(Recheck::Never, Credential::Own).await;
    drop(setup.read(&setup.start().await).await.unwrap());
    let store = setup.start().await;
    assert_eq!(setup.read(&store).await.unwrap(), "old content");
    let directory = setup.directory.path();
    disk::rename(&directory.join("names"), &directory.join("elsewhere")).unwrap();
    setup.put("new content").await;
    let calls = setup.origin.calls();
    assert_eq!(setup.read(&store).await.unwrap(), "old content");
    assert_eq!(setup.origin.calls(), calls, "the origin was not asked");
}

#[tokio::test]
async fn an_evicted_file_is_forgotten_in_memory_too() {
    let setup = Setup::new(Recheck::Never, Credential::Own).await;
    let (cache, store) = setup.start_cache().await;
    assert_eq!(setup.read(&store).await.unwrap(), "old content");
    setup.put("new content").await;
    assert_eq!(setup.read(&store).await.unwrap(), "old content");
    let all = Selection::Below(vec![("memory".into(), StorePath::root())]);
    assert_eq!(cache.evict_selected(&all).await.unwrap().entries, 1);
    assert_eq!(setup.read(&store).await.unwrap(), "new content");
}

#[tokio::test]
async fn a_rename_of_a_missing_file_forgets_nothing() {
    let setup = Setup::new(Recheck::Never, Credential::Own).await;
    let store = setup.start().await;
    assert_eq!(setup.read(&store).await.unwrap(), "old content");
    let [from, to] = ["/missing", "/other"].map(|text| StorePath::parse(text.as_bytes()).unwrap());
    let renamed = store.rename(&Caller::local(), &from, &to, Overwrite::Refuse).await;
    assert_eq!(renamed.unwrap_err().fault(), Fault::NotFound);
    let calls = setup.origin.calls();
    assert_eq!(setup.read(&store).await.unwrap(), "old content");
    assert_eq!(setup.origin.calls(), calls, "the origin was not asked");
}

#[tokio::test]
async fn a_digest_is_that_of_the_version_that_is_served() {
    let setup = Setup::new(Recheck::Never, Credential::Own).await;
    let store = setup.start().await;
    assert_eq!(setup.read(&store).await.unwrap(), "old content");
    setup.put("new content").await;
    let digest = store.digest(&Caller::local(), &path(), Algorithm::Adler32, &|_| {}).await.unwrap();
    assert_eq!(digest, Hasher::digest_of(Algorithm::Adler32, b"old content"));
}
