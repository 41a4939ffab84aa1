//! Uploads to servers that do what real ones seldom do, and names that cannot be said.

use std::sync::Arc;

use bytes::Bytes;
use futures::StreamExt as _;
use towpath_proto::xrootd::{
    ErrorCode, RequestCode, Response,
    response::{Text, Wait},
};
use towpath_store::{CreateOptions, Fault, ListOptions, OpenOptions, Overwrite};

use crate::{
    peer::{caller, options, path, store_at},
    script::{HANG, Script},
};

#[tokio::test]
async fn an_upload_given_up_while_it_is_opened_leaves_nothing() {
    let script = Script::listen();
    let store = store_at("root", script.port, options());
    let creating = tokio::spawn({
        let store = Arc::clone(&store);
        async move { store.create(&caller(), &path("/f"), CreateOptions::default()).await }
    });
    let (mut peer, _) = script.first_flight(&[]).await;
    peer.send().await;
    let requests = peer.expect(&[RequestCode::open, RequestCode::query]).await;
    creating.abort();
    assert!(creating.await.unwrap_err().is_cancelled());
    peer.opened(requests[0].0, 0, 0);
    peer.ok(requests[1].0, &Text(Bytes::from_static(b"v5.5.3")));
    peer.send().await;
    let requests = peer.expect(&[RequestCode::query]).await;
    peer.ok(requests[0].0, &Text(Bytes::from_static(b"v5.5.3")));
    peer.send().await;
    peer.expect(&[RequestCode::close, RequestCode::rm]).await;
}

#[tokio::test]
async fn nothing_is_removed_from_a_server_that_has_not_said_whether_it_hides_uploads() {
    let script = Script::listen();
    let store = store_at("root", script.port, options());
    let uploading = tokio::spawn(async move {
        let options = CreateOptions { overwrite: Overwrite::Replace, ..CreateOptions::default() };
        store.create(&caller(), &path("/f"), options).await?.abort().await
    });
    let later = || Response::Wait(Wait { seconds: 1, message: String::new() });
    let (mut peer, _) = script.first_flight(&[]).await;
    peer.send().await;
    let requests = peer.expect(&[RequestCode::open, RequestCode::query]).await;
    peer.refuse(requests[0].0, ErrorCode::ItExists);
    peer.respond(requests[1].0, &later());
    peer.send().await;
    let requests = peer.expect(&[RequestCode::open, RequestCode::query]).await;
    peer.opened(requests[0].0, 0, 0);
    peer.respond(requests[1].0, &later());
    peer.send().await;
    // A page that is damaged on purpose.
    let requests = peer.expect(&[RequestCode::pgwrite, RequestCode::close]).await;
    peer.refuse(requests[0].0, ErrorCode::ChkSumErr);
    peer.refuse(requests[1].0, ErrorCode::ChkSumErr);
    peer.send().await;
    tokio::time::timeout(HANG, uploading).await.expect("the client asks for more").unwrap().unwrap();
}

#[tokio::test]
async fn what_would_name_another_file_is_not_sent() {
    let script = Script::listen();
    let store = store_at("root", script.port, options());
    let asking = tokio::spawn(async move {
        let (caller, odd) = (caller(), path("/a?b"));
        let mut listing = store.list(&caller, &odd, ListOptions::default());
        [
            store.stat(&caller, &odd).await.unwrap_err(),
            store.remove_file(&caller, &odd).await.unwrap_err(),
            store.rename(&caller, &path("/a"), &odd, Overwrite::Replace).await.unwrap_err(),
            store.create(&caller, &odd, CreateOptions::default()).await.unwrap_err(),
            store.open(&caller, &odd, OpenOptions::default()).await.unwrap_err(),
            listing.next().await.unwrap().unwrap_err(),
        ]
    });
    // The client queries support of encoded names; the server has none.
    let (mut peer, requests) = script.first_flight(&[RequestCode::query]).await;
    peer.refuse(requests[0].0, ErrorCode::ArgInvalid);
    peer.send().await;
    let odd = path("/a?b");
    let errors = tokio::time::timeout(HANG, asking).await.expect("the client sends more").unwrap();
    for error in errors {
        assert_eq!((error.fault(), error.path()), (Fault::InvalidArgument, Some(&odd)), "{error}");
    }
}
