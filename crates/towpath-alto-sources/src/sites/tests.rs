use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use towpath_alto::{entity::Entity, network_state::NetworkState};

/// Two sites in the format of CRIC, and one that is nearly empty.
const CRIC: &str = r#"{
    "CERN-PROD": {
        "name": "CERN-PROD", "country": "Switzerland", "latitude": 46.2333, "longitude": 6.05, "rc_tier_level": 0,
        "services": [{ "endpoint": null }],
        "netroutes": {
            "CERN-LHCONE": {
                "name": "CERN-LHCONE", "asn": 513,
                "networks": { "ipv4": ["128.142.0.0/16", "188.184.128.0/17"], "ipv6": ["2001:1458:301::/48"] },
                "lhcone_collaborations": ["atlas", "cms"], "lhcone_bandwidth_limit": 100
            },
            "CERN-OTHER": {
                "asn": "AS20641", "networks": { "ipv4": ["137.138.0.0/16"], "ipv6": null },
                "lhcone_collaborations": ["cms", "dune"], "lhcone_bandwidth_limit": "400 Gbit/s"
            },
            "CERN-NONE": { "asn": 1, "networks": {} }
        }
    },
    "IN2P3 CC": {
        "country": "France", "latitude": "45.7828", "longitude": "4.8656",
        "netroutes": [{ "asn": null, "networks": { "ipv4": "134.158.84.0/24" }, "lhcone_bandwidth_limit": 0 }]
    },
    "NEW-SITE": { "country": null, "latitude": null, "netroutes": null }
}"#;

fn parse(text: &str) -> Sites {
    Sites::parse(text.as_bytes()).unwrap()
}

/// Returns the facts of a list, after building a network state from them, and the omitted items.
fn facts(text: &str) -> (AgentState, Vec<String>) {
    let (facts, warnings) = parse(text).facts(&SiteOptions::default());
    assert_eq!(NetworkState::of([&facts]).map(drop), Ok(()));
    (facts, warnings.iter().map(SiteWarning::to_string).collect())
}

/// Returns the prefixes of each PID.
fn pids(facts: &AgentState) -> Value {
    json!(facts.network_map.values().next().unwrap())
}

fn properties_of(facts: &AgentState, entity: &str) -> Value {
    json!(facts.properties.get(&Entity::parse(entity).unwrap()))
}

fn kilometres(facts: &AgentState, metric: &str, from: &str, to: &str) -> Option<f64> {
    let costs = facts.cost_map.values().next()?.get(metric)?;
    Some(costs.get(from)?.get(to)?.value())
}

