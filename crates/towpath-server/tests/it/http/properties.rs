//! PROPFIND, PROPPATCH, LOCK, UNLOCK.

use http::StatusCode;
use towpath_store::{Caller, CreateOptions, Expectation, StorePath};

use super::{HttpResponse, Site, open_config};

async fn propfind(site: &Site, target: &str, depth: &str, body: &str) -> HttpResponse {
    site.ask(&format!("PROPFIND {target}"), &[("depth", depth)], body.to_owned()).await
}

fn asking_for(names: &str) -> String {
    format!(
        "<D:propfind xmlns:D='DAV:' xmlns:o='http://owncloud.org/ns' xmlns:m='urn:m'><D:prop>{names}</D:prop></D:propfind>"
    )
}

#[tokio::test]
async fn what_is_asked_for_is_told() {
    for site in [Site::in_memory(), Site::in_directory()] {
        site.put("/f%20%26", "Wikipedia").await;
        let names = "<D:getcontentlength/><D:getetag/><D:resourcetype/><o:checksums/><m:none/>";
        let file = propfind(&site, "/f%20%26", "1", &asking_for(names)).await.expect(StatusCode::MULTI_STATUS);
        for part in [
            "<D:href>/f%20%26</D:href>",
            "<D:getcontentlength>9</D:getcontentlength>",
            "<D:resourcetype/>",
            "ADLER32:11e60398",
            "HTTP/1.1 404 Not Found",
        ] {
            assert!(file.text().contains(part), "{part}: {}", file.text());
        }
        let quota = propfind(&site, "/", "0", &asking_for("<D:quota-available-bytes/>")).await;
        assert!(quota.text().contains("</D:quota-available-bytes>"), "{}", quota.text());
        let endless = propfind(&site, "/", "infinity", "").await.expect(StatusCode::FORBIDDEN);
        assert!(endless.text().contains("<D:propfind-finite-depth>"));
        propfind(&site, "/", "0", "<no xml").await.expect(StatusCode::BAD_REQUEST);
        propfind(&site, "/none", "0", "").await.expect(StatusCode::NOT_FOUND);
    }
}

#[tokio::test]
async fn large_directories_are_listed_whole() {
    let site = Site::in_memory();
    for index in 0..2500 {
        let path = StorePath::parse(format!("/f{index}").as_bytes()).unwrap();
        let file = site.service.store.create(&Caller::local(), &path, CreateOptions::default()).await.unwrap();
        file.commit(Expectation::default()).await.unwrap();
    }
    let listing = propfind(&site, "/", "1", "").await.expect(StatusCode::MULTI_STATUS);
    assert_eq!(listing.text().matches("<D:response>").count(), 2501);
    assert!(listing.text().ends_with("</D:multistatus>\n"));
    let page = site.ask("GET /", &[("accept", "application/json")], "").await;
    let page: serde_json::Value = serde_json::from_slice(&page.body).unwrap();
    assert_eq!(page["entries"].as_array().unwrap().len(), 2500);
}

#[tokio::test]
async fn properties_are_kept_and_go_with_their_file() {
    let site = Site::in_memory();
    site.put("/file", "x").await;
    let set = "<D:propertyupdate xmlns:D='DAV:' xmlns:m='urn:m'><D:set><D:prop><m:p><m:in>a&amp;b</m:in></m:p></D:prop></D:set></D:propertyupdate>";
    let done = site.ask("PROPPATCH /file", &[], set).await.expect(StatusCode::MULTI_STATUS);
    assert!(done.text().contains("HTTP/1.1 200 OK"), "{}", done.text());
    let destination = format!("http://{}/moved", site.address);
    site.ask("MOVE /file", &[("destination", &destination)], "").await.expect(StatusCode::CREATED);
    let told = propfind(&site, "/moved", "0", &asking_for("<m:p/>")).await;
    assert!(told.text().contains("a&amp;b"), "{}", told.text());
    // One rejected change makes the others fail.
    let both = set.replace("<m:p>", "<D:getetag>x</D:getetag><m:q>1</m:q><m:p>");
    let refused = site.ask("PROPPATCH /moved", &[], both).await.expect(StatusCode::MULTI_STATUS);
    assert!(refused.text().contains("403 Forbidden") && refused.text().contains("424 Failed Dependency"));
    assert!(propfind(&site, "/moved", "0", &asking_for("<m:q/>")).await.text().contains("404 Not Found"));
    let remove = set.replace("D:set>", "D:remove>");
    site.ask("PROPPATCH /moved", &[], remove).await.expect(StatusCode::MULTI_STATUS);
    assert!(propfind(&site, "/moved", "0", &asking_for("<m:p/>")).await.text().contains("404 Not Found"));
}

const LOCK: &str = "<D:lockinfo xmlns:D='DAV:'><D:lockscope><D:exclusive/></D:lockscope><D:locktype><D:write/></D:locktype><D:owner>me</D:owner></D:lockinfo>";

