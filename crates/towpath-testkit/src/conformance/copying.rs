//! Copies inside the store.

use towpath_store::{Fault, Overwrite, Result, StorePath};

use super::bench::{Bench, ok};

async fn copy(bench: &Bench, from: &StorePath, to: &StorePath, overwrite: Overwrite) -> Result<()> {
    bench.store.copy(&bench.caller, from, to, overwrite).await
}

pub(super) async fn a_copy_is_the_same(bench: Bench) {
    for size in [0, 1, 100_003] {
        let (from, pattern) = bench.put_pattern(&format!("from-{size}"), size).await;
        let to = bench.at(&format!("to-{size}"));
        ok(copy(&bench, &from, &to, Overwrite::Refuse).await);
        for path in [&from, &to] {
            let content = bench.get(path).await;
            assert_eq!(content.len(), size);
            pattern.check(0, &content);
        }
    }
}

pub(super) async fn a_copy_keeps_what_is_known_of_it(bench: Bench) {
    let (from, _) = bench.put_pattern("from", 1000).await;
    let to = bench.at("to");
    if bench.can.attributes {
        ok(bench.store.set_attribute(&bench.caller, &from, b"colour", Some(b"red"), false).await);
    }
    ok(copy(&bench, &from, &to, Overwrite::Refuse).await);
    let (original, copied) = (ok(bench.stat(&from).await), ok(bench.stat(&to).await));
    assert_eq!((copied.digests, copied.mode), (original.digests, original.mode));
    if bench.can.attributes {
        let attributes = ok(bench.store.attributes(&bench.caller, &to).await);
        assert_eq!(attributes, [("colour".into(), "red".into())]);
    }
}

pub(super) async fn existing_files_are_not_replaced_unasked(bench: Bench) {
    let (from, to) = (bench.put("from", "new").await, bench.put("to", "old").await);
    bench.expect(Fault::AlreadyExists, copy(&bench, &from, &to, Overwrite::Refuse).await);
    assert_eq!(bench.get(&to).await, "old");
    ok(copy(&bench, &from, &to, Overwrite::Replace).await);
    assert_eq!(bench.get(&to).await, "new");
    assert_eq!(bench.names().await.len(), 2);
}

pub(super) async fn impossible_copies_are_refused(bench: Bench) {
    let file = bench.put("file", "content").await;
    let directory = bench.at("directory");
    ok(bench.store.make_directory(&bench.caller, &directory, false, None).await);
    let new = bench.at("new");
    bench.expect(Fault::NotFound, copy(&bench, &bench.at("missing"), &new, Overwrite::Refuse).await);
    bench.expect(Fault::IsDirectory, copy(&bench, &directory, &new, Overwrite::Refuse).await);
    bench.expect(Fault::IsDirectory, copy(&bench, &file, &directory, Overwrite::Replace).await);
    bench.expect(Fault::NotFound, copy(&bench, &file, &bench.at("missing/file"), Overwrite::Refuse).await);
    bench.expect(Fault::NotDirectory, copy(&bench, &file, &bench.at("file/below"), Overwrite::Refuse).await);
    assert_eq!(bench.names().await.len(), 2);
}
