//! Clients that see only the events sent to them, compared with the expected responses.

mod streams;
mod views;

use std::{cell::Cell, collections::BTreeMap, net::IpAddr, time::Duration};

use proptest::prelude::*;

use serde_json::{Value, json};

use super::*;
use towpath_alto::{
    agent_state::AgentState,
    media,
    patch::{AllowedChanges, Change},
    problem::Code,
    resource::Resource,
};

/// A network state and its directory.
struct Site {
    network_state: NetworkState,
    directory: Directory,
}

impl Site {
    fn of(facts: &Value) -> Self {
        let network_state = NetworkState::of([&AgentState::parse(&facts.to_string()).unwrap()]).unwrap();
        let (directory, _) = Directory::of(&network_state);
        Self { network_state, directory }
    }

    fn present(&self) -> CurrentNetwork<'_> {
        CurrentNetwork { network_state: &self.network_state, directory: &self.directory }
    }

    /// Returns the documents of the response to a request.
    fn answer(&self, resource: &str, input: &Value) -> Parts {
        let answer = self.directory.find(resource).unwrap().answer(&self.network_state, input, client()).unwrap();
        parts(answer.media_type, &String::from_utf8(answer.body).unwrap())
    }

    /// Returns the tag of the response bytes to a GET.
    fn tag(&self, resource: &str) -> String {
        let answer =
            self.directory.find(resource).unwrap().answer(&self.network_state, &Value::Null, client()).unwrap();
        answer.tag.to_string()
    }

    /// Returns the tag in the `meta` of the network map.
    fn vtag(&self) -> String {
        self.answer("default", &Value::Null)[""]["meta"]["vtag"]["tag"].as_str().unwrap().to_owned()
    }
}

fn client() -> IpAddr {
    "192.0.2.2".parse().unwrap()
}

/// The maps of RFC 7285 §11.2.1.7 and §11.2.3.7.
fn example() -> Value {
    json!({
        "network-map": { "default": {
            "PID1": ["192.0.2.0/24", "198.51.100.0/25"],
            "PID2": ["198.51.100.128/25"],
            "PID3": ["0.0.0.0/0", "::/0"],
        }},
        "cost-map": { "default": { "routingcost": {
            "PID1": { "PID1": 1, "PID2": 5, "PID3": 10 },
            "PID2": { "PID1": 5, "PID2": 1, "PID3": 15 },
            "PID3": { "PID1": 20, "PID2": 15 },
        }}},
    })
}

/// Changes the costs as in the example of RFC 8895.
fn with_other_costs(mut facts: Value) -> Value {
    let costs = &mut facts["cost-map"]["default"]["routingcost"];
    costs["PID1"]["PID2"] = json!(9);
    costs["PID3"] = json!({ "PID2": 15, "PID3": 1 });
    facts
}

/// Adds a prefix to the network map.
fn with_another_prefix(mut facts: Value) -> Value {
    facts["network-map"]["default"]["PID1"] = json!(["192.0.2.0/24", "198.51.100.0/25", "203.0.113.0/25"]);
    facts
}

/// Documents of a response by `Content-ID`; the empty string for a single document.
type Parts = BTreeMap<String, Value>;

/// Splits a response into documents. Lines may end as in MIME or as in events.
fn parts(media_type: &str, body: &str) -> Parts {
    if !media_type.starts_with("multipart/related;") {
        return Parts::from([(String::new(), serde_json::from_str(body).unwrap())]);
    }
    let parts = body.split("--towpath-alto-part").filter_map(|part| part.split_once("Content-ID: <"));
    let parts = parts.map(|(_, part)| part.split_once('>').unwrap());
    parts.map(|(id, document)| (id.to_owned(), serde_json::from_str(document.trim()).unwrap())).collect()
}

/// Applies received content to a response.
fn take_over(held: &mut Parts, media_type: &str, part: &str, body: &str) {
    if !media_type.ends_with("-patch+json") {
        *held = parts(media_type, body);
        return;
    }
    let change = Change::of(media_type, serde_json::from_str(body).unwrap()).unwrap();
    let old = held.remove(part).unwrap();
    held.insert(part.to_owned(), change.apply(old).unwrap());
}

/// Returns all pending events of a stream.
fn all(stream: &mut Stream, followed: &FollowedResponses) -> Vec<Event> {
    std::iter::from_fn(|| stream.next(followed)).collect()
}

/// Returns the events as text on the wire.
fn text(events: &[Event]) -> String {
    let mut text = Vec::new();
    for event in events {
        for piece in event.pieces() {
            match piece {
                EventChunk::Words(words) => text.extend_from_slice(words.as_bytes()),
                EventChunk::Document(range) => text.extend_from_slice(&event.document()[range]),
            }
        }
    }
    String::from_utf8(text).unwrap()
}

