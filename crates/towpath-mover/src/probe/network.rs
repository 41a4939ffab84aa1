//! Measures the network alone, between memory at both ends.

use std::{collections::HashMap, time::Duration};

use towpath_client::{Client, Connection, Probe, ProbeResult, Side, Trace};
use towpath_proto::{probe::Direction, tcp::TcpInfo, url::Url};
use towpath_store::{
    Result,
    sys::{
        clock::{self, Instant},
        processor,
    },
};

use super::LegRecorder;
use crate::{
    account::{Account, Cause, Leg},
    sampler::{self, EVERY},
    stage::Stage,
    tuner,
    verdict::Verdict,
};

/// Measurement of the network in one direction, over some connections.
#[derive(Debug, Clone)]
pub struct NetworkMeasurement {
    /// The parameters of the probe.
    pub probe: Probe,
    /// Statistics of both kernels.
    pub probed: ProbeResult,
    /// What limited the transfer.
    pub account: Account,
    series: Vec<Series>,
}

/// Indices of the traces of one connection, in order of time.
#[derive(Debug, Clone, Default)]
struct Series {
    client: Vec<usize>,
    server: Vec<usize>,
}

/// Probes the network to the server at `url`.
///
/// # Errors
/// Errors of [`Client::probe`].
pub async fn network(client: &Client, url: &Url, probe: &Probe) -> Result<NetworkMeasurement> {
    let mut threads = Vec::new();
    let watching = async {
        let mut ticks = sampler::ticks(account_period(probe.interval));
        loop {
            ticks.tick().await;
            threads.push((clock::now(), processor::time_wanted()));
        }
    };
    let probed = tokio::select! {
        probed = client.probe(url, probe) => probed?,
        () = watching => unreachable!("it looks until it is dropped"),
    };
    let mut line = NetworkMeasurement::new(*probe, probed);
    line.account = line.explain(threads);
    Ok(line)
}

/// Returns the time between two samples of the account, at least [`EVERY`]: a multiple of that between two traces. Otherwise
/// some would have one trace less, whose time without news would count as idle.
fn account_period(of_traces: Duration) -> Duration {
    let traces = EVERY.as_nanos().div_ceil(of_traces.as_nanos().max(1));
    of_traces * u32::try_from(traces).unwrap_or(1)
}

/// Returns the bytes carried by a connection according to the client's kernel.
fn carried(direction: Direction, info: &TcpInfo) -> u64 {
    match direction {
        Direction::Down => info.received,
        Direction::Up => info.acknowledged,
    }
}

impl NetworkMeasurement {
    /// Creates a measurement whose account is empty.
    pub fn new(probe: Probe, probed: ProbeResult) -> Self {
        let mut series = vec![Series::default(); probe.connections];
        for (index, trace) in probed.traces.iter().enumerate() {
            match (series.get_mut(trace.connection), trace.side) {
                (Some(series), Side::Client) => series.client.push(index),
                (Some(series), Side::Server) => series.server.push(index),
                (None, _) => {}
            }
        }
        Self { probe, probed, account: Account::default(), series }
    }

    /// Computes the account. `threads` has samples of the CPU time that each thread of this process used or waited for.
    fn explain(&self, threads: Vec<(Instant, HashMap<u32, Duration>)>) -> Account {
        let (leg, stage) = match self.probe.direction {
            Direction::Down => (Leg::In, Stage::Read),
            Direction::Up => (Leg::Out, Stage::Write),
        };
        // No data can arrive before one round trip.
        let round_trip = self.probed.traces.iter().map(|trace| trace.info.min_rtt).max().unwrap_or_default();
        let began = self.probed.began;
        let (begins, ends) = (began + round_trip, began + self.probe.duration);
        let (before, during): (Vec<_>, Vec<_>) = threads.into_iter().partition(|(at, _)| *at <= begins);
        let used = before.into_iter().next_back().map(|(_, threads)| threads).unwrap_or_default();
        let mut recorder = LegRecorder::new(begins, Some(leg), stage, used);
        for (at, threads) in during.into_iter().filter(|(at, _)| *at <= ends) {
            let connections: Vec<_> =
                (0..self.series.len()).filter_map(|number| self.seen(number, at - began)).collect();
            let transferred =
                connections.iter().map(|connection| carried(self.probe.direction, &connection.info)).sum();
            recorder.add(at, transferred, connections, threads);
        }
        recorder.account()
    }

    /// Returns the last statistics of a connection at that time.
    fn seen(&self, number: usize, by: Duration) -> Option<Connection> {
        let Series { client, server } = &self.series[number];
        let near = self.last(client, by)?;
        // For uploads the server reports only once, at the end. Only its maximum buffers are used, which are constant.
        let far = self.last(server, by).or_else(|| self.probed.traces.get(*server.first()?));
        Some(Connection {
            number: number as u64,
            host: "".into(),
            port: 0,
            has_work: true,
            info: near.info,
            far: far.map(|trace| trace.info),
        })
    }

