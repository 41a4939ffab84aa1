//! The trace of the network legs: JSON lines, in the format that docs/guides/probe.md describes field by field.

use std::{
    io::{self, Write as _},
    path::Path,
};

use serde_json::{Value, json};
use towpath_client::{Side, Trace};
use towpath_mover::probe::NetworkMeasurement;
use towpath_proto::{probe::Direction, url::Url};
use towpath_store::sys::{clock, disk};

use crate::{failure::Failure, output};

/// Version of the format, incremented when a field changes its meaning or is removed. Readers must ignore unknown
/// fields.
const FORMAT: u32 = 1;

/// Writer of a trace file.
pub(super) struct Writer(io::BufWriter<std::fs::File>);

impl Writer {
    /// Creates the file, or replaces an existing one.
    pub(super) fn create(path: &Path) -> Result<Self, Failure> {
        let file =
            disk::create(path).map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())));
        Ok(Self(io::BufWriter::new(file?)))
    }

    /// Writes the whole trace.
    pub(super) fn write(&mut self, url: &Url, lines: &[NetworkMeasurement]) -> Result<(), Failure> {
        let server = lines.first().map(|line| line.probed.server.as_str());
        writeln!(self.0, "{}", begin(url, server))?;
        for (number, line) in lines.iter().enumerate() {
            writeln!(self.0, "{}", leg(number, line))?;
            for trace in &line.probed.traces {
                writeln!(self.0, "{}", sample(number, line.probe.direction, trace))?;
            }
        }
        Ok(self.0.flush()?)
    }
}

fn begin(url: &Url, server: Option<&str>) -> Value {
    json!({
        "type": "begin",
        "format": FORMAT,
        "program": concat!("towpath/", env!("CARGO_PKG_VERSION")),
        "date": output::time(clock::unix_ns()),
        "url": url.to_string(),
        "server": server,
    })
}

fn leg(number: usize, line: &NetworkMeasurement) -> Value {
    json!({
        "type": "leg",
        "leg": number,
        "direction": line.probe.direction.name(),
        "connections": line.probe.connections,
        "duration_s": line.probe.duration.as_secs_f64(),
        "interval_s": line.probe.interval.as_secs_f64(),
        "connected_s": line.probed.connected.as_secs_f64(),
    })
}

fn sample(leg: usize, direction: Direction, trace: &Trace) -> Value {
    let info = &trace.info;
    let (end, is_sender) = match trace.side {
        Side::Client => ("client", direction == Direction::Up),
        Side::Server => ("server", direction == Direction::Down),
    };
    json!({
        "type": "sample",
        "leg": leg,
        "connection": trace.connection,
        "end": end,
        "sender": is_sender,
        "t_s": trace.at.as_secs_f64(),
        "bytes": if is_sender { info.acknowledged } else { info.received },
        "sent_bytes": info.sent,
        "resent_bytes": info.resent,
        "out_of_order_segments": info.out_of_order,
        "rtt_s": info.rtt.as_secs_f64(),
        "min_rtt_s": info.min_rtt.as_secs_f64(),
        "cwnd_bytes": info.congestion_window,
        "peer_window_bytes": info.peer_window,
        "delivery_rate_bytes_per_s": info.delivery_rate,
        "busy_s": info.busy.as_secs_f64(),
        "peer_limited_s": info.limited_by_peer.as_secs_f64(),
        "buffer_limited_s": info.limited_by_buffer.as_secs_f64(),
        "slow_start": info.is_in_slow_start,
        "starved": info.is_starved,
        "control": info.control.name(),
    })
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, time::Duration};

    use towpath_client::{Probe, ProbeResult};
    use towpath_proto::tcp::TcpInfo;

    use super::*;

    fn keys(value: &Value) -> BTreeSet<String> {
        value.as_object().unwrap().keys().cloned().collect()
    }

    /// Returns a line of each type, as the program writes it.
    fn written() -> [Value; 3] {
        let probe = Probe {
            direction: Direction::Down,
            connections: 1,
            duration: Duration::from_secs(5),
            interval: Duration::from_millis(100),
        };
        let probed = ProbeResult {
            server: "towpath".into(),
            connected: Duration::ZERO,
            began: clock::now(),
            traces: Vec::new(),
        };
        let line = NetworkMeasurement::new(probe, probed);
        let trace =
            Trace { connection: 0, side: Side::Server, at: Duration::from_millis(200), info: TcpInfo::default() };
        let url = "root://far.example.org//run7".parse().unwrap();
        [begin(&url, Some("towpath")), leg(0, &line), sample(0, Direction::Down, &trace)]
    }

    #[test]
    fn the_user_guide_describes_each_field() {
        let page = include_str!("../../../../docs/guides/probe.md");
        let rows = page.lines().filter_map(|line| line.strip_prefix("| `")?.split_once('`')).map(|(name, _)| name);
        let described: BTreeSet<_> = rows.filter(|name| !name.starts_with("probe.")).map(str::to_owned).collect();
        let written: BTreeSet<_> = written().iter().flat_map(keys).collect();
        assert_eq!(described, written);
    }

    #[test]
    fn the_examples_in_the_user_guide_have_the_written_fields() {
        let page = include_str!("../../../../docs/guides/probe.md");
        let shown: Vec<Value> = page
            .lines()
            .filter(|line| line.starts_with("{\""))
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        for example in written() {
            let shown = shown.iter().find(|shown| shown["type"] == example["type"]).expect("there is an example");
            assert_eq!(keys(shown), keys(&example));
        }
    }

    #[test]
    fn bytes_are_those_of_the_legs_direction() {
        let info = TcpInfo { acknowledged: 7, received: 9, ..TcpInfo::default() };
        let at = |direction, side| {
            sample(0, direction, &Trace { connection: 0, side, at: Duration::ZERO, info })["bytes"].clone()
        };
        assert_eq!([at(Direction::Down, Side::Server), at(Direction::Down, Side::Client)], [7, 9]);
        assert_eq!([at(Direction::Up, Side::Server), at(Direction::Up, Side::Client)], [9, 7]);
    }
}
