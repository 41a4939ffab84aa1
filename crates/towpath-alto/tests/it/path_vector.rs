//! Path vectors (RFC 9275).

use serde_json::{Value, json};

use super::Site;

/// The talk's routes from its looking glass, a second site behind another router, and the capacity of one link.
const ROUTES: &str = r#"
    [network-map.default]
    CERN = ["137.138.0.0/16", "192.16.166.0/24"]
    far = ["0.0.0.0/0", "::/0"]
    [cost-map.default.routingcost.CERN]
    far = 7
    [routers."ex2j.cern.ch"]
    default = true
    routes = [
        { prefix = "134.158.84.0/24", next-hop = "192.65.184.145", as-path = "20965 2091 789" },
        { prefix = "144.16.0.0/16", next-hop = "192.65.184.145", as-path = "20965 9885 55824" },
        { prefix = "140.115.32.0/24", next-hop = "192.65.184.145", as-path = "20965 24167 7539 1659" },
        { prefix = "0.0.0.0/1", next-hop = "192.65.184.1", as-path = "20965" },
    ]
    [properties.".ane:link:ex2j_cern_ch-192_65_184_145"]
    max-reservable-bandwidth = 1e11
"#;

const LINK: &str = "link:ex2j_cern_ch-192_65_184_145";

/// Returns the two parts of a response: the media type, Content-ID and document of each.
pub(super) fn parts(site: &Site, resource: &str, request: &Value) -> [(String, String, Value); 2] {
    let resource = site.directory.find(resource).unwrap();
    let answer = resource.answer(&site.network_state, request, "192.0.2.2".parse().unwrap()).unwrap();
    let boundary = answer.media_type.split(';').find_map(|part| part.strip_prefix("boundary=")).unwrap();
    let text = String::from_utf8(answer.body).unwrap();
    let (body, end) =
        text.split_once(&format!("--{boundary}--\r\n")).expect("v8: the last boundary has two more dashes");
    assert_eq!(end, "");
    let parts: Vec<_> = body.split(&format!("--{boundary}\r\n")).skip(1).collect();
    let part = |text: &str| {
        let (header, document) = text.split_once("\r\n\r\n").unwrap();
        let field = |name| header.lines().find_map(|line| line.strip_prefix(name)).unwrap().to_owned();
        (field("Content-Type: "), field("Content-ID: "), serde_json::from_str(document).unwrap())
    };
    [part(parts[0]), part(parts[1])]
}

pub(super) fn path_vector() -> Value {
    json!({ "cost-mode": "array", "cost-metric": "ane-path" })
}

fn endpoints() -> Value {
    json!({
        "srcs": ["ipv4:137.138.0.101"],
        "dsts": ["ipv4:134.158.84.23", "ipv4:144.16.112.112", "ipv4:203.0.113.1", "ipv6:2001:db8::1"],
    })
}

#[test]
fn v1_a_directory_says_what_can_be_asked() {
    let site = Site::of(ROUTES);
    let resource = site.directory.find("path-vector").unwrap();
    assert_eq!(resource.media_type().split(';').next_back(), Some("type=application/alto-endpointcost+json"));
    let can = resource.capabilities(&site.network_state);
    assert_eq!(can["cost-type-names"][0], "ane-path-array");
    assert_eq!(can["ane-property-names"], json!(["max-reservable-bandwidth", "persistent-entity-id", "priv:hop"]));
    assert_eq!(can["cost-constraints"], false);
    assert!(!can["testable-cost-type-names"].as_array().unwrap().contains(&json!("ane-path-array")));
    assert_eq!(resource.uses(&site.network_state).len(), 1, "the property map with the elements that last");
    assert_eq!(site.directory.find("default-path-vector").unwrap().uses(&site.network_state).len(), 2);
}

