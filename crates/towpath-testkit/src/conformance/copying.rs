//! Copies inside the store.

use towpath_store::{Fault, Overwrite, Result, StorePath};

use super::test_context::{TestContext, ok};

async fn copy(context: &TestContext, from: &StorePath, to: &StorePath, overwrite: Overwrite) -> Result<()> {
    context.store.copy(&context.caller, from, to, overwrite).await
}

pub(super) async fn a_copy_is_the_same(context: TestContext) {
    for size in [0, 1, 100_003] {
        let (from, pattern) = context.put_pattern(&format!("from-{size}"), size).await;
        let to = context.at(&format!("to-{size}"));
        ok(copy(&context, &from, &to, Overwrite::Refuse).await);
        for path in [&from, &to] {
            let content = context.get(path).await;
            assert_eq!(content.len(), size);
            pattern.check(0, &content);
        }
    }
}

pub(super) async fn a_copy_keeps_what_is_known_of_it(context: TestContext) {
    let (from, _) = context.put_pattern("from", 1000).await;
    let to = context.at("to");
    if context.can.attributes {
        ok(context.store.set_attribute(&context.caller, &from, b"colour", Some(b"red"), false).await);
    }
    ok(copy(&context, &from, &to, Overwrite::Refuse).await);
    let (original, copied) = (ok(context.stat(&from).await), ok(context.stat(&to).await));
    assert_eq!((copied.digests, copied.mode), (original.digests, original.mode));
    if context.can.attributes {
        let attributes = ok(context.store.attributes(&context.caller, &to).await);
        assert_eq!(attributes, [("colour".into(), "red".into())]);
    }
}

pub(super) async fn existing_files_are_not_replaced_unasked(context: TestContext) {
    let (from, to) = (context.put("from", "new").await, context.put("to", "old").await);
    context.expect(Fault::AlreadyExists, copy(&context, &from, &to, Overwrite::Refuse).await);
    assert_eq!(context.get(&to).await, "old");
    assert_eq!(context.names().await.len(), 2);
}

pub(super) async fn a_copy_can_replace_a_file(context: TestContext) {
    let (from, to) = (context.put("from", "new").await, context.put("to", "old").await);
    ok(copy(&context, &from, &to, Overwrite::Replace).await);
    assert_eq!(context.get(&to).await, "new");
    let directory = context.at("directory");
    ok(context.store.make_directory(&context.caller, &directory, false, None).await);
    context.expect(Fault::IsDirectory, copy(&context, &from, &directory, Overwrite::Replace).await);
    assert_eq!(context.names().await.len(), 3);
}

pub(super) async fn impossible_copies_are_refused(context: TestContext) {
    let file = context.put("file", "content").await;
    let directory = context.at("directory");
    ok(context.store.make_directory(&context.caller, &directory, false, None).await);
    let new = context.at("new");
    context.expect(Fault::NotFound, copy(&context, &context.at("missing"), &new, Overwrite::Refuse).await);
    context.expect(Fault::IsDirectory, copy(&context, &directory, &new, Overwrite::Refuse).await);
    context.expect(Fault::NotFound, copy(&context, &file, &context.at("missing/file"), Overwrite::Refuse).await);
    context.expect(Fault::NotDirectory, copy(&context, &file, &context.at("file/below"), Overwrite::Refuse).await);
    assert_eq!(context.names().await.len(), 2);
}
