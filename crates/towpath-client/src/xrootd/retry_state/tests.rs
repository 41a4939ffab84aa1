use towpath_store::sys::clock;

use super::*;

fn origin() -> Server {
    Server {
        host: "manager.example".into(),
        port: 1094,
        tls: true,
        path: None,
        cgi: Bytes::from_static(b"a=b"),
        login_cgi: Bytes::new(),
        trusted: true,
    }
}

fn retry_state(repeatable: bool) -> RetryState {
    RetryState::new(origin(), repeatable, &ClientOptions::default(), clock::now())
}

fn next(retry_state: &mut RetryState, failure: Failure) -> Result<Duration, Error> {
    retry_state.after_failure(failure, true, clock::now(), 512)
}

fn to(host: &str) -> Failure {
    let (cgi, login_cgi) = (Bytes::from_static(b"c=d"), Bytes::from_static(b"l=1"));
    Failure::Redirect { to: Redirect::Host { host: host.into(), port: 1095, cgi, login_cgi }, encrypted: true }
}

fn to_url(url: &str, encrypted: bool) -> Failure {
    Failure::Redirect { to: Redirect::Url { url: url.into(), flags: Default::default() }, encrypted }
}

fn handle_refusal(code: ErrorCode) -> Failure {
    Failure::Refused(ErrorReply { code, message: "because".into(), named: None })
}

fn retry_lost() -> Failure {
    Failure::Lost(Error::new(Fault::Unavailable, "the connection was lost"))
}

#[test]
fn redirects_are_followed_with_what_they_add() {
    let mut retry_state = retry_state(true);
    assert_eq!(next(&mut retry_state, to("[::1]")).unwrap(), Duration::ZERO);
    let server = retry_state.server();
    assert_eq!((&*server.host, server.port, server.tls), ("::1", 1095, true));
    assert_eq!((&server.cgi[..], &server.login_cgi[..]), (&b"a=b&c=d"[..], &b"l=1"[..]));
}

#[test]
fn a_redirect_does_not_give_up_encryption() {
    let mut retry_state = retry_state(true);
    next(&mut retry_state, to_url("root://data.example:2094//f?x=y", true)).unwrap();
    assert!(retry_state.server().tls);
    assert_eq!(retry_state.server().cgi, "a=b&x=y");
    let error = next(&mut retry_state, to_url("http://data.example/f", true)).unwrap_err();
    assert_eq!(error.fault(), Fault::Protocol);
}

/// Returns the server at the end of the redirects `hops`, for a user who named `from` with a secret.
fn led(from: &str, hops: &[(&str, bool)]) -> Server {
    let (host, tls) = (from.rsplit('/').next().unwrap().into(), from.starts_with("roots"));
    let origin = Server { host, tls, cgi: Bytes::from_static(b"authz=t&a=b"), ..origin() };
    let mut retry_state = RetryState::new(origin, true, &ClientOptions::default(), clock::now());
    for (url, encrypted) in hops {
        next(&mut retry_state, to_url(url, *encrypted)).unwrap();
    }
    retry_state.server().clone()
}

