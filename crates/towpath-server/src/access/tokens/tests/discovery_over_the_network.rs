use super::*;

async fn verdict(site: &DocumentServer, verifier: &Verifier) -> Result<Identity, Error> {
    verifier.identify(&ec().token(&wlcg_claims(site.url(), "storage.read:/")), HERE).await
}

fn believing(site: &DocumentServer, ca: Option<&Path>) -> Verifier {
    let mut settings = issuer(site.url(), "/", None);
    settings.ca = ca.map(Into::into);
    Verifier::new(&config(vec![settings])).unwrap()
}

#[tokio::test]
async fn finds_keys_and_asks_once() {
    let site = DocumentServer::plain().unwrap();
    site.publish("", &jwks([ec()]));
    let verifier = believing(&site, None);
    for _ in 0..3 {
        verdict(&site, &verifier).await.unwrap();
    }
    assert_eq!(site.asked(), ["/.well-known/openid-configuration", "/jwks"]);
}

#[tokio::test]
async fn of_an_issuer_below_a_path_or_with_a_slash() {
    let site = DocumentServer::plain().unwrap();
    site.publish("/vo", &jwks([ec()]));
    for url in [format!("{}/vo", site.url()), format!("{}/vo/", site.url())] {
        let metadata = json!({"issuer": url, "jwks_uri": format!("{}/vo/jwks", site.url())});
        site.put("/vo/.well-known/openid-configuration", CannedResponse::json(&metadata));
        let verifier = Verifier::new(&config(vec![issuer(&url, "/", None)])).unwrap();
        verifier.identify(&ec().token(&wlcg_claims(&url, "storage.read:/")), HERE).await.unwrap();
    }
}

#[tokio::test]
async fn with_tls_of_a_trusted_authority_only() {
    let site = DocumentServer::encrypted().unwrap();
    site.publish("", &jwks([rsa(), ec()]));
    let ca = tempfile::NamedTempFile::new().unwrap();
    disk::write(ca.path(), site.ca_pem().unwrap().as_bytes()).unwrap();
    verdict(&site, &believing(&site, Some(ca.path()))).await.unwrap();
    let error = verdict(&site, &believing(&site, None)).await.unwrap_err();
    assert_eq!(error.fault(), Fault::Unavailable);
    assert!(error.message().contains("TLS: "), "{error}");
}

#[tokio::test]
async fn redirects_stay_with_one_origin() {
    let site = DocumentServer::plain().unwrap();
    let elsewhere = DocumentServer::plain().unwrap();
    elsewhere.publish("", &jwks([ec()]));
    site.publish("", &jwks([ec()]));
    for (location, good) in [
        ("/moved".to_owned(), true),
        (format!("{}/moved", site.url()), true),
        (format!("{}/jwks", elsewhere.url()), false),
        (format!("//{}/jwks", elsewhere.url().trim_start_matches("http://")), false),
        ("http://example.org/jwks".into(), false),
        ("file:///etc/passwd".into(), false),
        ("/jwks".into(), false),
    ] {
        site.put("/jwks", CannedResponse::redirect(&location));
        site.put("/moved", CannedResponse::json(&jwks([ec()])));
        let verdict = verdict(&site, &believing(&site, None)).await;
        assert_eq!(
            verdict.map(drop).map_err(|error| error.fault()),
            if good { Ok(()) } else { Err(Fault::Unavailable) },
            "{location}"
        );
    }
    assert!(elsewhere.asked().is_empty());
}

#[tokio::test]
async fn bad_answers_make_it_unavailable_and_say_why() {
    let site = DocumentServer::plain().unwrap();
    let metadata = |issuer: &str, place: &str| CannedResponse::json(&json!({"issuer": issuer, "jwks_uri": place}));
    let keys = format!("{}/jwks", site.url());
    let huge = CannedResponse { status: 200, location: None, body: "x".repeat(300 << 10) };
    for (document, jwks, says) in [
        (CannedResponse::status(404), CannedResponse::status(404), "404"),
        (CannedResponse::json(&json!([1])), CannedResponse::status(404), "is malformed"),
        (
            metadata("https://evil.example", &keys),
            CannedResponse::json(&jwks([ec()])),
            "belongs to another issuer, `https://evil.example`",
        ),
        (metadata(site.url(), "http://example.org/jwks"), CannedResponse::status(404), "not allowed"),
        (metadata(site.url(), "https://example.org/jwks"), CannedResponse::status(404), "not allowed"),
        (metadata(site.url(), "file:///etc/passwd"), CannedResponse::status(404), "not allowed"),
        (metadata(site.url(), &keys), CannedResponse::status(500), "500"),
        (metadata(site.url(), &keys), huge, "more than 262144 bytes"),
        (metadata(site.url(), &keys), CannedResponse::json(&json!({"keys": []})), "none of them"),
    ] {
        site.put("/.well-known/openid-configuration", document);
        site.put("/jwks", jwks);
        let error = verdict(&site, &believing(&site, None)).await.unwrap_err();
        assert_eq!(error.fault(), Fault::Unavailable);
        assert!(error.message().contains(says), "{error} does not say {says}");
    }
}

#[tokio::test]
async fn nobody_there() {
    let site = DocumentServer::plain().unwrap();
    let verifier = believing(&site, None);
    let token = ec().token(&wlcg_claims(site.url(), "storage.read:/"));
    drop(site);
    assert_eq!(verifier.identify(&token, HERE).await.unwrap_err().fault(), Fault::Unavailable);
}
