//! Concurrent requests of all kinds by several clients on several threads: each gets one response, and the data read
//! are correct.

use std::{collections::HashMap, sync::Arc};

use bytes::BytesMut;
use towpath_proto::xrootd::{
    FileHandle, OpenOptions, Request, Target, page,
    request::{
        Close, Dirlist, Mkdir, PgRead, PgWrite, Ping, Query, Read, Readv, Rmdir, Stat, Sync, Truncate, VectorElement,
        Write,
    },
};
use towpath_store::{Store, local::LocalStore, memory::MemoryStore};
use towpath_testkit::random::Random;

use super::peer::{Peer, Site, XrootdResponse, content, encode, open_request};

const FILE_BYTES: u64 = 1 << 20;
/// A handle open for reading, one being written, and one that is opened and closed repeatedly.
const READING: FileHandle = FileHandle([0; 4]);
const WRITING: FileHandle = FileHandle([1, 0, 0, 0]);
const BRIEF: FileHandle = FileHandle([2, 0, 0, 0]);

/// The expected response.
enum ExpectedResponse {
    Anything,
    Data(Vec<u8>),
}

/// Returns some requests with their data and the expected responses.
fn requests(random: &mut Random, data: &[u8], name: &str) -> Vec<(Request, Vec<u8>, ExpectedResponse)> {
    let offset = random.below(FILE_BYTES);
    let length = random.below(100_000).min(FILE_BYTES - offset);
    let range = offset as usize..(offset + length) as usize;
    let just = |request: Request| vec![(request, Vec::new(), ExpectedResponse::Anything)];
    let file = if random.chance(500) { READING } else { WRITING };
    match random.below(13) {
        0 | 1 => {
            let read = Read { handle: READING, offset, length: length as u32, ..Read::default() };
            vec![(read.into(), Vec::new(), ExpectedResponse::Data(data[range].to_vec()))]
        }
        2 => {
            let read = PgRead { handle: READING, offset, length: length as u32 + 1, ..PgRead::default() };
            let end = data.len().min(range.end + 1);
            let mut pages = BytesMut::new();
            page::encode(offset, &data[range.start..end], &mut pages);
            vec![(read.into(), Vec::new(), ExpectedResponse::Data(pages.to_vec()))]
        }
        3 => {
            let elements: Vec<_> = (0..1 + random.below(40))
                .map(|_| VectorElement {
                    handle: READING,
                    offset: random.below(FILE_BYTES - 9000),
                    length: random.below(9000) as u32,
                })
                .collect();
            let parts = elements.iter().flat_map(|element| {
                let start = element.offset as usize;
                [&element.to_bytes()[..], &data[start..start + element.length as usize]].concat()
            });
            let expected = ExpectedResponse::Data(parts.collect());
            vec![(Readv { elements, ..Readv::default() }.into(), Vec::new(), expected)]
        }
        4 => {
            let bytes = &data[range];
            let write = Write { handle: WRITING, offset, length: bytes.len() as u32, ..Write::default() };
            vec![(write.into(), bytes.to_vec(), ExpectedResponse::Anything)]
        }
        5 => {
            let mut pages = BytesMut::new();
            page::encode(offset, &data[range], &mut pages);
            let write = PgWrite { handle: WRITING, offset, length: pages.len() as u32, ..PgWrite::default() };
            vec![(write.into(), pages.to_vec(), ExpectedResponse::Anything)]
        }
        6 => just(Sync { handle: WRITING }.into()),
        7 => just(Truncate { target: Target::Handle(WRITING), size: FILE_BYTES }.into()),
        8 => {
            just(Stat { options: Default::default(), wants: 0, wants_node: false, target: Target::Handle(file) }.into())
        }
        9 => just(Dirlist { options: Default::default(), wants_node: false, path: "/".into() }.into()),
        10 => just(Ping.into()),
        11 => {
            let mkdir = Mkdir { path: name.into(), ..Mkdir::default() };
            let all: [Request; 3] =
                [mkdir.into(), Rmdir { path: name.into() }.into(), Query::Config("role".into()).into()];
            all.into_iter().flat_map(just).collect()
        }
        _ => {
            let read = Read { handle: BRIEF, offset, length: length as u32, ..Read::default() };
            let mut three = just(open_request("/f", OpenOptions::open_read).into());
            three.push((read.into(), Vec::new(), ExpectedResponse::Data(data[range].to_vec())));
            three.extend(just(Close { handle: BRIEF, ..Close::default() }.into()));
            three
        }
    }
}

async fn client(site: Arc<Site>, seed: u64, data: Arc<Vec<u8>>) {
    let mut random = Random::new(seed);
    let mut peer = Peer::logged_in(&site).await;
    assert_eq!(peer.open("/f", OpenOptions::open_read).await, READING);
    assert_eq!(peer.open(&format!("/w{seed}"), OpenOptions::new | OpenOptions::open_updt).await, WRITING);
    for _ in 0..40 {
        // Few enough that their responses fit into the network buffers: this client does not read while it sends.
        let mut flight = Vec::new();
        let mut expected = HashMap::new();
        for _ in 0..12 {
            for (request, bytes, answer) in requests(&mut random, &data, &format!("/d{seed}")) {
                let stream_id = expected.len() as u16;
                flight.extend(encode(stream_id, request.clone()));
                flight.extend(bytes);
                expected.insert(stream_id, (request, answer));
            }
        }
        peer.send(&flight).await;
        while !expected.is_empty() {
            let (stream_id, answer) = peer.any_answer().await.expect("the connection is open");
            let (request, wanted) = expected.remove(&stream_id.number()).expect("it is answered once");
            let got = match answer {
                XrootdResponse::Ok(body) | XrootdResponse::Status(body) => body,
                other => panic!("seed {seed}: {request:?} was answered {other:?}"),
            };
            if let ExpectedResponse::Data(data) = wanted {
                assert!(got == data, "seed {seed}: {request:?} had {} bytes, {} expected", got.len(), data.len());
            }
        }
    }
    peer.close(WRITING).await.ok();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn requests_of_all_kinds_are_all_answered() {
    let directory = tempfile::tempdir().unwrap();
    let local: Arc<dyn Store> = Arc::new(LocalStore::open(directory.path(), Default::default()).unwrap());
    for store in [Arc::new(MemoryStore::new(1 << 30)), local] {
        let site = Arc::new(Site::of(store));
        let data = Arc::new(content(FILE_BYTES as usize));
        site.put("/f", &data).await;
        let clients = (0..4).map(|seed| tokio::spawn(client(Arc::clone(&site), seed, Arc::clone(&data))));
        for client in clients.collect::<Vec<_>>() {
            client.await.unwrap();
        }
        assert_eq!(site.service.metrics.disconnected.get(), 0);
    }
}
