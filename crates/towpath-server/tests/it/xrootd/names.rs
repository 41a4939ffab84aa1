//! Requests with paths.

use std::{ffi::OsStr, os::unix::ffi::OsStrExt as _, sync::Arc};

use bytes::Bytes;
use towpath_proto::xrootd::{
    DirlistOptions, ErrorCode, MkdirOptions, Mode, OpenOptions, PathAndCgi, StatFlags, StatOptions, Target,
    request::{Chmod, Dirlist, Locate, Mkdir, Mv, Open, Prepare, Query, Rm, Rmdir, Stat, Statx},
    response::{Body as _, DirlistParser, OpenReply, StatInfo, VfsInfo},
};
use towpath_server::config::{AnonymousRule, Right};
use towpath_store::{Caller, Residency, Store, local::LocalStore, memory::MemoryStore};
use towpath_testkit::{
    fault::{FaultStore, Faults, ReadFaults},
    limited_store::LimitedStore,
};

use super::peer::{Peer, Site, XrootdResponse, open_request, path};

fn stat(path: &str) -> Stat {
    Stat { options: StatOptions::NONE, wants: 0, wants_node: false, target: Target::Path(path.into()) }
}

async fn list(
    peer: &mut Peer,
    path: &str,
    options: DirlistOptions,
) -> Vec<towpath_proto::xrootd::response::DirlistEntry> {
    let body = peer.ask(Dirlist { options, wants_node: false, path: path.into() }).await.ok();
    let mut parser = DirlistParser::new(options);
    parser.push(&body);
    parser.finish();
    let mut entries = Vec::new();
    while let Some(entry) = parser.pop().unwrap() {
        entries.push(entry);
    }
    entries.sort_by(|a, b| a.name.cmp(&b.name));
    entries
}

#[tokio::test]
async fn modes_are_permissions_and_no_more() {
    let directory = tempfile::tempdir().unwrap();
    let site = Site::of(Arc::new(LocalStore::open(directory.path(), Default::default()).unwrap()));
    let mut peer = Peer::logged_in(&site).await;
    let mode = Mode(0o7750);
    let handle =
        OpenReply::decode(peer.ask(Open { mode, ..open_request("/f", OpenOptions::new) }).await.ok()).unwrap().handle;
    peer.close(handle).await.ok();
    peer.ask(Mkdir { options: Default::default(), mode, path: "/d".into() }).await.ok();
    peer.ask(Mkdir { options: Default::default(), mode: Mode(0), path: "/e".into() }).await.ok();
    peer.ask(Chmod { mode, path: "/e".into() }).await.ok();
    for at in ["/f", "/d", "/e"] {
        let found = site.service.store.stat(&Caller::local(), &path(at)).await.unwrap();
        assert_eq!(found.mode, Some(0o750), "{at}");
    }
}

#[tokio::test]
async fn mkdir_of_what_exists_fails_unless_parents_are_made_too() {
    let site = Site::empty();
    site.put("/d/f", b"x").await;
    let mut peer = Peer::logged_in(&site).await;
    let mkdir = |path: &str, options| Mkdir { options, mode: Mode(0o755), path: path.into() };
    for (path, parents) in [("/d", false), ("/d/f", false), ("/d/f", true), ("/", false)] {
        let options = if parents { MkdirOptions::mkdirpath } else { MkdirOptions::NONE };
        assert_eq!(peer.ask(mkdir(path, options)).await.code(), ErrorCode::ItExists, "{path} {parents}");
    }
    peer.ask(mkdir("/d", MkdirOptions::mkdirpath)).await.ok();
}

#[tokio::test]
async fn a_right_that_the_mode_gives_nobody_is_not_told() {
    let directory = tempfile::tempdir().unwrap();
    let site = Site::of(Arc::new(LocalStore::open(directory.path(), Default::default()).unwrap()));
    site.put("/f", b"x").await;
    let mut peer = Peer::logged_in(&site).await;
    for (mode, flags) in [
        (0o644, StatFlags::readable | StatFlags::writable),
        (0o444, StatFlags::readable),
        (0o200, StatFlags::writable),
        (0o755, StatFlags::readable | StatFlags::writable | StatFlags::xset),
    ] {
        peer.ask(Chmod { mode: Mode(mode), path: "/f".into() }).await.ok();
        assert_eq!(StatInfo::decode(peer.ask(stat("/f")).await.ok()).unwrap().flags, flags, "{mode:o}");
        assert_eq!(peer.ask(Statx { list: "/f".into() }).await.ok(), [0][..], "a file, for `statx`");
    }
}

