use std::{fs, os::unix::fs::PermissionsExt as _, time::Duration};

use proptest::prelude::*;
use tempfile::TempDir;
use towpath_store::sys::disk;

use super::*;

const ADDRESS: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));

/// The example of RFC 7616 §3.9.1, with its line breaks.
const EXAMPLE: &str = r#"username="Mufasa",
       realm="http-auth@example.org",
       uri="/dir/index.html",
       algorithm=SHA-256,
       nonce="7ypf/xlj9XXwfDPEoM4URrv/xwf94BcCAzFZH4GiTo0v",
       nc=00000001,
       cnonce="f2/wE4q74E6zIJEtWaHKaf5wv/H5QzzpXusqGemxURZJ",
       qop=auth,
       response="753927fa0e85d155564e2e272a28d1802ca10daf4496794697cf8db5856cb6c1",
       opaque="FQhe/qaU925kfnzjCev0ciny7QMkPqMAFRtzCUYo5tdS""#;

fn example() -> String {
    EXAMPLE.replace('\n', "")
}

/// Mufasa with the password `Circle of Life`, and Jäsøn Doe with `Secret, or not?`.
struct Site {
    passwords: Passwords,
    directory: TempDir,
}

fn site() -> Site {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("passwords");
    put(&path, &[("Mufasa", "Circle of Life"), ("Jäsøn Doe", "Secret, or not?")]);
    Site { passwords: Passwords::new(&path, "towpath").unwrap(), directory }
}

fn put(path: &Path, users: &[(&str, &str)]) {
    let line = |(name, password): &(&str, &str)| format!("{name}:sha-256${}\n", hash(&[*name, "towpath", *password]));
    let next = path.with_extension("next");
    disk::write(&next, users.iter().map(line).collect::<String>().as_bytes()).unwrap();
    fs::set_permissions(&next, fs::Permissions::from_mode(0o600)).unwrap();
    disk::rename(&next, path).unwrap();
}

