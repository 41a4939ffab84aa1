use proptest::prelude::*;
use serde_json::json;

use super::{
    condition::{Comparison, Operand},
    lexer::MAX_BYTES,
    parser::{MAX_DEPTH, MAX_KEYS, MAX_MEMBERS},
    *,
};

/// A candidate whose values are the members of a JSON object.
struct Candidate(serde_json::Value);

impl CandidateValues for Candidate {
    fn value(&self, name: &str) -> Option<Value> {
        Value::from_json(self.0.get(name)?)
    }
}

/// A candidate with one value.
struct One(Option<Value>);

impl CandidateValues for One {
    fn value(&self, _: &str) -> Option<Value> {
        self.0.clone()
    }
}

fn statement(text: &str) -> Statement {
    text.parse().unwrap()
}

/// Returns the order of the candidates. Smaller is better unless the name begins with `max`.
fn order(text: &str, candidates: impl IntoIterator<Item = serde_json::Value>, where_: FilterMode) -> Vec<usize> {
    let candidates: Vec<Candidate> = candidates.into_iter().map(Candidate).collect();
    let direction = |name: &str| if name.starts_with("max") { Direction::Max } else { Direction::Min };
    let ranked = statement(text).order(&candidates, &direction, where_);
    ranked.iter().map(|ranked| ranked.index).collect()
}

/// Evaluates a condition for a candidate with these values.
fn holds(condition: &str, values: serde_json::Value) -> Option<bool> {
    let statement = statement(&format!("BY k WHERE {condition}"));
    statement.order(&[Candidate(values)], &|_| Direction::Min, FilterMode::Demote)[0].holds
}

#[test]
fn the_statements_of_the_talk_order() {
    let replicas = || {
        [
            json!({"as_hopcount": 3, "delay_ow": 20, "continent": "EU"}),
            json!({"as_hopcount": 2, "delay_ow": 90, "continent": "NA"}),
            json!({"as_hopcount": 3, "delay_ow": 10, "continent": "EU"}),
        ]
    };
    for text in ["BY as_hopcount,delay_ow", "BY=as_hopcount,delay_ow", "by = as_hopcount , delay_ow"] {
        assert_eq!(order(text, replicas(), FilterMode::Demote), [1, 2, 0], "{text}");
    }
    for text in ["BY as_hopcount WHERE continent=\"EU\"", "BY=as_hopcount WHERE continent=\"EU\""] {
        assert_eq!(order(text, replicas(), FilterMode::Demote), [0, 2, 1], "{text}");
        assert_eq!(order(text, replicas(), FilterMode::Drop), [0, 2], "{text}");
    }
    let text = "BY=as_hopcount,delay_ow WHERE continent=\"EU\"";
    assert_eq!(order(text, replicas(), FilterMode::Demote), [2, 0, 1]);
}

#[test]
fn a_rank_tells_what_put_it_there() {
    let replicas = [Candidate(json!({"hops": 3})), Candidate(json!({"hops": 2, "is_near": false}))];
    let ranked = statement("BY hops, delay WHERE is_near").order(&replicas, &|_| Direction::Min, FilterMode::Demote);
    let hops = |number| vec![Some(Value::Number(number)), None];
    assert_eq!(
        ranked,
        [
            RankedCandidate { index: 1, keys: hops(2.0), holds: Some(false) },
            RankedCandidate { index: 0, keys: hops(3.0), holds: None }
        ]
    );
}

#[test]
fn each_name_is_told_once() {
    let statement = statement("BY b, src.a DESC WHERE c = b OR NOT (d IN (1) AND e IS NULL) OR f AND 1 < src.a");
    assert_eq!(statement.names().collect::<Vec<_>>(), ["b", "src.a", "c", "d", "e", "f"]);
    assert_eq!(statement.keys()[1], Key { name: "src.a".to_owned(), direction: Some(Direction::Max) });
}

#[test]
fn the_statement_has_the_last_word_on_directions() {
    let replicas = || [json!({"delay": 1, "max_rate": 1}), json!({"delay": 2, "max_rate": 2})];
    for (text, expected) in [
        ("BY delay", [0, 1]),
        ("BY delay ASC", [0, 1]),
        ("BY delay DESC", [1, 0]),
        ("BY max_rate", [1, 0]),
        ("BY max_rate asc", [0, 1]),
        ("BY max_rate desc", [1, 0]),
    ] {
        assert_eq!(order(text, replicas(), FilterMode::Demote), expected, "{text}");
    }
}

