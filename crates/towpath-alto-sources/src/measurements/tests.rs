use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::*;
use towpath_alto::network_state::NetworkState;

/// The network map that defines the PIDs used in these tests.
const MAP: &str = r#"
    [network-map.default]
    CERN-PROD = ["192.0.2.0/24"]
    IN2P3_CC = ["198.51.100.0/24"]
    elsewhere = ["0.0.0.0/0", "::/0"]
"#;

const CSV: &str = "\u{feff}# the run at noon
src, dst, metric, value, time, remark

192.0.2.1,198.51.100.0/24,delay-ow,5300,2026-01-31T12:00:00Z,\"a, b\"
\"192.0.2.1\", 198.51.100.0/24 ,delay-ow,\"5100\",2026-01-31T11:00:00Z,
CERN-PROD,IN2P3 CC,tput,1.25e9,,\r
2001:db8::1,2001:db8::2,priv:score,3,1769860800,
";

const LINES: &str = r#"
# the run at noon
{"src": "192.0.2.1", "dst": "198.51.100.0/24", "metric": "delay-ow", "value": 5300, "time": "2026-01-31T12:00:00Z"}
{"src": "192.0.2.1", "dst": "198.51.100.0/24", "metric": "delay-ow", "value": "5100", "time": 1769857200}
{"src": "CERN-PROD", "dst": "IN2P3 CC", "metric": "tput", "value": 1.25e9, "time": null, "tool": {"name": "x"}}
{"src": "2001:db8::1", "dst": "2001:db8::2", "metric": "priv:score", "value": 3, "time": "1769860800"}
"#;

/// Output of iperf 3.9, shortened.
const IPERF3: &str = r#"{
	"start":	{
		"connected":	[{ "socket": 5, "local_host": "192.0.2.1", "local_port": 44582,
				"remote_host": "::ffff:198.51.100.7", "remote_port": 5201 },
			{ "socket": 7, "local_host": "192.0.2.99", "remote_host": "198.51.100.99" }],
		"version":	"iperf 3.9",
		"timestamp":	{ "time": "Sat, 31 Jan 2026 12:00:00 UTC", "timesecs": 1769860800 },
		"test_start":	{ "protocol": "TCP", "num_streams": 2, "omit": 0, "duration": 10, "reverse": 0 }
	},
	"intervals":	[{ "streams": [{ "socket": 5, "bits_per_second": 1.0, "rtt": 4180 }], "sum": { "bits_per_second": 2 } }],
	"end":	{
		"streams":	[{ "sender": { "socket": 5, "bits_per_second": 4.7e9, "mean_rtt": 15300 }, "receiver": {} },
			{ "sender": { "socket": 7, "mean_rtt": 99999 } }],
		"sum_sent":	{ "seconds": 10.0, "bytes": 11750000000, "bits_per_second": 9.4e9, "retransmits": 12 },
		"sum_received":	{ "bits_per_second": 9.3e9 }
	}
}
"#;

const PERFSONAR: &str = r#"[
    { "source": "192.0.2.1", "destination": "198.51.100.7", "event_type": "throughput", "tool-name": "iperf3",
      "value": [{ "ts": 1769860800, "val": 8e9 }, { "ts": 1769871600, "val": 1.6e10 }] },
    { "source": "192.0.2.1", "destination": "198.51.100.7", "event-type": "packet-loss-rate", "value": 0.25 },
    { "source": "192.0.2.1", "destination": "198.51.100.7", "event-type": "histogram-owdelay",
      "value": [{ "ts": 200, "val": { "13.5": 1, "12.5": 1 } }, { "ts": 100, "val": { "14.5": 2 } }] },
    { "source": "192.0.2.1", "destination": "198.51.100.7", "event-type": "histogram-rtt", "val": { "25": 1 } },
    { "source": "192.0.2.1", "destination": "198.51.100.7", "event-type": "packet-retransmits", "val": 12, "ts": 7 },
    { "source": "192.0.2.1", "destination": "198.51.100.7", "event-type": "packet-trace", "value": [{ "val": [] }] }
]"#;

