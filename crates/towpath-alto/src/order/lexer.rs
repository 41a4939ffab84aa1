//! Splits text into tokens, with one token of lookahead. It cannot fail: invalid input becomes [`Token::Stray`] or
//! [`Token::Unclosed`], which no parser rule accepts, so that the error names what the parser expected.

use super::{SyntaxError, condition::Comparison, value::parse_number};

/// Maximum length of a text, in bytes.
pub(super) const MAX_BYTES: usize = 4096;

/// Maximum number of characters of the input quoted in an error.
const MAX_FOUND: usize = 32;

/// Reserved words, matched case-insensitively.
const KEYWORDS: [(&str, Token); 12] = [
    ("BY", Token::By),
    ("WHERE", Token::Where),
    ("ASC", Token::Asc),
    ("DESC", Token::Desc),
    ("AND", Token::And),
    ("OR", Token::Or),
    ("NOT", Token::Not),
    ("IN", Token::In),
    ("IS", Token::Is),
    ("NULL", Token::Null),
    ("TRUE", Token::True),
    ("FALSE", Token::False),
];

/// The first match wins, so longer symbols precede their prefixes.
const SYMBOLS: [(&str, Token); 16] = [
    ("==", Token::Compare(Comparison::Equal)),
    ("!=", Token::Compare(Comparison::Unequal)),
    ("<>", Token::Compare(Comparison::Unequal)),
    ("<=", Token::Compare(Comparison::LessOrEqual)),
    (">=", Token::Compare(Comparison::GreaterOrEqual)),
    ("&&", Token::And),
    ("||", Token::Or),
    ("=", Token::Compare(Comparison::Equal)),
    ("<", Token::Compare(Comparison::Less)),
    (">", Token::Compare(Comparison::Greater)),
    ("&", Token::And),
    ("|", Token::Or),
    ("!", Token::Not),
    ("(", Token::Open),
    (")", Token::Close),
    (",", Token::Comma),
];

/// The remaining input and the current token.
#[derive(Debug)]
pub(super) struct Lexer<'a> {
    current: Lexeme<'a>,
    rest: &'a str,
    /// Column at which `rest` begins.
    column: usize,
}

/// A token and its position.
#[derive(Debug, Clone, Copy)]
pub(super) struct Lexeme<'a> {
    pub(super) token: Token,
    /// Source text, including quotes.
    pub(super) text: &'a str,
    column: usize,
}

/// Token kinds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Token {
    By,
    Where,
    Asc,
    Desc,
    And,
    Or,
    Not,
    In,
    Is,
    Null,
    True,
    False,
    Compare(Comparison),
    Open,
    Close,
    Comma,
    Name,
    Number(f64),
    Text,
    /// A quoted text without its closing quote.
    Unclosed(char),
    /// Anything else.
    Stray,
    End,
}

impl<'a> Lexer<'a> {
    /// Creates a lexer positioned at the first token of `text`, which may have at most [`MAX_BYTES`].
    pub(super) fn new(text: &'a str) -> Result<Self, SyntaxError> {
        if text.len() > MAX_BYTES {
            return Err(too_long(text));
        }
        let start = Lexeme { token: Token::Stray, text: "", column: 1 };
        let mut lexer = Self { current: start, rest: text, column: 1 };
        lexer.advance();
        Ok(lexer)
    }

    /// Returns the current token.
    pub(super) fn token(&self) -> Token {
        self.current.token
    }

    /// Returns the source text of the current token.
    pub(super) fn text(&self) -> &'a str {
        self.current.text
    }

    /// Advances to the next token and returns the previous one. After the end it stays at the end.
    pub(super) fn advance(&mut self) -> Lexeme<'a> {
        self.cut(self.rest.len() - self.rest.trim_start().len());
        let column = self.column;
        let (token, length) = first_token(self.rest);
        let text = self.cut(length);
        std::mem::replace(&mut self.current, Lexeme { token, text, column })
    }

    /// Advances if the current token is `token`, and returns whether it did.
    pub(super) fn accept(&mut self, token: Token) -> bool {
        let is_there = self.token() == token;
        if is_there {
            self.advance();
        }
        is_there
    }

    /// Advances past `token`, or fails with `expected`.
    pub(super) fn expect(&mut self, token: Token, expected: &str) -> Result<(), SyntaxError> {
        if self.accept(token) { Ok(()) } else { Err(self.failure(expected)) }
    }

    /// Returns the error that `expected` should be at the current position.
    pub(super) fn failure(&self, expected: impl Into<String>) -> SyntaxError {
        let Lexeme { token, text, column } = self.current;
        let expected = match token {
            Token::Unclosed(quote) => format!("a closing {quote}"),
            _ => expected.into(),
        };
        let found = match token {
            Token::End => "the end".to_owned(),
            _ => format!("'{}'", text.chars().take(MAX_FOUND).collect::<String>()),
        };
        SyntaxError { column, expected, found }
    }

    /// Removes `length` bytes from the rest; they must end at a character boundary.
    fn cut(&mut self, length: usize) -> &'a str {
        let (text, rest) = self.rest.split_at(length);
        self.column += text.chars().count();
        self.rest = rest;
        text
    }
}

