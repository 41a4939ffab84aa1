//! Costs that vary over time.

use proptest::prelude::*;
use serde_json::{Value, json};
use towpath_alto::{agent_state::AgentState, directory::Directory, network_state::NetworkState, patch};

use super::{EXAMPLE, Site};

fn kind(metric: &str) -> Value {
    json!({ "cost-mode": "numerical", "cost-metric": metric })
}

fn site(facts: &Value) -> Site {
    Site::of(&facts.to_string())
}

/// The example with throughputs per quarter of a day, some of them constant.
fn quarters() -> Site {
    Site::of(&format!(
        r#"{EXAMPLE}
        [calendars.tput]
        start = "2026-01-05T00:00:00Z"
        time-interval-size = 21600
        number-of-intervals = 4
        [cost-map.default.tput]
        PID1 = {{ PID2 = [10, 20, 40, 30], PID3 = 8 }}
        PID2 = {{ PID1 = [1, 2, 3, 4] }}
        "#
    ))
}

/// Requests costs between PIDs from `quarters`.
fn ask(request: &Value) -> Value {
    quarters().post("default-costs", request).unwrap()
}

#[test]
fn k1_a_directory_says_what_is_told_over_time() {
    let routes = "[routers.r]\nroutes = [{ prefix = \"0.0.0.0/0\", next-hop = \"192.0.2.9\" }]\n";
    let calendar =
        "[calendars.hopcount]\nstart = \"2026-01-05T00:00:00Z\"\ntime-interval-size = 0.25\nnumber-of-intervals = 3\n";
    let site = Site::of(&format!("{EXAMPLE}\n{routes}{calendar}"));
    let capabilities = |resource: &str| site.directory.find(resource).unwrap().capabilities(&site.network_state);
    let expected = json!([
        { "cost-type-names": ["hopcount-numerical"], "time-interval-size": 0.25, "number-of-intervals": 3 },
    ]);
    for resource in ["default-costs", "endpoint-costs"] {
        assert_eq!(capabilities(resource)["calendar-attributes"], expected, "{resource}");
    }
    for resource in ["default-hopcount", "path-vector", "default-path-vector"] {
        assert_eq!(capabilities(resource).get("calendar-attributes"), None, "{resource} has no calendars");
    }
    let without = Site::example();
    let nothing = without.directory.find("endpoint-costs").unwrap().capabilities(&without.network_state);
    assert_eq!(nothing.get("calendar-attributes"), None);
}

#[test]
fn k1_the_example_of_rfc_8896_between_pids() {
    let costs = json!({
        "PID1": {
            "PID1": [1, 12, 14, 18, 14, 14, 14, 18, 19, 20, 11, 12],
            "PID2": [13, 4, 15, 16, 17, 18, 19, 20, 11, 12, 13, 14],
            "PID3": [20, 20, 18, 14, 12, 12, 14, 14, 12, 12, 14, 16],
        },
        "PID2": {
            "PID1": [17, 18, 19, 10, 11, 12, 13, 14, 15, 16, 17, 18],
            "PID2": [20, 20, 18, 16, 14, 14, 14, 16, 16, 16, 14, 16],
            "PID3": [20, 20, 18, 14, 12, 12, 14, 14, 12, 12, 14, 16],
        },
    });
    let site = site(&json!({
        "network-map": { "default": { "PID1": ["192.0.2.0/24"], "PID2": ["198.51.100.0/24"], "PID3": ["0.0.0.0/0", "::/0"] } },
        "cost-map": { "default": { "throughputrating": costs } },
        "calendars": { "throughputrating": {
            "start": "2019-07-01T13:00:00Z", "time-interval-size": 7200, "number-of-intervals": 12,
        } },
    }));
    let request = json!({
        "cost-type": kind("throughputrating"),
        "calendared": [true],
        "pids": { "srcs": ["PID1", "PID2"], "dsts": ["PID1", "PID2", "PID3"] },
    });
    let meta = json!({
        "dependent-vtags": [site.vtag()],
        "cost-type": kind("throughputrating"),
        "calendar-response-attributes": [{
            "calendar-start-time": "Mon, 01 Jul 2019 13:00:00 GMT", "time-interval-size": 7200, "number-of-intervals": 12,
        }],
    });
    let answer = site.post("default-costs", &request).unwrap();
    assert_eq!(answer, json!({ "meta": meta, "cost-map": costs }));
}

