//! The ALTO server as a program: its HTTP interface and command line.

use std::net::SocketAddr;

use rustix::process::Signal;
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use towpath_proto::xrootd::handshake::HANDSHAKE;
use towpath_store::sys::{disk, net};

use super::program::{Directory, ServerProcess};

const FACTS: &str = r#"
    [network-map.default]
    PID1 = ["192.0.2.0/24"]
    PID2 = ["0.0.0.0/0", "::/0"]
    [cost-map.default.routingcost]
    PID1 = { PID1 = 1, PID2 = 5 }
    [[costs]]
    src = "127.0.0.0/8"
    dst = "192.0.2.0/24"
    delay-ow = 5300
"#;

/// In the format of Junos (`show route table`).
const ROUTES: &str = "\
inet.0: 2 destinations, 2 routes (2 active, 0 holddown, 0 hidden)
+ = Active Route, - = Last Active, * = Both

134.158.84.0/24    *[BGP/170] 3w2d 04:05:06, localpref 100, from 192.65.184.145
                      AS path: 20965 2091 789 I, validation-state: unverified
                    > to 192.65.184.145 via xe-0/0/0.0
";

/// In the format of a registry.
const SITES: &str = r#"{
    "A": { "country": "CH", "latitude": 46.2, "longitude": 6.1, "netroutes": { "n": { "networks": { "ipv4": ["10.1.0.0/16"] } } } },
    "B": { "country": "FR", "latitude": 45.8, "longitude": 4.8, "netroutes": { "n": { "networks": { "ipv4": ["10.2.0.0/16"] } } } }
}"#;

pub(super) const CONFIG: &str =
    "listen = ['127.0.0.1:0']\n[agents.sites]\nkind = 'static'\nfile = 'facts.toml'\nrefresh = '1h'\n";

pub(super) const COSTS: &str = "application/alto-endpointcostparams+json";

pub(super) fn directory() -> Directory {
    let directory = Directory::new();
    directory.put("facts.toml", FACTS);
    directory.put("alto.toml", CONFIG);
    directory
}

fn serve(directory: &Directory) -> ServerProcess {
    ServerProcess::of(directory.command(["alto", "--config", "alto.toml"]))
}

/// Sends a request on a new connection, and returns the whole response.
pub(super) async fn ask(served: &ServerProcess, what: &str, headers: &[(&str, &str)], body: &str) -> String {
    request(served.address, what, headers, body).await
}

