//! Copies between servers, with this test as the client.

use std::sync::Arc;

use bytes::Bytes;
use towpath_proto::xrootd::{
    ErrorCode, FileHandle, OpenOptions, StatOptions, Target,
    request::{Close, Query, Read, Stat, Sync},
    response::{Body as _, OpenReply, StatInfo},
};
use towpath_server::config::{AnonymousRule, IssuerConfig, Right};
use towpath_store::{Store, memory::MemoryStore, sys::disk};
use towpath_testkit::{
    fault::{FaultStore, Faults},
    issuer::{SigningKey, jwks, wlcg_claims},
};

use super::peer::{Peer, Site, XrootdResponse, content, encode, open_request};
use crate::it::copier::Copier;

const NEW: OpenOptions = OpenOptions::new.union(OpenOptions::open_updt);
const REPLACE: OpenOptions = OpenOptions::delete.union(OpenOptions::open_updt);
const READ: OpenOptions = OpenOptions::open_read;
const SIZE: usize = 300_007;

fn site() -> Site {
    site_of(Arc::new(MemoryStore::new(1 << 30)))
}

fn site_of(store: Arc<dyn Store>) -> Site {
    Site::with_transfers(store, Some(Arc::new(Copier)), |config| {
        config.third_party.anonymous = true;
        config.third_party.allow = vec!["127.0.0.1".into()];
    })
}

fn size(answer: XrootdResponse) -> u64 {
    StatInfo::decode(answer.ok()).unwrap().size
}

/// A client of both servers, and the handle at the destination.
struct Client {
    source: Peer,
    destination: Peer,
    handle: FileHandle,
}

impl Client {
    /// Opens `/copy` at the destination, to be fetched from `/file` at the source.
    async fn begin(source: &Site, destination: &Site, options: OpenOptions) -> Self {
        let mut client = Self {
            source: Peer::logged_in(source).await,
            destination: Peer::logged_in(destination).await,
            handle: FileHandle([0; 4]),
        };
        let at = format!("/copy?tpc.key=k3y&tpc.src={}&tpc.lfn=/file&tpc.stage=copy&oss.asize={SIZE}", source.address);
        client.handle = client.destination.open(&at, options).await;
        client
    }

    async fn sync(&mut self) -> XrootdResponse {
        self.destination.ask(Sync { handle: self.handle }).await
    }

    async fn grant(&mut self) -> XrootdResponse {
        self.source.ask(open_request("/file?tpc.key=k3y&tpc.dst=127.0.0.1&tpc.stage=copy", READ)).await
    }

    async fn stat(&mut self) -> XrootdResponse {
        let target = Target::Handle(self.handle);
        self.destination.ask(Stat { options: StatOptions::NONE, wants: 0, wants_node: false, target }).await
    }
}

#[tokio::test]
async fn a_file_is_fetched() {
    let (from, to) = (site(), site());
    from.put("/file", &content(SIZE)).await;
    let mut client = Client::begin(&from, &to, NEW).await;
    assert_eq!(size(client.stat().await), 0);
    client.sync().await.ok();
    client.grant().await.ok();
    client.sync().await.ok();
    assert_eq!(size(client.stat().await), SIZE as u64);
    client.sync().await.ok();
    client.destination.close(client.handle).await.ok();
    assert_eq!(to.get("/copy").await.unwrap(), content(SIZE));
    let mut again = Client::begin(&from, &to, REPLACE).await;
    again.sync().await.ok();
    again.grant().await.ok();
    again.sync().await.ok();
}

#[tokio::test]
async fn the_client_may_come_to_the_source_last() {
    let (from, to) = (site(), site());
    from.put("/file", &content(SIZE)).await;
    let mut client = Client::begin(&from, &to, NEW).await;
    client.sync().await.ok();
    client.destination.send(&encode(9, Sync { handle: client.handle })).await;
    // The copy has begun: it is not visible yet, but the destination is connected to the source.
    while from.service.metrics.connections.get() < 2 {
        tokio::task::yield_now().await;
    }
    client.grant().await.ok();
    client.destination.answer(9).await.ok();
    assert_eq!(to.get("/copy").await.unwrap(), content(SIZE));
}

