//! Streams of this crate's own server, and of misbehaving ones.

use std::net::IpAddr;

use towpath_alto::{agent_state::AgentState, directory, network_state::NetworkState, resource::AltoResponse};

use towpath_alto_server::updates::{self, CurrentNetwork, EventChunk, FollowedResponses};

use super::*;
use crate::{Directory, EventReader};

/// A network state and its directory.
pub(crate) struct Site {
    network_state: NetworkState,
    directory: directory::Directory,
}

impl Site {
    /// Returns a site with the given cost, whose path to the other end has this AS path.
    pub(crate) fn with(cost: u32, as_path: &str) -> Self {
        let facts = format!(
            r#"
            [network-map.default]
            CERN = ["137.138.0.0/16"]
            elsewhere = ["0.0.0.0/0", "::/0"]
            [cost-map.default.routingcost]
            CERN = {{ CERN = 1, elsewhere = {cost} }}
            [routers."ex2j.cern.ch"]
            default = true
            routes = [{{ prefix = "134.158.84.0/24", next-hop = "192.65.184.145", as-path = "{as_path}" }}]
            "#
        );
        let network_state = NetworkState::of([&AgentState::parse(&facts).unwrap()]).unwrap();
        let (directory, _) = directory::Directory::of(&network_state);
        Self { network_state, directory }
    }

    pub(crate) fn present(&self) -> CurrentNetwork<'_> {
        CurrentNetwork { network_state: &self.network_state, directory: &self.directory }
    }

    /// Returns the directory as parsed by a client.
    pub(crate) fn client_directory(&self) -> Directory {
        let document = self.directory.answer(&self.network_state, |id| format!("./{id}"));
        Directory::parse("http://h/directory", &document.body).unwrap()
    }

    /// Returns the response to a direct request.
    pub(crate) fn answer(&self, target: &FollowTarget) -> Vec<super::super::Part> {
        let resource = self.directory.find(&target.resource).unwrap();
        let input = target.input.clone().unwrap_or_default();
        let AltoResponse { media_type, body, .. } = resource.answer(&self.network_state, &input, client()).unwrap();
        Document::parse(&target.resource, "http://h/", media_type, &body).unwrap().parts
    }
}

pub(crate) fn client() -> IpAddr {
    "137.138.0.1".parse().unwrap()
}

/// Responses of each form: with a version tag, without one, and multipart.
pub(crate) fn targets() -> BTreeMap<String, FollowTarget> {
    let ways = json!({
        "cost-type": { "cost-mode": "array", "cost-metric": "ane-path" },
        "endpoints": { "srcs": ["ipv4:137.138.0.1"], "dsts": ["ipv4:134.158.84.23"] },
        "ane-property-names": [],
    });
    let targets =
        [("a map", "default", None), ("a.b", "default-routingcost", None), ("ways", "path-vector", Some(ways))];
    let targets =
        targets.map(|(name, resource, input)| (name.to_owned(), FollowTarget { resource: resource.into(), input }));
    targets.into()
}

/// Encodes events and decodes them with the client.
fn read(events: &[updates::Event]) -> Vec<Event> {
    let mut reader = EventReader::default();
    let pieces = events.iter().flat_map(|event| event.pieces().into_iter().map(move |piece| (event, piece)));
    let bytes = pieces.flat_map(|(event, piece)| match piece {
        EventChunk::Words(words) => words.into_bytes(),
        EventChunk::Document(range) => event.document()[range].to_vec(),
    });
    reader.read(&bytes.collect::<Vec<u8>>()).unwrap()
}

/// Opens a stream with the request of `following`.
fn open(following: &StreamFollower, site: &Site, followed: &mut FollowedResponses) -> (updates::Stream, Vec<Event>) {
    let request = following.request().unwrap();
    let mut stream = updates::Stream::open(&request, Some("x"), client(), site.present(), followed).unwrap();
    let events = news(&mut stream, followed);
    (stream, events)
}