#[test]
fn the_missing_come_last_in_both_directions() {
    let replicas = || [json!({}), json!({"a": null}), json!({"a": 1}), json!({"a": [0]}), json!({"a": 2})];
    assert_eq!(order("BY a ASC", replicas(), FilterMode::Drop), [2, 4, 0, 1, 3]);
    assert_eq!(order("BY a DESC", replicas(), FilterMode::Drop), [4, 2, 0, 1, 3]);
}

#[test]
fn nan_is_missing() {
    let numbers = [Some(f64::NAN), Some(f64::INFINITY), None, Some(1.0)];
    let candidates = numbers.map(|number| One(number.map(Value::Number)));
    let ranked = statement("BY a WHERE NOT a IS NULL").order(&candidates, &|_| Direction::Max, FilterMode::Demote);
    assert_eq!(ranked.iter().map(|ranked| ranked.index).collect::<Vec<_>>(), [1, 3, 0, 2]);
    assert_eq!(ranked[2], RankedCandidate { index: 0, keys: vec![None], holds: Some(false) });
}

#[test]
fn texts_come_behind_numbers_in_both_directions() {
    let replicas = || [json!({"a": "x"}), json!({"a": "10"}), json!({"a": 9}), json!({"a": "X"}), json!({"a": true})];
    assert_eq!(order("BY a ASC", replicas(), FilterMode::Demote), [4, 2, 1, 3, 0]);
    assert_eq!(order("BY a DESC", replicas(), FilterMode::Demote), [1, 2, 4, 0, 3]);
}

#[test]
fn ties_stay_as_they_were_given() {
    let replicas = || (0..40).map(|index| json!({"a": index % 2, "b": index % 3}));
    let expected: Vec<usize> = (0..40).step_by(2).chain((1..40).step_by(2)).collect();
    assert_eq!(order("BY a", replicas(), FilterMode::Demote), expected);
    assert_eq!(order("BY c DESC", replicas(), FilterMode::Demote), (0..40).collect::<Vec<usize>>());
}

#[test]
fn those_of_which_no_key_is_known_are_ordered_by_the_backup() {
    let replicas = [
        json!({"km": 900}),
        json!({"hops": 3, "km": 1}),
        json!({"km": 20}),
        json!({}),
        json!({"hops": 3, "km": 0}),
        json!({"delay": 7, "km": 5000}),
    ];
    let statement = statement("BY hops, delay").with_backup("km");
    assert_eq!(statement.names().collect::<Vec<_>>(), ["hops", "delay", "km"]);
    let ranked = statement.order(&replicas.map(Candidate), &|_| Direction::Min, FilterMode::Demote);
    let order: Vec<usize> = ranked.iter().map(|ranked| ranked.index).collect();
    assert_eq!(order, [1, 4, 5, 2, 0, 3], "the backup breaks no ties of what is known");
}

#[test]
fn what_is_not_true_is_demoted_or_dropped() {
    let replicas = || {
        [json!({"a": 1}), json!({"a": 4, "c": "EU"}), json!({"a": 0, "c": "NA"}), json!({"a": 3, "c": "EU"}), json!({})]
    };
    assert_eq!(order("BY a WHERE c = 'EU'", replicas(), FilterMode::Demote), [3, 1, 2, 0, 4]);
    assert_eq!(order("BY a WHERE c = 'EU'", replicas(), FilterMode::Drop), [3, 1]);
    assert_eq!(order("BY a WHERE NOT c = 'EU'", replicas(), FilterMode::Drop), [2]);
    assert_eq!(order("BY a", replicas(), FilterMode::Drop), [2, 0, 3, 1, 4]);
}

