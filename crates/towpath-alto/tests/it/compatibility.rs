//! The compatibility profile: the example of the talk, and requests by pairs.

use std::{collections::BTreeMap, sync::Arc};

use serde_json::{Value, json};
use towpath_alto::{
    agent_state::{AgentState, Router},
    compatibility::Profile,
    directory::Directory,
    names::RouterName,
    network_state::NetworkState,
};
use towpath_alto_sources::looking_glass;

use super::{
    Site,
    path_vector::{parts, path_vector},
};

/// The routes of the talk as printed by a router.
const ROUTES: [&str; 3] = [
    "134.158.84.0/24    *[BGP/170] 2d 03:04:05, localpref 100, from 192.65.184.145
                      AS path: 20965 2091 789 I, validation-state: unverified
                    > to 192.65.184.145 via ae1.0
",
    "140.115.32.0/24    *[BGP/170] 2d 03:04:05, localpref 100, from 192.65.184.145
                      AS path: 20965 24167 7539 1659 I, validation-state: unverified
                    > to 192.65.184.145 via ae1.0
",
    "144.16.0.0/16      *[BGP/170] 2d 03:04:05, localpref 100, from 192.65.184.145
                      AS path: 20965 9885 55824 I, validation-state: unverified
                    > to 192.65.184.145 via ae1.0
",
];

/// A network map, and two routers that serve different parts of it.
const SITES: &str = r#"
    [network-map.default]
    CERN = ["137.138.0.0/16"]
    IN2P3 = ["134.158.84.0/24"]
    NCU = ["140.115.32.0/24"]
    elsewhere = ["0.0.0.0/0", "::/0"]
    [routers.border]
    serves = ["137.138.0.0/16"]
    routes = [
        { prefix = "134.158.84.0/24", next-hop = "192.65.184.145", as-path = "20965 2091 789" },
        { prefix = "140.115.32.0/24", next-hop = "192.65.184.9", as-path = "513 {789,790}" },
        { prefix = "137.138.0.0/16" },
    ]
    [routers.other]
    serves = ["140.115.32.0/24"]
    routes = [{ prefix = "0.0.0.0/0", next-hop = "192.0.2.1" }]
"#;

fn compatible(network_state: NetworkState) -> Site {
    offered(network_state, "openalto")
}

fn offered(network_state: NetworkState, profile: &str) -> Site {
    let network_state = network_state.compatible(profile.parse().unwrap()).unwrap();
    let (directory, _) = Directory::of(&network_state);
    Site { network_state, directory }
}

/// The state known from a looking glass that prints these routes.
fn talk(routes: impl IntoIterator<Item = &'static str>) -> Site {
    compatible(talked(routes))
}

fn talked(routes: impl IntoIterator<Item = &'static str>) -> NetworkState {
    let text: String =
        ["inet.0: 3 destinations, 3 routes (3 active, 0 holddown, 0 hidden)\n\n"].into_iter().chain(routes).collect();
    let table = looking_glass::parse(&text).unwrap();
    assert_eq!(table.skipped, []);
    let routes = Some(Arc::new(table.routes.into_iter().collect()));
    let router = Router { default: true, routes, ..Router::default() };
    let routers = BTreeMap::from([(RouterName::new("ex2j.cern.ch").unwrap(), router)]);
    NetworkState::of([&AgentState { routers, ..AgentState::default() }]).unwrap()
}

fn sites() -> Site {
    compatible(NetworkState::of([&AgentState::parse(SITES).unwrap()]).unwrap())
}

fn flow(sources: &[&str], destinations: &[&str]) -> Value {
    json!({ "srcs": sources, "dsts": destinations })
}

/// The request of the talk.
fn request() -> Value {
    json!({
        "cost-type": path_vector(),
        "endpoint-flows": [
            flow(&["ipv4:137.138.0.101"], &["ipv4:134.158.84.23", "ipv4:144.16.112.112"]),
            flow(&["ipv4:192.16.166.254"], &["ipv4:140.115.32.101"]),
        ],
        "ane-property-names": ["next_hop", "as_path"],
    })
}

/// Returns the costs and the properties in the response to `request`.
fn costs_and_properties(site: &Site, resource: &str, request: &Value) -> (Value, Value) {
    let [(.., costs), (.., properties)] = parts(site, resource, request);
    (costs["endpoint-cost-map"].clone(), properties["property-map"].clone())
}

