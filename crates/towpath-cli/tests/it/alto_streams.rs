//! Update streams of the ALTO server.

use std::time::Duration;

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::timeout,
};
use towpath_store::sys::{disk, net};

use super::{
    alto::{CONFIG, ask, directory, expect},
    program::{Directory, ServerProcess},
};

const PARAMS: &str = "application/alto-updatestreamparams+json";
pub(super) const BOTH: &str =
    r#"{"add": {"costs": {"resource-id": "default-routingcost"}, "map": {"resource-id": "default"}}}"#;

/// The response of a server, read incrementally.
pub(super) struct Events {
    connection: TcpStream,
    text: String,
}

impl Events {
    pub(super) async fn open(served: &ServerProcess, request: &str) -> Self {
        let mut connection = net::connect(served.address).await.unwrap();
        let length = request.len();
        // A client of HTTP/1.0 gets the stream without chunks.
        let header = format!("POST /updates HTTP/1.0\r\ncontent-type: {PARAMS}\r\ncontent-length: {length}\r\n\r\n");
        connection.write_all(format!("{header}{request}").as_bytes()).await.unwrap();
        Self { connection, text: String::new() }
    }

    /// Waits for the text `told`, and returns everything received up to it.
    pub(super) async fn until(&mut self, told: &str) -> String {
        let reading = async {
            while !self.text.contains(told) {
                let mut bytes = [0; 4096];
                let length = self.connection.read(&mut bytes).await.unwrap();
                assert!(length > 0, "it ended without {told}: {}", self.text);
                self.text.push_str(std::str::from_utf8(&bytes[..length]).unwrap());
            }
        };
        let in_time = timeout(Duration::from_secs(60), reading).await;
        assert!(in_time.is_ok(), "{told} did not come: {}", self.text);
        let end = self.text.find(told).unwrap() + told.len();
        self.text.drain(..end).collect()
    }

    /// Returns the rest of the stream.
    async fn rest(mut self) -> String {
        self.connection.read_to_string(&mut self.text).await.unwrap();
        self.text
    }

    /// Returns the control URL of the stream, from its first event.
    async fn control(&mut self) -> String {
        self.until("\"control-uri\":\"./").await;
        let path = self.until("\"").await;
        format!("POST /{}", path.trim_end_matches('"'))
    }
}

/// Starts a server that polls its file continuously.
pub(super) fn serve(directory: &Directory) -> ServerProcess {
    directory.put("alto.toml", &CONFIG.replace("1h", "100ms"));
    ServerProcess::of(directory.command(["alto", "--config", "alto.toml"]))
}

/// Changes the file of facts.
pub(super) fn change(directory: &Directory, from: &str, to: &str) {
    let facts = directory.get("facts.toml");
    assert!(facts.contains(from));
    directory.put("facts.new", &facts.replace(from, to));
    disk::rename(&directory.host("facts.new"), &directory.host("facts.toml")).unwrap();
}

#[tokio::test]
async fn s3_s4_who_follows_is_told_all_and_then_what_changed() {
    let directory = directory();
    let served = serve(&directory);
    let mut events = Events::open(&served, BOTH).await;
    let begin = events.until("event: application/alto-networkmap+json,map\n").await;
    expect(
        &begin,
        &["200 OK", "content-type: text/event-stream", "event: application/alto-updatestreamcontrol+json\n"],
    );
    let costs = events.until("event: application/alto-costmap+json,costs\n").await;
    expect(&costs, &["\"network-map\":{"]);
    events.until("\n\n").await;
    change(&directory, "PID2 = 5", "PID2 = 9");
    let patch = events.until("\n\n").await;
    expect(&patch, &["event: application/merge-patch+json,costs\n", r#""cost-map":{"PID1":{"PID2":9}}"#]);
    change(&directory, "[\"192.0.2.0/24\"]", "[\"192.0.2.0/24\", \"203.0.113.0/25\"]");
    let patch = events.until(",map\n").await;
    assert!(!patch.contains("costs"), "the map comes first: {patch}");
    events.until("-patch+json,costs\n").await;
}

#[tokio::test]
async fn s6_who_follows_begins_and_ends_what_it_likes() {
    let directory = directory();
    let served = serve(&directory);
    let mut events = Events::open(&served, r#"{"add": {"map": {"resource-id": "default"}}}"#).await;
    let control = events.control().await;
    events.until(",map\n").await;
    let post = async |body: &str| ask(&served, &control, &[("content-type", PARAMS)], body).await;
    expect(&post(r#"{"add": {"costs": {"resource-id": "default-routingcost"}}}"#).await, &["204 No Content"]);
    events.until("\"started\":[\"costs\"]").await;
    events.until("event: application/alto-costmap+json,costs\n").await;
    expect(&post(r#"{"remove": ["other"]}"#).await, &["400 Bad Request", "\"field\":\"remove\""]);
    expect(&post(r#"{"remove": []}"#).await, &["204 No Content"]);
    let rest = events.rest().await;
    expect(&rest, &["\"stopped\":[\"costs\",\"map\"]"]);
    expect(&post(r#"{"remove": []}"#).await, &["404 Not Found"]);
}

#[tokio::test]
async fn s1_s2_the_directory_says_how_and_what_is_wrong_is_told() {
    let directory = directory();
    let served = serve(&directory);
    let told = ask(&served, "GET /directory", &[], "").await;
    expect(
        &told,
        &[
            r#""media-type":"text/event-stream""#,
            r#""accepts":"application/alto-updatestreamparams+json""#,
            r#""support-stream-control":true"#,
            r#""default-routingcost":"application/merge-patch+json""#,
        ],
    );
    for (body, parts) in [
        ("{}", ["E_MISSING_FIELD", "\"field\":\"add\""]),
        (r#"{"add": {"x": {"resource-id": "y"}}}"#, ["E_INVALID_FIELD_VALUE", "\"field\":\"add/x/resource-id\""]),
        (
            r#"{"add": {"x": {"resource-id": "endpoint-costs", "input": {}}}}"#,
            ["E_MISSING_FIELD", "add/x/input/cost-type"],
        ),
    ] {
        let answer = ask(&served, "POST /updates", &[("content-type", PARAMS)], body).await;
        expect(&answer, &["400 Bad Request"]);
        expect(&answer, &parts);
    }
    expect(&ask(&served, "GET /updates", &[], "").await, &["405 Method Not Allowed"]);
    expect(&ask(&served, "POST /updates?0", &[("content-type", PARAMS)], "{}").await, &["404 Not Found"]);
}
