mod accepts;
mod claims_are_checked;
mod discovery_over_the_network;
mod issuers;
mod scopes;
mod shapes;
mod signatures_are_checked;

use std::{ops::Deref, path::Path, sync::OnceLock};

use proptest::prelude::*;
use serde_json::{Value, json};
use towpath_store::{Fault, sys::disk};
use towpath_testkit::issuer::{
    CannedResponse, DocumentServer, SigningKey, base64url, jwks, scitoken_claims, wlcg_claims,
};

use super::*;
use crate::access::Activity;

const ISSUER: &str = "https://issuer.example";
const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

/// Returns an issuer's key. Keys are slow to generate, and no test modifies them.
fn ec() -> &'static SigningKey {
    static KEY: OnceLock<SigningKey> = OnceLock::new();
    KEY.get_or_init(|| SigningKey::es256("ec"))
}

fn rsa() -> &'static SigningKey {
    static KEY: OnceLock<SigningKey> = OnceLock::new();
    KEY.get_or_init(|| SigningKey::rs256("rsa"))
}

fn issuer(url: &str, base_path: &str, keys: Option<&Path>) -> IssuerConfig {
    IssuerConfig { issuer: url.into(), base_path: base_path.into(), keys: keys.map(Into::into), ca: None }
}

fn config(issuers: Vec<IssuerConfig>) -> AccessConfig {
    AccessConfig { issuers, audiences: vec!["https://se.example".into()], ..AccessConfig::default() }
}

/// A verifier with its key file, which is read again for an unknown key.
#[derive(Debug)]
struct Fixture {
    verifier: Verifier,
    _keys: tempfile::NamedTempFile,
}

impl Deref for Fixture {
    type Target = Verifier;
    fn deref(&self) -> &Verifier {
        &self.verifier
    }
}

/// Returns a verifier that trusts [`ISSUER`] with both keys, below `/vo`.
fn verifier() -> Fixture {
    verifier_for(|_| {})
}

fn verifier_for(change: impl FnOnce(&mut AccessConfig)) -> Fixture {
    fixture(&jwks([ec(), rsa()]), change)
}

fn verifier_with_keys(jwks: &Value) -> Fixture {
    fixture(jwks, |_| {})
}

fn fixture(jwks: &Value, change: impl FnOnce(&mut AccessConfig)) -> Fixture {
    let keys = tempfile::NamedTempFile::new().unwrap();
    disk::write(keys.path(), jwks.to_string().as_bytes()).unwrap();
    let mut config = config(vec![issuer(ISSUER, "/vo", Some(keys.path()))]);
    change(&mut config);
    Fixture { verifier: Verifier::new(&config).unwrap(), _keys: keys }
}

async fn refusal_by(verifier: &Verifier, token: &str) -> String {
    let error = verifier.identify(token, HERE).await.expect_err("a bad token was accepted");
    assert_eq!(error.fault(), Fault::AuthenticationFailed, "{error}");
    error.to_string()
}

async fn refusal(token: &str) -> String {
    refusal_by(&verifier(), token).await
}

/// Returns `claims` with `changes` applied; null removes a claim.
fn changed(mut claims: Value, changes: &Value) -> Value {
    let claimed = claims.as_object_mut().unwrap();
    for (name, value) in changes.as_object().unwrap().clone() {
        if value.is_null() {
            claimed.remove(&name)
        } else {
            claimed.insert(name, value)
        };
    }
    claims
}

fn wlcg(changes: &Value) -> String {
    ec().token(&changed(wlcg_claims(ISSUER, "storage.read:/"), changes))
}

fn scitoken(changes: &Value) -> String {
    ec().token(&changed(scitoken_claims(ISSUER, "read:/"), changes))
}

fn path(text: &str) -> StorePath {
    StorePath::parse(text.as_bytes()).unwrap()
}

#[tokio::test]
async fn tokens_are_not_printed() {
    let verifier = verifier();
    let token = wlcg(&json!({}));
    let identity = verifier.identify(&token, HERE).await.unwrap();
    let printed = format!("{verifier:?} {identity:?}");
    let (_, signature) = token.rsplit_once('.').unwrap();
    assert!(printed.contains("alice") && !printed.contains(signature));
}

#[tokio::test]
async fn a_token_that_was_good_is_known() {
    let verifier = verifier();
    let token = wlcg(&json!({}));
    let [first, second] =
        [verifier.identify(&token, HERE).await.unwrap(), verifier.identify(&token, HERE).await.unwrap()];
    assert!(Arc::ptr_eq(&first.grants, &second.grants));
}
