//! Measurements as JSON: concatenated values, each an object (a record) or an array of records.

use serde::de::{DeserializeSeed as _, IgnoredAny, MapAccess, SeqAccess};
use serde_json::Deserializer;

use super::{
    Format, MeasurementContext, MeasurementError, iperf3,
    leaves::Leaves,
    lines, perfsonar, probe,
    samples::{SampleError, SamplePosition, Samples},
    time,
    values::{Datapoints, Values},
};
use towpath_alto::lenient::{PartialJson, PartialJsonSeed};

/// Paths read from a record, for all formats.
const FIELDS: [&str; 27] = [
    "src",
    "dst",
    "metric",
    "time",
    "ts",
    "source",
    "destination",
    "event_type",
    "event-type",
    "meta/source",
    "meta/destination",
    "meta/event_type",
    "meta/event-type",
    "headers/event-type",
    "event-types/0/base-uri",
    "url",
    "error",
    "start/version",
    "start/connected/0/local_host",
    "start/connected/0/remote_host",
    "start/timestamp/timesecs",
    "start/test_start/protocol",
    "start/test_start/reverse",
    "end/sum_sent/bits_per_second",
    "end/streams/0/sender/mean_rtt",
    "end/sum/jitter_ms",
    "end/sum/lost_percent",
];

/// How to interpret records.
#[derive(Debug, Clone, Copy)]
pub(super) struct RecordOptions<'a> {
    /// Format of the records; `None` to detect it for each record.
    pub(super) format: Option<Format>,
    /// Facts that the records lack.
    pub(super) context: MeasurementContext<'a>,
}

/// Reads all records of a document.
///
/// # Errors
/// Returns an error if the document is not valid JSON. If its first line is a complete value and others follow, an
/// invalid line is only skipped.
pub(super) fn read(document: &[u8], options: RecordOptions<'_>, samples: &mut Samples) -> Result<(), MeasurementError> {
    if !has_value_in_each_line(document) {
        let mut records = Records { options, line: None, number: 0, open: Record::default(), samples };
        return records.read(document).map_err(|error| MeasurementError::Invalid(error.to_string()));
    }
    for (number, line) in lines(document) {
        let open = Record::default();
        let read = Records { options, line: Some(number), number: 0, open, samples: &mut *samples }.read(line);
        if let Err(error) = read {
            samples.place = SamplePosition::Line(number);
            samples.skip(&SampleError::Syntax(without_line(&error)));
        }
    }
    Ok(())
}

fn has_value_in_each_line(document: &[u8]) -> bool {
    let mut lines = lines(document).map(|(_, line)| line);
    let is_value = |line: &[u8]| serde_json::from_slice::<IgnoredAny>(line).is_ok();
    lines.next().is_some_and(is_value) && lines.next().is_some()
}

/// Returns the error message without its position, which counts from the line as if it were the whole document.
fn without_line(error: &serde_json::Error) -> String {
    let reason = error.to_string();
    reason.split(" at line ").next().unwrap_or_default().to_owned()
}

/// One object and the fields read from it.
pub(super) struct Record {
    /// Values at the paths in [`FIELDS`].
    pub(super) leaves: Leaves,
    /// Contents of `value` or of its aliases.
    pub(super) values: Values,
    /// Contents of `network`.
    pub(super) legs: probe::Legs,
    /// Whether the object has any member.
    is_object: bool,
}

impl Default for Record {
    fn default() -> Self {
        let (values, legs) = (Values::default(), probe::Legs::default());
        Self { leaves: Leaves::of(&FIELDS), values, legs, is_object: false }
    }
}

impl Record {
    /// Detects the format of the record.
    fn format(&self) -> Option<Format> {
        let has = |path: &str| self.leaves.has(path);
        if has("src") || has("dst") {
            Some(Format::Json)
        } else if ["source", "destination", "meta/source", "meta/destination"].into_iter().any(has) {
            Some(Format::Perfsonar)
        } else if has("start/version") || has("start/connected/0/local_host") {
            Some(Format::Iperf3)
        } else if has("url") {
            Some(Format::Probe)
        } else {
            None
        }
    }