impl Site {
    /// Returns a nonce from a challenge.
    fn nonce(&self) -> String {
        let [challenge, _] = self.passwords.challenges(false);
        challenge.split_once(r#"nonce=""#).unwrap().1.split_once('"').unwrap().0.to_owned()
    }

    /// Returns the outcome of a login with GET `/costs?x=1`.
    async fn log_in(&self, authorization: &str) -> Result<Arc<str>, LoginError> {
        let uri = Uri::from_static("/costs?x=1");
        let authorization = Authorization::of(authorization.as_bytes()).unwrap();
        self.passwords.verify(&authorization, LoginRequest { method: "GET", uri: &uri, address: ADDRESS }).await
    }
}

/// Returns the fields of a client's response to a nonce.
fn fields(name: &str, password: &str, nonce: &str, nc: &str) -> Vec<(&'static str, String)> {
    let (kept, asked) = (hash(&[name, "towpath", password]), hash(&["GET", "/costs?x=1"]));
    let response = hash(&[&kept, nonce, nc, "xyz", "auth", &asked]);
    let quoted = |text: &str| format!(r#""{text}""#);
    vec![
        ("username", quoted(name)),
        ("realm", quoted("towpath")),
        ("nonce", quoted(nonce)),
        ("uri", quoted("/costs?x=1")),
        ("algorithm", "SHA-256".into()),
        ("qop", "auth".into()),
        ("nc", nc.into()),
        ("cnonce", quoted("xyz")),
        ("response", quoted(&response)),
    ]
}

fn written(fields: &[(&str, String)]) -> String {
    let fields: Vec<String> = fields.iter().map(|(name, value)| format!("{name}={value}")).collect();
    format!("Digest {}", fields.join(", "))
}

/// Returns the fields with one value replaced, or removed if `value` is empty.
fn changed(fields: &[(&'static str, String)], name: &str, value: &str) -> String {
    let change = |(known, old): &(&'static str, String)| {
        let value = if *known == name { value.to_owned() } else { old.clone() };
        (!value.is_empty()).then_some((*known, value))
    };
    written(&fields.iter().filter_map(change).collect::<Vec<_>>())
}

fn basic(pair: &str) -> String {
    format!("Basic {}", STANDARD.encode(pair))
}

#[test]
fn c6_the_example_of_the_rfc() {
    let credentials = Credentials::parse(&example()).unwrap_or_else(|denial| panic!("{denial}"));
    let kept = hash(&["Mufasa", "http-auth@example.org", "Circle of Life"]);
    assert!(credentials.is_of(&kept, "GET"));
    assert!(!credentials.is_of(&kept, "POST"));
    assert!(!credentials.is_of(&hash(&["Mufasa", "http-auth@example.org", "circle of life"]), "GET"));
    assert!(credentials.is_about(&Uri::from_static("/dir/index.html")));
    assert!(!credentials.is_about(&Uri::from_static("/dir/index.html?")));
    assert!(!credentials.is_about(&Uri::from_static("/")));
}

#[test]
fn http2_may_write_the_whole_target() {
    let text = example().replace("/dir/", "https://example.org/dir/");
    let credentials = Credentials::parse(&text).unwrap_or_else(|denial| panic!("{denial}"));
    assert!(credentials.is_about(&Uri::from_static("https://example.org/dir/index.html")));
    assert!(!credentials.is_about(&Uri::from_static("https://example.com/dir/index.html")));
    assert!(!credentials.is_about(&Uri::from_static("/dir/index.html")));
}

#[tokio::test]
async fn c6_a_digest_is_good_once() {
    let site = site();
    let nonce = site.nonce();
    let first = written(&fields("Mufasa", "Circle of Life", &nonce, "00000001"));
    assert_eq!(site.log_in(&first).await, Ok("Mufasa".into()));
    assert_eq!(site.log_in(&first).await, Err(LoginError::Stale));
    let second = written(&fields("Mufasa", "Circle of Life", &nonce, "00000002"));
    assert_eq!(site.log_in(&second).await, Ok("Mufasa".into()));
    let foreign = written(&fields("Mufasa", "Circle of Life", &"A".repeat(64), "00000001"));
    assert_eq!(site.log_in(&foreign).await, Err(LoginError::Stale), "as after a restart: the password is right");
    let wrong = written(&fields("Mufasa", "circle of life", &"A".repeat(64), "00000001"));
    assert_eq!(site.log_in(&wrong).await, Err(LoginError::Wrong), "nobody else learns what a nonce is");
}

#[tokio::test]
async fn names_that_are_not_ascii() {
    let site = site();
    let plain = written(&fields("Jäsøn Doe", "Secret, or not?", &site.nonce(), "00000001"));
    assert_eq!(site.log_in(&plain).await, Ok("Jäsøn Doe".into()));
    let mut extended = fields("Jäsøn Doe", "Secret, or not?", &site.nonce(), "00000001");
    for (value, outcome) in [
        ("UTF-8''J%C3%A4s%C3%B8n%20Doe", Ok("Jäsøn Doe".into())),
        ("utf-8'en'J%C3%A4s%C3%B8n%20Doe", Err(LoginError::Stale)),
        ("ISO-8859-1''J%E4s%F8n%20Doe", Err(LoginError::Malformed("`username*` is not UTF-8''NAME"))),
        ("UTF-8''%ff", Err(LoginError::Malformed("`username*` is not UTF-8''NAME"))),
    ] {
        extended[0] = ("username*", value.into());
        assert_eq!(site.log_in(&written(&extended)).await, outcome, "{value}");
    }
    assert_eq!(site.log_in(&basic("Jäsøn Doe:Secret, or not?")).await, Ok("Jäsøn Doe".into()));
}

#[tokio::test]
async fn what_is_wrong_with_a_digest() {
    let site = site();
    let good = fields("Mufasa", "Circle of Life", &site.nonce(), "00000001");
    for field in ["username", "realm", "nonce", "uri", "qop", "nc", "cnonce", "response"] {
        assert_eq!(site.log_in(&changed(&good, field, "")).await, Err(LoginError::Missing(field)));
    }
    for (field, value, denial) in [
        ("algorithm", "", "Unsuited"),
        ("algorithm", "MD5", "Unsuited"),
        ("algorithm", "SHA-256-sess", "Unsuited"),
        ("qop", "auth-int", "Unsuited"),
        ("realm", r#""elsewhere""#, "Unsuited"),
        ("uri", r#""/costs""#, "Malformed"),
        ("uri", "/costs?x=1", "Malformed"),
        ("nc", "1", "Malformed"),
        ("nc", "00000000", "Malformed"),
        ("nc", "+0000001", "Malformed"),
        ("nc", "0000000g", "Malformed"),
        ("nonce", r#""open"#, "Malformed"),
        ("cnonce", r#""xyz" more"#, "Malformed"),
        ("cnonce", r#""xyz", cnonce="xyz""#, "Malformed"),
        ("cnonce", r#""xyz", username*=UTF-8''Mufasa"#, "Malformed"),
        ("cnonce", r#""xyz", userhash=true"#, "Unsuited"),
        ("cnonce", r#""xyZ""#, "Wrong"),
        ("nc", "00000002", "Wrong"),
        ("username", r#""Scar""#, "Wrong"),
        ("response", r#""""#, "Wrong"),
        ("response", r#""0000""#, "Wrong"),
    ] {
        let found = site.log_in(&changed(&good, field, value)).await.unwrap_err();
        assert!(format!("{found:?}").starts_with(denial), "{field}={value}: {found:?}");
    }
    let many: String = (0..40).map(|number| format!(", x{number}=1")).collect();
    for text in ["Digest", "Digest ,,", "Digest =", "Digest a", "Digest \"a\"=b"] {
        assert!(site.log_in(text).await.is_err(), "{text}");
    }
    assert_eq!(site.log_in(&(written(&good) + &many)).await, Err(LoginError::Malformed("they have too many fields")));
    let long = written(&good) + ", x=" + &"y".repeat(MAX_CREDENTIALS_BYTES);
    assert_eq!(site.log_in(&long).await, Err(LoginError::Malformed("they are too long")));
    assert_eq!(site.log_in(&written(&good)).await, Ok("Mufasa".into()), "none of these used it up");
}

#[tokio::test]
async fn c6_the_same_password_by_basic() {
    let site = site();
    assert_eq!(site.log_in(&basic("Mufasa:Circle of Life")).await, Ok("Mufasa".into()));
    for (authorization, denial) in [
        (basic("Mufasa:circle of life"), "Wrong"),
        (basic("Mufasa:"), "Wrong"),
        (basic(":"), "Wrong"),
        (basic("Mufasa"), "Malformed"),
        ("Basic".into(), "Malformed"),
        ("Basic ?".into(), "Malformed"),
        (format!("Basic {}", STANDARD.encode(b"\xff:x")), "Malformed"),
    ] {
        let found = site.log_in(&authorization).await.unwrap_err();
        assert!(format!("{found:?}").starts_with(denial), "{authorization}: {found:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn who_guesses_is_not_listened_to_for_a_minute() {
    let site = site();
    for _ in 0..attempts::MAX_FAILURES {
        assert_eq!(site.log_in(&basic("Mufasa:guess")).await, Err(LoginError::Wrong));
    }
    assert_eq!(site.log_in(&basic("Mufasa:Circle of Life")).await, Err(LoginError::TooMany));
    let digest = written(&fields("Mufasa", "Circle of Life", &site.nonce(), "00000001"));
    assert_eq!(site.log_in(&digest).await, Err(LoginError::TooMany));
    tokio::time::advance(Duration::from_secs(60)).await;
    assert_eq!(site.log_in(&digest).await, Ok("Mufasa".into()));
}

#[tokio::test(start_paused = true)]
async fn c6_an_old_nonce_is_stale() {
    let site = site();
    let nonce = site.nonce();
    tokio::time::advance(Duration::from_secs(299)).await;
    let digest = |nc| written(&fields("Mufasa", "Circle of Life", &nonce, nc));
    assert_eq!(site.log_in(&digest("00000001")).await, Ok("Mufasa".into()));
    tokio::time::advance(Duration::from_secs(1)).await;
    assert_eq!(site.log_in(&digest("00000002")).await, Err(LoginError::Stale));
}

#[tokio::test(start_paused = true)]
async fn a_changed_file_holds_from_the_next_look_on() {
    let site = site();
    put(&site.directory.path().join("passwords"), &[("Scar", "Be Prepared")]);
    assert_eq!(site.log_in(&basic("Mufasa:Circle of Life")).await, Ok("Mufasa".into()));
    tokio::time::advance(file::CHECK_INTERVAL).await;
    assert_eq!(site.log_in(&basic("Mufasa:Circle of Life")).await, Err(LoginError::Wrong));
    assert_eq!(site.log_in(&basic("Scar:Be Prepared")).await, Ok("Scar".into()));
}

#[test]
fn challenges_are_what_the_rfcs_say() {
    let site = site();
    let [digest, basic] = site.passwords.challenges(false);
    let (head, tail) = digest.split_once(r#"nonce=""#).unwrap();
    assert_eq!(head, r#"Digest realm="towpath", qop="auth", algorithm=SHA-256, "#);
    assert_eq!(tail.split_once('"').unwrap().1, ", charset=UTF-8, userhash=false");
    assert_eq!(basic, r#"Basic realm="towpath", charset="UTF-8""#);
    let [stale, _] = site.passwords.challenges(true);
    assert!(stale.ends_with(", stale=true"));
}

#[test]
fn a_realm_can_be_quoted() {
    let site = site();
    let path = site.directory.path().join("passwords");
    for realm in ["", "a\"b", "a\\b", "a\nb", "ä", &"x".repeat(MAX_REALM_BYTES + 1)] {
        assert!(Passwords::new(&path, realm).is_err(), "{realm}");
    }
    assert_eq!(Passwords::new(&path, "WLCG, site 1").unwrap().realm(), "WLCG, site 1");
}

#[test]
fn nothing_of_passwords_is_printed() {
    let site = site();
    let printed = format!("{:?}", site.passwords);
    let kept = hash(&["Mufasa", "towpath", "Circle of Life"]);
    assert!(printed.contains("Mufasa") && !printed.contains(&kept), "{printed}");
}

#[test]
fn other_schemes_are_not_passwords() {
    for other in ["Bearer abc", "", " ", "Digestive x", "Negotiate", "digest=x"] {
        assert!(Authorization::of(other.as_bytes()).is_none(), "{other}");
    }
    for ours in ["digest x", "DIGEST x", " Basic x", "Basic"] {
        assert!(Authorization::of(ours.as_bytes()).is_some(), "{ours}");
    }
}

proptest! {
    #[test]
    fn whatever_comes_is_read_or_refused(scheme in "Digest |Basic |digest|", bytes: Vec<u8>) {
        let authorization = [scheme.as_bytes(), &bytes].concat();
        if let Some(authorization) = Authorization::of(&authorization)
            && let Ok(text) = authorization.text()
        {
            prop_assert!(Credentials::parse(text).is_err(), "chance writes no credentials");
        }
    }

    #[test]
    fn lists_of_fields_are_read_or_refused(
        text in r#"((username|uri|nc|qop|algorithm|x)\*?[ =,]{0,2}("[a-z\\"]{0,4}"?|SHA-256|auth|0000000[01]|[a-z]{0,3})[, ]{0,2}){0,9}"#
    ) {
        prop_assert!(Credentials::parse(&text).is_err(), "there is no nonce");
    }

    #[test]
    fn what_is_quoted_comes_back(name in r#"\PC{1,20}"#) {
        let quoted: String = name.chars().flat_map(|character| {
            let escape = matches!(character, '"' | '\\').then_some('\\');
            escape.into_iter().chain([character])
        }).collect();
        let text = example().replace("Mufasa", &quoted);
        let credentials = Credentials::parse(&text);
        prop_assert_eq!(credentials.map(|credentials| credentials.username).ok(), Some(name));
    }
}
