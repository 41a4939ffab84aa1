//! Scripted servers, and programs, with a paused clock that advances only while waiting.

use std::{path::Path, time::Duration};

use futures::future::{BoxFuture, FutureExt as _};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    sync::mpsc,
    task::yield_now,
};
use towpath_store::sys::net;

use super::*;
use crate::{agents::polled, query_batcher::ItemLookup};

/// A request and its delayed answer.
type ScriptedResponse = BoxFuture<'static, (DelegateRequest, Result<ReportedValues, QueryFailure>)>;

pub(super) type Script = Box<dyn Fn(DelegateRequest) -> ScriptedResponse + Send + Sync>;

fn item(from: u8) -> Item {
    Item::Cost("delay-ow".parse().unwrap(), [192, 0, 2, from].into(), [198, 51, 100, from].into())
}

/// A delegate for delays.
fn delegated() -> DelegateAgent {
    let config = toml::from_str("command = ['none']\nmetrics = ['delay-ow']\nwait = '1m'").unwrap();
    let query_batcher = Arc::new(QueryBatcher::new(Duration::from_secs(60), Duration::from_secs(300)));
    DelegateAgent { config, query_batcher, client: Arc::new(polled::client()), purpose: Purpose::Serve }
}

/// Asks a source for items; returns their values, and the final problem if any.
async fn request_items(
    source: &mut Source,
    delegated: &DelegateAgent,
    items: &[Item],
) -> (Vec<Option<Value>>, Option<String>) {
    delegated.query_batcher.open(delegated.config.on_demand());
    items.iter().for_each(|item| drop(delegated.query_batcher.look_up(item, true, clock::now())));
    let (reports, _) = mpsc::channel(1);
    let handle = AgentHandle::new(0, &"x".into(), &reports);
    let trouble = delegated
        .request_all(delegated.query_batcher.next().await, source, &handle, &mut RestartBackoff::default())
        .await;
    let values = items.iter().map(|item| match delegated.query_batcher.look_up(item, false, clock::now()) {
        ItemLookup::Known(value) => value,
        ItemLookup::Needed(_) | ItemLookup::Unknown => None,
    });
    (values.collect(), trouble)
}

/// A server that answers each request with a cost of 7, except those from one address, for which it does `otherwise`.
fn knows_all_but(from: u8, otherwise: impl Fn(DelegateRequest) -> ScriptedResponse + Send + Sync + 'static) -> Source {
    Source::Scripted(Box::new(move |request| {
        let values: ReportedValues = request.each().map(|item| (item, 7.into())).collect();
        match values.iter().any(|(requested, _)| *requested == item(from)) {
            true => otherwise(request),
            false => ready((request, Ok(values))).boxed(),
        }
    }))
}

#[tokio::test(start_paused = true)]
async fn a_question_that_is_not_answered_hurts_only_itself() {
    let delegated = delegated();
    let mut source = knows_all_but(3, |request| {
        let late = async {
            sleep(Duration::from_secs(30)).await;
            (request, Err(QueryFailure::Partial(ReportedValues::new(), "it is late".into())))
        };
        late.boxed()
    });
    let items: Vec<Item> = (1..=20).map(item).collect();
    let (values, trouble) = request_items(&mut source, &delegated, &items).await;
    assert_eq!(trouble.as_deref(), Some("it is late"));
    let known = |number: usize| (number != 2).then(|| Value::from(7));
    assert_eq!(values, (0..20).map(known).collect::<Vec<_>>());
    delegated.query_batcher.open(delegated.config.on_demand());
    assert_eq!(delegated.query_batcher.next().now_or_never(), None, "it is not asked again soon");
}

#[tokio::test]
async fn what_was_not_asked_when_it_went_is_asked_when_it_is_back() {
    let delegated = delegated();
    let mut source =
        knows_all_but(1, |request| ready((request, Err(QueryFailure::Unreachable("it went".into())))).boxed());
    let items: Vec<Item> = (1..=20).map(item).collect();
    let (values, trouble) = request_items(&mut source, &delegated, &items).await;
    assert_eq!(trouble.as_deref(), Some("it went"));
    let unknown: Vec<Item> =
        items.iter().zip(&values).filter(|(_, values)| values.is_none()).map(|(item, _)| item.clone()).collect();
    assert!(unknown.len() > 1 && unknown.len() < 20, "{unknown:?}");
    delegated.query_batcher.close();
    delegated.query_batcher.open(delegated.config.on_demand());
    let mut again: Vec<Item> = delegated.query_batcher.next().await.iter().flat_map(DelegateRequest::each).collect();
    again.sort();
    assert_eq!(again, unknown[1..]);
}

