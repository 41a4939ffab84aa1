//! Golden texts of each dialect, truncated texts, and texts without routes.

use std::{collections::HashSet, net::IpAddr};

use proptest::{collection::vec, option::of, prelude::*, sample::Index};

use super::*;

const JUNOS_TABLE: &str = include_str!("golden/junos_table.txt");
const JUNOS_DETAIL: &str = include_str!("golden/junos_detail.txt");
const FRR_IPV4: &str = include_str!("golden/frr_ipv4.txt");
const FRR_IPV6: &str = include_str!("golden/frr_ipv6.txt");
const FRR_ENTRY: &str = include_str!("golden/frr_entry.txt");
const IOS_ENTRY: &str = include_str!("golden/ios_entry.txt");
const IOS: &str = include_str!("golden/ios.txt");
const BIRD_ALL: &str = include_str!("golden/bird_all.txt");
const BIRD_SHORT: &str = include_str!("golden/bird_short.txt");
const PAGE: &str = include_str!("golden/page.txt");

/// Formats each route as prefix, next hop and path.
fn routes(table: &ParsedTable) -> Vec<String> {
    let line = |route: &Route| {
        let hop = route.next_hop.map_or("-".to_owned(), |hop| hop.to_string());
        format!("{} {hop} {}", route.prefix, route.as_path).trim_end().to_owned()
    };
    table.routes.iter().map(line).collect()
}

/// Returns the skipped lines of `text`.
fn skipped<'a>(text: &'a str, table: &ParsedTable) -> Vec<(&'a str, SkipReason)> {
    table.skipped.iter().map(|skipped| (text.lines().nth(skipped.line - 1).unwrap().trim(), skipped.reason)).collect()
}

#[test]
fn junos_tables() {
    let table = parse(JUNOS_TABLE).unwrap();
    assert_eq!(Dialect::detect(JUNOS_TABLE), Some(Dialect::JunosTable));
    assert_eq!(
        routes(&table),
        [
            "0.0.0.0/0 192.0.2.254",
            "192.0.2.0/24 -",
            "192.0.2.9/32 -",
            "198.51.100.0/24 192.0.2.2 64500 64501 {64510,64511}",
            "198.51.100.128/25 192.0.2.1 64500 64503",
            "203.0.113.0/26 192.0.2.3 64502",
            "203.0.113.128/26 -",
            "203.0.113.192/26 192.0.2.4",
            "203.0.113.100/32 192.0.2.1 64500 64504",
            "100.64.0.0/10 192.0.2.6",
            "134.158.0.0/16 192.65.184.145 20965 2091 789",
            "2001:db8::/32 2001:db8:ffff::1 64500",
            "2001:db8:3200:1000::/52 fe80::5e45:27ff:fe5a:1 20965 2091 789",
            "fe80::5e45:27ff:fe5a:2/128 -",
            "ff02::2/128 -",
        ]
    );
    assert_eq!(
        skipped(JUNOS_TABLE, &table),
        [
            ("198.51.100.0/24    *[BGP/170] 3d 02:53:31, localpref 150", SkipReason::Repeated),
            ("mpls.0: 2 destinations, 2 routes (2 active, 0 holddown, 0 hidden)", SkipReason::OtherTable),
        ]
    );
}

#[test]
fn junos_details() {
    let table = parse(JUNOS_DETAIL).unwrap();
    assert_eq!(Dialect::detect(JUNOS_DETAIL), Some(Dialect::JunosDetail));
    assert_eq!(
        routes(&table),
        [
            "192.0.2.0/24 192.65.184.145 20965 2091 {788,789}",
            "198.51.100.0/24 -",
            "203.0.113.0/24 192.0.2.4",
            "2001:db8:3200:1000::/52 fe80::5e45:27ff:fe5a:1 20965 2091 789",
        ]
    );
    assert!(table.skipped.is_empty(), "{:?}", table.skipped);
}

