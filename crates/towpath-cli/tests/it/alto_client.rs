//! The ALTO client of Rust programs and the Python package, with real servers.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use serde_json::json;
use tokio::time::timeout;
use towpath_alto::order::Value;
use towpath_alto_client::net::{
    AltoClient, AltoError, ChangeStream, Document, FollowMethod, FollowTarget, PATIENCE, configuration, order, rank,
};
use towpath_client::{Client, ClientOptions, TokenSource};
use towpath_store::{Kind, sys::net};

use super::{
    alto::{CONFIG, directory},
    alto_streams::{change, serve},
    program::{Directory, ServerProcess},
};

async fn open(ird: &str) -> Result<AltoClient, AltoError> {
    let options = ClientOptions { token: TokenSource::Nothing, retries: 1, ..ClientOptions::default() };
    AltoClient::open(Arc::new(Client::new(Arc::new(options))), ird, PATIENCE).await
}

async fn client_of(served: &ServerProcess) -> AltoClient {
    open(&format!("http://{}/directory", served.address)).await.unwrap()
}

async fn in_time<T>(future: impl Future<Output = T>) -> T {
    timeout(Duration::from_secs(60), future).await.expect("it does not take so long")
}

/// The state of a subscriber, and its subscription.
struct Reader {
    client: AltoClient,
    followed: ChangeStream,
    held: BTreeMap<String, Arc<Document>>,
}

impl Reader {
    async fn follow(client: AltoClient, means: FollowMethod) -> Self {
        let wanted = [("the map", "default"), ("costs.now", "default-routingcost")];
        let wanted = wanted.map(|(name, id)| (name.to_owned(), FollowTarget { resource: id.to_owned(), input: None }));
        let followed = client.follow(wanted.into(), means).await.unwrap();
        Self { client, followed, held: BTreeMap::new() }
    }

    /// Applies changes until `told` appears and the state equals a new response.
    async fn until(&mut self, told: &str) {
        while !self.tells(told) || !self.is_current().await {
            let change = self.followed.next().await.unwrap();
            self.held.insert(change.name, change.document);
        }
    }

    fn tells(&self, told: &str) -> bool {
        self.held.values().any(|document| document.content().to_string().contains(told))
    }

    async fn is_current(&self) -> bool {
        for (name, id) in [("the map", "default"), ("costs.now", "default-routingcost")] {
            let asked = self.client.request(id, None).await.unwrap();
            if self.held.get(name).is_none_or(|held| held.parts != asked.parts) {
                return false;
            }
        }
        true
    }
}

async fn three_changes_come(means: FollowMethod) {
    let directory = directory();
    let served = serve(&directory);
    let mut reader = Reader::follow(client_of(&served).await, means).await;
    in_time(reader.until("\"PID2\":5")).await;
    for (from, to, told) in [
        ("PID2 = 5", "PID2 = 6", "\"PID2\":6"),
        ("[\"192.0.2.0/24\"]", "[\"192.0.2.0/24\", \"203.0.113.0/25\"]", "203.0.113.0/25"),
        ("PID2 = 6", "PID2 = 7", "\"PID2\":7"),
    ] {
        change(&directory, from, to);
        in_time(reader.until(told)).await;
    }
}

#[tokio::test]
async fn s4_who_follows_by_a_stream_has_what_who_asks_gets() {
    three_changes_come(FollowMethod::Stream).await;
    three_changes_come(FollowMethod::default()).await;
}

#[tokio::test]
async fn t3_who_follows_by_views_has_what_who_asks_gets() {
    three_changes_come(FollowMethod::Views).await;
}

#[tokio::test]
async fn who_asks_again_and_again_has_what_there_is() {
    three_changes_come(FollowMethod::Polling { every: Duration::ZERO }).await;
}

/// Starts a server at this address that polls its file continuously.
fn serve_at(directory: &Directory, address: &str) -> ServerProcess {
    directory.put("alto.toml", &CONFIG.replace("1h", "100ms").replace("127.0.0.1:0", address));
    ServerProcess::of(directory.command(["alto", "--config", "alto.toml"]))
}

#[tokio::test]
async fn a_server_that_starts_anew_is_followed_on() {
    for means in [FollowMethod::Stream, FollowMethod::Views] {
        let directory = directory();
        let served = serve_at(&directory, "127.0.0.1:0");
        let address = served.address.to_string();
        let mut reader = Reader::follow(client_of(&served).await, means).await;
        in_time(reader.until("\"PID2\":5")).await;
        drop(served);
        change(&directory, "PID2 = 5", "PID2 = 6");
        let _served = serve_at(&directory, &address);
        in_time(reader.until("\"PID2\":6")).await;
    }
}

