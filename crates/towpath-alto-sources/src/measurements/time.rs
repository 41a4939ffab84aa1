//! Timestamps in measurement documents.

use towpath_alto::lenient::Scalar;

/// Parses a timestamp to seconds since 1970. Accepts a number, numeric text, and RFC 3339, also with a blank in place
/// of `T` and without a zone (UTC). Returns `None` for anything else.
pub(super) fn seconds(time: &Scalar) -> Option<f64> {
    let number = time.as_number();
    let text = || time.as_text().and_then(|text| written(&text));
    number.or_else(text).filter(|seconds| seconds.is_finite())
}

fn written(text: &str) -> Option<f64> {
    let (date, clock) = text.split_once(['T', 't', ' '])?;
    let (clock, offset_s) = split_zone(clock)?;
    let [year, month, day] = numbers(date, '-')?;
    let (minutes, second) = clock.rsplit_once(':')?;
    let [hour, minute] = numbers(minutes, ':')?;
    let second: f64 = second.parse().ok()?;
    let is_possible = (1..=12).contains(&month) && (1..=31).contains(&day) && hour < 24 && minute < 60;
    // A leap second is second 60.
    if !is_possible || !(0.0..61.0).contains(&second) {
        return None;
    }
    let whole = days(year.into(), month.into(), day.into()) * 86_400 + i64::from(hour) * 3600 + i64::from(minute) * 60;
    Some((whole - offset_s) as f64 + second)
}

/// Splits the zone off a time of day and returns its offset from UTC in seconds.
fn split_zone(clock: &str) -> Option<(&str, i64)> {
    if let Some(clock) = clock.strip_suffix(['Z', 'z']) {
        return Some((clock, 0));
    }
    let Some(at) = clock.rfind(['+', '-']) else { return Some((clock, 0)) };
    let (clock, zone) = clock.split_at(at);
    let [hours, minutes] = match zone[1..].split_at_checked(2) {
        // ISO 8601 also allows an offset without a colon.
        Some((hours, minutes)) if minutes.len() == 2 => [hours.parse().ok()?, minutes.parse().ok()?],
        _ => numbers::<2>(&zone[1..], ':')?,
    };
    let offset_s = i64::from(hours) * 3600 + i64::from(minutes) * 60;
    Some((clock, if zone.starts_with('-') { -offset_s } else { offset_s }))
}

/// Parses the numbers in `text`, separated by `separator`. Returns `None` unless there are exactly `N`.
fn numbers<const N: usize>(text: &str, separator: char) -> Option<[u16; N]> {
    let numbers: Vec<u16> = text.split(separator).take(N + 1).map(|part| part.parse().ok()).collect::<Option<_>>()?;
    numbers.try_into().ok()
}

/// Returns the days from 1970 to a day of the Gregorian calendar. Years start in March, so that a leap day is the last.
fn days(year: i64, month: i64, day: i64) -> i64 {
    /// From 1 March of year 0 to 1970.
    const TO_1970: i64 = 719_468;
    let year = if month > 2 { year } else { year - 1 };
    let month = (month + 9) % 12;
    let leap_days = year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
    year * 365 + leap_days + (153 * month + 2) / 5 + day - 1 - TO_1970
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Option<f64> {
        seconds(&Scalar::Text(text.into()))
    }

    #[test]
    fn times_are_numbers_or_dates() {
        for (text, expected) in [
            ("1769860800.5", 1_769_860_800.5),
            ("1970-01-01T00:00:00Z", 0.0),
            ("2026-01-31T12:00:00Z", 1_769_860_800.0),
            ("2026-01-31t13:30:00.25+01:30", 1_769_860_800.25),
            ("2026-01-31 07:00:00-05:00", 1_769_860_800.0),
            ("2026-01-31T13:00:00+0100", 1_769_860_800.0),
            ("2026-01-31 12:00:00", 1_769_860_800.0),
            ("2000-02-29T23:59:59Z", 951_868_799.0),
            ("1969-12-31T23:59:59Z", -1.0),
        ] {
            assert_eq!(read(text), Some(expected), "{text}");
        }
        assert_eq!(seconds(&Scalar::Number(7.0)), Some(7.0));
    }

    #[test]
    fn other_texts_are_no_times() {
        for text in [
            "yesterday",
            "NaN",
            "inf",
            "2026-01-31",
            "2026-13-31T12:00:00Z",
            "2026-01-31T25:00:00Z",
            "2026-01-31T12:00:NaNZ",
            "2026-01-31T12:00Z",
            "2026-01-31T12:00:00+1",
            "2026-01-31T12:00:00+010",
            "-2026-01-31T12:00:00Z",
            "T",
            "+",
        ] {
            assert_eq!(read(text), None, "{text}");
        }
        assert_eq!(seconds(&Scalar::Nothing), None);
    }
}
