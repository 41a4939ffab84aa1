//! Sanitizes text from servers for display: it may be shown on a terminal, in a log, or in the response of another
//! server.

use towpath_store::is_obeyed;

/// Maximum length of the result in characters.
const SHOWN: usize = 300;

/// Returns a server's text on one line of at most 300 characters, without control characters, which terminals
/// interpret, and without characters that change the direction of writing.
pub(crate) fn readable(text: &str) -> String {
    let is_break = |c: char| c.is_whitespace() || is_obeyed(c);
    let mut line = String::new();
    let mut left = SHOWN;
    for word in text.split(is_break).filter(|word| !word.is_empty()) {
        let space = usize::from(!line.is_empty());
        let Some(room) = left.checked_sub(space).filter(|room| *room > 0) else { return line + "..." };
        if space > 0 {
            line.push(' ');
        }
        match word.char_indices().nth(room) {
            Some((end, _)) => return line + word.split_at(end).0 + "...",
            None => line.push_str(word),
        }
        left = room - word.chars().count();
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_left_that_a_terminal_obeys() {
        assert_eq!(readable("\x1b]0;owned\x07\x1b[31m\r\nred \u{9b}2J\u{202e}txt"), "]0;owned [31m red 2J txt");
        assert_eq!(readable("disk\tfull\n"), "disk full");
        assert_eq!(readable("\n"), "");
    }

    #[test]
    fn long_words_are_cut() {
        assert_eq!(readable(&"x".repeat(300)), "x".repeat(300));
        assert_eq!(readable(&"ä".repeat(301)), "ä".repeat(300) + "...");
        assert_eq!(readable(&"word ".repeat(100)).len(), 300 + 3 - 1);
    }
}