#[test]
fn frr_with_ipv4() {
    let table = parse(FRR_IPV4).unwrap();
    assert_eq!(Dialect::detect(FRR_IPV4), Some(Dialect::Frr));
    assert_eq!(
        routes(&table),
        [
            "0.0.0.0/0 192.0.2.254 64500",
            "10.10.0.0/16 -",
            "134.158.0.0/16 192.65.184.145 20965 2091 789",
            "144.16.96.0/19 192.65.184.145 20965 9885 55824",
            "198.51.100.0/24 192.0.2.2 64500 {64510,64511}",
            "198.51.100.128/25 192.0.2.3 64503",
            "203.0.113.0/25 192.168.123.123 64504",
            "203.0.113.192/26 -",
        ]
    );
    assert!(table.skipped.is_empty(), "{:?}", table.skipped);
}

#[test]
fn frr_with_ipv6() {
    let table = parse(FRR_IPV6).unwrap();
    assert_eq!(
        routes(&table),
        [
            "2001:db8::/32 fe80::1 64500",
            "2001:db8:3200:1000::/52 2001:db8:ffff:1::145 20965 2091 789",
            "2001:db8:4::/48 -",
        ]
    );
    assert!(table.skipped.is_empty(), "{:?}", table.skipped);
}

#[test]
fn ios_leaves_the_length_of_a_class_out() {
    let table = parse(IOS).unwrap();
    assert_eq!(
        routes(&table),
        [
            "0.0.0.0/0 192.0.2.254 64500",
            "10.0.0.0/8 192.0.2.1 64500 64501",
            "10.1.0.0/16 192.0.2.1 64500 65546",
            "172.16.0.0/16 192.0.2.1 64500 64503",
            "192.0.2.0/24 -",
            "2001:db8:32:1000::/52 2001:db8:ffff::1 20965 2091 789",
            "203.0.113.0/24 192.0.2.3 64503 {64510}",
        ]
    );
    let row = "r>   198.51.100.0     192.0.2.1                              0 64500 i";
    assert_eq!(skipped(IOS, &table), [(row, SkipReason::NotInstalled)]);
}

#[test]
fn frr_and_ios_with_one_prefix() {
    let table = parse(FRR_ENTRY).unwrap();
    assert_eq!(Dialect::detect(FRR_ENTRY), Some(Dialect::FrrEntry));
    let expected = ["198.51.100.0/24 192.0.2.2 64502 {64510,64511}", "2001:db8::/32 fe80::202:ff:fe00:c 64500"];
    assert_eq!((routes(&table), &table.skipped[..]), (expected.map(str::to_owned).to_vec(), &[][..]));

    let table = parse(IOS_ENTRY).unwrap();
    let expected = ["134.158.0.0/16 192.65.184.145 20965 65550 789", "192.0.2.0/24 -"];
    assert_eq!((routes(&table), &table.skipped[..]), (expected.map(str::to_owned).to_vec(), &[][..]));
    let shifted: String = IOS_ENTRY.lines().map(|line| format!("\t{}\n", line.trim())).collect();
    assert_eq!(parse(&shifted), Ok(table), "indented otherwise");
}

#[test]
fn bird_with_all_attributes() {
    let table = parse(BIRD_ALL).unwrap();
    assert_eq!(Dialect::detect(BIRD_ALL), Some(Dialect::Bird));
    assert_eq!(
        routes(&table),
        [
            "0.0.0.0/0 -",
            "134.158.0.0/16 192.65.184.145 20965 2091 789",
            "198.51.100.0/24 192.0.2.1 64500 {64510,64511}",
            "203.0.113.0/25 192.0.2.4 64504",
            "203.0.113.128/25 192.0.2.5",
            "203.0.113.192/26 -",
            "100.64.0.0/10 192.0.2.6",
            "2001:db8:3200:1000::/52 fe80::5e45:27ff:fe5a:1 20965 2091 789",
        ]
    );
    let flow = "flow4 { dst 198.51.100.7/32; } [peer1 2026-01-01] * (100) [AS64500i]";
    assert_eq!(skipped(BIRD_ALL, &table), [(flow, SkipReason::Prefix)]);
}

