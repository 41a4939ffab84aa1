use proptest::prelude::*;
use serde_json::json;

use super::*;

/// The cost map of RFC 8895 with one cost changed, one removed and one added.
#[test]
fn a_cost_map_is_patched_as_in_rfc_8895() {
    let old = json!({ "cost-map": {
        "PID1": { "PID1": 1, "PID2": 5, "PID3": 10 },
        "PID2": { "PID1": 5, "PID2": 1, "PID3": 15 },
        "PID3": { "PID1": 20, "PID2": 15 },
    }});
    let new = json!({ "cost-map": {
        "PID1": { "PID1": 1, "PID2": 9, "PID3": 10 },
        "PID2": { "PID1": 5, "PID2": 1, "PID3": 15 },
        "PID3": { "PID2": 15, "PID3": 1 },
    }});
    let patch = json!({ "cost-map": { "PID1": { "PID2": 9 }, "PID3": { "PID1": null, "PID3": 1 } } });
    assert_eq!(merge_patch(&old, &new), Some(patch.clone()));
    assert_eq!(apply_merge(old.clone(), &patch), new);
    assert_eq!(smallest(&old, &new, AllowedChanges::BOTH), Some(Change::Merge(patch)));
    let operations = json!([
        { "op": "replace", "path": "/cost-map/PID1/PID2", "value": 9 },
        { "op": "remove", "path": "/cost-map/PID3/PID1" },
        { "op": "add", "path": "/cost-map/PID3/PID3", "value": 1 },
    ]);
    assert_eq!(json_patch(&old, &new), operations);
    assert_eq!(apply_json(old, &operations), Ok(new));
}

/// The network map of RFC 8895 with one prefix added.
fn network_maps() -> (Value, Value) {
    let map = |tag: &str, pid1: Value| {
        json!({
            "meta": { "vtag": { "resource-id": "my-network-map", "tag": tag } },
            "network-map": { "PID1": { "ipv4": pid1 }, "PID2": { "ipv4": ["198.51.100.128/25"] } },
        })
    };
    let old = map("da65eca2eb7a10ce8b059740b0b2e3f8eb1d4785", json!(["192.0.2.0/24", "198.51.100.0/25"]));
    let pid1 = json!(["192.0.2.0/24", "198.51.100.0/25", "203.0.113.0/25"]);
    (old, map("a10ce8b059740b0b2e3f8eb1d4785acd42231bfe", pid1))
}

#[test]
fn a_network_map_is_patched_as_in_rfc_8895() {
    let (old, new) = network_maps();
    let operations = json!([
        { "op": "replace", "path": "/meta/vtag/tag", "value": "a10ce8b059740b0b2e3f8eb1d4785acd42231bfe" },
        { "op": "add", "path": "/network-map/PID1/ipv4/2", "value": "203.0.113.0/25" },
    ]);
    assert_eq!(json_patch(&old, &new), operations);
    assert_eq!(Change::Json(operations.clone()).apply(old.clone()), Ok(new));
    // The example in the RFC wraps the operations in an object, which is not a valid patch.
    let wrapped = json!({ "patch": operations });
    assert!(matches!(apply_json(old, &wrapped), Err(PatchError::Malformed(_))));
}

#[test]
fn the_smallest_allowed_change_is_sent() {
    let (old, new) = network_maps();
    let kind = |merge, json| smallest(&old, &new, AllowedChanges { merge, json }).map(|change| change.media_type());
    assert_eq!(kind(false, true), Some(JSON_PATCH));
    assert_eq!(kind(true, false), Some(MERGE_PATCH));
    assert_eq!(kind(false, false), None);
    let prefixes = |count: u32| -> Value { (0..count).map(|n| format!("10.{}.{}.0/24", n / 256, n % 256)).collect() };
    let (few, many) = (json!({ "ipv4": prefixes(999) }), json!({ "ipv4": prefixes(1000) }));
    assert_eq!(smallest(&few, &many, AllowedChanges::BOTH).map(|change| change.media_type()), Some(JSON_PATCH));
    assert_eq!(smallest(&json!({ "a": 1 }), &json!({ "b": 1 }), AllowedChanges::BOTH), None);
    assert_eq!(smallest(&many, &many, AllowedChanges::BOTH), Some(Change::Merge(json!({}))));
}

