//! On-demand agents of the ALTO server.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicUsize, Ordering},
};

use rustix::process::Signal;
use tokio::time::{Duration, Instant};

use super::{
    alto::{CONFIG, COSTS, ask, directory, expect},
    alto_agents::{Web, answer, hops, serve, until, until_logged},
    program::{Directory, ServerProcess},
};

/// A program that knows hops to 192.0.2.7 and the name of each address, and logs its requests.
const ASKED: &str = r#"
while read question; do
    echo "$question" >> questions
    case $question in
        *costs*) echo '{"metric": {"src": "127.0.0.1", "dst": "192.0.2.7", "metric": "hopcount", "value": 4}}';;
        *) echo '{"property": {"entity": "ipv4:192.0.2.7", "name": "priv:rack", "value": "R7"}}';;
    esac
    echo '{"commit": {}}'
done
"#;

const PROGRAM: &str = "[agents.rack]\nkind = 'delegate'\ncommand = ['sh', 'asked.sh']\nmetrics = ['hopcount']\nproperties = ['priv:rack']\n";

const PROPERTIES: &str = "application/alto-endpointpropparams+json";

/// Starts a server with an on-demand program, whose log is in the file `log`.
fn serve_program(program: &str, settings: &str) -> (Directory, ServerProcess) {
    let directory = directory();
    directory.put("asked.sh", program);
    let served = serve(&directory, &format!("{PROGRAM}{settings}"));
    (directory, served)
}

