//! Uploads with a key.

use towpath_store::{CreateOptions, Expectation, ResumeKey};

use super::bench::{Bench, ok};
use crate::pattern::Pattern;

const SIZE: usize = 200_003;

fn options() -> CreateOptions {
    CreateOptions {
        resume: Some(ResumeKey::of(&[b"source", b"target"])),
        size_hint: Some(SIZE as u64),
        ..Default::default()
    }
}

pub(super) async fn a_new_upload_with_a_key_is_as_any_other(bench: Bench) {
    let (path, content) = (bench.at("file"), Pattern::new(1).bytes(0, SIZE));
    let file = ok(bench.store.create(&bench.caller, &path, options()).await);
    assert_eq!(ok(file.present().await), []);
    ok(file.write(0, content.clone()).await);
    bench.expect_nothing(&path).await;
    ok(file.commit(Expectation { size: Some(SIZE as u64), ..Expectation::default() }).await);
    assert_eq!(bench.get(&path).await, content);
}

pub(super) async fn a_key_keeps_nothing_where_nothing_can_be_kept(bench: Bench) {
    let path = bench.at("file");
    for _ in 0..2 {
        let file = ok(bench.store.create(&bench.caller, &path, options()).await);
        assert_eq!(ok(file.present().await), []);
        ok(file.write(0, Pattern::new(1).bytes(0, SIZE)).await);
        drop(file);
        bench.expect_nothing(&path).await;
    }
}
