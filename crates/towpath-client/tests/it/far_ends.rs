//! What servers say of their ends of connections.

use std::sync::Arc;

use towpath_client::{Client, ClientOptions};
use towpath_proto::{tcp::TcpInfo, url::Url};
use towpath_store::sys::disk;

use crate::{
    own::serve_directory,
    peer::{Xrootd, caller, options},
};

const SIZE: usize = 8 << 20;

/// Reads the file `/f` over `scheme`, asking meanwhile; what is known in the end of the connections that carried something.
async fn told(scheme: &str, port: u16) -> Vec<(TcpInfo, Option<TcpInfo>)> {
    let client = Client::new(Arc::new(ClientOptions { connections: 1, ..options() }));
    let (store, path) = client.connect(&format!("{scheme}://127.0.0.1:{port}//f").parse::<Url>().unwrap()).unwrap();
    let file = store.open(&caller(), &path, Default::default()).await.unwrap();
    file.read(0, SIZE).await.unwrap();
    client.ask_far_ends().await;
    // The answer to the second read is the first one that was asked for it.
    file.read(0, SIZE).await.unwrap();
    let connections = client.connections();
    connections.into_iter().map(|one| (one.info, one.far)).filter(|(near, _)| near.received > 1 << 20).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn our_server_says_what_holds_its_end_up() {
    let directory = tempfile::tempdir().unwrap();
    disk::write(&directory.path().join("f"), &vec![7; SIZE]).unwrap();
    let port = serve_directory(&directory);
    for scheme in ["root", "http"] {
        let told = told(scheme, port).await;
        assert!(!told.is_empty(), "{scheme}");
        for (near, far) in told {
            let far = far.unwrap_or_else(|| panic!("{scheme}: nothing was said"));
            assert!(far.received <= near.sent && far.received > 0, "{scheme}: {far:?} {near:?}");
            assert!(far.acknowledged <= near.received && far.sent > 0, "{scheme}: {far:?}");
            assert!(far.most_send_buffer > 0, "{scheme}: {far:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn others_say_nothing() {
    let Some(server) = Xrootd::start("") else { return };
    server.put("f", &vec![7; SIZE]);
    let told = told("root", server.port).await;
    assert!(!told.is_empty() && told.iter().all(|(_, far)| far.is_none()), "{told:?}");
}
