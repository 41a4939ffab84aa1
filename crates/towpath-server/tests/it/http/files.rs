//! GET, HEAD, OPTIONS.

use std::{io::Write as _, sync::Arc};

use http::StatusCode;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use towpath_proto::{
    checksum::{Algorithm, Hasher},
    tcp::{TCP_INFO_FIELD, TcpInfo},
};
use towpath_store::{memory::MemoryStore, sys::disk};
use towpath_testkit::{
    fault::{FaultStore, Faults},
    pattern::Pattern,
};

use super::{AnonymousRule, Right, Site, open_config};

const MB: usize = 1 << 20;

#[tokio::test]
async fn a_file_comes_as_it_is() {
    let pattern = Pattern::new(1);
    for site in [Site::in_memory(), Site::in_directory()] {
        // Around the sizes of pieces and spans.
        for length in [0, 1, 65_535, 65_536, 262_145, 4 * MB, 9 * MB + 7] {
            site.put("/file", pattern.bytes(0, length)).await;
            let answer = site.get("/file").await.expect(StatusCode::OK);
            assert_eq!(answer.field("content-length"), length.to_string());
            assert_eq!(answer.body.len(), length);
            pattern.check(0, &answer.body);
            let http2 = site.ask_http2("GET /file", &[], "").await.expect(StatusCode::OK);
            assert_eq!(http2.body, answer.body);
        }
    }
}

#[tokio::test]
async fn ranges_are_exact() {
    let (pattern, size) = (Pattern::new(2), 6 * MB);
    for site in [Site::in_memory(), Site::in_directory()] {
        site.put("/file", pattern.bytes(0, size)).await;
        for (range, first, last) in [
            ("bytes=0-0", 0, 0),
            ("bytes=1000-4999999", 1000, 4_999_999),
            ("bytes=5000000-", 5_000_000, size - 1),
            ("bytes=-70000", size - 70_000, size - 1),
            ("bytes=0-99999999", 0, size - 1),
        ] {
            let answer = site.ask("GET /file", &[("range", range)], "").await.expect(StatusCode::PARTIAL_CONTENT);
            assert_eq!(answer.field("content-range"), format!("bytes {first}-{last}/{size}"));
            assert_eq!(answer.body.len(), last - first + 1, "{range}");
            pattern.check(first as u64, &answer.body);
        }
        let beyond = site.ask("GET /file", &[("range", "bytes=6291456-")], "").await;
        assert_eq!(beyond.expect(StatusCode::RANGE_NOT_SATISFIABLE).field("content-range"), "bytes */6291456");
        let other_unit = site.ask("GET /file", &[("range", "pages=1-2")], "").await;
        assert_eq!(other_unit.expect(StatusCode::OK).body.len(), size);
    }
}

#[tokio::test]
async fn many_ranges_come_in_parts() {
    let pattern = Pattern::new(3);
    let site = Site::in_directory();
    site.put("/file", pattern.bytes(0, 2 * MB)).await;
    let ranges = [(10, 19), (100_000, 299_999), (500_000, 1_999_999)];
    let asked: Vec<_> = ranges.iter().map(|(first, last)| format!("{first}-{last}")).collect();
    let field = format!("bytes={}", asked.join(","));
    let answer = site.ask("GET /file", &[("range", &field)], "").await.expect(StatusCode::PARTIAL_CONTENT);
    let boundary = answer.field("content-type").strip_prefix("multipart/byteranges; boundary=").unwrap().to_owned();
    assert_eq!(answer.field("content-length"), answer.body.len().to_string());
    let mut rest = &answer.body[..];
    for (first, last) in ranges {
        let head = format!(
            "\r\n--{boundary}\r\nContent-Type: application/octet-stream\r\nContent-Range: bytes {first}-{last}/2097152\r\n\r\n"
        );
        rest = rest.strip_prefix(head.as_bytes()).unwrap();
        let (data, after) = rest.split_at(last - first + 1);
        pattern.check(first as u64, data);
        rest = after;
    }
    assert_eq!(rest, format!("\r\n--{boundary}--\r\n").as_bytes());
    let abuse = vec!["0-100"; 100].join(",");
    site.ask("GET /file", &[("range", &format!("bytes={abuse}"))], "").await.expect(StatusCode::BAD_REQUEST);
}

#[tokio::test]
async fn conditions_hold_or_not() {
    let site = Site::in_memory();
    site.put("/file", "first").await;
    let first = site.get("/file").await;
    let (etag, modified) = (first.field("etag"), first.field("last-modified"));
    for (name, value, status) in [
        ("if-none-match", etag, StatusCode::NOT_MODIFIED),
        ("if-none-match", "\"other\"", StatusCode::OK),
        ("if-match", etag, StatusCode::OK),
        ("if-match", "\"other\"", StatusCode::PRECONDITION_FAILED),
        ("if-match", "no tag", StatusCode::BAD_REQUEST),
        ("if-modified-since", modified, StatusCode::NOT_MODIFIED),
        ("if-unmodified-since", "Sun, 13 Sep 2020 12:26:40 GMT", StatusCode::PRECONDITION_FAILED),
    ] {
        for method in ["GET", "HEAD"] {
            let answer = site.ask(&format!("{method} /file"), &[(name, value)], "").await.expect(status);
            assert!(status != StatusCode::NOT_MODIFIED || answer.body.is_empty());
        }
    }
    for (if_range, status) in [(etag, StatusCode::PARTIAL_CONTENT), ("\"other\"", StatusCode::OK)] {
        site.ask("GET /file", &[("range", "bytes=1-2"), ("if-range", if_range)], "").await.expect(status);
    }
}

