//! The port of the ALTO server for monitoring.

use std::net::SocketAddr;

use rustix::process::Signal;
use towpath_store::sys::disk;

use super::{
    alto::{CONFIG, ask, directory, expect, request},
    alto_streams::{BOTH, Events},
    program::{Directory, ServerProcess},
};

/// Starts a server without anonymous access and with a port for monitoring, and returns the address of the port.
fn serve(directory: &Directory) -> (ServerProcess, SocketAddr) {
    let access = "access.anonymous = []\n[metrics]\nlisten = ['127.0.0.1:0']\n";
    directory.put("alto.toml", &CONFIG.replacen("[agents", &format!("{access}[agents"), 1));
    start(directory)
}

fn start(directory: &Directory) -> (ServerProcess, SocketAddr) {
    let mut command = directory.command(["alto", "--config", "alto.toml"]);
    command.stderr(disk::create(&directory.host("err")).unwrap());
    let served = ServerProcess::of(command);
    let log = directory.get("err");
    let url = log.split_once("metrics at http://").and_then(|(_, rest)| rest.split_once("/metrics\n"));
    let (address, _) = url.unwrap_or_else(|| panic!("no port for monitoring: {log}"));
    (served, address.parse().unwrap())
}

#[tokio::test]
async fn the_port_for_monitoring_has_metrics_and_health_for_all() {
    let directory = directory();
    let (served, port) = serve(&directory);
    expect(&ask(&served, "GET /default", &[], "").await, &["401 Unauthorized"]);
    expect(&request(port, "GET /healthz", &[], "").await, &["200 OK", "\r\n\r\nok\n"]);
    expect(&request(port, "GET /default", &[], "").await, &["404 Not Found"]);
    let metrics = request(port, "GET /metrics", &[], "").await;
    expect(
        &metrics,
        &[
            "200 OK",
            "\ntowpath_build_info{version=",
            "\nprocess_start_time_seconds ",
            "\ntowpath_requests_total{face=\"http\",verb=\"GET\",outcome=\"AuthenticationFailed\"} 1\n",
            "\ntowpath_alto_resources{media_type=\"application/alto-networkmap+json\"} 2\n",
            "\ntowpath_alto_update_streams 0\n",
            "\ntowpath_alto_tips_views 0\n",
            "\ntowpath_alto_agent_stale{agent=\"sites\"} 0\n",
            "\ntowpath_alto_agent_failures_total{agent=\"sites\"} 0\n",
            "\ntowpath_alto_agent_last_success_timestamp_seconds{agent=\"sites\"} 1",
        ],
    );
    assert!(!metrics.contains("towpath_export"), "there are no files: {metrics}");
}

#[tokio::test]
async fn metrics_follow_agents_and_streams() {
    let directory = directory();
    directory.put("alto.toml", &CONFIG.replacen("[agents", "[metrics]\nlisten = ['127.0.0.1:0']\n[agents", 1));
    let (served, port) = start(&directory);
    let metrics = async || request(port, "GET /metrics", &[], "").await;
    let mut events = Events::open(&served, BOTH).await;
    events.until("200 OK").await;
    expect(&metrics().await, &["\ntowpath_alto_update_streams 1\n"]);
    drop(events);
    let facts = directory.get("facts.toml");
    // The first poll succeeded, and the interval is longer than the test: only SIGHUP polls again.
    for (content, state) in [("[network-map", "1\n"), (&*facts, "0\n")] {
        directory.put("facts.toml", content);
        served.signal(Signal::HUP);
        while !metrics().await.contains(&format!("\ntowpath_alto_agent_stale{{agent=\"sites\"}} {state}")) {
            tokio::task::yield_now().await;
        }
        expect(&metrics().await, &["\ntowpath_alto_agent_failures_total{agent=\"sites\"} 1\n"]);
    }
    while !metrics().await.contains("\ntowpath_alto_update_streams 0\n") {
        tokio::task::yield_now().await;
    }
}