#[test]
fn a_merge_patch_carries_no_null() {
    let old = json!({ "a": { "b": 1, "n": null } });
    for new in [json!({ "a": { "b": null } }), json!({ "a": { "b": { "c": { "d": null } } } }), json!({ "c": null })] {
        assert_eq!(merge_patch(&old, &new), None, "{new}");
        assert_eq!(apply_json(old.clone(), &json_patch(&old, &new)), Ok(new));
    }
    // An unchanged `null`, or one within an array, need not be a member of the patch.
    assert_eq!(merge_patch(&old, &json!({ "a": { "b": 2, "n": null } })), Some(json!({ "a": { "b": 2 } })));
    let in_array = json!({ "a": [null, { "b": null }] });
    assert_eq!(merge_patch(&old, &in_array), Some(in_array.clone()));
    assert_eq!(apply_merge(old, &in_array), in_array);
    assert_eq!(merge_patch(&json!({}), &Value::Null), Some(Value::Null));
}

#[test]
fn a_few_elements_of_a_long_array_are_a_few_operations() {
    let prefix = |n: u32| format!("10.{}.{}.0/24", n / 256, n % 256);
    let old: Value = (0..10_000).map(prefix).collect();
    let with_more = |n: u32| {
        let more = [10, 5000].contains(&n).then(|| format!("2001:db8:{n}::/48"));
        std::iter::once(prefix(n)).chain(more)
    };
    let new: Value = (0..10_000).filter(|n| *n != 7000).flat_map(with_more).collect();
    let patch = json_patch(&old, &new);
    assert_eq!(
        patch,
        json!([
            { "op": "add", "path": "/11", "value": "2001:db8:10::/48" },
            { "op": "add", "path": "/5002", "value": "2001:db8:5000::/48" },
            { "op": "remove", "path": "/7002" },
        ])
    );
    assert_eq!(apply_json(old, &patch), Ok(new));
}

#[test]
fn arrays_of_one_length_are_compared_within() {
    let (old, new) = (json!({ "a": [[1, 2], { "b": 3 }] }), json!({ "a": [[1, 2, 4], { "b": 5 }] }));
    let operations = json!([
        { "op": "add", "path": "/a/0/2", "value": 4 },
        { "op": "replace", "path": "/a/1/b", "value": 5 },
    ]);
    assert_eq!(json_patch(&old, &new), operations);
}

#[test]
fn pointers_are_escaped() {
    let (old, new) = (json!({ "a/b": 1, "~1": { "": 1 } }), json!({ "a/b": 2, "~1": {} }));
    let operations = json!([
        { "op": "replace", "path": "/a~1b", "value": 2 },
        { "op": "remove", "path": "/~01/" },
    ]);
    assert_eq!(json_patch(&old, &new), operations);
    assert_eq!(apply_json(old, &operations), Ok(new));
    assert_eq!(json_patch(&json!(1), &json!(2)), json!([{ "op": "replace", "path": "", "value": 2 }]));
}

#[test]
fn what_does_not_fit_is_refused() {
    let refused = |patch: Value| apply_json(json!({ "a": { "b": 1 } }), &patch).unwrap_err();
    let fits = json!({ "op": "test", "path": "/a/b", "value": 1 });
    for unfit in [
        json!({ "op": "remove", "path": "/c" }),
        json!({ "op": "test", "path": "/a/b", "value": 2 }),
        json!({ "op": "add", "path": "/c/d", "value": 2 }),
        json!({ "op": "move", "path": "/a/b/c", "from": "/a" }),
    ] {
        assert!(matches!(refused(json!([fits, unfit])), PatchError::Unfit { position: 1, .. }), "{unfit}");
    }
    for malformed in [json!(null), json!([{ "op": "increase", "path": "/a" }]), json!([{ "op": "add", "path": "a" }])] {
        assert!(matches!(refused(malformed), PatchError::Malformed(_)));
    }
    let message = refused(json!([{ "op": "remove", "path": "/c" }])).to_string();
    assert_eq!(message, "operation 0 of the server's patch, at '/c', does not fit the document: path is invalid");
}

