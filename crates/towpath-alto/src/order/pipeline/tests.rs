use proptest::prelude::*;
use serde_json::json;

use super::*;

fn pipeline(text: &str) -> Pipeline {
    text.parse().unwrap()
}

fn apply(text: &str, json: &serde_json::Value) -> Option<Value> {
    pipeline(text).apply(Value::from_json(json).unwrap())
}

/// Folds the values of `elements`; null is an element without the property.
fn fold(text: &str, elements: &serde_json::Value) -> Option<Value> {
    let aggregate: Aggregate = text.parse().unwrap();
    aggregate.fold(elements.as_array().unwrap().iter().map(Value::from_json))
}

#[test]
fn the_hops_of_a_path_are_the_words_of_its_as_paths() {
    let hops = pipeline("tolist | len");
    let elements = [Some("20965 2091 789"), None, Some("64500,64501")];
    let values = elements.map(|text| text.and_then(|text| hops.apply(Value::Text(text.into()))));
    assert_eq!(Aggregate::Sum.fold(values.into_iter()), Some(Value::Number(5.0)));
}

#[test]
fn functions_give_what_the_table_says() {
    for (text, value, expected) in [
        ("tolist", json!(" a, b\t c,"), json!(["a", "b", "c"])),
        ("tolist", json!(""), json!([])),
        ("tolist", json!([1, [2]]), json!([1, [2]])),
        ("tolist", json!(7), json!([7])),
        ("tolist", json!(true), json!([true])),
        ("len", json!([]), json!(0)),
        ("len", json!([1, "a"]), json!(2)),
        ("int", json!(-1.7), json!(-1)),
        ("int", json!("1.7"), json!(1)),
        ("int", json!(["1.7", 2]), json!([1, 2])),
        ("float", json!("2.5e1"), json!(25)),
        ("float", json!([true]), json!([1])),
        ("scale(0.001)", json!(1500), json!(1.5)),
        ("tolist | scale(-2)", json!("1 2"), json!([-2, -4])),
        ("unique", json!([1, "1", 1.0, "1", true, 0.0, -0.0]), json!([1, "1", true, 0])),
        ("first", json!([[1], 2]), json!([1])),
        ("last", json!([1, "z"]), json!("z")),
        ("min", json!(["10", 9]), json!(9)),
        ("max", json!(["10", 9]), json!(10)),
        ("sum", json!([]), json!(0)),
        ("tolist | unique | len", json!("7 7 8"), json!(2)),
        ("tolist|last|int", json!("7 8.5"), json!(8)),
    ] {
        assert_eq!(apply(text, &value), Value::from_json(&expected), "{text} of {value}");
    }
}

#[test]
fn what_a_function_cannot_take_is_none() {
    for (text, value) in [
        ("len", json!("abc")),
        ("len", json!(3)),
        ("int", json!("abc")),
        ("float", json!(["1", "x"])),
        ("float", json!([[1]])),
        ("scale(2)", json!("inf")),
        ("unique", json!([[1]])),
        ("unique", json!(1)),
        ("first", json!([])),
        ("last", json!("a b")),
        ("min", json!([])),
        ("max", json!(["x"])),
        ("sum", json!(1)),
        ("first | len", json!([1])),
    ] {
        assert_eq!(apply(text, &value), None, "{text} of {value}");
    }
    assert_eq!(pipeline("float").apply(Value::Number(f64::NAN)), None);
    assert_eq!(pipeline("first").apply(Value::List(vec![Value::Number(f64::NAN)])), None);
    assert_eq!(pipeline("scale(0)").apply(Value::Number(f64::INFINITY)), None);
}

#[test]
fn elements_without_the_property_are_left_out() {
    let elements = json!([4, null, "2", 6]);
    for (text, expected) in [("sum", 12.0), ("min", 2.0), ("max", 6.0), ("mean", 4.0), ("count", 3.0)] {
        assert_eq!(fold(text, &elements), Some(Value::Number(expected)), "{text}");
    }
    assert_eq!(fold("list", &elements), Value::from_json(&json!([4, "2", 6])));
}

#[test]
fn of_nothing_there_is_a_sum_and_a_count() {
    for nothing in [json!([]), json!([null])] {
        for text in ["sum", "count"] {
            assert_eq!(fold(text, &nothing), Some(Value::Number(0.0)), "{text}");
        }
        for text in ["min", "max", "mean", "list"] {
            assert_eq!(fold(text, &nothing), None, "{text}");
        }
    }
    assert_eq!(fold("sum", &json!([])).unwrap().to_string(), "0");
}

