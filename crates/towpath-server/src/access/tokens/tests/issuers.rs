use super::*;

#[tokio::test]
async fn are_compared_exactly() {
    for other in [
        "https://issuer.example/",
        "https://ISSUER.example",
        "https://issuer.example:443",
        "http://issuer.example",
        "https://evil.example",
        "",
    ] {
        let said = refusal(&wlcg(&json!({"iss": other}))).await;
        assert!(said.contains("is not trusted by this server"), "{said}");
        assert_eq!(said.contains("the trailing slash is significant"), other.ends_with('/'), "{said}");
    }
    let long = format!("https://{}\u{202e}\n", "x".repeat(10_000));
    let said = refusal(&wlcg(&json!({"iss": long}))).await;
    assert!(said.len() < 300 && !said.contains('\n'), "{said}");
}

#[tokio::test]
async fn keep_to_their_keys_and_base_paths() {
    let directory = tempfile::tempdir().unwrap();
    let (red, blue) = (SigningKey::es256("same"), SigningKey::es256("same"));
    let file = |name: &str, key: &SigningKey| {
        let place = directory.path().join(name);
        disk::write(&place, jwks([key]).to_string().as_bytes()).unwrap();
        place
    };
    let issuers = vec![
        issuer("https://red.example", "/red", Some(&file("red", &red))),
        issuer("https://blue.example", "/blue/data", Some(&file("blue", &blue))),
    ];
    let verifier = Verifier::new(&config(issuers)).unwrap();
    let of = |name: &str, key: &SigningKey| key.token(&wlcg_claims(name, "storage.modify:/"));
    let alice = verifier.identify(&of("https://red.example", &red), HERE).await.unwrap();
    assert!(alice.check(Activity::Modify, &path("/red/x")).is_ok());
    assert!(alice.check(Activity::Modify, &path("/blue/data/x")).is_err());
    let bob = verifier.identify(&of("https://blue.example", &blue), HERE).await.unwrap();
    assert!(bob.check(Activity::Modify, &path("/blue/data/x")).is_ok());
    assert!(bob.check(Activity::Modify, &path("/blue/x")).is_err());
    assert!(bob.check(Activity::Modify, &path("/red/x")).is_err());
    assert!(refusal_by(&verifier, &of("https://red.example", &blue)).await.contains("forged"));
}

#[test]
fn that_make_no_sense_stop_the_start() {
    let directory = tempfile::tempdir().unwrap();
    let none_usable = directory.path().join("none");
    disk::write(&none_usable, br#"{"keys":[{"kty":"oct","k":"AAAA","kid":"s"}]}"#).unwrap();
    let large = directory.path().join("large");
    disk::write(&large, &vec![b' '; 300 << 10]).unwrap();
    let mut untrusting = issuer(ISSUER, "/", None);
    untrusting.ca = Some(none_usable.clone());
    for (issuers, says) in [
        (vec![issuer("http://issuer.example", "/", None)], "must be https"),
        (vec![issuer("http://127.evil.example", "/", None)], "must be https"),
        (vec![issuer("http://localhost.evil.example", "/", None)], "must be https"),
        (vec![issuer("ftp://issuer.example", "/", None)], "must be https"),
        (vec![issuer("issuer.example", "/", None)], "not a URL"),
        (vec![issuer("", "/", None)], "not a URL"),
        (vec![issuer("https://user:secret@issuer.example", "/", None)], "user name"),
        (vec![issuer("https://issuer.example?x", "/", None)], "no query"),
        (vec![issuer(ISSUER, "vo", None)], "not absolute"),
        (vec![issuer(ISSUER, "/vo/..", None)], "`..`"),
        (vec![issuer(ISSUER, "/", Some(Path::new("/nonexistent/jwks")))], "/nonexistent/jwks"),
        (vec![issuer(ISSUER, "/", Some(&none_usable))], "RS256 or ES256"),
        (vec![issuer(ISSUER, "/", Some(&large))], "262144"),
        (vec![issuer(ISSUER, "/a", None), issuer(ISSUER, "/b", None)], "twice"),
        (vec![untrusting], "no certificate"),
    ] {
        let said = Verifier::new(&config(issuers)).unwrap_err().to_string();
        assert!(said.contains(says), "{said:?} does not say {says:?}");
    }
}

#[tokio::test]
async fn keys_for_other_uses_are_passed_over() {
    let claims = wlcg_claims(ISSUER, "storage.read:/");
    let others = [json!({"use": "enc"}), json!({"alg": "ES384"}), json!({"key_ops": ["sign"]})].map(|change| {
        let key = SigningKey::es256("ec");
        (key.token(&claims), changed(key.jwk(), &change))
    });
    let mut keys = vec![
        json!({"kty": "new"}),
        json!(7),
        json!({"kty": "oct", "kid": "ec", "k": "AAAA"}),
        json!({"kty": "RSA", "kid": "ec", "n": "!", "e": "AQAB"}),
    ];
    keys.extend(others.iter().map(|(_, jwk)| jwk.clone()));
    keys.push(ec().jwk());
    let verifier = verifier_with_keys(&json!({"keys": keys}));
    verifier.identify(&ec().token(&claims), HERE).await.unwrap();
    for (token, jwk) in &others {
        assert!(refusal_by(&verifier, token).await.contains("forged"), "{jwk}");
    }
}

/// The examples in docs/guides/access.md are valid settings.
#[test]
fn documented_settings_are_understood() {
    let document = include_str!("../../../../../../docs/guides/access.md");
    let examples: Vec<&str> = document.split("```toml\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    assert_eq!(examples.len(), 3);
    for example in examples {
        let config: crate::ServeConfig = toml::from_str(example).unwrap();
        for mut settings in config.access.issuers {
            // The files do not exist on the machine that runs the test.
            (settings.keys, settings.ca) = (None, None);
            Issuer::new(&settings).unwrap();
        }
    }
}