/// The crate that applies patches panics while rolling this back.
#[test]
fn a_failure_after_a_member_took_its_parents_place_is_an_error() {
    let patch = json!([{ "op": "move", "from": "/a/b", "path": "/a" }, { "op": "remove", "path": "/x" }]);
    let unfit = apply_json(json!({ "a": { "b": 1 } }), &patch);
    assert!(matches!(unfit, Err(PatchError::Unfit { position: 1, .. })));
}

#[test]
fn copies_are_bounded() {
    let doubled: Value = (0..40).map(|_| json!({ "op": "copy", "from": "", "path": "/-" })).collect();
    assert!(matches!(apply_json(json!([]), &doubled), Err(PatchError::TooLarge { .. })));
    let longer = format!("{}x", "/a".repeat(100));
    let value = json!({ "op": "add", "path": longer, "value": 1 });
    assert!(matches!(apply_json(json!({}), &json!([value])), Err(PatchError::Unfit { .. })));
    let deep = (0..128).fold(json!(1), |inner, _| json!([inner]));
    let patch = json!([{ "op": "add", "path": "/a", "value": deep }]);
    assert_eq!(apply_json(json!({}), &patch), Err(PatchError::TooLarge { position: 0 }));
}

#[test]
fn kinds_are_named_by_media_type() {
    for (list, allowed) in [
        ("", AllowedChanges::default()),
        (MERGE_PATCH, AllowedChanges { merge: true, json: false }),
        (JSON_PATCH, AllowedChanges { merge: false, json: true }),
        ("application/merge-patch+json,application/json-patch+json", AllowedChanges::BOTH),
    ] {
        assert_eq!(allowed.to_string(), list);
    }
    assert_eq!(Change::of(MERGE_PATCH, json!({})), Some(Change::Merge(json!({}))));
    assert_eq!(Change::of(JSON_PATCH, json!([])).map(|change| change.media_type()), Some(JSON_PATCH));
    assert_eq!(Change::of("application/json", json!({})), None);
}

/// Small trees with few names, so that two of them have much in common.
fn document() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (0..4_i64).prop_map(Value::from),
        "[a~/]{0,2}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 40, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::btree_map("[a~/]{0,1}", inner, 0..4)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

fn numbers() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(0..9_u8, 0..12)
}

proptest! {
    #[test]
    fn a_merge_patch_makes_the_new_of_the_old(old in document(), new in document()) {
        match merge_patch(&old, &new) {
            Some(patch) => prop_assert_eq!(apply_merge(old, &patch), new),
            None => prop_assert!(!is_mergeable(&new)),
        }
    }

    #[test]
    fn a_json_patch_makes_the_new_of_the_old(old in document(), new in document()) {
        let patch = json_patch(&old, &new);
        prop_assert_eq!(patch == json!([]), old == new);
        prop_assert_eq!(apply_json(old, &patch), Ok(new));
    }

    #[test]
    fn arrays_become_each_other((old, new) in (numbers(), numbers())) {
        let (old, new) = (Value::from(old), Value::from(new));
        prop_assert_eq!(apply_json(old.clone(), &json_patch(&old, &new)), Ok(new));
    }

    #[test]
    fn the_smallest_change_is_a_change(old in document(), new in document()) {
        if let Some(change) = smallest(&old, &new, AllowedChanges::BOTH) {
            prop_assert!(change.value().to_string().len() < new.to_string().len());
            prop_assert_eq!(change.apply(old), Ok(new));
        }
    }

    #[test]
    fn no_patch_panics(old in document(), patch in document(), from in "(/[a0-]){0,3}", path in "(/[a0-]){0,3}") {
        apply_merge(old.clone(), &patch);
        for op in ["add", "remove", "replace", "move", "copy", "test"] {
            let operation = json!({ "op": op, "from": from, "path": path, "value": patch });
            let last = json!({ "op": "remove", "path": "/nothing" });
            prop_assert!(apply_json(old.clone(), &json!([operation, operation, last])).is_err());
        }
        let _ = apply_json(old, &patch);
    }
}