#[test]
fn v9_the_example_of_the_talk() {
    let site = talk(ROUTES);
    let [(kind, id, costs), (other_kind, other_id, properties)] = parts(&site, "cern-pv", &request());
    assert_eq!((&*kind, &*other_kind), ("application/alto-endpointcost+json", "application/alto-propmap+json"));
    assert_eq!((&*id, &*other_id), ("<ecs@towpath.alto>", "<propmap@towpath.alto>"));
    let expected = json!({
        "137.138.0.101": {
            "134.158.84.23": ["autolink_1", "autopath_2"],
            "144.16.112.112": ["autolink_1", "autopath_3"],
        },
        "192.16.166.254": { "140.115.32.101": ["autolink_1", "autopath_1"] },
    });
    assert_eq!(costs["endpoint-cost-map"], expected);
    assert_eq!(costs["meta"]["cost-type"], path_vector());
    assert_eq!(costs["meta"]["vtag"]["resource-id"], "cern-pv.ecs");
    let expected = json!({
        ".ane:autolink_1": { "next_hop": "192.65.184.145" },
        ".ane:autopath_1": { "as_path": "20965 24167 7539 1659" },
        ".ane:autopath_2": { "as_path": "20965 2091 789" },
        ".ane:autopath_3": { "as_path": "20965 9885 55824" },
    });
    assert_eq!(properties["property-map"], expected);
    assert_eq!(properties["meta"], json!({ "dependent-vtags": [costs["meta"]["vtag"]] }));
}

/// OpenALTO's public client looks for the addresses that it sent, including their type, and does not accept quotes in
/// `Content-Type`.
#[test]
fn v9_the_public_client_of_openalto_finds_what_it_asked_for() {
    let site = offered(talked(ROUTES), "openalto-client");
    let resource = site.directory.find("cern-pv").unwrap();
    let answer = resource.answer(&site.network_state, &request(), "192.0.2.2".parse().unwrap()).unwrap();
    let parameters: Vec<&str> = answer.media_type.split(';').collect();
    assert_eq!(parameters[0], "multipart/related");
    assert!(parameters.contains(&"type=application/alto-endpointcost+json"), "{parameters:?}");
    let (costs, properties) = costs_and_properties(&site, "cern-pv", &request());
    assert_eq!(costs["ipv4:137.138.0.101"]["ipv4:134.158.84.23"], json!(["autolink_1", "autopath_2"]));
    assert_eq!(properties[".ane:autopath_2"]["as_path"], "20965 2091 789");
}

#[test]
fn v9_the_boundary_is_that_of_the_talk() {
    let site = talk(ROUTES);
    let resource = site.directory.find("cern-pv").unwrap();
    let answer = resource.answer(&site.network_state, &request(), "192.0.2.2".parse().unwrap()).unwrap();
    assert!(answer.body.starts_with(b"--d41d8cd98f00b204e9800998ecf8427e\r\n"));
    assert!(answer.body.ends_with(b"\r\n--d41d8cd98f00b204e9800998ecf8427e--\r\n"));
}

#[test]
fn v9_numbers_depend_on_no_order() {
    let [first, second, third] = ROUTES;
    let expected = costs_and_properties(&talk(ROUTES), "cern-pv", &request());
    for routes in [[third, second, first], [second, first, third]] {
        let site = talk(routes);
        let mut turned = request();
        turned["endpoint-flows"].as_array_mut().unwrap().reverse();
        turned["endpoint-flows"][1]["dsts"].as_array_mut().unwrap().reverse();
        for request in [request(), turned, request()] {
            assert_eq!(costs_and_properties(&site, "cern-pv", &request), expected);
        }
    }
}

