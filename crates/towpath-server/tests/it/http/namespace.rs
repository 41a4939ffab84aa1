//! DELETE, MKCOL, MOVE, COPY.

use std::sync::Arc;

use http::StatusCode;
use towpath_server::config::{AnonymousRule, Right};
use towpath_store::{Fault, memory::MemoryStore};
use towpath_testkit::{
    fault::{FaultStore, Faults},
    limited_store::LimitedStore,
};

use super::{Site, open_config};

/// Creates `/tree` with a file and a directory that contains a file.
async fn plant(site: &Site) {
    for (what, body) in [("MKCOL /tree", ""), ("PUT /tree/a", "a"), ("MKCOL /tree/d", ""), ("PUT /tree/d/b", "b")] {
        site.ask(what, &[], body).await.expect(StatusCode::CREATED);
    }
}

#[tokio::test]
async fn directories_are_made_once() {
    let site = Site::in_memory();
    for (what, body, status) in [
        ("MKCOL /d", "", StatusCode::CREATED),
        ("MKCOL /d", "", StatusCode::METHOD_NOT_ALLOWED),
        ("MKCOL /", "", StatusCode::METHOD_NOT_ALLOWED),
        ("MKCOL /no/d", "", StatusCode::CONFLICT),
        ("MKCOL /e", "<x/>", StatusCode::UNSUPPORTED_MEDIA_TYPE),
    ] {
        site.ask(what, &[], body).await.expect(status);
    }
}

#[tokio::test]
async fn trees_go_whole() {
    for site in [Site::in_memory(), Site::in_directory()] {
        plant(&site).await;
        site.ask("DELETE /tree", &[("depth", "0")], "").await.expect(StatusCode::BAD_REQUEST);
        site.ask("DELETE /tree", &[("if-match", "\"x\"")], "").await.expect(StatusCode::PRECONDITION_FAILED);
        site.ask("DELETE /tree/", &[], "").await.expect(StatusCode::NO_CONTENT);
        site.ask("DELETE /tree", &[], "").await.expect(StatusCode::NOT_FOUND);
        site.ask("DELETE /", &[], "").await.expect(StatusCode::FORBIDDEN);
    }
}

#[tokio::test]
async fn trees_are_copied_and_moved() {
    for site in [Site::in_memory(), Site::in_directory()] {
        plant(&site).await;
        let to = |path: &str| format!("http://{}{path}", site.address);
        for (what, destination, more, status) in [
            ("COPY /tree", "/copy", ("depth", "infinity"), StatusCode::CREATED),
            ("COPY /tree", "/copy", ("overwrite", "F"), StatusCode::PRECONDITION_FAILED),
            ("COPY /tree", "/copy", ("overwrite", "T"), StatusCode::NO_CONTENT),
            ("COPY /tree", "/alone", ("depth", "0"), StatusCode::CREATED),
            ("COPY /tree", "/x", ("depth", "1"), StatusCode::BAD_REQUEST),
            ("COPY /tree", "/tree/d/in", ("depth", "infinity"), StatusCode::FORBIDDEN),
            ("COPY /tree/a", "/no/a", ("depth", "0"), StatusCode::CONFLICT),
            ("COPY /none", "/a", ("depth", "0"), StatusCode::NOT_FOUND),
            ("MOVE /copy/a", "/copy/d/b", ("overwrite", "F"), StatusCode::PRECONDITION_FAILED),
            ("MOVE /copy/a", "/copy/d/b", ("overwrite", "T"), StatusCode::NO_CONTENT),
            ("MOVE /copy", "/moved", ("overwrite", "F"), StatusCode::CREATED),
            ("MOVE /moved", "/moved", ("overwrite", "T"), StatusCode::FORBIDDEN),
            ("MOVE /moved", "/tree", ("overwrite", "T"), StatusCode::NO_CONTENT),
        ] {
            site.ask(what, &[("destination", &to(destination)), more], "").await.expect(status);
        }
        assert_eq!(site.get("/tree/d/b").await.text(), "a");
        assert!(!site.exists("/tree/a").await && !site.exists("/moved").await && !site.exists("/alone/a").await);
        for (destination, status) in [
            ("http://X.Example:80/tree/e", StatusCode::CREATED),
            ("https://x.example/tree/f", StatusCode::CREATED),
            ("http://x.example:81/tree/g", StatusCode::BAD_GATEWAY),
        ] {
            let headers = [("host", "x.example"), ("destination", destination)];
            site.ask("COPY /tree/d/b", &headers, "").await.expect(status);
        }
        let elsewhere = [("destination", "http://elsewhere.example/x")];
        site.ask("MOVE /tree", &elsewhere, "").await.expect(StatusCode::BAD_GATEWAY);
        site.ask("COPY /x", &[("source", "https://elsewhere.example/x")], "").await.expect(StatusCode::NOT_IMPLEMENTED);
        site.ask("MOVE /tree", &[], "").await.expect(StatusCode::BAD_REQUEST);
    }
}

