//! Splits `multipart/related` responses into parts (RFC 2046 §5.1, RFC 9275 §6.6). Tolerates a final delimiter that
//! is missing or lacks its dashes, bare line feeds, and parts without a header.

/// Maximum number of parts read. RFC 9275 responses have two.
const MAX_PARTS: usize = 16;

/// One part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part<'a> {
    header: &'a str,
    /// The content, trimmed.
    pub document: &'a str,
}

impl<'a> Part<'a> {
    /// Splits a part at its first empty line; returns `None` if it has no content.
    fn of(text: &'a str) -> Option<Self> {
        let header = text.split_inclusive('\n').take_while(|line| !line.trim().is_empty());
        let (header, document) = text.split_at(header.map(str::len).sum());
        Some(Self { header, document: document.trim() }).filter(|part| !part.document.is_empty())
    }

    /// Returns a header field.
    pub fn field(&self, name: &str) -> Option<&'a str> {
        let mut fields = self.header.lines().filter_map(|line| line.split_once(':'));
        fields.find(|(known, _)| known.trim().eq_ignore_ascii_case(name)).map(|(_, value)| value.trim())
    }

    /// Returns the `Content-ID` without brackets.
    pub fn id(&self) -> Option<&'a str> {
        let id = self.field("content-id")?;
        Some(id.strip_prefix('<').and_then(|id| id.strip_suffix('>')).unwrap_or(id))
    }
}

/// Returns the parts of `body`. Without a `boundary`, the first line that starts with two dashes defines it.
pub fn parts<'a>(boundary: Option<&str>, body: &'a str) -> Vec<Part<'a>> {
    let first = body.lines().find_map(|line| line.trim_end().strip_prefix("--"));
    let Some(boundary) = boundary.or(first) else { return Vec::new() };
    let delimiter = format!("--{boundary}");
    let mut parts = Vec::new();
    let (mut start, mut at) = (None::<usize>, 0);
    for line in body.split_inclusive('\n') {
        let end = at + line.len();
        if let Some(rest @ ("" | "--")) = line.trim_end().strip_prefix(&delimiter) {
            parts.extend(start.and_then(|start| Part::of(&body[start..at])));
            start = rest.is_empty().then_some(end);
            if start.is_none() || parts.len() == MAX_PARTS {
                return parts;
            }
        }
        at = end;
    }
    // The last part of a response without a final delimiter.
    parts.extend(start.and_then(|start| Part::of(&body[start..])));
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn documents<'a>(boundary: Option<&str>, body: &'a str) -> Vec<&'a str> {
        parts(boundary, body).iter().map(|part| part.document).collect()
    }

    #[test]
    fn v3_parts_say_what_they_are() {
        let body =
            "--b\r\ncontent-type : x\r\nContent-Id: <a@h>\r\n\r\n{}\r\n--b\nContent-ID: odd\n\n{}\n--b\n\n{}\n--b--\n";
        let parts = parts(Some("b"), body);
        assert_eq!(parts.iter().map(Part::id).collect::<Vec<_>>(), [Some("a@h"), Some("odd"), None]);
        assert_eq!(parts.iter().map(|part| part.field("Content-Type")).collect::<Vec<_>>(), [Some("x"), None, None]);
    }

    #[test]
    fn v8_careless_answers_are_read() {
        for (boundary, body) in [
            (Some("b"), "--b\r\nContent-Type: x\r\n\r\n{1}\r\n--b\r\nContent-ID: <y>\r\n\r\n{2}\r\n--b--\r\n"),
            (Some("b"), "--b\nContent-Type: x\n\n{1}\n--b\n\n{2}\n--b\n"),
            (Some("b"), "preamble\r\n--b\r\n\r\n{1}\r\n--b  \r\nA: b\r\n\r\n{2}"),
            (None, "--b\r\n\r\n{1}\r\n--b\r\n\r\n{2}\r\n--b--"),
            (Some("b"), "--b\n\n{1}\n--b\n\n{2}\n--b--\nbehind\n\nthe end\n--b\n\n{3}\n"),
        ] {
            assert_eq!(documents(boundary, body), ["{1}", "{2}"], "{body}");
        }
    }

    #[test]
    fn what_has_no_parts_has_none() {
        for (boundary, body) in [(None, ""), (None, "{}"), (Some("b"), "--c\n\n{}\n--c--"), (Some("b"), "--b--")] {
            assert!(documents(boundary, body).is_empty(), "{body}");
        }
        assert_eq!(documents(Some("b"), &"--b\n\n{}\n".repeat(100)).len(), MAX_PARTS);
    }

    #[test]
    fn a_longer_line_is_no_delimiter() {
        assert_eq!(documents(Some("b"), "--b\n\n--bc\n--b--"), ["--bc"]);
    }
}