#[test]
fn v3_v4_v5_paths_and_the_properties_of_what_is_on_them() {
    let site = Site::of(ROUTES);
    let request = json!({ "cost-type": path_vector(), "endpoints": endpoints() });
    let [(kind, id, costs), (other_kind, other_id, properties)] = parts(&site, "path-vector", &request);
    assert_eq!((&*kind, &*other_kind), ("application/alto-endpointcost+json", "application/alto-propmap+json"));
    assert_eq!((&*id, &*other_id), ("<ecs@towpath.alto>", "<propmap@towpath.alto>"));
    let expected = json!({ "ipv4:137.138.0.101": {
        "ipv4:134.158.84.23": [LINK, "as:20965-2091", "as:2091-789"],
        "ipv4:144.16.112.112": [LINK, "as:20965-9885", "as:9885-55824"],
    }});
    assert_eq!(costs["endpoint-cost-map"], expected, "there is no route to the others");
    assert_eq!(costs["meta"]["cost-type"], path_vector());
    assert_eq!(costs["meta"]["vtag"]["resource-id"], "path-vector.ecs");
    assert_eq!(properties["meta"], json!({ "dependent-vtags": [costs["meta"]["vtag"]] }));
    let elements = properties["property-map"].as_object().unwrap();
    assert_eq!(elements.len(), 5);
    assert!(elements.values().all(|value| *value == json!({})), "v2: who asks for no property gets none");
}

#[test]
fn v2_v6_properties_are_given_that_are_asked_for() {
    let site = Site::of(ROUTES);
    let names = ["max-reservable-bandwidth", "persistent-entity-id"];
    let request = json!({ "cost-type": path_vector(), "endpoints": endpoints(), "ane-property-names": names });
    let [_, (.., properties)] = parts(&site, "path-vector", &request);
    let link = json!({ "max-reservable-bandwidth": 1e11, "persistent-entity-id": format!("properties.ane:{LINK}") });
    assert_eq!(properties["property-map"][format!(".ane:{LINK}")], link);
    assert_eq!(properties["property-map"][".ane:as:2091-789"], json!({}));
    assert_eq!(properties["meta"]["dependent-vtags"][1], site.get("properties")["meta"]["vtag"]);
    let wrong = json!({ "cost-type": path_vector(), "endpoints": endpoints(), "ane-property-names": ["colour"] });
    let refused = site.refused("path-vector", &wrong);
    assert_eq!(refused, ("E_INVALID_FIELD_VALUE", "ane-property-names".into(), "colour".into()));
}

#[test]
fn v7_costs_stand_beside_paths() {
    let site = Site::of(ROUTES);
    let routing = json!({ "cost-mode": "numerical", "cost-metric": "routingcost" });
    let dsts = json!({ "srcs": ["ipv4:137.138.0.101"], "dsts": ["ipv4:134.158.84.23", "ipv4:203.0.113.1"] });
    let request = json!({ "multi-cost-types": [path_vector(), routing], "endpoints": dsts });
    let [(.., costs), _] = parts(&site, "path-vector", &request);
    let expected = json!({ "ipv4:137.138.0.101": {
        "ipv4:134.158.84.23": [[LINK, "as:20965-2091", "as:2091-789"], 7],
        "ipv4:203.0.113.1": [null, 7],
    }});
    assert_eq!(costs["endpoint-cost-map"], expected);
    let request = json!({ "cost-type": routing, "endpoints": dsts, "ane-property-names": [] });
    let [(.., costs), (.., properties)] = parts(&site, "path-vector", &request);
    assert_eq!(costs["endpoint-cost-map"]["ipv4:137.138.0.101"]["ipv4:203.0.113.1"], 7);
    assert_eq!(properties["property-map"], json!({}));
}

