//! Versions that serve a request without the origin, or replace its error, and writes that make the cache forget them.

use std::{sync::Arc, time::Duration};

use towpath_cache::{CacheOptions, CacheStore, OriginStatistics, Recheck, Rule, Rules, TreeOptions};
use towpath_store::{
    ByteRange, CacheDirectives, Caller, Changes, CreateOptions, Error, Expectation, Fault, Freshness, OpenOptions,
    Overwrite, ReadHandle, Result, Reuse, Store, StorePath, memory::MemoryStore, sys::clock,
};
use towpath_testkit::fault::{FaultStore, Faults, ReadFaults};

use crate::origin::{open_cache, tree};

/// An origin that states `Cache-Control`, and a directory for caches of it.
struct Setup {
    origin: FaultStore,
    directory: tempfile::TempDir,
    rule: Rule,
}

fn path(text: &str) -> StorePath {
    StorePath::parse(text.as_bytes()).unwrap()
}

async fn put(store: &dyn Store, name: &str, content: &'static str) -> Result<()> {
    let options = CreateOptions { overwrite: Overwrite::Replace, parents: true, ..CreateOptions::default() };
    let file = store.create(&Caller::local(), &path(name), options).await?;
    file.write(0, content.into()).await?;
    file.commit(Expectation::default()).await.map(drop)
}

async fn open(store: &dyn Store, name: &str, cache: CacheDirectives) -> Result<Arc<dyn ReadHandle>> {
    store.open(&Caller::local(), &path(name), OpenOptions { cache, ..OpenOptions::default() }).await
}

async fn read(store: &dyn Store, name: &str) -> Result<String> {
    let file = open(store, name, CacheDirectives::default()).await?;
    let size = file.metadata().await?.size as usize;
    Ok(String::from_utf8(file.read(0, size).await?.to_vec()).unwrap())
}

fn statistics(store: &CacheStore) -> OriginStatistics {
    store.statistics()[0].1
}

fn fault<T>(outcome: Result<T>) -> Fault {
    outcome.err().as_ref().map(Error::fault).expect("it failed")
}

const ONLY_IF_CACHED: CacheDirectives = CacheDirectives { only_if_cached: true, no_cache: false, max_age_s: None };

impl Setup {
    /// An origin with `/file`, whose metadata state `cache_control` and are `age_s` old.
    async fn new(cache_control: &str, age_s: i64, rule: impl Into<Rule>) -> Self {
        let freshness = Some(Freshness::new(cache_control, clock::unix_s() - age_s));
        let origin = FaultStore::new(Arc::new(MemoryStore::new(1 << 20)), Faults::default());
        let origin = origin.with_read_faults(ReadFaults { freshness, ..ReadFaults::default() });
        put(&origin, "/file", "old content").await.unwrap();
        Self { origin, directory: tempfile::tempdir().unwrap(), rule: rule.into() }
    }

    /// The cache after a restart.
    async fn start(&self) -> CacheStore {
        let cache = open_cache(self.directory.path(), &CacheOptions::default()).await;
        let rules = Rules::new(vec![(StorePath::root(), self.rule)]);
        cache.around(TreeOptions { rules, ..tree("memory", Arc::new(self.origin.clone())) }).unwrap()
    }
}

#[tokio::test]
async fn a_version_is_used_for_the_lifetime_that_its_origin_states() {
    for (cache_control, age_s, expected) in [
        ("max-age=3600", 0, "old content"),
        ("max-age=3600", 3600, "new content"),
        ("max-age=3600, s-maxage=1", 10, "new content"),
        ("no-cache", 0, "new content"),
        ("public", 0, "new content"),
    ] {
        let setup = Setup::new(cache_control, age_s, Rule::default()).await;
        assert_eq!(read(&setup.start().await, "/file").await.unwrap(), "old content");
        put(&setup.origin, "/file", "new content").await.unwrap();
        let store = setup.start().await;
        let calls = setup.origin.calls();
        assert_eq!(read(&store, "/file").await.unwrap(), expected, "{cache_control} {age_s}");
        assert_eq!(setup.origin.calls() == calls, expected == "old content", "{cache_control} {age_s}");
    }
}

