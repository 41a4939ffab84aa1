//! Storages that clients name in the path.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::Relaxed},
};

use towpath_cache::{Cache, CacheNamespace, CacheOptions, Forwarder, Selection, TreeOptions};
use towpath_proto::url::Url;
use towpath_store::{
    Caller, CreateOptions, Error, Expectation, Fault, ListOptions, OpenOptions, Result, Store, StorePath,
    memory::MemoryStore,
};

use crate::origin::tree;

/// Connects the hosts `a` and `b`; a file there contains the name of its host.
#[derive(Debug)]
struct TwoHosts {
    connected: AtomicUsize,
    stores: [Arc<MemoryStore>; 2],
}

impl Forwarder for TwoHosts {
    fn connect(&self, url: &Url) -> Result<TreeOptions> {
        self.connected.fetch_add(1, Relaxed);
        let index = ["a", "b"].iter().position(|host| *host == url.host());
        let index = index.ok_or_else(|| Error::new(Fault::PermissionDenied, "not on the list"))?;
        Ok(tree(&format!("root://{}", url.host()), Arc::clone(&self.stores[index]) as _))
    }
}

fn path(text: &str) -> StorePath {
    StorePath::parse(text.as_bytes()).unwrap()
}

async fn put(store: &dyn Store, content: &'static str) {
    store.make_directory(&Caller::local(), &path("/dir"), true, None).await.unwrap();
    let file = store.create(&Caller::local(), &path("/dir/f"), CreateOptions::default()).await.unwrap();
    file.write(0, content.into()).await.unwrap();
    file.commit(Expectation { mtime_ns: Some(1_700_000_000_000_000_000), ..Expectation::default() }).await.unwrap();
}

async fn read(store: &CacheNamespace, text: &str) -> Result<String> {
    let file = store.open(&Caller::local(), &path(text), OpenOptions::default()).await?;
    Ok(String::from_utf8(file.read(0, 100).await?.to_vec()).unwrap())
}

async fn setup(has_tree: bool) -> (CacheNamespace, Cache, Arc<TwoHosts>, tempfile::TempDir) {
    let new = || Arc::new(MemoryStore::new(1 << 20));
    let hosts = Arc::new(TwoHosts { connected: AtomicUsize::new(0), stores: [new(), new()] });
    put(&*hosts.stores[0], "a").await;
    put(&*hosts.stores[1], "b").await;
    let own = new();
    put(&*own, "own").await;
    let directory = tempfile::tempdir().unwrap();
    let cache = Cache::open(directory.path(), CacheOptions::default()).unwrap();
    let own = has_tree.then(|| cache.around(tree("own", own)).unwrap());
    let namespace = CacheNamespace::new(cache.clone(), own, Some(Arc::clone(&hosts) as _));
    (namespace, cache, hosts, directory)
}

#[tokio::test]
async fn files_of_named_storages_are_cached_apart_from_each_other() {
    let (namespace, cache, hosts, _directory) = setup(true).await;
    for _ in 0..2 {
        assert_eq!(read(&namespace, "/dir/f").await.unwrap(), "own");
        assert_eq!(read(&namespace, "/root://a//dir/f").await.unwrap(), "a");
        assert_eq!(read(&namespace, "/root://b//dir/f").await.unwrap(), "b");
        assert_eq!(read(&namespace, "/root:/b/dir/f").await.unwrap(), "b");
    }
    assert_eq!(hosts.connected.load(Relaxed), 2, "each is connected once");
    let statistics = namespace.statistics();
    let fetched: Vec<_> = statistics.iter().map(|(name, origin)| (&**name, origin.fetched_bytes)).collect();
    assert_eq!(fetched, [("own", 3), ("root://a", 1), ("root://b", 1)]);
    let select = |text: &str| namespace.select(&path(text)).unwrap();
    let list = async |text: &str| cache.describe(&select(text), 10).await.unwrap().entries;
    let shown = list("/root://a//dir").await;
    assert_eq!(shown.len(), 1);
    assert_eq!(namespace.shown(&shown[0].origin, &shown[0].target), "/root://a//dir/f");
    assert_eq!(list("/dir").await.len(), 1);
    assert_eq!((select("/"), list("/").await.len()), (Selection::All, 3));
}

#[tokio::test]
async fn what_the_forwarder_refuses_is_not_contacted_and_nothing_is_written() {
    let (namespace, _cache, hosts, _directory) = setup(true).await;
    let caller = Caller::local();
    for text in ["/root://c//dir/f", "/http://169.254.169.254/latest"] {
        assert_eq!(read(&namespace, text).await.unwrap_err().fault(), Fault::PermissionDenied);
        assert_eq!(namespace.stat(&caller, &path(text)).await.unwrap_err().fault(), Fault::PermissionDenied);
    }
    let (named, own) = (path("/root://a//dir/f"), path("/dir/f"));
    let read_only = |outcome: Result<()>| assert_eq!(outcome.unwrap_err().fault(), Fault::ReadOnly);
    read_only(namespace.create(&caller, &named, CreateOptions::default()).await.map(drop));
    read_only(namespace.remove_file(&caller, &named).await);
    read_only(namespace.rename(&caller, &own, &named, towpath_store::Overwrite::Replace).await);
    read_only(namespace.rename(&caller, &named, &own, towpath_store::Overwrite::Replace).await);
    assert_eq!(hosts.stores[0].stat(&caller, &own).await.unwrap().size, 1);
}

#[tokio::test]
async fn without_a_tree_the_path_must_name_a_storage() {
    let (namespace, _cache, _hosts, _directory) = setup(false).await;
    assert_eq!(read(&namespace, "/root://a//dir/f").await.unwrap(), "a");
    let error = read(&namespace, "/dir/f").await.unwrap_err();
    assert!(error.fault() == Fault::NotFound && error.message().contains("/root://HOST//PATH"), "{error}");
    assert!(namespace.capabilities().is_read_only());
    let mut listing = namespace.list(&Caller::local(), &path("/root://b//dir"), ListOptions::default());
    assert_eq!(futures::StreamExt::next(&mut listing).await.unwrap().unwrap().len(), 1);
}
