//! Polling, listening and program agents of the ALTO server.

use std::{
    path::PathBuf,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use rustix::process::Signal;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::timeout,
};
use tokio_util::task::AbortOnDropHandle;
use towpath_store::sys::{disk, net};

use super::{
    alto::{CONFIG, COSTS, ask, directory, expect},
    program::{Directory, ServerProcess},
};

/// A program that prints hop counts and keeps running. It ends when its output is closed.
const HOPS: &str = r#"
echo '{"metric": {"src": "127.0.0.0/8", "dst": "192.0.2.0/24", "metric": "hopcount", "value": 3}}'
echo 'this is no JSON'
echo '{"commit": {}}'
echo '{"withdraw": {"metric": {"src": "127.0.0.0/8", "dst": "192.0.2.0/24", "metric": "hopcount"}}}'
echo 'for people' >&2
while sleep 1; do echo; done
"#;

/// A program that prints the number of its runs, and ends. From the second run on it commits only when the file `go`
/// exists.
const ENDS: &str = r#"
echo run >> runs
count=$(grep -c run runs)
echo '{"metric": {"src": "127.0.0.0/8", "dst": "192.0.2.0/24", "metric": "hopcount", "value": '$count'}}'
if [ $count = 1 ] || [ -e go ]; then echo '{"commit": {}}'; fi
exit 3
"#;

const PROGRAM: &str = "[agents.hops]\nkind = 'program'\ncommand = ['sh', 'agent.sh']\n";

/// Starts a server with these agents and the static agent, whose log is in the file `log`.
pub(super) fn serve(directory: &Directory, agents: &str) -> ServerProcess {
    directory.put("alto.toml", &format!("{CONFIG}{agents}"));
    let mut command = directory.command(["alto", "--config", "alto.toml"]);
    command
        .env("TOWPATH_LOG", "warn,towpath_alto_sources=info,towpath_alto_server=info")
        .stderr(disk::create(&directory.host("log")).unwrap());
    ServerProcess::of(command)
}

/// Waits until the condition holds.
pub(super) async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let waiting = async {
        while !holds().await {
            tokio::task::yield_now().await;
        }
    };
    timeout(Duration::from_secs(60), waiting).await.unwrap_or_else(|_| panic!("{what}: not within a minute"));
}

pub(super) async fn until_logged(directory: &Directory, told: &str) {
    until(told, async || directory.get("log").contains(told)).await;
}

/// Returns the response with the hop count to 192.0.2.7.
pub(super) async fn hops(served: &ServerProcess) -> String {
    let question = r#"{"cost-type": {"cost-mode": "numerical", "cost-metric": "hopcount"}, "endpoints": {"dsts": ["ipv4:192.0.2.7"]}}"#;
    ask(served, "POST /endpoint-costs", &[("content-type", COSTS)], question).await
}

/// Returns the response with the path to `address`.
pub(super) async fn way(served: &ServerProcess, address: &str) -> String {
    let question = format!(
        r#"{{"cost-type": {{"cost-mode": "array", "cost-metric": "ane-path"}}, "endpoints": {{"dsts": ["ipv4:{address}"]}}}}"#
    );
    ask(served, "POST /path-vector", &[("content-type", COSTS)], &question).await
}

