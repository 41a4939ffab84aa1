//! The HTTP client against our own server: every promise of a store, and TLS.

use std::time::Duration;

use towpath_client::ClientOptions;
use towpath_store::{CreateOptions, ResumeKey};
use towpath_testkit::conformance::{self, Fixture};

use crate::{
    own::{check_trust, serve, serve_directory},
    peer::{caller, options, path},
    web::store,
};

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
    // Few retries, and no long waits: a key that is in use is in use.
    let options = ClientOptions { retries: 1, patience: Duration::from_secs(4), ..options() };
    let store = store(&format!("http://127.0.0.1:{port}/"), &options);
    // The client detects the kind of server by an upload with a key.
    store.stat(&caller(), &path("/")).await.unwrap();
    let resume = Some(ResumeKey::new([1; 16]));
    let options = CreateOptions { resume, size_hint: Some(10), ..CreateOptions::default() };
    store.create(&caller(), &path("/upload"), options).await.unwrap().abort().await.unwrap();
    let fixture = Fixture::new(store);
    conformance::check(&fixture).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn tls_is_spoken_with_a_server_that_can_be_trusted() {
    check_trust(|port, options| store(&format!("https://localhost:{port}/"), &options)).await;
}
