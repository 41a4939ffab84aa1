//! What servers say of their ends of connections.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use towpath_client::{Client, ClientOptions, Probe, Side, Trace};
use towpath_proto::{
    probe::{Direction, PROBE_TYPE, Sample},
    tcp::TcpInfo,
    url::Url,
    xrootd::RequestCode,
};
use towpath_store::{Fault, sys::disk};

use crate::{
    own::serve_directory,
    peer::{Xrootd, caller, content, options},
    script::Script,
    scripted::{done, read},
    web::{Web, reply},
};

const SIZE: usize = 8 << 20;

/// Reads the file `/f` over `scheme` with statistics requested; returns those of the used connections at the end.
async fn told(scheme: &str, port: u16) -> Vec<(TcpInfo, Option<TcpInfo>)> {
    let client = Client::new(Arc::new(ClientOptions { connections: 1, ..options() }));
    let (store, path) = client.connect(&format!("{scheme}://127.0.0.1:{port}//f").parse::<Url>().unwrap()).unwrap();
    let file = store.open(&caller(), &path, Default::default()).await.unwrap();
    file.read(0, SIZE).await.unwrap();
    client.ask_far_ends().await;
    // The second read carries the first response to the query.
    file.read(0, SIZE).await.unwrap();
    let connections = client.connections();
    connections.into_iter().map(|one| (one.info, one.far)).filter(|(near, _)| near.received > 1 << 20).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn our_server_says_what_holds_its_end_up() {
    let directory = tempfile::tempdir().unwrap();
    disk::write(&directory.path().join("f"), &vec![7; SIZE]).unwrap();
    let port = serve_directory(&directory);
    for scheme in ["root", "http"] {
        let told = told(scheme, port).await;
        assert!(!told.is_empty(), "{scheme}");
        for (near, far) in told {
            let far = far.unwrap_or_else(|| panic!("{scheme}: nothing was said"));
            assert!(far.received <= near.sent && far.received > 0, "{scheme}: {far:?} {near:?}");
            assert!(far.acknowledged <= near.received && far.sent > 0, "{scheme}: {far:?}");
            assert!(far.most_send_buffer > 0, "{scheme}: {far:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn others_say_nothing() {
    let Some(server) = Xrootd::start("") else { return };
    server.put("f", &vec![7; SIZE]);
    let told = told("root", server.port).await;
    assert!(!told.is_empty() && told.iter().all(|(_, far)| far.is_none()), "{told:?}");
}

#[tokio::test]
async fn who_does_not_say_is_not_asked_again() {
    let script = Script::listen();
    let client = Client::new(Arc::new(ClientOptions { connections: 1, ..options() }));
    let url = format!("root://127.0.0.1:{}//f", script.port).parse::<Url>().unwrap();
    let (store, path) = client.connect(&url).unwrap();
    let file = store.open(&caller(), &path, Default::default()).await.unwrap();
    let reading = read(&file, 0, 100);
    let (mut peer, requests) = script.first_flight(&[RequestCode::open, RequestCode::pgread]).await;
    peer.opened(requests[0].0, 0, 10_000);
    peer.pages(requests[1].0, 0, &content(100), |_| ());
    peer.send().await;
    done(reading).await.unwrap();
    let asking = tokio::spawn(async move {
        client.ask_far_ends().await;
        client.ask_far_ends().await;
    });
    let requests = peer.expect(&[RequestCode::query]).await;
    // As xrootd responds to an unknown key.
    peer.ok(requests[0].0, &Bytes::from_static(b"towpath.tcp\n"));
    peer.send().await;
    done(asking).await;
}

fn probe(direction: Direction) -> Probe {
    let [duration, interval] = [200, 20].map(Duration::from_millis);
    Probe { direction, connections: 2, duration, interval }
}

#[tokio::test(flavor = "multi_thread")]
async fn our_server_is_probed_whatever_the_url_speaks() {
    let directory = tempfile::tempdir().unwrap();
    let port = serve_directory(&directory);
    let client = Client::new(Arc::new(options()));
    for scheme in ["root", "http"] {
        let url = format!("{scheme}://127.0.0.1:{port}//new").parse::<Url>().unwrap();
        for direction in [Direction::Down, Direction::Up] {
            let probed = client.probe(&url, &probe(direction)).await.unwrap();
            assert!(probed.server.starts_with("towpath/"), "{probed:?}");
            for (connection, side) in [(0, Side::Client), (1, Side::Client), (0, Side::Server), (1, Side::Server)] {
                let of = |trace: &&Trace| (trace.connection, trace.side) == (connection, side);
                assert!(probed.traces.iter().any(|trace| of(&trace)), "{scheme} {direction:?} {connection} {side:?}");
            }
            assert!(probed.traces.is_sorted_by_key(|trace| trace.at));
        }
    }
    assert_eq!(directory.path().read_dir().unwrap().count(), 0, "nothing was made");
}

#[tokio::test(flavor = "multi_thread")]
async fn others_are_not_probed() {
    let Some(server) = Xrootd::start("") else { return };
    let client = Client::new(Arc::new(ClientOptions { connect_timeout: Duration::from_secs(2), ..options() }));
    let url = format!("root://127.0.0.1:{}//", server.port).parse::<Url>().unwrap();
    let error = client.probe(&url, &probe(Direction::Down)).await.unwrap_err();
    assert!(matches!(error.fault(), Fault::Unavailable | Fault::Unsupported), "{error:?}");
    assert!(error.message().contains("towpath server"), "{error}");
}

#[tokio::test]
async fn a_server_that_says_more_than_it_was_asked_for_is_given_up() {
    for (samples, is_taken) in [(36, true), (37, false)] {
        let web = Web::start(move |_, _| {
            let sample = Sample { at: Duration::ZERO, info: TcpInfo { received: 1, ..TcpInfo::default() } };
            reply(200).with("content-type", PROBE_TYPE).body(sample.frame().repeat(samples))
        });
        let url = format!("http://{}/", web.address).parse::<Url>().unwrap();
        let client = Client::new(Arc::new(options()));
        let probed = client.probe(&url, &Probe { connections: 1, ..probe(Direction::Down) }).await;
        match is_taken {
            true => {
                assert_eq!(probed.unwrap().traces.iter().filter(|trace| trace.side == Side::Server).count(), samples);
            }
            false => assert_eq!(probed.unwrap_err().fault(), Fault::Protocol),
        }
    }
}