async fn rack(served: &ServerProcess, address: &str) -> String {
    let question = format!(r#"{{"properties": ["priv:rack"], "endpoints": ["ipv4:{address}"]}}"#);
    ask(served, "POST /endpoint-properties", &[("content-type", PROPERTIES)], &question).await
}

/// Returns the response with the delay to this address.
async fn delay(served: &ServerProcess, address: &str) -> String {
    let question = format!(
        r#"{{"cost-type": {{"cost-mode": "numerical", "cost-metric": "delay-ow"}}, "endpoints": {{"dsts": ["ipv4:{address}"]}}}}"#
    );
    ask(served, "POST /endpoint-costs", &[("content-type", COSTS)], &question).await
}

#[tokio::test]
async fn a_program_is_asked_for_what_nobody_tells_and_once() {
    let (directory, served) = serve_program(ASKED, "");
    let listed = ask(&served, "GET /directory", &[], "").await;
    expect(&listed, &[r#""hopcount-numerical":{"#, r#""priv:rack""#]);
    for _ in 0..3 {
        expect(&hops(&served).await, &["200 OK", r#"{"ipv4:127.0.0.1":{"ipv4:192.0.2.7":4}}"#]);
        expect(&rack(&served, "192.0.2.7").await, &[r#"{"ipv4:192.0.2.7":{"priv:rack":"R7"}}"#]);
        expect(&rack(&served, "192.0.2.8").await, &[r#"{"ipv4:192.0.2.8":{}}"#]);
    }
    let costs = r#"{"costs":{"metric":"hopcount","srcs":["127.0.0.1"],"dsts":["192.0.2.7"]}}"#;
    let racks = |address: &str| format!(r#"{{"properties":{{"names":["priv:rack"],"addresses":["{address}"]}}}}"#);
    let expected = format!("{costs}\n{}\n{}\n", racks("192.0.2.7"), racks("192.0.2.8"));
    assert_eq!(directory.get("questions"), expected);
    let filter = r#"{"entities": ["ipv4:192.0.2.7", "ipv4:192.0.2.0/24"], "properties": ["priv:rack"]}"#;
    let headers = [("content-type", "application/alto-propmapparams+json")];
    let map = ask(&served, "POST /properties-filtered", &headers, filter).await;
    expect(&map, &[r#"{"ipv4:192.0.2.7":{"priv:rack":"R7"}}"#]);
}

#[tokio::test]
async fn what_agents_tell_is_not_asked_for() {
    let settings = "[agents.x]\nkind = 'static'\nfile = 'told.toml'\n";
    let directory = directory();
    directory.put("asked.sh", ASKED);
    directory.put("told.toml", "[[costs]]\nsrc = '127.0.0.0/8'\ndst = '192.0.2.0/24'\nhopcount = 9\n");
    let served = serve(&directory, &format!("{PROGRAM}{settings}"));
    expect(&hops(&served).await, &[r#""ipv4:192.0.2.7":9"#]);
    assert!(!directory.host("questions").exists());
}

#[tokio::test]
async fn a_program_that_says_nothing_holds_an_answer_up_for_so_long_only() {
    let (directory, served) = serve_program("cat >> questions", "wait = '300ms'\n");
    let began = Instant::now();
    expect(&hops(&served).await, &["200 OK", r#""endpoint-cost-map":{}"#]);
    let waited = began.elapsed();
    // Otherwise it was killed first.
    assert!((Duration::from_millis(300)..Duration::from_secs(30)).contains(&waited), "{waited:?}");
    until("it was asked", async || directory.get("questions").contains("hopcount")).await;
}

#[tokio::test]
async fn a_program_that_ends_is_started_again_and_answers_do_without_it() {
    let ends = "read question; echo '{\"metric\": {}}'; exit 3";
    let (directory, served) = serve_program(&format!("[ -e go ] || {{ {ends}; }}\n{ASKED}"), "");
    expect(&hops(&served).await, &["200 OK", r#""endpoint-cost-map":{}"#]);
    until_logged(&directory, "agent rack: missing field `src`").await;
    until_logged(&directory, "agent rack: the program ended (exit status: 3); retrying in 1s").await;
    directory.put("go", "");
    until("it is asked again", async || hops(&served).await.contains(r#""ipv4:192.0.2.7":4"#)).await;
}

#[tokio::test]
async fn the_example_of_a_program_that_is_asked_works() {
    let directory = directory();
    let example = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/examples/alto-delegate.py");
    let command = format!("command = ['python3', '{example}']\nproperties = ['priv:host']");
    let served = serve(&directory, &format!("[agents.names]\nkind = 'delegate'\n{command}\nwait = '1m'\n"));
    let question = r#"{"properties": ["priv:host"], "endpoints": ["ipv4:127.0.0.1"]}"#;
    let answer = ask(&served, "POST /endpoint-properties", &[("content-type", PROPERTIES)], question).await;
    expect(&answer, &[r#"{"ipv4:127.0.0.1":{"priv:host":"localhost"}}"#]);
}

/// Starts a server with the facts of [`directory`], and a second server that queries it.
fn serve_two(settings: &str) -> (Directory, ServerProcess, ServerProcess) {
    let far = directory();
    let server = serve(&far, "");
    let near = Directory::new();
    near.put("facts.toml", "[network-map.default]\nall = ['0.0.0.0/0', '::/0']\n");
    let delegate = format!("[agents.far]\nkind = 'delegate'\nurl = 'http://{}/directory'\n{settings}", server.address);
    let asking = serve(&near, &delegate);
    (near, server, asking)
}

#[tokio::test]
async fn another_server_is_asked_for_what_it_offers() {
    let (near, server, asking) = serve_two("");
    let listed = ask(&asking, "GET /directory", &[], "").await;
    expect(&listed, &[r#""delay-ow-numerical":{"#]);
    expect(&delay(&asking, "192.0.2.7").await, &[r#"{"ipv4:127.0.0.1":{"ipv4:192.0.2.7":5300}}"#]);
    expect(&delay(&asking, "198.51.100.7").await, &["200 OK", r#""endpoint-cost-map":{}"#]);
    drop(server);
    expect(&delay(&asking, "192.0.2.7").await, &[r#""ipv4:192.0.2.7":5300"#]);
    expect(&delay(&asking, "192.0.2.8").await, &["200 OK", r#""endpoint-cost-map":{}"#]);
    until_logged(&near, "agent far: ").await;
    until("the answer says so", async || delay(&asking, "192.0.2.7").await.contains(r#""stale-agents":{"far":"#)).await;
}

#[tokio::test]
async fn of_another_server_only_that_is_asked_for_that_is_named() {
    let (_near, _server, asking) = serve_two("metrics = ['delay-ow']\n");
    let listed = ask(&asking, "GET /directory", &[], "").await;
    expect(&listed, &[r#""delay-ow-numerical":{"#]);
    assert!(!listed.contains("routingcost"), "{listed}");
    let (near, _server, _asking) = serve_two("metrics = ['no-such']\n");
    until_logged(
        &near,
        "agent far: the server has no no-such: name costs or properties of endpoints that its directory lists",
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_at_one_time_are_one_question() {
    let asked = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&asked);
    let web = Web::start(move |request| match request.starts_with("GET") {
        true => listed("delay-ow"),
        false => {
            counted.fetch_add(1, Ordering::Relaxed);
            let costs = r#"{"endpoint-cost-map": {"ipv4:127.0.0.1": {"ipv4:192.0.2.7": 11}}}"#;
            answer("200 OK", "Content-Type: application/alto-endpointcost+json\r\n", costs)
        }
    });
    let (_near, served) = asks(&web, "");
    let answers = (0..20).map(|_| delay(&served, "192.0.2.7"));
    for answer in futures::future::join_all(answers).await {
        expect(&answer, &[r#""ipv4:192.0.2.7":11"#]);
    }
    assert_eq!(asked.load(Ordering::Relaxed), 1);
}

#[test]
fn a_configuration_that_asks_is_proved() {
    let directory = directory();
    let check = |delegate: &str| {
        directory.put("alto.toml", &format!("{CONFIG}{delegate}"));
        directory.run("alto check --config alto.toml")
    };
    directory.put("asked.sh", ASKED);
    let outcome = check(PROGRAM).expect(0);
    assert!(outcome.stdout.contains("endpoint-properties"), "{outcome:?}");
    let outcome = check("[agents.far]\nkind = 'delegate'\n").expect(2);
    assert!(outcome.stderr.contains("agent far: name either the `url` of a directory or a `command`"), "{outcome:?}");
    let outcome = check("[agents.far]\nkind = 'delegate'\nurl = 'http://127.0.0.1:1/'\n").expect(5);
    assert!(outcome.stderr.contains("agent far: "), "{outcome:?}");
    let missing = PROGRAM.replace("'sh', 'asked.sh'", "'no-such-program'");
    let outcome = check(&missing).expect(5);
    assert!(outcome.stderr.contains("no-such-program cannot be started"), "{outcome:?}");
    directory.put("asked.sh", "exit 3");
    let outcome = check(PROGRAM).expect(5);
    assert!(outcome.stderr.contains("agent rack: the program ended (exit status: 3)"), "{outcome:?}");
}

/// Returns a directory with endpoint costs of this metric.
fn listed(metric: &str) -> String {
    let name = format!(r#""m": {{"cost-mode": "numerical", "cost-metric": "{metric}"}}"#);
    let listed = format!(
        r#"{{"meta": {{"cost-types": {{{name}}}}}, "resources": {{"costs": {{"uri": "costs",
            "media-type": "application/alto-endpointcost+json", "accepts": "application/alto-endpointcostparams+json",
            "capabilities": {{"cost-type-names": ["m"]}}}}}}}}"#
    );
    answer("200 OK", "Content-Type: application/alto-directory+json\r\n", &listed)
}

/// Starts a server that queries the server at `web`.
fn asks(web: &Web, settings: &str) -> (Directory, ServerProcess) {
    let near = Directory::new();
    near.put("facts.toml", "[network-map.default]\nall = ['0.0.0.0/0']\n");
    let served = serve(&near, &format!("[agents.far]\nkind = 'delegate'\nurl = '{}'\n{settings}", web.url()));
    (near, served)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_question_that_a_server_refuses_hurts_only_itself() {
    let web = Web::start(|request| match () {
        () if request.starts_with("GET") => listed("delay-ow"),
        () if request.contains("192.0.2.8") => answer("413 Content Too Large", "", "not that one"),
        () => {
            let costs = r#"{"endpoint-cost-map": {"ipv4:127.0.0.1": {"ipv4:192.0.2.7": 11}}}"#;
            answer("200 OK", "Content-Type: application/alto-endpointcost+json\r\n", costs)
        }
    });
    let (near, served) = asks(&web, "");
    expect(&delay(&served, "192.0.2.8").await, &["200 OK", r#""endpoint-cost-map":{}"#]);
    until_logged(&near, "this request yields no values").await;
    let next = delay(&served, "192.0.2.7").await;
    expect(&next, &[r#""ipv4:192.0.2.7":11"#]);
    assert!(!next.contains("stale-agents"), "{next}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_forbids_all_for_a_while_is_asked_again() {
    let is_open = Arc::new(AtomicBool::new(false));
    let opens = Arc::clone(&is_open);
    let web = Web::start(move |request| match () {
        () if request.starts_with("GET") => listed("delay-ow"),
        () if !opens.load(Ordering::Relaxed) => answer("403 Forbidden", "", "nobody comes in"),
        () => {
            let costs = r#"{"endpoint-cost-map": {"ipv4:127.0.0.1": {"ipv4:192.0.2.7": 11}}}"#;
            answer("200 OK", "Content-Type: application/alto-endpointcost+json\r\n", costs)
        }
    });
    let (near, served) = asks(&web, "");
    expect(&delay(&served, "192.0.2.7").await, &["200 OK", r#""endpoint-cost-map":{}"#]);
    until_logged(&near, "retrying in 1s").await;
    is_open.store(true, Ordering::Relaxed);
    until("it is asked again", async || delay(&served, "192.0.2.7").await.contains(r#""ipv4:192.0.2.7":11"#)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_directory_that_changes_is_read_again() {
    let has_changed = Arc::new(AtomicBool::new(false));
    let changes = Arc::clone(&has_changed);
    let web = Web::start(move |_| listed(if changes.load(Ordering::Relaxed) { "hopcount" } else { "delay-ow" }));
    let (_near, served) = asks(&web, "refresh = '1s'\n");
    let offered = async || ask(&served, "GET /directory", &[], "").await;
    expect(&offered().await, &[r#""delay-ow-numerical":{"#]);
    has_changed.store(true, Ordering::Relaxed);
    until("it offers something else", async || offered().await.contains(r#""hopcount-numerical":{"#)).await;
    assert!(!offered().await.contains("delay-ow-numerical"));
}

#[tokio::test]
async fn what_was_learnt_is_forgotten_if_that_is_wanted() {
    let tells = r#"{"metric": {"src": "127.0.0.1", "dst": "192.0.2.7", "metric": "hopcount", "value": '$(cat hops)'}}"#;
    let directory = directory();
    directory.put("hops", "3");
    directory.put("asked.sh", &format!("while read question; do echo '{tells}'; echo '{{\"commit\": {{}}}}'; done"));
    let served = serve(&directory, PROGRAM);
    expect(&hops(&served).await, &[r#""ipv4:192.0.2.7":3"#]);
    directory.put("hops", "4");
    expect(&hops(&served).await, &[r#""ipv4:192.0.2.7":3"#]);
    served.signal(Signal::HUP);
    until("it is asked again", async || hops(&served).await.contains(r#""ipv4:192.0.2.7":4"#)).await;
}
