//! Reads over HTTP from servers that do odd things.

use std::sync::{Arc, LazyLock};

use bytes::Bytes;
use futures::{StreamExt as _, TryStreamExt as _};
use http::{Method, header};
use towpath_client::{ClientOptions, TokenSource};
use towpath_proto::checksum::{Algorithm, Hasher};
use towpath_store::{Blame, ByteRange, Caller, Fault, FileKind, Metadata, OpenOptions, Secret, StorePath, VersionTag};

use crate::{
    peer::content,
    web::{ReceivedRequest, Reply, Web, error, options, path, reply, serve_file, store},
};

const SIZE: usize = 300_007;

static PATH: LazyLock<StorePath> = LazyLock::new(|| path("/file"));

fn data() -> Bytes {
    static DATA: LazyLock<Bytes> = LazyLock::new(|| content(SIZE).into());
    DATA.clone()
}

/// A server without WebDAV that responds to GET with `get`, which gets the number of previous GETs.
fn serve(get: impl Fn(&ReceivedRequest, usize) -> Reply + Send + Sync + 'static) -> Web {
    let gets = std::sync::atomic::AtomicUsize::new(0);
    Web::start(move |asked, _| match asked.method {
        Method::GET => get(asked, gets.fetch_add(1, std::sync::atomic::Ordering::Relaxed)),
        Method::HEAD => serve_file(asked, &data(), "\"v1\""),
        _ => reply(405),
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_read_asks_once_and_tells_all() {
    let server = serve(|asked, _| {
        let digest = Hasher::digest_of(Algorithm::Adler32, &data());
        serve_file(asked, &data(), "\"v1\"").with("digest", &format!("adler32={digest}"))
    });
    let file = server.open("/file").await;
    let (metadata, first) = futures::try_join!(file.metadata(), file.read(0, SIZE)).unwrap();
    assert_eq!((first, metadata.size), (data(), SIZE as u64));
    assert_eq!(metadata.version, VersionTag::new("v1"));
    assert_eq!(metadata.digests, Hasher::digest_of(Algorithm::Adler32, &data()).into());
    assert_eq!(server.methods(), ["GET"], "no HEAD is needed");
    file.read(SIZE as u64 - 10, 100).await.unwrap();
    let last = server.asked().pop().unwrap();
    assert_eq!((last.field("range"), last.field("if-match")), ("bytes=299997-300006", "\"v1\""));
    assert_eq!(last.field("host"), server.address.to_string());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_sends_only_whole_files_is_read() {
    let server = serve(|_, _| reply(200).with("etag", "\"v1\"").body(data()));
    let file = server.open("/file").await;
    assert_eq!(file.read(1000, 10).await.unwrap(), data()[1000..1010]);
    assert_eq!(file.read(SIZE as u64 - 5, 10).await.unwrap(), data()[SIZE - 5..]);
    let ranges: Vec<_> = (0..20).map(|n| ByteRange { offset: n * 10_000, length: 10 }).collect();
    for (index, result) in file.read_vector(ranges.clone()).collect::<Vec<_>>().await {
        let at = ranges[index].offset as usize;
        assert_eq!(result.unwrap(), data()[at..at + 10]);
    }
    assert_eq!(server.methods().len(), 2 + 1 + 20, "several ranges are asked for together only once");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_first_read_behind_the_end_of_a_file_that_comes_whole_is_empty() {
    let server = serve(|_, _| reply(200).with("etag", "\"v1\"").body(data().slice(..10)));
    let file = server.open("/file").await;
    assert_eq!(file.read(1000, 100).await.unwrap(), Bytes::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_changes_is_never_mixed() {
    let bad: [fn(&ReceivedRequest) -> Reply; 4] = [
        |_| reply(412),
        |asked| serve_file(asked, &data(), "\"v2\"").with("etag", "\"v2\""),
        |_| reply(200).with("etag", "\"v2\"").body(data()),
        |_| reply(206).with("content-range", "bytes 100-199/5000").body(data().slice(..100)),
    ];
    for bad in bad {
        let server = serve(move |asked, before| match before {
            0 => serve_file(asked, &data(), "\"v1\""),
            // The condition is ignored, so that only the response shows it.
            _ => bad(&ReceivedRequest {
                headers: [(header::RANGE, asked.headers["range"].clone())].into_iter().collect(),
                ..asked.clone()
            }),
        });
        let file = server.open("/file").await;
        file.read(0, 100).await.unwrap();
        let changed = error(file.read(100, 100).await);
        assert_eq!((changed.fault(), changed.path()), (Fault::Changed, Some(&path("/file"))));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn weak_tags_are_not_relied_on() {
    let server =
        serve(|asked, _| serve_file(asked, &data(), "W/\"v1\"").with("last-modified", "Thu, 01 Jan 1970 00:01:40 GMT"));
    let file = server.open("/file").await;
    file.read(0, 100).await.unwrap();
    file.read(0, 100).await.unwrap();
    let last = server.asked().pop().unwrap();
    assert_eq!(last.field("if-match"), "");
    assert_eq!(last.field("if-unmodified-since"), "Thu, 01 Jan 1970 00:01:40 GMT");
}

#[tokio::test(flavor = "multi_thread")]
async fn only_the_version_asked_for_is_read() {
    let server = serve(|asked, _| serve_file(asked, &data(), "\"v2\""));
    let options = OpenOptions { version: VersionTag::new("v1"), ..OpenOptions::default() };
    let file = server.store().open(&Caller::local(), &path("/file"), options).await.unwrap();
    assert_eq!(error(file.read(0, 10).await).fault(), Fault::Changed);
    assert_eq!(server.asked()[0].field("if-match"), "\"v1\"");
}

/// Returns the parts of `ranges` as a multipart response; `serve_file` sends the whole file instead.
fn parts(ranges: &[ByteRange], etag: &str) -> Reply {
    let mut body = Vec::new();
    for ByteRange { offset, length } in ranges {
        let (first, end) = (*offset as usize, *offset as usize + length);
        body.extend(format!("--sep\r\ncontent-range: bytes {first}-{}/{SIZE}\r\n\r\n", end - 1).bytes());
        body.extend(&data()[first..end]);
        body.extend(b"\r\n");
    }
    body.extend(b"--sep--\r\n");
    reply(206).with("etag", etag).with("content-type", "multipart/byteranges; boundary=sep").body(body)
}

#[tokio::test(flavor = "multi_thread")]
async fn with_known_metadata_a_vector_costs_one_round_trip() {
    let ranges: Vec<_> = (0..10).map(|n| ByteRange { offset: n * 20_000, length: 10 }).collect();
    let sent = ranges.clone();
    let server = serve(move |_, _| parts(&sent, "\"v1\""));
    let store = server.store();
    let known = store.stat(&Caller::local(), &path("/file")).await.unwrap();
    for (options, requests) in
        [(OpenOptions::default(), 2), (OpenOptions { known: Some(known.clone()), ..OpenOptions::default() }, 1)]
    {
        let before = server.methods().len();
        let file = store.open(&Caller::local(), &path("/file"), options).await.unwrap();
        for (index, result) in file.read_vector(ranges.clone()).collect::<Vec<_>>().await {
            let at = ranges[index].offset as usize;
            assert_eq!(result.unwrap(), data()[at..at + 10]);
        }
        assert_eq!(server.methods()[before..].len(), requests, "{:?}", server.methods());
    }
    let last = server.asked().pop().unwrap();
    assert_eq!((&last.method, last.field("if-match")), (&Method::GET, "\"v1\""));
    let before_metadata = server.methods().len();
    let options = OpenOptions { known: Some(known.clone()), ..OpenOptions::default() };
    let file = store.open(&Caller::local(), &path("/file"), options).await.unwrap();
    assert_eq!(file.metadata().await.unwrap(), known);
    assert_eq!(server.methods().len(), before_metadata, "known metadata are not requested");
}

#[tokio::test(flavor = "multi_thread")]
async fn another_version_than_the_known_one_is_not_read() {
    // With a condition that the server checks, and with one that it ignores.
    for ignores_condition in [false, true] {
        let ranges = [ByteRange { offset: 0, length: 10 }, ByteRange { offset: 100_000, length: 10 }];
        let server = serve(move |asked, _| match ignores_condition {
            _ if !asked.field("range").contains(',') && ignores_condition => {
                let condition = header::IF_MATCH;
                let headers = asked.headers.iter().filter(|(name, _)| **name != condition);
                let headers = headers.map(|(name, value)| (name.clone(), value.clone())).collect();
                serve_file(&ReceivedRequest { headers, ..asked.clone() }, &data(), "\"v2\"")
            }
            true => parts(&ranges, "\"v2\""),
            false => serve_file(asked, &data(), "\"v2\""),
        });
        let store = server.store();
        let known = known_v1();
        let options = OpenOptions { known: Some(known.clone()), ..OpenOptions::default() };
        let open = async || store.open(&Caller::local(), &PATH, options.clone()).await;
        assert_eq!(error(open().await.unwrap().read(0, 10).await).fault(), Fault::Changed);
        assert_eq!(server.asked()[0].field("if-match"), "\"v1\"");
        for (_, result) in open().await.unwrap().read_vector(ranges.to_vec()).collect::<Vec<_>>().await {
            assert_eq!(error(result).fault(), Fault::Changed);
        }
        // The size alone differs: the server has no tags.
        let smaller = serve(|_, _| reply(206).with("content-range", "bytes 0-9/5000").body(data().slice(..10)));
        let options = OpenOptions { known: Some(Metadata { version: None, ..known }), ..OpenOptions::default() };
        let file = smaller.store().open(&Caller::local(), &PATH, options.clone()).await.unwrap();
        assert_eq!(error(file.read(0, 10).await).fault(), Fault::Changed);
        let contradiction = OpenOptions { version: VersionTag::new("v2"), known: Some(known_v1()), ..options };
        assert_eq!(error(store.open(&Caller::local(), &PATH, contradiction).await).fault(), Fault::Changed);
    }
}

/// A size of 0 may be wrong: the file is read nevertheless.
#[tokio::test(flavor = "multi_thread")]
async fn a_known_size_of_zero_is_not_relied_on() {
    let server = serve(|asked, _| serve_file(asked, &data(), "\"v1\""));
    let known = Metadata { size: 0, ..known_v1() };
    let options = OpenOptions { known: Some(known), ..OpenOptions::default() };
    let file = server.store().open(&Caller::local(), &PATH, options).await.unwrap();
    assert_eq!(file.read(0, 10).await.unwrap(), data()[..10]);
    assert_eq!(server.asked()[0].field("if-match"), "\"v1\"");
}

/// Returns metadata of the version `v1`.
fn known_v1() -> Metadata {
    Metadata { version: VersionTag::new("v1"), ..Metadata::new(FileKind::File, SIZE as u64) }
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_answers_are_not_taken_for_data() {
    let wrong: [fn() -> Reply; 7] = [
        || reply(206).with("content-range", "bytes 1-100/300007").body(data().slice(1..101)),
        || reply(206).with("content-range", "bytes 0-100/300007").body(data().slice(..101)),
        || reply(206).with("content-range", "bytes 0-99/300007").body(data().slice(..50)),
        || reply(206).with("content-range", "nonsense").body(data().slice(..100)),
        || reply(206).body(data().slice(..100)),
        || reply(206).with("content-range", "bytes 0-99/50").body(data().slice(..100)),
        // Encoded in transit: the content of the file is unknown.
        || reply(200).with("content-encoding", "gzip").body(data()).chunked(),
    ];
    for (index, wrong) in wrong.into_iter().enumerate() {
        let server = serve(move |_, _| wrong().with("etag", "\"v1\""));
        let file = server.open("/file").await;
        let error = error(file.read(0, 100).await);
        assert_eq!((error.fault(), error.blame()), (Fault::Protocol, Blame::Storage), "{index}: {error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_read_that_breaks_off_goes_on_where_it_stopped() {
    let server = serve(|asked, before| match before {
        0 => serve_file(asked, &data(), "\"v1\"").broken_after(100_000),
        1 => serve_file(asked, &data(), "\"v1\"").stalled_after(100_000),
        _ => serve_file(asked, &data(), "\"v1\""),
    });
    let file = server.open("/file").await;
    assert_eq!(file.read(0, SIZE).await.unwrap(), data());
    let ranges: Vec<_> = server.asked().iter().map(|asked| asked.field("range").to_owned()).collect();
    assert_eq!(ranges, ["bytes=0-300006", "bytes=100000-300006", "bytes=200000-300006"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_never_ends_is_given_up() {
    let server = serve(|asked, _| serve_file(asked, &data(), "\"v1\"").stalled_after(0));
    let file = server.open("/file").await;
    let error = error(file.read(0, SIZE).await);
    assert_eq!((error.fault(), error.blame()), (Fault::TimedOut, Blame::Network));
    assert!(error.to_string().contains("tried 3 times"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn no_more_is_read_than_was_asked_for() {
    let server = serve(|_, _| {
        let answer = reply(206).with("etag", "\"v1\"").with("content-range", "bytes 0-99/300007");
        answer.body(data()).chunked().stalled_after(SIZE)
    });
    let file = server.open("/file").await;
    assert_eq!(file.read(0, 100).await.unwrap(), data()[..100]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_busy_server_is_asked_again_when_it_says() {
    let server = serve(|asked, before| match before {
        0 => reply(503).with("retry-after", "0").body("too busy"),
        1 => reply(429).with("retry-after", "Thu, 01 Jan 1970 00:01:40 GMT"),
        _ => serve_file(asked, &data(), "\"v1\""),
    });
    let file = server.open("/file").await;
    assert_eq!(file.read(0, 10).await.unwrap(), data()[..10]);
    for header in ["x-none", "retry-after"] {
        let server = serve(move |_, _| reply(503).with(header, "0").body("<h1>no\tmore</h1>"));
        let error = error(server.open("/file").await.read(0, 10).await);
        assert_eq!(error.fault(), Fault::Unavailable);
        assert!(error.to_string().ends_with("/file: no more (503) (tried 3 times)"), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn refusals_are_told_with_the_servers_words() {
    for (status, fault) in [
        (401, Fault::AuthenticationFailed),
        (403, Fault::PermissionDenied),
        (404, Fault::NotFound),
        (410, Fault::NotFound),
        (500, Fault::Internal),
        (501, Fault::Unsupported),
    ] {
        let server = Web::start(move |_, _| reply(status).body("because\n"));
        let error = error(server.open("/file").await.read(0, 10).await);
        assert_eq!(error.fault(), fault, "{status}");
        assert_eq!(error.code(), Some(status.into()), "{error}");
        assert!(error.to_string().ends_with(&format!("/file: because ({status})")), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wish_for_digests_that_is_refused_is_dropped() {
    let server = serve(|asked, _| match asked.field("want-digest") {
        "" => serve_file(asked, &data(), "\"v1\""),
        _ => reply(405),
    });
    assert_eq!(server.open("/file").await.read(0, 10).await.unwrap(), data()[..10]);
}

#[tokio::test(flavor = "multi_thread")]
async fn redirects_are_followed_and_remembered() {
    let target = serve(|asked, before| match before {
        0..=2 => serve_file(asked, &data(), "\"v1\""),
        _ => reply(403),
    });
    let there = format!("http://{}/there?key=1", target.address);
    let here = serve(move |_, _| reply(307).with("location", &there));
    let file = here.open("/file").await;
    for _ in 0..3 {
        assert_eq!(file.read(0, 10).await.unwrap(), data()[..10]);
    }
    assert_eq!(here.methods().len(), 1);
    assert_eq!(target.asked()[0].target, "/there?key=1");
    // A redirect target that rejects the session is looked up again.
    assert_eq!(error(file.read(0, 10).await).fault(), Fault::PermissionDenied);
    assert_eq!(here.methods().len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn vectors_find_their_way_back_when_a_redirect_has_expired() {
    let target = serve(|asked, before| match before {
        0 => serve_file(asked, &data(), "\"v1\""),
        1 => reply(403),
        // Only one of the ranges requested together: the others are requested one by one.
        _ => serve_file(asked, &data(), "\"v1\""),
    });
    let there = format!("http://{}/there", target.address);
    let here = serve(move |_, _| reply(307).with("location", &there));
    let file = here.open("/file").await;
    file.read(0, 10).await.unwrap();
    let ranges: Vec<_> = (0..20).map(|n| ByteRange { offset: n * 10_000, length: 10 }).collect();
    for (index, result) in file.read_vector(ranges.clone()).collect::<Vec<_>>().await {
        let at = ranges[index].offset as usize;
        assert_eq!(result.unwrap(), data()[at..at + 10]);
    }
    assert_eq!(here.asked()[1].field("range").split(',').count(), 20, "the origin is asked for all of them");
}

#[tokio::test(flavor = "multi_thread")]
async fn redirects_without_end_are_given_up() {
    for (target, word) in [("/file", "in a loop"), ("/{}", "too often")] {
        let server =
            Web::start(move |_, before| reply(302).with("location", &target.replace("{}", &before.to_string())));
        let error = error(server.open("/file").await.read(0, 10).await);
        assert_eq!(error.fault(), Fault::Protocol);
        assert!(error.message().contains(word), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_goes_only_where_it_belongs() {
    let target = serve(|asked, _| serve_file(asked, &data(), "\"v1\""));
    let there = format!("http://{}/there", target.address);
    let here = serve(move |_, _| reply(307).with("location", &there));
    let caller = Caller { token: Some(Secret::new("the-token")), ..Caller::local() };
    let file = here.store().open(&caller, &path("/file"), OpenOptions::default()).await.unwrap();
    file.read(0, 10).await.unwrap();
    assert_eq!(here.asked()[0].field("authorization"), "Bearer the-token");
    assert_eq!(target.asked()[0].field("authorization"), "");
    // The token of the options serves calls that bring none.
    let options = ClientOptions { token: TokenSource::Fixed(Secret::new("another")), ..options() };
    let file =
        target.store_with(&options).open(&Caller::local(), &path("/file"), OpenOptions::default()).await.unwrap();
    file.read(0, 10).await.unwrap();
    assert_eq!(target.asked()[1].field("authorization"), "Bearer another");
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_shows_neither_a_token_nor_the_fields_of_the_options() {
    let server = serve(|_, _| reply(403));
    let token = TokenSource::Fixed(Secret::new("the-token"));
    let headers = http::HeaderMap::from_iter([(header::COOKIE, "hush".parse().unwrap())]);
    let store = server.store_with(&ClientOptions { token, headers, ..options() });
    for (caller, shown, hint) in
        [(Caller::local(), ["Bearer the-token", "hush"], ""), (Caller::nobody(), ["", ""], "no credentials were sent")]
    {
        let file = store.open(&caller, &path("/file"), OpenOptions::default()).await.unwrap();
        let refused = error(file.read(0, 10).await);
        assert!(refused.fault() == Fault::PermissionDenied && refused.message().contains(hint), "{refused}");
        let asked = server.asked();
        assert_eq!(["authorization", "cookie"].map(|name| asked.last().unwrap().field(name)), shown);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_not_there_is_the_networks_fault() {
    let server = serve(|_, _| reply(200));
    let url = format!("http://{}/", server.address);
    drop(server);
    let store = store(&url, &options());
    let file = store.open(&Caller::local(), &path("/file"), OpenOptions::default()).await.unwrap();
    let error = error(file.read(0, 10).await);
    assert_eq!((error.fault(), error.blame()), (Fault::Unavailable, Blame::Network));
    assert!(!error.message().contains("tried"), "what never answered is asked once: {error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn vectors_take_one_request_where_the_server_can() {
    let server = serve(|asked, _| {
        let list = asked.field("range").strip_prefix("bytes=").unwrap();
        let mut body = Vec::new();
        // In reverse order, which is allowed.
        for range in list.split(',').rev() {
            let (first, last) = range.split_once('-').unwrap();
            let (first, last): (usize, usize) = (first.parse().unwrap(), last.parse().unwrap());
            body.extend_from_slice(format!("--x\r\ncontent-range: bytes {first}-{last}/{SIZE}\r\n\r\n").as_bytes());
            body.extend_from_slice(&data()[first..=last]);
            body.extend_from_slice(b"\r\n");
        }
        body.extend_from_slice(b"--x--\r\n");
        reply(206).with("content-type", "multipart/byteranges; boundary=x").body(body)
    });
    let file = server.open("/file").await;
    let mut ranges: Vec<_> = (0..100).map(|n| ByteRange { offset: n * 2500, length: 100 }).collect();
    ranges.push(ByteRange { offset: SIZE as u64, length: 1 });
    let mut results: Vec<_> = file.read_vector(ranges.clone()).collect().await;
    results.sort_by_key(|(index, _)| *index);
    assert_eq!(error(results.pop().unwrap().1).fault(), Fault::InvalidArgument);
    for ((_, result), range) in results.into_iter().zip(&ranges) {
        assert_eq!(result.unwrap(), data()[range.offset as usize..range.end() as usize]);
    }
    assert_eq!(server.methods(), ["PROPFIND", "HEAD", "GET"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn dropped_reads_leave_the_handle_usable() {
    let server = serve(|asked, _| serve_file(asked, &data(), "\"v1\""));
    let file = server.open("/file").await;
    for _ in 0..20 {
        let mut read = file.read(0, SIZE);
        // However far it comes: on a busy machine its answer may be there already.
        let _ = futures::poll!(&mut read);
    }
    let file = Arc::clone(&file);
    assert_eq!(file.read(0, SIZE).await.unwrap(), data());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_size_that_webdav_does_not_tell_is_not_zero() {
    let server = Web::start(|asked, _| match asked.method.as_str() {
        "PROPFIND" => reply(207).with("content-type", "application/xml").body(
            "<D:multistatus xmlns:D=\"DAV:\"><D:response><D:href>/file</D:href><D:propstat><D:prop><D:resourcetype/>\
             </D:prop><D:status>HTTP/1.1 200 OK</D:status></D:propstat></D:response></D:multistatus>",
        ),
        "HEAD" => reply(200).body("content"),
        _ => reply(405),
    });
    assert_eq!(server.store().stat(&Caller::local(), &path("/file")).await.unwrap().size, 7);
}

/// Adjoining ranges of 1 MiB.
fn run(count: usize) -> Vec<ByteRange> {
    (0..count).map(|n| ByteRange { offset: (n << 20) as u64, length: 1 << 20 }).collect()
}

/// A server without WebDAV, with a file for which the first GET breaks off after `first` bytes, or stalls; the file then
/// has the tag `then`.
fn serve_run(whole: &Bytes, first: usize, is_stalled: bool, then: &'static str) -> Web {
    let (gets, whole) = (std::sync::atomic::AtomicUsize::new(0), whole.clone());
    Web::start(move |asked, _| match asked.method {
        Method::GET => match gets.fetch_add(1, std::sync::atomic::Ordering::Relaxed) {
            0 if is_stalled => serve_file(asked, &whole, "\"v1\"").stalled_after(first),
            0 => serve_file(asked, &whole, "\"v1\"").broken_after(first),
            _ => serve_file(asked, &whole, then),
        },
        Method::HEAD => serve_file(asked, &whole, "\"v1\""),
        _ => reply(405),
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn adjoining_ranges_are_one_request_that_continues_where_it_broke_off() {
    let whole: Bytes = content(5 << 20).into();
    for (then, complete) in [("\"v1\"", 5), ("\"v2\"", 2)] {
        let server = serve_run(&whole, (2 << 20) + 10, false, then);
        let results: Vec<_> = server.open("/file").await.read_vector(run(5)).collect().await;
        assert_eq!(results.iter().map(|(index, _)| *index).collect::<Vec<_>>(), [0, 1, 2, 3, 4]);
        for (index, result) in results {
            match result {
                Ok(data) => assert_eq!(data, whole[index << 20..(index + 1) << 20]),
                Err(error) => assert!(index >= complete && error.fault() == Fault::Changed, "{index}: {error}"),
            }
        }
        let gets: Vec<_> = server.asked().into_iter().filter(|asked| asked.method == Method::GET).collect();
        let ranges: Vec<_> = gets.iter().map(|asked| asked.field("range")).collect();
        assert_eq!(ranges, ["bytes=0-5242879", "bytes=2097162-5242879"]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn adjoining_ranges_come_before_the_response_is_complete() {
    let whole: Bytes = content(5 << 20).into();
    let server = serve_run(&whole, (2 << 20) + 10, true, "\"v1\"");
    let file = server.open("/file").await;
    let results: Vec<_> = file.read_vector(run(5)).take(2).collect().await;
    for (index, result) in results {
        assert_eq!(result.unwrap(), whole[index << 20..(index + 1) << 20]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_query_selects_the_content() {
    let server = Web::start(|asked, _| match asked.method {
        Method::GET | Method::HEAD => serve_file(asked, &asked.target.clone().into(), "\"v1\""),
        // With its properties those of another file.
        _ => reply(405),
    });
    let store = server.store();
    let options = OpenOptions { query: Some("?a=1&b=%2F".into()), ..OpenOptions::default() };
    let file = store.open(&Caller::local(), &path("/file"), options).await.unwrap();
    assert_eq!(file.metadata().await.unwrap().size, 15);
    assert_eq!(file.read(0, 100).await.unwrap(), "/file?a=1&b=%2F");
    assert!(server.methods().iter().all(|method| method != "PROPFIND"), "{:?}", server.methods());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_result_of_a_query_without_a_version_is_read_with_one_request() {
    let server = Web::start(|asked, before| match asked.method {
        // Each execution has another result of the same length.
        Method::GET => reply(200).body(format!("{before:03}").repeat(1000)),
        Method::HEAD => reply(200).body("000".repeat(1000)),
        _ => reply(405),
    });
    let options = OpenOptions { query: Some("?a=1".into()), ..OpenOptions::default() };
    let file = server.store().open(&Caller::local(), &path("/file"), options).await.unwrap();
    assert_eq!(error(file.metadata().await).fault(), Fault::Unsupported);
    let stream = file.stream().await.unwrap().unwrap();
    assert!(stream.is_framed);
    let pieces: Vec<_> = stream.pieces.map(Result::unwrap).collect().await;
    let last = server.asked().len() - 1;
    assert_eq!(pieces.concat(), format!("{last:03}").repeat(1000).into_bytes());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_of_a_query_is_one_request_whatever_the_server_sends() {
    for is_ranged in [true, false] {
        let server = Web::start(move |asked, _| match is_ranged {
            true => serve_file(asked, &asked.target.clone().into(), "\"v1\""),
            false => reply(200).body(asked.target.clone()).chunked(),
        });
        let options = OpenOptions { query: Some("?a=1".into()), ..OpenOptions::default() };
        let file = server.store().open(&Caller::local(), &path("/file"), options).await.unwrap();
        match file.stream().await.unwrap() {
            Some(stream) => {
                assert!(!is_ranged);
                assert_eq!(stream.pieces.try_collect::<Vec<_>>().await.unwrap().concat(), b"/file?a=1");
            }
            None => assert_eq!((is_ranged, file.metadata().await.unwrap().size), (true, 9)),
        }
        assert_eq!(server.methods(), ["GET"]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_that_is_too_long_comes_behind_its_directory() {
    let server = Web::start(|asked, _| serve_file(asked, &asked.target.clone().into(), "\"v1\""));
    for directory in ["/", "/d"] {
        let name = format!("/{}%2f?x=1", "n".repeat(300));
        let options = OpenOptions { query: Some(name.as_str().into()), ..OpenOptions::default() };
        let file = server.store().open(&Caller::local(), &path(directory), options).await.unwrap();
        let expected = format!("{}{name}", directory.trim_end_matches('/'));
        assert_eq!(file.read(0, 1000).await.unwrap(), expected);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_of_the_version_that_the_caller_has_fails_with_304() {
    for (tag, mtime_ns, field, value) in [
        (VersionTag::new("v1"), Some(100_000_000_000), "if-none-match", "\"v1\""),
        (VersionTag::new("~own"), Some(100_000_000_000), "if-modified-since", "Thu, 01 Jan 1970 00:01:40 GMT"),
        (None, Some(100_000_000_000), "if-modified-since", "Thu, 01 Jan 1970 00:01:40 GMT"),
    ] {
        let server = Web::start(move |asked, _| match asked.field(field) == value {
            true => reply(304).with("cache-control", "max-age=7"),
            false => reply(200).body("x").chunked(),
        });
        let held = Metadata { version: tag, mtime_ns, ..Metadata::new(FileKind::File, 1) };
        let options = OpenOptions { query: Some("?a=1".into()), held: Some(held), ..OpenOptions::default() };
        let file = server.store().open(&Caller::local(), &path("/file"), options).await.unwrap();
        let unchanged = error(file.stream().await);
        assert_eq!(unchanged.code(), Some(304));
        assert_eq!(unchanged.freshness().map(|freshness| freshness.control().max_age_s), Some(Some(7)));
    }
}
