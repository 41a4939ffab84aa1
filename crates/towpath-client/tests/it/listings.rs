//! Listings of servers that do what real ones seldom do.

use std::sync::Arc;

use bytes::Bytes;
use futures::StreamExt as _;
use tokio::task::JoinHandle;
use towpath_proto::xrootd::{RequestCode, Response, StreamId, response::Wait};
use towpath_store::{Entry, Fault, ListOptions, Listing, Result, Store};

use crate::{
    peer::{caller, options, path, store_at},
    script::{HANG, Peer, Script},
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

/// A listing of which the entry `a` has been read, and its server.
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
