//! Update streams (RFC 8895).

use super::*;

fn follow(resource: &str) -> Value {
    json!({ "resource-id": resource })
}

/// Map and costs, with names that sort against their dependency order.
fn both() -> Value {
    json!({ "add": { "map": follow("default"), "a-costs": follow("default-routingcost") } })
}

fn open(request: &Value, site: &Site, followed: &mut FollowedResponses) -> (Stream, Vec<Event>) {
    let mut stream = Stream::open(request, Some("/control/1"), client(), site.present(), followed).unwrap();
    let events = all(&mut stream, followed);
    (stream, events)
}

/// Returns the names of the events.
fn names(events: &[Event]) -> Vec<String> {
    let text = text(events);
    text.lines().filter_map(|line| line.strip_prefix("event: ")).map(str::to_owned).collect()
}

/// Returns the contents of the control events.
fn control_messages(events: &[Event]) -> Vec<Value> {
    let control = read(events).into_iter().filter(|(media_type, ..)| media_type == UPDATE_STREAM_CONTROL);
    control.map(|(.., data)| serde_json::from_str(&data).unwrap()).collect()
}

/// Returns the problem reported when opening a stream by `request`.
fn refused(request: &Value) -> (Code, String, String) {
    let site = Site::of(&example());
    wrong(Stream::open(request, None, client(), site.present(), &mut FollowedResponses::default()).unwrap_err())
}

#[test]
fn s1_a_directory_can_say_what_is_sent() {
    let site = Site::of(&example());
    let capabilities = stream_capabilities(site.directory.resources());
    assert_eq!(capabilities["support-stream-control"], true);
    let kinds = &capabilities["incremental-change-media-types"];
    assert_eq!(kinds["default"], "application/merge-patch+json,application/json-patch+json");
    assert_eq!(kinds["default-routingcost"], "application/merge-patch+json");
    assert_eq!(kinds.as_object().unwrap().len(), uses(site.directory.resources()).len());
}

#[test]
fn s2_what_is_wrong_with_a_request_is_named() {
    let add = |request: Value| json!({ "add": { "x": request } });
    for request in [json!({}), json!({ "add": {} })] {
        assert_eq!(refused(&request), (Code::MissingField, "add".into(), String::new()));
    }
    let unknown = (Code::InvalidFieldValue, "add/x/resource-id".into(), "no-such".into());
    assert_eq!(refused(&add(follow("no-such"))), unknown);
    assert_eq!(refused(&add(json!({}))), (Code::MissingField, "add/x/resource-id".into(), String::new()));
    assert_eq!(refused(&add(json!([]))), (Code::InvalidFieldType, "add/x".into(), String::new()));
    assert_eq!(refused(&json!({ "add": [] })), (Code::InvalidFieldType, "add".into(), String::new()));
    let tag = json!({ "resource-id": "default", "tag": 1 });
    assert_eq!(refused(&add(tag)), (Code::InvalidFieldType, "add/x/tag".into(), String::new()));
    let name = json!({ "add": { "a b": follow("default") } });
    assert_eq!(refused(&name), (Code::InvalidFieldValue, "add".into(), "a b".into()));
}

#[test]
fn s2_an_input_is_refused_as_the_resource_refuses_it() {
    let add = |input: Value| json!({ "add": { "x": { "resource-id": "default-filtered", "input": input } } });
    assert_eq!(refused(&add(json!({}))), (Code::MissingField, "add/x/input/pids".into(), String::new()));
    assert_eq!(refused(&add(json!(1))), (Code::InvalidFieldType, "add/x/input".into(), String::new()));
    let none = json!({ "add": { "x": follow("default-filtered") } });
    assert_eq!(refused(&none), (Code::MissingField, "add/x/input/pids".into(), String::new()));
}