#[tokio::test]
async fn what_the_origin_does_not_let_caches_store_is_stored_only_under_an_explicit_rule() {
    for (cache_control, rule, is_stored) in [
        ("no-store", Recheck::Origin, false),
        ("private, max-age=60", Recheck::Always, false),
        ("no-store", Recheck::Never, true),
        ("private", Recheck::After(Duration::from_secs(60)), true),
        ("max-age=60", Recheck::Origin, true),
    ] {
        let setup = Setup::new(cache_control, 0, rule).await;
        let store = setup.start().await;
        assert_eq!(read(&store, "/file").await.unwrap(), "old content");
        assert_eq!(statistics(&store).fetched_bytes > 0, is_stored, "{cache_control} {rule}");
    }
}

#[tokio::test]
async fn a_stale_version_replaces_an_error_if_origin_or_rule_permit() {
    let with = |stale_if_error| Rule { stale_if_error: Some(Duration::from_secs(stale_if_error)), ..Rule::default() };
    for (cache_control, rule, is_served) in [
        ("max-age=60, stale-if-error=3600", Rule::default(), true),
        ("max-age=60, stale-if-error=10", Rule::default(), false),
        ("max-age=60", Rule::default(), false),
        ("max-age=60", with(3600), true),
        ("", with(3600), true),
        ("max-age=60, must-revalidate", with(3600), false),
    ] {
        let setup = Setup::new(cache_control, 100, rule).await;
        assert_eq!(read(&setup.start().await, "/file").await.unwrap(), "old content");
        let store = setup.start().await;
        setup.origin.fail("open", 0, Fault::Unavailable);
        setup.origin.fail("stat", 0, Fault::TimedOut);
        let stat = store.stat(&Caller::local(), &path("/file")).await;
        match is_served {
            true => {
                let file = open(&store, "/file", CacheDirectives::default()).await.unwrap();
                assert_eq!(file.read(0, 100).await.unwrap(), "old content");
                for metadata in [file.metadata().await.unwrap(), stat.unwrap()] {
                    assert_eq!(metadata.freshness.unwrap().reuse, Reuse::Error, "{cache_control}");
                }
            }
            false => {
                assert_eq!(fault(stat), Fault::TimedOut, "{cache_control}");
                assert_eq!(fault(read(&store, "/file").await), Fault::Unavailable, "{cache_control}");
            }
        }
        assert_eq!(statistics(&store).stale, if is_served { 2 } else { 0 });
    }
}

#[tokio::test]
async fn absent_bytes_of_a_stale_version_are_an_error_and_other_errors_are_passed_on() {
    let setup = Setup::new("stale-if-error=3600", 100, Rule::default()).await;
    let store = setup.start().await;
    let file = open(&store, "/file", CacheDirectives::default()).await.unwrap();
    assert_eq!(file.read(0, 4).await.unwrap(), "old ");
    setup.origin.fail("open", 0, Fault::Unavailable);
    let file = open(&store, "/file", CacheDirectives::default()).await.unwrap();
    assert_eq!(file.read(0, 4).await.unwrap(), "old ");
    setup.origin.fail("open", 0, Fault::Unavailable);
    assert_eq!(fault(file.read(4, 4).await), Fault::Unavailable);
    setup.origin.fail("open", 0, Fault::PermissionDenied);
    assert_eq!(fault(read(&store, "/file").await), Fault::PermissionDenied);
    // A file that is gone is not served later.
    setup.origin.remove_file(&Caller::local(), &path("/file")).await.unwrap();
    assert_eq!(fault(read(&store, "/file").await), Fault::NotFound);
    setup.origin.fail("open", 0, Fault::Unavailable);
    assert_eq!(fault(read(&store, "/file").await), Fault::Unavailable);
}

