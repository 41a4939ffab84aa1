//! Media types in HTTP fields (RFC 9110 §8.3.1).

/// Returns a media type without its parameters.
pub fn essence(text: &str) -> &str {
    text.split(';').next().unwrap_or_default().trim()
}

/// Returns whether a media type is `wanted`, ignoring its parameters.
pub fn is(text: &str, wanted: &str) -> bool {
    essence(text).eq_ignore_ascii_case(wanted)
}

/// A media type. Types are compared case-insensitively.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MediaType {
    essence: String,
    /// Names in lower case, values unquoted.
    parameters: Vec<(String, String)>,
}

impl MediaType {
    /// Parses a media type leniently.
    pub fn parse(text: &str) -> Self {
        let (essence, mut rest) = text.split_once(';').unwrap_or((text, ""));
        let mut parameters = Vec::new();
        while let Some((name, value)) = rest.split_once('=') {
            let value = value.trim_start();
            let (value, after) = match value.strip_prefix('"') {
                Some(quoted) => quoted.split_once('"').unwrap_or((quoted, "")),
                None => value.split_once(';').unwrap_or((value, "")),
            };
            let name = name.trim_matches(|character: char| character == ';' || character.is_whitespace());
            parameters.push((name.to_ascii_lowercase(), value.trim().to_owned()));
            rest = after;
        }
        Self { essence: essence.trim().to_owned(), parameters }
    }

    /// Returns whether the type is `essence`, ignoring its parameters.
    pub fn is(&self, essence: &str) -> bool {
        self.essence.eq_ignore_ascii_case(essence)
    }

    /// Returns the value of a parameter; `name` must be in lower case.
    pub fn parameter(&self, name: &str) -> Option<&str> {
        self.parameters.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_of_a_media_type_do_not_matter() {
        assert!(is("Application/Alto-Error+JSON; charset=utf-8", "application/alto-error+json"));
        assert!(!is("text/html", "application/alto-error+json") && !is("", "application/alto-error+json"));
    }

    #[test]
    fn v3_parameters_may_be_quoted() {
        for text in [
            "multipart/related;boundary=a-b;type=application/alto-costmap+json",
            "Multipart/Related; Type=\"application/alto-costmap+json\" ; boundary=\"a-b\"",
            "multipart/related; start=\"<x;y=z>\"; boundary=a-b; charset=utf-8; type=application/alto-costmap+json",
        ] {
            let media_type = MediaType::parse(text);
            assert!(media_type.is("multipart/related"), "{text}");
            assert!(!media_type.is("multipart/mixed") && !media_type.is("multipart/related;boundary=a-b"), "{text}");
            assert_eq!(media_type.parameter("boundary"), Some("a-b"), "{text}");
            assert_eq!(media_type.parameter("type"), Some("application/alto-costmap+json"), "{text}");
            assert_eq!(media_type.parameter("other"), None);
        }
    }
}