#[tokio::test]
async fn digests_are_told_when_wanted() {
    let md5 = format!("md5={}", Hasher::digest_of(Algorithm::Md5, b"Wikipedia").to_base64());
    for site in [Site::in_memory(), Site::in_directory()] {
        site.put("/file", "Wikipedia").await;
        for (name, value, told, digest) in [
            ("want-digest", "adler32", "digest", "adler32=11e60398"),
            ("want-digest", "sha-512, md5;q=0.5", "digest", md5.as_str()),
            ("want-repr-digest", "adler=5, sha-512=9", "repr-digest", "adler=:EeYDmA==:"),
        ] {
            for method in ["GET", "HEAD"] {
                let answer = site.ask(&format!("{method} /file"), &[(name, value)], "").await.expect(StatusCode::OK);
                assert_eq!(answer.field(told), digest);
            }
        }
        assert_eq!(site.get("/file").await.field("digest"), "");
    }
}

#[tokio::test]
async fn who_may_not_read_a_file_does_not_make_the_server_read_it() {
    let mut config = open_config();
    config.access.anonymous[0].allow = vec![Right::Stat, Right::Create];
    let site = Site::in_memory_with(&config);
    site.put("/file", "Wikipedia").await.expect(StatusCode::CREATED);
    for (wish, digest) in [("adler32", "adler32=11e60398"), ("md5", "")] {
        let answer = site.ask("HEAD /file", &[("want-digest", wish)], "").await.expect(StatusCode::OK);
        assert_eq!(answer.field("digest"), digest, "known ones are told");
    }
}

#[tokio::test]
async fn names_of_any_bytes_are_found() {
    let site = Site::in_directory();
    let name: String = (1..=255u8).filter(|byte| *byte != b'/').map(|byte| format!("%{byte:02x}")).collect();
    site.put(&format!("/{name}"), "odd").await.expect(StatusCode::CREATED);
    assert_eq!(site.get(&format!("/{name}")).await.text(), "odd");
    let page = site.ask("GET /", &[("accept", "application/json")], "").await;
    let listing: serde_json::Value = serde_json::from_slice(&page.body).unwrap();
    let href = listing["entries"][0]["href"].as_str().unwrap();
    assert_eq!(site.get(href).await.text(), "odd");
    for target in ["/../file", "/%2e%2e/file", "/a%00b"] {
        site.get(target).await.expect(StatusCode::BAD_REQUEST);
    }
    site.get(&format!("/{}", "x".repeat(256))).await.expect(StatusCode::URI_TOO_LONG);
}

#[tokio::test]
async fn a_file_hides_the_servers_own_page() {
    let site = Site::in_memory();
    assert!(site.get("/metrics").await.expect(StatusCode::OK).text().contains("towpath_connections 1"));
    assert_eq!(site.get("/healthz").await.text(), "ok\n");
    site.put("/metrics", "mine").await.expect(StatusCode::CREATED);
    assert_eq!(site.get("/metrics").await.text(), "mine");
    assert!(site.get("/.well-known/towpath/metrics").await.text().contains("verb=\"PUT\",outcome=\"ok\""));
}

#[tokio::test]
async fn what_is_not_understood_is_told() {
    let site = Site::in_memory();
    for what in ["TRACE /", "POST /", "BREW /pot"] {
        let answer = site.ask(what, &[], "").await.expect(StatusCode::METHOD_NOT_ALLOWED);
        assert!(answer.field("allow").contains("PROPFIND"));
    }
    let options = site.ask("OPTIONS /no/such/file", &[], "").await.expect(StatusCode::OK);
    assert_eq!(options.field("dav"), "1, 2");
    let missing = site.get("/missing").await.expect(StatusCode::NOT_FOUND);
    assert_eq!(missing.text(), "/missing: there is no such file or directory\nAt fault: the request.\n");
}

#[tokio::test]
async fn anybody_may_ask_whether_the_server_is_well() {
    let mut config = super::open_config();
    config.access.anonymous.clear();
    let site = Site::in_memory_with(&config);
    assert_eq!(site.get("/.well-known/towpath/health").await.expect(StatusCode::OK).text(), "ok\n");
    site.get("/healthz").await.expect(StatusCode::UNAUTHORIZED);
    site.get("/.well-known/towpath/metrics").await.expect(StatusCode::UNAUTHORIZED);
}