#[tokio::test(start_paused = true)]
async fn a_silent_origin_is_not_awaited_if_a_stale_version_may_replace_it() {
    let setup = Setup::new("stale-if-error=3600", 100, Rule::default()).await;
    let store = setup.start().await;
    assert_eq!(read(&store, "/file").await.unwrap(), "old content");
    let _held = setup.origin.hold("open");
    let began = clock::now();
    assert_eq!(read(&store, "/file").await.unwrap(), "old content");
    assert!(clock::now() - began <= Duration::from_secs(6));
}

#[tokio::test(start_paused = true)]
async fn a_missing_file_is_looked_for_again_after_its_time_or_a_write() {
    let rule = Rule { missing: Some(Duration::from_secs(10)), ..Rule::default() };
    let setup = Setup::new("", 0, rule).await;
    let store = setup.start().await;
    for name in ["/new", "/d/new", "/d"] {
        assert_eq!(fault(read(&store, name).await), Fault::NotFound);
        put(&setup.origin, "/new", "by others").await.unwrap();
        let calls = setup.origin.calls();
        assert_eq!(fault(read(&store, name).await), Fault::NotFound);
        assert_eq!(fault(store.stat(&Caller::local(), &path(name)).await), Fault::NotFound);
        assert_eq!(setup.origin.calls(), calls, "the origin was not asked");
    }
    assert_eq!(statistics(&store).missing, 6);
    let file = open(&store, "/new", CacheDirectives { no_cache: true, ..CacheDirectives::default() }).await.unwrap();
    assert_eq!(file.read(0, 100).await.unwrap(), "by others");
    assert_eq!(read(&store, "/new").await.unwrap(), "by others", "what was found is no longer missing");
    assert_eq!(fault(read(&store, "/late").await), Fault::NotFound);
    put(&setup.origin, "/late", "by others").await.unwrap();
    tokio::time::advance(Duration::from_secs(10)).await;
    assert_eq!(read(&store, "/late").await.unwrap(), "by others");
    assert_eq!(fault(read(&store, "/d/new").await), Fault::NotFound);
    put(&store, "/d/new", "through the cache").await.unwrap();
    assert_eq!(read(&store, "/d/new").await.unwrap(), "through the cache");
    assert!(store.stat(&Caller::local(), &path("/d")).await.unwrap().is_directory());
}

#[tokio::test]
async fn only_if_cached_never_contacts_the_origin() {
    let setup = Setup::new("max-age=3600", 0, Rule::default()).await;
    let store = setup.start().await;
    let calls = setup.origin.calls();
    assert_eq!(fault(open(&store, "/file", ONLY_IF_CACHED).await), Fault::TimedOut);
    assert_eq!(setup.origin.calls(), calls);
    let file = open(&store, "/file", CacheDirectives::default()).await.unwrap();
    assert_eq!(file.read(0, 4).await.unwrap(), "old ");
    let calls = setup.origin.calls();
    let file = open(&store, "/file", ONLY_IF_CACHED).await.unwrap();
    assert_eq!(file.read(0, 4).await.unwrap(), "old ");
    let prepared = file.prepare(&[ByteRange { offset: 0, length: 11 }]).unwrap();
    prepared.ready(ByteRange { offset: 0, length: 4 }).await.unwrap();
    assert_eq!(fault(prepared.ready(ByteRange { offset: 4, length: 7 }).await), Fault::TimedOut);
    assert_eq!(fault(file.read(4, 7).await), Fault::TimedOut);
    assert_eq!(setup.origin.calls(), calls, "the origin was not asked");
    assert_eq!(read(&store, "/file").await.unwrap(), "old content", "others are not affected");
}

