//! User attributes.

use bytes::Bytes;
use towpath_store::{Fault, Result, StorePath};

use super::bench::{Bench, ok};

async fn set(bench: &Bench, path: &StorePath, name: &[u8], value: Option<&[u8]>) -> Result<()> {
    bench.store.set_attribute(&bench.caller, path, name, value, false).await
}

/// The attributes of `path`, sorted by name.
async fn all(bench: &Bench, path: &StorePath) -> Vec<(Bytes, Bytes)> {
    let mut found = ok(bench.store.attributes(&bench.caller, path).await);
    found.sort();
    found
}

pub(super) async fn attributes_are_kept(bench: Bench) {
    for path in [bench.put("file", "content").await, bench.directory.clone()] {
        assert_eq!(all(&bench, &path).await, []);
        ok(set(&bench, &path, b"colour", Some(b"red")).await);
        ok(set(&bench, &path, b"bytes", Some(&[0, 1, 255])).await);
        ok(set(&bench, &path, b"colour", Some(b"green")).await);
        let expected = [("bytes".into(), Bytes::from_static(&[0, 1, 255])), ("colour".into(), "green".into())];
        assert_eq!(all(&bench, &path).await, expected);
    }
}

pub(super) async fn attributes_are_removed(bench: Bench) {
    let path = bench.put("file", "content").await;
    ok(set(&bench, &path, b"colour", Some(b"red")).await);
    ok(set(&bench, &path, b"colour", None).await);
    assert_eq!(all(&bench, &path).await, []);
    bench.expect(Fault::AttributeNotFound, set(&bench, &path, b"colour", None).await);
    let missing = bench.at("missing");
    bench.expect(Fault::NotFound, set(&bench, &missing, b"colour", None).await);
    bench.expect(Fault::NotFound, bench.store.attributes(&bench.caller, &missing).await);
}

pub(super) async fn existing_attributes_can_be_protected(bench: Bench) {
    let path = bench.put("file", "content").await;
    let create =
        async |value: &[u8]| bench.store.set_attribute(&bench.caller, &path, b"colour", Some(value), true).await;
    ok(create(b"red").await);
    bench.expect(Fault::AlreadyExists, create(b"green").await);
    assert_eq!(all(&bench, &path).await, [("colour".into(), "red".into())]);
}

pub(super) async fn bounds_are_kept(bench: Bench) {
    let path = bench.put("file", "content").await;
    ok(set(&bench, &path, &[b'n'; 248], Some(b"value")).await);
    bench.expect(Fault::NameTooLong, set(&bench, &path, &[b'n'; 249], Some(b"value")).await);
    bench.expect(Fault::TooLarge, set(&bench, &path, b"name", Some(&[0; 65_537])).await);
    bench.expect(Fault::InvalidArgument, set(&bench, &path, b"", Some(b"value")).await);
    assert_eq!(all(&bench, &path).await.len(), 1);
}

pub(super) async fn attributes_go_with_the_file(bench: Bench) {
    let path = bench.put("file", "content").await;
    ok(set(&bench, &path, b"colour", Some(b"red")).await);
    let other = bench.at("other");
    if bench.can.rename {
        ok(bench.store.rename(&bench.caller, &path, &other, towpath_store::Overwrite::Refuse).await);
        assert_eq!(all(&bench, &other).await, [("colour".into(), "red".into())]);
        bench.overwrite(&other, "new content").await;
        assert_eq!(all(&bench, &other).await, [], "another file has taken its place");
    }
}

pub(super) async fn digests_are_no_attributes(bench: Bench) {
    let path = bench.put("file", "content").await;
    for algorithm in bench.can.digests.iter() {
        ok(bench.store.digest(&bench.caller, &path, algorithm, &|_| {}).await);
    }
    assert_eq!(all(&bench, &path).await, []);
    let known = ok(bench.stat(&path).await).digests;
    ok(set(&bench, &path, b"XrdCks.adler32", Some(b"not a digest")).await);
    assert_eq!(ok(bench.stat(&path).await).digests, known);
}
