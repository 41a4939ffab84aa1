//! The S3 client against a real server, SeaweedFS: all promises of a store, parts, and rejections.

use std::{
    process::{Child, Stdio},
    sync::Arc,
};

use bytes::Bytes;
use futures::{StreamExt as _, TryStreamExt as _, future::join_all};
use tempfile::TempDir;
use towpath_client::{Client, ClientOptions, s3::S3Keys};
use towpath_proto::checksum::{Algorithm, Hasher};
use towpath_store::{
    Blame, ByteRange, Caller, CreateOptions, Expectation, Fault, ListOptions, OpenOptions, Overwrite, Secret, Store,
    sys::{disk, net},
};
use towpath_testkit::conformance::{self, Fixture};

use crate::{
    peer::{content, peer},
    script::HANG,
    web::{error, options, path},
};

/// A server of its own for each test; it ends when it is dropped.
struct Seaweed {
    process: Child,
    port: u16,
    /// Those that it makes in the directory of all, and leaves there.
    sockets: Vec<String>,
    _directory: TempDir,
}

/// Returns unused ports.
fn free_ports<const N: usize>() -> [u16; N] {
    let listeners = [(); N].map(|()| net::listen("127.0.0.1:0".parse().unwrap()).unwrap());
    listeners.map(|listener| listener.local_addr().unwrap().port())
}

impl Seaweed {
    /// With an empty bucket `bucket`; none (and a word on why) where there is no such server.
    async fn start() -> Option<Self> {
        // Somebody may take a port before the server does.
        for _ in 0..3 {
            let mut server = Self::start_at(free_ports())?;
            if tokio::time::timeout(3 * HANG, server.answers()).await.expect("SeaweedFS does not answer") {
                return Some(server);
            }
        }
        panic!("SeaweedFS does not start");
    }

    fn start_at(ports: [u16; 8]) -> Option<Self> {
        let directory = tempfile::Builder::new().prefix("towpath-seaweed").tempdir().unwrap();
        let identities = directory.path().join("s3.json");
        let text = r#"{"identities": [
            {"name": "all", "credentials": [{"accessKey": "key", "secretKey": "secret"}], "actions": ["Admin"]},
            {"name": "reader", "credentials": [{"accessKey": "reader", "secretKey": "secret"}], "actions": ["Read", "List"]}]}"#;
        disk::write(&identities, text.as_bytes()).unwrap();
        let mut command = peer("weed")?;
        command.args(["server", "-ip=127.0.0.1", "-ip.bind=127.0.0.1", "-filer", "-s3", "-s3.iam=false"]);
        command.args(["-master.telemetry=false", "-volume.max=100", "-master.volumeSizeLimitMB=64"]);
        let names = ["s3.port", "s3.port.grpc", "master.port", "master.port.grpc"];
        let more = ["volume.port", "volume.port.grpc", "filer.port", "filer.port.grpc"];
        for (name, port) in names.iter().chain(&more).zip(ports) {
            command.arg(format!("-{name}={port}"));
        }
        // What would listen on ports that are always the same, or lie in the directory of all.
        command.args(["-s3.port.iceberg=0", "-s3.port.lance=0"]);
        let base = directory.path().display();
        command.args([format!("-s3.localSocket={base}/s3"), format!("-filer.localSocket={base}/filer")]);
        command.arg(format!("-dir={base}")).env("TMPDIR", directory.path());
        command.arg(format!("-s3.config={}", identities.display()));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).current_dir(directory.path());
        let [port, s3, _, master, _, volume, _, filer] = ports;
        let sockets = [("s3", s3), ("master", master), ("volume", volume), ("filer", filer)];
        let sockets = sockets.map(|(part, port)| format!("/tmp/seaweedfs-{part}-grpc-{port}.sock")).into();
        Some(Self { process: command.spawn().unwrap(), port, sockets, _directory: directory })
    }

    /// Waits until it has made a bucket; whether it has, and has not ended.
    async fn answers(&mut self) -> bool {
        while net::connect(([127, 0, 0, 1], self.port).into()).await.is_err() {
            if self.process.try_wait().unwrap().is_some() {
                return false;
            }
            tokio::task::yield_now().await;
        }
        // Its parts do not start at once; until then it answers 500.
        let patient = ClientOptions { retries: 20, ..self.options("key", "secret") };
        let store = self.store_with("bucket", patient);
        store.make_directory(&Caller::local(), &path("/"), false, None).await.is_ok()
    }

    fn options(&self, id: &str, secret: &str) -> ClientOptions {
        let mut options = options();
        options.stall = HANG;
        options.s3.endpoint = Some(format!("http://127.0.0.1:{}", self.port));
        options.s3.region = Some("us-east-1".into());
        options.s3.keys = Some(S3Keys { id: id.into(), secret: Secret::new(secret), token: None });
        options
    }

    fn store_with(&self, bucket: &str, options: ClientOptions) -> Arc<dyn Store> {
        Client::new(Arc::new(options)).connect(&format!("s3://{bucket}/").parse().unwrap()).unwrap().0
    }

    fn store(&self) -> Arc<dyn Store> {
        self.store_with("bucket", self.options("key", "secret"))
    }
}

impl Drop for Seaweed {
    #[expect(clippy::disallowed_methods, reason = "what another program left is no storage")]
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        for socket in &self.sockets {
            let _ = std::fs::remove_file(socket);
        }
    }
}

