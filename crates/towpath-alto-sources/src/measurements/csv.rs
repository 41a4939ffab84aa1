//! Measurements as a table of comma-separated values (RFC 4180), except that a field cannot span lines.

use std::{borrow::Cow, str};

use super::{
    MeasurementError, lines,
    samples::{SampleError, SamplePosition, Samples, cut},
    time,
};
use towpath_alto::lenient::Scalar;

/// Maximum number of fields per line, so that a line of commas cannot exhaust memory.
const MAX_FIELDS: usize = 256;

/// Column indices of the fields.
struct Columns {
    src: usize,
    dst: usize,
    metric: usize,
    value: usize,
    time: Option<usize>,
}

impl Columns {
    /// Returns the columns that a header names, or `None` if a required one is missing.
    fn of(header: &[u8]) -> Option<Self> {
        let names = fields(str::from_utf8(header).ok()?)?;
        let find = |column: &str| names.iter().position(|name| name.eq_ignore_ascii_case(column));
        Some(Self {
            src: find("src")?,
            dst: find("dst")?,
            metric: find("metric")?,
            value: find("value")?,
            time: find("time"),
        })
    }

    /// Reads the sample of a line.
    fn read(&self, line: &[u8], samples: &mut Samples) -> Result<(), SampleError> {
        let fields = str::from_utf8(line).ok().and_then(fields).ok_or(SampleError::Columns)?;
        let field = |column: usize| fields.get(column).map(|field| &**field).ok_or(SampleError::Columns);
        let series = samples.series(field(self.src)?, field(self.dst)?, field(self.metric)?)?;
        let value = match field(self.value)? {
            "" => return Err(SampleError::NoValue),
            text => text.parse::<f64>().map_err(|_| SampleError::NoNumber(cut(text)))?,
        };
        let time = self.time.and_then(|column| fields.get(column));
        let time = time.and_then(|text| time::seconds(&Scalar::Text(text.to_string())));
        samples.take(series, time, [(value, 1.0)]);
        Ok(())
    }
}

/// Returns whether a line names all required columns.
pub(super) fn is_header(line: &[u8]) -> bool {
    Columns::of(line).is_some()
}

/// Reads a table.
///
/// # Errors
/// Returns an error if the first line is not a header. Other invalid lines are skipped.
pub(super) fn read(document: &[u8], samples: &mut Samples) -> Result<(), MeasurementError> {
    let mut lines = lines(document);
    let (line, header) = lines.next().unwrap_or((1, b"".as_slice()));
    let columns = Columns::of(header).ok_or(MeasurementError::Header { line })?;
    for (number, line) in lines {
        samples.place = SamplePosition::Line(number);
        if let Err(why) = columns.read(line, samples) {
            samples.skip(&why);
        }
    }
    Ok(())
}

/// Splits a line into fields, without their quotes and surrounding blanks. Returns `None` if a quote is not closed, a
/// quoted field is not followed by a comma, or there are too many fields.
fn fields(line: &str) -> Option<Vec<Cow<'_, str>>> {
    let mut fields = Vec::new();
    let mut rest = line;
    while fields.len() < MAX_FIELDS {
        let (field, after) = match rest.trim_start().strip_prefix('"') {
            Some(quoted) => unquote(quoted)?,
            None => {
                let (field, after) = rest.split_at(rest.find(',').unwrap_or(rest.len()));
                (Cow::Borrowed(field.trim()), after)
            }
        };
        fields.push(field);
        let after = after.trim_start();
        match after.strip_prefix(',') {
            Some(next) => rest = next,
            None if after.is_empty() => return Some(fields),
            None => return None,
        }
    }
    None
}

/// Returns a field, given the text after its opening quote, and the text after its closing quote. Two quotes within a
/// field stand for one.
fn unquote(quoted: &str) -> Option<(Cow<'_, str>, &str)> {
    let mut field = String::new();
    let mut rest = quoted;
    loop {
        let (part, after) = rest.split_once('"')?;
        field.push_str(part);
        match after.strip_prefix('"') {
            Some(next) => {
                field.push('"');
                rest = next;
            }
            None => return Some((field.into(), after)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_may_be_quoted() {
        let read = |line: &str| fields(line).map(|fields| fields.join("|"));
        assert_eq!(read("a,b,c").as_deref(), Some("a|b|c"));
        assert_eq!(read(" a , \"b, c\" ,\"\"\"d\"\"\",").as_deref(), Some("a|b, c|\"d\"|"));
        assert_eq!(read("").as_deref(), Some(""));
        assert_eq!(read("a \"b\"").as_deref(), Some("a \"b\""));
        for line in ["\"a", "\"a\" b,c", "a,\"b\"\"", &",".repeat(MAX_FIELDS)] {
            assert_eq!(read(line), None, "{line}");
        }
    }
}