#[tokio::test]
async fn a_copy_can_be_cancelled_and_watched() {
    let store = FaultStore::new(Arc::new(MemoryStore::new(1 << 30)), Faults::default());
    let (from, to) = (site_of(Arc::new(store.clone())), site());
    from.put("/file", &content(SIZE)).await;
    for ends_by_closing in [false, true] {
        let mut client = Client::begin(&from, &to, NEW).await;
        client.sync().await.ok();
        client.grant().await.ok();
        let held = store.hold("open");
        client.destination.send(&encode(9, Sync { handle: client.handle })).await;
        held.reached().await;
        assert_eq!(size(client.stat().await), 0, "it is answered while the copy is under way");
        if ends_by_closing {
            client.destination.send(&encode(8, Close { handle: client.handle, ending: None })).await;
            let mut answers = Vec::new();
            for _ in 0..2 {
                answers.push(client.destination.any_answer().await.unwrap().1.code());
            }
            assert_eq!(answers, [ErrorCode::Cancelled; 2]);
        } else {
            let cancel = Query::OpaqueHandle { handle: client.handle, argument: Bytes::from_static(b"ofs.tpc cancel") };
            client.destination.send(&encode(8, cancel)).await;
            let mut answers =
                [client.destination.any_answer().await.unwrap(), client.destination.any_answer().await.unwrap()];
            answers.sort_by_key(|(stream_id, _)| stream_id.0);
            let [(_, cancelled), (_, synced)] = answers;
            cancelled.ok();
            assert_eq!(synced.code(), ErrorCode::Cancelled);
        }
        drop(held);
        while to.service.third_party.in_flight() > 0 {
            tokio::task::yield_now().await;
        }
        assert!(to.get("/copy").await.is_none());
    }
    let metrics = to.service.render_metrics(towpath_server::metrics::Exposition::Classic).await;
    assert!(metrics.contains("copies_total{direction=\"pull\",outcome=\"Cancelled\"} 2"), "{metrics}");
}

#[tokio::test]
async fn a_key_opens_what_its_owner_may_read_and_nothing_else() {
    let key = SigningKey::es256("k");
    let directory = tempfile::tempdir().unwrap();
    let keys = directory.path().join("jwks");
    disk::write(&keys, jwks([&key]).to_string().as_bytes()).unwrap();
    let from = Site::with_transfers(Arc::new(MemoryStore::new(1 << 30)), None, |config| {
        config.access.anonymous = vec![AnonymousRule { path: "/public".into(), allow: vec![Right::Read] }];
        config.access.issuers = vec![IssuerConfig {
            issuer: "https://issuer.test".into(),
            base_path: "/".into(),
            keys: Some(keys.clone()),
            ca: None,
        }];
    });
    let to = site();
    from.put("/file", &content(SIZE)).await;
    from.put("/other", b"other").await;
    let mut client = Client::begin(&from, &to, NEW).await;
    client.sync().await.ok();
    assert_eq!(client.grant().await.code(), ErrorCode::AuthFailed, "who may not read it cannot give it away");
    let token = key.token(&wlcg_claims("https://issuer.test", "storage.read:/file"));
    let granting = format!("/file?tpc.key=k3y&tpc.dst=127.0.0.1&authz=Bearer%20{token}");
    client.source.ask(open_request(&granting, READ)).await.ok();
    client.sync().await.ok();
    assert_eq!(to.get("/copy").await.unwrap(), content(SIZE));
    // A grant for one file does not apply to another, and nothing works without a grant.
    client.source.ask(open_request(&granting, READ)).await.ok();
    let mut thief = Peer::logged_in(&from).await;
    assert_eq!(thief.ask(open_request("/other", READ)).await.code(), ErrorCode::AuthFailed);
    let reply = thief.ask(open_request("/file?tpc.key=k3y&tpc.org=tester.1@anywhere", READ)).await.ok();
    let handle = OpenReply::decode(reply).unwrap().handle;
    thief.ask(Read { handle, length: 1, ..Read::default() }).await.ok();
}

