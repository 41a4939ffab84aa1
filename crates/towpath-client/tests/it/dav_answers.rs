//! WebDAV responses with ambiguous names. Wrongly listed files would be copied or removed wrongly.

use futures::TryStreamExt as _;
use towpath_store::{Blame, Entry, Error, Fault, ListOptions, Result, Store};

use crate::{
    peer::{caller, path},
    web::{Reply, Web, error, hang_up, reply},
};

/// What XRootD writes for every resource.
const BY_XROOTD: &str = "<executable>F</executable>";

const SIZE: &str = "<getcontentlength>3</getcontentlength>";

/// A multistatus of these `href`s, which are directories if they end in a slash, each with `properties`.
fn multistatus(hrefs: &[&str], properties: &str) -> Reply {
    let response = |href: &&str| {
        let kind = if href.ends_with('/') { "<resourcetype><collection/></resourcetype>" } else { "" };
        format!("<response><href>{href}</href><propstat><prop>{kind}{properties}</prop></propstat></response>")
    };
    let responses: String = hrefs.iter().map(response).collect();
    reply(207)
        .with("content-type", "application/xml")
        .body(format!("<multistatus xmlns='DAV:'>{responses}</multistatus>"))
}

async fn entries(store: &dyn Store) -> Result<Vec<Entry>> {
    let options = ListOptions { metadata: true, ..ListOptions::default() };
    store.list(&caller(), &path("/d"), options).try_concat().await
}

fn names(entries: &[Entry]) -> Vec<&str> {
    entries.iter().map(|entry| std::str::from_utf8(&entry.name).unwrap()).collect()
}

/// Lists `/d` on a server with these `href`s.
async fn listed(hrefs: &'static [&'static str]) -> Result<Vec<Entry>> {
    entries(&*Web::start(move |_, _| multistatus(hrefs, SIZE)).store()).await
}

#[track_caller]
fn is_unusable(error: &Error, word: &str) {
    assert_eq!((error.fault(), error.blame()), (Fault::Protocol, Blame::Storage), "{error}");
    assert!(error.message().contains(word), "{error}");
}

const LITERAL: &[&str] = &["/d/", "/d/%41", "/d/A", "/d/a#b", "/d/c?d", "/d/e ", "/d/x%2Fy"];

#[tokio::test(flavor = "multi_thread")]
async fn names_from_xrootd_are_taken_literally() {
    for server in ["XrootD/v5.5.3", "XRootD"] {
        let xrootd = move || multistatus(LITERAL, &format!("{SIZE}{BY_XROOTD}")).with("server", server);
        let near = Web::start(move |_, _| xrootd());
        let far = near.address;
        // The server that answers counts, not the one that redirects.
        let redirecting = Web::start(move |asked, _| {
            reply(307).with("server", "nginx").with("location", &format!("http://{far}{}", asked.target))
        });
        for server in [&near, &redirecting] {
            let entries = entries(&*server.store()).await.unwrap();
            assert_eq!(names(&entries), ["%41", "A", "a#b", "c?d", "e ", "x%2Fy"]);
        }
    }
}