#[test]
fn s2_a_stream_follows_128_answers() {
    let many = |count: usize| -> Value {
        let add = (0..count).map(|number| (format!("s{number}"), follow("default")));
        json!({ "add": Value::Object(add.collect()) })
    };
    let (code, field, value) = refused(&many(129));
    assert_eq!((code, &*field), (Code::InvalidFieldValue, "add"));
    assert!(value.starts_with("{\""), "{value}");
    let site = Site::of(&example());
    let mut followed = FollowedResponses::default();
    let (mut stream, events) = open(&many(128), &site, &mut followed);
    assert_eq!((events.len(), followed.len()), (129, 1));
    let one_more = json!({ "add": { "more": follow("default") } });
    assert!(stream.control(&one_more, site.present(), &mut followed).is_err());
}

#[test]
fn s3_a_stream_tells_its_control_uri_and_then_all_answers() {
    let site = Site::of(&example());
    let (_, events) = open(&both(), &site, &mut FollowedResponses::default());
    let first = "event: application/alto-updatestreamcontrol+json\ndata: {\"control-uri\":\"/control/1\"}\n\n";
    assert_eq!(text(&events[..1]), first);
    let expected = ["application/alto-networkmap+json,map", "application/alto-costmap+json,a-costs"];
    assert_eq!(names(&events[1..]), expected);
    let mut followed = FollowedResponses::default();
    let mut stream = Stream::open(&both(), None, client(), site.present(), &mut followed).unwrap();
    let events = all(&mut stream, &followed);
    assert_eq!(control_messages(&events), [json!({ "control-uri": null })]);
}

#[test]
fn s3_who_has_the_current_version_is_not_told_it() {
    let site = Site::of(&example());
    for (tag, events) in [(site.vtag(), 1), (site.tag("default"), 1), ("other".to_owned(), 2)] {
        let request = json!({ "add": { "map": { "resource-id": "default", "tag": tag } } });
        let mut followed = FollowedResponses::default();
        let (mut stream, first) = open(&request, &site, &mut followed);
        assert_eq!(first.len(), events, "{tag}");
        followed.advance(Site::of(&with_another_prefix(example())).present());
        let is_change = names(&all(&mut stream, &followed))[0].ends_with("-patch+json,map");
        assert_eq!(is_change, tag != site.vtag(), "{tag}: that of the map alone tells nothing of what is beside it");
    }
}

#[test]
fn s4_who_names_a_map_with_another_meta_has_what_who_asks_gets() {
    let mut stale = Site::of(&example());
    stale.network_state = stale.network_state.with_stale([("lhcone".to_owned(), "2026-11-23T21:40:00Z".to_owned())]);
    let site = Site::of(&example());
    assert_eq!(stale.vtag(), site.vtag());
    let request = json!({ "add": { "map": { "resource-id": "default", "tag": stale.vtag() } } });
    let mut followed = FollowedResponses::default();
    let mut reader = Reader::open(&request, &site, &mut followed);
    reader.held.insert("map".to_owned(), stale.answer("default", &Value::Null));
    let next = Site::of(&with_another_prefix(example()));
    followed.advance(next.present());
    reader.advance(&followed);
    assert_eq!(reader.held["map"], next.answer("default", &Value::Null));
}

#[test]
fn s4_costs_are_changed_as_in_rfc_8895() {
    let mut followed = FollowedResponses::default();
    let (mut stream, _) = open(&both(), &Site::of(&example()), &mut followed);
    assert!(followed.advance(Site::of(&with_other_costs(example())).present()));
    let patch = r#"{"cost-map":{"PID1":{"PID2":9},"PID3":{"PID1":null,"PID3":1}}}"#;
    let expected = format!("event: application/merge-patch+json,a-costs\ndata: {patch}\n\n");
    assert_eq!(text(&all(&mut stream, &followed)), expected);
    assert!(all(&mut stream, &followed).is_empty(), "it is told once");
    assert!(!followed.advance(Site::of(&with_other_costs(example())).present()), "an equal world is no news");
}