#[test]
fn the_short_form_of_bird_has_no_paths() {
    let table = parse(BIRD_SHORT).unwrap();
    assert_eq!(
        routes(&table),
        ["0.0.0.0/0 -", "192.0.2.0/24 -", "192.0.2.128/25 192.0.2.30", "203.0.113.0/24 192.0.2.5"]
    );
    let route = "198.51.100.0/24    via 192.0.2.1 on eth0 [peer1 20:16:25] * (100) [AS789i]";
    assert_eq!(skipped(BIRD_SHORT, &table), [(route, SkipReason::PathNotShown)]);

    let refusal = parse(route).unwrap_err();
    let first = SkippedLine { line: 1, reason: SkipReason::PathNotShown };
    assert_eq!(refusal, LookingGlassError::Refused { dialect: Dialect::Bird, first });
    assert!(refusal.to_string().ends_with("line 1: the short form of BIRD has no AS paths: use `show route all`"));
}

#[test]
fn the_routes_of_a_page() {
    let table = parse(&first_block(PAGE).unwrap()).unwrap();
    for (address, path) in [
        ("134.158.84.23", "20965 2091 789"),
        ("144.16.112.112", "20965 9885 55824"),
        ("140.115.32.101", "20965 24167 7539 1659"),
    ] {
        let address: IpAddr = address.parse().unwrap();
        let covering: Vec<_> = table.routes.iter().filter(|route| route.prefix.contains(&address)).collect();
        assert_eq!(covering.len(), 1, "{address}");
        assert_eq!(covering[0].as_path.to_string(), path);
        assert_eq!(covering[0].next_hop, Some("192.65.184.145".parse().unwrap()));
    }
    assert_eq!((table.routes.len(), table.skipped.len()), (3, 0));
}

#[test]
fn an_indented_text_reads_alike() {
    let indented: String = JUNOS_TABLE.lines().map(|line| format!("    {line}\r\n")).collect();
    assert_eq!(parse(&indented), parse(JUNOS_TABLE));
}

#[test]
fn routes_below_an_unknown_prefix_are_not_those_of_the_last() {
    for unknown in ["2001:db8::/129", "2001:db8::g/64", &format!("10.0.0.0/8 {}", "x".repeat(5000))] {
        let text = format!("11.0.0.0/8\n [BGP/170] 1d\n  AS path: 1 I\n{unknown}\n *[BGP/170] 1d\n  AS path: 2 I\n");
        let table = Dialect::JunosTable.parse(&format!("{text}12.0.0.0/8 *[Direct/0] 1d\n")).unwrap();
        assert_eq!(routes(&table), ["12.0.0.0/8 -"]);
        assert_eq!(table.skipped.last(), Some(&SkippedLine { line: 5, reason: SkipReason::NoPrefix }));
    }
}

#[test]
fn what_is_too_long_is_skipped() {
    let route = |path: &str| format!("11.0.0.0/8 *[BGP/170] 1d\n  AS path: {path} I\n");
    assert_eq!(routes(&parse(&route(&"1 2 ".repeat(127))).unwrap())[0].split(' ').count(), 2 + 254);
    for (path, first) in [
        ("1 2 ".repeat(128), SkippedLine { line: 1, reason: SkipReason::PathTooLong }),
        ("1 ".repeat(2048), SkippedLine { line: 1, reason: SkipReason::PathMissing }),
    ] {
        assert_eq!(parse(&route(&path)), Err(LookingGlassError::Refused { dialect: Dialect::JunosTable, first }));
    }
}