/// Like [`ask`], to an address.
pub(super) async fn request(address: SocketAddr, what: &str, headers: &[(&str, &str)], body: &str) -> String {
    let headers: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    let length = body.len();
    let request =
        format!("{what} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {length}\r\n{headers}\r\n{body}");
    let mut stream = net::connect(address).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

#[track_caller]
pub(super) fn expect(answer: &str, parts: &[&str]) {
    for part in parts {
        assert!(answer.contains(part), "{part} is not in: {answer}");
    }
}

#[tokio::test]
async fn resources_are_found_and_asked() {
    let directory = directory();
    let served = serve(&directory);
    for path in ["/", "/directory"] {
        let answer = ask(&served, &format!("GET {path}"), &[], "").await;
        expect(
            &answer,
            &[
                "HTTP/1.1 200 OK",
                "content-type: application/alto-directory+json",
                "\"default-alto-network-map\":\"default\"",
                "\"uri\":\"./default-routingcost\"",
            ],
        );
    }
    let question = r#"{"cost-type": {"cost-mode": "numerical", "cost-metric": "delay-ow"}, "endpoints": {"dsts": ["ipv4:192.0.2.7"]}}"#;
    let answer = ask(&served, "POST /endpoint-costs", &[("content-type", COSTS)], question).await;
    expect(&answer, &["200 OK", "application/alto-endpointcost+json", r#"{"ipv4:127.0.0.1":{"ipv4:192.0.2.7":5300}}"#]);
}

#[tokio::test]
async fn a_browser_gets_a_page() {
    let directory = directory();
    directory.put("alto.toml", &format!("{CONFIG}[linked.north]\nurl = 'https://a.example/?a&b'\n"));
    let served = serve(&directory);
    let accept = [("accept", "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8")];
    let page = ask(&served, "GET /", &accept, "").await;
    expect(
        &page,
        &[
            "HTTP/1.1 200 OK",
            "content-type: text/html; charset=utf-8",
            "vary: accept\r\n",
            "content-security-policy: default-src 'none'; style-src 'sha256-",
            "<h1>ALTO server – x</h1>",
            "<a href=\"./directory\">",
            "<td><a href=\"./default\">default</a><small>all PIDs with their prefixes</small><td>application/alto-networkmap+json",
            "<td>endpoint-costs<small>costs between endpoints</small><td>application/alto-endpointcost+json<small>by POST of application/",
            "<a href=\"https://a.example/?a&amp;b\">north</a>",
            "<td>sites<small>static</small><td>no known problem",
        ],
    );
    assert!(!page.contains("facts.toml"), "locations of sources are not shown: {page}");
    expect(&ask(&served, "HEAD /", &accept, "").await, &["200 OK", "content-type: text/html"]);
    expect(&ask(&served, "GET /directory", &accept, "").await, &["content-type: application/alto-directory+json"]);
    expect(&ask(&served, "POST /", &accept, "").await, &["405 Method Not Allowed"]);
    for accept in ["*/*", "application/alto-directory+json, text/html;q=0.5"] {
        let answer = ask(&served, "GET /", &[("accept", accept)], "").await;
        expect(&answer, &["content-type: application/alto-directory+json", "vary: accept\r\n"]);
    }
}

#[tokio::test]
async fn c3_what_is_wrong_with_a_request_is_told() {
    let directory = directory();
    let served = serve(&directory);
    let post = async |body: &str| ask(&served, "POST /endpoint-costs", &[("content-type", COSTS)], body).await;
    let answer = post("{").await;
    expect(&answer, &["400 Bad Request", "application/alto-error+json", "\"code\":\"E_SYNTAX\"", "syntax-error"]);
    let answer = post(r#"{"endpoints": {}}"#).await;
    expect(&answer, &["400 Bad Request", "E_MISSING_FIELD", "\"field\":\"cost-type\""]);
}

#[tokio::test]
async fn c2_an_error_has_one_code_with_its_field_and_value() {
    let directory = directory();
    let served = serve(&directory);
    let kind = r#"{"cost-mode": "numerical", "cost-metric": "delay-ow"}"#;
    for (body, code, field, value) in [
        (
            r#"{"cost-type": {"cost-mode": "numerical", "cost-metric": "colour"}, "endpoints": {"dsts": ["ipv4:192.0.2.7"]}}"#
                .to_owned(),
            "E_INVALID_FIELD_VALUE",
            "cost-type/cost-metric",
            Some("colour"),
        ),
        (
            format!(r#"{{"cost-type": {kind}, "endpoints": {{"dsts": ["192.0.2.7"]}}}}"#),
            "E_INVALID_FIELD_VALUE",
            "endpoints/dsts",
            Some("192.0.2.7"),
        ),
        (format!(r#"{{"cost-type": {kind}, "endpoints": 7}}"#), "E_INVALID_FIELD_TYPE", "endpoints", None),
    ] {
        let answer = ask(&served, "POST /endpoint-costs", &[("content-type", COSTS)], &body).await;
        expect(&answer, &["400 Bad Request", "content-type: application/alto-error+json"]);
        let (_, document) = answer.split_once("\r\n\r\n").unwrap();
        let document: Value = serde_json::from_str(document).unwrap();
        let meta = &document["meta"];
        let told = (meta["code"].as_str(), meta["field"].as_str(), meta.get("value").and_then(Value::as_str));
        assert_eq!(told, (Some(code), Some(field), value), "{document}");
    }
}

#[tokio::test]
async fn c5_methods_and_media_types() {
    let directory = directory();
    let served = serve(&directory);
    let json = [("content-type", "application/json")];
    for (what, headers, status) in [
        ("GET /nothing", &[][..], "404 Not Found"),
        ("POST /default", &json, "405 Method Not Allowed"),
        ("GET /endpoint-costs", &[], "405 Method Not Allowed"),
        ("PUT /default", &[], "405 Method Not Allowed"),
        ("POST /endpoint-costs", &json, "415 Unsupported Media Type"),
        ("GET /default", &[("accept", "text/html")], "406 Not Acceptable"),
        ("GET /default", &[("accept", "application/alto-networkmap+json;q=0.9, text/html")], "200 OK"),
        ("OPTIONS /endpoint-costs", &[], "204 No Content"),
    ] {
        expect(&ask(&served, what, headers, "").await, &[status]);
    }
    let answer = ask(&served, "HEAD /default", &[], "").await;
    expect(&answer, &["200 OK", "content-length: "]);
    assert!(answer.ends_with("\r\n\r\n"), "{answer}");
    expect(&ask(&served, "GET /metrics", &[], "").await, &["200 OK", "towpath_"]);
}

#[tokio::test]
async fn pages_of_permitted_origins_may_read() {
    let directory = directory();
    directory.put("alto.toml", &format!("origins = ['https://a.example']\n{CONFIG}"));
    let served = serve(&directory);
    for (origin, is_permitted) in [("https://a.example", true), ("https://b.example", false)] {
        for what in ["GET /default", "OPTIONS /endpoint-costs", "GET /nothing"] {
            let answer = ask(&served, what, &[("origin", origin)], "").await;
            let told = format!("access-control-allow-origin: {origin}");
            assert_eq!(answer.contains(&told), is_permitted, "{what}: {answer}");
        }
    }
}

#[tokio::test]
async fn there_are_no_files_and_no_probes() {
    let directory = directory();
    let served = serve(&directory);
    let mut stream = net::connect(served.address).await.unwrap();
    stream.write_all(&HANDSHAKE).await.unwrap();
    assert_eq!(stream.read_to_end(&mut Vec::new()).await.unwrap_or(0), 0);
    let answer = ask(&served, "GET /.well-known/towpath/probe", &[], "").await;
    expect(&answer, &["404 Not Found"]);
}

#[tokio::test]
async fn c7_who_has_a_version_is_not_sent_it_again() {
    let directory = directory();
    let served = serve(&directory);
    let answer = ask(&served, "GET /default", &[], "").await;
    let tag = answer.lines().find_map(|line| line.strip_prefix("etag: ")).unwrap();
    let again = ask(&served, "GET /default", &[("if-none-match", tag)], "").await;
    expect(&again, &["304 Not Modified", tag]);
    assert!(again.ends_with("\r\n\r\n"), "{again}");
    expect(&ask(&served, "GET /default", &[("if-none-match", "\"other\"")], "").await, &["200 OK"]);
}

#[tokio::test]
async fn a_changed_file_is_taken_and_a_broken_one_is_not() {
    let directory = directory();
    let mut command = directory.command(["alto", "--config", "alto.toml"]);
    command.stderr(disk::create(&directory.host("log")).unwrap());
    let served = ServerProcess::of(command);
    let costs = async || ask(&served, "GET /default-routingcost", &[], "").await;
    expect(&costs().await, &["\"PID2\":5"]);
    directory.put("facts.toml", &FACTS.replace("PID2 = 5", "PID2 = 6"));
    served.signal(Signal::HUP);
    while !costs().await.contains("\"PID2\":6") {
        tokio::task::yield_now().await;
    }
    let twice = FACTS.replace("PID2 = [", "PID2 = [\"192.0.2.0/24\", ");
    for (broken, told) in
        [("[network-map", "keeping its previous facts"), (&*twice, ": its latest facts are invalid: ")]
    {
        directory.put("facts.toml", broken);
        served.signal(Signal::HUP);
        while !directory.get("log").contains(told) {
            tokio::task::yield_now().await;
        }
        expect(&costs().await, &["\"PID2\":6"]);
    }
    directory.put("facts.toml", &FACTS.replace("PID2 = 5", "PID2 = 7"));
    served.signal(Signal::HUP);
    while !costs().await.contains("\"PID2\":7") {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn agents_are_read_at_their_own_times() {
    let directory = directory();
    let often = "[agents.often]\nkind = 'static'\nfile = 'often.toml'\nrefresh = '100ms'\n";
    directory.put("alto.toml", &format!("{CONFIG}{often}"));
    directory.put("often.toml", "");
    let served = serve(&directory);
    directory.put("facts.toml", "[network-map");
    directory.put("often.toml", "[cost-map.default.hopcount.PID1]\nPID2 = 3\n");
    while !ask(&served, "GET /directory", &[], "").await.contains("default-hopcount") {
        tokio::task::yield_now().await;
    }
    expect(&ask(&served, "GET /default-routingcost", &[], "").await, &["\"PID2\":5"]);
}

#[tokio::test]
async fn what_a_looking_glass_printed_makes_paths() {
    let directory = directory();
    let agent = "[agents.routes]\nkind = 'looking-glass'\nfile = 'routes.txt'\nrouter = 'ex2j.cern.ch'\n";
    directory.put("alto.toml", &format!("{CONFIG}{agent}"));
    directory.put("routes.txt", ROUTES);
    let served = serve(&directory);
    let question = r#"{"cost-type": {"cost-mode": "array", "cost-metric": "ane-path"}, "endpoints": {"dsts": ["ipv4:134.158.84.23"]}}"#;
    let answer = ask(&served, "POST /path-vector", &[("content-type", COSTS)], question).await;
    let path = r#"["link:ex2j_cern_ch-192_65_184_145","as:20965-2091","as:2091-789"]"#;
    expect(&answer, &["200 OK", "content-type: multipart/related;", path]);
}

#[tokio::test]
async fn sites_and_measurements_make_costs() {
    let directory = directory();
    let agents = "[agents.registry]\nkind = 'sites'\nfile = 'sites.json'\nmap = 'sites'\n\
                  [agents.results]\nkind = 'measurements'\nfiles = ['results.csv']\n";
    directory.put("alto.toml", &format!("{CONFIG}{agents}"));
    directory.put("sites.json", SITES);
    directory.put("results.csv", "src,dst,metric,value\n10.1.0.0/16,10.2.0.0/16,delay-rt,12000\n");
    let served = serve(&directory);
    expect(&ask(&served, "GET /sites-routingcost", &[], "").await, &["\"A\":{", "\"B\":"]);
    let question = r#"{"cost-type": {"cost-mode": "numerical", "cost-metric": "delay-rt"}, "endpoints": {"srcs": ["ipv4:10.1.2.3"], "dsts": ["ipv4:10.2.3.4"]}}"#;
    let answer = ask(&served, "POST /endpoint-costs", &[("content-type", COSTS)], question).await;
    expect(&answer, &[r#"{"ipv4:10.1.2.3":{"ipv4:10.2.3.4":12000}}"#]);
}

#[test]
fn a_configuration_is_proved() {
    let directory = directory();
    let outcome = directory.run("alto check --config alto.toml").expect(0);
    assert!(outcome.stdout.contains("default-filtered  application/alto-networkmap+json"), "{outcome:?}");
    for (facts, told) in [
        (&*FACTS.replace("PID2 = [", "PID2 = [\"192.0.2.0/24\", "), "192.0.2.0/24 is in PID1 and in PID2"),
        ("[network-map.m]\nP = [\"0.0.0.0/0\"]", "network map m has no routingcost costs"),
        ("[network-maps]", "agent sites: facts.toml: TOML parse error at line 1"),
    ] {
        directory.put("facts.toml", facts);
        let outcome = directory.run("alto check --config alto.toml").expect(5);
        assert!(outcome.stderr.contains(told), "{told}: {outcome:?}");
    }
    let outcome = directory.run("alto --config alto.toml").expect(5);
    assert!(outcome.stderr.contains("facts.toml") && outcome.stdout.is_empty(), "it does not start: {outcome:?}");
    let outcome = directory.run("alto").expect(2);
    assert!(outcome.stderr.contains("[agents.NAME]"), "{outcome:?}");
}