#[test]
fn s4_a_map_is_changed_as_in_rfc_8895_and_before_its_costs() {
    let mut followed = FollowedResponses::default();
    followed.allowed = |_| AllowedChanges { merge: false, json: true };
    let (mut stream, _) = open(&both(), &Site::of(&example()), &mut followed);
    let site = Site::of(&with_another_prefix(example()));
    followed.advance(site.present());
    let events = all(&mut stream, &followed);
    assert_eq!(names(&events), ["application/json-patch+json,map", "application/json-patch+json,a-costs"]);
    let operations: Value = serde_json::from_str(&read(&events)[0].2).unwrap();
    let expected = json!([
        { "op": "replace", "path": "/meta/vtag/tag", "value": site.vtag() },
        { "op": "add", "path": "/network-map/PID1/ipv4/2", "value": "203.0.113.0/25" },
    ]);
    assert_eq!(operations, expected);
}

#[test]
fn s4_who_takes_no_changes_gets_all() {
    let mut followed = FollowedResponses::default();
    let request = json!({ "resource-id": "default-routingcost", "incremental-changes": false });
    let (mut stream, _) = open(&json!({ "add": { "x": request } }), &Site::of(&example()), &mut followed);
    followed.advance(Site::of(&with_other_costs(example())).present());
    assert_eq!(names(&all(&mut stream, &followed)), ["application/alto-costmap+json,x"]);
}

#[test]
fn who_takes_nothing_keeps_no_more_than_one_answer_from_being_dropped() {
    let site = Site::of(&example());
    let mut followed = FollowedResponses::default();
    let request = json!({ "add": { "map": follow("default") } });
    let mut stream = Stream::open(&request, None, client(), site.present(), &mut followed).unwrap();
    let bytes = followed.byte_counter.bytes();
    for number in 0..100 {
        let name = format!("n{number}");
        // The field is meaningless but makes each input distinct.
        let input = json!({ "pids": [], "number": number });
        let add = json!({ (name.as_str()): { "resource-id": "default-filtered", "input": input } });
        stream.control(&json!({ "add": add }), site.present(), &mut followed).unwrap();
        stream.control(&json!({ "remove": [name] }), site.present(), &mut followed).unwrap();
        assert!(followed.byte_counter.bytes() <= 2 * bytes, "{number}");
    }
    followed.advance(site.present());
    assert_eq!(followed.byte_counter.bytes(), bytes);
    assert_eq!(control_messages(&all(&mut stream, &followed)).len(), 201, "what it says of itself waits, and is short");
}

#[test]
fn s4_what_changes_all_the_time_keeps_nothing_else_from_being_told() {
    let mut followed = FollowedResponses::default();
    let answers = json!({ "costs": follow("default-routingcost"), "map": follow("default") });
    let (mut stream, _) = open(&json!({ "add": answers }), &Site::of(&example()), &mut followed);
    let sites = [with_another_prefix(example()), example()].map(|facts| Site::of(&facts));
    let sent = sites.iter().cycle().take(8).map(|site| {
        followed.advance(site.present());
        names(&stream.next(&followed).into_iter().collect::<Vec<_>>()).remove(0)
    });
    let sent: Vec<String> = sent.collect();
    assert!(sent.iter().filter(|name| name.ends_with("costs")).count() > 2, "{sent:?}");
}

#[test]
fn s4_streams_share_what_they_follow() {
    let site = Site::of(&example());
    let mut followed = FollowedResponses::default();
    let request = |endpoints: Value| {
        let kind = json!({ "cost-mode": "numerical", "cost-metric": "routingcost" });
        let input = json!({ "cost-type": kind, "endpoints": endpoints });
        json!({ "add": { "x": { "resource-id": "endpoint-costs", "input": input } } })
    };
    let here = request(json!({ "dsts": ["ipv4:192.0.2.1"] }));
    let named = request(json!({ "srcs": ["ipv4:192.0.2.9"], "dsts": ["ipv4:192.0.2.1"] }));
    let streams: Vec<Stream> = [(&here, 1), (&named, 2), (&named, 2), (&here, 3)]
        .into_iter()
        .enumerate()
        .map(|(host, (request, expected))| {
            let client = IpAddr::from([192, 0, 2, u8::try_from(host).unwrap()]);
            let stream = Stream::open(request, None, client, site.present(), &mut followed).unwrap();
            assert_eq!(followed.len(), expected, "only who is meant by the answer has an own one");
            stream
        })
        .collect();
    drop(streams);
    followed.advance(site.present());
    assert_eq!(followed.len(), 0);
}