#[test]
fn v5_only_what_is_on_the_paths_told_is_described() {
    let site = Site::of(ROUTES);
    let routing = json!({ "cost-mode": "numerical", "cost-metric": "routingcost" });
    let tested = json!({
        "cost-type": path_vector(), "testable-cost-types": [routing], "constraints": ["lt 0"], "endpoints": endpoints(),
    });
    let [(.., costs), (.., properties)] = parts(&site, "path-vector", &tested);
    assert_eq!((&costs["endpoint-cost-map"], &properties["property-map"]), (&json!({}), &json!({})));
    let twice = json!({ "multi-cost-types": [path_vector(), path_vector()], "endpoints": endpoints() });
    let [(.., costs), _] = parts(&site, "path-vector", &twice);
    let path = json!([LINK, "as:20965-2091", "as:2091-789"]);
    assert_eq!(costs["endpoint-cost-map"]["ipv4:137.138.0.101"]["ipv4:134.158.84.23"], json!([path, path]));
}

#[test]
fn v7_what_stands_beside_a_path_can_be_tested() {
    let site = Site::of(ROUTES);
    let routing = json!({ "cost-mode": "numerical", "cost-metric": "routingcost" });
    let request = |test: &str| {
        let types = json!([path_vector(), routing]);
        json!({ "multi-cost-types": types, "constraints": [test], "endpoints": endpoints() })
    };
    let passes = |test: &str| {
        let [(.., costs), _] = parts(&site, "path-vector", &request(test));
        costs["endpoint-cost-map"]["ipv4:137.138.0.101"].get("ipv4:203.0.113.1").is_some()
    };
    assert!(passes("[1] le 7") && !passes("[1] lt 7"));
    let refused = site.refused("path-vector", &request("[0] le 7"));
    assert_eq!(refused, ("E_INVALID_FIELD_VALUE", "constraints".into(), "ane-path-array".into()));
}

