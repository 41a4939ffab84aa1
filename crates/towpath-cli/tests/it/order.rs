//! Lists of replicas, put into order by a real ALTO server.

use towpath_store::sys::disk;

use super::program::{Directory, Outcome, Served};

/// A client here, one site near it and one far away.
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

/// A directory with a list, and a server.
fn scene(list: &str) -> (Directory, Served) {
    let directory = Directory::new();
    directory.put("facts.toml", FACTS);
    directory.put("alto.toml", SERVER);
    directory.put("client.toml", CLIENT);
    directory.put("list", list);
    let served = Served::of(directory.command(["alto", "--config", "alto.toml"]));
    (directory, served)
}

fn lines() -> String {
    format!("# replicas of f\n{FAR}\n{UNKNOWN}\n{NEAR}\n")
}

/// Runs `towpath order list` with more arguments.
fn order(directory: &Directory, served: &Served, arguments: &[&str]) -> Outcome {
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
fn without_a_statement_the_routing_cost_counts() {
    let (directory, served) = scene(&lines());
    let ird = format!("http://{}", served.address);
    let mut command = directory.command(["order"]);
    command.env("TOWPATH_ORDER_IRD", ird).stdin(disk::open(&directory.host("list")).unwrap());
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
        (&["--by", "BY delai", "--fallback"], 2, "`delai` is no configured metric"),
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
fn a_server_that_refuses_a_question_is_as_one_that_does_not_answer() {
    let (directory, served) = scene(&lines());
    directory.put("client.toml", "[metrics.x]\nresource-type = 'path-vector'\nprop-name = 'no-such-property'\n");
    let outcome = order(&directory, &served, &["--by", "BY x"]).expect(8);
    assert!(outcome.stdout.is_empty() && outcome.stderr.contains("refuses the question"), "{outcome:?}");
    assert_eq!(order(&directory, &served, &["--by", "BY x", "--fallback"]).expect(0).stdout, lines());
}

#[test]
fn a_list_without_any_address_is_not_passed_off_as_judged() {
    let list = "root://a.invalid//f\nroot://b.invalid//f\n";
    let (directory, served) = scene(list);
    let outcome = order(&directory, &served, &[]).expect(8);
    assert!(outcome.stdout.is_empty() && outcome.stderr.contains("can the name server be reached?"), "{outcome:?}");
    assert_eq!(order(&directory, &served, &["--fallback"]).expect(0).stdout, list);
}
