//! What servers of the field do, and RFC 9110 permits or curl forgives: redirects of all kinds, no length, no HEAD, no
//! entity tag, content that is stored encoded.

use std::sync::LazyLock;

use bytes::Bytes;
use futures::{StreamExt as _, TryStreamExt as _};
use http::Method;
use towpath_proto::checksum::{Algorithm, Hasher};
use towpath_store::{Blame, ByteRange, Caller, Fault, OpenOptions, VersionTag};

use crate::{
    peer::content,
    web::{ReceivedRequest, Reply, Web, error, path, reply, serve_file},
};

const SIZE: usize = 100_003;

const DATE: (&str, &str) = ("last-modified", "Thu, 01 Jan 1970 00:01:40 GMT");

fn data() -> Bytes {
    static DATA: LazyLock<Bytes> = LazyLock::new(|| content(SIZE).into());
    DATA.clone()
}

/// Reads the whole file of a server, as a copy does: metadata and content at once.
async fn whole(server: &Web, name: &str) -> towpath_store::Result<Bytes> {
    let file = server.open(name).await;
    let (metadata, content) = futures::try_join!(file.metadata(), file.read(0, 2 * SIZE))?;
    assert_eq!(metadata.size, content.len() as u64);
    Ok(content)
}

#[tokio::test(flavor = "multi_thread")]
async fn redirects_are_followed_as_curl_follows_them() {
    for (status, location) in [
        (301, "/a/ok"),
        (302, "../../a/./ok"),
        (302, "/x/../a/ok?dn=/CN=A B"),
        (303, "/a/ok"),
        (300, "/a/ok"),
        (307, "?ok=1"),
        (308, "/a/ok?n=\u{e9}"),
    ] {
        let server = Web::start(move |asked, _| match asked.target.as_str() {
            target if target.starts_with("/a/ok") || target == "/q/r/file?ok=1" => serve_file(asked, &data(), "\"v1\""),
            _ => reply(status).with("location", location),
        });
        assert_eq!(whole(&server, "/q/r/file").await.unwrap(), data(), "{status} {location}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_303_says_of_an_upload_is_not_taken_for_a_repetition() {
    let server = Web::start(|asked, _| match asked.method.as_str() {
        "PUT" => reply(303).with("location", "/elsewhere"),
        _ => reply(404),
    });
    let store = server.store();
    let upload = store.create(&Caller::local(), &path("/file"), Default::default()).await.unwrap();
    upload.write(0, data()).await.and(upload.commit(Default::default()).await.map(drop)).unwrap_err();
    assert!(server.asked().iter().all(|asked| asked.target != "/elsewhere"));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_stored_encoded_is_read_as_it_is_stored() {
    let server = Web::start(|asked, _| serve_file(asked, &data(), "\"v1\"").with("content-encoding", "gzip"));
    assert_eq!(whole(&server, "/file.gz").await.unwrap(), data());
    assert!(server.asked().iter().all(|asked| asked.field("accept-encoding") == "identity"));
}

/// A server of a file that says its length nowhere.
fn without_length(answer: impl Fn(Reply) -> Reply + Send + Sync + 'static) -> Web {
    Web::start(move |asked, _| match asked.method {
        Method::GET | Method::HEAD => answer(reply(200).body(data()).chunked()),
        _ => reply(405),
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_of_unknown_length_is_a_stream() {
    let server = without_length(|whole| whole);
    let file = server.open("/file").await;
    assert_eq!(error(file.metadata().await).fault(), Fault::Unsupported);
    assert_eq!(error(server.store().stat(&Caller::local(), &path("/file")).await).fault(), Fault::Unsupported);
    let stream = file.stream().await.unwrap().unwrap();
    assert!(stream.is_framed);
    assert_eq!(stream.pieces.try_collect::<Vec<_>>().await.unwrap().concat(), data());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_breaks_off_has_no_end() {
    let server = without_length(|whole| whole.broken_after(1000));
    let stream = server.open("/file").await.stream().await.unwrap().unwrap();
    let error = error(stream.pieces.try_collect::<Vec<_>>().await);
    assert_eq!((error.fault(), error.blame()), (Fault::Unavailable, Blame::Network), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_end_that_is_only_the_end_of_the_connection_proves_nothing() {
    let server = without_length(|whole| whole.until_the_end());
    let stream = server.open("/file").await.stream().await.unwrap().unwrap();
    assert!(!stream.is_framed);
    assert_eq!(stream.pieces.try_collect::<Vec<_>>().await.unwrap().concat(), data());
}

/// A file `content` that comes in one chunk with these lines of header, and then the end of the connection.
async fn in_chunks(header: &str) -> [towpath_store::Result<Bytes>; 3] {
    let (port, _server) = crate::lying::web(
        &format!("HTTP/1.1 200 OK\r\n{header}\r\nConnection: close\r\n\r\n7\r\ncontent\r\n0\r\n\r\n"),
        "",
    );
    let store = crate::web::store(&format!("http://127.0.0.1:{port}/"), &crate::web::options());
    let file = store.open(&Caller::local(), &path("/file"), OpenOptions::default()).await.unwrap();
    let stream = async {
        let stream = file.stream().await?.expect("its length is not known");
        assert!(stream.is_framed);
        Ok(stream.pieces.try_collect::<Vec<_>>().await?.concat().into())
    };
    let stat = store.stat(&Caller::local(), &path("/file")).await.map(|_| Bytes::new());
    [stream.await, file.read(0, 10).await, stat]
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transfer_coding_that_was_not_asked_for_is_refused() {
    for known in ["Transfer-Encoding: chunked", "transfer-encoding:  Chunked "] {
        assert_eq!(in_chunks(known).await[0].as_ref().unwrap(), "content", "{known}");
    }
    for coding in [
        "identity",
        "gzip",
        "gzip, chunked",
        "chunked, chunked",
        "chunked;x=1",
        "",
        "gzip\r\nTransfer-Encoding: chunked",
    ] {
        for outcome in in_chunks(&format!("Transfer-Encoding: {coding}")).await {
            let refused = error(outcome);
            assert_eq!((refused.fault(), refused.blame()), (Fault::Protocol, Blame::Storage), "{coding}: {refused}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_of_known_length_is_no_stream() {
    let server = Web::start(|asked, _| serve_file(asked, &data(), "\"v1\""));
    assert!(server.open("/file").await.stream().await.unwrap().is_none());
}

/// HEAD has a length, GET sends chunks.
#[tokio::test(flavor = "multi_thread")]
async fn chunks_of_another_length_than_was_told_are_an_error() {
    for (sent, is_right) in [(SIZE, true), (SIZE - 1, false), (SIZE + 1, false)] {
        let server = Web::start(move |asked, _| match asked.method {
            Method::HEAD => reply(200).body(data()),
            Method::GET => reply(200).body(content(sent)).chunked(),
            _ => reply(405),
        });
        match whole(&server, "/file").await {
            Ok(read) => assert!(is_right && read == data(), "{sent}"),
            Err(error) => {
                assert!(!is_right, "{sent}: {error}");
                assert_eq!(error.blame(), Blame::Storage, "{error:?}");
            }
        }
    }
}

/// A URL that is signed for GET.
fn get_only(refusal: u16) -> Web {
    Web::start(move |asked, _| match asked.method {
        Method::GET => serve_file(asked, &data(), "\"v1\""),
        _ => reply(refusal),
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn where_only_get_is_allowed_it_tells_all() {
    for refusal in [403, 405, 501, 400] {
        let server = get_only(refusal);
        let store = server.store();
        let metadata = store.stat(&Caller::local(), &path("/file")).await.unwrap();
        assert_eq!((metadata.size, metadata.version), (SIZE as u64, VersionTag::new("v1")), "{refusal}");
        let digest = store.digest(&Caller::local(), &path("/file"), Algorithm::Adler32, &|_| ()).await.unwrap();
        assert_eq!(digest, Hasher::digest_of(Algorithm::Adler32, &data()), "{refusal}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_of_head_and_get_is_told_in_the_words_of_get() {
    let server = Web::start(|_, _| reply(403).body("the signature has expired"));
    let refused = error(server.store().stat(&Caller::local(), &path("/file")).await);
    assert_eq!(refused.fault(), Fault::PermissionDenied);
    assert!(refused.message().contains("the signature has expired"), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_head_of_no_length_or_of_none_is_not_believed() {
    for head in [|| reply(200), || reply(200).body("")] {
        let server = Web::start(move |asked, _| match asked.method {
            Method::GET => serve_file(asked, &data(), "\"v1\""),
            Method::HEAD => head(),
            _ => reply(405),
        });
        assert_eq!(server.store().stat(&Caller::local(), &path("/file")).await.unwrap().size, SIZE as u64);
        let file = server.open("/file").await;
        assert_eq!(file.metadata().await.unwrap().size, SIZE as u64);
        assert_eq!(whole(&server, "/file").await.unwrap(), data());
    }
}

/// A server that answers 416 to every range, with this `Content-Range`, 405 or a length of 0 to HEAD, and sends `whole`
/// to a GET without one.
fn without_ranges(told: Option<String>, is_head_known: bool, whole: impl Fn() -> Reply + Send + Sync + 'static) -> Web {
    Web::start(move |asked, _| match (asked.method.as_str(), asked.field("range"), &told) {
        ("GET", "", _) => whole(),
        ("GET", _, None) => reply(416),
        ("GET", _, Some(told)) => reply(416).with("content-range", told),
        ("HEAD", _, _) if is_head_known => reply(200).body(""),
        _ => reply(405),
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_range_does_not_make_a_file_empty() {
    for told in [None, Some(format!("bytes */{SIZE}")), Some("nonsense".to_owned())] {
        for is_head_known in [false, true] {
            let server = without_ranges(told.clone(), is_head_known, || reply(200).with("etag", "\"v1\"").body(data()));
            let found = server.store().stat(&Caller::local(), &path("/file")).await.unwrap();
            assert_eq!(found.size, SIZE as u64, "{told:?} {is_head_known}");
            assert_eq!(whole(&server, "/file").await.unwrap(), data(), "{told:?} {is_head_known}");
            let file = server.open("/file").await;
            assert_eq!(file.read(50_000, 10).await.unwrap(), data()[50_000..50_010], "{told:?} {is_head_known}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_of_unknown_length_without_ranges_is_a_stream() {
    for told in [None, Some(format!("bytes */{SIZE}"))] {
        for is_head_known in [false, true] {
            let server = without_ranges(told.clone(), is_head_known, || reply(200).body(data()).chunked());
            let file = server.open("/file").await;
            assert_eq!(error(file.metadata().await).fault(), Fault::Unsupported, "{told:?} {is_head_known}");
            let stream = file.stream().await.unwrap().unwrap();
            assert_eq!(stream.pieces.try_collect::<Vec<_>>().await.unwrap().concat(), data());
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_empty_file_is_empty_by_a_refused_range_or_by_its_length() {
    for told in [None, Some("bytes */0".to_owned())] {
        let server = without_ranges(told.clone(), true, || reply(200).body(""));
        assert_eq!(whole(&server, "/file").await.unwrap(), Bytes::new(), "{told:?}");
        let asks_for_all =
            server.asked().iter().any(|asked| asked.method == Method::GET && asked.field("range").is_empty());
        assert_eq!(asks_for_all, told.is_none());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_range_that_a_file_no_longer_has_is_another_version() {
    for told in [Some("bytes */10"), None] {
        let server = Web::start(move |asked, before| match (before, asked.field("range"), told) {
            (0, ..) => serve_file(asked, &data(), "\"v1\""),
            (_, "", _) => reply(200).body(data().slice(..10)),
            (_, _, Some(told)) => reply(416).with("content-range", told),
            (_, _, None) => reply(416),
        });
        let file = server.open("/file").await;
        file.read(0, 10).await.unwrap();
        assert_eq!(error(file.read(50_000, 10).await).fault(), Fault::Changed, "{told:?}");
    }
}

/// One property of a file at `/file`.
fn multistatus(size: usize, etag: &str) -> Reply {
    let date = "<getlastmodified>Thu, 01 Jan 1970 00:01:40 GMT</getlastmodified>";
    reply(207).with("content-type", "application/xml").body(format!(
        "<multistatus xmlns='DAV:'><response><href>/file</href><propstat><prop><getcontentlength>{size}</getcontentlength>\
         {date}{etag}</prop><status>HTTP/1.1 200 OK</status></propstat></response></multistatus>"
    ))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_size_of_0_in_webdav_is_not_believed_of_a_file_that_is_opened() {
    let server = Web::start(|asked, _| match asked.method.as_str() {
        "PROPFIND" => multistatus(0, ""),
        _ => serve_file(asked, &data(), "\"v1\""),
    });
    let file = server.open("/file").await;
    assert_eq!(file.metadata().await.unwrap().size, SIZE as u64);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_is_empty_is_empty() {
    let empty = |asked: &ReceivedRequest| serve_file(asked, &Bytes::new(), "\"v1\"").with(DATE.0, DATE.1);
    let server = Web::start(move |asked, _| match asked.method.as_str() {
        "PROPFIND" => multistatus(0, "<getetag>\"v1\"</getetag>"),
        _ => empty(asked),
    });
    assert_eq!(whole(&server, "/file").await.unwrap(), Bytes::new());
    let metadata = server.open("/file").await.metadata().await.unwrap();
    assert_eq!((metadata.size, metadata.mtime_ns), (0, Some(100_000_000_000)));
}

#[tokio::test(flavor = "multi_thread")]
async fn entity_tags_that_only_some_answers_have_do_not_make_two_versions() {
    for etag in ["", "<getetag>v1</getetag>", "<getetag>W/\"v1\"</getetag>", "<getetag>\"v1\"</getetag>"] {
        for of_get in ["\"v1\"", "W/\"v1\"", "v1"] {
            let server = Web::start(move |asked, _| match asked.method.as_str() {
                "PROPFIND" => multistatus(SIZE, etag),
                _ => serve_file(asked, &data(), of_get).with(DATE.0, DATE.1),
            });
            let store = server.store();
            // As `cat --range` does: metadata first.
            let file = server.open("/file").await;
            file.metadata().await.unwrap();
            assert_eq!(file.read(5, 10).await.unwrap(), data()[5..15], "{etag} {of_get}");
            assert_eq!(file.read(50, 10).await.unwrap(), data()[50..60], "{etag} {of_get}");
            let digest = store.digest(&Caller::local(), &path("/file"), Algorithm::Adler32, &|_| ()).await.unwrap();
            assert_eq!(digest, Hasher::digest_of(Algorithm::Adler32, &data()), "{etag} {of_get}");
            if of_get == "v1" && etag.contains(">\"v1") {
                // Only the tag is kept, and the answers have none to compare it with.
                continue;
            }
            let version = store.stat(&Caller::local(), &path("/file")).await.unwrap().version;
            let options = OpenOptions { version, ..OpenOptions::default() };
            let pinned = store.open(&Caller::local(), &path("/file"), options).await.unwrap();
            assert_eq!(pinned.read(0, 10).await.unwrap(), data()[..10], "{etag} {of_get}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_entity_tag_that_changes_between_ranges_is_another_version_whatever_webdav_says() {
    let server = Web::start(|asked, before| match asked.method.as_str() {
        "PROPFIND" => multistatus(SIZE, ""),
        _ => {
            // Conditions are ignored, so that only the answer shows it.
            let headers = [(http::header::RANGE, asked.headers["range"].clone())].into_iter().collect();
            let asked = ReceivedRequest { headers, ..asked.clone() };
            serve_file(&asked, &data(), if before < 3 { "\"v1\"" } else { "\"v2\"" }).with(DATE.0, DATE.1)
        }
    });
    let file = server.open("/file").await;
    file.metadata().await.unwrap();
    file.read(0, 10).await.unwrap();
    file.read(10, 10).await.unwrap();
    let changed = error(file.read(20, 10).await);
    assert_eq!((changed.fault(), changed.blame()), (Fault::Changed, Blame::Storage));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_says_why_it_refuses_a_token_is_heard() {
    for (status, challenge, fault) in [
        (401, "Bearer error=\"invalid_token\", error_description=\"it expired\"", Fault::AuthenticationFailed),
        (403, "Bearer error=\"invalid_token\", error_description=\"it expired\"", Fault::AuthenticationFailed),
        (403, "Bearer error=\"insufficient_scope\", error_description=\"it expired\"", Fault::PermissionDenied),
    ] {
        let server = Web::start(move |_, _| reply(status).with("www-authenticate", challenge));
        let refused = error(server.open("/file").await.read(0, 10).await);
        assert_eq!(refused.fault(), fault, "{status} {challenge}");
        assert!(refused.message().contains("it expired"), "{refused}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_conflict_of_a_read_does_not_mean_that_something_exists() {
    let server = Web::start(|_, _| reply(409).body("/f: it is not a regular file"));
    let refused = error(server.open("/file").await.read(0, 10).await);
    assert_eq!(refused.fault(), Fault::InvalidArgument);
    assert!(refused.message().contains("not a regular file"), "{refused}");
    let named = Web::start(|_, _| reply(409).with("towpath-fault", "NotRegular"));
    assert_eq!(error(named.open("/file").await.read(0, 10).await).fault(), Fault::NotRegular);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_link_that_leads_nowhere_is_removed_if_the_server_removes_it() {
    for (status, fault) in [(204, None), (404, Some(Fault::NotFound))] {
        let server = Web::start(move |asked, _| reply(if asked.method == Method::DELETE { status } else { 404 }));
        let removed = server.store().remove_file(&Caller::local(), &path("/dangling")).await;
        assert_eq!(removed.err().map(|error| error.fault()), fault);
        assert!(server.methods().contains(&"DELETE".to_owned()));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_of_unknown_length_has_a_digest_if_its_end_is_known() {
    let digest =
        async |server: &Web| server.store().digest(&Caller::local(), &path("/file"), Algorithm::Adler32, &|_| ()).await;
    let found = digest(&without_length(|whole| whole)).await.unwrap();
    assert_eq!(found, Hasher::digest_of(Algorithm::Adler32, &data()));
    let refused = error(digest(&without_length(|whole| whole.until_the_end())).await);
    assert_eq!((refused.fault(), refused.blame()), (Fault::Unsupported, Blame::Storage), "{refused}");
}

/// A response with several ranges of version `etag`, each transformed by `range`.
fn multipart(asked: &ReceivedRequest, etag: &str, range: impl Fn(usize, usize) -> String) -> Reply {
    let mut body = Vec::new();
    for part in asked.field("range").strip_prefix("bytes=").unwrap().split(',') {
        let (first, last) = part.split_once('-').unwrap();
        let (first, last): (usize, usize) = (first.parse().unwrap(), last.parse().unwrap());
        body.extend_from_slice(format!("--x\r\ncontent-range: {}\r\n\r\n", range(first, last)).as_bytes());
        body.extend_from_slice(&data()[first..=last]);
        body.extend_from_slice(b"\r\n");
    }
    body.extend_from_slice(b"--x--\r\n");
    reply(206).with("etag", etag).with("content-type", "multipart/byteranges; boundary=x").body(body)
}

/// The results of a read of two ranges from a server that answers a request for both with `several`.
async fn vector(
    several: impl Fn(&ReceivedRequest) -> Reply + Send + Sync + 'static,
) -> Vec<towpath_store::Result<Bytes>> {
    let server = Web::start(move |asked, _| match asked.field("range") {
        range if range.contains(',') => several(asked),
        _ => serve_file(asked, &data(), "\"v1\""),
    });
    let file = server.open("/file").await;
    file.read(0, 10).await.unwrap();
    let ranges = [10, 50_000].map(|offset| ByteRange { offset, length: 10 });
    let mut results: Vec<_> = file.read_vector(ranges.to_vec()).collect().await;
    results.sort_by_key(|(index, _)| *index);
    results.into_iter().map(|(_, result)| result).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn several_ranges_of_another_version_are_not_mixed() {
    let size = |size: usize| move |first, last| format!("bytes {first}-{last}/{size}");
    for result in vector(move |asked| multipart(asked, "\"v2\"", size(SIZE))).await {
        let changed = error(result);
        assert_eq!((changed.fault(), changed.blame()), (Fault::Changed, Blame::Storage));
    }
    for result in vector(move |asked| multipart(asked, "\"v1\"", size(SIZE + 1))).await {
        assert_eq!(error(result).fault(), Fault::Changed);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn several_ranges_that_were_not_asked_for_are_not_taken_for_others() {
    let lies: [fn(usize, usize) -> String; 3] = [
        |first, last| format!("bytes {}-{}/{SIZE}", first + 1, last + 1),
        |_, _| "nonsense".into(),
        |first, _| format!("bytes {first}-{}/{SIZE}", first + 5_000_000),
    ];
    for lie in lies {
        // Ranges that do not match are requested one by one.
        let read: Vec<_> = vector(move |asked| multipart(asked, "\"v1\"", lie)).await;
        let read: Vec<_> = read.into_iter().map(Result::unwrap).collect();
        assert_eq!(read, [10, 50_000].map(|offset| data().slice(offset..offset + 10)));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_response_that_belongs_to_another_request_is_not_used() {
    for status in [206, 207] {
        let server = Web::start(move |asked, before| match asked.method.as_str() {
            "HEAD" if before > 1 => serve_file(asked, &data(), "\"v1\""),
            "HEAD" => reply(status).body("0123456789"),
            _ => reply(405),
        });
        let metadata = server.store().stat(&Caller::local(), &path("/file")).await.unwrap();
        assert_eq!(metadata.size, SIZE as u64, "{status}");
        assert_eq!(server.methods(), ["PROPFIND", "HEAD", "HEAD"]);
        let asked = server.asked();
        assert_ne!(asked[1].connection, asked[2].connection);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_to_xrootd_rests_after_a_request_for_a_digest() {
    for (name, rests) in [("XrootD/v5.5.3", true), ("nginx", false)] {
        let server = Web::start(move |asked, _| {
            match asked.method {
                Method::HEAD if asked.field("want-digest").is_empty() => reply(200).body(data()),
                Method::HEAD => reply(200).body(data()).with("digest", "adler32=00000001"),
                _ => reply(405),
            }
            .with("server", name)
        });
        let store = server.store();
        // On a machine that is slow for once, the time of rest may pass between two requests.
        let mut differs = false;
        for _ in 0..5 {
            store.digest(&Caller::local(), &path("/file"), Algorithm::Adler32, &|_| {}).await.unwrap();
            store.stat(&Caller::local(), &path("/file")).await.unwrap();
            let asked = server.asked();
            let mut digests = asked.iter().zip(&asked[1..]).filter(|(asked, _)| !asked.field("want-digest").is_empty());
            differs |= digests.any(|(asked, next)| asked.connection != next.connection);
        }
        assert_eq!(differs, rests, "{name}");
    }
}