#[tokio::test]
async fn no_private_address_is_fetched_from() {
    let from = site();
    from.put("/file", &content(SIZE)).await;
    let to = Site::with_transfers(Arc::new(MemoryStore::new(1 << 30)), Some(Arc::new(Copier)), |config| {
        config.third_party.anonymous = true;
    });
    let mut client = Client::begin(&from, &to, NEW).await;
    client.sync().await.ok();
    client.grant().await.ok();
    assert_eq!(client.sync().await.code(), ErrorCode::NotAuthorized);
    assert_eq!(client.destination.close(client.handle).await.code(), ErrorCode::NotAuthorized);
    assert!(to.get("/copy").await.is_none());
}

#[tokio::test]
async fn the_same_is_refused_as_for_an_upload() {
    let to = site();
    to.put("/d/old", b"x").await;
    let mut peer = Peer::logged_in(&to).await;
    let pull = "tpc.key=k&tpc.src=127.0.0.1:1";
    for (at, options, code) in [
        (format!("/d/old?{pull}"), NEW, ErrorCode::ItExists),
        (format!("/d?{pull}"), REPLACE, ErrorCode::isDirectory),
        (format!("/none/new?{pull}"), NEW, ErrorCode::NotFound),
        ("/new?tpc.key=k".into(), NEW, ErrorCode::ArgInvalid),
        (format!("/new?{pull}&tpc.cks=sum"), NEW, ErrorCode::Unsupported),
        ("/new?tpc.key=k&tpc.src=127.0.0.1&tpc.lfn=..".into(), NEW, ErrorCode::ArgInvalid),
        ("/d/old?tpc.key=k".into(), READ, ErrorCode::ArgInvalid),
        ("/d/old?tpc.key=k&tpc.dst=127.0.0.1&tpc.org=a".into(), READ, ErrorCode::ArgInvalid),
        ("/d/old?tpc.key=k&tpc.dst=127.0.0.1&tpc.ttl=x".into(), READ, ErrorCode::ArgInvalid),
        (format!("/d/old?tpc.key={}&tpc.dst=127.0.0.1", "k".repeat(200)), READ, ErrorCode::ArgInvalid),
    ] {
        assert_eq!(peer.ask(open_request(&at, options)).await.code(), code, "{at}");
    }
    peer.open(&format!("/none/new?{pull}"), NEW | OpenOptions::mkpath).await;
    assert!(to.get("/none/new").await.is_none(), "nothing is made before the copy");
    let words = |text: &'static str| Query::Config(Bytes::from_static(text.as_bytes()));
    assert_eq!(peer.ask(words("tpc tpcdlg")).await.ok(), "1\ntpcdlg\n");
    let usual = Site::with_transfers(Arc::new(MemoryStore::new(1 << 30)), Some(Arc::new(Copier)), |_| {});
    let refused = Peer::logged_in(&usual).await.ask(open_request(&format!("/new?{pull}"), NEW)).await;
    assert_eq!(refused.code(), ErrorCode::AuthFailed, "nobody showed a token");
    let none = Site::with_transfers(Arc::new(MemoryStore::new(1 << 30)), Some(Arc::new(Copier)), |config| {
        config.third_party.enabled = false;
    });
    let mut peer = Peer::logged_in(&none).await;
    assert_eq!(peer.ask(words("tpc")).await.ok(), "tpc\n");
    peer.ask(open_request(&format!("/new?{pull}"), NEW)).await.expect_error(ErrorCode::FSError, "tpc not supported");
}
