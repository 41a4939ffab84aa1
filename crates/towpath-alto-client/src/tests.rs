//! Statements evaluated with values from this crate's own server.

use std::net::IpAddr;

use serde_json::{Value as Json, json};

use super::*;
use towpath_alto::{
    agent_state::AgentState,
    directory,
    network_state::NetworkState,
    order::{CandidateValues as _, Direction, FilterMode, Statement, Value},
};

/// The sites of the talk, a link of known capacity, delays, and one site with a known continent.
const FACTS: &str = r#"
    [network-map.default]
    CERN = ["137.138.0.0/16"]
    IN2P3 = ["134.158.84.0/24"]
    elsewhere = ["0.0.0.0/0", "::/0"]
    [cost-map.default.routingcost]
    IN2P3 = { CERN = 2 }
    elsewhere = { CERN = 9 }
    CERN = { IN2P3 = 7 }
    [[costs]]
    src = "134.158.84.23"
    dst = "137.138.0.0/16"
    delay-ow = 5300
    [[costs]]
    src = "140.115.32.0/24"
    dst = "137.138.0.0/16"
    delay-ow = 90000
    [properties."ipv4:134.158.84.0/24"]
    "priv:continent" = "EU"
    [properties."ipv4:137.138.0.101"]
    "priv:continent" = "EU"
    [properties.".ane:link:ex2j_cern_ch-192_65_184_145"]
    max-reservable-bandwidth = 1e11
    [routers."ex2j.cern.ch"]
    default = true
    routes = [
        { prefix = "134.158.84.0/24", next-hop = "192.65.184.145", as-path = "20965 2091 789" },
        { prefix = "140.115.32.0/24", next-hop = "192.65.184.145", as-path = "20965 24167 7539 1659" },
    ]
"#;

const CONFIGURATION: &str = r#"
    [metrics.as_hopcount]
    resource-type = "path-vector"
    element-prefix = "as:"
    reverse = true
    [metrics.narrowest]
    resource-type = "path-vector"
    resource-id = "path-vector"
    prop-name = "max-reservable-bandwidth"
    prop-transformer = "scale(0.5)"
    aggr-transformer = "min"
    order = "max"
    reverse = true
    [metrics.distance]
    resource-type = "cost-map"
    cost-metric = "routingcost"
    dependent-network-map = "default"
    [metrics.cost]
    resource-type = "cost-map"
    cost-metric = "routingcost"
    [metrics.region]
    resource-type = "property-map"
    prop-name = "priv:continent"
    [metrics.odd]
    resource-type = "endpoint-cost"
    resource-id = "default"
"#;

const CERN: &str = "137.138.0.101";
const IN2P3: &str = "134.158.84.23";
const TAIWAN: &str = "140.115.32.101";
const UNKNOWN: &str = "203.0.113.9";

struct Server {
    network_state: NetworkState,
    directory: directory::Directory,
}

impl Server {
    fn new() -> Self {
        Self::of(FACTS)
    }

    fn of(facts: &str) -> Self {
        let network_state = NetworkState::of([&AgentState::parse(facts).unwrap()]).unwrap();
        let (directory, _) = directory::Directory::of(&network_state);
        Self { network_state, directory }
    }

    fn directory(&self) -> Directory {
        let document = self.directory.answer(&self.network_state, |id| format!("./{id}"));
        Directory::parse("http://h/alto/directory", &document.body).unwrap()
    }

    /// Returns the response for a client at CERN.
    fn answer(&self, request: &Request) -> (&'static str, Vec<u8>) {
        let resource = self.directory.find(request.uri.strip_prefix("http://h/alto/").unwrap()).unwrap();
        let document = request.document.as_ref();
        assert_eq!(document.map(|(media_type, _)| *media_type), resource.accepts());
        assert!(request.accept.starts_with(resource.media_type()));
        let request = document.map_or(Json::Null, |(_, document)| serde_json::from_slice(document).unwrap());
        let answer = resource.answer(&self.network_state, &request, address(CERN)).unwrap();
        (answer.media_type, answer.body)
    }
}

