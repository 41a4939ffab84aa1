use towpath_proto::xrootd::{
    RequestFramer,
    request::Limits,
    response::{ErrorReply, Wait},
};
use towpath_store::Secret;

use super::*;

fn plan(tls: TlsWish) -> SetupOptions {
    SetupOptions {
        host: "se.example:1094".into(),
        tls,
        optimistic: tls == TlsWish::Avoid,
        patient: false,
        offer: None,
        credentials: AvailableCredentials {
            token: Ok(Some(Secret::new("t.o.k"))),
            withheld: None,
            user: "marie".into(),
        },
        login_cgi: Bytes::new(),
        previous: None,
    }
}

/// Returns the names of the requests to be sent, without the handshake.
fn requests(setup: &mut SessionSetup, handshaken: bool) -> Vec<&'static str> {
    let mut framer = RequestFramer::new(Limits::default());
    if handshaken {
        framer.buffer().extend_from_slice(&HANDSHAKE);
    }
    framer.buffer().extend_from_slice(&setup.take_output());
    let next = || framer.next().unwrap().map(|incoming| incoming.header.code.name().unwrap());
    std::iter::from_fn(next).collect()
}

fn body(body: &impl Body) -> Response {
    let mut out = BytesMut::new();
    body.encode(&mut out);
    Response::Ok(out.freeze())
}

fn handshake() -> Response {
    body(&HandshakeReply { protocol_version: PROTOCOL_VERSION, server_type: 1 })
}

fn protocol(flags: ServerFlags) -> Response {
    body(&ProtocolReply { version: PROTOCOL_VERSION, flags, ..ProtocolReply::default() })
}

fn login(security: &'static str) -> Response {
    body(&LoginReply { session_id: SessionId([7; 16]), security: security.into() })
}

fn refusal(code: ErrorCode) -> Response {
    Response::Error(ErrorReply { code, message: "no".into(), named: None })
}

#[test]
fn everything_leaves_at_once_where_nothing_is_wanted() {
    let mut setup = SessionSetup::new(plan(TlsWish::Avoid));
    assert!(setup.lets_requests_out() && !setup.before_tls());
    assert_eq!(requests(&mut setup, false), ["kXR_protocol", "kXR_login"]);
    setup.answer(StreamId::ZERO, handshake()).unwrap();
    setup.answer(reserved::PROTOCOL, protocol(ServerFlags::suppgrw)).unwrap();
    assert!(requests(&mut setup, true).is_empty());
    let ready = setup.answer(reserved::LOGIN, login("")).unwrap();
    assert!(matches!(ready, Progress::Ready(session) if session.has_pages() && session.offer.is_none()));
    assert!(setup.is_done());
}

#[test]
fn tls_comes_before_the_login() {
    let mut setup = SessionSetup::new(plan(TlsWish::Insist));
    assert!(setup.before_tls() && !setup.lets_requests_out());
    assert_eq!(requests(&mut setup, false), ["kXR_protocol"]);
    setup.answer(StreamId::ZERO, handshake()).unwrap();
    let flags = ServerFlags::haveTLS | ServerFlags::gotoTLS;
    assert!(matches!(setup.answer(reserved::PROTOCOL, protocol(flags)), Ok(Progress::StartTls)));
    setup.tls_started();
    assert_eq!(requests(&mut setup, true), ["kXR_login"]);
    assert!(setup.lets_requests_out());
}

#[test]
fn a_server_without_tls_is_refused_where_tls_was_asked_for() {
    let mut setup = SessionSetup::new(plan(TlsWish::Insist));
    setup.answer(StreamId::ZERO, handshake()).unwrap();
    let answer = setup.answer(reserved::PROTOCOL, protocol(ServerFlags::isServer));
    assert!(matches!(answer, Err(SetupFailure::Fatal(error)) if error.fault() == Fault::TlsRequired));
}

#[test]
fn a_server_that_wants_tls_is_believed() {
    for flags in [ServerFlags::tlsLogin, ServerFlags::tlsSess] {
        let mut setup = SessionSetup::new(plan(TlsWish::Avoid));
        setup.answer(StreamId::ZERO, handshake()).unwrap();
        let answer = setup.answer(reserved::PROTOCOL, protocol(flags | ServerFlags::haveTLS));
        assert!(matches!(answer, Err(SetupFailure::NeedsTls)));
    }
    let mut setup = SessionSetup::new(plan(TlsWish::Avoid));
    setup.answer(StreamId::ZERO, handshake()).unwrap();
    setup.answer(reserved::PROTOCOL, protocol(ServerFlags::isServer)).unwrap();
    let answer = setup.answer(reserved::LOGIN, refusal(ErrorCode::TLSRequired));
    assert!(matches!(answer, Err(SetupFailure::NeedsTls)));
}

/// Returns a flight over TLS up to the login.
fn encrypted(plan: SetupOptions) -> SessionSetup {
    let mut setup = SessionSetup::new(plan);
    setup.answer(StreamId::ZERO, handshake()).unwrap();
    setup.answer(reserved::PROTOCOL, protocol(ServerFlags::gotoTLS)).unwrap();
    setup.tls_started();
    setup
}

