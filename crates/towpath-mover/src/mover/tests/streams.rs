//! Copies of files whose responses do not contain a length.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use towpath_client::{Client, ClientOptions};
use towpath_proto::{
    checksum::{Algorithm, Hasher},
    url::Url,
};
use towpath_store::sys::net;

use super::*;

const SIZE: usize = 5 << 20;

fn content() -> Bytes {
    Pattern::new(3).bytes(0, SIZE)
}

/// Returns a response body: chunked or not, complete or truncated.
fn body(name: &str) -> Vec<u8> {
    let mut body = Vec::new();
    let is_chunked = !name.starts_with("/close");
    for chunk in content().chunks(70_000) {
        if is_chunked {
            body.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
        }
        body.extend_from_slice(chunk);
        if is_chunked {
            body.extend_from_slice(b"\r\n");
        }
    }
    if is_chunked && name != "/torn" {
        body.extend_from_slice(b"0\r\n\r\n");
    }
    body
}

/// Returns the response to a request for `name`.
fn answer(method: &str, name: &str) -> Vec<u8> {
    if method == "PROPFIND" {
        return b"HTTP/1.1 405 No\r\ncontent-length: 0\r\nconnection: close\r\n\r\n".to_vec();
    }
    let promised = if name.ends_with("-wrong") { Bytes::from_static(b"other") } else { content() };
    let digest = Hasher::digest_of(Algorithm::Adler32, &promised);
    let digest = if name.contains("-digest") { format!("digest: adler32={digest}\r\n") } else { String::new() };
    let coding = if name.starts_with("/close") { "" } else { "transfer-encoding: chunked\r\n" };
    let mut all = format!("HTTP/1.1 200 OK\r\n{digest}{coding}connection: close\r\n\r\n").into_bytes();
    if method == "GET" {
        all.extend_from_slice(&body(name));
    }
    all
}

/// The file `name` of a server that sends no lengths.
fn unsized_file(name: &str) -> StoreLocation {
    let listener = net::listen(([127, 0, 0, 1], 0).into()).unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut head = Vec::new();
                while !head.windows(4).any(|end| end == b"\r\n\r\n") {
                    if stream.read_buf(&mut head).await.unwrap_or(0) == 0 {
                        return;
                    }
                }
                let head = String::from_utf8_lossy(&head).into_owned();
                let mut words = head.split(' ');
                let answer = answer(words.next().unwrap(), words.next().unwrap());
                let _ = stream.write_all(&answer).await;
                let _ = stream.shutdown().await;
            });
        }
    });
    let prefix = format!("http://127.0.0.1:{port}");
    let url = format!("{prefix}{name}").parse::<Url>().unwrap();
    let (store, path) =
        Client::new(Arc::new(ClientOptions { retries: 0, ..ClientOptions::default() })).connect(&url).unwrap();
    StoreLocation::remote(store, Caller::local(), path, ("127.0.0.1".into(), port), &prefix)
}

/// Copies such a file; returns the result and the content of the destination.
async fn copied(name: &str) -> (Result<CopiedFile>, Option<Bytes>) {
    let store = memory();
    let mover = Mover::new(options(), Arc::new(NoopObserver));
    let copied = mover.copy(&Job::new(unsized_file(name), location(&store, "/d/copy"))).await;
    (copied.map(|copied| copied.expect("nothing was there")), get(&store, "/d/copy").await.ok())
}

#[tokio::test]
async fn a_file_of_unknown_length_is_copied_to_its_end_and_not_called_verified() {
    for (name, is_verified) in
        [("/chunked", false), ("/close", false), ("/chunked-digest", true), ("/close-digest", true)]
    {
        let (copied, arrived) = copied(name).await;
        let copied = copied.unwrap();
        assert_eq!(
            (copied.bytes, copied.verified.iter().any(|by| by.digest.algorithm() == Algorithm::Adler32)),
            (SIZE as u64, is_verified),
            "{name}"
        );
        assert!(is_verified || copied.verified.is_empty(), "{name}");
        assert_eq!(arrived.unwrap(), content(), "{name}");
    }
}

/// The source is read a second time for the digest, unless its end cannot be proven.
#[tokio::test]
async fn a_file_of_unknown_length_is_compared_if_that_is_wanted() {
    for (name, fault) in [("/chunked", None), ("/close-digest", None), ("/close", Some(Fault::Unsupported))] {
        let store = memory();
        let wanted = Options { checksum: Some(Algorithm::Md5), ..options() };
        let copying = Mover::new(wanted, Arc::new(NoopObserver));
        let copied = copying.copy(&Job::new(unsized_file(name), location(&store, "/copy"))).await;
        let arrived = get(&store, "/copy").await.ok();
        match fault {
            None => {
                let verified = copied.unwrap().expect("nothing was there").verified;
                assert!(verified.iter().any(|by| by.digest.algorithm() == Algorithm::Md5), "{name}: {verified:?}");
                assert_eq!(arrived.unwrap(), content(), "{name}");
            }
            Some(fault) => {
                assert_eq!(copied.unwrap_err().fault(), fault, "{name}");
                assert_eq!(arrived, None, "{name}");
            }
        }
    }
}

#[tokio::test]
async fn a_file_of_unknown_length_that_is_not_whole_or_not_right_leaves_nothing() {
    for (name, fault) in [("/torn", Fault::Unavailable), ("/chunked-digest-wrong", Fault::ChecksumMismatch)] {
        let (copied, arrived) = copied(name).await;
        assert_eq!(copied.unwrap_err().fault(), fault, "{name}");
        assert_eq!(arrived, None, "{name}");
    }
}

#[tokio::test]
async fn a_file_of_unknown_length_goes_through_a_pipe() {
    for (name, fault) in [("/chunked", None), ("/close", None), ("/torn", Some(Fault::Unavailable))] {
        let mover = Mover::new(options(), Arc::new(NoopObserver));
        let mut given = Vec::new();
        let from = unsized_file(name);
        let drained = mover.drain(&from, async |piece: Bytes| {
            given.extend_from_slice(&piece);
            Ok::<_, towpath_store::Error>(())
        });
        assert_eq!(drained.await.err().map(|error| error.fault()), fault, "{name}");
        assert!(fault.is_some() || given == content(), "{name}");
    }
}
