//! Restarts of an ALTO server, which then serves its snapshot.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use rustix::process::Signal;
use tokio::io::AsyncWriteExt as _;
use towpath_store::sys::{clock, disk, net};

use super::{
    alto::{CONFIG, ask, directory, expect},
    alto_agents::{Web, announcement, answer, collector, hops, until, until_logged, way},
    program::{Directory, ServerProcess},
};

const PROGRAM: &str = "[agents.hops]\nkind = 'program'\ncommand = ['sh', 'agent.sh']\n";

/// A program that prints the hops in the file `hops`, once that exists, and stays.
const AGENT: &str = r#"
until [ -e hops ]; do sleep 0.1; done
echo '{"metric": {"src": "127.0.0.0/8", "dst": "192.0.2.0/24", "metric": "hopcount", "value": '$(cat hops)'}}'
echo '{"commit": {}}'
while sleep 1; do echo; done
"#;

const STALE: &str = "\"stale-agents\":{\"hops\":\"20";

/// Starts a server with these agents, the static agent and the file `snapshot`, whose log is in the file `log`.
fn serve(directory: &Directory, agents: &str) -> ServerProcess {
    directory.put("alto.toml", &format!("snapshot = 'snapshot'\n{CONFIG}{agents}"));
    let mut command = directory.command(["alto", "--config", "alto.toml"]);
    command
        .env("TOWPATH_LOG", "warn,towpath_alto_sources=info,towpath_alto_server=info")
        .stderr(disk::create(&directory.host("log")).unwrap());
    ServerProcess::of(command)
}

/// Waits until the snapshot contains the text.
async fn until_kept(directory: &Directory, told: &str) {
    until(told, async || directory.host("snapshot").exists() && directory.get("snapshot").contains(told)).await;
}

/// Returns whether responses have no `stale-agents`.
async fn is_fresh(served: &ServerProcess) -> bool {
    !ask(served, "GET /default", &[], "").await.contains("stale-agents")
}

