use proptest::prelude::*;

use super::*;

fn url(text: &str) -> Url {
    text.parse().unwrap()
}

fn error(text: &str) -> InvalidUrl {
    text.parse::<Url>().unwrap_err()
}

#[test]
fn an_xrootd_url_is_taken_literally() {
    let url = url("root://joe@Host.Example:2094//a//b%20c/./d#e?x=1&y=%41");
    assert_eq!(url.scheme(), Scheme::Root);
    assert_eq!(url.user(), Some("joe"));
    assert_eq!(url.host(), "host.example");
    assert_eq!(url.port(), 2094);
    assert_eq!(url.path(), b"/a/b%20c/d#e");
    assert_eq!(url.query(), Some("x=1&y=%41"));
    assert_eq!(url.to_string(), "root://joe@host.example:2094//a/b%20c/d#e?x=1&y=%41");
}

#[test]
fn an_http_url_is_decoded_and_encoded_again() {
    let url = url("davs://[::1]:8443/a%20b/%C3%A9%25?q=%20#part");
    assert_eq!(url.path(), "/a b/é%".as_bytes());
    assert_eq!(url.query(), Some("q=%20"));
    assert_eq!(url.authority(), "[::1]:8443");
    assert_eq!(url.to_string(), "davs://[::1]:8443/a%20b/%C3%A9%25?q=%20");
    assert_eq!(url.endpoint(), Endpoint { family: Family::Http, tls: true, host: "::1".into(), port: 8443 });
    assert_eq!(url.endpoint().to_string(), "[::1]:8443");
}

#[test]
fn an_s3_url_is_a_bucket_and_a_key() {
    let url = url("s3://my-bucket/run%207/a%3Fb#x");
    assert_eq!((url.host(), url.path()), ("my-bucket", &b"/run 7/a?b"[..]));
    assert_eq!(url.to_string(), "s3://my-bucket/run%207/a%3Fb");
    for text in ["s3://b:9000/k", "s3://key@b/k", "s3://b/k?versionId=1"] {
        assert_eq!(error(text), InvalidUrl::S3, "{text}");
    }
    assert_eq!(error("s3:///k"), InvalidUrl::Host);
}

#[test]
fn every_scheme_has_its_port_and_family() {
    for (text, scheme, port, tls) in [
        ("root", Scheme::Root, 1094, false),
        ("xroot", Scheme::Root, 1094, false),
        ("roots", Scheme::Roots, 1094, true),
        ("XROOTS", Scheme::Roots, 1094, true),
        ("http", Scheme::Http, 80, false),
        ("https", Scheme::Https, 443, true),
        ("dav", Scheme::Dav, 80, false),
        ("davs", Scheme::Davs, 443, true),
        ("s3", Scheme::S3, 443, true),
    ] {
        let url = url(&format!("{text}://h"));
        assert_eq!((url.scheme(), url.port(), url.scheme().demands_tls()), (scheme, port, tls), "{text}");
        assert_eq!(url.path(), b"/");
        assert_eq!(url.authority(), "h");
        assert_eq!(url.scheme().name().parse::<Url>().unwrap_err(), InvalidUrl::Scheme(String::new()));
    }
    assert_eq!(error("gsiftp://h/p"), InvalidUrl::Scheme("gsiftp".into()));
}

#[test]
fn one_slash_and_two_mean_the_same_path() {
    assert_eq!(url("root://h/a/b"), url("root://h//a/b"));
    assert_eq!(url("root://h//a/").path(), b"/a/");
    assert_eq!(url("root://h?x=1").query(), Some("x=1"));
    assert_eq!(url("root://h/p?").query(), None);
}

#[test]
fn what_could_mislead_is_refused() {
    for (text, expected) in [
        ("root://h//a/../b", InvalidUrl::ParentComponent),
        ("https://h/a/%2e%2E/b", InvalidUrl::ParentComponent),
        ("https://h/a%2f../b", InvalidUrl::ParentComponent),
        ("https://h/%00", InvalidUrl::Characters),
        ("root://[fe80::1%]//a", InvalidUrl::Host),
        ("root://[fe80::1%25eth 0]//a", InvalidUrl::Host),
        ("root://h%25eth0//a", InvalidUrl::Host),
        ("root://h//a\nb", InvalidUrl::Characters),
        ("root:////a", InvalidUrl::Host),
        ("root://h h//a", InvalidUrl::Host),
        ("root://-oProxy//a", InvalidUrl::Host),
        ("root://[::1//a", InvalidUrl::Host),
        ("root://[h]//a", InvalidUrl::Host),
        ("root://::1//a", InvalidUrl::Host),
        ("root://h:0//a", InvalidUrl::Port),
        ("root://h:65536//a", InvalidUrl::Port),
        ("root://h:+1//a", InvalidUrl::Port),
        ("root://[::1]1//a", InvalidUrl::Port),
        ("root://@h//a", InvalidUrl::User),
        ("https://:secret@h/a", InvalidUrl::User),
        ("https://joe:se@cret@h:x/a", InvalidUrl::Port),
        ("root://joe:secret@h//a", InvalidUrl::User),
        ("s3://joe:secret@h/a", InvalidUrl::User),
    ] {
        assert_eq!(error(text), expected, "{text}");
    }
    assert_eq!(error(&format!("root://h//{}", "a".repeat(MAX_URL_BYTES))), InvalidUrl::TooLong);
    assert_eq!(url("root://h:/a").port(), 1094);
}

