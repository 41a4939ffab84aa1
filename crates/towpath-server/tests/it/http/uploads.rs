//! PUT: whole files and parts.

use std::sync::Arc;

use bytes::Bytes;
use http::StatusCode;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use towpath_proto::checksum::{Algorithm, Hasher};
use towpath_store::{Caller, StorePath, memory::MemoryStore};
use towpath_testkit::pattern::Pattern;

use super::{Site, open_config};

#[tokio::test]
async fn an_upload_replaces_or_makes_a_file() {
    for site in [Site::in_memory(), Site::in_directory()] {
        let made = site.put("/file", "one").await.expect(StatusCode::CREATED);
        assert_eq!(site.get("/file").await.field("etag"), made.field("etag"));
        site.put("/file", "two").await.expect(StatusCode::NO_CONTENT);
        assert_eq!(site.get("/file").await.text(), "two");
        site.put("/no/file", "x").await.expect(StatusCode::CONFLICT);
        site.put("/file/below", "x").await.expect(StatusCode::CONFLICT);
        site.put("/directory/", "x").await.expect(StatusCode::METHOD_NOT_ALLOWED);
        site.put("/", "x").await.expect(StatusCode::METHOD_NOT_ALLOWED);
    }
}

#[tokio::test]
async fn parents_are_made_if_the_setting_says_so() {
    let mut config = open_config();
    config.http.create_parents = true;
    let site = Site::in_memory_with(&config);
    site.put("/a/b/file", "x").await.expect(StatusCode::CREATED);
}

#[tokio::test]
async fn conditions_keep_others_files() {
    let site = Site::in_memory();
    let made = site.put("/file", "one").await;
    for (name, value, status) in [
        ("if-none-match", "*", StatusCode::PRECONDITION_FAILED),
        ("if-match", "\"other\"", StatusCode::PRECONDITION_FAILED),
        ("if-match", made.field("etag"), StatusCode::NO_CONTENT),
    ] {
        site.ask("PUT /file", &[(name, value)], "two").await.expect(status);
    }
    site.ask("PUT /new", &[("if-match", "*")], "x").await.expect(StatusCode::PRECONDITION_FAILED);
    site.ask("PUT /new", &[("if-none-match", "*")], "x").await.expect(StatusCode::CREATED);
}

#[tokio::test]
async fn a_wrong_digest_leaves_nothing() {
    let md5 = format!("md5={}", Hasher::digest_of(Algorithm::Md5, b"Wikipedia").to_base64());
    for site in [Site::in_memory(), Site::in_directory()] {
        for (name, good, bad) in [
            ("digest", "adler32=11e60398", "adler32=11e60399"),
            ("digest", &md5, "md5=AAAAAAAAAAAAAAAAAAAAAA=="),
            ("repr-digest", "adler=:EeYDmA==:", "adler=:EeYDmQ==:"),
            ("content-digest", "adler=:EeYDmA==:", "adler=:EeYDmQ==:"),
            ("oc-checksum", "ADLER32:11e60398", "ADLER32:11e60399"),
        ] {
            site.ask("PUT /bad", &[(name, bad)], "Wikipedia").await.expect(StatusCode::UNPROCESSABLE_ENTITY);
            assert!(!site.exists("/bad").await, "{name}");
            site.ask("PUT /good", &[(name, good)], "Wikipedia").await;
            assert_eq!(site.get("/good").await.text(), "Wikipedia");
        }
        site.ask("PUT /bad", &[("content-md5", "nonsense")], "x").await.expect(StatusCode::BAD_REQUEST);
    }
}

#[tokio::test]
async fn a_body_that_breaks_off_leaves_nothing() {
    let site = Site::in_directory();
    for request in [
        &b"PUT /file HTTP/1.1\r\nhost: x\r\ncontent-length: 10\r\n\r\nhalf"[..],
        b"PUT /file HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n",
        b"PUT /file HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\nno chunk",
    ] {
        let mut stream = site.connect().await;
        stream.write_all(request).await.unwrap();
        stream.shutdown().await.unwrap();
        // The server closes the connection after the request.
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer).await;
        let answer = String::from_utf8(answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 400 Bad Request\r\n"), "{answer}");
        assert!(answer.ends_with("\r\n\r\nthe body ended early: error reading a body from connection\n"), "{answer}");
        assert!(!site.exists("/file").await);
        assert_eq!(site.staged(), 0, "a temporary file is left");
    }
}