/// What S3 has another word for.
fn heard_as(fault: Fault) -> Fault {
    match fault {
        // The room of a bucket has no end; a single object has.
        Fault::NoSpace => Fault::TooLarge,
        fault => fault,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_promises_of_a_store_are_kept() {
    let Some(server) = Seaweed::start().await else { return };
    let fixture = Fixture { heard_as, any_name: false, ..Fixture::new(server.store()) };
    conformance::check_except(
        &fixture,
        &[
            // Buckets do not report their space.
            "metadata::space_is_told",
        ],
    )
    .await;
}

async fn whole(store: &dyn Store, name: &str) -> towpath_store::Result<Bytes> {
    let file = store.open(&Caller::local(), &path(name), OpenOptions::default()).await?;
    let size = file.metadata().await?.size;
    file.read(0, usize::try_from(size).unwrap()).await
}

/// Larger than several parts, and no multiple of anything.
const LARGE: usize = 37_000_003;

async fn upload(
    store: &dyn Store,
    name: &str,
    data: &Bytes,
    size_hint: Option<u64>,
) -> towpath_store::Result<towpath_store::Metadata> {
    let options = CreateOptions { parents: true, size_hint, ..CreateOptions::default() };
    let file = store.create(&Caller::local(), &path(name), options).await?;
    // Like a copy: many concurrent pieces, with those at the beginning of the file last.
    let pieces = (0..data.len())
        .step_by(2 << 20)
        .map(|at| file.write(at as u64, data.slice(at..data.len().min(at + (2 << 20)))));
    for written in join_all(pieces.rev()).await {
        written?;
    }
    let digests = Hasher::digest(Algorithm::ALL.into_iter().collect(), data);
    file.commit(Expectation { size: Some(data.len() as u64), digests, mtime_ns: None }).await
}

#[tokio::test(flavor = "multi_thread")]
async fn large_files_go_in_parts() {
    let Some(server) = Seaweed::start().await else { return };
    let (store, data) = (server.store(), Bytes::from(content(LARGE)));
    let metadata = upload(&*store, "/large", &data, Some(LARGE as u64)).await.unwrap();
    assert!(metadata.version.unwrap().as_str().ends_with("-5"), "it has five parts");
    upload(&*store, "/unknown", &data, None).await.unwrap();
    for name in ["/large", "/unknown"] {
        assert!(whole(&*store, name).await.unwrap() == data);
    }
    let file = store.open(&Caller::local(), &path("/large"), OpenOptions::default()).await.unwrap();
    let ranges: Vec<_> = (0..300).map(|n| ByteRange { offset: (n * 7_919_003) % 36_000_000, length: 5000 }).collect();
    let results: Vec<_> = file.read_vector(ranges.clone()).collect().await;
    assert_eq!(results.len(), ranges.len());
    for (index, result) in results {
        assert_eq!(result.unwrap(), data[ranges[index].offset as usize..ranges[index].end() as usize]);
    }
    let caller = Caller::local();
    let refused = upload(&*store, "/large", &data, Some(LARGE as u64)).await;
    assert_eq!(error(refused).fault(), Fault::AlreadyExists);
    store.copy(&caller, &path("/large"), &path("/copied"), Overwrite::Refuse).await.unwrap();
    store.rename(&caller, &path("/unknown"), &path("/copied"), Overwrite::Replace).await.unwrap();
    assert!(whole(&*store, "/copied").await.unwrap() == data);
    assert_eq!(error(whole(&*store, "/unknown").await).fault(), Fault::NotFound);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_wrong_is_told() {
    let Some(server) = Seaweed::start().await else { return };
    let caller = Caller::local();
    let data = Bytes::from_static(b"content");
    upload(&*server.store(), "/file", &data, None).await.unwrap();
    let wrong = server.store_with("bucket", server.options("key", "wrong"));
    let refused = error(upload(&*wrong, "/other", &data, None).await);
    assert!(matches!(refused.fault(), Fault::AuthenticationFailed | Fault::PermissionDenied), "{refused:?}");
    let stranger = server.store_with("bucket", server.options("nobody", "secret"));
    let refused = error(stranger.list(&caller, &path("/"), ListOptions::default()).try_collect::<Vec<_>>().await);
    assert!(matches!(refused.fault(), Fault::AuthenticationFailed | Fault::PermissionDenied), "{refused:?}");
    let reader = server.store_with("bucket", server.options("reader", "secret"));
    assert_eq!(whole(&*reader, "/file").await.unwrap(), data);
    assert_eq!(error(upload(&*reader, "/other", &data, None).await).fault(), Fault::PermissionDenied);
    let nowhere = server.store_with("nowhere", server.options("key", "secret"));
    for refused in [
        error(whole(&*nowhere, "/file").await),
        error(upload(&*nowhere, "/file", &data, None).await),
        error(nowhere.list(&caller, &path("/"), ListOptions::default()).try_collect::<Vec<_>>().await),
    ] {
        assert_eq!((refused.fault(), refused.blame()), (Fault::NotFound, Blame::Caller), "{refused:?}");
        assert!(refused.message().contains("bucket"), "{refused:?}");
    }
    let mut anonymous = server.options("", "");
    anonymous.s3.keys = None;
    anonymous.s3.endpoint = Some("http://127.0.0.1:1".into());
    let refused = error(whole(&*server.store_with("bucket", anonymous), "/file").await);
    assert!(matches!(refused.fault(), Fault::AuthenticationFailed | Fault::Unavailable), "{refused:?}");
}
