//! What denials say about the credentials of the client.

use std::{
    fmt::{self, Write as _},
    sync::{Arc, Mutex},
};

use towpath_client::{ClientOptions, TokenSource};
use towpath_server::config::{AnonymousRule, Right};
use towpath_store::{Fault, Secret, sys::disk};
use tracing::{Event, Metadata, Subscriber, field, span};

use super::{
    own::{TokenServer, serve, serve_guarded_with},
    peer::{caller, options, path, store_at},
};

fn readable_by_all() -> TokenServer {
    serve_guarded_with(vec![AnonymousRule { path: "/".into(), allow: vec![Right::Read] }])
}

/// Returns the message of the denial of a change.
async fn denial(scheme: &str, port: u16, options: ClientOptions) -> String {
    let error = store_at(scheme, port, options).make_directory(&caller(), &path("/d"), false, None).await.unwrap_err();
    assert_eq!(error.fault(), Fault::AuthenticationFailed, "{scheme}: {error}");
    error.message().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_denial_says_why_no_token_was_sent() {
    let TokenServer { directory, port, token, ca_file } = readable_by_all();
    let empty = directory.path().join("empty");
    disk::write(&empty, b"").unwrap();
    let missing = || TokenSource::File(empty.clone());
    let given = || TokenSource::Fixed(Secret::new(&*token));
    let with = |token, insecure| ClientOptions { token, insecure, ca_file: ca_file.clone(), ..options() };
    for scheme in ["roots", "https"] {
        let message = denial(scheme, port, with(missing(), false)).await;
        assert!(message.contains("no bearer token was found: set BEARER_TOKEN_FILE"), "{scheme}: {message}");
        // A server that copies for its clients has no tokens.
        let message = denial(scheme, port, with(TokenSource::Nothing, false)).await;
        assert!(!message.contains("BEARER_TOKEN_FILE"), "{scheme}: {message}");
    }
    // Over HTTP the token is sent, because it does not leave this machine.
    let message = denial("roots", port, with(given(), true)).await;
    assert!(message.contains("not sent with --insecure: use --ca-file"), "{message}");
}

#[tokio::test(flavor = "multi_thread")]
async fn no_token_is_recommended_for_a_server_that_accepts_none() {
    let port = serve(|config| config.access.anonymous.clear());
    for scheme in ["root", "http"] {
        let token = TokenSource::Fixed(Secret::new("token"));
        let message = denial(scheme, port, ClientOptions { token, ..options() }).await;
        assert!(message.contains("accepts neither tokens nor passwords"), "{scheme}: {message}");
        assert!(!message.contains("use ") && !message.contains("not sent"), "{scheme}: {message}");
    }
}

/// Records the messages of log events.
#[derive(Debug, Default)]
struct Log(Arc<Mutex<String>>);

impl Subscriber for Log {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }
    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }
    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn event(&self, event: &Event<'_>) {
        let mut text = self.0.lock().unwrap();
        event.record(&mut |field: &field::Field, value: &dyn fmt::Debug| {
            writeln!(text, "{}={value:?}", field.name()).unwrap();
        });
    }
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
}

#[tokio::test]
async fn a_refused_token_is_reported_once() {
    let log = Log::default();
    let text = Arc::clone(&log.0);
    let _guard = tracing::subscriber::set_default(log);
    let warnings = || text.lock().unwrap().matches("admitted you without them").count();
    let TokenServer { directory: _directory, port, token, ca_file } = readable_by_all();
    let damaged = || TokenSource::Fixed(Secret::new(format!("{}AAAA", &token[..token.len() - 4])));
    let with = || ClientOptions { token: damaged(), ca_file: ca_file.clone(), ..options() };
    let store = store_at("roots", port, with());
    for _ in 0..3 {
        let error = store.make_directory(&caller(), &path("/d"), false, None).await.unwrap_err();
        assert!(error.message().contains("forged or damaged"), "{error}");
    }
    assert_eq!(warnings(), 0, "the errors have the reason");
    let store = store_at("roots", port, with());
    for _ in 0..3 {
        store.stat(&caller(), &path("/")).await.unwrap();
    }
    assert_eq!(warnings(), 1);
}
