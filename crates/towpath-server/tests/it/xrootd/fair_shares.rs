//! Greedy clients are limited to their share; others are served meanwhile (RFC 0005).

use std::{net::Ipv4Addr, sync::Arc, time::Duration};

use tokio_util::sync::CancellationToken;
use towpath_proto::xrootd::{
    ErrorCode, OpenOptions, RequestCode,
    request::{PgRead, Ping, Read, Write},
};
use towpath_server::{
    fair_pool::{Class, LeaseHolder, PeerProgress},
    units::ByteSize,
};
use towpath_store::memory::MemoryStore;

use super::peer::{Peer, Site, content, encode, open_request};

/// Differs from the default source address of clients.
const ELSEWHERE: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

async fn small_site() -> Site {
    let site = Site::with(Arc::new(MemoryStore::new(1 << 30)), |config| {
        config.limits.bytes = ByteSize(8 << 20);
        config.limits.files = 64;
    });
    site.put("/f", &content(4 << 20)).await;
    site
}

/// Opens connections that request much data and read none, until the pool is exhausted for them.
async fn greedy(site: &Site) -> Vec<Peer> {
    let mut greedy = Vec::new();
    for _ in 0..20 {
        let mut peer = Peer::logged_in(site).await;
        let handle = peer.open("/f", OpenOptions::open_read).await;
        let request = PgRead { handle, length: 4 << 20, ..PgRead::default() };
        let flight: Vec<u8> = (0..100).flat_map(|stream_id| encode(stream_id, request.clone())).collect();
        peer.send(&flight).await;
        greedy.push(peer);
    }
    while site.service.memory.pool().waiting() == 0 {
        tokio::task::yield_now().await;
    }
    greedy
}

#[tokio::test]
async fn answers_that_are_not_taken_do_not_keep_others_from_theirs() {
    let site = small_site().await;
    let _greedy = greedy(&site).await;
    for length in [80 << 10, 4 << 20] {
        let mut modest = Peer::logged_in_from(ELSEWHERE, &site).await;
        let handle = modest.open("/f", OpenOptions::open_read).await;
        let request = PgRead { handle, length, ..PgRead::default() };
        assert_eq!(modest.ask(request).await.pages().len(), length as usize / 4096 * 4100);
    }
}

#[tokio::test]
async fn a_client_that_takes_nothing_ends_when_another_has_no_memory() {
    let site = small_site().await;
    let greedy = greedy(&site).await;
    let pool = site.service.memory.pool();
    let of_one = |octet: u8| {
        let holder = LeaseHolder::at([10, 0, 0, octet].into());
        std::iter::from_fn(move || pool.try_take(&holder, 64 << 10, Class::Large))
    };
    let _hungry: Vec<_> = (0..64).flat_map(of_one).collect();
    let (waiting, progress) = (LeaseHolder::at([10, 0, 1, 0].into()), PeerProgress::new(CancellationToken::new()));
    let _granted = site.service.memory.take(&waiting, 1 << 20, &progress).await;
    for peer in greedy.into_iter().take(1) {
        peer.closed().await;
    }
    assert!(site.service.metrics.disconnected.get() > 0);
}

#[tokio::test]
async fn a_long_read_of_a_short_file_may_come_from_the_reserve() {
    let site = small_site().await;
    let data = content(100 << 10);
    site.put("/short", &data).await;
    let mut peer = Peer::logged_in(&site).await;
    let handle = peer.open("/short", OpenOptions::open_read).await;
    let (holder, pool) = (LeaseHolder::at(Ipv4Addr::LOCALHOST.into()), site.service.memory.pool());
    let _share: Vec<_> = std::iter::from_fn(|| pool.try_take(&holder, 64 << 10, Class::Large)).collect();
    let length = 4 << 20;
    assert_eq!(peer.ask(Read { handle, length, ..Read::default() }).await.ok(), data);
    let pages = peer.ask(PgRead { handle, length, ..PgRead::default() }).await.pages();
    assert_eq!(pages.len(), data.len() / 4096 * 4100);
}

