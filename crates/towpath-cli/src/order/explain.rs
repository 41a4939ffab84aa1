//! A table of the values that determine the rank of each replica of a file.

use std::{ffi::OsStr, io::Write as _};

use console::measure_text_width;
use towpath_alto::replicas::ReplicatedFile;
use towpath_alto_client::net::RankedReplica;
use towpath_store::is_obeyed;

use crate::{location::shown, screen};

/// Prints the table of a file on the standard error stream. Write errors are ignored.
pub(super) fn print(file: &ReplicatedFile, places: &[RankedReplica], names: &[&str]) {
    let title = file.name.as_deref().map(|name| format!("{}\n", printable(name))).unwrap_or_default();
    let table = table(places, names);
    screen::above(|| {
        let _ = write!(std::io::stderr(), "{title}{table}");
    });
}

/// Returns the table, one replica per line.
fn table(places: &[RankedReplica], names: &[&str]) -> String {
    let heads = ["place", "replica"].into_iter().chain(names.iter().copied()).chain(["condition"]);
    let mut rows = vec![heads.map(str::to_owned).collect::<Vec<_>>()];
    for (number, place) in places.iter().enumerate() {
        let (at, condition) = match place.holds {
            _ if place.is_left_out => ("-".to_owned(), "left out"),
            Some(true) => ((number + 1).to_string(), "met"),
            Some(false) => ((number + 1).to_string(), "not met"),
            None => ((number + 1).to_string(), "unknown"),
        };
        let url = printable(&shown(OsStr::new(&place.url)));
        let texts = place.values.iter().map(|(_, value)| Some(printable(&value.as_ref()?.to_string())));
        let values = texts.map(|text| text.unwrap_or_else(|| "-".to_owned()));
        rows.push([at, url].into_iter().chain(values).chain([condition.to_owned()]).collect());
    }
    let width = |column: usize| rows.iter().filter_map(|row| Some(measure_text_width(row.get(column)?))).max();
    let widths: Vec<usize> = (0..rows[0].len()).map(|column| width(column).unwrap_or(0)).collect();
    rows.iter().map(|row| line(row, &widths)).collect()
}

fn line(row: &[String], widths: &[usize]) -> String {
    let mut line = String::new();
    for (cell, width) in row.iter().zip(widths) {
        line.push_str(cell);
        line.extend(std::iter::repeat_n(' ', width + 2 - measure_text_width(cell).min(*width)));
    }
    format!("{}\n", line.trim_end())
}

/// Replaces control characters in text from other parties, because terminals would interpret them.
fn printable(text: &str) -> String {
    text.chars().map(|character| if is_obeyed(character) { ' ' } else { character }).collect()
}

#[cfg(test)]
mod tests {
    use towpath_alto::order::Value;

    use super::*;

    #[test]
    fn each_replica_has_a_line() {
        let place = |url: &str, value: Option<f64>, holds, is_left_out| {
            let values = [("delay_ow", value.map(Value::Number)), ("continent", Some(Value::Text("E\x1bU".into())))];
            let values = values.map(|(name, value)| (name.to_owned(), value)).into();
            RankedReplica { url: url.to_owned(), values, holds, is_left_out }
        };
        let places = [
            place("root://a//f?token=hush", Some(5300.0), Some(true), false),
            place("root://bb//f", None, None, false),
            place("root://c//f", None, Some(false), true),
        ];
        let expected = "\
place  replica       delay_ow  continent  condition
1      root://a//f   5300      E U        met
2      root://bb//f  -         E U        unknown
-      root://c//f   -         E U        left out
";
        assert_eq!(table(&places, &["delay_ow", "continent"]), expected);
    }
}
