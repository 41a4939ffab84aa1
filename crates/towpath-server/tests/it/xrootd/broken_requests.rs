//! Invalid frames: the server answers or closes, and continues to serve other clients.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use towpath_proto::xrootd::{
    ErrorCode, FileHandle, QueryCode, RequestCode, SessionId,
    handshake::HANDSHAKE,
    request::{Auth, Bind, Endsess, Ping, Set, Sigver, Statx},
};
use towpath_testkit::random::Random;

use super::peer::{Peer, Site, encode, greeting, login, protocol};

/// Encodes a request header with all its fields.
fn frame(code: u16, parameters: [u8; 16], dlen: i32, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![0, 9];
    frame.extend(code.to_be_bytes());
    frame.extend(parameters);
    frame.extend(dlen.to_be_bytes());
    frame.extend(payload);
    frame
}

#[tokio::test]
async fn requests_before_login_end_the_connection() {
    let site = Site::empty();
    for code in [RequestCode::ping, RequestCode::stat, RequestCode::read, RequestCode::write, RequestCode(7)] {
        let mut peer = Peer::silent(&site).await;
        peer.send(&[HANDSHAKE.to_vec(), frame(code.0, [0; 16], 0, &[])].concat()).await;
        peer.answer(0).await.ok();
        peer.answer(9).await.expect_error(ErrorCode::InvalidRequest, "log in first");
        peer.closed_silently().await;
    }
}

#[tokio::test]
async fn other_handshakes_end_the_connection() {
    let site = Site::empty();
    for start in [[0u8; 20], [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 7, 0xdd]] {
        let mut peer = Peer::silent(&site).await;
        peer.send(&start).await;
        peer.closed().await;
    }
}

#[tokio::test]
async fn what_comes_after_login_only_once() {
    let mut peer = Peer::logged_in(&Site::empty()).await;
    peer.send(&encode(1, login())).await;
    assert_eq!(peer.answer(1).await.code(), ErrorCode::InvalidRequest);
    peer.ask(protocol()).await.ok();
    assert_eq!(peer.ask(Auth::default()).await.code(), ErrorCode::InvalidRequest);
    assert_eq!(peer.ask(Bind { session_id: SessionId([1; 16]) }).await.code(), ErrorCode::InvalidRequest);
    peer.ask(Ping).await.ok();
}

#[tokio::test]
async fn what_is_not_served_is_refused_politely() {
    let mut peer = Peer::logged_in(&Site::empty()).await;
    let opaque = |kind: QueryCode| {
        let mut parameters = [0; 16];
        parameters[..2].copy_from_slice(&kind.0.to_be_bytes());
        parameters
    };
    for (code, parameters, payload, answer) in [
        (RequestCode::gpfile, [0; 16], &b"/x"[..], ErrorCode::Unsupported),
        (RequestCode::chkpoint, [0; 16], b"", ErrorCode::Unsupported),
        (RequestCode::clone, [0; 16], &[0; 32], ErrorCode::Unsupported),
        (RequestCode::query, opaque(QueryCode::Qopaque), b"x", ErrorCode::Unsupported),
        (RequestCode::query, opaque(QueryCode::Qvisa), b"", ErrorCode::Unsupported),
        (RequestCode::query, opaque(QueryCode(999)), b"", ErrorCode::Unsupported),
        (RequestCode(2999), [0; 16], b"", ErrorCode::InvalidRequest),
        (RequestCode(4000), [0; 16], b"payload", ErrorCode::InvalidRequest),
        (RequestCode::stat, [0; 16], b"relative", ErrorCode::ArgInvalid),
        (RequestCode::stat, [0; 16], b"/a/../b", ErrorCode::ArgInvalid),
        (RequestCode::rm, [0; 16], b"", ErrorCode::ArgMissing),
        (RequestCode::open, [0; 16], b"/a\0b", ErrorCode::ArgInvalid),
        (RequestCode::readv, [0; 16], &[0; 17], ErrorCode::ArgInvalid),
        (RequestCode::stat, [0xff; 16], b"", ErrorCode::FileNotOpen),
    ] {
        peer.send(&frame(code.0, parameters, payload.len() as i32, payload)).await;
        assert_eq!(peer.answer(9).await.code(), answer, "{code} {}", payload.escape_ascii());
    }
    let long = format!("/{}", "x".repeat(5000));
    peer.send(&frame(RequestCode::stat.0, [0; 16], long.len() as i32, long.as_bytes())).await;
    assert_eq!(peer.answer(9).await.code(), ErrorCode::ArgTooLong);
    peer.ask(Set { modifier: 0, text: "appid test".into() }).await.ok();
    peer.send(&encode(1, Sigver::default())).await;
    peer.ask(Ping).await.ok();
}