#[test]
fn the_password_of_a_url_is_never_printed() {
    let with_password = url("https://joe:se%3Acret@h:8443/a?b");
    assert_eq!(
        (with_password.user(), with_password.password().map(Password::expose)),
        (Some("joe"), Some("se%3Acret"))
    );
    assert_eq!((with_password.host(), with_password.port()), ("h", 8443));
    for text in [format!("{with_password} {with_password:?}"), with_password.expose(), with_password.authority()] {
        assert!(!text.contains("cret"), "{text}");
    }
    assert_eq!(format!("{:?}", with_password.password()), "Some(<redacted>)");
    assert_eq!(with_password.with_path("/b").unwrap().password(), with_password.password());
    assert_ne!(with_password, url("https://joe:other@h:8443/a?b"));
    assert!(url("https://joe:@h/a").password().is_none());
}

#[test]
fn locations_are_told_apart() {
    let location = |text: &str| text.parse::<Location>();
    assert_eq!(location("-"), Ok(Location::Standard));
    assert_eq!(location(""), Err(InvalidUrl::Empty));
    assert_eq!(location("../a b"), Ok(Location::Local("../a b".into())));
    assert_eq!(location("dir/a://b"), Ok(Location::Local("dir/a://b".into())));
    assert_eq!(location("file:///a%20b"), Ok(Location::Local("/a b".into())));
    assert_eq!(location("FILE://localhost/a"), Ok(Location::Local("/a".into())));
    assert_eq!(location("file://other/a"), Err(InvalidUrl::FileHost));
    assert_eq!(location("file://"), Err(InvalidUrl::FileHost));
    assert_eq!(location("file:///%00"), Err(InvalidUrl::Characters));
    assert_eq!(location("root://h//a").unwrap().url(), Some(&url("root://h//a")));
    assert_eq!(location("nfs://h/a"), Err(InvalidUrl::Scheme("nfs".into())));
    assert_eq!(Location::from_argument(OsStr::new("-")), Ok(Location::Standard));
    let latin_1 = |bytes: &'static [u8]| Location::from_argument(std::os::unix::ffi::OsStrExt::from_bytes(bytes));
    assert!(matches!(latin_1(b"a/\xff"), Ok(Location::Local(_))));
    assert_eq!(latin_1(b"root://h//\xff"), Err(InvalidUrl::Characters));
    for text in ["-", "../a", "root://h//a"] {
        assert_eq!(location(text).unwrap().to_string(), text);
    }
}

#[test]
fn a_url_that_lacks_a_slash_is_no_local_path() {
    let location = |text: &str| text.parse::<Location>();
    for text in
        ["root:/h:1094//p", "http:/h/p", "FILE:/a", "s3:/b/k", "h:1094//p", "127.0.0.1:1094//p", "[::1]:1094//p"]
    {
        assert_eq!(location(text), Err(InvalidUrl::Incomplete), "{text}");
    }
    for text in [
        "./root:/h//p",
        "./h:1094//p",
        "/h:1094//p",
        "h:1094/p",
        "h:1094",
        "root:",
        "root:x",
        "a:b/c",
        "12:30/log",
        "x:/a",
        "[::1:1094//p",
        "::1]:1094//p",
    ] {
        assert_eq!(location(text), Ok(Location::Local(text.into())), "{text}");
    }
}

#[test]
fn names_of_any_bytes_have_a_url() {
    let url = url("https://h/a%0Ab/%ff%3F");
    assert_eq!(url.path(), b"/a\nb/\xff?");
    assert_eq!(url.to_string(), "https://h/a%0Ab/%FF%3F");
    assert_eq!(url.with_path(b"/\xfe").unwrap().to_string(), "https://h/%FE");
    for path in [&b"/\xff"[..], b"/a\nb", b"/a?b"] {
        assert_eq!(self::url("root://h//").with_path(path), Err(InvalidUrl::Characters), "{path:?}");
    }
}

#[test]
fn pairs_for_the_client_are_taken_out_of_a_query() {
    let (rest, pairs) = url("root://h//f?a=1&xrdcl.unzip=d/m%20n&b").split_query("xrdcl.");
    assert_eq!(rest.expose(), "root://h//f?a=1&b");
    assert_eq!(pairs, [("xrdcl.unzip".to_owned(), b"d/m%20n".to_vec())]);
    let (rest, pairs) = url("https://h/f?xrdcl.unzip=m%20n").split_query("xrdcl.");
    assert_eq!((rest.query(), pairs[0].1.as_slice()), (None, &b"m n"[..]));
}