const PROBE: &str = r#"{"a_further_file":null,"min_rtt_s":0.1,"network":[
    {"bytes":1,"connections":4,"direction":"down","explained":{"verdict":null},"mean_rtt_s":0.3,"min_rtt_s":0.25,
     "rate_bytes_per_s":93000000.0,"settled_rate_bytes_per_s":113000000.0},
    {"connections":4,"direction":"up","min_rtt_s":null,"rate_bytes_per_s":91000000.0}],
    "not_measured":[],"predictions":[],"server":"towpath/0.1.0","storage":[{"leg":"storage read"}],
    "url":"root://198.51.100.7:1094//run7/f.root","verdicts":{}}
"#;

fn parse(document: &str) -> Measurements {
    Measurements::parse(document.as_bytes(), None).unwrap()
}

/// Returns the resulting costs by ends and metrics, after checking that a network state can be built from them.
fn costs(measurements: &Measurements) -> Value {
    let map = ResourceId::new("default").unwrap();
    let (facts, _) = measurements.facts(&map);
    assert_eq!(NetworkState::of([&AgentState::parse(MAP).unwrap(), &facts]).map(drop), Ok(()));
    let mut by_ends: BTreeMap<String, Map<String, Value>> = BTreeMap::new();
    for costs in &facts.costs {
        let values = costs.values.iter().map(|(metric, cost)| (metric.to_string(), json!(cost.value())));
        by_ends.entry(format!("{} {}", costs.src.0, costs.dst.0)).or_default().extend(values);
    }
    for (metric, rows) in facts.cost_map.values().flatten() {
        for (src, dst, cost) in rows.iter().flat_map(|(src, row)| row.iter().map(move |(dst, cost)| (src, dst, cost))) {
            by_ends.entry(format!("{src} {dst}")).or_default().insert(metric.to_string(), json!(cost.value()));
        }
    }
    json!(by_ends)
}

fn costs_in(document: &str) -> Value {
    costs(&parse(document))
}

/// Returns the number of skipped samples and the reason for the first.
fn skipped_samples(document: &str) -> (u64, String) {
    let skipped_samples = parse(document).skipped_samples().clone();
    (skipped_samples.skipped, skipped_samples.first.unwrap_or_default())
}

/// The costs described by [`CSV`] and [`LINES`].
fn noon() -> Value {
    json!({
        "192.0.2.1/32 198.51.100.0/24": {
            "delay-ow": 5200.0, "delay-ow:cur": 5300.0, "delay-ow:min": 5100.0, "delay-ow:max": 5300.0,
            "delay-ow:median": 5200.0, "delay-ow:mean": 5200.0, "delay-ow:stddev": 100.0, "delay-ow:p95": 5300.0,
        },
        "2001:db8::1/128 2001:db8::2/128": { "priv:score": 3.0, "priv:score:cur": 3.0 },
        "CERN-PROD IN2P3_CC": { "tput": 1.25e9, "tput:cur": 1.25e9 },
    })
}

#[test]
fn tables_are_read() {
    assert_eq!(costs_in(CSV), noon());
    assert_eq!(parse(CSV).skipped_samples(), &SkippedSamples::default());
    let hops = json!({ "192.0.2.1/32 192.0.2.2/32": { "hopcount": 1.0, "hopcount:cur": 1.0 } });
    assert_eq!(costs_in("value,METRIC,dst,src\n1,hopcount,192.0.2.2,192.0.2.1"), hops);
}

#[test]
fn objects_are_read_in_lines_and_arrays() {
    assert_eq!(costs_in(LINES), noon());
    assert_eq!(parse(LINES).skipped_samples(), &SkippedSamples::default());
    let objects: Vec<&str> = LINES.lines().filter(|line| line.starts_with('{')).collect();
    assert_eq!(costs_in(&format!("[{}]", objects.join(",\n"))), noon());
    assert_eq!(costs_in(&objects.join(" ")), noon());
    assert_eq!(costs_in(&objects.join("").replace("\", \"", "\",\n\"")), noon());
}

#[test]
fn values_may_be_lists() {
    let list = r#"{"src": "a", "dst": "b", "metric": "hopcount", "value": [3, {"ts": 9, "val": 5}, "4"]}"#;
    let measurements = parse(list);
    assert_eq!((measurements.len(), measurements.is_empty()), (3, false));
    let map = ResourceId::new("m").unwrap();
    let (facts, _) = measurements.facts(&map);
    let [median, newest] = ["hopcount", "hopcount:cur"].map(|metric| facts.cost_map["m"][metric]["a"]["b"].value());
    assert_eq!((median, newest), (4.0, 5.0));
}

