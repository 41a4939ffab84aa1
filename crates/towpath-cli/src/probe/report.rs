//! The result as text and as JSON.

use std::{fmt::Write as _, io::Write as _, time::Duration};

use serde_json::{Value, json};
use towpath_mover::{
    Account, Verdict,
    probe::{FileSet, NetworkMeasurement, Prediction, StorageMeasurement},
};
use towpath_proto::{
    probe::Direction,
    units::{rate_text, size_text},
    url::Url,
};

use super::legs::ProbeResults;
use crate::{explain, failure::Failure, output::count_text};

/// Files, and the predictions of the duration of their copy in each direction.
pub(super) type Predictions = (FileSet, Vec<(Direction, Prediction)>);

/// Returns the name of a network leg.
pub(super) fn network_name(direction: Direction) -> &'static str {
    match direction {
        Direction::Down => "network down",
        Direction::Up => "network up",
    }
}

/// Returns the legs that include a storage, with their names.
fn storages(legs: &ProbeResults) -> Vec<(&'static str, &StorageMeasurement)> {
    let all = [
        ("storage read", &legs.far_read),
        ("storage write", &legs.far_write),
        ("own disk read", &legs.near_read),
        ("own disk write", &legs.near_write),
    ];
    all.into_iter().filter_map(|(name, line)| Some((name, line.as_ref()?))).collect()
}

/// Prints the result.
pub(super) fn print(as_json: bool, url: &Url, legs: &ProbeResults, predictions: &Predictions) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    match as_json {
        true => writeln!(out, "{}", document(url, legs, predictions))?,
        false => out.write_all(text(url, legs, predictions).as_bytes())?,
    }
    Ok(())
}

fn text(url: &Url, legs: &ProbeResults, (set, predictions): &Predictions) -> String {
    let mut text = head(url, legs);
    let columns = ["leg", "conns", "rate", "settled", "rtt min/mean", "resent", "cwnd", "held up by"];
    text += &row(&columns.map(str::to_owned));
    for line in &legs.network {
        text += &row(&network_row(line));
    }
    for (name, line) in storages(legs) {
        let empty = String::new;
        text += &row(&[
            name.into(),
            empty(),
            rate_text(line.rate()),
            empty(),
            empty(),
            empty(),
            empty(),
            held_up(Verdict::on(&line.account)),
        ]);
    }
    if let Some(files) = legs.files {
        let [write_ms, read_ms] = [files.write_s, files.read_s].map(|seconds| seconds * 1e3);
        let _ = writeln!(
            text,
            "each additional file of {} bytes: {write_ms:.2} ms to write, {read_ms:.2} ms to read",
            files.bytes
        );
    }
    for (leg, error) in &legs.skipped {
        let _ = writeln!(text, "{leg}: not measured: {error}");
    }
    for (leg, reason) in &legs.not_requested {
        let _ = writeln!(text, "{leg}: not measured: {reason}");
    }
    for (way, verdict) in verdicts(legs) {
        let _ = writeln!(text, "verdict, {way}: {verdict}");
    }
    for (direction, prediction) in predictions {
        let Prediction { seconds, assumptions, .. } = prediction;
        let _ = writeln!(
            text,
            "prediction, {}: {}, {} take about {}, most of it for {}; if {}",
            direction.name(),
            count_text(set.files, "file", "files"),
            size_text(set.bytes),
            time(*seconds),
            prediction.bound(),
            assumptions.join(", ")
        );
    }
    text
}

fn head(url: &Url, legs: &ProbeResults) -> String {
    let server = legs.network.first().map_or("", |line| line.probed.server.as_str());
    let round_trip = legs.round_trip().map(|least| format!(", round trip {}", ms(least))).unwrap_or_default();
    let software = if server.is_empty() { String::new() } else { format!(" ({server})") };
    format!("{}{software}{round_trip}\n", url.endpoint())
}

/// Returns one line of the table.
fn row(cells: &[String; 8]) -> String {
    let [leg, connections, rate, settled, round_trip, resent, window, cause] = cells;
    let line = format!(
        "{leg:<15} {connections:>5} {rate:>13} {settled:>13} {round_trip:>17} {resent:>8} {window:>11}  {cause}"
    );
    format!("{}\n", line.trim_end())
}

fn network_row(line: &NetworkMeasurement) -> [String; 8] {
    let (sent, resent) = line.sent();
    let round_trip = match (line.round_trip(), line.mean_round_trip()) {
        (Some(least), Some(mean)) => format!("{:.1}/{}", least.as_secs_f64() * 1e3, ms(mean)),
        (Some(least), None) => ms(least),
        (None, _) => String::new(),
    };
    [
        network_name(line.probe.direction).into(),
        line.probe.connections.to_string(),
        rate_text(line.mean_rate()),
        rate_text(line.settled_rate()),
        round_trip,
        format!("{:.2} %", 100.0 * resent as f64 / (sent as f64).max(1.0)),
        size_text(line.congestion_window()),
        held_up(line.verdict()),
    ]
}

fn held_up(verdict: Option<Verdict>) -> String {
    verdict.map_or(String::new(), |verdict| format!("{} ({:.0} %)", verdict.cause.name(), verdict.share * 100.0))
}