/// One path whose only link has this capacity.
fn with_capacity(bits_per_s: u64) -> Value {
    let mut facts = example();
    let route = json!({ "prefix": "198.51.100.0/24", "next-hop": "192.0.2.1", "as-path": "20965 2091" });
    facts["routers"] = json!({ "r": { "default": true, "routes": [route] } });
    facts["properties"] = json!({ ".ane:link:r-192_0_2_1": { "max-reservable-bandwidth": bits_per_s } });
    facts
}

#[test]
fn s5_a_change_touches_one_part() {
    let kind = json!({ "cost-mode": "array", "cost-metric": "ane-path" });
    let endpoints = json!({ "srcs": ["ipv4:192.0.2.2"], "dsts": ["ipv4:198.51.100.7"] });
    let names_asked = ["max-reservable-bandwidth"];
    let input = json!({ "cost-type": kind, "endpoints": endpoints, "ane-property-names": names_asked });
    let request = json!({ "add": { "ways": { "resource-id": "path-vector", "input": input } } });
    let mut followed = FollowedResponses::default();
    let (mut stream, events) = open(&request, &Site::of(&with_capacity(1_000_000)), &mut followed);
    let whole = "event: multipart/related;boundary=towpath-alto-part;type=\"application/alto-endpointcost+json\",ways\n\
        data: --towpath-alto-part\n\
        data: Content-Type: application/alto-endpointcost+json\n\
        data: Content-ID: <ecs@towpath.alto>\n\
        data: \n\
        data: {";
    assert!(text(&events[1..]).starts_with(whole), "{}", text(&events));
    assert!(text(&events).ends_with("\ndata: --towpath-alto-part--\n\n"));
    followed.advance(Site::of(&with_capacity(2_000_000)).present());
    let patch = r#"{"property-map":{".ane:link:r-192_0_2_1":{"max-reservable-bandwidth":2000000}}}"#;
    let expected = format!("event: application/merge-patch+json,ways.propmap@towpath.alto\ndata: {patch}\n\n");
    assert_eq!(text(&all(&mut stream, &followed)), expected);
}

#[test]
fn s6_a_stream_is_told_to_start_and_to_stop() {
    let site = Site::of(&example());
    let mut followed = FollowedResponses::default();
    let (mut stream, _) = open(&both(), &site, &mut followed);
    let mut control = |request: Value| {
        stream.control(&request, site.present(), &mut followed).unwrap();
        all(&mut stream, &followed)
    };
    let events = control(json!({ "add": { "b": follow("default-routingcost") }, "remove": ["map"] }));
    assert_eq!(control_messages(&events), [json!({ "started": ["b"] }), json!({ "stopped": ["map"] })]);
    assert_eq!(names(&events), [UPDATE_STREAM_CONTROL, UPDATE_STREAM_CONTROL, "application/alto-costmap+json,b"]);
    assert!(control(json!({ "remove": ["map"] })).is_empty(), "who removes twice is told nothing");
    assert_eq!(control_messages(&control(json!({ "remove": ["b"] }))), [json!({ "stopped": ["b"] })]);
    assert_eq!(followed.len(), 2, "what is removed is dropped with the next world");
    followed.advance(Site::of(&with_another_prefix(with_other_costs(example()))).present());
    assert_eq!(names(&all(&mut stream, &followed)).len(), 1);
    assert_eq!(followed.len(), 1);
}

