//! Against the reference server.

use std::{
    fs,
    time::{Duration, SystemTime},
};

use bytes::Bytes;
use futures::{StreamExt as _, TryStreamExt as _};
use towpath_proto::checksum::{Algorithm, Algorithms, Hasher};
use towpath_store::{
    ByteRange, CreateOptions, Entry, Expectation, Fault, FileKind, ListOptions, OpenOptions, Overwrite, Store,
    sys::disk,
};
use towpath_testkit::conformance::{self, Fixture};

use towpath_client::ClientOptions;

use crate::peer::{Xrootd, caller, content, options, path, store_at};

/// Runs the body with a server, or not at all where there is none.
macro_rules! with_xrootd {
    ($server:ident, $extra:expr, $body:block) => {{
        let Some($server) = Xrootd::start($extra) else { return };
        tokio::time::timeout(std::time::Duration::from_secs(120), async $body).await.expect("the test hangs");
    }};
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_is_read_whole_and_in_parts() {
    with_xrootd!(server, "", {
        let data = content(5_000_000);
        server.put("f", &data);
        let store = server.store();
        let file = store.open(&caller(), &path("/f"), OpenOptions::default()).await.unwrap();
        assert_eq!(file.read(4090, 10).await.unwrap(), data[4090..4100]);
        assert_eq!(file.read(0, 6_000_000).await.unwrap(), data);
        assert_eq!(file.read(4_999_999, 10).await.unwrap(), data[4_999_999..]);
        assert!(file.read(5_000_000, 10).await.unwrap().is_empty());
        assert_eq!(file.metadata().await.unwrap().size, 5_000_000);
        let into = file.read_into(1, 2, b"abc".to_vec()).await.unwrap();
        assert_eq!(into, [b"abc", &data[1..3]].concat());
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn a_read_at_the_end_sees_that_the_file_changed_meanwhile() {
    with_xrootd!(server, "", {
        let data = content(5_000_000);
        server.put("f", &data);
        let before = fs::File::options().append(true).open(server.file("f")).unwrap();
        before.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000)).unwrap();
        let store = server.store();
        let file = store.open(&caller(), &path("/f"), OpenOptions::default()).await.unwrap();
        assert_eq!(file.read(0, data.len()).await.unwrap(), data);
        assert!(file.read(data.len() as u64, 1).await.unwrap().is_empty());
        server.put("f", &data);
        assert_eq!(file.read(data.len() as u64, 1).await.unwrap_err().fault(), Fault::Changed);
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_is_replaced_is_shorter_until_all_else_has_arrived() {
    const PIECE: usize = 1 << 20;
    with_xrootd!(server, "", {
        let data = Bytes::from(content(3 * PIECE));
        server.put("f", b"old");
        let size_hint = Some(data.len() as u64);
        let replacing = CreateOptions { overwrite: Overwrite::Replace, size_hint, ..CreateOptions::default() };
        let file = server.store().create(&caller(), &path("/f"), replacing).await.unwrap();
        for start in [2 * PIECE, PIECE, 0] {
            file.write(start as u64, data.slice(start..start + PIECE)).await.unwrap();
            let there = disk::read(&server.file("f"), 1 << 30).unwrap().len();
            assert!((PIECE..data.len()).contains(&there), "{there} bytes are there");
        }
        file.commit(Expectation { size: size_hint, ..Expectation::default() }).await.unwrap();
        assert!(disk::read(&server.file("f"), 1 << 30).unwrap() == data);
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_there_is_not_found() {
    with_xrootd!(server, "", {
        let store = server.store();
        let file = store.open(&caller(), &path("/none"), OpenOptions::default()).await.unwrap();
        let error = file.read(0, 10).await.unwrap_err();
        assert_eq!(error.fault(), Fault::NotFound, "{error}");
        assert!(error.to_string().contains("localhost"), "{error}");
        assert_eq!(store.stat(&caller(), &path("/none")).await.unwrap_err().fault(), Fault::NotFound);
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn a_vector_is_read_each_range_with_its_own_fate() {
    with_xrootd!(server, "", {
        let data = content(6_000_000);
        server.put("f", &data);
        let store = server.store();
        let file = store.open(&caller(), &path("/f"), OpenOptions::default()).await.unwrap();
        let mut ranges: Vec<ByteRange> =
            (0..3000).map(|n| ByteRange { offset: n * 1999, length: 1 + n as usize % 1500 }).collect();
        ranges.push(ByteRange { offset: 5_999_999, length: 2 });
        ranges.push(ByteRange { offset: 0, length: 5_000_000 });
        let results: Vec<_> = file.read_vector(ranges.clone()).collect().await;
        assert_eq!(results.len(), ranges.len());
        for (index, result) in results {
            let ByteRange { offset, length } = ranges[index];
            match result {
                Ok(bytes) => assert_eq!(bytes, data[offset as usize..][..length]),
                Err(error) => assert_eq!((index, error.fault()), (3000, Fault::InvalidArgument)),
            }
        }
    });
}

async fn upload(store: &dyn Store, name: &str, data: &[u8], expected: Expectation) -> towpath_store::Result<()> {
    let options = CreateOptions {
        parents: true,
        size_hint: Some(data.len() as u64),
        overwrite: Overwrite::Replace,
        ..CreateOptions::default()
    };
    let upload = store.create(&caller(), &path(name), options).await?;
    // Backwards, in odd pieces.
    let mut pieces: Vec<(usize, &[u8])> = data.chunks(300_001).enumerate().collect();
    pieces.reverse();
    let writes =
        pieces.into_iter().map(|(index, piece)| upload.write(index as u64 * 300_001, Bytes::copy_from_slice(piece)));
    futures::future::try_join_all(writes).await?;
    upload.commit(expected).await.map(|_| ())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upload_arrives_and_is_verified() {
    with_xrootd!(server, "", {
        let data = content(10_000_000);
        let digests = Hasher::digest(Algorithms::DEFAULT, &data);
        let store = server.store();
        let expected = Expectation { size: Some(data.len() as u64), digests: digests.clone(), mtime_ns: None };
        upload(&*store, "/a/b/f", &data, expected).await.unwrap();
        assert!(disk::read(&server.file("a/b/f"), 1 << 30).unwrap() == data);
        let adler = store.digest(&caller(), &path("/a/b/f"), Algorithm::Adler32, &|_| ()).await.unwrap();
        assert_eq!(Some(adler), digests.get(Algorithm::Adler32));

        let wrong = Hasher::digest(Algorithms::DEFAULT, b"else");
        let wrong = Expectation { digests: wrong, ..Expectation::default() };
        let error = upload(&*store, "/a/b/g", &data, wrong).await.unwrap_err();
        assert_eq!(error.fault(), Fault::ChecksumMismatch, "{error}");
        assert!(!server.file("a/b/g").exists());
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn a_digest_that_the_server_does_not_know_is_computed_here() {
    with_xrootd!(server, "", {
        let data = content(100_000);
        let store = server.store();
        let digests = Hasher::digest(Algorithms::of(&[Algorithm::Sha256]), &data);
        let expected = Expectation { digests: digests.clone(), ..Expectation::default() };
        upload(&*store, "/f", &data, expected).await.unwrap();
        let asked = store.digest(&caller(), &path("/f"), Algorithm::Sha256, &|_| ()).await.unwrap();
        assert_eq!(Some(asked), digests.get(Algorithm::Sha256));
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn directories_are_listed_with_metadata() {
    with_xrootd!(server, "", {
        let store = server.store();
        store.make_directory(&caller(), &path("/d/sub"), true, None).await.unwrap();
        for number in 0..2500 {
            server.put(&format!("d/file-{number:04}"), &content(number));
        }
        let options = ListOptions { metadata: true, digests: false };
        let batches: Vec<Vec<Entry>> = store.list(&caller(), &path("/d"), options).try_collect().await.unwrap();
        assert!(batches.iter().all(|batch| (1..=1000).contains(&batch.len())));
        let mut entries: Vec<Entry> = batches.into_iter().flatten().collect();
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        assert_eq!(entries.len(), 2501);
        assert_eq!((&entries[17].name[..], entries[17].metadata.size), (&b"file-0017"[..], 17));
        assert_eq!(entries[2500].metadata.kind, FileKind::Directory);
        let none = store.list(&caller(), &path("/none"), options).try_next().await.unwrap_err();
        assert_eq!(none.fault(), Fault::NotFound, "{none}");
    });
}

/// Configuration of a server that requires this kind of credentials.
fn security(protocol: &str) -> String {
    format!("xrootd.seclib libXrdSec.so\nsec.protocol {protocol}")
}

#[tokio::test(flavor = "multi_thread")]
async fn credentials_are_given_where_the_server_asks_for_them() {
    for protocol in ["unix", "host"] {
        with_xrootd!(server, &security(protocol), {
            server.put("f", &content(1000));
            let store = server.store();
            let file = store.open(&caller(), &path("/f"), OpenOptions::default()).await.unwrap();
            assert_eq!(file.read(0, 2000).await.unwrap(), content(1000), "{protocol}");
            // Each connection has to log in: the one for listings, and what must not be done twice.
            let entries: Vec<_> =
                store.list(&caller(), &path("/"), ListOptions::default()).try_collect().await.unwrap();
            assert_eq!(entries.concat().len(), 1);
            upload(&*store, "/g", &content(100), Expectation::default()).await.unwrap();
            store.remove_file(&caller(), &path("/g")).await.unwrap();
        });
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_may_be_the_first_request_to_a_server_that_asks_for_credentials() {
    with_xrootd!(server, &security("unix"), {
        server.put("f", b"");
        server.store().remove_file(&caller(), &path("/f")).await.unwrap();
        assert!(!server.file("f").exists());
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn tls_is_spoken_where_it_is_wished_or_demanded() {
    for (scheme, extra) in
        [("roots", "xrootd.tls capable all"), ("root", "xrootd.tls login"), ("root", "xrootd.tls all")]
    {
        let Some((server, directory)) = Xrootd::start_with_tls(extra) else { return };
        server.put("f", &content(3_000_000));
        let ca_file = Some(directory.path().join("cert.pem"));
        let store = store_at(scheme, server.port, ClientOptions { ca_file, ..options() });
        let reading = async {
            let file = store.open(&caller(), &path("/f"), OpenOptions::default()).await?;
            file.read(0, 3_000_000).await
        };
        let read = tokio::time::timeout(std::time::Duration::from_secs(60), reading).await.expect("the client hangs");
        assert!(read.unwrap() == content(3_000_000), "{scheme} {extra}");
    }
}

/// The promises that 5.5.3 makes impossible to keep, seen with its own clients too.
const FOREIGN: &[&str] = &[
    // An upload stands under its name from the beginning.
    "uploading::an_upload_is_invisible_until_it_is_committed",
    "uploading::a_failed_commit_leaves_the_old_file",
    "attributes::attributes_go_with_the_file",
    // A file that is open for writing cannot be opened again, nor one that is read be opened for writing.
    "reading::a_replaced_file_is_never_mixed",
    "uploading::of_two_commits_only_one_is_first",
    "uploading::of_two_commits_the_later_wins",
    "updating::changes_are_visible_at_once",
    "updating::changes_stay_when_the_handle_is_dropped",
    "updating::an_update_can_cut_and_extend",
    "updating::a_file_changed_in_place_is_noticed",
    // `rm` removes an empty directory too, `rmdir` of a missing directory succeeds, `mv` creates missing directories.
    "naming::files_are_removed",
    "naming::directories_are_removed",
    "naming::impossible_renames_are_refused",
    // A listing with metadata cuts the last byte off a name of 255.
    "naming::names_are_kept_byte_for_byte",
    // `oss.asize` is not compared with the room on the disk.
    "uploading::a_file_that_cannot_fit_is_refused_at_once",
    // A digest is taken for current as long as the time of the file is the same second.
    "updating::known_digests_are_forgotten_at_the_first_change",
    // The second question for the checksum of a directory is never answered.
    "digests::there_is_no_digest_of_what_is_no_file",
];

#[tokio::test(flavor = "multi_thread")]
async fn the_promises_of_a_store_are_kept() {
    with_xrootd!(server, "", {
        let store = server.store();
        // The client detects the kind of server by an upload.
        let upload = store.create(&caller(), &path("/upload"), CreateOptions::default()).await.unwrap();
        upload.abort().await.unwrap();
        let fixture = Fixture { any_name: false, heard_as: heard, ..Fixture::new(store) };
        conformance::check_except(&fixture, FOREIGN).await;
    });
}

/// What becomes of faults on their way through 5.5.3.
fn heard(fault: Fault) -> Fault {
    match fault {
        Fault::NotDirectory | Fault::NotEmpty => Fault::Io,
        other => other,
    }
}