    /// Adds the samples of the record.
    fn add_samples(self, options: RecordOptions<'_>, samples: &mut Samples) -> Result<(), SampleError> {
        // A bare value is perfSONAR's if the caller supplied its event type.
        let alone = options.context.event.map(|_| Format::Perfsonar);
        match options.format.or_else(|| self.format()).or(alone) {
            Some(Format::Json) => self.add_plain_samples(samples),
            Some(Format::Perfsonar) => perfsonar::add_samples(self, options.context, samples),
            Some(Format::Iperf3) => iperf3::add_samples(&self.leaves, samples),
            Some(Format::Probe) => probe::add_samples(&self, options.context.here, samples),
            Some(Format::Csv) | None => Err(SampleError::Unknown),
        }
    }

    /// Adds the samples of a record in the terms of RFC 9439.
    fn add_plain_samples(self, samples: &mut Samples) -> Result<(), SampleError> {
        let [src, dst, metric] = ["src", "dst", "metric"].map(|field| self.leaves.text_at(field));
        let series = samples.series(&src, &dst, &metric)?;
        let time = ["time", "ts"].iter().find_map(|field| time::seconds(self.leaves.get(field)));
        samples.take_all(series, time, self.values, 1.0)
    }
}

impl PartialJson for Record {
    fn member<'de, A: MapAccess<'de>>(&mut self, name: &str, members: &mut A) -> Result<(), A::Error> {
        self.is_object = true;
        match name {
            "value" | "val" | "values" | "data" => members.next_value_seed(PartialJsonSeed(&mut self.values)),
            "datapoints" => members.next_value_seed(PartialJsonSeed(&mut Datapoints(&mut self.values))),
            "network" => members.next_value_seed(PartialJsonSeed(&mut self.legs)),
            _ => self.leaves.member(name, members),
        }
    }
}

/// Reads the records of a document or of one of its lines. Each record is dropped once its samples are added.
struct Records<'a> {
    options: RecordOptions<'a>,
    /// Line number to report instead of the record number, when the document is parsed line by line.
    line: Option<usize>,
    /// Number of the last record read, from 1.
    number: usize,
    /// The record outside of any array, whose members arrive one by one.
    open: Record,
    samples: &'a mut Samples,
}

impl Records<'_> {
    /// Reads concatenated values.
    fn read(&mut self, document: &[u8]) -> serde_json::Result<()> {
        // A first pass only finds where each value ends: the deserializer that extracts the samples cannot report this
        // cheaply.
        let mut values = Deserializer::from_slice(document).into_iter::<IgnoredAny>();
        let mut start = 0;
        while let Some(value) = values.next() {
            value?;
            let end = values.byte_offset();
            PartialJsonSeed(&mut *self).deserialize(&mut Deserializer::from_slice(&document[start..end]))?;
            if self.open.is_object {
                let record = std::mem::take(&mut self.open);
                self.take_record(record);
            }
            start = end;
        }
        Ok(())
    }

    /// Handles a complete record.
    fn take_record(&mut self, record: Record) {
        self.number += 1;
        self.samples.place = self.line.map_or(SamplePosition::Record(self.number), SamplePosition::Line);
        let outcome =
            if record.is_object { record.add_samples(self.options, self.samples) } else { Err(SampleError::Unknown) };
        if let Err(why) = outcome {
            self.samples.skip(&why);
        }
    }
}

impl PartialJson for Records<'_> {
    fn text(&mut self, _: &str) {
        self.take_record(Record::default());
    }

    fn number(&mut self, _: f64) {
        self.take_record(Record::default());
    }

    fn member<'de, A: MapAccess<'de>>(&mut self, name: &str, members: &mut A) -> Result<(), A::Error> {
        self.open.member(name, members)
    }

    fn elements<'de, A: SeqAccess<'de>>(&mut self, elements: &mut A) -> Result<(), A::Error> {
        let mut record = Record::default();
        while elements.next_element_seed(PartialJsonSeed(&mut record))?.is_some() {
            let record = std::mem::take(&mut record);
            self.take_record(record);
        }
        Ok(())
    }
}