#[tokio::test]
async fn what_is_not_there_cannot_be_followed_or_asked() {
    let directory = directory();
    let served = serve(&directory);
    let client = client_of(&served).await;
    let wanted = |id: &str| BTreeMap::from([("x".to_owned(), FollowTarget { resource: id.to_owned(), input: None })]);
    for means in [
        FollowMethod::default(),
        FollowMethod::Stream,
        FollowMethod::Views,
        FollowMethod::Polling { every: Duration::ZERO },
    ] {
        let kind = async |id: &str| client.follow(wanted(id), means).await.unwrap_err().kind();
        assert_eq!(kind("nothing").await, Kind::NotFound, "{means:?}");
        assert_eq!(kind("endpoint-costs").await, Kind::Invalid, "{means:?}");
    }
    assert_eq!(client.follow(BTreeMap::new(), FollowMethod::default()).await.unwrap_err().kind(), Kind::Invalid);
    let empty = FollowTarget { resource: "endpoint-costs".into(), input: Some(json!({})) };
    for means in [FollowMethod::Stream, FollowMethod::Views, FollowMethod::Polling { every: Duration::ZERO }] {
        let wanted = BTreeMap::from([("x".to_owned(), empty.clone())]);
        let mut followed = client.follow(wanted, means).await.unwrap();
        let refused = in_time(followed.next()).await.unwrap_err();
        assert!(refused.kind() == Kind::Invalid && refused.to_string().contains("cost-type"), "{means:?}: {refused}");
        assert!(in_time(followed.next()).await.is_err(), "nothing is left");
    }
    let wanted_two = wanted("default").into_iter().chain([("y".to_owned(), empty)]).collect();
    let mut followed = client.follow(wanted_two, FollowMethod::Stream).await.unwrap();
    // In any order: each has a separate stream.
    let told = [in_time(followed.next()).await, in_time(followed.next()).await];
    let refused: Vec<Kind> = told.iter().filter_map(|told| Some(told.as_ref().err()?.kind())).collect();
    let changed: Vec<&str> = told.iter().filter_map(|told| Some(&*told.as_ref().ok()?.name)).collect();
    assert_eq!((refused, changed), (vec![Kind::Invalid], vec!["x"]), "one that is refused ends no others");
    let address = served.address;
    drop(served);
    let gone = open(&format!("http://{address}/directory")).await.unwrap_err();
    assert_eq!(gone.kind(), Kind::Unavailable);
    let mut followed = client.follow(wanted("default"), FollowMethod::default()).await.unwrap();
    assert_eq!(in_time(followed.next()).await.unwrap_err().kind(), Kind::Unavailable);
}

#[tokio::test]
async fn c7_an_answer_that_did_not_change_is_not_sent_again() {
    let directory = directory();
    let served = serve(&directory);
    let client = client_of(&served).await;
    let first = client.request("default-routingcost", None).await.unwrap();
    assert!(Arc::ptr_eq(&first, &client.request("default-routingcost", None).await.unwrap()));
    change(&directory, "PID2 = 5", "PID2 = 6");
    let changes = async {
        while Arc::ptr_eq(&first, &client.request("default-routingcost", None).await.unwrap()) {
            tokio::task::yield_now().await;
        }
    };
    in_time(changes).await;
    let question = |end: &str| {
        json!({
            "cost-type": { "cost-mode": "numerical", "cost-metric": "delay-ow" }, "endpoints": { "dsts": [end] },
        })
    };
    let near = client.request("endpoint-costs", Some(&question("ipv4:192.0.2.7"))).await.unwrap();
    assert_eq!(near.costs().unwrap()["ipv4:127.0.0.1"]["ipv4:192.0.2.7"], 5300);
    let far = client.request("endpoint-costs", Some(&question("ipv4:198.51.100.7"))).await.unwrap();
    assert_ne!(near.parts, far.parts, "another question has another answer");
}

