//! Answers of services that are no storages, above all those that go on and on.

use std::{sync::Arc, time::Duration};

use towpath_client::{Client, DocumentRequest, DocumentStatus, Subscription};
use towpath_store::{Caller, Error, Fault};

use super::web::{Reply, Web, error, options, reply};

const EVENTS: &str = "text/event-stream";
const REFUSAL: &str = "application/refusal";

fn document_request() -> DocumentRequest<'static> {
    DocumentRequest {
        accept: EVENTS,
        document: Some(("application/json", b"{}")),
        refusal_type: Some(REFUSAL),
        etag: None,
        field: None,
        limit_bytes: 100,
        patience: Duration::from_secs(1),
    }
}

fn events(body: &'static str) -> Reply {
    reply(200).with("content-type", EVENTS).body(body).chunked()
}

async fn subscribe(web: &Web) -> Result<Subscription, Error> {
    let client = Client::new(Arc::new(options()));
    client.subscribe(&format!("http://{}/updates", web.address), &Caller::nobody(), document_request()).await
}

/// Reads the subscription; returns its content and its end.
async fn read(mut subscription: Subscription) -> (String, Result<(), Error>) {
    let mut read = String::new();
    loop {
        match subscription.next().await {
            Ok(Some(piece)) => read.push_str(std::str::from_utf8(&piece).unwrap()),
            Ok(None) => return (read, Ok(())),
            Err(error) => return (read, Err(error)),
        }
    }
}

#[tokio::test]
async fn an_answer_is_read_as_it_comes() {
    let web = Web::start(|_, _| events("data: a\n\n"));
    let subscription = subscribe(&web).await.unwrap();
    assert_eq!((subscription.outcome, subscription.media_type.as_str()), (DocumentStatus::Content, EVENTS));
    assert_eq!(subscription.url, format!("http://{}/updates", web.address));
    let (read, end) = read(subscription).await;
    assert!(read == "data: a\n\n" && end.is_ok(), "{read} {end:?}");
    let all_asked = web.asked();
    let asked = &all_asked[0];
    assert_eq!((asked.method.as_str(), asked.field("accept"), &asked.body[..]), ("POST", EVENTS, &b"{}"[..]));
}

#[tokio::test]
async fn silence_and_breaks_are_told_with_what_came_before() {
    for (is_stalled, fault) in [(true, Fault::TimedOut), (false, Fault::Unavailable)] {
        let web = Web::start(move |_, _| {
            let reply = events("data: a\n\ndata: b\n\n");
            if is_stalled { reply.stalled_after(9) } else { reply.broken_after(9) }
        });
        let (read, end) = read(subscribe(&web).await.unwrap()).await;
        assert_eq!((read.as_str(), error(end).fault()), ("data: a\n\n", fault));
        assert_eq!(web.asked().len(), 1, "what has begun is not asked for again");
    }
}

#[tokio::test]
async fn a_refusal_is_read_whole_and_other_answers_are_errors() {
    let web = Web::start(|_, _| reply(400).with("content-type", REFUSAL).body("no"));
    let refused = subscribe(&web).await.unwrap();
    assert_eq!(refused.outcome, DocumentStatus::Refused);
    assert_eq!(refused.whole(100).await.unwrap(), b"no");
    let long = Web::start(|_, _| reply(400).with("content-type", REFUSAL).body("no".repeat(100)));
    assert_eq!(error(subscribe(&long).await.unwrap().whole(100).await).fault(), Fault::TooLarge);
    let missing = Web::start(|_, _| reply(404));
    assert_eq!(error(subscribe(&missing).await).fault(), Fault::NotFound);
}

#[tokio::test]
async fn what_nobody_needs_any_more_is_withdrawn() {
    let web = Web::start(|_, before| reply(if before == 0 { 204 } else { 404 }));
    let client = Client::new(Arc::new(options()));
    let url = format!("http://{}/tips/1", web.address);
    let withdraw = async || client.withdraw(&url, &Caller::nobody(), Duration::from_secs(10)).await;
    withdraw().await.unwrap();
    assert_eq!(error(withdraw().await).fault(), Fault::NotFound);
    assert_eq!(web.methods(), ["DELETE", "DELETE"]);
}