/// A program.
fn program(script: &str) -> DelegateProgram {
    let command = ["sh", "-c", script].map(str::to_owned);
    DelegateProgram::open(&command, &"x".into()).unwrap()
}

fn request(froms: impl IntoIterator<Item = u8>) -> DelegateRequest {
    let sources = froms.into_iter().map(|from| [192, 0, 2, from].into()).collect();
    DelegateRequest::Costs {
        metric: "delay-ow".parse().unwrap(),
        sources,
        destinations: vec![[198, 51, 100, 1].into()],
    }
}

/// Shell code that prints the first item of [`request`] and one that was not requested.
const TELLS: &str = r#"
tell() { echo '{"metric": {"src": "'$1'", "dst": "'$2'", "metric": "delay-ow", "value": 7}}'; }
tell 192.0.2.1 198.51.100.1; tell 198.51.100.1 192.0.2.1
"#;

#[tokio::test]
async fn a_program_may_tell_more_than_it_is_asked_for() {
    let mut program = program(&format!("while read question; do {TELLS} echo '{{\"commit\": {{}}}}'; done"));
    for _ in 0..3 {
        assert_eq!(program.request(&request([1])).await.unwrap(), [(item(1), 7.0.into())]);
    }
}

#[tokio::test]
async fn what_a_program_told_before_it_was_silent_holds() {
    let directory = tempfile::tempdir().unwrap();
    let marker = directory.path().join("told");
    let mut program = program(&format!(
        "read question; {TELLS} > '{0}.new'; cat '{0}.new'; mv '{0}.new' '{0}'; read x",
        marker.display()
    ));
    // Only now, because the program would otherwise time out before it starts.
    let stand_still = async {
        until_there(&marker).await;
        tokio::time::pause();
    };
    let request = request([1, 2]);
    let (answer, ()) = tokio::join!(program.request(&request), stand_still);
    match answer {
        Err(QueryFailure::Partial(values, trouble)) => {
            assert_eq!(values, [(item(1), 7.0.into())]);
            assert_eq!(trouble, "the program did not respond within 30s");
        }
        other => panic!("{other:?}"),
    }
}

/// Directory of a server with delays.
const DIRECTORY: &str = r#"{"meta": {"cost-types": {"m": {"cost-mode": "numerical", "cost-metric": "delay-ow"}}},
    "resources": {"costs": {"uri": "costs", "media-type": "application/alto-endpointcost+json",
    "accepts": "application/alto-endpointcostparams+json", "capabilities": {"cost-type-names": ["m"]}}}}"#;

#[tokio::test]
async fn nothing_is_learnt_by_a_server_that_is_silent_to_all() {
    let listener = net::listen(([127, 0, 0, 1], 0).into()).unwrap();
    let url = format!("http://{}/directory", listener.local_addr().unwrap());
    let answer_once = async {
        let (mut connection, _) = listener.accept().await.unwrap();
        connection.read_u8().await.unwrap();
        let head = "HTTP/1.1 200 OK\r\nContent-Type: application/alto-directory+json\r\n";
        let answer = format!("{head}Content-Length: {}\r\n\r\n{DIRECTORY}", DIRECTORY.len());
        connection.write_all(answer.as_bytes()).await.unwrap();
        connection
    };
    let client = Arc::new(polled::client());
    let (server, _connection) = tokio::join!(AltoClient::open(client, &url, PATIENCE), answer_once);
    tokio::time::pause();
    let (_, answer) = request_from_server(&server.unwrap(), request([1]), "x").await;
    assert!(matches!(answer, Err(QueryFailure::Unreachable(_))), "{answer:?}");
}

async fn until_there(path: &Path) {
    while !path.exists() {
        yield_now().await;
    }
}

#[tokio::test]
async fn a_program_that_commits_once_too_often_is_told() {
    let commits = r#"while read question; do echo '{"commit": {}}'; echo '{"commit": {}}'; done"#;
    let mut program = program(commits);
    let first = program.request(&request([1])).await;
    let trouble = match first {
        Err(QueryFailure::Partial(_, trouble)) => trouble,
        Ok(_) => program.has_ended().await,
        other => panic!("{other:?}"),
    };
    assert!(trouble.starts_with("the program wrote output that was not requested"), "{trouble}");
}

#[tokio::test]
async fn a_program_that_says_something_unasked_or_closes_its_output_is_told() {
    for (script, expected) in [
        ("echo hello; read x", "the program wrote output that was not requested"),
        ("exec >&-; read x", "the program ended"),
    ] {
        let trouble = program(script).has_ended().await;
        assert!(trouble.starts_with(expected), "{script}: {trouble}");
    }
}
