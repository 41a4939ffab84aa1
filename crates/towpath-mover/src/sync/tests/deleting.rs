//! Entries that must not be deleted, whatever the source lists in the second pass.

use super::{folding::Folding, foreign::Foreign, *};

fn deleting() -> SyncOptions {
    SyncOptions { compare: Compare::Size, delete: true, ..SyncOptions::default() }
}

/// Runs the second pass; returns its failures.
async fn missed(sync: &Arc<Sync>) -> Vec<(String, Fault)> {
    let steps: Vec<_> = sync.deleting(&Progress::new(Arc::new(NoopObserver))).collect().await;
    let missed = steps.into_iter().filter_map(Result::err);
    missed.map(|FailedJob { job, error }| (job.to.to_string(), error.fault())).collect()
}

#[tokio::test]
async fn what_was_not_told_before_does_not_go() {
    let (from, to) = (memory(), memory());
    for name in ["a", "d/b"] {
        put(&from, &format!("/ours/{name}"), Bytes::from_static(b"x")).await;
    }
    put(&to, "/theirs/extra", Bytes::from_static(b"x")).await;
    let both = sync(&from, &to, deleting());
    carry_out(|progress| both.copying(progress)).await;
    for name in ["/ours/a", "/ours/d/b"] {
        let gone = location(&from, name);
        gone.store.remove_file(&gone.caller, &gone.path).await.unwrap();
    }
    let changed = |name: &str| (name.to_owned(), Fault::Changed);
    assert_eq!(missed(&both).await, [changed("/theirs/a"), changed("/theirs/d/b")]);
    assert_eq!(tree(&to, "/theirs").await.into_keys().collect::<Vec<_>>(), ["/a", "/d", "/d/b"]);
}

#[tokio::test]
async fn what_a_destination_lists_under_another_name_does_not_go() {
    let from = memory();
    put(&from, "/ours/d/A", Bytes::from_static(b"new")).await;
    let kept = memory();
    put(&kept, "/theirs/d/a", Bytes::from_static(b"x")).await;
    put(&kept, "/theirs/e", Bytes::from_static(b"x")).await;
    let to: Arc<dyn Store> = Arc::new(Folding(Arc::clone(&kept)));
    let both = sync(&from, &to, deleting());
    carry_out(|progress| both.copying(progress)).await;
    assert_eq!(missed(&both).await, [("/theirs/d/A".to_owned(), Fault::Changed)]);
    assert_eq!(tree(&kept, "/theirs").await, Tree::from([("/d".into(), None), ("/d/a".into(), Some(3))]));
}

/// Listings of other servers omit such a name, so the source may have it.
#[tokio::test]
async fn what_cannot_be_deleted_is_missed_and_keeps_nothing_else() {
    let (inner, to) = (memory(), memory());
    put(&inner, "/ours/a", Bytes::from_static(b"x")).await;
    for name in ["a\nb", "extra"] {
        put(&to, &format!("/theirs/{name}"), Bytes::from_static(b"x")).await;
    }
    let caller = towpath_store::Caller::local();
    let path = towpath_store::StorePath::parse(b"/ours").unwrap();
    let from = || {
        StoreLocation::remote(Foreign::of(&inner), caller.clone(), path.clone(), ("127.0.0.1".into(), 1), "root://ours")
    };
    let stays = ("/theirs/a\\nb".to_owned(), Fault::InvalidArgument);

    let dry =
        Sync::new(Job::new(from(), location(&to, "/theirs")), SyncOptions { dry_run: true, ..deleting() }).unwrap();
    let planned: Vec<_> = dry
        .copying(&Progress::new(Arc::new(NoopObserver)))
        .filter_map(|step| std::future::ready(step.err()))
        .collect()
        .await;
    assert_eq!(planned.len(), 1, "{planned:?}");

    let both = Sync::new(Job::new(from(), location(&to, "/theirs")), deleting()).unwrap();
    carry_out(|progress| both.copying(progress)).await;
    assert_eq!(missed(&both).await, [stays]);
    assert_eq!(tree(&to, "/theirs").await.into_keys().collect::<Vec<_>>(), ["/a", "/a\\nb"]);
}

/// A file that appeared in the meantime does not prevent deletions.
#[tokio::test]
async fn what_is_new_at_the_source_is_copied_before_it_ends() {
    let (from, to) = (memory(), memory());
    put(&from, "/ours/a", Bytes::from_static(b"x")).await;
    put(&to, "/theirs/extra", Bytes::from_static(b"x")).await;
    let both = sync(&from, &to, deleting());
    carry_out(|progress| both.copying(progress)).await;
    put(&from, "/ours/new", Bytes::from_static(b"x")).await;
    carry_out(|progress| both.deleting(progress)).await;
    assert_eq!(tree(&to, "/theirs").await, tree(&from, "/ours").await);
}

#[tokio::test]
async fn what_the_filter_leaves_out_stays_though_it_is_in_the_way() {
    let (from, to) = (memory(), memory());
    put(&from, "/ours/x/a.root", Bytes::from_static(b"x")).await;
    put(&to, "/theirs/x", Bytes::from_static(b"notes")).await;
    let mut filter = Filter::default();
    filter.add("*.root", true).unwrap();
    let both = sync(&from, &to, SyncOptions { filter, ..deleting() });
    let steps: Vec<_> = both.copying(&Progress::new(Arc::new(NoopObserver))).collect().await;
    let [Err(FailedJob { job, error })] = steps.as_slice() else { panic!("{steps:?}") };
    assert_eq!((job.to.to_string().as_str(), error.fault()), ("/theirs/x", Fault::NotDirectory));
    assert!(missed(&both).await.contains(&("/theirs/x".to_owned(), Fault::NotDirectory)));
    assert_eq!(get(&to, "/theirs/x").await.unwrap(), "notes");
}
