//! Slow checksums: the client is notified and gets the response asynchronously.

use std::{
    process::{Command, Stdio},
    sync::Arc,
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    sync::oneshot,
};
use towpath_proto::xrootd::{
    ErrorCode, PathAndCgi, Response, Status, StreamId,
    request::{Login, Ping, Query},
    response::{Attn, ErrorReply, WaitResp},
};
use towpath_store::{memory::MemoryStore, sys::net};
use towpath_testkit::fault::{FaultStore, Faults, GateGuard};

use super::peer::{HANG, Peer, Site, XrootdResponse, encode, login};

/// Longer than the time before the notification.
const LONG: Duration = Duration::from_secs(6);
const MD5_OF_HELLO: &str = "5d41402abc4b2a76b9719d911017c592";

/// A site with a file whose checksum is blocked by the test.
async fn site_of_a_slow_store() -> (Site, GateGuard) {
    let store = FaultStore::new(Arc::new(MemoryStore::new(1 << 20)), Faults::default());
    let held = store.hold("digest");
    let site = Site::of(Arc::new(store));
    site.put("/f", b"hello").await;
    (site, held)
}

/// Advances the clock for all tasks in this process.
async fn pass(time: Duration) {
    tokio::time::pause();
    tokio::time::advance(time).await;
    tokio::time::resume();
}

fn md5() -> Query {
    Query::Checksum(PathAndCgi::from("/f").with_cgi("cks.type=md5"))
}

/// Connects a client that supports asynchronous responses and waits for the notification on stream 5.
async fn promised(site: &Site, held: &GateGuard) -> Peer {
    let login = Login { capver: Login::VERSION_TLS | Login::ASYNCRESP, ..login() };
    let (mut peer, _) = Peer::with_login(site, login).await;
    peer.send(&encode(5, md5())).await;
    held.reached().await;
    peer.ask(Ping).await.ok();
    pass(LONG).await;
    let (stream_id, (response, _)) = peer.response().await.unwrap();
    assert_eq!(stream_id, StreamId::from_number(5));
    assert!(matches!(response, Response::WaitResp(WaitResp { seconds: 60.., .. })), "{response:?}");
    peer
}

/// Returns the asynchronous response to the request on stream 5.
async fn late(peer: &mut Peer) -> Response {
    let (stream_id, (response, _)) = peer.response().await.unwrap();
    assert_eq!(stream_id, StreamId::ZERO);
    let Response::Attn(Attn::AsynResp { header, body }) = response else { panic!("{response:?}") };
    assert_eq!(header.stream_id, StreamId::from_number(5));
    Response::decode(&header, body).unwrap()
}

#[tokio::test]
async fn a_checksum_that_takes_long_is_promised_and_comes() {
    let (site, held) = site_of_a_slow_store().await;
    let mut peer = promised(&site, &held).await;
    peer.ask(Ping).await.ok();
    drop(held);
    let Response::Ok(body) = late(&mut peer).await else { panic!("it is not ok") };
    assert_eq!(body, format!("md5 {MD5_OF_HELLO}\0"));
}

#[tokio::test]
async fn a_promised_checksum_can_be_cancelled() {
    let (site, held) = site_of_a_slow_store().await;
    let mut peer = promised(&site, &held).await;
    peer.send(&encode(6, Query::ChecksumCancel("/f".into()))).await;
    let (mut cancelled, mut refused) = (false, false);
    while !(cancelled && refused) {
        let (stream_id, (response, _)) = peer.response().await.unwrap();
        match response {
            Response::Ok(_) => cancelled = stream_id == StreamId::from_number(6),
            Response::Attn(Attn::AsynResp { header, body }) => {
                assert_eq!(header.status, Status::error);
                let Response::Error(ErrorReply { code, .. }) = Response::decode(&header, body).unwrap() else {
                    panic!()
                };
                assert_eq!(code, ErrorCode::Cancelled);
                refused = true;
            }
            other => panic!("{other:?}"),
        }
    }
    drop(held);
}

#[tokio::test]
async fn one_who_does_not_understand_promises_just_waits() {
    let (site, held) = site_of_a_slow_store().await;
    let mut peer = Peer::logged_in(&site).await;
    peer.send(&encode(5, md5())).await;
    held.reached().await;
    pass(LONG).await;
    peer.ask(Ping).await.ok();
    drop(held);
    assert_eq!(peer.answer(5).await, XrootdResponse::Ok(format!("md5 {MD5_OF_HELLO}\0").into()));
}

#[tokio::test]
async fn a_checksum_ends_when_its_client_leaves() {
    let (site, held) = site_of_a_slow_store().await;
    let mut peer = Peer::logged_in(&site).await;
    peer.send(&encode(5, md5())).await;
    held.reached().await;
    drop(peer);
    // Not a minute later, when requests in flight are cancelled.
    let ended = async {
        while !site
            .service
            .render_metrics(towpath_server::metrics::Exposition::Classic)
            .await
            .contains("verb=\"query\",outcome=\"Cancelled\"")
        {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(HANG, ended).await.expect("the computation is given up");
    drop(held);
}

/// Relays data to and from `site`, and signals the first `waitresp`.
async fn relay(site: &Site) -> (u16, oneshot::Receiver<()>) {
    let listener = net::listen(([127, 0, 0, 1], 0).into()).unwrap();
    let (port, address) = (listener.local_addr().unwrap().port(), site.address);
    let (seen, promise) = oneshot::channel();
    tokio::spawn(async move {
        let (client, _) = listener.accept().await.unwrap();
        let server = net::connect(address).await.unwrap();
        let ((mut from_client, mut to_client), (mut from_server, mut to_server)) = (split(client), split(server));
        tokio::spawn(async move { tokio::io::copy(&mut from_client, &mut to_server).await });
        let (mut seen, mut bytes) = (Some(seen), [0; 4096]);
        while let Ok(length @ 1..) = from_server.read(&mut bytes).await {
            // While the client waits, the server sends nothing else, so the header comes first.
            if bytes[2..4] == Status::waitresp.0.to_be_bytes() {
                seen.take().into_iter().for_each(|seen| seen.send(()).unwrap());
            }
            to_client.write_all(&bytes[..length]).await.unwrap();
        }
    });
    (port, promise)
}

fn split(stream: TcpStream) -> (tokio::net::tcp::OwnedReadHalf, tokio::net::tcp::OwnedWriteHalf) {
    stream.into_split()
}

#[tokio::test]
async fn xrdfs_waits_for_a_promised_checksum() {
    let (site, held) = site_of_a_slow_store().await;
    let (port, promise) = relay(&site).await;
    let mut command = Command::new("xrdfs");
    command.arg(format!("localhost:{port}")).args(["query", "checksum", "/f?cks.type=md5"]);
    // It times out if anything here goes wrong.
    let asking = match command.env("XRD_REQUESTTIMEOUT", "30").stdout(Stdio::piped()).spawn() {
        Ok(asking) => asking,
        Err(error) => return eprintln!("SKIPPED: no xrdfs to test with ({error}); install xrootd-client"),
    };
    held.reached().await;
    pass(LONG).await;
    promise.await.expect("a promise was made");
    drop(held);
    let said = tokio::task::spawn_blocking(|| asking.wait_with_output()).await.unwrap().unwrap();
    assert!(said.status.success());
    assert!(String::from_utf8_lossy(&said.stdout).contains(MD5_OF_HELLO), "{said:?}");
}
