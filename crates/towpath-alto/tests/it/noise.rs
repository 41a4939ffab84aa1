//! Corrupted requests and responses are rejected or handled, and never cause a panic.

use std::net::IpAddr;

use proptest::prelude::*;
use serde_json::{Value, json};
use towpath_alto::{
    agent_state::AgentState,
    directory::Directory,
    fields, media,
    network_state::NetworkState,
    problem::{Code, Problem},
    resource::Resource,
};
use towpath_alto_client::Document;

/// A network state for which every kind of resource has content.
const FACTS: &str = r#"
    [network-map.default]
    PID1 = ["192.0.2.0/24", "2001:db8::/32"]
    PID2 = ["198.51.100.0/24"]
    PID3 = ["0.0.0.0/0", "::/0"]
    [cost-map.default.routingcost]
    PID1 = { PID1 = 1, PID2 = 5, PID3 = 10 }
    [cost-map.default.tput]
    PID1 = { PID2 = [7, 8] }
    [calendars.tput]
    start = "2026-01-01T00:00:00Z"
    time-interval-size = 3600
    number-of-intervals = 2
    [properties."ipv4:192.0.2.0/24"]
    "priv:continent" = "EU"
    [[costs]]
    src = "192.0.2.0/24"
    dst = "198.51.100.0/24"
    delay-ow = 5300
    [routers.r]
    default = true
    routes = [{ prefix = "198.51.100.0/24", next-hop = "203.0.113.1", as-path = "64500 64501" }]
"#;

fn network_state() -> (NetworkState, Directory) {
    let network_state = NetworkState::of([&AgentState::parse(FACTS).unwrap()])
        .unwrap()
        .compatible("openalto".parse().unwrap())
        .unwrap();
    let (directory, _) = Directory::of(&network_state);
    (network_state, directory)
}

/// Words of requests, valid and invalid.
fn any_word() -> impl Strategy<Value = String> {
    prop_oneof![
        8 => prop::sample::select(vec![
            "PID1", "PID9", "ipv4:192.0.2.1", "ipv6:2001:db8::1", "ipv4:192.0.2.0/24", "ipv4:256.0.0.1", "pid:PID1",
            "default.pid", "priv:continent", ".ane:x", "routingcost", "delay-ow", "tput", "ane-path", "numerical",
            "ordinal", "array", "le 5", "[1] gt 3", "[9] eq", "ipv4", "max-reservable-bandwidth", "",
        ]).prop_map(str::to_owned),
        1 => any::<String>(),
    ]
}

