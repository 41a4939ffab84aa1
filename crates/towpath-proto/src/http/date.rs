//! Dates in HTTP header fields and WebDAV properties, as seconds since the Unix epoch.

use std::time::UNIX_EPOCH;

/// Minimum time that the format can express: the beginning of the year 0.
const FIRST_S: i64 = -62_167_219_200;

/// Maximum time that the format can express: the end of the year 9999.
const LAST_S: i64 = 253_402_300_799;

/// Weekdays, starting with that of 1970-01-01.
const WEEKDAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];

const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/// Parses any of the three formats of RFC 9110 §5.6.7; times before 1970 only in the first of them. `None` for other
/// text.
pub fn parse(text: &str) -> Option<i64> {
    let text = text.trim();
    match httpdate::parse_http_date(text) {
        Ok(date) => i64::try_from(date.duration_since(UNIX_EPOCH).ok()?.as_secs()).ok(),
        Err(_) => parse_fixdate(text),
    }
}

/// Parses an IMF-fixdate of any year.
fn parse_fixdate(text: &str) -> Option<i64> {
    let mut words = text.split(' ').skip(1);
    let mut word = || words.next();
    let (day, month, year, time) = (word()?, word()?, word()?, word()?);
    let month = MONTHS.iter().position(|name| *name == month)? as i64 + 1;
    let number = |text: &str| text.parse::<u16>().map(i64::from).ok();
    let mut seconds = day_of_date(number(year)?, month, number(day)?) * 86_400;
    for (part, unit_s) in time.split(':').zip([3600, 60, 1]) {
        seconds += number(part)? * unit_s;
    }
    // Any error in the text, such as a wrong weekday, changes the formatted date.
    (format(seconds) == text).then_some(seconds)
}

/// Formats an IMF-fixdate such as `Sun, 06 Nov 1994 08:49:37 GMT`.
///
/// Times before the year 0 or after 9999, which the format cannot express, are clamped to that range.
pub fn format(unix_s: i64) -> String {
    let unix_s = unix_s.clamp(FIRST_S, LAST_S);
    let (days, second_of_day) = (unix_s.div_euclid(86_400), unix_s.rem_euclid(86_400));
    let (year, month, day) = date_of_day(days);
    let (hour, minute, second) = (second_of_day / 3600, second_of_day / 60 % 60, second_of_day % 60);
    let weekday = WEEKDAYS[days.rem_euclid(7) as usize];
    let month = MONTHS[(month - 1) as usize];
    format!("{weekday}, {day:02} {month} {year:04} {hour:02}:{minute:02}:{second:02} GMT")
}

