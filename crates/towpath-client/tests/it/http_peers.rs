//! The HTTP client against real servers: nginx, which knows plain HTTP and some verbs of WebDAV, and XRootD's HTTP
//! face.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::PathBuf,
    process::{Child, Stdio},
    sync::Arc,
};

use bytes::Bytes;
use futures::{StreamExt as _, TryStreamExt as _};
use rustix::process::{WaitId, WaitIdOptions, waitid};
use tempfile::TempDir;
use towpath_client::ClientOptions;
use towpath_proto::checksum::{Algorithm, Hasher};
use towpath_store::{
    ByteRange, Caller, CreateOptions, Expectation, Fault, ListOptions, OpenOptions, Overwrite, Store, sys::disk,
};

use crate::{
    peer::{Xrootd, content, peer},
    script::HANG,
    web::{self, error, path, store},
};

/// Of a server on a loaded machine: one that merely is slow has not failed. XRootD 5.5.3 takes no more HTTP connections
/// after a client has left just when a response was sent from another thread, as those with checksums are.
fn options() -> ClientOptions {
    ClientOptions { stall: HANG, ..web::options() }
}

/// Returns an unused port.
fn free_port() -> u16 {
    let listener = towpath_store::sys::net::listen("127.0.0.1:0".parse().unwrap()).unwrap();
    listener.local_addr().unwrap().port()
}

/// An nginx of its own for each test; it ends when it is dropped.
struct Nginx {
    process: Child,
    port: u16,
    directory: TempDir,
}

impl Nginx {
    /// None (and a word on why) where there is no nginx.
    async fn start() -> Option<Self> {
        // Somebody may take the port before nginx does.
        for _ in 0..5 {
            let server = Self::start_at(free_port())?;
            if tokio::time::timeout(HANG, server.answers()).await.expect("nginx does not answer") {
                return Some(server);
            }
        }
        panic!("nginx does not start");
    }

    fn start_at(port: u16) -> Option<Self> {
        let directory = tempfile::Builder::new().prefix("towpath-nginx").tempdir().unwrap();
        let root = directory.path().join("root");
        fs::create_dir(&root).unwrap();
        for path in [directory.path(), &root] {
            fs::set_permissions(path, fs::Permissions::from_mode(0o777)).unwrap();
        }
        let base = directory.path().display();
        let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
            .map(|kind| format!("{kind}_temp_path {base}/{kind};\n"))
            .concat();
        let configuration = format!(
            "daemon off; worker_processes 1; pid {base}/pid; error_log {base}/log;\nevents {{}}\n\
             http {{ access_log off; client_max_body_size 0;\n{temporary}\
             server {{ listen 127.0.0.1:{port}; root {root};\n\
             location / {{ dav_methods PUT DELETE MKCOL COPY MOVE; }} }} }}\n",
            root = root.display()
        );
        let file = directory.path().join("nginx.conf");
        disk::write(&file, configuration.as_bytes()).unwrap();
        let mut command = peer("nginx")?;
        command.arg("-c").arg(&file).arg("-e").arg(directory.path().join("log"));
        let process = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        Some(Self { process, port, directory })
    }

    /// Waits until it answers; whether it does, and has not ended.
    async fn answers(&self) -> bool {
        let pid = rustix::process::Pid::from_child(&self.process);
        let ended = || {
            let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
            waitid(WaitId::Pid(pid), options).is_ok_and(|status| status.is_some())
        };
        while towpath_store::sys::net::connect(([127, 0, 0, 1], self.port).into()).await.is_err() {
            if ended() {
                return false;
            }
            tokio::task::yield_now().await;
        }
        true
    }

    fn file(&self, name: &str) -> PathBuf {
        self.directory.path().join("root").join(name)
    }

    fn store(&self) -> Arc<dyn Store> {
        store(&format!("http://127.0.0.1:{}/", self.port), &options())
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        // Politely: a killed master leaves its workers.
        let pid = rustix::process::Pid::from_child(&self.process);
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::QUIT);
        let _ = self.process.wait();
    }
}

/// XRootD with its HTTP face, and the store of it.
fn start_xrootd() -> Option<(Xrootd, Arc<dyn Store>)> {
    let port = free_port();
    let face = format!("xrd.protocol http:{port} libXrdHttp.so\nhttp.listingdeny no\n");
    let server = Xrootd::start(&face)?;
    Some((server, store(&format!("http://127.0.0.1:{port}/"), &options())))
}