#[tokio::test]
async fn what_stat_tells() {
    let site = Site::empty();
    site.put("/d/f", b"12345").await;
    let mut peer = Peer::logged_in(&site).await;
    let file = StatInfo::decode(peer.ask(stat("//d/./f")).await.ok()).unwrap();
    assert_eq!((file.size, file.flags), (5, StatFlags::readable | StatFlags::writable));
    let directory = StatInfo::decode(peer.ask(stat("/d")).await.ok()).unwrap();
    assert!(directory.flags.contains(StatFlags::isDir | StatFlags::xset | StatFlags::readable));
    assert_eq!(peer.ask(stat("/none")).await.code(), ErrorCode::NotFound);
    let vfs = Stat { options: StatOptions::vfs, ..stat("/") };
    assert_eq!(VfsInfo::decode(peer.ask(vfs).await.ok()).unwrap().rw_nodes, 1);
}

#[tokio::test]
async fn only_files_that_wait_for_a_recall_are_offline() {
    for (residency, is_offline) in [
        (Residency::Online, false),
        (Residency::Partial { present_bytes: 0 }, false),
        (Residency::Partial { present_bytes: 3 }, false),
        (Residency::Offline, true),
    ] {
        let store = FaultStore::new(Arc::new(MemoryStore::new(1 << 20)), Faults::default());
        let reported = ReadFaults { residency: Some(residency), ..ReadFaults::default() };
        let site = Site::of(Arc::new(store.with_read_faults(reported)));
        site.put("/d/f", b"12345").await;
        let mut peer = Peer::logged_in(&site).await;
        let found = StatInfo::decode(peer.ask(stat("/d/f")).await.ok()).unwrap();
        assert_eq!((found.size, found.flags.contains(StatFlags::offline)), (5, is_offline), "{residency:?}");
        let flags = peer.ask(Statx { list: "/d/f".into() }).await.ok();
        assert_eq!(flags[0], if is_offline { 0x08 } else { 0 }, "{residency:?}");
        assert_eq!(list(&mut peer, "/d", DirlistOptions::online).await.is_empty(), is_offline, "{residency:?}");
        let entries = list(&mut peer, "/d", DirlistOptions::dstat).await;
        let flags = entries[0].stat.as_ref().unwrap().flags;
        assert_eq!(flags.contains(StatFlags::offline), is_offline, "{residency:?}");
    }
}

#[tokio::test]
async fn listings_of_any_length() {
    let site = Site::empty();
    let mut peer = Peer::logged_in(&site).await;
    peer.ask(Mkdir { path: "/d".into(), ..Mkdir::default() }).await.ok();
    assert_eq!(
        peer.ask(Dirlist { options: DirlistOptions::NONE, wants_node: false, path: "/d".into() }).await,
        XrootdResponse::Ok(Bytes::new())
    );
    for n in 0..3000 {
        site.put(&format!("/d/file-with-a-name-of-some-length-{n:05}"), b"123").await;
    }
    let plain = list(&mut peer, "/d", DirlistOptions::NONE).await;
    let full = list(&mut peer, "/d", DirlistOptions::dstat | DirlistOptions::dcksm).await;
    assert_eq!((plain.len(), full.len()), (3000, 3000));
    assert_eq!(&*full[17].name, b"file-with-a-name-of-some-length-00017");
    assert_eq!(full[17].stat.as_ref().unwrap().size, 3);
    assert_eq!(full[17].checksum.as_ref().unwrap().value, "012d0097");
    assert_eq!(
        peer.ask(Dirlist { options: DirlistOptions::NONE, wants_node: false, path: "/none".into() }).await.code(),
        ErrorCode::NotFound
    );
}