#[tokio::test]
async fn nothing_goes_onto_what_holds_it() {
    for site in [Site::in_memory(), Site::in_directory()] {
        plant(&site).await;
        for (what, destination) in [
            ("MOVE /tree/d/b", "/tree"),
            ("COPY /tree/d/b", "/tree/d"),
            ("MOVE /tree/d", "/tree"),
            ("MOVE /tree/d", "/"),
            ("COPY /tree", "/tree/d"),
        ] {
            site.ask(what, &[("destination", destination)], "").await.expect(StatusCode::FORBIDDEN);
        }
        assert_eq!(site.get("/tree/d/b").await.text(), "b");
    }
}

#[tokio::test]
async fn unsupported_changes_are_refused_before_they_begin() {
    let inner = Arc::new(MemoryStore::new(1 << 30));
    let open = Site::start(inner.clone(), &open_config());
    plant(&open).await;
    let site = Site::start(Arc::new(LimitedStore::create_only(inner.clone())), &open_config());
    let allow = site.ask("OPTIONS /", &[], "").await.expect(StatusCode::OK).field("allow").to_owned();
    assert_eq!(allow, "OPTIONS, GET, HEAD, PUT, MKCOL, COPY, PROPFIND, PROPPATCH, LOCK, UNLOCK");
    assert_eq!(site.ask("POST /", &[], "").await.expect(StatusCode::METHOD_NOT_ALLOWED).field("allow"), allow);
    site.put("/new", "new").await.expect(StatusCode::CREATED);
    site.ask("MKCOL /directory", &[], "").await.expect(StatusCode::CREATED);
    let onto_tree = [("destination", "/tree")];
    for (what, headers, status, fault) in [
        ("PUT /new", &[][..], StatusCode::CONFLICT, "AlreadyExists"),
        ("DELETE /new", &[], StatusCode::NOT_IMPLEMENTED, "Unsupported"),
        ("DELETE /tree", &[], StatusCode::NOT_IMPLEMENTED, "Unsupported"),
        ("MOVE /new", &[("destination", "/other")], StatusCode::NOT_IMPLEMENTED, "Unsupported"),
        ("COPY /new", &onto_tree, StatusCode::CONFLICT, "AlreadyExists"),
        ("COPY /directory", &onto_tree, StatusCode::CONFLICT, "AlreadyExists"),
    ] {
        let answer = site.ask(what, headers, "changed").await.expect(status);
        assert_eq!(answer.field("towpath-fault"), fault, "{what}");
    }
    assert_eq!(site.get("/new").await.text(), "new");
    assert!(site.exists("/tree/d/b").await);

    let site =
        Site::start(Arc::new(LimitedStore::new(inner, |can| *can = can.clone().without_changes())), &open_config());
    for what in ["PUT /more", "MKCOL /more", "DELETE /new", "MOVE /new", "COPY /new"] {
        let answer = site.ask(what, &[("destination", "/more")], "").await.expect(StatusCode::FORBIDDEN);
        assert_eq!(answer.field("towpath-fault"), "ReadOnly", "{what}");
    }
}

