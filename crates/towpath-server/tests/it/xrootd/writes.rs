//! `write`, `writev`, `pgwrite`, `sync`, `truncate`: valid and invalid uploads.

use std::{path::Path, sync::Arc};

use bytes::{Bytes, BytesMut};
use tokio::time::timeout;
use towpath_proto::checksum::{Algorithm, Algorithms, Hasher};
use towpath_proto::xrootd::{
    ErrorCode, FileHandle, OpenOptions, PageFlags, PathAndCgi, Request, Target, WritevOptions, page,
    request::{
        Close, CloseAction, FileExpectation, Open, PgRead, PgWrite, Ping, Read, Readv, Stat, Sync, Truncate,
        VectorElement, Write, Writev,
    },
    response::{Body as _, OpenReply, StatInfo},
};
use towpath_server::config::{AnonymousRule, Right};
use towpath_store::{local::LocalStore, memory::MemoryStore, sys::disk};

use super::peer::{HANG, Peer, Site, XrootdResponse, content, encode, open_request};

const NEW: OpenOptions = OpenOptions::new.union(OpenOptions::open_updt);
const REPLACE: OpenOptions = OpenOptions::delete.union(OpenOptions::open_updt);

fn write(handle: FileHandle, offset: u64, data: &[u8]) -> Write {
    Write { handle, offset, length: data.len() as u32, ..Write::default() }
}

fn pgwrite(handle: FileHandle, offset: u64, pages: &[u8]) -> PgWrite {
    PgWrite { handle, offset, length: pages.len() as u32, ..PgWrite::default() }
}

fn pages(offset: u64, data: &[u8]) -> BytesMut {
    let mut pages = BytesMut::new();
    page::encode(offset, data, &mut pages);
    pages
}

#[tokio::test]
async fn an_upload_is_visible_when_it_is_closed() {
    let site = Site::empty();
    let mut peer = Peer::logged_in(&site).await;
    let data = content(5_000_000);
    let handle = peer.open("/f", NEW).await;
    let (front, back) = data.split_at(3_000_001);
    peer.ask_with(write(handle, 3_000_001, back), back).await.ok();
    peer.ask_with(write(handle, 0, front), front).await.ok();
    peer.ask(Sync { handle }).await.ok();
    assert_eq!(site.get("/f").await, None);
    let read = Read { handle, offset: 3_000_000, length: 5, ..Read::default() };
    assert_eq!(peer.ask(read).await.ok(), data[3_000_000..3_000_005], "the writer reads what it wrote");
    peer.close(handle).await.ok();
    assert!(site.get("/f").await.unwrap() == data);
}

#[tokio::test]
async fn an_upload_by_xrdcp_makes_missing_directories() {
    let site = Site::empty();
    let mut peer = Peer::logged_in(&site).await;
    for (at, options) in [("/new/a/f", NEW | OpenOptions::async_), ("/new/b/f", REPLACE | OpenOptions::mkpath)] {
        let handle = peer.open(at, options).await;
        peer.close(handle).await.ok();
        assert!(site.get(at).await.is_some(), "{at}");
    }
    assert_eq!(peer.ask(open_request("/none/f", NEW)).await.code(), ErrorCode::NotFound, "nothing asks for it");
}

#[tokio::test]
async fn new_does_not_replace_and_the_later_close_stays() {
    let site = Site::empty();
    let mut peer = Peer::logged_in(&site).await;
    let first = peer.open("/f", NEW).await;
    let second = peer.open("/f", NEW).await;
    peer.ask_with(write(first, 0, b"first"), b"first").await.ok();
    peer.close(first).await.ok();
    assert_eq!(peer.close(second).await.code(), ErrorCode::ItExists);
    assert_eq!(peer.ask(super::peer::open_request("/f", NEW)).await.code(), ErrorCode::ItExists);
    let (third, fourth) = (peer.open("/f", REPLACE).await, peer.open("/f", REPLACE).await);
    peer.ask_with(write(third, 0, b"third"), b"third").await.ok();
    peer.ask_with(write(fourth, 0, b"fourth"), b"fourth").await.ok();
    peer.close(fourth).await.ok();
    assert_eq!(site.get("/f").await.unwrap(), "fourth");
    peer.close(third).await.ok();
    assert_eq!(site.get("/f").await.unwrap(), "third");
}