#[test]
fn s6_a_wrong_control_request_changes_nothing() {
    let site = Site::of(&example());
    let mut followed = FollowedResponses::default();
    let (mut stream, _) = open(&both(), &site, &mut followed);
    stream.control(&json!({ "remove": ["map"] }), site.present(), &mut followed).unwrap();
    all(&mut stream, &followed);
    for (request, field, value) in [
        (json!({ "remove": ["a-costs", "other"] }), "remove", Some("other")),
        (json!({ "remove": ["a-costs", "x"], "add": { "x": follow("default") } }), "remove", Some("x")),
        (json!({ "remove": ["a-costs"], "add": { "a-costs": follow("default") } }), "add", Some("a-costs")),
        (json!({ "remove": ["a-costs"], "add": { "map": follow("default") } }), "add", Some("map")),
        (json!({ "remove": [], "add": { "x": follow("default") } }), "remove", Some("[]")),
        (json!({ "remove": ["a-costs"], "add": { "x": follow("x") } }), "add/x/resource-id", Some("x")),
        (json!({ "remove": [1] }), "remove", Some("1")),
        (json!({}), "add", None),
    ] {
        let Err(UpdateError::Problem(problem)) = stream.control(&request, site.present(), &mut followed) else {
            panic!("{request} was taken");
        };
        assert_eq!((problem.field.as_deref(), problem.value.as_deref()), (Some(field), value), "{request}");
    }
    assert!(all(&mut stream, &followed).is_empty());
    followed.advance(Site::of(&with_other_costs(example())).present());
    assert_eq!(names(&all(&mut stream, &followed)), ["application/merge-patch+json,a-costs"]);
}

#[test]
fn s6_names_are_used_once_and_there_is_an_end_of_them() {
    let site = Site::of(&example());
    let mut followed = FollowedResponses::default();
    let (mut stream, _) = open(&both(), &site, &mut followed);
    let mut turn = |number: usize| {
        let name = format!("n{number}");
        let add = json!({ "add": { (name.as_str()): follow("default") } });
        stream.control(&add, site.present(), &mut followed)?;
        stream.control(&json!({ "remove": [name] }), site.present(), &mut followed)
    };
    assert!((2..MAX_NAMES).all(|number| turn(number).is_ok()));
    assert_eq!(turn(MAX_NAMES).unwrap_err().status(), 400);
}

#[test]
fn s6_who_removes_all_closes_the_stream() {
    let site = Site::of(&example());
    let mut followed = FollowedResponses::default();
    for remove in [json!([]), json!(["a-costs", "map"])] {
        let (mut stream, _) = open(&both(), &site, &mut followed);
        stream.control(&json!({ "remove": remove }), site.present(), &mut followed).unwrap();
        let events = all(&mut stream, &followed);
        assert_eq!(control_messages(&events), [json!({ "stopped": ["a-costs", "map"] })]);
        assert!(stream.is_closed());
        let again = stream.control(&json!({ "remove": remove }), site.present(), &mut followed);
        assert_eq!(again.unwrap_err().status(), 404);
    }
}

#[test]
fn s6_who_removes_all_and_adds_something_goes_on() {
    let site = Site::of(&example());
    let mut followed = FollowedResponses::default();
    let (mut stream, _) = open(&both(), &site, &mut followed);
    let request = json!({ "remove": ["a-costs", "map"], "add": { "b": follow("default") } });
    stream.control(&request, site.present(), &mut followed).unwrap();
    assert!(!stream.is_closed());
}

#[test]
fn what_the_world_no_longer_has_stops() {
    let mut followed = FollowedResponses::default();
    let (mut stream, _) = open(&both(), &Site::of(&example()), &mut followed);
    let mut without_costs = example();
    without_costs["cost-map"] = json!({});
    followed.advance(Site::of(&without_costs).present());
    let events = all(&mut stream, &followed);
    assert_eq!(control_messages(&events)[0]["stopped"], json!(["a-costs"]));
    assert!(all(&mut stream, &followed).is_empty() && !stream.is_closed());
    followed.advance(Site::of(&json!({})).present());
    assert_eq!(control_messages(&all(&mut stream, &followed))[0]["stopped"], json!(["map"]));
    assert!(stream.is_closed(), "nothing is left to tell of");
}