#[test]
fn credentials_are_tried_in_the_order_of_the_server() {
    let mut setup = encrypted(plan(TlsWish::Insist));
    setup.take_output();
    let list = "&P=gsi,v:10400&P=ztn,0:4096:&P=unix";
    assert!(matches!(setup.answer(reserved::LOGIN, login(list)), Ok(Progress::More)));
    assert_eq!(requests(&mut setup, true), ["kXR_auth"]);
    assert!(matches!(setup.answer(reserved::AUTH, refusal(ErrorCode::AuthFailed)), Ok(Progress::More)));
    assert_eq!(requests(&mut setup, true), ["kXR_auth"]);
    let ready = setup.answer(reserved::AUTH, Response::Ok(Bytes::new()));
    let Ok(Progress::Ready(session)) = ready else { panic!("{ready:?}") };
    assert_eq!(session.offer.unwrap().name, "unix");
    assert_eq!(session.refusal.as_deref(), Some("no"), "the fallback does not hide the refusal");
}

#[test]
fn when_nothing_is_left_the_error_names_the_offers() {
    let mut setup = encrypted(plan(TlsWish::Insist));
    let Err(SetupFailure::Fatal(error)) = setup.answer(reserved::LOGIN, login("&P=gsi,v:1&P=krb5,x")) else {
        panic!("it was accepted")
    };
    assert_eq!(error.fault(), Fault::AuthenticationFailed);
    assert!(error.message().contains("gsi, krb5"), "{error}");
}

#[test]
fn credentials_that_were_good_leave_with_the_login() {
    let mut setup = encrypted(SetupOptions { offer: Some(SecurityProtocol::ztn(4096)), ..plan(TlsWish::Insist) });
    assert_eq!(requests(&mut setup, false), ["kXR_protocol", "kXR_login", "kXR_auth"]);
    assert!(matches!(setup.answer(reserved::LOGIN, login("&P=ztn,0:4096:")), Ok(Progress::More)));
    assert!(requests(&mut setup, true).is_empty());
    assert!(matches!(setup.answer(reserved::AUTH, Response::Ok(Bytes::new())), Ok(Progress::Ready(_))));
}

#[test]
fn requests_wait_where_they_were_not_liked_early() {
    let mut setup = SessionSetup::new(SetupOptions { patient: true, ..plan(TlsWish::Avoid) });
    assert!(!setup.lets_requests_out());
    setup.answer(StreamId::ZERO, handshake()).unwrap();
    setup.answer(reserved::PROTOCOL, protocol(ServerFlags::isServer)).unwrap();
    setup.answer(reserved::LOGIN, login("&P=unix")).unwrap();
    assert!(!setup.lets_requests_out());
    setup.answer(reserved::AUTH, Response::Ok(Bytes::new())).unwrap();
    assert!(setup.lets_requests_out());
}

#[test]
fn the_session_before_is_ended() {
    let mut setup = SessionSetup::new(SetupOptions { previous: Some(SessionId([1; 16])), ..plan(TlsWish::Avoid) });
    setup.take_output();
    setup.answer(StreamId::ZERO, handshake()).unwrap();
    setup.answer(reserved::PROTOCOL, protocol(ServerFlags::isServer)).unwrap();
    setup.answer(reserved::LOGIN, login("")).unwrap();
    assert_eq!(requests(&mut setup, true), ["kXR_endsess"]);
}

#[test]
fn waits_and_answers_out_of_turn() {
    let mut setup = SessionSetup::new(plan(TlsWish::Avoid));
    let wait = Response::Wait(Wait { seconds: 9, message: String::new() });
    assert!(matches!(setup.answer(StreamId::ZERO, wait), Err(SetupFailure::Wait { seconds: 9 })));
    let mut setup = SessionSetup::new(plan(TlsWish::Avoid));
    assert!(matches!(setup.answer(reserved::LOGIN, login("")), Err(SetupFailure::Broken(_))));
}

#[test]
fn a_login_may_be_answered_before_the_protocol() {
    let mut setup = SessionSetup::new(plan(TlsWish::Avoid));
    setup.answer(StreamId::ZERO, handshake()).unwrap();
    assert!(matches!(setup.answer(reserved::LOGIN, login("")), Ok(Progress::More)));
    let ready = setup.answer(reserved::PROTOCOL, protocol(ServerFlags::suppgrw)).unwrap();
    assert!(matches!(ready, Progress::Ready(session) if session.has_pages()));
    let mut setup = SessionSetup::new(plan(TlsWish::Insist));
    setup.answer(StreamId::ZERO, handshake()).unwrap();
    assert!(matches!(setup.answer(reserved::LOGIN, login("")), Err(SetupFailure::Broken(_))), "none was sent");
}

#[test]
fn secrets_stay_back() {
    let shown = format!("{:?}", SessionSetup::new(plan(TlsWish::Insist)));
    assert!(!shown.contains("t.o.k"), "{shown}");
}
