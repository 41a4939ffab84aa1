//! Listings of servers that do what real ones seldom do.

use std::sync::Arc;

use bytes::Bytes;
use futures::{StreamExt as _, TryStreamExt as _};
use tokio::task::JoinHandle;
use towpath_proto::xrootd::{RequestCode, Response, StreamId, response::Wait};
use towpath_store::{Entry, Fault, FileKind, ListOptions, Listing, Result, Store};

use crate::{
    peer::{caller, options, path, store_at},
    script::{HANG, Peer, Script},
    web::{Web, reply},
};

/// The first line of an answer with metadata, and the entry `name`.
fn first(name: &str) -> Bytes {
    format!(".\n0 0 0 0\n{name}\n1 0 16 0\n").into()
}

fn list(store: &Arc<dyn Store>) -> Listing {
    store.list(&caller(), &path("/d"), ListOptions::default())
}

/// Polls the listing once, so that the test can play the server meanwhile.
fn next(mut listing: Listing) -> JoinHandle<(Option<Result<Vec<Entry>>>, Listing)> {
    tokio::spawn(async move { (listing.next().await, listing) })
}

async fn done<T>(task: JoinHandle<T>) -> T {
    tokio::time::timeout(HANG, task).await.expect("the client hangs").unwrap()
}

/// A listing whose entry `a` has been read, and its server.
async fn begun(script: &Script, store: &Arc<dyn Store>) -> (Listing, Peer, StreamId) {
    let reading = next(list(store));
    let (mut peer, requests) = script.first_flight(&[RequestCode::dirlist]).await;
    peer.part(requests[0].0, &first("a"));
    peer.send().await;
    let (batch, listing) = done(reading).await;
    assert_eq!(batch.unwrap().unwrap()[0].name, "a");
    (listing, peer, requests[0].0)
}

#[tokio::test]
async fn a_listing_that_has_begun_is_not_started_again() {
    let script = Script::listen();
    let store = store_at("root", script.port, options());
    let (listing, mut peer, id) = begun(&script, &store).await;
    let reading = next(listing);
    peer.respond(id, &Response::Wait(Wait { seconds: 0, message: String::new() }));
    peer.send().await;
    assert_eq!(done(reading).await.0.unwrap().unwrap_err().fault(), Fault::Protocol);
}

/// What `/d` holds by a WebDAV server that describes these paths with these statuses.
async fn described(responses: &[(&str, u16)]) -> Result<Vec<Entry>> {
    let responses = responses.iter().map(|(path, status)| match status {
        200 => {
            let kind = if path.ends_with('/') { "<resourcetype><collection/></resourcetype>" } else { "" };
            format!("<response><href>{path}</href><propstat><prop>{kind}</prop></propstat></response>")
        }
        _ => format!("<response><href>{path}</href><status>HTTP/1.1 {status} x</status></response>"),
    });
    let answer = format!("<multistatus xmlns='DAV:'>{}</multistatus>", responses.collect::<String>());
    let server = Web::start(move |_, _| reply(207).with("content-type", "application/xml").body(answer.clone()));
    list(&server.store()).try_concat().await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_does_not_describe_the_directory_is_not_an_empty_one() {
    for (responses, names) in [
        (&[("/d/", 200)][..], &[][..]),
        (&[("/d/", 200), ("/d/a", 200)], &["a"]),
        (&[("https://elsewhere/%64/", 200), ("/d//a", 200), ("/d/e/f", 200)], &["a", "e"]),
        (&[("/d/a", 200)], &["a"]),
        (&[("/", 200), ("/d/", 200)], &[]),
    ] {
        let entries = described(responses).await.unwrap();
        assert_eq!(
            entries.iter().map(|entry| String::from_utf8_lossy(&entry.name)).collect::<Vec<_>>(),
            names,
            "{responses:?}"
        );
    }
    for (responses, fault) in [
        (&[("/d/", 403)][..], Fault::PermissionDenied),
        (&[("/d/", 404), ("/d/a", 200)], Fault::NotFound),
        (&[("/prefix/d/", 200), ("/prefix/d/a", 200)], Fault::Protocol),
        (&[("/dd/", 200)], Fault::Protocol),
        (&[("/d/", 200), ("/d/a", 200), ("/other", 200)], Fault::Protocol),
        (&[("/d/", 200), ("/d-2/a", 200)], Fault::Protocol),
        (&[], Fault::Protocol),
    ] {
        assert_eq!(described(responses).await.unwrap_err().fault(), fault, "{responses:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_size_that_a_listing_does_not_tell_is_asked_for() {
    let entry = |name: &str, size: &str| {
        format!("<response><href>/d/{name}</href><propstat><prop>{size}</prop></propstat></response>")
    };
    let size = "<getcontentlength>3</getcontentlength>";
    let body =
        format!("<multistatus xmlns='DAV:'>{}{}{}</multistatus>", entry("a", size), entry("b", ""), entry("c", ""));
    let server = Web::start(move |asked, _| match (asked.method.as_str(), asked.target.as_str()) {
        ("PROPFIND", _) => reply(207).with("content-type", "application/xml").body(body.clone()),
        ("HEAD", "/d/b") => reply(200).body("content"),
        _ => reply(403),
    });
    let options = ListOptions { metadata: true, ..ListOptions::default() };
    let entries: Vec<Entry> = server.store().list(&caller(), &path("/d"), options).try_concat().await.unwrap();
    let told: Vec<_> = entries.iter().map(|entry| (&*entry.name, entry.metadata.kind, entry.metadata.size)).collect();
    assert_eq!(told, [(&b"a"[..], FileKind::File, 3), (b"b", FileKind::File, 7), (b"c", FileKind::Other, 0)]);
}

/// Its kind is unknown, but it exists.
#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_described_is_neither_left_out_nor_a_file() {
    let entries = described(&[("/d/", 200), ("/d/a", 403), ("/d/b/", 500)]).await.unwrap();
    let kinds: Vec<_> = entries.iter().map(|entry| (&*entry.name, entry.metadata.kind)).collect();
    assert_eq!(kinds, [(&b"a"[..], FileKind::Other), (b"b", FileKind::Other)]);
}