/// The request that rclone sends to ownCloud and Nextcloud.
#[tokio::test]
async fn a_time_can_be_set() {
    let update = |time: &str, more: &str| {
        format!(
            "<D:propertyupdate xmlns:D='DAV:'><D:set><D:prop><lastmodified xmlns='DAV:'>{time}</lastmodified>{more}</D:prop></D:set></D:propertyupdate>"
        )
    };
    for site in [Site::in_memory(), Site::in_directory()] {
        site.ask("MKCOL /d", &[], "").await.expect(StatusCode::CREATED);
        site.put("/d/file", "content").await;
        for target in ["/d/file", "/d/"] {
            let time = async || {
                let answer = propfind(&site, target, "0", &asking_for("<D:getlastmodified/>")).await;
                answer.text().contains("Fri, 14 Jul 2017 02:40:00 GMT")
            };
            let ask = async |body: String| site.ask(&format!("PROPPATCH {target}"), &[], body).await;
            let done = ask(update("1500000000", "")).await.expect(StatusCode::MULTI_STATUS);
            assert!(done.text().contains("200 OK") && time().await, "{}", done.text());
            // PROPPATCH is atomic.
            let refused = ask(update("1600000000", "<D:getetag>x</D:getetag>")).await.expect(StatusCode::MULTI_STATUS);
            assert!(refused.text().contains("424") && refused.text().contains("403"), "{}", refused.text());
            let refused = ask(update("yesterday", "")).await.expect(StatusCode::MULTI_STATUS);
            assert!(refused.text().contains("409") && time().await, "{}", refused.text());
        }
    }
}

#[tokio::test]
async fn a_lock_keeps_others_out() {
    let site = Site::in_memory();
    site.ask("MKCOL /d", &[], "").await;
    site.put("/d/file", "x").await;
    let locked = site.ask("LOCK /d", &[("timeout", "Second-100")], LOCK).await.expect(StatusCode::OK);
    let token = locked.field("lock-token").to_owned();
    assert!(locked.text().contains("<D:timeout>Second-"));
    let destination = format!("http://{}/d/new", site.address);
    for (what, body) in [
        ("PUT /d/file", "y"),
        ("PUT /d/new", "y"),
        ("DELETE /d/file", ""),
        ("DELETE /d", ""),
        ("MKCOL /d/e", ""),
        ("MOVE /d/file", ""),
        ("COPY /d/file", ""),
        ("LOCK /d/file", LOCK),
    ] {
        let answer = site.ask(what, &[("destination", &destination)], body).await.expect(StatusCode::LOCKED);
        assert!(answer.text().contains("<D:href>/d</D:href>"), "{what} {}", answer.text());
    }
    site.get("/d/file").await.expect(StatusCode::OK);
    let shown = format!("({token})");
    site.ask("PUT /d/file", &[("if", &shown)], "y").await.expect(StatusCode::NO_CONTENT);
    site.ask("PUT /d/file", &[("if", "(<urn:x>)")], "y").await.expect(StatusCode::PRECONDITION_FAILED);
    site.ask("PUT /d/file", &[("if", "nonsense")], "y").await.expect(StatusCode::BAD_REQUEST);
    site.ask("LOCK /d", &[("if", &shown)], "").await.expect(StatusCode::OK);
    site.ask("UNLOCK /d", &[("lock-token", "<urn:x>")], "").await.expect(StatusCode::CONFLICT);
    site.ask("UNLOCK /d", &[("lock-token", &token)], "").await.expect(StatusCode::NO_CONTENT);
    site.put("/d/file", "z").await.expect(StatusCode::NO_CONTENT);
    site.ask("LOCK /d/unmapped", &[], LOCK).await.expect(StatusCode::CREATED);
    assert!(site.exists("/d/unmapped").await);
}

#[tokio::test]
async fn the_root_can_be_changed_but_stays() {
    for site in [Site::in_memory(), Site::in_directory()] {
        let set = "<D:propertyupdate xmlns:D='DAV:' xmlns:m='urn:m'><D:set><D:prop><m:p>x</m:p></D:prop></D:set></D:propertyupdate>";
        let done = site.ask("PROPPATCH /", &[], set).await.expect(StatusCode::MULTI_STATUS);
        assert!(done.text().contains("HTTP/1.1 200 OK"), "{}", done.text());
        let locked = site.ask("LOCK /", &[("depth", "0")], LOCK).await.expect(StatusCode::OK);
        let token = locked.field("lock-token").to_owned();
        site.ask("UNLOCK /", &[("lock-token", &token)], "").await.expect(StatusCode::NO_CONTENT);
        let destination = format!("http://{}/moved", site.address);
        site.ask("DELETE /", &[], "").await.expect(StatusCode::FORBIDDEN);
        site.ask("MOVE /", &[("destination", &destination)], "").await.expect(StatusCode::FORBIDDEN);
        site.ask("PUT /", &[], "x").await.expect(StatusCode::METHOD_NOT_ALLOWED);
    }
}

#[tokio::test]
async fn who_may_not_ask_is_told_so_before_the_question_is_read() {
    let mut config = open_config();
    config.access.anonymous.clear();
    let site = Site::in_memory_with(&config);
    site.ask("PROPFIND /", &[("depth", "0")], "<this is no XML").await.expect(StatusCode::UNAUTHORIZED);
}