    /// Returns the last trace of the series at or before that time.
    fn last(&self, series: &[usize], by: Duration) -> Option<&Trace> {
        let traces = &self.probed.traces;
        let count = series.partition_point(|index| traces[*index].at <= by);
        series[..count].last().map(|index| &traces[*index])
    }

    /// Returns the bytes carried until that time since the start of the probe, interpolated linearly between samples.
    pub fn carried(&self, by: Duration) -> u64 {
        let traces = &self.probed.traces;
        let bytes = |index: &usize| carried(self.probe.direction, &traces[*index].info) as f64;
        let of = |Series { client, .. }: &Series| {
            let count = client.partition_point(|index| traces[*index].at <= by);
            let (Some(first), Some(before)) = (client.first(), client[..count].last()) else { return 0.0 };
            let since_before = |at: Duration| (at - traces[*before].at).as_secs_f64();
            let more = client.get(count).map_or(0.0, |after| {
                (bytes(after) - bytes(before)) * since_before(by) / since_before(traces[*after].at)
            });
            bytes(before) + more - bytes(first)
        };
        self.series.iter().map(of).sum::<f64>() as u64
    }

    /// Returns the mean rate of the whole probe in bytes per second, including slow start.
    pub fn mean_rate(&self) -> f64 {
        self.carried(self.probe.duration) as f64 / self.probe.duration.as_secs_f64()
    }

    /// Returns the rate of the second half of the probe in bytes per second: the rate of a long copy.
    pub fn settled_rate(&self) -> f64 {
        let half = self.probe.duration / 2;
        let bytes = self.carried(self.probe.duration).saturating_sub(self.carried(half));
        bytes as f64 / half.as_secs_f64().max(1e-9)
    }

    /// Returns the initial number of connections of a copy over this path, if `connections` are in use.
    pub fn first_connections(&self, connections: usize) -> usize {
        let here = self.probed.traces.iter().filter(|trace| trace.side == Side::Client).map(|trace| &trace.info);
        tuner::first_connections(self.round_trip().unwrap_or_default(), tuner::least_buffer(here), connections)
    }

    /// Returns the utility of the rate with this number of connections, which a copy maximizes.
    pub fn utility(&self) -> f64 {
        tuner::utility(self.settled_rate(), self.probe.connections)
    }

    /// Returns pairs of seconds since the start of the probe and bytes carried; both are increasing.
    pub fn ramp(&self) -> Vec<(f64, f64)> {
        let steps = (self.probe.duration.as_secs_f64() / EVERY.as_secs_f64()).ceil() as u32 * 5;
        let points = (0..=steps).map(|step| self.probe.duration * step / steps);
        points.map(|at| (at.as_secs_f64(), self.carried(at) as f64)).collect()
    }

    /// Returns the minimum round trip that either kernel measured, if any.
    pub fn round_trip(&self) -> Option<Duration> {
        let all = self.probed.traces.iter().map(|trace| trace.info.min_rtt);
        all.filter(|round_trip| !round_trip.is_zero()).min()
    }

    /// Returns the mean of the sender's smoothed round trips; `None` if it reported none.
    pub fn mean_round_trip(&self) -> Option<Duration> {
        let all: Vec<_> = self.sender().map(|trace| trace.info.rtt).filter(|rtt| !rtt.is_zero()).collect();
        let count = u32::try_from(all.len()).ok().filter(|count| *count > 0)?;
        Some(all.into_iter().sum::<Duration>() / count)
    }

    /// Returns the sent bytes, and the retransmitted bytes among them.
    pub fn sent(&self) -> (u64, u64) {
        let last = self.last_of_sender();
        (last.iter().map(|info| info.sent).sum(), last.iter().map(|info| info.resent).sum())
    }

    /// Returns the sum of the final congestion windows in bytes.
    pub fn congestion_window(&self) -> u64 {
        self.last_of_sender().iter().map(|info| info.congestion_window).sum()
    }