#[test]
fn an_ipv6_address_may_have_a_zone() {
    for text in ["https://[fe80::1%25eth0]:8443/a", "https://[FE80::1%eth0]:8443/a"] {
        let url = url(text);
        assert_eq!((url.host(), url.port()), ("fe80::1%eth0", 8443));
        assert_eq!(url.expose(), "https://[fe80::1%25eth0]:8443/a");
        assert_eq!(without_zone(url.host()), "fe80::1");
    }
    assert_eq!(url("root://[fe80::1%252]//a").host(), "fe80::1%2");
    assert_eq!(without_zone("host.example"), "host.example");
}

#[test]
fn secrets_do_not_reach_the_log() {
    let secret = url("root://h//f?authz=Bearer%20eyJ&x=1&AUTHZ=b&%61uthz=c&x?authz=d&tpc.key=0123&token");
    let shown = "root://h//f?authz=***&x=1&AUTHZ=***&%61uthz=***&x?authz=***&tpc.key=***&token";
    assert_eq!(secret.to_string(), shown);
    assert_eq!(format!("{secret:?}"), shown);
    assert!(secret.expose().contains("eyJ"));
    assert_eq!(url("https://h/f?access_token=a").to_string(), "https://h/f?access_token=***");
}

#[test]
fn another_path_keeps_the_site() {
    let other = url("davs://h:1/a?authz=x").with_path("b c//d").unwrap();
    assert_eq!(other.expose(), "davs://h:1/b%20c/d?authz=x");
    assert_eq!(other.with_path("a/../b"), Err(InvalidUrl::ParentComponent));
    assert_eq!(other.with_path("a?b").unwrap().expose(), "davs://h:1/a%3Fb?authz=x");
    assert_eq!(url("root://h//a").with_path("a?b"), Err(InvalidUrl::Characters));
}

fn any_url() -> impl Strategy<Value = Url> {
    let scheme = proptest::sample::select(SCHEMES.map(|(_, scheme)| scheme).to_vec());
    let host = prop_oneof!["[a-z0-9][a-z0-9._-]{0,20}", any::<Ipv6Addr>().prop_map(|address| address.to_string())];
    let user = proptest::option::of("[a-z]{1,8}");
    let port = proptest::option::of(1..=u16::MAX);
    let query = proptest::option::of("[a-z0-9=&%.]{1,20}");
    (scheme, user, host, port, "(/[^/\\p{Cc}?]{1,8}){0,4}/?", query).prop_filter_map(
        "no dots",
        |(scheme, user, host, port, path, query)| {
            let path = clean_bytes(path.as_bytes()).ok()?;
            Some(match scheme {
                Scheme::S3 => Url { scheme, user: None, password: None, host, port: None, path, query: None },
                _ => Url { scheme, user, password: None, host, port, path, query },
            })
        },
    )
}

proptest! {
    #[test]
    fn urls_round_trip(url in any_url()) {
        prop_assert_eq!(url.expose().parse::<Url>(), Ok(url));
    }

    #[test]
    fn no_text_panics_and_what_is_read_is_clean(text in "((root|https)://[a-z@:\\[\\]]{0,6}/)?\\PC{0,40}") {
        if let Ok(Location::Remote(url)) = text.parse() {
            let path = url.path();
            prop_assert!(path.starts_with(b"/") && !path.windows(2).any(|two| two == b"//"));
            prop_assert!(path.split(|byte| *byte == b'/').all(|component| component != b".." && component != b"."));
            prop_assert_eq!(url.expose_with_password().parse::<Url>(), Ok(url.clone()));
            prop_assert_eq!(url.expose().parse::<Url>(), Ok(Url { password: None, ..url }));
        }
    }

    #[test]
    fn damage_to_a_url_never_panics(url in any_url(), at: prop::sample::Index, character: char) {
        let mut text: Vec<char> = url.expose().chars().collect();
        let at = at.index(text.len());
        text[at] = character;
        let _ = text.into_iter().collect::<String>().parse::<Location>();
    }
}

#[test]
fn secrets_in_any_text_are_masked() {
    for (text, masked) in [
        ("https://alice:hush@host:1/d?authz=hush&x=1", "https://alice:***@host:1/d?authz=***&x=1"),
        ("postgresql://u:hu@sh@h/db", "postgresql://u:***@h/db"),
        ("root://alice@host//f", "root://alice@host//f"),
        ("http://h?a=b:c@d", "http://h?a=b:c@d"),
        ("/var/cache", "/var/cache"),
    ] {
        assert_eq!(mask_secrets(text), masked);
    }
}
