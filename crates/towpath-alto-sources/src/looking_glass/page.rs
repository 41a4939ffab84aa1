//! Extracts text from an HTML page: looking glasses put router output into a PRE element.
//!
//! This is not an HTML parser. Comments and scripts are treated as content; looking glasses have none that matter.

/// Maximum length of a tag in bytes. Without a limit, text full of `<` would be searched repeatedly.
const MAX_TAG_BYTES: usize = 1024;

/// Maximum length of a character reference in bytes, including `&` and `;`.
const MAX_REFERENCE_BYTES: usize = 12;

/// Returns the text of the first PRE element of `page`, without tags and with character references decoded. An
/// unclosed PRE ends with the page.
///
/// Named references other than `<`, `>`, `&`, quotes and no-break space are left unchanged; all numeric ones are
/// decoded. A no-break space becomes a space. Allocates at most twice the length of the page.
pub fn first_block(page: &str) -> Option<String> {
    let lower = page.to_ascii_lowercase();
    let mut tags = lower.match_indices("<pre").map(|(at, _)| at);
    let start = tags.find(|at| is_name_end(lower.as_bytes().get(at + "<pre".len()).copied()))?;
    let tag = page.get(start..)?;
    let text = tag.get(tag_length(tag)?..)?;
    // As in browsers.
    let text = text.strip_prefix("\r\n").or_else(|| text.strip_prefix('\n')).unwrap_or(text);
    Some(text_of(text))
}

/// Returns the text of `html`, up to the end of the enclosing PRE element.
fn text_of(html: &str) -> String {
    let mut text = String::new();
    let mut rest = html;
    while let Some(at) = rest.find(['<', '&']) {
        let (before, special) = rest.split_at(at);
        text.push_str(before);
        let piece = if special.starts_with('<') { tag(special) } else { reference(special) };
        match piece {
            Some(HtmlElement::End) => return text,
            Some(HtmlElement::Text { written, length }) => {
                text.extend(written);
                rest = &special[length..];
            }
            None => {
                // An ordinary character; both are one byte long.
                text.push_str(&special[..1]);
                rest = &special[1..];
            }
        }
    }
    text.push_str(rest);
    text
}

/// An element that starts with `<` or `&`.
enum HtmlElement {
    /// The end of the PRE element.
    End,
    /// A replacement for the next `length` bytes.
    Text { written: Option<char>, length: usize },
}

/// Parses the tag at the start of `html`. Only `<br>` is replaced by a character.
fn tag(html: &str) -> Option<HtmlElement> {
    let inside = html.strip_prefix('<')?;
    if !inside.starts_with(|c: char| c.is_ascii_alphabetic() || c == '/' || c == '!') {
        return None;
    }
    let length = tag_length(html)?;
    if is_named(inside, "/pre") {
        return Some(HtmlElement::End);
    }
    let written = is_named(inside, "br").then_some('\n');
    Some(HtmlElement::Text { written, length })
}

/// Returns whether the tag whose content starts with `inside` has this name.
fn is_named(inside: &str, name: &str) -> bool {
    let is_alike = inside.get(..name.len()).is_some_and(|start| start.eq_ignore_ascii_case(name));
    is_alike && is_name_end(inside.as_bytes().get(name.len()).copied())
}

/// Returns whether a tag name ends before this byte.
fn is_name_end(byte: Option<u8>) -> bool {
    byte.is_some_and(|byte| byte.is_ascii_whitespace() || b">/".contains(&byte))
}

/// Returns the length in bytes of the tag at the start of `html`. A `>` in quotes does not end it.
fn tag_length(html: &str) -> Option<usize> {
    let mut quote = None;
    for (at, byte) in html.bytes().enumerate().take(MAX_TAG_BYTES) {
        match (quote, byte) {
            (None, b'>') => return Some(at + 1),
            (None, b'"' | b'\'') => quote = Some(byte),
            (Some(open), _) if open == byte => quote = None,
            _ => {}
        }
    }
    None
}

/// Decodes the character reference at the start of `html`.
fn reference(html: &str) -> Option<HtmlElement> {
    let end = html.bytes().take(MAX_REFERENCE_BYTES).position(|byte| byte == b';')?;
    let name = html.get(1..end)?;
    let written = match name.strip_prefix('#') {
        Some(number) => character_by_number(number)?,
        None => character_by_name(name)?,
    };
    let written = if written == '\u{a0}' { ' ' } else { written };
    Some(HtmlElement::Text { written: Some(written), length: end + 1 })
}

fn character_by_number(number: &str) -> Option<char> {
    let code = match number.strip_prefix(['x', 'X']) {
        Some(digits) => u32::from_str_radix(digits, 16),
        None => number.parse(),
    };
    char::from_u32(code.ok()?)
}

fn character_by_name(name: &str) -> Option<char> {
    Some(match name {
        "lt" => '<',
        "gt" => '>',
        "amp" => '&',
        "quot" => '"',
        "apos" => '\'',
        "nbsp" => ' ',
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_pre_is_taken() {
        for (page, text) in [
            ("<html><pre>a</pre><pre>b</pre>", "a"),
            ("x<PRE CLASS=\"a>b\" id='c'>\n a\r\n</PRE >", " a\r\n"),
            ("<prefix>x</prefix><pre\n>a", "a"),
            ("<pre></pre>", ""),
            ("é<pre>é</pre>", "é"),
        ] {
            assert_eq!(first_block(page).as_deref(), Some(text), "{page}");
        }
        for page in ["", "<p>a</p>", "<pre", "<prefix>", "&lt;pre&gt;"] {
            assert_eq!(first_block(page), None, "{page}");
        }
    }

    #[test]
    fn tags_go_and_references_become_characters() {
        for (html, text) in [
            ("&gt; to <b>192.0.2.1</b> via <font color=\"#f00\">ae1.0</font>", "> to 192.0.2.1 via ae1.0"),
            ("a&nbsp;b&#160;c&#xA0;d", "a b c d"),
            ("&lt;&gt;&amp;&quot;&apos;&#39;&#x27;", "<>&\"'''"),
            ("a<br>b<br/>c<!-- d -->", "a\nb\nc"),
            ("a < b & c &unknown; &#; &#x110000; &;", "a < b & c &unknown; &#; &#x110000; &;"),
            ("a<b", "a<b"),
            ("&", "&"),
            ("<", "<"),
            ("&éééééééé;", "&éééééééé;"),
            ("a</preface>b</pre>c", "ab"),
        ] {
            assert_eq!(text_of(html), text, "{html}");
        }
    }
}
