use super::*;

fn resigned(header: &Value, signature: &str) -> String {
    let claims = wlcg_claims(ISSUER, "storage.modify:/").to_string();
    format!("{}.{}.{signature}", base64url(header.to_string().as_bytes()), base64url(claims.as_bytes()))
}

#[tokio::test]
async fn of_another_key_with_the_same_name() {
    let claims = wlcg_claims(ISSUER, "storage.modify:/");
    for thief in [SigningKey::es256("ec"), SigningKey::rs256("rsa")] {
        assert!(refusal(&thief.token(&claims)).await.contains("forged"));
    }
}

#[tokio::test]
async fn claims_of_one_token_do_not_fit_the_signature_of_another() {
    let [small, large] = ["storage.read:/x", "storage.modify:/"].map(|scope| ec().token(&wlcg_claims(ISSUER, scope)));
    let (_, signature) = small.rsplit_once('.').unwrap();
    let (signed, _) = large.rsplit_once('.').unwrap();
    assert!(refusal(&format!("{signed}.{signature}")).await.contains("forged"));
    assert!(refusal(&format!("{signed}.")).await.contains("forged"));
}

#[tokio::test]
async fn algorithms_cannot_be_chosen_by_the_token() {
    for alg in
        ["none", "None", "NONE", "nOnE", "", "HS256", "HS512", "RS384", "RS512", "PS256", "ES384", "EdDSA", "rs256"]
    {
        for kid in ["ec", "rsa"] {
            let said = refusal(&resigned(&json!({"alg": alg, "kid": kid}), "")).await;
            assert!(said.contains("only RS256 and ES256"), "{said}");
        }
    }
    assert!(refusal(&resigned(&json!({"kid": "ec"}), "")).await.contains("malformed"));
    assert!(refusal(&resigned(&json!({"alg": null, "kid": "ec"}), "")).await.contains("malformed"));
    assert!(refusal(&resigned(&json!({"alg": ["RS256"], "kid": "ec"}), "")).await.contains("malformed"));
}

#[tokio::test]
async fn the_public_key_is_no_shared_secret() {
    for key in [ec(), rsa()] {
        let token = resigned(&json!({"alg": "HS256", "typ": "JWT", "kid": key.header()["kid"]}), "");
        let secret = jsonwebtoken::EncodingKey::from_secret(key.public_bytes());
        let signed = token.trim_end_matches('.');
        let tag = jsonwebtoken::crypto::sign(signed.as_bytes(), &secret, jsonwebtoken::Algorithm::HS256).unwrap();
        assert!(refusal(&format!("{signed}.{tag}")).await.contains("only RS256 and ES256"));
    }
}

#[tokio::test]
async fn a_key_is_good_for_its_own_algorithm_only() {
    let claims = wlcg_claims(ISSUER, "storage.modify:/").to_string();
    for (key, alg, kid) in
        [(ec(), "RS256", "ec"), (rsa(), "ES256", "rsa"), (ec(), "ES256", "rsa"), (ec(), "RS256", "rsa")]
    {
        let token = key.sign(&json!({"alg": alg, "kid": kid}), &claims);
        let said = refusal(&token).await;
        assert!(said.contains("not among those") || said.contains("forged"), "{said}");
    }
}

#[tokio::test]
async fn keys_inside_a_token_are_not_believed() {
    let thief = SigningKey::es256("ec");
    let claims = wlcg_claims(ISSUER, "storage.modify:/").to_string();
    for extra in [
        json!({"jwk": thief.jwk()}),
        json!({"jwk": thief.jwk(), "kid": "thief"}),
        json!({"jku": "https://thief.example/jwks", "x5u": "file:///etc/passwd", "x5c": ["MIIB"]}),
    ] {
        let said = refusal(&thief.sign(&changed(thief.header(), &extra), &claims)).await;
        assert!(said.contains("forged") || said.contains("not among those"), "{said}");
    }
}

#[tokio::test]
async fn key_identifiers_are_only_compared() {
    let claims = wlcg_claims(ISSUER, "storage.read:/").to_string();
    for kid in ["../../../dev/null", "/etc/passwd", "' OR '1'='1", "ec\0", "", "EC", "https://thief.example", "%65c"] {
        let said = refusal(&ec().sign(&json!({"alg": "ES256", "kid": kid}), &claims)).await;
        assert!(said.contains("not among those"), "{said}");
        assert!(!said.contains('\0'), "{said:?}");
    }
    for kid in [json!("k".repeat(257)), json!(7), json!(["ec"])] {
        assert!(refusal(&ec().sign(&json!({"alg": "ES256", "kid": kid}), &claims)).await.contains("malformed"));
    }
}

#[tokio::test]
async fn critical_extensions_and_other_types_are_refused() {
    let claims = wlcg_claims(ISSUER, "storage.read:/").to_string();
    for extra in [
        json!({"crit": ["b64"], "b64": false}),
        json!({"crit": []}),
        json!({"typ": "logout+jwt"}),
        json!({"typ": "dpop+jwt"}),
    ] {
        assert!(refusal(&ec().sign(&changed(ec().header(), &extra), &claims)).await.contains("malformed"));
    }
    let verifier = verifier();
    for typ in ["JWT", "jwt", "at+jwt", "application/at+jwt"] {
        let token = ec().sign(&changed(ec().header(), &json!({"typ": typ})), &claims);
        verifier.identify(&token, HERE).await.unwrap();
    }
}