/// Detected before the body if its length is announced, otherwise while it is received.
#[tokio::test]
async fn an_upload_that_does_not_fit_leaves_nothing() {
    let site = Site::start(Arc::new(MemoryStore::new(32 << 10)), &open_config());
    site.put("/file", "old").await.expect(StatusCode::CREATED);
    let body = "x".repeat(0x9000);
    let head = "PUT /file HTTP/1.1\r\nhost: x\r\nconnection: close\r\n";
    for (upload, why) in [
        (format!("{head}content-length: 36864\r\n\r\n{body}"), "it exceeds the free space"),
        (
            format!("{head}transfer-encoding: chunked\r\n\r\n9000\r\n{body}\r\n0\r\n\r\n"),
            "it exceeds the free space of the store",
        ),
    ] {
        let answer = site.say(upload.as_bytes()).await;
        assert!(answer.starts_with("HTTP/1.1 507 Insufficient Storage\r\n"), "{answer}");
        assert!(answer.ends_with(&format!("/file: {why}\nAt fault: the storage.\n")), "{answer}");
        assert_eq!(site.get("/file").await.text(), "old");
    }
}

#[tokio::test]
async fn chunks_and_100_continue() {
    let site = Site::in_memory();
    let answer = site
        .say(b"PUT /file HTTP/1.1\r\nhost: x\r\nconnection: close\r\nexpect: 100-continue\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n")
        .await;
    assert!(answer.starts_with("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 201 Created\r\n"), "{answer}");
    assert_eq!(site.get("/file").await.text(), "hello");
    // Rejected before the body, without a 100.
    let refused = site
        .say(b"PUT /no/file HTTP/1.1\r\nhost: x\r\nconnection: close\r\nexpect: 100-continue\r\ncontent-length: 5\r\n\r\n")
        .await;
    assert!(refused.starts_with("HTTP/1.1 409 Conflict"), "{refused}");
}

#[tokio::test]
async fn times_are_taken_over() {
    let site = Site::in_directory();
    let answer = site.ask("PUT /file", &[("x-oc-mtime", "1000000000")], "x").await.expect(StatusCode::CREATED);
    assert_eq!(answer.field("x-oc-mtime"), "accepted");
    assert_eq!(answer.field("last-modified"), "Sun, 09 Sep 2001 01:46:40 GMT");
}

#[tokio::test]
async fn large_uploads_arrive_whole() {
    let pattern = Pattern::new(5);
    let site = Site::in_directory();
    let data = pattern.bytes(0, (5 << 20) + 3);
    site.put("/one", data.clone()).await.expect(StatusCode::CREATED);
    site.ask_http2("PUT /two", &[], data).await.expect(StatusCode::CREATED);
    for target in ["/one", "/two"] {
        pattern.check(0, &site.get(target).await.body);
    }
    let metadata = site.service.store.stat(&Caller::local(), &StorePath::parse(b"/two").unwrap()).await.unwrap();
    assert_eq!(metadata.size, (5 << 20) + 3);
}

#[tokio::test]
async fn an_upload_goes_on_where_it_stopped() {
    let pattern = Pattern::new(6);
    let site = Site::in_directory();
    let ask = async |range: &str, body: Bytes| site.ask("PUT /file", &[("content-range", range)], body).await;
    let none = ask("bytes */300000", "".into()).await.expect(StatusCode::PERMANENT_REDIRECT);
    assert_eq!(none.field("range"), "");
    let first = ask("bytes 0-99999/300000", pattern.bytes(0, 100_000)).await.expect(StatusCode::PERMANENT_REDIRECT);
    assert_eq!(first.field("range"), "bytes=0-99999");
    ask("bytes 200000-299999/300000", pattern.bytes(200_000, 100_000)).await;
    assert!(!site.exists("/file").await);
    let there = ask("bytes */300000", "".into()).await;
    assert_eq!(there.field("range"), "bytes=0-99999,200000-299999");
    ask("bytes 100000-199999/300000", pattern.bytes(0, 5)).await.expect(StatusCode::BAD_REQUEST);
    ask("bytes 100000-199999/300000", pattern.bytes(100_000, 100_000)).await.expect(StatusCode::CREATED);
    pattern.check(0, &site.get("/file").await.body);
    for range in ["bytes 0-9/*", "bytes 5-1/10", "nonsense"] {
        ask(range, "x".into()).await.expect(StatusCode::BAD_REQUEST);
    }
}

