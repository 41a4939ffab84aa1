mod writer;

use std::sync::Arc;

use proptest::prelude::*;
use serde_json::json;

use self::writer::database;
use super::*;
use crate::{agent_state::AgentState, directory::Directory, network_state::NetworkState};

/// Records in MaxMind's layout.
fn cities() -> [(&'static str, Value); 4] {
    let geneva = json!({
        "city": { "geoname_id": 2_660_646, "names": { "de": "Genf", "en": "Geneva" } },
        "continent": { "code": "EU", "names": { "en": "Europe" } },
        "country": { "iso_code": "CH", "names": { "en": "Switzerland" } },
        "location": { "accuracy_radius": 20, "latitude": 46.2333, "longitude": 6.05, "time_zone": "Europe/Zurich" },
    });
    let batavia = json!({
        "city": { "names": { "en": "Batavia" } },
        "continent": { "code": "NA" },
        "country": { "iso_code": "US" },
        "location": { "latitude": 41.8406, "longitude": -88.2792 },
    });
    let country = json!({ "country": { "iso_code": "JP" } });
    [
        ("128.142.0.0/16", geneva.clone()),
        ("131.225.0.0/16", batavia),
        ("2001:1458::/32", geneva),
        ("130.87.0.0/16", country),
    ]
}

fn read(records: &[(&str, Value)]) -> Result<Locations, LocationsError> {
    Locations::read(database(24, 6, records))
}

/// Returns all properties of an address in a database.
fn location_of(locations: &Locations, address: &str) -> Option<Value> {
    let location = locations.find(address.parse().unwrap())?;
    let values = PROPERTIES.iter().filter_map(|name| Some(((*name).to_owned(), location.property(name)?)));
    Some(Value::Object(values.collect()))
}

/// A network state with facts and a database.
fn network_state(facts: &str, records: &[(&str, Value)]) -> NetworkState {
    let located = AgentState { locations: Some(Arc::new(read(records).unwrap())), ..AgentState::default() };
    NetworkState::of([&AgentState::parse(facts).unwrap(), &located]).unwrap()
}

fn ask(network_state: &NetworkState, resource: &str, request: &Value) -> Value {
    let (directory, _) = Directory::of(network_state);
    let caller = "128.142.0.1".parse().unwrap();
    let answer = directory.find(resource).unwrap().answer(network_state, request, caller).unwrap();
    serde_json::from_slice(&answer.body).unwrap()
}

/// Returns the distances from CERN to these endpoints.
fn distances(network_state: &NetworkState, mode: &str, to: &[&str]) -> Value {
    let request = json!({
        "cost-type": { "cost-mode": mode, "cost-metric": DISTANCE },
        "endpoints": { "srcs": ["ipv4:128.142.0.1"], "dsts": to },
    });
    ask(network_state, "endpoint-costs", &request)["endpoint-cost-map"]["ipv4:128.142.0.1"].clone()
}

#[test]
fn records_of_all_sizes_are_found() {
    let geneva = json!({
        "priv:country": "CH", "priv:continent": "EU", "priv:city": "Geneva",
        "priv:latitude": 46.2333, "priv:longitude": 6.05,
    });
    for record_bits in [24, 28, 32] {
        let locations = Locations::read(database(record_bits, 6, &cities())).unwrap();
        assert_eq!(location_of(&locations, "128.142.255.1"), Some(geneva.clone()), "{record_bits}");
        assert_eq!(location_of(&locations, "2001:1458::1"), Some(geneva.clone()), "{record_bits}");
        assert_eq!(location_of(&locations, "131.225.0.0").unwrap()["priv:longitude"], -88.2792);
        assert_eq!(location_of(&locations, "128.143.0.0"), None);
        assert_eq!(location_of(&locations, "2001:1459::"), None);
    }
}

#[test]
fn a_database_of_ipv4_knows_nothing_of_ipv6() {
    let locations = Locations::read(database(28, 4, &cities()[..2])).unwrap();
    assert!(locations.covers(AddressType::Ipv4) && !locations.covers(AddressType::Ipv6));
    assert_eq!(location_of(&locations, "131.225.1.2").unwrap()["priv:city"], "Batavia");
    assert_eq!(location_of(&locations, "2001:1458::1"), None);
}

#[test]
fn flat_records_are_read_too() {
    let record =
        json!({ "city": "Geneva", "country_code": "CH", "latitude": 46, "longitude": 6.05, "state1": "Geneva" });
    let locations = read(&[("128.142.0.0/16", record)]).unwrap();
    let expected = json!({
        "priv:country": "CH", "priv:continent": "EU", "priv:city": "Geneva",
        "priv:latitude": 46.0, "priv:longitude": 6.05,
    });
    assert_eq!(location_of(&locations, "128.142.0.1"), Some(expected), "the continent follows from the country");
}

#[test]
fn what_has_another_form_is_as_if_not_there() {
    let good = cities()[0].clone();
    for record in [
        json!({ "country": { "iso_code": "Switzerland" }, "city": { "names": { "en": "x".repeat(257) } } }),
        json!({ "country": "CH", "continent": { "code": 7 }, "city": "" }),
        json!({ "location": { "latitude": 91.0, "longitude": 6.05 } }),
        json!({ "location": { "latitude": 0, "longitude": 0 } }),
        json!({ "location": { "latitude": 46.2333 } }),
        json!([]),
        json!("Geneva"),
    ] {
        let locations = read(&[good.clone(), ("131.225.0.0/16", record.clone())]).unwrap();
        assert_eq!(location_of(&locations, "131.225.0.1"), Some(json!({})), "{record}");
    }
}

#[test]
fn what_tells_no_places_is_refused() {
    let numbers = json!({ "autonomous_system_number": 513, "autonomous_system_organization": "CERN" });
    assert_eq!(read(&[("128.142.0.0/16", numbers)]), Err(LocationsError::NoPlaces));
    assert_eq!(read(&[]), Err(LocationsError::NoPlaces));
    let countries = read(&cities()[3..]).unwrap();
    let names: Vec<&str> = countries.properties().iter().map(PropertyName::as_str).collect();
    assert_eq!(names, [COUNTRY, CONTINENT]);
}

#[test]
fn a_part_of_a_database_is_refused() {
    let whole = database(28, 6, &cities());
    for length in 0..whole.len() {
        let error = Locations::read(whole[..length].to_vec()).unwrap_err();
        assert!(matches!(error, LocationsError::Invalid(_)), "{length}: {error}");
    }
    let mut damaged = whole;
    // The first node points beyond the end of the data.
    damaged[..7].fill(0xff);
    let error = Locations::read(damaged).unwrap_err().to_string();
    assert!(error.contains("fetch it again"), "{error}");
}

#[test]
fn p1_what_no_agent_tells_of_an_endpoint_is_looked_up() {
    let facts = r#"
        [properties."ipv4:128.142.0.0/17"]
        "priv:country" = "Switzerland"
        [properties."ipv4:131.225.0.0/24"]
        "priv:city" = "FNAL"
    "#;
    let mut facts = AgentState::parse(facts).unwrap();
    let hidden = facts.properties.values_mut().last().unwrap();
    hidden.insert(PropertyName::new(CONTINENT).unwrap(), Value::Null);
    facts.locations = Some(Arc::new(read(&cities()).unwrap()));
    let request = json!({
        "properties": [COUNTRY, CONTINENT, CITY],
        "endpoints": ["ipv4:128.142.0.1", "ipv4:128.142.128.1", "ipv4:131.225.0.1", "ipv4:192.0.2.1",
            "ipv6:2001:1458::1"],
    });
    let expected = json!({
        "ipv4:128.142.0.1": { "priv:country": "Switzerland", "priv:continent": "EU", "priv:city": "Geneva" },
        "ipv4:128.142.128.1": { "priv:country": "CH", "priv:continent": "EU", "priv:city": "Geneva" },
        "ipv4:131.225.0.1": { "priv:country": "US", "priv:city": "FNAL" },
        "ipv4:192.0.2.1": {},
        "ipv6:2001:1458::1": { "priv:country": "CH", "priv:continent": "EU", "priv:city": "Geneva" },
    });
    let network_state = NetworkState::of([&facts]).unwrap();
    assert_eq!(ask(&network_state, "endpoint-properties", &request)["endpoint-properties"], expected);
}

#[test]
fn r4_addresses_are_looked_up_and_prefixes_are_not() {
    let network_state = network_state("[properties.\"ipv4:128.142.0.0/16\"]\n\"priv:site\" = \"CERN\"", &cities());
    let ask = |entities: &[&str]| {
        let request = json!({ "entities": entities, "properties": [COUNTRY, "priv:site"] });
        ask(&network_state, "properties-filtered", &request)["property-map"].clone()
    };
    let expected = json!({ "ipv4:128.142.0.1": { "priv:country": "CH", "priv:site": "CERN" } });
    assert_eq!(ask(&["ipv4:128.142.0.1"]), expected);
    assert_eq!(ask(&["ipv4:128.142.0.0/16"]), json!({ "ipv4:128.142.0.0/16": { "priv:site": "CERN" } }));
    assert_eq!(
        ask(&["ipv6:2001:1458::1", "ipv6:2001:1458::/32"]),
        json!({ "ipv6:2001:1458::1": { "priv:country": "CH" } })
    );
}

#[test]
fn i2_a_database_alone_makes_resources() {
    let network_state = network_state("", &cities());
    let (directory, _) = Directory::of(&network_state);
    let can = |resource: &str| directory.find(resource).unwrap().capabilities(&network_state);
    assert_eq!(can("endpoint-properties")["prop-types"].as_array().unwrap().len(), PROPERTIES.len());
    assert_eq!(can("properties-filtered")["mappings"]["ipv6"].as_array().unwrap().len(), PROPERTIES.len());
    assert_eq!(can("endpoint-costs")["cost-type-names"][0], "priv:geo-distance-numerical");
}

#[test]
fn distances_are_offered_where_positions_are_known() {
    let offers =
        |network_state: &NetworkState| network_state.metrics().into_iter().any(|metric| metric.as_str() == DISTANCE);
    let of = |facts: &str| NetworkState::of([&AgentState::parse(facts).unwrap()]).unwrap();
    assert!(!offers(&of("")) && !offers(&network_state("", &cities()[3..])));
    assert!(!offers(&of("[properties.\"ipv4:192.0.2.1\"]\n\"priv:latitude\" = 1")));
    assert!(offers(&of("[properties.\"ipv4:192.0.2.1\"]\n\"priv:latitude\" = 1\n\"priv:longitude\" = 2")));
    assert!(offers(&network_state("", &cities())));
}

#[test]
fn e1_distances_follow_from_positions() {
    let network_state = network_state("", &cities());
    let all = ["ipv4:131.225.0.1", "ipv6:2001:1458::1", "ipv4:130.87.0.1", "ipv4:192.0.2.1"];
    let expected = json!({ "ipv4:131.225.0.1": 7085, "ipv6:2001:1458::1": 0 });
    assert_eq!(distances(&network_state, "numerical", &all), expected, "the others are nowhere");
    assert_eq!(distances(&network_state, "ordinal", &all), json!({ "ipv4:131.225.0.1": 2, "ipv6:2001:1458::1": 1 }));
}

#[test]
fn e1_what_agents_tell_goes_before_what_follows() {
    let facts = r#"
        [properties."ipv4:131.225.0.0/16"]
        "priv:latitude" = 45.7828
        "priv:longitude" = 4.8656
        [properties."ipv4:131.225.1.0/24"]
        "priv:latitude" = "north"
        [[costs]]
        src = "128.142.0.0/16"
        dst = "131.225.2.0/24"
        "priv:geo-distance" = 7
    "#;
    let to = ["ipv4:131.225.0.1", "ipv4:131.225.1.1", "ipv4:131.225.2.1"];
    let expected = json!({ "ipv4:131.225.0.1": 104, "ipv4:131.225.2.1": 7 });
    assert_eq!(distances(&network_state(facts, &cities()), "numerical", &to), expected);
}

#[test]
fn of_two_databases_the_later_one_holds_where_it_knows() {
    let facts = |records: &[(&str, Value)]| AgentState {
        locations: Some(Arc::new(read(records).unwrap())),
        ..AgentState::default()
    };
    let (first, later) = (facts(&cities()), facts(&[("131.225.0.0/16", json!({ "country": { "iso_code": "FR" } }))]));
    let network_state = NetworkState::of([&first, &later]).unwrap();
    let country = |address: &str| network_state.location(address.parse().unwrap()).unwrap().country();
    assert_eq!((country("131.225.0.1"), country("128.142.0.1")), (Some("FR"), Some("CH")));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    /// A modified database is either rejected or safe to query.
    #[test]
    fn no_database_makes_it_panic(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
        addresses in prop::collection::vec(any::<IpAddr>(), 8),
    ) {
        let mut bytes = database(28, 6, &cities());
        for (place, byte) in changes {
            let place = place.index(bytes.len());
            bytes[place] = byte;
        }
        if let Ok(locations) = Locations::read(bytes) {
            let listed = ["128.142.0.1", "131.225.0.1", "2001:1458::1"].map(|address| address.parse::<IpAddr>().unwrap());
            for location in addresses.into_iter().chain(listed).filter_map(|address| locations.find(address)) {
                PROPERTIES.iter().for_each(|name| drop(location.property(name)));
            }
        }
    }
}