    /// Returns the congestion control of the senders; `None` if they did not report it.
    pub fn control(&self) -> Option<&'static str> {
        self.last_of_sender().first().map(|info| info.control.name())
    }

    /// Returns the main limit. Both ends use only memory, so the storage causes are attributed to the programs.
    pub fn verdict(&self) -> Option<Verdict> {
        let verdict = Verdict::on(&self.account)?;
        let (finding, remedy) = match verdict.cause {
            Cause::SourceRead | Cause::DestinationWrite => (
                "the programs at both ends were slower than the network",
                "check the processor load and the other programs at both ends",
            ),
            Cause::SlowStart => ("the connections were in slow start most of the time", "probe for longer (--seconds)"),
            _ => return Some(verdict),
        };
        let cause = if verdict.cause == Cause::SlowStart { Cause::SlowStart } else { Cause::Processor };
        Some(Verdict { cause, finding: finding.into(), remedy: Some(remedy.into()), ..verdict })
    }

    fn last_of_sender(&self) -> Vec<TcpInfo> {
        let last = |series: &Series| Some(self.probed.traces[*self.sending(series).last()?].info);
        self.series.iter().filter_map(last).collect()
    }

    fn sender(&self) -> impl Iterator<Item = &Trace> {
        self.series.iter().flat_map(|series| self.sending(series)).map(|index| &self.probed.traces[*index])
    }

    fn sending<'a>(&self, series: &'a Series) -> &'a [usize] {
        match self.probe.direction {
            Direction::Down => &series.server,
            Direction::Up => &series.client,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTT: Duration = Duration::from_millis(100);

    /// Two download connections for two seconds, each at 10 MB/s after half a second without data. `info` returns the
    /// server's kernel statistics at a time.
    fn probed(info: impl Fn(Duration) -> TcpInfo) -> NetworkMeasurement {
        let (duration, interval) = (Duration::from_secs(2), RTT);
        let probe = Probe { direction: Direction::Down, connections: 2, duration, interval };
        let mut traces = Vec::new();
        for at in (0..=25).map(|step| RTT * step) {
            let carried = (at.saturating_sub(Duration::from_millis(500)).as_secs_f64() * 10e6) as u64;
            let common = TcpInfo { min_rtt: RTT, rtt: RTT, ..TcpInfo::default() };
            let near = TcpInfo { received: 1000 + carried, peer_window: 1 << 20, ..common };
            let far = TcpInfo { received: 1, sent: carried, acknowledged: carried, busy: at, ..info(at) };
            for connection in 0..2 {
                traces.push(Trace { connection, side: Side::Client, at, info: near });
                traces.push(Trace {
                    connection,
                    side: Side::Server,
                    at,
                    info: TcpInfo { min_rtt: RTT, rtt: RTT, ..far },
                });
            }
        }
        let began = clock::now();
        let probed = ProbeResult { server: String::new(), connected: RTT, began, traces };
        // Earlier work of this process, an hour of it, must not affect the probe.
        let threads = HashMap::from([(1, Duration::from_secs(3600))]);
        let samples = (0..=10).map(|step| (began + account_period(interval) * step, threads.clone())).collect();
        let mut line = NetworkMeasurement::new(probe, probed);
        line.account = line.explain(samples);
        line
    }

    #[test]
    fn the_account_has_as_many_traces_in_each_period() {
        for (of_traces, period) in [(10, 250), (50, 250), (100, 300), (125, 250), (200, 400), (1_000, 1_000)] {
            assert_eq!(account_period(Duration::from_millis(of_traces)), Duration::from_millis(period));
        }
    }

    #[test]
    fn rates_are_of_the_legs_own_time() {
        let line = probed(|_| TcpInfo::default());
        assert_eq!(line.carried(Duration::from_secs(1)), 10_000_000);
        assert_eq!(line.carried(Duration::from_millis(1050)), 11_000_000, "between two looks");
        assert_eq!((line.mean_rate(), line.settled_rate()), (15e6, 20e6));
        assert_eq!((line.round_trip(), line.mean_round_trip()), (Some(RTT), Some(RTT)));
        assert_eq!(line.sent(), (40_000_000, 0));
        let ramp = line.ramp();
        assert_eq!((ramp[0], ramp[ramp.len() - 1]), ((0.0, 0.0), (2.0, 30e6)));
        assert!(ramp.is_sorted_by(|a, b| a.0 < b.0 && a.1 <= b.1), "{ramp:?}");
    }

    #[test]
    fn what_the_sender_says_is_what_held_it_up() {
        let full = probed(|at| TcpInfo { limited_by_buffer: at, most_send_buffer: 4 << 20, ..TcpInfo::default() });
        let verdict = full.verdict().unwrap();
        assert_eq!((verdict.cause, verdict.leg), (Cause::SenderWindow, Some(Leg::In)));
        let idle = probed(|_| TcpInfo { is_starved: true, ..TcpInfo::default() });
        assert_eq!(idle.verdict().unwrap().cause, Cause::Processor, "memory is never slow");
        let full = probed(|_| TcpInfo::default());
        assert_eq!(full.verdict().unwrap().cause, Cause::Bandwidth);
        let causes: Vec<_> = full.account.spent().iter().map(|(cause, ..)| *cause).collect();
        assert_eq!(causes, [Cause::Bandwidth, Cause::SlowStart], "{:?}", full.account);
    }
}
