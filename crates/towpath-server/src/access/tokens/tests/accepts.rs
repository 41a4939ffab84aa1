use super::*;

#[tokio::test]
async fn both_algorithms_and_profiles() {
    let verifier = verifier();
    for key in [ec(), rsa()] {
        for claims in [wlcg_claims(ISSUER, "storage.read:/"), scitoken_claims(ISSUER, "read:/")] {
            let token = key.token(&claims);
            let identity = verifier.identify(&token, HERE).await.unwrap();
            assert_eq!(identity.caller.subject.as_deref(), Some("alice"));
            assert_eq!(identity.caller.issuer.as_deref(), Some(ISSUER));
            assert_eq!(identity.caller.address, Some(HERE));
            assert_eq!(identity.caller.token.unwrap().expose(), token);
            assert_eq!(identity.expires_s, claims["exp"].as_i64());
            assert_eq!(
                &*identity.grants,
                [Grant { right: crate::config::Right::Read, path: path("/vo"), directory: true }]
            );
        }
    }
}

#[tokio::test]
async fn what_the_profiles_leave_open() {
    let verifier = verifier();
    let now_s = clock::unix_s();
    for (why, token) in [
        ("a later minor version", wlcg(&json!({"wlcg.ver": "1.3"}))),
        ("claims that nobody knows", wlcg(&json!({"nonce": 1, "wlcg.groups": ["/vo"]}))),
        ("no nbf", wlcg(&json!({"nbf": null}))),
        ("a clock that is a little behind", wlcg(&json!({"nbf": now_s + 50}))),
        ("fractions of seconds", wlcg(&json!({"exp": now_s as f64 + 3600.5}))),
        ("several audiences", wlcg(&json!({"aud": ["https://other.example", "https://se.example"]}))),
        ("the older spelling", scitoken(&json!({"ver": "scitokens:2.0"}))),
        ("only what must be there", scitoken(&json!({"sub": null, "nbf": null, "iat": null, "jti": null}))),
        ("SciTokens 1.0", scitoken(&json!({"ver": null}))),
        ("our own audience", scitoken(&json!({"aud": "https://se.example"}))),
    ] {
        verifier.identify(&token, HERE).await.unwrap_or_else(|error| panic!("{why}: {error}"));
    }
}

#[tokio::test]
async fn a_subject_may_be_missing_but_its_bearer_is_not_anonymous() {
    let identity = verifier().identify(&scitoken(&json!({"sub": null})), HERE).await.unwrap();
    let refused = identity.check(Activity::Modify, &path("/vo/x")).unwrap_err();
    assert_eq!(refused.fault(), Fault::PermissionDenied);
    assert!(refused.message().contains(ISSUER), "{refused}");
}

#[tokio::test]
async fn a_token_without_key_identifier_if_there_is_one_key_only() {
    let header = json!({"alg": "ES256", "typ": "JWT"});
    let scitoken = ec().sign(&header, &scitoken_claims(ISSUER, "read:/").to_string());
    verifier().identify(&scitoken, HERE).await.unwrap();
    let wlcg = ec().sign(&header, &wlcg_claims(ISSUER, "storage.read:/").to_string());
    assert!(refusal(&wlcg).await.contains("lacks the claim `kid"));
    let two = verifier_with_keys(&jwks([ec(), &SigningKey::es256("other")]));
    assert!(refusal_by(&two, &scitoken).await.contains("its key (it names none) is not among those"));
}

/// Tokens created with the reference library, PyPI's scitokens 1.9.7 (`tests/data/scitokens/make.py`).
#[tokio::test]
async fn tokens_of_the_reference_library() {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/scitokens");
    let verifier = verifier_for(|config| config.issuers[0].keys = Some(data.join("jwks.json")));
    for name in ["es256-v1", "es256-v2", "rs256-v1", "rs256-v2"] {
        let token = disk::read(&data.join(name).with_extension("jwt"), 1 << 14).unwrap();
        let token = String::from_utf8(token).unwrap();
        let identity = verifier.identify(token.trim(), HERE).await.unwrap();
        assert!(identity.check(Activity::Read, &path("/vo/data/x")).is_ok(), "{name}");
        assert!(identity.check(Activity::Modify, &path("/vo/home/alice/x")).is_ok(), "{name}");
        assert!(identity.check(Activity::Read, &path("/vo/database")).is_err(), "{name}");
    }
}
