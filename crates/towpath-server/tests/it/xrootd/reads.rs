//! `read`, `readv`, `pgread`: ends of files, limits, changing files.

use std::sync::Arc;

use bytes::BytesMut;
use towpath_proto::xrootd::{
    ErrorCode, FileHandle, OpenOptions, PathAndCgi, RequestCode, Status, page,
    request::{Open, PgRead, Read, ReadElement, Readv},
    response::{Body as _, OpenReply},
};
use towpath_store::{local::LocalStore, sys::disk};

use super::peer::{Peer, Site, content, encode};

const MAX_ELEMENT: u32 = 2_097_136;

fn local(directory: &tempfile::TempDir) -> Site {
    Site::of(Arc::new(LocalStore::open(directory.path(), Default::default()).unwrap()))
}

fn read(handle: FileHandle, offset: u64, length: u32) -> Read {
    Read { handle, offset, length, ..Read::default() }
}

#[tokio::test]
async fn a_known_checksum_comes_with_the_open_if_asked_for() {
    let site = Site::empty();
    site.put("/f", b"123456789").await;
    let mut peer = Peer::logged_in(&site).await;
    let options = OpenOptions::open_read | OpenOptions::retstat;
    for (wants_checksum, expected) in [(true, Some("crc32c:e3069283")), (false, None)] {
        let open = Open { options, wants_checksum, path: PathAndCgi::from("/f"), ..Open::default() };
        let reply = OpenReply::decode(peer.ask(open).await.ok()).unwrap();
        let checksum = reply.checksum.map(|sum| format!("{}:{}", sum.algorithm, sum.value));
        assert_eq!((reply.stat.unwrap().size, checksum.as_deref()), (9, expected));
    }
}

fn elements(handle: FileHandle, ranges: &[(u64, u32)]) -> Readv {
    let element = |&(offset, length): &(u64, u32)| ReadElement { handle, offset, length };
    Readv { elements: ranges.iter().map(element).collect(), ..Readv::default() }
}

/// Returns the data in a response to `readv`, whose headers must match `ranges`.
fn data_of(answer: &[u8], ranges: &[(u64, u32)]) -> Vec<u8> {
    let (mut rest, mut data) = (answer, Vec::new());
    for (offset, length) in ranges {
        let (header, behind) = rest.split_at(16);
        assert_eq!((&header[4..8], &header[8..]), (&length.to_be_bytes()[..], &offset.to_be_bytes()[..]));
        let (bytes, behind) = behind.split_at(*length as usize);
        data.extend_from_slice(bytes);
        rest = behind;
    }
    assert!(rest.is_empty());
    data
}

#[tokio::test]
async fn reads_end_where_the_file_does() {
    let directory = tempfile::tempdir().unwrap();
    for site in [Site::empty(), local(&directory)] {
        let data = content(3_000_000);
        site.put("/f", &data).await;
        let mut peer = Peer::logged_in(&site).await;
        let handle = peer.open("/f", OpenOptions::open_read).await;
        for (offset, length) in [
            (0, 0),
            (0, 10),
            (5, 65_536),
            (7, 70_000),
            (0, 3_000_000),
            (1, i32::MAX as u32),
            (2_999_999, 10),
            (1 << 40, 5),
        ] {
            let start = data.len().min(offset as usize);
            let expected = &data[start..data.len().min(start + length as usize)];
            let got = peer.ask(read(handle, offset, length)).await.ok();
            assert!(got == expected, "read {length} at {offset} gave {} bytes", got.len());
            if length > 0 {
                let mut pages = BytesMut::new();
                page::encode(offset, expected, &mut pages);
                let request = PgRead { handle, offset, length, ..PgRead::default() };
                assert!(peer.ask(request).await.pages() == pages, "pgread {length} at {offset}");
            }
        }
    }
}

