//! Proxies for HTTP, WebDAV and S3.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use bytes::Bytes;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _, copy_bidirectional},
    net::TcpStream,
};
use tokio_util::task::AbortOnDropHandle;
use towpath_client::{ClientOptions, ProxySettings, ProxyUrl, s3::S3Keys};
use towpath_proto::destination_policy::DestinationPolicy;
use towpath_store::{Blame, Caller, CreateOptions, Fault, Secret, sys::net};

use super::{
    own::{certificate, serve},
    peer::store_at,
    web::{Web, error, options, path, reply, serve_file, store},
};

/// Options with one proxy for all servers.
fn through(proxy: &str) -> ClientOptions {
    let proxy = |setting: &str| Some(ProxyUrl { url: Secret::new(proxy), setting: setting.to_owned() });
    let proxies = ProxySettings { http: proxy("http_proxy"), https: proxy("https_proxy"), ..ProxySettings::default() };
    ClientOptions { proxies, ..options() }
}

/// A proxy that opens tunnels to `port` of this machine, whatever the requested server.
struct TunnelProxy {
    address: SocketAddr,
    heads: Arc<Mutex<Vec<String>>>,
    _serving: AbortOnDropHandle<()>,
}

impl TunnelProxy {
    fn start(port: u16) -> Self {
        let listener = net::listen("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = listener.local_addr().unwrap();
        let heads: Arc<Mutex<Vec<String>>> = Arc::default();
        let seen = Arc::clone(&heads);
        let serving = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(tunnel(stream, port, Arc::clone(&seen)));
            }
        });
        Self { address, heads, _serving: AbortOnDropHandle::new(serving) }
    }
}

async fn tunnel(mut stream: TcpStream, port: u16, heads: Arc<Mutex<Vec<String>>>) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.unwrap());
    }
    heads.lock().unwrap().push(String::from_utf8(head).unwrap());
    let mut server = net::connect(([127, 0, 0, 1], port).into()).await.unwrap();
    stream.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").await.unwrap();
    let _ = copy_bidirectional(&mut stream, &mut server).await;
}

#[tokio::test]
async fn a_proxy_gets_the_whole_url_and_its_password() {
    let content = Bytes::from_static(b"proxied");
    let proxy = Web::start(move |asked, _| match asked.method.as_str() {
        "PUT" => reply(201),
        _ if asked.target.ends_with("/new") => reply(404),
        _ => serve_file(asked, &content, "\"1\""),
    });
    let options = through(&format!("http://alice:s%3Acret@{}", proxy.address));
    let store = store("http://only-that-way.invalid:8080/", &options);
    let file = store.open(&Caller::local(), &path("/a b"), Default::default()).await.unwrap();
    assert_eq!(file.read(0, 100).await.unwrap(), "proxied");
    let upload = store.create(&Caller::local(), &path("/new"), CreateOptions::default()).await.unwrap();
    upload.write(0, Bytes::from_static(b"x")).await.unwrap();
    let _ = upload.commit(Default::default()).await;
    let asked = proxy.asked();
    assert!(asked.iter().any(|asked| asked.method == "PUT"), "{asked:?}");
    for asked in &asked {
        assert!(asked.target.starts_with("http://only-that-way.invalid:8080/"), "{asked:?}");
        assert_eq!(asked.field("host"), "only-that-way.invalid:8080");
        assert_eq!(asked.field("proxy-authorization"), "Basic YWxpY2U6czpjcmV0");
    }
    assert_eq!(asked[0].target, "http://only-that-way.invalid:8080/a%20b");
}

#[tokio::test]
async fn an_exception_is_reached_directly_and_gets_no_password() {
    let content = Bytes::from_static(b"direct");
    let server = Web::start(move |asked, _| serve_file(asked, &content, "\"1\""));
    let mut options = through("http://alice:secret@proxy.invalid:1");
    options.proxies.exceptions = "127.0.0.0/8".to_owned();
    let file = server.store_with(&options).open(&Caller::local(), &path("/f"), Default::default()).await.unwrap();
    assert_eq!(file.read(0, 100).await.unwrap(), "direct");
    assert_eq!((server.asked()[0].field("proxy-authorization"), &*server.asked()[0].target), ("", "/f"));
}

#[tokio::test(flavor = "multi_thread")]
async fn https_goes_through_a_tunnel() {
    let directory = tempfile::tempdir().unwrap();
    let (certificate, key) = certificate(&directory);
    let ca_file = Some(certificate.clone());
    let port = serve(|config| (config.tls.certificate, config.tls.key) = (Some(certificate), Some(key)));
    let proxy = TunnelProxy::start(port);
    let through = through(&format!("http://alice:secret@{}", proxy.address));
    let (url, distrustful) = ("https://localhost:8443/", through.clone());
    let store_there = store(url, &ClientOptions { ca_file, ..through });
    assert!(store_there.stat(&Caller::local(), &path("/")).await.unwrap().is_directory());
    let heads = proxy.heads.lock().unwrap().clone();
    assert!(heads[0].starts_with("CONNECT localhost:8443 HTTP/1.1\r\n"), "{heads:?}");
    assert!(heads[0].contains("\r\nProxy-Authorization: Basic YWxpY2U6c2VjcmV0\r\n"), "{heads:?}");

    let error = error(store(url, &distrustful).stat(&Caller::local(), &path("/")).await);
    assert_eq!(error.fault(), Fault::ServerUntrusted, "{error}");
    assert!(error.to_string().contains("(through the proxy http://127.0.0.1:"), "{error}");
}

