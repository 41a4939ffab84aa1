//! Attributes of uploads: set when the file is closed.

use std::sync::Arc;

use bytes::Bytes;
use towpath_proto::xrootd::{
    ErrorCode, FattrOperation, FileHandle, OpenOptions, Target,
    request::Fattr,
    response::{FattrList, FattrResults},
};
use towpath_store::{Caller, memory::MemoryStore};

use super::peer::{Peer, Site, XrootdResponse, path};

const NEW: OpenOptions = OpenOptions::new.union(OpenOptions::open_updt);

fn of(handle: FileHandle, operation: FattrOperation) -> Fattr {
    Fattr { target: Target::Handle(handle), operation }
}

fn set(handle: FileHandle, new: bool, attributes: &[(&str, &str)]) -> Fattr {
    let copied = |text: &str| Bytes::copy_from_slice(text.as_bytes());
    let attributes = attributes.iter().map(|(name, value)| (copied(name), copied(value))).collect();
    of(handle, FattrOperation::Set { new, attributes })
}

/// Returns the outcome for each attribute of a request.
fn outcomes(answer: XrootdResponse) -> Vec<Result<Bytes, ErrorCode>> {
    FattrResults::from_body(answer.ok()).unwrap().0.into_iter().map(|result| result.outcome).collect()
}

async fn kept(site: &Site, at: &str) -> Vec<(Bytes, Bytes)> {
    site.service.store.attributes(&Caller::local(), &path(at)).await.unwrap()
}

#[tokio::test]
async fn attributes_of_an_upload_come_with_its_close() {
    let site = Site::empty();
    let mut peer = Peer::logged_in(&site).await;
    let handle = peer.open("/f", NEW).await;
    let all = peer.ask(set(handle, false, &[("colour", "red"), ("shape", "round"), ("gone", "soon")])).await;
    assert_eq!(outcomes(all), [Ok(Bytes::new()), Ok(Bytes::new()), Ok(Bytes::new())]);
    assert_eq!(outcomes(peer.ask(set(handle, true, &[("shape", "square")])).await), [Err(ErrorCode::ItExists)]);
    assert_eq!(outcomes(peer.ask(set(handle, false, &[("colour", "green")])).await), [Ok(Bytes::new())]);
    let removed = peer.ask(of(handle, FattrOperation::Del(vec!["gone".into(), "never".into()]))).await;
    assert_eq!(outcomes(removed), [Ok(Bytes::new()), Err(ErrorCode::AttrNotFound)]);
    let got = peer.ask(of(handle, FattrOperation::Get(vec!["colour".into(), "gone".into()]))).await;
    assert_eq!(outcomes(got), [Ok("green".into()), Err(ErrorCode::AttrNotFound)]);
    let listed = peer.ask(of(handle, FattrOperation::List { values: false })).await.ok();
    let listed = FattrList::from_body(listed, false).unwrap().0.into_iter().map(|entry| entry.name);
    assert_eq!(listed.collect::<Vec<_>>(), ["colour", "shape"]);
    peer.close(handle).await.ok();
    assert_eq!(kept(&site, "/f").await, [("colour".into(), "green".into()), ("shape".into(), "round".into())]);
}

#[tokio::test]
async fn attributes_of_a_file_changed_in_place_do_not_wait() {
    let site = Site::empty();
    site.put("/f", b"x").await;
    let mut peer = Peer::logged_in(&site).await;
    let handle = peer.open("/f", OpenOptions::open_updt).await;
    assert_eq!(outcomes(peer.ask(set(handle, false, &[("colour", "red")])).await), [Ok(Bytes::new())]);
    assert_eq!(kept(&site, "/f").await, [("colour".into(), "red".into())]);
}

#[tokio::test]
async fn only_so_many_attributes_wait() {
    let site = Site::of(Arc::new(MemoryStore::new(1 << 30)));
    let mut peer = Peer::logged_in(&site).await;
    let handle = peer.open("/f", NEW).await;
    let mut refused = None;
    for n in 0..1000 {
        if let [Err(code)] = outcomes(peer.ask(set(handle, false, &[(&n.to_string(), "x")])).await)[..] {
            refused = Some((n, code));
            break;
        }
    }
    assert_eq!(refused, Some((512, ErrorCode::Overloaded)));
    peer.close(handle).await.ok();
    assert_eq!(kept(&site, "/f").await.len(), 512);
    let next = peer.open("/g", NEW).await;
    let again = outcomes(peer.ask(set(next, false, &[("colour", "red")])).await);
    assert_eq!(again, [Ok(Bytes::new())], "the room is free again");
}
