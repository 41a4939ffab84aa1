//! Passwords of HTTP servers.

use bytes::Bytes;
use towpath_client::{ClientOptions, PasswordSource, TokenSource};
use towpath_store::{Caller, Secret, sys::disk};

use super::web::{Web, error, options, path, reply, serve_file, store};

/// Returns the `Authorization` of a request for `http://USER_INFO HOST/f` with `options`.
async fn authorization(user_info: &str, options: ClientOptions, caller: Caller) -> String {
    let content = Bytes::from_static(b"content");
    let server = Web::start(move |asked, _| serve_file(asked, &content, "\"1\""));
    let store = store(&format!("http://{user_info}{}/", server.address), &options);
    store.stat(&caller, &path("/f")).await.unwrap();
    server.asked()[0].field("authorization").to_owned()
}

#[tokio::test]
async fn credentials_have_an_order() {
    let directory = tempfile::tempdir().unwrap();
    let netrc = directory.path().join("netrc");
    disk::write(&netrc, b"machine 127.0.0.1 login bob password file\n").unwrap();
    let passwords = PasswordSource::File(netrc);
    let with_file = ClientOptions { passwords, ..options() };
    let with_token = ClientOptions { token: TokenSource::Fixed(Secret::new("t0ken")), ..with_file.clone() };
    let own_token = Caller { token: Some(Secret::new("0wn")), ..Caller::local() };
    for (user_info, options, caller, expected) in [
        ("", options(), Caller::local(), ""),
        ("alice:url@", options(), Caller::local(), "Basic YWxpY2U6dXJs"),
        ("", with_file.clone(), Caller::local(), "Basic Ym9iOmZpbGU="),
        ("carol@", with_file.clone(), Caller::local(), ""),
        ("", with_token.clone(), Caller::local(), "Bearer t0ken"),
        ("alice:url@", with_token.clone(), Caller::local(), "Basic YWxpY2U6dXJs"),
        ("alice:url@", with_token, own_token, "Bearer 0wn"),
        ("alice:url@", with_file, Caller::nobody(), ""),
    ] {
        assert_eq!(authorization(user_info, options, caller).await, expected, "{user_info}");
    }
}

#[tokio::test]
async fn a_password_does_not_follow_a_redirect_to_another_server() {
    let content = Bytes::from_static(b"content");
    let other = Web::start(move |asked, _| serve_file(asked, &content, "\"1\""));
    let there = format!("http://{}/f", other.address);
    let server = Web::start(move |_, _| reply(307).with("location", &there));
    let store = store(&format!("http://alice:secret@{}/", server.address), &options());
    store.stat(&Caller::local(), &path("/f")).await.unwrap();
    assert_eq!(server.asked()[0].field("authorization"), "Basic YWxpY2U6c2VjcmV0");
    assert!(other.asked().iter().all(|asked| asked.field("authorization").is_empty()), "{:?}", other.asked());
}

#[tokio::test]
async fn an_error_does_not_show_the_password() {
    let server = Web::start(|_, _| reply(401));
    let store = store(&format!("http://alice:hush@{}/", server.address), &options());
    let error = error(store.stat(&Caller::local(), &path("/f")).await);
    assert!(!format!("{error} {error:?} {store:?}").contains("hush"), "{error:?}");
}
