//! Properties of endpoints and of other entities.

use serde_json::{Value, json};

use super::Site;

#[test]
fn p1_properties_of_endpoints() {
    let site = Site::example();
    let request = json!({
        "properties": ["default.pid", "country"],
        "endpoints": ["ipv4:192.0.2.1", "ipv4:192.0.2.200", "ipv6:2001:db8::1"],
    });
    let answer = site.post("endpoint-properties", &request).unwrap();
    let expected = json!({
        "ipv4:192.0.2.1": { "default.pid": "PID1", "country": "CH" },
        "ipv4:192.0.2.200": { "default.pid": "PID1", "country": "FR" },
        "ipv6:2001:db8::1": { "default.pid": "PID3" },
    });
    assert_eq!(answer["endpoint-properties"], expected);
    assert_eq!(answer["meta"], json!({ "dependent-vtags": [site.vtag()] }));
    let request = json!({ "properties": ["country"], "endpoints": ["ipv4:192.0.2.1"] });
    assert_eq!(site.post("endpoint-properties", &request).unwrap()["meta"], json!({ "dependent-vtags": [] }));
}

#[test]
fn p1_what_is_wrong_is_told() {
    let site = Site::example();
    let refused = |request: Value| {
        let (code, field, value) = site.refused("endpoint-properties", &request);
        format!("{code} {field} {value}")
    };
    let endpoints = ["ipv4:192.0.2.1"];
    assert_eq!(refused(json!({ "endpoints": endpoints })), "E_MISSING_FIELD properties ");
    assert_eq!(refused(json!({ "properties": ["country"] })), "E_MISSING_FIELD endpoints ");
    assert_eq!(refused(json!({ "properties": [], "endpoints": endpoints })), "E_INVALID_FIELD_VALUE properties []");
    assert_eq!(
        refused(json!({ "properties": ["colour"], "endpoints": endpoints })),
        "E_INVALID_FIELD_VALUE properties colour"
    );
    assert_eq!(refused(json!({ "properties": [1], "endpoints": endpoints })), "E_INVALID_FIELD_VALUE properties 1");
}

#[test]
fn r1_a_property_map_tells_what_is_said_where() {
    let site = Site::example();
    let map = site.get("properties");
    assert_eq!(map["meta"]["dependent-vtags"], json!([site.vtag()]));
    assert_eq!(map["meta"]["vtag"]["resource-id"], "properties");
    let entities = &map["property-map"];
    assert_eq!(entities["ipv4:192.0.2.0/24"], json!({ "asn": "64500", "country": "CH", "default.pid": "PID1" }));
    assert_eq!(entities["ipv4:192.0.2.128/25"], json!({ "country": "FR" }), "what it inherits is told above");
    assert_eq!(entities["default.pid:PID1"], json!({ "country": "CH" }));
    assert_eq!(entities["ipv6:::/0"], json!({ "default.pid": "PID3" }));
    let directory = site.directory.find("properties").unwrap().capabilities(&site.network_state);
    let mappings = json!({
        "ipv4": ["asn", "country", "default.pid"], "ipv6": ["default.pid"], "default.pid": ["country"],
    });
    assert_eq!(directory, json!({ "mappings": mappings }));
}

#[test]
fn r2_who_asks_for_no_property_gets_none() {
    let site = Site::example();
    let ask = |request: Value| site.post("properties-filtered", &request).unwrap()["property-map"].clone();
    assert_eq!(ask(json!({ "entities": ["ipv4:192.0.2.1", "default.pid:PID2"] })), json!({ "ipv4:192.0.2.1": {} }));
    let all = json!({ "ipv4:192.0.2.1": { "asn": "64500", "country": "CH", "default.pid": "PID1" } });
    assert_eq!(ask(json!({ "entities": ["ipv4:192.0.2.1"], "properties": [] })), all);
    let one = json!({ "ipv4:192.0.2.1": { "country": "CH" } });
    assert_eq!(ask(json!({ "entities": ["ipv4:192.0.2.1/32"], "properties": ["country"] })), one);
    assert_eq!(site.refused("properties-filtered", &json!({})).0, "E_MISSING_FIELD");
    let everything = ask(json!({ "entities": [], "properties": [] }));
    assert_eq!(everything, site.get("properties")["property-map"]);
}