/// EOS runs in XRootD's HTTP plug-in, whose `Server` field it has.
#[tokio::test(flavor = "multi_thread")]
async fn names_from_a_plug_in_of_xrootd_are_decoded() {
    let server = Web::start(|_, _| multistatus(&["/d/", "/d/a%20b"], SIZE).with("server", "XRootD"));
    assert_eq!(names(&entries(&*server.store()).await.unwrap()), ["a b"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_with_an_unencoded_mark_is_refused() {
    for href in ["/d/a#b", "/d/c?d", "/d/e?"] {
        let server = Web::start(move |_, _| multistatus(&["/d/", "/d/a", href], SIZE));
        is_unusable(&error(entries(&*server.store()).await), href);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_with_a_slash_is_not_left_out() {
    for hrefs in [&["/d/", "/d/a", "/d/x%2Fy"][..], &["/d/", "/d%2fx"]] {
        let server = Web::start(move |_, _| multistatus(hrefs, SIZE));
        is_unusable(&error(entries(&*server.store()).await), hrefs.last().unwrap());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deeper_entry_shows_the_directory_above_it() {
    for hrefs in [
        &["/d/", "/d/e/f", "/d/e/g/", "/d/a"][..],
        &["/d/", "/d/e/f/", "/d/e/", "/d/a"],
        &["/d/", "/d/e/", "/d/e/f", "/d/a"],
    ] {
        let entries = listed(hrefs).await.unwrap();
        assert_eq!(names(&entries), ["e", "a"], "{hrefs:?}");
        assert!(entries[0].metadata.is_directory(), "{hrefs:?}");
    }
    is_unusable(&error(listed(&["/d/", "/d/e", "/d/e/f"]).await), "entry e");
    is_unusable(&error(listed(&["/d/", "/d/e/f", "/d/e"]).await), "entry e");
}

#[tokio::test(flavor = "multi_thread")]
async fn two_entries_of_one_name_are_refused() {
    is_unusable(&error(listed(&["/d/", "/d/A", "/d/%41"]).await), "entry A");
    is_unusable(&error(listed(&["/d/", "/d/a", "/d/a/"]).await), "entry a");
    // The directory itself may be described twice.
    assert_eq!(names(&listed(&["/d/", "/d/", "/d/a"]).await.unwrap()), ["a"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn xrootd_is_not_asked_for_a_name_with_a_question_mark() {
    let server = Web::start(|asked, _| match asked.method.as_str() {
        "PROPFIND" => multistatus(&["/d/c"], &format!("{SIZE}{BY_XROOTD}")).with("server", "XrootD/v5.5.3"),
        _ => hang_up(),
    });
    let (store, caller, odd) = (server.store(), caller(), path("/d/c?d"));
    let refused = [
        error(store.stat(&caller, &odd).await),
        error(store.remove_file(&caller, &odd).await),
        error(store.open(&caller, &odd, Default::default()).await.unwrap().read(0, 10).await),
        error(store.rename(&caller, &path("/d/c"), &odd, Default::default()).await),
        error(store.create(&caller, &odd, Default::default()).await.unwrap().commit(Default::default()).await),
    ];
    for error in refused {
        assert_eq!(error.fault(), Fault::InvalidArgument, "{error}");
    }
    assert!(server.asked().iter().all(|asked| asked.method.as_str() == "PROPFIND"), "{:?}", server.methods());
}

/// After a redirect, the site may have another file under the path that the responding server uses.
#[tokio::test(flavor = "multi_thread")]
async fn a_size_is_asked_for_where_the_file_is_read() {
    let far = Web::start(|asked, _| match asked.method.as_str() {
        "PROPFIND" => multistatus(&["/store/d/", "/store/d/f"], ""),
        _ => reply(200).body("right"),
    });
    let address = far.address;
    let site = Web::start(move |asked, _| match asked.target.as_str() {
        "/store/d/f" => reply(200).body("another file"),
        target => reply(307).with("location", &format!("http://{address}/store{target}")),
    });
    let entries = entries(&*site.store()).await.unwrap();
    assert_eq!(entries.iter().map(|entry| entry.metadata.size).collect::<Vec<_>>(), [5]);
    assert!(site.asked().iter().all(|asked| asked.target.starts_with("/d")), "{:?}", site.asked());
}

/// A server that answers every PROPFIND with these `href`s, whatever its depth, and serves a file everywhere.
fn describing(hrefs: &'static [&'static str]) -> Web {
    Web::start(move |asked, _| match asked.method.as_str() {
        "PROPFIND" => multistatus(hrefs, SIZE),
        "DELETE" => reply(204),
        _ => reply(405),
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_directory_described_after_its_content_is_not_removed_as_a_file() {
    let server = describing(&["/d/a", "/d/"]);
    assert_eq!(error(server.store().remove_file(&caller(), &path("/d")).await).fault(), Fault::IsDirectory);
    assert!(!server.methods().contains(&"DELETE".into()));
}

#[tokio::test(flavor = "multi_thread")]
async fn another_resource_is_not_taken_for_the_requested_one() {
    for hrefs in [&["/d/a"][..], &["/e"], &["/"], &["/d/a", "/d/b"], &["/webdav/d/", "/webdav/d/a"], &["/dd"]] {
        let is_root = hrefs == ["/"];
        let server = describing(hrefs);
        let removed = error(server.store().remove_file(&caller(), &path("/d")).await);
        let fault = if is_root { Fault::IsDirectory } else { Fault::Protocol };
        assert_eq!(removed.fault(), fault, "{hrefs:?}: {removed}");
        assert!(!server.methods().contains(&"DELETE".into()), "{hrefs:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_resource_may_be_described_under_another_prefix() {
    for href in ["/webdav/d/f", "/f", "/d/f", "http://elsewhere/d/f"] {
        let server = Web::start(move |_, _| multistatus(&[href], SIZE));
        let metadata = server.store().stat(&caller(), &path("/d/f")).await.unwrap();
        assert_eq!((metadata.is_directory(), metadata.size), (false, 3), "{href}");
    }
}