#[tokio::test]
async fn errors_name_the_proxy_and_its_setting() {
    let stat =
        async |proxy: &str, url: &str| error(store(url, &through(proxy)).stat(&Caller::local(), &path("/f")).await);
    for (status, url, fault, words) in [
        (407, "http://h.invalid/", Fault::AuthenticationFailed, "requires a password: set http_proxy="),
        (407, "https://h.invalid/", Fault::AuthenticationFailed, "requires a password: set https_proxy="),
        (401, "http://h.invalid/", Fault::AuthenticationFailed, "(from the server, or from the proxy"),
        (401, "https://h.invalid/", Fault::AuthenticationFailed, "requires a password: set https_proxy="),
        (403, "http://h.invalid/", Fault::PermissionDenied, "(from the server, or from the proxy"),
        (403, "https://h.invalid/", Fault::PermissionDenied, "refuses connections to h.invalid:443: 403 Forbidden"),
        (502, "http://h.invalid/", Fault::Unavailable, "(from the server, or from the proxy"),
        (502, "https://h.invalid/", Fault::Unavailable, "refuses connections to h.invalid:443: 502 Bad Gateway"),
    ] {
        let proxy = Web::start(move |_, _| reply(status));
        let error = stat(&proxy.address.to_string(), url).await;
        let setting = if url.starts_with("https") { "https_proxy" } else { "http_proxy" };
        let name = format!("the proxy http://{} ({setting})", proxy.address);
        assert_eq!(error.fault(), fault, "{url} {status}: {error}");
        assert!(error.to_string().contains(&name) && error.to_string().contains(words), "{url} {status}: {error}");
    }
    let proxy = Web::start(|_, _| reply(407));
    let error = stat(&format!("alice:secret@{}", proxy.address), "https://h.invalid/").await;
    assert!(error.to_string().contains("rejects the user name or password in https_proxy"), "{error}");
    assert!(!error.to_string().contains("secret") && error.blame() == Blame::Caller, "{error}");
}

#[tokio::test]
async fn an_unreachable_proxy_is_named() {
    let address = Web::start(|_, _| reply(200)).address;
    for url in ["http://h.invalid/", "https://h.invalid/"] {
        let error = error(store(url, &through(&address.to_string())).stat(&Caller::local(), &path("/f")).await);
        let words = format!("the proxy http://{address} (http");
        assert!(error.to_string().contains(&words) && error.to_string().contains("cannot be reached"), "{error}");
        assert_eq!((error.fault(), error.blame()), (Fault::Unavailable, Blame::Network), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn xroot_uses_no_proxy() {
    let options = through("socks5://proxy.invalid:1");
    let root = store_at("root", serve(|_| ()), options.clone()).stat(&Caller::local(), &path("/")).await;
    assert!(root.unwrap().is_directory());
    let error = error(store("http://h.invalid/", &options).stat(&Caller::local(), &path("/")).await);
    assert_eq!(error.fault(), Fault::InvalidArgument, "{error}");
    assert!(error.to_string().contains("http_proxy is a SOCKS proxy, which is not supported"), "{error}");
}

#[tokio::test]
async fn a_client_with_restricted_destinations_uses_no_proxy() {
    let content = Bytes::from_static(b"direct");
    let server = Web::start(move |asked, _| serve_file(asked, &content, "\"1\""));
    let proxy = Web::start(|_, _| reply(200));
    let destinations = Arc::new(DestinationPolicy::beyond_public(&["127.0.0.1"]).unwrap());
    let options = ClientOptions { destinations, ..through(&proxy.address.to_string()) };
    server.store_with(&options).stat(&Caller::local(), &path("/f")).await.unwrap();
    assert!(proxy.asked().is_empty() && !server.asked().is_empty());
}

#[tokio::test]
async fn buckets_are_reached_through_a_proxy() {
    let content = Bytes::from_static(b"object");
    let proxy = Web::start(move |asked, _| serve_file(asked, &content, "\"1\""));
    let mut options = through(&proxy.address.to_string());
    options.s3.endpoint = Some("http://s3.invalid".to_owned());
    options.s3.keys = Some(S3Keys { id: "id".to_owned(), secret: Secret::new("secret"), token: None });
    let file = store("s3://bucket/", &options).open(&Caller::local(), &path("/key"), Default::default()).await.unwrap();
    assert_eq!(file.read(0, 100).await.unwrap(), "object");
    let asked = &proxy.asked()[0];
    assert_eq!((&*asked.target, asked.field("host")), ("http://s3.invalid/bucket/key", "s3.invalid"));
    assert!(asked.field("authorization").starts_with("AWS4-HMAC-SHA256 "), "{asked:?}");
}