/// Returns the verdict of each direction: the slowest leg, and the cause that limited it.
fn verdicts(legs: &ProbeResults) -> Vec<(&'static str, String)> {
    let ways = [Direction::Down, Direction::Up].into_iter();
    ways.filter_map(|direction| Some((direction.name(), slowest(legs, direction)?))).collect()
}

fn slowest(legs: &ProbeResults, direction: Direction) -> Option<String> {
    match (legs.best(direction), legs.storage(direction)) {
        (Some(network), Some((name, line))) if ProbeResults::is_slower(line, network) => {
            let [slow, fast] = [line.rate(), network.mean_rate()].map(rate_text);
            let cause = Verdict::on(&line.account).map(|verdict| verdict.to_string()).unwrap_or_default();
            Some(format!("{name} is slower ({slow}) than the network ({fast}): {cause}"))
        }
        (Some(network), _) => network.verdict().map(|verdict| format!("network: {verdict}")),
        (None, Some((name, line))) => Verdict::on(&line.account).map(|verdict| format!("{name}: {verdict}")),
        (None, None) => None,
    }
}

/// Returns the result in JSON.
fn document(url: &Url, legs: &ProbeResults, (set, predictions): &Predictions) -> Value {
    let verdicts = verdicts(legs).into_iter().map(|(way, verdict)| (way.to_owned(), verdict.into()));
    let skipped = legs.skipped.iter().map(|(leg, error)| {
        json!({"leg": leg, "reason": error.to_string(), "error": error.fault().name(), "at_fault": error.blame().to_string()})
    });
    let not_requested = legs.not_requested.iter().map(|(leg, reason)| json!({"leg": leg, "reason": reason}));
    let storages = storages(legs).into_iter().map(|(name, line)| storage(name, line));
    let files = legs.files.map(|files| json!({"bytes": files.bytes, "write_s": files.write_s, "read_s": files.read_s}));
    json!({
        "url": url.to_string(),
        "server": legs.network.first().map(|line| &line.probed.server),
        "min_rtt_s": legs.round_trip().map(|least| least.as_secs_f64()),
        "network": legs.network.iter().map(network).collect::<Vec<_>>(),
        "storage": storages.collect::<Vec<_>>(),
        "a_further_file": files,
        "not_measured": skipped.chain(not_requested).collect::<Vec<_>>(),
        "verdicts": Value::Object(verdicts.collect()),
        "predictions": predictions.iter().map(|(direction, prediction)| predicted(*direction, set, prediction)).collect::<Vec<_>>(),
    })
}

fn network(line: &NetworkMeasurement) -> Value {
    let (sent, resent) = line.sent();
    json!({
        "direction": line.probe.direction.name(),
        "connections": line.probe.connections,
        "seconds": line.probe.duration.as_secs_f64(),
        "connected_s": line.probed.connected.as_secs_f64(),
        "bytes": line.carried(line.probe.duration),
        "rate_bytes_per_s": line.mean_rate(),
        "settled_rate_bytes_per_s": line.settled_rate(),
        "min_rtt_s": line.round_trip().map(|round_trip| round_trip.as_secs_f64()),
        "mean_rtt_s": line.mean_round_trip().map(|round_trip| round_trip.as_secs_f64()),
        "sent_bytes": sent,
        "resent_bytes": resent,
        "cwnd_bytes": line.congestion_window(),
        "congestion_control": line.control(),
        "explained": explained(&line.account, line.verdict().as_ref()),
    })
}

fn storage(name: &str, line: &StorageMeasurement) -> Value {
    json!({
        "leg": name,
        "bytes": line.bytes,
        "seconds": line.seconds,
        "rate_bytes_per_s": line.rate(),
        "explained": explained(&line.account, Verdict::on(&line.account).as_ref()),
    })
}

fn explained(account: &Account, verdict: Option<&Verdict>) -> Value {
    let mut explained = explain::to_json(account);
    explained["verdict"] = verdict.map(explain::verdict_to_json).into();
    explained
}

fn predicted(direction: Direction, set: &FileSet, prediction: &Prediction) -> Value {
    json!({
        "direction": direction.name(),
        "files": set.files,
        "bytes": set.bytes,
        "seconds": prediction.seconds,
        "bound": prediction.bound(),
        "setup_s": prediction.setup_s,
        "network_s": prediction.network_s,
        "storage_s": prediction.storage_s,
        "files_s": prediction.files_s,
        "assumptions": prediction.assumptions,
    })
}

fn ms(time: Duration) -> String {
    format!("{:.1} ms", time.as_secs_f64() * 1e3)
}

/// Formats a duration in seconds, or with larger units from ten minutes on.
fn time(seconds: f64) -> String {
    match seconds {
        seconds if seconds < 600.0 => format!("{seconds:.1} s"),
        // Milliseconds do not matter for long durations, and huge numbers overflow.
        seconds => humantime::format_duration(Duration::from_secs(seconds.min(1e15) as u64)).to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prints() {
        assert_eq!(time(1.24), "1.2 s");
        assert_eq!(time(7260.5), "2h 1m");
        assert_eq!(ms(Duration::from_micros(1500)), "1.5 ms");
    }
}
