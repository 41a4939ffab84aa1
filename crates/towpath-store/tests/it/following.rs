//! Files that another program writes while they are read, by handles that are pinned to one version and handles that
//! follow the file.

use std::{
    fs::{File, OpenOptions as HostOptions},
    io::Write as _,
    os::unix::fs::FileExt as _,
};

use futures::StreamExt as _;
use towpath_store::{ByteRange, Caller, Fault, OpenOptions, Store as _, sys::disk};

use crate::directory::{Directory, path};

fn append(directory: &Directory, text: &str) {
    let mut file: File = HostOptions::new().append(true).open(directory.host("file")).unwrap();
    file.write_all(text.as_bytes()).unwrap();
}

#[tokio::test]
async fn who_follows_a_file_reads_what_was_appended_and_who_pins_it_learns_that_it_changed() {
    for directory in [Directory::new(), Directory::on_disk()] {
        disk::write(&directory.host("file"), b"one").unwrap();
        let (me, at) = (&Caller::local(), path("/file"));
        let follows = OpenOptions { follows: true, ..OpenOptions::default() };
        let follower = directory.store.open(me, &at, follows).await.unwrap();
        let pinned = directory.store.open(me, &at, OpenOptions::default()).await.unwrap();
        assert_eq!(follower.read(0, 100).await.unwrap(), "one");
        assert_eq!(follower.read(3, 100).await.unwrap(), "");
        append(&directory, " two");
        assert_eq!(follower.read(3, 100).await.unwrap(), " two");
        assert_eq!(follower.metadata().await.unwrap().size, 7);
        let ranges = vec![ByteRange { offset: 4, length: 3 }, ByteRange { offset: 4, length: 4 }];
        let mut parts: Vec<_> = follower.read_vector(ranges).collect().await;
        parts.sort_by_key(|(index, _)| *index);
        assert_eq!(parts[0].1.as_ref().unwrap(), "two");
        assert_eq!(parts[1].1.as_ref().unwrap_err().fault(), Fault::InvalidArgument);
        follower.check_version().unwrap();
        assert_eq!(pinned.read(0, 3).await.unwrap_err().fault(), Fault::Changed);
        assert_eq!(pinned.check_version().unwrap_err().fault(), Fault::Changed);
    }
}

#[tokio::test]
async fn a_file_that_is_written_in_place_in_the_second_of_its_upload_has_no_digest() {
    for directory in [Directory::new(), Directory::on_disk()] {
        directory.put("/file", "content").await.unwrap();
        assert!(!directory.stat("/file").await.unwrap().digests.is_empty());
        let file = HostOptions::new().write(true).open(directory.host("file")).unwrap();
        file.write_at(b"C", 0).unwrap();
        assert!(directory.stat("/file").await.unwrap().digests.is_empty());
    }
}