/// Reads of all kinds of a file of `data` at `/file`.
async fn check_reads(store: &dyn Store, data: &[u8]) {
    let caller = Caller::local();
    let size = data.len() as u64;
    let file = store.open(&caller, &path("/file"), OpenOptions::default()).await.unwrap();
    assert_eq!(file.read(4090, 10).await.unwrap(), data[4090..4100]);
    assert_eq!(file.read(size - 1, 10).await.unwrap(), data[data.len() - 1..]);
    assert!(file.read(size, 10).await.unwrap().is_empty());
    assert_eq!(file.metadata().await.unwrap().size, size);
    // The very first request passes the end.
    let file = store.open(&caller, &path("/file"), OpenOptions::default()).await.unwrap();
    let (metadata, first) = futures::try_join!(file.metadata(), file.read(0, data.len() + 1000)).unwrap();
    assert_eq!((metadata.size, first.len()), (size, data.len()));
    assert_eq!(metadata.version, store.stat(&caller, &path("/file")).await.unwrap().version);
    check_vector(store, data).await;
    assert_eq!(error(file_of(store, "/missing").await).fault(), Fault::NotFound);
}

async fn file_of(store: &dyn Store, name: &str) -> towpath_store::Result<Bytes> {
    let file = store.open(&Caller::local(), &path(name), OpenOptions::default()).await?;
    let size = file.metadata().await?.size;
    file.read(0, usize::try_from(size).unwrap()).await
}

async fn check_vector(store: &dyn Store, data: &[u8]) {
    let file = store.open(&Caller::local(), &path("/file"), OpenOptions::default()).await.unwrap();
    let mut ranges: Vec<_> = (0..700).map(|n| ByteRange { offset: (n * 7919) % 900_000, length: 500 }).collect();
    ranges.push(ByteRange { offset: data.len() as u64 - 5, length: 6 });
    let mut results: Vec<_> = file.read_vector(ranges.clone()).collect().await;
    results.sort_by_key(|(index, _)| *index);
    assert_eq!(results.len(), ranges.len());
    for ((index, result), range) in results.into_iter().zip(&ranges) {
        if index == 700 {
            assert_eq!(error(result).fault(), Fault::InvalidArgument);
        } else {
            assert_eq!(result.unwrap(), data[range.offset as usize..range.end() as usize]);
        }
    }
}

/// Uploads of all sizes.
async fn check_uploads(store: &dyn Store) {
    let caller = Caller::local();
    for size in [0, 1, 1000, 5_000_003] {
        let data = Bytes::from(content(size));
        let name = path(&format!("/new/deep/{size}"));
        let options = CreateOptions { parents: true, size_hint: Some(size as u64), ..CreateOptions::default() };
        let file = store.create(&caller, &name, options.clone()).await.unwrap();
        // As a copier does: several pieces at once.
        let pieces = (0..size).step_by(300_000).map(|at| file.write(at as u64, data.slice(at..size.min(at + 300_000))));
        futures::future::join_all(pieces.rev()).await.into_iter().for_each(|written| written.unwrap());
        let digests = Hasher::digest(Algorithm::ALL.into_iter().collect(), &data);
        let expected = Expectation { size: Some(size as u64), digests, mtime_ns: None };
        assert_eq!(file.commit(expected).await.unwrap().size, size as u64);
        assert_eq!(file_of(store, &format!("/new/deep/{size}")).await.unwrap(), data);
        let again = store.create(&caller, &name, options).await;
        assert_eq!(error(again).fault(), Fault::AlreadyExists);
    }
}

/// Uploads that are given up leave nothing.
async fn check_aborts(store: &dyn Store) {
    let caller = Caller::local();
    let name = path("/aborted");
    for _ in 0..2 {
        let file = store.create(&caller, &name, CreateOptions::default()).await.unwrap();
        file.write(0, content(20_000_000).into()).await.unwrap();
        file.write(20_000_000, content(1).into()).await.unwrap();
        file.abort().await.unwrap();
        assert_eq!(error(store.stat(&caller, &name).await).fault(), Fault::NotFound);
    }
    let file = store.create(&caller, &name, CreateOptions::default()).await.unwrap();
    file.write(0, content(3_000_000).into()).await.unwrap();
    let expected = Expectation { size: Some(3_000_001), ..Expectation::default() };
    assert_eq!(error(file.commit(expected).await).fault(), Fault::Truncated);
    assert_eq!(error(store.stat(&caller, &name).await).fault(), Fault::NotFound);
}

