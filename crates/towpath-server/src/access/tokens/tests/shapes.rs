use super::*;

#[tokio::test]
async fn that_are_no_token() {
    let good = wlcg(&json!({}));
    let deep = format!(r#"{{"iss":{}1{}}}"#, "[".repeat(5000), "]".repeat(5000));
    for token in [
        "".into(),
        ".".into(),
        "..".into(),
        "a.b".into(),
        "not a token".into(),
        format!("{good}.x"),
        format!("{good}.."),
        format!("{good}="),
        format!("{good}\n"),
        format!(" {good}"),
        format!("Bearer {good}"),
        good.replacen('.', "=.", 1),
        good.replacen("eyJ", "e+/", 1),
        good.replace('.', "\0"),
        good.replace('.', "．"),
        "€.€.€".into(),
        ec().sign(&ec().header(), "[]"),
        ec().sign(&ec().header(), "null"),
        ec().sign(&ec().header(), "{}"),
        ec().sign(&ec().header(), "{\"iss\":\"\\ud800\"}"),
        ec().sign(&ec().header(), &deep),
        ec().sign(&json!([]), "{}"),
        ec().sign(&json!("x"), "{}"),
    ] {
        let said = refusal(&token).await;
        assert!(said.contains("malformed") || said.contains("forged"), "{token:.40}: {said}");
        assert!(said.len() < 400, "{said}");
    }
}

#[tokio::test]
async fn that_are_too_large() {
    let padded = |bytes: usize| wlcg(&json!({"padding": "x".repeat(bytes)}));
    let verifier = verifier();
    verifier.identify(&padded(11_000), HERE).await.unwrap();
    for token in [padded(jwt::MAX_TOKEN_BYTES), "x".repeat(10 << 20), ".".repeat(1 << 20)] {
        assert!(refusal_by(&verifier, &token).await.contains("more than 16384 bytes"));
    }
}

#[tokio::test]
async fn one_character_changed_anywhere_spoils_it() {
    let verifier = verifier();
    let good = wlcg(&json!({}));
    for at in 0..good.len() {
        let mut bytes = good.clone().into_bytes();
        bytes[at] = if bytes[at] == b'A' { b'B' } else { b'A' };
        let token = String::from_utf8(bytes).unwrap();
        assert!(verifier.identify(&token, HERE).await.is_err(), "at {at}");
    }
}

proptest! {
    #[test]
    fn nothing_panics(header in ".{0,80}", claims in ".{0,200}", signature in ".{0,80}", encode: bool) {
        let token = if encode {
            format!("{}.{}.{signature}", base64url(header.as_bytes()), base64url(claims.as_bytes()))
        } else {
            format!("{header}.{claims}.{signature}")
        };
        prop_assert!(Jwt::parse(&token).is_err());
    }

    #[test]
    fn any_value_of_a_claim_is_accepted_or_refused(name in "exp|nbf|iat|aud|scope|ver|wlcg.ver|sub|jti|iss", value in any_json()) {
        let token = wlcg(&json!({name: value}));
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        if let Err(error) = runtime.block_on(verifier().identify(&token, HERE)) {
            prop_assert_eq!(error.fault(), Fault::AuthenticationFailed);
        }
    }
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        ".{0,20}".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 12, 4, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            proptest::collection::hash_map(".{0,5}", inner, 0..4).prop_map(|map| map.into_iter().collect()),
        ]
    })
}