/// Returns the pending events of a stream.
fn news(stream: &mut updates::Stream, followed: &FollowedResponses) -> Vec<Event> {
    read(&std::iter::from_fn(|| stream.next(followed)).collect::<Vec<_>>())
}

/// Returns the names of the responses that changed.
fn take(following: &mut StreamFollower, events: &[Event]) -> Vec<String> {
    let news = events.iter().flat_map(|event| following.take(event).unwrap());
    let names = news.map(|news| match news {
        FollowEvent::Changed { name, .. } => name,
        FollowEvent::Stopped { name, reason } => format!("-{name}: {reason}"),
    });
    names.collect()
}

#[track_caller]
fn expect_answers(following: &StreamFollower, site: &Site) {
    for substream in &following.substreams {
        let held = substream.held.document().expect("it was told");
        assert_eq!(held.parts, site.answer(&substream.target), "{}", substream.name);
    }
}

#[test]
fn s4_who_follows_a_stream_has_what_who_asks_gets() {
    let site = Site::with(5, "64500 64501");
    let mut following = site.client_directory().stream(targets()).unwrap();
    let mut followed = FollowedResponses::default();
    let (mut stream, events) = open(&following, &site, &mut followed);
    assert_eq!(take(&mut following, &events), ["a map", "ways", "a.b"], "what others depend on comes first");
    expect_answers(&following, &site);
    for (cost, as_path, changed) in [
        (6, "64500 64501", &["a.b"][..]),
        (6, "64500 64502", &["ways"]),
        (7, "64500 64502 64503", &["ways", "a.b"]),
        (7, "64500 64502 64503", &[]),
    ] {
        let site = Site::with(cost, as_path);
        followed.advance(site.present());
        let events = news(&mut stream, &followed);
        let names = take(&mut following, &events);
        assert_eq!(names, changed, "{cost} over {as_path}");
        expect_answers(&following, &site);
    }
}

#[test]
fn s3_after_a_lost_connection_nothing_is_missed() {
    let before = Site::with(5, "64500 64501");
    let mut following = before.client_directory().stream(targets()).unwrap();
    let mut followed = FollowedResponses::default();
    let (_, events) = open(&following, &before, &mut followed);
    take(&mut following, &events);
    let after = Site::with(6, "64500 64501");
    followed.advance(after.present());
    let (_, events) = open(&following, &after, &mut followed);
    assert!(following.request().unwrap()["add"]["0"]["tag"].is_string(), "the map has a tag of its own");
    assert_eq!(take(&mut following, &events), ["a.b"], "what came again is as it was");
    expect_answers(&following, &after);
}

fn event(name: &str, data: &str) -> Event {
    Event { event: name.to_owned(), data: data.to_owned(), ..Event::default() }
}

