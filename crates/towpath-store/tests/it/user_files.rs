//! The files of the process's own user ([`Scope::User`]): links may lead anywhere, and uploads are staged in their
//! target directory.

use std::{os::unix::fs::symlink, path::Path};

use towpath_store::{
    Caller, CreateOptions, Expectation, Overwrite, ResumeKey, Store, StorePath,
    local::{LocalOptions, LocalStore, Scope},
    sys::disk,
};

fn store() -> LocalStore {
    LocalStore::open(Path::new("/"), LocalOptions { scope: Scope::User, ..LocalOptions::default() }).unwrap()
}

fn path(host: &Path) -> StorePath {
    StorePath::parse(host.as_os_str().as_encoded_bytes()).unwrap()
}

fn names(directory: &Path) -> Vec<String> {
    let mut names: Vec<_> =
        directory.read_dir().unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[tokio::test]
async fn absolute_links_are_followed() {
    let (here, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    disk::write(&there.path().join("file"), b"content").unwrap();
    symlink(there.path(), here.path().join("link")).unwrap();
    symlink(there.path().join("file"), here.path().join("file")).unwrap();
    let (store, me) = (store(), &Caller::local());
    for name in ["file", "link/file"] {
        let file = store.open(me, &path(&here.path().join(name)), Default::default()).await.unwrap();
        assert_eq!(file.read(0, 100).await.unwrap(), "content", "{name}");
    }
    let new = path(&here.path().join("link/new"));
    let file = store.create(me, &new, CreateOptions::default()).await.unwrap();
    file.write(0, "more".into()).await.unwrap();
    file.commit(Expectation::default()).await.unwrap();
    assert_eq!(names(there.path()), ["file", "new"]);
}

#[tokio::test]
async fn an_upload_is_staged_in_its_directory_and_nothing_is_left_there() {
    for base in [std::env::temp_dir().as_path(), Path::new("/dev/shm")] {
        let directory = tempfile::tempdir_in(base).unwrap();
        let (store, me) = (store(), &Caller::local());
        let at = path(&directory.path().join("file"));
        let begin = || store.create(me, &at, CreateOptions { overwrite: Overwrite::Replace, ..Default::default() });
        let (first, second, dropped) = (begin().await.unwrap(), begin().await.unwrap(), begin().await.unwrap());
        assert_eq!(names(&directory.path().join(".towpath")).len(), 3);
        drop(dropped);
        first.commit(Expectation::default()).await.unwrap();
        drop(first);
        assert_eq!(names(directory.path()), [".towpath", "file"], "another upload is under way");
        second.commit(Expectation { size: Some(5), ..Expectation::default() }).await.unwrap_err();
        drop(second);
        assert_eq!(names(directory.path()), ["file"]);
        begin().await.unwrap().commit(Expectation::default()).await.unwrap();
        assert_eq!(names(directory.path()), ["file"]);
    }
}

#[tokio::test]
async fn what_can_be_resumed_stays_beside_its_destination_until_it_is_whole() {
    let directory = tempfile::tempdir().unwrap();
    let me = &Caller::local();
    let at = path(&directory.path().join("file"));
    let options =
        CreateOptions { resume: Some(ResumeKey::new([7; 16])), size_hint: Some(2 << 20), ..CreateOptions::default() };
    let file = store().create(me, &at, options.clone()).await.unwrap();
    file.write(0, vec![1; 1 << 20].into()).await.unwrap();
    drop(file);
    assert_eq!(names(directory.path()), [".towpath"]);
    let file = store().create(me, &at, options).await.unwrap();
    assert_eq!(file.present().await.unwrap().len(), 1);
    file.write(1 << 20, vec![2; 1 << 20].into()).await.unwrap();
    file.commit(Expectation::default()).await.unwrap();
    drop(file);
    assert_eq!(names(directory.path()), ["file"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn many_small_uploads_into_one_directory_do_not_lose_their_staging_directory() {
    let directory = tempfile::tempdir().unwrap();
    // Two stores represent two processes.
    let stores = [store(), store()];
    let uploads = (0..200).map(|number| {
        let (store, at) = (stores[number % 2].clone(), path(&directory.path().join(number.to_string())));
        tokio::spawn(async move {
            let file = store.create(&Caller::local(), &at, CreateOptions::default()).await?;
            file.write(0, "content".into()).await?;
            file.commit(Expectation::default()).await
        })
    });
    for upload in uploads.collect::<Vec<_>>() {
        upload.await.unwrap().unwrap();
    }
    assert_eq!(names(directory.path()).len(), 200);
}
