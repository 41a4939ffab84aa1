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
