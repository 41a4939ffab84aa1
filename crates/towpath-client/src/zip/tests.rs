use std::io::Write as _;

use flate2::{Compression, write::DeflateEncoder};
use futures::TryStreamExt as _;
use towpath_proto::checksum::Hasher;
use towpath_store::{ByteRange, Expectation, memory::MemoryStore};

use super::*;

/// An archive of one member, and whether it is compressed; what the directory says of its size is `size`.
fn archive(name: &[u8], content: &[u8], is_deflated: bool, size: usize) -> Vec<u8> {
    let mut stored = content.to_vec();
    if is_deflated {
        let mut encoder = DeflateEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(content).unwrap();
        stored = encoder.finish().unwrap();
    }
    let crc = Hasher::digest_of(Algorithm::Crc32, content).bytes().iter().rev().copied().collect::<Vec<_>>();
    let method = if is_deflated { [8, 0] } else { [0, 0] };
    let sizes = [stored.len() as u32, size as u32].map(u32::to_le_bytes).concat();
    let lengths = [name.len() as u8, 0, 0, 0];
    let common = [&[20, 0, 0, 0][..], &method, &[0; 4], &crc, &sizes, &lengths].concat();
    let mut all = [&b"PK\x03\x04"[..], &common, name, &stored].concat();
    let directory = all.len() as u32;
    all.extend_from_slice(&[&b"PK\x01\x02\x14\0"[..], &common, &[0; 10], &[0; 4], name].concat());
    let bytes = all.len() as u32 - directory;
    all.extend_from_slice(b"PK\x05\x06\0\0\0\0\x01\0\x01\0");
    all.extend_from_slice(&[bytes.to_le_bytes(), directory.to_le_bytes()].concat());
    all.extend_from_slice(&[0; 2]);
    all
}

/// The store of the member `wanted` of an archive.
async fn store_of(archive: Vec<u8>, wanted: &[u8]) -> (ZipStore, StorePath) {
    let inner = Arc::new(MemoryStore::new(64 << 20));
    let path = StorePath::parse(b"/s.zip").unwrap();
    let file = inner.create(&Caller::local(), &path, CreateOptions::default()).await.unwrap();
    file.write(0, archive.into()).await.unwrap();
    file.commit(Expectation::default()).await.unwrap();
    ZipStore::new(inner, path, wanted).unwrap()
}

fn content() -> Vec<u8> {
    (0..3_000_000u32).map(|n| (n / 7) as u8).collect()
}

#[tokio::test]
async fn a_member_that_is_not_compressed_is_a_range_of_the_archive() {
    let (store, path) = store_of(archive(b"d/m.txt", &content(), false, 3_000_000), b"d/m.txt").await;
    assert_eq!(path.as_bytes(), b"/s.zip/d/m.txt");
    let file = store.open(&Caller::local(), &path, OpenOptions::default()).await.unwrap();
    let metadata = file.metadata().await.unwrap();
    let crc32 = Hasher::digest_of(Algorithm::Crc32, &content());
    assert_eq!((metadata.size, metadata.digests.get(Algorithm::Crc32)), (3_000_000, Some(crc32)));
    assert_eq!(file.read(2_999_990, 100).await.unwrap(), content()[2_999_990..]);
    assert!(file.read(3_000_000, 1).await.unwrap().is_empty());
    let ranges = [(5, 7), (2_999_999, 2), (0, 1)].map(|(offset, length)| ByteRange { offset, length });
    let mut read: Vec<_> = futures::StreamExt::collect(file.read_vector(ranges.to_vec())).await;
    read.sort_by_key(|(index, _)| *index);
    assert_eq!(read[0].1.as_ref().unwrap(), &content()[5..12]);
    assert!(read[1].1.is_err() && read[2].1.is_ok());
}

#[tokio::test]
async fn a_compressed_member_is_a_stream() {
    let (store, path) = store_of(archive(b"n", &content(), true, 3_000_000), b"n").await;
    assert_eq!(store.stat(&Caller::local(), &path).await.unwrap().size, 3_000_000);
    let file = store.open(&Caller::local(), &path, OpenOptions::default()).await.unwrap();
    assert_eq!(file.metadata().await.unwrap_err().fault(), Fault::Unsupported);
    let stream = file.stream().await.unwrap().unwrap();
    assert!(stream.is_framed);
    assert_eq!(stream.pieces.try_collect::<Vec<_>>().await.unwrap().concat(), content());
    let digest = store.digest(&Caller::local(), &path, Algorithm::Adler32, &|_| ()).await.unwrap();
    assert_eq!(digest, Hasher::digest_of(Algorithm::Adler32, &content()));
}

#[tokio::test]
async fn a_compressed_member_of_another_size_than_promised_is_an_error() {
    for size in [2_999_999, 3_000_001, 0] {
        let (store, path) = store_of(archive(b"n", &content(), true, size), b"n").await;
        let file = store.open(&Caller::local(), &path, OpenOptions::default()).await.unwrap();
        let stream = file.stream().await.unwrap().unwrap();
        let error = stream.pieces.try_collect::<Vec<_>>().await.unwrap_err();
        assert_eq!((error.fault(), error.blame()), (Fault::ChecksumMismatch, Blame::Storage), "{size}");
    }
}

#[tokio::test]
async fn a_member_that_is_not_there_is_not_found() {
    let (store, path) = store_of(archive(b"m", b"content", false, 7), b"no-such-member").await;
    assert_eq!(store.stat(&Caller::local(), &path).await.unwrap_err().fault(), Fault::NotFound);
    let opened = store.open(&Caller::local(), &path, OpenOptions::default()).await;
    assert_eq!(opened.err().unwrap().fault(), Fault::NotFound);
    let (store, path) = store_of(b"no archive".to_vec(), b"m").await;
    assert_eq!(store.stat(&Caller::local(), &path).await.unwrap_err().fault(), Fault::InvalidArgument);
    assert!(store.remove_file(&Caller::local(), &path).await.is_err());
}
