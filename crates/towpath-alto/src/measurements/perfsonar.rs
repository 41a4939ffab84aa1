//! Archives of perfSONAR, as esmond gives them.

use super::{
    json::Record,
    samples::{Samples, Why, cut},
    time,
};

/// Types of events that are read: the metric that each is, and what makes its unit that of the metric.
const EVENTS: [(&str, &str, f64); 5] = [
    // From bits to bytes.
    ("throughput", "tput", 0.125),
    // From a share to per cent.
    ("packet-loss-rate", "lossrate", 100.0),
    // From milliseconds to microseconds.
    ("histogram-owdelay", "delay-ow", 1e3),
    ("histogram-rtt", "delay-rt", 1e3),
    // A number of segments, for which RFC 9439 has no metric.
    ("packet-retransmits", "priv:retransmits", 1.0),
];

/// Takes the samples of one series of events.
///
/// # Errors
/// If its type is not read, or it does not tell between which ends.
pub(super) fn tell(record: Record, samples: &mut Samples) -> Result<(), Why> {
    let leaves = &record.leaves;
    let named = ["event_type", "event-type"].map(|field| leaves.text_at(field));
    let event = named.iter().find(|name| !name.is_empty()).ok_or(Why::NoEvent)?;
    let known = EVENTS.iter().find(|(name, ..)| *name == &**event);
    let (_, metric, factor) = known.ok_or_else(|| Why::Event(cut(event)))?;
    let series = samples.series(&leaves.text_at("source"), &leaves.text_at("destination"), metric)?;
    let time = ["time", "ts"].iter().find_map(|field| time::seconds(leaves.get(field)));
    samples.take_all(series, time, record.values, *factor)
}
