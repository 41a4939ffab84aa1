//! Tests of the facts that lines produce, and that lines can be split and withdrawn in any order.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use towpath_alto::{nested::MAX_LEVELS, topology::MAX_NODES};

const ROUTE: &str = r#"{"route": {"router": "ex2j.cern.ch", "prefix": "134.158.84.0/24", "next-hop": "192.65.184.145", "as-path": "20965 2091 789"}}"#;
const COMMIT: &str = r#"{"commit": {}}"#;

/// Returns the facts after these valid lines.
fn facts(lines: &[&str]) -> AgentState {
    let mut taken = ProgramFacts::default();
    for line in lines {
        taken.take(line.as_bytes()).unwrap();
    }
    taken.facts()
}

fn fault(line: &str) -> String {
    ProgramFacts::default().take(line.as_bytes()).unwrap_err().to_string()
}

#[test]
fn c4_what_no_resource_may_tell_is_one_line_that_is_skipped() {
    let message = fault(r#"{"property": {"entity": ".ane:L1", "name": "max-reservable-bandwidth", "value": null}}"#);
    assert!(message.contains("a number of bits per second, 0 or more"), "{message}");
    let message = fault(r#"{"metric": {"src": "::1", "dst": "::2", "metric": "hopcount", "value": 1.5}}"#);
    assert!(message.contains("costs by hopcount, ::1 to ::2: RFC 9439 allows whole numbers only"), "{message}");
    let message = fault(r#"{"property": {"entity": ".ane:L.1", "name": "priv:x", "value": 1}}"#);
    assert!(message.contains("element L.1: rename it"), "{message}");
}

#[test]
fn each_line_tells_a_fact() {
    let parsed = facts(&[
        ROUTE,
        "",
        r#"{"route": {"router": "ex2j.cern.ch", "prefix": "2001:db8::1"}}"#,
        r#"{"property": {"entity": "ipv4:134.158.84.0/24", "name": "priv:country", "value": "FR"}}"#,
        r#"{"metric": {"src": "137.138.0.0/16", "dst": "134.158.84.23", "metric": "delay-ow", "value": 5300}}"#,
        r#"{"metric": {"src": "137.138.0.0/16", "dst": "134.158.84.23", "metric": "hopcount", "value": 3}}"#,
        r#"{"metric": {"map": "default", "src": "CERN", "dst": "IN2P3", "metric": "routingcost", "value": 2}}"#,
        r#"{"link": {"topology": "lhcone", "from": "Geneva", "to": "Paris", "capacity": 100e9, "length": 410, "weight": 10, "attach": {"Geneva": ["137.138.0.0/16", "2001:1458::/32"]}}}"#,
        r#"{"link": {"topology": "lhcone", "from": "Paris", "to": "Lyon", "directed": true, "attach": {"Lyon": ["134.158.84.0/24"]}}}"#,
        r#"{"link": {"topology": "lhcone", "from": "Lyon", "to": "Paris", "directed": true, "capacity": 10e9, "attach": {"Lyon": ["134.158.85.0/24"]}}}"#,
        COMMIT,
    ]);
    let written = r#"
        [cost-map.default.routingcost.CERN]
        IN2P3 = 2
        [properties."ipv4:134.158.84.0/24"]
        "priv:country" = "FR"
        [[costs]]
        src = "137.138.0.0/16"
        dst = "134.158.84.23"
        delay-ow = 5300
        hopcount = 3
        [routers."ex2j.cern.ch"]
        routes = [
            { prefix = "134.158.84.0/24", next-hop = "192.65.184.145", as-path = "20965 2091 789" },
            { prefix = "2001:db8::1" },
        ]
        [topology.lhcone]
        attach = { Geneva = ["137.138.0.0/16", "2001:1458::/32"], Lyon = ["134.158.84.0/24", "134.158.85.0/24"] }
        links = [
            { from = "Geneva", to = "Paris", capacity = 100e9, length = 410, weight = 10 },
            { from = "Paris", to = "Lyon", directed = true },
            { from = "Lyon", to = "Paris", directed = true, capacity = 10e9 },
        ]
    "#;
    assert_eq!(parsed, AgentState::parse(written).unwrap());
}

#[test]
fn nothing_is_told_before_a_commit() {
    let mut lines = ProgramFacts::default();
    assert_eq!(lines.take(ROUTE.as_bytes()), Ok(false));
    assert_eq!(lines.facts(), AgentState::default());
    assert_eq!(lines.take(COMMIT.as_bytes()), Ok(true));
    assert_eq!(lines.facts().routers.len(), 1);
    let withdrawal = r#"{"withdraw": {"route": {"router": "ex2j.cern.ch", "prefix": "134.158.84.0/24"}}}"#;
    assert_eq!(lines.take(withdrawal.as_bytes()), Ok(false));
    assert_eq!(lines.facts().routers.len(), 1);
    assert_eq!(lines.take(COMMIT.as_bytes()), Ok(true));
    assert_eq!(lines.facts(), AgentState::default());
}

#[test]
fn what_was_given_away_does_not_change() {
    let mut lines = ProgramFacts::default();
    for line in [ROUTE, COMMIT] {
        lines.take(line.as_bytes()).unwrap();
    }
    let before = lines.facts();
    let withdrawal = r#"{"withdraw": {"route": {"router": "ex2j.cern.ch", "prefix": "134.158.84.0/24"}}}"#;
    for line in [withdrawal, COMMIT] {
        lines.take(line.as_bytes()).unwrap();
    }
    assert_eq!(before, facts(&[ROUTE, COMMIT]));
}

#[test]
fn what_is_wrong_with_a_line_is_told_with_its_number() {
    let mut lines = ProgramFacts::default();
    assert_eq!(lines.take(b""), Ok(false));
    let error = lines.take(b"{").unwrap_err();
    assert!(error.to_string().starts_with("line 2: EOF while parsing an object (column "), "{error}");
    for (line, expected) in [
        (r#"{"routes": {}}"#, "unknown variant `routes`"),
        (r#"{"route": {"router": "x", "prefix": "10.1.0.0/8"}}"#, "'10.1.0.0/8' is not a valid prefix"),
        (r#"{"route": {"router": "x", "prefix": "10.0.0.0/8", "nexthop": "10.1.1.1"}}"#, "unknown field `nexthop`"),
        (r#"{"route": {"router": "x", "prefix": "10.0.0.0/8", "as-path": "1 x"}}"#, "'1 x' is not a valid AS path"),
        (r#"{"property": {"entity": "ipv4:10.0.0.1", "name": "a"}}"#, "missing field `value`"),
        (
            r#"{"metric": {"src": "A", "dst": "10.0.0.1", "metric": "hopcount", "value": 1}}"#,
            "'A' is not a valid prefix",
        ),
        (r#"{"metric": {"src": "10.0.0.1", "dst": "10.0.0.2", "metric": "hopcount", "value": -1}}"#, "is not a cost"),
        (
            r#"{"metric": {"src": "10.0.0.1", "dst": "10.0.0.2", "metric": "src", "value": 1}}"#,
            "rename it to 'priv:src'",
        ),
        (
            r#"{"metric": {"src": "10.0.0.1", "dst": "10.0.0.2", "metric": "dst", "value": 1}}"#,
            "rename it to 'priv:dst'",
        ),
        (r#"{"link": {"topology": "t", "from": "a"}}"#, "missing field `to`"),
        (r#"{"link": {"topology": "t", "from": "a", "to": "b", "speed": 1}}"#, "unknown field `speed`"),
        (
            r#"{"link": {"topology": "t", "from": "a", "to": "b", "capacity": -1}}"#,
            "-1 is out of range: expected 0 or more",
        ),
        (r#"{"link": {"topology": "t", "from": "a", "to": ""}}"#, "'' is not a valid node name"),
        (
            r#"{"link": {"topology": "t", "from": "a", "to": "b", "attach": {"c": []}}}"#,
            "'c' is not an end of the link",
        ),
        (r#"{"link": {"topology": "t", "from": "a", "to": "b", "attach": {"a": ["x"]}}}"#, "'x' is not a valid prefix"),
        (r#"{"withdraw": {"link": {"topology": "t", "from": "a"}}}"#, "missing field `to`"),
        (r#"{"withdraw": {"route": {"router": "x"}}}"#, "missing field `prefix`"),
        (r#"{"commit": {}} {}"#, "trailing characters"),
        (r#"{"commit": {"all": true}}"#, "unknown field `all`"),
        ("\u{fffd}", "expected value"),
    ] {
        let fault = fault(line);
        assert!(fault.contains(expected), "{line}: {fault}");
    }
}

#[test]
fn a_link_is_taken_back_with_what_is_attached() {
    let link = |from: &str, to: &str, prefix: &str| {
        format!(
            r#"{{"link": {{"topology": "t", "from": "{from}", "to": "{to}", "attach": {{"{to}": ["{prefix}"]}}}}}}"#
        )
    };
    let withdrawal = |from: &str, to: &str| {
        format!(r#"{{"withdraw": {{"link": {{"topology": "t", "from": "{from}", "to": "{to}"}}}}}}"#)
    };
    let (there, back) = (link("a", "b", "10.0.0.0/8"), link("b", "a", "11.0.0.0/8"));
    assert_eq!(facts(&[&there, &back, COMMIT, &withdrawal("b", "a"), COMMIT]), facts(&[&there, COMMIT]));
    assert_ne!(facts(&[&there, &back, COMMIT]), facts(&[&there, COMMIT]));
    assert_eq!(facts(&[&there, COMMIT, &withdrawal("b", "a"), COMMIT]), facts(&[&there, COMMIT]), "as it was told");
    assert_eq!(facts(&[&there, COMMIT, &withdrawal("a", "b"), COMMIT]), AgentState::default());
}

#[test]
fn a_topology_that_is_too_large_is_not_committed() {
    let mut lines = ProgramFacts::default();
    let ends = |number: usize| format!(r#""topology": "star", "from": "hub", "to": "{number}""#);
    for number in 0..MAX_NODES - 1 {
        assert_eq!(lines.take(format!(r#"{{"link": {{{}}}}}"#, ends(number)).as_bytes()), Ok(false));
    }
    assert_eq!(lines.take(COMMIT.as_bytes()), Ok(true));
    let before = lines.facts();
    let one_more = format!(r#"{{"link": {{{}}}}}"#, ends(MAX_NODES));
    for line in [ROUTE, &one_more] {
        assert_eq!(lines.take(line.as_bytes()), Ok(false));
    }
    let error = lines.take(COMMIT.as_bytes()).unwrap_err().to_string();
    assert!(error.contains("line 5003: cannot commit topology 'star'"), "{error}");
    assert!(error.contains("more than 5000 nodes"), "{error}");
    assert_eq!(lines.facts(), before);
    let withdrawal = format!(r#"{{"withdraw": {{"link": {{{}}}}}}}"#, ends(0));
    assert_eq!(lines.take(withdrawal.as_bytes()), Ok(false));
    assert_eq!(lines.take(COMMIT.as_bytes()), Ok(true));
    assert_eq!((lines.facts().routers.len(), lines.known.len()), (1, MAX_NODES), "what waited is committed");
}

#[test]
fn what_is_attached_takes_room() {
    let link = |prefixes: &str| {
        format!(r#"{{"link": {{"topology": "t", "from": "a", "to": "b", "attach": {{"a": [{prefixes}]}}}}}}"#)
    };
    let mut lines = ProgramFacts::with_room(3);
    let mut take = |line: &str| lines.take(line.as_bytes()).map_err(|error| error.fault);
    assert_eq!(take(&link(r#""10.0.0.0/8", "11.0.0.0/8", "12.0.0.0/8""#)), Err(LineFault::Full));
    assert_eq!(take(&link(r#""10.0.0.0/8", "11.0.0.0/8""#)), Ok(false));
    assert_eq!(take(ROUTE), Err(LineFault::Full), "before the commit");
    assert_eq!(take(COMMIT), Ok(true));
    assert_eq!(take(ROUTE), Err(LineFault::Full), "after it");
}

#[test]
fn a_bad_line_takes_nothing_away() {
    let mut lines = ProgramFacts::default();
    for line in [ROUTE, "{", COMMIT] {
        let _ = lines.take(line.as_bytes());
    }
    assert_eq!(lines.facts(), facts(&[ROUTE, COMMIT]));
}

/// Opening and closing text of one nesting level.
const BRACKETS: [[&str; 2]; 2] = [["[0, ", "]"], [r#"{"a": 0, "b": "#, "}"]];

/// A property whose value has this many levels.
fn nested(levels: usize, [open, close]: [&str; 2]) -> String {
    let value = format!("{}[]{}", open.repeat(levels - 1), close.repeat(levels - 1));
    format!(r#"{{"property": {{"entity": "ipv4:10.0.0.1", "name": "a", "value": {value}}}}}"#)
}

#[test]
fn what_is_told_can_be_written_and_read_back() {
    let deep = nested(MAX_LEVELS, BRACKETS[1]);
    let between_pids = r#"{"metric": {"map": "default", "src": "A", "dst": "B", "metric": "src", "value": 1}}"#;
    let between_prefixes = r#"{"metric": {"src": "10.0.0.1", "dst": "10.0.0.2", "metric": "priv:src", "value": 1}}"#;
    let parsed = facts(&[ROUTE, &deep, between_pids, between_prefixes, COMMIT]);
    assert_eq!(AgentState::parse(&serde_json::to_string(&parsed).unwrap()), Ok(parsed));
}

#[test]
fn lines_have_bounds() {
    let property = |value: usize| {
        let value = "x".repeat(value);
        format!(r#"{{"property": {{"entity": "ipv4:10.0.0.1", "name": "a", "value": "{value}"}}}}"#)
    };
    // The quotation marks take two bytes.
    assert_eq!(ProgramFacts::default().take(property(MAX_VALUE_BYTES - 2).as_bytes()), Ok(false));
    assert!(fault(&property(MAX_VALUE_BYTES - 1)).contains("4096 bytes"));
    for bracket in BRACKETS {
        assert_eq!(ProgramFacts::default().take(nested(MAX_LEVELS, bracket).as_bytes()), Ok(false));
        assert!(fault(&nested(MAX_LEVELS + 1, bracket)).contains("64 levels"));
    }
    assert_eq!(ProgramFacts::default().take(&[b' '; MAX_LINE_BYTES]), Ok(false));
    assert!(fault(&" ".repeat(MAX_LINE_BYTES + 1)).contains("1048576 bytes"));
    let route = |hops: usize| {
        let path: Vec<String> = (1..=hops).map(|number| number.to_string()).collect();
        format!(r#"{{"route": {{"router": "x", "prefix": "10.0.0.0/8", "as-path": "{}"}}}}"#, path.join(" "))
    };
    assert_eq!(ProgramFacts::default().take(route(MAX_HOPS).as_bytes()), Ok(false));
    assert!(fault(&route(MAX_HOPS + 1)).contains("255 hops"));
}

#[test]
fn who_told_too_much_can_still_take_it_back() {
    let mut lines = ProgramFacts::with_room(2);
    let line_pair = |number: u8| {
        let key = format!(r#""src": "10.0.0.{number}", "dst": "10.0.0.9", "metric": "hopcount""#);
        (format!(r#"{{"metric": {{{key}, "value": 1}}}}"#), format!(r#"{{"withdraw": {{"metric": {{{key}}}}}}}"#))
    };
    let mut take = |line: &str| lines.take(line.as_bytes()).map_err(|error| error.fault);
    for number in [1, 2] {
        assert_eq!(take(&line_pair(number).0), Ok(false));
    }
    assert_eq!(take(&line_pair(3).0), Err(LineFault::Full), "before the commit");
    assert_eq!(take(COMMIT), Ok(true));
    assert_eq!(take(&line_pair(3).0), Err(LineFault::Full), "after it");
    assert_eq!(take(&line_pair(1).1), Ok(false));
    assert_eq!(take(COMMIT), Ok(true));
    assert_eq!(take(&line_pair(3).0), Ok(false));
}

fn cut(pieces: &[&[u8]], longest_bytes: usize) -> Vec<Vec<u8>> {
    let mut splitter = LineSplitter::new(longest_bytes);
    let mut lines = Vec::new();
    for piece in pieces {
        splitter.feed(piece, |line| lines.push(line.to_vec()));
    }
    lines
}

#[test]
fn of_a_line_that_is_too_long_only_that_is_kept() {
    assert_eq!(cut(&[b"abc\nabcd\nab", b"cdef\n\nx"], 3), [&b"abc"[..], b"abcd", b"abcd", b""]);
}

/// A fact that generated programs set, withdraw, and set again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    kind: u8,
    number: u8,
}

impl Key {
    fn fields(self) -> (&'static str, String) {
        let Self { kind, number } = self;
        match kind {
            0 => ("route", format!(r#""router": "r{}", "prefix": "10.{number}.0.0/16""#, number % 2)),
            1 => ("property", format!(r#""entity": "ipv4:10.0.0.{}", "name": "p{number}""#, number % 2)),
            2 => {
                let [metric, number] = [number % 2, number / 2];
                ("metric", format!(r#""src": "10.0.0.{number}", "dst": "10.0.0.9", "metric": "m{metric}""#))
            }
            3 => ("metric", format!(r#""map": "m", "src": "A", "dst": "P{number}", "metric": "hopcount""#)),
            _ => ("link", format!(r#""topology": "t{}", "from": "A", "to": "N{number}""#, number % 2)),
        }
    }

    fn line(self, value: u8) -> String {
        let (kind, key) = self.fields();
        let field = match kind {
            "route" => format!(r#""as-path": "{value}""#),
            "link" => format!(r#""weight": {value}"#),
            _ => format!(r#""value": {value}"#),
        };
        format!(r#"{{"{kind}": {{{key}, {field}}}}}"#)
    }

    fn withdrawn(self) -> String {
        let (kind, key) = self.fields();
        format!(r#"{{"withdraw": {{"{kind}": {{{key}}}}}}}"#)
    }
}

#[derive(Debug, Clone)]
enum Step {
    Tell(Key, u8),
    Withdraw(Key),
    Commit,
}

fn step() -> impl Strategy<Value = Step> {
    let key = || (0..5_u8, 0..4_u8).prop_map(|(kind, number)| Key { kind, number });
    prop_oneof![
        4 => (key(), 1..9_u8).prop_map(|(key, value)| Step::Tell(key, value)),
        3 => key().prop_map(Step::Withdraw),
        1 => Just(Step::Commit),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    /// After any sequence of changes, the facts equal those of a program that prints only the final state.
    #[test]
    fn the_last_word_before_a_commit_holds(steps in prop::collection::vec(step(), 0..60)) {
        let mut lines = ProgramFacts::default();
        let (mut model, mut committed) = (BTreeMap::new(), BTreeMap::new());
        for step in steps {
            let line = match step {
                Step::Tell(key, value) => {
                    model.insert(key, value);
                    key.line(value)
                }
                Step::Withdraw(key) => {
                    model.remove(&key);
                    key.withdrawn()
                }
                Step::Commit => {
                    committed = model.clone();
                    COMMIT.to_owned()
                }
            };
            lines.take(line.as_bytes()).unwrap();
        }
        let lines_of_facts: Vec<String> = committed.iter().map(|(key, value)| key.line(*value)).collect();
        let lines_of_facts: Vec<&str> = lines_of_facts.iter().map(String::as_str).chain([COMMIT]).collect();
        prop_assert_eq!(lines.known.len(), committed.len());
        prop_assert_eq!(lines.facts(), facts(&lines_of_facts));
    }

    #[test]
    fn it_does_not_matter_how_lines_are_cut(
        text in prop::collection::vec(prop::sample::select(b"ab\n".to_vec()), 0..60),
        pieces in prop::collection::vec(1..9_usize, 1..60),
    ) {
        let mut whole: Vec<Vec<u8>> =
            text.split(|byte| *byte == b'\n').map(|line| line[..line.len().min(5)].to_vec()).collect();
        // The last line has no line ending.
        whole.pop();
        let (mut rest, mut parts) = (&text[..], Vec::new());
        for length in pieces {
            let (part, after) = rest.split_at(length.min(rest.len()));
            parts.push(part);
            rest = after;
        }
        parts.push(rest);
        prop_assert_eq!(cut(&parts, 4), whole);
    }

    #[test]
    fn no_line_makes_it_panic(line in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = ProgramFacts::default().take(&line);
    }
}