#[tokio::test]
async fn what_is_promised_with_the_close_is_compared_before_the_file_is_visible() {
    let site = Site::empty();
    site.put("/f", b"old").await;
    let mut peer = Peer::logged_in(&site).await;
    let digests = |text: &[u8]| Hasher::digest(Algorithms::of(&[Algorithm::Crc32c, Algorithm::Md5]), text);
    let cases = [
        (FileExpectation { size: 3, mtime_ns: None, digests: digests(b"nex") }, Err(ErrorCode::ChkSumErr)),
        (FileExpectation { size: 4, mtime_ns: None, digests: digests(b"new") }, Err(ErrorCode::IOError)),
        (FileExpectation { size: 3, mtime_ns: None, digests: digests(b"new") }, Ok(())),
    ];
    for (promise, outcome) in cases {
        let handle = peer.open("/f", REPLACE).await;
        peer.ask_with(write(handle, 0, b"new"), b"new").await.ok();
        let answer = peer.ask(Close { handle, ending: Some(CloseAction::Commit(promise)) }).await;
        match outcome {
            Ok(()) => assert_eq!(StatInfo::decode(answer.ok()).unwrap().size, 3),
            Err(code) => {
                assert_eq!(answer.code(), code);
                assert_eq!(site.get("/f").await.unwrap(), "old");
            }
        }
    }
    assert_eq!(site.get("/f").await.unwrap(), "new");
}

#[tokio::test]
async fn fewer_bytes_than_announced_are_discarded() {
    let site = Site::empty();
    let mut peer = Peer::logged_in(&site).await;
    let path = PathAndCgi::from("/f").with_cgi("oss.asize=10");
    let open = Open { options: NEW, path, ..Open::default() };
    let handle = OpenReply::decode(peer.ask(open).await.ok()).unwrap().handle;
    peer.ask_with(write(handle, 0, b"five."), b"five.").await.ok();
    assert_eq!(peer.close(handle).await.code(), ErrorCode::IOError);
    assert_eq!(site.get("/f").await, None);
    assert_eq!(peer.close(handle).await.code(), ErrorCode::FileNotOpen, "the handle is gone anyway");
}

#[tokio::test]
async fn a_failed_write_is_consumed_and_spoils_the_upload() {
    let site = Site::of(Arc::new(MemoryStore::new(1 << 20)));
    let mut peer = Peer::logged_in(&site).await;
    let handle = peer.open("/f", NEW).await;
    let data = content(5 << 20);
    peer.ask_with(write(handle, 0, b"start"), b"start").await.ok();
    assert_eq!(peer.ask_with(write(handle, 5, &data), &data).await.code(), ErrorCode::NoSpace);
    peer.ask(Ping).await.ok();
    assert_eq!(peer.close(handle).await.code(), ErrorCode::IOError);
    assert_eq!(site.get("/f").await, None);
}

#[tokio::test]
async fn data_for_no_file_are_consumed() {
    let site = Site::empty();
    site.put("/f", b"x").await;
    let mut peer = Peer::logged_in(&site).await;
    let reading = peer.open("/f", OpenOptions::open_read).await;
    let data = content(300_000);
    for handle in [FileHandle([5, 0, 0, 0]), reading] {
        assert_eq!(peer.ask_with(write(handle, 0, &data), &data).await.code(), ErrorCode::FileNotOpen);
        assert_eq!(peer.ask_with(pgwrite(handle, 0, &data), &data).await.code(), ErrorCode::FileNotOpen);
        let element = VectorElement { handle, offset: 0, length: 300_000 };
        let writev = Writev { options: WritevOptions::NONE, elements: vec![element] };
        assert_eq!(peer.ask_with(writev, &data).await.code(), ErrorCode::FileNotOpen);
        peer.ask(Ping).await.ok();
    }
}

#[tokio::test]
async fn vectors_of_data_follow_their_elements() {
    let site = Site::empty();
    let mut peer = Peer::logged_in(&site).await;
    let (a, b) = (peer.open("/a", NEW).await, peer.open("/b", NEW).await);
    let elements =
        [(a, 3, 4), (b, 0, 2), (a, 0, 3)].map(|(handle, offset, length)| VectorElement { handle, offset, length });
    let writev = Writev { options: WritevOptions::doSync, elements: elements.to_vec() };
    peer.ask_with(writev, b"4567bb123").await.ok();
    peer.close(a).await.ok();
    peer.close(b).await.ok();
    assert_eq!((site.get("/a").await.unwrap(), site.get("/b").await.unwrap()), ("1234567".into(), "bb".into()));
}