#[test]
fn not_binds_before_and_before_or() {
    let condition = |text: &str| statement(&format!("BY k WHERE {text}"));
    for (text, same) in [
        ("a=1 OR b=1 AND c=1", "a=1 OR (b=1 AND c=1)"),
        ("a AND b OR c AND d", "(a AND b) OR (c AND d)"),
        ("NOT a=1 AND b=1", "(NOT (a=1)) AND b=1"),
        ("NOT a OR b", "(NOT a) OR b"),
        ("a AND b AND c", "a AND (b AND c)"),
        ("a OR b OR c", "(a OR (b OR c))"),
        ("!a & b | c", "NOT a AND b OR c"),
        ("! a && b || c", "not a and b or c"),
        ("a NOT IN (1)", "NOT a IN (1)"),
        ("a == 1 AND b <> 2", "a = 1 AND b != 2"),
        ("a = \"it's \"\"\"", "a = 'it''s \"'"),
    ] {
        assert_eq!(condition(text), condition(same), "{text}");
    }
    assert_ne!(condition("a=1 OR b=1 AND c=1"), condition("(a=1 OR b=1) AND c=1"));
    assert_eq!(holds("a=1 OR b=1 AND c=1", json!({"a": 1, "b": 0, "c": 0})), Some(true));
    assert_eq!(holds("(a=1 OR b=1) AND c=1", json!({"a": 1, "b": 0, "c": 0})), Some(false));
}

#[test]
fn conditions_have_three_values() {
    let values = || json!({"t": 1, "f": 0, "two": 2, "ten": "10", "eu": "EU", "yes": true, "no": false, "list": [1]});
    let of = |truth: Option<bool>, conditions: &[&str]| {
        for condition in conditions {
            assert_eq!(holds(condition, values()), truth, "{condition}");
        }
    };
    of(Some(true), &["two < ten", "two <= 2", "ten = 10.0", "'10' < '9'", "ten >= two", "eu != 'eu'", "eu > 'E'"]);
    of(Some(true), &["t", "two", "ten", "yes", "yes = TRUE", "yes = t", "NOT no", "1 = t", "TRUE != no"]);
    of(Some(true), &["two IN (1, 2)", "two IN ('x', '2')", "eu NOT IN ('NA', 'AS')", "m IS NULL", "list IS NOT NULL"]);
    of(Some(true), &["m OR t", "t OR m", "NOT (m AND f)", "NOT (f AND m)"]);
    of(Some(false), &["two > ten", "f", "no", "NOT t", "eu IN ('NA')", "eu IS NULL", "m IS NOT NULL"]);
    of(Some(false), &["m AND f", "f AND m", "f OR no"]);
    of(None, &["m", "m = 1", "1 != m", "m = m", "NOT m", "m IN (1)", "m NOT IN (1)", "m AND t", "m OR f"]);
    of(None, &["eu", "eu = 1", "eu < 1", "list", "list = 1", "list = list", "list IN (1)", "eu NOT IN (1, 'NA')"]);
}

#[test]
fn names_may_have_prefixes_and_those_that_are_keywords_must() {
    assert_eq!(holds("src.in = 1 AND dst.by = 2", json!({"src.in": 1, "dst.by": 2})), Some(true));
    assert_eq!(statement("BY delay-ow:p99.9, _x").keys()[0].name, "delay-ow:p99.9");
    assert!("BY in".parse::<Statement>().is_err());
}

#[test]
fn the_canonical_form_is_printed() {
    for (text, canonical) in [
        (
            "by=a desc ,src.b where !(x==1|y in(1,'it''s')) && z is not null",
            "BY a DESC, src.b WHERE NOT (x = 1 OR y IN (1, 'it''s')) AND z IS NOT NULL",
        ),
        ("BY a asc WHERE ((b)) OR (c AND (d OR e))", "BY a ASC WHERE b OR c AND (d OR e)"),
        (
            "BY a WHERE NOT NOT b <> -1e300 OR NOT c IN (true, .5)",
            "BY a WHERE NOT NOT b != -1e300 OR c NOT IN (TRUE, 0.5)",
        ),
    ] {
        assert_eq!(statement(text).to_string(), canonical);
        assert_eq!(statement(canonical), statement(text));
    }
}