#[test]
fn a_part_does_not_pass_for_the_whole() {
    let elements = json!([4, "x", [1]]);
    for text in ["sum", "min", "max", "mean"] {
        assert_eq!(fold(text, &elements), None, "{text}");
    }
    assert_eq!(fold("count", &elements), Some(Value::Number(3.0)));
    assert_eq!(fold("list", &elements), Value::from_json(&elements));
}

#[test]
fn errors_say_where_and_what() {
    const FUNCTION: &str = "expected tolist, len, int, float, unique, first, last, min, max, sum or scale(k), found";
    for (text, error) in [
        ("", format!("column 1: {FUNCTION} the end")),
        ("eval", format!("column 1: {FUNCTION} 'eval'")),
        ("tolist |", format!("column 9: {FUNCTION} the end")),
        ("tolist || len", "column 8: expected '|' or the end, found '||'".to_owned()),
        ("tolist OR len", "column 8: expected '|' or the end, found 'OR'".to_owned()),
        ("tolist len", "column 8: expected '|' or the end, found 'len'".to_owned()),
        ("scale", "column 6: expected '(' after scale, found the end".to_owned()),
        ("scale(x)", "column 7: expected a number, found 'x'".to_owned()),
        ("scale(2", "column 8: expected ')', found the end".to_owned()),
    ] {
        assert_eq!(text.parse::<Pipeline>().unwrap_err().to_string(), error);
    }
    for (text, error) in [
        ("avg", "column 1: expected sum, min, max, mean, count or list, found 'avg'"),
        ("sum sum", "column 5: expected the end, found 'sum'"),
    ] {
        assert_eq!(text.parse::<Aggregate>().unwrap_err().to_string(), error);
    }
}

#[test]
fn there_are_at_most_sixteen_functions() {
    assert!(["int"; 16].join("|").parse::<Pipeline>().is_ok());
    let error = ["int"; 17].join("|").parse::<Pipeline>().unwrap_err().to_string();
    assert_eq!(error, "column 65: expected at most 16 functions, found 'int'");
}

#[test]
fn they_are_printed_as_they_are_read() {
    let all = "tolist | len | int | float | unique | first | last | min | max | sum | scale(1e-9)";
    assert_eq!(pipeline(all).to_string(), all);
    for (name, aggregate) in AGGREGATES {
        assert_eq!(name.parse::<Aggregate>().unwrap(), aggregate);
        assert_eq!(aggregate.to_string(), name);
    }
}

#[test]
fn configuration_can_hold_them() {
    assert_eq!(serde_json::from_value::<Pipeline>(json!("tolist|len")).unwrap(), pipeline("tolist | len"));
    assert_eq!(serde_json::from_value::<Aggregate>(json!("mean")).unwrap(), Aggregate::Mean);
    let refusal = serde_json::from_value::<Aggregate>(json!("x")).unwrap_err().to_string();
    assert!(refusal.contains("column 1"), "{refusal}");
}

fn any_value() -> impl Strategy<Value = Value> {
    let text = prop::collection::vec(prop::sample::select(vec!["7", "-1.5", "x", " ", ",", "é"]), 0..6);
    let scalar = prop_oneof![
        any::<f64>().prop_map(Value::Number),
        text.prop_map(|parts| Value::Text(parts.concat().into())),
        any::<bool>().prop_map(Value::Bool),
    ];
    scalar.prop_recursive(3, 16, 4, |inner| prop::collection::vec(inner, 0..4).prop_map(Value::List))
}

fn any_function() -> impl Strategy<Value = Function> {
    let alone = prop::sample::select(FUNCTIONS.map(|(_, function)| function).to_vec());
    prop_oneof![alone, prop::num::f64::NORMAL.prop_map(Function::Scale)]
}

proptest! {
    #[test]
    fn no_value_is_too_odd(
        functions in prop::collection::vec(any_function(), 1..6),
        values in prop::collection::vec(prop::option::of(any_value()), 0..6),
    ) {
        let pipeline = Pipeline(functions);
        prop_assert_eq!(pipeline.to_string().parse::<Pipeline>(), Ok(pipeline.clone()));
        let results: Vec<_> = values.into_iter().map(|value| pipeline.apply(value?)).collect();
        prop_assert!(results.iter().flatten().all(|value| !value.is_missing()));
        for (_, aggregate) in AGGREGATES {
            let folded = aggregate.fold(results.iter().cloned());
            prop_assert!(folded.is_none_or(|value| !value.is_missing()));
        }
    }
}
