//! Copies by the engine of `towpath serve`, between two servers.

use std::{net::SocketAddr, time::Duration};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use towpath_server::{
    ServeConfig, Server,
    config::{AnonymousRule, Right},
    units::HumanDuration,
};
use towpath_store::{
    CreateOptions, Expectation, StorePath,
    memory::MemoryStore,
    sys::{clock, net},
};
use towpath_testkit::{
    fault::{FaultStore, Faults},
    pattern::Pattern,
};

use super::*;

/// More than comes with the metadata.
const SIZE: usize = 1_000_003;

/// The time between two markers.
const MARKERS: Duration = Duration::from_millis(20);

/// Starts a server of `store` on a separate port, with all rights for all clients. The server ends with the runtime of
/// the test.
fn serve(store: Arc<dyn Store>) -> SocketAddr {
    let mut config = ServeConfig { listen: vec![([127, 0, 0, 1], 0).into()], ..ServeConfig::default() };
    let everything = vec![Right::Read, Right::Modify];
    config.access.anonymous = vec![AnonymousRule { path: "/".into(), allow: everything }];
    config.third_party.anonymous = true;
    config.third_party.allow = vec!["127.0.0.1".into()];
    config.third_party.markers = HumanDuration(MARKERS);
    let server = Server::builder(store, &config).transfers(Arc::new(ThirdPartyCopier { ca: None })).bind().unwrap();
    let address = server.addresses()[0];
    tokio::spawn(server.run());
    address
}

/// A store with a file at `/file`.
async fn store_with_file() -> Arc<dyn Store> {
    let store = MemoryStore::new(1 << 30);
    let path = StorePath::parse(b"/file").unwrap();
    let file = store.create(&Caller::local(), &path, CreateOptions::default()).await.unwrap();
    file.write(0, Pattern::new(7).bytes(0, SIZE)).await.unwrap();
    file.commit(Expectation::default()).await.unwrap();
    Arc::new(store)
}

/// Returns the byte counts of the markers so far.
fn counts(response: &[u8]) -> Vec<usize> {
    let response = String::from_utf8_lossy(response);
    let count = |line: &str| line.strip_prefix("Stripe Bytes Transferred: ")?.strip_suffix('\n')?.parse().ok();
    response.split_inclusive('\n').filter_map(count).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn markers_count_what_has_been_written() {
    let source = serve(store_with_file().await);
    let store = FaultStore::new(Arc::new(MemoryStore::new(1 << 30)), Faults::default());
    let destination = serve(Arc::new(store.clone()));
    let held = store.hold("write");
    let start = clock::now();
    let mut client = net::connect(destination).await.unwrap();
    let copy =
        format!("COPY /copy HTTP/1.1\r\nHost: here\r\nConnection: close\r\nSource: http://{source}/file\r\n\r\n");
    client.write_all(copy.as_bytes()).await.unwrap();
    // The data to write have been read.
    held.reached().await;
    // The maximum number of markers before that.
    let before = start.elapsed().as_millis() / MARKERS.as_millis() + 1;
    let mut response = Vec::new();
    while counts(&response).len() as u128 <= before {
        assert!(client.read_buf(&mut response).await.unwrap() > 0, "{}", String::from_utf8_lossy(&response));
    }
    assert!(counts(&response).iter().all(|bytes| *bytes == 0), "{}", String::from_utf8_lossy(&response));
    drop(held);
    client.read_to_end(&mut response).await.unwrap();
    assert_eq!(counts(&response).last(), Some(&SIZE));
    assert!(String::from_utf8_lossy(&response).contains("\nsuccess: Created\n"));
}