/// Parses events as a client does: media type, data ID, and data.
fn read(events: &[Event]) -> Vec<(String, String, String)> {
    let text = text(events);
    let read = text.split_terminator("\n\n").map(|event| {
        let (first, data) = event.split_once('\n').unwrap();
        let name = first.strip_prefix("event: ").unwrap();
        let (media_type, data_id) = name.rsplit_once(',').unwrap_or((name, ""));
        let lines: Vec<&str> = data.lines().map(|line| line.strip_prefix("data: ").unwrap()).collect();
        (media_type.to_owned(), data_id.to_owned(), lines.join("\n"))
    });
    read.collect()
}

/// All kinds of responses: the substream name, resource and input of each.
fn everything() -> Vec<(&'static str, &'static str, Value)> {
    let numerical = json!({ "cost-mode": "numerical", "cost-metric": "routingcost" });
    let paths = json!({ "cost-mode": "array", "cost-metric": "ane-path" });
    let endpoints = json!({ "srcs": ["ipv4:192.0.2.2", "ipv4:203.0.113.7"], "dsts": ["ipv4:198.51.100.7"] });
    let here = json!({ "dsts": ["ipv4:192.0.2.200", "ipv4:198.51.100.7"] });
    let pids = json!({ "srcs": ["PID1"], "dsts": [] });
    vec![
        ("a-costs", "default-routingcost", Value::Null),
        ("ends", "endpoint-costs", json!({ "cost-type": numerical, "endpoints": here })),
        ("filtered", "default-costs", json!({ "multi-cost-types": [numerical], "pids": pids })),
        ("map", "default", Value::Null),
        ("ranks", "default-routingcost-ordinal", Value::Null),
        ("some", "properties-filtered", json!({ "entities": ["ipv4:192.0.2.1"], "properties": [] })),
        ("things", "properties", Value::Null),
        ("ways", "path-vector", json!({ "cost-type": paths, "endpoints": endpoints })),
    ]
}

/// A request that follows everything.
fn for_everything(takes_changes: bool) -> Value {
    let add = everything().into_iter().map(|(name, resource, input)| {
        let mut request = json!({ "resource-id": resource, "incremental-changes": takes_changes });
        if !input.is_null() {
            request["input"] = input;
        }
        (name.to_owned(), request)
    });
    json!({ "add": Value::Object(add.collect()) })
}

/// A stream's client and the documents it holds.
struct Reader {
    stream: Stream,
    held: BTreeMap<String, Parts>,
}

impl Reader {
    fn open(request: &Value, site: &Site, followed: &mut FollowedResponses) -> Self {
        let stream = Stream::open(request, None, client(), site.present(), followed).unwrap();
        let mut reader = Self { stream, held: BTreeMap::new() };
        reader.advance(followed);
        reader
    }

    fn advance(&mut self, followed: &FollowedResponses) {
        let events = all(&mut self.stream, followed);
        self.read(&events);
    }

    fn read(&mut self, events: &[Event]) {
        for (media_type, data_id, data) in read(events) {
            let (name, part) = data_id.split_once('.').unwrap_or((data_id.as_str(), ""));
            if !name.is_empty() {
                take_over(self.held.entry(name.to_owned()).or_default(), &media_type, part, &data);
            }
        }
    }

    fn check(&mut self, site: &Site, followed: &FollowedResponses) {
        self.advance(followed);
        for (name, resource, input) in everything() {
            assert_eq!(self.held[name], site.answer(resource, &input), "{name}");
        }
    }
}

/// Checks that every walk through the graph of a view ends at the current document.
fn check_walks(view: &View, expected: &Parts, followed: &FollowedResponses) {
    let answer = view.recommend(&json!({ "resource-id": view.resource() }), followed).unwrap();
    let answer: Value = serde_json::from_slice(&answer.body).unwrap();
    let graph = &answer["tips-view-summary"]["updates-graph-summary"];
    let number = |name: &str| graph[name].as_u64().unwrap();
    let (start, end) = (number("start-seq"), number("end-seq"));
    let edge = |from, to| view.edge(from, to, |_| true, followed);
    assert!(edge(0, start).is_ok() && edge(0, end).is_ok());
    assert_eq!(edge(end, end + 1), Ok(Edge::NotYet));
    for first in start..=end {
        let Ok(Edge::Document(whole)) = edge(0, first) else { continue };
        let mut held = Parts::new();
        take(&mut held, &whole);
        for at in first..end {
            let Ok(Edge::Document(next)) = edge(at, at + 1) else { panic!("no edge from {at}") };
            take(&mut held, &next);
        }
        assert_eq!(held, *expected, "from {first} to {end}");
    }
}

fn take(held: &mut Parts, content: &Content) {
    take_over(held, content.media_type, "", std::str::from_utf8(&content.body).unwrap());
}