#[tokio::test]
async fn names_with_odd_bytes() {
    let directory = tempfile::tempdir().unwrap();
    let site = Site::of(Arc::new(LocalStore::open(directory.path(), Default::default()).unwrap()));
    let mut peer = Peer::logged_in(&site).await;
    // All bytes except those that end a path (`/`, `?`) or text (NUL).
    let bytes = (1..=255_u8).filter(|byte| !b"/?".contains(byte)).map(|byte| vec![b'/', byte, b'm', byte]);
    let words =
        ["/with blank", "/100%", "/a&b=c", "/.hidden", "/ünï", "/[ md5:00 ]"].map(|name| name.as_bytes().to_vec());
    for name in bytes.chain(words) {
        let path = PathAndCgi::new(Bytes::copy_from_slice(&name));
        peer.ask(Mkdir { path: path.clone(), ..Mkdir::default() }).await.ok();
        assert!(directory.path().join(OsStr::from_bytes(&name[1..])).is_dir(), "{}", name.escape_ascii());
        for options in [DirlistOptions::NONE, DirlistOptions::dstat] {
            let entries = list(&mut peer, "/", options).await;
            let names: Vec<_> = entries.iter().map(|entry| &entry.name[..]).collect();
            // A listing cannot contain line feeds, which end its lines.
            let expected = if name.contains(&b'\n') { Vec::new() } else { vec![&name[1..]] };
            assert_eq!(names, expected, "{}", name.escape_ascii());
        }
        peer.ask(Rmdir { path }).await.ok();
    }
}

#[tokio::test]
async fn towpath_is_told_any_name_and_which_directory_it_is() {
    let directory = tempfile::tempdir().unwrap();
    let site = Site::of(Arc::new(LocalStore::open(directory.path(), Default::default()).unwrap()));
    let mut peer = Peer::logged_in(&site).await;
    let names: Vec<Vec<u8>> = (1..=255_u8).filter(|byte| *byte != b'/').map(|byte| vec![byte, b'm', byte]).collect();
    for name in &names {
        let path = PathAndCgi::percent_encoded(&[b"/", name.as_slice()].concat(), b"");
        peer.ask(Mkdir { path, ..Mkdir::default() }).await.ok();
    }
    std::os::unix::fs::symlink("ama", directory.path().join("link")).unwrap();
    let body = peer.ask(Dirlist { options: DirlistOptions::dstat, wants_node: true, path: "/".into() }).await.ok();
    let mut parser = DirlistParser::new(DirlistOptions::dstat);
    parser.push(&body);
    parser.finish();
    let mut listed = std::collections::BTreeMap::new();
    while let Some(entry) = parser.pop().unwrap() {
        listed.insert(entry.name.to_vec(), entry.stat.unwrap().node.unwrap());
    }
    let (link, linked) = (listed.remove(b"link".as_slice()).unwrap(), listed[b"ama".as_slice()]);
    assert_eq!(listed.into_keys().collect::<Vec<_>>(), names);
    assert_eq!((link.is_link, linked.is_link), (true, false));
    assert!(link.directory_id.is_some() && link.directory_id == linked.directory_id);
}

#[tokio::test]
async fn a_file_is_no_directory_with_a_slash_at_its_end() {
    let site = Site::empty();
    site.put("/a", b"a").await;
    let mut peer = Peer::logged_in(&site).await;
    let mv = |from: &str, to: &str| Mv { from: from.into(), to: to.into() };
    assert!(matches!(peer.ask(Rm { path: "/a/".into() }).await, XrootdResponse::Error(..)));
    assert!(matches!(peer.ask(stat("/a/")).await, XrootdResponse::Error(..)));
    assert!(matches!(peer.ask(mv("/a/", "/b")).await, XrootdResponse::Error(..)));
    assert!(matches!(peer.ask(mv("/a", "/b/")).await, XrootdResponse::Error(..)));
    assert!(matches!(peer.ask(open_request("/a/", OpenOptions::open_read)).await, XrootdResponse::Error(..)));
    assert!(matches!(peer.ask(open_request("/new/", OpenOptions::new)).await, XrootdResponse::Error(..)));
    assert_eq!(site.get("/a").await.unwrap(), "a");
    peer.ask(Mkdir { path: "/d/".into(), ..Mkdir::default() }).await.ok();
    peer.ask(stat("/d/")).await.ok();
    assert!(site.get("/new").await.is_none() && site.get("/b").await.is_none());
}

