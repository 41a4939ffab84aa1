//! Path vectors (RFC 9275).

use serde_json::{Value, json};

use super::Site;

/// The talk's routes as its looking glass has them, a second site behind another router, and the capacity of one link.
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

/// The two parts of an answer: each with its media type, its Content-ID and its document.
fn parts(site: &Site, resource: &str, request: &Value) -> [(String, String, Value); 2] {
    let resource = site.directory.find(resource).unwrap();
    let answer = resource.answer(&site.world, request, "192.0.2.2".parse().unwrap()).unwrap();
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

fn path_vector() -> Value {
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
    let can = resource.capabilities(&site.world);
    assert_eq!(can["cost-type-names"][0], "ane-path-array");
    assert_eq!(can["ane-property-names"], json!(["max-reservable-bandwidth", "persistent-entity-id"]));
    assert_eq!(can["cost-constraints"], false);
    assert!(!can["testable-cost-type-names"].as_array().unwrap().contains(&json!("ane-path-array")));
    assert_eq!(resource.uses(&site.world).len(), 1, "the property map with the elements that last");
    assert_eq!(site.directory.find("default-path-vector").unwrap().uses(&site.world).len(), 2);
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
