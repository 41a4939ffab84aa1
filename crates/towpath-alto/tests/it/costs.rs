//! Network maps, cost maps and endpoint costs.

use serde_json::{Value, json};

use super::{EXAMPLE, Site};

fn kind(metric: &str, mode: &str) -> Value {
    json!({ "cost-mode": mode, "cost-metric": metric })
}

#[test]
fn n1_a_network_map_tells_all_pids_and_its_version() {
    let site = Site::example();
    let map = site.get("default");
    assert_eq!(map["meta"]["vtag"]["resource-id"], "default");
    let expected = json!({
        "PID1": { "ipv4": ["192.0.2.0/24", "198.51.100.0/25"] },
        "PID2": { "ipv4": ["198.51.100.128/25"] },
        "PID3": { "ipv4": ["0.0.0.0/0"], "ipv6": ["::/0"] },
    });
    assert_eq!(map["network-map"], expected);
    let part = site.post("default-filtered", &json!({ "pids": ["PID2"] })).unwrap();
    assert_eq!(part["meta"], map["meta"], "a part has the version of the whole");
    assert_eq!(part["network-map"], json!({ "PID2": expected["PID2"] }));
}

#[test]
fn m1_a_cost_map_depends_on_one_network_map() {
    let site = Site::example();
    let map = site.get("default-routingcost");
    assert_eq!(map["meta"], json!({ "dependent-vtags": [site.vtag()], "cost-type": kind("routingcost", "numerical") }));
    let expected = json!({
        "PID1": { "PID1": 1, "PID2": 5, "PID3": 10 },
        "PID2": { "PID1": 5, "PID2": 1, "PID3": 15 },
        "PID3": { "PID1": 20, "PID2": 15 },
    });
    assert_eq!(map["cost-map"], expected);
}

#[test]
fn m2_a_filtered_cost_map_gives_what_is_asked_for() {
    let site = Site::example();
    let ask = |request: &Value| site.post("default-costs", request).unwrap()["cost-map"].clone();
    let numerical = kind("routingcost", "numerical");
    let pids = json!({ "srcs": ["PID1"], "dsts": ["PID1", "PID2", "PID3", "PID9"] });
    let request = json!({ "cost-type": numerical, "pids": pids, "constraints": ["le 5"] });
    assert_eq!(ask(&request), json!({ "PID1": { "PID1": 1, "PID2": 5 } }));
    assert_eq!(
        ask(&json!({ "cost-type": numerical, "pids": { "srcs": [] } })),
        site.get("default-routingcost")["cost-map"]
    );
    assert_eq!(ask(&json!({ "cost-type": numerical, "pids": { "srcs": ["PID9"] } })), json!({}));
    let ordinal = json!({ "cost-type": kind("routingcost", "ordinal"), "pids": { "srcs": ["PID3"] } });
    assert_eq!(ask(&ordinal)["PID3"], site.get("default-routingcost-ordinal")["cost-map"]["PID3"]);
    let refused = |request| site.refused("default-costs", &request);
    let wrong = refused(json!({ "cost-type": numerical, "pids": { "srcs": "PID1" } }));
    assert_eq!(wrong, ("E_INVALID_FIELD_TYPE", "pids/srcs".into(), String::new()));
    let wrong = refused(json!({ "cost-type": numerical, "constraints": ["below 5"] }));
    assert_eq!(wrong, ("E_INVALID_FIELD_VALUE", "constraints".into(), "below 5".into()));
}

#[test]
fn x1_several_costs_at_once_are_lists_with_null() {
    let site = Site::example();
    let types = json!([kind("routingcost", "numerical"), kind("hopcount", "numerical")]);
    let request = json!({ "multi-cost-types": types, "pids": { "srcs": ["PID1"] } });
    let answer = site.post("default-costs", &request).unwrap();
    let meta = json!({ "dependent-vtags": [site.vtag()], "cost-type": {}, "multi-cost-types": types });
    assert_eq!(answer["meta"], meta);
    let expected = json!({ "PID1": { "PID1": [1, null], "PID2": [5, 3], "PID3": [10, null] } });
    assert_eq!(answer["cost-map"], expected);
}

#[test]
fn e1_costs_between_endpoints() {
    let site = Site::example();
    let request = json!({
        "cost-type": kind("delay-ow", "ordinal"),
        "endpoints": { "srcs": ["ipv4:192.0.2.2"], "dsts": ["ipv4:192.0.2.89", "ipv4:198.51.100.34", "ipv4:203.0.113.45"] },
    });
    let expected =
        json!({ "ipv4:192.0.2.2": { "ipv4:192.0.2.89": 1, "ipv4:198.51.100.34": 2, "ipv4:203.0.113.45": 3 } });
    let answer = site.post("endpoint-costs", &request).unwrap();
    assert_eq!(answer["endpoint-cost-map"], expected);
    assert_eq!(answer["meta"], json!({ "cost-type": kind("delay-ow", "ordinal") }), "it depends on no map");
}