#[tokio::test]
async fn names_change() {
    let site = Site::empty();
    site.put("/a", b"a").await;
    site.put("/b", b"b").await;
    let mut peer = Peer::logged_in(&site).await;
    let mv = |from: &str, to: &str| Mv { from: from.into(), to: to.into() };
    peer.ask(mv("/a", "/b")).await.ok();
    assert_eq!((site.get("/a").await, site.get("/b").await.unwrap()), (None, "a".into()));
    assert_eq!(peer.ask(mv("/a", "/c")).await.code(), ErrorCode::NotFound);
    peer.ask(Mkdir { path: "/d".into(), ..Mkdir::default() }).await.ok();
    assert_eq!(peer.ask(Mkdir { path: "/x/y".into(), ..Mkdir::default() }).await.code(), ErrorCode::NotFound);
    peer.ask(mv("/b", "/d/b")).await.ok();
    assert_eq!(peer.ask(Rmdir { path: "/d".into() }).await.code(), ErrorCode::ItExists);
    peer.ask(Chmod { mode: Mode(0o600), path: "/d/b".into() }).await.ok();
    peer.ask(Rm { path: "/d/b".into() }).await.ok();
    assert_eq!(peer.ask(Rm { path: "/d/b".into() }).await.code(), ErrorCode::NotFound);
    peer.ask(Rmdir { path: "/d".into() }).await.ok();
}

#[tokio::test]
async fn rights_are_asked_before_the_store() {
    let site = Site::with(Arc::new(MemoryStore::new(1 << 20)), |config| {
        config.access.anonymous = vec![
            AnonymousRule { path: "/foo/bar".into(), allow: vec![Right::Read] },
            AnonymousRule { path: "/new".into(), allow: vec![Right::Create] },
        ];
    });
    for path in ["/foo/bar/x", "/foo/bargain", "/new/old"] {
        site.put(path, b"x").await;
    }
    let mut peer = Peer::logged_in(&site).await;
    peer.ask(stat("/foo/bar/x")).await.ok();
    let open = super::peer::open_request;
    use towpath_proto::xrootd::OpenOptions as O;
    peer.ask(open("/foo/bar/x", O::open_read)).await.ok();
    peer.ask(open("/new/fresh", O::delete | O::open_updt)).await.ok();
    for refused in [
        peer.ask(open("/foo/bargain", O::open_read)).await,
        peer.ask(open("/foo/bar/x", O::open_updt)).await,
        peer.ask(open("/foo/bar/y", O::new | O::open_updt)).await,
        peer.ask(open("/new/old", O::delete | O::open_updt)).await,
        peer.ask(stat("/foo/bargain")).await,
        peer.ask(Dirlist { options: DirlistOptions::NONE, wants_node: false, path: "/foo".into() }).await,
        peer.ask(Rm { path: "/foo/bar/x".into() }).await,
        peer.ask(Mv { from: "/foo/bar/x".into(), to: "/new/x".into() }).await,
        peer.ask(Mv { from: "/new/old".into(), to: "/foo/bar/z".into() }).await,
        peer.ask(Query::Checksum("/foo/bargain".into())).await,
    ] {
        assert_eq!(refused.code(), ErrorCode::AuthFailed, "a token may help");
    }
}

#[tokio::test]
async fn checksums_and_what_else_one_may_ask() {
    let site = Site::empty();
    site.put("/f", b"123").await;
    let mut peer = Peer::logged_in(&site).await;
    let ask = |path: &str| Query::Checksum(PathAndCgi::new(Bytes::copy_from_slice(path.as_bytes())));
    assert_eq!(peer.ask(ask("/f")).await.ok(), "adler32 012d0097\0");
    assert_eq!(peer.ask(ask("/f?cks.type=crc32c")).await.ok(), "crc32c 107b2fb2\0");
    assert_eq!(peer.ask(ask("/f?cks.type=md5")).await.ok(), "md5 202cb962ac59075b964b07152d234b70\0");
    assert_eq!(peer.ask(ask("/f?cks.type=rot13")).await.code(), ErrorCode::Unsupported);
    assert_eq!(peer.ask(ask("/none")).await.code(), ErrorCode::NotFound);
    peer.ask(Query::ChecksumCancel("/f".into())).await.ok();
    let port = site.address.port();
    let locate = |path: &str| Locate { options: Default::default(), path: path.into() };
    assert_eq!(peer.ask(locate("/f")).await.ok(), format!("Sw[::127.0.0.1]:{port}\0"));
    assert_eq!(peer.ask(locate("*")).await.ok(), format!("Sw[::127.0.0.1]:{port}\0"));
    assert_eq!(peer.ask(locate("/none")).await.code(), ErrorCode::NotFound);
    let prepared = peer.ask(Prepare { list: "/f\n/f".into(), ..Prepare::default() }).await.ok();
    assert_eq!(prepared.len(), 16);
    assert_eq!(peer.ask(Prepare { list: "/none".into(), ..Prepare::default() }).await.code(), ErrorCode::NotFound);
}