/// The head of a `prepare` with a list of 2 MiB, and the first bytes of the list.
fn beginning_of_prepare(bytes: usize) -> Vec<u8> {
    let code = RequestCode::prepare.0.to_be_bytes();
    [&[0, 9], &code[..], &[0; 16], &(2u32 << 20).to_be_bytes(), &vec![b'/'; bytes]].concat()
}

#[tokio::test]
async fn memory_for_a_long_argument_follows_its_bytes() {
    let site = small_site().await;
    let all = site.service.memory.pool().free();
    let taken = || all - site.service.memory.pool().free();
    let mut peer = Peer::logged_in(&site).await;
    peer.send(&beginning_of_prepare(0)).await;
    while taken() == 0 {
        tokio::task::yield_now().await;
    }
    assert!(taken() <= 64 << 10, "{}", taken());
    peer.send(&[b'/'; 300 << 10]).await;
    while taken() < 300 << 10 {
        tokio::task::yield_now().await;
    }
    assert!(taken() <= 1 << 20, "{}", taken());
    drop(peer);
    while taken() > 0 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_long_argument_that_drips_has_a_deadline() {
    let site = small_site().await;
    let mut peer = Peer::logged_in(&site).await;
    peer.send(&beginning_of_prepare(10)).await;
    let dripping = async {
        while site.service.metrics.disconnected.get() == 0 {
            let _ = tokio::io::AsyncWriteExt::write_all(&mut peer.stream, b"/").await;
            tokio::time::sleep(Duration::from_secs(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(120), dripping).await.expect("the client is dropped");
    Peer::logged_in(&site).await.ask(Ping).await.ok();
}

#[tokio::test]
async fn idle_files_of_many_addresses_make_way_for_a_newcomer() {
    let site = small_site().await;
    let mut peers = Vec::new();
    for octet in 10..40 {
        let mut peer = Peer::logged_in_from(Ipv4Addr::new(127, 0, 0, octet), &site).await;
        while matches!(peer.ask(open_request("/f", OpenOptions::open_read)).await, super::peer::XrootdResponse::Ok(_)) {
            if site.service.files.free() == 0 {
                break;
            }
        }
        peers.push(peer);
        if site.service.files.free() == 0 {
            break;
        }
    }
    Peer::logged_in_from(Ipv4Addr::new(127, 0, 0, 200), &site).await.open("/f", OpenOptions::open_read).await;
    peers.swap_remove(0).closed().await;
}

#[tokio::test]
async fn one_client_does_not_take_all_open_files() {
    let site = small_site().await;
    let mut peers = Vec::new();
    let mut refused = 0;
    for _ in 0..3 {
        let mut peer = Peer::logged_in(&site).await;
        for _ in 0..40 {
            let answer = peer.ask(open_request("/f", OpenOptions::open_read)).await;
            if let super::peer::XrootdResponse::Error(code, message) = answer {
                assert_eq!(code, ErrorCode::Overloaded);
                assert!(message.contains("share"), "{message}");
                refused += 1;
            }
        }
        peers.push(peer);
    }
    assert!(refused >= 120 - 64 / 2, "{refused}");
    Peer::logged_in_from(ELSEWHERE, &site).await.open("/f", OpenOptions::open_read).await;
}

#[tokio::test]
async fn many_uploads_of_one_client_do_not_wait_for_each_other() {
    let site = Site::with(Arc::new(MemoryStore::new(1 << 30)), |config| config.limits.bytes = ByteSize(8 << 20));
    let data = content(1 << 20);
    let (first, rest) = data.split_at(100 << 10);
    let mut uploads = Vec::new();
    for number in 0..60 {
        let mut peer = Peer::logged_in(&site).await;
        let options = OpenOptions::new | OpenOptions::open_updt;
        let handle = peer.open(&format!("/{number}"), options).await;
        let request = Write { handle, length: data.len() as u32, ..Write::default() };
        peer.send(&[&encode(9, request), first].concat()).await;
        uploads.push(peer);
    }
    let finish = |mut peer: Peer| async move {
        peer.send(rest).await;
        peer.answer(9).await.ok();
    };
    futures::future::join_all(uploads.into_iter().map(finish)).await;
}