#[test]
fn e1_a_side_that_is_not_told_is_the_caller() {
    let site = Site::example();
    let ask = |endpoints: Value| {
        let request = json!({ "cost-type": kind("routingcost", "numerical"), "endpoints": endpoints });
        site.post("endpoint-costs", &request).unwrap()["endpoint-cost-map"].clone()
    };
    let to = json!({ "ipv4:192.0.2.2": { "ipv4:198.51.100.200": 5 } });
    assert_eq!(ask(json!({ "dsts": ["ipv4:198.51.100.200"] })), to);
    assert_eq!(ask(json!({ "srcs": [], "dsts": ["ipv4:198.51.100.200"] })), to);
    let from = json!({ "ipv6:2001:db8::1": { "ipv4:192.0.2.2": 20 } });
    assert_eq!(ask(json!({ "srcs": ["ipv6:2001:0DB8::0:1"] })), from);
}

#[test]
fn e1_what_is_wrong_with_endpoints_is_told() {
    let site = Site::example();
    let refused = |endpoints: Value| {
        let request = json!({ "cost-type": kind("routingcost", "numerical"), "endpoints": endpoints });
        let (code, field, value) = site.refused("endpoint-costs", &request);
        format!("{code} {field} {value}")
    };
    assert_eq!(refused(json!({})), "E_INVALID_FIELD_VALUE endpoints {}");
    assert_eq!(refused(json!({ "srcs": [] })), "E_INVALID_FIELD_VALUE endpoints {\"srcs\":[]}");
    assert_eq!(refused(json!([])), "E_INVALID_FIELD_TYPE endpoints ");
    assert_eq!(refused(json!({ "srcs": ["192.0.2.1"] })), "E_INVALID_FIELD_VALUE endpoints/srcs 192.0.2.1");
    let missing = site.refused("endpoint-costs", &json!({ "cost-type": kind("routingcost", "numerical") }));
    assert_eq!(missing, ("E_MISSING_FIELD", "endpoints".into(), String::new()));
}

#[test]
fn m3_the_first_rank_is_that_of_the_best() {
    let rows = ["delay-ow", "tput", "\"bw-available:p5\"", "\"tput:stddev\""]
        .map(|metric| format!("[cost-map.m.{metric}.P]\nP = 10\nQ = 30\n[cost-map.m.{metric}.Q]\nP = 20\nQ = 30\n"));
    let site = Site::of(&format!("[network-map.m]\nP = [\"0.0.0.0/0\"]\nQ = [\"10.0.0.0/8\"]\n{}", rows.concat()));
    let (least, greatest) = (
        json!({ "P": { "P": 1, "Q": 3 }, "Q": { "P": 2, "Q": 3 } }),
        json!({ "P": { "P": 3, "Q": 1 }, "Q": { "P": 2, "Q": 1 } }),
    );
    let expected = [("delay-ow", &least), ("tput", &greatest), ("bw-available:p5", &greatest), ("tput:stddev", &least)];
    for (metric, ranks) in expected {
        assert_eq!(site.get(&format!("m-{metric}-ordinal"))["cost-map"], *ranks, "{metric}");
        let request = json!({ "cost-type": kind(metric, "ordinal"), "pids": { "srcs": ["P"] } });
        assert_eq!(site.post("m-costs", &request).unwrap()["cost-map"]["P"], ranks["P"], "{metric}");
    }
}