#[tokio::test]
async fn lengths_beyond_all_bounds_end_the_connection() {
    let site = Site::empty();
    let (negative, long) = (ErrorCode::ArgInvalid, ErrorCode::ArgTooLong);
    for (code, dlen, answer, message) in [
        (RequestCode::stat, -1, negative, "dlen is invalid"),
        (RequestCode::stat, i32::MIN, negative, "dlen is invalid"),
        (RequestCode::write, -1, negative, "dlen is invalid"),
        (RequestCode::writev, i32::MAX, long, "argument is too long: 2147483647 bytes, at most 65536 are accepted"),
    ] {
        let mut peer = Peer::logged_in(&site).await;
        peer.send(&frame(code.0, [0; 16], dlen, &[])).await;
        peer.answer(0).await.expect_error(answer, message);
        peer.closed_silently().await;
    }
}

#[tokio::test]
async fn requests_that_are_too_long_are_refused_and_passed_over() {
    let mut peer = Peer::logged_in(&Site::empty()).await;
    for (code, bytes) in [(RequestCode::stat, 65 << 10), (RequestCode::readv, 1 << 20), (RequestCode::fattr, 3 << 20)] {
        peer.send(&frame(code.0, [0; 16], bytes, &vec![b'/'; bytes as usize])).await;
        assert_eq!(peer.answer(9).await.code(), ErrorCode::ArgTooLong);
    }
    peer.ask(Ping).await.ok();
}

#[tokio::test]
async fn one_statx_asks_about_so_many_paths_at_most() {
    let mut peer = Peer::logged_in(&Site::empty()).await;
    let flags = peer.ask(Statx { list: "/\n/".into() }).await.ok();
    assert_eq!(flags, [2, 2][..], "directories, and no other flag");
    assert_eq!(peer.ask(Statx { list: "/\n".repeat(2000).into() }).await.code(), ErrorCode::ArgTooLong);
    assert_eq!(peer.ask(Statx { list: "/\n/missing".into() }).await.code(), ErrorCode::NotFound);
}

#[tokio::test]
async fn endsess_of_nobody_is_fine() {
    let mut peer = Peer::logged_in(&Site::empty()).await;
    peer.ask(Endsess { session_id: SessionId([7; 16]) }).await.ok();
}

/// Counts the panics of tasks on this test's thread: tokio catches them and the server continues.
fn count_panics() -> Arc<AtomicUsize> {
    let panics = Arc::new(AtomicUsize::new(0));
    let (counted, here, before) = (Arc::clone(&panics), std::thread::current().id(), std::panic::take_hook());
    std::panic::set_hook(Box::new(move |info| {
        if std::thread::current().id() == here {
            counted.fetch_add(1, Ordering::Relaxed);
        }
        before(info);
    }));
    panics
}

/// Random and slightly damaged requests, from a fixed seed: they are rejected or end the connection, and other
/// clients are served.
#[tokio::test]
async fn noise_harms_nobody_else() {
    let (site, panics) = (Site::empty(), count_panics());
    site.put("/f", b"x").await;
    for seed in 0..150 {
        let mut random = Random::new(seed);
        let mut peer = Peer::silent(&site).await;
        let mut bytes = if random.chance(900) { greeting() } else { Vec::new() };
        for _ in 0..random.below(20) {
            let code = 2998 + random.below(37) as u16;
            let parameters: [u8; 16] =
                std::array::from_fn(|_| if random.chance(700) { 0 } else { random.number() as u8 });
            let payload: Vec<u8> =
                (0..random.below(64)).map(|_| if random.chance(500) { b'/' } else { random.number() as u8 }).collect();
            let dlen = if random.chance(950) { payload.len() as i32 } else { random.number() as i32 };
            bytes.extend(frame(code, parameters, dlen, &payload));
        }
        for _ in 0..random.below(3) {
            let place = random.below(bytes.len() as u64 + 1) as usize;
            bytes.truncate(place);
        }
        // The server may already have closed the connection, so the send may fail.
        let _ = tokio::io::AsyncWriteExt::write_all(&mut peer.stream, &bytes).await;
        let _ = tokio::io::AsyncWriteExt::shutdown(&mut peer.stream).await;
        peer.closed().await;
        assert_eq!(panics.load(Ordering::Relaxed), 0, "seed {seed}");
    }
    let mut peer = Peer::logged_in(&site).await;
    let handle: FileHandle = peer.open("/f", towpath_proto::xrootd::OpenOptions::open_read).await;
    peer.close(handle).await.ok();
    site.stopping.cancel();
    site.running.await.unwrap();
    assert_eq!(site.service.metrics.connections.get(), 0);
}