/// Removes the quotes around a text and undoubles those within.
pub(super) fn unquote(text: &str) -> String {
    let quote = if text.starts_with('"') { "\"" } else { "'" };
    let inside = text.strip_prefix(quote).and_then(|rest| rest.strip_suffix(quote)).unwrap_or_default();
    inside.replace(&quote.repeat(2), quote)
}

fn too_long(text: &str) -> SyntaxError {
    let fits = text.char_indices().take_while(|(at, character)| at + character.len_utf8() <= MAX_BYTES).count();
    let (expected, found) = (format!("at most {MAX_BYTES} bytes"), format!("{} bytes", text.len()));
    SyntaxError { column: fits + 1, expected, found }
}

/// Returns the first token of `rest` and its length in bytes.
fn first_token(rest: &str) -> (Token, usize) {
    match rest.chars().next() {
        None => (Token::End, 0),
        Some(quote @ ('\'' | '"')) => match quoted_length(rest, quote) {
            Some(length) => (Token::Text, length),
            None => (Token::Unclosed(quote), rest.len()),
        },
        Some(first) if begins_name(first) => {
            let word = run(rest, is_of_name);
            (word_token(word), word.len())
        }
        Some(first) if first.is_ascii_digit() || "+-.".contains(first) => {
            let word = run(rest, |character| is_of_name(character) || character == '+');
            (parse_number(word).map_or(Token::Stray, Token::Number), word.len())
        }
        Some(first) => {
            let symbol = SYMBOLS.into_iter().find(|(symbol, _)| rest.starts_with(*symbol));
            symbol.map_or((Token::Stray, first.len_utf8()), |(symbol, token)| (token, symbol.len()))
        }
    }
}

/// Returns the length in bytes, quotes included, of the quoted text at the start of `rest`, or `None` if it is not
/// closed.
fn quoted_length(rest: &str, quote: char) -> Option<usize> {
    let mut length = 1;
    loop {
        length += rest.get(length..)?.find(quote)? + 1;
        if !rest.get(length..)?.starts_with(quote) {
            return Some(length);
        }
        length += 1;
    }
}

/// Classifies a word as a keyword or a name. A prefix without a name is stray.
fn word_token(word: &str) -> Token {
    if let Some((_, token)) = KEYWORDS.into_iter().find(|(keyword, _)| keyword.eq_ignore_ascii_case(word)) {
        return token;
    }
    let unprefixed = word.strip_prefix("src.").or_else(|| word.strip_prefix("dst."));
    if unprefixed.unwrap_or(word).starts_with(begins_name) { Token::Name } else { Token::Stray }
}

fn run(rest: &str, is_in: impl Fn(char) -> bool) -> &str {
    rest.split_once(|character: char| !is_in(character)).map_or(rest, |(run, _)| run)
}

fn begins_name(character: char) -> bool {
    character.is_ascii_alphabetic() || character == '_'
}

fn is_of_name(character: char) -> bool {
    character.is_ascii_alphanumeric() || "_-.:".contains(character)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens(text: &str) -> Vec<(Token, &str, usize)> {
        let mut lexer = Lexer::new(text).unwrap();
        let mut tokens = Vec::new();
        while lexer.token() != Token::End {
            let Lexeme { token, text, column } = lexer.advance();
            tokens.push((token, text, column));
        }
        tokens
    }

    #[test]
    fn tokens_need_no_blanks_between_them() {
        let kinds: Vec<_> = tokens("by=a-b<=-1.5e-3&!c").into_iter().map(|(token, ..)| token).collect();
        let is = Token::Compare;
        let expected = [
            Token::By,
            is(Comparison::Equal),
            Token::Name,
            is(Comparison::LessOrEqual),
            Token::Number(-0.0015),
            Token::And,
            Token::Not,
            Token::Name,
        ];
        assert_eq!(kinds, expected);
    }

    #[test]
    fn columns_count_characters() {
        assert_eq!(tokens(" 'ö''ö'  x"), [(Token::Text, "'ö''ö'", 2), (Token::Name, "x", 10)]);
    }

    #[test]
    fn quotes_are_doubled_inside() {
        for (written, text) in
            [("''", ""), ("''''", "'"), ("'it''s'", "it's"), ("\"a\"\"'\"", "a\"'"), ("'\"\"'", "\"\"")]
        {
            assert_eq!(tokens(written), [(Token::Text, written, 1)]);
            assert_eq!(unquote(written), text);
        }
        for unclosed in ["'", "'''", "'a''", "\"a'"] {
            assert!(matches!(tokens(unclosed)[..], [(Token::Unclosed(_), _, 1)]), "{unclosed}");
        }
    }

    #[test]
    fn what_is_no_token_is_stray() {
        for text in ["1x", "-", "1-2", "1e999", "-inf", "src.", "dst.-", "ö", "#"] {
            assert_eq!(tokens(text), [(Token::Stray, text, 1)]);
        }
    }
}
