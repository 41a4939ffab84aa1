//! Documents that contain less than their predecessors.

use super::*;

fn agent(text: &str) -> AgentConfig {
    toml::from_str(text).unwrap()
}

/// What an agent knew before its first or a later reading.
fn before(is_first: bool) -> PreviousData {
    if is_first { PreviousData::Nothing } else { PreviousData::Something }
}

/// Returns the number of routers in the facts.
fn routes(reading: Result<ReadOutcome, String>) -> Result<usize, String> {
    match reading?.agent_data {
        AgentData::AgentState(facts) => {
            let tables = facts.routers.values().filter_map(|router| router.routes.as_ref());
            Ok(tables.map(|table| table.len()).sum())
        }
        AgentData::Results(_) => panic!("these are no facts"),
    }
}

/// A record of `TABLE_DUMP_V2`.
fn record(subtype: u8, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len()).unwrap();
    [&[0, 0, 0, 1, 0, 13, 0, subtype][..], &length.to_be_bytes(), body].concat()
}

/// A table of one peer with routes to 10.1.0.0/16 and 10.2.0.0/16.
fn table() -> Vec<u8> {
    let peers = [[10, 0, 0, 1], [0, 0, 0, 1], [2, 10, 0, 0], [1, 192, 0, 2], [1, 0, 0, 251]].concat();
    let peers = [&peers[..], &[244]].concat();
    let attributes = [&[0x40, 1, 1, 0, 0x40, 2, 6, 2, 1, 0, 0, 251, 244][..], &[0x40, 3, 4, 192, 0, 2, 1]].concat();
    let route = |second: u8| {
        let head = [0, 0, 0, 0, 16, 10, second, 0, 1, 0, 0, 0, 0, 0, 0, 0, u8::try_from(attributes.len()).unwrap()];
        record(2, &[&head[..], &attributes].concat())
    };
    [record(1, &peers), route(1), route(2)].concat()
}

#[test]
fn a_table_that_is_not_whole_takes_the_place_of_nothing_else() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let agent = agent(&format!("kind = 'mrt'\nfiles = ['{}']", file.path().display()));
    let read = |bytes: &[u8], is_first| {
        disk::write(file.path(), bytes).unwrap();
        routes(agent.read(Vec::new(), &before(is_first)))
    };
    let table = table();
    assert_eq!(read(&table, false), Ok(2));
    let cut = &table[..table.len() - 1];
    assert_eq!(read(cut, true), Ok(1));
    assert!(read(cut, false).unwrap_err().contains("it is truncated within a table"));
}

#[test]
fn a_document_without_any_sample_takes_the_place_of_nothing_else() {
    let agent = agent("kind = 'measurements'\nfiles = ['http://h/results']");
    let read = |text: &str, is_first| {
        let content = Content::Bytes(text.as_bytes().to_vec());
        agent.read(vec![SourceResponse { source: "http://h/results".into(), content }], &before(is_first))
    };
    let iperf3 = r#"{"start": {"connected": [], "version": "iperf 3.16"}, "error": "unable to connect to server"}"#;
    for failed in [iperf3, r#"{"detail": "Throttled"}"#] {
        assert!(read(failed, true).is_ok());
        let trouble = read(failed, false).unwrap_err();
        assert!(trouble.starts_with("http://h/results: record 1: "), "{trouble}");
    }
    assert!(read("[]", false).is_ok(), "nothing is wrong with that");
    assert!(
        read("src,dst,metric,value\n192.0.2.1,192.0.2.2,delay-ow,far\n192.0.2.1,192.0.2.2,delay-ow,7", false).is_ok()
    );
}

#[test]
fn what_is_wrong_with_a_document_keeps_no_results_of_others_away() {
    let agent = agent("kind = 'measurements'\nfiles = ['http://h/a', 'http://h/b']");
    let content = |text: &str| Content::Bytes(text.as_bytes().to_vec());
    let csv = |dst: u8, delay: u8| content(&format!("src,dst,metric,value\n192.0.2.1,192.0.2.{dst},delay-ow,{delay}"));
    let read = |contents: [Content; 2], before: &PreviousData| {
        let responses = contents.map(|content| SourceResponse { source: "http://h/".into(), content });
        let ReadOutcome { agent_data, trouble } = agent.read(responses.into(), before)?;
        let AgentData::Results(results) = agent_data else { panic!("these are no results") };
        Ok::<_, String>((results, trouble))
    };
    let delays = |results: &Results| -> Vec<String> {
        let costs = results.facts(&Pids::new()).costs;
        costs.iter().map(|costs| format!("{} {:?}", costs.dst.0, costs.values.get("delay-ow"))).collect()
    };
    let failed = || content(r#"{"error": "unable to connect to server"}"#);
    assert!(read([csv(2, 7), failed()], &PreviousData::Something).is_err(), "nothing is known that could stand in");
    let (both, trouble) = read([csv(2, 7), csv(3, 8)], &PreviousData::Nothing).unwrap();
    assert_eq!(trouble, None);
    let expected = read([csv(2, 9), csv(3, 8)], &PreviousData::Nothing).unwrap().0;
    assert_ne!(delays(&both), delays(&expected));
    for fault in [failed(), content("Bad Gateway"), Content::Missing("http://h/: 404 Not Found".into())] {
        let (results, trouble) = read([csv(2, 9), fault], &PreviousData::Results(both.clone())).unwrap();
        assert_eq!(delays(&results), delays(&expected));
        assert!(trouble.unwrap().starts_with("http://h/: "));
    }
    assert!(read([failed(), failed()], &PreviousData::Results(both)).is_err(), "nothing was read");
}

#[test]
fn a_looking_glass_that_is_busy_takes_no_route_away() {
    let agent = agent("kind = 'looking-glass'\nurl = 'http://h/lg'\nrouter = 'r'\nqueries = ['a', 'b']");
    let read_both = |texts: [&str; 2], is_first| {
        let response = |text: &str| SourceResponse {
            source: "http://h/lg".into(),
            content: Content::Bytes(format!("<pre>{text}</pre>").into_bytes()),
        };
        routes(agent.read(texts.map(response).into(), &before(is_first)))
    };
    let junos = "192.0.2.0/24 *[BGP/170] 1d\n AS path: 1 I\n > to 192.0.2.1 via x";
    let read = |second: &str, is_first| read_both([junos, second], is_first);
    assert_eq!(read("% Network not in table", false), Ok(1));
    assert_eq!(read("too many queries", true), Ok(1));
    assert!(read("too many queries", false).unwrap_err().contains("unknown router output"));
    assert_eq!(read("", false), Ok(1), "Junos prints nothing where it has no route");
    assert_eq!(read_both(["\n", junos], false), Ok(1));
    let bird = "192.0.2.0/24 unicast [up 1d] * (100) [AS1i]\n\tvia 192.0.2.1 on x\n\tBGP.as_path: 1";
    assert_eq!(read_both([bird, "Network not found"], false), Ok(1));
    assert_eq!(read_both([bird, ""], true), Ok(1));
    assert!(read_both([bird, ""], false).unwrap_err().contains("printed nothing"));
}
