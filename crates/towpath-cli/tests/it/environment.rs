//! Environment variables.

use super::program::{Directory, Outcome, ServerProcess};

/// Variables that are errors if their empty value is used.
const REFUSED_IF_EMPTY: [&str; 8] = [
    "TOWPATH_CA_FILE",
    "TOWPATH_S3_ENDPOINT",
    "TOWPATH_S3_ADDRESSING",
    "TOWPATH_ALTO_CONFIG",
    "TOWPATH_WAN",
    "TOWPATH_SERVE_LIMITS_IDLE",
    "BEARER_TOKEN",
    "BEARER_TOKEN_FILE",
];

#[test]
fn an_empty_variable_counts_as_unset() {
    let directory = Directory::new();
    directory.put("f", "content");
    let run = |line: &str, value: Option<&str>| {
        let mut command = directory.command(line.split(' '));
        command.envs(value.into_iter().flat_map(|value| REFUSED_IF_EMPTY.map(|name| (name, value))));
        Outcome::from(command.output().unwrap())
    };
    for line in ["cat f", "config show serve", "order --help", "wan up --help"] {
        let (unset, empty) = (run(line, None).expect(0), run(line, Some("")).expect(0));
        let is_same = empty.stderr == unset.stderr && (line.ends_with("--help") || empty.stdout == unset.stdout);
        assert!(is_same, "{line}: {empty:?} {unset:?}");
    }
    let refused = run("cat f", Some("unknown")).expect(2);
    assert!(refused.stderr.contains("--s3-addressing"), "{refused:?}");
}

/// Nothing listens at the addresses: the settings are checked before.
#[test]
fn an_unusable_setting_is_a_wrong_command_line_and_is_named() {
    let directory = Directory::new();
    directory.put("empty.pem", "");
    let run = |line: &str, variables: &[(&str, &str)]| {
        let mut command = directory.command(line.split(' '));
        Outcome::from(command.envs(variables.iter().copied()).output().unwrap())
    };
    let missing = "No such file or directory";
    for url in ["https://127.0.0.1:1/f", "davs://127.0.0.1:1/f", "roots://127.0.0.1:1//f"] {
        for (command, option) in [("ls", "missing.pem"), ("stat", "empty.pem")] {
            let outcome = run(&format!("{command} --ca-file {option} {url}"), &[]).expect(2);
            assert!(outcome.stderr.contains(&format!("--ca-file: {option}: ")), "{outcome:?}");
            assert!(!outcome.stderr.contains("os error"), "{outcome:?}");
        }
        for variable in ["SSL_CERT_FILE", "SSL_CERT_DIR", "X509_CERT_DIR"] {
            let outcome = run(&format!("cp {url} copy"), &[(variable, "/missing")]).expect(2);
            assert!(outcome.stderr.contains(&format!("{variable}: /missing: {missing}")), "{outcome:?}");
        }
    }
    for (url, variable) in [("https://127.0.0.1:1/f", "https_proxy"), ("http://127.0.0.1:1/f", "all_proxy")] {
        let outcome = run(&format!("cat {url}"), &[(variable, "socks5://p:1")]).expect(2);
        assert!(outcome.stderr.contains(&format!("the proxy in {variable} is a SOCKS proxy")), "{outcome:?}");
    }
    let outcome = run("ls s3://bucket/f", &[("AWS_ENDPOINT_URL", "ftp://host")]).expect(2);
    assert!(outcome.stderr.contains("S3 endpoint"), "{outcome:?}");
    // A command that needs no TLS ignores the authorities.
    run("stat empty.pem", &[("SSL_CERT_FILE", "/missing")]).expect(0);
}

/// The proxy is a towpath server, which serves the path of every URL.
#[test]
fn the_proxy_in_the_environment_is_used_for_http_only() {
    let directory = Directory::new();
    directory.put("f", "content");
    let server = ServerProcess::start(&directory.host(""));
    let cat = |url: &str, variables: &[(&str, String)]| {
        let mut command = directory.command(["cat", url]);
        Outcome::from(command.envs(variables.iter().cloned()).output().unwrap())
    };
    let (proxy, address) = (format!("http://{}", server.address), server.address);
    for variable in ["http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"] {
        let proxied = cat("http://only-that-way.invalid/f", &[(variable, proxy.clone())]).expect(0);
        assert_eq!(proxied.stdout, "content", "{variable}");
    }
    let nowhere = |variable| (variable, "http://127.0.0.1:1".to_owned());
    let direct = [nowhere("http_proxy"), ("no_proxy", "127.0.0.1".to_owned())];
    assert_eq!(cat(&format!("http://{address}/f"), &direct).expect(0).stdout, "content");
    assert_eq!(cat(&format!("root://{address}//f"), &[nowhere("all_proxy")]).expect(0).stdout, "content");
    let failed = cat(&format!("http://{address}/f"), &[nowhere("http_proxy")]);
    assert!(
        failed.code != Some(0) && failed.stderr.contains("the proxy http://127.0.0.1:1 (http_proxy)"),
        "{failed:?}"
    );
}

#[test]
fn the_log_names_the_proxy_and_describes_failed_attempts() {
    let directory = Directory::new();
    let run = |line: &str| {
        let mut command = directory.command(line.split(' '));
        Outcome::from(command.env("http_proxy", "http://user:hush@127.0.0.1:1").output().unwrap()).expect(8)
    };
    let outcome = run("-v --wait 1s stat http://host.invalid/f");
    let message = "requests to host.invalid:80 go through the proxy http://127.0.0.1:1 (http_proxy)";
    assert_eq!(outcome.stderr.matches(message).count(), 1, "{outcome:?}");
    assert!(!outcome.stderr.contains("hush"), "{outcome:?}");
    for (url, words) in [
        ("http://host.invalid/f", "attempt failed: not sent: the proxy http://127.0.0.1:1"),
        ("root://127.0.0.1:1//f", "no final response: not sent: "),
    ] {
        let outcome = run(&format!("-vv --wait 1s stat {url}"));
        assert!(outcome.stderr.contains(words), "{url}: {outcome:?}");
        let debug_text = ["NotSent(", "Lost(", "Later(", "failure="];
        assert!(debug_text.iter().all(|text| !outcome.stderr.contains(text)), "{url}: {outcome:?}");
    }
}