#[test]
fn errors_say_where_and_what() {
    for (text, error) in [
        ("", "column 1: expected BY, found the end"),
        ("ORDER a", "column 1: expected BY, found 'ORDER'"),
        ("BY", "column 3: expected a metric or a property, found the end"),
        ("BY a,", "column 6: expected a metric or a property, found the end"),
        ("BY src.", "column 4: expected a metric or a property, found 'src.'"),
        ("BY a b", "column 6: expected ',', WHERE or the end, found 'b'"),
        ("BY größe", "column 6: expected ',', WHERE or the end, found 'ö'"),
        ("BY a WHERE", "column 11: expected a condition, found the end"),
        ("BY a WHERE b = WHERE", "column 16: expected a value after '=', found 'WHERE'"),
        ("BY a WHERE b = 12ab", "column 16: expected a value after '=', found '12ab'"),
        ("BY a WHERE b <= 1e999", "column 17: expected a value after '<=', found '1e999'"),
        ("BY a WHERE b = \"EU", "column 16: expected a closing \", found '\"EU'"),
        ("BY a WHERE b = 'ö' c", "column 20: expected AND, OR or the end, found 'c'"),
        ("BY a WHERE b = 1 = 2", "column 18: expected AND, OR or the end, found '='"),
        ("BY a WHERE (b = 1", "column 18: expected AND, OR or ')', found the end"),
        ("BY a WHERE b = 1)", "column 17: expected AND, OR or the end, found ')'"),
        ("BY a WHERE 1", "column 13: expected a comparison, found the end"),
        ("BY a WHERE b IN 1", "column 17: expected '(' after IN, found '1'"),
        ("BY a WHERE b IN ()", "column 18: expected a number or a quoted text, found ')'"),
        ("BY a WHERE b IN (c)", "column 18: expected a number or a quoted text, found 'c'"),
        ("BY a WHERE b IN (1", "column 19: expected ',' or ')', found the end"),
        ("BY a WHERE b NOT = 1", "column 18: expected IN, found '='"),
        ("BY a WHERE b IS 1", "column 17: expected NULL or NOT NULL, found '1'"),
        ("BY a WHERE b IS NOT 1", "column 21: expected NULL, found '1'"),
    ] {
        assert_eq!(text.parse::<Statement>().unwrap_err().to_string(), error, "{text}");
    }
}

#[test]
fn an_error_repeats_little() {
    let error = format!("BY a {}", "b".repeat(1000)).parse::<Statement>().unwrap_err();
    assert_eq!(error.found, format!("'{}'", "b".repeat(32)));
}

#[test]
fn what_is_too_large_is_refused() {
    let error = |text: String| text.parse::<Statement>().unwrap_err().to_string();
    let name = |length: usize| format!("BY {}", "a".repeat(length - 3));
    assert!(name(MAX_BYTES).parse::<Statement>().is_ok());
    assert_eq!(error(name(MAX_BYTES + 1)), "column 4097: expected at most 4096 bytes, found 4097 bytes");
    assert_eq!(error("ö".repeat(4000)), "column 2049: expected at most 4096 bytes, found 8000 bytes");

    let keys = |count| format!("BY {}", vec!["a"; count].join(","));
    assert!(keys(MAX_KEYS).parse::<Statement>().is_ok());
    assert_eq!(error(keys(MAX_KEYS + 1)), "column 36: expected at most 16 keys, found 'a'");

    let members = |count| format!("BY a WHERE b IN ({})", vec!["1"; count].join(","));
    assert!(members(MAX_MEMBERS).parse::<Statement>().is_ok());
    assert_eq!(error(members(MAX_MEMBERS + 1)), "column 530: expected at most 256 values, found '1'");
}

#[test]
fn nesting_is_bounded() {
    let nested = |depth| format!("BY a WHERE {}b{}", "(".repeat(depth), ")".repeat(depth));
    let error = |text: String| text.parse::<Statement>().unwrap_err().to_string();
    assert_eq!(nested(MAX_DEPTH).parse::<Statement>().unwrap(), statement("BY a WHERE b"));
    let refusal = "column 44: expected at most 32 levels of NOT and parentheses, found '('";
    assert_eq!(error(nested(MAX_DEPTH + 1)), refusal);
    assert_eq!(error(nested(2000)), refusal);

    let negated = |depth| format!("BY a WHERE {}b", "!".repeat(depth));
    assert_eq!(holds(&format!("{}b", "!".repeat(MAX_DEPTH)), json!({"b": 1})), Some(true));
    assert_eq!(error(negated(4000)), refusal.replace("'('", "'!'"));
}

fn any_name() -> impl Strategy<Value = String> {
    prop::sample::select(vec!["a", "delay-ow:p99.9", "src._x", "dst.in"]).prop_map(str::to_owned)
}