#[tokio::test]
async fn a_directory_stays_if_nothing_can_be_moved_to_its_name() {
    let store = FaultStore::new(Arc::new(MemoryStore::new(1 << 30)), Faults::default());
    let site = Site::start(Arc::new(store.clone()), &open_config());
    plant(&site).await;
    site.put("/file", "f").await.expect(StatusCode::CREATED);
    for source in ["/tree/d", "/file"] {
        site.ask("MKCOL /old", &[], "").await;
        site.put("/old/x", "x").await;
        // As between two mounts of one export. The first rename is that of the directory itself.
        store.fail("rename", 1, Fault::Unsupported);
        let moving = format!("MOVE {source}");
        site.ask(&moving, &[("destination", "/old")], "").await.expect(StatusCode::NOT_IMPLEMENTED);
        assert_eq!(site.get("/old/x").await.text(), "x");
        assert!(site.exists(source).await);
        site.ask(&moving, &[("destination", "/old")], "").await.expect(StatusCode::NO_CONTENT);
        assert!(!site.exists("/old/x").await && !site.exists(source).await);
        site.ask("DELETE /old", &[], "").await.expect(StatusCode::NO_CONTENT);
    }
    let left = site.ask("PROPFIND /", &[("depth", "1")], "").await;
    assert!(!left.text().contains("replaced"), "{}", left.text());
}

#[tokio::test]
async fn links_do_not_hide_that_one_lies_in_the_other() {
    let site = Site::in_directory();
    plant(&site).await;
    site.link("tree", "by-link");
    for (what, destination) in [
        ("MOVE /tree/d", "/by-link"),
        ("MOVE /tree/d/b", "/by-link/d"),
        ("MOVE /tree/d", "/by-link/d"),
        ("COPY /tree", "/by-link/copy"),
        ("COPY /tree/d", "/by-link"),
    ] {
        site.ask(what, &[("destination", destination)], "").await.expect(StatusCode::FORBIDDEN);
    }
    assert_eq!(site.get("/tree/d/b").await.text(), "b");
}

#[tokio::test]
async fn a_right_to_make_the_way_is_none_to_fill_it() {
    let mut config = open_config();
    let rule = |path: &str, right| AnonymousRule { path: path.into(), allow: vec![right] };
    config.access.anonymous =
        vec![rule("/tree", Right::Read), rule("/tree", Right::Create), rule("/vo/data/run7", Right::Create)];
    let site = Site::in_memory_with(&config);
    plant(&site).await;
    for (destination, status) in [("/vo/data", StatusCode::UNAUTHORIZED), ("/vo", StatusCode::UNAUTHORIZED)] {
        site.ask("COPY /tree", &[("destination", destination)], "").await.expect(status);
    }
    site.ask("MKCOL /vo", &[], "").await.expect(StatusCode::CREATED);
    site.ask("MKCOL /vo/data", &[], "").await.expect(StatusCode::CREATED);
    site.ask("COPY /tree", &[("destination", "/vo/data/run7")], "").await.expect(StatusCode::CREATED);
}

#[tokio::test]
async fn refusals_do_not_tell_what_exists() {
    let mut config = open_config();
    config.access.anonymous =
        vec![AnonymousRule { path: "/mine".into(), allow: vec![Right::Read, Right::Create, Right::Modify] }];
    let site = Site::in_memory_with(&config);
    site.plant("/private/there").await;
    site.put("/mine/f", "f").await.expect(StatusCode::CONFLICT);
    site.ask("MKCOL /mine", &[], "").await.expect(StatusCode::CREATED);
    site.put("/mine/f", "f").await.expect(StatusCode::CREATED);
    for (method, headers) in [
        ("PUT", vec![]),
        ("MOVE", vec![("destination", "/mine/x")]),
        ("COPY", vec![("destination", "/mine/x")]),
        ("DELETE", vec![]),
    ] {
        let [there, missing] = ["there", "missing"].map(|name| format!("{method} /private/{name}"));
        let answers = [site.ask(&there, &headers, "").await, site.ask(&missing, &headers, "").await];
        let [there, missing] = answers.map(|answer| (answer.status, answer.text().replace("missing", "there")));
        assert_eq!(there, missing, "{method}");
    }
    for destination in ["/private/there", "/private/missing"] {
        let answer = site.ask("MOVE /mine/f", &[("destination", destination)], "").await;
        assert_eq!(answer.status, 401);
        assert!(answer.text().contains("may not create this"), "{}", answer.text());
    }
}

#[tokio::test]
async fn a_file_is_not_found_with_a_slash_at_its_end() {
    let site = Site::in_memory();
    site.put("/a", "a").await.expect(StatusCode::CREATED);
    for what in ["DELETE /a/", "GET /a/", "HEAD /a/", "MOVE /a/", "COPY /a/"] {
        site.ask(what, &[("destination", "/b")], "").await.expect(StatusCode::NOT_FOUND);
    }
    assert_eq!(site.get("/a").await.text(), "a");
    assert!(!site.exists("/b").await);
}
