//! Ambiguous hosts and framing; HTTP/1.0 clients.

use http::StatusCode;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::Site;

/// Returns the status of the first response to these bytes, and the number of responses until the server closes.
async fn statuses(site: &Site, bytes: &str) -> (String, usize) {
    let said = site.say(bytes.as_bytes()).await;
    (said.get(9..12).unwrap_or_default().to_owned(), said.matches("HTTP/1.1 ").count())
}

/// A request that would be answered if the connection continued after a rejected request. It closes the connection,
/// so that the test fails instead of hanging.
const HIDDEN: &str = "GET /hidden HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";

#[tokio::test]
async fn a_missing_double_or_invalid_host_is_refused_and_ends_the_connection() {
    let site = Site::in_memory();
    for fields in [
        "",
        "host: x\r\nhost: x\r\n",
        "host: x\r\nHost: y\r\n",
        "host: a b\r\n",
        "host: user@x\r\n",
        "host: x/path\r\n",
        "host: x:port\r\n",
        "host: [::1\r\n",
        "host: x, y\r\n",
    ] {
        let (status, answers) = statuses(&site, &format!("GET / HTTP/1.1\r\n{fields}\r\n{HIDDEN}")).await;
        assert_eq!((&*status, answers), ("400", 1), "{fields:?}");
    }
    for request in ["GET / HTTP/1.0\r\n\r\n", "GET / HTTP/1.1\r\nhost:\r\nconnection: close\r\n\r\n"] {
        assert_eq!(statuses(&site, request).await.0, "200", "{request}");
    }
}

#[tokio::test]
async fn a_body_that_is_chunked_twice_is_refused_and_ends_the_connection() {
    let site = Site::in_memory();
    for (codings, expected) in [
        ("transfer-encoding: chunked, chunked\r\n", "400"),
        ("transfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n", "400"),
        ("transfer-encoding: chunked, gzip, chunked\r\n", "400"),
        ("transfer-encoding: gzip, chunked\r\n", "501"),
        ("transfer-encoding: identity, chunked\r\n", "501"),
        // Rejected by hyper.
        ("transfer-encoding: chunked, gzip\r\n", "400"),
        ("transfer-encoding: xchunked\r\n", "400"),
        ("transfer-encoding: \x0bchunked\r\n", "400"),
    ] {
        let body = "4\r\nabcd\r\n0\r\n\r\n";
        let request = format!("PUT /file HTTP/1.1\r\nhost: x\r\n{codings}\r\n{body}{HIDDEN}");
        let (status, answers) = statuses(&site, &request).await;
        assert_eq!((&*status, answers), (expected, 1), "{codings:?}");
        assert!(!site.exists("/file").await, "{codings:?}");
    }
}

#[tokio::test]
async fn the_health_page_is_refused_to_requests_with_ambiguous_framing() {
    let site = Site::in_memory();
    let health = "GET /.well-known/towpath/health HTTP/1.1";
    for fields in [
        "",
        "host: x\r\nhost: y\r\n",
        "host: user@x\r\n",
        "host: x\r\ntransfer-encoding: chunked, chunked\r\n",
        "host: x\r\ntransfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n",
    ] {
        let body = if fields.contains("chunked") { "0\r\n\r\n" } else { "" };
        let (status, answers) = statuses(&site, &format!("{health}\r\n{fields}\r\n{body}{HIDDEN}")).await;
        assert_eq!((&*status, answers), ("400", 1), "{fields:?}");
    }
    let request = format!("{health}\r\nhost: x\r\nconnection: close\r\n\r\n");
    assert_eq!(statuses(&site, &request).await, ("200".into(), 1));
}

/// Forms that hyper rejects or parses as the standard requires; another version might not.
#[tokio::test]
async fn other_ways_to_smuggle_a_request_are_closed() {
    let site = Site::in_memory();
    for fields in [
        "content-length: 4\r\ncontent-length: 5\r\n",
        "content-length: 4, 5\r\n",
        "content-length: +4\r\n",
        "content-length: 0x4\r\n",
        "content-length: -1\r\n",
        "content-length : 4\r\n",
        "x: y\r\n content-length: 4\r\n",
        " content-length: 4\r\n",
        "x\0y: z\r\n",
        "x: y\rz\r\n",
    ] {
        let request = format!("PUT /file HTTP/1.1\r\nhost: x\r\n{fields}\r\nabcd{HIDDEN}");
        let (status, answers) = statuses(&site, &request).await;
        assert_eq!((&*status, answers), ("400", 1), "{fields:?}");
    }
    let request = "PUT /file HTTP/1.0\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n";
    assert_eq!(statuses(&site, request).await, ("400".into(), 1), "chunks in HTTP/1.0");
    // With both a length and chunks, chunks apply and the connection closes (RFC 9112 §6.1).
    for fields in
        ["content-length: 4\r\ntransfer-encoding: chunked\r\n", "transfer-encoding: chunked\r\ncontent-length: 4\r\n"]
    {
        let request = format!("PUT /both HTTP/1.1\r\nhost: x\r\n{fields}\r\n0\r\n\r\n{HIDDEN}");
        let (_, answers) = statuses(&site, &request).await;
        assert_eq!((answers, &*site.get("/both").await.body), (1, &b""[..]), "{fields:?}");
    }
    for chunk in ["g\r\nabcd\r\n", "4\r\nabcdX\r\n", "-4\r\nabcd\r\n", "fffffffffffffffff\r\nabcd\r\n"] {
        let request =
            format!("PUT /chunk HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n{chunk}0\r\n\r\n{HIDDEN}");
        let (_, answers) = statuses(&site, &request).await;
        assert!(answers <= 1 && !site.exists("/chunk").await, "{chunk:?}");
    }
}

