//! Against our own server: every promise of a store, TLS and tokens.

use std::{path::PathBuf, sync::Arc};

use bytes::Bytes;
use futures::TryStreamExt as _;
use towpath_client::{Client, ClientOptions, TokenSource};
use towpath_proto::checksum::{Algorithm, Algorithms, Hasher};
use towpath_proto::xrootd::{RequestCode, Response, response::Redirect};
use towpath_server::{
    ServeConfig, Server,
    config::{AnonymousRule, IssuerConfig, Right},
};
use towpath_store::{
    Blame, Caller, CreateOptions, Expectation, Fault, ListOptions, OpenOptions, Overwrite, Secret, Store,
    local::{LocalOptions, LocalStore},
    memory::MemoryStore,
    sys::disk,
};
use towpath_testkit::{
    conformance::{self, Fixture},
    fault::{FaultStore, Faults},
    issuer::{SigningKey, jwks, wlcg_claims},
};

use crate::{
    peer::{caller, options, path, store_at},
    script::Script,
};

/// A server on an empty store in memory; its port. It ends with the test's runtime.
pub(crate) fn serve(change: impl FnOnce(&mut ServeConfig)) -> u16 {
    serve_store(Arc::new(MemoryStore::new(1 << 30)), change)
}

/// A server on a directory.
pub(crate) fn serve_directory(directory: &tempfile::TempDir) -> u16 {
    serve_store(Arc::new(LocalStore::open(directory.path(), LocalOptions::default()).unwrap()), |_| ())
}

/// A server on `store`.
pub(crate) fn serve_store(store: Arc<dyn Store>, change: impl FnOnce(&mut ServeConfig)) -> u16 {
    let mut config = ServeConfig { listen: vec![([127, 0, 0, 1], 0).into()], ..ServeConfig::default() };
    config.access.anonymous = vec![AnonymousRule { path: "/".into(), allow: vec![Right::Read, Right::Modify] }];
    change(&mut config);
    let server = Server::builder(store, &config).bind().unwrap();
    let port = server.addresses()[0].port();
    tokio::spawn(server.run());
    port
}

