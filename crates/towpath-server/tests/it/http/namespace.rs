//! DELETE, MKCOL, MOVE, COPY.

use http::StatusCode;

use super::Site;

/// `/tree` with a file, a directory, and a file in that.
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
        let elsewhere = [("destination", "http://elsewhere.example/x")];
        site.ask("MOVE /tree", &elsewhere, "").await.expect(StatusCode::BAD_GATEWAY);
        site.ask("COPY /x", &[("source", "https://elsewhere.example/x")], "").await.expect(StatusCode::NOT_IMPLEMENTED);
        site.ask("MOVE /tree", &[], "").await.expect(StatusCode::BAD_REQUEST);
    }
}
