//! TIPS views (RFC 9569).

use super::*;
use towpath_alto::patch::MERGE_PATCH;

fn open(request: &Value, site: &Site, followed: &mut FollowedResponses) -> (View, Value) {
    View::open(request, "https://alto.example.com/tips/1", client(), site.present(), followed).unwrap()
}

fn costs() -> Value {
    json!({ "resource-id": "default-routingcost" })
}

/// A view of costs at their second version.
fn changed() -> (View, FollowedResponses) {
    let mut followed = FollowedResponses::default();
    let (view, _) = open(&costs(), &Site::of(&example()), &mut followed);
    followed.advance(Site::of(&with_other_costs(example())).present());
    (view, followed)
}

fn start_edge(answer: &Value) -> (u64, u64) {
    let edge = &answer["tips-view-summary"]["updates-graph-summary"]["start-edge-rec"];
    (edge["seq-i"].as_u64().unwrap(), edge["seq-j"].as_u64().unwrap())
}

#[test]
fn t1_a_directory_can_say_what_is_on_edges() {
    let site = Site::of(&drawn(&(vec![0; 4], vec![None; 9], 0, 0)));
    let kinds = &view_capabilities(site.directory.resources())["incremental-change-media-types"];
    assert_eq!(kinds["default-routingcost"], MERGE_PATCH);
    assert!(
        kinds.get("path-vector").is_none()
            && uses(site.directory.resources()).iter().any(|id| id.as_str() == "path-vector")
    );
}

#[test]
fn t2_a_view_is_opened() {
    let (_, answer) = open(&costs(), &Site::of(&example()), &mut FollowedResponses::default());
    let graph = json!({ "start-seq": 1, "end-seq": 1, "start-edge-rec": { "seq-i": 0, "seq-j": 1 } });
    let summary = json!({ "updates-graph-summary": graph });
    assert_eq!(answer, json!({ "tips-view-uri": "https://alto.example.com/tips/1", "tips-view-summary": summary }));
}

#[test]
fn t2_who_has_a_version_begins_there() {
    let site = Site::of(&example());
    let mut followed = FollowedResponses::default();
    let who_has = |tag: String| json!({ "resource-id": "default", "tag": tag });
    let old = who_has(site.tag("default"));
    let (view, answer) = open(&old, &site, &mut followed);
    assert_eq!(start_edge(&answer), (1, 2), "what comes next is waited for");
    let site = Site::of(&with_another_prefix(example()));
    followed.advance(site.present());
    let now = who_has(site.tag("default"));
    // The tag in `meta` covers only the map: changes need not apply to the rest of the document.
    let same_map = who_has(site.vtag());
    for (request, edge) in [(&old, (1, 2)), (&now, (2, 3)), (&same_map, (0, 2)), (&who_has("other".into()), (0, 2))] {
        assert_eq!(start_edge(&open(request, &site, &mut followed).1), edge, "{request}");
    }
    assert_eq!((followed.len(), view.resource().as_str()), (1, "default"), "views share the graph");
}

#[test]
fn t2_what_is_wrong_with_a_request_is_named() {
    let refused = |request: Value| {
        let site = Site::of(&example());
        let refusal =
            View::open(&request, "/", client(), site.present(), &mut FollowedResponses::default()).unwrap_err();
        let (code, field, _) = wrong(refusal);
        (code, field)
    };
    assert_eq!(refused(json!({})), (Code::MissingField, "resource-id".into()));
    assert_eq!(refused(json!({ "resource-id": "x" })), (Code::InvalidFieldValue, "resource-id".into()));
    let input = json!({ "resource-id": "default-filtered", "input": { "pids": ["a b"] } });
    assert_eq!(refused(input), (Code::InvalidFieldValue, "input/pids".into()));
}

#[test]
fn t3_edges_are_snapshots_and_changes() {
    let (view, followed) = changed();
    let edge = |from, to| match view.edge(from, to, |_| true, &followed) {
        Ok(Edge::Document(content)) => content,
        other => panic!("{from} to {to}: {other:?}"),
    };
    assert_eq!([edge(0, 1).media_type, edge(0, 2).media_type], [media::COST_MAP; 2]);
    let change = Content {
        media_type: MERGE_PATCH,
        body: br#"{"cost-map":{"PID1":{"PID2":9},"PID3":{"PID1":null,"PID3":1}}}"#.to_vec().into(),
    };
    assert_eq!(edge(1, 2), change);
    assert_eq!(view.edge(2, 3, |_| true, &followed), Ok(Edge::NotYet));
}

#[test]
fn t4_the_next_edge_is_recommended_anew() {
    let (view, followed) = changed();
    let answer = view.recommend(&costs(), &followed).unwrap();
    assert_eq!(answer.media_type, MERGE_PATCH);
    let answer: Value = serde_json::from_slice(&answer.body).unwrap();
    assert_eq!(start_edge(&answer), (0, 2));
    assert!(answer.get("tips-view-uri").is_none(), "it stays where it is");
    for (request, field) in [
        (json!({}), "resource-id"),
        (json!({ "resource-id": "default" }), "resource-id"),
        (json!({ "resource-id": "default-routingcost", "input": {} }), "input"),
    ] {
        let Err(UpdateError::Problem(problem)) = view.recommend(&request, &followed) else {
            panic!("{request} was taken")
        };
        assert_eq!(problem.field.as_deref(), Some(field));
    }
}

#[test]
fn t6_what_is_not_to_be_had_has_a_status() {
    let (view, mut followed) = changed();
    let status = |from, to, followed: &FollowedResponses| {
        let refusal = view.edge(from, to, |media_type| media_type != media::COST_MAP, followed).unwrap_err();
        refusal.status()
    };
    assert_eq!(status(0, 2, &followed), 415);
    assert_eq!(status(3, 4, &followed), 425);
    assert_eq!(status(2, 2, &followed), 404);
    assert_eq!(UpdateError::TooMany.status(), 429);
    followed.advance(Site::of(&json!({})).present());
    assert_eq!(status(0, 2, &followed), 404);
    assert_eq!(view.recommend(&costs(), &followed), Err(UpdateError::Unknown));
}

#[test]
fn t6_old_edges_are_gone() {
    let mut followed = FollowedResponses::new(Limits { versions: 1, ..Limits::default() });
    let (view, _) = open(&costs(), &Site::of(&example()), &mut followed);
    followed.advance(Site::of(&with_other_costs(example())).present());
    for (from, to) in [(0, 1), (1, 2)] {
        assert_eq!(view.edge(from, to, |_| true, &followed).unwrap_err().status(), 410);
    }
}

#[test]
fn edges_have_paths() {
    assert_eq!(edge_numbers("ug/0/101"), Some((0, 101)));
    for path in ["ug/0", "ug/0/", "ug//1", "ug/+1/2", "ug/1/2/3", "/ug/1/2", "ug/-1/0", "ug/1/18446744073709551616"] {
        assert_eq!(edge_numbers(path), None, "{path}");
    }
}