#[tokio::test]
async fn an_upload_with_a_key_goes_on_after_the_server_was_stopped() {
    const KEY: (&str, &str) = ("towpath-resume", "000102030405060708090a0b0c0d0e0f");
    let pattern = Pattern::new(8);
    let site = Site::in_directory();
    let range = |range| [("content-range", range), KEY];
    let first = site.ask("PUT /file", &range("bytes 0-99999/300000"), pattern.bytes(0, 100_000)).await;
    assert_eq!(first.expect(StatusCode::PERMANENT_REDIRECT).field("range"), "bytes=0-99999");
    let site = site.restarted().await;
    let there = site.ask("PUT /file", &range("bytes */300000"), "").await;
    assert_eq!(there.expect(StatusCode::PERMANENT_REDIRECT).field("range"), "bytes=0-99999");
    let other = [("content-range", "bytes */300000"), ("towpath-resume", "100102030405060708090a0b0c0d0e0f")];
    assert_eq!(site.ask("PUT /file", &other, "").await.field("range"), "", "another version of the source");
    assert_eq!(site.ask("PUT /file", &other[..1], "").await.field("range"), "");
    // A damaged part aborts the whole upload: its data would otherwise be found and taken as valid.
    let digest = ("content-digest", "sha-256=:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=:");
    let damaged = [("content-range", "bytes 100000-100003/300000"), KEY, digest];
    site.ask("PUT /file", &damaged, "XXXX").await.expect(StatusCode::UNPROCESSABLE_ENTITY);
    let there = site.ask("PUT /file", &range("bytes */300000"), "").await;
    assert_eq!(there.expect(StatusCode::PERMANENT_REDIRECT).field("range"), "");
    site.ask("PUT /file", &range("bytes 0-199999/300000"), pattern.bytes(0, 200_000)).await;
    let site = site.restarted().await;
    site.ask("PUT /file", &range("bytes 200000-299999/300000"), pattern.bytes(200_000, 100_000))
        .await
        .expect(StatusCode::CREATED);
    pattern.check(0, &site.get("/file").await.body);
    let nonsense = [("content-range", "bytes 0-9/10"), ("towpath-resume", "x")];
    site.ask("PUT /other", &nonsense, "0123456789").await.expect(StatusCode::BAD_REQUEST);
}

#[tokio::test]
async fn a_piece_that_broke_off_counts_as_far_as_it_came() {
    let pattern = Pattern::new(7);
    let site = Site::in_memory();
    let head = b"PUT /file HTTP/1.1\r\nhost: x\r\ncontent-range: bytes 0-99/100\r\ncontent-length: 100\r\n\r\n";
    let mut stream = site.connect().await;
    stream.write_all(&[&head[..], &pattern.bytes(0, 60)].concat()).await.unwrap();
    stream.shutdown().await.unwrap();
    let _ = stream.read_to_end(&mut Vec::new()).await;
    let there = site.ask("PUT /file", &[("content-range", "bytes */100")], "").await;
    assert_eq!(there.field("range"), "bytes=0-59");
    let digest = [("content-range", "bytes 60-99/100"), ("digest", "adler32=00000001")];
    site.ask("PUT /file", &digest, pattern.bytes(60, 40)).await.expect(StatusCode::UNPROCESSABLE_ENTITY);
    assert!(!site.exists("/file").await);
}

#[tokio::test]
async fn anonymous_writers_are_asked_for_a_token() {
    let mut config = open_config();
    config.access = towpath_server::config::AccessConfig::default();
    let site = Site::in_memory_with(&config);
    for what in ["PUT /file", "DELETE /file", "MKCOL /d", "PROPPATCH /", "LOCK /file"] {
        let answer = site.ask(what, &[], "").await;
        assert_eq!(
            (answer.status, answer.field("www-authenticate")),
            (401, "Bearer realm=\"towpath\""),
            "{what} {}",
            answer.text()
        );
    }
}

#[tokio::test]
async fn a_damaged_piece_unmakes_what_it_overwrote() {
    let site = Site::in_memory();
    let piece = |range, digest: &'static str| vec![("content-range", range), ("content-digest", digest)];
    let none = &[("content-range", "bytes 0-3/8")];
    let answer = site.ask("PUT /f", none, "abcd").await.expect(StatusCode::PERMANENT_REDIRECT);
    assert_eq!(answer.field("range"), "bytes=0-3");
    let damaged = piece("bytes 2-5/8", "sha-256=:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=:");
    site.ask("PUT /f", &damaged, "XXXX").await.expect(StatusCode::UNPROCESSABLE_ENTITY);
    let answer = site.ask("PUT /f", &[("content-range", "bytes */8")], "").await.expect(StatusCode::PERMANENT_REDIRECT);
    assert_eq!(answer.field("range"), "bytes=0-1");
}