/// Follows a cost map that has been received.
fn costs() -> StreamFollower {
    let targets =
        BTreeMap::from([("a.b".to_owned(), FollowTarget { resource: "default-routingcost".into(), input: None })]);
    let mut following = Site::with(5, "64500").client_directory().stream(targets).unwrap();
    let update = event("application/alto-costmap+json,0", r#"{"cost-map": {"A": {"B": 1}}}"#);
    assert_eq!(take(&mut following, &[update]), ["a.b"]);
    following
}

#[test]
fn a_change_that_does_not_fit_has_the_answer_told_anew() {
    for (name, data) in [
        ("application/json-patch+json,0", r#"[{"op": "remove", "path": "/x"}]"#),
        ("application/json-patch+json,0", "[{"),
        ("application/merge-patch+json,0.part@h", "{}"),
        ("application/alto-costmap+json,0.part@h", "{}"),
        ("application/alto-costmap+json,0", "<html>"),
    ] {
        let mut following = costs();
        let error = following.take(&event(name, data)).unwrap_err();
        assert!(!error.is_caller_error(), "{name}: {error}");
        let change = event("application/merge-patch+json,0", r#"{"cost-map": {}}"#);
        assert!(following.take(&change).is_err(), "{name}: it has nothing that could be changed");
        assert_eq!(following.request().unwrap(), json!({ "add": { "0": { "resource-id": "default-routingcost" } } }));
    }
}

#[test]
fn a_part_may_be_told_whole() {
    let targets = BTreeMap::from([("ways".to_owned(), targets()["ways"].clone())]);
    let site = Site::with(5, "64500 64501");
    let mut following = site.client_directory().stream(targets).unwrap();
    let (_, events) = open(&following, &site, &mut FollowedResponses::default());
    take(&mut following, &events);
    let part = following.substreams[0].held.document().unwrap().parts[1].id.clone().unwrap();
    let update = event(&format!("application/alto-propmap+json,0.{part}"), r#"{"property-map": {}}"#);
    assert_eq!(take(&mut following, &[update]), ["ways"]);
    assert!(following.substreams[0].held.document().unwrap().properties().unwrap().is_empty());
}

#[test]
fn an_answer_that_grows_too_long_is_told_and_followed_no_longer() {
    let mut following = costs();
    let value = json!({ "cost-map": { "A": { "B": "x".repeat(MAX_ANSWER_BYTES) } } });
    let change = event("application/merge-patch+json,0", &value.to_string());
    assert_eq!(following.take(&change).unwrap_err(), ClientError::TooMuch { most_bytes: MAX_ANSWER_BYTES });
}

#[test]
fn s2_what_the_server_refuses_of_one_answer_leaves_the_others() {
    let mut following = Site::with(5, "64500").client_directory().stream(targets()).unwrap();
    let refusal =
        |field: &str| ErrorResponse::parse(json!({ "meta": { "code": "x", "field": field } }).to_string().as_bytes());
    let requests_of = |following: &StreamFollower| {
        let request = following.request().unwrap();
        let add = request["add"].as_object().unwrap().iter();
        add.map(|(number, entry)| format!("{number} {}", entry["resource-id"].as_str().unwrap())).collect::<Vec<_>>()
    };
    let all = requests_of(&following);
    for field in ["add", "add/7/input", "add/x", "remove/0", "0"] {
        assert!(following.without(&refusal(field)).is_none(), "{field}");
    }
    let mut one = following.without(&refusal("add/1/resource-id")).unwrap();
    assert_eq!(requests_of(&one), [all[1].replace('1', "0")], "it is asked for by itself");
    assert_eq!(requests_of(&following), [&*all[0], &*all[2]]);
    assert!(following.without(&refusal("add/1/resource-id")).is_none(), "it was not asked for again");
    assert!(one.without(&refusal("add/0/resource-id")).is_none(), "it is alone");
}

#[test]
fn what_is_about_nothing_that_is_followed_is_passed_over() {
    let mut following = costs();
    for name in ["application/alto-costmap+json,7", "application/alto-costmap+json,a.b", "x", "", ",", "a,b,-1"] {
        assert_eq!(following.take(&event(name, "{")), Ok(Vec::new()), "{name}");
    }
    let control = "application/alto-updatestreamcontrol+json";
    for data in ["", "[]", r#"{"control-uri": null}"#, r#"{"started": ["0"]}"#, r#"{"stopped": ["9", 0, "x"]}"#] {
        assert_eq!(following.take(&event(control, data)), Ok(Vec::new()), "{data}");
    }
}

#[test]
fn s6_what_the_server_stops_is_told_once_and_not_asked_for_again() {
    let mut following = costs();
    let stopped =
        event("application/alto-updatestreamcontrol+json", r#"{"stopped": ["0"], "description": "it is\ngone"}"#);
    assert_eq!(take(&mut following, &[stopped.clone(), stopped]), ["-a.b: it is gone"]);
    assert!(following.is_over() && following.next_request().is_none());
}