#[tokio::test]
async fn damaged_pages_are_named_and_may_come_again() {
    let site = Site::empty();
    let mut peer = Peer::logged_in(&site).await;
    let handle = peer.open("/f", NEW).await;
    let data = content(3 << 20);
    let mut damaged = pages(100, &data);
    damaged[10] ^= 1;
    let place = 5 * page::UNIT_BYTES + 7;
    damaged[place] ^= 1;
    let answer = peer.ask_with(pgwrite(handle, 100, &damaged), &damaged).await.pages();
    let golden = [&3996u16.to_be_bytes()[..], &4096u16.to_be_bytes(), &100u64.to_be_bytes(), &20_480u64.to_be_bytes()];
    assert_eq!(answer[4..], golden.concat(), "two pages, the first one short");
    assert_eq!(answer[..4], page::crc32c(&answer[4..]).to_be_bytes());
    for offset in [100u64, 20_480] {
        let length = 4096 - (offset % 4096) as usize;
        let start = (offset - 100) as usize;
        let again = pages(offset, &data[start..start + length]);
        let request = PgWrite { flags: PageFlags::retry, ..pgwrite(handle, offset, &again) };
        assert_eq!(peer.ask_with(request, &again).await.pages(), "");
    }
    peer.close(handle).await.ok();
    assert!(site.get("/f").await.unwrap()[100..] == data);
}

#[tokio::test]
async fn a_file_with_damaged_pages_cannot_be_closed() {
    let site = Site::empty();
    let mut peer = Peer::logged_in(&site).await;
    let handle = peer.open("/f", NEW).await;
    let mut damaged = pages(0, b"data");
    damaged[4] ^= 1;
    assert_ne!(peer.ask_with(pgwrite(handle, 0, &damaged), &damaged).await.pages(), "");
    assert_eq!(peer.close(handle).await.code(), ErrorCode::ChkSumErr);
    assert_eq!(peer.close(handle).await.code(), ErrorCode::FileNotOpen);
    assert_eq!(site.get("/f").await, None);
    site.put("/g", b"old!").await;
    let handle = peer.open("/g", OpenOptions::open_updt).await;
    assert_ne!(peer.ask_with(pgwrite(handle, 0, &damaged), &damaged).await.pages(), "");
    let message = "1 pages arrived damaged and were not retransmitted: the file lacks them".into();
    assert_eq!(peer.close(handle).await, XrootdResponse::Error(ErrorCode::ChkSumErr, message));
    assert_eq!(site.get("/g").await.unwrap(), "old!");
}

#[tokio::test]
async fn pages_that_end_within_a_checksum_are_refused() {
    let site = Site::empty();
    let mut peer = Peer::logged_in(&site).await;
    let handle = peer.open("/f", NEW).await;
    for length in [1usize, 4, page::UNIT_BYTES + 3] {
        let data = vec![0; length];
        assert_eq!(peer.ask_with(pgwrite(handle, 0, &data), &data).await.code(), ErrorCode::ArgInvalid, "{length}");
    }
}

#[tokio::test]
async fn files_are_cut_and_changed_in_place() {
    let site = Site::empty();
    site.put("/f", b"0123456789").await;
    let mut peer = Peer::logged_in(&site).await;
    let handle = peer.open("/f", OpenOptions::open_updt).await;
    peer.ask_with(write(handle, 2, b"ab"), b"ab").await.ok();
    peer.ask(Truncate { target: Target::Handle(handle), size: 6 }).await.ok();
    let stat = Stat { options: Default::default(), wants: 0, wants_node: false, target: Target::Handle(handle) };
    assert_eq!(StatInfo::decode(peer.ask(stat).await.ok()).unwrap().size, 6);
    peer.close(handle).await.ok();
    assert_eq!(site.get("/f").await.unwrap(), "01ab45");
    peer.ask(Truncate { target: Target::Path("/f".into()), size: 2 }).await.ok();
    assert_eq!(site.get("/f").await.unwrap(), "01");
}

#[tokio::test]
async fn who_may_change_a_file_may_not_read_it() {
    let site = Site::with(Arc::new(MemoryStore::new(1 << 20)), |config| {
        config.access.anonymous = vec![AnonymousRule { path: "/".into(), allow: vec![Right::Modify] }];
    });
    site.put("/f", b"secret").await;
    let mut peer = Peer::logged_in(&site).await;
    let handle = peer.open("/f", OpenOptions::open_updt).await;
    let element = VectorElement { handle, offset: 0, length: 6 };
    let reads: [Request; 3] = [
        Read { handle, length: 6, ..Read::default() }.into(),
        PgRead { handle, length: 6, ..PgRead::default() }.into(),
        Readv { elements: vec![element], ..Readv::default() }.into(),
    ];
    for request in reads {
        assert_eq!(peer.ask(request.clone()).await.code(), ErrorCode::AuthFailed, "{request:?}");
    }
    peer.ask_with(write(handle, 0, b"S"), b"S").await.ok();
    peer.close(handle).await.ok();
    assert_eq!(site.get("/f").await.unwrap(), "Secret");
    let handle = peer.open("/new", NEW).await;
    peer.ask_with(write(handle, 0, b"123456"), b"123456").await.ok();
    assert_eq!(peer.ask(Read { handle, length: 6, ..Read::default() }).await.ok(), "123456", "its own");
}