/// A document with fields of requests, holding valid or arbitrary values.
fn any_request() -> impl Strategy<Value = Value> {
    let field = prop::sample::select(vec![
        "cost-type",
        "cost-mode",
        "cost-metric",
        "multi-cost-types",
        "testable-cost-types",
        "constraints",
        "or-constraints",
        "pids",
        "endpoints",
        "srcs",
        "dsts",
        "address-types",
        "properties",
        "entities",
        "calendared",
        "ane-property-names",
        "endpoint-flows",
        "pid-flows",
        "x",
    ]);
    let leaf = prop_oneof![
        6 => any_word().prop_map(Value::from),
        1 => any::<i64>().prop_map(Value::from),
        1 => any::<f64>().prop_map(Value::from),
        1 => any::<bool>().prop_map(Value::from),
        1 => Just(Value::Null),
    ];
    leaf.prop_recursive(4, 40, 5, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(field.clone().prop_map(str::to_owned), inner, 0..6)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

/// A valid request to a resource, as the starting point.
fn right_request(resource: &Resource) -> Value {
    let (routing, path) = (
        json!({ "cost-mode": "numerical", "cost-metric": "routingcost" }),
        json!({ "cost-mode": "array", "cost-metric": "ane-path" }),
    );
    let is_path = resource.media_type().starts_with("multipart");
    json!({
        "cost-type": if is_path { path } else { routing },
        "pids": if resource.accepts() == Some(media::NETWORK_MAP_FILTER) {
            json!(["PID1"])
        } else {
            json!({ "srcs": ["PID1"], "dsts": ["PID2"] })
        },
        "endpoints": if resource.accepts() == Some(media::ENDPOINT_PROPERTIES_PARAMS) {
            json!(["ipv4:192.0.2.1"])
        } else {
            json!({ "srcs": ["ipv4:192.0.2.1"], "dsts": ["ipv4:198.51.100.1"] })
        },
        "properties": ["default.pid"],
        "entities": ["ipv4:192.0.2.1"],
    })
}

/// Replaces the part of `request` at `path` by `other`.
fn garbled(request: &Value, path: &[prop::sample::Index], other: &Value) -> Value {
    let Some((first, rest)) = path.split_first() else { return other.clone() };
    let mut garbled = request.clone();
    let place = match &mut garbled {
        Value::Object(members) if !members.is_empty() => {
            let at = first.index(members.len());
            members.values_mut().nth(at)
        }
        Value::Array(elements) if !elements.is_empty() => {
            let at = first.index(elements.len());
            elements.get_mut(at)
        }
        _ => return other.clone(),
    };
    if let Some(place) = place {
        *place = self::garbled(place, rest, other);
    }
    garbled
}

/// Checks that a resource returns a well-formed response or one of the four errors.
fn check(network_state: &NetworkState, resource: &Resource, request: &Value) {
    let caller = IpAddr::from([192, 0, 2, 1]);
    match resource.answer(network_state, request, caller) {
        Ok(answer) => {
            let document = Document::parse(resource.id.as_str(), "http://h/x", answer.media_type, &answer.body);
            assert!(document.is_ok(), "{}: {request}: {document:?}", resource.id);
        }
        Err(problem) => assert!(is_just(request, &problem), "{}: {request}: {problem:?}", resource.id),
    }
}

/// Returns whether the problem is correct: a missing field is absent, and a field with a wrong type or value is present
/// and its value is reported.
fn is_just(request: &Value, problem: &Problem) -> bool {
    let Some(field) = &problem.field else {
        return problem.code == Code::Syntax && !request.is_object() && problem.value.is_none();
    };
    let found = field.split('/').try_fold(request, |within, name| within.get(name));
    match (problem.code, found, &problem.value) {
        (Code::MissingField, None, None) | (Code::InvalidFieldType, Some(_), None) => true,
        (Code::InvalidFieldValue, Some(found), Some(value)) => has(found, value),
        _ => false,
    }
}

/// Returns whether `text` is the text of a value or of a part of it, truncated as in errors.
fn has(found: &Value, text: &str) -> bool {
    let whole = found.as_str().map_or_else(|| found.to_string(), str::to_owned);
    let is_within = |within: &Value| has(within, text);
    whole.chars().take(256).eq(text.chars())
        || found.as_array().is_some_and(|elements| elements.iter().any(is_within))
        || found.as_object().is_some_and(|members| members.values().any(is_within))
}

#[test]
fn c3_what_garbling_begins_with_is_answered() {
    let (network_state, directory) = network_state();
    assert!(directory.resources().count() >= 14, "{directory:?}");
    for resource in directory.resources() {
        let answer = resource.answer(&network_state, &right_request(resource), IpAddr::from([192, 0, 2, 1]));
        assert!(answer.is_ok(), "{}: {answer:?}", resource.id);
    }
}

#[test]
fn c3_each_damage_has_its_code_and_its_field() {
    let (network_state, directory) = network_state();
    for resource in directory.resources() {
        let Some(accepts) = resource.accepts() else { continue };
        let (needed, list) = match accepts {
            media::NETWORK_MAP_FILTER => (&["pids"][..], "pids"),
            media::COST_MAP_FILTER => (&["cost-type"][..], "pids/srcs"),
            media::ENDPOINT_COST_PARAMS => (&["cost-type", "endpoints"][..], "endpoints/srcs"),
            media::ENDPOINT_PROPERTIES_PARAMS => (&["properties", "endpoints"][..], "endpoints"),
            media::PROPERTY_MAP_PARAMS => (&["entities"][..], "entities"),
            other => panic!("{other}"),
        };
        let right = right_request(resource);
        let problem_of = |request: &Value| {
            let problem = resource.answer(&network_state, request, IpAddr::from([192, 0, 2, 1])).unwrap_err();
            (problem.code, problem.field.unwrap_or_default(), problem.value)
        };
        for field in needed {
            let mut damaged = right.clone();
            damaged.as_object_mut().unwrap().remove(*field);
            assert_eq!(problem_of(&damaged), (Code::MissingField, (*field).to_owned(), None), "{}", resource.id);
            damaged[*field] = json!(7);
            assert_eq!(problem_of(&damaged), (Code::InvalidFieldType, (*field).to_owned(), None), "{}", resource.id);
        }
        let mut damaged = right.clone();
        *damaged.pointer_mut(&format!("/{list}")).unwrap() = json!(["a b"]);
        assert_eq!(
            problem_of(&damaged),
            (Code::InvalidFieldValue, list.to_owned(), Some("a b".into())),
            "{}",
            resource.id
        );
        if needed.contains(&"cost-type") {
            let mut damaged = right.clone();
            damaged["cost-type"]["cost-metric"] = json!("x");
            let expected = (Code::InvalidFieldValue, "cost-type/cost-metric".to_owned(), Some("x".to_owned()));
            assert_eq!(problem_of(&damaged), expected, "{}", resource.id);
        }
    }
}

proptest! {
    #[test]
    fn c3_garbled_requests_are_refused_or_answered(
        path in prop::collection::vec(any::<prop::sample::Index>(), 0..4),
        other in any_request(),
    ) {
        let (network_state, directory) = network_state();
        for resource in directory.resources() {
            check(&network_state, resource, &other);
            check(&network_state, resource, &garbled(&right_request(resource), &path, &other));
        }
    }

    #[test]
    fn c3_a_request_that_is_cut_is_none(cut in any::<prop::sample::Index>(), tail in "[\\[\\]:,a-z0-9 .-]{0,80}") {
        let (_, directory) = network_state();
        for resource in directory.resources() {
            let whole = right_request(resource).to_string();
            let cut = cut.index(whole.len());
            for bytes in [whole[..cut].to_owned(), format!("{whole}x{tail}"), format!("x{tail}{whole}")] {
                let problem = fields::parse(bytes.as_bytes()).unwrap_err();
                prop_assert_eq!((problem.code, problem.field, problem.value), (Code::Syntax, None, None));
            }
        }
    }

    #[test]
    fn v8_garbled_answers_are_read_or_refused(
        at in any::<prop::sample::Index>(),
        with in prop::collection::vec(any::<u8>(), 0..20),
        cut in any::<prop::sample::Index>(),
    ) {
        let (network_state, directory) = network_state();
        for resource in directory.resources() {
            let answer = resource.answer(&network_state, &right_request(resource), IpAddr::from([192, 0, 2, 1])).unwrap();
            let mut body = answer.body;
            let at = at.index(body.len());
            let end = (at + with.len()).min(body.len());
            body.splice(at..end, with.iter().copied());
            // Only termination matters.
            let _ = Document::parse(resource.id.as_str(), "http://h/x", answer.media_type, &body);
            let _ = Document::parse(resource.id.as_str(), "http://h/x", answer.media_type, &body[..cut.index(body.len() + 1)]);
        }
        let listing = directory.answer(&network_state, |id| format!("./{id}"));
        let _ = towpath_alto_client::Directory::parse("http://h/directory", &listing.body[..cut.index(listing.body.len() + 1)]);
    }
}