#[test]
fn a_text_without_routes_is_an_error() {
    assert_eq!(parse("<html>502 Bad Gateway</html>"), Err(LookingGlassError::Unknown));
    for dialect in Dialect::ALL {
        assert_eq!(dialect.parse(""), Err(LookingGlassError::NoRoute { dialect }));
        assert!(LookingGlassError::Unknown.to_string().contains(&dialect.to_string()), "{dialect}");
    }
    let header = "inet.0: 0 destinations, 0 routes (0 active, 0 holddown, 0 hidden)\n";
    let dialect = Dialect::JunosTable;
    assert_eq!(dialect.parse(header), Err(LookingGlassError::NoRoute { dialect }));
}

#[test]
fn a_router_that_has_no_route_says_so() {
    for text in ["% Network not in table\n", "Network not found", "BIRD 1.6.8 ready.\nNetwork not in table\n"] {
        assert_eq!(parse(text), Err(LookingGlassError::Absent), "{text}");
    }
    assert_eq!(parse(" \n\n"), Err(LookingGlassError::Nothing));
    for text in ["Too many queries, come back later", "<html>Network is unreachable</html>", "\n"] {
        assert!(!parse(text).unwrap_err().is_answer(), "{text}");
    }
}

/// In dialects with origin codes, truncation must not yield a shortened path.
#[test]
fn a_text_that_was_cut_off_has_no_other_paths() {
    for text in [JUNOS_TABLE, JUNOS_DETAIL, FRR_IPV4, FRR_IPV6, FRR_ENTRY, IOS, IOS_ENTRY] {
        let dialect = Dialect::detect(text).unwrap();
        let whole = dialect.parse(text).unwrap();
        let known: HashSet<_> = whole.routes.iter().map(|route| (route.prefix, &route.as_path)).collect();
        for end in (0..text.len()).step_by(3) {
            let Ok(table) = dialect.parse(&text[..end]) else { continue };
            for route in &table.routes {
                assert!(known.contains(&(route.prefix, &route.as_path)), "{route:?} at {end}");
            }
        }
    }
}

/// Parses `text` as every dialect and checks the invariants for arbitrary input.
fn read_in_all_ways(text: &str) {
    let lines = text.lines().count();
    for dialect in Dialect::ALL {
        let Ok(table) = dialect.parse(text) else { continue };
        let prefixes: HashSet<_> = table.routes.iter().map(|route| route.prefix).collect();
        assert_eq!(prefixes.len(), table.routes.len());
        assert!(table.skipped.iter().all(|skipped| (1..=lines).contains(&skipped.line)));
        assert!(table.skipped.is_sorted_by_key(|skipped| skipped.line));
    }
    if Dialect::detect(text).is_none() {
        assert!(matches!(
            parse(text),
            Err(LookingGlassError::Unknown | LookingGlassError::Nothing | LookingGlassError::Absent)
        ));
    }
    first_block(text);
}

/// Text that routers do not print at the end of a line, or nothing.
const FOREIGN: &str = "(|é|\u{a0}.{0,3}|[{(\\[<&] ?[0-9]*)";

/// Lines of all golden texts, whole or truncated, in any order, with or without foreign text.
fn shuffled(pieces: &[(Index, Option<Index>, String)]) -> String {
    let golden = [JUNOS_TABLE, JUNOS_DETAIL, FRR_IPV4, FRR_IPV6, FRR_ENTRY, IOS, IOS_ENTRY, BIRD_ALL, BIRD_SHORT, PAGE];
    let lines: Vec<&str> = golden.iter().flat_map(|text| text.lines()).collect();
    let mut text = String::new();
    for (line, cut, foreign) in pieces {
        let line = *line.get(&lines);
        let end = cut.map_or(line.len(), |cut| cut.index(line.len() + 1));
        text.push_str(line.get(..end).unwrap_or(line));
        text.push_str(foreign);
        text.push('\n');
    }
    text
}

proptest! {
    #[test]
    fn no_text_panics(text in vec(any::<char>(), 0..400)) {
        read_in_all_ways(&text.into_iter().collect::<String>());
    }

    #[test]
    fn no_shuffled_text_panics(pieces in vec((any::<Index>(), of(any::<Index>()), FOREIGN), 0..60)) {
        read_in_all_ways(&shuffled(&pieces));
    }
}
