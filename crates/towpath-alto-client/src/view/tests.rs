//! Views of this crate's own server, and of misbehaving ones.

use serde_json::json;

use super::*;
use crate::follow::tests::{Site, client, targets};
use towpath_alto_server::updates::{Edge, FollowedResponses, UpdateError, View, edge_numbers};

const VIEW: &str = "http://h/tips/1";

/// A server with at most one view.
struct Server {
    site: Site,
    followed: FollowedResponses,
    view: Option<View>,
}

impl Server {
    fn new() -> Self {
        Self { site: Site::with(5, "64500 64501"), followed: FollowedResponses::default(), view: None }
    }

    fn renew(&mut self, site: Site) {
        self.followed.advance(site.present());
        self.site = site;
    }

    /// Returns its response, or `None` while it waits for a change.
    fn answer(&mut self, request: &Request) -> Result<Option<(String, Vec<u8>)>, UpdateError> {
        let input = request.document.as_ref().map(|(_, document)| serde_json::from_slice::<Json>(document).unwrap());
        match (request.uri.strip_prefix(VIEW), input) {
            (None, Some(input)) => {
                assert_eq!(request.uri, "http://h/tips");
                let (view, answer) = View::open(&input, VIEW, client(), self.site.present(), &mut self.followed)?;
                self.view = Some(view);
                Ok(Some((TIPS.into(), answer.to_string().into_bytes())))
            }
            (Some("/ug"), Some(input)) => {
                let view = self.view.as_ref().ok_or(UpdateError::Unknown)?;
                let content = view.recommend(&input, &self.followed)?;
                Ok(Some((content.media_type.into(), content.body.to_vec())))
            }
            (Some(path), None) => {
                let view = self.view.as_ref().ok_or(UpdateError::Unknown)?;
                let (from, to) = edge_numbers(path.trim_start_matches('/')).unwrap();
                let accepts = |media_type: &str| {
                    let essence = media_type.split(';').next().unwrap();
                    request.accept.contains(essence)
                };
                Ok(match view.edge(from, to, accepts, &self.followed)? {
                    Edge::Document(content) => Some((content.media_type.into(), content.body.to_vec())),
                    Edge::NotYet => None,
                })
            }
            (path, input) => panic!("{path:?} {input:?}"),
        }
    }

    /// Sends requests until the server waits for a change; returns the number of changes received.
    fn follow(&mut self, viewing: &mut ViewFollower) -> usize {
        let mut changes = 0;
        for _ in 0..100 {
            match self.answer(&viewing.next_request()) {
                Ok(None) => {
                    assert!(viewing.waits());
                    return changes;
                }
                Ok(Some((media_type, body))) => {
                    changes += usize::from(viewing.take("http://h/tips", &media_type, &body).unwrap().is_some());
                }
                Err(_) => assert!(viewing.note_refusal()),
            }
        }
        panic!("it asks for ever: {viewing:?}")
    }
}

fn viewing(name: &str) -> ViewFollower {
    Site::with(5, "64500 64501").client_directory().view(name, targets()[name].clone()).unwrap()
}

#[track_caller]
fn expect_answer(viewing: &ViewFollower, server: &Server) {
    assert_eq!(viewing.held.document().unwrap().parts, server.site.answer(&viewing.target), "{}", viewing.name);
}

#[test]
fn t3_who_follows_a_view_has_what_who_asks_gets() {
    for name in ["a map", "a.b", "ways"] {
        let (mut server, mut viewing) = (Server::new(), viewing(name));
        assert_eq!(server.follow(&mut viewing), 1, "{name}");
        expect_answer(&viewing, &server);
        for (cost, as_path) in [(6, "64500"), (7, "64500 64502"), (7, "64500 64502")] {
            server.renew(Site::with(cost, as_path));
            server.follow(&mut viewing);
            expect_answer(&viewing, &server);
        }
    }
}

#[test]
fn t4_who_was_away_takes_the_edge_that_there_is() {
    let (mut server, mut viewing) = (Server::new(), viewing("a.b"));
    server.follow(&mut viewing);
    for cost in 6..200 {
        server.renew(Site::with(cost, "64500"));
    }
    assert!(matches!(server.answer(&viewing.next_request()), Err(UpdateError::Gone)), "else this proves nothing");
    assert_eq!(server.follow(&mut viewing), 1);
    expect_answer(&viewing, &server);
}

#[test]
fn t6_a_view_that_was_closed_is_opened_anew() {
    let (mut server, mut viewing) = (Server::new(), viewing("a.b"));
    server.follow(&mut viewing);
    assert_eq!(viewing.view(), Some(VIEW));
    server.view = None;
    server.renew(Site::with(6, "64500"));
    assert_eq!(server.follow(&mut viewing), 1);
    expect_answer(&viewing, &server);
    viewing.step = NextRequest::Open;
    assert!(!viewing.note_refusal(), "nothing else can be asked");
}

#[test]
fn what_a_careless_server_says_leads_on_and_never_round_in_silence() {
    let open = |answer: &Json| viewing("a.b").take("http://h/tips", TIPS, answer.to_string().as_bytes());
    let summary = |from: u64, to: u64| {
        let edge = json!({ "seq-i": from, "seq-j": to });
        json!({ "updates-graph-summary": { "start-edge-rec": edge } })
    };
    for answer in [
        json!({}),
        json!({ "tips-view-uri": "mailto:x", "tips-view-summary": summary(0, 1) }),
        json!({ "tips-view-uri": "v" }),
        json!({ "tips-view-uri": "v", "tips-view-summary": summary(1, 1) }),
        json!({ "tips-view-uri": "v", "tips-view-summary": summary(3, 4) }),
    ] {
        assert!(matches!(open(&answer), Err(ClientError::Malformed { .. })), "{answer}");
    }
    let mut viewing = viewing("a.b");
    let answer = json!({ "tips-view-uri": "v/", "tips-view-summary": summary(0, 1) });
    viewing.take("http://h/a/tips", TIPS, answer.to_string().as_bytes()).unwrap();
    assert_eq!(viewing.next_request().uri, "http://h/a/v/ug/0/1");
    for (media_type, body) in [(MERGE_PATCH, "{}"), (media::COST_MAP, "<html>")] {
        viewing.step = NextRequest::Edge("http://h/v".into(), 0, 1);
        assert!(viewing.take("http://h/v/ug/0/1", media_type, body.as_bytes()).is_err());
        assert_eq!(viewing.next_request().uri, "http://h/v/ug", "it asks where to go on");
    }
}