#[test]
fn v9_who_names_no_property_gets_all() {
    let site = talk(ROUTES);
    let property = |names: Option<Value>, element: &str| {
        let mut request = request();
        request.as_object_mut().unwrap().remove("ane-property-names");
        if let Some(names) = names {
            request["ane-property-names"] = names;
        }
        costs_and_properties(&site, "cern-pv", &request).1[element].clone()
    };
    assert_eq!(property(None, ".ane:autopath_2"), json!({ "as_path": "20965 2091 789" }));
    assert_eq!(property(Some(json!(["next_hop"])), ".ane:autolink_1"), json!({ "next_hop": "192.65.184.145" }));
    assert_eq!(property(Some(json!(["next_hop"])), ".ane:autopath_2"), json!({}));
    assert_eq!(property(Some(json!([])), ".ane:autolink_1"), json!({}));
    let wrong = json!({ "cost-type": path_vector(), "endpoints": flow(&[], &["ipv4:134.158.84.23"]), "ane-property-names": ["priv:hop"] });
    let refused = site.refused("cern-pv", &wrong);
    assert_eq!(refused, ("E_INVALID_FIELD_VALUE", "ane-property-names".into(), "priv:hop".into()));
}

#[test]
fn v9_a_pair_without_router_or_route_is_left_out_alone() {
    let sources = ["ipv4:137.138.0.101", "ipv4:198.51.100.1", "ipv4:140.115.32.101"];
    let destinations = ["ipv4:134.158.84.23", "ipv4:203.0.113.1", "ipv4:137.138.0.102", "ipv6:2001:db8::1"];
    let request = json!({ "cost-type": path_vector(), "endpoints": flow(&sources, &destinations) });
    let (costs, properties) = costs_and_properties(&sites(), "cern-pv", &request);
    let default = json!(["autolink_1"]);
    let expected = json!({
        "137.138.0.101": { "134.158.84.23": ["autolink_2", "autopath_1"], "137.138.0.102": [] },
        "140.115.32.101": { "134.158.84.23": default, "203.0.113.1": default, "137.138.0.102": default },
    });
    assert_eq!(costs, expected);
    assert_eq!(properties[".ane:autolink_1"], json!({ "next_hop": "192.0.2.1" }));
}

#[test]
fn v9_only_pairs_of_flows_are_answered() {
    let flows = [
        flow(&["ipv4:137.138.0.101"], &["ipv4:140.115.32.101"]),
        flow(&["ipv4:137.138.0.102", "ipv4:137.138.0.101"], &["ipv4:134.158.84.23"]),
        flow(&["ipv4:137.138.0.101"], &["ipv4:134.158.84.23"]),
    ];
    let request = json!({ "cost-type": path_vector(), "endpoint-flows": flows });
    let (costs, _) = costs_and_properties(&sites(), "path-vector", &request);
    let path = ["link:border-192_65_184_145", "as:20965-2091", "as:2091-789"];
    let other = ["link:border-192_65_184_9", "as:513-set:789_790"];
    let expected = json!({
        "ipv4:137.138.0.101": { "ipv4:134.158.84.23": path, "ipv4:140.115.32.101": other },
        "ipv4:137.138.0.102": { "ipv4:134.158.84.23": path },
    });
    assert_eq!(costs, expected);
}

#[test]
fn v9_pairs_of_pids_are_told_likewise() {
    let flows = [flow(&["CERN"], &["IN2P3", "nowhere"]), flow(&["NCU"], &["CERN"]), flow(&["nowhere"], &["CERN"])];
    let request = json!({ "cost-type": path_vector(), "pid-flows": flows });
    let [(.., costs), _] = parts(&sites(), "default-path-vector", &request);
    let expected = json!({
        "CERN": { "IN2P3": ["link:border-192_65_184_145", "as:20965-2091", "as:2091-789"] },
        "NCU": { "CERN": ["link:other-192_0_2_1"] },
    });
    assert_eq!(costs["cost-map"], expected);
}

#[test]
fn v9_what_is_wrong_with_flows_is_told() {
    let site = sites();
    let one = flow(&["ipv4:137.138.0.101"], &["ipv4:134.158.84.23"]);
    let problem_of = |request: Value| {
        let (code, field, _) = site.refused("path-vector", &request);
        (code, field)
    };
    let refused = |flows: Value| problem_of(json!({ "cost-type": path_vector(), "endpoint-flows": flows }));
    let wrong = ("E_INVALID_FIELD_VALUE", "endpoint-flows".to_owned());
    let bare = flow(&["137.138.0.101"], &["ipv4:134.158.84.23"]);
    for flows in [json!([]), json!([one, 1]), json!([flow(&[], &["ipv4:134.158.84.23"])]), json!([{}]), json!([bare])] {
        assert_eq!(refused(flows.clone()), wrong, "{flows}");
    }
    assert_eq!(refused(json!({})), ("E_INVALID_FIELD_TYPE", wrong.1.clone()));
    assert_eq!(problem_of(json!({ "cost-type": path_vector(), "endpoint-flows": [one], "endpoints": one })), wrong);
}