#[tokio::test]
async fn negative_lengths_and_offsets_are_refused() {
    let site = Site::empty();
    site.put("/f", b"x").await;
    let mut peer = Peer::logged_in(&site).await;
    let handle = peer.open("/f", OpenOptions::open_read).await;
    for (code, offset, length) in [
        (RequestCode::read, 0i64, -1i32),
        (RequestCode::read, -1, 1),
        (RequestCode::pgread, 0, 0),
        (RequestCode::pgread, 0, -4096),
        (RequestCode::pgread, -1, 1),
    ] {
        let mut frame = vec![0, 9];
        frame.extend(code.0.to_be_bytes());
        frame.extend(handle.0);
        frame.extend(offset.to_be_bytes());
        frame.extend(length.to_be_bytes());
        frame.extend([0; 4]);
        peer.send(&frame).await;
        assert_eq!(peer.answer(9).await.code(), ErrorCode::ArgInvalid, "{code} {offset} {length}");
    }
    assert_eq!(peer.ask(read(handle, 0, 1)).await.ok(), "x", "the connection is as before");
}

#[tokio::test]
async fn vectors_up_to_their_limits() {
    let directory = tempfile::tempdir().unwrap();
    for site in [Site::empty(), local(&directory)] {
        let data = content(5 << 20);
        site.put("/f", &data).await;
        let mut peer = Peer::logged_in(&site).await;
        let handle = peer.open("/f", OpenOptions::open_read).await;
        let many: Vec<(u64, u32)> = (0..1024).map(|n| (n * 4_999 % (4 << 20), (n % 3_000) as u32)).collect();
        for ranges in [
            vec![(0, 1)],
            vec![(5 << 20, 0)],
            vec![(100, 0), (9, 9)],
            vec![(0, 60_000), (1 << 20, 60_000)],
            vec![(17, MAX_ELEMENT)],
            vec![(0, MAX_ELEMENT), (2 << 20, MAX_ELEMENT), (1, MAX_ELEMENT)],
            many,
        ] {
            let expected: Vec<u8> = ranges
                .iter()
                .flat_map(|&(offset, length)| &data[offset as usize..offset as usize + length as usize])
                .copied()
                .collect();
            let answer = peer.ask(elements(handle, &ranges)).await.ok();
            assert!(data_of(&answer, &ranges) == expected, "{} elements", ranges.len());
        }
    }
}

#[tokio::test]
async fn a_vector_at_both_limits_is_streamed() {
    let directory = tempfile::tempdir().unwrap();
    let site = local(&directory);
    let data = content(MAX_ELEMENT as usize);
    site.put("/f", &data).await;
    let mut peer = Peer::logged_in(&site).await;
    let handle = peer.open("/f", OpenOptions::open_read).await;
    peer.send(&encode(9, elements(handle, &[(0, MAX_ELEMENT); 1024]))).await;
    let mut answer_bytes = 0;
    let status = loop {
        let header = peer.raw(8).await;
        let length = u32::from_be_bytes(header[4..].try_into().unwrap()) as usize;
        let element = peer.raw(length).await;
        assert!(length == 16 + data.len() && element[16..] == data, "each frame holds one element");
        answer_bytes += length as u64;
        let status = Status(u16::from_be_bytes(header[2..4].try_into().unwrap()));
        if status != Status::oksofar {
            break status;
        }
    };
    assert_eq!((status, answer_bytes), (Status::ok, 1 << 31));
}

#[tokio::test]
async fn vectors_beyond_their_limits() {
    let site = Site::empty();
    site.put("/f", &content(100)).await;
    let mut peer = Peer::logged_in(&site).await;
    let handle = peer.open("/f", OpenOptions::open_read).await;
    let unknown = FileHandle([9, 9, 9, 9]);
    for (request, code) in [
        (elements(handle, &[(0, 1); 1025]), ErrorCode::ArgTooLong),
        (elements(handle, &[(0, MAX_ELEMENT + 1)]), ErrorCode::NoMemory),
        (elements(handle, &[(0, 10), (95, 6)]), ErrorCode::FSError),
        (elements(handle, &[(0, 10); 20].map(|_| (99, 2))), ErrorCode::FSError),
        (elements(unknown, &[(0, 1)]), ErrorCode::FileNotOpen),
        (elements(unknown, &[(0, 1); 100]), ErrorCode::FileNotOpen),
    ] {
        let count = request.elements.len();
        assert_eq!(peer.ask(request).await.code(), code, "{count} elements");
    }
    assert_eq!(data_of(&peer.ask(elements(handle, &[(0, 3)])).await.ok(), &[(0, 3)]), content(3));
    let metrics = site.service.render_metrics(towpath_server::metrics::Exposition::Classic).await;
    assert!(!metrics.contains("outcome=\"Io\""), "the storage is not at fault:\n{metrics}");
}