#[test]
fn r2_a_property_is_answered_as_it_was_asked_for() {
    let site = Site::example();
    let ask = |properties: Value| {
        let request = json!({ "entities": ["ipv4:192.0.2.1"], "properties": properties });
        site.post("properties-filtered", &request).unwrap()["property-map"]["ipv4:192.0.2.1"].clone()
    };
    assert_eq!(ask(json!([".country", ".asn"])), json!({ ".country": "CH", ".asn": "64500" }));
    let both = json!({ ".country": "CH", "country": "CH", "default.pid": "PID1" });
    assert_eq!(ask(json!(["country", ".country", "default.pid"])), both);
    for name in [".pid", ".default.pid", "..country", "."] {
        let refused = site.refused("properties-filtered", &json!({ "entities": [], "properties": [name] }));
        assert_eq!(refused, ("E_INVALID_FIELD_VALUE", "properties".into(), name.into()));
    }
    let request = json!({ "endpoints": ["ipv4:192.0.2.1"], "properties": [".country"] });
    assert_eq!(site.refused("endpoint-properties", &request).1, "properties", "RFC 7285 knows no such dots");
}

#[test]
fn r3_malformed_entities_are_errors_and_unknown_ones_are_not() {
    let site = Site::example();
    for (entity, is_wrong) in [
        ("ipv4:192.0.2.300", true),
        ("mac:00", true),
        ("other.pid:PID1", true),
        ("default.pid:PID99", false),
        ("ipv6:2001:db8::1", false),
    ] {
        let answer = site.post("properties-filtered", &json!({ "entities": [entity] }));
        assert_eq!(answer.is_err(), is_wrong, "{entity}");
        if let Err(problem) = answer {
            assert_eq!((problem.field.as_deref(), problem.value.as_deref()), (Some("entities"), Some(entity)));
        }
    }
    assert_eq!(
        site.refused("properties-filtered", &json!({ "entities": [":".repeat(1000)] })).0,
        "E_INVALID_FIELD_VALUE"
    );
    let unknown = site.refused("properties-filtered", &json!({ "entities": [], "properties": ["colour"] }));
    assert_eq!(unknown, ("E_INVALID_FIELD_VALUE", "properties".into(), "colour".into()));
}

#[test]
fn r3_null_is_told_of_entities_and_left_out_of_endpoints() {
    let facts = json!({
        "network-map": { "m": { "P": ["0.0.0.0/0"] } },
        "properties": { "ipv4:192.0.2.0/24": { "country": "CH" }, "ipv4:192.0.2.1": { "country": null } },
    });
    let site = Site::of(&facts.to_string());
    let addresses = json!(["ipv4:192.0.2.1", "ipv4:192.0.2.2"]);
    let request = json!({ "entities": addresses, "properties": ["country"] });
    let expected = json!({ "ipv4:192.0.2.1": { "country": null }, "ipv4:192.0.2.2": { "country": "CH" } });
    assert_eq!(site.post("properties-filtered", &request).unwrap()["property-map"], expected);
    assert_eq!(site.get("properties")["property-map"]["ipv4:192.0.2.1"], json!({ "country": null }));
    let request = json!({ "endpoints": addresses, "properties": ["country"] });
    let expected = json!({ "ipv4:192.0.2.1": {}, "ipv4:192.0.2.2": { "country": "CH" } });
    assert_eq!(site.post("endpoint-properties", &request).unwrap()["endpoint-properties"], expected);
}

#[test]
fn r5_a_prefix_brings_what_differs_beneath_it() {
    let site = Site::example();
    let request = json!({ "entities": ["ipv4:192.0.2.0/24"], "properties": ["country"] });
    let expected = json!({ "ipv4:192.0.2.0/24": { "country": "CH" }, "ipv4:192.0.2.128/25": { "country": "FR" } });
    assert_eq!(site.post("properties-filtered", &request).unwrap()["property-map"], expected);
}
