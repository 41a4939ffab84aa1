use super::*;

fn settings(variables: &[(&str, &str)]) -> ProxySettings {
    ProxySettings::from_variables(|name| {
        variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
    })
}

/// Returns the proxy for `url`, as in error messages; an empty text without a proxy.
fn proxy_of(variables: &[(&str, &str)], url: &str) -> String {
    let endpoint = url.parse::<Url>().unwrap().endpoint();
    let proxy = Proxies::new(&settings(variables)).of(&endpoint).unwrap();
    proxy.map(|proxy| proxy.to_string()).unwrap_or_default()
}

#[test]
fn the_first_variable_of_a_scheme_names_the_proxy() {
    let all = [
        ("http_proxy", "http://one:1"),
        ("HTTP_PROXY", "http://two:2"),
        ("https_proxy", "https://three:3"),
        ("HTTPS_PROXY", "http://four:4"),
        ("all_proxy", "http://five:5"),
        ("ALL_PROXY", "http://six:6"),
    ];
    for (variables, url, proxy) in [
        (&all[..], "http://h/", "the proxy http://one:1 (http_proxy)"),
        (&all[1..], "dav://h/", "the proxy http://two:2 (HTTP_PROXY)"),
        (&all[2..], "https://h/", "the proxy https://three:3 (https_proxy)"),
        (&all[3..], "davs://h/", "the proxy http://four:4 (HTTPS_PROXY)"),
        (&all[3..], "http://h/", "the proxy http://five:5 (all_proxy)"),
        (&all[5..], "https://h/", "the proxy http://six:6 (ALL_PROXY)"),
        (&[], "https://h/", ""),
    ] {
        assert_eq!(proxy_of(variables, url), proxy);
    }
}

#[test]
fn a_header_field_of_a_cgi_request_names_no_proxy() {
    let variables = [("HTTP_PROXY", "http://evil:1"), ("REQUEST_METHOD", "GET"), ("ALL_PROXY", "http://own:1")];
    assert_eq!(proxy_of(&variables, "http://h/"), "the proxy http://own:1 (ALL_PROXY)");
}

#[test]
fn urls_of_proxies_are_parsed() {
    let parsed = |url: &str| Proxy::parse(&ProxyUrl { url: Secret::new(url), setting: "http_proxy".to_owned() });
    for (url, name, authorization) in [
        ("p", "http://p:1080", None),
        ("P:3128", "http://p:3128", None),
        ("http://p:80/ignored?x", "http://p:80", None),
        ("https://p", "https://p:443", None),
        ("HTTP://[fd00::1]", "http://[fd00::1]:1080", None),
        ("http://user:pass%3Aw%40rd@p:1", "http://p:1", Some("Basic dXNlcjpwYXNzOndAcmQ=")),
        ("http://user:a@b@p:1", "http://p:1", Some("Basic dXNlcjphQGI=")),
    ] {
        let proxy = parsed(url).unwrap();
        assert_eq!(proxy.to_string(), format!("the proxy {name} (http_proxy)"));
        assert_eq!(proxy.authorization.as_ref().map(|value| value.to_str().unwrap()), authorization, "{url}");
        assert!(!format!("{proxy:?}").contains("Basic"), "{proxy:?}");
    }
    for (url, why) in [
        ("socks5://user:secret@p:1", "SOCKS"),
        ("SOCKS5h://p:1", "SOCKS"),
        ("ftp://secret@p:1", "http://"),
        ("http://secret@:1", "host"),
        ("http://secret@p:x", "port"),
        ("http://secret@p:99999", "port"),
        ("http://p q", "host"),
    ] {
        let error = parsed(url).unwrap_err().to_string();
        assert!(error.contains("http_proxy") && error.contains(why) && !error.contains("secret"), "{url}: {error}");
    }
}

#[test]
fn an_invalid_proxy_is_an_error_of_its_servers_only() {
    let proxies = Proxies::new(&settings(&[("https_proxy", "socks5://p"), ("no_proxy", "inside")]));
    let of = |url: &str| proxies.of(&url.parse::<Url>().unwrap().endpoint());
    assert!(of("http://h/").unwrap().is_none() && of("https://a.inside/").unwrap().is_none());
    assert_eq!(of("https://h/").unwrap_err().fault(), Fault::InvalidArgument);
}

#[test]
fn exceptions_are_reached_without_a_proxy() {
    for (exceptions, direct, proxied) in [
        ("*", &["a", "192.0.2.1", "[2001:db8::1]"][..], &[][..]),
        ("example.org", &["example.org", "EXAMPLE.org.", "a.b.example.org"], &["anexample.org", "example.org.uk"]),
        (".example.org", &["example.org", "a.example.org"], &["anexample.org"]),
        ("*.example.org", &["a.example.org"], &["anexample.org"]),
        ("a, b\tc.d", &["a", "b", "c.d"], &["d", "ab"]),
        ("a:8080,b", &["a:8080", "b:1"], &["a", "a:80"]),
        ("192.0.2.1", &["192.0.2.1"], &["192.0.2.10", "192.0.2.11"]),
        ("192.0.2.0/28", &["192.0.2.15", "[::ffff:192.0.2.1]"], &["192.0.2.16"]),
        ("192.0.2.1:81", &["192.0.2.1:81"], &["192.0.2.1"]),
        ("2001:db8::1", &["[2001:db8::1]", "[2001:DB8:0::1]:1"], &["[2001:db8::2]"]),
        ("[2001:db8::1]:81", &["[2001:db8::1]:81"], &["[2001:db8::1]"]),
        ("2001:db8::/32", &["[2001:db8:1::]"], &["[2001:db9::]"]),
        ("", &["169.254.169.254", "[fe80::1]"], &["localhost", "127.0.0.1"]),
        (". , ,", &[], &["a", "192.0.2.1"]),
    ] {
        let variables = [("http_proxy", "p"), ("no_proxy", exceptions)];
        let is_direct = |host: &&&str| proxy_of(&variables, &format!("http://{host}/")).is_empty();
        assert!(direct.iter().all(|host| is_direct(&host)), "{exceptions}");
        assert!(!proxied.iter().any(|host| is_direct(&host)), "{exceptions}");
    }
}
