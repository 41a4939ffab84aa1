//! Against the reference server, over a network that breaks connections.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _, copy},
    net::TcpStream,
};
use towpath_client::ClientOptions;
use towpath_store::{Blame, CreateOptions, Fault, OpenOptions, sys::net};

use crate::peer::{Xrootd, caller, content, options, path, store_at};

/// A way to a server that breaks: connection number `n` is cut after `cuts[n]` bytes of the server; further ones are not.
pub(crate) struct Proxy {
    pub(crate) port: u16,
    connections: Arc<AtomicUsize>,
}

impl Proxy {
    pub(crate) fn start(server: u16, cuts: Vec<usize>) -> Self {
        let listener = net::listen(([127, 0, 0, 1], 0).into()).unwrap();
        let port = listener.local_addr().unwrap().port();
        let connections = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&connections);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let number = counted.fetch_add(1, Ordering::SeqCst);
                tokio::spawn(relay(client, server, cuts.get(number).copied()));
            }
        });
        Self { port, connections }
    }
}

async fn relay(client: TcpStream, server: u16, cut: Option<usize>) {
    let Ok(server) = net::connect(([127, 0, 0, 1], server).into()).await else { return };
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let answers = async {
        let mut left = cut.unwrap_or(usize::MAX);
        let mut buffer = vec![0; 64 << 10];
        while let Ok(received) = from_server.read(&mut buffer).await {
            let passed = received.min(left);
            if received == 0 || to_client.write_all(&buffer[..passed]).await.is_err() {
                break;
            }
            left -= passed;
            if left == 0 {
                break;
            }
        }
    };
    // Whichever ends first takes both directions with it.
    tokio::select! {
        () = answers => {}
        _ = copy(&mut from_client, &mut to_server) => {}
    }
}

fn one_connection() -> ClientOptions {
    ClientOptions { connections: 1, ..options() }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_download_survives_lost_connections() {
    let Some(server) = Xrootd::start("") else { return };
    let data = content(8_000_000);
    server.put("f", &data);
    // Before the answer to the first login, amid data, before another login, and amid data again.
    let proxy = Proxy::start(server.port, vec![40, 3_000_001, 30, 2_000_000]);
    let store = store_at("root", proxy.port, one_connection());
    let file = store.open(&caller(), &path("/f"), OpenOptions::default()).await.unwrap();
    assert_eq!(file.read(0, 10).await.unwrap(), content(10));
    let reads = (0..8).map(|number| file.read(number * 1_000_000, 1_000_000));
    let pieces = tokio::time::timeout(Duration::from_secs(60), futures::future::try_join_all(reads)).await;
    assert!(pieces.expect("the client hangs").unwrap().concat() == data);
    assert_eq!(proxy.connections.load(Ordering::SeqCst), 5);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_changed_while_the_connection_was_lost_is_not_mixed() {
    let Some(server) = Xrootd::start("") else { return };
    server.put("f", &content(3_000_000));
    let proxy = Proxy::start(server.port, vec![1_000_000]);
    let store = store_at("root", proxy.port, one_connection());
    let file = store.open(&caller(), &path("/f"), OpenOptions::default()).await.unwrap();
    assert_eq!(file.read(0, 10).await.unwrap(), content(10));
    server.put("f", &content(2_999_999));
    let error = file.read(0, 3_000_000).await.unwrap_err();
    assert_eq!(error.fault(), Fault::Changed, "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upload_whose_connection_is_lost_fails_and_leaves_nothing() {
    let Some(server) = Xrootd::start("") else { return };
    let proxy = Proxy::start(server.port, vec![200]);
    let store = store_at("root", proxy.port, one_connection());
    let upload = store.create(&caller(), &path("/f"), CreateOptions::default()).await.unwrap();
    let mut failed = None;
    for number in 0..100 {
        if let Err(error) = upload.write(number * 1000, content(1000).into()).await {
            failed = Some(error);
            break;
        }
    }
    let error = failed.expect("the connection was to be lost");
    assert_eq!((error.fault(), error.blame()), (Fault::Unavailable, Blame::Network), "{error}");
    upload.abort().await.unwrap();
    assert!(!server.file("f").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_not_there_is_said_at_once() {
    let listener = net::listen(([127, 0, 0, 1], 0).into()).unwrap();
    let port = listener.local_addr().unwrap().port();
    drop(listener);
    let error = store_at("root", port, options()).stat(&caller(), &path("/f")).await.unwrap_err();
    assert_eq!((error.fault(), error.blame()), (Fault::Unavailable, Blame::Network));
    assert!(error.message().contains(&format!("localhost:{port}")), "{error}");
}
