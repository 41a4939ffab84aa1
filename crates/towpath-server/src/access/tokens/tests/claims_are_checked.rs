use super::*;

#[tokio::test]
async fn each_wrong_claim_has_its_message() {
    let now_s = clock::unix_s();
    for (token, says) in [
        (wlcg(&json!({"exp": now_s - 35, "nbf": null})), "expired 3"),
        (wlcg(&json!({"exp": 0})), "Thu, 01 Jan 1970"),
        (wlcg(&json!({"exp": null})), "lacks the claim `exp`"),
        (wlcg(&json!({"exp": "tomorrow"})), "malformed"),
        (wlcg(&json!({"exp": 1e300})), "outside the years"),
        (wlcg(&json!({"exp": -1})), "outside the years"),
        (wlcg(&json!({"exp": u64::MAX})), "outside the years"),
        (wlcg(&json!({"nbf": now_s + 300})), "not valid before"),
        (wlcg(&json!({"nbf": null, "iat": now_s + 300})), "not valid before"),
        (wlcg(&json!({"nbf": 1e300})), "outside the years"),
        (wlcg(&json!({"sub": null})), "lacks the claim `sub`"),
        (wlcg(&json!({"iat": null})), "lacks the claim `iat`"),
        (wlcg(&json!({"jti": null})), "lacks the claim `jti`"),
        (wlcg(&json!({"aud": null})), "lacks the claim `aud`"),
        (wlcg(&json!({"iss": null})), "malformed"),
        (wlcg(&json!({"wlcg.ver": "2.0"})), "version `2.0` is not supported"),
        (wlcg(&json!({"wlcg.ver": "1"})), "not supported"),
        (wlcg(&json!({"wlcg.ver": "1.x"})), "not supported"),
        (wlcg(&json!({"wlcg.ver": 1.0})), "malformed"),
        (wlcg(&json!({"sub": "a\nb"})), "control characters"),
        (wlcg(&json!({"sub": ""})), "empty"),
        (wlcg(&json!({"sub": "a".repeat(256)})), "255"),
        (scitoken(&json!({"aud": null})), "lacks the claim `aud`"),
        (scitoken(&json!({"exp": null})), "lacks the claim `exp`"),
        (scitoken(&json!({"ver": "scitoken:3.0"})), "not supported"),
        (scitoken(&json!({"ver": null, "aud": null})), "lacks the claim `aud`"),
        (scitoken(&json!({"ver": null, "groups": []})), "may not have the claim `groups`"),
    ] {
        let said = refusal(&token).await;
        assert!(said.contains(says), "{said:?} does not say {says:?}");
    }
}

#[tokio::test]
async fn audiences_are_compared_exactly() {
    for aud in [
        json!("https://SE.example"),
        json!("https://se.example/"),
        json!("https://se.example:443"),
        json!("https://se.example.evil"),
        json!("ANY"),
        json!("any"),
        json!(""),
        json!([]),
        json!(["https://other.example"]),
    ] {
        let said = refusal(&wlcg(&json!({"aud": aud}))).await;
        assert!(said.contains("this server accepts `https://se.example`, `https://wlcg.cern.ch/jwt/v1/any`"), "{said}");
    }
    let said = refusal(&scitoken(&json!({"aud": "https://wlcg.cern.ch/jwt/v1/any"}))).await;
    assert!(said.contains("`ANY`"), "the profiles' wildcards are not mixed: {said}");
    assert!(refusal(&wlcg(&json!({"aud": ["https://se.example", 7]}))).await.contains("malformed"));
}

#[tokio::test]
async fn without_an_audience_only_wildcards_are_good() {
    let verifier = verifier_for(|config| config.audiences.clear());
    verifier.identify(&wlcg(&json!({})), HERE).await.unwrap();
    let said = refusal_by(&verifier, &wlcg(&json!({"aud": "https://se.example"}))).await;
    assert!(said.contains("only `https://wlcg.cern.ch/jwt/v1/any`, as no audience is configured"), "{said}");
}

#[tokio::test]
async fn a_claim_may_not_be_there_twice() {
    let claims = wlcg_claims(ISSUER, "storage.read:/").to_string();
    let twice = claims.replacen('{', r#"{"sub":"root","#, 1);
    assert!(refusal(&ec().sign(&ec().header(), &twice)).await.contains("duplicate"));
}
