//! Lists of replicas, sorted with a real ALTO server.

use serde_json::json;
use towpath_store::sys::disk;

use super::program::{Directory, Outcome, ServerProcess};

/// A client, a site near it and a site far away.
const FACTS: &str = r#"
    [network-map.default]
    here = ["127.0.0.0/8"]
    near = ["192.0.2.0/24"]
    far = ["198.51.100.0/24"]
    elsewhere = ["0.0.0.0/0", "::/0"]
    [cost-map.default.routingcost]
    near = { here = 1 }
    far = { here = 5 }
    [[costs]]
    src = "192.0.2.0/24"
    dst = "127.0.0.0/8"
    delay-ow = 300
    [[costs]]
    src = "198.51.100.0/24"
    dst = "127.0.0.0/8"
    delay-ow = 90000
    [properties."ipv4:192.0.2.0/24"]
    "priv:continent" = "EU"
    [properties."ipv4:198.51.100.0/24"]
    "priv:continent" = "AS"
    [routers.edge]
    default = true
    routes = [
        { prefix = "192.0.2.0/24", next-hop = "10.0.0.1", as-path = "64500 64501 64502" },
        { prefix = "198.51.100.0/24", next-hop = "10.0.0.1", as-path = "64500 64503" },
    ]
"#;

/// Delays between the PIDs.
const DELAYS: &str = r#"
    [cost-map.default.delay-ow]
    near = { here = 400 }
    far = { here = 80000 }
"#;

const SERVER: &str = "listen = ['127.0.0.1:0']\n[agents.sites]\nkind = 'static'\nfile = 'facts.toml'\nrefresh = '1h'\n";

const CLIENT: &str = r#"
    [metrics.as_hopcount]
    resource-type = "path-vector"
    element-prefix = "as:"
    reverse = true
"#;

const TALK: &str = "BY as_hopcount,delay_ow WHERE continent=\"EU\"";

const NEAR: &str = "root://192.0.2.1:1094//f";
const FAR: &str = "root://198.51.100.1:1094//f";
const UNKNOWN: &str = "root://203.0.113.1:1094//f";

/// Creates a directory with a list, and starts a server.
fn scene(list: &str) -> (Directory, ServerProcess) {
    let directory = Directory::new();
    directory.put("facts.toml", FACTS);
    directory.put("alto.toml", SERVER);
    directory.put("client.toml", CLIENT);
    directory.put("list", list);
    let served = ServerProcess::of(directory.command(["alto", "--config", "alto.toml"]));
    (directory, served)
}

fn lines() -> String {
    format!("# replicas of f\n{FAR}\n{UNKNOWN}\n{NEAR}\n")
}

/// Runs `towpath order list` with additional arguments.
fn order(directory: &Directory, served: &ServerProcess, arguments: &[&str]) -> Outcome {
    let ird = format!("http://{}/directory", served.address);
    let mut command = directory.command(["order", "--ird", ird.as_str(), "--config", "client.toml", "list"]);
    Outcome::from(command.args(arguments).output().unwrap())
}

#[test]
fn lines_are_ordered_by_the_talks_statement() {
    let (directory, served) = scene(&lines());
    let outcome = order(&directory, &served, &["--by", TALK]).expect(0);
    assert_eq!(outcome.stdout, format!("# replicas of f\n{NEAR}\n{FAR}\n{UNKNOWN}\n"));
    let outcome = order(&directory, &served, &["--by", "BY as_hopcount"]).expect(0);
    assert_eq!(outcome.stdout, format!("# replicas of f\n{FAR}\n{NEAR}\n{UNKNOWN}\n"));
    let outcome = order(&directory, &served, &["--by", TALK, "--strict"]).expect(0);
    assert_eq!(outcome.stdout, format!("# replicas of f\n{NEAR}\n"));
}

#[test]
fn the_configuration_of_the_talk_works_with_four_changes() {
    const SLIDE: &str = r#"
[client]
# ALTO server
default_ird = https://alto.example.org/directory/default
metrics = {
    "as_hopcount": {
        "resource_type": "path-vector",
        "resource_id": "cern-pv",           Map properties of ANEs
        "prop_name": "as_path",
        "prop_transformer": "tolist | len",
        "aggr_transformer": "sum"
    },
    "delay_ow": {
        "resource_type": "cost-map",
        "resource_id": "delay-ow",
        "dependent_network_map": "default-networkmap"
    }
}
"#;
    let (directory, served) = scene(&lines());
    drop(served);
    directory.put("facts.toml", &format!("{FACTS}\n{DELAYS}"));
    directory.put("alto.toml", &format!("compatibility = 'openalto'\n{SERVER}"));
    let served = ServerProcess::of(directory.command(["alto", "--config", "alto.toml"]));
    let changes = [
        // The address of the server, and the names of its resources.
        ("https://alto.example.org/directory/default", format!("http://{}/directory", served.address)),
        ("\"delay-ow\"", "\"default-delay-ow\"".to_owned()),
        ("default-networkmap", "default".to_owned()),
        // Only routes from the client are known.
        ("\"sum\"", "\"sum\", \"reverse\": true".to_owned()),
    ];
    let changed = changes.iter().fold(SLIDE.to_owned(), |text, (from, to)| text.replace(from, to));
    directory.put("client.conf", &changed);
    let command = ["order", "--config", "client.conf", "--client", "127.0.0.1", "--by", TALK, "--explain", "list"];
    let outcome = Outcome::from(directory.command(command).output().unwrap()).expect(0);
    assert_eq!(outcome.stdout, format!("# replicas of f\n{NEAR}\n{FAR}\n{UNKNOWN}\n"));
    let row = outcome.stderr.lines().find(|line| line.contains(NEAR)).unwrap();
    assert_eq!(row.split_whitespace().collect::<Vec<_>>(), ["1", NEAR, "3", "400", "EU", "met"]);
}

