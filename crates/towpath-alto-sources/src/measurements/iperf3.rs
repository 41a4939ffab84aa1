//! Output of `iperf3 -J` at the client.

use super::{
    leaves::Leaves,
    samples::{SampleError, Samples, cut},
};

/// Reads the samples of one run. A UDP run yields no throughput, and a TCP run no loss.
///
/// # Errors
/// Returns an error if nothing was measured, or the run does not name its ends.
pub(super) fn add_samples(run: &Leaves, samples: &mut Samples) -> Result<(), SampleError> {
    let protocol = run.text_at("start/test_start/protocol");
    let is_udp = protocol.eq_ignore_ascii_case("udp") || run.has("end/sum/jitter_ms");
    let bits_per_s = run.number_at("end/sum_sent/bits_per_second").filter(|_| !is_udp);
    // 0 means that the sender's kernel reports no RTT.
    let mean_rtt_us = run.number_at("end/streams/0/sender/mean_rtt").filter(|rtt| *rtt > 0.0);
    let metrics = [
        ("tput", bits_per_s.map(|bits| bits / 8.0)),
        ("delay-rt", mean_rtt_us),
        ("delay-variation", run.number_at("end/sum/jitter_ms").map(|jitter| jitter * 1e3)),
        ("lossrate", run.number_at("end/sum/lost_percent")),
    ];
    if metrics.iter().all(|(_, value)| value.is_none()) {
        let reason = run.get("error").as_text();
        return Err(reason.map_or(SampleError::NoValue, |reason| SampleError::Failed(cut(&reason))));
    }
    let ends = [run.text_at("start/connected/0/local_host"), run.text_at("start/connected/0/remote_host")];
    let [local, remote] = &ends;
    let is_reverse = run.number_at("start/test_start/reverse") == Some(1.0);
    let (src, dst) = if is_reverse { (remote, local) } else { (local, remote) };
    let time = run.number_at("start/timestamp/timesecs");
    for (metric, value) in metrics {
        if let Some(value) = value {
            let series = samples.series(src, dst, metric)?;
            samples.take(series, time, [(value, 1.0)]);
        }
    }
    Ok(())
}
