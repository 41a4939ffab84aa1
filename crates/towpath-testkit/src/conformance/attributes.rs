//! User attributes.

use bytes::Bytes;
use towpath_store::{Fault, Result, StorePath};

use super::test_context::{TestContext, ok};

async fn set(context: &TestContext, path: &StorePath, name: &[u8], value: Option<&[u8]>) -> Result<()> {
    context.store.set_attribute(&context.caller, path, name, value, false).await
}

/// The attributes of `path`, sorted by name.
async fn all(context: &TestContext, path: &StorePath) -> Vec<(Bytes, Bytes)> {
    let mut found = ok(context.store.attributes(&context.caller, path).await);
    found.sort();
    found
}

pub(super) async fn attributes_are_kept(context: TestContext) {
    for path in [context.put("file", "content").await, context.directory.clone()] {
        assert_eq!(all(&context, &path).await, []);
        ok(set(&context, &path, b"colour", Some(b"red")).await);
        ok(set(&context, &path, b"bytes", Some(&[0, 1, 255])).await);
        ok(set(&context, &path, b"colour", Some(b"green")).await);
        let expected = [("bytes".into(), Bytes::from_static(&[0, 1, 255])), ("colour".into(), "green".into())];
        assert_eq!(all(&context, &path).await, expected);
    }
}

pub(super) async fn attributes_are_removed(context: TestContext) {
    let path = context.put("file", "content").await;
    ok(set(&context, &path, b"colour", Some(b"red")).await);
    ok(set(&context, &path, b"colour", None).await);
    assert_eq!(all(&context, &path).await, []);
    context.expect(Fault::AttributeNotFound, set(&context, &path, b"colour", None).await);
    let missing = context.at("missing");
    context.expect(Fault::NotFound, set(&context, &missing, b"colour", None).await);
    context.expect(Fault::NotFound, context.store.attributes(&context.caller, &missing).await);
}

pub(super) async fn existing_attributes_can_be_protected(context: TestContext) {
    let path = context.put("file", "content").await;
    let create =
        async |value: &[u8]| context.store.set_attribute(&context.caller, &path, b"colour", Some(value), true).await;
    ok(create(b"red").await);
    context.expect(Fault::AlreadyExists, create(b"green").await);
    assert_eq!(all(&context, &path).await, [("colour".into(), "red".into())]);
}

pub(super) async fn bounds_are_kept(context: TestContext) {
    let path = context.put("file", "content").await;
    ok(set(&context, &path, &[b'n'; 248], Some(b"value")).await);
    context.expect(Fault::NameTooLong, set(&context, &path, &[b'n'; 249], Some(b"value")).await);
    context.expect(Fault::TooLarge, set(&context, &path, b"name", Some(&[0; 65_537])).await);
    context.expect(Fault::InvalidArgument, set(&context, &path, b"", Some(b"value")).await);
    assert_eq!(all(&context, &path).await.len(), 1);
}

pub(super) async fn attributes_go_with_the_file(context: TestContext) {
    let path = context.put("file", "content").await;
    ok(set(&context, &path, b"colour", Some(b"red")).await);
    let other = context.at("other");
    if context.can.rename {
        ok(context.store.rename(&context.caller, &path, &other, towpath_store::Overwrite::Refuse).await);
        assert_eq!(all(&context, &other).await, [("colour".into(), "red".into())]);
    }
    if context.can.rename && context.can.remove {
        context.overwrite(&other, "new content").await;
        assert_eq!(all(&context, &other).await, [], "another file has taken its place");
    }
}

pub(super) async fn digests_are_no_attributes(context: TestContext) {
    let path = context.put("file", "content").await;
    for algorithm in context.can.digests.iter() {
        ok(context.store.digest(&context.caller, &path, algorithm, &|_| {}).await);
    }
    assert_eq!(all(&context, &path).await, []);
    let known = ok(context.stat(&path).await).digests;
    ok(set(&context, &path, b"XrdCks.adler32", Some(b"not a digest")).await);
    assert_eq!(ok(context.stat(&path).await).digests, known);
}
