//! perfSONAR messages and pages of esmond archives.

use super::{
    MeasurementContext,
    json::Record,
    samples::{SampleError, Samples, cut},
    time,
};

/// Supported event types, with the metric of each and the factor that converts its unit.
const EVENTS: [(&str, &str, f64); 5] = [
    // Bits to bytes.
    ("throughput", "tput", 0.125),
    // Fraction to per cent.
    ("packet-loss-rate", "lossrate", 100.0),
    // Milliseconds to microseconds.
    ("histogram-owdelay", "delay-ow", 1e3),
    ("histogram-rtt", "delay-rt", 1e3),
    // A number of segments, for which RFC 9439 has no metric.
    ("packet-retransmits", "priv:retransmits", 1.0),
];

/// Adds the samples of one series of events. `context` supplies the ends and event type that the record lacks.
///
/// # Errors
/// Returns an error if the event type is not supported or an end is unknown.
pub(super) fn add_samples(
    record: Record,
    context: MeasurementContext<'_>,
    samples: &mut Samples,
) -> Result<(), SampleError> {
    let leaves = &record.leaves;
    if leaves.has("event-types/0/base-uri") {
        return Err(SampleError::Listing);
    }
    let field_text = |fields: &[&str], known: Option<&str>| {
        let found = fields.iter().map(|field| leaves.text_at(field).into_owned()).find(|text| !text.is_empty());
        found.or_else(|| known.map(str::to_owned))
    };
    let types = ["event_type", "event-type", "meta/event_type", "meta/event-type", "headers/event-type"];
    let event = field_text(&types, context.event).ok_or(SampleError::NoEvent)?;
    let known = EVENTS.iter().find(|(name, ..)| *name == event);
    let (_, metric, factor) = known.ok_or_else(|| SampleError::Event(cut(&event)))?;
    let source = field_text(&["source", "meta/source"], context.source).unwrap_or_default();
    let destination = field_text(&["destination", "meta/destination"], context.destination).unwrap_or_default();
    let series = samples.series(&source, &destination, metric)?;
    let time = ["time", "ts"].iter().find_map(|field| time::seconds(leaves.get(field)));
    samples.take_all(series, time, record.values, *factor)
}
