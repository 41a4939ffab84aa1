//! The HTTP client against our own server: every promise of a store, and TLS.

use towpath_store::Fault;
use towpath_testkit::conformance::{self, Fixture};

use crate::{
    own::{check_trust, serve, serve_directory},
    peer::options,
    web::store,
};

/// What HTTP has no status for is heard as what its status usually means.
fn heard_as(fault: Fault) -> Fault {
    Fault::from_http(fault.http_status())
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
    let store = store(&format!("http://127.0.0.1:{port}/"), &options());
    let fixture = Fixture { heard_as, ..Fixture::new(store) };
    conformance::check(&fixture).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn tls_is_spoken_with_a_server_that_can_be_trusted() {
    check_trust(|port, options| store(&format!("https://localhost:{port}/"), &options)).await;
}