/// Formats a time such as `1994-11-06T08:49:37Z` (RFC 3339), as WebDAV's `creationdate` requires. Times before 1970 or
/// after 9999 are clamped to that range.
pub fn format_rfc3339(unix_s: i64) -> String {
    let unix_s = unix_s.clamp(0, LAST_S);
    let (days, second_of_day) = (unix_s / 86_400, unix_s % 86_400);
    let (year, month, day) = date_of_day(days);
    let (hour, minute, second) = (second_of_day / 3600, second_of_day / 60 % 60, second_of_day % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

/// Formats a time to the minute, such as `1994-11-06 08:49`. Times before the year 0 or after 9999 are clamped to that
/// range.
pub fn format_minute(unix_s: i64) -> String {
    let unix_s = unix_s.clamp(FIRST_S, LAST_S);
    let (year, month, day) = date_of_day(unix_s.div_euclid(86_400));
    let second_of_day = unix_s.rem_euclid(86_400);
    format!("{year:04}-{month:02}-{day:02} {:02}:{:02}", second_of_day / 3600, second_of_day / 60 % 60)
}

/// Parses an RFC 3339 date and time; fractions of a second are dropped. `None` if the text is not one, or the date does
/// not exist.
pub fn parse_rfc3339(text: &str) -> Option<i64> {
    let text = text.trim();
    let number = |range: std::ops::Range<usize>| -> Option<i64> {
        let digits = text.get(range)?;
        digits.bytes().all(|digit| digit.is_ascii_digit()).then(|| digits.parse().ok())?
    };
    let separators = [(4, "-"), (7, "-"), (10, "Tt "), (13, ":"), (16, ":")];
    let well_separated = separators
        .iter()
        .all(|(at, allowed)| text.get(*at..at + 1).is_some_and(|separator| allowed.contains(separator)));
    let (year, month, day) = (number(0..4)?, number(5..7)?, number(8..10)?);
    let (hour, minute, second) = (number(11..13)?, number(14..16)?, number(17..19)?);
    let days = day_of_date(year, month, day);
    // 60 is a leap second, which Unix time does not count.
    let valid = well_separated && date_of_day(days) == (year, month, day) && hour < 24 && minute < 60 && second <= 60;
    let rest = text
        .get(19..)?
        .strip_prefix('.')
        .map_or(text.get(19..)?, |fraction| fraction.trim_start_matches(|digit: char| digit.is_ascii_digit()));
    let unix_s = days * 86_400 + hour * 3600 + minute * 60 + second - offset_s(rest)?;
    (valid && unix_s >= 0).then_some(unix_s)
}

/// Parses the offset from UTC in seconds, positive to the east: `Z`, `+hh:mm` or `-hh:mm`.
fn offset_s(text: &str) -> Option<i64> {
    if text.eq_ignore_ascii_case("z") {
        return Some(0);
    }
    let (sign, offset) = match text.strip_prefix('+') {
        Some(offset) => (1, offset),
        None => (-1, text.strip_prefix('-')?),
    };
    let (hours, minutes) = offset.split_once(':')?;
    // Number parsing accepts a sign, which is not allowed here.
    let is_number = |text: &str| text.len() == 2 && text.bytes().all(|byte| byte.is_ascii_digit());
    let number = |text: &str| is_number(text).then(|| text.parse::<u8>().ok())?;
    Some(sign * (i64::from(number(hours)?) * 3600 + i64::from(number(minutes)?) * 60))
}

/// Returns the days from 1970-01-01 to a date of the Gregorian calendar; meaningless for dates that do not exist.
fn day_of_date(year: i64, month: i64, day: i64) -> i64 {
    // Years are counted from March, so that the leap day is the last day of a year.
    let year_from_march = year - i64::from(month <= 2);
    let month_from_march = (month + 9) % 12;
    let day_of_year = (153 * month_from_march + 2) / 5 + day - 1;
    let leap_days = year_from_march.div_euclid(4) - year_from_march.div_euclid(100) + year_from_march.div_euclid(400);
    year_from_march * 365 + leap_days + day_of_year - 719_468
}

/// Returns the year, month and day of a number of days since 1970-01-01; the inverse of [`day_of_date`].
fn date_of_day(days: i64) -> (i64, i64, i64) {
    // An estimate that ignores leap days is a few years too late, at most seven in the year 9999.
    let mut year = (days + 719_468).div_euclid(365);
    while day_of_date(year, 3, 1) > days {
        year -= 1;
    }
    let day_of_year = days - day_of_date(year, 3, 1);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = (month_from_march + 2) % 12 + 1;
    (year + i64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_three_formats_are_read_and_the_first_is_written() {
        for text in ["Sun, 06 Nov 1994 08:49:37 GMT", "Sunday, 06-Nov-94 08:49:37 GMT", " Sun Nov  6 08:49:37 1994"] {
            assert_eq!(parse(text), Some(784_111_777), "{text}");
        }
        assert_eq!(format(784_111_777), "Sun, 06 Nov 1994 08:49:37 GMT");
        assert_eq!(format_minute(784_111_777), "1994-11-06 08:49");
        for text in ["", "0", "1994-11-06T08:49:37Z", "Sun, 06 Nov 1994 08:49:37 CET", "Sun, 32 Nov 1994 08:49:37 GMT"]
        {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    #[test]
    fn seconds_out_of_range_are_clamped() {
        assert_eq!(format(i64::MIN), "Sat, 01 Jan 0000 00:00:00 GMT");
        assert_eq!(format(i64::MAX), "Fri, 31 Dec 9999 23:59:59 GMT");
    }

    #[test]
    fn times_before_1970_are_read_and_written() {
        for (unix_s, text) in [
            (-1, "Wed, 31 Dec 1969 23:59:59 GMT"),
            (-631_152_000, "Sun, 01 Jan 1950 00:00:00 GMT"),
            (-11_644_473_600, "Mon, 01 Jan 1601 00:00:00 GMT"),
        ] {
            assert_eq!(format(unix_s), text);
            let minute = format_minute(unix_s);
            assert!(text.contains(&minute[..4]) && text.contains(&minute[11..]), "{minute}");
            assert_eq!(parse(text), Some(unix_s));
        }
        for text in ["Thu, 31 Dec 1969 23:59:59 GMT", "Wed, 31 Dec 1969 24:59:59 GMT", "Wed, 31 Dec 1969 23:59 GMT"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    #[test]
    fn rfc3339_is_read_and_written() {
        assert_eq!(format_rfc3339(784_111_777), "1994-11-06T08:49:37Z");
        assert_eq!(format_rfc3339(951_782_400), "2000-02-29T00:00:00Z");
        assert_eq!(format_rfc3339(i64::MAX), "9999-12-31T23:59:59Z");
        assert_eq!(format_rfc3339(-1), "1970-01-01T00:00:00Z");
        for text in ["1994-11-06T08:49:37Z", "1994-11-06t10:49:37.123+02:00", "1994-11-06 00:49:37-08:00"] {
            assert_eq!(parse_rfc3339(text), Some(784_111_777), "{text}");
        }
        for text in [
            "",
            "1994-11-06",
            "1994-11-06T08:49:37",
            "1994-02-29T00:00:00Z",
            "1994-13-01T00:00:00Z",
            "1994-00-01T00:00:00Z",
            "1994-11-06T24:00:00Z",
            "1994-11-06T08:49:37+2:00",
            "1994/11/06T08:49:37Z",
            "1994-11-06T08:49:37Zx",
            "1969-12-31T23:59:59Z",
            "+994-11-06T08:49:37Z",
        ] {
            assert_eq!(parse_rfc3339(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn dates_round_trip(unix_s in FIRST_S..=LAST_S) {
            prop_assert_eq!(parse(&format(unix_s)), Some(unix_s));
        }

        #[test]
        fn both_calendars_agree(unix_s in 0..=LAST_S) {
            prop_assert_eq!(parse_rfc3339(&format_rfc3339(unix_s)), Some(unix_s));
            // Two independent calendar computations agree.
            prop_assert_eq!(&format(unix_s)[5..7], &format_rfc3339(unix_s)[8..10]);
        }

        #[test]
        fn no_text_panics(text in "\\PC{0,40}", unix_s: i64) {
            let _ = parse(&text);
            let _ = parse_rfc3339(&text);
            let _ = format(unix_s);
            let _ = format_rfc3339(unix_s);
        }
    }
}