#[tokio::test]
async fn a_client_may_demand_a_recheck() {
    let setup = Setup::new("max-age=3600", 50, Rule::default()).await;
    let store = setup.start().await;
    assert_eq!(read(&store, "/file").await.unwrap(), "old content");
    put(&setup.origin, "/file", "new content").await.unwrap();
    let none = CacheDirectives::default();
    for (directives, expected) in [
        (none, "old content"),
        (CacheDirectives { max_age_s: Some(100), ..none }, "old content"),
        (CacheDirectives { max_age_s: Some(10), ..none }, "new content"),
        (CacheDirectives { no_cache: true, ..none }, "new content"),
    ] {
        let file = open(&store, "/file", directives).await.unwrap();
        assert_eq!(file.read(0, 100).await.unwrap(), expected, "{directives:?}");
    }
}

/// A change of `/file` or `/d/file` through the cache.
enum Change {
    Put,
    Update,
    Rename,
    Touch,
    Remove,
    RenameDirectory,
}

async fn change(store: &CacheStore, change: &Change) -> Result<()> {
    let caller = Caller::local();
    match change {
        Change::Put => put(store, "/file", "new content").await,
        Change::Update => {
            let file = store.update(&caller, &path("/file")).await?;
            file.write(0, "new".into()).await?;
            // Seen by a reader in between, and changed again.
            read(store, "/file").await?;
            file.write(3, "er content".into()).await?;
            file.commit(Expectation::default()).await.map(drop)
        }
        Change::Rename => store.rename(&caller, &path("/other"), &path("/file"), Overwrite::Replace).await,
        Change::Touch => store.change(&caller, &path("/file"), Changes { size: Some(3), ..Changes::default() }).await,
        Change::RenameDirectory => {
            store.rename(&caller, &path("/d"), &path("/gone"), Overwrite::Refuse).await?;
            store.rename(&caller, &path("/e"), &path("/d"), Overwrite::Refuse).await
        }
        Change::Remove => store.remove_file(&caller, &path("/file")).await,
    }
}

#[tokio::test]
async fn no_rule_keeps_a_version_from_before_a_write_through_the_cache() {
    for (kind, name, expected) in [
        (Change::Put, "/file", "new content"),
        (Change::Update, "/file", "newer content"),
        (Change::Rename, "/file", "other content"),
        (Change::Touch, "/file", "old"),
        (Change::RenameDirectory, "/d/file", "other content"),
        (Change::Remove, "/file", "NotFound"),
    ] {
        let setup = Setup::new("", 0, Recheck::Never).await;
        for (name, content) in [("/d/file", "old content"), ("/e/file", "other content"), ("/other", "other content")] {
            put(&setup.origin, name, content).await.unwrap();
        }
        let store = setup.start().await;
        assert_eq!(read(&store, name).await.unwrap(), "old content");
        let calls = setup.origin.calls();
        assert_eq!(read(&store, name).await.unwrap(), "old content");
        assert_eq!(setup.origin.calls(), calls, "the rule permits it");
        change(&store, &kind).await.unwrap();
        let found = |outcome: Result<String>| outcome.unwrap_or_else(|error| format!("{:?}", error.fault()));
        assert_eq!(found(read(&store, name).await), expected);
        drop(store);
        assert_eq!(found(read(&setup.start().await, name).await), expected, "after a restart");
    }
}

#[tokio::test]
async fn an_open_that_began_before_a_write_leaves_nothing_behind() {
    let setup = Setup::new("", 0, Recheck::Never).await;
    let store = Arc::new(setup.start().await);
    let held = setup.origin.hold("metadata");
    let reader = tokio::spawn({
        let store = Arc::clone(&store);
        async move { open(&*store, "/file", CacheDirectives::default()).await.map(drop) }
    });
    held.reached().await;
    put(&*store, "/file", "new content").await.unwrap();
    drop(held);
    let _ = reader.await.unwrap();
    assert_eq!(read(&*store, "/file").await.unwrap(), "new content");
}