fn address(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn query_plan(server: &Server, statement: &str, ends: TransferEndpoints) -> Result<QueryPlan, ClientError> {
    let configuration = Configuration::parse(CONFIGURATION).unwrap();
    QueryPlan::new(&configuration, server.directory(), &statement.parse().unwrap(), ends)
}

fn ends(client: Option<&str>) -> TransferEndpoints {
    let replicas = [UNKNOWN, TAIWAN, IN2P3].map(address).into();
    TransferEndpoints { client: client.map(address), replicas }
}

/// Returns the formatted values of a name for the three replicas, and the number of requests needed.
fn values(name: &str, client: Option<&str>) -> ([String; 3], usize) {
    let server = Server::new();
    let mut query_plan = query_plan(&server, &format!("BY {name}"), ends(client)).unwrap();
    let mut requests = 0;
    while let Some(request) = query_plan.next_request() {
        let (media_type, body) = server.answer(&request);
        query_plan.take(media_type, &body).unwrap();
        requests += 1;
    }
    let values = query_plan.replica_values();
    let value = |replica| values.at(Some(address(replica))).value(name);
    let printed = |replica| value(replica).map_or("-".to_owned(), |value| value.to_string());
    ([IN2P3, TAIWAN, UNKNOWN].map(printed), requests)
}

#[test]
fn each_metric_of_all_replicas_takes_one_question() {
    for (name, expected) in [
        ("as_hopcount", ["2", "3", "-"]),
        ("dst.as_hopcount", ["2", "3", "-"]),
        ("narrowest", ["50000000000", "50000000000", "-"]),
        ("delay_ow", ["5300", "90000", "-"]),
        ("delay-ow", ["5300", "90000", "-"]),
        ("routingcost", ["2", "9", "9"]),
        ("region", ["EU", "-", "-"]),
        ("continent", ["EU", "-", "-"]),
        ("priv:continent", ["EU", "-", "-"]),
        ("default.pid", ["IN2P3", "elsewhere", "elsewhere"]),
    ] {
        for client in [Some(CERN), None] {
            let expected = expected.map(str::to_owned);
            assert_eq!(values(name, client), (expected, 1), "{name} for {client:?}");
        }
    }
}

#[test]
fn replicas_of_which_no_key_is_known_are_ordered_by_distance() {
    let positions = [(IN2P3, 45.8, 4.9), (TAIWAN, 25.0, 121.2), (CERN, 46.2, 6.0)];
    let position = |(address, latitude, longitude)| {
        format!("[properties.\"ipv4:{address}\"]\n\"priv:latitude\" = {latitude}\n\"priv:longitude\" = {longitude}\n")
    };
    let facts: String = positions.map(position).concat();
    let ranked_order = |statement: &str, of_all: bool| {
        let delay = |replica| format!("[[costs]]\nsrc = \"{replica}\"\ndst = \"{CERN}\"\ndelay-ow = 7\n");
        let delays = if of_all { [IN2P3, TAIWAN].map(delay).concat() } else { String::new() };
        let other = "[[costs]]\nsrc = \"192.0.2.1\"\ndst = \"192.0.2.2\"\ndelay-ow = 1\n";
        let server = Server::of(&format!("{other}{delays}{facts}"));
        let (directory, configuration) = (server.directory(), Configuration::default());
        let statement = directory.complete(&statement.parse().unwrap());
        let ends = TransferEndpoints { client: Some(address(CERN)), replicas: [TAIWAN, IN2P3].map(address).into() };
        let mut query_plan = QueryPlan::new(&configuration, directory, &statement, ends).unwrap();
        let mut requests = 0;
        while let Some(request) = query_plan.next_request() {
            let (media_type, body) = server.answer(&request);
            query_plan.take(media_type, &body).unwrap();
            requests += 1;
        }
        let candidates = [TAIWAN, IN2P3].map(|replica| query_plan.replica_values().at(Some(address(replica))));
        let ranked = statement.order(&candidates, &|name| configuration.direction(name), FilterMode::Demote);
        (requests, ranked.iter().map(|ranked| ranked.index).collect::<Vec<_>>())
    };
    assert_eq!(ranked_order("BY delay_ow", false), (2, vec![1, 0]));
    assert_eq!(ranked_order("BY delay_ow, priv:geo-distance", true), (2, vec![1, 0]), "what is named is asked for");
    assert_eq!(ranked_order("BY delay_ow WHERE priv:geo-distance < 1000", true), (2, vec![1, 0]));
    assert_eq!(
        ranked_order("BY delay_ow", true),
        (1, vec![0, 1]),
        "nobody asks for what is not needed, and ties stay as they were"
    );
    assert_eq!(Server::new().directory().complete(&"BY x".parse().unwrap()).backup(), None);
}

#[test]
fn m3_of_ranks_the_least_is_the_best_whatever_is_ranked() {
    let document = json!({
        "meta": { "cost-types": { "t": { "cost-mode": "ordinal", "cost-metric": "tput" } } },
        "resources": { "e": {
            "uri": "e", "media-type": "application/alto-endpointcost+json",
            "accepts": "application/alto-endpointcostparams+json", "capabilities": { "cost-type-names": ["t"] },
        } },
    });
    let directory = Directory::parse("http://h/d", document.to_string().as_bytes()).unwrap();
    let configuration = Configuration::default();
    let statement = "BY tput".parse().unwrap();
    let of_ranks = QueryPlan::new(&configuration, directory, &statement, ends(Some(CERN))).unwrap();
    assert_eq!(of_ranks.replica_values().direction("tput", &configuration), Direction::Min);
    assert_eq!(ReplicaValues::default().direction("tput", &configuration), Direction::Max);
}

#[test]
fn costs_between_pids_take_the_network_map_too() {
    assert_eq!(values("distance", Some(CERN)), (["2", "9", "9"].map(str::to_owned), 2));
    assert_eq!(values("distance", Some("2001:db8::1")), (["-", "-", "-"].map(str::to_owned), 2), "of another PID");
}

#[test]
fn the_client_has_properties_too() {
    assert_eq!(values("src.continent", Some(CERN)).0, ["EU", "EU", "EU"].map(str::to_owned));
    assert_eq!(values("src.continent", Some(TAIWAN)).0, ["-", "-", "-"].map(str::to_owned));
}

#[test]
fn the_talks_statement_orders_replicas() {
    let server = Server::new();
    let text = "BY=as_hopcount,delay_ow WHERE continent=\"EU\"";
    let mut query_plan = query_plan(&server, text, ends(None)).unwrap();
    while let Some(request) = query_plan.next_request() {
        let (media_type, body) = server.answer(&request);
        query_plan.take(media_type, &body).unwrap();
    }
    let statement: Statement = text.parse().unwrap();
    let replicas = [None, Some(UNKNOWN), Some(TAIWAN), Some(IN2P3)];
    let candidates = replicas.map(|replica| query_plan.replica_values().at(replica.map(address)));
    let order = |where_| {
        let ranked = statement.order(&candidates, &|name| Configuration::default().direction(name), where_);
        ranked.into_iter().map(|ranked| replicas[ranked.index]).collect::<Vec<_>>()
    };
    assert_eq!(order(FilterMode::Demote), [Some(IN2P3), Some(TAIWAN), None, Some(UNKNOWN)]);
    assert_eq!(order(FilterMode::Drop), [Some(IN2P3)]);
}

#[test]
fn what_cannot_be_asked_is_told_with_whose_fault_it_is() {
    let server = Server::new();
    for (name, expected) in [
        ("delai", "`delai` is neither a configured metric nor a cost metric or property of http://h/alto/directory"),
        ("src.delai", "`src.delai` is neither a configured metric"),
        (
            "odd",
            "metric odd: the resource default of http://h/alto/directory is not the required endpoint cost service",
        ),
        ("distance", "`distance` depends on the client's address"),
        ("src.continent", "`src.continent` depends on the client's address"),
    ] {
        let error = query_plan(&server, &format!("BY {name}"), ends(None)).err().unwrap();
        assert!(error.to_string().starts_with(expected) && error.is_caller_error(), "{name}: {error}");
    }
    let error = query_plan(&server, "BY delai", ends(None)).err().unwrap().to_string();
    assert!(error.ends_with("which has default.pid, delay-ow, priv:continent, routingcost"), "{error}");
}

#[test]
fn what_terminals_obey_is_not_repeated_of_a_directory() {
    let document = json!({
        "meta": { "cost-types": { "km": { "cost-mode": "numerical", "cost-metric": "routingcost" } } },
        "resources": { "costs": {
            "uri": "costs", "media-type": towpath_alto::media::COST_MAP, "uses": ["a\u{1b}b"],
            "capabilities": { "cost-type-names": ["km"] },
        }},
    });
    let directory = Directory::parse("http://h/", document.to_string().as_bytes()).unwrap();
    let configuration = Configuration::parse(CONFIGURATION).unwrap();
    let statement = "BY cost".parse().unwrap();
    let error = QueryPlan::new(&configuration, directory, &statement, ends(Some(CERN))).err().unwrap().to_string();
    assert!(error.starts_with("metric cost: http://h/ has no network map 'a b'"), "{error}");
}

#[test]
fn a_network_map_that_changed_meanwhile_is_noticed() {
    let server = Server::new();
    let mut query_plan = query_plan(&server, "BY distance", ends(Some(CERN))).unwrap();
    let (media_type, body) = server.answer(&query_plan.next_request().unwrap());
    let mut document: Json = serde_json::from_slice(&body).unwrap();
    document["meta"]["vtag"]["tag"] = "before".into();
    query_plan.take(media_type, document.to_string().as_bytes()).unwrap();
    let (media_type, body) = server.answer(&query_plan.next_request().unwrap());
    assert_eq!(query_plan.take(media_type, &body), Err(ClientError::Changed { map: "default".into() }));
}

#[test]
fn many_replicas_are_asked_for_in_parts_that_a_server_takes() {
    let server = Server::new();
    let longest = |number: u32| IpAddr::from([0xffff, 0xffff, 0xffff, 0xffff, 0xffff, 0xffff, 0xffff, number as u16]);
    let replicas = (0..9000).map(|number| longest(0xffff - number)).collect();
    let mut query_plan = query_plan(&server, "BY delay_ow", TransferEndpoints { client: None, replicas }).unwrap();
    let mut requested = 0;
    while let Some(request) = query_plan.next_request() {
        let (_, document) = request.document.unwrap();
        assert!(document.len() <= 256 << 10, "{}", document.len());
        let document: Json = serde_json::from_slice(&document).unwrap();
        requested += document["endpoints"]["srcs"].as_array().unwrap().len();
        query_plan.take(towpath_alto::media::ENDPOINT_COST, br#"{"endpoint-cost-map": {}}"#).unwrap();
    }
    assert_eq!(requested, 9000);
    assert_eq!(query_plan.replica_values().at(Some(longest(0xffff))).value("delay_ow"), None::<Value>);
}