#[tokio::test]
async fn a_client_that_vanishes_leaves_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let site = Site::of(Arc::new(LocalStore::open(directory.path(), Default::default()).unwrap()));
    site.put("/f", b"old").await;
    for announced in [10u32, 10 << 20] {
        let mut peer = Peer::logged_in(&site).await;
        let handle = peer.open("/f", REPLACE).await;
        peer.ask_with(write(handle, 0, b"complete"), b"complete").await.ok();
        let half = Write { handle, offset: 8, length: announced, ..Write::default() };
        peer.send(&encode(1, half)).await;
        peer.send(&vec![0; announced as usize / 2]).await;
        drop(peer);
    }
    site.stopping.cancel();
    let service = Arc::clone(&site.service);
    site.running.await.unwrap();
    assert_eq!(service.metrics.connections.get(), 0);
    assert_eq!(walk(directory.path()), ["f"], "no temporary file");
    assert_eq!(disk::read(&directory.path().join("f"), 100).unwrap(), b"old", "nothing of what came is visible");
    until_closed(directory.path()).await;
}

#[tokio::test]
async fn a_client_that_vanishes_while_it_is_answered_leaves_no_file_open() {
    let directory = tempfile::tempdir().unwrap();
    let site = Site::of(Arc::new(LocalStore::open(directory.path(), Default::default()).unwrap()));
    site.put("/f", &content(32 << 20)).await;
    let mut peer = Peer::logged_in(&site).await;
    let handle = peer.open("/f", OpenOptions::open_read).await;
    peer.send(&encode(1, Read { handle, length: 32 << 20, ..Read::default() })).await;
    peer.send(&encode(2, PgRead { handle, length: 32 << 20, ..PgRead::default() })).await;
    peer.raw(100_000).await;
    assert_ne!(open_below(directory.path()), 0);
    drop(peer);
    until_closed(directory.path()).await;
}

/// Returns how many files below `directory` this process has open, including removed ones.
fn open_below(directory: &Path) -> usize {
    let descriptors = Path::new("/proc/self/fd").read_dir().unwrap().map(|entry| entry.unwrap().path());
    // A descriptor closed in the meantime belongs to another test.
    let targets = descriptors.filter_map(|descriptor| descriptor.read_link().ok());
    targets.filter(|target| target.starts_with(directory) && !target.is_dir()).count()
}

/// Waits until no file below `directory` is open: a client's files are closed shortly after it disconnects.
async fn until_closed(directory: &Path) {
    let closed = async {
        while open_below(directory) > 0 {
            tokio::task::yield_now().await;
        }
    };
    timeout(HANG, closed).await.expect("no file stays open");
}

/// Returns the names of all files below a directory.
fn walk(directory: &Path) -> Vec<String> {
    let entries = directory.read_dir().unwrap().map(|entry| entry.unwrap());
    entries
        .flat_map(|entry| match entry.file_type().unwrap().is_dir() {
            true => walk(&entry.path()),
            false => vec![entry.file_name().into_string().unwrap()],
        })
        .collect()
}

#[tokio::test]
async fn many_uploads_share_one_connection() {
    let site = Site::empty();
    let mut peer = Peer::logged_in(&site).await;
    let mut flight = Vec::new();
    for n in 0..100u32 {
        let open = Open { options: NEW, path: PathAndCgi::new(Bytes::from(format!("/f{n}"))), ..Open::default() };
        let data = n.to_string();
        flight.extend(encode(n as u16, open));
        flight.extend(encode(1000 + n as u16, write(FileHandle(n.to_le_bytes()), 0, data.as_bytes())));
        flight.extend(data.as_bytes());
    }
    peer.send(&flight).await;
    for _ in 0..200 {
        peer.any_answer().await.unwrap().1.ok();
    }
    for n in 0..100u32 {
        peer.close(FileHandle(n.to_le_bytes())).await.ok();
        assert_eq!(site.get(&format!("/f{n}")).await.unwrap(), n.to_string());
    }
}
