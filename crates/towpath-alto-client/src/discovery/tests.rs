//! The examples of RFC 7286 and RFC 8686, loops and malformed rules.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

/// DNS records by name.
type Zone = BTreeMap<String, Vec<Naptr>>;

fn name(text: &str) -> DomainName {
    DomainName::new(text).unwrap()
}

fn record(order: u16, preference: u16, [flags, services, regexp]: [&str; 3], replacement: &str) -> Naptr {
    let [flags, services, regexp] = [flags, services, regexp].map(|text| text.as_bytes().to_vec());
    Naptr { order, preference, flags, services, regexp, replacement: DomainName::new(replacement).ok() }
}

/// A rule with the https URI of a directory.
fn terminal(order: u16, preference: u16, uri: &str) -> Naptr {
    record(order, preference, ["u", "ALTO:https", &format!("!.*!{uri}!")], "")
}

/// A rule that leads to another name.
fn delegation(order: u16, to: &str) -> Naptr {
    record(order, 10, ["", "ALTO:https", ""], to)
}

fn zone<const N: usize>(entries: [(&str, Vec<Naptr>); N]) -> Zone {
    entries.map(|(name, records)| (name.to_owned(), records)).into()
}

/// Runs the search to its end.
fn searched(mut discovery: Discovery, zone: &Zone) -> Discovery {
    while let Some(name) = discovery.next_name() {
        let records = zone.get(name.as_str()).cloned().unwrap_or_default();
        discovery.take(records);
    }
    discovery
}

fn found(discovery: &Discovery) -> Vec<&str> {
    discovery.outcome().into_iter().flat_map(|found| &found.directories).map(DirectoryUri::as_str).collect()
}

fn queried(discovery: &Discovery) -> Vec<&str> {
    discovery.queried().iter().map(DomainName::as_str).collect()
}

const FIRST: &str = "https://alto1.example.net/ird";
const SECOND: &str = "https://alto2.example.net/ird";

#[test]
fn the_example_of_rfc_7286_is_found() {
    let zone = zone([("example.net", vec![terminal(100, 20, SECOND), terminal(100, 10, FIRST)])]);
    let discovery = searched(Discovery::of_domains([name("Example.NET.")]), &zone);
    assert_eq!(found(&discovery), [FIRST, SECOND]);
    assert_eq!(discovery.outcome().unwrap().name, name("example.net"));
}

#[test]
fn the_names_of_rfc_8686_are_asked() {
    let names = |address: &str| -> Vec<String> {
        let discovery = searched(Discovery::of_address(address.parse().unwrap()), &Zone::new());
        queried(&discovery).into_iter().map(str::to_uppercase).collect()
    };
    let ipv4 = ["3.100.51.198", "100.51.198", "51.198", "198"].map(|labels| format!("{labels}.IN-ADDR.ARPA"));
    assert_eq!(names("198.51.100.3"), ipv4);
    assert_eq!(names("::ffff:198.51.100.3"), ipv4);
    let ipv6 = [
        "0.2.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.8.B.D.0.1.0.0.2",
        "0.0.0.0.0.0.0.0.8.B.D.0.1.0.0.2",
        "0.0.0.0.0.0.8.B.D.0.1.0.0.2",
        "0.0.0.0.8.B.D.0.1.0.0.2",
        "0.0.8.B.D.0.1.0.0.2",
        "8.B.D.0.1.0.0.2",
    ];
    assert_eq!(names("2001:db8::20"), ipv6.map(|labels| format!("{labels}.IP6.ARPA")));
}

#[test]
fn the_example_of_rfc_8686_is_found_and_shorter_prefixes_are_left_alone() {
    let zone = zone([
        ("100.51.198.in-addr.arpa", vec![terminal(100, 10, FIRST), terminal(100, 20, SECOND)]),
        ("51.198.in-addr.arpa", vec![terminal(1, 1, "https://far.example.net/")]),
    ]);
    let discovery = searched(Discovery::of_address("198.51.100.3".parse().unwrap()), &zone);
    assert_eq!(found(&discovery), [FIRST, SECOND]);
    assert_eq!(queried(&discovery), ["3.100.51.198.in-addr.arpa", "100.51.198.in-addr.arpa"]);
}

