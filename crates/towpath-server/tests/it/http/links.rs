//! Symbolic links in the exported directory.

use http::StatusCode;

use super::Site;

const ALL: &str = "<propfind xmlns='DAV:'><allprop/></propfind>";
const ODD: &str = "<propfind xmlns='DAV:'><prop><x xmlns='urn:x'/></prop></propfind>";

#[tokio::test]
async fn links_that_lead_nowhere_do_not_break_a_listing() {
    let site = Site::in_directory();
    site.put("/a", "a").await.expect(StatusCode::CREATED);
    site.link("nothing", "dangling");
    site.link("/etc", "outside");
    for body in [ALL, ODD] {
        let answer = site.ask("PROPFIND /", &[("depth", "1")], body).await.expect(StatusCode::MULTI_STATUS);
        for name in ["/a", "/dangling", "/outside", "</D:multistatus>"] {
            assert!(answer.text().contains(name), "{name} {}", answer.text());
        }
    }
}

/// Creates `/tree` with a file and links to the directory `/other` and to itself.
async fn plant() -> Site {
    let site = Site::in_directory();
    for (what, body) in [("MKCOL /tree", ""), ("PUT /tree/a", "a"), ("MKCOL /other", ""), ("PUT /other/kept", "kept")] {
        site.ask(what, &[], body).await.expect(StatusCode::CREATED);
    }
    site.link("../other", "tree/away");
    site.link(".", "tree/self");
    site.link("other", "link");
    site
}

#[tokio::test]
async fn what_a_link_leads_to_is_not_removed() {
    let site = plant().await;
    site.ask("DELETE /tree", &[], "").await.expect(StatusCode::NO_CONTENT);
    site.ask("DELETE /link", &[], "").await.expect(StatusCode::NO_CONTENT);
    assert!(!site.exists("/tree").await && !site.exists("/link").await);
    assert_eq!(site.get("/other/kept").await.text(), "kept");
    let site = plant().await;
    site.put("/new", "new").await.expect(StatusCode::CREATED);
    site.ask("MOVE /new", &[("destination", "/tree")], "").await.expect(StatusCode::NO_CONTENT);
    assert_eq!(site.get("/tree").await.text(), "new");
    assert_eq!(site.get("/other/kept").await.text(), "kept");
}

#[tokio::test]
async fn a_copy_does_not_follow_links_to_directories() {
    let site = plant().await;
    let answer = site.ask("COPY /tree", &[("destination", "/copy")], "").await.expect(StatusCode::MULTI_STATUS);
    assert!(answer.text().contains("/copy/away") && answer.text().contains("/copy/self"), "{}", answer.text());
    assert_eq!(site.get("/copy/a").await.text(), "a");
    assert!(!site.exists("/copy/away").await && !site.exists("/copy/self").await);
}

#[tokio::test]
async fn a_link_is_removed_wherever_it_leads() {
    let site = Site::in_directory();
    for (target, name) in [("nothing", "dangling"), ("/etc/hostname", "outside"), ("..", "above")] {
        site.link(target, name);
        site.ask(&format!("DELETE /{name}"), &[], "").await.expect(StatusCode::NO_CONTENT);
        site.ask(&format!("DELETE /{name}"), &[], "").await.expect(StatusCode::NOT_FOUND);
    }
}

#[tokio::test]
async fn depth_0_removes_links_and_no_directories() {
    let site = plant().await;
    let depth = [("depth", "0")];
    site.ask("DELETE /link", &depth, "").await.expect(StatusCode::NO_CONTENT);
    assert!(site.ask("DELETE /other", &depth, "").await.status >= 400);
    assert_eq!(site.get("/other/kept").await.text(), "kept");
}

/// Returns the text of the property `node` of each member, by name.
async fn nodes(site: &Site, path: &str) -> Vec<(Vec<u8>, bool, Option<u64>)> {
    let body = towpath_proto::http::dav::propfind_body(true);
    let answer = site.ask(&format!("PROPFIND {path}"), &[("depth", "1")], body).await.expect(StatusCode::MULTI_STATUS);
    let text = answer.text();
    let entries = towpath_proto::http::dav::Entries::new(text.as_bytes()).unwrap().map(Result::unwrap);
    let mut nodes: Vec<_> = entries.map(|entry| (entry.path, entry.is_link, entry.directory_id)).collect();
    nodes.sort();
    nodes
}

#[tokio::test]
async fn members_tell_whether_they_are_links_and_which_directory_they_are() {
    let site = plant().await;
    let found = nodes(&site, "/").await;
    let of = |path: &str| found.iter().find(|(found, ..)| found == path.as_bytes()).unwrap();
    assert_eq!((of("/link").1, of("/other").1), (true, false));
    assert!(of("/other").2.is_some() && of("/other").2 == of("/link").2);
    assert_ne!(of("/other").2, of("/tree").2);
    assert_eq!(nodes(&site, "/other").await[1], (b"/other/kept".to_vec(), false, None));
}
