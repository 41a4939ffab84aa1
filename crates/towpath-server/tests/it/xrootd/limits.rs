//! Limits: effects of slow, idle, greedy and disconnected clients.

use std::{sync::Arc, time::Duration};

use towpath_proto::xrootd::{
    ErrorCode, FileHandle, OpenOptions,
    request::{PgRead, Ping, Query, Read},
};
use towpath_server::units::{ByteSize, HumanDuration};
use towpath_store::{Store, local::LocalStore, memory::MemoryStore};

use super::peer::{Peer, Site, content, encode};

const SOON: HumanDuration = HumanDuration(Duration::from_millis(50));

fn memory() -> Arc<dyn Store> {
    Arc::new(MemoryStore::new(1 << 30))
}

#[tokio::test]
async fn a_client_that_does_not_log_in_is_dropped() {
    let site = Site::with(memory(), |config| config.limits.handshake = SOON);
    let mut peer = Peer::silent(&site).await;
    peer.send(&[0]).await;
    peer.closed().await;
    assert_eq!(site.service.metrics.disconnected.get(), 1);
}

#[tokio::test]
async fn a_client_that_is_silent_is_dropped() {
    let site = Site::with(memory(), |config| {
        config.limits.idle = SOON;
        config.limits.stall = SOON;
    });
    let between = Peer::logged_in(&site).await;
    let mut within = Peer::logged_in(&site).await;
    within.send(&encode(1, Ping)[..10]).await;
    between.closed().await;
    within.closed().await;
    assert_eq!(site.service.metrics.disconnected.get(), 2);
}

#[tokio::test]
async fn a_client_that_takes_nothing_is_dropped() {
    let directory = tempfile::tempdir().unwrap();
    let local: Arc<dyn Store> = Arc::new(LocalStore::open(directory.path(), Default::default()).unwrap());
    for store in [memory(), local] {
        let site = Site::with(store, |config| {
            config.limits.stall = SOON;
            config.limits.bytes = ByteSize(16 << 20);
        });
        site.put("/f", &content(32 << 20)).await;
        let mut slow = Peer::logged_in(&site).await;
        let handle = slow.open("/f", OpenOptions::open_read).await;
        let mut flight = Vec::new();
        for stream_id in 0..200 {
            flight.extend(encode(stream_id, Read { handle, length: 32 << 20, ..Read::default() }));
            flight.extend(encode(200 + stream_id, PgRead { handle, length: 32 << 20, ..PgRead::default() }));
        }
        slow.send(&flight).await;
        while site.service.metrics.connections.get() > 0 {
            tokio::task::yield_now().await;
        }
        assert_eq!(site.service.metrics.disconnected.get(), 1);
        let mut other = Peer::logged_in(&site).await;
        let handle = other.open("/f", OpenOptions::open_read).await;
        let request = PgRead { handle, length: 32 << 20, ..PgRead::default() };
        assert_eq!(other.ask(request).await.pages().len(), (32 << 20) / 4096 * 4100, "the memory came back");
    }
}

#[tokio::test]
async fn who_said_nothing_does_not_hold_up_the_end() {
    let hour = HumanDuration(Duration::from_secs(3600));
    let site = Site::with(memory(), |config| {
        config.limits.handshake = hour;
        config.drain = hour;
    });
    let _silent = Peer::silent(&site).await;
    while site.service.metrics.connections.get() == 0 {
        tokio::task::yield_now().await;
    }
    site.stopping.cancel();
    tokio::time::timeout(Duration::from_secs(30), site.running).await.expect("the server stops").unwrap();
}

#[tokio::test]
async fn a_short_question_has_no_long_answer() {
    let site = Site::empty();
    let mut peer = Peer::logged_in(&site).await;
    peer.ask(Query::Config("chksum ".repeat(64).into())).await.ok();
    assert_eq!(peer.ask(Query::Config("chksum ".repeat(65).into())).await.code(), ErrorCode::ArgTooLong);
}

#[tokio::test]
async fn greedy_clients_leave_room_for_others() {
    let site = Site::with(memory(), |config| config.limits.bytes = ByteSize(32 << 20));
    site.put("/f", &content(32 << 20)).await;
    let mut greedy = Vec::new();
    for _ in 0..8 {
        let mut peer = Peer::logged_in(&site).await;
        let handle = peer.open("/f", OpenOptions::open_read).await;
        for stream_id in 0..100 {
            let request = PgRead { handle, length: 32 << 20, ..PgRead::default() };
            peer.send(&encode(stream_id, request)).await;
        }
        greedy.push(peer);
    }
    let mut modest = Peer::logged_in(&site).await;
    let handle = modest.open("/f", OpenOptions::open_read).await;
    let request = PgRead { handle, length: 1 << 20, ..PgRead::default() };
    assert_eq!(modest.ask(request).await.pages().len(), 256 * 4100);
}

#[tokio::test]
async fn more_requests_than_may_be_under_way_wait_their_turn() {
    let site = Site::with(memory(), |config| config.limits.requests_per_connection = 2);
    site.put("/f", &content(1 << 20)).await;
    let mut peer = Peer::logged_in(&site).await;
    peer.open("/f", OpenOptions::open_read).await;
    let mut flight = Vec::new();
    for stream_id in 0..50 {
        let read = Read { handle: FileHandle([0; 4]), length: 1 << 20, ..Read::default() };
        flight.extend(encode(stream_id, read));
    }
    peer.send(&flight).await;
    for stream_id in 0..50 {
        assert_eq!(peer.any_answer().await.unwrap().1.ok().len(), 1 << 20, "{stream_id}");
    }
}