#[test]
fn v9_flows_of_too_many_pairs_are_refused() {
    let addresses = |third: u8| (0..=255_u8).map(|last| format!("ipv4:192.0.{third}.{last}")).collect::<Vec<_>>();
    let sources: Vec<String> = (0..4).flat_map(addresses).collect();
    let block = json!({ "srcs": sources, "dsts": addresses(9) });
    let request = |blocks: usize| json!({ "cost-type": path_vector(), "endpoint-flows": vec![&block; blocks] });
    let site = sites();
    assert!(
        site.directory
            .find("path-vector")
            .unwrap()
            .answer(&site.network_state, &request(1), "192.0.2.2".parse().unwrap())
            .is_ok()
    );
    let (_, field, value) = site.refused("path-vector", &request(2));
    assert_eq!(field, "endpoint-flows");
    assert!(value.starts_with(r#"[{"dsts":["ipv4:192.0.9.0","#), "{value}");
}

#[test]
fn v9_without_a_profile_there_is_nothing_of_it() {
    let plain = Site::of(SITES);
    assert!(plain.directory.find("cern-pv").is_none());
    let flows = json!({ "cost-type": path_vector(), "endpoint-flows": request()["endpoint-flows"] });
    let refused = plain.refused("path-vector", &flows);
    assert_eq!(refused, ("E_MISSING_FIELD", "endpoints".into(), String::new()));
    let can = |site: &Site, resource: &str| site.directory.find(resource).unwrap().capabilities(&site.network_state);
    let compatible = sites();
    for (resource, name) in [("path-vector", "priv:endpoint-flows"), ("default-path-vector", "priv:pid-flows")] {
        assert_eq!(can(&plain, resource).get(name), None);
        assert_eq!(can(&compatible, resource)[name], true);
    }
    assert_eq!(can(&compatible, "cern-pv")["priv:endpoint-flows"], true);
    assert_eq!(can(&compatible, "cern-pv")["ane-property-names"], json!(["next_hop", "as_path"]));
}

#[test]
fn v9_without_routes_the_resource_is_not_there() {
    let topology = "[topology.t]\nattach = { a = [\"10.0.0.0/8\"] }\nlinks = [{ from = \"a\", to = \"b\" }]";
    let site = compatible(NetworkState::of([&AgentState::parse(topology).unwrap()]).unwrap());
    assert!(site.directory.find("path-vector").is_some() && site.directory.find("cern-pv").is_none());
}

#[test]
fn v9_the_resource_takes_no_name_of_others() {
    let named = |name: &str| {
        let profile: Profile = format!("openalto:{name}").parse().unwrap();
        NetworkState::of([&AgentState::parse(SITES).unwrap()]).unwrap().compatible(profile)
    };
    for name in ["path-vector", "default", "default-costs"] {
        let fault = named(name).unwrap_err().to_string();
        assert!(fault.contains("rename") && fault.contains(name), "{fault}");
    }
    let (directory, _) = Directory::of(&named("defaults").unwrap());
    assert!(directory.find("defaults").is_some());
}

#[test]
fn hops_of_the_conforming_resource_count_the_as_path() {
    let site = sites();
    let request = json!({
        "cost-type": path_vector(),
        "endpoints": flow(&["ipv4:137.138.0.101"], &["ipv4:134.158.84.23", "ipv4:140.115.32.101"]),
        "ane-property-names": ["priv:hop"],
    });
    let (costs, properties) = costs_and_properties(&site, "path-vector", &request);
    let hops = |destination: &str| {
        let path = costs["ipv4:137.138.0.101"][destination].as_array().unwrap();
        let hop = |element: &Value| properties[format!(".ane:{}", element.as_str().unwrap())]["priv:hop"].clone();
        path.iter().map(hop).collect::<Vec<_>>()
    };
    assert_eq!(hops("ipv4:134.158.84.23"), [json!("192.65.184.145"), json!("2091"), json!("789")]);
    assert_eq!(hops("ipv4:140.115.32.101"), [json!("192.65.184.9"), json!("set:789.790")]);
}