#[test]
fn v5_what_is_on_no_path_is_not_described() {
    let circle = "
        [routers.circle]
        addresses = [\"192.0.2.9\"]
        routes = [{ prefix = \"0.0.0.0/0\", next-hop = \"192.0.2.9\" }]
    ";
    let request = json!({ "cost-type": path_vector(), "endpoints": endpoints() });
    let [(.., costs), (.., properties)] = parts(&Site::of(circle), "path-vector", &request);
    assert_eq!((&costs["endpoint-cost-map"], &properties["property-map"]), (&json!({}), &json!({})));
}

/// A line of nodes with this many addresses at each end, and a request for the pairs between them.
fn along_a_line(field: &str, addresses: u8) -> (Site, Value) {
    let nodes: Vec<String> = (0..256).map(|node| format!("n{node:03}")).collect();
    let links = nodes.windows(2).map(|pair| format!("{{ from = \"{}\", to = \"{}\" }}", pair[0], pair[1]));
    let facts = format!(
        "[topology.line]\nattach = {{ n000 = [\"10.0.0.0/16\"], n255 = [\"10.1.0.0/16\"] }}\nlinks = [{}]",
        links.collect::<Vec<_>>().join(", ")
    );
    let side = |second: u8| (0..addresses).map(|last| format!("ipv4:10.{second}.0.{last}")).collect::<Vec<_>>();
    let mesh = json!({ "srcs": side(0), "dsts": side(1) });
    let ends = if field == "endpoints" { mesh } else { json!([mesh]) };
    (Site::of(&facts), json!({ "cost-type": path_vector(), field: ends }))
}

#[test]
fn more_elements_than_can_be_told_at_once_are_refused() {
    let (site, request) = along_a_line("endpoints", 200);
    let (code, field, value) = site.refused("path-vector", &request);
    assert_eq!((code, &*field), ("E_INVALID_FIELD_VALUE", "endpoints"));
    assert!(value.starts_with(r#"{"dsts":["ipv4:10.1.0.0","#), "{value}");
    let (site, request) = along_a_line("endpoint-flows", 200);
    let Site { network_state, directory } = site;
    let network_state = network_state.compatible("openalto".parse().unwrap()).unwrap();
    let (code, field, _) = Site { network_state, directory }.refused("path-vector", &request);
    assert_eq!((code, &*field), ("E_INVALID_FIELD_VALUE", "endpoint-flows"));
    let (site, request) = along_a_line("endpoints", 2);
    let [(.., costs), _] = parts(&site, "path-vector", &request);
    assert_eq!(costs["endpoint-cost-map"]["ipv4:10.0.0.1"]["ipv4:10.1.0.0"].as_array().unwrap().len(), 255);
}

#[test]
fn v4_between_pids_an_answer_depends_on_their_map() {
    let site = Site::of(ROUTES);
    let request = json!({ "cost-type": path_vector(), "pids": { "srcs": ["CERN"], "dsts": ["far", "CERN"] } });
    let [(kind, id, costs), _] = parts(&site, "default-path-vector", &request);
    assert_eq!((&*kind, &*id), ("application/alto-costmap+json", "<costmap@towpath.alto>"));
    assert_eq!(costs["meta"]["dependent-vtags"], json!([site.vtag()]));
    assert_eq!(costs["meta"]["vtag"]["resource-id"], "default-path-vector.costmap");
    assert_eq!(costs["cost-map"], json!({ "CERN": { "far": ["link:ex2j_cern_ch-192_65_184_1"] } }));
}

#[test]
fn names_do_not_depend_on_what_is_asked() {
    let site = Site::of(ROUTES);
    let ask = |dsts: Value| {
        let request =
            json!({ "cost-type": path_vector(), "endpoints": { "srcs": ["ipv4:137.138.0.101"], "dsts": dsts } });
        let [(.., costs), _] = parts(&site, "path-vector", &request);
        costs["endpoint-cost-map"]["ipv4:137.138.0.101"]["ipv4:134.158.84.23"].clone()
    };
    assert_eq!(ask(json!(["ipv4:134.158.84.23"])), ask(json!(["ipv4:144.16.112.112", "ipv4:134.158.84.23"])));
}

/// The network of RFC 9275 §8: PID1 and PID2 on NET1, PID3 on NET3, PID4 on NET2. The RFC prints its IPv6 prefixes with
/// a length of 16 and non-zero host bits; here they have 112.
const EXAMPLE: &str = r#"
    [network-map.default]
    PID1 = ["192.0.2.0/28"]
    PID2 = ["192.0.2.16/28"]
    PID3 = ["192.0.2.32/28", "2001:db8::3:0/112"]
    PID4 = ["192.0.2.48/28", "2001:db8::4:0/112"]
    elsewhere = ["0.0.0.0/0", "::/0"]
    [topology.rfc]
    links = [
        { from = "NET1", to = "NET3", capacity = 10e9 },
        { from = "NET2", to = "NET3", capacity = 15e9 },
    ]
    [topology.rfc.attach]
    NET1 = ["192.0.2.0/28", "192.0.2.16/28"]
    NET2 = ["192.0.2.48/28", "2001:db8::4:0/112"]
    NET3 = ["192.0.2.32/28", "2001:db8::3:0/112"]
"#;

/// Capacities of its nodes, and the servers in two of them.
const NODES: &str = r#"
    [topology.rfc.nodes]
    NET1 = { capacity = 50e9 }
    NET2 = { capacity = 50e9 }
    NET3 = { capacity = 50e9 }
    [properties.".ane:node:rfc:NET1"]
    "priv:servers" = "MEC1"
    [properties.".ane:node:rfc:NET2"]
    "priv:servers" = "MEC2"
"#;

#[test]
fn v4_v5_the_example_of_rfc_9275_between_pids() {
    let site = Site::of(EXAMPLE);
    let request = json!({ "cost-type": path_vector(), "pids": { "srcs": ["PID1"], "dsts": ["PID3", "PID4"] } });
    let [(.., costs), (.., properties)] = parts(&site, "default-path-vector", &request);
    let (first, second) = ("topo:rfc:NET1-NET3", "topo:rfc:NET3-NET2");
    assert_eq!(costs["cost-map"], json!({ "PID1": { "PID3": [first], "PID4": [first, second] } }));
    let expected = json!({ format!(".ane:{first}"): {}, format!(".ane:{second}"): {} });
    assert_eq!(properties["property-map"], expected);
    let can = site.directory.find("default-path-vector").unwrap().capabilities(&site.network_state);
    assert!(can["ane-property-names"].as_array().unwrap().contains(&json!("max-reservable-bandwidth")));
    assert!(!can["ane-property-names"].as_array().unwrap().contains(&json!("persistent-entity-id")));
}

/// The RFC finds MEC1 and MEC2 in a property map `ane-props`. Here NET1 and NET2 themselves are in `properties`, with
/// their servers.
#[test]
fn v6_the_example_of_rfc_9275_between_endpoints() {
    let site = Site::of(&format!("{EXAMPLE}{NODES}"));
    let endpoints = json!({
        "srcs": ["ipv4:192.0.2.34", "ipv6:2001:db8::3:1"],
        "dsts": ["ipv4:192.0.2.2", "ipv4:192.0.2.50", "ipv6:2001:db8::4:1"],
    });
    let names = ["max-reservable-bandwidth", "persistent-entity-id"];
    let request = json!({ "cost-type": path_vector(), "endpoints": endpoints, "ane-property-names": names });
    let [(.., costs), (.., properties)] = parts(&site, "path-vector", &request);
    let [net1, net2, net3] = ["node:rfc:NET1", "node:rfc:NET2", "node:rfc:NET3"];
    let [l1, l2] = ["topo:rfc:NET3-NET1", "topo:rfc:NET3-NET2"];
    let expected = json!({
        "ipv4:192.0.2.34": { "ipv4:192.0.2.2": [net3, l1, net1], "ipv4:192.0.2.50": [net3, l2, net2] },
        "ipv6:2001:db8::3:1": { "ipv6:2001:db8::4:1": [net3, l2, net2] },
    });
    assert_eq!(costs["endpoint-cost-map"], expected, "only pairs of one family appear");
    let found = |name: &str| format!("properties.ane:{name}");
    let expected = json!({
        format!(".ane:{net1}"): { "max-reservable-bandwidth": 5e10, "persistent-entity-id": found(net1) },
        format!(".ane:{net2}"): { "max-reservable-bandwidth": 5e10, "persistent-entity-id": found(net2) },
        format!(".ane:{net3}"): { "max-reservable-bandwidth": 5e10 },
        format!(".ane:{l1}"): { "max-reservable-bandwidth": 1e10 },
        format!(".ane:{l2}"): { "max-reservable-bandwidth": 1.5e10 },
    });
    assert_eq!(properties["property-map"], expected);
    let lasting = site.get("properties");
    assert_eq!(lasting["property-map"][format!(".ane:{net1}")], json!({ "priv:servers": "MEC1" }));
    assert_eq!(properties["meta"]["dependent-vtags"][1], lasting["meta"]["vtag"]);
    let named = json!({ "entities": [found(net1), format!(".ane:{net1}")], "properties": ["priv:servers"] });
    let values = site.post("properties-filtered", &named).unwrap()["property-map"].clone();
    let servers = json!({ "priv:servers": "MEC1" });
    assert_eq!(values, json!({ found(net1): servers, format!(".ane:{net1}"): servers }), "as it was asked for");
}

#[test]
fn v6_what_is_told_of_an_element_goes_before_its_topology() {
    let bandwidth = "[properties.\".ane:topo:rfc:NET1-NET3\"]\nmax-reservable-bandwidth = 1e9";
    let site = Site::of(&format!("{EXAMPLE}{bandwidth}"));
    let request = json!({
        "cost-type": path_vector(),
        "pids": { "srcs": ["PID1"], "dsts": ["PID4"] },
        "ane-property-names": ["max-reservable-bandwidth"],
    });
    let [_, (.., properties)] = parts(&site, "default-path-vector", &request);
    let bandwidth = |name: &str| properties["property-map"][format!(".ane:{name}")]["max-reservable-bandwidth"].clone();
    assert_eq!(bandwidth("topo:rfc:NET1-NET3"), 1e9);
    assert_eq!(bandwidth("topo:rfc:NET3-NET2"), 15e9);
}