#[tokio::test]
async fn what_a_program_commits_is_answered() {
    let directory = directory();
    directory.put("agent.sh", HOPS);
    let served = serve(&directory, PROGRAM);
    expect(&hops(&served).await, &["200 OK", r#""ipv4:192.0.2.7":3"#]);
    until_logged(&directory, "agent hops: line 2: expected").await;
    until_logged(&directory, "agent hops (stderr): for people").await;
    expect(&hops(&served).await, &[r#""ipv4:192.0.2.7":3"#]);
}

#[tokio::test]
async fn a_program_that_ends_is_started_again_and_what_it_knew_holds() {
    let directory = directory();
    directory.put("agent.sh", ENDS);
    let served = serve(&directory, PROGRAM);
    let first = r#""ipv4:192.0.2.7":1}"#;
    expect(&hops(&served).await, &[first]);
    until_logged(&directory, "agent hops: the program ended (exit status: 3); restarting in 1s").await;
    until_logged(&directory, "restarting in 2s; keeping its previous facts").await;
    expect(&hops(&served).await, &[first]);
    directory.put("go", "");
    until("it is told anew", async || !hops(&served).await.contains(first)).await;
    expect(&hops(&served).await, &[r#""ipv4:192.0.2.7":"#]);
}

/// Returns whether that process has ended; it may not be reaped yet.
fn has_ended(process: &str) -> bool {
    let status = disk::read(&PathBuf::from(format!("/proc/{process}/stat")), 1 << 20).unwrap_or_default();
    let status = String::from_utf8(status).unwrap();
    status.rsplit_once(") ").is_none_or(|(_, state)| state.starts_with('Z'))
}

#[tokio::test]
async fn a_program_ends_with_the_server_and_so_does_what_it_started() {
    let directory = directory();
    directory.put("agent.sh", "sleep 1000 &\necho $! > started\necho '{\"commit\": {}}'\nwait\n");
    let served = serve(&directory, PROGRAM);
    let started = directory.get("started").trim().to_owned();
    assert!(!has_ended(&started));
    served.signal(Signal::TERM);
    until("what the program started ends", async || has_ended(&started)).await;
}

#[tokio::test]
async fn a_program_that_ends_is_missed_also_while_what_it_started_lives() {
    let directory = directory();
    directory.put("agent.sh", "sleep 1000 &\necho $! >> started\necho '{\"commit\": {}}'\nexit 3\n");
    let _served = serve(&directory, PROGRAM);
    until_logged(&directory, "agent hops: the program ended (exit status: 3); restarting in 1s").await;
    let started = directory.get("started").lines().next().unwrap().to_owned();
    until("what it started ends too", async || has_ended(&started)).await;
}

#[test]
fn a_configuration_with_programs_is_proved() {
    let directory = directory();
    directory.put("alto.toml", &format!("{CONFIG}{PROGRAM}"));
    directory.put("agent.sh", HOPS);
    directory.run("alto check --config alto.toml").expect(0);
    directory.put("agent.sh", "exit 3");
    let outcome = directory.run("alto check --config alto.toml").expect(5);
    assert!(outcome.stderr.contains("agent hops: the program ended (exit status: 3)"), "{outcome:?}");
    directory.put("alto.toml", &format!("{CONFIG}[agents.x]\nkind = 'program'\ncommand = []\n"));
    let outcome = directory.run("alto check --config alto.toml").expect(2);
    assert!(outcome.stderr.contains("agent x: `command` names no program"), "{outcome:?}");
}

#[tokio::test]
async fn the_example_of_a_program_works() {
    let directory = directory();
    let example = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/examples/alto-agent.py");
    let command = format!("command = ['python3', '{example}', 'ipv4:192.0.2.7', '.', 'lo', '127.0.0.0/8']");
    let served = serve(&directory, &format!("[agents.space]\nkind = 'program'\n{command}\n"));
    let question = r#"{"properties": ["priv:free-bytes"], "endpoints": ["ipv4:192.0.2.7"]}"#;
    let headers = [("content-type", "application/alto-endpointpropparams+json")];
    let answer = ask(&served, "POST /endpoint-properties", &headers, question).await;
    expect(&answer, &["200 OK", r#""ipv4:192.0.2.7":{"priv:free-bytes":"#]);
    expect(&way(&served, "192.0.2.7").await, &["topo:site:site-storage"]);
}

/// A web server, until it is dropped. `answer` makes the response from the header and body of a request.
pub(super) struct Web {
    port: u16,
    _serving: AbortOnDropHandle<()>,
}

impl Web {
    pub(super) fn start(answer: impl Fn(&str) -> String + Send + Sync + 'static) -> Self {
        let listener = net::listen(([127, 0, 0, 1], 0).into()).unwrap();
        let port = listener.local_addr().unwrap().port();
        let serving = tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let Some(request) = request(&mut stream).await else { continue };
                // A closed connection is not an error.
                let _ = stream.write_all(answer(&request).as_bytes()).await;
            }
        });
        Self { port, _serving: AbortOnDropHandle::new(serving) }
    }

    pub(super) fn url(&self) -> String {
        format!("http://127.0.0.1:{}/lg", self.port)
    }
}

/// Returns header and body of the next request; `None` if the client closes the connection.
async fn request(stream: &mut TcpStream) -> Option<String> {
    let mut request = String::new();
    let mut buffer = [0; 4096];
    loop {
        if let Some((header, body)) = request.split_once("\r\n\r\n") {
            let header = header.to_ascii_lowercase();
            let length = header.lines().find_map(|line| line.strip_prefix("content-length: "));
            if body.len() >= length.map_or(0, |length| length.parse().unwrap()) {
                return Some(request);
            }
        }
        let length = stream.read(&mut buffer).await.ok().filter(|length| *length > 0)?;
        request.push_str(std::str::from_utf8(&buffer[..length]).unwrap());
    }
}

pub(super) fn answer(status: &str, fields: &str, body: &str) -> String {
    let length = body.len();
    format!("HTTP/1.1 {status}\r\nConnection: close\r\nContent-Length: {length}\r\n{fields}\r\n{body}")
}

/// Returns the page of a looking glass with the route to `prefix` in the format of Junos.
fn page(prefix: &str) -> String {
    format!(
        "<html><pre>\ninet.0: 2 destinations, 2 routes (2 active, 0 holddown, 0 hidden)\n\
         + = Active Route, - = Last Active, * = Both\n\n\
         {prefix}    *[BGP/170] 3w2d 04:05:06, localpref 100, from 192.65.184.145\n\
         \x20                     AS path: 20965 2091 789 I, validation-state: unverified\n\
         \x20                   &gt; to 192.65.184.145 via xe-0/0/0.0\n</pre></html>"
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn a_looking_glass_is_asked_and_what_it_said_holds_when_it_fails() {
    let is_broken = Arc::new(AtomicBool::new(false));
    let breaks = Arc::clone(&is_broken);
    let web = Web::start(move |request| {
        let is_asked = |query: &str| {
            let form = format!("\r\n\r\nargs={query}&query=route&router=r%3Ajuniper");
            request.starts_with("POST /lg ") && request.ends_with(&form)
        };
        match () {
            () if breaks.load(Ordering::Relaxed) => answer("500 Internal Server Error", "", "out of order"),
            () if is_asked("134.158.84.0%2F24") => answer("200 OK", "", &page("134.158.84.0/24")),
            () if is_asked("140.115.32.0%2F24") => answer("200 OK", "", &page("140.115.32.0/24")),
            () => answer("200 OK", "", "<pre>% Network not in table</pre>"),
        }
    });
    let directory = directory();
    let agent = format!(
        "[agents.glass]\nkind = 'looking-glass'\nurl = '{}'\nrouter = 'r'\nrefresh = '100ms'\n\
         form = {{ query = 'route', router = 'r:juniper' }}\n\
         queries = ['134.158.84.0/24', '10.0.0.0/8', '140.115.32.0/24']\n",
        web.url()
    );
    let served = serve(&directory, &agent);
    let path = r#"["link:r-192_65_184_145","as:20965-2091","as:2091-789"]"#;
    for address in ["134.158.84.23", "140.115.32.101"] {
        expect(&way(&served, address).await, &["200 OK", path]);
    }
    is_broken.store(true, Ordering::Relaxed);
    until_logged(&directory, "out of order").await;
    assert!(directory.get("log").contains("keeping its previous facts"));
    let stale = "\"meta\":{\"stale-agents\":{\"glass\":\"20";
    until("answers say that it is stale", async || way(&served, "134.158.84.23").await.contains("stale-agents")).await;
    expect(&way(&served, "134.158.84.23").await, &["200 OK", path]);
    expect(&ask(&served, "GET /default", &[], "").await, &["200 OK", stale]);
    is_broken.store(false, Ordering::Relaxed);
    until("it is well again", async || !way(&served, "134.158.84.23").await.contains("stale-agents")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_does_not_start_with_a_page_that_cannot_be_had() {
    let web = Web::start(|_| answer("404 Not Found", "", ""));
    let directory = directory();
    let agent = format!("[agents.page]\nkind = 'static'\nurl = '{}'\n", web.url());
    directory.put("alto.toml", &format!("{CONFIG}{agent}"));
    let mut command = directory.command(["alto", "--config", "alto.toml"]);
    let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    let told = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(5), "{told}");
    expect(&told, &["agent page: http://127.0.0.1:", "no such file or directory (404)"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_that_did_not_change_is_not_sent_again() {
    let unchanged = Arc::new(AtomicUsize::new(0));
    let version = Arc::new(Mutex::new(3));
    let (count, present) = (Arc::clone(&unchanged), Arc::clone(&version));
    let web = Web::start(move |request| {
        let hops = *present.lock().unwrap();
        let etag = format!("ETag: \"{hops}\"\r\n");
        if request.to_ascii_lowercase().contains(&format!("if-none-match: \"{hops}\"")) {
            count.fetch_add(1, Ordering::Relaxed);
            return answer("304 Not Modified", &etag, "");
        }
        let facts = format!("[[costs]]\nsrc = \"127.0.0.0/8\"\ndst = \"192.0.2.0/24\"\nhopcount = {hops}\n");
        answer("200 OK", &etag, &facts)
    });
    let directory = directory();
    let agent = format!("[agents.page]\nkind = 'static'\nurl = '{}'\nrefresh = '100ms'\n", web.url());
    let served = serve(&directory, &agent);
    expect(&hops(&served).await, &[r#""ipv4:192.0.2.7":3"#]);
    until("it is asked for a new version", async || unchanged.load(Ordering::Relaxed) > 1).await;
    *version.lock().unwrap() = 4;
    until("the new version is taken", async || hops(&served).await.contains(r#""ipv4:192.0.2.7":4"#)).await;
}

#[tokio::test]
async fn measurements_between_pids_are_understood_once_there_are_such() {
    let directory = directory();
    directory.put("results.csv", "src,dst,metric,value\nPID1,PID2,delay-rt,12000\nPID1,PID3,delay-rt,13000\n");
    let served = serve(&directory, "[agents.a]\nkind = 'measurements'\nfiles = ['results.csv']\nrefresh = '1h'\n");
    let delays = async || ask(&served, "GET /default-delay-rt", &[], "").await;
    let told = delays().await;
    expect(&told, &[r#""PID1":{"PID2":12000}"#]);
    let facts = directory.get("facts.toml");
    directory.put("facts.toml", &facts.replace("PID2 = [", "PID3 = [\"198.51.100.0/24\"]\nPID2 = ["));
    served.signal(Signal::HUP);
    until("PID3 is there", async || delays().await.contains(r#""PID1":{"PID2":12000,"PID3":13000}"#)).await;
}

fn sized(value: &[u8]) -> Vec<u8> {
    [&u16::try_from(value.len()).unwrap().to_be_bytes()[..], value].concat()
}

/// Returns the message that the router 192.0.2.1 of AS 64500 has a route to 10.1.0.0/16 via 192.0.2.7 (RFC 7854 §4.6).
pub(super) fn announcement() -> Vec<u8> {
    let as_path = [&[0x40_u8, 2, 10, 2, 2][..], &7_u32.to_be_bytes(), &8_u32.to_be_bytes()].concat();
    let next_hop = [0x40, 3, 4, 192, 0, 2, 7];
    let update = [sized(&[]), sized(&[&as_path[..], &next_hop].concat()), vec![16, 10, 1]].concat();
    let length = u16::try_from(19 + update.len()).unwrap();
    let update = [&[0xff_u8; 16][..], &length.to_be_bytes(), &[2], &update[..]].concat();
    let peer = [&[0_u8; 22][..], &[192, 0, 2, 1], &64500_u32.to_be_bytes(), &[192, 0, 2, 200], &[0; 8]].concat();
    let length = u32::try_from(6 + peer.len() + update.len()).unwrap();
    [&[3_u8][..], &length.to_be_bytes(), &[0], &peer[..], &update[..]].concat()
}

/// Returns the address of the agent `routers`.
pub(super) async fn collector(directory: &Directory) -> std::net::SocketAddr {
    let told = "agent routers: routers connect to ";
    until_logged(directory, told).await;
    let log = directory.get("log");
    let (_, rest) = log.split_once(told).unwrap();
    rest.split_whitespace().next().unwrap().parse().unwrap()
}

#[tokio::test]
async fn routers_tell_their_routes_and_they_go_some_time_after_them() {
    let directory = directory();
    let agent = "[agents.routers]\nkind = 'bmp'\nlisten = '127.0.0.1:0'\nsettle = '10ms'\nhold = '500ms'\n";
    let served = serve(&directory, agent);
    let mut router = net::connect(collector(&directory).await).await.unwrap();
    router.write_all(&announcement()).await.unwrap();
    let path = r#"["link:192_0_2_1-192_0_2_7","as:7-8"]"#;
    until("the route is told", async || way(&served, "10.1.2.3").await.contains(path)).await;
    drop(router);
    until_logged(&directory, "the connection of 127.0.0.1 ended; keeping its previous facts").await;
    until("the route is gone", async || !way(&served, "10.1.2.3").await.contains(path)).await;
    let is_stale = async || ask(&served, "GET /default", &[], "").await.contains(r#""stale-agents":{"routers":"#);
    assert!(is_stale().await);
    let mut router = net::connect(collector(&directory).await).await.unwrap();
    until("it is there again, though it tells nothing yet", async || !is_stale().await).await;
    router.write_all(&announcement()).await.unwrap();
    until("the route is told again", async || way(&served, "10.1.2.3").await.contains(path)).await;
    drop(router);
    until("the route is gone once more", async || !way(&served, "10.1.2.3").await.contains(path)).await;
    assert!(is_stale().await);
    served.signal(Signal::HUP);
    until("nobody waits for it any more", async || !is_stale().await).await;
}

#[tokio::test]
async fn who_may_not_connect_is_turned_away() {
    let directory = directory();
    let agent = "[agents.routers]\nkind = 'bmp'\nlisten = '127.0.0.1:0'\nfrom = ['192.0.2.0/24']\n";
    let _served = serve(&directory, agent);
    let mut router = net::connect(collector(&directory).await).await.unwrap();
    until_logged(&directory, "rejecting connection from 127.0.0.1").await;
    assert_eq!(router.read(&mut [0; 1]).await.unwrap_or(0), 0);
}

#[tokio::test]
async fn who_contradicts_others_is_stale_and_they_go_on() {
    let directory = directory();
    let agent = |name: &str| format!("[agents.{name}]\nkind = 'static'\nfile = '{name}.toml'\nrefresh = '100ms'\n");
    let pids = |name: &str| format!("network-map.default.{name} = ['203.0.113.0/24']\n");
    let costs = |name: &str, cost: u8| format!("[cost-map.default.hopcount.PID1]\n{name} = {cost}\n");
    directory.put("pids.toml", &pids("P"));
    directory.put("costs.toml", &costs("P", 3));
    directory.put("other.toml", "");
    let agents: String = ["costs", "other", "pids"].map(agent).concat();
    let served = serve(&directory, &agents);
    let hopcount = async || ask(&served, "GET /default-hopcount", &[], "").await;
    expect(&hopcount().await, &[r#""PID1":{"P":3}"#]);
    directory.put("pids.toml", &pids("Q"));
    until_logged(
        &directory,
        "agent pids: its latest facts are invalid: cost map default, hopcount: the network map has no PID P",
    )
    .await;
    until("answers say so", async || hopcount().await.contains(r#""stale-agents":{"pids":"#)).await;
    expect(
        &ask(&served, "GET /", &[("accept", "text/html")], "").await,
        &["<td>pids<small>static</small><td>out of date since 20"],
    );
    expect(&hopcount().await, &[r#""PID1":{"P":3}"#]);
    directory.put("other.toml", "[cost-map.default.hopcount.PID2]\nP = 4\n");
    until("others are heard", async || hopcount().await.contains(r#""PID2":{"P":4}"#)).await;
    directory.put("costs.toml", &costs("Q", 5));
    until("it waits for one more", async || hopcount().await.contains(r#""stale-agents":{"costs":"#)).await;
    directory.put("other.toml", "");
    until("all fits again", async || hopcount().await.contains(r#""PID1":{"Q":5}"#)).await;
    assert!(!hopcount().await.contains("stale-agents"));
}

#[tokio::test]
async fn who_contradicts_others_keeps_nobody_from_what_fits_together() {
    let directory = directory();
    let agent = |name: &str| format!("[agents.{name}]\nkind = 'static'\nfile = '{name}.toml'\nrefresh = '100ms'\n");
    let pids = |name: &str| directory.put("pids.toml", &format!("network-map.default.{name} = ['203.0.113.0/24']\n"));
    let costs = |name: &str| directory.put("costs.toml", &format!("[cost-map.default.hopcount.PID1]\n{name} = 3\n"));
    let other = |name: &str| directory.put("other.toml", &format!("[cost-map.default.hopcount.PID2]\n{name} = 4\n"));
    pids("P");
    costs("P");
    other("PID1");
    let agents: String = ["costs", "other", "pids"].map(agent).concat();
    let served = serve(&directory, &agents);
    let hopcount = async || ask(&served, "GET /default-hopcount", &[], "").await;
    other("Q");
    until("one contradicts the others", async || hopcount().await.contains(r#""stale-agents":{"other":"#)).await;
    pids("R");
    costs("R");
    until("their news is taken", async || hopcount().await.contains(r#""PID1":{"R":3}"#)).await;
    let told = hopcount().await;
    expect(&told, &[r#""PID2":{"PID1":4}"#, r#""stale-agents":{"other":"#]);
    assert!(!told.contains("\"costs\":\"") && !told.contains("\"pids\":\""), "{told}");
}