#[test]
fn q1_iperf3_over_tcp_tells_throughput_and_delay() {
    let expected = json!({ "192.0.2.1/32 198.51.100.7/32": {
        "tput": 1.175e9, "tput:cur": 1.175e9, "delay-rt": 15300.0, "delay-rt:cur": 15300.0,
    } });
    assert_eq!(costs_in(IPERF3), expected);
    assert_eq!(skipped_samples(IPERF3), (0, String::new()));
    let reverse = costs_in(&IPERF3.replace("\"reverse\": 0", "\"reverse\": 1").replace("15300", "0"));
    assert_eq!(reverse, json!({ "198.51.100.7/32 192.0.2.1/32": { "tput": 1.175e9, "tput:cur": 1.175e9 } }));
}

#[test]
fn q2_several_runs_of_iperf3_become_statistics() {
    let later = IPERF3.replace("1769860800", "1769870000").replace("9.4e9", "8e9");
    let result = costs_in(&format!("{later}{IPERF3}"));
    let costs = &result["192.0.2.1/32 198.51.100.7/32"];
    assert_eq!([&costs["tput"], &costs["tput:cur"], &costs["tput:max"]], [1.0875e9, 1e9, 1.175e9]);
}

#[test]
fn iperf3_over_udp_tells_jitter_and_loss() {
    let udp = IPERF3.replace("\"TCP\"", "\"UDP\"").replace("\"mean_rtt\"", "\"none\"").replace(
        "\"sum_received\"",
        "\"sum\": { \"bits_per_second\": 1e9, \"jitter_ms\": 0.5, \"lost_percent\": 1.5 }, \"sum_received\"",
    );
    let expected = json!({ "192.0.2.1/32 198.51.100.7/32": {
        "delay-variation": 500.0, "delay-variation:cur": 500.0, "lossrate": 1.5, "lossrate:cur": 1.5,
    } });
    assert_eq!(costs_in(&udp), expected);
}

#[test]
fn a_run_of_iperf3_that_failed_is_skipped() {
    let failed = r#"{ "start": { "connected": [], "version": "iperf 3.9" }, "intervals": [], "end": {},
        "error": "error - unable to connect to server: Connection refused" }"#;
    let reason = "record 1: nothing was measured: error - unable to connect to server: Connection refused";
    assert_eq!(skipped_samples(failed), (1, reason.into()));
}

#[test]
fn q1_archives_of_perfsonar_are_converted() {
    let expected = json!({ "192.0.2.1/32 198.51.100.7/32": {
        "tput": 1.5e9, "tput:cur": 2e9, "tput:min": 1e9, "tput:max": 2e9, "tput:median": 1.5e9, "tput:mean": 1.5e9,
        "tput:stddev": 0.5e9, "tput:p95": 2e9,
        "lossrate": 25.0, "lossrate:cur": 25.0,
        "delay-ow": 14000.0, "delay-ow:cur": 13000.0, "delay-ow:min": 12500.0, "delay-ow:max": 14500.0,
        "delay-ow:median": 14000.0, "delay-ow:mean": 13750.0, "delay-ow:p95": 14500.0,
        "delay-rt": 25000.0, "delay-rt:cur": 25000.0,
        "priv:retransmits": 12.0, "priv:retransmits:cur": 12.0,
    } });
    let mut result = costs_in(PERFSONAR);
    let deviation = result["192.0.2.1/32 198.51.100.7/32"].as_object_mut().unwrap().remove("delay-ow:stddev");
    assert!((deviation.unwrap().as_f64().unwrap() - 829.1562).abs() < 1e-3);
    assert_eq!(result, expected);
    assert_eq!(skipped_samples(PERFSONAR), (1, "record 6: perfSONAR's 'packet-trace' is not supported".into()));
}