#[tokio::test]
async fn large_files_are_not_read_for_a_digest() {
    let store = FaultStore::new(Arc::new(MemoryStore::new(1 << 30)), Faults::default());
    let site = Site::start(Arc::new(store.clone()), &open_config());
    site.put("/small", vec![b'x'; 1 << 20]).await;
    site.put("/large", vec![b'x'; (16 << 20) + 1]).await;
    // Neither algorithm is computed during uploads, so returning a digest requires reading the file.
    for (wish, field, name) in [("want-digest", "digest", "md5"), ("want-repr-digest", "repr-digest", "sha-256=5")] {
        let ask = async |what: &str| site.ask(what, &[(wish, name)], "").await.expect(StatusCode::OK);
        assert_ne!(ask("HEAD /small").await.field(field), "");
        // If the large file were read, there would be no response.
        let held = store.hold("digest");
        assert_eq!(ask("HEAD /large").await.field(field), "");
        assert_eq!(ask("GET /large").await.field(field), "");
        drop(held);
    }
}

#[tokio::test]
async fn head_says_what_get_says() {
    let site = Site::in_directory();
    let directory = site.directory.as_ref().unwrap().path();
    rustix::fs::mkfifoat(rustix::fs::CWD, directory.join("fifo"), rustix::fs::Mode::RWXU).unwrap();
    site.link("nowhere", "dangling");
    site.link("/", "out");
    site.plant("/file").await;
    for (path, status) in [
        ("/fifo", StatusCode::CONFLICT),
        ("/dangling", StatusCode::NOT_FOUND),
        ("/out", StatusCode::FORBIDDEN),
        ("/file", StatusCode::OK),
        ("/", StatusCode::OK),
    ] {
        for method in ["GET", "HEAD"] {
            site.ask(&format!("{method} {path}"), &[], "").await.expect(status);
        }
    }
}

#[tokio::test]
async fn special_files_are_told_and_not_replaced() {
    let site = Site::in_directory();
    let directory = site.directory.as_ref().unwrap().path();
    std::fs::create_dir(directory.join("d")).unwrap();
    let fifo = directory.join("d/fifo");
    rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, rustix::fs::Mode::RWXU).unwrap();
    site.plant("/file").await;
    let listed = site.ask("PROPFIND /d", &[("depth", "1")], "").await.expect(StatusCode::MULTI_STATUS);
    assert!(listed.text().contains("<special xmlns="), "{listed:?}");
    assert!(!listed.text().contains("getcontentlength"), "{listed:?}");
    site.put("/d/fifo", "content").await.expect(StatusCode::CONFLICT);
    let to = |path: &str| format!("http://{}{path}", site.address);
    for what in ["COPY /file", "MOVE /file"] {
        site.ask(what, &[("destination", &to("/d/fifo"))], "").await.expect(StatusCode::CONFLICT);
    }
    let copied = site.ask("COPY /d", &[("destination", &to("/e"))], "").await.expect(StatusCode::MULTI_STATUS);
    assert!(copied.text().contains("/e/fifo"), "what is left out of a copy is named: {copied:?}");
    assert!(std::os::unix::fs::FileTypeExt::is_fifo(&fifo.metadata().unwrap().file_type()));
}

#[tokio::test]
async fn a_file_that_grows_on_its_way_arrives_as_long_as_it_was_unless_one_version_was_asked_for() {
    const BYTES: usize = 64 << 20;
    let site = Site::in_directory();
    let path = site.directory.as_ref().unwrap().path().join("file");
    for (field, is_whole) in [("", true), ("If-Match: *\r\n", false), ("Towpath-Pin: 1\r\n", false)] {
        disk::write(&path, &vec![1; BYTES]).unwrap();
        let mut stream = site.connect().await;
        let request = format!("GET /file HTTP/1.1\r\nhost: x\r\nconnection: close\r\n{field}\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        stream.read_exact(&mut [0]).await.unwrap();
        disk::append(&path).unwrap().write_all(b"more").unwrap();
        let mut rest = Vec::new();
        let _ = stream.read_to_end(&mut rest).await;
        assert_eq!(rest.ends_with(&vec![1; BYTES]), is_whole, "{field}: {} bytes", rest.len());
    }
}

#[tokio::test]
async fn figures_of_the_connection_are_for_callers_with_rights() {
    let asking = [(TCP_INFO_FIELD, "?")];
    let mut config = open_config();
    config.access.anonymous = vec![AnonymousRule { path: "/public".into(), allow: vec![Right::Read] }];
    let site = Site::in_memory_with(&config);
    site.plant("/public/file").await;
    let told = site.ask("GET /public/file", &asking, "").await.expect(StatusCode::OK);
    told.field(TCP_INFO_FIELD).parse::<TcpInfo>().unwrap();
    let refused = site.ask("GET /secret", &asking, "").await.expect(StatusCode::UNAUTHORIZED);
    assert_eq!(refused.field(TCP_INFO_FIELD), "");
    config.access.anonymous.clear();
    let site = Site::in_memory_with(&config);
    for (what, status) in [
        ("GET /", StatusCode::UNAUTHORIZED),
        ("OPTIONS /", StatusCode::OK),
        ("GET /.well-known/towpath/health", StatusCode::OK),
    ] {
        let answer = site.ask(what, &asking, "").await.expect(status);
        assert_eq!(answer.field(TCP_INFO_FIELD), "", "{what}");
    }
}