#[test]
fn more_pairs_than_can_be_told_at_once_are_refused() {
    let site = Site::example();
    let endpoints: Vec<_> = (0..708).map(|number| format!("ipv4:10.0.{}.{}", number / 256, number % 256)).collect();
    let request = json!({
        "cost-type": kind("routingcost", "numerical"), "endpoints": { "srcs": endpoints, "dsts": endpoints },
    });
    let (code, field, value) = site.refused("endpoint-costs", &request);
    assert_eq!((code, &*field), ("E_INVALID_FIELD_VALUE", "endpoints"));
    assert!(value.starts_with(r#"{"dsts":["ipv4:10.0.0.0","#) && value.len() == 256, "{value}");
}

#[test]
fn x1_more_types_than_can_be_told_at_once_are_refused() {
    let metrics = (0..10).map(|number| format!("[cost-map.m.\"priv:{number}\".P]\nP = {number}\n"));
    let site = Site::of(&format!("[network-map.m]\nP = [\"0.0.0.0/0\"]\n{}", metrics.collect::<String>()));
    assert_eq!(site.directory.find("m-costs").unwrap().capabilities(&site.network_state)["max-cost-types"], 16);
    let request = |types: usize| json!({ "multi-cost-types": vec![kind("priv:7", "numerical"); types] });
    assert_eq!(site.post("m-costs", &request(16)).unwrap()["cost-map"], json!({ "P": { "P": vec![7; 16] } }));
    let (code, field, value) = site.refused("m-costs", &request(17));
    assert_eq!((code, &*field), ("E_INVALID_FIELD_VALUE", "multi-cost-types"));
    assert!(value.starts_with("[{"), "{value}");
}

#[test]
fn x1_more_costs_than_can_be_looked_up_at_once_are_refused() {
    let metrics = (0..6).map(|number| format!("[cost-map.m.\"priv:{number}\".P]\nP = {number}\n"));
    let site = Site::of(&format!("[network-map.m]\nP = [\"0.0.0.0/0\"]\n{}", metrics.collect::<String>()));
    let endpoints: Vec<_> = (0..700).map(|number| format!("ipv4:10.0.{}.{}", number / 256, number % 256)).collect();
    let request = json!({
        "multi-cost-types": vec![kind("priv:5", "ordinal"); 11], "endpoints": { "srcs": endpoints, "dsts": endpoints },
    });
    let (code, field, value) = site.refused("endpoint-costs", &request);
    assert_eq!((code, &*field), ("E_INVALID_FIELD_VALUE", "multi-cost-types"));
    assert!(value.starts_with("[{") && value.len() <= 256, "{value}");
    let tests: Vec<_> = (0..10).map(|number| format!("[{number}] le 9")).collect();
    let request = json!({
        "cost-type": kind("priv:5", "ordinal"), "testable-cost-types": vec![kind("priv:5", "numerical"); 10],
        "constraints": tests, "endpoints": { "srcs": endpoints, "dsts": endpoints },
    });
    assert_eq!(site.refused("endpoint-costs", &request).1, "testable-cost-types");
}

#[test]
fn c1_fields_that_nobody_knows_are_ignored() {
    let site = Site::example();
    let request = json!({ "pids": ["PID2"], "verbose": { "x": 1 } });
    assert_eq!(site.post("default-filtered", &request), site.post("default-filtered", &json!({ "pids": ["PID2"] })));
}

#[test]
fn q3_where_values_come_from_is_told_with_their_type() {
    let context = "[contexts.delay-ow]\ncost-source = \"sla\"\nparameters = { link = \"https://example.org/sla\" }\n";
    let site = Site::of(&format!("{EXAMPLE}\n{context}"));
    let context = json!({ "cost-source": "sla", "parameters": { "link": "https://example.org/sla" } });
    let directory: Value =
        serde_json::from_slice(&site.directory.answer(&site.network_state, ToString::to_string).body).unwrap();
    let types = &directory["meta"]["cost-types"];
    assert_eq!(types["delay-ow-numerical"]["cost-context"], context);
    assert_eq!(types["hopcount-numerical"].get("cost-context"), None, "who says nothing estimates");
    let request_for = |types: Value| json!({ "multi-cost-types": types, "endpoints": { "dsts": ["ipv4:192.0.2.89"] } });
    let both = json!([kind("hopcount", "numerical"), kind("delay-ow", "numerical")]);
    let answer = site.post("endpoint-costs", &request_for(both)).unwrap();
    assert_eq!(answer["meta"]["multi-cost-types"][1]["cost-context"], context);
    assert_eq!(answer["meta"]["multi-cost-types"][0], kind("hopcount", "numerical"));
}

#[test]
fn every_answer_says_whose_knowledge_may_be_out_of_date() {
    let site = Site::example();
    let stale = [("routers".to_owned(), "2026-01-02T03:04:05Z".to_owned())];
    let later = Site { network_state: site.network_state.clone().with_stale(stale), directory: site.directory.clone() };
    for resource in site.directory.resources().filter(|resource| resource.accepts().is_none()) {
        let (before, now) = (site.get(resource.id.as_str()), later.get(resource.id.as_str()));
        assert_eq!(now["meta"]["stale-agents"], json!({ "routers": "2026-01-02T03:04:05Z" }), "{}", resource.id);
        assert_eq!(now["meta"].get("vtag"), before["meta"].get("vtag"), "the content is the same");
        assert_eq!(before["meta"].get("stale-agents"), None);
    }
}