fn any_literal() -> impl Strategy<Value = Value> {
    prop_oneof![
        (prop::num::f64::NORMAL | prop::num::f64::ZERO).prop_map(Value::Number),
        prop::collection::vec(prop_oneof![any::<char>(), Just('\''), Just('"')], 0..6)
            .prop_map(|text| Value::Text(text.into_iter().collect::<String>().into())),
        any::<bool>().prop_map(Value::Bool),
    ]
}

fn any_operand() -> impl Strategy<Value = Operand> {
    prop_oneof![any_name().prop_map(Operand::Name), any_literal().prop_map(Operand::Value)]
}

fn any_comparison() -> impl Strategy<Value = Comparison> {
    use Comparison::{Equal, Greater, GreaterOrEqual, Less, LessOrEqual, Unequal};
    prop::sample::select(vec![Equal, Unequal, Less, LessOrEqual, Greater, GreaterOrEqual])
}

fn any_condition() -> impl Strategy<Value = Condition> {
    let leaf = prop_oneof![
        (any_operand(), any_comparison(), any_operand()).prop_map(|(left, comparison, right)| Condition::Compare {
            left,
            comparison,
            right
        }),
        (any_name(), prop::collection::vec(any_literal(), 1..4))
            .prop_map(|(name, values)| Condition::In { name, values }),
        any_name().prop_map(Condition::IsNull),
        any_name().prop_map(Condition::Bare),
    ];
    leaf.prop_recursive(4, 16, 2, |inner| {
        prop_oneof![
            (inner.clone(), inner.clone()).prop_map(|(one, other)| one.and(other)),
            (inner.clone(), inner.clone()).prop_map(|(one, other)| one.or(other)),
            inner.prop_map(|condition| Condition::Not(Box::new(condition))),
        ]
    })
}

fn any_key() -> impl Strategy<Value = Key> {
    let direction = prop::option::of(prop::sample::select(vec![Direction::Min, Direction::Max]));
    (any_name(), direction).prop_map(|(name, direction)| Key { name, direction })
}

/// Texts that resemble statements, including some valid ones.
fn any_text() -> impl Strategy<Value = String> {
    let words = vec![
        "BY", "BY a", "WHERE", "b", "src.", "=", "<>", "!", "&", "OR", "AND", "NOT", "(", ")", ",", "IN", "IN (1",
        "IS", "NULL", "1", "-", "'x'", "'", "\"", "ö", "TRUE", "ASC", " ",
    ];
    let words = prop::collection::vec(prop::sample::select(words), 0..30);
    (any::<bool>(), words).prop_map(|(begins_well, words)| {
        let start = if begins_well { "BY a WHERE " } else { "" };
        format!("{start}{}", words.join(" "))
    })
}

fn check_reading(text: &str) -> Result<(), TestCaseError> {
    match text.parse::<Statement>() {
        Ok(statement) => prop_assert_eq!(statement.to_string().parse::<Statement>(), Ok(statement)),
        Err(error) => prop_assert!((1..=text.chars().count() + 1).contains(&error.column)),
    }
    Ok(())
}

proptest! {
    #[test]
    fn what_is_printed_reads_back(
        keys in prop::collection::vec(any_key(), 1..5),
        condition in prop::option::of(any_condition()),
    ) {
        let statement = Statement { keys, condition, backup: None };
        prop_assert_eq!(statement.to_string().parse::<Statement>(), Ok(statement));
    }

    #[test]
    fn any_text_is_read_or_refused(text in any_text(), characters in prop::collection::vec(any::<char>(), 0..60)) {
        check_reading(&text)?;
        check_reading(&characters.into_iter().collect::<String>())?;
    }

    /// Arbitrary values can be ordered: none is lost, and sorting never detects an inconsistent order.
    #[test]
    fn any_values_have_an_order(values in prop::collection::vec(prop::option::of(any_literal()), 0..50)) {
        let candidates: Vec<One> = values.into_iter().map(One).collect();
        let ranked = statement("BY a, b DESC WHERE a > '5'").order(&candidates, &|_| Direction::Min, FilterMode::Demote);
        let mut indices: Vec<_> = ranked.iter().map(|ranked| ranked.index).collect();
        indices.sort_unstable();
        prop_assert_eq!(indices, (0..candidates.len()).collect::<Vec<_>>());
    }
}
