//! Values of one JSON record: a number, a histogram, or a list of these with their times.

use serde::de::{MapAccess, SeqAccess};

use super::{MAX_SAMPLES, time};
use towpath_alto::lenient::{self, PartialJson, PartialJsonSeed, Scalar};

/// A value and how often it was seen at one time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Bucket {
    /// NaN if the document has no number there.
    pub(super) value: f64,
    pub(super) count: f64,
    /// Seconds since 1970.
    pub(super) time: Option<f64>,
    /// Index of its point in the list, ascending.
    pub(super) point: usize,
}

/// The value of a record: `12.5`, `"12.5"`, `{"12.5": 4, "13": 1}`, or a list of `{"ts": 1, "val": 12.5}`.
#[derive(Default)]
pub(super) struct Values {
    buckets: Vec<Bucket>,
    points: usize,
    /// The value outside of any list, whose members arrive one by one.
    single: Point,
}

impl Values {
    /// Returns all buckets in document order. Empty if the record has no value at all.
    pub(super) fn into_buckets(mut self) -> Vec<Bucket> {
        let single = std::mem::take(&mut self.single);
        if !single.buckets.is_empty() || !single.time.is_nothing() {
            self.close(single);
        }
        self.buckets
    }

    /// Adds a complete point. One without a value becomes NaN, so that it is reported as invalid.
    fn close(&mut self, mut point: Point) {
        if point.buckets.is_empty() {
            point.add(f64::NAN, 1.0);
        }
        let time = time::seconds(&point.time);
        // One more than the limit suffices to detect that there are too many.
        let room = (MAX_SAMPLES + 1).saturating_sub(self.buckets.len());
        let buckets = point.buckets.into_iter().take(room);
        let number = self.points;
        self.buckets.extend(buckets.map(|(value, count)| Bucket { value, count, time, point: number }));
        self.points += 1;
    }
}

impl PartialJson for Values {
    fn text(&mut self, text: &str) {
        self.single.text(text);
    }

    fn number(&mut self, number: f64) {
        self.single.number(number);
    }

    fn member<'de, A: MapAccess<'de>>(&mut self, name: &str, members: &mut A) -> Result<(), A::Error> {
        self.single.member(name, members)
    }

    fn elements<'de, A: SeqAccess<'de>>(&mut self, elements: &mut A) -> Result<(), A::Error> {
        let mut point = Point::default();
        while elements.next_element_seed(PartialJsonSeed(&mut point))?.is_some() {
            self.close(std::mem::take(&mut point));
        }
        Ok(())
    }
}

/// Values by time: `{"1769860800": 12.5, "1769860860": {"12.5": 4}}`; or a list.
pub(super) struct Datapoints<'a>(pub(super) &'a mut Values);

impl PartialJson for Datapoints<'_> {
    fn member<'de, A: MapAccess<'de>>(&mut self, name: &str, members: &mut A) -> Result<(), A::Error> {
        let mut point = Point { time: Scalar::Text(name.into()), ..Point::default() };
        members.next_value_seed(PartialJsonSeed(&mut point))?;
        self.0.close(point);
        Ok(())
    }

    fn elements<'de, A: SeqAccess<'de>>(&mut self, elements: &mut A) -> Result<(), A::Error> {
        self.0.elements(elements)
    }
}

/// The values seen at one time.
#[derive(Default)]
struct Point {
    time: Scalar,
    /// Values and their counts.
    buckets: Vec<(f64, f64)>,
}

impl Point {
    fn add(&mut self, value: f64, count: f64) {
        if self.buckets.len() <= MAX_SAMPLES {
            self.buckets.push((value, count));
        }
    }
}

impl PartialJson for Point {
    fn text(&mut self, text: &str) {
        self.add(text.trim().parse().unwrap_or(f64::NAN), 1.0);
    }

    fn number(&mut self, number: f64) {
        self.add(number, 1.0);
    }

    fn member<'de, A: MapAccess<'de>>(&mut self, name: &str, members: &mut A) -> Result<(), A::Error> {
        match name {
            "ts" | "time" | "timestamp" => members.next_value_seed(PartialJsonSeed(&mut self.time)),
            "val" | "value" => members.next_value_seed(PartialJsonSeed(self)),
            _ => match name.trim().parse::<f64>() {
                Ok(value) => {
                    let count: Scalar = lenient::take(members)?;
                    self.add(value, count.as_number().unwrap_or(f64::NAN));
                    Ok(())
                }
                Err(_) => lenient::pass_over(members),
            },
        }
    }
}
