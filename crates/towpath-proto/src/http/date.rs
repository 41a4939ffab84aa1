//! Dates in HTTP header fields, as seconds since the Unix epoch.

use std::time::{Duration, UNIX_EPOCH};

/// The last second that the format can express: the end of the year 9999.
const LAST_S: u64 = 253_402_300_799;

/// Reads any of the three formats of RFC 9110 §5.6.7; `None` if the text is none of them.
pub fn parse(text: &str) -> Option<i64> {
    let date = httpdate::parse_http_date(text.trim()).ok()?;
    i64::try_from(date.duration_since(UNIX_EPOCH).ok()?.as_secs()).ok()
}

/// Writes an IMF-fixdate such as `Sun, 06 Nov 1994 08:49:37 GMT`.
///
/// Seconds before 1970 or after 9999, which the format cannot express, become the nearest that it can.
pub fn format(unix_s: i64) -> String {
    let unix_s = u64::try_from(unix_s).unwrap_or(0).min(LAST_S);
    httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_secs(unix_s))
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
        for text in ["", "0", "1994-11-06T08:49:37Z", "Sun, 06 Nov 1994 08:49:37 CET", "Sun, 32 Nov 1994 08:49:37 GMT"]
        {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    #[test]
    fn seconds_out_of_range_are_clamped() {
        assert_eq!(format(i64::MIN), "Thu, 01 Jan 1970 00:00:00 GMT");
        assert_eq!(format(i64::MAX), "Fri, 31 Dec 9999 23:59:59 GMT");
    }

    proptest! {
        #[test]
        fn dates_round_trip(unix_s in 0..=LAST_S as i64) {
            prop_assert_eq!(parse(&format(unix_s)), Some(unix_s));
        }

        #[test]
        fn no_text_panics(text in "\\PC{0,40}", unix_s: i64) {
            let _ = parse(&text);
            let _ = format(unix_s);
        }
    }
}