/// Data of the examples in RFC 8896 §5.2: destinations with routing costs of a day and delays of an hour.
fn day() -> [(&'static str, Value, Value); 4] {
    [
        (
            "ipv4:192.0.2.89",
            json!([
                100, 100, 100, 100, 100, 150, 200, 300, 300, 300, 300, 250, 250, 300, 300, 300, 300, 300, 400, 250,
                250, 200, 150, 150
            ]),
            json!([20, 400, 20, 80, 80, 90, 100, 90, 60, 40, 30, 20]),
        ),
        (
            "ipv4:198.51.100.34",
            json!([
                80, 80, 80, 80, 150, 150, 250, 400, 400, 450, 400, 200, 200, 350, 400, 400, 400, 350, 500, 200, 200,
                200, 100, 100
            ]),
            json!([20, 20, 50, 30, 30, 30, 30, 40, 40, 30, 20, 20]),
        ),
        (
            "ipv4:203.0.113.45",
            json!([
                300, 400, 250, 250, 200, 150, 150, 100, 100, 100, 100, 100, 100, 100, 100, 100, 100, 150, 200, 300,
                300, 300, 300, 250
            ]),
            json!([100, 90, 80, 60, 50, 50, 40, 40, 60, 90, 100, 80]),
        ),
        (
            "ipv6:2001:db8::10",
            json!([
                200, 250, 300, 300, 300, 300, 250, 300, 300, 300, 300, 350, 300, 400, 250, 150, 100, 100, 100, 150,
                200, 250, 250, 300
            ]),
            json!([40, 40, 40, 40, 50, 50, 50, 20, 10, 15, 30, 40]),
        ),
    ]
}

#[test]
fn k1_the_examples_of_rfc_8896_between_endpoints() {
    let costs = day().map(|(endpoint, routing, delays)| {
        let (_, address) = endpoint.split_once(':').unwrap();
        json!({ "src": "192.0.2.2", "dst": address, "routingcost": routing, "owdelay": delays })
    });
    let site = site(&json!({
        "costs": costs,
        "calendars": {
            "routingcost": {
                "start": "Sun, 30 Jun 2019 00:00:00 GMT", "time-interval-size": 3600, "number-of-intervals": 24, "repeated": 4,
            },
            "owdelay": { "start": "2019-07-01T13:00:00Z", "time-interval-size": 300, "number-of-intervals": 12 },
        },
    }));
    let endpoints = json!({ "srcs": ["ipv4:192.0.2.2"], "dsts": day().map(|(endpoint, ..)| endpoint) });
    let mut routing = json!({
        "calendar-start-time": "Sun, 30 Jun 2019 00:00:00 GMT",
        "time-interval-size": 3600,
        "number-of-intervals": 24,
        "repeated": 4,
    });

    let one = json!({ "cost-type": kind("routingcost"), "calendared": [true], "endpoints": endpoints });
    let row: Value = day().into_iter().map(|(endpoint, costs, _)| (endpoint.to_owned(), costs)).collect();
    let expected = json!({
        "meta": { "cost-type": kind("routingcost"), "calendar-response-attributes": [routing] },
        "endpoint-cost-map": { "ipv4:192.0.2.2": row },
    });
    assert_eq!(site.post("endpoint-costs", &one).unwrap(), expected);

    let types = json!([kind("routingcost"), kind("owdelay")]);
    let both = json!({
        "cost-type": {}, "multi-cost-types": types, "calendared": [true, true], "endpoints": endpoints,
    });
    routing["cost-type-names"] = json!(["routingcost-numerical"]);
    let delays = json!({
        "cost-type-names": ["owdelay-numerical"],
        "calendar-start-time": "Mon, 01 Jul 2019 13:00:00 GMT",
        "time-interval-size": 300,
        "number-of-intervals": 12,
    });
    let row: Value =
        day().into_iter().map(|(endpoint, costs, delays)| (endpoint.to_owned(), json!([costs, delays]))).collect();
    let expected = json!({
        "meta": { "cost-type": {}, "multi-cost-types": types, "calendar-response-attributes": [routing, delays] },
        "endpoint-cost-map": { "ipv4:192.0.2.2": row },
    });
    assert_eq!(site.post("endpoint-costs", &both).unwrap(), expected);
}

#[test]
fn k1_who_does_not_ask_is_told_the_cost_of_now() {
    const START_S: i64 = 1_767_571_200;
    let mut site = quarters();
    let plain = json!({ "cost-type": kind("tput") });
    let mut changes = Vec::new();
    for (hours, expected, next) in [
        (-1, json!([25, 2.5]), Some(0)),
        (0, json!([10, 1]), Some(6)),
        (5, json!([10, 1]), Some(6)),
        (6, json!([20, 2]), Some(12)),
        (23, json!([30, 4]), Some(24)),
        (24, json!([25, 2.5]), None),
    ] {
        site.network_state = site.network_state.at(START_S + 3600 * hours);
        let response = site.post("default-costs", &plain).unwrap();
        let expected = json!({ "PID1": { "PID2": expected[0], "PID3": 8 }, "PID2": { "PID1": expected[1] } });
        assert_eq!(response["cost-map"], expected, "{hours} hours later");
        assert_eq!(site.get("default-tput"), response);
        let tested = json!({ "cost-type": kind("tput"), "calendared": [true], "constraints": ["lt 3"] });
        let tested = site.post("default-costs", &tested).unwrap();
        assert_eq!(tested["cost-map"].get("PID2").is_some(), response["cost-map"]["PID2"]["PID1"].as_f64() < Some(3.0));
        assert_eq!(site.network_state.next_interval_s(), next.map(|next| START_S + 3600 * next), "{hours} hours later");
        let (_, violations) = Directory::of(&site.network_state);
        changes.push(violations.first().map(|lack| lack.to_string().chars().take(29).collect::<String>()));
    }
    let (to_come, over) = ("calendars.tput has not starte", "calendars.tput has ended; the");
    assert_eq!(changes, [Some(to_come), None, None, None, None, Some(over)].map(|time| time.map(str::to_owned)));
}

#[test]
fn m3_ranks_are_those_of_the_time() {
    let calendar = json!({ "start": "1970-01-01T00:00:00Z", "time-interval-size": 60, "number-of-intervals": 2 });
    let mut site = site(&json!({
        "network-map": { "m": { "A": ["10.0.0.0/8"], "B": ["0.0.0.0/0"] } },
        "cost-map": { "m": { "delay-ow": { "A": { "A": 5, "B": [4, 6] } } } },
        "calendars": { "delay-ow": calendar },
    }));
    for (second, [near, far]) in [(0, [2, 1]), (60, [1, 2])] {
        site.network_state = site.network_state.at(second);
        assert_eq!(site.get("m-delay-ow-ordinal")["cost-map"], json!({ "A": { "A": near, "B": far } }));
        let region = site.network_state.region("m").unwrap();
        let universe = || region.universe(&"delay-ow".parse().unwrap()).unwrap();
        assert!(std::ptr::eq(universe(), universe()), "costs are put in order once");
    }
}

#[test]
fn k1_of_no_time_in_particular_the_mean_is_told() {
    let expected = json!({ "PID1": { "PID2": 25, "PID3": 8 }, "PID2": { "PID1": 2.5 } });
    let plain = ask(&json!({ "cost-type": kind("tput") }));
    assert_eq!(plain["cost-map"], expected);
    assert_eq!(plain["meta"].get("calendar-response-attributes"), None);
    assert_eq!(ask(&json!({ "cost-type": kind("tput"), "calendared": [false] })), plain);
    assert_eq!(quarters().get("default-tput"), plain, "a GET asks for no calendar");
    let ordinal = json!({ "cost-mode": "ordinal", "cost-metric": "tput" });
    let ranks = ask(&json!({ "cost-type": ordinal, "calendared": [true] }));
    assert_eq!(ranks["cost-map"], json!({ "PID1": { "PID2": 1, "PID3": 2 }, "PID2": { "PID1": 3 } }));
    assert_eq!(ranks["meta"].get("calendar-response-attributes"), None, "ranks have no calendar");
}

#[test]
fn k1_costs_with_and_without_calendars_stand_side_by_side() {
    let types = json!([kind("tput"), kind("hopcount"), kind("tput"), kind("tput")]);
    let request = json!({
        "multi-cost-types": types, "calendared": [true, true, false, true], "pids": { "srcs": ["PID1"] },
    });
    let answer = ask(&request);
    let expected = json!({
        "PID2": [[10, 20, 40, 30], 3, 25, [10, 20, 40, 30]],
        "PID3": [[8, 8, 8, 8], null, 8, [8, 8, 8, 8]],
    });
    assert_eq!(answer["cost-map"], json!({ "PID1": expected }));
    let attributes = json!([{
        "cost-type-names": ["tput-numerical"],
        "calendar-start-time": "Mon, 05 Jan 2026 00:00:00 GMT",
        "time-interval-size": 21600,
        "number-of-intervals": 4,
    }]);
    assert_eq!(answer["meta"]["calendar-response-attributes"], attributes, "each name once");
}

#[test]
fn k1_what_is_wrong_with_calendared_is_told() {
    let site = quarters();
    let refused = |calendared: Value| {
        let request = json!({ "multi-cost-types": [kind("tput"), kind("hopcount")], "calendared": calendared });
        let (code, field, value) = site.refused("default-costs", &request);
        format!("{code} {field} {value}")
    };
    assert_eq!(refused(json!([true])), "E_INVALID_FIELD_VALUE calendared [true]");
    assert_eq!(refused(json!([])), "E_INVALID_FIELD_VALUE calendared []");
    assert_eq!(refused(json!([true, "yes"])), "E_INVALID_FIELD_VALUE calendared yes");
    assert_eq!(refused(json!(true)), "E_INVALID_FIELD_TYPE calendared ");
}

#[test]
fn k1_more_values_than_can_be_told_at_once_are_refused() {
    let facts = json!({
        "costs": [{ "src": "10.0.0.0/8", "dst": "10.0.0.0/8", "tput": 5 }],
        "calendars": { "tput": { "start": "2026-01-05T00:00:00Z", "time-interval-size": 1, "number-of-intervals": 1000 } },
    });
    let site = site(&facts);
    let request = |sources: usize, calendared: bool| {
        let endpoints = |count: usize| (0..count).map(|number| format!("ipv4:10.0.0.{number}")).collect::<Vec<_>>();
        json!({
            "cost-type": kind("tput"), "calendared": [calendared],
            "endpoints": { "srcs": endpoints(sources), "dsts": endpoints(100) },
        })
    };
    let (code, field, value) = site.refused("endpoint-costs", &request(51, true));
    assert_eq!((code, &*field, &*value), ("E_INVALID_FIELD_VALUE", "calendared", "[true]"));
    assert!(site.post("endpoint-costs", &request(51, false)).is_ok(), "it is the calendars that are too much");
    let answer = site.post("endpoint-costs", &request(1, true)).unwrap();
    assert_eq!(answer["endpoint-cost-map"]["ipv4:10.0.0.0"]["ipv4:10.0.0.99"], json!(vec![5; 1000]));
}

#[test]
fn k1_constraints_test_what_who_does_not_ask_is_told() {
    let both = json!([kind("tput"), kind("hopcount")]);
    for calendared in [false, true] {
        let passing_pairs = |mut request: Value| {
            request["calendared"] = json!([calendared, calendared]);
            let rows = ask(&request)["cost-map"].clone();
            let pairs = rows
                .as_object()
                .unwrap()
                .iter()
                .flat_map(|(from, row)| row.as_object().unwrap().keys().map(move |to| format!("{from} {to}")));
            pairs.collect::<Vec<_>>()
        };
        let of_calendar = passing_pairs(json!({ "multi-cost-types": both, "constraints": ["[0] le 8"] }));
        assert_eq!(of_calendar, ["PID1 PID3", "PID2 PID1"]);
        let of_other = passing_pairs(json!({ "multi-cost-types": both, "constraints": ["[1] le 3"] }));
        assert_eq!(of_other, ["PID1 PID2"]);
    }
}

#[test]
fn k1_lists_need_a_calendar_of_their_length() {
    let maps = r#""network-map": { "m": { "A": ["0.0.0.0/0"], "B": ["::/0"] } }"#;
    let calendar = r#""calendars": { "tput": { "start": "2026-01-05T00:00:00Z", "time-interval-size": 1, "number-of-intervals": 2 } }"#;
    let of_pids = format!(r#"{maps}, "cost-map": {{ "m": {{ "tput": {{ "A": {{ "B": [1, 2, 3] }} }} }} }}"#);
    let of_ends =
        r#""costs": [{ "src": "::1", "dst": "::2", "tput": [1] }, { "src": "::2", "dst": "::1", "tput": [1] }]"#;
    let fault =
        |facts: &str| NetworkState::of([&AgentState::parse(&format!("{{{facts}}}")).unwrap()]).unwrap_err().to_string();
    for (facts, expected) in [
        (of_pids.clone(), "costs by tput, cost map m, A to B: a list of costs requires a calendar"),
        (
            format!("{of_pids}, {calendar}"),
            "costs by tput, cost map m, A to B: there are 3, but calendars.tput has 2 intervals",
        ),
        (of_ends.to_owned(), "costs by tput, ::1/128 to ::2/128: a list of costs requires a calendar"),
        (
            format!("{of_ends}, {calendar}"),
            "costs by tput, ::1/128 to ::2/128: there are 1, but calendars.tput has 2 intervals",
        ),
    ] {
        let fault = fault(&facts);
        assert!(fault.starts_with(expected), "{fault}");
    }
    // The calendar may come from another agent than the costs.
    let texts = [format!("{{{of_ends}}}"), format!("{{{}}}", calendar.replace(": 2 }", ": 1 }"))];
    let agents = texts.map(|facts| AgentState::parse(&facts).unwrap());
    assert!(NetworkState::of(&agents).is_ok());
}

#[test]
fn k1_what_is_told_later_or_of_a_longer_prefix_holds() {
    let calendar = json!({ "start": "2026-01-05T00:00:00Z", "time-interval-size": 60, "number-of-intervals": 2 });
    let tell = |dst: &str, cost: Value| json!({ "src": "10.0.0.1", "dst": dst, "tput": cost });
    let agents = [
        json!({
            "calendars": { "tput": calendar },
            "costs": [
                tell("10.1.0.0/16", json!([1, 2])), tell("10.1.1.0/24", json!(7)), tell("10.1.1.1", json!([3, 4])),
                tell("10.2.0.0/16", json!([5, 6])), tell("10.3.0.0/16", json!(9)),
            ],
        }),
        json!({ "costs": [tell("10.2.0.0/16", json!(8)), tell("10.3.0.0/16", json!([8, 9]))] }),
    ];
    let agents = agents.map(|facts| AgentState::parse(&facts.to_string()).unwrap());
    let network_state = NetworkState::of(&agents).unwrap();
    let (directory, _) = Directory::of(&network_state);
    let site = Site { network_state, directory };
    for (address, expected) in [
        ("10.1.9.9", json!([1, 2])),
        ("10.1.1.9", json!([7, 7])),
        ("10.1.1.1", json!([3, 4])),
        ("10.2.0.1", json!([8, 8])),
        ("10.3.0.1", json!([8, 9])),
    ] {
        let to = format!("ipv4:{address}");
        let endpoints = json!({ "srcs": ["ipv4:10.0.0.1"], "dsts": [to] });
        let request = json!({ "cost-type": kind("tput"), "calendared": [true], "endpoints": endpoints });
        let answer = site.post("endpoint-costs", &request).unwrap();
        assert_eq!(answer["endpoint-cost-map"]["ipv4:10.0.0.1"][&to], expected, "{address}");
    }
}

#[test]
fn k1_a_change_replaces_a_calendar_whole() {
    let answer = |values: Value| {
        let facts = json!({
            "costs": [{ "src": "10.0.0.1", "dst": "10.0.0.2", "tput": values }, { "src": "10.0.0.1", "dst": "10.0.0.3", "tput": 4 }],
            "calendars": { "tput": { "start": "2026-01-05T00:00:00Z", "time-interval-size": 60, "number-of-intervals": 2 } },
        });
        let endpoints = json!({ "srcs": ["ipv4:10.0.0.1"], "dsts": ["ipv4:10.0.0.2", "ipv4:10.0.0.3"] });
        let request = json!({ "cost-type": kind("tput"), "calendared": [true], "endpoints": endpoints });
        site(&facts).post("endpoint-costs", &request).unwrap()
    };
    let (before, after) = (answer(json!([1, 2])), answer(json!([1, 3])));
    let change = patch::merge_patch(&before, &after).unwrap();
    let expected = json!({ "endpoint-cost-map": { "ipv4:10.0.0.1": { "ipv4:10.0.0.2": [1, 3] } } });
    assert_eq!(change, expected);
}

/// A single cost, or one per interval. Multiples of a quarter have few digits, so that they survive a round trip.
fn any_cost(intervals: usize) -> impl Strategy<Value = Value> {
    let value = || (0_u32..1 << 20).prop_map(|quarters| json!(f64::from(quarters) / 4.0));
    prop_oneof![value(), prop::collection::vec(value(), intervals).prop_map(Value::from)]
}

/// A number of intervals, and costs between three PIDs.
fn any_costs() -> impl Strategy<Value = (usize, Vec<Option<Value>>)> {
    let costs = |intervals| (Just(intervals), prop::collection::vec(prop::option::of(any_cost(intervals)), 9));
    (1_usize..40).prop_flat_map(costs)
}

/// Returns the values of a cost, given or received, over all intervals.
fn numbers(cost: &Value, intervals: usize) -> Vec<f64> {
    match cost {
        Value::Array(values) => values.iter().map(|value| value.as_f64().unwrap()).collect(),
        value => vec![value.as_f64().unwrap(); intervals],
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]

    /// Between PIDs and between their endpoints, calendars hold the given values; requests without a calendar receive
    /// the mean if the network state has no time.
    #[test]
    fn k1_calendars_are_what_was_told((intervals, costs) in any_costs()) {
        let mut rows = json!({});
        let pairs = (0..9).map(|pair| (format!("P{}", pair / 3), format!("P{}", pair % 3)));
        for ((from, to), cost) in pairs.clone().zip(&costs) {
            if let Some(cost) = cost {
                rows[from][to] = cost.clone();
            }
        }
        let site = site(&json!({
            "network-map": { "default": { "P0": ["10.0.0.0/24"], "P1": ["10.0.1.0/24"], "P2": ["0.0.0.0/0", "::/0"] } },
            "cost-map": { "default": { "tput": rows } },
            "calendars": { "tput": { "start": "2026-01-05T00:00:00Z", "time-interval-size": 60, "number-of-intervals": intervals } },
        }));
        let ask = |resource: &str, calendared: bool| {
            let all = ["ipv4:10.0.0.1", "ipv4:10.0.1.1", "ipv4:10.0.2.1"];
            let request = json!({
                "cost-type": kind("tput"), "calendared": [calendared], "endpoints": { "srcs": all, "dsts": all },
            });
            site.post(resource, &request).unwrap()
        };
        let endpoint = |pid: &str| format!("ipv4:10.0.{}.1", &pid[1..]);
        let between_pids = [false, true].map(|calendared| ask("default-costs", calendared)["cost-map"].clone());
        let between_ends = [false, true].map(|calendared| ask("endpoint-costs", calendared)["endpoint-cost-map"].clone());
        for ((from, to), given) in pairs.zip(&costs) {
            let (source, destination) = (endpoint(&from), endpoint(&to));
            let answers = [(&between_pids, &from, &to), (&between_ends, &source, &destination)];
            for ([single, calendar], from, to) in answers {
                let (single, calendar) = (single.get(from).and_then(|row| row.get(to)), calendar.get(from).and_then(|row| row.get(to)));
                prop_assert_eq!((single.is_some(), calendar.is_some()), (given.is_some(), given.is_some()));
                let (Some(single), Some(calendar), Some(given)) = (single, calendar, given) else { continue };
                let given = numbers(given, intervals);
                prop_assert!(calendar.is_array());
                prop_assert_eq!(&numbers(calendar, intervals), &given);
                let mean = given.iter().sum::<f64>() / intervals as f64;
                prop_assert!((single.as_f64().unwrap() - mean).abs() <= mean * 1e-12, "{single} is not the mean {mean}");
            }
        }
    }
}