/// One site with this prefix.
fn site_of(name: &str, prefix: &str) -> String {
    format!(r#"{{ "name": "{name}", "netroutes": [{{ "networks": {{ "ipv4": ["{prefix}"] }} }}] }}"#)
}

#[test]
fn a_list_of_cric_becomes_a_map() {
    let (facts, warnings) = facts(CRIC);
    let expected = json!({
        "CERN-PROD": ["128.142.0.0/16", "137.138.0.0/16", "188.184.128.0/17", "2001:1458:301::/48"],
        "IN2P3_CC": ["134.158.84.0/24"],
        "NEW-SITE": [],
        "elsewhere": ["0.0.0.0/0", "::/0"],
    });
    assert_eq!(pids(&facts), expected);
    assert!(warnings.is_empty(), "{warnings:?}");
    let network_state = NetworkState::of([&facts]).unwrap();
    let map = &network_state.region("default").unwrap().map;
    let pid = |address: &str| map.name(map.locate(address.parse().unwrap()).unwrap()).as_str().to_owned();
    assert_eq!(pid("137.138.0.101"), "CERN-PROD");
    assert_eq!(pid("2001:1458:301::1"), "CERN-PROD");
    assert_eq!(pid("192.0.2.1"), "elsewhere");
}

#[test]
fn prefixes_and_pids_have_properties() {
    let (facts, _) = facts(CRIC);
    let lhcone = json!({
        "priv:site": "CERN-PROD", "priv:country": "Switzerland", "priv:latitude": 46.2333, "priv:longitude": 6.05,
        "priv:continent": "EU", "priv:asn": 513,
        "priv:lhcone-collaborations": ["atlas", "cms"], "priv:lhcone-bandwidth-limit": 100e9,
    });
    assert_eq!(properties_of(&facts, "ipv4:128.142.0.0/16"), lhcone);
    assert_eq!(properties_of(&facts, "ipv6:2001:1458:301::/48"), lhcone);
    assert_eq!(properties_of(&facts, "ipv4:137.138.0.0/16")["priv:asn"], 20641);
    let pid = json!({
        "priv:site": "CERN-PROD", "priv:country": "Switzerland", "priv:latitude": 46.2333, "priv:longitude": 6.05,
        "priv:continent": "EU", "priv:asn": 513,
        "priv:lhcone-collaborations": ["atlas", "cms", "dune"], "priv:lhcone-bandwidth-limit": 400e9,
    });
    assert_eq!(properties_of(&facts, "default.pid:CERN-PROD"), pid);
    let place = json!({
        "priv:site": "IN2P3 CC", "priv:country": "France", "priv:continent": "EU",
        "priv:latitude": 45.7828, "priv:longitude": 4.8656,
    });
    assert_eq!(properties_of(&facts, "default.pid:IN2P3_CC"), place);
    assert_eq!(properties_of(&facts, "ipv4:134.158.84.0/24"), place);
    assert_eq!(properties_of(&facts, "default.pid:NEW-SITE"), json!({ "priv:site": "NEW-SITE" }));
}

#[test]
fn options_name_the_map_and_the_properties() {
    let map = ResourceId::new("wlcg").unwrap();
    let options = SiteOptions { map, plain_names: true, distances: false };
    let (facts, _) = parse(CRIC).facts(&options);
    assert!(facts.network_map.contains_key("wlcg") && facts.cost_map.is_empty());
    assert_eq!(properties_of(&facts, "wlcg.pid:CERN-PROD")["country"], "Switzerland");
    assert_eq!(properties_of(&facts, "ipv4:128.142.0.0/16")["asn"], 513);
}

#[test]
fn sites_with_coordinates_have_distances() {
    let (facts, _) = facts(CRIC);
    for metric in ["routingcost", "priv:distance"] {
        assert_eq!(kilometres(&facts, metric, "CERN-PROD", "IN2P3_CC"), Some(104.0));
        assert_eq!(kilometres(&facts, metric, "IN2P3_CC", "CERN-PROD"), Some(104.0));
        assert_eq!(kilometres(&facts, metric, "CERN-PROD", "CERN-PROD"), Some(0.0));
        assert_eq!(kilometres(&facts, metric, "CERN-PROD", "NEW-SITE"), None);
    }
}

#[test]
fn a_prefix_stays_with_the_first_site() {
    let list = [site_of("B", "192.0.2.0/24"), site_of("A", "192.0.2.0/24"), site_of("C", "0.0.0.0/0")];
    let (facts, warnings) = facts(&format!("[{}]", list.join(",")));
    let expected = json!({ "A": ["192.0.2.0/24"], "B": [], "C": [], "elsewhere": ["0.0.0.0/0", "::/0"] });
    assert_eq!(pids(&facts), expected);
    let expected = [
        "site B: 192.0.2.0/24 is left out, because PID A has it",
        "site C: 0.0.0.0/0 is left out, because PID elsewhere has it",
    ];
    assert_eq!(warnings, expected);
    assert_eq!(properties_of(&facts, "ipv4:192.0.2.0/24")["priv:site"], "A");
}

#[test]
fn a_site_may_list_a_prefix_twice() {
    let routes = r#"[
        { "asn": 1, "networks": ["10.0.0.0/8"] },
        { "asn": 2, "networks": ["10.0.0.0/8", "10.1.0.0/16"] }
    ]"#;
    let (facts, warnings) = facts(&format!(r#"{{ "A": {{ "netroutes": {routes} }} }}"#));
    assert!(warnings.is_empty(), "{warnings:?}");
    assert_eq!(properties_of(&facts, "ipv4:10.0.0.0/8")["priv:asn"], 1);
    assert_eq!(properties_of(&facts, "ipv4:10.1.0.0/16")["priv:asn"], 2);
}

#[test]
fn what_does_not_fit_is_left_out_and_told() {
    let list = r#"[
        { "name": "A", "latitude": 91, "longitude": "x",
          "netroutes": { "r": { "asn": "none", "networks": { "ipv4": ["192.0.2.7/24", "192.0.2", "127.0.0.1"] },
                                "lhcone_bandwidth_limit": "much" } } },
        { "country": "X" }, null, 7, {}, "A",
        { "name": "a/b" }, { "name": "a b" }, { "name": "elsewhere" }, { "name": "Z", "latitude": 0, "longitude": 0 }
    ]"#;
    let (facts, warnings) = facts(list);
    let expected = [
        "1 sites have no name and are left out",
        "site A: '91, x' is not a valid place",
        "site A: 'none' is not a valid AS number",
        "site A: 'much' is not a valid bandwidth",
        "site A: '192.0.2' is not a prefix",
        "site A: a prefix with host bits is read as 192.0.2.0/24",
        "site Z: '0, 0' is not a valid place",
        "site a/b becomes PID a_b-2, because another PID has its name",
        "site elsewhere becomes PID elsewhere-2, because another PID has its name",
    ];
    assert_eq!(warnings, expected);
    assert_eq!(pids(&facts)["A"], json!(["127.0.0.1/32", "192.0.2.0/24"]));
    assert!(facts.cost_map.is_empty());
}

#[test]
fn bandwidths_have_units() {
    for (limit, expected) in [
        ("100", json!(100e9)),
        ("\"100\"", json!(100e9)),
        ("\"400 Mbit/s\"", json!(400e6)),
        ("\"10Gbps\"", json!(10e9)),
        ("\"2.5 T\"", json!(2.5e12)),
        ("\"64 kb/s\"", json!(64e3)),
        ("\"9600 bps\"", json!(9600.0)),
        ("0", Value::Null),
        ("-1", Value::Null),
        ("null", Value::Null),
        ("[]", Value::Null),
        ("\"10 GB/s\"", Value::Null),
    ] {
        let list = format!(
            r#"{{ "A": {{ "netroutes": [{{ "networks": ["10.0.0.0/8"], "lhcone_bandwidth_limit": {limit} }}] }} }}"#
        );
        let (facts, warnings) = facts(&list);
        assert_eq!(properties_of(&facts, "default.pid:A")["priv:lhcone-bandwidth-limit"], expected, "{limit}");
        assert_eq!(warnings.len(), usize::from(limit.contains("GB")), "{limit}");
    }
}

#[test]
fn what_is_no_list_is_refused() {
    let refusal = |text: &str| Sites::parse(text.as_bytes()).unwrap_err().to_string();
    assert!(refusal("").starts_with("the list of sites is not valid JSON: EOF while parsing a value at line 1"));
    assert!(refusal("{} x").contains("trailing characters"));
    assert!(refusal("<html>").contains("not valid JSON"));
    for text in ["{}", "[]", "null", "7", "\"x\"", r#"{"error": "try again later"}"#, "[[{}]]"] {
        assert_eq!(Sites::parse(text.as_bytes()), Err(SitesError::NoSite), "{text}");
    }
    assert_eq!(parse("\u{feff}{\"A\": {\"name\": null, \"state\": 1}}").len(), 1);
}

#[test]
fn limits_hold() {
    let limits = Limits { bytes: 1000, sites: 2, prefixes: 3 };
    let within = |text: &str| Sites::parse_within(text.as_bytes(), limits).map(|sites| sites.len());
    let sites = |count: usize, prefixes: &str| {
        let sites: Vec<_> = (0..count).map(|number| site_of(&number.to_string(), prefixes)).collect();
        format!("[{}]", sites.join(","))
    };
    assert_eq!(within(&sites(2, "10.0.0.0/8")), Ok(2));
    assert_eq!(within(&sites(3, "10.0.0.0/8")), Err(SitesError::TooManySites));
    assert_eq!(within(&sites(2, "10.0.0.0/8\", \"11.0.0.0/8")), Err(SitesError::TooManyPrefixes));
    assert_eq!(within(&" ".repeat(1001)), Err(SitesError::TooLarge(1001)));
}

#[test]
fn six_hundred_sites_make_a_world() {
    let site = |number: u32| {
        let [high, low] = [number / 250, number % 250];
        json!({
            "country": format!("country {}", number % 40),
            "latitude": f64::from(number % 120) - 60.0 + 0.5,
            "longitude": (f64::from(number * 7 % 360) - 180.0).to_string(),
            "netroutes": { "r": {
                "asn": 64512 + number,
                "networks": [format!("10.{high}.{low}.0/24"), format!("2001:db8:{number:x}::/48")],
            } },
        })
    };
    let list: serde_json::Map<_, _> = (0..600).map(|number| (format!("SITE {number}"), site(number))).collect();
    let (facts, warnings) = facts(&Value::Object(list).to_string());
    assert!(warnings.is_empty(), "{warnings:?}");
    assert_eq!(facts.properties.len(), 3 * 600);
    for costs in facts.cost_map.values().flat_map(|metrics| metrics.values()) {
        assert_eq!(costs.values().map(|row| row.len()).sum::<usize>(), 360_000);
    }
    let there = kilometres(&facts, "routingcost", "SITE_17", "SITE_599");
    assert!(there.is_some_and(|distance| distance > 0.0));
    assert_eq!(kilometres(&facts, "priv:distance", "SITE_599", "SITE_17"), there);
    let network_state = NetworkState::of([&facts]).unwrap();
    let map = &network_state.region("default").unwrap().map;
    assert_eq!(map.len(), 601);
    let number = map.locate("10.2.99.7".parse().unwrap()).unwrap();
    assert_eq!(map.name(number).as_str(), "SITE_599");
}

#[test]
fn too_many_places_have_no_distances() {
    let site = |number: usize| format!(r#""{number}": {{ "latitude": 1, "longitude": 2 }}"#);
    let sites: Vec<_> = (0..=MAX_PLACES).map(site).collect();
    let (facts, warnings) = facts(&format!("{{{}}}", sites.join(",")));
    assert!(facts.cost_map.is_empty());
    assert_eq!(
        warnings,
        ["2001 sites have coordinates, but distances are computed between at most 2000: none are computed"]
    );
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]

    /// Any modified list is either read or rejected, and a network state can be built from one that is read.
    #[test]
    fn no_list_makes_it_panic(changes in prop::collection::vec((0..CRIC.len(), any::<u8>()), 0..8)) {
        let mut bytes = CRIC.as_bytes().to_vec();
        for (place, byte) in changes {
            bytes[place] = byte;
        }
        if let Ok(sites) = Sites::parse(&bytes) {
            let (facts, _) = sites.facts(&SiteOptions::default());
            prop_assert!(NetworkState::of([&facts]).is_ok());
        }
    }

    /// Any field may hold a value of any type.
    #[test]
    fn no_value_makes_it_panic(values in prop::collection::vec(0..8_usize, 10)) {
        const VALUES: [&str; 8] =
            ["null", "true", "-1e300", "\"1\"", "[\"::1/0\", [2]]", "{\"x\": \"10.0.0.1/8\"}", "\"\"", "[{\"a\": {}}]"];
        let at = |place: usize| VALUES[values[place]];
        let list = format!(
            r#"[{{ "name": {}, "country": {}, "latitude": {}, "longitude": {}, "netroutes": {} }},
                {{ "name": "B", "netroutes": [{{ "asn": {}, "networks": {}, "lhcone_collaborations": {},
                   "lhcone_bandwidth_limit": {} }}, {}] }}]"#,
            at(0), at(1), at(2), at(3), at(4), at(5), at(6), at(7), at(8), at(9)
        );
        let (facts, _) = Sites::parse(list.as_bytes()).unwrap().facts(&SiteOptions::default());
        prop_assert!(NetworkState::of([&facts]).is_ok());
    }

    #[test]
    fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = Sites::parse(&bytes);
    }
}
