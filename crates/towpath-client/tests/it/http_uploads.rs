//! Uploads over HTTP to servers that do odd things.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use bytes::Bytes;
use http::Method;
use towpath_client::{Client, ClientOptions};
use towpath_proto::checksum::{Algorithm, Algorithms, Hasher};
use towpath_store::{Caller, CreateOptions, Expectation, Fault, Overwrite, WriteHandle};

use crate::{
    peer::content,
    script::HANG,
    web::{ReceivedRequest, Reply, Web, error, hang_up, options, path, reply, serve_file, silence, store},
};

/// Too large to be sent in one go.
const LARGE: usize = 3_000_000;

/// A server without WebDAV that keeps one file.
fn keep(put: impl Fn(&ReceivedRequest, usize) -> Option<Reply> + Send + Sync + 'static) -> Web {
    let kept: Mutex<Option<Bytes>> = Mutex::default();
    Web::start(move |asked, before| {
        let mut kept = kept.lock().unwrap();
        match asked.method {
            Method::PUT => put(asked, before).unwrap_or_else(|| {
                *kept = Some(asked.body.clone());
                reply(201)
            }),
            Method::DELETE => reply(if kept.take().is_some() { 204 } else { 404 }),
            Method::GET | Method::HEAD => match &*kept {
                Some(kept) => serve_file(asked, kept, "\"v1\"").with("last-modified", "Thu, 01 Jan 1970 00:01:40 GMT"),
                None => reply(404),
            },
            _ => reply(405),
        }
    })
}

/// A server that has nothing and answers every PUT with `answer`, by its header alone where the client waits for that.
fn refuse(answer: impl Fn() -> Reply + Send + Sync + 'static) -> Web {
    Web::start_impatient(move |asked, _| match asked.method {
        Method::PUT => answer(),
        Method::GET | Method::HEAD => reply(404),
        _ => reply(405),
    })
}

async fn create(server: &Web, options: CreateOptions) -> Arc<dyn WriteHandle> {
    server.store().create(&Caller::local(), &path("/file"), options).await.unwrap()
}

fn replace(size_hint: Option<u64>) -> CreateOptions {
    CreateOptions { overwrite: Overwrite::Replace, size_hint, ..CreateOptions::default() }
}