/// Messages that perfSONAR publishes to a queue.
#[test]
fn q1_messages_of_perfsonar_are_read() {
    let meta = r#""meta": { "source": "192.0.2.1", "input_source": "a.example.org", "destination": "198.51.100.7",
        "input_destination": "b.example.org", "measurement_agent": "192.0.2.1", "org_metadata_key": "81e4" }"#;
    let loss = format!(r#"{{ "event-type": "packet-loss-rate", {meta}, "datapoints": {{ "1769860800": 0.25 }} }}"#);
    let delay = format!(
        r#"{{ "headers": {{ "event-type": "histogram-owdelay" }}, {meta},
            "datapoints": {{ "200": {{ "13.5": 1 }}, "100": {{ "14.5": 2, "15": "x" }} }} }}"#
    );
    let expected = json!({ "192.0.2.1/32 198.51.100.7/32": { "lossrate": 25.0, "lossrate:cur": 25.0 } });
    assert_eq!(costs_in(&loss), expected);
    let result = &costs_in(&delay)["192.0.2.1/32 198.51.100.7/32"];
    assert_eq!([&result["delay-ow:cur"], &result["delay-ow:max"]], [13500.0, 14500.0]);
    assert_eq!(skipped_samples(&delay).0, 1);
}

#[test]
fn q1_pages_of_an_archive_of_perfsonar_are_read_if_it_is_known_of_what() {
    let page = r#"[{ "ts": 1769860800, "val": 8e9 }, { "ts": 1769871600, "val": 1.6e10 }]"#;
    let ends = MeasurementContext {
        source: Some("192.0.2.1"),
        destination: Some("198.51.100.7"),
        ..MeasurementContext::default()
    };
    let read = |document: &str, context| Measurements::parse_in_context(document.as_bytes(), None, context).unwrap();
    let page = read(page, MeasurementContext { event: Some("throughput"), ..ends });
    assert_eq!(costs(&page)["192.0.2.1/32 198.51.100.7/32"]["tput:cur"], 2e9);
    assert_eq!(page.skipped_samples(), &SkippedSamples::default());
    let other = read(PERFSONAR, MeasurementContext { source: Some("192.0.2.9"), event: Some("throughput"), ..ends });
    assert_eq!(costs(&other), costs_in(PERFSONAR), "what the document says holds");
    let listing = r#"[{ "source": "192.0.2.1", "destination": "198.51.100.7", "event-types": [
        { "base-uri": "/esmond/perfsonar/archive/f6b7/throughput/base", "event-type": "throughput", "summaries": [] }] }]"#;
    assert!(skipped_samples(listing).1.contains("name the pages at its base-uri"));
}