/// Sends an HTTP/1.0 request and reads the head of the response.
async fn head_of(stream: &mut tokio::net::TcpStream, request: &str) -> String {
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.unwrap());
    }
    String::from_utf8(head).unwrap()
}

#[tokio::test]
async fn http10_is_answered_in_http11_and_keeps_its_connection_on_request() {
    for site in [Site::in_memory(), Site::in_directory()] {
        // Content that looks like a status line is unchanged.
        let content = "HTTP/1.0 200 OK".repeat(100_000);
        site.put("/file", content.clone()).await;
        let mut stream = site.connect().await;
        for _ in 0..3 {
            let head = head_of(&mut stream, "GET /file HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n").await;
            assert!(head.starts_with("HTTP/1.1 200 OK\r\n") && head.contains("connection: keep-alive\r\n"), "{head}");
            let mut body = vec![0; content.len()];
            stream.read_exact(&mut body).await.unwrap();
            assert!(body == content.as_bytes());
            let head = head_of(&mut stream, "HEAD /missing HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n").await;
            assert!(head.starts_with("HTTP/1.1 404 "), "{head}");
        }
        // Without a length, or without keep-alive in the request, the connection closes and the response says so.
        for request in ["GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", "GET /file HTTP/1.0\r\n\r\n"] {
            let said = site.say(request.as_bytes()).await;
            assert!(said.starts_with("HTTP/1.1 200 OK\r\n"), "{said:.100}");
            let (head, _) = said.split_once("\r\n\r\n").unwrap();
            assert!(head.contains("connection: close") && !head.contains("chunked"), "{head}");
        }
    }
}

#[tokio::test]
async fn head_says_what_get_says() {
    let site = Site::in_directory();
    let directory = site.directory.as_ref().unwrap().path();
    site.put("/file", "content").await.expect(StatusCode::CREATED);
    site.ask("MKCOL /d", &[], "").await.expect(StatusCode::CREATED);
    rustix::fs::mknodat(
        rustix::fs::CWD,
        directory.join("pipe"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from_raw_mode(0o644),
        0,
    )
    .unwrap();
    site.link("nowhere", "dangling");
    site.link("/etc/passwd", "outside");
    let etag = site.get("/file").await.field("etag").to_owned();
    for (target, headers) in [
        ("/file", vec![]),
        ("/file/", vec![]),
        ("/file", vec![("if-none-match", &*etag)]),
        ("/file", vec![("if-match", "\"other\"")]),
        ("/file", vec![("want-digest", "md5")]),
        ("/d", vec![]),
        ("/d/", vec![]),
        ("/d/", vec![("accept", "application/json")]),
        ("/pipe", vec![]),
        ("/dangling", vec![]),
        ("/outside", vec![]),
        ("/missing", vec![]),
        ("/file/below", vec![]),
        ("/metrics", vec![]),
        ("/%00", vec![]),
    ] {
        let [get, head] = [
            site.ask(&format!("GET {target}"), &headers, "").await,
            site.ask(&format!("HEAD {target}"), &headers, "").await,
        ];
        assert_eq!(head.status, get.status, "{target} {headers:?}");
        assert!(head.body.is_empty());
        let told = |answer: &super::HttpResponse| {
            let mut fields = answer.headers.clone();
            // These fields vary with time and load; chunks are absent where nothing is sent.
            ["date", "content-length", "transfer-encoding"].into_iter().for_each(|name| {
                fields.remove(name);
            });
            fields
        };
        assert_eq!(told(&head), told(&get), "{target} {headers:?}");
        let is_file = target == "/file" && get.status == 200;
        assert!(!is_file || head.field("content-length") == get.field("content-length"), "{headers:?}");
    }
    let ranged = site.ask("HEAD /file", &[("range", "bytes=1-2")], "").await.expect(StatusCode::OK);
    assert_eq!(ranged.field("content-length"), "7", "HEAD has no ranges (RFC 9110 §14.2)");
}