/// Owner of each prefix, costs between PIDs, a property, and a route. Any sequence of these is a sequence of network
/// states.
type Draw = (Vec<usize>, Vec<Option<u8>>, usize, usize);

fn draw() -> impl Strategy<Value = Draw> {
    let costs = prop::collection::vec(prop::option::of(0..5_u8), 9);
    (prop::collection::vec(0..3_usize, 4), costs, 0..4_usize, 0..4_usize)
}

fn drawn((owners, costs, property, way): &Draw) -> Value {
    let mut pids = [vec![], vec![], vec!["0.0.0.0/0", "::/0"]];
    for (owner, prefix) in owners.iter().zip(["192.0.2.0/25", "192.0.2.128/25", "198.51.100.0/25", "203.0.113.0/24"]) {
        pids[*owner].push(prefix);
    }
    let names = ["PID1", "PID2", "PID3"];
    let row = |row: usize| -> Value {
        let cells = names.iter().zip(&costs[3 * row..]);
        Value::Object(cells.filter_map(|(name, cost)| Some(((*name).to_owned(), (*cost)?.into()))).collect())
    };
    let country = &[json!(null), json!("CH"), json!("FR"), json!({ "is": null })][*property];
    let route = |prefix: &str, as_path: &str| json!({ "prefix": prefix, "next-hop": "192.0.2.1", "as-path": as_path });
    let far = route("198.51.100.0/24", ["20965", "20965 2091", "20965 24167 7539 1659", ""][*way]);
    json!({
        "network-map": { "default": { "PID1": pids[0], "PID2": pids[1], "PID3": pids[2] } },
        "cost-map": { "default": { "routingcost": { "PID1": row(0), "PID2": row(1), "PID3": row(2) } } },
        "properties": { "ipv4:192.0.2.0/24": { "country": country } },
        "routers": { "r": { "default": true, "routes": [far, route("192.0.2.0/24", "64500")] } },
    })
}

/// Returns the code, field and value of a problem.
fn wrong(refusal: UpdateError) -> (Code, String, String) {
    let UpdateError::Problem(problem) = refusal else { panic!("no request is wrong because of that") };
    (problem.code, problem.field.unwrap_or_default(), problem.value.unwrap_or_default())
}

/// Every set of kinds of changes.
const KINDS: [fn(&Resource) -> AllowedChanges; 5] = [
    allowed_changes,
    |_| AllowedChanges::BOTH,
    |_| AllowedChanges { merge: true, json: false },
    |_| AllowedChanges { merge: false, json: true },
    |_| AllowedChanges { merge: false, json: false },
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn s4_who_reads_a_stream_has_what_who_asks_gets(
        draws in prop::collection::vec(draw(), 1..7),
        kind in 0..5_usize,
        versions in 1..6_usize,
    ) {
        let mut followed = FollowedResponses::new(Limits { versions, ..Limits::default() });
        followed.allowed = KINDS[kind];
        let site = Site::of(&drawn(&draws[0]));
        let mut readers = [true, false].map(|takes| Reader::open(&for_everything(takes), &site, &mut followed));
        let mut slow = Reader::open(&for_everything(true), &site, &mut followed);
        prop_assert_eq!(followed.len(), everything().len());
        for (number, draw) in draws.iter().enumerate() {
            let site = Site::of(&drawn(draw));
            followed.advance(site.present());
            readers.iter_mut().for_each(|reader| reader.check(&site, &followed));
            if number % 3 == 2 {
                slow.check(&site, &followed);
            }
        }
    }

    #[test]
    fn t5_every_walk_through_a_graph_ends_at_what_who_asks_gets(
        draws in prop::collection::vec(draw(), 1..9),
        kind in 0..5_usize,
        versions in 1..6_usize,
        snapshots_apart in 1..4_u64,
    ) {
        let mut followed = FollowedResponses::new(Limits { versions, snapshots_apart, ..Limits::default() });
        followed.allowed = KINDS[kind];
        let site = Site::of(&drawn(&draws[0]));
        let open = |(_, resource, input): (&str, &str, Value)| {
            let mut request = json!({ "resource-id": resource });
            if !input.is_null() {
                request["input"] = input.clone();
            }
            let (view, _) = View::open(&request, "/view", client(), site.present(), &mut followed).unwrap();
            (view, resource.to_owned(), input)
        };
        let views: Vec<_> = everything().into_iter().map(open).collect();
        for draw in &draws {
            let site = Site::of(&drawn(draw));
            followed.advance(site.present());
            for (view, resource, input) in &views {
                check_walks(view, &site.answer(resource, input), &followed);
            }
        }
    }
}