fn put_of(server: &Web) -> ReceivedRequest {
    server.asked().into_iter().rfind(|asked| asked.method == Method::PUT).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_small_file_goes_with_all_that_is_known_of_it() {
    let server = keep(|_, _| None);
    let file = create(&server, CreateOptions::default()).await;
    file.write(0, "hello ".into()).await.unwrap();
    file.write(6, "world".into()).await.unwrap();
    let expected = Expectation { mtime_ns: Some(1_500_000_000), ..Expectation::default() };
    let metadata = file.commit(expected).await.unwrap();
    assert_eq!((metadata.size, metadata.mtime_s()), (11, 100));
    let put = put_of(&server);
    assert_eq!(put.body, "hello world");
    assert_eq!((put.field("content-length"), put.field("if-none-match")), ("11", "*"));
    assert_eq!(put.field("x-oc-mtime"), "1.500000000");
    let adler32 = Hasher::digest_of(Algorithm::Adler32, b"hello world");
    assert!(put.field("digest").contains(&format!("adler32={adler32}")), "{}", put.field("digest"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_large_file_is_streamed() {
    for size_hint in [None, Some(LARGE as u64)] {
        let server = keep(|_, _| None);
        let file = create(&server, replace(size_hint)).await;
        let data = Bytes::from(content(LARGE));
        let write = |at: usize| file.write(at as u64, data.slice(at..LARGE.min(at + 100_000)));
        futures::future::join_all((0..LARGE).step_by(100_000).rev().map(write))
            .await
            .into_iter()
            .for_each(|w| w.unwrap());
        assert_eq!(file.metadata().await.unwrap().size, LARGE as u64);
        let digests = Hasher::digest(Algorithms::DEFAULT, &data);
        file.commit(Expectation { size: Some(LARGE as u64), digests, mtime_ns: None }).await.unwrap();
        let put = put_of(&server);
        assert_eq!(put.body, data);
        assert_eq!(put.field("expect"), "100-continue");
        let length = size_hint.map_or(String::new(), |size| size.to_string());
        assert_eq!(put.field("content-length"), length);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_whole_before_it_is_committed() {
    let server = keep(|_, _| None);
    let file = create(&server, replace(Some(LARGE as u64))).await;
    file.write(0, content(LARGE).into()).await.unwrap();
    let expected =
        Expectation { digests: Hasher::digest_of(Algorithm::Crc32c, b"other").into(), ..Expectation::default() };
    assert_eq!(error(file.commit(expected).await).fault(), Fault::ChecksumMismatch);
    assert_eq!(error(file.write(LARGE as u64, "more".into()).await).fault(), Fault::HandleNotOpen);
    assert_eq!(error(server.store().stat(&Caller::local(), &path("/file")).await).fault(), Fault::NotFound);
}

#[tokio::test(flavor = "multi_thread")]
async fn pieces_that_never_come_are_missed() {
    let server = keep(|_, _| None);
    let options = ClientOptions { patience: Duration::from_millis(300), ..options() };
    let file = server.store_with(&options).create(&Caller::local(), &path("/file"), replace(None)).await.unwrap();
    file.write(0, "start".into()).await.unwrap();
    let missing = error(file.write(100, "later".into()).await);
    assert_eq!(missing.fault(), Fault::InvalidArgument);
    assert!(missing.message().contains("the bytes at 5 are missing"), "{missing}");
    assert_eq!(error(file.write(2, "again".into()).await).fault(), Fault::InvalidArgument);
    file.write(5, "!".into()).await.unwrap();
    file.commit(Expectation::default()).await.unwrap();
    assert_eq!(put_of(&server).body, "start!");
}

#[tokio::test]
async fn a_slow_source_is_waited_for() {
    let server = keep(|_, _| None);
    let file = create(&server, replace(None)).await;
    let mut late = file.write(5, "later".into());
    assert!(futures::poll!(&mut late).is_pending());
    // Longer than any answer may take.
    tokio::time::pause();
    for _ in 0..10 {
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(futures::poll!(&mut late).is_pending());
    }
    tokio::time::resume();
    file.write(0, "start".into()).await.unwrap();
    late.await.unwrap();
    file.commit(Expectation::default()).await.unwrap();
    assert_eq!(put_of(&server).body, "startlater");
}

/// The final state of a server with one file, at first `old`, that keeps uploads. It then closes the connection, or
/// does not respond to an upload that is cancelled.
async fn left_by(old: Option<&'static str>, overwrite: Overwrite, size: usize, cancel: bool) -> Option<Bytes> {
    let kept = Arc::new(Mutex::new(old.map(Bytes::from)));
    let server = Web::start({
        let kept = Arc::clone(&kept);
        move |asked, _| {
            let mut kept = kept.lock().unwrap();
            match asked.method {
                Method::PUT => {
                    *kept = Some(asked.body.clone());
                    if cancel { silence() } else { hang_up() }
                }
                Method::DELETE => reply(if kept.take().is_some() { 204 } else { 404 }),
                Method::HEAD => match &*kept {
                    Some(kept) => serve_file(asked, kept, &format!("\"{}\"", kept.len())),
                    None => reply(404),
                },
                _ => reply(405),
            }
        }
    });
    let options = ClientOptions { retries: 0, ..options() };
    let client = Client::new(Arc::new(options));
    let (store, _) = client.connect(&format!("http://{}/", server.address).parse().unwrap()).unwrap();
    let options = CreateOptions { overwrite, ..CreateOptions::default() };
    let file = store.create(&Caller::local(), &path("/file"), options).await.unwrap();
    file.write(0, content(size).into()).await.unwrap();
    if cancel {
        let mut commit = file.commit(Expectation::default());
        while !server.methods().iter().any(|method| method == "PUT") {
            assert!(futures::poll!(&mut commit).is_pending());
            tokio::task::yield_now().await;
        }
        drop(commit);
        client.cleaned_up().await;
    } else {
        assert_eq!(error(file.commit(Expectation::default()).await).fault(), Fault::Unavailable);
    }
    kept.lock().unwrap().clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_failed_upload_left_is_removed() {
    for size in [10, LARGE] {
        for overwrite in [Overwrite::Refuse, Overwrite::Replace] {
            for cancel in [false, true] {
                assert_eq!(left_by(None, overwrite, size, cancel).await, None, "{overwrite:?} {size} {cancel}");
            }
        }
        assert_eq!(left_by(Some("old"), Overwrite::Replace, size, false).await, None);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_there_before_is_not_removed() {
    let server = Web::start(|asked, _| match asked.method {
        Method::PUT => hang_up(),
        Method::HEAD => serve_file(asked, &"old".into(), "\"old\""),
        _ => reply(405),
    });
    let file = create(&server, replace(None)).await;
    file.write(0, "content".into()).await.unwrap();
    assert_eq!(error(file.commit(Expectation::default()).await).fault(), Fault::Unavailable);
    assert!(!server.methods().contains(&"DELETE".to_owned()));
}

#[tokio::test(flavor = "multi_thread")]
async fn who_may_write_but_not_look_can_upload() {
    for status in [403, 405] {
        let server = Web::start(move |asked, _| reply(if asked.method == Method::PUT { 201 } else { status }));
        let file = create(&server, CreateOptions::default()).await;
        file.write(0, "content".into()).await.unwrap();
        assert_eq!(file.commit(Expectation::default()).await.unwrap().size, 7);
        assert!(!server.methods().contains(&"DELETE".to_owned()));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_move_stays_at_its_server_and_keeps_its_secrets() {
    let elsewhere = Web::start(|_, _| reply(201));
    let there = format!("http://{}/a", elsewhere.address);
    let server = Web::start(move |asked, _| match asked.method.as_str() {
        "MOVE" => reply(307).with("location", &there),
        "HEAD" if asked.target.starts_with("/a") => reply(200).body("content"),
        "HEAD" => reply(404),
        _ => reply(405),
    });
    let store = store(&format!("http://{}/?authz=secret", server.address), &options());
    let moved = store.rename(&Caller::local(), &path("/a"), &path("/b"), Overwrite::Refuse).await;
    assert_eq!(error(moved).fault(), Fault::Unsupported);
    let asked = server.asked().pop().unwrap();
    assert_eq!(asked.target, "/a?authz=secret");
    assert_eq!(asked.field("destination"), format!("http://{}/b", server.address));
    assert!(elsewhere.asked().is_empty());
    assert!(!format!("{store:?}").contains("secret"), "{store:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upload_is_redirected_before_its_body() {
    let target = keep(|_, _| None);
    let there = format!("http://{}/file", target.address);
    let here = refuse(move || reply(307).with("location", &there));
    for size in [10, LARGE] {
        let file = create(&here, replace(None)).await;
        file.write(0, content(size / 2).into()).await.unwrap();
        file.write(size as u64 / 2, content(size / 2).into()).await.unwrap();
        let outcome = file.commit(Expectation::default()).await;
        // After the redirect, HEAD finds nothing here.
        assert_eq!(error(outcome).fault(), Fault::NotFound);
        assert_eq!(put_of(&target).body.len(), size);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn writers_hear_why_an_upload_is_refused() {
    for (status, fault) in [(507, Fault::NoSpace), (403, Fault::PermissionDenied), (413, Fault::TooLarge)] {
        let server = refuse(move || reply(status).body("no"));
        let file = create(&server, replace(None)).await;
        let mut at = 0;
        let refused = loop {
            match file.write(at, content(1 << 20).into()).await {
                Ok(()) => at += 1 << 20,
                Err(error) => break error,
            }
        };
        assert_eq!(refused.fault(), fault, "{refused}");
        assert_eq!(error(file.commit(Expectation::default()).await).fault(), fault);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_small_upload_is_sent_again_if_that_does_no_harm() {
    let unlucky = |asked: &ReceivedRequest, before: usize| {
        let again = before > 0 && asked.field("if-none-match").is_empty();
        (!again).then(|| reply(502).body("try again"))
    };
    let server = keep(unlucky);
    let file = create(&server, replace(None)).await;
    file.write(0, "content".into()).await.unwrap();
    file.commit(Expectation::default()).await.unwrap();
    let server = keep(unlucky);
    let file = create(&server, CreateOptions::default()).await;
    file.write(0, "content".into()).await.unwrap();
    let error = error(file.commit(Expectation::default()).await);
    assert!(error.message().contains("may have been carried out"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_arrived_damaged_is_taken_away() {
    let lies: [fn(Reply) -> Reply; 2] =
        [|answer| answer.with("digest", "adler32=00000001"), |answer| answer.body("another length")];
    for (lie, fault) in lies.into_iter().zip([Fault::ChecksumMismatch, Fault::Truncated]) {
        let put = Mutex::new(false);
        let server = Web::start(move |asked, _| match asked.method {
            Method::PUT => {
                *put.lock().unwrap() = true;
                reply(201)
            }
            Method::HEAD if *put.lock().unwrap() => lie(reply(200).with("etag", "\"v1\"").body("content")),
            Method::DELETE => {
                *put.lock().unwrap() = false;
                reply(204)
            }
            Method::HEAD => reply(404),
            _ => reply(405),
        });
        let file = create(&server, CreateOptions::default()).await;
        file.write(0, "content".into()).await.unwrap();
        assert_eq!(error(file.commit(Expectation::default()).await).fault(), fault);
        assert_eq!(server.methods().last().unwrap(), "DELETE");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_file_that_cannot_be_taken_away_is_reported_all_the_same() {
    let put = Mutex::new(false);
    let server = Web::start(move |asked, _| match asked.method {
        Method::PUT => {
            *put.lock().unwrap() = true;
            reply(201)
        }
        Method::HEAD if *put.lock().unwrap() => reply(200).with("etag", "\"v1\"").body("another length"),
        Method::DELETE => silence(),
        _ => reply(404),
    });
    let file = create(&server, CreateOptions::default()).await;
    file.write(0, "content".into()).await.unwrap();
    let committed = tokio::time::timeout(HANG, file.commit(Expectation::default())).await;
    assert_eq!(error(committed.expect("the removal is waited for")).fault(), Fault::Truncated);
    assert_eq!(server.methods().last().unwrap(), "DELETE");
}

/// A server without WebDAV whose PUT responds with `told`, and whose HEAD then with `found`.
fn change_one_s_mind(told: fn(Reply) -> Reply, found: fn(Reply) -> Reply) -> Web {
    let put = Mutex::new(false);
    Web::start(move |asked, _| match asked.method {
        Method::PUT => {
            *put.lock().unwrap() = true;
            told(reply(201))
        }
        Method::HEAD if *put.lock().unwrap() => found(reply(200)),
        Method::HEAD => reply(404),
        _ => reply(405),
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_was_replaced_at_once_is_neither_praised_nor_removed() {
    let told = |answer: Reply| answer.with("etag", "\"ours\"");
    for (found, outcome) in [
        ((|answer| answer.with("etag", "\"other\"").body("another length")) as fn(Reply) -> Reply, Err(Fault::Changed)),
        (|answer| answer.with("etag", "\"other\"").body("content"), Ok(7)),
    ] {
        let server = change_one_s_mind(told, found);
        let file = create(&server, replace(None)).await;
        file.write(0, "content".into()).await.unwrap();
        let committed = file.commit(Expectation::default()).await;
        assert_eq!(committed.map(|metadata| metadata.size).map_err(|error| error.fault()), outcome);
        assert_ne!(server.methods().last().unwrap(), "DELETE");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn xrootd_is_asked_for_a_digest_that_was_promised() {
    let server = Web::start({
        let put = Mutex::new(false);
        move |asked, _| {
            let answer = match asked.method {
                Method::PUT => {
                    *put.lock().unwrap() = true;
                    reply(201)
                }
                Method::HEAD if *put.lock().unwrap() && asked.field("want-digest").contains("adler32") => {
                    reply(200).with("digest", "adler32=00000001").body("content")
                }
                Method::HEAD if *put.lock().unwrap() => reply(200).body("content"),
                Method::HEAD => reply(404),
                Method::DELETE => reply(204),
                _ => reply(405),
            };
            answer.with("server", "XrootD/v5.5.3")
        }
    });
    for digests in [Default::default(), Hasher::digest(Algorithms::of(&[Algorithm::Adler32]), b"content")] {
        let promised = !digests.is_empty();
        let file = create(&server, replace(None)).await;
        file.write(0, "content".into()).await.unwrap();
        let committed = file.commit(Expectation { digests, ..Expectation::default() }).await;
        assert_eq!(committed.err().map(|error| error.fault()), promised.then_some(Fault::ChecksumMismatch));
    }
    assert_eq!(server.methods().last().unwrap(), "DELETE");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_compared_is_told() {
    let server = keep(|_, _| None);
    let file = create(&server, replace(None)).await;
    file.write(0, "content".into()).await.unwrap();
    let digests = Hasher::digest(Algorithms::of(&[Algorithm::Crc64]), b"content");
    let committed = file.commit(Expectation { digests: digests.clone(), ..Expectation::default() }).await.unwrap();
    assert_eq!(committed.digests.get(Algorithm::Crc64), digests.get(Algorithm::Crc64));
}

#[tokio::test(flavor = "multi_thread")]
async fn existing_files_stand_in_the_way() {
    let server = keep(|asked, _| (asked.field("if-none-match") == "*").then(|| reply(412)));
    let file = create(&server, CreateOptions::default()).await;
    file.write(0, "content".into()).await.unwrap();
    assert_eq!(error(file.commit(Expectation::default()).await).fault(), Fault::AlreadyExists);
    let file = create(&server, replace(None)).await;
    file.commit(Expectation::default()).await.unwrap();
    let refused = server.store().create(&Caller::local(), &path("/file"), CreateOptions::default()).await;
    assert_eq!(error(refused).fault(), Fault::AlreadyExists);
}