#[test]
fn secrets_follow_only_redirects_that_can_be_trusted() {
    type Hops<'a> = &'a [(&'a str, bool)];
    // The user's URL and redirects; whether the token may be sent to the last server, and whether the URL's secret is.
    let cases: [(&str, Hops<'_>, bool, bool); 8] = [
        ("roots://a", &[("root://b//f", true)], true, true),
        ("roots://a", &[("roots://b//f", true), ("root://c//f", true)], true, true),
        // Anyone on the network path may have sent this redirect.
        ("root://a", &[("roots://b//f", false)], false, false),
        ("root://a", &[("root://b//f", false)], false, false),
        ("root://a", &[("roots://b//f", false), ("roots://c//f", true)], false, false),
        // The first server required TLS for itself but not for the second. The token is for TLS only, and the URL's
        // secret would be readable.
        ("root://a", &[("root://b//f", true)], true, false),
        // The user's own host receives what the user sent it before.
        ("root://a", &[("root://A:2000//f", false)], true, true),
        ("root://a", &[("roots://b//f", false), ("root://a:2000//f", true)], true, true),
    ];
    for (from, hops, trusted, secret) in cases {
        let server = led(from, hops);
        assert_eq!(server.trusted, trusted, "{from} {hops:?}");
        assert_eq!(server.cgi, if secret { "authz=t&a=b" } else { "a=b" }, "{from} {hops:?}");
        assert!(!format!("{server:?}").contains("authz"));
    }
}

#[test]
fn hosts_that_cannot_be_are_not_gone_to() {
    for host in ["", "a b", "\u{1b}]0;owned\u{7}", "a,b&authz=x"] {
        let error = next(&mut retry_state(true), to(host)).unwrap_err();
        assert_eq!(error.fault(), Fault::Protocol);
        assert!(!error.message().contains(host) || host.is_empty(), "{error}");
    }
}

#[test]
fn redirects_end() {
    let mut follower = retry_state(true);
    for hop in 0..MAX_REDIRECTS {
        next(&mut follower, to(&format!("d{hop}.example"))).unwrap();
    }
    assert_eq!(next(&mut follower, to("one.too.many")).unwrap_err().fault(), Fault::Protocol);

    let mut circle = retry_state(true);
    next(&mut circle, to("a.example")).unwrap();
    next(&mut circle, to("b.example")).unwrap();
    assert!(next(&mut circle, to("a.example")).unwrap_err().message().contains("loop"));
}

#[test]
fn a_server_that_failed_is_named_to_the_redirector() {
    let mut retry_state = retry_state(true);
    next(&mut retry_state, to("d1.example")).unwrap();
    next(&mut retry_state, handle_refusal(ErrorCode::IOError)).unwrap();
    assert_eq!(retry_state.server().host, "manager.example");
    assert_eq!(retry_state.server().cgi, "a=b&tried=d1.example&triedrc=ioerr");
    next(&mut retry_state, to("d2.example")).unwrap();
    assert_eq!(retry_state.server().cgi, "a=b&c=d");
    next(&mut retry_state, handle_refusal(ErrorCode::NotFound)).unwrap();
    assert_eq!(retry_state.server().cgi, "a=b&tried=d1.example,d2.example&triedrc=ioerr,enoent");
    let error = next(&mut retry_state, handle_refusal(ErrorCode::NotAuthorized)).unwrap_err();
    assert_eq!(error.fault(), Fault::PermissionDenied);
    assert_eq!(error.to_string(), "roots://manager.example:1094/: because (3010)");
}

#[test]
fn lost_connections_are_made_again_with_growing_pauses() {
    let mut retry_state = retry_state(true);
    let pauses: Vec<u128> = (0..5).map(|_| next(&mut retry_state, retry_lost()).unwrap().as_millis()).collect();
    assert_eq!(pauses, [187, 375, 750, 1500, 3000]);
    assert_eq!(next(&mut retry_state, retry_lost()).unwrap_err().fault(), Fault::Unavailable);
}

#[test]
fn time_bounds_the_attempts_too() {
    let mut retry_state = retry_state(true);
    let late = clock::now() + ClientOptions::default().retry_time + Duration::from_secs(1);
    assert!(retry_state.after_failure(retry_lost(), true, late, 0).is_err());
}

#[test]
fn what_must_not_be_done_twice_is_not() {
    let error = next(&mut retry_state(false), retry_lost()).unwrap_err();
    assert!(error.message().contains("may have been carried out"), "{error}");
    let not_sent = Failure::NotSent(Error::new(Fault::Unavailable, "refused"));
    assert!(next(&mut retry_state(false), not_sent.clone()).is_ok());
    assert!(retry_state(true).after_failure(not_sent, false, clock::now(), 0).is_err(), "a server that never answered");
}

#[test]
fn what_was_lost_before_the_login_is_tried_again_with_care() {
    let early = || Failure::EarlyLoss(Error::new(Fault::Unavailable, "reset"));
    let mut retry_state = retry_state(false);
    assert_eq!(retry_state.after_failure(early(), false, clock::now(), 0).unwrap(), Duration::ZERO);
    assert!(retry_state.after_failure(early(), false, clock::now(), 0).is_err(), "a server that never answered");
    let late = clock::now() + ClientOptions::default().retry_time + Duration::from_secs(1);
    assert!(self::retry_state(false).after_failure(early(), false, late, 0).is_err(), "it took too long");
}

#[test]
fn waits_are_honoured_up_to_a_bound() {
    let mut retry_state = retry_state(true);
    assert_eq!(next(&mut retry_state, Failure::Wait { seconds: 1000 }).unwrap(), Duration::from_secs(1000));
    assert!(next(&mut retry_state, Failure::Wait { seconds: 0 }).unwrap() > Duration::ZERO);
    assert_eq!(next(&mut retry_state, Failure::Wait { seconds: 1000 }).unwrap_err().fault(), Fault::TimedOut);
}

#[test]
fn a_chosen_limit_of_waits_is_named_when_it_is_reached() {
    let options = ClientOptions { max_wait: Some(Duration::from_secs(30)), ..ClientOptions::default() };
    let retry_state = || RetryState::new(origin(), true, &options, clock::now());
    let error = next(&mut retry_state(), Failure::Wait { seconds: 31 }).unwrap_err();
    assert!(error.message().ends_with("use --wait to wait longer than 30s"), "{error}");
    let mut slow = retry_state().with_wait_limit(options.wait_limit(true));
    assert_eq!(next(&mut slow, Failure::Wait { seconds: 31 }).unwrap(), Duration::from_secs(31));
}

#[test]
fn early_requests_are_repeated_a_few_times() {
    let mut retry_state = retry_state(false);
    for _ in 0..MAX_EARLY {
        assert_eq!(next(&mut retry_state, Failure::TooEarly).unwrap(), Duration::ZERO);
    }
    assert_eq!(next(&mut retry_state, Failure::TooEarly).unwrap_err().fault(), Fault::AuthenticationFailed);
}