#[tokio::test]
async fn a_server_that_is_started_again_answers_from_what_it_knew() {
    let directory = directory();
    directory.put("agent.sh", AGENT);
    directory.put("hops", "3");
    let served = serve(&directory, PROGRAM);
    until_kept(&directory, r#""hopcount":3.0"#).await;
    assert!(is_fresh(&served).await);
    drop(served);
    disk::remove(&directory.host("hops")).unwrap();
    let served = serve(&directory, PROGRAM);
    expect(&hops(&served).await, &["200 OK", STALE, r#""ipv4:192.0.2.7":3}"#]);
    directory.put("next", "4");
    disk::rename(&directory.host("next"), &directory.host("hops")).unwrap();
    until("the program's word holds", async || hops(&served).await.contains(r#""ipv4:192.0.2.7":4}"#)).await;
    assert!(is_fresh(&served).await);
    served.signal(Signal::TERM);
    until_kept(&directory, r#""hopcount":4.0"#).await;
    assert!(!directory.get("snapshot").contains("facts.toml") && !directory.get("snapshot").contains("PID1"));
}

#[tokio::test]
async fn what_was_told_by_another_program_does_not_hold() {
    let directory = directory();
    directory.put("agent.sh", AGENT);
    directory.put("hops", "3");
    let served = serve(&directory, PROGRAM);
    until_kept(&directory, r#""hopcount":3.0"#).await;
    drop(served);
    directory.put("other.sh", "echo '{\"commit\": {}}'\nwhile sleep 1; do echo; done\n");
    let served = serve(&directory, &PROGRAM.replace("agent.sh", "other.sh"));
    assert!(!hops(&served).await.contains(r#""ipv4:192.0.2.7":3"#));
    assert!(is_fresh(&served).await);
}

#[tokio::test]
async fn a_damaged_snapshot_is_told_and_replaced() {
    let directory = directory();
    directory.put("agent.sh", AGENT);
    directory.put("hops", "3");
    directory.put("snapshot", "{\"towpath-alto-snapshot\":");
    let served = serve(&directory, PROGRAM);
    expect(&hops(&served).await, &["200 OK", r#""ipv4:192.0.2.7":3}"#]);
    until_logged(&directory, "the server starts without it").await;
    until_kept(&directory, r#""hopcount":3.0"#).await;
}

/// A page, and an agent that reads it. The number selects the response: a PID and hops; hops, once the snapshot is
/// ignored; or an error.
fn page(directory: &Directory) -> (Web, Arc<AtomicUsize>, String) {
    let state = Arc::new(AtomicUsize::new(0));
    let log = directory.host("log");
    let is_left_aside = move || {
        String::from_utf8_lossy(&disk::read(&log, 1 << 20).unwrap_or_default()).contains("ignoring the snapshot")
    };
    let told = Arc::clone(&state);
    let costs = "[[costs]]\nsrc = \"127.0.0.0/8\"\ndst = \"192.0.2.0/24\"\nhopcount = 3\n";
    let web = Web::start(move |_| match told.load(Ordering::Relaxed) {
        0 => answer("200 OK", "", &format!("network-map.default.PID3 = [\"203.0.113.0/24\"]\n{costs}")),
        1 => {
            let deadline = clock::now() + Duration::from_secs(30);
            while !is_left_aside() && clock::now() < deadline {
                thread::yield_now();
            }
            answer("200 OK", "", costs)
        }
        _ => answer("404 Not Found", "", ""),
    });
    let agents = format!("[agents.hops]\nkind = 'static'\nurl = '{}'\n", web.url());
    (web, state, agents)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_starts_without_a_page_that_it_knew() {
    let directory = directory();
    let (_web, state, agents) = page(&directory);
    let served = serve(&directory, &agents);
    until_kept(&directory, "PID3").await;
    drop(served);
    state.store(2, Ordering::Relaxed);
    let served = serve(&directory, &agents);
    until_logged(&directory, "no such file or directory (404)").await;
    expect(&hops(&served).await, &["200 OK", STALE, r#""ipv4:192.0.2.7":3}"#]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_that_contradicts_files_is_left_aside() {
    let directory = directory();
    let (_web, state, agents) = page(&directory);
    let served = serve(&directory, &agents);
    until_kept(&directory, "PID3").await;
    drop(served);
    state.store(1, Ordering::Relaxed);
    let facts = directory.get("facts.toml");
    directory.put("facts.toml", &facts.replace("PID2 = [", "PID4 = [\"203.0.113.0/24\"]\nPID2 = ["));
    let served = serve(&directory, &agents);
    until_logged(&directory, "ignoring the snapshot").await;
    expect(&hops(&served).await, &["200 OK", r#""ipv4:192.0.2.7":3}"#]);
    expect(&ask(&served, "GET /default", &[], "").await, &["200 OK", "PID4"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_says_less_than_a_snapshot_that_is_left_aside_is_taken() {
    let directory = directory();
    let (_web, state, agents) = page(&directory);
    let told = Arc::clone(&state);
    let results = Web::start(move |_| match told.load(Ordering::Relaxed) {
        0 => answer("200 OK", "", "src,dst,metric,value\n127.0.0.0/8,198.51.100.0/24,delay-rt,12000\n"),
        _ => answer("200 OK", "", r#"{"start": {"connected": []}, "error": "unable to connect to server"}"#),
    });
    let agents = format!("{agents}[agents.results]\nkind = 'measurements'\nfiles = ['{}']\n", results.url());
    let served = serve(&directory, &agents);
    until_kept(&directory, "PID3").await;
    until_kept(&directory, "delay-rt").await;
    drop(served);
    state.store(1, Ordering::Relaxed);
    let facts = directory.get("facts.toml");
    directory.put("facts.toml", &facts.replace("PID2 = [", "PID4 = [\"203.0.113.0/24\"]\nPID2 = ["));
    let served = serve(&directory, &agents);
    expect(&ask(&served, "GET /default", &[], "").await, &["200 OK", "PID4"]);
    until_logged(&directory, "ignoring the snapshot").await;
}

#[tokio::test]
async fn routes_hold_though_the_server_is_started_again() {
    let directory = directory();
    let agent = "[agents.routers]\nkind = 'bmp'\nlisten = '127.0.0.1:0'\nsettle = '10ms'\n";
    let path = r#"["link:192_0_2_1-192_0_2_7","as:7-8"]"#;
    let served = serve(&directory, agent);
    let mut router = net::connect(collector(&directory).await).await.unwrap();
    router.write_all(&announcement()).await.unwrap();
    until("the route is told", async || way(&served, "10.1.2.3").await.contains(path)).await;
    served.signal(Signal::TERM);
    until_kept(&directory, "10.1.0.0/16").await;
    drop((served, router));
    let served = serve(&directory, agent);
    expect(&way(&served, "10.1.2.3").await, &["200 OK", "\"stale-agents\":{\"routers\":\"20", path]);
    let mut router = net::connect(collector(&directory).await).await.unwrap();
    // Another route: a part of a table removes no other routes.
    let mut other = announcement();
    *other.last_mut().unwrap() = 2;
    router.write_all(&other).await.unwrap();
    until("what is new is told", async || way(&served, "10.2.2.3").await.contains(path)).await;
    expect(&way(&served, "10.1.2.3").await, &["200 OK", "\"stale-agents\":{\"routers\":\"20", path]);
}
