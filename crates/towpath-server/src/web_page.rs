//! The parts that all pages for browsers have in common: style, escaping, and the policy of their content.
//!
//! A page needs no other resource. Its style and its script are inline, and its `Content-Security-Policy` permits
//! exactly these by their SHA-256, so that a name that escaping missed still could not run a script.

use std::fmt::{self, Write as _};

use http::HeaderValue;
use towpath_proto::checksum::{Algorithm, Hasher};

/// The common style. A page may add its own.
pub const STYLE: &str = include_str!("web_page/style.css");

/// Media type of pages.
pub const HTML: HeaderValue = HeaderValue::from_static("text/html; charset=utf-8");

/// Displays text with the characters escaped that have a meaning in HTML.
#[derive(Debug, Clone, Copy)]
pub struct Escaped<T>(pub T);

impl<T: fmt::Display> fmt::Display for Escaped<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(Escaper(f), "{}", self.0)
    }
}

struct Escaper<'a, 'b>(&'a mut fmt::Formatter<'b>);

impl fmt::Write for Escaper<'_, '_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let mut rest = text;
        while let Some((at, entity)) = rest.bytes().enumerate().find_map(|(at, byte)| Some((at, entity(byte)?))) {
            let (before, after) = rest.split_at(at);
            self.0.write_str(before)?;
            self.0.write_str(entity)?;
            rest = after.get(1..).unwrap_or_default();
        }
        self.0.write_str(rest)
    }
}

fn entity(byte: u8) -> Option<&'static str> {
    match byte {
        b'&' => Some("&amp;"),
        b'<' => Some("&lt;"),
        b'>' => Some("&gt;"),
        b'"' => Some("&quot;"),
        b'\'' => Some("&#39;"),
        _ => None,
    }
}

/// Returns the beginning of a page up to `<body>`. `style` must be a style that [`security_policy`] permits.
pub fn head(title: impl fmt::Display, style: &str) -> String {
    let mut html = String::from("<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">");
    html.push_str("<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">");
    // Without it, browsers request `/favicon.ico`.
    html.push_str("<link rel=\"icon\" href=\"data:,\">");
    write!(html, "<title>{}</title>\n<style>{style}</style></head>\n<body>", Escaped(title)).ok();
    html
}

/// Returns the `Content-Security-Policy` of a page with this style and script.
pub fn security_policy(style: &str, script: Option<&str>) -> HeaderValue {
    let script = script.map_or("'none'".into(), source);
    let policy = format!(
        "default-src 'none'; style-src {}; script-src {script}; img-src data:; form-action 'self'; base-uri 'none'",
        source(style)
    );
    HeaderValue::try_from(policy).expect("hashes in Base64 are visible ASCII")
}

/// Returns the source expression that permits an inline text.
fn source(text: &str) -> String {
    format!("'sha256-{}'", Hasher::digest_of(Algorithm::Sha256, text.as_bytes()).to_base64())
}

/// Formats a number with a comma between groups of three digits.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_escaped() {
        let escaped = |text: &str| Escaped(text).to_string();
        assert_eq!(escaped("<a href=\"x\">'&amp;'"), "&lt;a href=&quot;x&quot;&gt;&#39;&amp;amp;&#39;");
        assert_eq!(escaped("é<"), "é&lt;");
        assert!(head("</title><script>", "").contains("<title>&lt;/title&gt;&lt;script&gt;</title>"));
    }

    #[test]
    fn the_policy_permits_one_style_and_one_script() {
        let policy = security_policy("a{}", Some("1"));
        let policy = policy.to_str().unwrap();
        // Computed with `printf 1 | openssl sha256 -binary | base64`.
        assert!(policy.contains("script-src 'sha256-a4ayc/80/OGda4BO/1o/V0etpOqiLx1JwB5S3beHW0s=';"), "{policy}");
        assert!(!policy.contains("unsafe"));
        assert!(security_policy("a{}", None).to_str().unwrap().contains("script-src 'none';"));
    }

    #[test]
    fn large_numbers_are_grouped() {
        for (number, text) in [(0, "0"), (999, "999"), (1000, "1,000"), (12_345_678, "12,345,678")] {
            assert_eq!(grouped(number), text);
        }
    }
}