#[tokio::test(flavor = "multi_thread")]
async fn the_promises_of_a_store_are_kept() {
    check_promises(serve(|_| ())).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_promises_of_a_store_are_kept_for_a_directory() {
    let directory = tempfile::tempdir().unwrap();
    check_promises(serve_directory(&directory)).await;
}

async fn check_promises(port: u16) {
    // Few retries: a key that is in use is in use.
    let store = store_at("root", port, ClientOptions { retries: 2, ..options() });
    // The client detects the kind of server by an upload.
    let upload = store.create(&caller(), &path("/upload"), CreateOptions::default()).await.unwrap();
    upload.abort().await.unwrap();
    let fixture = Fixture { any_name: false, ..Fixture::new(store) };
    conformance::check(&fixture).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upload_with_another_digest_than_promised_leaves_the_old_file() {
    let store = store_at("root", serve(|_| ()), options());
    let replace = CreateOptions { overwrite: Overwrite::Replace, ..CreateOptions::default() };
    for (data, digest_of, fault) in [(b"old", b"old", None), (b"new", b"nex", Some(Fault::ChecksumMismatch))] {
        let upload = store.create(&caller(), &path("/f"), replace.clone()).await.unwrap();
        upload.write(0, Bytes::from_static(data)).await.unwrap();
        let digests = Hasher::digest(Algorithms::DEFAULT, digest_of);
        let committed = upload.commit(Expectation { digests: digests.clone(), ..Expectation::default() }).await;
        match fault {
            None => assert_eq!(committed.unwrap().digests, digests),
            Some(fault) => assert_eq!(committed.unwrap_err().fault(), fault),
        }
    }
    let file = store.open(&caller(), &path("/f"), OpenOptions::default()).await.unwrap();
    assert_eq!(file.read(0, 10).await.unwrap(), "old");
}

#[tokio::test(flavor = "multi_thread")]
async fn known_metadata_are_not_requested() {
    let served = FaultStore::new(Arc::new(MemoryStore::new(1 << 20)), Faults::default());
    let store = store_at("root", serve_store(Arc::new(served.clone()), |_| ()), options());
    let upload = store.create(&caller(), &path("/f"), CreateOptions::default()).await.unwrap();
    upload.write(0, "hello".into()).await.unwrap();
    upload.commit(Expectation::default()).await.unwrap();
    let known = store.stat(&caller(), &path("/f")).await.unwrap();
    let before = served.calls();
    let with_known = OpenOptions { known: Some(known.clone()), ..OpenOptions::default() };
    let file = store.open(&caller(), &path("/f"), with_known.clone()).await.unwrap();
    assert_eq!(file.metadata().await.unwrap(), known);
    assert_eq!(served.calls(), before);
    assert_eq!(file.read(0, 10).await.unwrap(), "hello");
    assert!(served.calls() > before);
    // The digest comes with the open.
    let verifying = OpenOptions { verifies_digests: true, ..with_known };
    let file = store.open(&caller(), &path("/f"), verifying).await.unwrap();
    assert!(!file.metadata().await.unwrap().digests.is_empty());
}

/// After some seconds the server announces that the response will follow unsolicited.
#[tokio::test]
async fn a_checksum_that_takes_long_is_waited_for() {
    let slow = FaultStore::new(Arc::new(MemoryStore::new(1 << 20)), Faults::default());
    let held = slow.hold("digest");
    let store = store_at("root", serve_store(Arc::new(slow), |_| ()), options());
    let upload = store.create(&caller(), &path("/f"), CreateOptions::default()).await.unwrap();
    upload.write(0, "hello".into()).await.unwrap();
    upload.commit(Expectation::default()).await.unwrap();
    let asking = tokio::spawn({
        let store = Arc::clone(&store);
        async move { store.digest(&caller(), &path("/f"), Algorithm::Md5, &|_| ()).await }
    });
    held.reached().await;
    // Twice as long as a client hears nothing before it gives a server up.
    for _ in 0..12 {
        store.stat(&caller(), &path("/f")).await.unwrap();
        tokio::time::pause();
        tokio::time::advance(std::time::Duration::from_secs(10)).await;
        tokio::time::resume();
    }
    assert!(!asking.is_finished());
    drop(held);
    assert_eq!(asking.await.unwrap().unwrap().to_string(), "5d41402abc4b2a76b9719d911017c592");
}

/// The server has received the data of a write and continues with it after the cancellation.
#[tokio::test(flavor = "multi_thread")]
async fn an_upload_that_is_dropped_while_it_is_written_leaves_nothing() {
    let slow = FaultStore::new(Arc::new(MemoryStore::new(1 << 24)), Faults::default());
    let [held, aborted, committed] = ["write", "abort", "commit"].map(|name| slow.hold(name));
    let store = store_at("root", serve_store(Arc::new(slow), |_| ()), options());
    let upload = store.create(&caller(), &path("/f"), CreateOptions::default()).await.unwrap();
    let mut writing = Box::pin(upload.write(0, vec![7; 1 << 20].into()));
    tokio::select! {
        () = held.reached() => {}
        outcome = &mut writing => panic!("{outcome:?}"),
    }
    drop(writing);
    drop(upload);
    // The server has heard of it by then.
    assert_eq!(store.stat(&caller(), &path("/f")).await.unwrap_err().fault(), Fault::NotFound);
    drop(held);
    tokio::select! {
        () = aborted.reached() => {}
        () = committed.reached() => panic!("a part of the file becomes visible"),
    }
}

/// A certificate for `localhost`: its file and that of its key.
pub(crate) fn certificate(directory: &tempfile::TempDir) -> (PathBuf, PathBuf) {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let (certificate, key) = (directory.path().join("cert.pem"), directory.path().join("key.pem"));
    disk::write(&certificate, made.cert.pem().as_bytes()).unwrap();
    disk::write(&key, made.signing_key.serialize_pem().as_bytes()).unwrap();
    (certificate, key)
}

#[tokio::test(flavor = "multi_thread")]
async fn tls_is_spoken_with_a_server_that_can_be_trusted() {
    check_trust(|port, options| store_at("roots", port, options)).await;
}

/// That a store at a TLS server answers only if the client knows the authority of its certificate.
pub(crate) async fn check_trust(store: impl Fn(u16, ClientOptions) -> Arc<dyn Store>) {
    let directory = tempfile::tempdir().unwrap();
    let (certificate, key) = certificate(&directory);
    let ca_file = Some(certificate.clone());
    let port = serve(|config| (config.tls.certificate, config.tls.key) = (Some(certificate), Some(key)));

    let error = store(port, options()).stat(&caller(), &path("/")).await.unwrap_err();
    assert_eq!((error.fault(), error.blame()), (Fault::ServerUntrusted, Blame::Storage), "{error}");

    let store = store(port, ClientOptions { ca_file, ..options() });
    assert!(store.stat(&caller(), &path("/")).await.unwrap().is_directory());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_insists_on_tls_gets_it() {
    let directory = tempfile::tempdir().unwrap();
    let (certificate, key) = certificate(&directory);
    let ca_file = Some(certificate.clone());
    let port = serve(|config| {
        (config.tls.certificate, config.tls.key) = (Some(certificate), Some(key));
        config.tls.required = true;
    });
    let store = store_at("root", port, ClientOptions { ca_file, ..options() });
    let file = store.open(&caller(), &path("/none"), OpenOptions::default()).await.unwrap();
    assert_eq!(file.read(0, 1).await.unwrap_err().fault(), Fault::NotFound);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_without_tls_does_not_get_what_was_meant_to_be_encrypted() {
    let error = store_at("roots", serve(|_| ()), options()).stat(&caller(), &path("/")).await.unwrap_err();
    assert_eq!(error.fault(), Fault::TlsRequired, "{error}");
}

/// A server that admits only clients with a token, over TLS.
pub(crate) struct TokenServer {
    pub(crate) directory: tempfile::TempDir,
    pub(crate) port: u16,
    pub(crate) token: String,
    pub(crate) ca_file: Option<PathBuf>,
}

pub(crate) fn serve_guarded() -> TokenServer {
    serve_guarded_with(Vec::new())
}

/// Serves with these rights of anonymous callers.
pub(crate) fn serve_guarded_with(anonymous: Vec<AnonymousRule>) -> TokenServer {
    const ISSUER: &str = "https://issuer.example";
    let directory = tempfile::tempdir().unwrap();
    let (certificate, key) = certificate(&directory);
    let ca_file = Some(certificate.clone());
    let signing = SigningKey::es256("one");
    let keys = directory.path().join("keys.json");
    disk::write(&keys, jwks([&signing]).to_string().as_bytes()).unwrap();
    let port = serve(|config| {
        (config.tls.certificate, config.tls.key) = (Some(certificate), Some(key));
        config.access.anonymous = anonymous;
        let (issuer, base_path) = (ISSUER.to_owned(), "/".to_owned());
        config.access.issuers = vec![IssuerConfig { issuer, base_path, keys: Some(keys), ca: None }];
    });
    let token = signing.token(&wlcg_claims(ISSUER, "storage.read:/ storage.modify:/"));
    TokenServer { directory, port, token, ca_file }
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_follow_a_redirect_without_encryption_only_to_the_same_host() {
    let server = serve_guarded();
    for (named, gets_it) in [("127.0.0.1", false), ("localhost", true)] {
        let script = Script::listen();
        let token = TokenSource::Fixed(Secret::new(server.token.clone()));
        let options = ClientOptions { token, ca_file: server.ca_file.clone(), ..options() };
        let url = format!("root://{named}:{}//", script.port).parse().unwrap();
        let (store, _) = Client::new(Arc::new(options)).connect(&url).unwrap();
        let asking = tokio::spawn(async move { store.stat(&caller(), &path("/")).await });
        let (mut peer, requests) = script.first_flight(&[RequestCode::stat]).await;
        let url = format!("roots://localhost:{}//", server.port);
        peer.respond(requests[0].0, &Response::Redirect(Redirect::Url { url, flags: Default::default() }));
        peer.send().await;
        match asking.await.unwrap() {
            Ok(metadata) => assert!(gets_it && metadata.is_directory()),
            Err(error) => {
                assert!(!gets_it && error.fault() == Fault::AuthenticationFailed, "{error:?}");
                assert!(error.message().contains("not sent to servers named without encryption"), "{error}");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_open_what_is_closed_to_others() {
    let TokenServer { directory, port, token, ca_file } = serve_guarded();
    let with = |token| ClientOptions { token, ca_file: ca_file.clone(), ..options() };

    let file = directory.path().join("token");
    disk::write(&file, format!("{token}\n").as_bytes()).unwrap();
    let store = store_at("roots", port, with(TokenSource::File(file)));
    store.make_directory(&caller(), &path("/d"), false, None).await.unwrap();

    // The token that comes with a call goes before that of the options, on a session of its own.
    let store = store_at("roots", port, with(TokenSource::Nothing));
    let error = store.make_directory(&caller(), &path("/e"), false, None).await.unwrap_err();
    assert!([Fault::AuthenticationFailed, Fault::PermissionDenied].contains(&error.fault()), "{error:?}");
    let with_token = Caller { token: Some(Secret::new(token.clone())), ..caller() };
    store.make_directory(&with_token, &path("/e"), false, None).await.unwrap();

    // Nobody gets in where the token of the options has opened the way for others.
    let store = store_at("roots", port, with(TokenSource::Fixed(Secret::new(token.clone()))));
    store.make_directory(&caller(), &path("/g"), false, None).await.unwrap();
    let refused = store.make_directory(&Caller::nobody(), &path("/h"), false, None).await.unwrap_err();
    assert!([Fault::AuthenticationFailed, Fault::PermissionDenied].contains(&refused.fault()), "{refused:?}");

    // A server that can speak TLS, and wants tokens, gets both.
    let store = store_at("root", port, with(TokenSource::Nothing));
    store.make_directory(&with_token, &path("/f"), false, None).await.unwrap();
    assert!(!format!("{store:?} {error:?}").contains(&token));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_error_says_why_the_token_did_not_help() {
    let public = AnonymousRule { path: "/".into(), allow: vec![Right::Read] };
    let TokenServer { directory: _directory, port, token, ca_file } = serve_guarded_with(vec![public]);
    let with = |token: &str| ClientOptions {
        token: TokenSource::Fixed(Secret::new(token)),
        ca_file: ca_file.clone(),
        ..options()
    };
    let damaged = format!("{}AAAA", &token[..token.len() - 4]);
    for (scheme, token, part) in [
        ("roots", &damaged, "its signature is forged or damaged"),
        ("https", &damaged, "its signature is forged or damaged"),
        ("root", &token, "use roots://"),
    ] {
        let store = store_at(scheme, port, with(token));
        assert!(store.stat(&caller(), &path("/")).await.unwrap().is_directory(), "{scheme}: public");
        let error = store.make_directory(&caller(), &path("/d"), false, None).await.unwrap_err();
        assert_eq!(error.fault(), Fault::AuthenticationFailed, "{scheme}: {error}");
        assert_eq!(error.message().matches(part).count(), 1, "{scheme}: {error}");
        assert!(!format!("{error:?}").contains(token.as_str()));
    }
}

/// Long names, so that a listing greatly exceeds the buffer of its reader.
fn long_name(number: usize) -> String {
    format!("/d/{number:0200}")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_listing_that_waits_for_its_reader_holds_up_nobody() {
    const ENTRIES: usize = 6000;
    let store = Arc::new(MemoryStore::new(1 << 30));
    store.make_directory(&caller(), &path("/d"), false, None).await.unwrap();
    for number in 0..ENTRIES {
        let file = store.create(&caller(), &path(&long_name(number)), CreateOptions::default()).await.unwrap();
        file.write(0, "content".into()).await.unwrap();
        file.commit(Expectation::default()).await.unwrap();
    }
    let store = store_at("root", serve_store(store, |_| ()), options());
    let start = || store.list(&caller(), &path("/d"), ListOptions { metadata: true, digests: false });
    let (mut first, mut second) = (start(), start());
    let (mut entries, mut others) = (0, 0);
    // Both are begun, neither is read on; meanwhile other things are done.
    entries += first.try_next().await.unwrap().unwrap().len();
    others += second.try_next().await.unwrap().unwrap().len();
    for number in 0..20 {
        let file = store.open(&caller(), &path(&long_name(number)), OpenOptions::default()).await.unwrap();
        assert_eq!(file.read(0, 100).await.unwrap(), "content");
        let third: Vec<_> = store.list(&caller(), &path("/"), ListOptions::default()).try_collect().await.unwrap();
        assert_eq!(third.concat().len(), 1);
    }
    while let Some(batch) = first.try_next().await.unwrap() {
        entries += batch.len();
    }
    // A cancelled listing releases its connection.
    drop(second);
    assert_eq!(entries, ENTRIES);
    assert!(others > 0);
    let again: Vec<_> = start().try_collect().await.unwrap();
    assert_eq!(again.concat().len(), ENTRIES);
}

/// An archive with the member `m.txt`, which is not compressed, as Python's `zipfile` writes it.
const ARCHIVE: &[u8] = include_bytes!("../../../towpath-proto/src/zip/two-members.zip");

#[tokio::test(flavor = "multi_thread")]
async fn a_member_of_an_archive_is_read_over_either_protocol() {
    let directory = tempfile::tempdir().unwrap();
    disk::write(&directory.path().join("s.zip"), ARCHIVE).unwrap();
    let port = serve_directory(&directory);
    let client = Client::new(Arc::new(options()));
    for scheme in ["root", "http"] {
        let connect =
            |query: &str| client.connect(&format!("{scheme}://127.0.0.1:{port}//s.zip?{query}").parse().unwrap());
        let (store, path) = connect("xrdcl.unzip=m.txt").unwrap();
        assert_eq!(path.as_bytes(), b"/s.zip/m.txt", "the member gives its name to a copy");
        let file = store.open(&caller(), &path, OpenOptions::default()).await.unwrap();
        assert_eq!(file.read(0, 100).await.unwrap(), "member");
        let (store, path) = connect("xrdcl.unzip=no-such-member").unwrap();
        assert_eq!(store.stat(&caller(), &path).await.unwrap_err().fault(), Fault::NotFound);
        let refused = connect("xrdcl.other=1").unwrap_err();
        assert_eq!(refused.fault(), Fault::InvalidArgument, "what is not understood is not ignored");
    }
}
