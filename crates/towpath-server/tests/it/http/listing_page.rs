//! Directories as pages for browsers.

use std::{collections::HashMap, os::unix::ffi::OsStrExt as _, path::Path, sync::Arc};

use bytes::Bytes;
use http::{Response, StatusCode};
use http_body_util::Full;
use hyper::{
    body::Incoming,
    client::conn::http2::{self, SendRequest},
};
use hyper_util::rt::{TokioExecutor, TokioIo};
use towpath_server::{ServeConfig, units::ByteSize};
use towpath_store::{Fault, memory::MemoryStore, sys::disk};
use towpath_testkit::fault::{FaultStore, Faults};

use super::{HttpResponse, Site, open_config, request};

/// Returns the links in the rows of the table, in order.
fn rows(page: &HttpResponse) -> Vec<String> {
    let row = |line: &str| Some(line.strip_prefix("<tr><td><a href=\"")?.split('"').next()?.to_owned());
    page.text().lines().filter_map(row).collect()
}

fn directory(site: &Site) -> &Path {
    site.directory.as_ref().expect("the site has a directory").path()
}

#[tokio::test]
async fn a_directory_is_a_page() {
    let site = Site::in_memory();
    site.ask("MKCOL /d%20%3Cb%3E", &[], "").await.expect(StatusCode::CREATED);
    site.ask("MKCOL /d%20%3Cb%3E/sub", &[], "").await.expect(StatusCode::CREATED);
    site.put("/d%20%3Cb%3E/f%26", vec![b'x'; 1536]).await.expect(StatusCode::CREATED);
    let moved = site.get("/d%20%3Cb%3E?x=1").await.expect(StatusCode::MOVED_PERMANENTLY);
    assert_eq!(moved.field("location"), "/d%20%3Cb%3E/?x=1");
    let page = site.get("/d%20%3Cb%3E/").await.expect(StatusCode::OK);
    assert!(page.field("content-type").starts_with("text/html"));
    for part in [
        "<html lang=\"en\">",
        "<title>/d &lt;b&gt; – 127.0.0.1</title>",
        "<h1><a href=\"/\">127.0.0.1</a>/d &lt;b&gt;/</h1>",
        "<td><a href=\"sub/\">sub/</a><td><td>",
        "<td><a href=\"f%26\">f&amp;</a><td title=\"1536\">1.50 KiB<td>",
        "role=\"status\">2 entries, of which 1 directory; <span title=\"1536\">1.50 KiB</span> in files</p>",
        "<footer>2 entries, of which 1 directory;",
    ] {
        assert!(page.text().contains(part), "{part}: {}", page.text());
    }
    let below = site.get("/d%20%3Cb%3E/sub/").await.expect(StatusCode::OK);
    assert!(below.text().contains("</a>/<a href=\"/d%20%3Cb%3E/\">d &lt;b&gt;</a>/sub/</h1>"), "{}", below.text());
    assert!(below.text().contains("<footer>0 entries</footer>"), "{}", below.text());
    site.ask("HEAD /d%20%3Cb%3E/", &[], "").await.expect(StatusCode::OK);
}

#[tokio::test]
async fn the_site_is_named_by_its_setting_or_its_host() {
    let title = async |config: &ServeConfig, request: &str| {
        let page = Site::in_memory_with(config).say(request.as_bytes()).await;
        let title = page.split_once("<title>/ – ").unwrap().1;
        title.split_once("</title>").unwrap().0.to_owned()
    };
    let request = "GET / HTTP/1.0\r\nhost: se.example.org:1094\r\n\r\n";
    assert_eq!(title(&open_config(), request).await, "se.example.org");
    assert_eq!(title(&open_config(), "GET / HTTP/1.0\r\n\r\n").await, "towpath");
    let config = ServeConfig { site: "A<B>".into(), ..open_config() };
    assert_eq!(title(&config, request).await, "A&lt;B&gt;");
}

#[tokio::test]
async fn two_thousand_entries_are_sorted() {
    let site = Site::in_directory();
    let mut sizes = HashMap::new();
    for index in 0..2000 {
        // The order by size, and the order of the calls, differ from the order of the names.
        let name = format!("f{:04}", index * 1117 % 2000);
        let path = directory(&site).join(&name);
        sizes.insert(name, index * 7 % 2000);
        disk::write(&path, &vec![b'x'; index * 7 % 2000]).unwrap();
    }
    std::fs::create_dir(directory(&site).join("z")).unwrap();
    let by_name: Vec<_> = std::iter::once("z/".into()).chain((0..2000).map(|index| format!("f{index:04}"))).collect();
    let page = site.get("/").await.expect(StatusCode::OK);
    assert_eq!(rows(&page), by_name);
    assert!(page.text().contains("role=\"status\">2,001 entries, of which 1 directory;"));
    assert!(page.body.len() < 2000 * 110, "{} bytes", page.body.len());
    assert_eq!(rows(&site.get("/?sort=-name").await)[1..3], ["f1999", "f1998"]);
    let by_size: Vec<_> = rows(&site.get("/?sort=-size").await)[1..].iter().map(|name| sizes[name]).collect();
    assert!(by_size.is_sorted_by(|a, b| a >= b) && by_size[0] == 1999, "{by_size:?}");
}