#[tokio::test]
async fn i3_what_linked_directories_have_is_asked_too() {
    let directory = directory();
    let served = serve(&directory);
    let link = |uri: String| json!({ "uri": uri, "media-type": "application/alto-directory+json" });
    let map = json!({ "uri": "map.json", "media-type": "application/alto-networkmap+json" });
    let resources = json!({
        "default": map,
        "itself": link("ird.json".into()),
        "gone": link("missing.json".into()),
        "other": link(format!("http://{}/directory", served.address)),
    });
    let files = Directory::new();
    files.put("ird.json", &json!({ "resources": resources }).to_string());
    files.put("map.json", r#"{"network-map": {"its own": {}}}"#);
    let first = ServerProcess::start(&files.host("."));
    let client = open(&format!("http://{}/ird.json", first.address)).await.unwrap();
    let costs = client.request("default-routingcost", None).await.unwrap();
    assert!(costs.content().to_string().contains("\"PID2\":5"), "{costs:?}");
    let map = client.request("default", None).await.unwrap();
    assert!(map.network_map().unwrap().contains_key("its own"), "of one name the first holds");
}

#[tokio::test]
async fn i3_a_linked_directory_that_does_not_come_leaves_time_for_the_others() {
    // It accepts connections, but does not respond.
    let silent = net::listen(([127, 0, 0, 1], 0).into()).unwrap();
    let link = |uri: String| json!({ "uri": uri, "media-type": "application/alto-directory+json" });
    let directory = directory();
    let served = serve(&directory);
    let resources = json!({
        "first": link(format!("http://{}/directory", silent.local_addr().unwrap())),
        "second": link(format!("http://{}/directory", served.address)),
    });
    let files = Directory::new();
    files.put("ird.json", &json!({ "resources": resources }).to_string());
    let first = ServerProcess::start(&files.host("."));
    let limit = Duration::from_secs(6);
    let options = ClientOptions { token: TokenSource::Nothing, retries: 1, ..ClientOptions::default() };
    let client = Arc::new(Client::new(Arc::new(options)));
    let ird = format!("http://{}/ird.json", first.address);
    let opened =
        timeout(limit, AltoClient::open(client, &ird, limit)).await.expect("it takes a third of that").unwrap();
    assert!(opened.directory().resources().any(|entry| entry.id == "default-routingcost"));
}

#[tokio::test]
async fn replicas_are_ranked_with_what_put_them_there() {
    let directory = directory();
    let served = serve(&directory);
    let client = client_of(&served).await;
    let metrics = "[metrics.delay]\nresource-type = 'endpoint-cost'\ncost-metric = 'delay-ow'\nreverse = true\n";
    let configuration = configuration(metrics).unwrap();
    let statement = "BY delay WHERE delay < 6000".parse().unwrap();
    let urls = ["root://203.0.113.1//f", "root://192.0.2.7//f"].map(str::to_owned);
    let places = rank(&client, &urls, &statement, &configuration, None).await.unwrap();
    let told: Vec<_> = places.iter().map(|place| (place.url.as_str(), place.values.clone(), place.holds)).collect();
    let delay = |value| vec![("delay".to_owned(), value)];
    assert_eq!(told, [(&*urls[1], delay(Some(Value::Number(5300.0))), Some(true)), (&*urls[0], delay(None), None)]);
    let list = format!("{}\n{}\n", urls[0], urls[1]).into_bytes();
    let ordered = order(&client, list, &statement, &configuration, None, true).await.unwrap();
    assert_eq!(ordered.bytes, format!("{}\n", urls[1]).into_bytes());
    let left_out: Vec<bool> = ordered.files[0].places.iter().map(|place| place.is_left_out).collect();
    assert_eq!(left_out, [false, true]);
    assert!(rank(&client, &[], &statement, &configuration, None).await.unwrap().is_empty());
    let lost = ["root://b.invalid//f", "root://a.invalid//f"].map(str::to_owned);
    let places = rank(&client, &lost, &statement, &configuration, None).await.unwrap();
    let told: Vec<_> = places.iter().map(|place| (place.url.as_str(), place.values.clone(), place.holds)).collect();
    assert_eq!(told, lost.each_ref().map(|url| (url.as_str(), delay(None), None)), "nothing is known of them");
    let list = lost.join("\n").into_bytes();
    let unfound = order(&client, list, &statement, &configuration, None, false).await.unwrap_err();
    assert_eq!(unfound.kind(), Kind::Unavailable, "it is not passed off as judged");
    let unreadable = order(&client, b"no list".to_vec(), &statement, &configuration, None, false).await.unwrap_err();
    assert_eq!(unreadable.kind(), Kind::Invalid);
}
