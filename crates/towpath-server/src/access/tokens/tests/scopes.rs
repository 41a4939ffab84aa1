use super::*;
use crate::{
    access::tokens::{claims::Profile, scope},
    config::Right,
};

async fn identity(scope: &str) -> Identity {
    verifier().identify(&ec().token(&wlcg_claims(ISSUER, scope)), HERE).await.unwrap()
}

#[tokio::test]
async fn hold_for_whole_components_below_the_base_path() {
    let alice = identity("storage.read:/foo/bar").await;
    assert!(alice.check(Activity::Read, &path("/vo/foo/bar/x")).is_ok());
    for denied in ["/vo/foo/bargain", "/vo/foo", "/vo", "/foo/bar", "/vox/foo/bar", "/"] {
        assert!(alice.check(Activity::Read, &path(denied)).is_err(), "{denied}");
    }
}

#[tokio::test]
async fn give_what_the_profile_says() {
    use Activity::{Create, CreateDirectory, List, Modify, Read, Rename, Stage, Stat};
    let all = [Stat, Stage, Read, List, Create, CreateDirectory, Rename, Modify];
    for (scope, allowed) in [
        ("storage.read:/d", &[Stat, Stage, Read, List][..]),
        ("storage.create:/d", &[Stat, Create, CreateDirectory, Rename]),
        ("storage.modify:/d", &[Stat, Create, CreateDirectory, Rename, Modify]),
        ("storage.stage:/d", &[Stat, Stage]),
        ("storage.poll:/d", &[Stat]),
        ("openid storage.poll:/d compute.read read:/ write:/ storage.magic:/", &[Stat]),
    ] {
        let alice = identity(scope).await;
        for activity in all {
            let verdict = alice.check(activity, &path("/vo/d/x")).is_ok();
            assert_eq!(verdict, allowed.contains(&activity), "{scope} {activity:?}");
        }
    }
}

#[tokio::test]
async fn of_scitokens_read_and_write() {
    let verifier = verifier();
    let token = ec().token(&scitoken_claims(ISSUER, "read:/data write:/home storage.modify:/"));
    let alice = verifier.identify(&token, HERE).await.unwrap();
    assert!(alice.check(Activity::Read, &path("/vo/data/x")).is_ok());
    assert!(alice.check(Activity::Modify, &path("/vo/home/x")).is_ok());
    assert!(alice.check(Activity::Read, &path("/vo/home/x")).is_err());
    assert!(alice.check(Activity::Modify, &path("/vo/data/x")).is_err());
}

#[test]
fn paths_are_placed() {
    let places = [
        ("/", "/vo", true),
        ("/a", "/vo/a", false),
        ("/a/", "/vo/a", true),
        ("//a///b", "/vo/a/b", false),
        ("/./a/.", "/vo/a", false),
        ("/a%20b/%C3%A9", "/vo/a b/é", false),
        ("/%2e/a", "/vo/a", false),
        ("/100%25", "/vo/100%", false),
        ("/%252e%252e", "/vo/%2e%2e", false),
        ("/a:b", "/vo/a:b", false),
        ("/a?b#c", "/vo/a?b#c", false),
        ("/...", "/vo/...", false),
    ];
    for (given, place, directory) in places {
        let grants = scope::grants(Profile::Wlcg, &format!("storage.read:{given}"), &path("/vo")).unwrap();
        assert_eq!(grants, [Grant { right: Right::Read, path: path(place), directory }], "{given}");
    }
}

#[tokio::test]
async fn with_bad_paths_spoil_the_token() {
    let long = format!("/{}", "x".repeat(256));
    for (given, says) in [
        ("/foo/..", "`..`"),
        ("/..", "`..`"),
        ("/../vo2", "`..`"),
        ("/a/../../b", "`..`"),
        ("/%2e%2e/x", "`..`"),
        ("/%2E./x", "`..`"),
        ("/a%2fb", "encoded slash"),
        ("/..%2f..%2fetc", "encoded slash"),
        ("/a%00b", "NUL"),
        ("/a%", "invalid percent-encoding"),
        ("/a%4", "invalid percent-encoding"),
        ("/a%zz", "invalid percent-encoding"),
        ("/a%+1", "invalid percent-encoding"),
        ("foo", "does not start with /"),
        ("https://se.example/foo", "does not start with /"),
        (&long, "too long"),
        ("", "lacks a path"),
    ] {
        // A valid scope beside it makes no difference.
        let scopes = format!("storage.read:/good storage.read:{given}");
        let said = refusal(&ec().token(&wlcg_claims(ISSUER, &scopes))).await;
        assert!(said.contains(says), "{given}: {said}");
    }
    for (bare, claims) in [
        ("storage.read", wlcg_claims(ISSUER, "storage.read")),
        ("storage.poll", wlcg_claims(ISSUER, "storage.read:/ storage.poll")),
        ("write", scitoken_claims(ISSUER, "read:/ write")),
    ] {
        assert!(refusal(&ec().token(&claims)).await.contains(&format!("scope `{bare}` lacks a path")));
    }
}

#[tokio::test]
async fn that_give_nothing() {
    for changes in [
        json!({"scope": null}),
        json!({"scope": ""}),
        json!({"scope": "   "}),
        json!({"scope": "openid offline_access compute.create"}),
        json!({"scope": "read:/ write:/"}),
        json!({"scope": "Storage.Read:/"}),
        json!({"scope": null, "wlcg.groups": ["/vo/admins"]}),
    ] {
        let said = refusal(&wlcg(&changes)).await;
        assert!(said.contains("needs a scope such as `storage.read:/`; groups are not supported"), "{said}");
    }
    assert!(refusal(&wlcg(&json!({"scope": ["storage.read:/"]}))).await.contains("malformed"));
    let many = "storage.read:/a ".repeat(257);
    assert!(refusal(&wlcg(&json!({"scope": many}))).await.contains("more than 256 scopes"));
}
