//! The parts of a `multipart/related` answer (RFC 2046 §5.1, RFC 9275 §6.6), also where a server is careless: the last delimiter without its
//! dashes or missing, lines that end with a line feed alone, parts without a header.

/// More parts are not read. Two are what RFC 9275 has.
const MAX_PARTS: usize = 16;

/// The documents in `body`, without the headers of their parts. If no `boundary` is told, the first line that begins with two dashes has it.
pub(super) fn documents<'a>(boundary: Option<&str>, body: &'a str) -> Vec<&'a str> {
    let first = body.lines().find_map(|line| line.trim_end().strip_prefix("--"));
    let Some(boundary) = boundary.or(first) else { return Vec::new() };
    let delimiter = format!("--{boundary}");
    let mut parts = Vec::new();
    let (mut start, mut at) = (None::<usize>, 0);
    for line in body.split_inclusive('\n') {
        let end = at + line.len();
        if let Some(rest @ ("" | "--")) = line.trim_end().strip_prefix(&delimiter) {
            parts.extend(start.and_then(|start| content(&body[start..at])));
            start = rest.is_empty().then_some(end);
            if start.is_none() || parts.len() == MAX_PARTS {
                return parts;
            }
        }
        at = end;
    }
    // The last part, of an answer that does not say where it ends.
    parts.extend(start.and_then(|start| content(&body[start..])));
    parts
}

/// What stands behind the first empty line of a part; none if nothing does.
fn content(part: &str) -> Option<&str> {
    let header = part.split_inclusive('\n').take_while(|line| !line.trim().is_empty());
    let length: usize = header.map(str::len).sum();
    Some(part[length..].trim()).filter(|content| !content.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

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