#[tokio::test]
async fn unsupported_changes_are_refused_and_reported() {
    use towpath_proto::xrootd::OpenOptions as O;
    let inner: Arc<dyn Store> = Arc::new(MemoryStore::new(1 << 20));
    Site::of(Arc::clone(&inner)).put("/d/f", b"old").await;
    let site = Site::of(Arc::new(LimitedStore::create_only(Arc::clone(&inner))));
    let mut peer = Peer::logged_in(&site).await;
    let new = OpenReply::decode(peer.ask(open_request("/d/new", O::delete)).await.ok()).unwrap().handle;
    peer.close(new).await.ok();
    peer.ask(Mkdir { path: "/d/e".into(), ..Mkdir::default() }).await.ok();
    for (answer, code) in [
        (peer.ask(open_request("/d/f", O::delete)).await, ErrorCode::ItExists),
        (peer.ask(open_request("/d/f", O::open_updt)).await, ErrorCode::Unsupported),
        (peer.ask(Rm { path: "/d/f".into() }).await, ErrorCode::Unsupported),
        (peer.ask(Rmdir { path: "/d/e".into() }).await, ErrorCode::Unsupported),
        (peer.ask(Mv { from: "/d/f".into(), to: "/d/g".into() }).await, ErrorCode::Unsupported),
    ] {
        assert_eq!(answer.code(), code);
    }
    let locate = |path: &str| Locate { options: Default::default(), path: path.into() };
    let entries = list(&mut peer, "/d", DirlistOptions::dstat).await;
    for entry in &entries {
        let name = String::from_utf8_lossy(&entry.name).into_owned();
        let is_directory = name == "e";
        let flags = entry.stat.as_ref().unwrap().flags;
        assert_eq!(flags.contains(StatFlags::writable), is_directory, "{name}");
        let found = StatInfo::decode(peer.ask(stat(&format!("/d/{name}"))).await.ok()).unwrap();
        assert_eq!(found.flags, flags, "{name}");
        let located = peer.ask(locate(&format!("/d/{name}"))).await.ok();
        assert_eq!(&located[..2], if is_directory { b"Sw" } else { b"Sr" }, "{name}");
    }
    assert_eq!(entries.len(), 3);
    let read_only = LimitedStore::new(inner, |can| *can = can.clone().without_changes());
    let mut peer = Peer::logged_in(&Site::of(Arc::new(read_only))).await;
    assert_eq!(peer.ask(Mkdir { path: "/more".into(), ..Mkdir::default() }).await.code(), ErrorCode::fsReadOnly);
    assert_eq!(peer.ask(open_request("/more", O::new)).await.code(), ErrorCode::fsReadOnly);
    assert_eq!(&peer.ask(locate("*")).await.ok()[..2], b"Sr");
}

#[tokio::test]
async fn the_root_can_be_changed_but_stays() {
    let directory = tempfile::tempdir().unwrap();
    let local = Arc::new(LocalStore::open(directory.path(), Default::default()).unwrap());
    for site in [Site::empty(), Site::of(local)] {
        let mut peer = Peer::logged_in(&site).await;
        peer.ask(Chmod { path: "/".into(), mode: Mode(0o755) }).await.ok();
        assert_eq!(peer.ask(Rm { path: "/".into() }).await.code(), ErrorCode::isDirectory);
        assert_eq!(peer.ask(Rmdir { path: "/".into() }).await.code(), ErrorCode::ArgInvalid);
        assert_eq!(peer.ask(Mv { from: "/".into(), to: "/d".into() }).await.code(), ErrorCode::ArgInvalid);
        peer.ask(stat("/")).await.ok();
    }
}
