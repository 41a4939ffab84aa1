//! Against the reference server, over a network that breaks connections.

use std::{
    os::fd::{AsRawFd as _, RawFd},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{
        TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
};
use tokio_util::sync::CancellationToken;
use towpath_client::ClientOptions;
use towpath_store::{
    Blame, CreateOptions, Fault, OpenOptions,
    sys::{disk, net},
};
use towpath_testkit::socket::deafen;

use crate::{
    own::serve_directory,
    peer::{Xrootd, caller, content, options, path, store_at},
};

/// A way to a server that breaks: connection number `n` is cut after `cuts[n]` bytes of the server; further ones are
/// not.
pub(crate) struct Proxy {
    pub(crate) port: u16,
    connections: Arc<Mutex<Vec<Arc<ProxiedConnection>>>>,
}

/// What went over one connection.
struct ProxiedConnection {
    /// Bytes of the client.
    sent: AtomicUsize,
    /// From the client.
    socket: RawFd,
    is_cut: AtomicBool,
    /// It is to be cut.
    cut: CancellationToken,
}

impl Proxy {
    pub(crate) fn start(server: u16, cuts: Vec<usize>) -> Self {
        Self::relaying(server, move |number| [usize::MAX, cuts.get(number).copied().unwrap_or(usize::MAX)])
    }

    /// Connection number `n` is cut after `cuts[n]` bytes of the client.
    pub(crate) fn start_for_uploads(server: u16, cuts: Vec<usize>) -> Self {
        Self::relaying(server, move |number| [cuts.get(number).copied().unwrap_or(usize::MAX), usize::MAX])
    }

    /// `cuts` gives the most bytes of client and server that a connection passes on.
    fn relaying(server: u16, cuts: impl Fn(usize) -> [usize; 2] + Send + 'static) -> Self {
        let listener = net::listen(([127, 0, 0, 1], 0).into()).unwrap();
        let port = listener.local_addr().unwrap().port();
        let connections = Arc::new(Mutex::new(Vec::new()));
        let counted = Arc::clone(&connections);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let passed = Arc::new(ProxiedConnection {
                    sent: AtomicUsize::new(0),
                    socket: client.as_raw_fd(),
                    is_cut: AtomicBool::new(false),
                    cut: CancellationToken::new(),
                });
                let mut counted = counted.lock().unwrap();
                tokio::spawn(relay(client, server, cuts(counted.len()), Arc::clone(&passed)));
                counted.push(passed);
            }
        });
        Self { port, connections }
    }

    /// Bytes that the client sent, over each connection.
    pub(crate) fn sent(&self) -> Vec<usize> {
        self.connections.lock().unwrap().iter().map(|passed| passed.sent.load(Ordering::SeqCst)).collect()
    }

    /// Cuts a connection now.
    pub(crate) fn cut_now(&self, number: usize) {
        self.connections.lock().unwrap()[number].cut.cancel();
    }

    /// Drops everything that the client sends over an open connection from now on, without notice.
    pub(crate) fn deafen(&self, number: usize) {
        deafen(&self.connections.lock().unwrap()[number].socket);
    }

    /// Connections that were cut.
    pub(crate) fn cut(&self) -> usize {
        self.connections.lock().unwrap().iter().filter(|passed| passed.is_cut.load(Ordering::SeqCst)).count()
    }
}

async fn relay(client: TcpStream, server: u16, cuts: [usize; 2], passed: Arc<ProxiedConnection>) {
    let Ok(server) = net::connect(([127, 0, 0, 1], server).into()).await else { return };
    let ((from_client, to_client), (from_server, to_server)) = (client.into_split(), server.into_split());
    let answered = AtomicUsize::new(0);
    // Whichever ends first takes both directions with it.
    tokio::select! {
        () = passed.cut.cancelled() => passed.is_cut.store(true, Ordering::SeqCst),
        () = pass(from_server, to_client, cuts[1], &answered, &passed.is_cut) => {}
        () = pass(from_client, to_server, cuts[0], &passed.sent, &passed.is_cut) => {}
    }
}

async fn pass(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, cut: usize, passed: &AtomicUsize, is_cut: &AtomicBool) {
    let mut buffer = vec![0; 64 << 10];
    while let Ok(received @ 1..) = from.read(&mut buffer).await {
        let count = received.min(cut - passed.load(Ordering::SeqCst));
        if to.write_all(&buffer[..count]).await.is_err() {
            return;
        }
        if passed.fetch_add(count, Ordering::SeqCst) + count == cut {
            return is_cut.store(true, Ordering::SeqCst);
        }
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
    assert_eq!(proxy.sent().len(), 5);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_whose_way_is_cut_is_left_for_another_one() {
    const PIECE: usize = 1_000_000;
    let directory = tempfile::tempdir().unwrap();
    let data = content(40 * PIECE);
    disk::write(&directory.path().join("f"), &data).unwrap();
    let proxy = Proxy::start(serve_directory(&directory), Vec::new());
    let store = store_at("root", proxy.port, one_connection());
    let file = store.open(&caller(), &path("/f"), OpenOptions::default()).await.unwrap();
    assert_eq!(file.read(0, 10).await.unwrap(), content(10));
    proxy.deafen(0);
    let reads = (0..40).map(|number| file.read((number * PIECE) as u64, PIECE));
    // Without a word from the network it would be silent for twice the time of a stall.
    let time = options().stall;
    let pieces = tokio::time::timeout(time, futures::future::try_join_all(reads)).await;
    assert!(pieces.expect("it is waited for").unwrap().concat() == data);
    assert_eq!(proxy.sent().len(), 3, "one to look whether the server can be reached, and one to go on with");
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
