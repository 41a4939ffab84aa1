//! Third-party copies between two sites with correct and incorrect servers.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use towpath_client::{
    Client, ClientOptions, TokenSource,
    third_party::{SiteCopy, TransferMode},
};
use towpath_proto::url::Url;
use towpath_store::{Caller, Fault, Overwrite, Result, Secret};

use crate::web::{Reply, Web, reply};

const MARKERS: &str = "Perf Marker\nStripe Index: 0\nStripe Bytes Transferred: 5\nTotal Stripe Count: 2\nEnd\n\
                       Perf Marker\nStripe Index: 1\nStripe Bytes Transferred: 7\nTotal Stripe Count: 2\nEnd\n";

fn answering(answer: impl Fn() -> Reply + Send + Sync + 'static) -> Web {
    Web::start(move |_, _| answer())
}

/// Has `site` copy with `other`; the outcome, and how many bytes it said were written.
async fn copy(site: &Web, other: &str, mode: TransferMode, options: ClientOptions) -> (Result<()>, u64) {
    let active: Url = format!("http://{}/here", site.address).parse().unwrap();
    let other: Url = other.parse().unwrap();
    let (from, to) = if mode == TransferMode::Pull { (&other, &active) } else { (&active, &other) };
    let told = AtomicU64::new(0);
    let copy = SiteCopy { from, to, mode, overwrite: Overwrite::Refuse };
    let client = Client::new(Arc::new(options));
    let outcome = client.copy_between(&Caller::local(), copy, &|bytes| told.store(bytes, Ordering::Relaxed)).await;
    (outcome, told.into_inner())
}

fn options() -> ClientOptions {
    ClientOptions { token: TokenSource::Nothing, ..ClientOptions::default() }
}

#[tokio::test]
async fn the_site_is_asked_and_followed_to_its_verdict() {
    for (status, mode) in [(202, TransferMode::Pull), (201, TransferMode::Push)] {
        let site = answering(move || reply(status).body(format!("{MARKERS}success: Created")).chunked());
        let (outcome, told) = copy(&site, "https://other.example.org/f%20g?x=1", mode, options()).await;
        outcome.unwrap();
        assert_eq!(told, 12);
        let asked = site.asked().pop().unwrap();
        assert_eq!((asked.method.as_str(), asked.target.as_str()), ("COPY", "/here"));
        let field = if mode == TransferMode::Pull { "source" } else { "destination" };
        assert_eq!(asked.field(field), "https://other.example.org/f%20g?x=1");
        assert_eq!((asked.field("overwrite"), asked.field("credential")), ("F", "none"));
    }
}

#[tokio::test]
async fn only_a_verdict_counts() {
    for (answer, fault) in [
        (format!("{MARKERS}failure: no space left"), Fault::Unavailable),
        (MARKERS.to_owned(), Fault::Unavailable),
        (String::new(), Fault::Unavailable),
    ] {
        let site = answering(move || reply(202).body(answer.clone()).chunked());
        let (outcome, _) = copy(&site, "http://other.example.org/f", TransferMode::Pull, options()).await;
        assert_eq!(outcome.unwrap_err().fault(), fault);
    }
    let torn = format!("{MARKERS}success: Created\n");
    let cut = MARKERS.len() + 3;
    let site = answering(move || reply(202).body(torn.clone()).broken_after(cut));
    assert!(copy(&site, "http://other.example.org/f", TransferMode::Pull, options()).await.0.is_err());
    for (status, fault) in [
        (501, Fault::Unsupported),
        (405, Fault::Unsupported),
        (412, Fault::AlreadyExists),
        (403, Fault::PermissionDenied),
    ] {
        let site = answering(move || reply(status));
        let (outcome, _) = copy(&site, "http://other.example.org/f", TransferMode::Pull, options()).await;
        assert_eq!(outcome.unwrap_err().fault(), fault, "{status}");
        assert_eq!(site.asked().len(), 1, "{status}: it is not asked twice");
    }
}

#[tokio::test]
async fn a_token_is_handed_on_only_for_where_it_would_be_sent() {
    for (other, is_handed_on) in [
        ("https://other.example.org/f", true),
        ("davs://other.example.org/f", true),
        ("http://127.0.0.1/f", true),
        ("http://other.example.org/f", false),
    ] {
        let site = answering(|| reply(202).body("success\n").chunked());
        let with_token = ClientOptions { token: TokenSource::Fixed(Secret::new("t0ken")), ..options() };
        copy(&site, other, TransferMode::Pull, with_token).await.0.unwrap();
        let asked = site.asked().pop().unwrap();
        let expected = if is_handed_on { "Bearer t0ken" } else { "" };
        assert_eq!(asked.field("transferheaderauthorization"), expected, "{other}");
    }
}

#[tokio::test]
async fn what_sites_cannot_do_between_them_is_not_asked() {
    let site = answering(|| reply(202));
    let (outcome, _) = copy(&site, "root://other.example.org//f", TransferMode::Pull, options()).await;
    assert_eq!(outcome.unwrap_err().fault(), Fault::Unsupported);
    assert!(site.asked().is_empty());
}

/// XRootD takes what follows a question mark for parameters: the copy would be one of another file, or replace it.
#[tokio::test]
async fn xrootd_is_not_named_a_file_with_a_question_mark() {
    let xrootd = answering(|| reply(404).with("server", "XrootD/v5.5.3"));
    let site = answering(|| reply(201));
    let client = Client::new(Arc::new(options()));
    let active: Url = format!("http://{}/here", site.address).parse().unwrap();
    let other: Url = format!("http://{}/c%3Fd", xrootd.address).parse().unwrap();
    let (store, _) = client.connect(&other).unwrap();
    let root = towpath_store::StorePath::root();
    store.stat(&Caller::local(), &root).await.unwrap_err();
    for mode in [TransferMode::Pull, TransferMode::Push] {
        let (from, to) = if mode == TransferMode::Pull { (&other, &active) } else { (&active, &other) };
        let copy = SiteCopy { from, to, mode, overwrite: Overwrite::Refuse };
        let refused = client.copy_between(&Caller::local(), copy, &|_| ()).await.unwrap_err();
        assert_eq!(refused.fault(), Fault::InvalidArgument, "{refused}");
    }
    assert!(site.asked().is_empty());
}
