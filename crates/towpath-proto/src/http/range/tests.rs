#![allow(clippy::single_range_in_vec_init, reason = "lists of ranges are what is tested")]

use proptest::{collection::vec, prelude::*};

use super::*;

fn resolve(value: &str, size: u64) -> Resolution {
    RangeRequest::parse(value).unwrap().resolve(size)
}

#[test]
fn the_examples_of_rfc_9110() {
    // §14.1.2, for a representation of 10000 bytes.
    assert_eq!(resolve("bytes=0-499", 10_000), Resolution::Partial(vec![0..500]));
    assert_eq!(resolve("bytes=500-999", 10_000), Resolution::Partial(vec![500..1000]));
    assert_eq!(resolve("bytes=-500", 10_000), Resolution::Partial(vec![9500..10_000]));
    assert_eq!(resolve("bytes=9500-", 10_000), Resolution::Partial(vec![9500..10_000]));
    assert_eq!(resolve("bytes=0-0,-1", 10_000), Resolution::Partial(vec![0..1, 9999..10_000]));
    let three = "bytes= 0-999, 4500-5499, -1000";
    assert_eq!(resolve(three, 10_000), Resolution::Partial(vec![0..1000, 4500..5500, 9000..10_000]));
    let overlapping = "bytes=500-700,601-999";
    assert_eq!(resolve(overlapping, 10_000), Resolution::Partial(vec![500..701, 601..1000]));
}

#[test]
fn ranges_end_where_the_file_ends() {
    assert_eq!(resolve("bytes=5-100", 10), Resolution::Partial(vec![5..10]));
    assert_eq!(resolve("bytes=-100", 10), Resolution::Partial(vec![0..10]));
    assert_eq!(resolve("bytes=10-20,0-1", 10), Resolution::Partial(vec![0..2]));
    assert_eq!(resolve("bytes=10-", 10), Resolution::Unsatisfiable);
    assert_eq!(resolve("bytes=-0", 10), Resolution::Unsatisfiable);
    assert_eq!(resolve("bytes=0-", 0), Resolution::Unsatisfiable);
    assert_eq!(resolve("bytes=-5", 0), Resolution::Whole);
    assert_eq!(resolve("bytes=0-18446744073709551615", u64::MAX), Resolution::Partial(vec![0..u64::MAX]));
}

#[test]
fn too_many_or_too_often_overlapping_ranges_are_abuse() {
    let many = |count: u64| format!("bytes={}", (0..count).map(|n| format!("{0}-{0},", 2 * n)).collect::<String>());
    assert!(matches!(resolve(&many(1024), 10_000), Resolution::Partial(ranges) if ranges.len() == 1024));
    assert_eq!(resolve(&many(1025), 10_000), Resolution::Abusive);
    assert!(matches!(resolve("bytes=0-,0-,0-", 10), Resolution::Partial(_)));
    assert_eq!(resolve("bytes=0-,0-,0-,0-", 10), Resolution::Abusive);
    assert_eq!(resolve("bytes=0-9,8-8,1-1,5-6", 10), Resolution::Abusive);
}

#[test]
fn what_breaks_the_grammar_is_ignored() {
    for value in [
        "",
        "bytes",
        "bytes=",
        "bytes=,",
        "bytes=-",
        "bytes=a-b",
        "bytes=5-4",
        "bytes=+1-2",
        "bytes=1-2-3",
        "items=0-1",
    ] {
        assert_eq!(RangeRequest::parse(value), None, "{value:?}");
    }
    assert_eq!(RangeRequest::parse("bytes=0-99999999999999999999"), None, "more than 64 bits");
    assert!(RangeRequest::parse("Bytes=0-1").is_some());
    assert_eq!(RangeRequest::new(vec![]), None);
    assert_eq!(RangeRequest::of(5, 0), None);
    assert_eq!(RangeRequest::of(u64::MAX, 2), None);
    assert_eq!(RangeRequest::of(5, 10).unwrap().to_string(), "bytes=5-14");
}

#[test]
fn content_range_is_read_and_written() {
    let part = |first, last, size| Some(ContentRange::Part { first, last, size });
    assert_eq!(ContentRange::parse("bytes 42-1233/1234"), part(42, 1233, Some(1234)));
    assert_eq!(ContentRange::parse("bytes 42-1233/*"), part(42, 1233, None));
    assert_eq!(ContentRange::parse("bytes */1234"), Some(ContentRange::Unsatisfied { size: 1234 }));
    for value in ["", "bytes", "bytes 0-1", "bytes 2-1/9", "bytes 0-9/9", "bytes */*", "bytes -1/9", "chars 0-1/2"] {
        assert_eq!(ContentRange::parse(value), None, "{value:?}");
    }
    assert_eq!(ContentRange::parse("bytes 0-18446744073709551615/*"), None, "its end would be 2^64");
    assert_eq!(ContentRange::part(&(0..0), None), None);
    assert_eq!(ContentRange::part(&(0..5), Some(4)), None);
    let range = ContentRange::part(&(0..5), Some(5)).unwrap();
    assert_eq!((range.offsets(), range.size()), (Some(0..5), Some(5)));
    assert_eq!(range.to_string(), "bytes 0-4/5");
}

fn any_spec() -> impl Strategy<Value = RangeSpec> {
    let between = (any::<u64>(), any::<u64>()).prop_map(|(a, b)| RangeSpec::Between(a.min(b), a.max(b)));
    prop_oneof![between, any::<u64>().prop_map(RangeSpec::From), any::<u64>().prop_map(RangeSpec::Suffix)]
}

proptest! {
    #[test]
    fn requests_round_trip(specs in vec(any_spec(), 1..20)) {
        let request = RangeRequest::new(specs).unwrap();
        prop_assert_eq!(RangeRequest::parse(&request.to_string()), Some(request));
    }

    #[test]
    fn what_is_resolved_lies_in_the_file(specs in vec(any_spec(), 1..20), size: u64) {
        if let Resolution::Partial(ranges) = RangeRequest::new(specs).unwrap().resolve(size) {
            prop_assert!(!ranges.is_empty());
            for range in ranges {
                prop_assert!(range.start < range.end && range.end <= size);
            }
        }
    }

    #[test]
    fn content_ranges_round_trip(start in 0..u64::MAX - 1, length in 1..u64::MAX, more in proptest::option::of(0..99_u64)) {
        let end = start.saturating_add(length).min(u64::MAX - 100);
        prop_assume!(start < end);
        let range = ContentRange::part(&(start..end), more.map(|more| end + more)).unwrap();
        prop_assert_eq!(ContentRange::parse(&range.to_string()), Some(range));
        prop_assert_eq!(range.offsets(), Some(start..end));
    }

    #[test]
    fn no_text_panics(text in "(bytes[= ])?[0-9*/, \\-\\PC]{0,30}") {
        let _ = ContentRange::parse(&text);
        if let Some(request) = RangeRequest::parse(&text) {
            let _ = request.resolve(10);
        }
    }
}

#[test]
fn the_size_is_told_also_by_a_range_that_contradicts_itself() {
    for (field, size) in [
        ("bytes 0-0/7", Some(7)),
        ("bytes 0-99/7", Some(7)),
        ("bytes */0", Some(0)),
        ("bytes 0-0/*", None),
        ("7", None),
    ] {
        assert_eq!(complete_length(field), size, "{field}");
    }
}