#[test]
fn a_probe_is_of_the_place_where_it_was_made() {
    let probe = |here| {
        Measurements::parse_in_context(
            PROBE.as_bytes(),
            None,
            MeasurementContext { here, ..MeasurementContext::default() },
        )
        .unwrap()
    };
    let expected = json!({
        "198.51.100.7/32 192.0.2.1/32": {
            "tput": 93e6, "tput:cur": 93e6, "delay-rt": 250_000.0, "delay-rt:cur": 250_000.0,
        },
        "192.0.2.1/32 198.51.100.7/32": { "tput": 91e6, "tput:cur": 91e6 },
    });
    assert_eq!(costs(&probe(Some("192.0.2.1"))), expected);
    let reason = |here| probe(here).skipped_samples().first.clone().unwrap_or_default();
    assert_eq!(reason(None), "record 1: the output of towpath probe does not name its local end: set it with `here`");
    assert_eq!(reason(Some("CERN-PROD")), "record 1: one end is an address and the other a name");
    let unmeasured = skipped_samples(r#"{"url": "root://h//f", "network": [], "storage": []}"#);
    assert_eq!(unmeasured.0, 1);
}

#[test]
fn q2_bandwidth_is_told_by_its_newest_sample() {
    let table = "src,dst,metric,value,time\na,b,bw-available,1,9\na,b,bw-available,2,8\na,b,bw-available,3,7\n";
    let map = ResourceId::new("m").unwrap();
    let (facts, _) = parse(table).facts(&map);
    let cost = |metric: &str| facts.cost_map["m"][metric]["a"]["b"].value();
    assert_eq!(["bw-available", "bw-available:cur", "bw-available:median"].map(cost), [1.0, 1.0, 2.0]);
}

#[test]
fn samples_that_do_not_fit_are_skipped() {
    for (line, reason) in [
        ("192.0.2.1,192.0.2.2,delay-ow,-1", "-1 is not a valid value: expected a number of 0 or more"),
        ("192.0.2.1,192.0.2.2,delay-ow,NaN", "NaN is not a valid value"),
        ("192.0.2.1,192.0.2.2,delay-ow,inf", "inf is not a valid value"),
        ("192.0.2.1,192.0.2.2,lossrate,101", "101 is not a valid value"),
        ("192.0.2.1,192.0.2.2,delay-ow,", "there is no value"),
        ("192.0.2.1,192.0.2.2,delay-ow,5 ms", "'5 ms' is not a number"),
        ("192.0.2.1,192.0.2.2,delay,1", "'delay' is not a metric of RFC 9439"),
        ("192.0.2.1,192.0.2.2,priv:,1", "'priv:' is not a metric of RFC 9439"),
        ("192.0.2.1,192.0.2.2,delay-ow:p95,1", "'delay-ow:p95' is not a metric of RFC 9439 without a statistic"),
        (",192.0.2.2,delay-ow,1", "an endpoint is missing"),
        ("192.0.2.1,CERN-PROD,delay-ow,1", "one end is an address and the other a name"),
        ("192.0.2.1/24,192.0.2.2,delay-ow,1", "'192.0.2.1/24' is neither an address, nor a prefix without host bits"),
        ("192.0.2.256,a,delay-ow,1", "'192.0.2.256' is neither an address"),
        ("192.0.2.1,192.0.2.2,delay-ow", "this line does not fit the header"),
        ("\"192.0.2.1,192.0.2.2,delay-ow,1", "this line does not fit the header"),
    ] {
        let table = format!("src,dst,metric,value\n192.0.2.1,192.0.2.2,delay-ow,7\n{line}\n{line}\n");
        let one = json!({ "192.0.2.1/32 192.0.2.2/32": { "delay-ow": 7.0, "delay-ow:cur": 7.0 } });
        assert_eq!(costs_in(&table), one, "{line}");
        let (skipped, first) = skipped_samples(&table);
        assert!(skipped == 2 && first.starts_with(&format!("line 3: {reason}")), "{line}: {skipped}, {first}");
    }
}

#[test]
fn records_that_do_not_fit_are_skipped() {
    let good = r#"{"src": "a", "dst": "b", "metric": "hopcount", "value": 3}"#;
    for (record, reason) in [
        ("7", "this is neither an object with src, dst, metric and value, nor of iperf3"),
        (r#"{"x": 1}"#, "this is neither an object with src, dst, metric and value, nor of iperf3"),
        (r#"{"src": "a", "dst": "b", "metric": "hopcount"}"#, "there is no value"),
        (r#"{"src": "a", "dst": "b", "metric": "hopcount", "value": null}"#, "there is no value"),
        (r#"{"src": "a", "dst": "b", "metric": "hopcount", "value": [true]}"#, "NaN is not a valid value"),
        (r#"{"src": "a", "dst": "b", "metric": "hopcount", "value": {"1": 0.5}}"#, "0.5 is not a valid count"),
        (r#"{"source": "a", "destination": "b", "value": 1}"#, "it has no event type"),
        (r#"{"src": "a", "metric": "hopcount", "value": 1}"#, "an endpoint is missing"),
    ] {
        let (skipped, first) = skipped_samples(&format!("[{good}, {record}]"));
        assert!(skipped == 1 && first.starts_with(&format!("record 2: {reason}")), "{record}: {skipped}, {first}");
        let (skipped, first) = skipped_samples(&format!("{good}\n{record}\n"));
        assert!(skipped == 1 && first.starts_with(&format!("line 2: {reason}")), "{record}: {skipped}, {first}");
    }
}

#[test]
fn a_line_that_is_cut_off_takes_nothing_else_away() {
    let cut = &LINES.trim_end()[..LINES.trim_end().len() - 20];
    let measurements = parse(cut);
    assert_eq!(measurements.len(), 3);
    assert_eq!(skipped_samples(cut), (1, "line 6: this is not valid JSON: EOF while parsing a string".into()));
}

#[test]
fn pids_that_there_are_not_are_skipped() {
    let map = ResourceId::new("default").unwrap();
    let table = "src,dst,metric,value\na,b,hopcount,1\na,b,hopcount,2\na,c,hopcount,3\n";
    let (facts, skipped_samples) = parse(table).facts_among(&map, |pid| pid.as_str() != "b");
    assert_eq!(
        (skipped_samples.skipped, skipped_samples.first.as_deref()),
        (2, Some("network map default has no PID b"))
    );
    assert_eq!(facts.cost_map["default"]["hopcount"]["a"].len(), 1);
    let (facts, _) = parse(table).facts_among(&map, |_| false);
    assert_eq!(facts, AgentState::default());
}

#[test]
fn other_documents_are_refused() {
    let refusal = |text: &str, format| Measurements::parse(text.as_bytes(), format).unwrap_err();
    for text in ["", "<html></html>", "a,b,c\n1,2,3", "\u{feff} # nothing\n", "7"] {
        assert_eq!(refusal(text, None), MeasurementError::Unknown, "{text}");
    }
    assert_eq!(refusal("# x\n\na,b,c\n", Some(Format::Csv)), MeasurementError::Header { line: 3 });
    assert_eq!(refusal("", Some(Format::Csv)), MeasurementError::Header { line: 1 });
    assert!(matches!(refusal("{\"src\": 1,\n", None), MeasurementError::Invalid(_)));
    assert!(matches!(refusal("[1, 2", None), MeasurementError::Invalid(_)));
    let none = Measurements::parse(b" \n", Some(Format::Json)).unwrap();
    assert!(none.is_empty() && none.skipped_samples() == &SkippedSamples::default());
}

#[test]
fn a_format_that_is_named_holds() {
    let perfsonar = Measurements::parse(LINES.as_bytes(), Some(Format::Perfsonar)).unwrap();
    assert_eq!((perfsonar.len(), perfsonar.skipped_samples().skipped), (0, 4));
    let iperf3 = Measurements::parse(IPERF3.as_bytes(), Some(Format::Iperf3)).unwrap();
    assert_eq!(iperf3.len(), 2);
}

#[test]
fn limits_hold() {
    let limits = Limits { bytes: 200, samples: 3 };
    let within = |document: &str| {
        let options = RecordOptions { format: None, context: MeasurementContext::default() };
        Measurements::parse_within(document.as_bytes(), options, limits).map(|measurements| measurements.len())
    };
    let table = |count: usize| format!("src,dst,metric,value\n{}", "a,b,hopcount,1\n".repeat(count));
    let list = |values: &str| format!(r#"{{"src": "a", "dst": "b", "metric": "hopcount", "value": {values}}}"#);
    assert_eq!(within(&table(3)), Ok(3));
    assert_eq!(within(&table(4)), Err(MeasurementError::TooMany));
    assert_eq!(within(&list("[1, 1, 1]")), Ok(3));
    assert_eq!(within(&list("{\"1\": 1, \"2\": 9, \"3\": 0, \"4\": 1, \"5\": 1}")), Err(MeasurementError::TooMany));
    assert_eq!(within(&" ".repeat(201)), Err(MeasurementError::TooLarge(201)));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]

    /// Any modified document is either read or rejected, and the samples of one that is read become costs.
    #[test]
    fn no_document_makes_it_panic(
        which in 0..5_usize,
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..8),
    ) {
        let mut bytes = [CSV, LINES, IPERF3, PERFSONAR, PROBE][which].as_bytes().to_vec();
        for (place, byte) in changes {
            let place = place.index(bytes.len());
            bytes[place] = byte;
        }
        for format in [None, Some(Format::Csv), Some(Format::Json), Some(Format::Perfsonar)] {
            if let Ok(measurements) = Measurements::parse_in_context(&bytes, format, MeasurementContext { here: Some("192.0.2.1"), ..MeasurementContext::default() }) {
                let map = ResourceId::new("default").unwrap();
                let (facts, _) = measurements.facts_among(&map, |_| false);
                prop_assert!(NetworkState::of([&facts]).is_ok());
            }
        }
    }

    /// Statistics are ordered for arbitrary samples.
    #[test]
    fn statistics_are_ordered(values in prop::collection::vec(0.0..1e9_f64, 2..40)) {
        let list = json!([{ "src": "192.0.2.1", "dst": "192.0.2.2", "metric": "tput", "value": values }]);
        let result = costs_in(&list.to_string());
        let cost = |suffix: &str| result["192.0.2.1/32 192.0.2.2/32"][format!("tput{suffix}")].as_f64().unwrap();
        let ascending = [":min", ":median", ":p95", ":max"].map(cost);
        prop_assert!(ascending.is_sorted(), "{:?}", ascending);
        prop_assert!(cost(":mean") >= cost(":min") * 0.999 && cost(":mean") <= cost(":max") * 1.001);
        prop_assert_eq!(cost(""), cost(":median"));
    }

    #[test]
    fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        for format in [None, Some(Format::Csv), Some(Format::Json)] {
            let _ = Measurements::parse(&bytes, format);
        }
    }
}
