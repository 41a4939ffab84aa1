//! TIPS views of the ALTO server.

use serde_json::Value;

use super::{
    alto::{CONFIG, ask, directory, expect},
    alto_streams::{change, serve},
    program::ServerProcess,
};

const PARAMS: [(&str, &str); 1] = [("content-type", "application/alto-tipsparams+json")];
const COSTS: &str = r#"{"resource-id": "default-routingcost"}"#;

/// Returns the path of a new view of the costs, and the response of the server.
async fn open(served: &ServerProcess) -> (String, Value) {
    let answer = ask(served, "POST /tips", &PARAMS, COSTS).await;
    expect(&answer, &["200 OK", "content-type: application/alto-tips+json"]);
    let told: Value = serde_json::from_str(answer.split("\r\n\r\n").nth(1).unwrap()).unwrap();
    // The host in the request.
    let path = told["tips-view-uri"].as_str().unwrap().strip_prefix("http://x").unwrap().to_owned();
    (path, told)
}

#[tokio::test]
async fn t2_t3_changes_are_fetched_by_number() {
    let directory = directory();
    let served = serve(&directory);
    let (view, told) = open(&served).await;
    let graph = &told["tips-view-summary"]["updates-graph-summary"];
    assert_eq!(graph["start-edge-rec"]["seq-i"], 0);
    let last = graph["end-seq"].as_u64().unwrap();
    let whole = ask(&served, &format!("GET {view}/ug/0/{last}"), &[], "").await;
    expect(&whole, &["200 OK", "content-type: application/alto-costmap+json", "\"PID2\":5"]);
    let next = format!("GET {view}/ug/{last}/{}", last + 1);
    let waits = ask(&served, &next, &[], "");
    let changes = async { change(&directory, "PID2 = 5", "PID2 = 9") };
    let (patch, ()) = tokio::join!(waits, changes);
    expect(&patch, &["200 OK", "content-type: application/merge-patch+json", r#""cost-map":{"PID1":{"PID2":9}}"#]);
    expect(&ask(&served, &next, &[], "").await, &["200 OK", r#""PID2":9"#]);
}

#[tokio::test]
async fn t2_views_are_where_the_server_is_from_outside() {
    let directory = directory();
    directory.put("alto.toml", &format!("url = 'https://alto.example.org/cern/'\n{CONFIG}"));
    let served = ServerProcess::of(directory.command(["alto", "--config", "alto.toml"]));
    let answer = ask(&served, "POST /tips", &PARAMS, COSTS).await;
    let told: Value = serde_json::from_str(answer.split("\r\n\r\n").nth(1).unwrap()).unwrap();
    // Like a proxy that adds the path.
    let view = told["tips-view-uri"].as_str().unwrap().strip_prefix("https://alto.example.org/cern").unwrap();
    let last = told["tips-view-summary"]["updates-graph-summary"]["end-seq"].as_u64().unwrap();
    let whole = ask(&served, &format!("GET {view}/ug/0/{last}"), &[], "").await;
    expect(&whole, &["200 OK", "content-type: application/alto-costmap+json"]);
}

#[tokio::test]
async fn t4_who_was_away_is_told_where_to_go_on() {
    let directory = directory();
    let served = serve(&directory);
    let (view, _) = open(&served).await;
    let answer = ask(&served, &format!("POST {view}/ug"), &PARAMS, COSTS).await;
    expect(&answer, &["200 OK", "content-type: application/merge-patch+json", "\"start-edge-rec\""]);
    let other = ask(&served, &format!("POST {view}/ug"), &PARAMS, r#"{"resource-id": "default"}"#).await;
    expect(&other, &["400 Bad Request", "E_INVALID_FIELD_VALUE", "\"field\":\"resource-id\""]);
}

#[tokio::test]
async fn t6_what_is_not_there_is_told_by_its_status() {
    let directory = directory();
    let served = serve(&directory);
    let (view, told) = open(&served).await;
    let last = told["tips-view-summary"]["updates-graph-summary"]["end-seq"].as_u64().unwrap();
    let html = [("accept", "text/html")];
    for (what, headers, status) in [
        (format!("GET {view}/ug/{}/{}", last + 1, last + 2), &[][..], "425 "),
        (format!("GET {view}/ug/{last}/{}", last + 2), &[], "404 "),
        (format!("GET {view}/ug/0/{last}"), &html, "415 "),
        (format!("GET {view}/ug/x"), &[], "404 "),
        (format!("GET {view}"), &[], "405 "),
        (format!("GET /tips/0/ug/0/{last}"), &[], "404 "),
        ("GET /tips".into(), &[], "405 "),
        ("DELETE /tips/0".into(), &[], "404 "),
        (format!("DELETE {view}"), &[], "204 "),
        (format!("DELETE {view}"), &[], "404 "),
        (format!("GET {view}/ug/0/{last}"), &[], "404 "),
        ("DELETE /default".into(), &[], "405 "),
    ] {
        let answer = ask(&served, &what, headers, "").await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{what}: {answer}");
    }
}

#[tokio::test]
async fn t1_the_directory_says_how() {
    let directory = directory();
    let told = ask(&serve(&directory), "GET /directory", &[], "").await;
    expect(
        &told,
        &[
            r#""media-type":"application/alto-tips+json""#,
            r#""accepts":"application/alto-tipsparams+json""#,
            r#""uri":"./tips""#,
        ],
    );
}