#[tokio::test]
async fn vectors_over_several_files() {
    let site = Site::empty();
    site.put("/a", &[b'a'; 100_000]).await;
    site.put("/b", &[b'b'; 100_000]).await;
    let mut peer = Peer::logged_in(&site).await;
    let (a, b) = (peer.open("/a", OpenOptions::open_read).await, peer.open("/b", OpenOptions::open_read).await);
    for length in [3, 50_000] {
        let elements = [a, b, a, b].map(|handle| ReadElement { handle, offset: 1, length });
        let answer = peer.ask(Readv { elements: elements.to_vec(), ..Readv::default() }).await.ok();
        let data = data_of(&answer, &[(1, length); 4]);
        let order: Vec<u8> = data.chunks(length as usize).map(|piece| piece[0]).collect();
        assert_eq!(order, b"abab");
    }
}

#[tokio::test]
async fn a_file_changed_in_place_is_never_mixed() {
    let directory = tempfile::tempdir().unwrap();
    let site = local(&directory);
    site.put("/f", &content(3 << 20)).await;
    let mut peer = Peer::logged_in(&site).await;
    // Opened like by towpath's own client.
    let options = OpenOptions::open_read;
    let open = Open { options, wants_checksum: true, path: PathAndCgi::from("/f"), ..Open::default() };
    let handle = OpenReply::decode(peer.ask(open).await.ok()).unwrap().handle;
    peer.ask(read(handle, 0, 3 << 20)).await.ok();
    disk::write(&directory.path().join("f"), b"other").unwrap();
    for length in [3, 3 << 20] {
        assert_eq!(peer.ask(read(handle, 0, length)).await.code(), ErrorCode::Conflict);
    }
    let request = PgRead { handle, length: 100, ..PgRead::default() };
    assert_eq!(peer.ask(request).await.code(), ErrorCode::Conflict);
}

#[tokio::test]
async fn a_replaced_file_goes_on_being_read_as_it_was() {
    let directory = tempfile::tempdir().unwrap();
    let site = local(&directory);
    site.put("/f", &content(200_000)).await;
    let mut peer = Peer::logged_in(&site).await;
    let handle = peer.open("/f", OpenOptions::open_read).await;
    let upload = peer.open("/f", OpenOptions::delete | OpenOptions::open_updt).await;
    peer.close(upload).await.ok();
    assert_eq!(site.get("/f").await.unwrap().len(), 0);
    assert!(peer.ask(read(handle, 0, 200_000)).await.ok() == content(200_000));
}

#[tokio::test]
async fn a_plain_read_gets_what_was_appended() {
    use std::io::Write as _;

    let directory = tempfile::tempdir().unwrap();
    let site = local(&directory);
    site.put("/f", &content(100_000)).await;
    let mut peer = Peer::logged_in(&site).await;
    let handle = peer.open("/f", OpenOptions::open_read).await;
    assert!(peer.ask(read(handle, 0, 200_000)).await.ok() == content(100_000));
    assert!(peer.ask(read(handle, 100_000, 10)).await.ok().is_empty());
    let mut file = std::fs::OpenOptions::new().append(true).open(directory.path().join("f")).unwrap();
    file.write_all(&content(200_000)[100_000..]).unwrap();
    assert!(peer.ask(read(handle, 100_000, 100_000)).await.ok() == content(200_000)[100_000..]);
    assert!(peer.ask(read(handle, 199_995, 10)).await.ok() == content(200_000)[199_995..]);
}