#[tokio::test]
async fn who_waits_to_be_invited_is_not_invited_to_be_refused() {
    let mut config = open_config();
    config.limits.header_bytes = towpath_server::units::ByteSize(600);
    let site = Site::in_memory_with(&config);
    let long = "x".repeat(700);
    let request = format!(
        "PUT /f HTTP/1.1\r\nhost: x\r\nx-long: {long}\r\nconnection: close\r\nexpect: 100-continue\r\ncontent-length: 5\r\n\r\n"
    );
    let answer = site.say(request.as_bytes()).await;
    assert!(answer.starts_with("HTTP/1.1 431"), "{answer}");
}

/// The requests that towpath's own client sends for large files.
#[tokio::test]
async fn an_upload_in_parts_is_begun_and_ended() {
    const KEY: (&str, &str) = ("towpath-resume", "000102030405060708090a0b0c0d0e0f");
    const NONE: (&str, &str) = ("content-range", "bytes */300000");
    let pattern = Pattern::new(9);
    let site = Site::in_directory();
    let begun = site.ask("PUT /file", &[NONE, KEY, ("towpath-upload", "begin")], "").await.expect(StatusCode::OK);
    assert_eq!((begun.text(), begun.field("towpath-resume")), ("", KEY.1));
    let id = begun.field("towpath-upload").to_owned();
    let part = async |site: &Site, id: &str, range: &str, body| {
        site.ask("PUT /file", &[("content-range", range), ("towpath-upload", id)], body).await
    };
    part(&site, &id, "bytes 200000-299999/300000", pattern.bytes(200_000, 100_000)).await.expect(StatusCode::ACCEPTED);
    part(&site, &id, NONE.1, Bytes::new()).await.expect(StatusCode::CONFLICT);
    // Another upload of the same source does not supersede it while it is in use.
    site.ask("PUT /file", &[NONE, KEY, ("towpath-upload", "begin")], "").await.expect(StatusCode::TOO_MANY_REQUESTS);
    let site = site.restarted().await;
    part(&site, &id, "bytes 0-9/300000", pattern.bytes(0, 10)).await.expect(StatusCode::GONE);
    let begun = site.ask("PUT /file", &[NONE, KEY, ("towpath-upload", "begin")], "").await.expect(StatusCode::OK);
    let sums = Hasher::digest(towpath_proto::checksum::Algorithms::DEFAULT, &pattern.bytes(200_000, 100_000));
    let [crc32c, adler32] = [Algorithm::Crc32c, Algorithm::Adler32].map(|algorithm| sums.get(algorithm).unwrap());
    assert_eq!(begun.text(), format!("200000 100000 {crc32c} {adler32}\n"));
    let id = begun.field("towpath-upload").to_owned();
    part(&site, &id, "bytes 0-199999/300000", pattern.bytes(0, 200_000)).await.expect(StatusCode::ACCEPTED);
    assert!(!site.exists("/file").await, "it is whole, and its client has not said that it is to be shown");
    part(&site, &id, NONE.1, Bytes::new()).await.expect(StatusCode::CREATED);
    pattern.check(0, &site.get("/file").await.body);
    part(&site, &id, NONE.1, Bytes::new()).await.expect(StatusCode::GONE);
    for (name, value) in [("towpath-upload", "x"), ("towpath-upload", "abandon"), ("towpath-upload", &id[1..])] {
        site.ask("PUT /file", &[NONE, (name, value)], "").await.expect(StatusCode::BAD_REQUEST);
    }
    site.ask("PUT /file", &[("towpath-upload", "begin")], "").await.expect(StatusCode::BAD_REQUEST);
}

#[tokio::test]
async fn an_upload_in_parts_that_is_abandoned_or_wrong_leaves_nothing() {
    let site = Site::in_directory();
    let begin = [
        ("content-range", "bytes */3"),
        ("towpath-upload", "begin"),
        ("towpath-resume", "000102030405060708090a0b0c0d0e0f"),
    ];
    for is_abandoned in [true, false] {
        let begun = site.ask("PUT /file", &begin, "").await.expect(StatusCode::OK);
        let id = begun.field("towpath-upload");
        site.ask("PUT /file", &[("content-range", "bytes 0-2/3"), ("towpath-upload", id)], "abc").await;
        assert_eq!(site.staged(), 2);
        let abandon = format!("abandon {id}");
        match is_abandoned {
            true => site
                .ask("PUT /file", &[begin[0], ("towpath-upload", &abandon)], "")
                .await
                .expect(StatusCode::NO_CONTENT),
            false => site
                .ask("PUT /file", &[begin[0], ("towpath-upload", id), ("digest", "adler32=024d0128")], "")
                .await
                .expect(StatusCode::UNPROCESSABLE_ENTITY),
        };
        assert_eq!(site.staged(), 0);
        assert!(!site.exists("/file").await);
    }
}