#[test]
fn what_ended_is_dropped_and_so_is_what_nobody_follows() {
    let mut followed = FollowedResponses::default();
    let site = Site::of(&example());
    let request = json!({ "resource-id": "default-routingcost" });
    let open =
        |followed: &mut FollowedResponses| View::open(&request, "/view", client(), site.present(), followed).unwrap().0;
    let (one, other) = (open(&mut followed), open(&mut followed));
    assert_eq!(followed.len(), 1);
    drop(one);
    followed.advance(site.present());
    assert_eq!(followed.len(), 1);
    drop(other);
    followed.advance(site.present());
    assert_eq!(followed.len(), 0);
    let ended = open(&mut followed);
    followed.advance(Site::of(&json!({})).present());
    assert_eq!(followed.len(), 0);
    let again = open(&mut followed);
    assert_eq!(ended.edge(0, 1, |_| true, &followed), Err(UpdateError::Unknown), "another one has taken its place");
    assert!(again.edge(0, 1, |_| true, &followed).is_ok());
}

#[test]
fn what_is_followed_has_an_end() {
    let site = Site::of(&example());
    let mut followed = FollowedResponses::default();
    followed.most_bytes = 1;
    let open = |resource: &str, followed: &mut FollowedResponses| {
        View::open(&json!({ "resource-id": resource }), "/view", client(), site.present(), followed)
    };
    let (map, _) = open("default", &mut followed).unwrap();
    assert!(open("default", &mut followed).is_ok(), "what is followed already takes nothing more");
    assert_eq!(open("properties", &mut followed).unwrap_err(), UpdateError::TooMany);
    let add = json!({ "add": { "x": { "resource-id": "properties" } } });
    let refused = Stream::open(&add, None, client(), site.present(), &mut followed).unwrap_err();
    assert_eq!(refused.status(), 429);
    drop(map);
    assert!(open("properties", &mut followed).is_ok());
}

#[test]
fn what_takes_long_to_make_has_an_end() {
    thread_local! {
        static LOOKS: Cell<u64> = const { Cell::new(0) };
    }
    // Makes each response take one second.
    let clock = || Duration::from_secs(LOOKS.replace(LOOKS.get() + 1));
    let site = Site::of(&example());
    let mut followed = FollowedResponses::default().with_clock(clock);
    let mut open = |number: u64| {
        let request = json!({ "resource-id": "default-filtered", "input": { "pids": [], "number": number } });
        View::open(&request, "/view", client(), site.present(), &mut followed)
    };
    let mut views: Vec<_> = (0..MAX_TIME.as_secs()).map(|number| open(number).unwrap()).collect();
    assert_eq!(open(MAX_TIME.as_secs()).unwrap_err(), UpdateError::TooMany);
    assert!(open(0).is_ok(), "what is followed already takes no more time");
    views.pop();
    assert!(open(MAX_TIME.as_secs()).is_ok());
}

#[test]
fn what_is_being_sent_counts_until_it_is_sent() {
    let site = Site::of(&example());
    let mut followed = FollowedResponses::default();
    let bytes = site.answer("default", &Value::Null)[""].to_string().len();
    followed.most_bytes = bytes;
    let request = json!({ "add": { "x": { "resource-id": "default" } } });
    let mut begin = || {
        let mut stream = Stream::open(&request, None, client(), site.present(), &mut followed)?;
        Ok(all(&mut stream, &followed))
    };
    let (one, other): (Result<_, UpdateError>, _) = (begin(), begin());
    assert!(one.is_ok() && other.is_ok());
    assert_eq!(begin().unwrap_err(), UpdateError::TooMany, "nobody follows it, but it is twice in memory");
    drop(one);
    assert!(begin().is_ok());
}

#[test]
fn earlier_versions_share_what_there_is() {
    let mut followed = FollowedResponses::default();
    let site = Site::of(&example());
    let request = json!({ "resource-id": "default-routingcost" });
    let (view, _) = View::open(&request, "/view", client(), site.present(), &mut followed).unwrap();
    followed.advance(Site::of(&with_other_costs(example())).present());
    assert!(view.edge(1, 2, |_| true, &followed).is_ok());
    followed.most_bytes = 1;
    followed.advance(Site::of(&with_other_costs(example())).present());
    assert_eq!(view.edge(1, 2, |_| true, &followed), Err(UpdateError::Gone));
    assert!(view.edge(0, 2, |_| true, &followed).is_ok());
}

#[test]
fn fields_of_an_input_have_no_order() {
    let site = Site::of(&example());
    let mut followed = FollowedResponses::default();
    let views = [r#"{"pids": [], "address-types": []}"#, r#"{"address-types":[],"pids":[]}"#].map(|input| {
        let input: Value = serde_json::from_str(input).unwrap();
        let request = json!({ "resource-id": "default-filtered", "input": input });
        View::open(&request, "/view", client(), site.present(), &mut followed).unwrap()
    });
    assert_eq!((views.len(), followed.len()), (2, 1));
}
