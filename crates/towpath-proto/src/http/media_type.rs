//! Media types, as fields of HTTP have them (RFC 9110 §8.3.1).

/// A media type without its parameters.
pub fn essence(text: &str) -> &str {
    text.split(';').next().unwrap_or_default().trim()
}

/// Whether it is `wanted`, whatever its parameters.
pub fn is(text: &str, wanted: &str) -> bool {
    essence(text).eq_ignore_ascii_case(wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_of_a_media_type_do_not_matter() {
        assert!(is("Application/Alto-Error+JSON; charset=utf-8", "application/alto-error+json"));
        assert!(!is("text/html", "application/alto-error+json") && !is("", "application/alto-error+json"));
    }
}