#[tokio::test(flavor = "multi_thread")]
async fn nginx_is_read() {
    let Some(server) = Nginx::start().await else { return };
    let data = content(1_000_003);
    disk::write(&server.file("file"), &data).unwrap();
    disk::write(&server.file("empty"), b"").unwrap();
    let store = server.store();
    check_reads(&*store, &data).await;
    assert_eq!(file_of(&*store, "/empty").await.unwrap().len(), 0);
    let digest = store.digest(&Caller::local(), &path("/file"), Algorithm::Crc64, &|_| {}).await.unwrap();
    assert_eq!(digest, Hasher::digest_of(Algorithm::Crc64, &data));
    // A directory; nginx only redirects to its name with a slash.
    fs::create_dir(server.file("directory")).unwrap();
    assert_eq!(error(file_of(&*store, "/directory").await).fault(), Fault::IsDirectory);
    let listing = store.list(&Caller::local(), &path("/directory"), ListOptions::default()).try_collect::<Vec<_>>();
    assert!(error(listing.await).message().contains("WebDAV"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_replaced_in_nginx_is_never_mixed() {
    let Some(server) = Nginx::start().await else { return };
    disk::write(&server.file("file"), &content(100_000)).unwrap();
    let store = server.store();
    let file = store.open(&Caller::local(), &path("/file"), OpenOptions::default()).await.unwrap();
    file.read(0, 10).await.unwrap();
    let version = file.metadata().await.unwrap().version;
    disk::write(&server.file("file"), &content(100_001)).unwrap();
    assert_eq!(error(file.read(0, 10).await).fault(), Fault::Changed);
    let stale =
        store.open(&Caller::local(), &path("/file"), OpenOptions { version, ..OpenOptions::default() }).await.unwrap();
    assert_eq!(error(stale.read(0, 10).await).fault(), Fault::Changed);
}

#[tokio::test(flavor = "multi_thread")]
async fn nginx_is_written() {
    let Some(server) = Nginx::start().await else { return };
    let store = server.store();
    let caller = Caller::local();
    check_uploads(&*store).await;
    check_aborts(&*store).await;
    assert!(!server.file("aborted").exists());
    store.rename(&caller, &path("/new/deep/1000"), &path("/moved"), Overwrite::Refuse).await.unwrap();
    store.copy(&caller, &path("/moved"), &path("/copied"), Overwrite::Refuse).await.unwrap();
    let refused = store.copy(&caller, &path("/moved"), &path("/copied"), Overwrite::Refuse).await;
    assert_eq!(error(refused).fault(), Fault::AlreadyExists);
    assert_eq!(file_of(&*store, "/copied").await.unwrap(), content(1000));
    store.remove_file(&caller, &path("/copied")).await.unwrap();
    assert_eq!(error(store.remove_file(&caller, &path("/copied")).await).fault(), Fault::NotFound);
    assert_eq!(error(store.make_directory(&caller, &path("/new"), false, None).await).fault(), Fault::AlreadyExists);
    assert_eq!(error(store.make_directory(&caller, &path("/no/where"), false, None).await).fault(), Fault::NotFound);
}

#[tokio::test(flavor = "multi_thread")]
async fn xrootd_is_read() {
    let Some((server, store)) = start_xrootd() else { return };
    let data = content(1_000_003);
    server.put("file", &data);
    server.put("empty", b"");
    check_reads(&*store, &data).await;
    assert_eq!(file_of(&*store, "/empty").await.unwrap().len(), 0);
    for algorithm in [Algorithm::Adler32, Algorithm::Crc32c, Algorithm::Md5] {
        let digest = store.digest(&Caller::local(), &path("/file"), algorithm, &|_| {}).await.unwrap();
        assert_eq!(digest, Hasher::digest_of(algorithm, &data));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn xrootd_is_written_and_listed() {
    let Some((server, store)) = start_xrootd() else { return };
    let caller = Caller::local();
    check_uploads(&*store).await;
    check_aborts(&*store).await;
    let list = |name: &str| store.list(&caller, &path(name), ListOptions { metadata: true, digests: false });
    let entries: Vec<_> = list("/new/deep").try_collect::<Vec<_>>().await.unwrap().concat();
    let mut found: Vec<_> = entries.iter().map(|entry| (entry.name.clone(), entry.metadata.size)).collect();
    found.sort();
    let sizes = [("0", 0), ("1", 1), ("1000", 1000), ("5000003", 5_000_003)];
    assert_eq!(found, sizes.map(|(name, size)| (Bytes::from(name), size)));
    assert_eq!(error(list("/new/deep/1").try_collect::<Vec<_>>().await).fault(), Fault::NotDirectory);
    assert_eq!(error(list("/missing").try_collect::<Vec<_>>().await).fault(), Fault::NotFound);
    let remove = |name: &str| {
        let (store, name) = (Arc::clone(&store), path(name));
        async move { store.remove_directory(&Caller::local(), &name).await }
    };
    assert_eq!(error(remove("/new/deep").await).fault(), Fault::NotEmpty);
    assert_eq!(error(remove("/new/deep/1").await).fault(), Fault::NotDirectory);
    assert_eq!(error(store.remove_file(&caller, &path("/new")).await).fault(), Fault::IsDirectory);
    assert_eq!(error(file_of(&*store, "/new").await).fault(), Fault::IsDirectory);
    store.rename(&caller, &path("/new/deep"), &path("/renamed"), Overwrite::Refuse).await.unwrap();
    assert!(server.file("renamed/1").exists());
    remove("/new").await.unwrap();
    assert!(!server.file("new").exists());
}