#[tokio::test]
async fn names_of_any_bytes_are_escaped() {
    let site = Site::in_directory();
    let name = b"\"'<script>\n\xff:?#%\xe2\x80\xae.txt";
    disk::write(&directory(&site).join(std::ffi::OsStr::from_bytes(name)), b"odd").unwrap();
    let page = site.get("/").await.expect(StatusCode::OK);
    let href = "%22%27%3Cscript%3E%0A%FF%3A%3F%23%25%E2%80%AE.txt";
    assert_eq!(rows(&page), [href]);
    let shown = ">&quot;&#39;&lt;script&gt;\\n\\xff:?#%\\u{202e}.txt</a>";
    assert!(page.text().contains(shown), "{}", page.text());
    assert_eq!(site.get(&format!("/{href}")).await.text(), "odd");
}

#[tokio::test]
async fn a_long_path_has_few_links() {
    let site = Site::in_memory();
    site.plant(&format!("{}/file", "/\u{fe}".repeat(1000))).await;
    let page = site.get(&format!("{}/", "/%C3%BE".repeat(999))).await.expect(StatusCode::OK);
    assert!(page.body.len() < 100_000, "{} bytes", page.body.len());
    assert!(page.text().contains("</a>/…/<a href="));
}

/// Creates a site whose directory has more entries than its memory can hold, with names of 200 bytes.
async fn site_with_little_memory() -> (Site, FaultStore, Vec<String>) {
    let mut config = open_config();
    config.limits.bytes = ByteSize(8 << 20);
    let store = FaultStore::new(Arc::new(MemoryStore::new(1 << 30)), Faults::default());
    let site = Site::start(Arc::new(store.clone()), &config);
    let names: Vec<_> = (0..2500).map(|index| format!("{index:0200}")).collect();
    for name in &names {
        site.plant(&format!("/{name}")).await;
    }
    (site, store, names)
}

#[tokio::test]
async fn a_page_that_cannot_be_sorted_says_so() {
    let (site, _, names) = site_with_little_memory().await;
    let page = site.get("/?sort=-name").await.expect(StatusCode::OK);
    let mut listed = rows(&page);
    assert!(page.text().contains("too many entries to sort") && !page.text().contains("<button"));
    assert!(page.text().contains("<footer>2,500 entries; "));
    listed.sort();
    assert_eq!(listed, names);
}

/// Requests the page of `/` and reads nothing of it.
async fn leave_unread(site: &Site) -> (SendRequest<Full<Bytes>>, Response<Incoming>) {
    let stream = TokioIo::new(site.connect().await);
    let builder = http2::Builder::new(TokioExecutor::new()).initial_stream_window_size(1024).clone();
    let (mut sender, connection) = builder.handshake(stream).await.unwrap();
    tokio::spawn(connection);
    let get = request(&format!("GET http://{}/", site.address), &[], Bytes::new());
    let page = sender.send_request(get).await.unwrap();
    assert_eq!(page.status(), StatusCode::OK);
    (sender, page)
}

#[tokio::test]
async fn the_memory_of_a_page_returns() {
    let (site, ..) = site_with_little_memory().await;
    let free = || site.service.memory.pool().free();
    let all = free();
    let unread = leave_unread(&site).await;
    assert!(all - free() >= 512 << 10, "{} bytes", all - free());
    drop(unread);
    while free() < all {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_sorted_page_holds_its_entries_but_not_the_directory() {
    let site = Site::in_directory();
    for index in 0..2000 {
        disk::write(&directory(&site).join(format!("{index:0200}")), b"").unwrap();
    }
    let (files, memory) = (site.service.files.free(), site.service.memory.pool().free());
    let _unread = leave_unread(&site).await;
    assert_eq!(site.service.files.free(), files);
    let held = memory - site.service.memory.pool().free();
    assert!((2000 * 232..2000 * 232 + (256 << 10)).contains(&held), "{held} bytes");
}

#[tokio::test]
async fn a_listing_that_fails_does_not_look_complete() {
    let (small, store, _) = site_with_little_memory().await;
    let large = Site::start(Arc::new(store.clone()), &open_config());
    for accept in ["text/html", "application/json"] {
        let request = format!("GET / HTTP/1.1\r\nhost: x\r\naccept: {accept}\r\nconnection: close\r\n\r\n");
        // The fourth batch fails: here before the response begins, there after its first entries.
        store.fail("list", 3, Fault::Io);
        let refused = large.say(request.as_bytes()).await;
        assert!(refused.starts_with("HTTP/1.1 500") && !refused.contains("000"), "{refused}");
        store.fail("list", 3, Fault::Io);
        let broken = small.say(request.as_bytes()).await;
        assert!(broken.starts_with("HTTP/1.1 200") && broken.contains(&"0".repeat(200)));
        for end in ["<footer>", "\n]}", "0\r\n\r\n"] {
            assert!(!broken.contains(end), "{accept} {end:?}");
        }
        assert!(accept != "text/html" || broken.contains("id=\"late\""));
    }
}
