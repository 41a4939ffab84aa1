//! Holes in files.

use std::os::unix::fs::MetadataExt as _;

use bytes::Bytes;
use towpath_proto::checksum::{Algorithm, Hasher};
use towpath_store::{Caller, Overwrite, Store as _};

use crate::directory::{Directory, path};

const FAR: u64 = 100 << 20;

#[tokio::test]
async fn holes_stay_holes_in_a_copy() {
    for directory in [Directory::new(), Directory::on_disk()] {
        let file = directory.create("/sparse").await.unwrap();
        file.write(0, "start".into()).await.unwrap();
        file.write(FAR, "end".into()).await.unwrap();
        let metadata = file.commit(Default::default()).await.unwrap();
        let me = &Caller::local();
        directory.store.copy(me, &path("/sparse"), &path("/copy"), Overwrite::Refuse).await.unwrap();
        for name in ["sparse", "copy"] {
            let host = directory.host(name).metadata().unwrap();
            assert_eq!(host.len(), FAR + 3);
            assert!(host.blocks() * 512 < 1 << 20, "{name} takes {} blocks", host.blocks());
        }
        let mut content = vec![0; FAR as usize + 3];
        content[..5].copy_from_slice(b"start");
        content[FAR as usize..].copy_from_slice(b"end");
        assert_eq!(directory.get("/copy").await.unwrap(), content);
        assert_eq!(metadata.digests.get(Algorithm::Crc32c), Some(Hasher::digest_of(Algorithm::Crc32c, &content)));
        assert_eq!(directory.stat("/copy").await.unwrap().digests, metadata.digests);
    }
}

#[tokio::test]
async fn a_file_that_is_one_hole_is_copied() {
    let directory = Directory::new();
    let file = directory.create("/hole").await.unwrap();
    file.set_size(FAR).await.unwrap();
    file.commit(Default::default()).await.unwrap();
    directory.store.copy(&Caller::local(), &path("/hole"), &path("/copy"), Overwrite::Refuse).await.unwrap();
    let host = directory.host("copy").metadata().unwrap();
    assert_eq!((host.len(), host.blocks()), (FAR, 0));
}

#[tokio::test]
async fn zeros_that_are_uploaded_become_holes() {
    for directory in [Directory::new(), Directory::on_disk()] {
        let mut content = vec![0; FAR as usize];
        content[5 << 20] = 1;
        let content = Bytes::from(content);
        let file = directory.create("/file").await.unwrap();
        // In reverse order, and not aligned to blocks.
        for start in (0..content.len()).step_by((1 << 20) + 7).rev() {
            let end = content.len().min(start + (1 << 20) + 7);
            file.write(start as u64, content.slice(start..end)).await.unwrap();
        }
        let metadata = file.commit(Default::default()).await.unwrap();
        let host = directory.host("file").metadata().unwrap();
        assert!(host.blocks() * 512 <= 128 << 10, "{} blocks", host.blocks());
        assert_eq!(directory.get("/file").await.unwrap(), content);
        assert_eq!(metadata.digests.get(Algorithm::Crc32c), Some(Hasher::digest_of(Algorithm::Crc32c, &content)));
    }
}