#[test]
fn without_a_statement_the_routing_cost_counts() {
    let (directory, served) = scene(&lines());
    let ird = format!("http://{}", served.address);
    let mut command = directory.command(["order"]);
    command.env("TOWPATH_ALTO_IRD", ird).stdin(disk::open(&directory.host("list")).unwrap());
    let outcome = Outcome::from(command.output().unwrap()).expect(0);
    assert_eq!(outcome.stdout, format!("# replicas of f\n{NEAR}\n{FAR}\n{UNKNOWN}\n"));
}

#[test]
fn costs_may_be_those_of_another_client() {
    let (directory, served) = scene(&lines());
    directory.put("client.toml", "[metrics.cost]\nresource-type = 'cost-map'\ncost-metric = 'routingcost'\n");
    let outcome = order(&directory, &served, &["--by", "BY cost", "--client", "127.0.0.9"]).expect(0);
    assert_eq!(outcome.stdout, format!("# replicas of f\n{NEAR}\n{FAR}\n{UNKNOWN}\n"));
    let outcome = order(&directory, &served, &["--by", "BY cost"]).expect(2);
    assert!(outcome.stderr.contains("--client ADDRESS") && outcome.stdout.is_empty(), "{outcome:?}");
}

#[test]
fn what_rucio_lists_keeps_its_form() {
    let json = |first: (&str, &str), second: (&str, &str)| {
        let [first, second] = [(first, 1), (second, 2)].map(|((url, rse), priority)| {
            format!(r#""{url}": {{"rse": "{rse}", "priority": {priority}, "domain": "wan"}}"#)
        });
        format!("{{\"scope\": \"test\", \"name\": \"f\", \"pfns\": {{{first}, {second}}}, \"bytes\": 7}}\n")
    };
    let (near, far) = ((NEAR, "NEAR"), (FAR, "FAR"));
    let (directory, served) = scene(&json(far, near));
    assert_eq!(order(&directory, &served, &["--by", TALK]).expect(0).stdout, json(near, far));
}

#[test]
fn a_metalink_keeps_rucios_dialect_and_replicas_behind_proxies_are_found() {
    let metalink = |first: (&str, &str), second: (&str, &str)| {
        let [first, second] = [(first, 1), (second, 2)].map(|((url, rse), priority)| {
            format!(r#"<url location="{rse}" domain="wan" priority="{priority}" client_extract="false">{url}</url>"#)
        });
        format!(
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<metalink xmlns=\"urn:ietf:params:xml:ns:metalink\">\n \
             <file name=\"file1\">\n  <identity>test:file1</identity>\n  <hash type=\"adler32\">69fe2b13</hash>\n  \
             <glfn name=\"/atlas/rucio/test:file1\"></glfn>\n  {first}\n  {second}\n </file>\n</metalink>\n"
        )
    };
    let (near, far) = (("root://proxy.invalid:1094//root://192.0.2.1:1094//f", "NEAR"), (FAR, "FAR"));
    let (directory, served) = scene(&metalink(far, near));
    assert_eq!(order(&directory, &served, &["--by", TALK]).expect(0).stdout, metalink(near, far));
}

#[test]
fn each_place_is_explained() {
    let (directory, served) = scene(&lines());
    let outcome = order(&directory, &served, &["--by", TALK, "--explain"]).expect(0);
    let rows: Vec<Vec<&str>> = outcome.stderr.lines().map(|line| line.split_whitespace().collect()).collect();
    let expected = [
        ["place", "replica", "as_hopcount", "delay_ow", "continent", "condition"].to_vec(),
        ["1", NEAR, "2", "300", "EU", "met"].to_vec(),
        ["2", FAR, "1", "90000", "AS", "not", "met"].to_vec(),
        ["3", UNKNOWN, "-", "-", "-", "unknown"].to_vec(),
    ];
    assert_eq!(rows, expected);
    let outcome = order(&directory, &served, &["--by", TALK, "--explain", "--strict"]).expect(0);
    assert_eq!(outcome.stderr.matches("left out").count(), 2, "{outcome:?}");
}

#[test]
fn without_the_server_nothing_is_written_unless_the_old_order_will_do() {
    let (directory, served) = scene(&lines());
    let gone = format!("http://{}/directory", served.address);
    drop(served);
    let run = |more: &[&str]| {
        let mut command = directory.command(["order", "--ird", gone.as_str(), "list"]);
        Outcome::from(command.args(more).output().unwrap())
    };
    let outcome = run(&[]).expect(8);
    assert!(outcome.stdout.is_empty() && outcome.stderr.contains("cannot be reached"), "{outcome:?}");
    let outcome = run(&["--fallback"]).expect(0);
    assert_eq!(outcome.stdout, lines());
    assert!(outcome.stderr.contains("cannot be reached") && outcome.stderr.contains("old order"), "{outcome:?}");
    let outcome = run(&["--fallback", "--strict"]).expect(2);
    assert!(outcome.stdout.is_empty(), "{outcome:?}");
}

#[test]
fn what_makes_no_sense_is_told() {
    let (directory, served) = scene(&lines());
    for (arguments, code, told) in [
        (&["--by", "BY delay_ow WHER x"][..], 2, "--by: column 13: expected"),
        (&["--by", "BY delai", "--fallback"], 2, "`delai` is neither a configured metric"),
        (&["--ird", "root://host//f"], 2, "neither http nor https"),
        (&["--config", "missing"], 3, "missing"),
        (&["--config", "facts.toml"], 2, "unknown field `cost-map`"),
    ] {
        let mut command = directory.command(["order", "list"]);
        if !arguments.contains(&"--ird") {
            command.arg("--ird").arg(format!("http://{}/", served.address));
        }
        let outcome = Outcome::from(command.args(arguments).output().unwrap()).expect(code);
        assert!(outcome.stderr.contains(told) && outcome.stdout.is_empty(), "{told}: {outcome:?}");
    }
    let outcome = directory.run("order --dns 127.0.0.1:1 list").expect(2);
    assert!(outcome.stderr.contains("--ird URL"), "{outcome:?}");
    directory.put("client.toml", "[metrics.x]\nresource-type = 'endpoint-cost'\nrevers = true\n");
    let outcome = order(&directory, &served, &[]).expect(2);
    assert!(outcome.stderr.contains("did you mean `reverse`?"), "{outcome:?}");
    directory.put("list", "no list\n");
    directory.put("client.toml", "");
    let outcome = order(&directory, &served, &["--fallback"]).expect(5);
    assert!(outcome.stderr.contains("line 1"), "{outcome:?}");
}

#[test]
fn an_order_that_follows_from_nothing_is_told() {
    let (directory, served) = scene(&format!("{UNKNOWN}\n"));
    let unknown = "no values are known for the path to 1 replica; keeping the old order";
    for (arguments, told) in [
        (&["--by", "BY delay_ow"][..], unknown),
        (&["--by", TALK], unknown),
        (&["--by", TALK, "--strict"], "no replica meets the condition"),
    ] {
        let outcome = order(&directory, &served, arguments).expect(0);
        assert!(outcome.stderr.contains(told), "{arguments:?}: {outcome:?}");
    }
    directory.put("list", "# none\n");
    let outcome = order(&directory, &served, &[]).expect(0);
    assert!(outcome.stderr.contains("the list has no replicas") && outcome.stdout == "# none\n", "{outcome:?}");
    directory.put("list", &lines());
    assert_eq!(order(&directory, &served, &["--by", "BY delay_ow"]).expect(0).stderr, "", "something is known");
}

#[test]
fn a_server_that_refuses_a_question_is_as_one_that_does_not_answer() {
    let (directory, served) = scene(&lines());
    // A directory with a metric that the service does not support.
    let promises = json!({
        "meta": { "cost-types": { "gone": { "cost-mode": "numerical", "cost-metric": "priv:gone" } } },
        "resources": { "costs": {
            "uri": format!("http://{}/endpoint-costs", served.address),
            "media-type": "application/alto-endpointcost+json",
            "accepts": "application/alto-endpointcostparams+json",
            "capabilities": { "cost-type-names": ["gone"] },
        } },
    });
    directory.put("ird.json", &promises.to_string());
    let files = ServerProcess::start(&directory.host("."));
    let ird = format!("http://{}/ird.json", files.address);
    let run = |more: &[&str]| {
        let mut command = directory.command(["order", "--ird", ird.as_str(), "--by", "BY priv:gone", "list"]);
        Outcome::from(command.args(more).output().unwrap())
    };
    let outcome = run(&[]).expect(8);
    assert!(outcome.stdout.is_empty() && outcome.stderr.contains("rejected the request"), "{outcome:?}");
    assert_eq!(run(&["--fallback"]).expect(0).stdout, lines());
}

#[test]
fn a_list_without_any_address_is_not_passed_off_as_judged() {
    let list = "root://a.invalid//f\nroot://b.invalid//f\n";
    let (directory, served) = scene(list);
    let outcome = order(&directory, &served, &[]).expect(8);
    assert!(outcome.stdout.is_empty() && outcome.stderr.contains("can the name server be reached?"), "{outcome:?}");
    assert_eq!(order(&directory, &served, &["--fallback"]).expect(0).stdout, list);
}