#[test]
fn rules_hold_in_their_order() {
    let records = vec![
        terminal(200, 1, "https://later.example.net/"),
        terminal(100, 30, SECOND),
        delegation(100, "example.org"),
        terminal(100, 5, FIRST),
        terminal(100, 40, SECOND),
    ];
    let discovery = searched(Discovery::of_domains([name("a.net")]), &zone([("a.net", records)]));
    assert_eq!(found(&discovery), [FIRST, SECOND], "neither those of another order, nor one twice");
    assert_eq!(queried(&discovery), ["a.net"]);
}

#[test]
fn rules_lead_to_other_names_and_give_way_if_these_have_none() {
    let zone = zone([
        ("a.net", vec![delegation(1, "empty.net"), delegation(2, "b.net"), terminal(3, 1, SECOND)]),
        ("b.net", vec![delegation(1, "c.net")]),
        ("c.net", vec![terminal(1, 1, FIRST)]),
    ]);
    let discovery = searched(Discovery::of_domains([name("a.net"), name("never.net")]), &zone);
    assert_eq!((found(&discovery), queried(&discovery)), (vec![FIRST], vec!["a.net", "empty.net", "b.net", "c.net"]));
    let mut without = zone;
    without.remove("c.net");
    let discovery = searched(Discovery::of_domains([name("a.net")]), &without);
    assert_eq!(found(&discovery), [SECOND]);
}

#[test]
fn a_chain_has_an_end() {
    let chain = |length: usize| -> Zone {
        let links = (0..length).map(|at| (format!("n{at}.net"), vec![delegation(1, &format!("n{}.net", at + 1))]));
        links.chain([(format!("n{length}.net"), vec![terminal(1, 1, FIRST)])]).collect()
    };
    let end = |zone: &Zone| searched(Discovery::of_domains([name("n0.net")]), zone);
    assert_eq!(found(&end(&chain(MAX_HOPS))), [FIRST]);
    let discovery = end(&chain(MAX_HOPS + 1));
    assert_eq!((found(&discovery).len(), discovery.queried().len()), (0, MAX_HOPS + 1));
    let astray = IgnoredRecord::Astray { name: name("n5.net"), to: name("n6.net") };
    assert_eq!(discovery.ignored_records(), [astray]);
    let circle = zone([("n0.net", vec![delegation(1, "n1.net")]), ("n1.net", vec![delegation(1, "N0.net.")])]);
    let discovery = end(&circle);
    assert_eq!(queried(&discovery), ["n0.net", "n1.net"]);
    assert!(discovery.ignored_records()[0].to_string().contains("was already queried"));
}

#[test]
fn what_is_not_https_is_told_and_not_taken() {
    let http = |services: &str, uri: &str| record(1, 1, ["U", services, &format!("!.*!{uri}!")], "");
    for insecure in [http("alto:HTTP", "http://alto.example.net/"), http("ALTO:https", "http://alto.example.net/")] {
        let zone = zone([("a.net", vec![insecure.clone(), terminal(2, 1, FIRST)])]);
        let discovery = searched(Discovery::of_domains([name("a.net")]), &zone);
        assert_eq!(found(&discovery), [FIRST], "{insecure:?}");
        assert!(discovery.ignored_records()[0].to_string().contains("://alto.example.net/"), "{insecure:?}");
    }
    for services in ["alto:http:https", "ALTO:http"] {
        let zone = zone([("a.net", vec![http(services, FIRST)])]);
        assert_eq!(found(&searched(Discovery::of_domains([name("a.net")]), &zone)), [FIRST], "{services}");
    }
}

