//! Against the reference server.

use towpath_store::{Fault, OpenOptions};

use crate::peer::{Xrootd, caller, content, path};

/// Runs the body with a server, or not at all where there is none.
macro_rules! with_xrootd {
    ($server:ident, $extra:expr, $body:block) => {{
        let Some($server) = Xrootd::start($extra) else { return };
        tokio::time::timeout(std::time::Duration::from_secs(120), async $body).await.expect("the test hangs");
    }};
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_is_read_whole_and_in_parts() {
    with_xrootd!(server, "", {
        let data = content(5_000_000);
        server.put("f", &data);
        let store = server.store();
        let file = store.open(&caller(), &path("/f"), OpenOptions::default()).await.unwrap();
        assert_eq!(file.read(4090, 10).await.unwrap(), data[4090..4100]);
        assert_eq!(file.read(0, 6_000_000).await.unwrap(), data);
        assert_eq!(file.read(4_999_999, 10).await.unwrap(), data[4_999_999..]);
        assert!(file.read(5_000_000, 10).await.unwrap().is_empty());
        assert_eq!(file.metadata().await.unwrap().size, 5_000_000);
        let into = file.read_into(1, 2, b"abc".to_vec()).await.unwrap();
        assert_eq!(into, [b"abc", &data[1..3]].concat());
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_there_is_not_found() {
    with_xrootd!(server, "", {
        let store = server.store();
        let file = store.open(&caller(), &path("/none"), OpenOptions::default()).await.unwrap();
        let error = file.read(0, 10).await.unwrap_err();
        assert_eq!(error.fault(), Fault::NotFound, "{error}");
        assert!(error.to_string().contains("localhost"), "{error}");
        assert_eq!(store.stat(&caller(), &path("/none")).await.unwrap_err().fault(), Fault::NotFound);
    });
}