#[test]
fn rules_that_are_none_of_u_naptr_are_told() {
    let uri = |regexp: &str| record(1, 1, ["u", "ALTO:https", regexp], "");
    for malformed in [
        uri(""),
        uri("https://h/"),
        uri("!.*!https://h/"),
        uri("!.*!https://h/!i"),
        uri("!^(.*)$!https://h/\\1!"),
        uri("!.*!https://h/\\1!"),
        uri("!.*!https://h/!b!"),
        uri("/.*/https:h/"),
        uri("!.*!!"),
        uri("!.*!!!"),
        uri("!.*!ftp://h/!"),
        uri("!.*!https://user@h/!"),
        uri("!.*!https://h/ird#x!"),
        uri("!.*!https://h/\x1b!"),
        record(1, 1, ["u", "ALTO:https", "!.*!https://h/!"], "both.example.net"),
        record(1, 1, ["", "ALTO:https", ""], ""),
    ] {
        let zone = zone([("a.net", vec![malformed.clone()])]);
        let discovery = searched(Discovery::of_domains([name("a.net")]), &zone);
        assert_eq!(discovery.outcome(), None, "{malformed:?}");
        let [IgnoredRecord::Malformed { text, .. }] = discovery.ignored_records() else { panic!("{malformed:?}") };
        assert!(text.is_ascii() && !text.contains('\x1b'), "{text}");
    }
}

#[test]
fn records_of_others_are_no_concern_of_ours() {
    for other in [
        record(1, 1, ["s", "SIP+D2U", ""], "_sip._udp.a.net"),
        record(1, 1, ["s", "ALTO:https", ""], "_alto._tcp.a.net"),
        record(1, 1, ["u", "ALTO", "!.*!https://h/!"], ""),
        record(1, 1, ["u", "ALTOS:https", "!.*!https://h/!"], ""),
        record(1, 1, ["u", "E2U+https", "!.*!https://h/!"], ""),
        record(1, 1, ["", "ALTO:http", ""], "b.net"),
    ] {
        let zone = zone([("a.net", vec![other.clone()])]);
        let discovery = searched(Discovery::of_domains([name("a.net")]), &zone);
        assert_eq!(
            (discovery.outcome(), discovery.ignored_records(), discovery.queried().len()),
            (None, &[][..], 1),
            "{other:?}"
        );
    }
}

#[test]
fn names_of_domains_have_a_form() {
    assert_eq!(name("Grid.Example.ORG.").as_str(), "grid.example.org");
    assert!(name("_alto.example.org").is_below_top() && !name("local").is_below_top());
    for text in ["", ".", "a..b", ".a", "a b", "\u{e4}.de", "a/b", &"a".repeat(64), &"a.".repeat(128)] {
        assert!(DomainName::new(text).is_err(), "{text}");
    }
}

fn any_record() -> impl Strategy<Value = Naptr> {
    let regexp = prop_oneof![
        (0..9u8).prop_map(|number| format!("!.*!https://h{number}/!").into_bytes()),
        prop::collection::vec(any::<u8>(), 0..40),
    ];
    let services = prop_oneof![Just(b"ALTO:https".to_vec()), prop::collection::vec(any::<u8>(), 0..20)];
    let flags = prop_oneof![Just(b"u".to_vec()), Just(Vec::new()), prop::collection::vec(any::<u8>(), 0..3)];
    let replacement = prop::option::of((0..9u8).prop_map(|number| name(&format!("n{number}.net"))));
    (0..4u16, 0..4u16, flags, services, regexp, replacement).prop_map(
        |(order, preference, flags, services, regexp, replacement)| Naptr {
            order,
            preference,
            flags,
            services,
            regexp,
            replacement,
        },
    )
}

proptest! {
    #[test]
    fn every_search_ends_and_takes_https_only(
        records in prop::collection::vec(prop::collection::vec(any_record(), 0..6), 9),
    ) {
        let zone: Zone = records.into_iter().enumerate().map(|(at, records)| (format!("n{at}.net"), records)).collect();
        let mut discovery = Discovery::of_domains([name("n0.net"), name("n1.net")]);
        let mut queries = 0;
        while let Some(name) = discovery.next_name() {
            prop_assert!(!discovery.queried().contains(name), "{name} is asked twice");
            let records = zone[name.as_str()].clone();
            discovery.take(records);
            queries += 1;
            prop_assert!(queries <= MAX_QUESTIONS);
        }
        if let Some(found) = discovery.outcome() {
            prop_assert!(!found.directories.is_empty() && found.directories.iter().all(DirectoryUri::is_secure));
            prop_assert!(discovery.queried().contains(&found.name));
        }
        prop_assert!(discovery.ignored_records().len() <= MAX_IGNORED_RECORDS);
    }
}
